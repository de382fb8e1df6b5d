"""[core] Render Avro bytes as JSON up to the first broken byte, in the form that ``avro_encoder`` accepts.

For broken bytes, the part read before the error is kept, and the error has a path (``address.city``) and
an offset. Depth and number of values are limited. Times, dates and decimals are text as ``JsonEncoder``
accepts them; a number outside the years 1 to 9999 stays a number; a value in a union of several branches
names its branch: ``{"branch": value}``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.logical_text import text_of
from hub.schema_registry.formats.avro.types import AvroNode
from hub.varint import MalformedVarint, take_signed

_MOST_DEPTH = 100
_MOST_VALUES = 200_000

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


def render_json(root: AvroNode, data: bytes, start: int) -> JsonRendering:
    """Render the value that begins at ``start`` as JSON."""
    reader = _AvroReader(data, start)
    try:
        reader.read(root, reader.keep)
    except BrokenValue as broken:
        return JsonRendering(reader.root, reader.at, broken, _path(reader.path))
    except IndexError:
        cut = BrokenValue("the bytes end within a value", len(data))
        return JsonRendering(reader.root, reader.at, cut, _path(reader.path))
    except MalformedVarint as error:
        return JsonRendering(reader.root, reader.at, BrokenValue(error.reason, error.at), _path(reader.path))
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
    path: list[str | int] = field(default_factory=list)
    root: Any = None
    values: int = 0

    def keep(self, value: Any) -> None:
        self.root = value

    def long(self) -> int:
        number, self.at = take_signed(self.data, self.at)
        return number

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise BrokenValue(f"a length of {size}, where {len(self.data) - self.at} bytes are left", self.at)
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def read(self, node: AvroNode, put: Put) -> None:
        self.values += 1
        if self.values > _MOST_VALUES or len(self.path) > _MOST_DEPTH:
            raise BrokenValue("more values, or deeper ones, than are shown", self.at)
        match node.kind:
            case "union":
                self._union(node, put)
            case "record":
                self._record(node, put)
            case "array":
                self._array(node, put)
            case "map":
                self._map(node, put)
            case "enum":
                number, symbols = self.long(), node.symbols
                if not 0 <= number < len(symbols):
                    raise BrokenValue(f"symbol {number} of an enum of {len(symbols)}", self.at)
                put(symbols[number])
            case "fixed":
                put(text_of(node, self.take(node.size)))
            case _:
                value = self._primitive(node.kind)
                put(text_of(node, value) if node.spec else value)

    def _record(self, node: AvroNode, put: Put) -> None:
        made: dict[str, Any] = {}
        put(made)
        for each in node.fields:
            self.path.append(each.name)
            self.read(each.type, _into(made, each.name))
            self.path.pop()

    def _union(self, node: AvroNode, put: Put) -> None:
        number, branches = self.long(), node.inner
        if not 0 <= number < len(branches):
            raise BrokenValue(f"branch {number} of a union of {len(branches)}", self.at)
        branch = branches[number]
        if branch.kind == "null":
            put(None)
        elif sum(each.kind != "null" for each in branches) == 1:
            self.read(branch, put)
        else:
            tagged: dict[str, Any] = {}
            put(tagged)
            self.read(branch, _into(tagged, branch.name or branch.kind))

    def _array(self, node: AvroNode, put: Put) -> None:
        made: list[Any] = []
        put(made)
        for _ in self._items():
            self.path.append(len(made))
            self.read(node.item, made.append)
            self.path.pop()

    def _map(self, node: AvroNode, put: Put) -> None:
        made: dict[str, Any] = {}
        put(made)
        for _ in self._items():
            name = self._primitive("string")
            self.path.append(name)
            self.read(node.item, _into(made, name))
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
            raise BrokenValue("text that is not UTF-8", start + error.start) from None


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _into(parent: dict[str, Any], name: str) -> Put:
    def put(value: Any) -> None:
        parent[name] = value.decode("latin-1") if isinstance(value, bytes) else value

    return put
