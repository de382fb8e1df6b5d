"""[core] Decode one rejected event, locate its error, and edit it.

``sight`` never raises for undecodable bytes: it returns what can be decoded. ``changed`` builds a new JSON
value; the shell encodes it with the topic's schema and validates it. A repair must not alter fields that it
does not set: a JSON number that fits neither a double nor 64 bits is a Decimal from ``loaded`` to ``dumped``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson
from google.protobuf import json_format

from hub.errors import CallerError
from hub.schema_registry.codecs.avro_to_json import render_json
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.values import JsonText, Protobuf
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

_SHOWN_BYTES = 32
_MOST_HEX = 4_096
_MOST_LEVELS = 200  # orjson serializes up to 254 levels, and the response nests the event a few levels down


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """An event, decoded as far as possible. ``value`` is its JSON form; if ``partial``, decoding stopped at
    ``path``. ``wrong`` is the error, None if the bytes are valid. ``around`` is hex of the bytes before, at
    and after ``offset``.
    """

    format: str | None
    schema_id: int | None
    value: Any = None
    readable: bool = False
    partial: bool = False
    wrong: str | None = None
    path: str | None = None
    offset: int | None = None
    around: str | None = None

    def row(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "schema_id": self.schema_id,
            "wrong": self.wrong,
            "field": self.path,
            "offset": self.offset,
            "hex_there": self.around,
            "json": self.value,
            "json_is_partial": self.partial,
        }


def sight(
    value: bytes | None, source_of: Callable[[int], SchemaSource | None], schema_id: int | None = None
) -> DecodedEvent:
    """Decode an event. ``source_of`` returns the schema for an id, None if it is not registered.
    ``schema_id`` overrides the id in the bytes.
    """
    if value is None:
        return DecodedEvent(None, None, None, True)
    framed = len(value) >= 5 and value[0] == 0
    if not framed:
        detail = (
            f"the first byte is {value[0]}, not 0"
            if len(value) >= 5
            else f"{len(value)} bytes are not a magic byte and id"
        )
        if schema_id is None:
            return _unframed(value, f"not in the Confluent wire format: {detail}")
    named = int.from_bytes(value[1:5], "big") if framed else None
    writer_id = schema_id if schema_id is not None else named
    start = 5 if framed else 0
    assert writer_id is not None
    source = source_of(writer_id)
    if source is None:
        return DecodedEvent(
            None,
            writer_id,
            wrong=f"schema id {writer_id} is not registered",
            offset=1,
            around=around(value, 1),
        )
    try:
        parsed = source.parsed()
        if isinstance(parsed, AvroSchema):
            return _avro(parsed, writer_id, value, start)
        if isinstance(parsed, JsonSchema):
            return _json(parsed, writer_id, value, start)
        return _protobuf(parsed, writer_id, value, start)
    except InvalidSchema as error:
        return DecodedEvent(
            source.schema_type, writer_id, wrong=f"schema id {writer_id} cannot be read: {error.message}"
        )


def _unframed(value: bytes, wrong: str) -> DecodedEvent:
    """Try bare JSON, the format of producers that do not use a registry."""
    try:
        found = loaded(value)
    except orjson.JSONDecodeError:
        return DecodedEvent(None, None, wrong=wrong, offset=0, around=around(value, 0))
    return DecodedEvent(
        "bare JSON", None, found, isinstance(found, dict), wrong=wrong, offset=0, around=around(value, 0)
    )


def _avro(parsed: AvroSchema, schema_id: int, value: bytes, start: int) -> DecodedEvent:
    read = render_json(parsed.root(), value, start)
    if read.broken is not None:
        at = read.broken.offset
        return DecodedEvent(
            "AVRO", schema_id, read.value, False, True, str(read.broken), read.path, at, around(value, at)
        )
    if read.end != len(value):
        left = f"{len(value) - read.end} bytes are left at byte {read.end}"
        return DecodedEvent(
            "AVRO", schema_id, read.value, True, False, left, None, read.end, around(value, read.end)
        )
    return DecodedEvent("AVRO", schema_id, read.value, True)


def _json(parsed: JsonSchema, schema_id: int, value: bytes, start: int) -> DecodedEvent:
    try:
        found = loaded(value[start:])
    except orjson.JSONDecodeError as error:
        at = start + error.pos
        return DecodedEvent("JSON", schema_id, wrong=f"no JSON: {error}", offset=at, around=around(value, at))
    try:
        JsonText(parsed).body(in_doubles(found))
    except CallerError as error:
        path = error.message.partition(":")[0].removeprefix("value").removeprefix(".")
        return DecodedEvent("JSON", schema_id, found, True, wrong=error.message, path=path or None)
    return DecodedEvent("JSON", schema_id, found, True)


def _protobuf(parsed: ProtobufSchema, schema_id: int, value: bytes, start: int) -> DecodedEvent:
    try:
        message = Protobuf(parsed).message(value, start)
    except BrokenValue as broken:
        at = broken.offset
        return DecodedEvent("PROTOBUF", schema_id, wrong=str(broken), offset=at, around=around(value, at))
    pool: Any = message.DESCRIPTOR.file.pool
    try:
        found = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except (json_format.SerializeToJsonError, ValueError, TypeError, RecursionError) as error:
        # Valid bytes without a JSON form: a time after the year 9999, or an Any of a type that the schema
        # does not define.
        return DecodedEvent("PROTOBUF", schema_id, wrong=f"no JSON for it: {str(error)[:200]}")
    return DecodedEvent("PROTOBUF", schema_id, found, True)


def loaded(text: bytes | str) -> Any:
    """Parse JSON, with a Decimal for each number that a float or 64-bit integer would alter. Raises
    orjson.JSONDecodeError.

    >>> loaded("[0.10, 18446744073709551617]")
    [0.1, Decimal('18446744073709551617')]
    """
    orjson.loads(text)  # json alone accepts NaN and lone surrogates
    try:
        found = json.loads(text, parse_int=_number, parse_float=_number)
    except InvalidOperation:
        raise orjson.JSONDecodeError("a number with an exponent beyond any other", "", 0) from None
    except RecursionError:
        raise orjson.JSONDecodeError("nested too deep", "", 0) from None
    if _is_deep(found):
        raise orjson.JSONDecodeError("nested too deep", "", 0)
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_LEVELS):
        nested = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        )
        level = [child for each in nested for child in each]
        if not level:
            return False
    return True


def _number(text: str) -> Any:
    exact, found = Decimal(text), orjson.loads(text)
    return found if Decimal(repr(found)) == exact else exact


def dumped(value: Any) -> bytes:
    """Serialize a value from ``loaded`` to JSON without altering numbers."""
    return orjson.dumps(_numbered(value, lambda number: orjson.Fragment(str(number))))


def in_doubles(value: Any) -> Any:
    """Convert Decimals and integers beyond 64 bits to floats, as other JSON consumers read them."""
    return _numbered(value, float)


def _numbered(value: Any, of: Callable[[Decimal | int], Any]) -> Any:
    match value:
        case dict():
            return {name: _numbered(each, of) for name, each in value.items()}
        case list():
            return [_numbered(each, of) for each in value]
        case Decimal():
            return of(value)
        case int() if not -(1 << 63) <= value < 1 << 64:
            return of(value)
    return value


def around(value: bytes, at: int) -> str:
    """Return the hex of the bytes around offset ``at``, with that byte in brackets.

    >>> around(bytes(range(6)), 2)
    '0001[02]030405'
    """
    at = max(0, min(at, len(value)))
    before, here, after = (
        value[max(0, at - _SHOWN_BYTES) : at],
        value[at : at + 1],
        value[at + 1 : at + 1 + _SHOWN_BYTES],
    )
    return f"{before.hex()}[{here.hex()}]{after.hex()}"


def hex_of(value: bytes | None) -> str | None:
    """Return the hex of the first 4,096 bytes."""
    if value is None:
        return None
    return value[:_MOST_HEX].hex() + ("…" if len(value) > _MOST_HEX else "")


def changed(value: Any, sets: Sequence[tuple[str, Any]]) -> Any:
    """Return a copy with fields set by path (``address.city``, ``items.0.sku``). Raises CallerError naming
    the step.
    """
    made = deepcopy(value) if value is not None else {}
    for path, to in sets:
        steps, at = path.split("."), made
        for step in steps[:-1]:
            if isinstance(at, dict) and at.get(step) is None:
                at[step] = {}
            at = _inside(at, step, path)
        last = steps[-1]
        if isinstance(at, list) and last.isdecimal() and int(last) < len(at):
            at[int(last)] = to
        elif isinstance(at, dict):
            at[last] = to
        else:
            raise CallerError(
                f'field "{path}": "{last}" does not exist and cannot be set',
                hint="hub dlq show has the event",
            )
    return made


def _inside(at: Any, step: str, path: str) -> Any:
    if isinstance(at, dict):
        return at[step]
    if isinstance(at, list) and step.isdecimal() and int(step) < len(at):
        return at[int(step)]
    raise CallerError(f'field "{path}": nothing is at "{step}"', hint="hub dlq show has the event")


def assignment(text: str) -> tuple[str, Any]:
    """Parse ``field=value`` from the command line. The value is parsed as JSON if it is valid JSON, else
    taken as text.

    >>> assignment("n=3"), assignment("name=Ann"), assignment('code="3"')
    (('n', 3), ('name', 'Ann'), ('code', '3'))
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise CallerError(
            f'"{text[:80]}" is not field=value', hint="such as address.city=Rome or n=3 or code='\"3\"'"
        )
    try:
        return name, loaded(value)
    except orjson.JSONDecodeError:
        return name, value


def difference(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """List the changed fields of a repair: path, before, after."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        rows = []
        for name in dict.fromkeys([*before, *after]):
            place = f"{path}.{name}" if path else str(name)
            if name not in before:
                rows.append({"field": place, "before": None, "after": after[name]})
            elif name not in after:
                rows.append({"field": place, "before": before[name], "after": None})
            else:
                rows += difference(before[name], after[name], place)
        return rows
    if before == after and type(before) is type(after):
        return []
    return [{"field": path or "(the event)", "before": before, "after": after}]
