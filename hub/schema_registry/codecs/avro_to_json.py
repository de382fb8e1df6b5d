"""[core] Render Avro bytes as JSON up to the first broken byte, in the form that ``avro_encoder`` accepts.

For broken bytes, the part read before the error is kept, and the error has a path (``address.city``) and
an offset. Depth and number of values are limited. Times, dates and decimals are text as ``JsonEncoder``
accepts them; a number outside the years 1 to 9999 stays a number; a value in a union of several branches
names its branch: ``{"branch": value}``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import fastavro

from hub.schema_registry.codecs.avro_validator import BrokenValue, _long
from hub.schema_registry.formats.avro.format import AvroSchema

_MOST_DEPTH = 100
_MOST_VALUES = 200_000
_MOST_DIGITS = 10_000
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT_NS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}

Put = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class JsonRendering:
    """Result of rendering: ``value`` as far as it was read, ``end`` the offset where reading ended.

    ``broken`` is None when all of the value was read; otherwise ``path`` is the field that cannot be read.
    """

    value: Any
    end: int
    broken: BrokenValue | None = None
    path: str = ""


def render_json(schema: AvroSchema, data: bytes, start: int) -> JsonRendering:
    """Render the value that begins at ``start`` as JSON."""
    definitions: dict[str, Any] = {}
    for each in schema.types:
        fastavro.parse_schema(each, named_schemas=definitions, _ignore_default_error=True)
    spelled = fastavro.parse_schema(schema.value, named_schemas=definitions, _ignore_default_error=True)
    reader = _AvroReader(data, start, definitions)
    try:
        reader.read(spelled, reader.keep)
    except BrokenValue as broken:
        return JsonRendering(reader.root, reader.at, broken, _path(reader.path))
    except IndexError:
        cut = BrokenValue("the bytes end within a value", len(data))
        return JsonRendering(reader.root, reader.at, cut, _path(reader.path))
    return JsonRendering(reader.root, reader.at)


def _path(steps: list[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


@dataclass
class _AvroReader:
    """Reader that attaches each value to its parent before its content, so that an error keeps earlier
    parts.
    """

    data: bytes
    at: int
    definitions: Mapping[str, Any]
    path: list[str | int] = field(default_factory=list)
    root: Any = None
    values: int = 0

    def keep(self, value: Any) -> None:
        self.root = value

    def long(self) -> int:
        number, self.at = _long(self.data, self.at)
        return number

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise BrokenValue(f"a length of {size}, where {len(self.data) - self.at} bytes are left", self.at)
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def read(self, schema: Any, put: Put) -> None:
        self.values += 1
        if self.values > _MOST_VALUES or len(self.path) > _MOST_DEPTH:
            raise BrokenValue("more values, or deeper ones, than are shown", self.at)
        if isinstance(schema, list):
            self._union(schema, put)
            return
        if isinstance(schema, str):
            if schema in self.definitions:
                self.read(self.definitions[schema], put)
            else:
                put(self._primitive(schema))
            return
        kind = schema["type"]
        if kind in ("record", "error"):
            self._record(schema, put)
        elif kind == "array":
            self._array(schema, put)
        elif kind == "map":
            self._map(schema, put)
        elif kind == "enum":
            number = self.long()
            if not 0 <= number < len(schema["symbols"]):
                raise BrokenValue(f"symbol {number} of an enum of {len(schema['symbols'])}", self.at)
            put(schema["symbols"][number])
        elif kind == "fixed":
            put(_logical(schema, self.take(schema["size"])))
        elif isinstance(kind, str) and kind not in self.definitions:
            put(_logical(schema, self._primitive(kind)))
        else:
            self.read(kind, put)

    def _record(self, schema: Mapping[str, Any], put: Put) -> None:
        made: dict[str, Any] = {}
        put(made)
        for each in schema["fields"]:
            self.path.append(each["name"])
            self.read(each["type"], _into(made, each["name"]))
            self.path.pop()

    def _union(self, branches: list[Any], put: Put) -> None:
        number = self.long()
        if not 0 <= number < len(branches):
            raise BrokenValue(f"branch {number} of a union of {len(branches)}", self.at)
        branch = branches[number]
        if branch == "null":
            put(None)
        elif sum(each != "null" for each in branches) == 1:
            self.read(branch, put)
        else:
            tagged: dict[str, Any] = {}
            put(tagged)
            self.read(branch, _into(tagged, _name(branch)))

    def _array(self, schema: Mapping[str, Any], put: Put) -> None:
        made: list[Any] = []
        put(made)
        for _ in self._items():
            self.path.append(len(made))
            self.read(schema["items"], made.append)
            self.path.pop()

    def _map(self, schema: Mapping[str, Any], put: Put) -> None:
        made: dict[str, Any] = {}
        put(made)
        for _ in self._items():
            name = self._primitive("string")
            self.path.append(name)
            self.read(schema["values"], _into(made, name))
            self.path.pop()

    def _items(self) -> Any:
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > _MOST_VALUES:
                raise BrokenValue(f"a block of {count} items, more than are shown", self.at)
            yield from range(count)

    def _primitive(self, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self.take(1)[0]
            if byte > 1:
                raise BrokenValue("a boolean that is neither 0 nor 1", self.at - 1)
            return byte == 1
        if kind in ("int", "long"):
            start, number = self.at, self.long()
            if kind == "int" and not -(1 << 31) <= number < 1 << 31:
                raise BrokenValue("an int of more than 32 bits", start)
            return number
        if kind in ("float", "double"):
            (found,) = struct.unpack(
                "<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8)
            )
            return found if math.isfinite(found) else _NOT_FINITE[str(found)]
        start = self.at
        raw = self.take(self.long())
        if kind == "bytes":
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BrokenValue("text that is no UTF-8", start + error.start) from None


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _into(parent: dict[str, Any], name: str) -> Put:
    def put(value: Any) -> None:
        parent[name] = value.decode("latin-1") if isinstance(value, bytes) else value

    return put


def _name(branch: Any) -> str:
    while isinstance(branch, dict):
        branch = branch["name"] if "name" in branch else branch["type"]
    return str(branch)


def _logical(schema: Mapping[str, Any], value: Any) -> Any:
    """Return the text form of a logical type's value; the value itself when there is none."""
    logical = str(schema.get("logicalType") or "")
    if isinstance(value, bytes):
        if logical == "decimal":
            scale = schema.get("scale") or 0
            if not isinstance(scale, int) or not 0 <= scale <= _MOST_DIGITS or len(value) > _MOST_DIGITS:
                return value.decode("latin-1")
            # The default context would round to 28 digits.
            number = Decimal(int.from_bytes(value, "big", signed=True))
            return format(number.scaleb(-scale, _EXACT), "f")
        if logical == "uuid" and len(value) == 16:
            text = value.hex()
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        return value.decode("latin-1")
    unit_ns = _UNIT_NS.get(logical.rpartition("-")[2])
    try:
        if logical == "date":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if unit_ns is not None and logical.startswith(("timestamp-", "local-timestamp-")):
            return _moment(value * unit_ns, unit_ns) + ("" if logical.startswith("local-") else "Z")
        if unit_ns is not None and logical.startswith("time-") and 0 <= value * unit_ns < 86_400 * 10**9:
            return _moment(value * unit_ns, unit_ns).partition("T")[2]
    except (OverflowError, ValueError):
        pass
    return value


def _moment(nanoseconds: int, unit_ns: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    digits = {1_000_000: 3, 1_000: 6, 1: 9}[unit_ns]
    whole = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{whole}.{rest:09d}"[: len(whole) + 1 + digits]
