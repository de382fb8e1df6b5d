"""[shell] Places in the log that divide no source transaction, found by reading ahead of a view.

A *cut* is a position of each partition: every row before it is of a complete transaction, and every row of
these transactions is before it. ``transactions.py`` decides; this module reads the topics of the tables and
the transaction topic, and keeps the newest cut.

The newest cut that a view was allowed to read to is in a file of its checkpoint, with the position of the
transaction topic that belongs to it. It is written before the view may read there, so the view is never past
it. A restart begins there; without the file it begins at the start of the log.

Rows that are of no transaction do not hold a cut back: rows of a snapshot, rows whose BEGIN retention has
deleted, records that cannot be read.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import orjson

from hub.errors import CallerError, ConfigError, PeerError
from hub.log import Reader
from hub.materializers.source_transactions.changes import NotOfDebezium, SnapshotRow, boundary_of, change_of
from hub.materializers.source_transactions.decoding import ValueDecoder
from hub.materializers.source_transactions.transactions import Limits, Transactions
from hub.record import Positions, Record, TopicPartition, lag_records
from hub.times import iso

log = logging.getLogger(__name__)

NOTE = "hub_transactions.json"
_PAGE, _QUEUE_KB, _ENDS_S = 2_000, 16_384, 1.0
# A transaction that is open for less is on its way.
_WAITING_S = 5.0


class FollowedLog(Protocol):
    """The part of a log that is needed here."""

    def beginning_offsets(self, topics: Sequence[str]) -> Positions: ...

    def end_offsets(self, topics: Sequence[str]) -> Positions: ...

    def follower(self, *, queue_kb: int | None = None) -> Reader: ...


@dataclass(frozen=True, slots=True)
class CutRules:
    """``source``: the transaction topic. ``tables``: the name of each table in END, by its topic. ``rows``:
    the most rows of a transaction; a larger one is held back, or with ``splits`` let through in parts.
    ``wait_s``: how long rows may be missing. ``ahead``: most events to read ahead.
    """

    view: str
    source: str
    tables: Mapping[str, str]
    rows: int
    wait_s: float
    splits: bool
    ahead: int


@dataclass
class TransactionCuts:
    """Cuts of one view's topics. Used by one thread; opens its reader when it is asked first."""

    log: FollowedLog
    decoder: ValueDecoder
    folder: Path
    rules: CutRules
    _reader: Reader | None = None
    _at: Positions = field(default_factory=Positions)
    _cut: Positions = field(default_factory=Positions)
    _reading: frozenset[TopicPartition] = frozenset()
    _asked_s: float = 0.0
    _warned: bool = False
    _transactions: Transactions = field(init=False)

    # ---- places

    @property
    def at_once(self) -> int:
        """Return the most events from one place to the next."""
        return max(self.rules.ahead, self.rules.rows) if self.rules.splits else sys.maxsize

    def first(self, held: Positions) -> Positions | None:
        """Return the first place for a view that has read up to ``held``; None: read on and ask again."""
        self.read_ahead(held)
        place = self._place()
        if not place.covers(held):
            return None
        self._write()
        return place

    def following(self, place: Positions) -> Positions:
        """Return the newest cut past ``place``, or ``place`` if there is none. Notes it before it returns."""
        self.read_ahead(place)
        newest = self._place()
        if newest == place or not newest.covers(place):
            return place
        self._write()
        return newest

    def read_ahead(self, place: Positions) -> None:
        """Read one page, unless enough is read past ``place`` and a cut is there."""
        if self._reader is None:
            self._open()
        assert self._reader is not None
        newest = self._place()
        if newest != place and newest.covers(place) and lag_records(newest, place) >= self.rules.ahead:
            return
        now_s = time.monotonic()
        for record in self._reader.poll(_PAGE, 0.0):
            self._take(record, now_s)
        self._at = Positions({**self._at.offsets, **self._reader.position().offsets})
        closed, _ = self._transactions.close(self._settled(now_s), now_s)
        if incomplete := [each.reason for each in closed if each.reason]:
            self._ends()  # the rows may be in a partition that is new
        for reason in incomplete:
            log.warning('view "%s": %s; it is not waited for any longer', self.rules.view, reason)
        self._cut = self._transactions.positions(self._at)
        self._choose_partitions(self._reader)

    def waiting(self) -> str | None:
        """Return what the view waits for, and since when; None: nothing, or it came just now."""
        if self._reader is None:
            return None
        found = self._transactions.waiting(time.monotonic())
        if found is None or found.since_s < _WAITING_S:
            return None
        return f"{found.what}; it began at {iso(found.oldest_ms)}"

    def close(self) -> None:
        """Close the reader. The next call opens another one, at the noted cut."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # ---- reading

    def _open(self) -> None:
        rules = self.rules
        begin = self.log.beginning_offsets([rules.source, *rules.tables])
        source = TopicPartition(rules.source, 0)
        places = [place for place, _ in begin if place.topic in rules.tables]
        limits = Limits(rules.rows, sys.maxsize, rules.wait_s, holds_large=not rules.splits)
        self._transactions = Transactions(source, rules.tables, places, limits)
        self._at = self._cut = begin.advanced(self._noted())
        self._reading = self._transactions.to_read()
        self._reader = self.log.follower(queue_kb=_QUEUE_KB)
        self._reader.assign(self._at)

    def _take(self, record: Record, now_s: float) -> None:
        if record.unread is not None or record.value is None:
            return  # the view makes a dead-letter record of the first, and the second follows a deletion
        try:
            value = self.decoder.value(record)
            if record.topic == self.rules.source:
                self._transactions.take_boundary(boundary_of(record, value), now_s)
                return
            change = change_of(record, value)
        except NotOfDebezium as error:
            self._warn(record, str(error))
            return
        if isinstance(change, SnapshotRow):
            return
        table = self.rules.tables[record.topic]
        if change.collection != table:
            raise ConfigError(
                f'view "{self.rules.view}": {record.topic} {record.partition}:{record.offset} is a change of '
                f'table "{change.collection}", not of "{table}"',
                hint=f"write `consistent_with: {{tables: {{{record.topic}: {change.collection}}}}}`",
                code="HUB-2158",
            )
        slim = record._replace(key=None, value=None, headers=())  # only its place is needed
        self._transactions.take_row(replace(change, record=slim, row={}, before={}), now_s)

    def _warn(self, record: Record, reason: str) -> None:
        if not self._warned:
            self._warned = True
            place = f"{record.topic} {record.partition}:{record.offset}"
            log.warning('view "%s": %s is not held for a transaction: %s', self.rules.view, place, reason)

    def _settled(self, now_s: float) -> frozenset[TopicPartition]:
        """Return the partitions that are read to their present ends; none unless something is overdue."""
        if not self._transactions.is_overdue(now_s) or now_s - self._asked_s < _ENDS_S:
            return frozenset()
        self._asked_s = now_s
        return frozenset(place for place, end in self._ends() if self._at.get(place) >= end)

    def _ends(self) -> Positions:
        """Return the present ends. Raises PeerError if a partition is new; the group then starts over."""
        ends = self.log.end_offsets([self.rules.source, *self.rules.tables])
        if new := [place.topic for place, _ in ends if place not in self._at.offsets]:
            raise PeerError(f"topic {new[0]} has a new partition", hint="the view starts over by itself")
        return ends

    def _choose_partitions(self, reader: Reader) -> None:
        """Read other partitions from now on, if those that are ahead must wait."""
        wanted = self._transactions.to_read()
        if wanted != self._reading:
            self._reading = wanted
            reader.assign(Positions({place: self._at.get(place) for place in wanted}))

    def _place(self) -> Positions:
        return self._cut.of_topics(self.rules.tables)

    # ---- the note

    def _noted(self) -> Positions:
        """Return the noted cut; an empty one if the file is missing or corrupt."""
        try:
            return Positions.parse(orjson.loads((self.folder / NOTE).read_bytes())["cut"])
        except FileNotFoundError:
            return Positions()
        except (ValueError, KeyError, TypeError, CallerError) as error:
            log.error("%s was changed, and is ignored: %s", self.folder / NOTE, error)
            return Positions()

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / f"{NOTE}.tmp"
        beside.write_bytes(orjson.dumps({"cut": str(self._cut)}))
        beside.replace(self.folder / NOTE)
