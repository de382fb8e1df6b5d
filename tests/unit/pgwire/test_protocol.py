"""Messages as bytes: what clients send, within limits, and what they are told."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.pgwire.protocol import backend, frontend
from hub.pgwire.protocol.framing import MOST_MESSAGE, Framing, ProtocolError


def framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def test_messages_come_in_any_pieces() -> None:
    data = framed(b"Q", b"SELECT 1\0") + framed(b"S", b"")
    for size in range(1, len(data) + 1):
        framing, found = Framing(), []
        for start in range(0, len(data), size):
            framing.feed(data[start : start + size])
            while (message := framing.message()) is not None:
                found.append(frontend.message(*message))
        assert found == [frontend.SimpleQuery("SELECT 1"), frontend.Sync()]
        assert framing.pending == 0


@pytest.mark.parametrize("length", [-1, 0, 3, MOST_MESSAGE + 1, 2**31 - 1])
def test_a_length_beyond_its_limits_is_refused_before_its_bytes(length: int) -> None:
    framing = Framing()
    framing.feed(b"Q" + struct.pack("!i", length))
    with pytest.raises(ProtocolError):
        framing.message()


def test_startup_packets() -> None:
    body = struct.pack("!i", 3 << 16) + b"user\0ada\0_pq_.x\0y\0\0"
    startup = frontend.startup_packet(body)
    assert isinstance(startup, frontend.Startup)
    assert (startup.parameters["user"], startup.options) == ("ada", ["_pq_.x"])
    assert frontend.startup_packet(struct.pack("!i", 80877103)) == frontend.EncryptionRequest(tls=True)
    cancel = struct.pack("!ii", 80877102, 7) + b"abcd"
    assert frontend.startup_packet(cancel) == frontend.CancelRequest(7, b"abcd")
    for wrong in (struct.pack("!i", 2 << 16), body[:-2], body + b"x", struct.pack("!i", 80877103) + b"x"):
        with pytest.raises(ProtocolError):
            frontend.startup_packet(wrong)


def test_bind_has_formats_and_nulls() -> None:
    body = b"p\0s\0" + struct.pack("!Hh", 1, 1) + struct.pack("!Hii", 2, -1, 2) + b"ab" + struct.pack("!H", 0)
    assert frontend.message(b"B", body) == frontend.Bind("p", "s", (1,), (None, b"ab"), ())
    for wrong in (body + b"x", body[:-1], body.replace(struct.pack("!Hh", 1, 1), struct.pack("!Hh", 1, 2))):
        with pytest.raises(ProtocolError):
            frontend.message(b"B", wrong)


@given(st.binary(max_size=1), st.binary(max_size=80))
def test_garbage_is_a_message_or_a_protocol_error(kind: bytes, body: bytes) -> None:
    for decode in (lambda: frontend.message(kind, body), lambda: frontend.startup_packet(body)):
        with contextlib.suppress(ProtocolError):
            decode()


def test_replies() -> None:
    assert backend.ready("T") == b"Z\0\0\0\x05T"
    assert backend.data_row([None, b"ab"], 2) == b"D\0\0\0\x10\0\x02\xff\xff\xff\xff\0\0\0\x02ab"
    assert backend.complete("SELECT 3") == b"C\0\0\0\x0dSELECT 3\0"
    assert backend.error({"S": "ERROR", "C": "42601"}) == b"E\0\0\0\x13SERROR\0C42601\0\0"
