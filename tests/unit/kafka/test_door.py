"""librdkafka's messages about a refused connection, as the hub reports them. The messages are real ones
(2.16)."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from hub.kafka.connection import BARRED, Connection
from hub.kafka.contact.connect_diagnosis import DiagnosisCallback, diagnose

AUTH, TLS, TRANSPORT = KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT
AT = "sasl_ssl://127.0.0.1:9093/bootstrap: "
SHAKEN = f"{AT}SSL handshake failed: "


@pytest.mark.parametrize(
    ("code", "said", "why", "hint"),
    [
        (
            AUTH,
            (
                f"{AT}SASL authentication error: Authentication failed during authentication due to invalid "
                "credentials with SASL "
                "mechanism SCRAM-SHA-512 (after 374ms in state AUTH_REQ)"
            ),
            "password is wrong (due to invalid credentials with SASL mechanism SCRAM-SHA-512)",
            "variable that the password",
        ),
        (
            AUTH,
            (
                f"{AT}SASL authentication error: Authentication failed: Invalid username or password (after "
                "301ms in state AUTH_REQ)"
            ),
            "password is wrong (Invalid username or password)",
            "variable that the password",
        ),
        (
            AUTH,
            (
                f"{AT}SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL mechanism: "
                "broker's supported "
                "mechanisms: PLAIN,SCRAM-SHA-256 (after 300ms in state AUTH_HANDSHAKE)"
            ),
            "does not offer SCRAM-SHA-512",
            "PLAIN,SCRAM-SHA-256",
        ),
        (
            AUTH,
            (
                f"{AT}SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Request not valid in current "
                "SASL state: broker's "
                "supported mechanisms:  (after 1ms in state AUTH_HANDSHAKE)"
            ),
            "this port does not offer SASL",
            "remove `sasl`",
        ),
        (
            AUTH,
            'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}',
            'no token could be obtained for it ({"error": "invalid_client"})',
            "client_secret",
        ),
        (
            TLS,
            (
                f"{SHAKEN}error:0A000086:SSL routines::certificate verify failed: broker certificate could "
                "not be verified, verify "
                "that ssl.ca.location is correctly configured (after 22ms in state SSL_HANDSHAKE)"
            ),
            "certificate is not trusted",
            "tls.ca",
        ),
        (
            TRANSPORT,
            (
                f"{SHAKEN}Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT broker "
                "listener? (after 14ms in "
                "state SSL_HANDSHAKE)"
            ),
            "does not speak TLS",
            "remove `tls`",
        ),
        (
            TRANSPORT,
            (
                "ssl://127.0.0.1:9093/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert "
                "bad certificate: SSL alert number 42 (after 0ms in state APIVERSION_QUERY)"
            ),
            "does not take the hub's certificate",
            "tls.certificate",
        ),
    ],
)
def test_each_reason_has_its_words_and_its_way_out(code: int, said: str, why: str, hint: str) -> None:
    found = diagnose(code, said)
    assert found is not None and why in found.why and hint in found.hint


def test_a_broker_that_is_away_bars_nobody() -> None:
    said = "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused"
    assert diagnose(TRANSPORT, said) is None
    heard = DiagnosisCallback()
    heard(KafkaError(TRANSPORT, said))
    heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert heard.lately() is None


def test_what_was_heard_is_the_reason_for_no_answer_as_long_as_it_is_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("hub.kafka.contact.connect_diagnosis.time.monotonic", lambda: now)
    connection = Connection("k:9093")
    assert connection.down("append", "timed out").code == "HUB-3010"
    hear = connection.settings("writer")["error_cb"]
    hear(
        KafkaError(
            AUTH, f"{AT}SASL authentication error: Authentication failed: Invalid username or password"
        )
    )
    hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    found = connection.down("append", "timed out")
    assert found.code == BARRED and 'Kafka at "k:9093" does not let the hub in' in found.message
    assert found.retriable
    now += 60.0
    assert connection.down("append", "timed out").code == "HUB-3010"
