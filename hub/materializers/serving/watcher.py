"""[shell] One watcher per server polls the store for applies, and wakes all subscribers.

Subscribers at one position share a query of the store: those of a view that all keep up cost one query every
25 ms at most, plus the writing of rows to each. Subscribers that are behind, or have filters of their own,
query for themselves until they have caught up.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio.to_thread

from hub.errors import HubError
from hub.materializers.stores.sql.queries import ChangedRows, Filter
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.quotas.shares import Shares
from hub.record import Positions

log = logging.getLogger(__name__)

PAGE = 500
"""Rows of one query for a subscriber."""
_POLL_S = 0.025
# Pause from a change to the next query: a page costs as much as dozens of the rows in it.
_GATHER_S = 0.05


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
    covered: Callable[[str, int, Positions, Positions], None] = lambda _view, _subscriber, _before, _after: (
        None
    )
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
        question = (self.generation, view, str(since), repr(conditions), incarnation)
        if question not in self._asking:
            ask = partial(self.store.feed.changes, view, since, PAGE, conditions, incarnation)
            # A task of its own: the subscriber that started it may leave.
            asking = self._asking[question] = asyncio.ensure_future(anyio.to_thread.run_sync(ask))
            asking.add_done_callback(lambda done: self._answered(question, done))
        return await asyncio.shield(self._asking[question])

    def _answered(self, question: Hashable, done: asyncio.Future[ChangedRows]) -> None:
        del self._asking[question]
        if not done.cancelled():
            done.exception()  # every waiting caller gets the error; without any, nobody needs it

    def subscribers_by_view(self) -> dict[str, int]:
        """Return the number of open subscriptions by view."""
        return dict(+self.subscriptions)

    async def wait(self, generation: int, timeout_s: float) -> bool:
        """Return True as soon as something was applied after ``generation``, False
        after the time.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.generation != generation)
            return True
        except TimeoutError:
            return False
