"""The lock of jars: what is refused, and that the committed lock is whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hub.config import Settings
from hub.embedded.jars import ivy_descriptor, lock_path, missing_jars, proxy_options, verify
from hub.embedded.lock import Jar, of_sets, parse_lock, render_lock
from hub.errors import ConfigError, HubFault

ONE = Jar("kafka", "org.apache.kafka", "kafka_2.13", "4.3.1", "a" * 64, 1_621_852)
TWO = Jar("spark", "org.apache.kafka", "kafka-clients", "3.9.2", "b" * 64, 9_220_052)


def test_what_is_rendered_is_parsed_again() -> None:
    assert parse_lock(render_lock([TWO, ONE])) == [ONE, TWO]
    assert of_sets([ONE, TWO], ["spark"]) == [TWO]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no jar"),
        ("[[jar]", "lock file:"),
        (render_lock([ONE]).replace("version", "versoin"), "versoin"),
        (render_lock([ONE]).replace("a" * 64, "a" * 63), "kafka_2.13:4.3.1 lacks a sha256"),
        (
            render_lock([ONE, Jar("spark", "other", "kafka_2.13", "4.3.1", "b" * 64, 1)]),
            "share the file name",
        ),
    ],
)
def test_a_broken_lock_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"locks/jars\.toml") as refusal:
        parse_lock(text)
    assert said in refusal.value.message
    assert refusal.value.hint is not None


def test_the_committed_lock_has_its_sets_at_the_versions_the_adr_names() -> None:
    jars = parse_lock(lock_path().read_text())
    names = {jar.file_name for jar in jars}
    assert {jar.set for jar in jars} == {
        "kafka",
        "spark",
        "connect",
        "connect-file",
        "connect-postgres",
        "registry-client",
        "mirror-maker",
        "old-kafka",
        "flink",
        "postgres-client",
    }
    assert {
        "kafka_2.13-4.3.1.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-avro_2.13-4.1.1.jar",
    } <= names


def test_jars_of_tests_are_fetched_by_nothing_that_the_product_starts(tmp_path: Path) -> None:
    fetched = {jar.set for jar in missing_jars(Settings(cache=tmp_path))}
    assert fetched == {"kafka", "spark"}
    code = Path(lock_path().parents[1], "hub").rglob("*.py")
    texts = [path.read_text() for path in code if path.name != "import_sql.py"]  # has a command called flink
    for of_tests in ("registry-client", "mirror-maker", "old-kafka", "flink"):
        naming = [each for each in texts if f'"{of_tests}"' in each]
        assert len(naming) == 2  # the lock's roots and its description


def test_a_jar_with_other_bytes_is_refused_with_both_checksums(tmp_path: Path) -> None:
    path = tmp_path / "kafka.jar"
    path.write_bytes(b"as it was locked")
    good = Jar("kafka", "g", "a", "1", hashlib.sha256(b"as it was locked").hexdigest(), 16)
    verify(good, path)
    path.write_bytes(b"as it was tampered")
    with pytest.raises(HubFault) as refusal:
        verify(good, path)
    assert "g:a:1" in refusal.value.message
    assert good.sha256 in refusal.value.message
    assert hashlib.sha256(b"as it was tampered").hexdigest() in refusal.value.message
    assert str(path) in str(refusal.value.hint)


def test_only_what_is_missing_is_fetched(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path)
    everything = missing_jars(settings)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / everything[0].file_name).touch()
    assert missing_jars(settings) == everything[1:]


def test_two_versions_of_one_artifact_are_both_asked_for() -> None:
    descriptor = ivy_descriptor([("g", "a", "1", False), ("g", "a", "2", False)])
    assert '<manager name="all"/>' in descriptor
    assert '<manager name="all"/>' not in ivy_descriptor([("g", "a", "1", True)])


def test_proxies_of_the_environment_reach_java() -> None:
    environment = {"HTTPS_PROXY": "http://proxy.corp:3128", "no_proxy": "localhost, .corp"}
    assert proxy_options(environment) == [
        "-Dhttps.proxyHost=proxy.corp",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.corp",
    ]
    assert proxy_options({"no_proxy": "localhost"}) == []
    assert proxy_options({"https_proxy": "proxy.corp:3128"})[0] == "-Dhttps.proxyHost=proxy.corp"
