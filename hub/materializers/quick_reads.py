"""[edge] ASGI: rows by key that are there, answered before the routes.

``GET /views/{view}/{key}`` is most of what a hub is asked. FastAPI's way to a route's function costs more than the store's
answer, so what needs nothing but one statement is answered here. Everything else is passed on to the route (routes.py), which
has all the words for it: a row that is not there, a write that is not covered yet, a view that does not exist.

A store that is asked over a connection is asked for all keys of a view at a time that came while the last question was under
way. Alone, a request waits for nobody; among many, each waits for one question more and the server has a fraction of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import orjson

from hub.errors import CallerError
from hub.materializers.stores.prepared import MOST_CONNECTIONS, Covered, Found, PreparedReads
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
# Keys of one question, and questions of a view at a time.
_MOST_KEYS, _AT_ONCE = 128, 2


# A key that is waited for, and where its answer goes.
_Asked = tuple[str, asyncio.Future[Found | None]]


class QuickReads:
    """What reads by key are answered from, once it is open."""

    def __init__(self) -> None:
        self._reads: PreparedReads | None = None
        self._together: _Together | None = None

    def open(self, reads: PreparedReads) -> None:
        self._reads = reads
        self._together = None if reads.at_once else _Together(reads)

    def close(self) -> None:
        reads, together = self._reads, self._together
        self._reads = self._together = None
        if together is not None:
            together.close()
        if reads is not None:
            reads.close()

    async def find(self, view: str, key: str) -> Found | None:
        if self._together is not None:
            return await self._together.find(view, key)
        found = None if self._reads is None else self._reads.find(view, [key])
        return None if found is None else found[0]


class _Together:
    """Reads in threads, _AT_ONCE a view at a time: keys that come meanwhile are the next one's. Of one event loop.

    Nothing is asked for a key before it came, so an answer is never older than its request. Who waits holds a connection
    of the server's open, which bounds their number."""

    def __init__(self, reads: PreparedReads) -> None:
        self._reads = reads
        self._threads = ThreadPoolExecutor(MOST_CONNECTIONS, "reads-by-key")
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, list[_Asked]] = {}

    def find(self, view: str, key: str) -> asyncio.Future[Found | None]:
        asked = key, asyncio.get_running_loop().create_future()
        self._waiting.setdefault(view, []).append(asked)
        self._read(view)
        return asked[1]

    def close(self) -> None:
        """Who still waits has no answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for asked in self._waiting.values():
            _settle(asked, None)
        self._waiting.clear()

    def _read(self, view: str) -> None:
        """What waits, unless that is for reads under way to be done first."""
        if view not in self._waiting or self._under_way[view] >= _AT_ONCE:
            return
        asked = self._waiting[view][:_MOST_KEYS]
        self._waiting[view] = self._waiting[view][_MOST_KEYS:]
        if not self._waiting[view]:
            del self._waiting[view]
        self._under_way[view] += 1
        keys = [key for key, _ in asked]
        read = asyncio.get_running_loop().run_in_executor(self._threads, self._reads.find, view, keys)
        read.add_done_callback(partial(self._done, view, asked))

    def _done(self, view: str, asked: list[_Asked], read: asyncio.Future[list[Found] | None]) -> None:
        self._under_way[view] -= 1
        if not self._under_way[view]:
            del self._under_way[view]
        self._read(view)
        error = None if read.cancelled() else read.exception()
        found = None if read.cancelled() or error is not None else read.result()
        _settle(asked, found, error)


def _settle(
    asked: Sequence[_Asked], found: Sequence[Found] | None, error: BaseException | None = None
) -> None:
    """``found`` None: no answer to anybody."""
    answers: Sequence[Found | None] = [None] * len(asked) if found is None else found
    for (_, answer), each in zip(asked, answers, strict=True):
        if answer.done():
            continue  # who asked is gone
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(each)


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
