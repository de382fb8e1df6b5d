"""[edge] FastAPI: SQL over views and recent events, and a project's saved queries.

``POST /query`` returns rows, column types, the positions that the rows cover (Hub-Position, as every read)
and the offsets that were scanned of each topic. Statements run in threads of their own, a few at a time, so a
slow one does not delay reads by key. A statement is stopped when its caller disconnects.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import orjson
from fastapi import APIRouter, Header, Request, Response

from hub.caller import reads_all, sees_view
from hub.errors import CallerError, NotFound, PeerError, nearest
from hub.materializers.progress.view_states import Newest
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.functions.catalog import FUNCTIONS
from hub.materializers.queries.functions.kinds import epoch_ms
from hub.materializers.queries.http.admission import AT_ONCE, WAITING, QueryGate
from hub.materializers.queries.http.answers import answer_response, error_response, listed_columns
from hub.materializers.queries.http.calls import (
    DEFAULT_ROWS,
    LONGEST_MS,
    Format,
    QueryBody,
    QueryCall,
    no_common_snapshot,
    readable,
)
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.relations import Value
from hub.materializers.queries.running import MOST_ROWS, QueryAnswer, RunningQuery
from hub.materializers.queries.saved_queries import SavedQuery, load_queries
from hub.materializers.queries.topic_rows import DEFAULT_EVENTS, MOST_EVENTS, ScannedRange, TopicTables
from hub.materializers.serving.pull_query import only
from hub.materializers.serving.routes import no_rows_yet, wait_for
from hub.materializers.serving.subscriptions import Watcher
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.sql_store import Store
from hub.shares import Shares

_LOOK_S = 0.25
# Poll interval of a query that requires a common snapshot, when no apply is reported.
_CUT_LOOK_S = 0.5
_OWN = ("limit", "after", "timeout_ms", "format", "events", "since", "cut")


@dataclass(frozen=True, slots=True)
class _QueryService:
    """Answers queries over one store and one cluster. ``project`` holds the saved queries."""

    queries: QueryExecutor
    store: Store
    watcher: Watcher
    topics: TopicTables
    project: Path
    query_timeout_ms: int
    newest: Newest
    gate: QueryGate

    async def answer(self, body: QueryBody, request: Request, hub_position: str | None) -> Response:
        try:
            return await self._answer(body, request, hub_position)
        except SqlError as error:
            return error_response(error)

    async def _answer(self, body: QueryBody, request: Request, hub_position: str | None) -> Response:
        started = time.monotonic()
        timeout_ms = self.query_timeout_ms if body.timeout_ms is None else body.timeout_ms
        deadline = started + min(timeout_ms, LONGEST_MS) / 1000
        statement = parse(body.sql)
        since_ms = _since(body.since)
        with self.gate.admitted():
            running = RunningQuery(deadline)
            call = QueryCall(self.queries, self.topics, statement, body, since_ms, running, self._not_yet)
            token = body.after or hub_position
            if token:
                views = await self.gate.run(partial(self.queries.views_of, statement))
                reads_all(views=views)
                await wait_for(self.store, self.watcher, views, token, deadline)
            while True:
                seen = self.watcher.generation
                async with self.gate.slot(deadline):
                    answer, scanned = await _unless_gone(request, call, self.gate)
                if body.cut is None or answer.cut.together:
                    break
                await _until_news(answer.cut, self.watcher, seen, deadline)
        return answer_response(answer, scanned, body.format, round((time.monotonic() - started) * 1000))

    def _not_yet(self, name: str) -> None:
        no_rows_yet(self.store, name, self.newest)


def create_router(
    queries: QueryExecutor,
    store: Store,
    watcher: Watcher,
    topics: TopicTables,
    project: Path,
    query_timeout_ms: int,
    *,
    newest: Newest = dict,
    shares: Shares | None = None,
) -> APIRouter:
    """Return the routes over one store and one cluster. Saved queries are read from ``project`` on each
    request.
    """
    router = APIRouter(tags=["queries"])
    gate = QueryGate(AT_ONCE, WAITING, shares)
    service = _QueryService(queries, store, watcher, topics, project, query_timeout_ms, newest, gate)

    @router.post("/query")
    async def query(body: QueryBody, request: Request, hub_position: str | None = Header(None)) -> Response:
        """SQL over views, and over recent events: ``FROM "nyc.jfk.departures"``. Read-only.

        See docs/reference/sql.md."""
        only(request.query_params, (), "POST /query: its body has the options; the address")
        return await service.answer(body, request, hub_position)

    _add_saved_queries(router, service)
    _add_tables(router, queries, topics)
    return router


def _add_saved_queries(router: APIRouter, service: _QueryService) -> None:
    @router.get("/queries")
    def saved() -> Response:
        """The service.project's saved queries and their parameters."""
        listed = [
            {"query": each.name, "doc": each.doc, "parameters": _parameters(each), "sql": each.sql}
            for each in load_queries(service.project)
            if readable(service.queries.view_names(), each.sql)
        ]
        return Response(orjson.dumps({"queries": listed}), media_type="application/json")

    @router.get("/queries/{name}")
    async def saved_query(
        name: str,
        request: Request,
        limit: int = DEFAULT_ROWS,
        timeout_ms: int | None = None,
        after: str | None = None,
        format: Format = "json",
        events: int = DEFAULT_EVENTS,
        since: str | None = None,
        cut: Literal["required"] | None = None,
        hub_position: str | None = Header(None),
    ) -> Response:
        """Run a saved query; its parameters are the request's: ``/queries/customer?customer_id=C-00001``."""
        found = await anyio.to_thread.run_sync(_saved, service.project, name)
        given = _given(found, request)
        body = QueryBody.model_construct(
            sql=found.sql,
            parameters=given,
            limit=_within("limit", limit, MOST_ROWS),
            timeout_ms=None if timeout_ms is None else _within("timeout_ms", timeout_ms, LONGEST_MS),
            after=after,
            format=format,
            events=_within("events", events, MOST_EVENTS),
            since=since,
            cut=cut,
        )
        return await service.answer(body, request, hub_position)


def _add_tables(router: APIRouter, queries: QueryExecutor, topics: TopicTables) -> None:
    @router.get("/query/tables")
    def tables() -> Response:
        """List the views with their columns, and the supported functions."""
        views = [
            {
                "view": relation.name,
                "columns": listed_columns(relation.columns),
                "hidden": listed_columns(relation.hidden),
                "indexes": list(indexes),
            }
            for relation, indexes in queries.views()
            if sees_view(relation.name)
        ]
        return Response(
            orjson.dumps({"views": views, "functions": list(FUNCTIONS)}), media_type="application/json"
        )

    @router.get("/query/topics/{topic}")
    def topic_table(topic: str) -> Response:
        """A topic's columns as a table."""
        found = topics.table(topic)
        if found is None:
            raise NotFound(f'topic "{topic}" does not exist', hint="GET /topics lists the topics")
        body = {
            "topic": topic,
            "columns": listed_columns(found.columns),
            "hidden": listed_columns(found.hidden),
        }
        return Response(orjson.dumps(body), media_type="application/json")


def _given(query: SavedQuery, request: Request) -> dict[str, Value]:
    """Return the parameters of a saved query in a request. Raises CallerError for a name of an option."""
    own = {key: request.query_params[key] for key in set(_OWN) & set(_parameters(query))}
    if own:
        raise CallerError(
            f'query "{query.name}": a parameter cannot be called "{min(own)}" here',
            hint="give it another name in its file, or send the text to POST /query",
            code="HUB-1454",
        )
    return {key: value for key, value in request.query_params.items() if key not in _OWN}


async def _until_news(found: CommonSnapshot, watcher: Watcher, seen: int, deadline: float) -> None:
    """Wait for an apply after ``seen`` that may bring the views to a common snapshot. ``found``: why there is
    none.

    Raises PeerError with that reason after the deadline, CallerError when there can never be one.
    """
    if found.name is None:
        raise no_common_snapshot(str(found.why))
    await watcher.wait(seen, min(max(0.0, deadline - time.monotonic()), _CUT_LOOK_S))
    if time.monotonic() >= deadline:
        detail = f": {found.detail}" if found.detail and all(map(sees_view, _views(found.views))) else ""
        raise PeerError(
            f"cut: {found.why}{detail}",
            hint="ask again, with a longer timeout_ms, or without cut; hub view ls shows the group",
            code="HUB-3060",
        )


def _views(tables: Iterable[str]) -> set[str]:
    return {table.partition("@")[0] for table in tables}


async def _unless_gone(
    request: Request, asking: QueryCall, gate: QueryGate
) -> tuple[QueryAnswer, list[ScannedRange]]:
    """Return the answer; stop the query when its caller disconnects. Holds the slot until the query has
    ended.
    """
    done = threading.Event()

    async def watch() -> None:
        while not done.is_set():
            if await request.is_disconnected():
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


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return epoch_ms(text)
    except (ValueError, OverflowError):
        raise CallerError(
            f'since "{text[:40]}" is not a time',
            hint="ISO 8601, such as 2026-01-31T12:00:00Z",
            code="HUB-1423",
        ) from None


def _saved(project: Path, name: str) -> SavedQuery:
    known = {each.name: each for each in load_queries(project)}
    if name not in known:
        guess = nearest(name, known)
        raise NotFound(
            f'query "{name}" does not exist',
            hint=f'did you mean "{guess}"?'
            if guess
            else "GET /queries lists them; they are files queries/*.sql",
            code="HUB-1453",
        )
    return known[name]


def _parameters(query: SavedQuery) -> list[str]:
    try:
        return placeholders(parse(query.sql))
    except SqlError:
        return []


def _within(name: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise CallerError(f"{name} {value} is not between 1 and {most}", code="HUB-1424")
    return value
