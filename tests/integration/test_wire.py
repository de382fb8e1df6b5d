"""A connection to a broker that answers oddly: in drips, late, never, or with less than announced."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hub.kafka.protocol.broker_client import BrokerConnection, ClusterAccess, ConnectionLost

Answers = Callable[[socket.socket, int], None]


@contextmanager
def broker(answers: Answers) -> Iterator[BrokerConnection]:
    """Greet like brokers, then handle each request as the test defines."""
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
    connection = BrokerConnection(
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


def ask(connection: BrokerConnection) -> tuple[bytearray, int]:
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


def test_answers_that_come_at_once_are_told_apart_and_seen_without_the_socket() -> None:
    waiting: list[int] = []

    def answer(client: socket.socket, correlation: int) -> None:
        waiting.append(correlation)
        if len(waiting) == 3:
            client.sendall(b"".join(framed(each, b"answer %d" % each) for each in waiting))

    with broker(answer) as connection:
        for _ in range(3):
            connection.send(1, 0, [b""], flexible=False)
        found = []
        for left in (2, 1, 0):
            frame, at = connection.receive()
            found.append(bytes(frame[at:]))
            assert connection.buffered() is (left > 0)
        assert found == [b"answer %d" % each for each in waiting]


@pytest.mark.parametrize("size", [1_024 * 1_024, 3 * 1_024 * 1_024 + 5])
def test_a_large_answer_is_whole_whatever_its_pieces_and_so_is_the_short_one_behind_it(size: int) -> None:
    """The kernel wakes for the rest too, although it is less than the requested amount."""
    body = bytes(range(251)) * (size // 251 + 1)

    def answer(client: socket.socket, correlation: int) -> None:
        if correlation % 2 == 0:
            said = framed(correlation, body)
            client.sendall(said[:-7])
            threading.Event().wait(0.05)
            client.sendall(said[-7:])
        else:
            client.sendall(framed(correlation, b"short"))

    with broker(answer) as connection:
        for _ in range(2):
            frame, at = ask(connection)
            assert frame[at:] == body
            frame, at = ask(connection)
            assert frame[at:] == b"short"


def test_an_answer_goes_where_the_last_one_was_if_there_is_room() -> None:
    with broker(lambda client, correlation: client.sendall(framed(correlation, b"x" * 10_000))) as connection:
        for spare, into in ((bytearray(20_000), True), (bytearray(100), False)):
            connection.send(1, 0, [b""], flexible=False)
            frame, at = connection.receive(spare=spare)
            assert (frame is spare) is into
            assert frame[at : at + 10_000] == b"x" * 10_000


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
