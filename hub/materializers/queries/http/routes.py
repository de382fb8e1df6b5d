"""[edge] FastAPI: SQL over views and recent events, and a project's saved queries.

``POST /query`` returns rows, column types, the positions that the rows cover (Hub-Position, as every read)
and the offsets that were scanned of each topic. Statements run in threads of their own, a few at a time, so a
slow one does not delay reads by key. A statement is stopped when its caller disconnects.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import orjson
from fastapi import APIRouter, Header, Request, Response

from hub.caller import sees_view
from hub.errors import CallerError, NotFound, did_you_mean
from hub.materializers.queries.answering.calls import (
    DEFAULT_ROWS,
    LONGEST_MS,
    MOST_ARROW_ROWS,
    Format,
    QueryBody,
)
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.functions.catalog import FUNCTIONS
from hub.materializers.queries.http.answers import answer_response, error_response, listed_columns
from hub.materializers.queries.http.arrow import ArrowStream
from hub.materializers.queries.http.push_routes import add_push_queries
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.relations import Value
from hub.materializers.queries.running import MOST_ROWS, take_rows
from hub.materializers.queries.saved_queries import SavedQuery, load_queries, readable
from hub.materializers.queries.topic_rows import DEFAULT_EVENTS, MOST_EVENTS, TopicTables
from hub.materializers.serving.pull_query import only

_OWN = ("limit", "after", "timeout_ms", "format", "events", "since", "before", "cut")


@dataclass(frozen=True, slots=True)
class _HttpQueries:
    """Answers queries of requests: an error of the statement has its place in the body."""

    service: QueryService

    async def answer(self, body: QueryBody, request: Request, hub_position: str | None) -> Response:
        started = time.monotonic()
        stream = ArrowStream() if body.format == "arrow" else None
        take = take_rows if stream is None else stream.take
        try:
            answer, scanned = await self.service.answer(
                body, request.is_disconnected, token=hub_position, take=take
            )
        except BaseException as error:
            if stream is not None:
                stream.close()
            if isinstance(error, SqlError):
                return error_response(error)
            raise
        elapsed_ms = round((time.monotonic() - started) * 1000)
        return answer_response(answer, scanned, body.format, elapsed_ms, stream)


def create_router(service: QueryService) -> APIRouter:
    """Return the routes of a query service. Saved queries are read from its project on each request."""
    router = APIRouter(tags=["queries"])
    queries = _HttpQueries(service)

    @router.post("/query")
    async def query(body: QueryBody, request: Request, hub_position: str | None = Header(None)) -> Response:
        """SQL over views, and over recent events: ``FROM "nyc.jfk.departures"``. Read-only.

        See docs/reference/sql.md."""
        only(request.query_params, (), "POST /query: its body has the options; the address")
        return await queries.answer(body, request, hub_position)

    add_push_queries(router, service)
    _add_saved_queries(router, queries)
    _add_tables(router, service.queries, service.topics)
    return router


def _add_saved_queries(router: APIRouter, queries: _HttpQueries) -> None:
    service = queries.service

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
        events: int | Literal["all"] = DEFAULT_EVENTS,
        since: str | None = None,
        before: str | None = None,
        cut: Literal["required"] | None = None,
        hub_position: str | None = Header(None),
    ) -> Response:
        """Run a saved query; its parameters are the request's: ``/queries/customer?customer_id=C-00001``."""
        found = await anyio.to_thread.run_sync(_saved, service.project, name)
        given = _given(found, request)
        body = QueryBody.model_construct(
            sql=found.sql,
            parameters=given,
            limit=_within("limit", limit, MOST_ARROW_ROWS if format == "arrow" else MOST_ROWS),
            timeout_ms=None if timeout_ms is None else _within("timeout_ms", timeout_ms, LONGEST_MS),
            after=after,
            format=format,
            events=events if events == "all" else _within("events", events, MOST_EVENTS),
            since=since,
            before=before,
            cut=cut,
        )
        return await queries.answer(body, request, hub_position)


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


def _saved(project: Path, name: str) -> SavedQuery:
    known = {each.name: each for each in load_queries(project)}
    if name not in known:
        raise NotFound(
            f'query "{name}" does not exist',
            hint=did_you_mean(name, known, "GET /queries lists them; they are files queries/*.sql"),
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
