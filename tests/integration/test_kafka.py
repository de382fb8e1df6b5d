"""The ports of the log on a real Kafka: what is committed, where a reader stands, who may write,
what is gone."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from awscrt.checksums import crc32c
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from kafka_nodes import own_node
from patience import patient, wait_until
from ports import free_pair

from hub.embedded import KafkaNode
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError
from hub.kafka import KafkaCluster, KafkaReader
from hub.kafka.log_dirs import log_dirs
from hub.kafka.protocol.sockets import exchange
from hub.kafka.protocol.unpacked_size import UnpackedBounds
from hub.log import Cluster, Reader, Writer, WriterFenced
from hub.materializers.engine.plans.topics import keep_short
from hub.materializers.progress.records import PROGRESS_CONFIG
from hub.observability.cluster.health import health_of
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.browse.bounded_read import MessageQuery
from hub.topics.browse.browse import Browser
from hub.topics.conformance.auditor import ConformanceChecker

Topic = Callable[..., str]
PATIENCE_S = patient(60.0)


@pytest.fixture(scope="module")
def cluster(kafka: str) -> KafkaCluster:
    return KafkaCluster(kafka, 15.0)


@pytest.fixture
def topic(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Topic:
    """Makes topics of this test's own."""
    count = iter(range(100))

    def make(partitions: int = 1, **config: str) -> str:
        name = f"kafka.{request.node.name[:80].replace('[', '.').replace(']', '')}.{next(count)}"
        cluster.create_topic(name, partitions=partitions, config=config, replication_factor=1)
        return name

    return make


@pytest.fixture
def reader(cluster: KafkaCluster) -> Iterator[KafkaReader]:
    made = cluster.reader()
    yield made
    made.close()


@pytest.fixture
def unbounded(kafka: str) -> Iterator[KafkaReader]:
    """A reader that unpacks whatever its client does."""
    made = KafkaCluster(kafka, 15.0, bounds=UnpackedBounds(batch_bytes=0)).reader()
    yield made
    made.close()


def read(reader: Reader, until: Positions) -> list[Record]:
    """Every record up to those positions; fails when that takes too long."""
    found: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while not reader.position().covers(until):
        assert time.monotonic() < deadline, f"stands at {reader.position()}, wanted {until}"
        found += reader.poll(1_000, 1.0)
    return found


def read_past_failures(reader: Reader, count: int) -> tuple[list[Record], list[HubError]]:
    """Read until the given number of records and a failure arrived; return them and all failures, or fewer
    at the timeout."""
    found: list[Record] = []
    failed: list[HubError] = []
    deadline = time.monotonic() + PATIENCE_S
    while (len(found) < count or not failed) and time.monotonic() < deadline:
        try:
            found += reader.poll(1_000, 1.0)
        except HubError as error:
            failed.append(error)
    return found, failed


def read_all(cluster: KafkaCluster, topic: str, writer: str | None = None) -> list[Record]:
    """The whole topic; with a ``writer``, after its last transaction has its marker."""
    if writer is not None:
        cluster.writer(writer).close()
    reader = cluster.reader()
    reader.assign(cluster.beginning_offsets([topic]))
    try:
        return read(reader, cluster.end_offsets([topic]))
    finally:
        reader.close()


def aborted(cluster: KafkaCluster, topic: str, count: int) -> None:
    """A transaction of ``count`` records that is taken back."""
    producer = Producer(cluster.settings("test", transactional_id=f"aborted-{topic}"))
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(count):
        producer.produce(topic, f"aborted {n}", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)


def test_the_clients_fit_the_ports(cluster: KafkaCluster, reader: KafkaReader) -> None:
    writer = cluster.writer()
    ports: tuple[Cluster, Reader, Writer] = (cluster, reader, writer)
    writer.close()
    assert all(ports)


def test_what_is_appended_is_read_whole(cluster: KafkaCluster, topic: Topic, reader: KafkaReader) -> None:
    name = topic(partitions=2)
    new = NewRecord(name, b"k", b"v", (("h", b"1"), ("h", b"")), 1_234, 1)
    after = cluster.writer().append([new, NewRecord(name, b"k", None, (), 1_235, 1)])
    assert after == Positions.of([(name, 1, 2)])
    reader.assign(cluster.beginning_offsets([name]))
    first, second = read(reader, cluster.end_offsets([name]))
    assert first == Record(name, 1, 0, 1_234, b"k", b"v", (("h", b"1"), ("h", b"")))
    assert (second.offset, second.value, second.timestamp_ms) == (1, None, 1_235)
    assert reader.position() == Positions.of([(name, 0, 0), (name, 1, 2)])


def test_one_key_keeps_its_partition_across_writers(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic(partitions=5)
    where = {tp for _ in range(3) for tp, _ in cluster.writer().append([NewRecord(name, b"one", b"v")])}
    assert len(where) == 1


def test_nothing_of_an_aborted_transaction_is_read_and_the_position_passes_it(
    cluster: KafkaCluster, topic: Topic, reader: KafkaReader
) -> None:
    name = topic()
    writer = cluster.writer(f"writer-{name}")
    writer.append([NewRecord(name, b"k", b"1")])
    aborted(cluster, name, 3)
    writer.append([NewRecord(name, b"k", b"2")])
    aborted(cluster, name, 3)
    reader.assign(Positions.of([(name, 0, 0)]))
    # record, marker, three aborted and a marker, record, marker, three aborted and a marker
    end = Positions.of([(name, 0, 12)])
    assert [record.value for record in read(reader, end)] == [b"1", b"2"]
    assert reader.position() == cluster.end_offsets([name]) == end


def test_an_open_transaction_is_not_part_of_the_end(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic()
    producer = Producer(cluster.settings("test", transactional_id=f"open-{name}"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"pending", partition=0)
    producer.flush(30)
    assert cluster.end_offsets([name]) == Positions.of([(name, 0, 0)])
    producer.commit_transaction(30)
    cluster.writer(f"open-{name}").close()
    assert cluster.end_offsets([name]) == Positions.of([(name, 0, 2)])


@pytest.mark.parametrize("name", [None, "kafka.grown"])
def test_a_writer_knows_the_partitions_of_a_topic_that_grew(
    cluster: KafkaCluster, topic: Topic, name: str | None
) -> None:
    grown = topic(partitions=1)
    writer = cluster.writer(name)
    writer.append([NewRecord(grown, b"k", b"1", partition=0)])
    with pytest.raises(NotFound, match="partition 2 does not exist"):
        writer.append([NewRecord(grown, b"k", b"2", partition=2)])
    cluster.add_partitions(grown, 3)
    after = writer.append([NewRecord(grown, b"k", b"2", partition=2)])
    assert {tp.partition: offset for tp, offset in after} == {2: 1}
    writer.close()


def test_a_later_writer_of_the_name_fences_the_earlier_for_good(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic()
    earlier = cluster.writer(f"name-{name}")
    earlier.append([NewRecord(name, b"k", b"earlier")])
    later = cluster.writer(f"name-{name}")
    for _ in range(3):  # a fenced writer that reopened itself would fence the later one
        with pytest.raises(WriterFenced, match=f'writer "name-{name}"'):
            earlier.append([NewRecord(name, b"k", b"zombie")])
    later.append([NewRecord(name, b"k", b"later")])
    earlier.close()
    later.close()
    assert [record.value for record in read_all(cluster, name, f"name-{name}")] == [b"earlier", b"later"]


def test_a_fenced_writer_says_so_also_when_the_binding_lost_the_reason(
    cluster: KafkaCluster, topic: Topic
) -> None:
    name = topic()
    earlier, later = (cluster.writer(f"lost-{name}") for _ in range(2))
    sender = earlier._sender
    assert sender is not None
    with pytest.raises(WriterFenced):
        earlier.append([NewRecord(name, b"k", b"zombie")])

    def flush() -> int:
        raise SystemError("<method 'flush'> returned NULL without setting an exception")

    with pytest.raises(WriterFenced, match=f'writer "lost-{name}"'):
        sender._serve(flush)
    later.close()


def test_a_refused_append_leaves_nothing_and_blocks_no_reader(
    kafka: str, cluster: KafkaCluster, topic: Topic, reader: KafkaReader
) -> None:
    name = topic(partitions=2, **{"max.message.bytes": "5000"})
    # With this time-out, a transaction that is left open would hold readers back for longer than they wait
    # here.
    writer = KafkaCluster(kafka, 4 * PATIENCE_S).writer(f"writer-{name}")
    batch = [
        NewRecord(name, b"k", b"fine", partition=0),
        NewRecord(name, b"k", b"x" * 2_000_000, partition=1),
    ]
    with pytest.raises(CallerError, match=f'topic "{name}" partition 1: .*too large'):
        writer.append(batch)  # too large for the client
    too_large = NewRecord(
        name, b"k", os.urandom(9_000), partition=1
    )  # for the broker, which has taken the other
    with pytest.raises(CallerError, match=f'topic "{name}" partition 1: .*too large'):
        writer.append([batch[0], too_large])
    cluster.writer().append([NewRecord(name, b"k", b"another's", partition=0)])
    reader.assign(Positions.of([(name, 0, 0)]))
    found: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < deadline:
        found += reader.poll(10, 1.0)
    assert [record.value for record in found] == [b"another's"]
    writer.append([NewRecord(name, b"k", b"next", partition=0)])
    assert [record.value for record in read_all(cluster, name, f"writer-{name}")] == [b"another's", b"next"]


@pytest.mark.parametrize("named", [False, True])
def test_a_topic_that_is_missing_is_said(cluster: KafkaCluster, named: bool) -> None:
    writer = cluster.writer("of-a-missing-topic" if named else None)
    with pytest.raises(NotFound, match='topic "kafka.never-made" does not exist'):
        writer.append([NewRecord("kafka.never-made", b"k", b"v")])
    with pytest.raises(NotFound, match='topic "kafka.never-made"'):
        cluster.end_offsets(["kafka.never-made"])


def test_a_partition_that_is_missing_is_said(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic()
    with pytest.raises(NotFound, match=f'topic "{name}" partition 7 does not exist'):
        cluster.writer().append([NewRecord(name, b"k", b"v", partition=7)])


def delete_before(cluster: KafkaCluster, topic: str, partition: int, offset: int) -> None:
    futures = cluster.admin.delete_records([KafkaTopicPartition(topic, partition, offset)])
    for future in futures.values():
        future.result(30)


def test_what_the_log_no_longer_has_is_an_exact_gap(
    cluster: KafkaCluster, topic: Topic, reader: KafkaReader
) -> None:
    name = topic()
    cluster.writer().append([NewRecord(name, b"k", str(n).encode()) for n in range(10)])
    delete_before(cluster, name, 0, 6)
    assert cluster.beginning_offsets([name]) == Positions.of([(name, 0, 6)])
    end = cluster.end_offsets([name])
    reader.assign(Positions.of([(name, 0, 2)]))
    with pytest.raises(HubError, match=r"partition 0 offset 2: .* offsets \[2, 6\) are gone") as gap:
        read(reader, end)
    assert (gap.value.code, gap.value.retriable) == ("HUB-3020", False)
    reader.assign(Positions.of([(name, 0, 999)]))
    with pytest.raises(HubError, match="offset 999: the log ends at 10"):
        read(reader, Positions.of([(name, 0, 1_000)]))


def test_an_error_in_one_partition_loses_no_record_of_the_others(
    cluster: KafkaCluster, topic: Topic, reader: KafkaReader
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        cluster.writer().append(
            [NewRecord(name, b"k", str(n).encode(), partition=partition) for n in range(200)]
        )
    delete_before(cluster, name, 1, 50)
    reader.assign(Positions.of([(name, 0, 0), (name, 1, 10), (name, 2, 0)]))
    time.sleep(1.0)  # so that records and the error wait in the queue together
    found, failed = read_past_failures(reader, 400)
    for partition in (0, 2):
        assert [record.offset for record in found if record.partition == partition] == list(range(200))
    assert ["[10, 50)" in error.message for error in failed] == [True]
    assert reader.position().get(TopicPartition(name, 1)) == 10


def test_a_batch_that_cannot_be_unpacked_is_said_and_may_be_passed(
    cluster: KafkaCluster, topic: Topic, unbounded: KafkaReader
) -> None:
    """A few KB of zstd that inflate beyond what librdkafka takes: brokers let it in, and it fails at every
    read, where no bound keeps it back."""
    reader = unbounded
    name = topic()
    writer = cluster.writer()
    writer.append([NewRecord(name, b"k", b"before")])
    bomb = Producer(
        cluster.settings("test", compression_type="zstd", message_max_bytes=200_000_000, linger_ms=0)
    )
    bomb.produce(name, bytes(110_000_000), partition=0)
    assert bomb.flush(60) == 0
    writer.append([NewRecord(name, b"k", b"after")])
    reader.assign(Positions.of([(name, 0, 0)]))
    found = list(reader.poll(10, PATIENCE_S))
    with pytest.raises(
        PeerError, match=f'topic "{name}" partition 0 offset 1: the batch .* unpacked'
    ) as poison:
        read(reader, Positions.of([(name, 0, 2)]))
    assert [record.value for record in found] == [b"before"]
    assert poison.value.code == "HUB-3021"
    reader.assign(Positions.of([(name, 0, reader.position().get(TopicPartition(name, 0)) + 1)]))
    assert [record.value for record in read(reader, cluster.end_offsets([name]))] == [b"after"]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4", "snappy"])
def test_a_batch_that_is_too_large_once_unpacked_is_one_record_that_says_so(
    cluster: KafkaCluster, topic: Topic, reader: KafkaReader, codec: str
) -> None:
    """To every reader: SQL over the topic, its page and the auditor pass it too."""
    name = topic(**{"max.message.bytes": "8000000"})
    writer = cluster.writer()
    writer.append([NewRecord(name, b"k", b"before")])
    for size in (110_000_000, 20_000_000):  # a large batch, and one within the bound with a large record
        bomb = Producer(
            cluster.settings("test", compression_type=codec, message_max_bytes=200_000_000, linger_ms=0)
        )
        bomb.produce(name, bytes(size), b"k", partition=0)
        assert bomb.flush(60) == 0
    writer.append([NewRecord(name, b"k", b"after")])
    end = cluster.end_offsets([name])
    memory = psutil.Process().memory_info().rss
    reader.assign(Positions.of([(name, 0, 0)]))
    found = read(reader, end)
    assert psutil.Process().memory_info().rss < memory + 200_000_000
    assert [(record.offset, record.value) for record in found] == [
        (0, b"before"),
        (1, None),
        (2, None),
        (3, b"after"),
    ]
    assert [record.unread is None for record in found] == [True, False, False, True]
    assert f"bytes ({codec}), unpacks to" in (found[1].unread or "")
    assert "has a record of 20,000,0" in (found[2].unread or "")
    for start in (2, 3):
        reader.assign(Positions.of([(name, 0, start)]))
        assert [record.offset for record in read(reader, end)] == list(range(start, 4))

    browsed = Browser(cluster, NoSchemas()).find(MessageQuery(name))
    assert [(each.offset, each.value.problem[:16]) for each in browsed.messages] == [
        (3, ""),
        (2, "it is not read: "),
        (1, "it is not read: "),
        (0, ""),
    ]
    auditor = ConformanceChecker(cluster, OneSchema(f"{name}-value"), lambda _: "report")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while auditor.step() == 0 or auditor.tallies[TopicPartition(name, 0)].position < 4:
            assert time.monotonic() < deadline
        tally = auditor.tallies[TopicPartition(name, 0)]
        assert (tally.checked, tally.unread) == (4, "")
        assert {reason: count for (reason, _), count in tally.violations.items()} == {
            "framing": 2,
            "too_large": 2,
        }
    finally:
        auditor.close()


def produce_raw(bootstrap: str, topic: str, header: bytes) -> None:
    """One record with a header of this name, which no client of ours would write:
    Produce 3 with a batch of its own."""
    body = b"\x00\x00\x00\x02k\x02v\x02" + bytes([2 * len(header)]) + header + b"\x02h"
    now_ms = time.time_ns() // 1_000_000
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + bytes([2 * len(body)]) + body
    batch = struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked
    name = topic.encode()
    request = struct.pack(">hhihhhiih", 0, 3, 7, -1, -1, -1, 5_000, 1, len(name)) + name
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 20.0) as connection:
        answer = exchange(connection, request, 10_000)
    assert struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4) == (0,)


def test_a_header_that_cannot_be_named_is_said_and_may_be_passed(
    cluster: KafkaCluster, kafka: str, topic: Topic, reader: KafkaReader
) -> None:
    """The client raises SystemError, at times only in a later call, and that is none of our errors: who read
    such a record ended of it, and what was read together with it was lost. After some other records, for
    Python looks less closely then."""
    name = topic(partitions=2)
    writer = cluster.writer()
    known = topic()
    writer.append([NewRecord(known, b"k", b"v", (("h", b"h"),))] * 100)
    reader.assign(Positions.of([(known, 0, 0)]))
    assert len(read(reader, Positions.of([(known, 0, 100)]))) == 100
    writer.append([NewRecord(name, b"k", b"before", partition=0)])
    produce_raw(kafka, name, b"\xff\xfe")
    writer.append(
        [NewRecord(name, b"k", b"after", partition=0), NewRecord(name, b"k", b"beside", partition=1)]
    )
    reader.assign(Positions.of([(name, 0, 0), (name, 1, 0)]))
    time.sleep(1.0)  # so that all of them wait in the queue together
    found, failed = read_past_failures(reader, 2)
    assert {record.value for record in found} == {b"before", b"beside"}
    assert isinstance(failed[0], PeerError) and failed[0].code == "HUB-3021"
    assert f'topic "{name}" partition 0 offset 1' in failed[0].message
    assert reader.position() == Positions.of([(name, 0, 1), (name, 1, 1)])
    reader.assign(Positions.of([(name, 0, 2)]))
    assert [record.value for record in read(reader, Positions.of([(name, 0, 3)]))] == [b"after"]
    browsed = Browser(cluster, NoSchemas()).find(MessageQuery(name))
    assert {each.value.text for each in browsed.messages} == {"before", "after", "beside"}
    assert "partition 0: offsets [1, 2) are passed by" in browsed.unreadable


def test_the_auditor_stops_at_what_cannot_be_read_and_goes_on_beside_it(
    cluster: KafkaCluster, kafka: str, topic: Topic
) -> None:
    name = topic(partitions=2)
    writer = cluster.writer()
    writer.append([NewRecord(name, b"k", b"before", partition=0)])
    produce_raw(kafka, name, b"\xff\xfe")
    writer.append([NewRecord(name, b"k", b"after", partition=0)])
    auditor = ConformanceChecker(cluster, OneSchema(f"{name}-value"), lambda _: "report")
    try:
        deadline = time.monotonic() + PATIENCE_S
        for number in range(3):
            writer.append([NewRecord(name, b"k", b"beside", partition=1)])
            while True:
                auditor.step()
                stopped, beside = (auditor.tallies[TopicPartition(name, each)] for each in range(2))
                if beside.position == number + 1 and stopped.unread:
                    break
                assert time.monotonic() < deadline
        assert (stopped.position, stopped.checked) == (1, 1)
        assert f'topic "{name}" partition 0 offset 1' in stopped.unread
        delete_before(cluster, name, 0, 2)  # as its message states, and then it continues
        auditor.flush()  # without its tally the next one starts at the beginning, and misses two
        auditor.close()
        while auditor.step() == 0 or auditor.tallies[TopicPartition(name, 0)].position < 3:
            assert time.monotonic() < deadline
        after = auditor.tallies[TopicPartition(name, 0)]
        assert (after.missed, after.checked, after.unread) == (1, 2, "")
    finally:
        auditor.close()


@dataclass
class OneSchema:
    """A registry of one subject, without a schema: each record is a violation."""

    subject: str

    def subjects(self) -> list[str]:
        return [self.subject]

    def subjects_of(self, _schema_id: int) -> frozenset[str]:
        raise NotFound("none")

    def source(self, schema_id: int) -> SchemaSource:
        raise NotFound("none")


class NoSchemas:
    def source(self, schema_id: int) -> SchemaSource:
        raise NotFound("none")

    def sees(self, schema_id: int) -> bool:
        return True

    def registered(self, schema_id: int, topic: str) -> tuple[str, int] | None:
        return None


def test_a_published_group_is_there_for_every_tool(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic(partitions=2)
    cluster.writer().append([NewRecord(name, b"k", b"v", partition=n % 2) for n in range(6)])
    cluster.publish_group("hub.view.test", Positions.of([(name, 0, 2), (name, 1, 3)]))
    cluster.publish_group("hub.view.test", Positions.of([(name, 0, 3)]))
    cluster.publish_group("hub.view.test", Positions())
    assert cluster.group_positions("hub.view.test").of_topics([name]) == Positions.of(
        [(name, 0, 3), (name, 1, 3)]
    )
    assert "hub.view.test" in cluster.groups()
    gone = Positions.of([("kafka.not.there", 0, 1)])
    errors = cluster.publish_groups(
        {"hub.view.none": gone, "hub.view.test": Positions.of([(name, 0, 4)]), "hub.view.empty": Positions()}
    )
    assert [(group, error.code) for group, error in errors.items()] == [("hub.view.none", "HUB-3012")]
    with pytest.raises(PeerError, match="UnknownTopicOrPartition"):
        cluster.publish_group("hub.view.none", gone)
    assert cluster.group_positions("hub.view.test").offsets[TopicPartition(name, 0)] == 4
    described = cluster.describe_groups(["hub.view.test", "nobody"])
    assert {group: (each.state, each.members) for group, each in described.items()} == {
        "hub.view.test": ("EMPTY", 0),
        "nobody": ("DEAD", 0),
    }
    assert len(cluster.group_positions("nobody")) == 0


def test_a_topic_of_an_earlier_hub_gets_the_settings_that_nobody_set(
    cluster: KafkaCluster, topic: Topic
) -> None:
    name = topic(partitions=1, **{"cleanup.policy": "compact", "segment.ms": "5"})
    for _ in range(2):
        keep_short(cluster, name, PROGRESS_CONFIG)
        assert cluster.topic_config([name])[name] == {**PROGRESS_CONFIG, "segment.ms": "5"}


def test_topics_are_there_at_once_and_gone_at_once(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic(partitions=3, **{"retention.ms": "-1"})
    first = cluster.topics()[name]
    assert (first.partitions, first.replication_factor) == (3, 1)
    assert cluster.topic_config([name]) == {name: {"retention.ms": "-1"}}
    with pytest.raises(Conflict, match=f'topic "{name}" exists already'):
        cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    cluster.add_partitions(name, 5)
    assert len(cluster.end_offsets([name])) == 5
    cluster.alter_config(name, {"retention.ms": None, "segment.ms": "60000"})
    assert cluster.topic_config([name]) == {name: {"segment.ms": "60000"}}
    other = topic()
    defaults = cluster.default_config([name, other])
    assert defaults["retention.ms"] == "-1"  # the embedded node's
    assert defaults["segment.ms"] == "604800000"
    assert cluster.default_config([name])["segment.ms"] is None
    cluster.delete_topic(name)
    assert name not in cluster.topics()
    cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    assert cluster.topics()[name].topic_id != first.topic_id


def test_a_rehearsal_changes_nothing_and_says_what_would_be_refused(
    cluster: KafkaCluster, topic: Topic
) -> None:
    name = topic()
    before = (cluster.topics()[name], cluster.topic_config([name]))
    cluster.create_topic("kafka.rehearsed", partitions=1, config={}, replication_factor=1, rehearse=True)
    cluster.add_partitions(name, 9, rehearse=True)
    cluster.alter_config(name, {"retention.ms": "5"}, rehearse=True)
    assert "kafka.rehearsed" not in cluster.topics()
    assert (cluster.topics()[name], cluster.topic_config([name])) == before
    with pytest.raises(CallerError, match="cleanup.policy"):
        cluster.alter_config(name, {"cleanup.policy": "never"}, rehearse=True)


def test_kafka_away_is_said_with_its_address() -> None:
    away = KafkaCluster("127.0.0.1:1", 1.0)
    asked: list[Callable[[], object]] = [
        away.topics,
        lambda: away.wait_ready(1.0),
        lambda: away.writer().append([NewRecord("t", b"k", b"v")]),
        lambda: away.writer("name"),
        lambda: away.publish_group("g", Positions.of([("t", 0, 1)])),
    ]
    for ask in asked:
        with pytest.raises(PeerError, match=r'Kafka at "127\.0\.0\.1:1" does not answer') as down:
            ask()
        assert down.value.retriable and down.value.hint


def test_asking_a_kafka_that_is_away_leaves_nothing_behind() -> None:
    """A monitor asks again and again for as long as the outage lasts."""
    nowhere = KafkaCluster(f"127.0.0.1:{free_pair()}", 0.3)
    before = set(threading.enumerate())  # not their numbers, which threads that begin get again
    for _ in range(3):
        with pytest.raises(PeerError):
            nowhere.group_offsets(["anyone"])

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in before]

    # One looks after all clients of the cluster while they fail, and ends with the cluster.
    assert left() == ["kafka-contact"]
    del nowhere
    gc.collect()
    wait_until(lambda: not left(), PATIENCE_S)


def test_times_are_found(cluster: KafkaCluster, topic: Topic) -> None:
    name = topic(partitions=2)
    cluster.writer().append([NewRecord(name, b"k", b"v", (), 1_000 * n, 0) for n in range(5)])
    assert cluster.offsets_at([name], 2_500) == Positions.of([(name, 0, 3)])
    assert read_all(cluster, name)[0].timestamp_ms == 1  # librdkafka would make "now" of 0


# ---- the broker dies under its writers


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[KafkaNode]:
    """A Kafka that a test may kill."""
    with own_node(tmp_path / "home") as node:
        yield node


def kill_and_start(node: KafkaNode) -> None:
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    node.start()
    node.wait_ready()


def test_kill_9_of_the_broker_under_writers_loses_and_doubles_nothing(mortal: KafkaNode) -> None:
    cluster = KafkaCluster(mortal.bootstrap, 15.0)
    for name in ("bulk", "named"):
        cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    stop = threading.Event()
    errors: list[Exception] = []
    written = {"bulk": 0, "named": 0}

    def bulk() -> None:
        sender = cluster.sender(delivery_timeout_s=60.0)
        while not stop.is_set():
            sender.send(NewRecord("bulk", b"k", str(written["bulk"]).encode()))
            written["bulk"] += 1
            if written["bulk"] % 100 == 0:
                time.sleep(0.01)
        sender.flush(60)

    def named() -> None:
        """An error leaves the outcome unknown; the log resolves it: read back, then continue after the
        last record."""
        writer = cluster.writer("named")
        while not stop.is_set():
            batch = range(written["named"], written["named"] + 3)
            try:
                writer.append([NewRecord("named", b"k", str(n).encode()) for n in batch])
                written["named"] += 3
            except PeerError:
                cluster.wait_ready(60)
                written["named"] = resolved()

    def resolved() -> int:
        for _ in range(20):
            try:
                return len(read_all(cluster, "named", "named"))
            except PeerError:
                time.sleep(0.5)
        raise AssertionError("Kafka did not come back")

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except (HubError, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (bulk, named)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        goals = [(name, count + 30) for name, count in written.items()]
        wait_until(
            lambda goals=goals: errors or all(written[name] >= goal for name, goal in goals),
            PATIENCE_S,
            lambda: f"nothing is written any more: {written}",
        )
        kill_and_start(mortal)
    before = written["named"]
    wait_until(
        lambda: errors or written["named"] >= before + 30,
        PATIENCE_S,
        lambda: "the named writer did not recover",
    )
    stop.set()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive()
    assert errors == []
    for name, count in written.items():
        values = [int(record.value or b"-1") for record in read_all(cluster, name, "named")]
        assert values == list(range(count)), f"{name}: {count} written, {len(values)} read"


def test_where_everything_is_and_how_full_the_folders_are(cluster: KafkaCluster) -> None:
    cluster.create_topic("placed.here", partitions=3, config={}, replication_factor=1)
    cluster.writer().append([NewRecord("placed.here", b"k", os.urandom(10_000), partition=0)])
    placement = cluster.placement()
    assert set(placement.brokers) == set(cluster.brokers()) and placement.controller in placement.brokers
    (one,) = placement.brokers
    assert [(each.leader, each.replicas, each.in_sync) for each in placement.partitions["placed.here"]] == [
        (one, (one,), (one,))
    ] * 3
    (folder,) = log_dirs(*placement.brokers[one], 10.0)
    assert folder.bytes is not None and folder.bytes > 10_000 and not folder.error
    assert folder.total_bytes is not None and 0 < (folder.usable_bytes or 0) < folder.total_bytes
    health = health_of(placement, {one: (folder,)}, 1)
    assert (health.state, health.offline, health.brokers[0].leads) == ("ok", 0, health.partitions)
