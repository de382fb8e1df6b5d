"""[shell] Open push queries: grants, limits and start; then events until the reader leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread

from hub.access_log.request import note_sql
from hub.caller import reads_all, sees_topic, sees_view, view_visibility
from hub.errors import CallerError, PeerError
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import no_table
from hub.materializers.queries.parser import without_literals
from hub.materializers.queries.push.changes import TopicChanges, ViewChanges
from hub.materializers.queries.push.statement import CODE, PushStatement
from hub.materializers.queries.relations import OutputColumn, Value
from hub.materializers.queries.running import TakeRows, take_rows
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.subscription_events import SubscriptionEvent, parse_event_id
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.quotas.kinds import Quota
from hub.quotas.spending import QuotaHold, hold
from hub.record import Positions
from hub.times import epoch_ms

# Each holds a connection to Kafka and a thread.
MOST_OPEN = 200


@dataclass(frozen=True, slots=True)
class OpenPush:
    """A push query that is ready to run: its columns, and its events without end. ``view``: of a view."""

    columns: Sequence[OutputColumn]
    view: bool
    events: AsyncGenerator[SubscriptionEvent, None]


@dataclass(slots=True)
class PushQueries:
    """Push queries of a server. ``not_yet`` raises PeerError for a view that has no table yet."""

    store: Store
    watcher: Watcher
    queries: QueryExecutor
    topics: TopicTables
    not_yet: Callable[[str], object]
    open: int = 0
    _threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MOST_OPEN))

    async def opened(
        self,
        push: PushStatement,
        parameters: Mapping[str, Value],
        last_event_id: str | None = None,
        take: TakeRows = take_rows,
    ) -> OpenPush:
        """Open a push query. Raises SqlError, Forbidden, PeerError, TooMany before the first event.

        ``last_event_id``: the id of an event that an earlier one sent; it goes on behind that event.
        ``take``: see QueryExecutor.run.
        """
        note_sql(lambda: without_literals(push.statement.text), [push.table])
        held = hold(Quota.subscriptions, tables=[push.table])
        try:
            return await self._opened(push, parameters, last_event_id, take, held)
        except BaseException:
            if held is not None:
                held.release()
            raise

    async def _opened(
        self,
        push: PushStatement,
        parameters: Mapping[str, Value],
        last_event_id: str | None,
        take: TakeRows,
        held: QuotaHold | None,
    ) -> OpenPush:
        if self.watcher.shares is not None:
            self.watcher.shares.require()
        if self.open >= MOST_OPEN:
            raise PeerError(
                f"server: {MOST_OPEN} push queries are open",
                hint="try again later, or read the topic with a Kafka client",
                code="HUB-3066",
            )
        ready: OpenPush = await self._run(lambda: self._prepared(push, dict(parameters), last_event_id, take))
        return replace(ready, events=self._counted(push, ready, held))

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def _prepared(
        self, push: PushStatement, parameters: dict[str, Value], last_event_id: str | None, take: TakeRows
    ) -> OpenPush:
        now_ms = epoch_ms()
        if views := self.queries.views_of(push.statement):
            reads_all(views=views)
            _require_keys(views[0])
            parse_event_id(last_event_id)
            if isinstance(push.start, int):
                raise push.statement.error(
                    f'view "{views[0]}" has its rows as of now: it cannot begin at a time',
                    hint="EMIT CHANGES FROM BEGINNING sends the rows of now first; topics begin at a time",
                    code=CODE,
                )
            compiled = self.queries.check(push.statement, parameters, now_ms, ())
            changes = ViewChanges(self.store, self.watcher, self.queries, views[0], push, parameters, take)
            return OpenPush(compiled.columns, True, changes.events(self._run, last_event_id))
        reads_all([push.table])
        table = self.topics.table(push.table)
        if table is None:
            self.not_yet(push.table)
            visible = [
                *filter(sees_view, self.queries.view_names()),
                *filter(sees_topic, self.topics.names()),
            ]
            raise no_table(push.statement, push.table, visible)
        compiled = self.queries.check(push.statement, parameters, now_ms, [table])
        topic = TopicChanges(self.topics, self.queries, push, parameters, table, take)
        return OpenPush(compiled.columns, False, topic.events(self._run, _resumed(last_event_id, topic)))

    async def _counted(
        self, push: PushStatement, ready: OpenPush, held: QuotaHold | None
    ) -> AsyncGenerator[SubscriptionEvent, None]:
        """Yield ``columns``, then the events up to the limit, and ``complete`` behind it."""
        left = push.limit
        with self._held(held):
            columns = [{"name": each.name, "type": each.kind} for each in ready.columns]
            yield SubscriptionEvent("columns", None, {"columns": columns})
            async with aclosing(ready.events) as events:
                async for event in events:
                    yield event
                    if left is not None and event.name in ("row", "snapshot", "upsert"):
                        left -= 1
                        if left == 0:
                            yield SubscriptionEvent("complete", None, {"rows": push.limit})
                            return

    @contextmanager
    def _held(self, held: QuotaHold | None) -> Iterator[None]:
        """Count an open push query, in the server and in its caller's share. ``held``: in its quotas."""
        self.open += 1
        try:
            with nullcontext() if self.watcher.shares is None else self.watcher.shares.holding():
                yield
        finally:
            self.open -= 1
            if held is not None:
                held.release()


def _require_keys(view: str) -> None:
    """Raise MaskRefused if the view's keys or some of its rows are hidden: each change names its key, and a
    delete that of a row that may never have been seen."""
    shape = view_visibility(view)
    if shape.rows or shape.closed or shape.key.form != "shown":
        shape.require_open("EMIT CHANGES over a view")


def _resumed(last_event_id: str | None, topic: TopicChanges) -> Positions:
    """Return the positions of an event's id, else those of the start. Raises CallerError."""
    start = topic.starts()
    if not last_event_id:
        return start
    given = Positions.parse(last_event_id)
    if not given or any(tp.topic != topic.table.name for tp, _ in given):
        raise CallerError(
            "Last-Event-ID is not one that this query sent",
            hint="leave it out to begin by EMIT CHANGES FROM",
            code="HUB-1430",
        )
    return Positions({**start.offsets, **given.offsets})
