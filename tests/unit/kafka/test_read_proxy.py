"""The read proxy's door: of a secured cluster it serves nobody who does not know the process's password."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from hub.kafka.protocol.primitives import request_header
from hub.kafka.protocol.sockets import CLIENT, exchange, let_in
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS
from hub.kafka.read_proxy import ReadProxy

_HANDSHAKE, _AUTHENTICATE, _FETCH, _LIST_OFFSETS = 17, 36, 1, 2
_ANSWER = b"all that it knows"


@pytest.fixture
def broker() -> Iterator[tuple[int, list[int]]]:
    """The port of a broker with SASL PLAIN, and the kinds of requests that it was asked once
    it had let somebody in."""
    heard: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            while True:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return connection.close()
                frame = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                api, _, correlation = struct.unpack_from(">hhi", frame)
                answer = struct.pack(">i", correlation)
                if api == _HANDSHAKE:
                    answer += struct.pack(">hi", 0, 1) + b"\x00\x05PLAIN"
                elif api == _AUTHENTICATE:
                    answer += struct.pack(">hhiq", 0, -1, 0, 0)
                else:
                    heard.append(api)
                    answer += _ANSWER
                connection.sendall(struct.pack(">i", len(answer)) + answer)

        def accept() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


def test_who_does_not_know_the_password_is_sent_away(broker: tuple[int, list[int]]) -> None:
    port, heard = broker
    secret = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    proxy = ReadProxy(f"127.0.0.1:{port}", secret, None, DEFAULT_BOUNDS)
    told = proxy.librdkafka()
    host, _, own = proxy.bootstrap.rpartition(":")
    assert (told["bootstrap.servers"], told["security.protocol"]) == (proxy.bootstrap, "SASL_PLAINTEXT")
    assert "p" != told["sasl.password"] not in repr(proxy)
    for words in (None, "wrong", "", "p"):
        somebody = socket.create_connection((host, int(own)), 20.0)
        with somebody, pytest.raises(ConnectionResetError):
            _read_as(somebody, host, told, words)
    assert heard == []
    with socket.create_connection((host, int(own)), 20.0) as ours:
        let_in(ours, host, told, None)
        assert exchange(ours, request_header(_LIST_OFFSETS, 1, 1, CLIENT), 1_000)[4:] == _ANSWER
    assert heard == [_LIST_OFFSETS]


def _read_as(somebody: socket.socket, host: str, told: dict[str, str], words: str | None) -> None:
    """Ask for records, with a password or (None) without showing any."""
    if words is not None:
        let_in(somebody, host, {**told, "sasl.password": words}, None)
    exchange(somebody, request_header(_FETCH, 1, 1, CLIENT), 1_000)
