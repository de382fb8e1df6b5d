"""[core] Completeness counts: number and identity of the records of each tier, by partition, offset range and
minute.

A tier is *source* (the receipts of a producer), *found* (the log at the offsets of those receipts), *log* (an
offset range of the log), *mirror* (the mirror target's copy of that range, at the source's offsets), *view*
(the fold of a view's changelog) or *store* (the rows of a store for it). Rows of a store have no minute; they
are one cell. ``balances.py`` compares the tiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
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

    def merge(self, other: Mapping[int, Cell]) -> None:
        for bucket, cell in other.items():
            self[bucket] = self.get(bucket, Cell()).plus(cell)

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
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: no entry '
            f"of the ledger ({error})",
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


def named(entry: CountEntry, tier: Tier, cells: Cells, at_ms: int, **more: Any) -> CountEntry:
    """Build the other side of an entry, over the same offsets."""
    return replace(entry, tier=tier, cells=cells, at_ms=at_ms, runs=(), dropped=0, spots={}, **more)
