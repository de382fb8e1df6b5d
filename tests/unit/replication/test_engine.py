"""The engine over clusters in memory: copies, restarts, and reasons that stop a partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from memory_brokers import ManualClock, MemoryBrokers, control_batch
from memory_connection import MemoryConnection

from hub.errors import HubError
from hub.kafka.protocol.broker_client import ConnectionLost
from hub.kafka.protocol.record_batch import COMMIT, patch
from hub.log import WriterFenced
from hub.record import NewRecord, TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, MAP_TOPIC, Gap, checkpoint_of, map_record_of
from hub.replication.rewriting.reencode import batch_of_new, patched

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def records(tp: TopicPartition, *values: bytes) -> list[NewRecord]:
    return [NewRecord(tp.topic, None, value, partition=tp.partition) for value in values]


class Pair:
    """Two clusters, and a topic of two partitions in both."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.source, self.target = MemoryBrokers(self.clock), MemoryBrokers(self.clock)
        for own in (CHECKPOINTS_TOPIC, MAP_TOPIC):
            self.target.create_topic(own, 2)
        for side in (self.source, self.target):
            side.create_topic("t", 2)

    def engine(self, **limits: object) -> BatchEngine:
        return BatchEngine(
            MemoryConnection(self.source, "source"),
            MemoryConnection(self.target, "target"),
            link="m",
            shard=0,
            partitions=[A, B],
            settings=EngineSettings(**limits),  # type: ignore[arg-type]
            clock=self.clock,
        )

    def produce(self, tp: TopicPartition, *values: bytes) -> None:
        self.source.append(records(tp, *values))

    def copied(self, tp: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.target.records(tp)]

    def gaps(self) -> list[Gap]:
        found = [
            checkpoint_of(each)
            for tp in self.target.partitions(CHECKPOINTS_TOPIC)
            for each in self.target.records(tp)
        ]
        return [each for each in found if isinstance(each, Gap)]

    def run(self, engine: BatchEngine, steps: int = 6) -> int:
        return sum(engine.step() for _ in range(steps))


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_records_arrive_in_order_with_a_map_and_a_checkpoint(pair: Pair) -> None:
    engine = pair.engine()
    pair.produce(A, b"1", b"2")
    pair.produce(B, b"3")
    assert pair.run(engine) == 3
    pair.produce(A, b"4")
    assert pair.run(engine) == 1
    assert (pair.copied(A), pair.copied(B)) == ([b"1", b"2", b"4"], [b"3"])
    assert [(each.source_next, each.lag_records) for each in engine.progress()] == [(3, 0), (1, 0)]
    runs = [
        found
        for tp in pair.target.partitions(MAP_TOPIC)
        for record in pair.target.records(tp)
        if (found := map_record_of(record)) is not None
    ]
    # A transaction's end marker takes an offset of the target.
    assert [(each.partition, run.source, run.target) for each in runs for run in each.runs] == [
        (0, 0, 0), (1, 0, 0), (0, 2, 3),
    ]  # fmt: skip


def test_aborted_records_of_the_source_are_not_copied(pair: Pair) -> None:
    pair.source.transaction("writer", records(A, b"no"), commit=False)
    pair.source.transaction("writer", records(A, b"yes"))
    pair.run(engine := pair.engine())
    assert pair.copied(A) == [b"yes"]
    assert engine.progress()[0].source_next == 4


REQUESTS = ["metadata", "offsets", "fetch", "initialize", "add", "produce", "end"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_that_fails_once_costs_time_only(pair: Pair, request_name: str, moment: str) -> None:
    """Also a commit that was executed and not answered: what the memory says about it is not believed."""
    engine = pair.engine()
    asked = lost = 0

    def lose(request: str, when: str) -> None:
        nonlocal asked, lost
        if (request, when) == (request_name, moment):
            asked += 1
            if asked in (1, 3, 4, 7):
                lost += 1
                raise ConnectionLost(request)

    pair.target.hook = pair.source.hook = lose
    for number in range(20):
        pair.produce(A, b"%d" % number)
        engine.step()
    assert lost or moment == "after"  # rare requests are lost before they are executed only
    pair.target.hook = pair.source.hook = lambda *_: None
    pair.run(engine, 10)
    assert pair.copied(A) == [b"%d" % number for number in range(20)]
    assert engine.error is None


def test_a_worker_that_took_the_shard_ends_the_former_for_good(pair: Pair) -> None:
    first, second = pair.engine(), pair.engine()
    pair.produce(A, b"1")
    pair.run(first)
    second.start()
    pair.produce(A, b"2")
    with pytest.raises(WriterFenced):
        pair.run(first)
    assert first.fenced
    with pytest.raises(WriterFenced):
        first.step()
    pair.run(second)
    assert pair.copied(A) == [b"1", b"2"]


def _recreate(pair: Pair) -> None:
    pair.source.delete_topic("t")
    pair.source.create_topic("t", 2)


def _truncate(pair: Pair) -> None:
    """An unclean election: other records stand where mirrored ones were."""
    log = pair.source.logs[A]
    log.truncate(1)
    log.epoch += 1
    pair.produce(A, b"other", b"more")


def _lose_copy(pair: Pair) -> None:
    pair.target.logs[A].truncate(0)


def _retain(pair: Pair) -> None:
    pair.produce(A, b"3", b"4")
    pair.produce(A, b"5")
    pair.source.logs[A].start = 4


@pytest.mark.parametrize(
    ("happens", "code"),
    [(_recreate, "HUB-1612"), (_truncate, "HUB-3606"), (_lose_copy, "HUB-3607"), (_retain, "HUB-3605")],
)
def test_a_partition_that_must_not_go_on_stops_alone(
    pair: Pair, happens: Callable[[Pair], None], code: str
) -> None:
    engine = pair.engine()
    pair.produce(A, b"1")
    pair.produce(A, b"2")
    pair.run(engine)
    engine.close()
    happens(pair)
    pair.produce(B, b"others")
    engine = pair.engine()
    pair.run(engine, 10)
    errors = [each.error for each in engine.progress()]
    assert isinstance(errors[0], HubError) and errors[0].code == code
    if happens is not _recreate:  # which is of both partitions
        assert errors[1] is None and pair.copied(B) == [b"others"]


def test_a_gap_is_declared_when_the_file_lets_the_mirror_go_on(pair: Pair) -> None:
    engine = pair.engine(on_gap="continue")
    pair.produce(A, b"1")
    pair.run(engine)
    engine.close()
    pair.produce(A, b"2", b"3")
    pair.produce(A, b"4")
    pair.source.logs[A].start = 3
    pair.run(engine := pair.engine(on_gap="continue"), 10)
    assert pair.copied(A) == [b"1", b"4"]
    assert [(gap.first, gap.end, gap.reason) for gap in pair.gaps()] == [(1, 3, "retention")]
    assert engine.progress()[0].error is None


def test_a_damaged_batch_is_read_twice_and_never_copied(pair: Pair) -> None:
    engine = pair.engine()
    pair.produce(A, b"1")
    pair.produce(A, b"2")
    pair.source.logs[A].batches[1][-2] ^= 1
    pair.run(engine)
    error = engine.progress()[0].error
    assert error is not None and "checksum" in error.message and pair.copied(A) == [b"1"]
    pair.source.logs[A].batches[1][-2] ^= 1
    engine.retry()
    pair.run(engine)
    assert pair.copied(A) == [b"1", b"2"] and engine.progress()[0].error is None


def test_a_refused_batch_stops_its_partition_and_the_others_go_on(pair: Pair) -> None:
    pair.target.largest_batch_bytes = 500
    pair.produce(A, b"x" * 600)
    pair.produce(B, b"fits")
    pair.run(engine := pair.engine(), 10)
    assert [each.error is None for each in engine.progress()] == [False, True]
    assert (pair.copied(A), pair.copied(B)) == ([], [b"fits"])


def test_a_transaction_of_the_source_is_copied_whole(pair: Pair) -> None:
    """It ended in one partition; its end in the other is still on its way."""
    engine = pair.engine(hold_s=1e9)
    pair.run(engine, 2)
    writer = pair.source.initialize("writer")
    pair.source.add("writer", writer, [A, B], 1e9)
    for tp in (A, B):
        payload = patched(batch_of_new(records(tp, b"both"), 0).payload)
        pair.source.produce("writer", tp, patch(payload, *writer, 0))
    pair.source.logs[A].append(control_batch(writer, COMMIT, 0))
    pair.source.logs[A].open.clear()
    pair.run(engine, 3)
    assert (pair.copied(A), pair.copied(B)) == ([], [])
    pair.source.end("writer", writer, commit=True)
    pair.run(engine, 3)
    assert (pair.copied(A), pair.copied(B)) == ([b"both"], [b"both"])
