"""[shell] Push: a view's rows as they are, then every change, to any number of subscribers.

A subscriber holds changelog positions, which are also its Last-Event-ID. It reads the store's rows made since then, so
it sees exactly what a reader by key would see, deletes included, coalesced per key: a slow one skips states between
and never builds a queue. One watcher a server asks the store whether anything was applied and wakes them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio.to_thread
import orjson

from hub.errors import CallerError, HubError
from hub.materializers.stores.sql import Store, StoredRow
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


def event_id(topic_id: str, positions: Positions) -> str:
    """Where a subscriber is: the changelog's incarnation and positions. Opaque to clients."""
    return f"{topic_id}/{positions}"


def parse_event_id(text: str | None) -> tuple[str, Positions] | None:
    """Raises CallerError when the text is no id of ours."""
    if not text:
        return None
    topic_id, slash, positions = text.rpartition("/")
    if not slash:
        raise CallerError(
            "Last-Event-ID is not one that this server sent",
            hint="leave it out to start with a snapshot",
            code="HUB-1430",
        )
    return topic_id, Positions.parse(positions)


async def subscribe(
    store: Store,
    watcher: Watcher,
    view: str,
    *,
    key: str | None = None,
    last_event_id: str | None = None,
    snapshot: bool = True,
) -> AsyncIterator[bytes]:
    """Server-sent events: ``snapshot`` rows, ``synced``, then ``upsert`` and ``delete`` for ever; or, from a
    Last-Event-ID, only what changed since. ``reset`` says that the id is of an earlier changelog: start over."""
    resume = parse_event_id(last_event_id)
    watcher.subscriptions[view] += 1
    try:
        known = await anyio.to_thread.run_sync(store.view, view)
        at: Positions | None = None
        if resume is not None and resume[0] == known.topic_id:
            at = resume[1]
        elif resume is not None:
            yield _event("reset", None, {"reason": "the view was built anew"})
        while True:
            seen = watcher.generation
            if at is None:
                async for line, started_at in _snapshot(store, view, known.topic_id, key, snapshot):
                    at = started_at
                    yield line
                at = at or Positions()
                yield _event("synced", event_id(known.topic_id, at), {"positions": str(at)})
            rows, reached = await anyio.to_thread.run_sync(store.changes, view, at, _PAGE, key)
            at = reached
            for index, row in enumerate(rows):
                # Only the last event of a page carries an id: resuming in the middle repeats rows, never skips one.
                mark = event_id(known.topic_id, reached) if index == len(rows) - 1 else None
                yield _event("delete" if row.values is None else "upsert", mark, _body(row))
            if len(rows) >= _PAGE:
                continue
            if not await watcher.wait(seen, _HEARTBEAT_S):
                yield b": still here\n\n"
                continue
            current = await anyio.to_thread.run_sync(store.topic_id, view)
            if current != known.topic_id:
                known = await anyio.to_thread.run_sync(store.view, view)
                yield _event("reset", None, {"reason": "the view was built anew"})
                at = None
    finally:
        watcher.subscriptions[view] -= 1


async def _snapshot(
    store: Store, view: str, topic_id: str, key: str | None, wanted: bool
) -> AsyncIterator[tuple[bytes, Positions]]:
    """Pages of live rows. The positions are those of the FIRST page: what changed during the rest comes again as
    changes, so nothing is missed and the last word on a key is the right one."""
    after, first = "", None
    while True:
        rows, positions = await anyio.to_thread.run_sync(store.snapshot, view, after, _PAGE, key)
        first = positions if first is None else first
        if not wanted:
            yield b"", first
            return
        for row in rows:
            yield _event("snapshot", None, _body(row)), first
        if len(rows) < _PAGE:
            yield b"", first
            return
        after = rows[-1].key


def _body(row: StoredRow) -> dict[str, object]:
    return {"key": row.key, "row": row.values, "version": row.version}


def _event(name: str, mark: str | None, body: object) -> bytes:
    head = f"id: {mark}\n" if mark is not None else ""
    return f"{head}event: {name}\n".encode() + b"data: " + orjson.dumps(body) + b"\n\n"
