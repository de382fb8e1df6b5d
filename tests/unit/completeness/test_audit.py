"""What a run of the audit makes of receipts, without a Kafka; over a real one tests/integration/test_completeness.py."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hub.completeness import audit, receipts
from hub.completeness.audit import Audit, _Seeking
from hub.completeness.ledger import Cells, Entry, Ledger, State, audit_of
from hub.completeness.reading import Seen
from hub.completeness.receipts import Receipts
from hub.log import MemoryCluster
from hub.record import Positions, TopicPartition

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
