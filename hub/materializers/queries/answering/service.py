"""[shell] The query service: admission, tokens, cuts, slots and cancellation around one call.

HTTP and Postgres' protocol ask through it, so both have the same grants, limits and errors.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hub.access_log.actions import LoggedAction
from hub.access_log.request import log_change, note_sql
from hub.caller import reads_all, sees_view
from hub.errors import CallerError, PeerError
from hub.materializers.progress.view_states import Newest
from hub.materializers.queries.answering.admission import AT_ONCE, WAITING, QueryGate
from hub.materializers.queries.answering.calls import (
    LONGEST_MS,
    QueryBody,
    QueryCall,
    compiled_query,
    no_common_snapshot,
)
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import tables_of, times_of
from hub.materializers.queries.parser import ParsedStatement, parse, without_literals
from hub.materializers.queries.push.service import PushQueries
from hub.materializers.queries.running import QueryAnswer, RunningQuery, TakeRows, take_rows
from hub.materializers.queries.statements.answers import HubLists
from hub.materializers.queries.statements.changes import ProjectViews
from hub.materializers.queries.statements.grammar import CreateView, DropView, hub_statement
from hub.materializers.queries.statements.service import Statements
from hub.materializers.queries.topic_rows import ScannedRange, TopicTables
from hub.materializers.serving.descriptions import no_rows_yet
from hub.materializers.serving.history.as_of import require_reached
from hub.materializers.serving.read_your_writes import CatchingUp
from hub.materializers.serving.token_waits import wait_for
from hub.materializers.serving.watcher import Watcher
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.sql_store import Store
from hub.quotas.kinds import Quota
from hub.quotas.shares import Shares
from hub.quotas.spending import spend, timed
from hub.record import Positions
from hub.times import epoch_ms, parse_iso

_LOOK_S = 0.25
# Poll interval of a query that requires a common snapshot, when no apply is reported.
_CUT_LOOK_S = 0.5
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class QueryService:
    """Answers queries over one store and one cluster. ``project`` holds the saved queries."""

    queries: QueryExecutor
    store: Store
    watcher: Watcher
    topics: TopicTables
    project: Path
    query_timeout_ms: int
    newest: Newest
    gate: QueryGate
    push: PushQueries
    statements: Statements
    catching_up: CatchingUp = lambda _: ()

    @staticmethod
    def of(
        store: Store,
        watcher: Watcher,
        queries: QueryExecutor,
        topics: TopicTables,
        project: Path,
        query_timeout_ms: int,
        *,
        newest: Newest = dict,
        catching_up: CatchingUp = lambda _: (),
        shares: Shares | None = None,
        stores: Collection[str] = (),
        changes_views: bool = True,
    ) -> QueryService:
        """Return a service with an admission control of its own.

        ``stores``: names of the project's stores. ``changes_views``: CREATE and DROP change the project's
        files.
        """
        gate = QueryGate(AT_ONCE, WAITING, shares)
        not_yet = partial(no_rows_yet, store, newest=newest)
        push = PushQueries(store, watcher, queries, topics, not_yet)
        statements = Statements(
            ProjectViews(project, stores, topics, changes_views),
            HubLists(store, queries, topics, project, newest, partial(compiled_query, queries, topics)),
        )
        return QueryService(
            *(queries, store, watcher, topics, project, query_timeout_ms, newest, gate, push, statements),
            catching_up,
        )

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline (time.monotonic) of a query that starts now."""
        timeout = self.query_timeout_ms if timeout_ms is None else timeout_ms
        return time.monotonic() + min(timeout, LONGEST_MS) / 1000

    async def answer(
        self,
        body: QueryBody,
        gone: Gone,
        *,
        token: str | None = None,
        statement: ParsedStatement | None = None,
        running: RunningQuery | None = None,
        take: TakeRows = take_rows,
    ) -> tuple[QueryAnswer, list[ScannedRange]]:
        """Return the answer and the offsets that were scanned. Raises SqlError, PeerError, Forbidden.

        ``token``: a position that the answer must include. ``gone`` is polled; when it returns True, the
        query is stopped. ``take`` receives the rows of the database.
        """
        if statement is None and (found := hub_statement(body.sql)) is not None:
            note_sql(lambda: without_literals(body.sql), ())
            spend(Quota.queries)
            with self.gate.admitted():
                if isinstance(found, CreateView | DropView):
                    await log_change(LoggedAction.view_change, "view", found.name)
                statement_rows = await self.statements.answer(found, self.gate.run)
            rows, more = take(
                statement_rows.rows, statement_rows.columns, RunningQuery(self.deadline(None)), body.limit
            )
            return QueryAnswer(statement_rows.columns, rows, more, (), Positions()), []
        running = running or RunningQuery(self.deadline(body.timeout_ms))
        deadline = running.deadline
        statement = statement or parse(body.sql)
        tables = tables_of(statement)
        note_sql(lambda: without_literals(statement.text, statement.tokens), tables)
        spend(Quota.sql_seconds, 0, tables=tables)
        spend(Quota.queries, tables=tables)
        since_ms = since_of_text(body.since)
        with self.gate.admitted():
            call = QueryCall(
                self.queries, self.topics, statement, body, since_ms, running, self.not_yet, take
            )
            await self._reach(statement, body, token, deadline)
            while True:
                generation = self.watcher.generation
                async with self.gate.slot(deadline):
                    with timed(Quota.sql_seconds, tables=tables):
                        answer, scanned = await _unless_gone(gone, call, self.gate)
                if body.cut is None or answer.cut.together:
                    behind = await self.gate.run(partial(self.catching_up, answer.views))
                    return replace(answer, catching_up=behind), scanned
                await _until_news(answer.cut, self.watcher, generation, deadline)

    async def _reach(
        self, statement: ParsedStatement, body: QueryBody, token: str | None, deadline: float
    ) -> None:
        """Wait until the store has the position that the answer must include. Raises PeerError after the
        deadline, and if the store may lack changes at a past time that the query reads."""
        if token := body.after or token:
            views = await self.gate.run(partial(self.queries.views_of, statement))
            reads_all(views=views)
            await wait_for(self.store, self.watcher, views, token, deadline)
        if times := times_of(statement, body.parameters, epoch_ms()):
            await self.gate.run(partial(self._require_times, times))

    def _require_times(self, times: Iterable[tuple[str, int]]) -> None:
        """Raise PeerError if the store may lack changes of a view at a time that the query reads. Blocks."""
        known = set(filter(sees_view, self.queries.view_names()))
        for name, at_ms in times:
            view = name if name in known else name.lower()
            if view in known:
                require_reached(self.store, view, at_ms, self.newest)

    def not_yet(self, name: str) -> None:
        """Raise PeerError for a view that has no table yet."""
        no_rows_yet(self.store, name, self.newest)


async def _until_news(snapshot: CommonSnapshot, watcher: Watcher, generation: int, deadline: float) -> None:
    """Wait for an apply after ``generation`` that may bring the views to a common snapshot. ``snapshot``: why
    there is none.

    Raises PeerError with that reason after the deadline, CallerError when there can never be one.
    """
    if snapshot.name is None:
        raise no_common_snapshot(str(snapshot.why))
    await watcher.wait(generation, min(max(0.0, deadline - time.monotonic()), _CUT_LOOK_S))
    if time.monotonic() >= deadline:
        detail = (
            f": {snapshot.detail}" if snapshot.detail and all(map(sees_view, _views(snapshot.views))) else ""
        )
        raise PeerError(
            f"cut: {snapshot.why}{detail}",
            hint="ask again, with a longer timeout_ms, or without cut; hub view ls shows the group",
            code="HUB-3060",
        )


def _views(tables: Iterable[str]) -> set[str]:
    return {table.partition("@")[0] for table in tables}


async def _unless_gone(
    gone: Gone, asking: QueryCall, gate: QueryGate
) -> tuple[QueryAnswer, list[ScannedRange]]:
    """Return the answer; stop the query when its caller disconnects. Holds the slot until the query has
    ended.
    """
    done = threading.Event()

    async def watch() -> None:
        while not done.is_set():
            if await gone():
                asking.running.cancel()
                return
            await asyncio.sleep(_LOOK_S)

    watching = asyncio.create_task(watch())
    try:
        return await gate.run(asking.run)
    except asyncio.CancelledError:
        asking.running.cancel()
        raise
    finally:
        done.set()
        watching.cancel()


def since_of_text(text: str | None) -> int | None:
    """Return epoch milliseconds of ``since``. Raises CallerError."""
    if text is None:
        return None
    try:
        return parse_iso(text)
    except ValueError:
        raise CallerError(
            f'since "{text[:40]}" is not a time',
            hint="ISO 8601, such as 2026-01-31T12:00:00Z",
            code="HUB-1423",
        ) from None
