"""A connection to a broker that answers oddly: in drips, late, never, or with less than it had said before."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hub.replication.wire import ClusterAccess, Connection, ConnectionLost

Answers = Callable[[socket.socket, int], None]


@contextmanager
def broker(answers: Answers) -> Iterator[Connection]:
    """Greets as brokers do, then does what the test says with each request's correlation id."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            for number in range(100):
                head = client.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                request = client.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                (correlation,) = struct.unpack_from(">i", request, 4)
                if number == 0:
                    client.sendall(framed(correlation, struct.pack(">hi", 0, 0)))
                else:
                    answers(client, correlation)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    connection = Connection(
        ClusterAccess(bootstrap="", request_timeout_s=1.0), "127.0.0.1", listener.getsockname()[1]
    )
    try:
        yield connection
    finally:
        connection.close()
        listener.close()
        thread.join(10.0)


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def ask(connection: Connection) -> tuple[bytearray, int]:
    connection.send(1, 0, [b""], flexible=False)
    return connection.receive()


def test_an_answer_that_comes_in_drips_is_whole() -> None:
    body = bytes(range(256)) * 40

    def answer(client: socket.socket, correlation: int) -> None:
        said = framed(correlation, body)
        for at in range(0, len(said), 1_000):
            client.sendall(said[at : at + 1_000])
            threading.Event().wait(0.005)

    with broker(answer) as connection:
        frame, at = ask(connection)
        assert frame[at:] == body


@pytest.mark.parametrize("half", [b"", struct.pack(">i", 1_000), struct.pack(">ii", 1_000, 2) + b"x" * 10])
def test_an_answer_that_does_not_come_is_given_up_and_the_connection_with_it(half: bytes) -> None:
    with broker(lambda client, _: client.sendall(half)) as connection:
        with pytest.raises(ConnectionLost, match="timed out"):
            ask(connection)
        assert connection.closed


def test_a_connection_that_ends_in_an_answer_is_lost() -> None:
    def answer(client: socket.socket, correlation: int) -> None:
        client.sendall(framed(correlation, b"x" * 100)[:50])
        client.shutdown(socket.SHUT_RDWR)

    with broker(answer) as connection, pytest.raises(ConnectionLost, match="closed the connection"):
        ask(connection)
