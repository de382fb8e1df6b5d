"""[shell] Push: a view's current rows, then every change, to any number of subscribers.

A subscriber holds changelog positions, which are also its last event id. It reads the store's rows made since
then, so it gets exactly the rows that a reader by key would, deletes included, coalesced per key: a slow
subscriber skips intermediate states, is notified of that, and never builds a queue.

Contract: a client that clears its copy at ``reset``, takes ``snapshot`` and ``upsert``, removes ``delete``
and reconnects with the last id it received ends up equal to the table, wherever its connection broke. A row
of a snapshot therefore has an id too: the positions of the snapshot's first page and the key to continue
after. With filters the same holds for the rows that meet them: a row that stops meeting them arrives as
``delete``, and an id is valid only for its own filters.

Events are values here; ``subscription_transport`` writes them as server-sent events and as WebSocket
messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from hub.errors import HubError, PeerError
from hub.masking.shape import Visibility
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.pull_query import KEY
from hub.materializers.serving.reader_pace import ReaderPace
from hub.materializers.serving.subscription_events import (
    Name,
    SubscriberPosition,
    SubscriptionEvent,
    SubscriptionRequest,
    parse_event_id,
)
from hub.materializers.serving.watcher import PAGE, Watcher
from hub.materializers.stores.sql.feed import BuiltAnew
from hub.materializers.stores.sql.queries import Filter
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions, lag_records

log = logging.getLogger(__name__)

_HEARTBEAT_S = 10.0


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
                subscriber = _Subscriber.of(store, watcher, wanted, start, fresh=place is None)
                async with aclosing(subscriber.events()) as events:
                    async for event in events:
                        yield event
            except BuiltAnew:
                place = SubscriberPosition("", Positions())  # of no incarnation: reset
    except HubError as error:
        log.warning("subscription to view %s ends: %s", view, error.message)
        yield SubscriptionEvent("closing", None, {"reason": error.message})
    finally:
        watcher.subscriptions[view] -= 1


@dataclass(slots=True)
class _Subscriber:
    """One subscriber to one incarnation of a view. ``fresh``: it begins, and resumes at no position."""

    store: Store
    watcher: Watcher
    wanted: SubscriptionRequest
    start: SubscriberPosition
    fresh: bool
    conditions: Sequence[Filter]
    held: HeldKeys
    at: Positions
    number: int
    # Changes while the subscriber was away do not count as late.
    live: bool = False
    # Source positions up to which its rows were sent, and whether rows since then name no events.
    reached: Positions = field(default_factory=Positions)
    nameless: bool = False

    @classmethod
    def of(
        cls,
        store: Store,
        watcher: Watcher,
        wanted: SubscriptionRequest,
        start: SubscriberPosition,
        *,
        fresh: bool,
    ) -> _Subscriber:
        held = HeldKeys(assumed=not (fresh and wanted.snapshot), certain=bool(wanted.rows))
        return cls(
            store,
            watcher,
            wanted,
            start,
            fresh,
            wanted.conditions(),
            held,
            start.positions,
            next(watcher.numbers),
        )

    def place(self, key: str | None = None) -> SubscriberPosition:
        return SubscriberPosition(self.start.incarnation, self.at, key, self.start.filters)

    async def events(self) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield the rest of the snapshot if one was begun or is wanted, then changes without end.

        Raises BuiltAnew when the incarnation ends.
        """
        if self.start.after is not None:
            async with aclosing(self.snapshot(self.start.after)) as rows:
                async for event in rows:
                    yield event
        elif self.fresh:
            _, self.at = await self.page(None, 0)
        if self.fresh or self.start.after is not None:
            yield SubscriptionEvent("synced", self.place(), {"positions": str(self.at)})
        async with aclosing(self.changes()) as changes:
            async for event in changes:
                yield event

    async def page(self, after: str | None, limit: int) -> tuple[Sequence[RowVersion], Positions]:
        feed, incarnation = self.store.feed, self.start.incarnation
        return await anyio.to_thread.run_sync(
            feed.snapshot, self.wanted.view, after, limit, self.conditions, incarnation
        )

    async def snapshot(self, after: str) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield the rows in the order of their keys, those past ``after``."""
        # Every key except the empty one is past "": the first page has no bound.
        bound = None if self.fresh else after
        first = self.fresh
        while True:
            rows, positions = await self.page(bound, PAGE)
            if first:
                # The positions stay those of the FIRST page: rows that changed during the rest are sent again
                # as changes, so nothing is missed and the last event of a key is the right one.
                self.at, first = positions, False
            for row in rows:
                bound = row.key
                self.held.put(row.key)
                yield SubscriptionEvent("snapshot", self.place(bound), change_body(row, self.wanted.shape))
            if len(rows) < PAGE:
                return

    async def changes(self) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield the changes since the subscriber's positions, and signs of life when there are none."""
        wanted = self.wanted
        pace = ReaderPace(counts=all(each.column != KEY for each in wanted.filters))
        sent_at, covered, unmarked = time.monotonic(), Positions(), False
        while True:
            generation = self.watcher.generation
            await require_same(wanted.view, wanted.shape, wanted.look)
            look = await self.watcher.changes(wanted.view, self.at, self.conditions, self.start.incarnation)
            rows = [row for row in look.rows if not self.conditions or _concerns(self.held, row)]
            behind = pace.behind(look.rows, lag_records(look.positions, self.at))
            if behind is not None:
                yield SubscriptionEvent("behind", None, behind)
            unmarked, self.at = unmarked or self.at != look.positions, look.positions
            begun_at = time.monotonic()
            for index, row in enumerate(rows):
                # Only the last event of a page has an id: resuming in the middle repeats rows and never skips
                # one.
                mark = self.place() if index == len(rows) - 1 else None
                began_ns = time.time_ns() if self.watcher.sent is not None else 0
                name: Name = "delete" if row.values is None else "upsert"
                yield SubscriptionEvent(name, mark, change_body(row, wanted.shape))
                self.sent(row, began_ns)
            pace.took_s = time.monotonic() - begun_at
            if rows:
                sent_at, unmarked = time.monotonic(), False
            if len(look.rows) == PAGE:
                continue  # more rows follow, and nothing is covered before they are sent
            self.caught_up(look.sources)
            if wanted.covered and look.sources != covered:
                covered = look.sources
                yield SubscriptionEvent("covered", self.place(), {"positions": str(covered)})
                sent_at, unmarked = time.monotonic(), False
            # By the clock: changes of other views or other rows wake this task without anything to send.
            left_s = sent_at + _HEARTBEAT_S - time.monotonic()
            if left_s <= 0:
                yield SubscriptionEvent("alive", self.place() if unmarked else None, {})
                sent_at, unmarked = time.monotonic(), False
            else:
                await self.watcher.wait(generation, left_s)

    def sent(self, row: RowVersion, began_ns: int) -> None:
        """Report a change that was sent, for latencies and traces."""
        if not self.live:
            return
        self.watcher.pushed(self.wanted.view, row.sources)
        self.nameless = self.nameless or row.sources is None
        if self.watcher.sent is not None:
            self.watcher.sent(self.wanted.view, row, began_ns)

    def caught_up(self, sources: Positions) -> None:
        """Report that every row up to these source positions was sent."""
        self.live = True
        if sources == self.reached:
            return
        # Rows are in the store before their progress, so rows sent since then are of this stretch or an
        # earlier one.
        if self.nameless:
            self.watcher.covered(self.wanted.view, self.number, self.reached, sources)
        self.reached, self.nameless = sources, False


def _concerns(held: HeldKeys, row: RowVersion) -> bool:
    if row.values is None:
        return held.drop(row.key)
    held.put(row.key)
    return True


async def require_same(view: str, shape: Visibility, look: Callable[[], Visibility] | None) -> None:
    """Raise PeerError if the subscriber sees something else now than when it began. ``look`` None: it sees
    everything."""
    if look is not None and await anyio.to_thread.run_sync(look) != shape:
        raise PeerError(
            f'view "{view}": what you see of it has changed', hint="connect again", code="HUB-3079"
        )


def change_body(row: RowVersion, shape: Visibility) -> dict[str, Any]:
    """Return the body of a change's event."""
    values = row.values if row.values is None or shape.is_open else shape.row(row.values)
    return {"key": row.key, "row": values, "version": row.version}
