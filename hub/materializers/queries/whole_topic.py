"""[core] The whole past of a topic as one table: its archive up to a position, the log from there.

The parts are ranges of offsets of each partition: ``archived_to`` is where the log takes over, and
``missing`` are ranges that neither part has, because retention removed them before they were in the archive.
An answer names them. A row's place in the table is its partition and offset, so rows are in the order of the
log, and a record that came twice would be one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from hub.record import Positions, Record, TopicPartition

Span = tuple[int, int]
"""Offsets from the first, inclusive, to the second, exclusive."""

_OFFSET_BITS = 48


class ArchivedRecord(NamedTuple):
    """A record of an archive. ``decoded``: ``value`` is the event, with the names and defaults of the newest
    schema; else the record has the bytes. ``schema_id``: of its writer.
    """

    record: Record
    value: Any
    decoded: bool
    schema_id: int | None


@dataclass(frozen=True, slots=True)
class WholeRead:
    """Bounds of a read of a whole topic. ``since_ms``, ``until_ms``: only records with a timestamp from, and
    up to, these times. ``before``: only offsets before these positions; partitions without one are not read.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    before: Positions | None = None

    def admits(self, timestamp_ms: int | None) -> bool:
        """Return whether a record of this time is read. One without a time is, unless a time is asked."""
        if timestamp_ms is None:
            return self.since_ms is None and self.until_ms is None
        if self.since_ms is not None and timestamp_ms < self.since_ms:
            return False
        return self.until_ms is None or timestamp_ms <= self.until_ms


class ArchivedTopic(Protocol):
    """The archive of one topic as of one moment. ``positions``: next offset by partition. ``missing``: ranges
    by partition that it never had; None: unknown. ``dead_letters``: number of records that are dead-letter
    records instead.
    """

    @property
    def positions(self) -> Mapping[int, int]: ...

    @property
    def missing(self) -> Mapping[int, Sequence[Span]] | None: ...

    @property
    def dead_letters(self) -> int: ...

    def read(
        self, kinds: Mapping[str, str], names: Collection[str] | None, request: WholeRead
    ) -> Iterator[Sequence[ArchivedRecord]]:
        """Yield the records that may be asked, some at a time. ``kinds``: of the table's columns; ``names``:
        the columns that are needed; None: all. Raises PeerError.
        """


class TopicArchive(Protocol):
    """Archives of topics."""

    def open(self, topic: str, topic_id: str) -> ArchivedTopic | None:
        """Return the archive of a topic as of now; None for a topic without one. Raises PeerError, Conflict
        for the archive of a former topic of that name."""


@dataclass(frozen=True, slots=True)
class WholeSpan:
    """Ranges of one partition. ``missing`` None: the archive does not know its gaps."""

    archived_to: int
    log_from: int
    end: int
    missing: tuple[Span, ...] | None


def spans_of(
    topic: str, begins: Positions, ends: Positions, archive: ArchivedTopic | None, before: Positions | None
) -> dict[TopicPartition, WholeSpan]:
    """Return the ranges of each partition of a topic: what is archived, what the log has, what is missing."""
    found = {}
    for place, log_end in ends:
        end = log_end if before is None else min(log_end, before.get(place))
        archived_to = 0 if archive is None else archive.positions.get(place.partition, 0)
        log_from = max(archived_to, begins.get(place))
        known = () if archive is None else archive.missing
        missing = None
        if known is not None:
            of_archive = () if archive is None else (archive.missing or {}).get(place.partition, ())
            spans = [*of_archive, (archived_to, log_from)]
            missing = tuple((first, min(last, end)) for first, last in spans if first < min(last, end))
        found[place] = WholeSpan(min(archived_to, end), min(log_from, end), end, missing)
    return found


def place_of(record: Record) -> int:
    """Return the number of a record's row: rows are in the order of partition and offset.

    >>> place_of(Record("t", 0, 7, 0, None, None)) < place_of(Record("t", 1, 0, 0, None, None))
    True
    """
    return record.partition << _OFFSET_BITS | record.offset
