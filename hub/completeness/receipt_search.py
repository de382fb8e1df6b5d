"""[shell] Search for the records that producers have receipts for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hub.completeness.batch_reader import ReadRecord
from hub.completeness.counts import Cells, CountEntry, named


@dataclass(frozen=True, slots=True)
class MissingRecord:
    """A record that is on one side only. ``offset`` is the source's. ``id`` is None if its bytes are no
    longer available.
    """

    kind: str
    instance: str
    partition: int
    offset: int
    id: str | None
    what: str


@dataclass
class ReceiptSearch:
    """Receipts whose records are matched while the log is read past their offsets."""

    receipts: list[CountEntry]
    lost: list[CountEntry]
    first: int
    now_ms: int
    cells: dict[bytes, Cells] = field(default_factory=dict)
    untimed: set[bytes] = field(default_factory=set)
    # Records arrive in ascending order: receipts that the next one may belong to, and how many receipts were
    # reached.
    around: list[CountEntry] = field(default_factory=list)
    reached: int = 0

    @classmethod
    def of(cls, entries: Sequence[CountEntry], begin: int, end: int, now_ms: int) -> ReceiptSearch:
        known = {(each.instance, each.first, each.end) for each in entries if each.tier == "found"}
        open_ones = [
            each
            for each in entries
            if each.tier == "source" and (each.instance, each.first, each.end) not in known
        ]
        gone = "the log's retention deleted the records before they were compared"
        lost = [named(each, "found", Cells(), now_ms, why=gone) for each in open_ones if each.first < begin]
        wanted = sorted((each for each in open_ones if begin <= each.first), key=lambda each: each.first)
        return cls(wanted, lost, min((each.first for each in wanted), default=end), now_ms)

    def take(self, record: ReadRecord) -> None:
        while self.reached < len(self.receipts) and self.receipts[self.reached].first <= record.offset:
            self.around.append(self.receipts[self.reached])
            self.reached += 1
        self.around = [each for each in self.around if record.offset < each.end]
        for each in self.around:
            if _within(each.runs, record.offset):
                self.cells.setdefault(each.key, Cells()).add(record.timestamp_ms, record.id, record.size)
                if not record.timed:
                    self.untimed.add(each.key)

    def give_up(self, first: int, end: int) -> None:
        """Stop searching for receipts that overlap [first, end), which was not read."""
        self.receipts = [each for each in self.receipts if each.end <= first or end <= each.first]
        self.around = [each for each in self.around if each.end <= first]
        self.reached = sum(each.first < end for each in self.receipts)

    def found_entries(self, reached: int, *, compact: bool = False) -> Iterator[CountEntry]:
        """Yield the *found* entry of every receipt before ``reached``. ``compact``: compaction may have
        removed missing records.
        """
        for each in self.receipts:
            if each.end <= reached:
                untimed = each.key in self.untimed
                why = (
                    "the broker sets the topic's timestamps, so minutes cannot be compared" if untimed else ""
                )
                cells = self.cells.get(each.key, Cells())
                yield named(each, "found", cells, self.now_ms, why=why, compact=compact)


def _within(runs: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
    return at >= 0 and offset < runs[at][0] + runs[at][1]


def offsets_text(runs: Iterable[tuple[int, int]], first: int) -> Iterator[int]:
    """Yield the offsets of the runs from ``first`` on."""
    for start, count in runs:
        yield from range(max(first, start), start + count)


def _repeated(entry: CountEntry, ours: Sequence[ReadRecord]) -> Iterator[MissingRecord]:
    first_offsets: dict[int, int] = {}
    for record in ours:
        before = first_offsets.setdefault(record.id, record.offset)
        if before != record.offset:
            reason = f"the same record as at offset {before}"
            yield MissingRecord("log", "", entry.partition, record.offset, f"{record.id:016x}", reason)
