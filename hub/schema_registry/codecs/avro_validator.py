"""[core] Validate bytes against their Avro schema, all of them, without building a value.

Source: Avro 1.12, "Binary encoding". Stricter than readers: a negative index of an enum or union, text
that is not UTF-8 and a block with a wrong size are refused. Safe for untrusted bytes: depth is limited,
items that take no bytes cost nothing, and work never exceeds the number of bytes. Logical types are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Each level costs one or two of Python's 1,000 frames.
MOST_DEPTH = 300

_SOME_BYTES = ("enum", "array", "map")

Skip = Callable[[bytes, int, int], int]


class BrokenValue(Exception):
    """The bytes do not match the schema. ``offset`` counts from the beginning of the data."""

    def __init__(self, said: str, offset: int) -> None:
        super().__init__(f"{said} at byte {offset}")
        self.said = said
        self.offset = offset


class TooDeep(BrokenValue):
    """The value nests deeper than the limit; it may be valid."""


def checker(schema: Any, definitions: Mapping[str, Any]) -> Callable[[bytes, int], int]:
    """Return ``check(data, start)``, which returns the end of the value that begins at ``start``.

    The check raises BrokenValue. ``schema`` is spelled out
    (hub.schema_registry.formats.avro.schema.spelled_out), ``definitions`` its named types.
    """
    skip = _ValidatorCompiler(definitions).skipper(schema)

    def check(data: bytes, start: int) -> int:
        try:
            return skip(data, start, 0)
        except IndexError:
            raise BrokenValue("the bytes end within a value", len(data)) from None

    return check


def counts_nothing(schema: Any, definitions: Mapping[str, Any]) -> bool:
    """Return True if an array may have items that take no bytes: a few bytes can declare any number of
    them.
    """
    empty: dict[str, bool] = {}

    def takes_none(each: Any) -> bool:
        if isinstance(each, str):
            if each in _PRIMITIVE:
                return each == "null"
            if each not in empty:
                empty[each] = False  # a recursive record takes at least one byte
                empty[each] = takes_none(definitions[each])
            return empty[each]
        if isinstance(each, list):
            return False
        kind = each["type"]
        if kind in ("record", "error"):
            return all(takes_none(inner["type"]) for inner in each["fields"])
        return each["size"] == 0 if kind == "fixed" else kind not in _SOME_BYTES and takes_none(kind)

    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left.extend(node)
        elif isinstance(node, dict):
            if node["type"] == "array" and takes_none(node["items"]):
                return True
            left.extend(inner["type"] for inner in node.get("fields", ()))
            left.extend(node[part] for part in ("items", "values") if part in node)
    return False


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, its end offset): zigzag, 7 bits per byte, at most 64 bits."""
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise BrokenValue("a number of more than ten bytes", at)
    if number >> 64:
        raise BrokenValue("a number of more than 64 bits", at)
    return (number >> 1) ^ -(number & 1), at


def _null(data: bytes, at: int, depth: int) -> int:
    return at


def _boolean(data: bytes, at: int, depth: int) -> int:
    if data[at] > 1:
        raise BrokenValue("a boolean that is neither 0 nor 1", at)
    return at + 1


def _skip_int(data: bytes, at: int, depth: int) -> int:
    number, end = _long(data, at)
    if not -(1 << 31) <= number < 1 << 31:
        raise BrokenValue("an int of more than 32 bits", at)
    return end


def _skip_long(data: bytes, at: int, depth: int) -> int:
    return _long(data, at)[1]


def _sized(size: int) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        if at + size > len(data):
            raise BrokenValue("the bytes end within a value", len(data))
        return at + size

    return skip


def _bytes(data: bytes, at: int, depth: int) -> int:
    length, start = _long(data, at)
    if length < 0:
        raise BrokenValue("a negative length", at)
    if start + length > len(data):
        raise BrokenValue(f"a length of {length}, where {len(data) - start} bytes are left", at)
    return start + length


def _string(data: bytes, at: int, depth: int) -> int:
    end = _bytes(data, at, depth)
    start = _long(data, at)[1]
    try:
        data[start:end].decode()
    except UnicodeDecodeError as error:
        raise BrokenValue("text that is no UTF-8", start + error.start) from None
    return end


_PRIMITIVE: Mapping[str, Skip] = {
    "null": _null,
    "boolean": _boolean,
    "int": _skip_int,
    "long": _skip_long,
    "float": _sized(4),
    "double": _sized(8),
    "bytes": _bytes,
    "string": _string,
}


def _deeper(at: int, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise TooDeep(f"nested deeper than {MOST_DEPTH} levels", at)


class _ValidatorCompiler:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self.named: dict[str, Skip] = {}

    def skipper(self, schema: Any) -> Skip:
        if isinstance(schema, list):
            return self._union([self.skipper(branch) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVE[schema] if schema in _PRIMITIVE else self._reference(schema)
        kind = schema["type"]
        if "name" in schema and schema["name"] not in self.named:
            return self._reference(schema["name"], schema)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "enum":
            return self._enum(len(schema["symbols"]))
        if kind == "fixed":
            return _sized(schema["size"])
        if kind == "array":
            return self._blocks(self.skipper(schema["items"]))
        if kind == "map":
            item = self.skipper(schema["values"])
            return self._blocks(lambda data, at, depth: item(data, _string(data, at, depth), depth))
        return self.skipper(kind)

    def _reference(self, name: str, definition: Any = None) -> Skip:
        named = self.named
        if name not in named:
            named[name] = lambda data, at, depth: named[name](data, at, depth)  # a recursive reference
            named[name] = self.skipper(definition or self.definitions[name])
            return named[name]
        return lambda data, at, depth: named[name](data, at, depth)

    def _record(self, schema: Mapping[str, Any]) -> Skip:
        fields = [self.skipper(each["type"]) for each in schema["fields"]]

        def skip(data: bytes, at: int, depth: int) -> int:
            _deeper(at, depth)
            for each in fields:
                at = each(data, at, depth + 1)
            return at

        return skip

    def _enum(self, symbols: int) -> Skip:
        def skip(data: bytes, at: int, depth: int) -> int:
            number, end = _long(data, at)
            if not 0 <= number < symbols:
                raise BrokenValue(f"symbol {number} of an enum of {symbols}", at)
            return end

        return skip

    def _union(self, branches: list[Skip]) -> Skip:
        def skip(data: bytes, at: int, depth: int) -> int:
            number, end = _long(data, at)
            if not 0 <= number < len(branches):
                raise BrokenValue(f"branch {number} of a union of {len(branches)}", at)
            _deeper(at, depth)
            return branches[number](data, end, depth + 1)

        return skip

    def _blocks(self, item: Skip) -> Skip:
        def skip(data: bytes, at: int, depth: int) -> int:
            _deeper(at, depth)
            while True:
                begin = at
                count, at = _long(data, at)
                if count == 0:
                    return at
                size = None
                if count < 0:
                    count = -count
                    size, at = _long(data, at)
                start = at
                for _ in range(count):
                    before = at
                    at = item(data, at, depth + 1)
                    if at == before:
                        break  # items without bytes never take any
                if size is not None and at - start != size:
                    raise BrokenValue(f"a block said to be {size} bytes that has {at - start}", begin)

        return skip
