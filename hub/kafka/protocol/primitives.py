"""[core] Kafka's primitive types as bytes (protocol guide, "Protocol Primitive Types").

Requests and answers come in two forms: since its "flexible" version, a message has lengths as varints of the
length plus one, and tagged fields at the end of each structure; before, lengths are of two or four bytes.

Functions read at a position and return the value and the position after it. ``FrameReader`` keeps the
position, for messages that are rare. All raise struct.error or IndexError where the bytes end.
"""

from __future__ import annotations

import struct

from hub.varint import take_unsigned, unsigned

Frame = bytes | bytearray | memoryview

# Keys of requests.
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 3, 10, 17, 18
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_LOG_DIRS, SASL_AUTHENTICATE, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 35, 36, 60, 75

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def request_header(
    api: int, version: int, correlation: int, client: bytes, *, flexible: bool = False
) -> bytes:
    """Return the header of a request."""
    header = struct.pack(">hhih", api, version, correlation, len(client)) + client
    return header + b"\x00" if flexible else header


def text(value: str | None, *, flexible: bool = False) -> bytes:
    """Return a text after its length."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = value.encode()
    return (unsigned(len(encoded) + 1) if flexible else _SHORT.pack(len(encoded))) + encoded


def take_text(frame: bytes | bytearray, at: int, *, flexible: bool = False) -> tuple[str | None, int]:
    """Read a text after its length."""
    if flexible:
        size, at = take_unsigned(frame, at)
        size -= 1
    else:
        (size,) = _SHORT.unpack_from(frame, at)
        at += 2
    if size < 0:
        return None, at
    return frame[at : at + size].decode("utf-8", "replace"), at + size


def count(number: int, *, flexible: bool) -> bytes:
    """Return the length of an array."""
    return unsigned(number + 1) if flexible else _INT.pack(number)


def take_count(frame: Frame, at: int, *, flexible: bool = False) -> tuple[int, int]:
    """Read the length of an array; 0 for null."""
    if flexible:
        number, at = take_unsigned(frame, at)
        return max(0, number - 1), at
    (number,) = _INT.unpack_from(frame, at)
    return max(0, number), at + 4


def skip_tags(frame: Frame, at: int) -> int:
    """Return the position after the tagged fields at the end of a structure."""
    tags, at = take_unsigned(frame, at)
    for _ in range(tags):
        _, at = take_unsigned(frame, at)
        size, at = take_unsigned(frame, at)
        at += size
    return at


class FrameReader:
    """An answer, field after field, in either form."""

    def __init__(self, frame: bytes, at: int = 0, *, flexible: bool = False) -> None:
        self.frame, self.at, self.flexible = frame, at, flexible

    def take(self, kind: str) -> int:
        """Read a number of a format of ``struct``."""
        (value,) = struct.unpack_from(kind, self.frame, self.at)
        self.at += struct.calcsize(kind)
        return int(value)

    def count(self) -> int:
        """Read the length of an array; 0 for null."""
        number, self.at = take_count(self.frame, self.at, flexible=self.flexible)
        return number

    def text(self) -> str:
        """Read a text; "" for null."""
        if self.flexible:
            size = self.count()
            self.at += size
            return self.frame[self.at - size : self.at].decode("utf-8", "replace")
        found, self.at = take_text(self.frame, self.at)
        return found or ""

    def blob(self) -> bytes:
        """Read bytes after their length of four bytes; b"" for null."""
        size = max(0, self.take(">i"))
        self.at += size
        return self.frame[self.at - size : self.at]

    def end(self) -> None:
        """Skip what is at the end of a structure: tagged fields in a flexible message, else nothing."""
        if self.flexible:
            self.at = skip_tags(self.frame, self.at)
