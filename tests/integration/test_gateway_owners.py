"""The gateway takes records where their owner is:
mirrors.yaml and the control topic of its own cluster say where."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import orjson
import pytest
from kafka_nodes import own_node
from pipeline import records_of, wait_until
from ports import free_ports
from processes import call_hub, running_server

from hub.api.write_guard import WriteGuard
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.record import NewRecord
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.produce_batch import ProduceRequest


@pytest.fixture(scope="module")
def nyc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with own_node(tmp_path_factory.mktemp("nyc")) as node:
        cluster = KafkaCluster(node.bootstrap, 15.0)
        for name in ("nyc.chat", "lon.chat", "other"):
            cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
        yield cluster


def declare(path: Path, nyc: str, *, owned: str = "nyc.**") -> None:
    clusters = {
        "nyc": {"bootstrap": nyc, "owns": [owned]},
        "lon": {"bootstrap": "lon-1:1", "owns": ["lon.**"]},
    }
    mirrors = {"nyc-lon": {"source": "nyc", "target": "lon", "topics": [owned]}}
    path.write_bytes(orjson.dumps({"clusters": clusters, "mirrors": mirrors}))


def plain(cluster: KafkaCluster) -> ClusterAccess:
    return ClusterAccess(bootstrap=cluster.bootstrap)


def test_records_go_where_the_owner_is(nyc: KafkaCluster, hub_server: str, tmp_path: Path) -> None:
    path = tmp_path / "mirrors.yaml"
    registry = RegistryClient(hub_server)

    def write(hands: WriteGuard, topic: str) -> tuple[int, str]:
        gateway = Gateway(nyc, registry, refuses=hands.refusal)
        gateway.start()
        try:
            answer = gateway.write(ProduceRequest(topic, b'{"value": {"type": "STRING", "data": "x"}}'))
            return answer.status, str(answer.lines[0].get("code", ""))
        finally:
            gateway.stop()

    hands = WriteGuard(path, nyc, plain(nyc))
    hands.start()
    try:
        assert write(hands, "lon.chat") == (200, "")  # the file does not exist
        declare(path, nyc.bootstrap)
        wait_until(lambda: hands.refusal("lon.chat") is not None, 15.0)
        before = len(records_of(nyc, "lon.chat"))
        assert write(hands, "lon.chat") == (409, "HUB-1972")
        assert len(records_of(nyc, "lon.chat")) == before
        # Ownership never changed, and the cluster has no topics of mirrors yet.
        assert write(hands, "nyc.chat") == write(hands, "other") == (200, "")
        reached = ClusterHandle("nyc", nyc, plain(nyc))
        make_own([("nyc", step) for step in own_topics(reached)], {"nyc": reached})
        writer = nyc.writer()
        change = failover.begin(
            Control(), "switchover", id="1", mirror="nyc-lon", home="nyc", new="lon", now_ms=0
        )
        change = failover.done(failover.done(change, "claim"), "stop_writers")
        writer.append([change.record()])
        wait_until(lambda: hands.refusal("nyc.chat") is not None, 15.0)
        assert write(hands, "nyc.chat") == (409, "HUB-1972")
        while change.next is not None:
            change = failover.done(change, change.next.name)
        writer.append([change.record(), failover.ownership(change, int(time.time() * 1000)).record()])
        writer.close()
    finally:
        hands.stop()
    # A server that begins now has not read that yet: its very first record is refused all the same.
    late = WriteGuard(path, nyc, plain(nyc))
    late.start()
    try:
        assert write(late, "nyc.chat") == (409, "HUB-1972")
        assert write(late, "other") == (200, "")
        said = late.refusal("nyc.chat")
        assert said is not None and "lon serves the topics of nyc" in said.message
        path.write_text("clusters: [")  # invalid: the previous content stays in force
        time.sleep(2.5)
        assert late.refusal("nyc.chat") is not None
        path.unlink()
        wait_until(lambda: late.refusal("nyc.chat") is None, 15.0)
    finally:
        late.stop()


def test_every_way_in_keeps_to_the_owner(nyc: KafkaCluster, settings: Settings, tmp_path: Path) -> None:
    """Single events by their own route, and replays of dead-letter records; over HTTP and by a command."""
    (port,) = free_ports(1)
    own = settings.model_copy(
        update={
            "project": tmp_path,
            "home": tmp_path / "home",
            "bootstrap": nyc.bootstrap,
            "http_port": port,
            "registry_url": None,
            "store_url": None,
        }
    )
    for name in ("lon.orders", "lon.orders.dlq"):
        nyc.create_topic(name, partitions=1, config={}, replication_factor=1)
    said = {"topic": b"lon.orders", "partition": b"0", "offset": b"0", "view": b"v", "reason": b"a tombstone"}
    headers = tuple((f"hub.dlq.{name}", value) for name, value in said.items())
    writer = nyc.writer()
    writer.append([NewRecord("lon.orders.dlq", b"k", b"{}", headers)])
    writer.close()
    declare(tmp_path / "mirrors.yaml", nyc.bootstrap)
    with running_server(own) as url, httpx2.Client(base_url=url, timeout=30.0) as client:
        told = [
            client.post("/topics/lon.orders/events", json={"a": 1}),
            client.post("/topics/lon.orders/records", json={"key": "k", "value": None}),
            client.post("/dlq/lon.orders.dlq/0/0/replay", json={"as_is": True}),
        ]
        assert [each.status_code for each in told] == [409, 409, 409], [each.text for each in told]
        assert all("HUB-1972" in each.text and "lon owns it" in each.text for each in told)
        assert client.post("/topics/other/records", json={"key": "k", "value": None}).status_code == 200
        for command in (
            ("dlq", "replay", "lon.orders", "0", "--as-is"),
            ("topic", "publish", "lon.orders", "-k", "k", "-j", '{"a": 1}'),
        ):
            done = call_hub(own, *command)
            assert done.returncode == 1 and done.stdout == "", done
            assert "HUB-1972" in done.stderr and "write it at lon" in done.stderr
    assert records_of(nyc, "lon.orders") == []


def test_this_cluster_is_known_by_its_own_name_where_addresses_differ(
    nyc: KafkaCluster, tmp_path: Path
) -> None:
    path = tmp_path / "mirrors.yaml"
    declare(path, nyc.bootstrap.replace("127.0.0.1", "localhost"), owned="eu.**")
    hands = WriteGuard(path, nyc, plain(nyc), timeout_s=2.0)
    hands.start()
    try:
        assert hands.refusal("lon.chat") is not None  # not known yet

        def told() -> str:
            said = hands.refusal("lon.chat")
            return "" if said is None else said.message

        wait_until(lambda: "here at nyc" in told(), 30.0)
        assert hands.refusal("other") is None
    finally:
        hands.stop()
