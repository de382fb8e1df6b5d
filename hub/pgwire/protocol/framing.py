"""[core] Cut a client's bytes into messages, within limits (Postgres' protocol, "Message Formats")."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

# A startup packet has user, database and a few options; Postgres allows 10,000 bytes.
MOST_STARTUP = 10_000
# A statement and its parameters. The parser takes 20,000 characters; parameters may be longer texts.
MOST_MESSAGE = 1 << 20


class ProtocolError(Exception):
    """Invalid bytes: not a message of the protocol. The connection cannot continue."""


@dataclass(slots=True)
class Framing:
    """Buffer of one connection: at most one message of ``most`` bytes and what one read brought."""

    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def pending(self) -> int:
        """Number of bytes that are in no message yet."""
        return len(self._buffer)

    def startup(self) -> bytes | None:
        """Return the body of the next untyped packet (startup, TLS request, cancel), None if incomplete.

        Raises ProtocolError.
        """
        return self._cut(0, 8, MOST_STARTUP)

    def message(self) -> tuple[bytes, bytes] | None:
        """Return type and body of the next message, None if it is incomplete. Raises ProtocolError."""
        kind = bytes(self._buffer[:1])
        body = self._cut(1, 4, MOST_MESSAGE)
        return None if body is None else (kind, body)

    def _cut(self, head: int, least: int, most: int) -> bytes | None:
        if len(self._buffer) < head + 4:
            return None
        (length,) = struct.unpack_from("!i", self._buffer, head)
        if not least <= length <= most:
            raise ProtocolError(f"a message of {length} bytes; {least} to {most} are allowed")
        if len(self._buffer) < head + length:
            return None
        body = bytes(self._buffer[head + 4 : head + length])
        del self._buffer[: head + length]
        return body
