"""[edge] FastAPI: messages of a topic, and its live tail as server-sent events."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from hub.errors import HubError, PeerError
from hub.observability.web.page import html, render
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.explore import messages
from hub.observability.web.routes.page_router import PageRouter, Text, json_of
from hub.observability.web.routes.topics import line_of
from hub.topics.browse.bounded_read import MessageQuery
from hub.topics.browse.tail import Tail

READING_AT_ONCE = 8
TAILS_AT_ONCE = 20
TAIL_S = 900.0
TICK_S = 0.5
_ALIVE_S = 10.0


@dataclass
class MessagesAsked:
    """Query parameters for a topic's messages."""

    partition: Text = ""
    start: Annotated[str, Query(alias="from", max_length=100)] = ""
    before: Annotated[str, Query(max_length=20_000)] = ""
    after: Annotated[str, Query(max_length=20_000)] = ""
    q: Text = ""
    limit: int = 50

    def of(self, topic: str, now_ms: int) -> MessageQuery:
        """Return the query for a topic. Raises CallerError."""
        return messages.wanted_of(
            topic,
            now_ms,
            partition=self.partition,
            start=self.start,
            before=self.before,
            after=self.after,
            words=self.q,
            limit=self.limit,
        )


def message_routes(sources: PageSources) -> APIRouter:
    """Return the routes of a topic's messages and of its live tail."""
    pages = PageRouter(sources, "topics")
    add_messages(pages)
    add_tail(pages, Tails(sources))
    return pages.routes


def add_messages(pages: PageRouter) -> None:
    """Add the routes that return messages, bounded in number at a time."""
    sources = pages.sources
    reading = anyio.Semaphore(READING_AT_ONCE)

    async def found(wanted: MessageQuery) -> messages.MessagesPart:
        if reading.statistics().tasks_waiting >= READING_AT_ONCE:
            raise PeerError("too many people read messages at this moment", hint="try again")
        async with reading:
            result = await anyio.to_thread.run_sync(sources.browser.find, wanted)
        return messages.messages_part(wanted, result, sources.browser.bounds, sources.now_ms())

    @pages.routes.get("/api/topics/{name}/messages", tags=["pages"], response_model=None)
    async def messages_json(name: str, asks: Annotated[MessagesAsked, Depends()]) -> Response:
        """Messages: the newest, or ``from`` an offset of a ``partition``, a time, or ``15m`` ago; with the
        words ``q``.

        Bounded in records, bytes and seconds; ``scanned`` and ``complete`` say what the answer covers;
        ``older`` and ``newer`` go on, as ``before`` and ``after``."""
        return json_of(await found(asks.of(name, sources.now_ms())))

    @pages.routes.get("/ui/topics/{name}/messages", include_in_schema=False)
    async def messages_part(
        request: Request, name: str, asks: Annotated[MessagesAsked, Depends()]
    ) -> Response:
        try:
            part = await found(asks.of(name, sources.now_ms()))
        except HubError as error:
            return pages.failed(request, error)
        query = f"?{request.url.query}" if request.url.query else ""
        return html(
            "explore/messages.html",
            facts=part,
            asks={"partition": asks.partition, "q": asks.q, "limit": asks.limit if asks.limit != 50 else ""},
            now_ms=sources.now_ms(),
            json_url=f"/api/topics/{quote(name)}/messages{query}",
        )


def add_tail(pages: PageRouter, tails: Tails) -> None:
    """Add the live tail, as JSON events and as HTML events."""

    @pages.routes.get("/api/topics/{name}/tail", tags=["pages"], response_model=None)
    async def tail_json(request: Request, name: str, partition: Text = "", q: Text = "") -> Response:
        """Server-sent events: new messages as they come, at most ten a second;
        what is left out is counted."""
        return tails.response(request, name, MessagesAsked(partition, q=q), _json_events)

    @pages.routes.get("/ui/topics/{name}/tail", include_in_schema=False)
    async def tail_part(request: Request, name: str, partition: Text = "", q: Text = "") -> Response:
        return tails.response(request, name, MessagesAsked(partition, q=q), _html_events)


def _json_events(tick: Any, topic: str, error: HubError | None = None) -> bytes:
    if error is not None:
        return sse("said", error.message)
    return sse("messages", orjson.dumps(tick).decode())


def _html_events(tick: Any, topic: str, error: HubError | None = None) -> bytes:
    if error is not None:
        return sse("said", render("explore/tail_said.html", tick=None, error=error))
    shown = b""
    if tick.messages:
        shown = sse("messages", render("explore/tail.html", messages=tick.messages, name=topic))
    return shown + sse("said", render("explore/tail_said.html", tick=tick))


class Tails:
    """Open tails, limited in number."""

    def __init__(self, sources: PageSources) -> None:
        self.sources = sources
        self._threads = anyio.CapacityLimiter(TAILS_AT_ONCE)
        self._open = 0

    def response(
        self, request: Request, topic: str, asks: MessagesAsked, events: Callable[..., bytes]
    ) -> Response:
        """Return the stream of a topic's new messages. Raises NotFound, CallerError, PeerError."""
        line_of(self.sources, topic)
        self._check()
        wanted = asks.of(topic, self.sources.now_ms())
        return StreamingResponse(
            self._stream(request, wanted, events),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    def _check(self) -> None:
        if self._open >= TAILS_AT_ONCE:
            raise PeerError(f"{TAILS_AT_ONCE} people watch messages already", hint="try again later")

    async def _stream(
        self, request: Request, wanted: MessageQuery, events: Callable[..., bytes]
    ) -> AsyncIterator[bytes]:
        sent_s = 0.0
        yield b"event: open\ndata: {}\n\n"
        try:
            async for tick in self._ticks(request, wanted):
                if tick.seen or tick.passed_by:
                    sent_s = time.monotonic()
                    yield events(tick, wanted.topic)
                elif time.monotonic() - sent_s > _ALIVE_S:
                    sent_s = time.monotonic()
                    yield b": alive\n\n"
        except HubError as error:
            yield events(None, wanted.topic, error)
        yield sse("ended", "")

    async def _ticks(self, request: Request, wanted: MessageQuery) -> AsyncIterator[Any]:
        """Yield new messages twice a second until the client disconnects."""
        self._check()  # several arrived at the same moment
        self._open += 1
        tail = None
        try:
            tail = await self._run(Tail, self.sources.browser, wanted)
            until = time.monotonic() + TAIL_S
            while time.monotonic() < until and not await request.is_disconnected():
                began = time.monotonic()
                yield await self._run(tail.step, TICK_S)
                await asyncio.sleep(max(0.0, TICK_S - (time.monotonic() - began)))
        finally:
            self._open -= 1
            if tail is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(tail.close)

    async def _run(self, work: Callable[..., Any], *given: Any) -> Any:
        return await anyio.to_thread.run_sync(work, *given, limiter=self._threads)


def sse(event: str, text: str) -> bytes:
    """Format one server-sent event; the text may have several lines."""
    # Not splitlines(): it also splits at characters that the standard does not, and JSON may contain these.
    lines = "".join(f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", text))
    return f"event: {event}\n{lines}\n".encode()
