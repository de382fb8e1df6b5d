"""[shell] Bounded reads of dead-letter topics, of the actions taken, and of the original topics.

Reads are bounded by ``MOST_DEAD_LETTERS``, ``MOST_BYTES`` of retained data and ``READ_S``; an incomplete
result is marked as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from hub.errors import NotFound, PeerError
from hub.log import Log, TopicDescription
from hub.record import Positions, Record, TopicPartition
from hub.topics.dead_letters.model import (
    ACTIONS_TOPIC,
    DeadLetter,
    DeadLetterAction,
    RecordPlace,
    TrackedDeadLetter,
    with_action,
)
from hub.topics.dead_letters.record_format import dead_letter_of, folded, kind_of

MOST_DEAD_LETTERS = 100_000
MOST_BYTES = 256 << 20
MOST_BYTES_AT_ONCE = 1 << 30  # limit on the dead-letter records of one action with their values
READ_S = 30.0
POLL_RECORDS = 5_000
_MOST_SCANNED = 100_000
_SCAN_S = 5.0
_MOST_SINGLE = 20  # more records are read in one pass, not one by one
_MOST_LEDGER, _MOST_LEDGER_BYTES = 10_000_000, 16 << 30  # actions are read completely or not at all

T = TypeVar("T")
# (offset and key of each record of a partition, True if complete).
Scanned = tuple[list[tuple[int, bytes | None]], bool]


class DeadLetterReader:
    """Reads of one cluster. Thread safe: each call opens its own reader. Every method raises PeerError."""

    def __init__(self, cluster: Log) -> None:
        self.cluster = cluster

    def topics(self) -> Mapping[str, TopicDescription]:
        """Return the topics that hold dead-letter records."""
        descriptions = self.cluster.topics()
        return {name: topic for name, topic in sorted(descriptions.items()) if kind_of(name) is not None}

    def whole(self, names: Sequence[str]) -> tuple[Positions, Positions]:
        """Return the beginning and end offsets of these topics."""
        return self.cluster.beginning_offsets(names), self.cluster.end_offsets(names)

    def actions(self) -> dict[RecordPlace, DeadLetterAction]:
        """Read the actions taken on all dead-letter records. Raises PeerError if this takes longer than 60
        s.
        """
        if ACTIONS_TOPIC not in self.cluster.topics():
            return {}
        records, complete = self.read(
            *self.whole([ACTIONS_TOPIC]),
            _MOST_LEDGER,
            lambda record: record,
            60.0,
            values=True,
            most_bytes=_MOST_LEDGER_BYTES,
        )
        if not complete:
            raise PeerError(f'topic "{ACTIONS_TOPIC}" is not read to its end in 60 s', hint="try again")
        return folded(records)

    def tracked(
        self, places: Sequence[RecordPlace], actions: Mapping[RecordPlace, DeadLetterAction] | None = None
    ) -> dict[RecordPlace, TrackedDeadLetter]:
        """Return the dead-letter records at these positions. Raises NotFound naming the first missing one."""
        there = self.topics()
        for place in places:
            if place.topic not in there:
                raise NotFound(
                    f'topic "{place.topic}" has no dead-letter records',
                    hint="hub dlq ls lists the topics that have",
                )
        actions = self.actions() if actions is None else actions
        wanted = set(places)
        if len(wanted) > _MOST_SINGLE:
            records = self.between(wanted, lambda record: record, values=True)
        else:
            records = {place: each for place in wanted if (each := self.record(place)) is not None}
        dead_letters: dict[RecordPlace, TrackedDeadLetter] = {}
        for place in places:
            record = records.get(place)
            if record is None:
                raise NotFound(
                    f"dead-letter record {place} does not exist",
                    hint=f"hub dlq ls {place.topic} lists those that do",
                )
            dead_letters[place] = with_action(dead_letter_of(record), there[place.topic].topic_id, actions)
        return dead_letters

    def record(self, place: RecordPlace) -> Record | None:
        """Return the record at exactly this position, None if there is none."""
        topics = self.cluster.topics()
        if place.topic not in topics or not 0 <= place.partition < topics[place.topic].partitions:
            return None
        where = place.topic_partition
        begins, ends = self.whole([place.topic])
        if not begins.get(where) <= place.offset < ends.get(where):
            return None
        records, _ = self.read(
            Positions({where: place.offset}),
            Positions({where: place.offset + 1}),
            1,
            lambda record: record,
            _SCAN_S,
            values=True,
        )
        return next((record for record in records if record.offset == place.offset), None)

    def between(
        self, places: Collection[RecordPlace], of: Callable[[Record], T], *, values: bool = False
    ) -> dict[RecordPlace, T]:
        """Apply ``of`` to the records at these positions, in order.
        Records in between are read and skipped."""
        wanted = frozenset(places)
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for place in wanted:
            first, last = spans.get(place.topic_partition, (place.offset, place.offset))
            spans[place.topic_partition] = min(first, place.offset), max(last, place.offset)
        begins, ends = self.whole(sorted({tp.topic for tp in spans}))
        start = {tp: max(begins.get(tp), first) for tp, (first, _) in spans.items()}
        end = {tp: min(ends.get(tp), last + 1) for tp, (_, last) in spans.items()}
        some = [tp for tp in spans if start[tp] < end[tp]]
        if not some:
            return {}
        begin = Positions({tp: start[tp] for tp in some})

        def at_its_place(record: Record) -> tuple[RecordPlace, T] | None:
            place = RecordPlace(record.topic, record.partition, record.offset)
            return (place, of(record)) if place in wanted else None

        found, complete = self.read(
            begin,
            Positions({tp: end[tp] for tp in some}),
            MOST_DEAD_LETTERS,
            at_its_place,
            values=values,
            most_bytes=MOST_BYTES_AT_ONCE,
        )
        if not complete:
            raise PeerError(
                f"the dead-letter records from {begin} on are not all read: more than {MOST_DEAD_LETTERS} "
                f"lie between the first and the last that are named, or these have more than "
                f"{MOST_BYTES_AT_ONCE >> 20} MB, or it takes longer than {READ_S:.0f} s",
                hint="name fewer that are nearer to each other, of one partition: -p N",
            )
        return dict(found)

    def keys_behind(self, letters: Sequence[DeadLetter]) -> list[Scanned]:
        """Return, for each dead-letter record, the offsets and keys behind its original event, or behind an
        earlier one of that partition. Scans each partition once; those that do not fit into ``READ_S`` are
        skipped.
        """
        by_partition: dict[TopicPartition, list[int]] = {}
        for letter in letters:
            if letter.first is not None:
                by_partition.setdefault(letter.first.topic_partition, []).append(letter.first.offset)
        begins, ends = self.whole(sorted(self.cluster.topics().keys() & {tp.topic for tp in by_partition}))
        scanned: dict[TopicPartition, Scanned] = {}
        deadline = time.monotonic() + READ_S
        for tp, offsets in by_partition.items():
            begin, end = max(min(offsets) + 1, begins.get(tp)), ends.get(tp)
            if begin >= end:
                scanned[tp] = [], True
            elif time.monotonic() < deadline:
                scanned[tp] = self.read(
                    Positions({tp: begin}),
                    Positions({tp: end}),
                    _MOST_SCANNED,
                    lambda record: (record.offset, record.key),
                    _SCAN_S,
                )
        return [
            ([], True) if each.first is None else scanned.get(each.first.topic_partition, ([], False))
            for each in letters
        ]

    def read(
        self,
        start: Positions,
        end: Positions,
        most: int,
        of: Callable[[Record], T | None],
        timeout_s: float | None = None,
        *,
        values: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[list[T], bool]:
        """Apply ``of`` to the records from ``start`` to ``end``; return (results sorted by position, True if
        complete).

        None results are dropped. With ``values``, the results retain the values, so value sizes count toward
        ``most_bytes`` (default ``MOST_BYTES``). ``timeout_s``: default ``READ_S``.
        """
        if not len(end):
            return [], True
        reader = self.cluster.reader()
        found: list[tuple[RecordPlace, T]] = []
        records = held = 0
        deadline = time.monotonic() + (READ_S if timeout_s is None else timeout_s)
        try:
            reader.assign(Positions({tp: start.get(tp) for tp, _ in end}))
            while not reader.position().covers(end):
                if records >= most or held >= (most_bytes or MOST_BYTES) or time.monotonic() > deadline:
                    break
                for record in reader.poll(min(POLL_RECORDS, most - records), 0.2):
                    records += 1
                    if record.offset < end.get(record.topic_partition) and (made := of(record)) is not None:
                        found.append((RecordPlace(record.topic, record.partition, record.offset), made))
                        held += _size(record, values)
            complete = reader.position().covers(end)
        finally:
            reader.close()
        return [made for _, made in sorted(found, key=lambda each: each[0])], complete


def _size(record: Record, with_value: bool) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + headers + (len(record.value or b"") if with_value else 0)
