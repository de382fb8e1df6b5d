"""Settings of TLS and SASL for Kafka's Java client, and so Spark."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate

from hub.config import Settings
from hub.errors import ConfigError
from hub.kafka.java_client import ALLOWED_URLS, java_client
from hub.kafka.own_cluster import own_connection
from hub.materializers.spark import kafka_source

SECRET = 'a "quoted" \\ secret'


def told(project: Path, monkeypatch: pytest.MonkeyPatch, **security: Any) -> dict[str, str]:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    settings = Settings(project=project, embedded_kafka=False, bootstrap="k:9093", **security)
    return java_client(own_connection(settings))


def test_an_open_cluster_is_told_nothing(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, bootstrap="k:9092")
    assert java_client(own_connection(settings)) == {}
    security = [name for name in kafka_source.reading(settings) if ".ssl." in name or ".sasl." in name]
    assert security == [] and kafka_source.writing(settings)["kafka.bootstrap.servers"] == "k:9092"


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_a_name_and_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str, module: str
) -> None:
    sasl = {"mechanism": mechanism, "username": "hub", "password": "${KAFKA_PASSWORD}"}
    assert told(tmp_path, monkeypatch, sasl=sasl) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        'username="hub" password="a \\"quoted\\" \\\\ secret";',
    }


def test_tokens_of_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sasl = {
        "mechanism": "OAUTHBEARER",
        "token_url": "https://login/token",
        "client_id": "hub",
        "client_secret": "${KAFKA_PASSWORD}",
        "scope": "kafka",
    }
    kafka = "org.apache.kafka.common.security.oauthbearer"
    assert told(tmp_path, monkeypatch, sasl=sasl) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{kafka}.OAuthBearerLoginModule required "
        'clientId="hub" clientSecret="a \\"quoted\\" \\\\ secret" scope="kafka";',
        "sasl.login.callback.handler.class": f"{kafka}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
    }
    conf = {"spark.executor.extraJavaOptions": "-Xss4m"}
    settings = Settings(project=tmp_path, embedded_kafka=False, sasl=sasl, spark_conf=conf)  # type: ignore[arg-type]
    assert kafka_source.of_executors(settings) == {
        "spark.executor.extraJavaOptions": f"-Xss4m -D{ALLOWED_URLS}=https://login/token"
    }


def test_a_certificate_of_its_own_goes_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate(tmp_path, "hub")
    files = {"ca": "hub.pem", "certificate": "hub.pem", "key": "hub.key"}
    found = told(tmp_path, monkeypatch, tls={**files, "verify_hostname": False})
    pem = (tmp_path / "hub.pem").read_text()
    assert found == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": pem,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": pem,
        "ssl.keystore.key": (tmp_path / "hub.key").read_text(),
        "ssl.endpoint.identification.algorithm": "",
    }
    with_password = told(tmp_path, monkeypatch, tls={**files, "key_password": "${KAFKA_PASSWORD}"})
    assert with_password["ssl.key.password"] == SECRET
    assert with_password["ssl.endpoint.identification.algorithm"] == "https"


def test_the_systems_authorities_are_those_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path, "system")))
    settings = Settings(project=tmp_path, embedded_kafka=False, tls=True)  # type: ignore[arg-type]
    connection = own_connection(settings)
    assert java_client(connection)["ssl.truststore.location"] == str(tmp_path / "system.pem")
    elsewhere = java_client(connection, here=False)
    assert elsewhere["security.protocol"] == "SSL" and not any("truststore" in name for name in elsewhere)
    spark = settings.model_copy(update={"spark_master": "k8s://https://k"})
    assert not any("truststore" in name for name in kafka_source.reading(spark))


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("hub.key", "-----BEGIN RSA PRIVATE KEY-----\nMII=\n", "not a PKCS#8.*\n.*openssl pkcs8 -topk8"),
        ("hub.pem", "nothing", "ca: file .*hub.pem.* has no certificate"),
    ],
)
def test_a_file_that_java_would_not_take_is_refused_with_its_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, words: str
) -> None:
    certificate(tmp_path, "hub")
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=words) as refused:
        told(tmp_path, monkeypatch, tls={"ca": "hub.pem", "certificate": "hub.pem", "key": "hub.key"})
    assert refused.value.code == "HUB-1603" and "MII" not in str(refused.value)


def test_an_encrypted_key_is_refused_unless_java_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path, "hub")
    tls = {"certificate": "hub.pem", "key": "hub.pk8", "key_password": "${KAFKA_PASSWORD}"}

    def encrypted(*how: str) -> None:
        command = [
            "openssl",
            "pkcs8",
            "-topk8",
            *how,
            "-in",
            "hub.key",
            "-out",
            "hub.pk8",
            "-passout",
            "pass:x",
        ]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    encrypted()
    with pytest.raises(ConfigError, match=r"PBES2.*\n.*-v1 PBE-SHA1-3DES"):
        told(tmp_path, monkeypatch, tls=tls)
    encrypted("-v1", "PBE-SHA1-3DES")
    assert "ENCRYPTED" in told(tmp_path, monkeypatch, tls=tls)["ssl.keystore.key"]


def test_what_spark_prints_of_options_has_no_secret() -> None:
    """Spark's own redaction uses these patterns: for an option's name and value."""
    pattern = re.compile(kafka_source.REDACTED["spark.sql.redaction.options.regex"])
    for name in (
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.password",
    ):
        assert pattern.search(name)
    assert not pattern.search("kafka.bootstrap.servers") and not pattern.search("kafka.security.protocol")
