"""Versions of durable formats: what is read, upgraded, rebuilt or refused, and where it is noted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hub.errors import ConfigError
from hub.formats import home, table, topics
from hub.formats.deprecations import DEPRECATIONS, Deprecation, deprecated_keys
from hub.formats.report import FoundState, UpgradeReport, require_no_refusal
from hub.formats.stamps import FIRST, Stamp
from hub.formats.table import DELTA, FORMATS, ORDER, STORE, TOKENS, VIEW_RULES, DurableFormat
from hub.formats.verdicts import judge, require_readable
from hub.log import MemoryCluster
from hub.record import NewRecord

THIRD = DurableFormat("letters", "letters.json", "home", ("server",), version=3, oldest=2)


def raised(monkeypatch: pytest.MonkeyPatch, name: str, version: int) -> None:
    """Let this release write a newer version of a format."""
    newer = tuple(replace(each, version=version) if each.name == name else each for each in FORMATS)
    monkeypatch.setattr(table, "FORMATS", newer)


def test_a_version_is_read_upgraded_rebuilt_or_refused() -> None:
    assert [judge(THIRD, Stamp(number)) for number in (1, 2, 3, 4)] == [
        "refused",
        "upgrade",
        "nothing",
        "refused",
    ]
    assert judge(DELTA, Stamp(1)) == "rebuild" and judge(VIEW_RULES, Stamp(0)) == "nothing"


def test_a_refusal_names_format_versions_release_and_the_way_out() -> None:
    with pytest.raises(ConfigError) as newer:
        require_readable(STORE, Stamp(7, "9.1.0"), 'store "sqlite:///s.db"')
    assert newer.value.code == "HUB-1150"
    for part in ('store "sqlite:///s.db"', '"store"', "version 7", "written by release 9.1.0", "reads 1"):
        assert part in newer.value.message
    assert "start that release or a newer one, or name another store" in str(newer.value.hint)
    with pytest.raises(ConfigError) as older:
        require_readable(THIRD, Stamp(1), "a file")
    assert "reads 2 to 3" in older.value.message and "releases in between" in str(older.value.hint)


def test_the_table_is_sound() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    for each in FORMATS:
        assert each.oldest <= each.version and set(each.writers) <= set(ORDER), each.name
        assert each.writers or each.noted == "itself", f"{each.name}: nobody notes its version"


def test_a_home_notes_its_versions_and_an_older_release_is_refused_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.admit_home(tmp_path, "server")
    noted = home.read_stamps(tmp_path)
    assert noted["tokens"].version == 1 and noted["tokens"].release and "sink-pauses" not in noted
    with monkeypatch.context() as patch:
        raised(patch, "tokens", 2)
        home.admit_home(tmp_path, "server")
    assert home.read_stamps(tmp_path)["tokens"].version == 2
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match='format "tokens" has version 2'):
        home.admit_home(tmp_path, "server")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    home.admit_home(tmp_path, "sinks")  # other parts go on
    (tmp_path / home.FOLDER / "tokens.json").write_text("[]")
    with pytest.raises(ConfigError) as unreadable:
        home.read_stamps(tmp_path)
    assert unreadable.value.code == "HUB-1151"


def test_a_cluster_notes_its_versions_and_the_highest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster()
    assert topics.read_stamps(cluster) == {}
    topics.admit_topics(cluster, "auditor", 1)
    assert set(topics.read_stamps(cluster)) == {"dead-letters", "conformance"}
    end = cluster.end_offsets([topics.TOPIC])
    topics.admit_topics(cluster, "auditor", 1)
    assert cluster.end_offsets([topics.TOPIC]) == end, "what is noted is not written again"
    with monkeypatch.context() as patch:
        raised(patch, "conformance", 2)
        topics.admit_topics(cluster, "auditor", 1)
    body = json.dumps({"version": 1}).encode()  # a process of the older release that started at once
    cluster.writer().append([NewRecord(topics.TOPIC, b"conformance/1", body, partition=0)])
    end = cluster.end_offsets([topics.TOPIC])
    with pytest.raises(ConfigError, match='format "conformance" has version 2'):
        topics.admit_topics(cluster, "auditor", 1)
    assert cluster.end_offsets([topics.TOPIC]) == end
    topics.admit_topics(cluster, "materializer", 1)
    assert {"progress", "changelog"} <= set(topics.read_stamps(cluster))


def test_a_report_says_what_happens_and_whether_the_way_back_stays() -> None:
    same = FoundState(TOKENS, "tokens.json", FIRST)
    assert UpgradeReport([same]).rollback is True
    assert UpgradeReport([same, FoundState(STORE, "s", None, "away")]).rollback is None
    old = FoundState(THIRD, "letters.json", Stamp(2))
    report = UpgradeReport([same, old])
    assert report.rollback is False and "letters" in report.rollback_text
    assert [each["action"] for each in report.as_json()["formats"]] == ["nothing", "upgrade"]
    require_no_refusal(report.states)
    refused = [FoundState(TOKENS, "t", Stamp(2)), same, FoundState(STORE, "s", Stamp(3))]
    with pytest.raises(ConfigError) as both:
        require_no_refusal(refused)
    assert 't: format "tokens"' in both.value.message and 's: format "store"' in both.value.message
    assert UpgradeReport(refused).as_json()["formats"][0]["detail"].startswith("t: format")


def test_deprecated_keys_are_named_with_place_and_replacement(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.yaml").write_text("view: v\nstages:\n  - {name: a, slow: true}\n")
    (tmp_path / "topics.yaml").write_text("slow: 1\n")
    (tmp_path / "views" / "broken.yaml").write_text("a: [")
    old = Deprecation("views/*.yaml", "stages.*.slow", "0.2.0", "0.4.0", "write `pace: slow`")
    (found,) = deprecated_keys(tmp_path, [old])
    assert found.where == f"{tmp_path / 'views' / 'v.yaml'}:3:15"
    assert str(found).endswith(
        "`stages.0.slow` is deprecated since 0.2.0 and removed in 0.4.0: write `pace: slow`"
    )
    assert deprecated_keys(tmp_path, []) == []


def test_a_parquet_store_is_deprecated_by_its_value(tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text(
        "stores:\n  duck: duckdb\n  lake: parquet\n  far: parquet:///data/far\nstore_url: parquet\n"
    )
    assert [each.key for each in deprecated_keys(tmp_path)] == ["stores.lake", "stores.far"]


def test_a_deprecated_key_works_for_two_minor_versions() -> None:
    for each in DEPRECATIONS:
        since, gone = (tuple(map(int, version.split("."))) for version in (each.since, each.removed_in))
        assert gone[0] > since[0] or gone[1] >= since[1] + 2, each.key
