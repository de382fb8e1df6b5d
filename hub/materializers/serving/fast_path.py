"""[edge] ASGI: answers reads of existing rows by key before the routes.

``GET /views/{view}/{key}`` is most of a hub's traffic. FastAPI's dispatch to a route's function costs more
than the store's answer, so requests that need only one statement are answered here. Everything else is passed
on to the route (routes.py), which has the error messages: a missing row, a write that is not covered yet, an
unknown view.

A store behind a connection gets one query for all keys of a view that arrived during the previous query. A
single request waits for nobody; among many, each waits for one more query, and the server gets a fraction of
the queries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

import orjson

from hub.caller import CALLER
from hub.errors import CallerError
from hub.materializers.serving.read_your_writes import POSITION_HEADER, row_covers
from hub.materializers.stores.prepared import Found, ReadsAtOnce, ViewCoverage
from hub.materializers.stores.prepared_postgres import PostgresReads
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions
from hub.tracing import spans

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PREFIX, _ROUTE = "/views/", "/views/{view}/{key:path}"
_POSITION = POSITION_HEADER.lower().encode()
# Routes below a key, which may have slashes itself.
_OF_A_ROW = ("/history", "/diff")
# Keys of one query, and concurrent queries of a view.
_MOST_KEYS, _AT_ONCE = 128, 2


# A requested key, and the future for its answer.
_KeyRequest = tuple[str, asyncio.Future[Found | None]]


class FastReads:
    """Backend of reads by key, once it is open. Belongs to one event loop."""

    def __init__(self) -> None:
        self._at_once: ReadsAtOnce | None = None
        self._together: _BatchedReads | None = None

    def open(self, store: Store) -> None:
        if store.engine.dialect.name == "sqlite":
            self._at_once = ReadsAtOnce(store)
        else:
            self.open_together(PostgresReads(store))

    def open_together(self, reads: PostgresReads) -> None:
        self._together = _BatchedReads(reads)

    async def close(self) -> None:
        at_once, together = self._at_once, self._together
        self._at_once = self._together = None
        if at_once is not None:
            at_once.close()
        if together is not None:
            await together.close()

    async def find(self, view: str, key: str) -> Found | None:
        if self._together is not None:
            return await self._together.find(view, key)
        return None if self._at_once is None else self._at_once.find(view, key)


class _BatchedReads:
    """Batched reads: _AT_ONCE queries per view at a time; keys that arrive meanwhile go into the next one.

    A key is queried only after it arrived, so an answer is never older than its request. Each waiting request
    holds a connection of the server open, which bounds their number.
    """

    def __init__(self, reads: PostgresReads) -> None:
        self._reads = reads
        self._under_way: dict[str, set[asyncio.Task[None]]] = {}
        self._waiting: dict[str, list[_KeyRequest]] = {}

    def find(self, view: str, key: str) -> asyncio.Future[Found | None]:
        request = key, asyncio.get_running_loop().create_future()
        if view in self._waiting:  # it is taken with them
            self._waiting[view].append(request)
            return request[1]
        self._waiting[view] = [request]
        reading = self._under_way.setdefault(view, set())
        if len(reading) < _AT_ONCE:
            reading.add(asyncio.get_running_loop().create_task(self._read(view)))
        return request[1]

    async def close(self) -> None:
        """Answer requests that are not queried yet with None; finish running queries."""
        for requests in self._waiting.values():
            _settle(requests, None)
        self._waiting.clear()
        tasks = [each for view in self._under_way.values() for each in view]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reads.close()

    async def _read(self, view: str) -> None:
        """Run queries one after another while requests wait."""
        try:
            while requests := self._waiting.pop(view, None):
                if len(requests) > _MOST_KEYS:
                    self._waiting[view] = requests[_MOST_KEYS:]
                    requests = requests[:_MOST_KEYS]
                try:
                    _settle(requests, await self._reads.find(view, [key for key, _ in requests]))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is theirs and nobody's after them
                    _settle(requests, None, error)
        finally:
            self._under_way[view].discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if not self._under_way[view]:
                del self._under_way[view]


def _settle(
    requests: Sequence[_KeyRequest], found: Sequence[Found] | None, error: BaseException | None = None
) -> None:
    """Resolve the futures. ``found`` None: no answer for any of them."""
    answers: Sequence[Found | None] = [None] * len(requests) if found is None else found
    for (_, answer), each in zip(requests, answers, strict=True):
        if answer.done():
            continue  # the caller has disconnected
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(each)


class FastPath:
    """ASGI middleware, after the guard and before the routes."""

    def __init__(self, app: App, reads: FastReads) -> None:
        self.app, self.reads = app, reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = CALLER.get()
        # What is masked takes a decision with its reasons: the route makes it.
        parsed = None if caller is not None and caller.is_masked else parse_request(scope)
        found = None if parsed is None else await self.reads.find(*parsed[:2])
        if parsed is None or found is None or not _answers(found, parsed[2]):
            await self.app(scope, receive, send)
            return
        row, covered = found
        assert row is not None
        assert row.values is not None
        body = orjson.dumps({"key": row.key, **row.values})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if covered.text:
            headers.append((_POSITION, covered.text.encode()))
        scope["hub.route"] = _ROUTE
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def parse_request(scope: Scope) -> tuple[str, str, Positions] | None:
    """Return (view, key, the token's positions) of a plain read by key; None for any other request."""
    if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(_PREFIX):
        return None
    view, _, key = scope["path"][len(_PREFIX) :].partition("/")
    if not key or key == "changes" or key.endswith(_OF_A_ROW):
        return None
    token = ""
    query = scope["query_string"]
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else ():
        if name == "after":
            token = value
        elif name != "timeout_ms" or not value.isdecimal():
            return None
    if not token:
        token = next((value.decode("latin-1") for name, value in scope["headers"] if name == _POSITION), "")
    if token and spans() is not None:
        return None  # the route records how long it waited
    try:
        return view, key, Positions.parse(token)
    except CallerError:
        return None


def _answers(found: tuple[RowVersion | None, ViewCoverage], token: Positions) -> bool:
    """Return whether the row exists and covers the token.

    A token that names a topic outside the view's sources is left to the route.
    """
    row, covered = found
    if row is None or row.values is None:
        return False
    positions = covered.positions.offsets
    return all(positions.get(tp, -1) >= offset for tp, offset in token) or row_covers(row.sources, token)
