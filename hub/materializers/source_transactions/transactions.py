"""[core] Open transactions of one connector, fed record by record: which are complete, and what is read next.

Debezium writes transactions one after the other, each as BEGIN, rows, END. So (1) in each partition the rows
of earlier transactions are before those of later ones, and (2) the BEGIN of rows in a partition is in the
transaction topic before the BEGIN of rows behind them. Records of several partitions are read in any order.

A transaction is closed when it is the first one and its END and all rows that END counts are there. What can
never be complete is closed with a reason: a begin whose end is missing while the next one began; an end whose
rows are not in the log any more; more rows than the limit. Rows whose BEGIN is not in the log are strays, as
are records that are no changes. Strays leave in the order of their partition, so that positions follow them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hub.materializers.source_transactions.changes import Boundary, RowChange
from hub.record import Positions, Record, TopicPartition

# Boundaries are small, and rows that were read earlier wait for them.
MOST_OPEN = 50_000
_MOST_CLOSED_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Stray:
    """A record that belongs to no transaction of the log, and why."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed transaction. ``boundary``: its END, or its BEGIN if the END is missing. ``id``: the id in that
    record. ``rows``: its changes, in their order. ``reason``: why it makes no event; "": it is complete.
    """

    id: str
    at_ms: int
    boundary: Record
    rows: tuple[RowChange, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Missing part of a transaction, for how long it is missing, and the time of the first record."""

    what: str
    since_s: float
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """``rows`` and ``bytes`` of one transaction, and how long its rows may be missing. ``holds_large``: a
    larger one is not closed, and holds up all later ones.
    """

    rows: int
    bytes: int
    wait_s: float
    holds_large: bool = False


@dataclass
class _Open:
    """An open transaction. ``number``: its place in the order; None: its BEGIN was not read. ``first``: its
    first offset in each partition of a table. ``too_large``: its rows are counted and not kept.
    """

    id: str
    seen_s: float
    number: int | None = None
    begin: Boundary | None = None
    end: Boundary | None = None
    rows: dict[int, RowChange] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0
    too_large: bool = False

    @property
    def boundary(self) -> Boundary | None:
        return self.end or self.begin

    @property
    def opened(self) -> Record:
        """Return its first record in the transaction topic; of unknown rows the first row."""
        boundary = self.begin or self.end
        return boundary.record if boundary is not None else next(iter(self.rows.values())).record


class Transactions:
    """Open transactions. ``source``: the partition of the transaction topic. ``tables``: name of each table
    in END, by its topic. ``places``: the partitions of these topics. Not thread safe.
    """

    def __init__(
        self,
        source: TopicPartition,
        tables: Mapping[str, str],
        places: Iterable[TopicPartition],
        limits: Limits,
    ) -> None:
        self.source, self._tables, self._limits = source, tables, limits
        self._places = frozenset(places)
        self._order: dict[str, _Open] = {}
        self._unknown: dict[str, _Open] = {}
        self._strays: dict[TopicPartition, list[Stray]] = {}
        self._furthest: dict[TopicPartition, int] = {}  # number of the latest transaction with rows there
        self._begun = 0
        self._rows = self._bytes = 0
        self._full = False

    # ---- records taken

    def take_boundary(self, boundary: Boundary, now_s: float) -> None:
        """Take a BEGIN or an END. The end of a transaction whose BEGIN is gone begins it, too."""
        found = self._order.get(boundary.id)
        if found is None:
            found = self._unknown.pop(boundary.id, None) or _Open(boundary.id, now_s)
            self._begun += 1
            found.number = self._begun
            self._order[boundary.id] = found
            for place in found.first:
                self._furthest[place] = self._begun
            if found.too_large:
                self._forget_rows(found)
        if boundary.counts is None:
            found.begin = found.begin or boundary
        elif found.end is None:
            found.end, found.seen_s = boundary, now_s

    def take_row(self, change: RowChange, now_s: float) -> None:
        """Take a change. One that Debezium has sent twice counts once."""
        found = self._order.get(change.transaction) or self._unknown.get(change.transaction)
        if found is None:
            found = self._unknown[change.transaction] = _Open(change.transaction, now_s)
        place = change.record.topic_partition
        found.first.setdefault(place, change.record.offset)
        if found.number is not None:
            self._furthest[place] = max(found.number, self._furthest.get(place, 0))
        if change.order in found.rows:
            return
        found.counts[self._tables[change.record.topic]] += 1
        if found.too_large and found.number is not None:
            return
        size = len(change.record.value or b"")
        found.rows[change.order] = change
        found.bytes += size
        self._rows, self._bytes = self._rows + 1, self._bytes + size
        if len(found.rows) > self._limits.rows or found.bytes > self._limits.bytes:
            found.too_large = True
            if found.number is not None:
                self._forget_rows(found)

    def take_stray(self, record: Record, reason: str) -> None:
        """Take a record that is nothing of a transaction."""
        self._strays.setdefault(record.topic_partition, []).append(Stray(record, reason))
        self._rows, self._bytes = self._rows + 1, self._bytes + len(record.value or b"")

    # ---- what follows

    def close(self, settled: Collection[TopicPartition], now_s: float) -> tuple[list[Closed], list[Stray]]:
        """Return the transactions that are closed now, in their order, and the strays that leave.

        ``settled``: partitions that are read up to an end that they had at ``now_s`` or later. At most about
        5,000 rows are closed at once; call it again.
        """
        closed, rows = list[Closed](), 0
        while self._order and rows < _MOST_CLOSED_ROWS:
            head = next(iter(self._order.values()))
            done = self._closed(head, settled, now_s)
            if done is None:
                break
            self._lose_before(head)
            del self._order[head.id]
            self._forget_rows(head)
            closed.append(done)
            rows += len(done.rows)
        if self.source in settled:
            for each in [*self._unknown.values()]:
                if now_s - each.seen_s >= self._limits.wait_s:
                    self._lose(each)
        return closed, self._leaving()

    def positions(self, read: Positions) -> Positions:
        """Return the positions before which nothing is open. ``read``: those of the reader."""
        held = dict(read.offsets)
        for each in self._order.values():
            self._hold(held, each.opened.topic_partition, each.opened.offset)
            break  # the others began behind it
        for each in (*self._order.values(), *self._unknown.values()):
            for place, offset in each.first.items():
                self._hold(held, place, offset)
        return Positions(held)  # strays that stay are behind an open row of their partition

    def to_read(self) -> frozenset[TopicPartition]:
        """Return the partitions to read next: all, or while much is held only those that the first
        transaction waits for.
        """
        every = self._places | {self.source}
        share = 1 if self._full else 2
        most_rows, most_bytes = self._limits.rows * share, self._limits.bytes * share
        self._full = self._rows > most_rows or self._bytes > most_bytes
        if not self._full:
            return self._places if len(self._order) > MOST_OPEN and not self._unknown else every
        if self._unknown or not self._order:
            return frozenset({self.source})
        head = next(iter(self._order.values()))
        needed = {each for each in self._places if not self._is_past(each, head)}
        return frozenset(needed if head.end is not None else needed | {self.source})

    @property
    def held_rows(self) -> int:
        """Return how many records are kept in memory, boundaries excepted."""
        return self._rows

    def is_overdue(self, now_s: float) -> bool:
        """Return whether something waits for longer than the limit: its partitions may be settled."""
        seen = [each.seen_s for each in self._unknown.values()]
        seen += [each.seen_s for each in islice(self._order.values(), 1) if each.end is not None]
        return bool(seen) and now_s - min(seen) >= self._limits.wait_s

    def waiting(self, now_s: float) -> Waiting | None:
        """Return what is waited for; None: nothing is open."""
        if self._order:
            head = next(iter(self._order.values()))
            at = head.opened
            if head.too_large and self._limits.holds_large:
                lack = f"more than the {self._limits.rows:,} rows of most_rows"
            else:
                lack = "no END" if head.end is None else self._found(head)
            what = f"transaction {head.id} ({at.topic} {at.partition}:{at.offset}) has {lack}"
            return Waiting(what, now_s - head.seen_s, at.timestamp_ms)
        if self._unknown:
            first = next(iter(self._unknown.values()))
            what = f"transaction {first.id} has rows and no BEGIN"
            return Waiting(what, now_s - first.seen_s, first.opened.timestamp_ms)
        return None

    def _closed(self, head: _Open, settled: Collection[TopicPartition], now_s: float) -> Closed | None:
        boundary = head.boundary
        assert boundary is not None
        if head.end is None:
            if len(self._order) == 1:
                return None
            reason = f"transaction {head.id} has no END, and the next one has begun: the connector lost it"
            return Closed(boundary.name, boundary.at_ms, boundary.record, reason=reason)
        lacking = self._lacking(head)
        if lacking and not self._is_lost(head, lacking, settled, now_s):
            return None
        reason = ""
        if lacking:
            reason = f"transaction {head.id} has {self._found(head)}: the others are not in the log"
        elif head.too_large and self._limits.holds_large:
            return None
        elif head.too_large:
            reason = f"transaction {head.id} is larger than most_rows or most_mb: {self._found(head)}"
        rows = () if reason else tuple(head.rows[order] for order in sorted(head.rows))
        return Closed(boundary.name, boundary.at_ms, boundary.record, rows, reason)

    def _lacking(self, head: _Open) -> set[str]:
        """Return the topics of which rows are missing."""
        counts = head.end.counts if head.end is not None and head.end.counts is not None else {}
        return {
            topic
            for topic, collection in self._tables.items()
            if head.counts[collection] < counts.get(collection, 0)
        }

    def _is_lost(
        self, head: _Open, lacking: set[str], settled: Collection[TopicPartition], now_s: float
    ) -> bool:
        late = now_s - head.seen_s >= self._limits.wait_s
        places = [each for each in self._places if each.topic in lacking]
        return all(self._is_past(each, head) or (late and each in settled) for each in places)

    def _is_past(self, place: TopicPartition, head: _Open) -> bool:
        """Return whether a later transaction has rows there: then all of the first one's are read."""
        return self._furthest.get(place, 0) > (head.number or 0)

    def _found(self, head: _Open) -> str:
        counts = head.end.counts if head.end is not None and head.end.counts is not None else {}
        parts = [
            f"{head.counts[each]} of {counts.get(each, 0)} rows of {each}" for each in self._tables.values()
        ]
        return ", ".join(parts)

    def _lose_before(self, head: _Open) -> None:
        """Make strays of unknown rows before those of a transaction: their BEGIN would have been read."""
        for each in [*self._unknown.values()]:
            if any(offset < head.first.get(place, 0) for place, offset in each.first.items()):
                self._lose(each)

    def _lose(self, each: _Open) -> None:
        del self._unknown[each.id]
        for change in each.rows.values():
            self.take_stray(
                change.record, f"the BEGIN of its transaction {each.id} is not in {self.source.topic}"
            )
        self._forget_rows(each)

    def _leaving(self) -> list[Stray]:
        """Return the strays before every open row of their partition."""
        if not self._strays:
            return []
        open_from: dict[TopicPartition, int] = {}
        for each in (*self._order.values(), *self._unknown.values()):
            for place, offset in each.first.items():
                self._hold(open_from, place, offset)
        leaving = list[Stray]()
        for place, strays in [*self._strays.items()]:
            strays.sort(key=lambda each: each.record.offset)
            end = open_from.get(place)
            leaving += [each for each in strays if end is None or each.record.offset < end]
            if kept := [each for each in strays if end is not None and each.record.offset >= end]:
                self._strays[place] = kept
            else:
                del self._strays[place]
        self._rows -= len(leaving)
        self._bytes -= sum(len(each.record.value or b"") for each in leaving)
        return leaving

    def _forget_rows(self, each: _Open) -> None:
        self._rows, self._bytes = self._rows - len(each.rows), self._bytes - each.bytes
        each.rows, each.bytes = {}, 0

    @staticmethod
    def _hold(held: dict[TopicPartition, int], place: TopicPartition, offset: int) -> None:
        held[place] = min(offset, held.get(place, offset))
