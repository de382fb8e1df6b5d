"""[edge] uvicorn's HTTP/1.1 by httptools, with limits on everything that a connection can make the server
hold.

httptools (llhttp, in C) parses a request in a third of the time that h11 needs in Python, and reads by key
are short enough for parsing to be most of their cost. Requests that h11 refuses and llhttp leaves to its
caller are refused here: an endless head, endless chunk extensions or trailers, and a request without exactly
one host (RFC 9112, 3.2). So is an endless body, since most routes read the body whole.

uvicorn ends a connection that is idle after an answer, but none that never sends anything, sends a byte now
and then, or reads nothing of its answer. Here each connection is checked every few seconds, and heads and
bodies that the client owes have a time limit. An answer may take as long as it likes, so streams and
WebSockets are ended only when the client does not read.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hub.access.server_tls import names_of

log = logging.getLogger(__name__)

# A request's line and headers, as sent; proxies allow 8 to 32 KiB.
MOST_HEAD: Final = 64 << 10
# A request's body; the largest that a route accepts is about 40 MiB (POST /api/audit/receipts).
MOST_BODY: Final = 64 << 20
# Pipelined requests on one connection; each is held with its headers.
MOST_WAITING: Final = 256
# From a connection's beginning, or its last answer's end, to the end of the next head.
HEAD_S: Final = 20.0
# Time limit of a body, plus a second for each LEAST_BYTES_PER_S bytes received (as Apache's mod_reqtimeout).
BODY_S: Final = 20.0
LEAST_BYTES_PER_S: Final = 500
# Longest time that a client may read nothing of a waiting answer.
STUCK_S: Final = 60.0
LOOK_S: Final = 5.0
# Delay before a connection beyond the limit is aborted: if aborted at once, the client would see a reset, not
# the 503.
LINGER_S: Final = 1.0
_WARN_EVERY_S: Final = 60.0
# Other files and connections of a server: stores, Kafka's clients, logs.
_OTHER_FILES: Final = 500


def room_for(connections: int) -> int:
    """Return the number of ``connections`` that this process can open; raises its limit of open files as
    far as possible."""
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            log.warning(
                "at most %d connections instead of %d: this process may open %d files (ulimit -n)",
                *(max(1, soft - _OTHER_FILES), connections, soft),
            )
            return max(1, soft - _OTHER_FILES)
    return connections


class BoundedHttp(HttpToolsProtocol):
    """A connection with limits.

    It holds at most one read of the event loop (256 KiB) beyond the limits above, and of bodies what
    uvicorn's flow control lets through; the app may collect a whole body. ``limit_concurrency`` of uvicorn's
    settings is the maximum number of connections, WebSockets included; further ones are answered 503.
    """

    head_s, body_s, stuck_s, look_s = HEAD_S, BODY_S, STUCK_S, LOOK_S
    _warned_at = float("-inf")  # time of the last warning about too many connections

    _certificate: tuple[str, ...] = ()  # names in the client's certificate, if it sent one
    _unread = 0  # bytes since the parser last had a whole head, a piece of a body or a whole request
    _head = 0  # bytes of the head that is being read
    _body = 0  # bytes of the body that is being read
    _hosts = 0
    _too_large = b""  # the response to a request that is too large
    _asking = _headed = False  # a request has begun and is incomplete; its head is complete
    _owed_at: float | None = None  # since when the client owes the rest of a head or of a body
    _unsent = _stuck = 0  # bytes waiting for the client, and number of checks in which it read none
    _turned_away = False
    _next_look: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # uvicorn would answer 503 on existing connections, and not count idle ones.
        self._most, self.limit_concurrency = self.limit_concurrency, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if peer := transport.get_extra_info("peercert"):
            self._certificate = names_of(peer)
        if self._most is not None and len(self.connections) > self._most:
            self._turn_away(self._most)
        else:
            self._owed_at = self.loop.time()
            self._next_look = self.loop.call_later(self.look_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away or self.transport.is_closing():
            return  # refused
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD and not self.transport.is_closing():
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests before the first answer")
        self._head = self._body = self._hosts = 0
        self._asking, self._headed, self._owed_at = True, False, self.loop.time()
        super().on_message_begin()
        self.scope["hub.certificate"] = self._certificate  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers arrive here too, and count as part of the head.
        self._count(len(name) + len(value))
        if len(name) == 4 and name.lower() == b"host":
            self._hosts += 1
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unread, self._headed, self._owed_at = 0, True, self.loop.time()
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() == "1.1"):
            raise ValueError("one host is what a request is for")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._body += len(body)
        if self._body > MOST_BODY:
            self._too_large = _BODY_TOO_LARGE
            raise ValueError("too large a body")
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread, self._asking, self._headed = 0, False, False
        # Answered before it was complete: the client owes the next request.
        answered = self.cycle is not None and self.cycle.response_complete
        self._owed_at = self.loop.time() if answered else None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._owed_at is None and not self.pipeline:
            self._owed_at = self.loop.time()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        # The WebSocket protocol takes over, with pings of its own; whether the client reads is still checked.
        self._owed_at = None
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse(self._too_large)
        else:
            super().send_400_response(msg)

    def _count(self, length: int) -> None:
        self._head += length
        if self._head > MOST_HEAD:
            self._too_large = _HEAD_TOO_LARGE
            raise ValueError("too large a head")

    def _look(self) -> None:
        """Check the connection periodically until it is closed and everything is sent."""
        now, transport = self.loop.time(), self.transport
        unsent = transport.get_write_buffer_size()
        closing = transport.is_closing()
        if closing and not unsent:
            return
        self._next_look = self.loop.call_later(self.look_s, self._look)
        # Below the high-water mark the app keeps writing, so waiting bytes do not show whether the client
        # reads.
        waits = closing or unsent > transport.get_write_buffer_limits()[1]
        self._stuck = self._stuck + 1 if waits and unsent >= self._unsent > 0 else 0
        self._unsent = unsent if waits else 0
        if self._stuck * self.look_s >= self.stuck_s:
            transport.abort()
        elif not closing and self._overdue(now):
            if self._asking:
                self._refuse(_TOO_SLOW)
            else:
                transport.close()  # it is not waiting for an answer

    def _overdue(self, now: float) -> bool:
        if self._owed_at is None:
            return False
        if self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue):
            self._owed_at = now  # it waits for us
        allowed = self.body_s + self._body / LEAST_BYTES_PER_S if self._headed else self.head_s
        return now - self._owed_at > allowed

    def _turn_away(self, most: int) -> None:
        self._turned_away = True
        self.connections.discard(self)
        now = self.loop.time()
        if now - BoundedHttp._warned_at > _WARN_EVERY_S:
            BoundedHttp._warned_at = now
            log.warning(
                "more than %d connections: some are answered 503 (http_connections in hub.yaml)", most
            )
        self.transport.write(
            _answer(
                b"503 Service Unavailable\r\nretry-after: 1",
                f"The server has {most:,} connections open, which is the most "
                "(http_connections in its hub.yaml). "
                "Try again in a second.\n",
            )
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _refuse(self, answer: bytes) -> None:
        cycle = self.cycle
        begun = (
            cycle is not None and cycle.response_started and (self._body > 0 or not cycle.response_complete)
        )
        if not begun:  # a second answer would be taken for the next request's
            self.transport.write(answer)
        self.transport.close()


def _answer(status: bytes, text: str) -> bytes:
    body = text.encode()
    return (
        b"HTTP/1.1 %s\r\n"
        b"content-type: text/plain; charset=utf-8\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (status, len(body), body)
    )


_TOO_SLOW: Final = _answer(
    b"408 Request Timeout",
    f"A request's line and headers have {HEAD_S:g} s, its body {BODY_S:g} s and one more for each "
    f"{LEAST_BYTES_PER_S} bytes.\n",
)
_HEAD_TOO_LARGE: Final = _answer(
    b"431 Request Header Fields Too Large",
    f"The request's line and headers are larger than {MOST_HEAD:,} bytes.\n",
)
_BODY_TOO_LARGE: Final = _answer(
    b"413 Content Too Large", f"The request's body is larger than {MOST_BODY:,} bytes.\n"
)
