"""The request for log sizes, byte by byte, against a minimal broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hub.errors import PeerError
from hub.kafka.log_dirs import log_sizes


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def folder(path: str, *topics: tuple[str, list[tuple[int, int]]], error: int = 0) -> bytes:
    made = struct.pack(">h", error) + text(path) + struct.pack(">i", len(topics))
    for name, partitions in topics:
        made += text(name) + struct.pack(">i", len(partitions))
        for partition, size in partitions:
            made += struct.pack(">iqqb", partition, size, 0, 0)
    return made


def answer(*folders: bytes, correlation: int = 7) -> bytes:
    body = struct.pack(">iii", correlation, 0, len(folders)) + b"".join(folders)
    return struct.pack(">i", len(body)) + body


@contextmanager
def broker(says: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port that reads one request and answers with these bytes."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                (size,) = struct.unpack(">i", connection.recv(4))
                heard.append(connection.recv(size))
                connection.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], heard
        thread.join(10)


def test_sizes_by_partition_and_broker() -> None:
    first = answer(folder("/a", ("t", [(0, 10), (1, 20)]), ("u", [(0, 99)])), folder("/b", ("t", [(1, 5)])))
    second = answer(folder("/a", ("t", [(0, 11)])))
    with broker(first) as (one, heard), broker(second) as (two, _):
        brokers = {1: ("127.0.0.1", one), 2: ("127.0.0.1", two)}
        assert log_sizes(brokers, "t", [0, 1], 5.0) == {0: {1: 10, 2: 11}, 1: {1: 25}}
    header = struct.pack(">hhi", 35, 1, 7) + text("hub.admin")
    assert heard == [header + struct.pack(">i", 1) + text("t") + struct.pack(">iii", 2, 0, 1)]


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 100) + b"cut off",
        answer(correlation=8),
        answer(folder("/a", error=56)),
        answer()[:-2] + b"\x00\x09",
    ],
)
def test_a_broker_that_does_not_tell_is_named(says: bytes) -> None:
    with broker(says) as (port, _), pytest.raises(PeerError, match=f"broker 3 at 127.0.0.1:{port}"):
        log_sizes({3: ("127.0.0.1", port)}, "t", [0], 5.0)


def test_a_broker_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(PeerError, match="broker 1 at 127.0.0.1"):
        log_sizes({1: ("127.0.0.1", port)}, "t", [0], 1.0)
