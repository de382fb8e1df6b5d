"""[shell] Events of a topic, or changed rows of a view, as rows of a push query.

A topic: a page of records becomes the rows of a table, the query runs over that table, and its rows are sent.
The id of the last row of a page is the reader's position: a client that comes back with it repeats rows of
one page at most and misses none. Partitions that are added later are read from their first event.

A view: its subscription (hub/materializers/serving/subscriptions.py) names the keys that changed. The query
then runs over these keys alone, in the store, so a row is what every other query would show. A row that no
longer meets WHERE arrives as ``delete``, as in a filtered subscription.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import anyio

from hub.errors import HubError
from hub.log import Log, Reader
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import names_of
from hub.materializers.queries.push.statement import KEY_COLUMN, PushStatement, with_keys
from hub.materializers.queries.relations import OutputColumn, Value
from hub.materializers.queries.running import QueryAnswer, RunningQuery, TakeRows, take_rows
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.subscription_events import SubscriptionEvent, SubscriptionRequest
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.record import Positions, Record
from hub.times import epoch_ms

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
        found: list[SubscriptionEvent] = []
        for change in changes:
            key = str(change.body["key"])
            if (row := rows.get(key)) is not None:
                self._held.put(key)
                name = "upsert" if change.name == "delete" else change.name
                found.append(SubscriptionEvent(name, change.mark, {"key": key, "row": row}))
            elif self._held.drop(key) and change.name != "snapshot":
                found.append(SubscriptionEvent("delete", change.mark, {"key": key, "row": None}))
        last = next((each.mark for each in reversed(changes) if each.mark is not None), None)
        if last is not None and (not found or found[-1].mark is None):
            found.append(SubscriptionEvent("alive", last, {}))
        return found

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


T = TypeVar("T")
Run = Callable[[Callable[[], T]], Awaitable[T]]
_PAGE = 500
# What a push query fetches ahead of its reader, of each partition. The usual amount is 64 times this.
QUEUE_KB = 1_024
_POLL_S = 0.25
_PAGE_S = 30.0
_HEARTBEAT_S = 10.0
_NEW_PARTITIONS_S = 30.0


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Rows of the query over one page of records. ``unreadable``: records that cannot be decoded."""

    columns: Sequence[OutputColumn]
    rows: list[list[Any]]
    unreadable: int


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """A push query over one topic. Methods block; ``events`` runs them in threads of its caller's."""

    topics: TopicTables
    queries: QueryExecutor
    push: PushStatement
    parameters: dict[str, Value]
    table: EventTable
    take: TakeRows = take_rows

    def starts(self) -> Positions:
        """Return the positions at which the query begins. Raises PeerError."""
        log: Log = self.topics.cluster
        ends = log.end_offsets([self.table.name])
        if self.push.start == "now":
            return ends
        begins = log.beginning_offsets([self.table.name])
        if self.push.start == "beginning":
            return Positions({tp: begins.get(tp) for tp, _ in ends})
        first = log.offsets_at([self.table.name], self.push.start)
        return Positions({tp: max(begins.get(tp), first.get(tp, end)) for tp, end in ends})

    def answer(self, records: Sequence[Record]) -> PageAnswer:
        """Return the query's rows over these records. Raises SqlError."""
        if isinstance(self.push.start, int):
            # A broker may return the whole batch that holds the time.
            records = [each for each in records if each.timestamp_ms >= self.push.start]
        table, unreadable = self.topics.rows(self.table, names_of(self.push.statement), records)
        answer = self._run(table)
        if answer.more and len(records) > 1:  # larger than an answer may be
            middle = len(records) // 2
            first, second = self.answer(records[:middle]), self.answer(records[middle:])
            return PageAnswer(answer.columns, first.rows + second.rows, unreadable)
        return PageAnswer(answer.columns, answer.rows, unreadable)

    def _run(self, table: EventTable) -> QueryAnswer:
        running = RunningQuery(time.monotonic() + _PAGE_S)
        now_ms = epoch_ms()
        return self.queries.run(
            self.push.statement, self.parameters, running, now_ms=now_ms, events=[table], take=self.take
        )

    def with_new_partitions(self, at: Positions) -> Positions | None:
        """Return the positions with partitions that were added since; None without any."""
        ends = self.topics.cluster.end_offsets([self.table.name])
        missing = {tp: 0 for tp, _ in ends if tp not in at.offsets}
        return Positions({**at.offsets, **missing}) if missing else None

    async def events(self, run: Run[Any], start: Positions) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield ``row``, ``skipped`` and ``alive`` without end, ``closing`` with the reason of an error."""
        reader = await run(partial(self.topics.cluster.follower, queue_kb=QUEUE_KB))
        try:
            reader.assign(start)
            async for event in self._follow(run, reader):
                yield event
        except HubError as error:
            yield SubscriptionEvent("closing", None, {"reason": error.message, "error_code": error.code})
        finally:
            with anyio.CancelScope(shield=True):
                await run(reader.close)

    async def _follow(self, run: Run[Any], reader: Reader) -> AsyncGenerator[SubscriptionEvent, None]:
        sent_at = looked_at = time.monotonic()
        while True:
            page = await run(lambda: reader.poll(_PAGE, _POLL_S))
            if page:
                answer = await run(partial(self.answer, page))
                at = reader.position()
                if answer.unreadable:
                    yield SubscriptionEvent("skipped", None, {"unreadable": answer.unreadable})
                names = [each.name for each in answer.columns]
                for number, row in enumerate(answer.rows, 1):
                    mark = at if number == len(answer.rows) else None
                    body = {"row": dict(zip(names, row, strict=True))}
                    yield SubscriptionEvent("row", mark, body)
                if answer.rows:
                    sent_at = time.monotonic()
            now = time.monotonic()
            if now - sent_at >= _HEARTBEAT_S:
                sent_at = now
                yield SubscriptionEvent("alive", reader.position(), {})
            if now - looked_at >= _NEW_PARTITIONS_S:
                looked_at = now
                more = await run(lambda: self.with_new_partitions(reader.position()))
                if more is not None:
                    reader.assign(more)
