"""[core] Messages of the server, encoded (Postgres' protocol 3.0, "Message Formats")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

AUTHENTICATED = b"R\0\0\0\x08\0\0\0\0"
ASK_PASSWORD = b"R\0\0\0\x08\0\0\0\x03"
PARSED = b"1\0\0\0\x04"
BOUND = b"2\0\0\0\x04"
CLOSED = b"3\0\0\0\x04"
NO_DATA = b"n\0\0\0\x04"
EMPTY_QUERY = b"I\0\0\0\x04"
SUSPENDED = b"s\0\0\0\x04"
COPY_DONE = b"c\0\0\0\x04"
ENCRYPTED, NOT_ENCRYPTED = b"S", b"N"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a result. ``format``: 0 text, 1 binary."""

    name: str
    oid: int
    size: int = -1
    format: int = 0


def framed(kind: bytes, body: bytes) -> bytes:
    """Return a message with its type and length."""
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value: str) -> bytes:
    """Return a text with the zero at its end; zeros within it are left out."""
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


def parameter_status(name: str, value: str) -> bytes:
    return framed(b"S", text(name) + text(value))


def backend_key(process: int, secret: bytes) -> bytes:
    return framed(b"K", struct.pack("!i", process) + secret)


def ready(status: str) -> bytes:
    """``status``: I (no transaction), T (in one) or E (in a failed one)."""
    return framed(b"Z", status.encode())


def negotiate(options: Sequence[str]) -> bytes:
    """Answer with protocol version 3.0 and the names of unknown options."""
    return framed(b"v", struct.pack("!ii", 0, len(options)) + b"".join(map(text, options)))


def complete(tag: str) -> bytes:
    return framed(b"C", text(tag))


def row_description(fields: Sequence[Field]) -> bytes:
    body = struct.pack("!h", len(fields))
    for each in fields:
        body += text(each.name) + struct.pack("!ihihih", 0, 0, each.oid, each.size, -1, each.format)
    return framed(b"T", body)


def parameter_description(types: Sequence[int]) -> bytes:
    return framed(b"t", struct.pack(f"!h{len(types)}i", len(types), *types))


def copy_out(columns: int) -> bytes:
    """Begin a COPY of texts."""
    return framed(b"H", struct.pack("!bh", 0, columns) + b"\0\0" * columns)


def data_row(values: Iterable[bytes | None], count: int) -> bytes:
    parts = [b"\xff\xff\xff\xff" if each is None else struct.pack("!i", len(each)) + each for each in values]
    body = b"".join(parts)
    return b"D" + struct.pack("!ih", len(body) + 6, count) + body


def notice(fields: Mapping[str, str]) -> bytes:
    return framed(b"N", _fields(fields))


def error(fields: Mapping[str, str]) -> bytes:
    """Return an error message. Fields: S severity, C SQLSTATE, M message, D detail, H hint, P position."""
    return framed(b"E", _fields(fields))


def _fields(fields: Mapping[str, str]) -> bytes:
    return b"".join(name.encode() + text(value) for name, value in fields.items()) + b"\0"
