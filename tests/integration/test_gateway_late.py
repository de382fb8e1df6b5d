"""A record that the gateway gave up comes to the broker late,
on a real Kafka behind a link that keeps it back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from link_proxy import PRODUCE, LinkedNode, linked_node
from patience import patient
from pipeline import records_of, wait_until

from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.idempotency import SETTLES_S
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceRequest, refusal


class NoSchemas:
    def known_latest(self, subject: str) -> None: ...

    def catch_up(self) -> None: ...


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedNode]:
    with linked_node(Path(tmp_path_factory.mktemp("late"))) as made:
        yield made


def test_a_retry_waits_for_what_is_still_on_its_way_and_finds_it(node: LinkedNode) -> None:
    direct = KafkaCluster(node.settings.bootstrap, 10.0)
    direct.create_topic("late", partitions=2, config={}, replication_factor=1)
    gateway = Gateway(KafkaCluster(node.through, 3.0), cast(Any, NoSchemas()))
    gateway.start()

    def written(key: str) -> GatewayAnswer:
        body = b'{"partition_id": 1, "value": {"type": "STRING", "data": "%s"}}' % key.encode()
        return gateway.write(ProduceRequest("late", body, idempotency_key=key))

    try:
        assert written("before").status == 200
        node.link.hold(PRODUCE)
        lost = written("a")
        assert (lost.status, lost.lines[0]["code"]) == (503, "HUB-3013")
        while (again := _tried(written, "a")).lines[0]["code"] == "HUB-3010":
            time.sleep(0.2)  # the gateway takes nothing for a moment after Kafka did not answer
        node.link.heal()
        assert (again.status, again.lines[0]["code"]) == (503, "HUB-3043")
        deadline = time.monotonic() + patient(20.0)
        while again.status != 200 and time.monotonic() < deadline:
            time.sleep(0.5)
            again = _tried(written, "a")
        assert (again.status, again.repeated) == (200, True)
        assert sorted(record.value for record in records_of(direct, "late")) == [b"a", b"before"]
        assert written("after").status == 200
    finally:
        node.link.heal()
        gateway.stop()


def test_a_retry_at_another_server_waits_until_the_first_one_has_given_up(node: LinkedNode) -> None:
    direct = KafkaCluster(node.settings.bootstrap, 10.0)
    direct.create_topic("moved", partitions=1, config={}, replication_factor=1)
    first = Gateway(KafkaCluster(node.through, 10.0), cast(Any, NoSchemas()))
    other = Gateway(direct, cast(Any, NoSchemas()))

    def request(key: str, retry_ms: int | None) -> ProduceRequest:
        body = b'{"value": {"type": "STRING", "data": "%s"}}' % key.encode()
        return ProduceRequest("moved", body, idempotency_key=key, retry_ms=retry_ms)

    def retried(key: str, retry_ms: int = 0) -> GatewayAnswer:
        answers: list[GatewayAnswer] = []

        def done() -> bool:
            answers.append(other.write(request(key, retry_ms)))
            return answers[-1].status == 200

        wait_until(done, 30.0, lambda: str(answers[-1]))
        assert all(each.lines[0]["code"] == "HUB-3043" for each in answers[:-1])
        return answers[-1]

    first.start()
    other.start()
    try:
        for gateway, key in ((first, "warm"), (other, "warm too")):
            assert gateway.write(request(key, None)).status == 200
        node.link.hold(PRODUCE)
        body = request("slow", None)
        pending = first.submit(body, first.admit(len(body.body)))
        began_at = time.monotonic()
        while time.monotonic() < began_at + 1.5 * SETTLES_S:
            assert other.write(request("slow", 0)).lines[0]["code"] == "HUB-3043"
        node.link.heal()
        assert pending.result(patient(30.0)).status == 200
        answer = retried("slow")
        assert (answer.status, answer.lines[0]["offset"]) == (200, pending.result().lines[0]["offset"])
        assert retried("never sent", 13_000).status == 200
        values = [record.value for record in records_of(direct, "moved")]
        assert values == [b"warm", b"warm too", b"slow", b"never sent"]
    finally:
        node.link.heal()
        first.stop()
        other.stop()


def _tried(written: Any, key: str) -> GatewayAnswer:

    try:
        made: GatewayAnswer = written(key)
    except PeerError as error:  # not even admitted
        return refusal(error)
    return made
