"""[core] Completeness counts: number and identity of the records of each tier, by partition, offset range and
minute.

A tier is *source* (the receipts of a producer), *found* (the log at the offsets of those receipts), *log* (an
offset range of the log), *mirror* (the mirror target's copy of that range, at the source's offsets), *view*
(the fold of a view's changelog) or *store* (the rows of a store for it). Pairs are compared cell by cell:
source with found, log with mirror, view with store. Rows of a store have no minute; they are one cell.

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
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from hub.errors import HubFault
from hub.record import NewRecord, Record, TopicPartition

COUNTS_TOPIC = "_hub.ledger"
COUNTS_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 86_400_000)}
EVENT_ID_HEADER = "hub-event-id"
BUCKET_MS = 60_000
# Size limit of an entry; larger ones are split.
MOST_CELLS, MOST_RUNS = 1_500, 5_000
_SUMS = 1 << 64

Tier = Literal["source", "found", "log", "mirror", "view", "store"]
Kind = Literal["source", "mirror", "view"]


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


def id_of(key: bytes | None, timestamp_ms: int, value: bytes | None, event_id: bytes | None = None) -> int:
    """Return the 64-bit id of a record: a hash of its event id (header ``hub-event-id``), else of key,
    timestamp and value.
    """
    if event_id is not None:
        return int.from_bytes(blake2b(event_id, digest_size=8, person=b"hub event id").digest())
    found = blake2b(b"%d" % timestamp_ms, digest_size=8, person=b"hub record")
    for part in (key, value):
        found.update(b"|-" if part is None else b"|%d|" % len(part))
        found.update(part or b"")
    return int.from_bytes(found.digest())


class Cell(NamedTuple):
    """Number of records, the sum of their ids modulo 2^64, and the bytes of their keys and values."""

    count: int = 0  # type: ignore[assignment]  # number of records; tuple.count() is not used here
    sum: int = 0
    size: int = 0

    def plus(self, other: Cell) -> Cell:
        return Cell(self.count + other.count, (self.sum + other.sum) % _SUMS, self.size + other.size)


def bucket_of(timestamp_ms: int) -> int:
    """Return the start of the minute (epoch ms). Records without a timestamp belong to minute 0."""
    return max(0, timestamp_ms) // BUCKET_MS * BUCKET_MS


class Cells(dict[int, Cell]):
    """Cells by the start of their minute."""

    def add(self, timestamp_ms: int, record_id: int, size: int) -> None:
        bucket = bucket_of(timestamp_ms)
        self[bucket] = self.get(bucket, Cell()).plus(Cell(1, record_id, size))

    @property
    def total(self) -> Cell:
        found = Cell()
        for each in self.values():
            found = found.plus(each)
        return found


@dataclass(frozen=True, slots=True)
class Holes:
    """Number of offsets without a readable record: transaction ``markers``, ``aborted`` records,
    ``compacted`` records, and ``unexplained`` gaps.
    """

    markers: int = 0
    aborted: int = 0
    compacted: int = 0
    unexplained: int = 0

    def plus(self, other: Holes) -> Holes:
        return Holes(
            self.markers + other.markers,
            self.aborted + other.aborted,
            self.compacted + other.compacted,
            self.unexplained + other.unexplained,
        )


class MinuteHoles(NamedTuple):
    """Holes and repeated ids in one minute of an offset range."""

    holes: Holes = Holes()
    repeated: int = 0

    def plus(self, other: MinuteHoles) -> MinuteHoles:
        return MinuteHoles(self.holes.plus(other.holes), self.repeated + other.repeated)


@dataclass(frozen=True, slots=True)
class CountEntry:
    """Counts of one tier for the source offsets [first, end). ``instance`` is the producer or the mirror, ""
    for the log.

    ``runs`` holds the offsets of receipts as (first, count); source only. ``why`` is the reason if counting
    failed; such an entry covers nothing. ``repeated`` counts ids seen more than once in the range.
    ``dropped`` counts receipts dropped for lack of space. ``spots`` holds holes and repeats by minute; a hole
    belongs to the minute of its batch or of the record before it. Entries of older versions have no
    ``spots``.
    """

    tier: Tier
    instance: str
    topic: str
    partition: int
    first: int
    end: int
    at_ms: int
    cells: Cells = field(default_factory=Cells)
    topic_id: str = ""
    holes: Holes = Holes()
    repeated: int = 0
    dropped: int = 0
    compact: bool = False
    runs: tuple[tuple[int, int], ...] = ()
    why: str = ""
    spots: Mapping[int, MinuteHoles] = field(default_factory=dict)

    @property
    def key(self) -> bytes:
        return f"{self.tier}|{self.instance}|{self.topic}|{self.partition}|{self.first}".encode()

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def record(self) -> NewRecord:
        body: dict[str, Any] = {
            "v": 1,
            "end": self.end,
            "at_ms": self.at_ms,
            "topic_id": self.topic_id,
            "cells": [
                [bucket, cell.count, f"{cell.sum:016x}", cell.size]
                for bucket, cell in sorted(self.cells.items())
            ],
            "holes": [self.holes.markers, self.holes.aborted, self.holes.compacted, self.holes.unexplained],
            "repeated": self.repeated,
            "dropped": self.dropped,
            "compact": self.compact,
            "why": self.why,
        }
        if self.runs:
            body["runs"] = [list(each) for each in self.runs]
        if self.spots:
            body["spots"] = [
                [bucket, *astuple(spot.holes), spot.repeated] for bucket, spot in sorted(self.spots.items())
            ]
        return NewRecord(COUNTS_TOPIC, self.key, orjson.dumps(body))


def entry_of(record: Record) -> CountEntry:
    """Parse a record of ``_hub.ledger``. Raises HubFault naming the record."""
    try:
        tier, instance, topic, partition, first = (record.key or b"").decode().split("|")
        body = orjson.loads(record.value or b"")
        if tier not in ("source", "found", "log", "mirror", "view", "store") or body["v"] != 1:
            raise ValueError("of another version")
        return CountEntry(
            tier,  # type: ignore[arg-type]
            instance,
            topic,
            int(partition),
            int(first),
            int(body["end"]),
            int(body["at_ms"]),
            Cells(
                {bucket: Cell(count, int(total, 16), size) for bucket, count, total, size in body["cells"]}
            ),
            body["topic_id"],
            Holes(*body["holes"]),
            body["repeated"],
            body["dropped"],
            body["compact"],
            tuple((int(start), int(count)) for start, count in body.get("runs", ())),
            body["why"],
            {at: MinuteHoles(Holes(*holes), repeated) for at, *holes, repeated in body.get("spots", ())},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HubFault(
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: no entry of the ledger ({error})',
            hint=f"delete the topic {COUNTS_TOPIC}: topics are audited again; receipts so far are gone then",
        ) from None


def runs_of(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Compress ascending offsets to (first, count).

    >>> runs_of([3, 4, 5, 9])
    ((3, 3), (9, 1))
    """
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][0] + found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((offset, 1))
    return tuple(found)


@dataclass
class Counts:
    """Newest entry of each key, bounded: above ``most`` cells the oldest entries are dropped and counted in
    ``forgotten``.
    """

    most: int = 300_000
    entries: dict[bytes, CountEntry] = field(default_factory=dict)
    by_topic: dict[str, dict[bytes, CountEntry]] = field(default_factory=dict)
    cells: int = 0
    forgotten: int = 0

    def apply(self, record: Record) -> None:
        """Apply a record of the topic; a tombstone deletes. Raises HubFault."""
        key = record.key or b""
        self._forget(key)
        if record.value is None:
            return
        entry = entry_of(record)
        if entry.tier == "source":
            # A new receipt at the same offsets means that the topic was recreated, so the *found* entry of
            # the old receipt is obsolete.
            self._forget(entry.key.replace(b"source", b"found", 1))
        self.entries[key] = entry
        self.by_topic.setdefault(entry.topic, {})[key] = entry
        self.cells += _weight(entry)
        while self.cells > self.most and len(self.entries) > 1:
            self._forget(next(iter(self.entries)))
            self.forgotten += 1

    def _forget(self, key: bytes) -> None:
        entry = self.entries.pop(key, None)
        if entry is None:
            return
        self.cells -= _weight(entry)
        those = self.by_topic[entry.topic]
        del those[key]
        if not those:
            del self.by_topic[entry.topic]

    def topics(self) -> list[str]:
        return sorted(self.by_topic)

    def of(self, topic: str) -> list[CountEntry]:
        """Return a topic's entries, sorted by tier, instance, partition and offset."""
        return sorted(
            self.by_topic.get(topic, {}).values(),
            key=lambda each: (each.tier, each.instance, each.partition, each.first),
        )


def _weight(entry: CountEntry) -> int:
    return len(entry.cells) + len(entry.runs) + len(entry.spots) + 1


def covered(entries: Iterable[CountEntry], place: TopicPartition, topic_id: str) -> list[tuple[int, int]]:
    """Return the audited offset ranges of a partition, merged."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(
        (each.first, each.end)
        for each in entries
        if each.tier == "log" and not each.why and each.place == place and each.topic_id == topic_id
    ):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


# ---- comparison


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


def differences(expected: Cells, actual: Cells, *, compact: bool = False) -> list[CountDifference]:
    """Return the minutes in which the two sides differ. ``compact``: compaction may have removed records on
    one side.
    """
    found = []
    for bucket in sorted({*expected, *actual}):
        one, other = expected.get(bucket, Cell()), actual.get(bucket, Cell())
        if (one.count, one.sum) == (other.count, other.sum):
            continue
        if compact:
            state = CompletenessState.UNKNOWN
        elif one.count > other.count:
            state = CompletenessState.SHORT
        else:
            state = CompletenessState.EXCESS if one.count < other.count else CompletenessState.MISMATCH
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
        for bucket, cell in entry.cells.items():
            buckets[bucket] = buckets.get(bucket, Cell()).plus(cell)
    balances = [
        *_paired_balances("source", "found", entries),
        *_mirrors(entries, logs, mirrors),
        *_paired_balances("view", "store", entries),
    ]
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
    told = [each for each in entries if each.topic_id]
    newest = max(told, key=lambda each: each.at_ms).topic_id if told else ""
    return [each for each in entries if each.topic_id in ("", newest)]


def alone(entries: Iterable[CountEntry]) -> list[CountEntry]:
    """Return the entries without those that overlap an earlier one."""
    found: list[CountEntry] = []
    reached: dict[TopicPartition, int] = {}
    for entry in sorted(entries, key=lambda each: (each.place, each.first)):
        if entry.first >= reached.get(entry.place, -1):
            found.append(entry)
            reached[entry.place] = entry.end
    return found


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


def _paired_balances(
    kind: Literal["source", "view"], twin: Tier, entries: Sequence[CountEntry]
) -> Iterator[Balance]:
    others = {
        (each.instance, *each.place, each.first, each.end): each for each in entries if each.tier == twin
    }
    by_instance: dict[str, list[CountEntry]] = {}
    for entry in entries:
        if entry.tier == kind:
            by_instance.setdefault(entry.instance, []).append(entry)
    for instance, those in sorted(by_instance.items()):
        pairs = [(each, others.get((instance, *each.place, each.first, each.end))) for each in those]
        yield _balance(kind, instance, pairs)


def _mirrors(
    entries: Sequence[CountEntry], logs: Sequence[CountEntry], wanted: Iterable[str]
) -> Iterator[Balance]:
    copies = {
        (entry.instance, entry.place, entry.first, entry.end, entry.topic_id): entry
        for entry in entries
        if entry.tier == "mirror"
    }
    names = sorted({*wanted, *(instance for instance, *_ in copies)})
    for name in names:
        pairs = [(each, copies.get((name, each.place, each.first, each.end, each.topic_id))) for each in logs]
        yield _balance("mirror", name, pairs)


def _balance(kind: Kind, instance: str, pairs: Sequence[tuple[CountEntry, CountEntry | None]]) -> Balance:
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
            for bucket, cell in entry.cells.items():
                side[bucket] = side.get(bucket, Cell()).plus(cell)
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
    what = {"source": "acknowledged records", "mirror": "records", "view": "rows"}[kind]
    minutes = (
        "at one moment" if kind == "view" else f"in {len(different)} minute{'s' * (len(different) != 1)}"
    )
    said = {
        CompletenessState.SHORT: f"{missing:,} {what} are not {there}, {minutes}",
        CompletenessState.MISMATCH: f"as many, but not the same records are {there}, {minutes}",
        CompletenessState.EXCESS: f"{excess:,} more than expected are {there}, {minutes}",
        CompletenessState.OPEN: f"{waiting:,} records are not compared yet",
        CompletenessState.BALANCED: f"the same {what} are {there}",
    }
    if state is not CompletenessState.UNKNOWN:
        return said[state]
    if different:
        return f"compaction took records on one side only, {minutes}"
    return why or f"{dropped:,} receipts were dropped: there was no room for them"


def _worst(
    balances: Sequence[Balance], holes: Holes, logs: Sequence[CountEntry], stuck: Sequence[CountEntry]
) -> tuple[CompletenessState, str]:
    worst = min(balances, key=lambda each: SEVERITY[each.state], default=None)
    if worst is not None and SEVERITY[worst.state] < SEVERITY[CompletenessState.UNEXPLAINED]:
        return worst.state, f"{worst.kind} {worst.instance}: {worst.cause}"
    if holes.unexplained:
        return (
            CompletenessState.UNEXPLAINED,
            f"{holes.unexplained:,} offsets hold nothing, and nothing says why",
        )
    if stuck:
        return CompletenessState.UNKNOWN, f"partition {stuck[0].partition} is not read on: {stuck[0].why}"
    if worst is not None and worst.state is not CompletenessState.BALANCED:
        return worst.state, f"{worst.kind} {worst.instance}: {worst.cause}"
    if not logs:
        return CompletenessState.OPEN, "never audited: hub completeness run"
    if worst is None:
        return (
            CompletenessState.UNKNOWN,
            "nobody to compare with: no producer keeps receipts, and no mirror carries it",
        )
    return CompletenessState.BALANCED, "every tier has the same records"


def named(entry: CountEntry, tier: Tier, cells: Cells, at_ms: int, **more: Any) -> CountEntry:
    """Build the other side of an entry, over the same offsets."""
    return replace(entry, tier=tier, cells=cells, at_ms=at_ms, runs=(), dropped=0, spots={}, **more)
