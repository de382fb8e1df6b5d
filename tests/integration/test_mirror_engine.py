"""The batch engine between two real clusters: every record once, in order, unchanged, and at a known
offset, whatever is killed, cut, corrupted or hung."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from kafka_nodes import batches_of, killed, log_of, often_cleaned, own_node, write_log
from patience import patient
from pipeline import records_of, wait_until
from secured_node import PASSWORD, USER, SecuredNode, give

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.errors import Conflict, HubError
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    READ_COMMITTED,
    BrokerCluster,
    ClusterAccess,
    FetchFrom,
    fetched,
    produced,
    raise_for,
    send_fetch,
    send_produce,
)
from hub.kafka.protocol.record_batch import AbortedTransactions, CorruptBatch, batches_in, is_intact
from hub.log import WriterFenced
from hub.record import Record, TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings, PartitionProgress
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_CONFIG,
    CHECKPOINTS_TOPIC,
    MAP_CONFIG,
    MAP_TOPIC,
    Checkpoint,
    Gap,
    MapRecord,
    checkpoint_of,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.rewriting.record_filter import NoSchemas, RecordRewriter, RecordRules
from hub.replication.rewriting.reencode import Fields, RawRecord, batch_of, fields_of, records_in, rest_of
from hub.runtime import die_with_parent

Found = tuple[int, int, Fields]
"""Offset, timestamp and the rest of a record."""

_names = itertools.count()
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    """A second cluster, which tests may kill when they start it again."""
    with own_node(tmp_path_factory.mktemp("target-home"), SecuredNode) as made:
        yield made


@pytest.fixture(scope="module")
def target(kafka: str, second: KafkaNode) -> str:
    """Its bootstrap servers; the mirrors' own topics are on both sides."""
    for bootstrap in (kafka, second.bootstrap):
        cluster = KafkaCluster(bootstrap)
        for name, config in ((CHECKPOINTS_TOPIC, CHECKPOINTS_CONFIG), (MAP_TOPIC, MAP_CONFIG)):
            with contextlib.suppress(Conflict):
                cluster.create_topic(name, partitions=4, config=config, replication_factor=1)
    return second.bootstrap


class Pair:
    """A topic of its own in both clusters, and what a test does with it."""

    def __init__(self, source: str, target: str, partitions: int, config: Mapping[str, str]) -> None:
        self.topic = f"nyc.mirror{next(_names)}.orders"
        self.link = f"nyc-lon-{self.topic.split('.')[1]}"
        self.source, self.target = source, target
        self.tps = [TopicPartition(self.topic, number) for number in range(partitions)]
        for bootstrap in (source, target):
            KafkaCluster(bootstrap).create_topic(
                self.topic, partitions=partitions, config=config, replication_factor=1
            )

    def engine(self, tps: Sequence[TopicPartition] | None = None, shard: int = 0, **more: Any) -> BatchEngine:
        return BatchEngine(
            KafkaConnection(ClusterAccess(bootstrap=self.source), "source"),
            KafkaConnection(ClusterAccess(bootstrap=self.target), "target"),
            link=self.link,
            shard=shard,
            partitions=self.tps if tps is None else tps,
            settings=EngineSettings(**more),
        )

    def check_map_only(self) -> None:
        """Check a source whose cleaner still runs: all remaining records are at the mapped offset, and
        unchanged."""
        for tp in self.tps:
            table = maps_of(self.target, self.link)[tp]
            theirs = {offset: rest for offset, *rest in settled(self.target, [tp])[tp]}
            ours = read(self.source, [tp])[tp]
            for offset, *rest in ours:
                translated = table.translate(offset)
                assert translated.kind == "exact"
                assert theirs[translated.offset] == rest
            assert ours

    def check(self) -> dict[TopicPartition, list[Found]]:
        """Check that both sides have the same records, at the mapped offsets. Return the source's records."""
        ours = read(self.source, self.tps)
        theirs = settled(self.target, self.tps)
        maps = maps_of(self.target, self.link)
        for tp in self.tps:
            assert digest(theirs[tp]) == digest(ours[tp]), tp
            if not ours[tp]:
                continue
            table = maps[tp]
            translated = [table.translate(offset) for offset, _, _ in ours[tp]]
            assert {each.kind for each in translated} == {"exact"}, tp
            assert [each.offset for each in translated] == [offset for offset, _, _ in theirs[tp]], tp
            back = [table.reverse(offset) for offset, _, _ in theirs[tp]]
            assert [each.offset for each in back] == [offset for offset, _, _ in ours[tp]], tp
        return ours


@pytest.fixture
def pair(kafka: str, target: str) -> Callable[..., Pair]:
    def make(partitions: int = 3, **config: str) -> Pair:
        named = {key.replace("_", "."): value for key, value in config.items()}
        return Pair(kafka, target, partitions, {"compression.type": "producer", **named})

    return make


def done(engine: BatchEngine, timeout_s: float = 60.0) -> list[PartitionProgress]:
    """Step until no partition that can continue has anything left."""
    deadline = time.monotonic() + patient(timeout_s)
    while time.monotonic() < deadline:
        engine.step()
        progress = engine.progress()
        if all(
            each.error is not None or 0 <= each.source_stable_end <= each.source_next for each in progress
        ):
            return progress
    pytest.fail(f"still behind: {engine.progress()} {engine.error}")


def digest(records: Sequence[Found]) -> str:
    summed = hashlib.sha256()
    for _, timestamp_ms, fields in records:
        summed.update(repr((timestamp_ms, fields)).encode())
    return f"{len(records)} {summed.hexdigest()}"


def read(bootstrap: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, list[Found]]:
    """Every committed record, byte for byte (a client's reader cannot show all of them)."""
    cluster = BrokerCluster(ClusterAccess(bootstrap=bootstrap))
    found: dict[TopicPartition, list[Found]] = {tp: [] for tp in tps}
    try:
        cluster.refresh({tp.topic for tp in tps})
        positions = cluster.offsets(tps, EARLIEST)
        ends = cluster.offsets(tps, isolation=READ_COMMITTED)
        for tp in tps:
            while positions[tp] < ends[tp]:
                leader = cluster.leader(tp)
                connection = cluster.connection(leader.node)
                wanted = [FetchFrom(tp, cluster.topics[tp.topic].uuid, leader.epoch, positions[tp])]
                version = send_fetch(
                    connection, wanted, max_wait_ms=100, max_bytes=1 << 24, partition_bytes=1 << 23
                )
                frame, at = connection.receive()
                _, (part,) = fetched(frame, at, version, cluster.names())
                raise_for(part.error, str(tp))
                books = AbortedTransactions(part.aborted)
                for batch in batches_in(part.buffer, part.start, part.end):
                    assert is_intact(batch)
                    if not books.covers(batch) and not batch.is_control:
                        found[tp] += [
                            (raw.offset, raw.timestamp_ms, fields_of(raw.rest))
                            for raw in records_in(batch)
                            if raw.offset >= positions[tp]
                        ]
                    positions[tp] = batch.next_offset
    finally:
        cluster.close()
    return found


def settled(bootstrap: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, list[Found]]:
    """Read like ``read``, once no transaction is open any more: a broker marks its end a moment after it
    confirmed it."""
    cluster = BrokerCluster(ClusterAccess(bootstrap=bootstrap))
    try:
        cluster.refresh({tp.topic for tp in tps})
        wait_until(
            lambda: cluster.offsets(tps) == cluster.offsets(tps, isolation=READ_COMMITTED),
            60.0,
            lambda: "a transaction stays open",
        )
    finally:
        cluster.close()
    return read(bootstrap, tps)


def maps_of(bootstrap: str, link: str) -> dict[TopicPartition, Any]:
    def records(topic: str) -> Iterator[Record]:
        partitions = KafkaCluster(bootstrap).topics()[topic].partitions
        for tp, found in settled(
            bootstrap, [TopicPartition(topic, number) for number in range(partitions)]
        ).items():
            for offset, timestamp_ms, fields in found:
                yield Record(*tp, offset, timestamp_ms, fields.key, fields.value)

    checkpoints = [
        each for each in map(checkpoint_of, records(CHECKPOINTS_TOPIC)) if isinstance(each, Checkpoint)
    ]
    runs: list[MapRecord] = [each for each in map(map_record_of, records(MAP_TOPIC)) if each is not None]
    return {
        TopicPartition(topic, partition): offset_map(found, runs)
        for (of, topic, partition), found in newest(checkpoints).items()
        if of == link
    }


def delivered(error: object, _message: object) -> None:
    assert error is None, error


def fill(pair: Pair, records: int, seed: int, *, codecs: Sequence[str] = CODECS, linger_ms: int = 20) -> None:
    """Records of mixed shapes, in turns by producers of every codec."""
    chance = random.Random(seed)
    left = records
    for codec in codecs:
        producer = Producer(
            {
                "bootstrap.servers": pair.source,
                "compression.type": codec,
                "linger.ms": linger_ms,
                "enable.idempotence": True,
                "batch.num.messages": chance.choice((50, 500, 5_000)),
            }
        )
        count = left if codec == codecs[-1] else records // len(codecs)
        left -= count
        for number in range(count):
            shape = chance.randrange(8)
            value = None if shape == 0 else b"" if shape == 1 else chance.randbytes(chance.randrange(4, 300))
            key = None if shape == 2 else b"" if shape == 3 else f"k{number % 97}".encode()
            headers: list[tuple[str, bytes | None]] = (
                [("trace", b"1"), ("trace", None), ("größe", b"")] if shape > 5 else []
            )
            producer.produce(
                pair.topic,
                value,
                key,
                partition=chance.randrange(len(pair.tps)),
                timestamp=chance.randrange(1, 1_700_000_000_000),
                headers=headers,
                on_delivery=delivered,
            )
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0


def produce_raw(bootstrap: str, tp: TopicPartition, payload: bytes) -> None:
    """A batch as it is, which no client would write."""
    cluster = BrokerCluster(ClusterAccess(bootstrap=bootstrap))
    try:
        cluster.refresh([tp.topic])
        connection = cluster.connection(cluster.leader(tp).node)
        send_produce(connection, None, [(tp, payload)], 10.0)
        frame, at = connection.receive()
        (answer,) = produced(frame, at)
        raise_for(answer.error, str(tp), answer.message)
    finally:
        cluster.close()


def batch_counts(bootstrap: str, tps: Sequence[TopicPartition]) -> list[int]:
    """Return the number of batches of each partition."""
    cluster = BrokerCluster(ClusterAccess(bootstrap=bootstrap))
    counts = []
    try:
        cluster.refresh({tp.topic for tp in tps})
        for tp in tps:
            leader = cluster.leader(tp)
            connection = cluster.connection(leader.node)
            wanted = [FetchFrom(tp, cluster.topics[tp.topic].uuid, leader.epoch, 0)]
            version = send_fetch(
                connection, wanted, max_wait_ms=100, max_bytes=1 << 24, partition_bytes=1 << 23
            )
            frame, at = connection.receive()
            _, (part,) = fetched(frame, at, version, cluster.names())
            counts.append(
                sum(not batch.is_control for batch in batches_in(part.buffer, part.start, part.end))
            )
    finally:
        cluster.close()
    return counts


def delete_records(bootstrap: str, tp: TopicPartition, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done_,) = admin.delete_records([KafkaTopicPartition(tp.topic, tp.partition, before)]).values()
    done_.result(60)


def test_every_record_arrives_once_in_order_and_at_a_known_offset(pair: Callable[..., Pair]) -> None:
    topic = pair()
    fill(topic, 20_000, seed=1)
    engine = topic.engine()
    try:
        progress = done(engine)
        assert [each.error for each in progress] == [None] * 3
        assert sum(each.records for each in progress) == 20_000
        assert sum(each.batches_passed for each in progress) > 0
        assert [each.lag_records for each in progress] == [0, 0, 0]
        fill(topic, 500, seed=2)
        done(engine)
    finally:
        engine.close()
    assert sum(map(len, topic.check().values())) == 20_500


# ---- processes that are killed and that hang

WORKER = """
import sys
from hub.log import WriterFenced
from hub.record import Record, TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings
from hub.kafka.protocol.broker_client import ClusterAccess

source, target, link, topic, partitions = sys.argv[1:]
engine = BatchEngine(
    KafkaConnection(ClusterAccess(bootstrap=source), "source"),
    KafkaConnection(ClusterAccess(bootstrap=target), "target"),
    link=link,
    shard=0,
    partitions=[TopicPartition(topic, number) for number in range(int(partitions))],
    settings=EngineSettings(commit_interval_s=0.02, commit_records=400, fetch_partition_bytes=20_000),
)
try:
    while True:
        print(engine.step(), flush=True)
except WriterFenced:
    sys.exit(7)
"""


@contextlib.contextmanager
def worker(topic: Pair) -> Iterator[subprocess.Popen[bytes]]:
    """An engine as a process of its own, killed with -9 in the end."""
    arguments = [topic.source, topic.target, topic.link, topic.topic, str(len(topic.tps))]
    with subprocess.Popen(
        die_with_parent([sys.executable, "-W", "ignore", "-c", WORKER, *arguments]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def carried(process: subprocess.Popen[bytes], records: int) -> None:
    """Wait until the worker reports the given number of commits."""
    assert process.stdout is not None
    while records > 0:
        line = process.stdout.readline()
        assert line, f"the worker ended with {process.wait(10)}"
        records -= int(line)


def test_kills_at_any_moment_lose_and_double_nothing(pair: Callable[..., Pair]) -> None:
    topic = pair()
    chance = random.Random(4)
    for seed in range(5):
        # Each worker has something to carry, however much the one before carried before it was killed.
        fill(topic, 2_400, seed=30 + seed)
        with worker(topic) as process:
            carried(process, 1)
            time.sleep(chance.random() * 0.15)
    engine = topic.engine()
    try:
        done(engine)
    finally:
        engine.close()
    assert sum(map(len, topic.check().values())) == 12_000


def test_a_worker_that_hung_is_fenced_and_says_so(pair: Callable[..., Pair]) -> None:
    topic = pair()
    fill(topic, 6_000, seed=5)
    with worker(topic) as process:
        carried(process, 1)
        process.send_signal(signal.SIGSTOP)
        engine = topic.engine()
        try:
            done(engine)
            process.send_signal(signal.SIGCONT)
            fill(topic, 500, seed=6)
            assert process.wait(60) == 7
            done(engine)
        finally:
            engine.close()
    assert sum(map(len, topic.check().values())) == 6_500


def test_an_engine_in_this_process_does_not_take_its_shard_back(pair: Callable[..., Pair]) -> None:
    topic = pair(1)
    first, second = topic.engine(), topic.engine()
    try:
        first.step()
        second.step()
        first.retry()  # as after a lost connection
        with pytest.raises(WriterFenced):
            first.step()
        with pytest.raises(WriterFenced):
            first.step()
        fill(topic, 100, seed=7)
        done(second)
    finally:
        first.close()
        second.close()
    assert sum(map(len, topic.check().values())) == 100


@pytest.mark.faults
@pytest.mark.skipif(
    "HUB_FAULT_SEEDS" not in os.environ,
    reason="a transaction that died with its broker may be waited for until it times out: "
    "HUB_FAULT_SEEDS=1 runs it",
)
@pytest.mark.parametrize("killed", ["target", "source"])
def test_a_broker_that_dies_costs_time_only(
    pair: Callable[..., Pair], second: KafkaNode, killed: str
) -> None:
    topic = pair()
    if killed == "source":
        topic.source, topic.target = topic.target, topic.source
    fill(topic, 6_000, seed=13)
    engine = topic.engine(commit_records=300, commit_interval_s=0.02, fetch_partition_bytes=20_000)
    try:
        while engine.step() == 0:
            assert engine.error is None
        assert second.process is not None
        second.process.kill()
        second.process.wait(10)
        errors = []
        for _ in range(6):
            engine.step()
            errors += [engine.error] if engine.error is not None else []
        assert errors
        second.start()
        second.wait_ready()
        assert [each.error for each in done(engine)] == [None] * 3
    finally:
        engine.close()
        if second.process is None or second.process.poll() is not None:
            second.start()
            second.wait_ready()
    assert sum(map(len, topic.check().values())) == 6_000


# ---- what the source may hold


def transaction(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(60)
    return producer


def spanned_while_open(topic: Pair) -> Producer:
    """A transaction over both partitions is committed while one that began earlier in the second is open:
    its producer."""
    earlier = transaction(topic.source, f"{topic.link}.earlier")
    spanning = transaction(topic.source, f"{topic.link}.spanning")
    earlier.begin_transaction()
    earlier.produce(topic.topic, b"earlier", partition=1, on_delivery=delivered)
    earlier.flush(60)
    spanning.begin_transaction()
    for tp in topic.tps:
        spanning.produce(topic.topic, b"spanning", partition=tp.partition, on_delivery=delivered)
    spanning.commit_transaction(60)
    return earlier


def test_aborted_transactions_are_left_out(pair: Callable[..., Pair]) -> None:
    topic = pair(2)
    producer = transaction(topic.source, f"{topic.link}.writer")
    for number in range(20):
        producer.begin_transaction()
        for at in range(30):
            producer.produce(topic.topic, f"{number}.{at}".encode(), partition=at % 2, on_delivery=delivered)
        if number % 3 == 0:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    engine = topic.engine()
    try:
        assert sum(each.records for each in done(engine)) == 13 * 30
    finally:
        engine.close()
    values = [fields.value for found in topic.check().values() for _, _, fields in found]
    assert len(values) == 13 * 30
    assert not [value for value in values if value is not None and int(value.split(b".")[0]) % 3 == 0]


def test_a_transaction_over_two_partitions_becomes_visible_at_once(pair: Callable[..., Pair]) -> None:
    """In the source it is readable in one partition while in the other a transaction that
    began earlier is open."""
    topic = pair(2)
    earlier = spanned_while_open(topic)
    produce_raw(
        topic.source, topic.tps[0], bytes(batch_of([RawRecord(0, 1, 0, rest_of(None, b"after"))]).payload)
    )
    assert len(read(topic.source, topic.tps)[topic.tps[0]]) == 2
    engine = topic.engine(hold_s=600.0)
    try:
        for _ in range(8):
            engine.step()
        assert read(topic.target, topic.tps) == {tp: [] for tp in topic.tps}
        earlier.commit_transaction(60)
        done(engine)
    finally:
        engine.close()
    topic.check()


def test_holding_back_ends(pair: Callable[..., Pair]) -> None:
    topic = pair(2)
    earlier = spanned_while_open(topic)
    engine = topic.engine(hold_s=0.5)
    try:
        done(engine)
        assert [len(found) for found in settled(topic.target, topic.tps).values()] == [1, 0]
        earlier.abort_transaction(60)
        done(engine)
    finally:
        engine.close()
    topic.check()


def test_a_compacted_topic_keeps_its_holes_out_and_its_map_exact(pair: Callable[..., Pair]) -> None:
    compacting = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.001",
        "segment_bytes": "1048576",
        "delete_retention_ms": "100000000",
    }
    topic = pair(1, **compacting)
    chance = random.Random(8)
    producer = Producer({"bootstrap.servers": topic.source, "compression.type": "lz4", "linger.ms": 50})
    for number in range(6_000):
        value = chance.randbytes(600) if number % 50 else None
        producer.produce(
            topic.topic, value, f"k{chance.randrange(1_500)}", partition=0, on_delivery=delivered
        )
        if number % 500 == 0:
            producer.flush(60)
    producer.flush(60)
    tp = topic.tps[0]
    with often_cleaned(topic.source):
        wait_until(lambda: len(read(topic.source, [tp])[tp]) < 5_500, 90.0, lambda: "nothing was compacted")
    engine = topic.engine()
    try:
        (progress,) = done(engine)
    finally:
        engine.close()
    assert progress.error is None
    assert progress.batches_rewritten > 0
    topic.check_map_only()


def test_tiny_batches_are_merged_and_stay_what_they_are(pair: Callable[..., Pair]) -> None:
    topic = pair()
    producer = Producer(
        {
            "bootstrap.servers": topic.source,
            "batch.num.messages": 2,
            "linger.ms": 0,
            "compression.type": "zstd",
        }
    )
    for number in range(3_000):
        producer.produce(topic.topic, b"x" * 40, str(number), partition=number % 3, on_delivery=delivered)
    assert producer.flush(60) == 0
    engine = topic.engine()
    try:
        progress = done(engine)
    finally:
        engine.close()
    assert sum(each.batches_rewritten for each in progress) > 1_000
    topic.check()
    assert sum(batch_counts(topic.target, topic.tps)) < sum(batch_counts(topic.source, topic.tps)) / 10


LARGEST = 1_048_588  # Kafka's default of max.message.bytes: of a batch with its header


HOUR_MS = 3_600_000


def test_what_the_target_refuses_is_not_passed_over_while_others_go_on(pair: Callable[..., Pair]) -> None:
    """Its transaction is aborted, and it is committed with none of the next ones."""
    closed, open_ = pair(1), pair(1)
    long_ago_ms = int(time.time() * 1000) - 2 * HOUR_MS

    def fill_both(count: int) -> None:
        for each in (closed, open_):
            records = [RawRecord(n, long_ago_ms - n, 0, rest_of(b"%d" % n, b"x" * 300)) for n in range(count)]
            produce_raw(each.source, each.tps[0], bytes(batch_of(records).payload))

    fill_both(50)
    engine = BatchEngine(
        KafkaConnection(ClusterAccess(bootstrap=closed.source), "source"),
        KafkaConnection(ClusterAccess(bootstrap=closed.target), "target"),
        link=closed.link,
        shard=0,
        partitions=[*closed.tps, *open_.tps],
        settings=EngineSettings(),
    )
    open_.link = closed.link
    try:
        done(engine)
        # A batch with an outdated declaration is refused batch by batch, as is one without the right to
        # write. (Not than a
        # moment: the broker holds its own transaction markers to it too, and an abort would never be over.)
        limit = {"message.timestamp.before.max.ms": str(HOUR_MS)}
        KafkaCluster(closed.target).alter_config(closed.topic, limit)
        for _ in range(3):
            fill_both(60)
            told = {each.topic: each for each in done(engine)}
            refused, fine = told[closed.topic], told[open_.topic]
            assert "message.timestamp.before.max.ms" in str(refused.error) and fine.error is None
            assert refused.source_next == 50
        assert fine.source_next == 230
        KafkaCluster(closed.target).alter_config(closed.topic, {"message.timestamp.before.max.ms": None})
        engine.retry()
        assert [each.error for each in done(engine)] == [None, None]
    finally:
        engine.close()
    for each in (closed, open_):
        (found,) = each.check().values()
        assert len(found) == 230


def test_records_of_one_byte_and_as_large_as_they_may_be(pair: Callable[..., Pair]) -> None:
    """The largest batch unchanged, with tiny ones that are re-encoded; after one that does not fit the
    others continue."""
    topic = pair(2)
    chance = random.Random(5)

    def largest() -> bytes:
        nearly = chance.randbytes(LARGEST - 200)
        less = LARGEST - len(batch_of([RawRecord(0, 1, 0, rest_of(None, nearly))]).payload)
        made = bytes(batch_of([RawRecord(0, 1, 0, rest_of(None, nearly + bytes(less)))]).payload)
        assert len(made) == LARGEST
        return made

    one = bytes(batch_of([RawRecord(0, 1, 0, rest_of(None, b"x"))]).payload)
    keyed = bytes(batch_of([RawRecord(0, 2, 0, rest_of(b"k", None))]).payload)
    for payload in (one, largest(), keyed, one, largest(), largest(), one):
        for tp in topic.tps:
            produce_raw(topic.source, tp, payload)
    engine = topic.engine()
    try:
        progress = done(engine)
        assert [each.error for each in progress] == [None, None]
        assert all(each.batches_passed >= 3 for each in progress)
        assert [len(found) for found in topic.check().values()] == [7, 7]
        KafkaCluster(topic.target).alter_config(topic.topic, {"max.message.bytes": str(LARGEST - 1)})
        engine.retry()
        produce_raw(topic.source, topic.tps[0], largest())
        for _ in range(3):
            produce_raw(topic.source, topic.tps[1], one)
        large, small = done(engine)
        assert "max.message.bytes" in str(large.error) and large.source_next == 7
        assert (small.error, small.source_next) == (None, 10)
        KafkaCluster(topic.target).alter_config(topic.topic, {"max.message.bytes": str(LARGEST)})
        engine.retry()
        done(engine)
    finally:
        engine.close()
    assert [len(found) for found in topic.check().values()] == [8, 10]


def test_a_batch_larger_than_the_target_takes_is_split(pair: Callable[..., Pair]) -> None:
    topic = pair(1)
    KafkaCluster(topic.target).alter_config(topic.topic, {"max.message.bytes": "20000"})
    producer = Producer({"bootstrap.servers": topic.source, "linger.ms": 100, "compression.type": "lz4"})
    for number in range(400):
        producer.produce(
            topic.topic, random.Random(number).randbytes(1_000), partition=0, on_delivery=delivered
        )
    producer.flush(60)
    engine = topic.engine()
    try:
        done(engine)
        topic.check()
        producer.produce(topic.topic, random.Random(0).randbytes(50_000), partition=0, on_delivery=delivered)
        producer.flush(60)
        (progress,) = done(engine)
    finally:
        engine.close()
    assert "offset 400: its record takes" in str(progress.error)
    assert "max.message.bytes" in str(progress.error)


def test_bytes_that_no_client_can_show_stay_as_they_are(pair: Callable[..., Pair]) -> None:
    """Timestamps 0 and -1, header names that are not UTF-8, empty and null: in a batch that passes and in
    one that is re-encoded."""
    topic = pair(1)
    strange = [
        RawRecord(0, 0, 0, rest_of(None, None, [(b"\xff\xfe", None), (b"\xff\xfe", b""), (b"", b"x")])),
        RawRecord(1, -1, 0, rest_of(b"", b"", [])),
        RawRecord(2, 1_700_000_000_000, 0, rest_of(b"k", None, [(b"a", b"1"), (b"a", b"2")])),
    ]
    for records in (strange * 20, strange[:2], strange[1:], strange):
        produce_raw(topic.source, topic.tps[0], bytes(batch_of(records, 3).payload))
    engine = topic.engine()
    try:
        (progress,) = done(engine)
    finally:
        engine.close()
    assert (progress.batches_passed, progress.batches_rewritten) == (1, 3)
    (found,) = topic.check().values()
    assert [timestamp_ms for _, timestamp_ms, _ in found[:3]] == [0, -1, 1_700_000_000_000]
    assert found[0][2].headers == ((b"\xff\xfe", None), (b"\xff\xfe", b""), (b"", b"x"))


def test_small_batches_that_inflate_a_thousandfold_arrive_whole(pair: Callable[..., Pair]) -> None:
    topic = pair(1)
    for number in range(12):
        zeros = RawRecord(0, number, 0, rest_of(b"%d" % number, bytes(5_000_000)))
        payload = batch_of([zeros], 1 if number < 6 else 4)
        assert len(payload.payload) < 5_000
        produce_raw(topic.source, topic.tps[0], bytes(payload.payload))
    engine = topic.engine()
    try:
        (progress,) = done(engine)
    finally:
        engine.close()
    assert (progress.records, progress.batches_rewritten) == (12, 12)
    (found,) = topic.check().values()
    assert {len(fields.value or b"") for _, _, fields in found} == {5_000_000}


def bomb(pair: Pair, codec: str, partition: int) -> int:
    """100 MiB of zeros as one compressed record. Returns its offset."""
    found: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": pair.source,
            "compression.type": codec,
            "message.max.bytes": 200_000_000,
            "batch.size": 200_000_000,
        }
    )
    producer.produce(
        pair.topic,
        bytes(100 << 20),
        b"bomb",
        partition=partition,
        on_delivery=lambda error, message: found.append(message.offset()),
    )
    assert producer.flush(60) == 0
    return found[0]


def test_batches_that_nobody_may_unpack_pass_or_are_a_told_gap(pair: Callable[..., Pair]) -> None:
    """They pass where batches do; where records are looked at, they are left out, and all others come."""
    passed, ruled = pair(partitions=2), pair(partitions=2)
    bombs: dict[Pair, list[tuple[TopicPartition, int]]] = {passed: [], ruled: []}
    for each in (passed, ruled):
        fill(each, 1_000, seed=26)
        for number, codec in enumerate(("zstd", "gzip", "lz4")):
            tp = each.tps[number % 2]
            bombs[each].append((tp, bomb(each, codec, tp.partition)))
            fill(each, 500, seed=27 + number)
    for each in (passed, ruled):
        engine = each.engine()
        if each is ruled:  # each record is looked at
            engine = BatchEngine(
                KafkaConnection(ClusterAccess(bootstrap=each.source), "source"),
                KafkaConnection(ClusterAccess(bootstrap=each.target), "target"),
                link=each.link,
                shard=0,
                partitions=each.tps,
                rewriters={each.topic: RecordRewriter(RecordRules(each.topic), NoSchemas())},
            )
        try:
            progress = done(engine)
            assert all(row.error is None for row in progress)
        finally:
            engine.close()
    assert sum(len(records) for records in passed.check().values()) == 2_503
    there = settled(ruled.target, ruled.tps)
    assert sum(len(records) for records in there.values()) == 2_500
    marks = records_of(KafkaCluster(ruled.target), CHECKPOINTS_TOPIC)
    gaps = [each for each in map(checkpoint_of, marks) if isinstance(each, Gap) and each.link == ruled.link]
    assert sorted((TopicPartition(gap.topic, gap.partition), gap.first) for gap in gaps) == sorted(
        bombs[ruled]
    )
    assert all((gap.end, gap.reason) == (gap.first + 1, "skipped") for gap in gaps)


def test_a_damaged_batch_stops_its_partition_and_no_other(
    pair: Callable[..., Pair], settings: Settings
) -> None:
    topic = pair(2)
    for payload in (b"good", b"good too", b"to be damaged", b"after it"):
        for tp in topic.tps:
            records = [RawRecord(number, 1, 0, rest_of(None, payload * 500)) for number in range(30)]
            produce_raw(topic.source, tp, bytes(batch_of(records).payload))
    (segment,) = (settings.home / "kafka" / "data" / f"{topic.topic}-1").glob("*.log")
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(content.index(b"to be damaged") + 5)
        file.write(b"X")
    engine = topic.engine()
    try:
        whole, damaged = done(engine)
        assert (whole.records, whole.error) == (120, None)
        assert (damaged.records, damaged.source_next) == (60, 60)
        assert isinstance(damaged.error, CorruptBatch)
        assert (
            f'topic "{topic.topic}" partition 1 in the source, offset 60: the batch\'s checksum is wrong'
            in str(damaged.error)
        )
        with segment.open("r+b") as file:
            file.seek(content.index(b"to be damaged"))
            file.write(b"to be damaged")
        engine.retry()
        done(engine)
    finally:
        engine.close()
    assert sum(map(len, topic.check().values())) == 240


def test_records_that_the_source_deleted_are_a_told_gap(pair: Callable[..., Pair]) -> None:
    topic = pair(2)
    fill(topic, 200, seed=9)
    engine = topic.engine()
    try:
        done(engine)
    finally:
        engine.close()
    fill(topic, 400, seed=10)
    tp = topic.tps[0]
    end = KafkaCluster(topic.source).end_offsets([topic.topic]).get(tp)
    delete_records(topic.source, tp, end - 10)
    engine = topic.engine()
    try:
        stopped, other = done(engine)
        assert "before they were mirrored" in str(stopped.error)
        assert other.error is None
    finally:
        engine.close()
    engine = topic.engine(on_gap="continue")
    try:
        assert [each.error for each in done(engine)] == [None, None]
    finally:
        engine.close()
    found = settled(topic.target, [TopicPartition(CHECKPOINTS_TOPIC, number) for number in range(4)])
    keys = [fields.key for records in found.values() for _, _, fields in records]
    assert [key for key in keys if key and key.startswith(f"gap|{topic.link}|{topic.topic}|".encode())]
    theirs = settled(topic.target, [tp])[tp]
    assert digest(theirs[-10:]) == digest(read(topic.source, [tp])[tp])


def add_batch(bootstrap: str, tp: TopicPartition, mark: str) -> None:
    """Ten records, once the partition is led."""
    now_ms = int(time.time() * 1000)  # a marker's time is the broker's: both are to be in one segment
    records = [RawRecord(n, now_ms, 0, rest_of(None, f"{mark}-{n}".encode())) for n in range(10)]

    def added() -> bool:
        try:
            produce_raw(bootstrap, tp, bytes(batch_of(records).payload))
        except HubError:
            return False
        return True

    wait_until(added, 60.0, lambda: f"{tp} takes nothing")


def test_a_source_that_was_cut_and_has_grown_again_is_noticed(
    pair: Callable[..., Pair], second: SecuredNode
) -> None:
    """Detected by the leader epoch before the position: the end of the log has passed the position again
    and shows nothing."""
    topic = pair(4)
    topic.source, topic.target = topic.target, topic.source
    cut, older, compacted, well = topic.tps
    for mark in ("first", "second", "lost"):
        add_batch(topic.source, cut, mark)
    for tp in (older, compacted, well):
        add_batch(topic.source, tp, "first")
    first = topic.engine()
    try:
        done(first)
    finally:
        first.close()
    for mark in ("unseen", "unseen too"):
        add_batch(topic.source, older, mark)
    running = topic.engine([cut, well])
    try:
        running.step()
        with killed(second):
            write_log(log_of(second, cut), batches_of(log_of(second, cut))[:2])
            longer = batches_of(log_of(second, older))
            write_log(log_of(second, older), longer[:1])
        for tp, mark in ((cut, "other"), (cut, "more"), (older, "next"), (compacted, "next"), (well, "next")):
            add_batch(topic.source, tp, mark)

        def seen() -> bool:
            running.step()
            hurt, other = running.progress()
            return hurt.error is not None and other.source_next == 20

        wait_until(seen, 60.0, lambda: f"{running.progress()} {running.error}")
        errors = [each.error for each in running.progress()]
    finally:
        running.close()
    assert errors[1] is None
    assert errors[0] is not None and errors[0].code == "HUB-3606"
    assert "mirrored up to 30, but the source has only the records before 20" in errors[0].message
    next_one = topic.engine()
    try:
        found = done(next_one)
    finally:
        next_one.close()
    assert [each.error and each.error.code for each in found] == ["HUB-3606", None, None, None], found
    assert [each.source_next for each in found] == [30, 20, 20, 20]

    with killed(second):
        pass
    add_batch(topic.source, compacted, "latest")
    with killed(second):
        # A replica that was never in sync leads: it has more of the time before the records that we have, and
        # none of them.
        write_log(log_of(second, older), longer)
        # And one that was filled after compaction has none of the epoch of the last record that we have.
        first, _, latest = batches_of(log_of(second, compacted))
        write_log(log_of(second, compacted), [first, latest])
    for tp in (compacted, well):
        add_batch(topic.source, tp, "last")
    again = topic.engine()
    try:
        found = done(again)
    finally:
        again.close()
    codes = [each.error and each.error.code for each in found]
    assert codes == ["HUB-3606", "HUB-3606", None, None], found
    assert [each.source_next for each in found] == [30, 20, 40, 30]
    assert "mirrored up to 20, but the source has another log by now" in str(found[1].error)
    copies = settled(topic.target, topic.tps)
    assert [len(copies[tp]) for tp in topic.tps] == [30, 20, 40, 30]
    assert [fields.value for _, _, fields in copies[cut]][20:22] == [b"lost-0", b"lost-1"]
    assert digest(copies[well]) == digest(read(topic.source, [well])[well])


def test_a_copy_that_was_cut_is_not_written_on(pair: Callable[..., Pair], second: SecuredNode) -> None:
    topic = pair(2)
    cut, well = topic.tps
    engine = topic.engine()
    try:
        for mark in ("first", "second"):
            for tp in topic.tps:
                add_batch(topic.source, tp, mark)
            done(engine)
        with killed(second):
            first, its_marker, *_ = batches_of(log_of(second, cut))
            write_log(log_of(second, cut), [first, its_marker])
        for tp in topic.tps:
            for mark in ("third", "fourth"):
                add_batch(topic.source, tp, mark)

        def seen() -> bool:
            engine.step()
            found = engine.progress()
            return found[0].error is not None and found[1].source_next == 40

        wait_until(seen, 120.0, lambda: f"{engine.progress()} {engine.error}")
        error, other = (each.error for each in engine.progress())
    finally:
        engine.close()
    assert other is None
    assert error is not None and error.code == "HUB-3607"
    # The coordinator repeats its pending answer about the last transaction.
    assert re.search(
        r": 21 offsets were written at the target, but it ends at 1\d: it lost records", error.message
    )
    assert len(settled(topic.target, [cut])[cut]) == 10
    assert digest(settled(topic.target, [well])[well]) == digest(read(topic.source, [well])[well])


def test_a_topic_made_anew_and_a_target_with_records_are_not_mirrored_into(pair: Callable[..., Pair]) -> None:
    topic = pair(1)
    fill(topic, 100, seed=11)
    engine = topic.engine()
    try:
        done(engine)
        source = KafkaCluster(topic.source)
        source.delete_topic(topic.topic)
        source.create_topic(topic.topic, partitions=1, config={}, replication_factor=1)
        fill(topic, 300, seed=12)
        (progress,) = done(engine)
        assert "made again" in str(progress.error)
    finally:
        engine.close()
    other = pair(1)
    produce_raw(
        other.target, other.tps[0], bytes(batch_of([RawRecord(0, 1, 0, rest_of(None, b"x"))]).payload)
    )
    engine = other.engine()
    try:
        (progress,) = done(engine)
        assert "the target has records already" in str(progress.error)
    finally:
        engine.close()


def test_what_another_shard_carries_is_left_alone(pair: Callable[..., Pair]) -> None:
    """Somebody changed how many shards there are while a worker with the former file still runs."""
    topic = pair(2)
    fill(topic, 200, seed=13)
    mine, other = topic.engine(), topic.engine(shard=1)
    try:
        done(mine)
        fill(topic, 100, seed=14)
        assert ["`shards` of the mirror was changed" in str(each.error) for each in done(other)] == [True] * 2
        assert all(each.error is None for each in done(mine))
    finally:
        mine.close()
        other.close()
    topic.check()


# ---- ways in


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_passwords_and_tls(pair: Callable[..., Pair], second: SecuredNode, mechanism: Any) -> None:
    topic = pair()
    fill(topic, 3_000, seed=14)
    second.make_users()
    everything = [(kind, "*", "ALL", "ALLOW") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")]
    give(second.bootstrap, [*everything, ("BROKER", "kafka-cluster", "ALL", "ALLOW")])
    known: dict[str, Any] = {"sasl_mechanism": mechanism, "username": USER, "password": PASSWORD}
    tls, plain = f"127.0.0.1:{second.both_port}", f"127.0.0.1:{second.sasl_port}"
    authority = str(second.folder / "broker.pem")
    right = ClusterAccess(bootstrap=tls, security_protocol="SASL_SSL", ssl_cafile=authority, **known)
    engine = topic.engine()
    assert isinstance(engine.target, KafkaConnection)
    engine.target.access = right
    try:
        wait_until(
            lambda: engine.step() > 0, 60.0, lambda: str(engine.error)
        )  # a new password takes a moment
        done(engine)
    finally:
        engine.close()
    topic.check()
    guarded = ClusterAccess(bootstrap=plain, security_protocol="SASL_PLAINTEXT", **known)
    BrokerCluster(guarded).refresh([topic.topic])
    for wrong, said in (
        (replace(guarded, password="wrong"), "does not let us in"),
        (replace(guarded, sasl_mechanism="SCRAM-SHA-512"), "not SCRAM-SHA-512"),
        (replace(right, ssl_cafile=None), "CERTIFICATE_VERIFY_FAILED"),
    ):
        with pytest.raises(HubError, match=said):
            BrokerCluster(wrong).refresh([topic.topic])
