"""What a run of the audit makes of receipts, without a Kafka; over a real one tests/integration/test_completeness.py."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from effort import costs_at_most
from patience import patient

from hub.completeness import audit, receipts
from hub.completeness.audit import Audit, _Seeking
from hub.completeness.follow import Follower
from hub.completeness.ledger import LEDGER_TOPIC, Cells, Entry, Ledger, State, audit_of
from hub.completeness.reading import Seen
from hub.completeness.receipts import Receipts
from hub.errors import PeerError
from hub.kafka.reader import up_to
from hub.log import MemoryCluster, MemoryReader
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters import topics_of

PLACE = TopicPartition("t", 0)


def receipt(first: int, end: int) -> Entry:
    cells = Cells()
    for offset in range(first, end):
        cells.add(0, offset, 1)
    return Entry("source", "p", "t", 0, first, end, 1, cells, runs=((first, end - first),))


@pytest.mark.parametrize(("compact", "state"), [(True, State.UNKNOWN), (False, State.SHORT)])
def test_what_compaction_may_have_taken_is_not_called_lost(compact: bool, state: State) -> None:
    told = receipt(0, 4)
    seeking = _Seeking.of([told], 0, 4, 2)
    seeking.take(Seen(3, 0, 3, 1, True))  # the newest of the key
    (balance,) = audit_of("t", [told, *seeking.found(4, compact=compact)]).balances
    assert balance.state is state


def test_what_retention_deleted_is_not_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class There:
        """The log from offset 2 on, without offset 3."""

        def __init__(self, _cluster: Any, _place: TopicPartition, first: int, end: int) -> None:
            self.offsets = [each for each in (2, 4) if first <= each < end]

        def records(self) -> Iterator[Seen]:
            return (Seen(each, 0, each, 1, True) for each in self.offsets)

    ledger = Ledger()
    ledger.by_topic["t"] = {b"": receipt(0, 5)}
    monkeypatch.setattr(audit, "Stretch", There)
    monkeypatch.setattr(audit, "read_ledger", lambda _kafka: ledger)
    monkeypatch.setattr(Audit, "_reach", lambda _self: None)
    kafka: Any = SimpleNamespace(
        bootstrap="x", beginning_offsets=lambda _topics: Positions({PLACE: 2}), close=lambda: None
    )
    asked = Audit(kafka, SimpleNamespace(), "t")  # type: ignore[arg-type]
    assert [each.offset for each in asked.missing(0)] == [3]


def test_a_partition_all_of_whose_receipts_are_dropped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MOST_PENDING", 2)
    cluster = MemoryCluster()
    kept = Receipts(cluster, "g")
    for offset in range(5):
        kept.took_id(PLACE, offset, 0, offset, 1)
    for offset in range(3):
        kept.took_id(TopicPartition("u", 0), offset, 0, offset, 1)
    kept.flush()
    ledger = audit.read_ledger(cluster)  # type: ignore[arg-type]
    assert [(each.topic, each.cells.total.count, each.dropped) for each in ledger.entries.values()] == [
        ("t", 2, 3),
        ("u", 1, 2),
    ]


def test_a_record_is_sought_among_the_receipts_around_it_alone() -> None:
    many = [receipt(first, first + 5) for first in range(0, 20_000, 5)]
    seeking = _Seeking.of(many, 0, 20_000, 2)
    with costs_at_most(40):
        for offset in range(20_000):
            seeking.take(Seen(offset, 0, offset, 1, True))
    (balance,) = audit_of("t", [*many, *seeking.found(20_000)]).balances
    assert (balance.state, balance.compared) == (State.BALANCED, 20_000)


def test_receipts_that_overlap_each_find_their_own() -> None:
    wide = replace(receipt(0, 1), end=10, runs=((0, 1), (9, 1)), instance="w")
    wide.cells.add(0, 9, 1)
    narrow = receipt(2, 4)
    seeking = _Seeking.of([wide, narrow], 0, 10, 2)
    for offset in range(10):
        seeking.take(Seen(offset, 0, offset, 1, True))
    audit = audit_of("t", [wide, narrow, *seeking.found(10)])
    assert [each.state for each in audit.balances] == [State.BALANCED, State.BALANCED]


class SlowReader(MemoryReader):
    """A record every ten seconds."""

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
    assert len(audit.read_ledger(cluster).entries) == 30
    follower = Follower(cluster)
    follower._follow(cluster.follower(), follower._stop.set)
    assert [each.topic for each in follower.known().audits] == ["t"]
    silent = SimpleNamespace(
        position=lambda: Positions({PLACE: 0}), poll=lambda *_: SlowReader.poll(gone, 1, 0.2)
    )
    gone: Any = SlowReader(cluster)
    with pytest.raises(PeerError, match="nothing came for 60 s"):
        list(up_to(Positions({PLACE: 1}), silent, 60.0))  # type: ignore[arg-type]


def test_a_ledger_that_was_deleted_is_told_no_more() -> None:
    cluster: Any = MemoryCluster()
    audit.write_entries(cluster, [receipt(0, 1)])
    follower = Follower(cluster)
    follower.start()
    try:
        until = time.monotonic() + patient(30.0)
        while not follower.known().audits and time.monotonic() < until:
            time.sleep(0.02)
        assert follower.heat("t") is not None
        cluster.delete_topic(LEDGER_TOPIC)
        while follower.known().audits and time.monotonic() < until:
            time.sleep(0.02)
        assert (follower.known().audits, follower.known().error) == ((), None)
        assert follower.heat("t") is None
    finally:
        follower.stop()


def test_the_id_of_a_log_is_spelled_in_receipts_as_the_audit_spells_it() -> None:
    cluster: Any = MemoryCluster()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    cluster.descriptions["t"] = replace(
        cluster.descriptions["t"], topic_id="X+y/Zw"
    )  # as Kafka's C client has it
    kept = Receipts(cluster, "g")
    kept.took_id(PLACE, 0, 0, 7, 1)
    kept.flush()
    reached: Any = SimpleNamespace(kafka=cluster)
    ours = topics_of(reached)["t"].topic_id
    assert [each.topic_id for each in audit.read_ledger(cluster).of("t")] == [ours] == ["X-y_Zw"]


def test_a_receipt_says_of_which_log_it_is_and_is_not_sought_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster: Any = MemoryCluster()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    kept = Receipts(cluster, "g")
    kept.took_id(PLACE, 0, 0, 7, 1)
    kept.flush()
    ledger = audit.read_ledger(cluster)
    assert [each.topic_id for each in ledger.of("t")] == ["memory-1"]
    monkeypatch.setattr(audit, "Stretch", lambda *_: SimpleNamespace(records=lambda: iter(())))
    for topic_id, lost in (("memory-1", 1), ("memory-2", 0)):
        asked: Any = SimpleNamespace(
            ledger=ledger, topic="t", copies=(), cluster=None, _topic_id=topic_id, now_ms=lambda: 1
        )
        asked._start = lambda place, begin: 1
        made = list(Audit._partition(asked, PLACE, 0, 1, compact=False))
        assert len(made) == lost
