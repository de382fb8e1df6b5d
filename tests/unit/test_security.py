"""TLS and SASL of the hub's own Kafka: what hub.yaml and HUB_* may say, and that no secret is ever shown."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hub.cli.context import environment_of, load_settings
from hub.config import Settings
from hub.errors import ConfigError
from hub.kafka import own_cluster, own_connection
from hub.replication.clusters.clusters import access_of

SCRAM = """\
embedded_kafka: false
bootstrap: kafka-1:9093, kafka-2:9093
tls: {ca: certs/kafka.pem}
sasl: {mechanism: SCRAM-SHA-512, username: hub, password: "${KAFKA_PASSWORD}"}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("HUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "kafka.pem").write_text("a certificate")
    return tmp_path


def said(project: Path, text: str) -> Settings:
    (project / "hub.yaml").write_text(text)
    return load_settings()


def test_the_file_says_it_in_the_words_of_mirrors_yaml(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    found = own_connection(said(project, SCRAM))
    assert found.librdkafka() == {
        "bootstrap.servers": "kafka-1:9093,kafka-2:9093",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(project / "certs" / "kafka.pem"),
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "hub",
        "sasl.password": "s3cret",
    }
    wire = access_of(found, "hub-audit")
    assert (wire.bootstrap, wire.security_protocol) == ("kafka-1:9093,kafka-2:9093", "SASL_SSL")
    assert (wire.username, wire.password, wire.client_id) == ("hub", "s3cret", "hub-audit")


def test_the_variables_say_it_as_one_json_or_word_by_word(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "HUB_EMBEDDED_KAFKA": "false",
        "HUB_TLS": "true",
        "HUB_SASL": '{"mechanism": "PLAIN", "username": "hub", "password": "${KAFKA_PASSWORD}"}',
        "KAFKA_PASSWORD": "s3cret",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    one = own_connection(load_settings()).librdkafka()
    assert (one["security.protocol"], one["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    monkeypatch.delenv("HUB_SASL")
    for name in ("mechanism", "username", "password"):
        value = {"mechanism": "PLAIN", "username": "hub", "password": "${KAFKA_PASSWORD}"}[name]
        monkeypatch.setenv(f"HUB_SASL__{name.upper()}", value)
    assert own_connection(load_settings()).librdkafka() == one
    monkeypatch.setenv("HUB_TLS", "false")
    assert own_connection(load_settings()).protocol == "SASL_PLAINTEXT"


def test_a_child_gets_the_names_of_the_secrets_and_never_the_secrets(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    settings = said(project, SCRAM)
    passed = environment_of(settings)
    shown = f"{passed}{settings!r}{own_connection(settings)!r}{own_cluster(settings)!r}"
    assert "s3cret" not in shown and "${KAFKA_PASSWORD}" in passed["HUB_SASL"]
    (project / "hub.yaml").unlink()
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    assert own_connection(load_settings()).librdkafka() == own_connection(settings).librdkafka()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "embedded_kafka: false\n",
            "",
            "embedded_kafka, which the hub starts, has neither.*embedded_kafka: false",
        ),
        ("password:", "pasword:", 'setting "sasl.pasword" is not known\nHint: did you mean "password"'),
        ("sasl:", "sasi:", 'setting "sasi" is not known\nHint: did you mean "sasl"'),
        ("{ca:", "{authority:", 'setting "tls.authority" is not known.*known are: ca, certificate'),
        ('"${KAFKA_PASSWORD}"', "hunter2", "sasl.password.*must not be in the file: write .{NAME}"),
        ('"${KAFKA_PASSWORD}"', "4711", "sasl.password.*valid string"),
        (", username: hub", "", 'setting "sasl": SCRAM-SHA-512 needs username'),
        ("SCRAM-SHA-512", "GSSAPI", "sasl.mechanism.*'PLAIN'"),
        ("{ca: certs/kafka.pem}", "{key: a.pem}", 'setting "tls": certificate and key belong together'),
        ('{mechanism: SCRAM-SHA-512, username: hub, password: "${KAFKA_PASSWORD}"}', "hunter2", '"sasl"'),
    ],
)
def test_a_mistake_is_named_with_its_way_out_and_without_what_may_be_a_secret(
    project: Path, old: str, new: str, words: str
) -> None:
    assert old in SCRAM
    with pytest.raises(ConfigError, match="(?s)" + words) as refused:
        said(project, SCRAM.replace(old, new, 1))
    assert refused.value.__suppress_context__  # what pydantic itself says has the input in it
    assert not any(secret in str(refused.value) for secret in ("hunter2", "4711", "KAFKA_PASSWORD"))


def test_a_variable_that_is_no_json_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_SASL", "mechanism=PLAIN,password=hunter2")
    with pytest.raises(ConfigError, match='setting "sasl".*valid dictionary') as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("HUB_SASL", "null")
    monkeypatch.setenv("HUB_STORES", "history=hunter2")
    with pytest.raises(ConfigError, match='"stores".*not JSON') as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)


def test_a_secret_or_a_file_that_is_not_there_is_said_before_anything_connects(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = said(project, SCRAM)
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="variable KAFKA_PASSWORD is not set.*\n.*set KAFKA_PASSWORD="):
        own_cluster(settings)
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    (project / "certs" / "kafka.pem").unlink()
    with pytest.raises(ConfigError, match=r"tls: ca: file .*kafka.pem.*No such file") as missing:
        own_cluster(settings)
    assert missing.value.code == "HUB-1603"


def test_clients_of_kafka_are_made_in_three_places() -> None:
    """Of the hub's own, of those in mirrors.yaml, and of the embedded one on its private ports:
    one made elsewhere would know of no TLS and no password."""
    hub = Path(__file__).parents[2] / "hub"
    made = re.compile(r"(?<!class )\b(KafkaCluster|ClusterAccess)\(|kafka\.bootstrap\.servers")
    found = {path.relative_to(hub).as_posix() for path in hub.rglob("*.py") if made.search(path.read_text())}
    assert found == {
        "embedded/interrupted_transactions.py",
        "kafka/own_cluster.py",
        "replication/clusters/clusters.py",
    }
