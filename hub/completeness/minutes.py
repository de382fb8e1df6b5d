"""[core] Completeness by minute, for the heat map: the log's count, its holes, and the state of each
comparison.

Compares the same pairs as ``hub.completeness.counts``, each in the minute of its records. Rows of stores have
no minute and are listed separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hub.completeness.balances import (
    SEVERITY,
    CompletenessState,
    compared,
    counted,
    dropped_text,
    of_newest,
    pairs_of,
    unaudited,
    unread,
)
from hub.completeness.counts import Cell, CountEntry, Kind
from hub.observability.web.pages.monitor.completeness_counts import ComparedSide, MinuteGrid, MinuteRange

# Pseudo-minute of comparisons without minutes.
_NO_MINUTE = -1
NOTHING = Cell()
_COMPACTED = "compaction took records on one side only"


@dataclass(slots=True)
class _MinutePair:
    """Both sides of a pair in one minute. ``loose``: compaction may have removed records of one side."""

    expected: Cell = NOTHING
    there: Cell = NOTHING
    compared: bool = False
    loose: bool = False
    waiting: int = 0
    why: str = ""

    def side(self, kind: Kind, instance: str) -> ComparedSide:
        short = self.expected.count - self.there.count
        state = compared(self.expected, self.there, compact=self.loose)
        if state is CompletenessState.UNKNOWN:
            self.why = self.why or _COMPACTED
        if state is CompletenessState.BALANCED and (self.why or self.waiting):
            state = CompletenessState.UNKNOWN if self.why else CompletenessState.OPEN
        return ComparedSide(
            kind,
            instance,
            str(state),
            self.expected.count + self.waiting,
            self.there.count if self.compared else None,
            self.waiting,
            short if state is CompletenessState.SHORT else 0,
            -short if state is CompletenessState.EXCESS else 0,
            self.why,
        )


def minute_grid_of(entries: Sequence[CountEntry]) -> MinuteGrid | None:
    """Return a topic's minutes, None if it has no entries."""
    if not entries:
        return None
    entries = of_newest(entries)
    logs = counted(entries)
    sums: dict[tuple[int, Kind, str], _MinutePair] = {}
    for (kind, instance), pairs in pairs_of(entries, logs).items():
        for one, other in pairs:
            _add(sums, kind, instance, one, other)
    sides: dict[int, list[ComparedSide]] = {}
    for (at_ms, kind, instance), each in sorted(sums.items()):
        sides.setdefault(at_ms, []).append(each.side(kind, instance))
    read: dict[int, MinuteRange] = {}
    for entry in logs:
        for at_ms in {*entry.cells, *entry.spots}:
            read[at_ms] = _plus(read.get(at_ms, MinuteRange()), entry, at_ms)
    stores = tuple(sides.pop(_NO_MINUTE, ()))
    minutes = {
        at_ms: _with_sides(read.get(at_ms, MinuteRange()), sides.get(at_ms, ()))
        for at_ms in sorted({*read, *sides})
    }
    firsts: dict[int, CountEntry] = {}
    reached: dict[int, int] = {}
    for entry in logs:
        firsts.setdefault(entry.partition, entry)
        reached[entry.partition] = max(entry.at_ms, reached.get(entry.partition, 0))
    first_minutes = [min(each.cells, default=0) for each in firsts.values() if each.first > 0]
    return MinuteGrid(
        minutes,
        max(first_minutes, default=None),
        # A partition without new records has no new entry, so the minutes after its last one are unknown.
        min(reached.values(), default=0),
        sum(end - first for _, first, end in unaudited(logs))
        + sum(each.end - each.first for each in unread(entries, logs)),
        sum(_unplaced(each) for each in logs),
        stores,
    )


def _add(
    sums: dict[tuple[int, Kind, str], _MinutePair],
    kind: Kind,
    instance: str,
    one: CountEntry,
    other: CountEntry | None,
) -> None:
    known = other is not None and not other.why
    theirs = other.cells if known and other is not None else {}
    for at_ms in {*one.cells, *theirs}:
        key = (_NO_MINUTE if kind == "view" else at_ms, kind, instance)
        each = sums.setdefault(key, _MinutePair())
        ours = one.cells.get(at_ms, Cell())
        if not known:
            each.waiting += ours.count
            each.why = each.why or (other.why if other is not None else "")
            continue
        each.compared = True
        each.loose = each.loose or one.compact or (other is not None and other.compact)
        each.expected = each.expected.plus(ours)
        each.there = each.there.plus(theirs.get(at_ms, Cell()))
    if one.dropped:
        for at_ms in one.cells:
            each = sums[at_ms, kind, instance]
            each.why = each.why or dropped_text(one.dropped)


def _plus(before: MinuteRange, entry: CountEntry, at_ms: int) -> MinuteRange:
    records = before.records + entry.cells.get(at_ms, Cell()).count
    spot = entry.spots.get(at_ms)
    if spot is None:
        return replace(before, records=records)
    return replace(
        before,
        records=records,
        markers=before.markers + spot.holes.markers,
        aborted=before.aborted + spot.holes.aborted,
        compacted=before.compacted + spot.holes.compacted,
        unexplained=before.unexplained + spot.holes.unexplained,
        repeated=before.repeated + spot.repeated,
    )


def _with_sides(counted: MinuteRange, sides: Iterable[ComparedSide]) -> MinuteRange:
    ordered = sorted(
        sides, key=lambda each: (SEVERITY[CompletenessState(each.state)], each.kind, each.instance)
    )
    return replace(counted, sides=tuple(ordered))


def _unplaced(entry: CountEntry) -> int:
    """Return the holes and repeats of an entry without ``spots``."""
    if entry.spots:
        return 0
    holes = entry.holes
    return holes.markers + holes.aborted + holes.compacted + holes.unexplained + entry.repeated
