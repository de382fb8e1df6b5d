"""[edge] FastAPI: the history of one row, and its difference between two times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio.to_thread
import orjson
from fastapi import APIRouter, Request, Response

from hub.caller import seen_view
from hub.errors import CallerError
from hub.masking.shape import SeenShape
from hub.materializers.history.changes import field_changes
from hub.materializers.history.periods import answerable, time_of
from hub.materializers.history.timeline import Cursor
from hub.materializers.progress.view_states import Newest
from hub.materializers.serving.history.answers import change_body
from hub.materializers.serving.history.as_of import require_reached, row_as_of
from hub.materializers.serving.history.events import EventReader, Messages
from hub.materializers.serving.pull_query import limit_of, only
from hub.materializers.stores.sql_store import Store
from hub.times import epoch_ms, iso

MOST_CHANGES = 100
# Events that one answer reads from the log.
_MOST_EVENTS = 100


def create_router(store: Store, newest: Newest, messages: Messages) -> APIRouter:
    """Return the routes. ``messages`` reads events as the caller sees them. Comes before the route of keys,
    which may have any characters."""
    router = APIRouter(tags=["views"])
    routes = _HistoryRoutes(store, newest, messages)
    router.get("/views/{view}/{key:path}/history")(routes.history)
    router.get("/views/{view}/{key:path}/diff")(routes.diff)
    return router


@dataclass(frozen=True, slots=True)
class _HistoryRoutes:
    store: Store
    newest: Newest
    messages: Messages

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
        work = partial(self._history, view, key, (from_ms, to_ms), after, limit, reads=reads)
        return _json(await anyio.to_thread.run_sync(work))

    def _history(
        self, view: str, key: str, span: tuple[int, int], after: Cursor | None, limit: int, *, reads: bool
    ) -> dict[str, Any]:
        shape = shape_by_key(view)
        now = epoch_ms()
        require_reached(self.store, view, span[1] if span[1] < now - 1_000 else 0, self.newest)
        changes = self.store.history.timeline(view, key, span[1], now, after, limit + 1)
        changes = [each for each in changes if each.at_ms >= span[0] or each.kind == "known"]
        reader = EventReader(self.messages, _MOST_EVENTS if reads else 0)
        page = changes[:limit]
        bodies = [change_body(each, key, shape, lambda at: reader.shown(at).as_json()) for each in page]
        kept = answerable(self.store.history.periods(view), now)
        return {
            "view": view,
            "key": key,
            "kept_from": iso(min(each.begins_ms(now) for each in kept)) if kept else None,
            "changes": [each for each in bodies if each is not None],
            "next": page[-1].cursor if len(changes) > limit else None,
        }

    async def diff(self, view: str, key: str, request: Request) -> Response:
        """Fields of a row that differ between two times: ``from`` and ``to`` (now, if it is left out)."""
        query = request.query_params
        only(query, ("from", "to"), "GET /views/{view}/{key}/diff")
        if not query.get("from"):
            raise CallerError(
                f'view "{view}": a diff needs `from`', hint="?from=2026-01-31T14:03:00Z&to=…", code="HUB-1002"
            )
        work = partial(self._diff, view, key, query["from"], query.get("to") or iso(epoch_ms()))
        return _json(await anyio.to_thread.run_sync(work))

    def _diff(self, view: str, key: str, begin: str, end: str) -> dict[str, Any]:
        shape = shape_by_key(view)
        rows = []
        for text in (begin, end):
            row = row_as_of(self.store, view, key, text, self.newest)
            values = None if row is None else row.values
            if values is not None and shape.rows and not shape.admits({"key": key, **values}):
                values = None
            if values is not None:
                shape.refused_columns(values)
                values = values if shape.is_open else shape.row(values)
            rows.append(values)
        old, new = rows
        return {
            "view": view,
            "key": key,
            "from": begin,
            "to": end,
            "existed": old is not None,
            "exists": new is not None,
            "changes": [each.as_json() for each in field_changes(old, new)],
        }


def shape_by_key(view: str) -> SeenShape:
    """Return what the caller sees of a view whose rows are read by their keys. Raises MaskRefused."""
    shape = seen_view(view)
    shape.require("GET by key")
    shape.refuse_columns(["key"], "look up by")
    return shape


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
