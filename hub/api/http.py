"""[edge] uvicorn's HTTP/1.1 by httptools, with a bound on all that a connection may have the server hold.

httptools (llhttp, in C) takes a request apart in a third of the time that h11 needs in Python, and reads by key are short enough
for that to be most of their cost. What h11 refuses by itself, and llhttp leaves to its caller, is refused here: a head without end, a
chunk's extensions or trailers without end, and a request that does not say which host it is for (RFC 9112, 3.2). So is a body
without end, which most routes take whole before they look at it.
"""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# A request's line and headers, as sent; what proxies allow is 8 to 32 KiB.
MOST_HEAD: Final = 64 << 10
# A request's body; the largest that a route takes by itself is some 40 MiB (POST /api/audit/receipts).
MOST_BODY: Final = 64 << 20
# Requests sent on one connection before the first of them is answered: each is held with its headers.
MOST_WAITING: Final = 256


class BoundedHttp(HttpToolsProtocol):
    """A connection. It holds at most one read of the event loop (256 KiB) beyond the bounds above, and of bodies what uvicorn's
    flow control lets through; the app may gather a whole one."""

    _unread = 0  # bytes since the parser last had a whole head, a piece of a body or a whole request
    _head = 0  # bytes of the head that is being read
    _body = 0  # bytes of the body that is being read
    _hosts = 0
    _too_large = b""  # the answer to what is

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # refused
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD and not self.transport.is_closing():
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests before the first answer")
        self._head = self._body = self._hosts = 0
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
        self._unread = 0
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
        self._unread = 0
        super().on_message_complete()

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

    def _refuse(self, answer: bytes) -> None:
        begun = self._body > 0 and self.cycle is not None and self.cycle.response_started
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


_HEAD_TOO_LARGE: Final = _answer(
    b"431 Request Header Fields Too Large",
    f"The request's line and headers are larger than {MOST_HEAD:,} bytes.\n",
)
_BODY_TOO_LARGE: Final = _answer(
    b"413 Content Too Large", f"The request's body is larger than {MOST_BODY:,} bytes.\n"
)
