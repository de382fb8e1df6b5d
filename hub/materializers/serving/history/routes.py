"""[edge] FastAPI: the history of one row, and its difference between two times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio.to_thread
import orjson
from fastapi import APIRouter, Request, Response

from hub.errors import CallerError
from hub.materializers.history.periods import time_of
from hub.materializers.history.timeline import Cursor
from hub.materializers.serving.history.answering import RowsOfThePast
from hub.materializers.serving.pull_query import limit_of, only
from hub.times import epoch_ms, iso

MOST_CHANGES = 100


def create_router(past: RowsOfThePast) -> APIRouter:
    """Return the routes. They come before the route of keys, which may have any characters."""
    router = APIRouter(tags=["views"])
    routes = _HistoryRoutes(past)
    router.get("/views/{view}/{key:path}/history")(routes.history)
    router.get("/views/{view}/{key:path}/diff")(routes.diff)
    return router


@dataclass(frozen=True, slots=True)
class _HistoryRoutes:
    past: RowsOfThePast

    async def history(self, view: str, key: str, request: Request) -> Response:
        """Changes of a row, the newest first: fields with old and new values, and the events that made each.

        ``from`` and ``to`` bound the times, ``limit`` the changes (20, at most 100); ``after=<next>`` begins
        the next page. ``events``: ``exact``, these events made the change; ``within``, all its events are
        between the positions ``after`` and ``up_to``; ``unknown``. Needs ``history:`` in the view's file.
        """
        query = request.query_params
        only(query, ("from", "to", "limit", "after", "events"), "GET /views/{view}/{key}/history")
        limit = limit_of(query.get("limit") or "20", MOST_CHANGES)
        after = Cursor.parse(query["after"]) if query.get("after") else None
        now = epoch_ms()
        from_ms = time_of("from", query["from"]) if query.get("from") else 0
        to_ms = min(now, time_of("to", query["to"])) if query.get("to") else now
        reads = query.get("events") != "false"
        work = partial(self.past.history, view, key, (from_ms, to_ms), after, limit, reads=reads)
        return _json(await anyio.to_thread.run_sync(work))

    async def diff(self, view: str, key: str, request: Request) -> Response:
        """Fields of a row that differ between two times: ``from`` and ``to`` (now, if it is left out)."""
        query = request.query_params
        only(query, ("from", "to"), "GET /views/{view}/{key}/diff")
        if not query.get("from"):
            raise CallerError(
                f'view "{view}": a diff needs `from`', hint="?from=2026-01-31T14:03:00Z&to=…", code="HUB-1002"
            )
        work = partial(self.past.diff, view, key, query["from"], query.get("to") or iso(epoch_ms()))
        return _json(await anyio.to_thread.run_sync(work))


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
