"""[edge] FastAPI: push queries as server-sent events, lines of JSON, or WebSocket messages.

``GET /query/changes?sql=SELECT … EMIT CHANGES`` is a GET, and not a POST, because the guard ends the streams
of GET requests when their caller loses access. Other parameters of the address are those of the statement.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Header, Query, Request, Response, WebSocket
from starlette.datastructures import QueryParams

from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.http.answers import error_response
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.push.service import OpenPush
from hub.materializers.queries.push.statement import CODE, push_statement
from hub.materializers.serving.subscription_transport import JsonLines, ServerSentEvents, over_websocket

_OWN = ("sql", "format", "last_event_id")
LONGEST_SQL = 20_000


def add_push_queries(router: APIRouter, service: QueryService) -> None:
    """Add the routes of push queries."""

    async def opened(sql: str, query: QueryParams, last: str | None) -> OpenPush:
        push = push_statement(sql)
        if push is None:
            raise SqlError(
                "the statement is not a push query",
                hint="end it with EMIT CHANGES; POST /query answers all others",
                code=CODE,
            )
        given = {name: value for name, value in query.items() if name not in _OWN}
        return await service.push.opened(push, given, last)

    @router.get("/query/changes")
    async def changes(
        request: Request,
        sql: str = Query(min_length=1, max_length=LONGEST_SQL),
        format: Literal["sse", "ndjson"] = "sse",
        last_event_id: str | None = Query(None),
        last_event_id_header: str | None = Header(None, alias="Last-Event-ID"),
    ) -> Response:
        """Rows of a push query without end: ``SELECT … FROM topic|view [WHERE …] EMIT CHANGES [LIMIT n]``.

        Resumes after Last-Event-ID. A WebSocket on the same path receives the same events as messages."""
        try:
            push = await opened(sql, request.query_params, last_event_id_header or last_event_id)
        except SqlError as error:
            return error_response(error)
        return ServerSentEvents(push.events) if format == "sse" else JsonLines(push.events)

    @router.websocket("/query/changes")
    async def changes_over_websocket(
        socket: WebSocket,
        sql: str = Query(min_length=1, max_length=LONGEST_SQL),
        last_event_id: str | None = None,
    ) -> None:
        """Send a push query's events as JSON messages ``{"event", "id", "data"}``."""
        last = last_event_id or socket.headers.get("last-event-id")
        push = await opened(sql, socket.query_params, last)
        await over_websocket(socket, push.events)
