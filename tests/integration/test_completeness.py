"""The ledger on real Kafka: receipts of the gateway, holes by reason, mirrors' copies,
what is missing named."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from contextlib import closing
from datetime import datetime
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from pipeline import wait_until
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.client import Event, Hub
from hub.completeness.balances import CompletenessState, audit_of
from hub.completeness.counting import TopicCounter, read_counts
from hub.completeness.counts import bucket_of
from hub.completeness.minutes import minute_grid_of
from hub.completeness.receipts import ReceiptWriter
from hub.config import Settings
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.record import NewRecord, TopicPartition

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster(kafka: str) -> KafkaCluster:
    return KafkaCluster(kafka, 15.0)


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = f"complete.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    return name


def audited(cluster: KafkaCluster, topic: str) -> Any:
    with closing(TopicCounter(cluster, ClusterAccess(bootstrap=cluster.bootstrap), topic)) as audit:
        audit.run()
        return audit_of(topic, audit.ledger.of(topic))


def write(cluster: KafkaCluster, topic: str, values: range, name: str | None = None) -> list[NewRecord]:
    now_ms = int(time.time() * 1000)
    records = [NewRecord(topic, b"k", b"%d" % value, (), now_ms, 0) for value in values]
    writer = cluster.writer(name)
    writer.append(records)
    writer.close()
    return records


def test_every_offset_is_accounted_for(cluster: KafkaCluster, topic: str) -> None:
    write(cluster, topic, range(10))
    write(cluster, topic, range(10, 15), name=f"{topic}.writer")
    aborting = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}.aborts"})
    aborting.init_transactions(15.0)
    aborting.begin_transaction()
    for value in range(7):
        aborting.produce(topic, b"%d" % value, partition=0)
    aborting.flush(15.0)
    aborting.abort_transaction(15.0)
    write(cluster, topic, range(14, 20))  # 14 is written twice, at different times: another record
    repeated = write(cluster, topic, range(20, 21))
    writer = cluster.writer()
    writer.append(repeated)
    writer.close()
    wait_until(lambda: cluster.end_offsets([topic]).get(TopicPartition(topic, 0)) == 32, PATIENCE_S)
    audit = audited(cluster, topic)
    assert (audit.records, audit.offsets, audit.repeated) == (23, 32, 1)
    assert (audit.holes.markers, audit.holes.aborted, audit.holes.compacted, audit.holes.unexplained) == (
        2,
        7,
        0,
        0,
    )
    heat = minute_grid_of(read_counts(cluster).of(topic))
    assert heat is not None and heat.unplaced == 0  # each hole and repeat is in a minute of the map
    assert sum(each.aborted for each in heat.minutes.values()) == 7
    assert sum(each.markers for each in heat.minutes.values()) == 2
    assert sum(each.repeated for each in heat.minutes.values()) == 1
    again = audited(cluster, topic)
    assert again == audit  # nothing new: nothing read, nothing written
    write(cluster, topic, range(5))
    assert audited(cluster, topic).records == 28
    assert len([each for each in read_counts(cluster).of(topic) if each.tier == "log"]) == 2


def test_receipts_survive_kafka_being_away_and_find_what_is_lost(cluster: KafkaCluster, topic: str) -> None:
    records = write(cluster, topic, range(50))
    place = TopicPartition(topic, 0)
    away = ReceiptWriter(KafkaCluster("127.0.0.1:1", 0.3), "gateway-x")
    for offset, new in enumerate(records[:40]):
        away.took(new, place, offset)
    with pytest.raises(PeerError):
        away.flush()
    away.cluster = cluster
    assert away.flush() == 1
    assert away.flush() == 0
    audit = audited(cluster, topic)
    assert (audit.state, audit.balances[0].compared) == (CompletenessState.BALANCED, 40)
    # A second producer has an acknowledgement for a record that the log lacks, and for one that differs
    # there.
    liar = ReceiptWriter(cluster, "gateway-y")
    liar.took(records[40], place, 40)
    liar.took(records[40], place, 41)
    liar.flush()
    lost = ReceiptWriter(cluster, "gateway-z")
    writer = cluster.writer(f"{topic}.w")
    writer.append(records[:1])
    writer.close()
    cluster.writer(f"{topic}.w").close()  # waits until committed records can be read
    lost.took(records[0], place, 50)
    lost.took(records[1], place, 51)  # that is the transaction's marker
    lost.flush()
    audit = audited(cluster, topic)
    states = {each.instance: each.state for each in audit.balances}
    assert states == {
        "gateway-x": CompletenessState.BALANCED,
        "gateway-y": CompletenessState.MISMATCH,
        "gateway-z": CompletenessState.SHORT,
    }
    with closing(TopicCounter(cluster, ClusterAccess(bootstrap=cluster.bootstrap), topic)) as asked:
        found = asked.missing(bucket_of(records[0].timestamp_ms or 0))
    named = [(each.instance, each.offset) for each in found if each.kind == "source"]
    assert named == [("gateway-z", 51)]


def test_minutes_of_a_topic_with_the_brokers_time_are_unknown(cluster: KafkaCluster) -> None:
    name = f"complete.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(
        name, partitions=1, config={"message.timestamp.type": "LogAppendTime"}, replication_factor=1
    )
    (record,) = write(cluster, name, range(1))
    receipts = ReceiptWriter(cluster, "g")
    receipts.took(record, TopicPartition(name, 0), 0)
    receipts.flush()
    assert audited(cluster, name).state is CompletenessState.UNKNOWN


def test_the_gateway_keeps_receipts_and_the_server_shows_them(
    settings: Settings, hub_server: str, cluster: KafkaCluster, topic: str
) -> None:
    environment = environment_of(settings)
    cluster_id = httpx2.get(f"{hub_server}/v3/clusters", timeout=60.0).json()["data"][0]["cluster_id"]
    reports = []
    for value in range(5):
        body = {"value": {"type": "STRING", "data": f"v{value}"}}
        url = f"{hub_server}/v3/clusters/{cluster_id}/topics/{topic}/records"
        reports.append(httpx2.post(url, json=body, timeout=60.0).json())
        assert reports[-1]["error_code"] == 200
    with Hub(hub_server, receipts="checkout") as hub:
        hub.produce_many(topic, [Event(f"c{value}", key=None, type="STRING") for value in range(7)])
    # The log's first record, with an id that is not its own; the clock may be in the next minute by now.
    at_ms = bucket_of(int(datetime.fromisoformat(reports[0]["timestamp"]).timestamp() * 1000))
    minute = {"bucket_ms": at_ms, "count": 1, "sum": f"{7:016x}"}
    said = {
        "instance": "outbox-1",
        "at_ms": at_ms,
        "receipts": [{"topic": topic, "partition": 0, "runs": [[0, 1]], "minutes": [minute]}],
    }
    assert httpx2.post(f"{hub_server}/api/audit/receipts", json=said, timeout=60.0).status_code == 204
    said["receipts"][0]["runs"] = [[0, 3]]  # type: ignore[index]
    refused = httpx2.post(f"{hub_server}/api/audit/receipts", json=said, timeout=60.0)
    assert refused.status_code == 400
    assert "3 offsets" in refused.json()["message"]

    def told() -> bool:  # a gateway reports received records by its clock: perhaps in more than one entry
        counts: Counter[str] = Counter()
        for each in read_counts(cluster).of(topic):
            counts[each.instance.partition("-")[0]] += each.cells.total.count
        return all(
            counts[tier] == count for tier, count in {"gateway": 12, "outbox": 1, "checkout": 7}.items()
        )

    wait_until(told, PATIENCE_S)
    run = CliRunner().invoke(app, ["completeness", "run", topic, "--no-mirrors"], env=environment)
    assert run.exit_code == 1, run.output  # the outbox's ids are none of the log's
    assert "MISMATCH" in run.stdout
    tiers = {each.instance.partition("-")[0]: each for each in audited(cluster, topic).balances}
    assert (tiers["checkout"].state, tiers["checkout"].compared) == (CompletenessState.BALANCED, 7)
    assert (tiers["gateway"].state, tiers["gateway"].compared) == (CompletenessState.BALANCED, 12)

    def shown() -> bool:
        found = httpx2.get(f"{hub_server}/api/audit", params={"topic": topic}, timeout=60.0)
        return found.is_success and found.json()["topics"][0]["state"] == "MISMATCH"

    wait_until(shown, PATIENCE_S)
    show = CliRunner().invoke(app, ["completeness", "show", topic], env=environment)
    assert show.exit_code == 0, show.output
    assert "outbox-1" in show.stdout
    metrics = httpx2.get(f"{hub_server}/metrics", timeout=60.0).text
    assert f'hub_completeness_state{{state="MISMATCH",topic="{topic}"}} 1.0' in metrics
    missing = httpx2.get(f"{hub_server}/api/audit", params={"topic": "no.such"}, timeout=60.0)
    assert missing.status_code == 404
