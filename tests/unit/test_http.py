"""What a connection to the server may send: requests as they come, and nothing that the server would hold without end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from patience import patient

from hub.api.http import MOST_BODY, MOST_HEAD, MOST_WAITING, BoundedHttp

PATIENCE_S = patient(15.0)
END = b"\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The path and the length of the body."""
    if scope["type"] != "http":
        return
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    body = f"{scope['path']} {length} {len(scope['headers'])}\n".encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    config = uvicorn.Config(echo, "127.0.0.1", 0, http=BoundedHttp, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(PATIENCE_S)


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as opened:
        yield opened


def answers(connection: socket.socket) -> bytes:
    """All that comes until the server closes. A server that closes before it has read everything may cut its words short."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            said += piece
    return said


def get(path: str, *headers: bytes) -> bytes:
    return END.join([f"GET {path} HTTP/1.1".encode(), b"host: here", *headers, b"", b""])


def flood(connection: socket.socket, piece: bytes, most: int) -> int:
    """Sends it again and again until the server takes no more; how many bytes went."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def test_requests_on_one_connection(connection: socket.socket) -> None:
    body = b"x" * 300_000  # more than one read, and than a head may have
    post = b"POST /b HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    chunked = b"POST /c HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
    chunked += b"".join(b"%x\r\n%s\r\n" % (1 << 15, b"y" * (1 << 15)) for _ in range(8)) + b"0\r\n\r\n"
    connection.sendall(get("/a") + post + chunked + get("/d", b"connection: close"))
    lines = [line for line in answers(connection).split(b"\n") if line.startswith(b"/")]
    assert lines == [b"/a 0 1", b"/b 300000 2", b"/c 262144 2", b"/d 0 2"]


def test_a_head_within_the_bound(connection: socket.socket) -> None:
    headers = [b"x-%d: %s" % (number, b"v" * 1000) for number in range(60)]
    connection.sendall(get("/long", b"connection: close", *headers))
    assert b"/long 0 62" in answers(connection)


@pytest.mark.parametrize(
    "head",
    [
        get("/" + "p" * MOST_HEAD),
        get("/", b"x: " + b"v" * MOST_HEAD),
        get("/", *[b"x-%d: v" % number for number in range(MOST_HEAD // 5)]),
    ],
    ids=["path", "value", "number of headers"],
)
def test_a_head_beyond_the_bound(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head)
    said = answers(connection)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"65,536 bytes" in said


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /", b"p" * 4096),
        (b"GET / HTTP/1.1\r\nhost: here\r\nx: ", b"v" * 4096),
        (b"GET / HTTP/1.1\r\nhost: here\r\n", b"a: b\r\n" * 700),
        (b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1;", b"e" * 4096),
        (b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"t: r\r\n" * 700),
        (b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: ", b"r" * 4096),
    ],
    ids=["path", "value", "headers", "a chunk's extension", "trailers", "a trailer's value"],
)
def test_what_has_no_end(connection: socket.socket, begun: bytes, piece: bytes) -> None:
    connection.sendall(begun)
    most = 32 << 20
    # What the sockets' own buffers take goes out, too.
    assert flood(connection, piece, most) < most


def test_a_body_has_an_end(connection: socket.socket) -> None:
    """Routes take a body whole before they look at it."""
    connection.sendall(b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = b"%x\r\n%s\r\n" % (1 << 20, b"b" * (1 << 20))
    most = 2 * MOST_BODY
    assert flood(connection, piece, most) < most


def test_a_body_beyond_the_bound_is_told(connection: socket.socket) -> None:
    connection.sendall(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % (MOST_BODY + 1))
    for _ in range(MOST_BODY >> 20):
        connection.sendall(b"b" * (1 << 20))
    connection.sendall(b"b")
    said = answers(connection)
    assert said.startswith(b"HTTP/1.1 413 ") and b"67,108,864 bytes" in said


def test_a_body_within_the_bound_and_another_one(connection: socket.socket) -> None:
    head = b"POST /%d HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n%s\r\n"
    for n, more in enumerate((b"", b"connection: close\r\n")):
        connection.sendall(head % (n, MOST_BODY - 1, more))
        for _ in range((MOST_BODY >> 20) - 1):
            connection.sendall(b"b" * (1 << 20))
        connection.sendall(b"b" * ((1 << 20) - 1))
    said = answers(connection)
    assert all(b"/%d %d " % (n, MOST_BODY - 1) in said for n in range(2))


def test_too_many_requests_before_an_answer(connection: socket.socket) -> None:
    connection.sendall(get("/") * (MOST_WAITING * 4))
    said = answers(connection)
    assert b"HTTP/1.1 400 " in said
    assert said.count(b"HTTP/1.1 200 ") <= MOST_WAITING + 1


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: here\r\nHost: there\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: here\r\n\r\n",
        b"CONNECT here:443 HTTP/1.1\r\nhost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["no host", "two hosts", "two lengths", "NUL", "CONNECT", "TLS"],
)
def test_what_is_no_request(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head)
    assert answers(connection).startswith(b"HTTP/1.1 400 ")


def test_old_clients_need_no_host(connection: socket.socket) -> None:
    connection.sendall(b"GET /old HTTP/1.0\r\n\r\n")
    assert b"/old 0 0" in answers(connection)
