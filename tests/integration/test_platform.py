"""The local platform, for real: Kafka as a JVM, the server as a process, the supervisor over both."""

from __future__ import annotations

import json
import urllib.request


def test_kafka_answers(kafka: str) -> None:
    from hub.embedded.kafka_node import answers_api_versions

    host, _, port = kafka.partition(":")
    assert answers_api_versions(host, int(port))


def test_server_is_healthy(hub_server: str) -> None:
    with urllib.request.urlopen(f"{hub_server}/health", timeout=5) as answer:
        assert json.load(answer)["status"] == "up"
