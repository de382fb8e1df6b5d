"""[core] Messages of the client, decoded: bytes to values. Raises ProtocolError for anything malformed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hub.pgwire.protocol.framing import ProtocolError

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST, VERSION_3 = 80877103, 80877104, 80877102, 3
_MOST_VALUES = 1_000


@dataclass(frozen=True, slots=True)
class Startup:
    """First packet of a session. ``options``: names of protocol options (``_pq_.…``)
    that are not known here."""

    parameters: Mapping[str, str]
    minor: int = 0

    @property
    def options(self) -> list[str]:
        return [name for name in self.parameters if name.startswith("_pq_.")]


@dataclass(frozen=True, slots=True)
class EncryptionRequest:
    """The client asks for TLS (``tls``) or for GSSAPI encryption."""

    tls: bool


@dataclass(frozen=True, slots=True)
class CancelRequest:
    process: int
    secret: bytes


@dataclass(frozen=True, slots=True)
class Password:
    text: str


@dataclass(frozen=True, slots=True)
class SimpleQuery:
    sql: str


@dataclass(frozen=True, slots=True)
class Parse:
    name: str
    sql: str
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """``values`` are raw, None for NULL; formats are 0 (text) or 1 (binary):
    none, one for all, or one each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """``kind``: S (a prepared statement) or P (a portal)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    portal: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    pass


@dataclass(frozen=True, slots=True)
class Flush:
    pass


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


@dataclass(frozen=True, slots=True)
class Ignored:
    """Message of a failed COPY, which the protocol skips."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A message for something that is not there: a function call."""

    feature: str


Message = (
    Password
    | SimpleQuery
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Sync
    | Flush
    | Terminate
    | Ignored
    | Unsupported
)


class _Body:
    """Reader of one message's body."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text without its end")
        found, self._at = self._body[self._at : end], end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text that is not UTF-8") from None

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._body):
            raise ProtocolError("a message that is shorter than its length field")
        found, self._at = self._body[self._at : self._at + count], self._at + count
        return found

    def int16(self) -> int:
        return int(struct.unpack("!h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack("!i", self.take(4))[0])

    def count(self) -> int:
        count = int(struct.unpack("!H", self.take(2))[0])
        if count > _MOST_VALUES:
            raise ProtocolError(f"{count} values; {_MOST_VALUES} are allowed")
        return count

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError("a message that is longer than its length field")


def startup_packet(body: bytes) -> Startup | EncryptionRequest | CancelRequest:
    """Decode a packet without a type. Raises ProtocolError, also for protocol 2 and unknown requests."""
    read = _Body(body)
    code = read.int32()
    if code in (SSL_REQUEST, GSS_REQUEST):
        read.end()
        return EncryptionRequest(code == SSL_REQUEST)
    if code == CANCEL_REQUEST:
        process = read.int32()
        return CancelRequest(process, read.take(len(body) - 8))
    if code >> 16 != VERSION_3:
        raise ProtocolError(f"protocol {code >> 16}.{code & 0xFFFF}; 3.0 is spoken here")
    found: dict[str, str] = {}
    while name := read.text():
        found[name] = read.text()
    read.end()
    return Startup(found, code & 0xFFFF)


def _parse(read: _Body) -> Parse:
    name, sql = read.text(), read.text()
    return Parse(name, sql, tuple(read.int32() for _ in range(read.count())))


def _bind(read: _Body) -> Bind:
    portal, statement = read.text(), read.text()
    formats = _formats(read)
    values: list[bytes | None] = []
    for _ in range(read.count()):
        length = read.int32()
        values.append(None if length == -1 else read.take(length))
    return Bind(portal, statement, formats, tuple(values), _formats(read))


def _formats(read: _Body) -> tuple[int, ...]:
    found = tuple(read.int16() for _ in range(read.count()))
    if any(each not in (0, 1) for each in found):
        raise ProtocolError("a format that is neither text nor binary")
    return found


def _kind(read: _Body) -> str:
    kind = read.take(1)
    if kind not in (b"S", b"P"):
        raise ProtocolError("neither a statement nor a portal")
    return kind.decode()


_DECODERS: Mapping[bytes, Callable[[_Body], Message]] = {
    b"p": lambda read: Password(read.text()),
    b"Q": lambda read: SimpleQuery(read.text()),
    b"P": _parse,
    b"B": _bind,
    b"D": lambda read: Describe(_kind(read), read.text()),
    b"E": lambda read: Execute(read.text(), read.int32()),
    b"C": lambda read: Close(_kind(read), read.text()),
    b"S": lambda _read: Sync(),
    b"H": lambda _read: Flush(),
    b"X": lambda _read: Terminate(),
}


def message(kind: bytes, body: bytes) -> Message:
    """Decode a message. Raises ProtocolError."""
    if kind in (b"d", b"c", b"f"):
        return Ignored()
    if kind == b"F":
        return Unsupported("a function call of the protocol")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"a message of the unknown type {kind!r}")
    read = _Body(body)
    found = decoder(read)
    read.end()
    return found


def format_of(formats: Sequence[int], number: int) -> int:
    """Return the format of a value: none means text, one is for all. Raises ProtocolError."""
    if len(formats) <= 1:
        return formats[0] if formats else 0
    if number >= len(formats):
        raise ProtocolError("fewer formats than values")
    return formats[number]
