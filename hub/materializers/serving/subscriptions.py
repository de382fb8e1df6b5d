"""[shell] Push: a view's current rows, then every change, to any number of subscribers.

A subscriber holds changelog positions, which are also its last event id. It reads the store's rows made since
then, so it gets exactly the rows that a reader by key would, deletes included, coalesced per key: a slow
subscriber skips intermediate states, is notified of that, and never builds a queue. One watcher per server
polls the store for applies and wakes all subscribers.

Contract: a client that clears its copy at ``reset``, takes ``snapshot`` and ``upsert``, removes ``delete``
and reconnects with the last id it received ends up equal to the table, wherever its connection broke. A row
of a snapshot therefore has an id too: the positions of the snapshot's first page and the key to continue
after. With filters the same holds for the rows that meet them: a row that stops meeting them arrives as
``delete``, and an id is valid only for its own filters.

Events are values here; ``subscription_transport`` writes them as server-sent events and as WebSocket
messages.

Subscribers at one position share a query of the store: those of a view that all keep up cost one query every
25 ms at most, plus the writing of rows to each. Subscribers that are behind, or have filters of their own,
query for themselves until they have caught up.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import secrets
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
from hub.masking.shape import OPEN, SeenShape
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.masked_changes import change_body, require_same
from hub.materializers.serving.pull_query import KEY, Condition
from hub.materializers.serving.reader_pace import ReaderPace
from hub.materializers.stores.sql.feed import BuiltAnew
from hub.materializers.stores.sql.queries import ChangedRows, Filter
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions, lag_records
from hub.shares import Shares

log = logging.getLogger(__name__)

_POLL_S = 0.025
# Pause from a change to the next query: a page costs as much as dozens of the rows in it.
_GATHER_S = 0.05
_HEARTBEAT_S = 10.0
_PAGE = 500

Name = Literal[
    "snapshot",
    "synced",
    "upsert",
    "delete",
    "reset",
    "behind",
    "covered",
    "alive",
    "closing",
    "columns",
    "row",
    "skipped",
    "complete",
]


@dataclass
class Watcher:
    """Wakes waiting tasks when the store changed. ``run`` is one task for the whole server."""

    store: Store
    generation: int = 0
    shares: Shares | None = None  # of subscriptions and push queries, by caller
    subscriptions: Counter[str] = field(default_factory=Counter)
    # Called for each change that a subscriber received: the view, and the events that the row is made of.
    pushed: Callable[[str, Mapping[str, Any] | None], None] = lambda _view, _sources: None
    # Called for changes whose rows name no events: the view, the subscriber, and the source positions before
    # and after them.
    told: Callable[[str, int, Positions, Positions], None] = lambda _view, _subscriber, _before, _after: None
    # With tracing: called for each change with its row, and the start of its sending (epoch ns).
    sent: Callable[[str, RowVersion, int], None] | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _asking: dict[Hashable, asyncio.Future[ChangedRows]] = field(default_factory=dict)

    async def run(self) -> None:
        """Run until cancelled; a store that does not answer is polled again after a pause."""
        try:
            await self._watch()
        finally:
            # Their callers are gone, but they have the store open.
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def _watch(self) -> None:
        stamp = -1
        glance: int | None = None
        while True:
            # Usually nothing has changed, and a glance shows that without a thread and a query.
            before, glance = glance, self.store.feed.glance()
            if glance is not None and glance == before:
                await asyncio.sleep(_POLL_S)
                continue
            try:
                now = await anyio.to_thread.run_sync(self.store.feed.stamp)
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
        """Return a page of ``ViewFeed.changes``. Callers with the same arguments share a running query.

        A query is shared only until the next change is seen, because it may have missed that change.
        """
        asked = (self.generation, view, str(since), repr(conditions), incarnation)
        if asked not in self._asking:
            ask = partial(self.store.feed.changes, view, since, _PAGE, conditions, incarnation)
            # A task of its own: the subscriber that started it may leave.
            asking = self._asking[asked] = asyncio.ensure_future(anyio.to_thread.run_sync(ask))
            asking.add_done_callback(lambda done: self._answered(asked, done))
        return await asyncio.shield(self._asking[asked])

    def _answered(self, asked: Hashable, done: asyncio.Future[ChangedRows]) -> None:
        del self._asking[asked]
        if not done.cancelled():
            done.exception()  # every waiting caller gets the error; without any, nobody needs it

    def subscribers_by_view(self) -> dict[str, int]:
        """Return the number of open subscriptions by view."""
        return dict(+self.subscriptions)

    async def wait(self, seen: int, timeout_s: float) -> bool:
        """Return True as soon as something was applied after ``seen`` (a value of ``generation``), False
        after the time.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.generation != seen)
            return True
        except TimeoutError:
            return False


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """Position of a subscriber, valid for one incarnation of the view and one set of filters.

    ``positions``: of the changelog. ``after``: in a snapshot, the last key it has. ``filters``: hash of the
    filters.
    """

    incarnation: str
    positions: Positions
    after: str | None = None
    filters: str = ""

    def __str__(self) -> str:
        """Return an event's id, opaque to clients. Topic ids are base64 and may contain a slash."""
        filters = f";{self.filters}" if self.filters else ""
        key = "" if self.after is None else f"/{quote(self.after, safe='')}"
        return f"{quote(self.incarnation, safe='')}{filters}/{self.positions}{key}"


def parse_event_id(text: str | None) -> SubscriberPosition | None:
    """Parse an event id. Raises CallerError for an invalid one."""
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
    """An event of a subscription. ``mark``: id with which the client may resume after this event.

    snapshot, upsert, delete   ``{"key", "row", "version"}``, row null when it is deleted or has left the filters
    synced                     ``{"positions"}`` of the changelog: the snapshot is whole
    reset                      ``{"reason"}``: drop every row, a new snapshot follows
    behind                     ``{"slow_ms", "records", "rows", "coalesced"}``: the reader was slow, changes were merged
    covered                    ``{"positions"}`` of the sources that all sent rows include; only on request
    alive                      heartbeat without a change
    closing                    ``{"reason"}``: the server closes the connection; reconnect with the last id

    Of push queries only:

    columns                    ``{"columns"}``: name and type of each, before any row
    row                        ``{"row"}`` of an event of a topic
    skipped                    ``{"unreadable"}``: events of the topic that cannot be decoded
    complete                   ``{"rows"}``: the query's LIMIT is reached
    """  # noqa: E501

    name: Name
    mark: SubscriberPosition | Positions | None
    body: Mapping[str, Any]

    @property
    def has_next(self) -> bool:
        """Return whether another event follows at once.

        A page of changes ends with an event that has an id, a snapshot with ``synced``.
        """
        if self.name in ("columns", "snapshot"):
            return True
        return self.name in ("upsert", "delete", "row", "skipped") and self.mark is None


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """Request of a subscriber. ``covered``: send the source positions that the sent rows include.

    ``shape``: what the subscriber sees; ``rows``: its filter of rows, as conditions. ``look`` returns the
    shape of now; the subscription ends when it is another.
    """

    view: str
    filters: tuple[Condition, ...] = ()
    snapshot: bool = True
    covered: bool = False
    shape: SeenShape = OPEN
    rows: tuple[Filter, ...] = ()
    look: Callable[[], SeenShape] | None = None
    own: str = field(default_factory=lambda: secrets.token_hex(8))

    def conditions(self) -> list[Filter]:
        return [*(each.as_tuple() for each in self.filters), *self.rows]

    def mark(self) -> str:
        """Return a hash that differs between filters; "" without filters.

        With a filter of rows no two subscriptions have the same: who resumes gets a snapshot, because
        deletes of rows that it never saw would name their keys.
        """
        if not self.filters and not self.rows:
            return ""
        told = sorted(repr(each) for each in self.conditions()) + [self.own] * bool(self.rows)
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


async def subscribe(
    store: Store, watcher: Watcher, wanted: SubscriptionRequest, last_event_id: str | None = None
) -> AsyncGenerator[SubscriptionEvent, None]:
    """Yield ``snapshot`` rows, ``synced``, then ``upsert`` and ``delete`` without end; from an id, only later
    changes.

    ``reset``: the view was rebuilt or the id is of other filters; the client drops every row and starts over.
    Ends with ``closing`` when the store cannot be read any more; the client reconnects with its id.
    """
    place = parse_event_id(last_event_id)
    view, filters = wanted.view, wanted.mark()
    watcher.subscriptions[view] += 1
    try:
        while True:
            known = await anyio.to_thread.run_sync(store.view, view)
            if place is not None and place.incarnation != known.incarnation:
                yield SubscriptionEvent("reset", None, {"reason": "the view was rebuilt"})
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
    """Yield events of one incarnation. Raises BuiltAnew when it ends. ``start.after``: a snapshot comes
    first.
    """
    view, conditions = wanted.view, wanted.conditions()
    incarnation, at, after = start.incarnation, start.positions, start.after
    held = HeldKeys(assumed=not (fresh and wanted.snapshot), certain=bool(wanted.rows))

    def place(key: str | None = None) -> SubscriberPosition:
        return SubscriberPosition(incarnation, at, key, start.filters)

    if fresh and after is None:
        _, at = await anyio.to_thread.run_sync(store.feed.snapshot, view, None, 0, conditions, incarnation)
    in_snapshot = after is not None
    while in_snapshot:
        # Every key except the empty one is past "": the first page has no bound.
        bound = None if fresh else after
        rows, positions = await anyio.to_thread.run_sync(
            store.feed.snapshot, view, bound, _PAGE, conditions, incarnation
        )
        # The positions stay those of the FIRST page: rows that changed during the rest are sent again as
        # changes, so nothing is missed and the last event of a key is the right one.
        at, fresh = (positions if fresh else at), False
        for row in rows:
            after = row.key
            held.put(row.key)
            yield SubscriptionEvent("snapshot", place(after), change_body(row, wanted.shape))
        in_snapshot = len(rows) == _PAGE
    if fresh or start.after is not None:
        yield SubscriptionEvent("synced", place(), {"positions": str(at)})
    pace = ReaderPace(counts=all(each.column != KEY for each in wanted.filters))
    told_at, covered, unmarked = time.monotonic(), Positions(), False
    live = False  # changes while the subscriber was away do not count as late
    subscriber, reached, nameless = next(watcher.numbers), Positions(), False
    while True:
        seen = watcher.generation
        await require_same(wanted.view, wanted.shape, wanted.look)
        look = await watcher.changes(view, at, conditions, incarnation)
        rows = [row for row in look.rows if not conditions or _concerns(held, row)]
        behind = pace.behind(look.rows, lag_records(look.positions, at))
        if behind is not None:
            yield SubscriptionEvent("behind", None, behind)
        unmarked, at = unmarked or at != look.positions, look.positions
        begun_at = time.monotonic()
        for index, row in enumerate(rows):
            # Only the last event of a page has an id: resuming in the middle repeats rows and never skips
            # one.
            mark = place() if index == len(rows) - 1 else None
            began_ns = time.time_ns() if watcher.sent is not None else 0
            yield SubscriptionEvent(
                "delete" if row.values is None else "upsert", mark, change_body(row, wanted.shape)
            )
            if live:
                watcher.pushed(view, row.sources)
                nameless = nameless or row.sources is None
                if watcher.sent is not None:
                    watcher.sent(view, row, began_ns)
        pace.took_s = time.monotonic() - begun_at
        if rows:
            told_at, unmarked = time.monotonic(), False
        if len(look.rows) == _PAGE:
            continue  # more rows follow, and nothing is covered before they are sent
        live = True
        if look.sources != reached:
            # Rows are in the store before their progress, so rows sent since then are of this stretch or an
            # earlier one.
            if nameless:
                watcher.told(view, subscriber, reached, look.sources)
            reached, nameless = look.sources, False
        if wanted.covered and look.sources != covered:
            covered = look.sources
            yield SubscriptionEvent("covered", place(), {"positions": str(covered)})
            told_at, unmarked = time.monotonic(), False
        # By the clock: changes of other views or other rows wake this task without anything to send.
        left_s = told_at + _HEARTBEAT_S - time.monotonic()
        if left_s <= 0:
            yield SubscriptionEvent("alive", place() if unmarked else None, {})
            told_at, unmarked = time.monotonic(), False
        else:
            await watcher.wait(seen, left_s)


def _concerns(held: HeldKeys, row: RowVersion) -> bool:
    if row.values is None:
        return held.drop(row.key)
    held.put(row.key)
    return True
