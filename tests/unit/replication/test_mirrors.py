"""mirrors.yaml: what may stand in it, and where a complaint points."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hub.errors import ConfigError
from hub.replication.config.load_mirrors import connection, load
from hub.replication.config.mirrors import Schedule, StartConfig, is_open, opens_at

GOOD = """\
clusters:
  nyc: {bootstrap: "nyc-1:9092, nyc-2:9092", owns: ["nyc.**"], tls: true}
  lon:
    bootstrap: lon-1:9093
    owns: ["lon.**"]
    tls: {ca: lon.pem}
    sasl: {mechanism: SCRAM-SHA-512, username: hub, password: "${LON_PASSWORD}"}
mirrors:
  nyc-lon:
    source: nyc
    target: lon
    topics: ["nyc.*", "**.chat"]
    exclude: [nyc.secret]
    start: {timestamp: 2026-01-01T00:00:00}
    limits: {bytes_per_second: 20MiB}
    commit: {interval: 1s}
    acls: {copy: true, principals: {"User:a": "User:b"}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mirrors.yaml"
    path.write_text(text)
    return path


def test_a_file_with_everything(tmp_path: Path) -> None:
    file = load(written(tmp_path, GOOD))
    mirror = file.mirrors["nyc-lon"]
    assert file.rule("nyc-lon") == "source"
    assert mirror.start == StartConfig(timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert (mirror.limits.bytes_per_second, mirror.commit.interval, mirror.on_gap) == (20 << 20, 1000, "stop")
    assert [
        mirror.selects(name) for name in ("nyc.chat", "nyc.a.chat", "nyc.secret", "nyc.a.b", "_x.chat")
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_topics_and_exclusions_have_patterns_inside_labels(tmp_path: Path) -> None:
    text = GOOD.replace('["nyc.*", "**.chat"]', '["nyc.orders-*"]').replace("[nyc.secret]", '["nyc.*-test"]')
    mirror = load(written(tmp_path, text)).mirrors["nyc-lon"]
    names = ("nyc.orders-eu", "nyc.orders-", "nyc.orders", "nyc.orders-eu.a", "nyc.orders-test")
    assert [mirror.selects(name) for name in names] == [True, True, False, False, False]


@pytest.mark.parametrize("wrong", ["nyc.a**b", "nyc.***", "nyc.or?ders", "nyc.a b*"])
def test_other_wildcards_inside_labels_are_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="for any characters"):
        load(written(tmp_path, GOOD.replace("**.chat", wrong)))


def test_secrets_come_from_the_environment_and_are_not_printed(tmp_path: Path) -> None:
    file = load(written(tmp_path, GOOD))
    found = connection(file, "lon", {"LON_PASSWORD": "s3cret"}, tmp_path)
    said = found.librdkafka()
    assert said["sasl.password"] == "s3cret" and said["security.protocol"] == "SASL_SSL"
    assert said["ssl.ca.location"] == str(tmp_path / "lon.pem")
    assert "s3cret" not in repr(found) and "s3cret" not in str(found)
    assert connection(file, "nyc", {}).librdkafka()["bootstrap.servers"] == "nyc-1:9092,nyc-2:9092"
    with pytest.raises(ConfigError, match="LON_PASSWORD is not set"):
        connection(file, "lon", {})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("target: lon", "target: lom", r':11:.*cluster "lom" does not exist\nHint: did you mean "lon"'),
        ("target: lon", "target: nyc", r":11:.*both"),
        ("exclude:", "exlude:", r':13:5: unknown key "exlude"\nHint: did you mean "exclude"'),
        ('"${LON_PASSWORD}"', "hunter2", r":7:.*must not be in the file"),
        (", username: hub", "", r":7:.*needs username"),
        ("20MiB", "20MB", r':15:.*"20MB" is not a size such as'),
        ("interval: 1s", "interval: true", r":16:.*is not a duration"),
        ("lon-1:9093", "lon-1", r":4:.*not host:port"),
        ('"nyc.*"', '"nyc.**x"', r":12:.*may have letters"),
        ("nyc-lon:", "Nyc Lon:", r":9:.*small letters"),
        ("{ca: lon.pem}", "{key: a.pem}", r":6:.*belong together"),
        ("target: lon", "target: lon\n    on_gap: ignore", r":12:.*'stop' or 'continue'"),
    ],
)
def test_a_mistake_is_shown_where_it_is(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match="(?s)mirrors.yaml" + said):
        load(written(tmp_path, GOOD.replace(old, new, 1)))


def test_windows_are_local_and_may_go_over_midnight() -> None:
    schedule = Schedule.model_validate(
        {"zone": "Europe/London", "windows": [{"days": ["fri"], "from": "22:00", "to": "06:00"}]}
    )

    def at(day: int, hour: int) -> datetime:
        return datetime(2026, 7, day, hour, 30, tzinfo=UTC)  # the 3rd is a Friday; London is an hour ahead

    assert [is_open(schedule, at(3, 20)), is_open(schedule, at(3, 21)), is_open(schedule, at(4, 4))] == [
        False,
        True,
        True,
    ]
    assert not is_open(schedule, at(4, 5)) and not is_open(schedule, at(4, 21))
    assert opens_at(schedule, at(4, 5)) == datetime(2026, 7, 10, 21, 0, tzinfo=UTC)
    assert is_open(None, at(4, 5))
