"""[edge] Requests as spans: an incoming ``traceparent`` is continued; spans are named by route, never by raw
path.

The span of an event stream or WebSocket ends when its answer begins, since it may be open for days.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hub.tracing.context import ACTIVE, TRACEPARENT, TRACESTATE, parse
from hub.tracing.otel import Span, spans

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Requested every second by pages and monitors.
_QUIET = ("/ui/", "/health", "/metrics")


class Traced:
    """ASGI middleware. While tracing is off it does nothing."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = spans()
        if known is None or scope["type"] not in ("http", "websocket") or scope["path"].startswith(_QUIET):
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        method = scope.get("method", "WEBSOCKET")
        span = known.start(
            method,
            "server",
            parent=parse(headers.get(TRACEPARENT), headers.get(TRACESTATE)),
            attributes={"http.request.method": method, "url.scheme": scope.get("scheme", "http")},
        )
        open_ = [span]
        before = ACTIVE.set(span.trace)

        def ended(error: str = "") -> None:
            if open_:
                _finish(open_.pop(), scope, method, error)

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                span.put(http__response__status_code=message["status"])
                kind = dict(message.get("headers", ())).get(b"content-type", b"")
                failed = "500" if message["status"] == 500 else ""
                if kind.startswith(b"text/event-stream") or failed:
                    ended(failed)
            elif message["type"] == "websocket.accept":
                ended()
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except BaseException as error:
            ended(type(error).__name__)
            raise
        finally:
            ACTIVE.reset(before)
            ended()


def _finish(span: Span, scope: Scope, method: str, error: str) -> None:
    route = getattr(scope.get("route"), "path", None) or scope.get("hub.route")
    if route:
        span.name(f"{method} {route}")
        span.put(http__route=route)
    span.end(error)
