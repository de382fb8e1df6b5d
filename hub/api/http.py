"""[edge] uvicorn's HTTP/1.1 by httptools, with a bound on all that a connection may have the server hold.

httptools (llhttp, in C) takes a request apart in a third of the time that h11 needs in Python, and reads by key are short enough
for that to be most of their cost. What h11 refuses by itself, and llhttp leaves to its caller, is refused here: a head without end, a
chunk's extensions or trailers without end, and a request that does not say which host it is for (RFC 9112, 3.2). So is a body
without end, which most routes take whole before they look at it.

uvicorn ends a connection that says nothing after an answer, and no other: one that never says anything, or says a byte now and
then, or takes nothing of its answer, it keeps. Here each is looked at every few seconds, and what the client owes has its time. An
answer may take as long as it likes, so streams and WebSockets are ended only when nobody takes what they say.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

# A request's line and headers, as sent; what proxies allow is 8 to 32 KiB.
MOST_HEAD: Final = 64 << 10
# A request's body; the largest that a route takes by itself is some 40 MiB (POST /api/audit/receipts).
MOST_BODY: Final = 64 << 20
# Requests sent on one connection before the first of them is answered: each is held with its headers.
MOST_WAITING: Final = 256
# From a connection's beginning, or its last answer's end, to the end of the next head.
HEAD_S: Final = 20.0
# So long a body may take, and a second more for each so many bytes of it that are there (as Apache's mod_reqtimeout has it).
BODY_S: Final = 20.0
LEAST_BYTES_PER_S: Final = 500
# So long a client may take nothing of an answer that waits for it.
STUCK_S: Final = 60.0
LOOK_S: Final = 5.0
# A connection too many has its answer for so long before it is ended: at once, and the client would hear a reset instead.
LINGER_S: Final = 1.0
_TOLD_EVERY_S: Final = 60.0
# Files and connections that a server has besides: stores, Kafka's clients, logs.
_OTHER_FILES: Final = 500


def room_for(connections: int) -> int:
    """How many of so many connections this process can have open: its limit of open files is raised as far as it may be."""
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
    """A connection. It holds at most one read of the event loop (256 KiB) beyond the bounds above, and of bodies what uvicorn's
    flow control lets through; the app may gather a whole one. ``limit_concurrency`` of uvicorn's settings is how many connections
    there are at most, WebSockets too; the next ones are answered 503."""

    head_s, body_s, stuck_s, look_s = HEAD_S, BODY_S, STUCK_S, LOOK_S
    _told_at = float("-inf")  # when it was last said that there are too many

    _unread = 0  # bytes since the parser last had a whole head, a piece of a body or a whole request
    _head = 0  # bytes of the head that is being read
    _body = 0  # bytes of the body that is being read
    _hosts = 0
    _too_large = b""  # the answer to what is
    _asking = _headed = False  # a request has begun and is not whole yet; its head is
    _owed_at: float | None = None  # since when the client owes the rest of a head or of a body
    _unsent = _stuck = 0  # bytes that wait for the client, and for how many looks it has taken none
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
        # uvicorn would answer 503 to those who are connected already, and count nobody who says nothing.
        self._most, self.limit_concurrency = self.limit_concurrency, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here, too, and count with their head.
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
        # Answered before it was whole: the next one is owed.
        answered = self.cycle is not None and self.cycle.response_complete
        self._owed_at = self.loop.time() if answered else None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._owed_at is None and not self.pipeline:
            self._owed_at = self.loop.time()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        # From here on it is another protocol's, which has a ping to know who is there; whether anybody reads is still looked at.
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
        """Now and then, until the connection is closed and all that was said is sent."""
        now, transport = self.loop.time(), self.transport
        unsent = transport.get_write_buffer_size()
        closing = transport.is_closing()
        if closing and not unsent:
            return
        self._next_look = self.loop.call_later(self.look_s, self._look)
        # Up to its mark the app goes on writing, and what waits says nothing of who reads.
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
        if now - BoundedHttp._told_at > _TOLD_EVERY_S:
            BoundedHttp._told_at = now
            log.warning(
                "more than %d connections: some are answered 503 (http_connections in hub.yaml)", most
            )
        self.transport.write(
            _answer(
                b"503 Service Unavailable\r\nretry-after: 1",
                f"The server has {most:,} connections open, which is the most (http_connections in its hub.yaml). "
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
        if not begun:  # two answers to one request would be taken for one
            self.transport.write(answer)
        self.transport.close()


def _answer(status: bytes, said: str) -> bytes:
    body = said.encode()
    return (
        b"HTTP/1.1 %s\r\n"
        b"content-type: text/plain; charset=utf-8\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (status, len(body), body)
    )


_TOO_SLOW: Final = _answer(
    b"408 Request Timeout",
    f"A request's line and headers have {HEAD_S:g} s, its body {BODY_S:g} s and one more for each {LEAST_BYTES_PER_S} bytes.\n",
)
_HEAD_TOO_LARGE: Final = _answer(
    b"431 Request Header Fields Too Large",
    f"The request's line and headers are larger than {MOST_HEAD:,} bytes.\n",
)
_BODY_TOO_LARGE: Final = _answer(
    b"413 Content Too Large", f"The request's body is larger than {MOST_BODY:,} bytes.\n"
)
