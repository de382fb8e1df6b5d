"""[shell] Changed rows of a view as rows of a push query.

The view's subscription (hub/materializers/serving/subscriptions.py) names the keys that changed. The query
then runs over these keys alone, in the store, so a row is what every other query would show. A row that no
longer meets WHERE arrives as ``delete``, as in a filtered subscription.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hub.errors import HubError
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.push.statement import KEY_COLUMN, PushStatement, with_keys
from hub.materializers.queries.relations import Value
from hub.materializers.queries.running import RunningQuery, TakeRows, take_rows
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.subscription_events import SubscriptionEvent, SubscriptionRequest
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.times import epoch_ms

T = TypeVar("T")
Run = Callable[[Callable[[], T]], Awaitable[T]]
_PAGE = 500
_PAGE_S = 30.0
_ROWS = ("snapshot", "upsert", "delete")


@dataclass(slots=True)
class ViewChanges:
    """A push query over one view."""

    store: Store
    watcher: Watcher
    queries: QueryExecutor
    view: str
    push: PushStatement
    parameters: dict[str, Value]
    take: TakeRows = take_rows
    _held: HeldKeys = field(default_factory=lambda: HeldKeys(assumed=True))

    async def events(
        self, run: Run[Any], last_event_id: str | None
    ) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield the events of a subscription with the query's rows; see ``SubscriptionEvent``."""
        snapshot = self.push.start == "beginning"
        self._held = HeldKeys(assumed=not snapshot or last_event_id is not None)
        wanted = SubscriptionRequest(self.view, snapshot=snapshot)
        waiting: list[SubscriptionEvent] = []
        try:
            async with aclosing(subscribe(self.store, self.watcher, wanted, last_event_id)) as changes:
                async for change in changes:
                    if change.name in _ROWS:
                        waiting.append(change)
                        if change.has_next and len(waiting) < _PAGE:
                            continue
                    for event in await self._page(run, waiting):
                        yield event
                    waiting = []
                    if change.name not in _ROWS:
                        yield change
        except HubError as error:
            yield SubscriptionEvent("closing", None, {"reason": error.message, "error_code": error.code})

    async def _page(self, run: Run[Any], changes: Sequence[SubscriptionEvent]) -> list[SubscriptionEvent]:
        """Return the changes with the query's rows, in their order. The last one keeps the page's id."""
        keys = [str(each.body["key"]) for each in changes if each.body["row"] is not None]
        rows: dict[str, dict[str, Any]] = await run(lambda: self._rows(keys)) if keys else {}
        subscription_events: list[SubscriptionEvent] = []
        for change in changes:
            key = str(change.body["key"])
            if (row := rows.get(key)) is not None:
                self._held.put(key)
                name = "upsert" if change.name == "delete" else change.name
                subscription_events.append(SubscriptionEvent(name, change.mark, {"key": key, "row": row}))
            elif self._held.drop(key) and change.name != "snapshot":
                subscription_events.append(
                    SubscriptionEvent("delete", change.mark, {"key": key, "row": None})
                )
        last = next((each.mark for each in reversed(changes) if each.mark is not None), None)
        if last is not None and (not subscription_events or subscription_events[-1].mark is None):
            subscription_events.append(SubscriptionEvent("alive", last, {}))
        return subscription_events

    def _rows(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the query's rows by key. Blocks. Raises SqlError, PeerError."""
        running = RunningQuery(time.monotonic() + _PAGE_S)
        now_ms = epoch_ms()
        answer = self.queries.run(
            with_keys(self.push, keys), self.parameters, running, now_ms=now_ms, take=self.take
        )
        if answer.more and len(keys) > 1:  # larger than an answer may be
            middle = len(keys) // 2
            return {**self._rows(keys[:middle]), **self._rows(keys[middle:])}
        names = [each.name for each in answer.columns]
        assert names[-1].startswith(KEY_COLUMN)
        return {str(row[-1]): dict(zip(names[:-1], row[:-1], strict=True)) for row in answer.rows}
