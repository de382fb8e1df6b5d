"""Audit runs and receipts without Kafka; tests/integration/test_completeness.py uses a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from effort import costs_at_most
from patience import patient, wait_until

from hub.alerts.model.rules import Verdict
from hub.cli.monitor import completeness as command
from hub.completeness import counting as audit
from hub.completeness import receipts
from hub.completeness.balances import CompletenessState, TopicCompleteness, audit_of
from hub.completeness.batch_reader import OffsetRange, ReadRecord
from hub.completeness.counting import TopicCounter
from hub.completeness.counts import COUNTS_TOPIC, Cells, CountEntry, Counts, named
from hub.completeness.counts_follower import CountsFollower
from hub.completeness.minutes import minute_grid_of
from hub.completeness.objectives import verdict_of
from hub.completeness.receipt_search import ReceiptSearch
from hub.completeness.receipts import ReceiptWriter
from hub.errors import NotFound, PeerError
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.kafka.protocol.record_batch import CorruptBatch
from hub.log import MemoryCluster, MemoryReader, up_to
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import topics_of

PLACE = TopicPartition("t", 0)


def receipt(first: int, end: int) -> CountEntry:
    cells = Cells()
    for offset in range(first, end):
        cells.add(0, offset, 1)
    return CountEntry("source", "p", "t", 0, first, end, 1, cells, runs=((first, end - first),))


@pytest.mark.parametrize(
    ("compact", "state"), [(True, CompletenessState.UNKNOWN), (False, CompletenessState.SHORT)]
)
def test_what_compaction_may_have_taken_is_not_called_lost(compact: bool, state: CompletenessState) -> None:
    told = receipt(0, 4)
    seeking = ReceiptSearch.of([told], 0, 4, 2)
    seeking.take(ReadRecord(3, 0, 3, 1, True))  # the newest record of the key
    (balance,) = audit_of("t", [told, *seeking.found_entries(4, compact=compact)]).balances
    assert balance.state is state


def test_what_retention_deleted_is_not_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class There:
        """Log from offset 2 on, without offset 3."""

        def __init__(self, _cluster: Any, _place: TopicPartition, first: int, end: int) -> None:
            self.offsets = [each for each in (2, 4) if first <= each < end]

        def records(self) -> Iterator[ReadRecord]:
            return (ReadRecord(each, 0, each, 1, True) for each in self.offsets)

    ledger = Counts()
    ledger.by_topic["t"] = {b"": receipt(0, 5)}
    monkeypatch.setattr(audit, "OffsetRange", There)
    monkeypatch.setattr(audit, "read_counts", lambda _kafka: ledger)
    monkeypatch.setattr(TopicCounter, "_reach", lambda _self: None)
    kafka: Any = SimpleNamespace(
        bootstrap="x", beginning_offsets=lambda _topics: Positions({PLACE: 2}), close=lambda: None
    )
    asked = TopicCounter(kafka, ClusterAccess(bootstrap="x"), "t")
    assert [each.offset for each in asked.missing(0)] == [3]


def test_a_partition_all_of_whose_receipts_are_dropped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MOST_PENDING", 2)
    cluster = MemoryCluster()
    kept = ReceiptWriter(cluster, "g")
    for offset in range(5):
        kept.took_id(PLACE, offset, 0, offset, 1)
    for offset in range(3):
        kept.took_id(TopicPartition("u", 0), offset, 0, offset, 1)
    kept.flush()
    ledger = audit.read_counts(cluster)  # type: ignore[arg-type]
    assert [(each.topic, each.cells.total.count, each.dropped) for each in ledger.entries.values()] == [
        ("t", 2, 3),
        ("u", 1, 2),
    ]


def test_a_record_is_sought_among_the_receipts_around_it_alone() -> None:
    many = [receipt(first, first + 5) for first in range(0, 20_000, 5)]
    seeking = ReceiptSearch.of(many, 0, 20_000, 2)
    with costs_at_most(40):
        for offset in range(20_000):
            seeking.take(ReadRecord(offset, 0, offset, 1, True))
    (balance,) = audit_of("t", [*many, *seeking.found_entries(20_000)]).balances
    assert (balance.state, balance.compared) == (CompletenessState.BALANCED, 20_000)


def test_receipts_that_overlap_each_find_their_own() -> None:
    wide = replace(receipt(0, 1), end=10, runs=((0, 1), (9, 1)), instance="w")
    wide.cells.add(0, 9, 1)
    narrow = receipt(2, 4)
    seeking = ReceiptSearch.of([wide, narrow], 0, 10, 2)
    for offset in range(10):
        seeking.take(ReadRecord(offset, 0, offset, 1, True))
    audit = audit_of("t", [wide, narrow, *seeking.found_entries(10)])
    assert [each.state for each in audit.balances] == [CompletenessState.BALANCED, CompletenessState.BALANCED]


class SlowReader(MemoryReader):
    """Reader that returns a record every ten seconds."""

    clock_s = 0.0

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        SlowReader.clock_s += 10.0
        return super().poll(1, timeout_s)


@dataclass
class SlowCluster(MemoryCluster):
    def reader(self) -> MemoryReader:
        return SlowReader(self)

    follower = reader


def test_a_ledger_of_weeks_is_read_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: SlowReader.clock_s)
    cluster: Any = SlowCluster()
    audit.write_entries(cluster, [receipt(first, first + 1) for first in range(30)])
    assert len(audit.read_counts(cluster).entries) == 30
    follower = CountsFollower(cluster)
    follower.follower.start()
    for _ in range(int(patient(3_000))):  # the clock is the reader's
        if follower.latest().read:
            break
        threading.Event().wait(0.01)
    follower.follower.stop()
    assert [each.topic for each in follower.latest().audits] == ["t"]
    silent = SimpleNamespace(
        position=lambda: Positions({PLACE: 0}), poll=lambda *_: SlowReader.poll(gone, 1, 0.2)
    )
    gone: Any = SlowReader(cluster)
    with pytest.raises(PeerError, match="nothing came for 60 s"):
        list(up_to(Positions({PLACE: 1}), silent, 60.0))  # type: ignore[arg-type]


def test_a_ledger_that_was_deleted_is_told_no_more() -> None:
    cluster: Any = MemoryCluster()
    audit.write_entries(cluster, [receipt(0, 1)])
    follower = CountsFollower(cluster)
    follower.follower.start()
    try:
        wait_until(lambda: follower.latest().audits)
        assert follower.heat("t") is not None
        cluster.delete_topic(COUNTS_TOPIC)
        wait_until(lambda: not follower.latest().audits)
        assert (follower.latest().audits, follower.latest().error) == ((), None)
        assert follower.heat("t") is None
    finally:
        follower.follower.stop()


def test_the_id_of_a_log_is_spelled_in_receipts_as_the_audit_spells_it() -> None:
    cluster: Any = MemoryCluster()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    cluster.descriptions["t"] = replace(
        cluster.descriptions["t"], topic_id="X+y/Zw"
    )  # as Kafka's C client has it
    kept = ReceiptWriter(cluster, "g")
    kept.took_id(PLACE, 0, 0, 7, 1)
    kept.flush()
    reached: Any = SimpleNamespace(kafka=cluster)
    ours = topics_of(reached)["t"].topic_id
    assert [each.topic_id for each in audit.read_counts(cluster).of("t")] == [ours] == ["X-y_Zw"]


def test_a_receipt_says_of_which_log_it_is_and_is_not_sought_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster: Any = MemoryCluster()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    kept = ReceiptWriter(cluster, "g")
    kept.took_id(PLACE, 0, 0, 7, 1)
    kept.flush()
    ledger = audit.read_counts(cluster)
    assert [each.topic_id for each in ledger.of("t")] == ["memory-1"]
    monkeypatch.setattr(audit, "OffsetRange", lambda *_: SimpleNamespace(records=lambda: iter(())))
    for topic_id, lost in (("memory-1", 1), ("memory-2", 0)):
        asked: Any = SimpleNamespace(
            ledger=ledger, topic="t", copies=(), cluster=None, _topic_id=topic_id, now_ms=lambda: 1
        )
        asked._start = lambda place, begin: 1
        made = list(TopicCounter._partition(asked, PLACE, 0, 1, compact=False))
        assert len(made) == lost


@dataclass
class Readable(MemoryCluster):
    """Topics with ten records per partition, some of them unreadable from an offset on."""

    damaged: dict[TopicPartition, int] = field(default_factory=dict)
    begin: dict[TopicPartition, int] = field(default_factory=dict)
    bootstrap: str = "memory"

    def effective_config(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "delete"} for topic in topics}

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return super().beginning_offsets(topics).advanced(Positions(self.begin))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Readable:
    """Kafka double with the calls of ``TopicCounter``, and its offset ranges."""
    made = Readable()
    made.create_topic("t", partitions=2, config={}, replication_factor=1)
    for partition in range(2):
        made.logs["t"][partition] = [Record("t", partition, offset, 0, None, b"") for offset in range(10)]

    class Some(OffsetRange):
        """Offset range in which each batch is one record."""

        def records(self) -> Iterator[ReadRecord]:
            self.reached = self.first
            for offset in range(self.first, min(self.end, 10)):
                if offset == made.damaged.get(self.place):
                    raise CorruptBatch(f"offset {offset}: its checksum is wrong")
                yield ReadRecord(offset, 0, offset, 1, True)
                self.reached = offset + 1

    def reach(asked: TopicCounter) -> None:
        asked.cluster.topics = {"t": SimpleNamespace(topic_id="memory-1")}  # type: ignore[dict-item]

    monkeypatch.setattr(audit, "OffsetRange", Some)
    monkeypatch.setattr(TopicCounter, "_reach", reach)
    return made


def run(kafka: Readable) -> TopicCompleteness:
    asked = TopicCounter(kafka, ClusterAccess(bootstrap="x"), "t")
    asked.run()
    return audit_of("t", asked.ledger.of("t"))


def test_what_cannot_be_read_ends_its_partition_alone_and_is_told(kafka: Readable) -> None:
    kafka.damaged = {PLACE: 4}
    for _ in range(2):
        found = run(kafka)
        assert found.records == 14  # all records before it, and the other partition
        assert (found.state, found.unaudited) == (CompletenessState.UNKNOWN, ((0, 4, 10),))
        assert "partition 0 is not read on: offset 4: its checksum is wrong" in found.cause
        heat = minute_grid_of(audit.read_counts(kafka).of("t"))  # type: ignore[arg-type]
        assert heat is not None and heat.gaps == 6
    kafka.damaged = {}
    whole = run(kafka)
    assert (whole.records, whole.unread, whole.unaudited) == (20, (), ())


def test_what_could_not_be_read_is_forgotten_once_it_is_deleted(kafka: Readable) -> None:
    kafka.damaged = {PLACE: 0}
    assert run(kafka).records == 10
    kafka.begin = {PLACE: 10}
    assert run(kafka).unread == ()


def test_a_promise_is_unknown_while_some_of_the_log_cannot_be_read(kafka: Readable) -> None:
    kafka.damaged = {PLACE: 4}
    run(kafka)
    entries = audit.read_counts(kafka).of("t")  # type: ignore[arg-type]
    copies = [named(each, "mirror", each.cells, 1, instance="m") for each in entries if not each.why]
    found = audit_of("t", [*entries, *copies])
    assert [each.state for each in found.balances] == [CompletenessState.BALANCED]
    assert verdict_of(found, 0.9) == (Verdict.UNKNOWN, None)


def test_receipts_behind_what_cannot_be_read_wait_and_are_not_called_lost(kafka: Readable) -> None:
    first = replace(receipt(0, 4), topic_id="memory-1")
    later = replace(receipt(6, 8), instance="later", topic_id="memory-1")
    run(kafka)  # everything is audited; then receipts arrive late, and the log becomes unreadable
    audit.write_entries(kafka, [first, later])  # type: ignore[arg-type]
    kafka.damaged = {PLACE: 5}
    states = {each.instance: each.state for each in run(kafka).balances}
    assert states == {"p": CompletenessState.BALANCED, "later": CompletenessState.OPEN}
    kafka.damaged = {}
    assert {each.state for each in run(kafka).balances} == {CompletenessState.BALANCED}


def test_receipts_that_claim_any_number_are_named_as_far_as_is_asked(kafka: Readable) -> None:
    """Regression: 2^43 claimed offsets that the log does not have were all iterated."""
    claimed = replace(receipt(9, 10), end=1 << 43, runs=((9, (1 << 43) - 9),), topic_id="memory-1")
    audit.write_entries(kafka, [claimed])  # type: ignore[arg-type]
    asked = TopicCounter(kafka, ClusterAccess(bootstrap="x"), "t")
    asked.cluster.topics = {}
    found = asked.missing(0, 5)
    assert [each.offset for each in found] == list(range(10, 15))


def test_a_topic_that_is_not_audited_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(topic: str, *, mirrors: bool) -> TopicCompleteness:
        if topic != "t":
            raise NotFound(f'topic "{topic}" does not exist', hint="hub topic ls")
        return audit_of(topic, [])

    monkeypatch.setattr(command, "_run", one)
    assert [each.topic for each in command.run_each(["gone", "t"], mirrors=False)] == ["t"]
    assert '! gone: not audited: topic "gone" does not exist' in capsys.readouterr().err
    with pytest.raises(NotFound):
        command.run_each(["gone", "away"], mirrors=False)
