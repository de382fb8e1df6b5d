"""[core] Render a record for people: key, headers and value as text if possible, else as hex.

Record bytes are untrusted: they are never executed, long ones are truncated, and truncation and decoding
errors are reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import orjson

from hub.errors import NotFound
from hub.masking.shape import OPEN, MaskRefused, Visibility
from hub.record import Record
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.wire_format import Undecodable, unframe
from hub.schema_registry.formats import InvalidSchema

Form = Literal["null", "json", "text", "hex"]
Decode = Callable[[bytes, int], Any]

MOST_CHARACTERS = 4_000
MOST_HEX_BYTES = 512
MOST_HEADERS = 50
_LINE = 240
_LONGEST_JSON = 2_000_000  # maximum size in bytes of a value that is tried as JSON without a schema
_UNREADABLE = (BrokenValue, Undecodable, InvalidSchema, NotFound, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Schema:
    """Writer schema of a value. ``subject`` and ``version`` are where it is registered, if known.
    ``encrypted``: fields that are shown as their ciphertext.
    """

    id: int
    type: str
    subject: str | None = None
    version: int | None = None
    encrypted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedBytes:
    """Rendered bytes. ``text`` is indented JSON, plain text, or a hex dump; ``line`` is its beginning on one
    line.

    ``bytes`` is the original size; ``cut`` describes what ``text`` omits; ``problem`` is the reason why the
    schema could not decode the bytes.
    """

    form: Form
    text: str
    line: str
    bytes: int
    schema: Schema | None = None
    cut: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A rendered record. ``headers`` are (name, value) in the log's order."""

    partition: int
    offset: int
    timestamp_ms: int
    key: RenderedBytes
    value: RenderedBytes
    headers: tuple[tuple[str, RenderedBytes], ...]
    more_headers: int = 0


@dataclass(frozen=True, slots=True)
class ReadySchema:
    """A schema with its decoder. ``decode`` is None if the schema cannot be used; ``problem`` is the
    reason.
    """

    schema: Schema
    decode: Decode | None
    problem: str = ""


def message(
    record: Record,
    reading_of: Callable[[int], ReadySchema | None],
    most: int = MOST_CHARACTERS,
    shape: Visibility = OPEN,
) -> Message | None:
    """Render a record with texts of at most ``most`` characters. ``reading_of`` returns the schema for an id,
    None if there is none. ``shape``: what the reader sees; None for a record that it does not see.
    """
    if not shape.is_open:
        return _masked_message(record, reading_of, most, shape)
    return Message(
        record.partition,
        record.offset,
        record.timestamp_ms,
        part(record.key, reading_of, most),
        part(record.value, reading_of, most)
        if record.unread is None
        else RenderedBytes("null", "", "not read", 0, problem=f"it is not read: {record.unread}"),
        tuple((_clean(name[:200]), part(value, None, most)) for name, value in record.headers[:MOST_HEADERS]),
        max(0, len(record.headers) - MOST_HEADERS),
    )


def _masked_message(
    record: Record, reading_of: Callable[[int], ReadySchema | None], most: int, shape: Visibility
) -> Message | None:
    """Render a record as seen: what cannot be decoded has no fields to mask, so nothing of it is shown."""
    value = _decoded(record.value, reading_of)
    if not shape.admits(value):
        return None
    key = None if record.key is None else shape.masked_key(record.key.decode("utf-8", "replace"))
    hidden = RenderedBytes("null", "", "masked", 0, problem="it is masked for you")
    if record.value is None:
        rendered = part(None, None)
    elif value is None and not shape.fields:
        rendered = hidden
    else:
        try:
            visible = shape.event(value)
        except MaskRefused as error:
            visible, hidden = None, RenderedBytes("null", "", "masked", 0, problem=error.message)
        rendered = hidden if visible is None else _json(visible, len(_spelled(visible, indent=False)), most)
    return Message(
        record.partition,
        record.offset,
        record.timestamp_ms,
        hidden
        if key is None and record.key is not None
        else part(None if key is None else key.encode(), None, most),
        rendered,
        tuple((_clean(name[:200]), hidden) for name, _ in record.headers[:MOST_HEADERS]),
        max(0, len(record.headers) - MOST_HEADERS),
    )


def _decoded(data: bytes | None, reading_of: Callable[[int], ReadySchema | None]) -> Any:
    """Return a value by its schema, or as JSON; None for one that is neither."""
    if data is None:
        return None
    try:
        if data[:1] == b"\x00":
            reading = reading_of(unframe(data)[0])
            return None if reading is None or reading.decode is None else reading.decode(data, 5)
        return json.loads(data) if len(data) <= _LONGEST_JSON else None
    except (*_UNREADABLE, ArithmeticError):
        return None


def part(
    data: bytes | None, reading_of: Callable[[int], ReadySchema | None] | None, most: int = MOST_CHARACTERS
) -> RenderedBytes:
    """Render bytes: with their writer schema if they name one, else as JSON, as text or as hex."""
    if data is None:
        return RenderedBytes("null", "", "null", 0)
    if reading_of is not None and data[:1] == b"\x00":
        framed = _framed(data, reading_of, most)
        if framed is not None:
            return framed
    return _plain(data, most)


def _framed(data: bytes, reading_of: Callable[[int], ReadySchema | None], most: int) -> RenderedBytes | None:
    try:
        schema_id, _ = unframe(data)
    except Undecodable:
        return None
    reading = reading_of(schema_id)
    if reading is None:
        return _hex(data, most, problem=f"it names schema {schema_id}, which the registry does not have")
    if reading.decode is None:
        return _hex(data, most, reading.schema, reading.problem)
    try:
        return _json(reading.decode(data, 5), len(data), most, reading.schema)
    except _UNREADABLE as error:
        reason = getattr(error, "message", None) or str(error) or type(error).__name__
        return _hex(data, most, reading.schema, f"its schema cannot read it: {reason[:300]}")


def _plain(data: bytes, most: int) -> RenderedBytes:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _hex(data, most)
    if text[:1] in ("{", "[") and len(data) <= _LONGEST_JSON:
        try:
            return _json(json.loads(text), len(data), most)
        except (ValueError, RecursionError):
            pass
    if any(ord(each) < 32 and each not in "\t\r\n" for each in text[:10_000]):
        return _hex(data, most)
    return RenderedBytes("text", text[:most], _one_line(text), len(data), cut=_shortened(text, most))


def _json(value: Any, size: int, most: int, schema: Schema | None = None) -> RenderedBytes:
    text = _spelled(value, indent=True)
    line = _spelled(value, indent=False) if len(text) <= 100_000 else text[:2_000]
    return RenderedBytes("json", text[:most], _one_line(line), size, schema, _shortened(text, most))


def _spelled(value: Any, *, indent: bool) -> str:
    """Serialize to JSON that every output can encode: a lone surrogate is written as its escape. NaN and
    Infinity are kept, because null would be another value.
    """
    try:
        text = orjson.dumps(
            value, default=_display_value, option=orjson.OPT_INDENT_2 if indent else None
        ).decode()
        if "null" not in text or not _has_no_number(value):  # orjson writes NaN and Infinity as null
            return text
    except TypeError:  # integers of more than 64 bits, lone surrogates
        pass
    return _clean(json.dumps(value, ensure_ascii=False, indent=2 if indent else None, default=_display_value))


def _has_no_number(value: Any) -> bool:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return True
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
    return False


def _display_value(value: object) -> object:
    """Convert a value that JSON cannot represent."""
    if isinstance(value, bytes | bytearray):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)


def _hex(data: bytes, most: int, schema: Schema | None = None, problem: str = "") -> RenderedBytes:
    shown = min(MOST_HEX_BYTES if most <= MOST_CHARACTERS else most // 4, len(data))
    cut = f"{len(data) - shown:,} of {len(data):,} bytes are not shown" if shown < len(data) else ""
    return RenderedBytes("hex", dump(data[:shown]), data[:40].hex(" "), len(data), schema, cut, problem)


def dump(data: bytes) -> str:
    """Format a hex dump with 16 bytes per line: offset, hex, ASCII.

    >>> print(dump(b"\\x00abc"))
    00000000  00 61 62 63                                       .abc
    """
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:08x}  {row.hex(' '):<48}  {letters}")
    return "\n".join(lines)


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _one_line(text: str) -> str:
    line = " ".join(text[: _LINE * 2].split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _shortened(text: str, most: int) -> str:
    return f"{len(text) - most:,} of {len(text):,} characters are not shown" if len(text) > most else ""


def contains_words(shown: Message, words: Sequence[str]) -> bool:
    """Return True if each word (lower case) occurs in the key, the value or a header, unless that is shown as
    hex.
    """
    texts = [each.text.lower() for each in (shown.key, shown.value) if each.form != "hex"]
    texts += [f"{name} {each.text}".lower() for name, each in shown.headers]
    return all(any(word in text for text in texts) for word in words)
