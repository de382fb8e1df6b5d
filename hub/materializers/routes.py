"""[edge] FastAPI: a view by key, by index and by subscription, served from the store alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
import orjson
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from hub.errors import NotFound, PeerError, nearest
from hub.materializers.push import Watcher, parse_event_id, subscribe
from hub.materializers.query import conditions, limit_of
from hub.materializers.store_reports import stores_of
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql import Store, StoredRow, ViewTable
from hub.materializers.tokens import POSITION_HEADER, row_covers, wanted
from hub.record import Positions

_LONGEST_WAIT_MS = 60_000
# Each asks the store for itself whenever something was applied.
_MOST_SUBSCRIBERS = 1_000
_OWN = ("limit", "after", "timeout_ms")


def create_router(store: Store, watcher: Watcher, query_timeout_ms: int) -> APIRouter:
    """The routes of one store."""
    router = APIRouter(tags=["views"])

    @router.get("/views")
    def views() -> Response:
        """Every view: its state, rows, how fresh it is, and what it is fed from."""
        return _json({"views": [describe(store, name) for name in known_views(store)]})

    @router.get("/views/{view}")
    async def rows(
        view: str, request: Request, hub_position: str | None = Header(None), timeout_ms: int | None = None
    ) -> Response:
        """Rows in key order, filtered on declared indexes: ``?city=Oslo&points.gte=100&limit=50&after=<key>``."""
        table = await anyio.to_thread.run_sync(_table, store, view)
        parameters = [(name, value) for name, value in request.query_params.multi_items() if name not in _OWN]
        types = {name: plain_type(kind) for name, kind in table.types.items()}
        filters = [each.as_tuple() for each in conditions(view, parameters, types, table.indexes)]
        limit = limit_of(request.query_params.get("limit"))
        token = wanted(hub_position, await _topics(store, view), view)
        _, covered = await _wait(store, watcher, view, None, token, _timeout(timeout_ms))
        after = request.query_params.get("after")
        found = await anyio.to_thread.run_sync(store.select, view, filters, limit + 1, after)
        page = [_shown(row) for row in found[:limit]]
        cursor = found[limit - 1].key if len(found) > limit else None
        return _json({"rows": page, "next": cursor}, covered)

    @router.get("/views/{view}/changes")
    async def changes(
        view: str, key: str | None = None, snapshot: bool = True, last_event_id: str | None = Header(None)
    ) -> StreamingResponse:
        """Server-sent events: a snapshot, then every change; resumes after Last-Event-ID."""
        await anyio.to_thread.run_sync(_table, store, view)
        if sum(watcher.subscribers_by_view().values()) >= _MOST_SUBSCRIBERS:
            raise PeerError(
                f"server: {_MOST_SUBSCRIBERS} subscribers follow views already",
                hint="try again later, or ask another server on the same store",
                code="HUB-3052",
            )
        parse_event_id(last_event_id)  # refused with a status, while there is still one to send
        stream = subscribe(store, watcher, view, key=key, last_event_id=last_event_id, snapshot=snapshot)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    @router.get("/views/{view}/{key:path}")
    async def by_key(
        view: str,
        key: str,
        after: str | None = None,
        hub_position: str | None = Header(None),
        timeout_ms: int | None = None,
    ) -> Response:
        """One row. With ``?after=`` (or the header Hub-Position) it includes that write, or answers 503 with the lag.

        The row of the key "changes" is found by ``/views/{view}?key=changes``."""
        token_text = after or hub_position
        token = wanted(token_text, await _topics(store, view) if token_text else frozenset(), view)
        try:
            row, covered = await _wait(store, watcher, view, key, token, _timeout(timeout_ms))
        except NotFound:
            await anyio.to_thread.run_sync(_table, store, view)  # says it with the nearest name
            raise
        if row is None or row.values is None:
            was = "was deleted" if row is not None else "does not exist"
            hint = "deleted rows come back with their next event" if row is not None else None
            body = {"error_code": "HUB-1411", "message": f'view "{view}": key "{key}" {was}', "hint": hint}
            return _json(body, covered, 404)
        return _json(_shown(row), covered)

    def _timeout(timeout_ms: int | None) -> float:
        wait_ms = query_timeout_ms if timeout_ms is None else max(0, timeout_ms)
        return min(wait_ms, _LONGEST_WAIT_MS) / 1000

    return router


async def _wait(
    store: Store, watcher: Watcher, view: str, key: str | None, token: Positions, timeout_s: float
) -> tuple[StoredRow | None, Positions]:
    """The key's row (None without a key) once the store covers the token, and what is covered at that moment.

    Raises PeerError with the lag."""
    deadline = time.monotonic() + timeout_s
    row: StoredRow | None = None
    while True:
        seen = watcher.generation
        if key is not None:
            row, covered = await anyio.to_thread.run_sync(store.read, view, key)
        else:
            covered = await anyio.to_thread.run_sync(store.positions, view, "source")
        sources = row.values.get("_sources") if row is not None and row.values is not None else None
        if covered.covers(token) or row_covers(sources, token):
            return row, covered
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise _behind(view, covered, token)
        await watcher.wait(seen, min(remaining, 1.0))


def _behind(view: str, covered: Positions, token: Positions) -> PeerError:
    missing = covered.behind(token)
    lag = ", ".join(
        f"{tp.topic}:{tp.partition} is at {covered.get(tp)} of {offset} ({offset - covered.get(tp)} to go)"
        for tp, offset in missing
    )
    return PeerError(
        f'view "{view}" does not cover the write yet: {lag}',
        hint="ask again, or with a longer timeout_ms; hub lag tells whether the view is running",
        code="HUB-3050",
    )


def known_views(store: Store) -> list[str]:
    """Views that have a table or have said something about themselves."""
    said = [key.removeprefix("state:") for key in store.progress() if key.startswith("state:")]
    return sorted({*store.views(), *said})


def describe(store: Store, view: str) -> dict[str, Any]:
    """A view as lists show it: engine state, rows, positions, last batch."""
    told = store.progress()
    state: Mapping[str, Any] = told.get(f"state:{view}", {})
    progress: Mapping[str, Any] = told.get(f"progress:{view}", {})
    has_table = view in store.views()
    table = store.view(view) if has_table else None
    return {
        "view": view,
        "doc": state.get("doc", ""),
        "owner": state.get("owner", ""),
        "state": state.get("state", "unknown"),
        "reason": state.get("reason"),
        "since_ms": state.get("since_ms"),
        "sources": state.get("sources", {}),
        "rows": store.count(view) if has_table else 0,
        "fields": list(table.types) if table else [],
        "indexes": list(table.indexes) if table else [],
        "positions": str(store.positions(view, "source")) if has_table else "",
        "last_batch": progress or None,
        "stores": stores_of(told, view),
    }


async def _topics(store: Store, view: str) -> frozenset[str]:
    """The topics that the view reads, as far as it told: those of its last batch, and the patterns of its file."""
    told = await anyio.to_thread.run_sync(store.progress)
    progress: Mapping[str, Any] = told.get(f"progress:{view}", {})
    state: Mapping[str, Any] = told.get(f"state:{view}", {})
    return frozenset({*progress.get("sources", {}), *state.get("sources", {}).values()})


def _table(store: Store, view: str) -> ViewTable:
    """Raises NotFound with the nearest name, PeerError for a view that runs and has no rows yet."""
    try:
        return store.view(view)
    except NotFound as error:
        known = known_views(store)
        if view in known:
            state: Mapping[str, Any] = store.progress().get(f"state:{view}", {})
            raise PeerError(
                f'view "{view}" has no rows yet: it is {state.get("state", "starting")}',
                hint=state.get("reason") or "its first batch makes them",
                code="HUB-3053",
            ) from None
        guess = nearest(view, known)
        hint = f'did you mean "{guess}"?' if guess else "GET /views lists the views"
        raise NotFound(error.message, hint=hint, code="HUB-1410") from None


def _shown(row: StoredRow) -> dict[str, Any]:
    return {"key": row.key, **(row.values or {})}


def _json(body: Any, covered: Positions | None = None, status: int = 200) -> Response:
    headers = {POSITION_HEADER: str(covered)} if covered else None
    return Response(orjson.dumps(body), status, headers, "application/json")
