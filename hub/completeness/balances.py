"""[core] Compare completeness counts cell by cell: source with found, log with mirror, view with store.

==========  ===========================================================================================
SHORT       records are missing: acknowledged and not in the log, or in the log and not in the copy
MISMATCH    equal counts of different records: one is missing and another is duplicated
EXCESS      the copy has more records than the log
UNEXPLAINED offsets without a record in a log without compaction and transactions at that place
UNKNOWN     not comparable, the cause gives the reason; compaction removed records on one side only
OPEN        not compared yet: too young, not run, or not mirrored so far
BALANCED    the same records on both sides
==========  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hub.completeness.counts import Cell, Cells, CountEntry, Holes, Kind, Tier
from hub.record import TopicPartition


class CompletenessState(StrEnum):
    """Completeness states of the table above, worst first."""

    SHORT = "SHORT"
    MISMATCH = "MISMATCH"
    EXCESS = "EXCESS"
    UNEXPLAINED = "UNEXPLAINED"
    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    BALANCED = "BALANCED"


SEVERITY = {state: rank for rank, state in enumerate(CompletenessState)}


# An entry, and the entry of the other side over the same offsets; None if that is not counted yet.
CountPair = tuple[CountEntry, CountEntry | None]


@dataclass(frozen=True, slots=True)
class CountDifference:
    """Difference in one minute: ``expected`` and ``actual`` number of records."""

    bucket_ms: int
    state: CompletenessState
    expected: int
    actual: int

    @property
    def short(self) -> int:
        return max(0, self.expected - self.actual)

    @property
    def excess(self) -> int:
        return max(0, self.actual - self.expected)


def compared(expected: Cell, actual: Cell, *, compact: bool = False) -> CompletenessState:
    """Compare the same cell of two sides. ``compact``: compaction may have removed records on one side."""
    if (expected.count, expected.sum) == (actual.count, actual.sum):
        return CompletenessState.BALANCED
    if compact:
        return CompletenessState.UNKNOWN
    if expected.count == actual.count:
        return CompletenessState.MISMATCH
    return CompletenessState.SHORT if expected.count > actual.count else CompletenessState.EXCESS


def differences(expected: Cells, actual: Cells, *, compact: bool = False) -> list[CountDifference]:
    """Return the minutes in which the two sides differ. ``compact``: compaction may have removed records on
    one side.
    """
    found = []
    for bucket in sorted({*expected, *actual}):
        one, other = expected.get(bucket, Cell()), actual.get(bucket, Cell())
        state = compared(one, other, compact=compact)
        if state is CompletenessState.BALANCED:
            continue
        found.append(CountDifference(bucket, state, one.count, other.count))
    return found


@dataclass(frozen=True, slots=True)
class Balance:
    """Comparison of one producer or mirror of a topic with the log, or of a store with a view's changelog.
    ``waiting`` counts records that are not compared yet.
    """

    kind: Kind
    instance: str
    state: CompletenessState
    cause: str
    records: int
    compared: int
    waiting: int
    missing: int
    excess: int
    dropped: int
    differences: tuple[CountDifference, ...]


@dataclass(frozen=True, slots=True)
class TopicCompleteness:
    """Completeness of a topic: its audited log, and the comparisons with it. ``unread`` lists why parts could
    not be read.
    """

    topic: str
    state: CompletenessState
    cause: str
    records: int
    size: int
    offsets: int
    holes: Holes
    repeated: int
    unaudited: tuple[tuple[int, int, int], ...]
    audited_at_ms: int | None
    balances: tuple[Balance, ...]
    buckets: Mapping[int, Cell]
    unread: tuple[str, ...] = ()


def audit_of(topic: str, entries: Sequence[CountEntry], mirrors: Iterable[str] = ()) -> TopicCompleteness:
    """Summarize a topic's entries. ``mirrors`` names the mirrors that should carry it."""
    entries = of_newest(entries)
    logs = counted(entries)
    stuck = unread(entries, logs)
    holes, buckets = Holes(), Cells()
    for entry in logs:
        holes = holes.plus(entry.holes)
        buckets.merge(entry.cells)
    compared_with = pairs_of(entries, logs, mirrors)
    kinds: tuple[Kind, ...] = ("source", "mirror", "view")
    ordered = sorted(compared_with, key=lambda each: (kinds.index(each[0]), each[1]))
    balances = [_balance(*each, compared_with[each]) for each in ordered]
    state, cause = _worst(balances, holes, logs, stuck)
    total = buckets.total
    return TopicCompleteness(
        topic,
        state,
        cause,
        total.count,
        total.size,
        sum(entry.end - entry.first for entry in logs),
        holes,
        sum(entry.repeated for entry in logs),
        (*unaudited(logs), *((each.partition, each.first, each.end) for each in stuck)),
        max((entry.at_ms for entry in logs), default=None),
        tuple(balances),
        dict(sorted(buckets.items())),
        tuple(each.why for each in stuck),
    )


def of_newest(entries: Sequence[CountEntry]) -> list[CountEntry]:
    """Return a topic's entries for its newest topic id, and entries without a topic id. When a topic is
    recreated, the old log is gone in every partition, including partitions that were not audited since or no
    longer exist.
    """
    identified = [each for each in entries if each.topic_id]
    newest = max(identified, key=lambda each: each.at_ms).topic_id if identified else ""
    return [each for each in entries if each.topic_id in ("", newest)]


def alone(entries: Iterable[CountEntry]) -> list[CountEntry]:
    """Return the entries without those that overlap an earlier one."""
    count_entries: list[CountEntry] = []
    reached: dict[TopicPartition, int] = {}
    for entry in sorted(entries, key=lambda each: (each.place, each.first)):
        if entry.first >= reached.get(entry.place, -1):
            count_entries.append(entry)
            reached[entry.place] = entry.end
    return count_entries


def counted(entries: Iterable[CountEntry]) -> list[CountEntry]:
    """Return the counted offset ranges of the log, without overlaps."""
    return alone(each for each in entries if each.tier == "log" and not each.why)


def unread(entries: Iterable[CountEntry], logs: Sequence[CountEntry]) -> list[CountEntry]:
    """Return the ranges that could not be read and have no counted range (``logs``) behind them. Ranges that
    were deleted or read later are left out.
    """
    reached: dict[TopicPartition, int] = {}
    for entry in logs:
        reached[entry.place] = max(entry.end, reached.get(entry.place, 0))
    those = (each for each in entries if each.tier == "log" and each.why)
    return alone(each for each in those if each.first >= reached.get(each.place, 0))


def unaudited(logs: Sequence[CountEntry]) -> Iterator[tuple[int, int, int]]:
    """Yield (partition, first, end) of the gaps between audited ranges."""
    reached: dict[int, int] = {}
    for entry in sorted(logs, key=lambda each: (each.partition, each.first)):
        before = reached.get(entry.partition)
        if before is not None and entry.first > before:
            yield entry.partition, before, entry.first
        reached[entry.partition] = entry.end


def pairs_of(
    entries: Sequence[CountEntry], logs: Sequence[CountEntry], mirrors: Iterable[str] = ()
) -> dict[tuple[Kind, str], list[CountPair]]:
    """Return the pairs to compare, by kind and instance. ``logs`` are the counted ranges of the log, and
    ``mirrors`` names the mirrors that should carry the topic.
    """
    twins = {(each.tier, each.instance, *each.place, each.first, each.end): each for each in entries}
    pairs: dict[tuple[Kind, str], list[CountPair]] = {}
    for entry in entries:
        if entry.tier == "source" or entry.tier == "view":
            twin: Tier = "found" if entry.tier == "source" else "store"
            other = twins.get((twin, entry.instance, *entry.place, entry.first, entry.end))
            pairs.setdefault((entry.tier, entry.instance), []).append((entry, other))
    copies = {
        (each.instance, each.place, each.first, each.end, each.topic_id): each
        for each in entries
        if each.tier == "mirror"
    }
    for name in {*mirrors, *(instance for instance, *_ in copies)}:
        pairs["mirror", name] = [
            (each, copies.get((name, each.place, each.first, each.end, each.topic_id))) for each in logs
        ]
    return pairs


def _balance(kind: Kind, instance: str, pairs: Sequence[CountPair]) -> Balance:
    expected, actual = Cells(), Cells()
    loose = Cells()  # offset ranges from which compaction removes records
    taken = Cells()
    waiting, why, dropped, counted = 0, "", 0, 0
    for one, other in pairs:
        records = one.cells.total.count
        counted += records
        dropped += one.dropped
        if other is None or other.why:
            waiting += records
            why = other.why if other is not None else why
            continue
        sides = (loose, taken) if one.compact or other.compact else (expected, actual)
        for side, entry in zip(sides, (one, other), strict=True):
            side.merge(entry.cells)
    different = [*differences(expected, actual), *differences(loose, taken, compact=True)]
    missing = sum(each.short for each in different if each.state is CompletenessState.SHORT)
    excess = sum(each.excess for each in different if each.state is CompletenessState.EXCESS)
    state = min(
        (each.state for each in different), key=SEVERITY.__getitem__, default=CompletenessState.BALANCED
    )
    if state is CompletenessState.BALANCED:
        if why or dropped:
            state = CompletenessState.UNKNOWN
        elif waiting:
            state = CompletenessState.OPEN
    cause = _balance_text(kind, state, different, missing, excess, waiting, why, dropped)
    compared = expected.total.count + loose.total.count
    return Balance(
        kind, instance, state, cause, counted, compared, waiting, missing, excess, dropped, tuple(different)
    )


def _balance_text(
    kind: Kind,
    state: CompletenessState,
    different: Sequence[CountDifference],
    missing: int,
    excess: int,
    waiting: int,
    why: str,
    dropped: int,
) -> str:
    there = {"source": "in the log", "mirror": "at the target", "view": "in the store"}[kind]
    counted = {"source": "acknowledged records", "mirror": "records", "view": "rows"}[kind]
    minutes = (
        "at one moment" if kind == "view" else f"in {len(different)} minute{'s' * (len(different) != 1)}"
    )
    causes = {
        CompletenessState.SHORT: f"{missing:,} {counted} are not {there}, {minutes}",
        CompletenessState.MISMATCH: f"as many, but not the same records are {there}, {minutes}",
        CompletenessState.EXCESS: f"{excess:,} more than expected are {there}, {minutes}",
        CompletenessState.OPEN: f"{waiting:,} records are not compared yet",
        CompletenessState.BALANCED: f"the same {counted} are {there}",
    }
    if state is not CompletenessState.UNKNOWN:
        return causes[state]
    if different:
        return f"compaction took records on one side only, {minutes}"
    return why or dropped_text(dropped)


def dropped_text(receipts: int) -> str:
    return f"{receipts:,} receipts were dropped: the buffer was full"


def _worst(
    balances: Sequence[Balance], holes: Holes, logs: Sequence[CountEntry], stuck: Sequence[CountEntry]
) -> tuple[CompletenessState, str]:
    worst = min(balances, key=lambda each: SEVERITY[each.state], default=None)
    if worst is not None and SEVERITY[worst.state] < SEVERITY[CompletenessState.UNEXPLAINED]:
        return worst.state, f"{worst.kind} {worst.instance}: {worst.cause}"
    if holes.unexplained:
        return (
            CompletenessState.UNEXPLAINED,
            f"{holes.unexplained:,} offsets contain no record for an unknown reason",
        )
    if stuck:
        return CompletenessState.UNKNOWN, f"partition {stuck[0].partition} is not read on: {stuck[0].why}"
    if worst is not None and worst.state is not CompletenessState.BALANCED:
        return worst.state, f"{worst.kind} {worst.instance}: {worst.cause}"
    if not logs:
        return CompletenessState.OPEN, "no record is counted yet: hub completeness run"
    if worst is None:
        return (
            CompletenessState.UNKNOWN,
            "nothing to compare with: no producer sends receipts, and no mirror carries it",
        )
    return CompletenessState.BALANCED, "every tier has the same records"
