"""[edge] FastAPI: a view by key, by index and by subscription (server-sent events, WebSocket),
from the store alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio.to_thread
import orjson
from fastapi import APIRouter, Header, Query, Request, Response, WebSocket
from starlette.datastructures import QueryParams

from hub.caller import CALLER, sees_view, shows_keys, view_visibility
from hub.errors import CallerError, NotFound, PeerError, did_you_mean
from hub.masking.shape import OPEN, Visibility
from hub.materializers.progress.view_states import Newest
from hub.materializers.serving.descriptions import describe, known_views, no_rows_yet
from hub.materializers.serving.history.as_of import as_of_time, no_row, row_as_of, rows_as_of
from hub.materializers.serving.pull_query import (
    Condition,
    Order,
    after_of,
    conditions,
    cursor_of,
    fields_of,
    limit_of,
    next_of,
    only,
    order_of,
    parse_cursor,
)
from hub.materializers.serving.read_your_writes import CATCHING_UP_HEADER, POSITION_HEADER, CatchingUp, wanted
from hub.materializers.serving.row_counts import RowCounts
from hub.materializers.serving.searching.search import QUERY, Search, is_search, run_search, search_of
from hub.materializers.serving.subscription_events import (
    SubscriptionEvent,
    SubscriptionRequest,
    parse_event_id,
)
from hub.materializers.serving.subscription_transport import ServerSentEvents, over_websocket
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.token_waits import covering, topics_of
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql.queries import Filter
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql.text_search import FoundRow
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.materializers.verification.verification_status import rows_of
from hub.quotas.shares import Shares
from hub.record import Positions
from hub.times import epoch_ms

_LONGEST_WAIT_MS = 60_000
# Limit of subscribers: each one queries the store after every apply.
_MOST_SUBSCRIBERS = 1_000
_OWN = ("limit", "after", "timeout_ms", "order", "fields", "as_of")
_OWN_OF_KEY = ("after", "timeout_ms", "fields", "as_of")
_OWN_OF_CHANGES = ("snapshot", "covered", "last_event_id")


def create_router(
    store: Store,
    watcher: Watcher,
    query_timeout_ms: int,
    newest: Newest = dict,
    *,
    catching_up: CatchingUp = lambda _: (),
    shares: Shares | None = None,
    search_timeout_s: float = 10.0,
) -> APIRouter:
    """Return the routes of one store. ``newest``: merges its progress records with newer ones of the log.

    ``shares``: of subscriptions. ``search_timeout_s``: time limit of a text search.
    """
    router = APIRouter(tags=["views"])
    routes = _Routes(
        store, watcher, query_timeout_ms, newest, catching_up, shares, RowCounts(store), search_timeout_s
    )
    router.get("/views")(routes.views)
    router.get("/api/audit/views")(routes.audits)
    router.get("/views/{view}")(routes.rows)
    router.get("/views/{view}/changes")(routes.changes)
    router.websocket("/views/{view}/changes")(routes.changes_over_websocket)
    router.get("/views/{view}/{key:path}")(routes.by_key)
    return router


@dataclass(frozen=True, slots=True)
class _Routes:
    """The handlers of one store's routes; the fields are the arguments of ``create_router``."""

    store: Store
    watcher: Watcher
    query_timeout_ms: int
    newest: Newest
    catching_up: CatchingUp
    shares: Shares | None
    counts: RowCounts
    search_timeout_s: float

    def views(self) -> Response:
        """List every view with its state, rows, freshness and sources."""
        records = self.newest(self.store.progress())
        return _json(
            {
                "views": [
                    describe(self.counts, name, records)
                    for name in known_views(self.store, records)
                    if sees_view(name)
                ]
            }
        )

    def audits(self) -> Response:
        """Show for every view and store whether its rows are the fold of its changelog, differences first.
        Differing keys are shown only to callers who may read the view."""
        records = self.newest(self.store.progress())
        return _json({"views": rows_of(records, epoch_ms(), sees_view, shows_keys)})

    async def rows(
        self,
        view: str,
        request: Request,
        hub_position: str | None = Header(None),
        timeout_ms: int | None = None,
    ) -> Response:
        """Rows in key order, filtered on declared indexes:
        ``?city=Oslo&points.gte=100&limit=50&after=<next>``.

        ``order=city,-points`` sorts by declared indexes, ``fields=name,city`` shows these; ``next`` begins
        the next page. ``q=words`` searches the view's text index: the best rows first, each with
        ``_score`` and ``_highlights``. With ``after=<position token>`` (or the header Hub-Position) the
        first page has that write, or the answer is 503 with the lag. The header Hub-Catching-Up names the
        view while it reads a backlog of its topics: rows of later events are missing. ``as_of=<time>``: the
        rows of that time, of a view with ``history``.
        """
        table = await self._table(view)
        types = _types(table)
        searched = is_search(table, request.query_params)
        own = (*_OWN, QUERY) if searched else _OWN
        filters = [each.as_tuple() for each in _filters(table, request.query_params, own)]
        shape = await anyio.to_thread.run_sync(view_visibility, view)
        limit = limit_of(request.query_params.get("limit"))
        order = order_of(view, request.query_params.get("order"), types, table.indexes)
        fields = fields_of(view, request.query_params.get("fields"), types)
        _require_listed(shape, [each for each, _, _ in filters], [each.column for each in order])
        shape.refused_columns(types if fields is None else fields)
        filters += shape.conditions(types)
        text = request.query_params.get("after")
        after, written = after_of(text)
        page_at = None if written else text
        search = search_of(table, request.query_params, page_at, shape) if searched else None
        place = parse_cursor(view, page_at, order) if order else None
        token = wanted(written or hub_position, await topics_of(self.store, view), view)
        _, covered = await covering(self.store, self.watcher, view, None, token, self._timeout(timeout_ms))
        if search is not None:
            hits, cursor = await anyio.to_thread.run_sync(
                run_search, self.store, search, filters, limit, self.search_timeout_s
            )
            page = [_found(each, search, fields, shape) for each in hits]
        else:
            at_ms = await self._as_of(view, request.query_params.get("as_of"))
            found, cursor = await self._listed(view, filters, limit, order, place, after, at_ms)
            page = [_shown(row, fields, shape) for row in found]
        answer = _json({"rows": page, "next": cursor}, covered)
        if behind := await anyio.to_thread.run_sync(self.catching_up, (view,)):
            answer.headers[CATCHING_UP_HEADER] = ",".join(behind)
        return answer

    async def _listed(
        self,
        view: str,
        filters: Sequence[Filter],
        limit: int,
        order: Sequence[Order],
        place: Sequence[Any] | None,
        after: str | None,
        at_ms: int | None,
    ) -> tuple[Sequence[RowVersion], str | None]:
        """Return a page in the order, or in that of the keys, and the cursor of the next one. ``at_ms``: its
        rows as of a time; None: as they are now."""
        read = anyio.to_thread.run_sync
        cursor: str | None
        sorting = [(each.column, each.descending) for each in order]
        if at_ms is not None:
            where = place if order else after
            pairs = await read(rows_as_of, self.store, view, at_ms, filters, limit + 1, sorting, where)
        elif order:
            pairs = await read(self.store.ordered, view, filters, limit + 1, sorting, place)
        else:
            rows = await read(self.store.select, view, filters, limit + 1, after)
            pairs = [(row, (row.key,)) for row in rows]
        cursor = None
        if len(pairs) > limit:
            row, ended = pairs[limit - 1]
            cursor = cursor_of(order, ended) if order else next_of(row.key)
        return [row for row, _ in pairs[:limit]], cursor

    async def _as_of(self, view: str, text: str | None) -> int | None:
        if text is None:
            return None
        return await anyio.to_thread.run_sync(as_of_time, self.store, view, text, self.newest)

    async def _table(self, view: str) -> ViewTable:
        return await anyio.to_thread.run_sync(_table, self.store, view, self.newest)

    async def _opened(
        self, view: str, query: QueryParams, snapshot: bool, covered: bool, last: str | None
    ) -> AsyncGenerator[SubscriptionEvent, None]:
        """Open a subscription; raises its errors before the response begins, while a status can still be
        sent.
        """
        table = await self._table(view)
        if self.shares is not None:
            self.shares.require()
        if sum(self.watcher.subscribers_by_view().values()) >= _MOST_SUBSCRIBERS:
            raise PeerError(
                f"server: {_MOST_SUBSCRIBERS} subscribers follow views already",
                hint="try again later, or ask another server on the same store",
                code="HUB-3052",
            )
        parse_event_id(last)
        filters = tuple(_filters(table, query, _OWN_OF_CHANGES))
        request = await anyio.to_thread.run_sync(_request, table, filters, snapshot, covered)
        events = subscribe(self.store, self.watcher, request, last)
        return events if self.shares is None else _counted(events, self.shares)

    async def changes(
        self,
        view: str,
        request: Request,
        snapshot: bool = True,
        covered: bool = False,
        last_event_id: str | None = Query(None),
        last_event_id_header: str | None = Header(None, alias="Last-Event-ID"),
    ) -> ServerSentEvents:
        """Server-sent events: a snapshot, then every change; resumes after Last-Event-ID. Filtered as a query
        is:
        ``?key=C-1``, ``?city=Oslo&points.gte=100``. A WebSocket on the same path receives the same events."""
        last = last_event_id_header or last_event_id
        return ServerSentEvents(await self._opened(view, request.query_params, snapshot, covered, last))

    async def changes_over_websocket(
        self,
        socket: WebSocket,
        view: str,
        snapshot: bool = True,
        covered: bool = False,
        last_event_id: str | None = None,
    ) -> None:
        """Send changes as JSON messages ``{"event", "id", "data"}``."""
        last = last_event_id or socket.headers.get("last-event-id")
        await over_websocket(socket, await self._opened(view, socket.query_params, snapshot, covered, last))

    async def by_key(
        self,
        view: str,
        key: str,
        request: Request,
        after: str | None = None,
        fields: str | None = None,
        hub_position: str | None = Header(None),
        timeout_ms: int | None = None,
        as_of: str | None = None,
    ) -> Response:
        """One row, of it the ``fields``. With ``?after=`` (or the header Hub-Position) it includes that
        write, or answers 503 with the lag. ``as_of=<time>``: the row of that time, of a view with
        ``history``; with a position token, as the write made it.

        The row of the key "changes" is found by ``/views/{view}?key=changes``."""
        only(request.query_params, _OWN_OF_KEY, f"GET /views/{view}/{{key}}")
        shape = await anyio.to_thread.run_sync(view_visibility, view)
        shape.require("GET by key")
        shape.refuse_columns(["key"], "look up by")
        token_text = after or hub_position
        token = wanted(token_text, await topics_of(self.store, view) if token_text else frozenset(), view)
        limit_s = self._timeout(timeout_ms)
        try:
            row, covered = await covering(self.store, self.watcher, view, key, token, limit_s)
        except NotFound:
            await self._table(view)  # raises with the nearest name
            raise
        if as_of is not None:
            row = await anyio.to_thread.run_sync(row_as_of, self.store, view, key, as_of, self.newest)
        if row is not None and shape.rows and not shape.admits({"key": row.key, **(row.values or {})}):
            row = None  # as if it were not there
        if row is None or row.values is None:
            return _json(no_row(view, key, row, as_of), covered, 404)
        if fields is None:
            shape.refused_columns(row.values)
            return _json(_shown(row, None, shape), covered)
        table = await anyio.to_thread.run_sync(_table, self.store, view)
        wanted_fields = fields_of(view, fields, _types(table))
        shape.refused_columns(wanted_fields or ())
        return _json(_shown(row, wanted_fields, shape), covered)

    def _timeout(self, timeout_ms: int | None) -> float:
        wait_ms = self.query_timeout_ms if timeout_ms is None else max(0, timeout_ms)
        return min(wait_ms, _LONGEST_WAIT_MS) / 1000


async def _counted(
    events: AsyncGenerator[SubscriptionEvent, None], shares: Shares
) -> AsyncGenerator[SubscriptionEvent, None]:
    """Yield the events, and count the subscription to its caller's share meanwhile."""
    with shares.holding():
        async with aclosing(events):
            async for event in events:
                yield event


def _require_listed(shape: Visibility, filters: Sequence[str], order: Sequence[str]) -> None:
    """Raise MaskRefused if rows are listed by their keys, and these are masked, or by another masked field.

    Pages and subscriptions follow the stored values, so their order and extent would tell these.
    """
    shape.require("GET of rows")
    shape.refuse_columns(["key"], "list rows by")
    shape.refuse_columns(filters, "filter by")
    shape.refuse_columns(order, "sort by")


def _request(
    table: ViewTable, filters: tuple[Condition, ...], snapshot: bool, covered: bool
) -> SubscriptionRequest:
    """Return the request of a subscriber with its shape. Raises MaskRefused, CallerError."""
    view, shape = table.name, view_visibility(table.name)
    _require_listed(shape, [each.column for each in filters], ())
    shape.refused_columns(table.types)
    rows = tuple(shape.conditions(_types(table)))
    if rows and not snapshot:
        raise CallerError(
            f'view "{view}": rows are limited for you, so changes begin with a snapshot',
            hint="leave out snapshot=false",
            code="HUB-1723",
        )
    caller = CALLER.get()
    look = partial(view_visibility, view) if caller is not None and caller.is_masked else None
    return SubscriptionRequest(view, filters, snapshot, covered, shape, rows, look)


def _filters(table: ViewTable, query: QueryParams, own: tuple[str, ...]) -> list[Condition]:
    """Return the conditions of a request: every parameter that is not a route's own. Raises CallerError."""
    parameters = [(name, value) for name, value in query.multi_items() if name not in own]
    return conditions(table.name, parameters, _types(table), table.indexes)


def _types(table: ViewTable) -> dict[str, str]:
    return {name: plain_type(kind) for name, kind in table.types.items()}


def _table(store: Store, view: str, newest: Newest = dict) -> ViewTable:
    """Return the view's table. Raises NotFound with the nearest name, PeerError for a running view without
    rows yet.
    """
    try:
        return store.view(view)
    except NotFound as error:
        known = no_rows_yet(store, view, newest)
        hint = did_you_mean(view, filter(sees_view, known), "GET /views lists the views")
        raise NotFound(error.message, hint=hint, code="HUB-1410") from None


def _shown(
    row: RowVersion, fields: tuple[str, ...] | None = None, shape: Visibility = OPEN
) -> dict[str, Any]:
    values: Mapping[str, Any] = row.values or {}
    if not shape.is_open:
        values = shape.row(values)
    if fields is None:
        return {"key": row.key, **values}
    return {"key": row.key, **{name: values.get(name) for name in fields if name != "key"}}


def _found(
    found: FoundRow, search: Search, fields: tuple[str, ...] | None, shape: Visibility
) -> dict[str, Any]:
    """Return a row of a search as shown. Highlights are made of the fields that the search may read."""
    highlights = search.highlights(found.row.values or {})
    return {**_shown(found.row, fields, shape), "_score": found.score, "_highlights": highlights}


def _json(body: Any, covered: Positions | None = None, status: int = 200) -> Response:
    headers = {POSITION_HEADER: str(covered)} if covered else None
    return Response(orjson.dumps(body), status, headers, "application/json")
