"""Long links: sizes from the measured round trip, transactions without requests for their partitions, and a
map that is written before the answers come."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from memory_brokers import ManualClock, MemoryBrokers
from memory_connection import MemoryConnection

from hub.errors import ConfigError
from hub.kafka.protocol.broker_client import ConnectionLost, RoundTrip
from hub.kafka.protocol.compression import LZ4, NONE, ZSTD
from hub.kafka.protocol.record_batch import BatchLimits, CorruptBatch
from hub.log import WriterFenced
from hub.record import NewRecord, TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.long_link import LEAST_WINDOW_BYTES, FetchSizes, SendWindow, due_at_s
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.engine.shard_thread import settings_of
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, MAP_TOPIC, map_record_of
from hub.replication.rewriting.link_compression import compressed
from hub.replication.rewriting.reencode import batch_of_new, patched

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MB = 1 << 20


class Ocean:
    """Two clusters, the target 100 ms away, and a topic of two partitions in both."""

    def __init__(self, *, implicit: bool) -> None:
        self.clock = ManualClock()
        self.source = MemoryBrokers(self.clock)
        self.target = MemoryBrokers(self.clock, self._hook, implicit=implicit, round_trip_s=0.1)
        self.requests: Counter[str] = Counter()
        self.lost: dict[str, int] = {}
        for own in (CHECKPOINTS_TOPIC, MAP_TOPIC):
            self.target.create_topic(own, 2)
        for side in (self.source, self.target):
            side.create_topic("t", 2)

    def _hook(self, request: str, moment: str) -> None:
        self.requests[request] += moment == "before"
        if moment == "after" and self.lost.get(request) == self.requests[request]:
            raise ConnectionLost(request)

    def engine(self, compression: int = NONE) -> BatchEngine:
        return BatchEngine(
            MemoryConnection(self.source, "source"),
            MemoryConnection(self.target, "target"),
            link="m",
            shard=0,
            partitions=[A, B],
            settings=EngineSettings(
                limits=BatchLimits(tiny_records=0, tiny_bytes=0), compression=compression
            ),
            clock=self.clock,
        )

    def produce(self, tp: TopicPartition, *values: bytes) -> None:
        self.source.append([NewRecord(tp.topic, None, value, partition=tp.partition) for value in values])

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.target.records(tp)]

    def check_map(self, tp: TopicPartition) -> None:
        """Every record of the copy is where the map says, and nowhere else."""
        copied = {record.offset: record.value for record in self.target.records(tp)}
        mapped = {}
        for own in self.target.partitions(MAP_TOPIC):
            for record in self.target.records(own):
                found = map_record_of(record)
                if found is None or found.partition != tp.partition:
                    continue
                for run in found.runs:
                    mapped |= {run.target + at: run.source + at for at in range(run.count)}
        born = {record.offset: record.value for record in self.source.records(tp)}
        foreign = {at: value for at, value in copied.items() if value == b"foreign"}
        assert {at: born[source] for at, source in mapped.items()} | foreign == copied


@pytest.fixture(params=[False, True], ids=["version 1", "version 2"])
def ocean(request: pytest.FixtureRequest) -> Ocean:
    return Ocean(implicit=request.param)


def run(engine: BatchEngine, steps: int = 8) -> int:
    return sum(engine.step() for _ in range(steps))


def test_records_arrive_in_order_with_an_exact_map(ocean: Ocean) -> None:
    engine = ocean.engine()
    for number in range(12):  # each a batch of its own, and the first of them in one transaction
        ocean.produce(A, b"a%d" % number)
        if number < 4:
            continue
        if number % 3 == 0:
            ocean.produce(B, b"b%d" % number, b"c%d" % number)
        engine.step()
    run(engine)
    assert ocean.values(A) == [b"a%d" % number for number in range(12)]
    assert len(ocean.values(B)) == 4
    ocean.check_map(A)
    ocean.check_map(B)
    assert engine.error is None and ocean.requests["initialize"] == 1


def test_brokers_that_add_partitions_are_not_asked_to(ocean: Ocean) -> None:
    engine = ocean.engine()
    ocean.produce(A, b"1")
    run(engine)
    ocean.produce(A, b"2")
    run(engine)
    assert ocean.values(A) == [b"1", b"2"]
    assert bool(ocean.requests["add"]) is not ocean.target.implicit


@pytest.mark.parametrize("request_name", ["produce", "end", "initialize"])
def test_a_lost_answer_doubles_and_loses_nothing(ocean: Ocean, request_name: str) -> None:
    engine = ocean.engine()
    for number in range(20):
        ocean.lost = {request_name: ocean.requests[request_name] + 1} if number % 3 == 1 else {}
        ocean.produce(A, b"%d" % number)
        engine.step()
    ocean.lost = {}
    run(engine, 20)
    assert ocean.values(A) == [b"%d" % number for number in range(20)]
    ocean.check_map(A)


def test_another_producer_in_the_copy_makes_no_wrong_map(ocean: Ocean) -> None:
    """The offset that a batch was expected to have is compared with the one that it got."""
    engine = ocean.engine()
    for number in range(6):
        ocean.produce(A, b"%d" % number)
        run(engine, 3)
        ocean.target.append([NewRecord("t", None, b"foreign", partition=0)])
    run(engine, 10)
    assert [value for value in ocean.values(A) if value != b"foreign"] == [b"%d" % n for n in range(6)]
    assert ocean.requests["initialize"] == 2  # from then on nothing is expected of that partition
    ocean.check_map(A)


def test_a_worker_that_took_the_shard_fences_the_former(ocean: Ocean) -> None:
    first, second = ocean.engine(), ocean.engine()
    ocean.produce(A, b"1")
    run(first)
    ocean.produce(A, b"2")
    run(second)
    ocean.produce(A, b"3")
    with pytest.raises(WriterFenced):
        run(first)
    run(second)
    assert ocean.values(A) == [b"1", b"2", b"3"]
    ocean.check_map(A)


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_uncompressed_batches_cross_the_link_compressed_if_they_shrink(ocean: Ocean, codec: int) -> None:
    engine = ocean.engine(codec)
    text, noise = b"the same words again " * 100, random.Random(1).randbytes(2_000)
    for value in (text, noise, b"short", text):
        ocean.produce(A, value)
        run(engine, 2)
    run(engine)
    assert ocean.values(A) == [text, noise, b"short", text]
    ocean.check_map(A)
    log = ocean.target.logs[A]
    codecs = [batch.codec for each in log.batches if not (batch := patched(each)).is_control]
    assert codecs == [codec, NONE, NONE, codec]
    assert engine.error is None and ocean.requests["initialize"] == 1


def test_a_damaged_batch_is_not_hidden_by_a_new_checksum() -> None:
    batch = patched(batch_of_new([NewRecord("t", None, b"word " * 500)], 0).payload)
    assert compressed(batch, LZ4) is not None and compressed(batch, NONE) is None
    batch.buffer[batch.size - 9] ^= 1
    with pytest.raises(CorruptBatch):
        compressed(batch, LZ4)


# ---- sizes


def test_a_fetch_grows_while_the_link_is_idle_between_answers_and_shrinks_when_answers_take_long() -> None:
    sizes = FetchSizes(MB, 16 * MB)
    for expected in (2, 4, 8, 16, 16):
        sizes = sizes.answered(1, sizes.of(1), 0.05, 0.1)
        assert sizes.of(1) == expected * MB
    assert sizes.of(2) == MB
    assert sizes.answered(1, 3 * MB, 0.01, 0.1).of(1) == 16 * MB  # fewer bytes were there: no evidence
    assert sizes.answered(1, 16 * MB, 0.3, 0.1).of(1) == 16 * MB
    for expected in (8, 4, 2, 1, 1):
        sizes = sizes.answered(1, sizes.of(1), 3.0, 0.1)
        assert sizes.of(1) == expected * MB


def test_a_window_doubles_once_a_round_trip_and_halves_on_a_slow_link() -> None:
    window = SendWindow(MB)
    for turn, expected in enumerate((2, 4, 8, 16, 32, 32), start=1):
        window = window.acknowledged(32 * MB, window.bytes, turn - 0.15, float(turn), 0.1)
        assert window.bytes == expected * MB
        early = window.acknowledged(32 * MB, window.bytes, turn - 0.1, turn + 0.01, 0.1)
        assert early is window or turn == 6  # sent before the window was as large
    assert window.acknowledged(32 * MB, MB, 10.0, 10.15, 0.1) is window  # not used
    slow = window.acknowledged(32 * MB, 32 * MB, 20.0, 21.0, 0.1)
    assert slow == SendWindow(16 * MB, 21.0)


def test_a_short_link_stays_as_it_is() -> None:
    sizes = FetchSizes(MB, 16 * MB)
    assert sizes.answered(1, MB, 0.0, 0.001) is sizes
    window = SendWindow(LEAST_WINDOW_BYTES)
    assert window.acknowledged(32 * MB, MB, 0.0, 0.001, 0.001) is window
    assert (
        due_at_s(10.0, 0.0, 0.1, 0.001, behind=False) == due_at_s(10.0, 0.0, 0.1, 0.001, behind=True) == 10.1
    )


def test_a_long_commit_is_followed_by_the_next_with_all_that_came_meanwhile() -> None:
    """The fetch that was under way during the commit has next to nothing: one more answer is waited for."""
    assert due_at_s(10.0, 9.7, 0.1, 0.1, 0.05, behind=False) == pytest.approx(10.07)
    assert due_at_s(10.0, 9.7, 0.0, 0.1, 0.05, behind=False) == 10.0, "no longer than the interval"
    assert due_at_s(10.0, 9.95, 0.2, 0.1, 0.05, behind=False) == pytest.approx(10.15)
    assert due_at_s(10.0, 9.7, 0.1, 0.1, 0.05, behind=True) == pytest.approx(10.6)
    assert due_at_s(10.0, 9.7, 2.0, 0.1, 0.05, behind=True) == pytest.approx(12.0)


def test_a_round_trip_is_the_shortest_of_the_last() -> None:
    trip = RoundTrip()
    assert trip.seconds == 0.0
    for seconds in (0.3, 0.1, 0.5):
        trip.took(seconds)
    assert trip.seconds == 0.1
    for _ in range(8):
        trip.took(0.2)
    assert trip.seconds == 0.2


def test_an_operator_sets_what_a_long_link_may_use() -> None:
    body = {"source": "nyc", "target": "lon", "topics": ["**"]}
    settings = settings_of(Mirror.model_validate(body), 1, 8)
    assert (settings.fetch_most_bytes, settings.in_flight_bytes) == (16 * MB, 32 * MB)
    wide = Mirror.model_validate({**body, "link": {"fetch": "64MiB", "in_flight": "128MiB"}})
    assert settings_of(wide, 1, 8).fetch_most_bytes == 64 * MB
    assert settings_of(wide, 16, 16).fetch_most_bytes == 4 * MB  # the worker's memory, divided by its shards
    for bad in ({"fetch": "1KiB"}, {"fetch": "1GiB"}, {"in_flight": "1GiB"}):
        with pytest.raises((ConfigError, ValueError)):
            Mirror.model_validate({**body, "link": bad})
