"""[shell] Push: a view's rows as they are, then every change, to any number of subscribers.

A subscriber holds changelog positions, which are also its Last-Event-ID. It reads the store's rows made since then, so
it sees exactly what a reader by key would see, deletes included, coalesced per key: a slow one skips states between
and never builds a queue. One watcher a server asks the store whether anything was applied and wakes them all.

The law: a client that clears its copy at ``reset``, takes ``snapshot`` and ``upsert``, drops ``delete`` and comes back
with the last id it saw, ends equal to the table, wherever its line broke. A row of a snapshot therefore has an id too:
the positions of the snapshot's first page and the key to go on after.

Scaling limit: each subscriber reads for itself, so a view that changes all the time costs a query a subscriber each
25 ms at most; thousands of subscribers want one shared read a view, or more servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

import anyio.to_thread
import orjson

from hub.errors import CallerError, HubError
from hub.materializers.stores.sql import BuiltAnew, Store, StoredRow
from hub.record import Positions

log = logging.getLogger(__name__)

_POLL_S = 0.025
_HEARTBEAT_S = 10.0
_PAGE = 500


@dataclass
class Watcher:
    """Wakes whoever waits when the store changed. ``run`` is one task for the whole server."""

    store: Store
    generation: int = 0
    subscriptions: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Until cancelled; a store that does not answer is asked again after a pause."""
        stamp = -1
        while True:
            try:
                now = await anyio.to_thread.run_sync(self.store.stamp)
            except HubError as error:
                log.warning("%s", error.message)
                await asyncio.sleep(1.0)
                continue
            if now != stamp:
                stamp = now
                async with self._changed:
                    self.generation += 1
                    self._changed.notify_all()
            await asyncio.sleep(_POLL_S)

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
class Place:
    """Where a subscriber is: the view's incarnation, changelog positions, and in a snapshot the last key it has."""

    incarnation: str
    positions: Positions
    after: str | None = None

    def __str__(self) -> str:
        """The text of an event's id. Opaque to clients. Topic ids are base64: some have a slash of their own."""
        key = "" if self.after is None else f"/{quote(self.after, safe='')}"
        return f"{quote(self.incarnation, safe='')}/{self.positions}{key}"


def parse_event_id(text: str | None) -> Place | None:
    """Raises CallerError when the text is no id of ours."""
    if not text:
        return None
    incarnation, *rest = text.split("/")
    if not 1 <= len(rest) <= 2:
        raise CallerError(
            "Last-Event-ID is not one that this server sent",
            hint="leave it out to start with a snapshot",
            code="HUB-1430",
        )
    return Place(unquote(incarnation), Positions.parse(rest[0]), unquote(rest[1]) if len(rest) == 2 else None)


async def subscribe(
    store: Store,
    watcher: Watcher,
    view: str,
    *,
    key: str | None = None,
    last_event_id: str | None = None,
    snapshot: bool = True,
) -> AsyncGenerator[bytes, None]:
    """Server-sent events: ``snapshot`` rows, ``synced``, then ``upsert`` and ``delete`` for ever; or, from a
    Last-Event-ID, only what changed since. ``reset``: the view was built anew, drop every row and start over.

    Ends when the store cannot be read any more: the client comes back with its id."""
    place = parse_event_id(last_event_id)
    watcher.subscriptions[view] += 1
    try:
        while True:
            known = await anyio.to_thread.run_sync(store.view, view)
            if place is not None and place.incarnation != known.incarnation:
                yield _event("reset", None, {"reason": "the view was built anew"})
                place = None
            start = place or Place(known.incarnation, Positions(), "" if snapshot else None)
            try:
                async with aclosing(_from(store, watcher, view, key, start, fresh=place is None)) as events:
                    async for chunk in events:
                        yield chunk
            except BuiltAnew:
                place = Place("", Positions())  # of no incarnation: reset
    except HubError as error:
        log.warning("subscription to view %s ends: %s", view, error.message)
    finally:
        watcher.subscriptions[view] -= 1


async def _from(
    store: Store, watcher: Watcher, view: str, key: str | None, start: Place, *, fresh: bool
) -> AsyncGenerator[bytes, None]:
    """Events of one incarnation for ever. Raises BuiltAnew when it ends. ``start.after``: a snapshot comes first."""
    incarnation, at, after = start.incarnation, start.positions, start.after
    if fresh and after is None:
        _, at = await anyio.to_thread.run_sync(store.snapshot, view, None, 0, key, incarnation)
    in_snapshot = after is not None
    while in_snapshot:
        # Keys are past "" except the empty one itself: the very first page has no bound.
        bound = None if fresh else after
        rows, positions = await anyio.to_thread.run_sync(store.snapshot, view, bound, _PAGE, key, incarnation)
        # The positions stay those of the FIRST page: what changed during the rest comes again as changes, so nothing is
        # missed and the last word on a key is the right one.
        at, fresh = (positions if fresh else at), False
        for row in rows:
            after = row.key
            yield _event("snapshot", Place(incarnation, at, after), _body(row))
        in_snapshot = len(rows) == _PAGE
    if fresh or start.after is not None:
        yield _event("synced", Place(incarnation, at), {"positions": str(at)})
    while True:
        seen = watcher.generation
        rows, at = await anyio.to_thread.run_sync(store.changes, view, at, _PAGE, key, incarnation)
        for index, row in enumerate(rows):
            # Only the last event of a page carries an id: resuming in the middle repeats rows, never skips one.
            mark = Place(incarnation, at) if index == len(rows) - 1 else None
            yield _event("delete" if row.values is None else "upsert", mark, _body(row))
        if len(rows) < _PAGE and not await watcher.wait(seen, _HEARTBEAT_S):
            yield b": still here\n\n"


def _body(row: StoredRow) -> dict[str, object]:
    return {"key": row.key, "row": row.values, "version": row.version}


def _event(name: str, mark: Place | None, body: object) -> bytes:
    head = f"id: {mark}\n" if mark is not None else ""
    return f"{head}event: {name}\n".encode() + b"data: " + orjson.dumps(body) + b"\n\n"
