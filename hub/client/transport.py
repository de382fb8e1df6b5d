"""[edge] httpx and websockets: requests and event streams, for threads and for tasks.

Both halves have the same code because both libraries have two APIs; all decisions are in calls.py and
changes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2 as httpx

from hub.client.changes import SILENCE_S, Denied, SseDecoder, StreamEvent, Transport, stream_event_of
from hub.client.errors import ConnectionBroken
from hub.client.requests import Reply, Request

_CONNECT_S = 5.0
_CLOSE_S = 1.0
_MOST_BYTES = 64 << 20  # of one message
# Subscriptions hold theirs: with a bound on all, the hundredth would leave calls none. The server bounds
# subscribers.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)


class HttpWire:
    """Connections for threads. Thread safe."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        self._headers = headers
        self._http = httpx.Client(base_url=self.url, headers=headers, limits=_LIMITS)

    def ask(self, request: Request) -> Reply:
        """Send a request and return the reply. Raises ConnectionBroken."""
        try:
            return _reply(self._http.send(_built(self._http, request)))
        except httpx.HTTPError as error:
            raise _broken(self.url, error) from None

    @contextmanager
    def line(self, request: Request, transport: Transport) -> Iterator[Iterator[StreamEvent]]:
        """The events of a line. Raises Broken, Denied."""
        with self._websocket(request) if transport == "websocket" else self._sse(request) as events:
            yield events

    @contextmanager
    def _sse(self, request: Request) -> Iterator[Iterator[StreamEvent]]:
        try:
            answer = self._http.send(_built(self._http, request), stream=True)
            try:
                if answer.status_code != 200:
                    answer.read()
                    raise Denied(_reply(answer))
                _check_line(self.url, answer)
                decoder = SseDecoder()
                yield (event for chunk in answer.iter_bytes() for event in decoder.feed(chunk))
            finally:
                answer.close()
        except httpx.HTTPError as error:
            raise _broken(self.url, error) from None

    @contextmanager
    def _websocket(self, request: Request) -> Iterator[Iterator[StreamEvent]]:
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.sync.client import connect

        try:
            with connect(
                _ws_url(self.url, request),
                additional_headers=[*self._headers.items(), *request.headers],
                compression=None,
                open_timeout=_CONNECT_S,
                close_timeout=_CLOSE_S,
                max_size=_MOST_BYTES,
            ) as socket:

                def events() -> Iterator[StreamEvent]:
                    while True:
                        yield stream_event_of(socket.recv(SILENCE_S))

                yield events()
        except InvalidStatus as error:
            raise Denied(_denied(error)) from None
        except (WebSocketException, OSError, TimeoutError) as error:
            raise _broken(self.url, error) from None

    def close(self) -> None:
        self._http.close()


class AsyncWire:
    """Connections for the tasks of one event loop."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        self._headers = headers
        self._http = httpx.AsyncClient(base_url=self.url, headers=headers, limits=_LIMITS)

    async def ask(self, request: Request) -> Reply:
        """Send a request and return the reply. Raises ConnectionBroken."""
        try:
            return _reply(await self._http.send(_built(self._http, request)))
        except httpx.HTTPError as error:
            raise _broken(self.url, error) from None

    @asynccontextmanager
    async def line(self, request: Request, transport: Transport) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """The events of a line. Raises Broken, Denied."""
        opened = self._websocket(request) if transport == "websocket" else self._sse(request)
        async with opened as events:
            yield events

    @asynccontextmanager
    async def _sse(self, request: Request) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        try:
            answer = await self._http.send(_built(self._http, request), stream=True)
            try:
                if answer.status_code != 200:
                    await answer.aread()
                    raise Denied(_reply(answer))
                _check_line(self.url, answer)
                decoder = SseDecoder()
                yield (event async for chunk in answer.aiter_bytes() for event in decoder.feed(chunk))
            finally:
                await answer.aclose()
        except httpx.HTTPError as error:
            raise _broken(self.url, error) from None

    @asynccontextmanager
    async def _websocket(self, request: Request) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        import asyncio

        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        try:
            async with connect(
                _ws_url(self.url, request),
                additional_headers=[*self._headers.items(), *request.headers],
                compression=None,
                open_timeout=_CONNECT_S,
                close_timeout=_CLOSE_S,
                max_size=_MOST_BYTES,
            ) as socket:

                async def events() -> AsyncIterator[StreamEvent]:
                    while True:
                        async with asyncio.timeout(SILENCE_S):
                            message = await socket.recv()
                        yield stream_event_of(message)

                yield events()
        except InvalidStatus as error:
            raise Denied(_denied(error)) from None
        except (WebSocketException, OSError, TimeoutError) as error:
            raise _broken(self.url, error) from None

    async def close(self) -> None:
        await self._http.aclose()


def _built(client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    timeout = httpx.Timeout(request.timeout_s, connect=min(request.timeout_s, _CONNECT_S))
    return client.build_request(
        request.method,
        request.path,
        params=httpx.QueryParams(list(request.query)) if request.query else None,
        headers=list(request.headers),
        content=request.body,
        timeout=timeout,
    )


def _check_line(url: str, answer: httpx.Response) -> None:
    """Check that the response is an event stream. Raises ConnectionBroken: a proxy's page has empty lines and
    would pass for a silent stream.
    """
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        raise ConnectionBroken(f"{url}: the server there is not a hub")


def _reply(answer: httpx.Response) -> Reply:
    return Reply(
        answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content
    )


def _denied(error: object) -> Reply:
    response = error.response  # type: ignore[attr-defined]
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return Reply(response.status_code, headers, bytes(response.body or b""))


def _ws_url(url: str, request: Request) -> str:
    scheme, _, rest = url.partition("://")
    query = f"?{httpx.QueryParams(list(request.query))}" if request.query else ""
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}{request.path}{query}"


def _broken(url: str, error: Exception) -> ConnectionBroken:
    detail = f": {error}" if str(error) else ""
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return ConnectionBroken(f"{url} ({type(error).__name__}{detail})", sent=sent)
