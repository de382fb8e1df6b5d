"""[core] Check that an event written with one schema can be read with another, by decoding its bytes.

- Avro: decoded with the writer's schema into the reader's, as a consumer does (fastavro).
- JSON Schema: the text is validated against the reader's schema.
- Protobuf: decoded with both; values that the writer set must be the same for the reader. A parser silently
  drops values that it cannot place (another wire type, the second member of a oneof, a removed symbol) and
  truncates values that are too long. Fields that the reader lacks are not a failure.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from math import isnan
from typing import Any, Protocol

import fastavro
from google.protobuf.message import Message

from hub.schema_registry.codecs.avro_to_json import render_json
from hub.schema_registry.codecs.avro_validator import BrokenValue, counts_nothing
from hub.schema_registry.codecs.values import JsonText, Protobuf
from hub.schema_registry.codecs.wire_format import MOST_RECURSIVE_BYTES, Undecodable
from hub.schema_registry.formats.avro.types import is_recursive, types_of
from hub.schema_registry.registry.snapshot import ParsedSchema

_CUT = 200
REFUSALS = (
    EOFError,
    ValueError,
    IndexError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    MemoryError,
    fastavro.read.SchemaResolutionError,
)


class Rereader(Protocol):
    """One schema, prepared for many events."""

    def broken(self, body: bytes) -> str | None:
        """Return why bytes of this schema are invalid; None when they are valid."""

    def refusal(self, body: bytes, writer: Any) -> str | None:
        """Return why this schema cannot read bytes written with ``writer`` (same kind); None when it can."""


def rereader(parsed: ParsedSchema) -> Rereader:
    """Prepare a schema. Raises InvalidSchema for a schema that has no values."""
    if parsed.schema_type == "AVRO":
        return AvroReading(parsed)
    return _JsonReading(parsed) if parsed.schema_type == "JSON" else _ProtobufReading(parsed)


class AvroReading:
    """Avro bytes with their writer's schema.

    Referenced types are known by name; the checks for recursion and empty items cover all types, including
    those of other subjects.
    """

    def __init__(self, parsed: ParsedSchema) -> None:
        """Prepare a schema. Raises InvalidSchema."""
        types = list(parsed.named.values())
        known: dict[str, Any] = {}
        for each in types:
            fastavro.parse_schema(each, named_schemas=known, _ignore_default_error=True)
        self.schema = fastavro.parse_schema(parsed.schema, named_schemas=known, _ignore_default_error=True)
        self._root = types_of(parsed.schema, types)
        self._recursive = is_recursive(self._root)
        self._endless = counts_nothing(self._root)

    def broken(self, body: bytes) -> str | None:
        return self._refusal(body, None)

    def refusal(self, body: bytes, writer: AvroReading) -> str | None:
        return writer._refusal(body, self.schema)

    def _refusal(self, body: bytes, reader: Any) -> str | None:
        try:
            self.value(body, reader)
        except Undecodable as error:
            return error.message[:_CUT]
        return None

    def value(self, body: bytes, reader: Any = None) -> Any:
        """Decode a body, as ``reader`` (a prepared schema) if given. Raises Undecodable."""
        if self._recursive and len(body) > MOST_RECURSIVE_BYTES:
            raise Undecodable(f"{len(body)} bytes under a recursive schema")
        if self._endless and (cut := render_json(self._root, body, 0).broken) is not None:
            raise Undecodable(str(cut))
        try:
            return fastavro.schemaless_reader(io.BytesIO(body), self.schema, reader)
        except REFUSALS as error:
            raise Undecodable(str(error) or type(error).__name__) from None


class _JsonReading:
    def __init__(self, parsed: ParsedSchema) -> None:
        self._text = JsonText(parsed.schema)

    def broken(self, body: bytes) -> str | None:
        try:
            self._text.check(body, 0)
        except BrokenValue as error:
            return _message(error)
        return None

    def refusal(self, body: bytes, writer: _JsonReading) -> str | None:
        return self.broken(body)


class _ProtobufReading:
    def __init__(self, parsed: ParsedSchema) -> None:
        self._values = Protobuf(parsed.schema)

    def broken(self, body: bytes) -> str | None:
        message, wrong = _of(lambda: self._values.message(body, 0))
        return wrong if message is None else _missing(message)

    def refusal(self, body: bytes, writer: _ProtobufReading) -> str | None:
        wrote, wrong = _of(lambda: writer._values.message(body, 0))
        if wrote is None:
            return wrong
        plain = wrote.SerializePartialToString()
        read, wrong = _of(lambda: self._values.message_as(wrote, plain))
        if read is None:
            return wrong
        return _missing(read) or next(_otherwise(wrote, read, ""), None)


def _missing(message: Message) -> str | None:
    """Return a message about required proto2 fields that are missing; None for none."""
    made: Any = message
    names = made.FindInitializationErrors()
    return f"required and not there: {', '.join(names)}"[:_CUT] if names else None


def _of(read: Callable[[], Message]) -> tuple[Message | None, str | None]:
    try:
        return read(), None
    except BrokenValue as error:
        return None, _message(error)


def _message(error: BrokenValue) -> str:
    return str(error)[:_CUT]


def _otherwise(wrote: Any, read: Any, path: str) -> Iterator[str]:
    """Yield each value that the writer set and the reader decodes differently.

    Nesting is limited by what could be decoded.
    """
    known: Mapping[int, Any] = read.DESCRIPTOR.fields_by_number
    for field, value in wrote.ListFields():
        if field.is_extension or field.number not in known:
            continue  # a field that the reader lacks
        reads = known[field.number]
        here = f"{path}{reads.name}"
        found = getattr(read, reads.name)
        if _is_map(field) != _is_map(reads):
            yield f"{here}: {'is a map now' if _is_map(reads) else 'is no longer a map'}"
        elif field.is_repeated and reads.is_repeated:
            yield from _repeated(value, found, here, _is_map(field))
        elif reads.is_repeated:
            yield from _repeated([value], found, here, False)
        else:  # the last value of a field that is no longer repeated counts
            yield from _single(value[-1] if field.is_repeated else value, found, here)


def _repeated(wrote: Any, read: Any, here: str, is_map: bool) -> Iterator[str]:
    if len(wrote) != len(read):
        yield f"{here}: {len(read)} of {len(wrote)} values are read"
        return
    if is_map and set(wrote) != set(read):
        yield f"{here}: other keys are read"
        return
    keys = wrote if is_map else range(len(wrote))
    for key in keys:
        yield from _single(wrote[key], read[key], here)


def _single(wrote: Any, read: Any, here: str) -> Iterator[str]:
    if isinstance(wrote, Message) and isinstance(read, Message):
        yield from _otherwise(wrote, read, f"{here}.")
    elif isinstance(wrote, Message | bytes) and isinstance(read, Message | bytes):
        if isinstance(wrote, bytes) and isinstance(read, bytes) and wrote != read:
            yield f"{here}: {_short(wrote)} is read as {_short(read)}"  # a message and its bytes are the same
    elif isinstance(wrote, Message) or isinstance(read, Message) or not _same(wrote, read):
        yield f"{here}: {_short(wrote)} is read as {_short(read)}"


def _same(wrote: Any, read: Any) -> bool:
    if isinstance(wrote, str) and isinstance(read, bytes):
        return wrote.encode() == read
    if isinstance(wrote, bytes) and isinstance(read, str):
        return wrote == read.encode()
    if isinstance(wrote, float) and isinstance(read, float) and isnan(wrote):
        return isnan(read)
    return bool(wrote == read)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _short(value: Any) -> str:
    text = "a message" if isinstance(value, Message) else repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
