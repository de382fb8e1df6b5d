"""Limits of a server's connections: valid requests pass, nothing is held without a limit, and the number
of connections is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from app_server import served
from patience import patient, wait_until
from websockets.sync.client import connect

from hub.api.http import LEAST_BYTES_PER_S, MOST_BODY, MOST_HEAD, MOST_WAITING, BoundedHttp, room_for

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
    with served(echo) as found:
        yield found


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as opened:
        yield opened


def answers(connection: socket.socket) -> bytes:
    """All that comes until the server closes.
    A server that closes before it has read everything may cut its words short."""
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
    ids=["not a host", "two hosts", "two lengths", "NUL", "CONNECT", "TLS"],
)
def test_what_is_no_request(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head)
    assert answers(connection).startswith(b"HTTP/1.1 400 ")


def test_old_clients_need_no_host(connection: socket.socket) -> None:
    connection.sendall(b"GET /old HTTP/1.0\r\n\r\n")
    assert b"/old 0 0" in answers(connection)


# ---- for how long


class Impatient(BoundedHttp):
    """BoundedHttp with short limits."""

    head_s, body_s, stuck_s, look_s = 0.3, 0.3, 0.3, 0.05


QUIET_S = 1.2  # longer than anything that is owed may take
ended: list[str] = []


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Answer slowly; report when the request has ended."""
    path = scope["path"]
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.sleep(QUIET_S)
        said = await receive()
        await send({"type": "websocket.send", "text": said["text"]})
        return
    try:
        if path == "/body":
            await echo(scope, receive, send)
            return
        length = b"0" if path == "/at-once" else b"5"
        headers = [] if path in ("/stream", "/flood") else [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if path == "/stream":
            await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        if path in ("/stream", "/late"):
            await asyncio.sleep(QUIET_S)
        message = asyncio.ensure_future(receive())
        while path == "/flood" and (not message.done() or message.result()["type"] != "http.disconnect"):
            if message.done():
                message = asyncio.ensure_future(receive())
            await send({"type": "http.response.body", "body": b"f" * 100_000, "more_body": True})
            await asyncio.sleep(0)  # to who is gone it sends without waiting
        message.cancel()
        await send({"type": "http.response.body", "body": b"" if path == "/at-once" else b"after"})
    finally:
        ended.append(path)


@pytest.fixture(scope="module")
def impatient() -> Iterator[int]:
    with served(slow, Impatient) as found:
        yield found


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def trickled(connection: socket.socket, text: bytes) -> bytes:
    """Send a byte now and then until the server closes. Returns its answer."""
    connection.settimeout(0.05)
    said = b""
    deadline = time.monotonic() + PATIENCE_S
    for byte in text:
        with contextlib.suppress(ConnectionError):
            connection.sendall(bytes([byte]))
        try:
            piece = connection.recv(1 << 16)
        except TimeoutError:
            assert time.monotonic() < deadline, "the server waits for ever"
            continue
        except ConnectionResetError:
            return said
        if not piece:
            return said
        said += piece
    pytest.fail("the server waits for ever")


def test_who_says_nothing_is_not_waited_for(impatient: int) -> None:
    with opened(impatient) as connection:
        assert answers(connection) == b""


@pytest.mark.parametrize("begun", [b"", b"GET /late HTTP/1.1\r\nhost: here\r\n"], ids=["line", "headers"])
def test_a_head_that_comes_byte_by_byte_has_an_end(impatient: int, begun: bytes) -> None:
    with opened(impatient) as connection:
        connection.sendall(begun)
        said = trickled(connection, (b"x: " if begun else b"GET /") + b"p" * 10_000)
    assert said.startswith(b"HTTP/1.1 408 ") and b"connection: close" in said


def test_empty_lines_after_an_answer_keep_no_connection(impatient: int) -> None:
    with opened(impatient) as connection:
        connection.sendall(get("/at-once"))
        said = trickled(connection, END * 5_000)
    assert said.startswith(b"HTTP/1.1 200 ") and said.count(b"HTTP/1.1") == 1


def test_a_body_that_stops_is_not_waited_for(impatient: int) -> None:
    with opened(impatient) as connection:
        connection.sendall(b"POST /body HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nhalf")
        assert answers(connection).startswith(b"HTTP/1.1 408 ")


def test_the_rest_of_a_body_that_was_answered_already_is_not_waited_for(impatient: int) -> None:
    with opened(impatient) as connection:
        connection.sendall(b"POST /at-once HTTP/1.1\r\nhost: here\r\ncontent-length: 10000\r\n\r\nhalf")
        said = trickled(connection, b"b" * 9_000)
    assert said.startswith(b"HTTP/1.1 200 ") and said.count(b"HTTP/1.1") == 1


def test_a_body_may_take_long_while_it_comes(impatient: int) -> None:
    piece = b"b" * int(PATIENCE_S * LEAST_BYTES_PER_S)
    with opened(impatient) as connection:
        head = b"POST /body HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % (4 * len(piece)) + piece)
        for _ in range(3):
            time.sleep(QUIET_S / 3)
            connection.sendall(piece)
        assert b"/body %d " % (4 * len(piece)) in answers(connection)


@pytest.mark.parametrize("path", ["/late", "/stream"])
def test_an_answer_may_take_as_long_as_it_likes(impatient: int, path: str) -> None:
    with opened(impatient) as connection:
        connection.sendall(
            get("/at-once") + get(path, b"connection: close")
        )  # the second waits for the first
        said = answers(connection)
        assert said.count(b"HTTP/1.1 200 ") == 2 and b"after" in said


def test_a_web_socket_may_be_quiet(impatient: int) -> None:
    with connect(f"ws://127.0.0.1:{impatient}/ws", open_timeout=PATIENCE_S) as followed:
        time.sleep(QUIET_S)
        followed.send("still here")
        assert followed.recv(PATIENCE_S) == "still here"


def test_who_takes_nothing_of_an_answer_is_not_waited_for(impatient: int) -> None:
    ended.clear()
    with opened(impatient) as connection:
        connection.sendall(get("/flood"))
        wait_until(lambda: "/flood" in ended, PATIENCE_S, lambda: "the server waits for ever")


# ---- how many


def test_a_connection_too_many_is_told_so_and_no_other_suffers() -> None:
    with served(echo, most=3) as port, contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(port)) for _ in range(3)]
        for each in held:
            each.sendall(get("/a"))
            assert each.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        for number in range(5):
            with opened(port) as one_more:
                if number % 2:
                    one_more.sendall(get("/b"))
                said = answers(one_more)
                assert said.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in said
                assert b"3 connections" in said and b"http_connections" in said
        held[0].sendall(get("/c", b"connection: close"))
        assert b"/c 0 " in answers(held[0])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with opened(port) as next_one:
                next_one.sendall(get("/d", b"connection: close"))
                if b"/d 0 " in answers(next_one):
                    break
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("limits", "wanted", "raised", "room"),
    [
        ((1_024, 524_288), 4_000, (4_500, 524_288), 4_000),
        ((1_024, resource.RLIM_INFINITY), 4_000, (4_500, resource.RLIM_INFINITY), 4_000),
        ((20_000, 20_000), 4_000, None, 4_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 4_000, None, 4_000),
        ((256, 1_024), 4_000, (1_024, 1_024), 524),
        ((256, 256), 4_000, (256, 256), 1),
    ],
)
def test_there_are_no_more_connections_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: int,
    raised: tuple[int, int] | None,
    room: int,
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, to: told.append(to))
    assert room_for(wanted) == room
    assert told == ([] if raised is None else [raised])
