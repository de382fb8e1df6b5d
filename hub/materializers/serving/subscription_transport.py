"""[edge] Starlette: a subscription's events on the wire, as server-sent events or as WebSocket messages.

One stream of events has two encodings; ids, names and bodies are the same in both. A send waits while the
reader does not read (sockets and servers buffer some hundred kilobytes, this module at most ``_TOGETHER``).
After ``SEND_S`` the connection is closed, with the reason if the reader still listens, and the reader
reconnects with its last id.

::

    id: <id>                          {"event": "upsert", "id": "<id>", "data": {"key": …, "row": …, "version": …}}
    event: upsert
    data: {"key": …, "row": …, "version": …}
"""  # noqa: E501

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress

import anyio
import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from hub.materializers.serving.subscription_events import SubscriptionEvent

SEND_S = 30.0
_TOGETHER = 16_384  # bytes of events sent in one piece: a piece costs more than the events in it
_LAST_WORD_S = 5.0
_TRY_AGAIN_LATER = 1013  # RFC 6455's registry of close codes
_LONGEST_REASON = 123  # bytes that a close frame holds


def as_sse(event: SubscriptionEvent) -> bytes:
    """Return an event as text. ``alive`` is a comment, but its id counts, as the standard defines."""
    head = f"id: {event.mark}\n" if event.mark is not None else ""
    if event.name == "alive":
        return f"{head}: still here\n\n".encode()
    return f"{head}event: {event.name}\ndata: ".encode() + orjson.dumps(event.body) + b"\n\n"


def as_message(event: SubscriptionEvent) -> str:
    """Return an event as JSON, with ``id`` if the event has one."""
    message: dict[str, object] = {"event": event.name}
    if event.mark is not None:
        message["id"] = str(event.mark)
    return orjson.dumps({**message, "data": event.body}).decode()


class ServerSentEvents(StreamingResponse):
    """Response of events. Ends when the subscription ends, the client disconnects, or the client does not
    read.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[SubscriptionEvent, None]) -> None:
        super().__init__((), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.events = events

    def written(self, event: SubscriptionEvent) -> bytes:
        """Return an event as this response writes it."""
        return as_sse(event)

    async def stream_response(self, send: Send) -> None:
        def sent(body: bytes, *, more: bool = True) -> Awaitable[None]:
            return send({"type": "http.response.body", "body": body, "more_body": more})

        async with aclosing(self.events) as events:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            piece = b""
            async for event in events:
                piece += self.written(event)
                if event.has_next and len(piece) < _TOGETHER:
                    continue
                if not await _in_time(sent(piece), SEND_S):
                    await _in_time(sent(self.written(_too_slow()), more=False), _LAST_WORD_S)
                    return
                piece = b""
        await _in_time(sent(b"", more=False), _LAST_WORD_S)


class JsonLines(ServerSentEvents):
    """Format the same events as lines of JSON, as WebSocket messages have them."""

    media_type = "application/x-ndjson"

    def written(self, event: SubscriptionEvent) -> bytes:
        """Return an event as a line of JSON."""
        return as_message(event).encode() + b"\n"


async def over_websocket(socket: WebSocket, events: AsyncGenerator[SubscriptionEvent, None]) -> None:
    """Send events as messages until the client disconnects or does not read.

    A message ``{"event": "ping"}`` is answered with ``{"event": "pong"}``, for browsers, which cannot send
    the protocol's own pings; any other client message is ignored.
    """

    async def listen() -> None:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            if _is_ping(message.get("text")) and not await _in_time(
                socket.send_text('{"event":"pong"}'), SEND_S
            ):
                break
        group.cancel_scope.cancel()

    async def send_error() -> None:
        async with aclosing(events):
            last: SubscriptionEvent | None = None
            async for event in events:
                last = event
                if event.name == "closing":
                    break
                if not await _in_time(socket.send_text(as_message(event)), SEND_S):
                    last = _too_slow()
                    break
        reason = str(last.body.get("reason", "")) if last is not None else ""
        cut = reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
        await _in_time(socket.close(_TRY_AGAIN_LATER, cut), _LAST_WORD_S)

    await socket.accept()
    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        with suppress(WebSocketDisconnect):
            await send_error()
        group.cancel_scope.cancel()


def _too_slow() -> SubscriptionEvent:
    return SubscriptionEvent(
        "closing", None, {"reason": f"nothing was read for {SEND_S:g} s; come back with the last id"}
    )


async def _in_time(sending: Awaitable[None], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await sending
    except TimeoutError:
        return False
    return True


def _is_ping(text: str | None) -> bool:
    if text is None or len(text) > 100:
        return False
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(message, dict) and message.get("event") == "ping"
