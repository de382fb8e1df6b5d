"""[shell] Push: a view's rows as they are, then every change, to any number of subscribers.

A subscriber holds changelog positions, which are also its last event id. It reads the store's rows made since then, so
it sees exactly what a reader by key would see, deletes included, coalesced per key: a slow one skips states between,
is told so, and never builds a queue. One watcher a server asks the store whether anything was applied and wakes them all.

The law: a client that clears its copy at ``reset``, takes ``snapshot`` and ``upsert``, drops ``delete`` and comes back
with the last id it saw, ends equal to the table, wherever its line broke. A row of a snapshot therefore has an id too:
the positions of the snapshot's first page and the key to go on after. With filters the same holds for the rows that
meet them: a row that leaves them arrives as ``delete``, and an id is good for its own filters alone.

Events are values here; ``push_wire`` writes them as server-sent events and as WebSocket messages.

Subscribers at one place ask the store once: those of a view that all keep up cost one question each 25 ms at most, and
each the writing of its own rows. Those behind, or with filters of their own, ask for themselves until they are there.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from urllib.parse import quote, unquote

import anyio.to_thread

from hub.errors import CallerError, HubError
from hub.materializers.serving.pull_query import KEY, Condition
from hub.materializers.stores.sql_store import BuiltAnew, ChangedRows, Filter, Store, StoredRow
from hub.record import Positions, lag_records

log = logging.getLogger(__name__)

_POLL_S = 0.025
# From one change to the next look: a page costs as much as dozens of the rows in it.
_GATHER_S = 0.05
_HEARTBEAT_S = 10.0
_PAGE = 500
_SLOW_S = 1.0  # a reader that takes longer for a page of changes is told what it missed
_MOST_KEYS = 10_000  # remembered of one subscriber with filters: about 1 MB

Name = Literal["snapshot", "synced", "upsert", "delete", "reset", "behind", "covered", "alive", "closing"]


@dataclass
class Watcher:
    """Wakes whoever waits when the store changed. ``run`` is one task for the whole server."""

    store: Store
    generation: int = 0
    subscriptions: Counter[str] = field(default_factory=Counter)
    # Hears of each change that a subscriber took: the view, and the events that the row is made of.
    pushed: Callable[[str, Mapping[str, Any] | None], None] = lambda _view, _sources: None
    # Hears of changes whose rows name no events: the view, the subscriber, and from where to where of the sources it was told.
    told: Callable[[str, int, Positions, Positions], None] = lambda _view, _subscriber, _before, _after: None
    # Hears, while traces are kept, of the same with its row, and when it was begun to be told (epoch ns).
    sent: Callable[[str, StoredRow, int], None] | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _asking: dict[Hashable, asyncio.Future[ChangedRows]] = field(default_factory=dict)

    async def run(self) -> None:
        """Until cancelled; a store that does not answer is asked again after a pause."""
        try:
            await self._watch()
        finally:
            # Nobody waits for these any more, but they have the store open.
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def _watch(self) -> None:
        stamp = -1
        glance: int | None = None
        while True:
            # Most of the time nothing has changed, and a glance tells so without a thread and a query.
            before, glance = glance, self.store.glance()
            if glance is not None and glance == before:
                await asyncio.sleep(_POLL_S)
                continue
            try:
                now = await anyio.to_thread.run_sync(self.store.stamp)
            except HubError as error:
                log.warning("%s", error.message)
                glance = None
                await asyncio.sleep(1.0)
                continue
            if now != stamp:
                stamp = now
                async with self._changed:
                    self.generation += 1
                    self._changed.notify_all()
                await asyncio.sleep(_GATHER_S)
            else:
                await asyncio.sleep(_POLL_S)

    async def changes(
        self, view: str, since: Positions, conditions: Sequence[Filter], incarnation: str
    ) -> ChangedRows:
        """``Store.changes``, a page of it. Who asks the same while it is being asked takes that answer.

        Only until the next change is seen: what was asked before may have missed it."""
        asked = (self.generation, view, str(since), repr(conditions), incarnation)
        if asked not in self._asking:
            ask = partial(self.store.changes, view, since, _PAGE, conditions, incarnation)
            # A task of its own: the subscriber that happened to be first may leave.
            asking = self._asking[asked] = asyncio.ensure_future(anyio.to_thread.run_sync(ask))
            asking.add_done_callback(lambda done: self._answered(asked, done))
        return await asyncio.shield(self._asking[asked])

    def _answered(self, asked: Hashable, done: asyncio.Future[ChangedRows]) -> None:
        del self._asking[asked]
        if not done.cancelled():
            done.exception()  # whoever waits hears of it; when all have left, nobody has to

    def subscribers_by_view(self) -> dict[str, int]:
        """Open subscriptions."""
        return dict(+self.subscriptions)

    async def wait(self, seen: int, timeout_s: float) -> bool:
        """True as soon as something was applied after ``seen`` (a value of ``generation``), False after the time."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.generation != seen)
            return True
        except TimeoutError:
            return False


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """Where a subscriber is: the view's incarnation, changelog positions, in a snapshot the last key it has, and a mark
    of the filters that all this is true for."""

    incarnation: str
    positions: Positions
    after: str | None = None
    filters: str = ""

    def __str__(self) -> str:
        """The text of an event's id. Opaque to clients. Topic ids are base64: some have a slash of their own."""
        filters = f";{self.filters}" if self.filters else ""
        key = "" if self.after is None else f"/{quote(self.after, safe='')}"
        return f"{quote(self.incarnation, safe='')}{filters}/{self.positions}{key}"


def parse_event_id(text: str | None) -> SubscriberPosition | None:
    """Raises CallerError when the text is no id of ours."""
    if not text:
        return None
    head, *rest = text.split("/")
    if not 1 <= len(rest) <= 2:
        raise CallerError(
            "Last-Event-ID is not one that this server sent",
            hint="leave it out to start with a snapshot",
            code="HUB-1430",
        )
    incarnation, _, filters = head.partition(";")
    after = unquote(rest[1]) if len(rest) == 2 else None
    return SubscriberPosition(unquote(incarnation), Positions.parse(rest[0]), after, filters)


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """What a subscriber is told. ``mark``: it may come back with this id once it has seen the event.

    snapshot, upsert, delete   ``{"key", "row", "version"}``, row null when it is deleted or has left the filters
    synced                     ``{"positions"}`` of the changelog: the snapshot is whole
    reset                      ``{"reason"}``: drop every row, a new snapshot follows
    behind                     ``{"slow_ms", "records", "rows", "coalesced"}``: the reader was slow, changes were merged
    covered                    ``{"positions"}`` of the sources that all that was told includes; only when asked for
    alive                      nothing to tell for a while
    closing                    ``{"reason"}``: the server ends the line; come back with the last id
    """

    name: Name
    mark: SubscriberPosition | None
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What a subscriber asks for. ``covered``: it wants to hear which source positions it has seen."""

    view: str
    filters: tuple[Condition, ...] = ()
    snapshot: bool = True
    covered: bool = False

    def mark(self) -> str:
        """Tells ids of other filters apart; "" without any."""
        if not self.filters:
            return ""
        told = sorted(repr(each.as_tuple()) for each in self.filters)
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


class HeldKeys:
    """Which keys a subscriber with filters may have: only of these it is told that they left.

    Exceptions from an assumption, so that memory is bounded: with too many of them the assumption becomes "it may have
    any key", which costs deletes of rows it does not have and is never wrong.
    """

    def __init__(self, assumed: bool, most: int = _MOST_KEYS) -> None:
        self.assumed = assumed
        self._most = most
        self._except: set[str] = set()

    def put(self, key: str) -> None:
        self._note(key, held=True)

    def drop(self, key: str) -> bool:
        """True when the subscriber may have the key, and must be told."""
        held = self.assumed != (key in self._except)
        self._note(key, held=False)
        return held

    def _note(self, key: str, *, held: bool) -> None:
        if held == self.assumed:
            self._except.discard(key)
            return
        self._except.add(key)
        if len(self._except) > self._most:
            self._except.clear()
            self.assumed = True


async def subscribe(
    store: Store, watcher: Watcher, wanted: SubscriptionRequest, last_event_id: str | None = None
) -> AsyncGenerator[SubscriptionEvent, None]:
    """``snapshot`` rows, ``synced``, then ``upsert`` and ``delete`` for ever; or, from an id, only what changed since.
    ``reset``: the view was built anew (or the id is of other filters), drop every row and start over.

    Ends with ``closing`` when the store cannot be read any more: the client comes back with its id."""
    place = parse_event_id(last_event_id)
    view, filters = wanted.view, wanted.mark()
    watcher.subscriptions[view] += 1
    try:
        while True:
            known = await anyio.to_thread.run_sync(store.view, view)
            if place is not None and place.incarnation != known.incarnation:
                yield SubscriptionEvent("reset", None, {"reason": "the view was built anew"})
                place = None
            elif place is not None and place.filters != filters:
                yield SubscriptionEvent("reset", None, {"reason": "the id is of another filter"})
                place = None
            start = place or SubscriberPosition(
                known.incarnation, Positions(), "" if wanted.snapshot else None, filters
            )
            try:
                async with aclosing(_from(store, watcher, wanted, start, fresh=place is None)) as events:
                    async for event in events:
                        yield event
            except BuiltAnew:
                place = SubscriberPosition("", Positions())  # of no incarnation: reset
    except HubError as error:
        log.warning("subscription to view %s ends: %s", view, error.message)
        yield SubscriptionEvent("closing", None, {"reason": error.message})
    finally:
        watcher.subscriptions[view] -= 1


async def _from(
    store: Store, watcher: Watcher, wanted: SubscriptionRequest, start: SubscriberPosition, *, fresh: bool
) -> AsyncGenerator[SubscriptionEvent, None]:
    """Events of one incarnation for ever. Raises BuiltAnew when it ends. ``start.after``: a snapshot comes first."""
    view, conditions = wanted.view, [each.as_tuple() for each in wanted.filters]
    incarnation, at, after = start.incarnation, start.positions, start.after
    held = HeldKeys(assumed=not (fresh and wanted.snapshot))

    def place(key: str | None = None) -> SubscriberPosition:
        return SubscriberPosition(incarnation, at, key, start.filters)

    if fresh and after is None:
        _, at = await anyio.to_thread.run_sync(store.snapshot, view, None, 0, conditions, incarnation)
    in_snapshot = after is not None
    while in_snapshot:
        # Keys are past "" except the empty one itself: the very first page has no bound.
        bound = None if fresh else after
        rows, positions = await anyio.to_thread.run_sync(
            store.snapshot, view, bound, _PAGE, conditions, incarnation
        )
        # The positions stay those of the FIRST page: what changed during the rest comes again as changes, so nothing is
        # missed and the last word on a key is the right one.
        at, fresh = (positions if fresh else at), False
        for row in rows:
            after = row.key
            held.put(row.key)
            yield SubscriptionEvent("snapshot", place(after), _body(row))
        in_snapshot = len(rows) == _PAGE
    if fresh or start.after is not None:
        yield SubscriptionEvent("synced", place(), {"positions": str(at)})
    pace = _ReaderPace(counts=all(each.column != KEY for each in wanted.filters))
    told_at, covered, unmarked = time.monotonic(), Positions(), False
    live = False  # what happened while the subscriber was away is not late
    subscriber, reached, nameless = next(watcher.numbers), Positions(), False
    while True:
        seen = watcher.generation
        look = await watcher.changes(view, at, conditions, incarnation)
        rows = [row for row in look.rows if not wanted.filters or _concerns(held, row)]
        behind = pace.behind(look.rows, lag_records(look.positions, at))
        if behind is not None:
            yield SubscriptionEvent("behind", None, behind)
        unmarked, at = unmarked or at != look.positions, look.positions
        begun_at = time.monotonic()
        for index, row in enumerate(rows):
            # Only the last event of a page carries an id: resuming in the middle repeats rows, never skips one.
            mark = place() if index == len(rows) - 1 else None
            began_ns = time.time_ns() if watcher.sent is not None else 0
            yield SubscriptionEvent("delete" if row.values is None else "upsert", mark, _body(row))
            if live:
                watcher.pushed(view, row.sources)
                nameless = nameless or row.sources is None
                if watcher.sent is not None:
                    watcher.sent(view, row, began_ns)
        pace.took_s = time.monotonic() - begun_at
        if rows:
            told_at, unmarked = time.monotonic(), False
        if len(look.rows) == _PAGE:
            continue  # there is more, and nothing is covered before it is told
        live = True
        if look.sources != reached:
            # Rows are in the store before their progress, so what was told since then is of this stretch or before it.
            if nameless:
                watcher.told(view, subscriber, reached, look.sources)
            reached, nameless = look.sources, False
        if wanted.covered and look.sources != covered:
            covered = look.sources
            yield SubscriptionEvent("covered", place(), {"positions": str(covered)})
            told_at, unmarked = time.monotonic(), False
        # By the clock: another view's changes, or those of other rows, wake this one without anything to tell.
        left_s = told_at + _HEARTBEAT_S - time.monotonic()
        if left_s <= 0:
            yield SubscriptionEvent("alive", place() if unmarked else None, {})
            told_at, unmarked = time.monotonic(), False
        else:
            await watcher.wait(seen, left_s)


def _concerns(held: HeldKeys, row: StoredRow) -> bool:
    if row.values is None:
        return held.drop(row.key)
    held.put(row.key)
    return True


@dataclass
class _ReaderPace:
    """How long the reader took for a page, and what that cost it. ``counts``: the rows that are read are all there are,
    so that records of the changelog without a row of their own are states it did not see."""

    counts: bool
    took_s: float = 0.0

    def behind(self, rows: Sequence[StoredRow], records: int) -> dict[str, Any] | None:
        """What a slow reader is told before the changes that came meanwhile."""
        if self.took_s < _SLOW_S or not rows:
            return None
        return {
            "slow_ms": round(self.took_s * 1000),
            "records": records,
            "rows": len(rows),
            "coalesced": max(0, records - len(rows)) if self.counts else None,
        }


def _body(row: StoredRow) -> dict[str, Any]:
    return {"key": row.key, "row": row.values, "version": row.version}
