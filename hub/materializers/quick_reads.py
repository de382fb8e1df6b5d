"""[edge] ASGI: rows by key that are there, answered before the routes.

``GET /views/{view}/{key}`` is most of what a hub is asked. FastAPI's way to a route's function costs more than the store's
answer, so what needs nothing but one statement is answered here. Everything else is passed on to the route (routes.py), which
has all the words for it: a row that is not there, a write that is not covered yet, a view that does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import anyio.to_thread
import orjson

from hub.errors import CallerError
from hub.materializers.stores.prepared import MOST_CONNECTIONS, Covered, PreparedReads
from hub.materializers.stores.sql import StoredRow
from hub.materializers.tokens import POSITION_HEADER, row_covers
from hub.record import Positions
from hub.tracing import spans

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PREFIX, _ROUTE = "/views/", "/views/{view}/{key:path}"
_POSITION = POSITION_HEADER.lower().encode()


class QuickReads:
    """What reads by key are answered from, once it is open."""

    def __init__(self) -> None:
        self._reads: PreparedReads | None = None
        self._threads = anyio.CapacityLimiter(MOST_CONNECTIONS)

    def open(self, reads: PreparedReads) -> None:
        self._reads = reads

    def close(self) -> None:
        reads, self._reads = self._reads, None
        if reads is not None:
            reads.close()

    async def find(self, view: str, key: str) -> tuple[StoredRow | None, Covered] | None:
        if self._reads is None:
            return None
        if self._reads.at_once:
            return self._reads.find(view, key)
        return await anyio.to_thread.run_sync(self._reads.find, view, key, limiter=self._threads)


class Quick:
    """ASGI middleware: behind the guard, before the routes."""

    def __init__(self, app: App, reads: QuickReads) -> None:
        self.app, self.reads = app, reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = asked_of(scope)
        found = None if asked is None else await self.reads.find(*asked[:2])
        if asked is None or found is None or not _answers(found, asked[2]):
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


def asked_of(scope: Scope) -> tuple[str, str, Positions] | None:
    """(view, key, the token's positions) of a plain read by key; None of every other request."""
    if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(_PREFIX):
        return None
    view, _, key = scope["path"][len(_PREFIX) :].partition("/")
    if not key or key == "changes":
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
        return None  # the route tells how long it waited
    try:
        return view, key, Positions.parse(token)
    except CallerError:
        return None


def _answers(found: tuple[StoredRow | None, Covered], token: Positions) -> bool:
    """Whether there is such a row and it has the write. A token that names a topic which the view does not read is for the
    route to judge."""
    row, covered = found
    if row is None or row.values is None:
        return False
    positions = covered.positions.offsets
    return all(positions.get(tp, -1) >= offset for tp, offset in token) or row_covers(row.sources, token)
