"""[core] Validate bytes against their Avro schema, all of them, without building a value.

Source: Avro 1.12, "Binary encoding". Stricter than readers: a negative index of an enum or union, text
that is not UTF-8 and a block with a wrong size are refused. Safe for untrusted bytes: depth is limited,
items that take no bytes cost nothing, and work never exceeds the number of bytes. Logical types are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hub.schema_registry.formats.avro.types import AvroNode, every_type
from hub.varint import MalformedVarint, take_signed

# Each level costs one or two of Python's 1,000 frames.
MOST_DEPTH = 300

Skip = Callable[[bytes, int, int], int]


class BrokenValue(Exception):
    """The bytes do not match the schema. ``offset`` counts from the beginning of the data."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset


class TooDeep(BrokenValue):
    """The value nests deeper than the limit; it may be valid."""


def checker(root: AvroNode) -> Callable[[bytes, int], int]:
    """Return ``check(data, start)``, which returns the end of the value that begins at ``start``.

    The check raises BrokenValue.
    """
    skip = _ValidatorCompiler().skipper(root)

    def check(data: bytes, start: int) -> int:
        try:
            return skip(data, start, 0)
        except IndexError:
            raise BrokenValue("the bytes end within a value", len(data)) from None
        except MalformedVarint as error:
            raise BrokenValue(error.reason, error.at) from None

    return check


def counts_nothing(root: AvroNode) -> bool:
    """Return True if an array may have items that take no bytes: a few bytes can declare any number of
    them.
    """
    empty: dict[AvroNode, bool] = {}

    def takes_none(node: AvroNode) -> bool:
        if node not in empty:
            empty[node] = False  # a recursive record takes at least one byte
            if node.kind == "record":
                empty[node] = all(takes_none(each.type) for each in node.fields)
            else:
                empty[node] = node.kind == "null" or (node.kind == "fixed" and node.size == 0)
        return empty[node]

    return any(node.kind == "array" and takes_none(node.item) for node in every_type(root))


def _null(data: bytes, at: int, depth: int) -> int:
    return at


def _boolean(data: bytes, at: int, depth: int) -> int:
    if data[at] > 1:
        raise BrokenValue("a boolean that is neither 0 nor 1", at)
    return at + 1


def _skip_int(data: bytes, at: int, depth: int) -> int:
    number, end = take_signed(data, at)
    if not -(1 << 31) <= number < 1 << 31:
        raise BrokenValue("an int of more than 32 bits", at)
    return end


def _skip_long(data: bytes, at: int, depth: int) -> int:
    return take_signed(data, at)[1]


def _sized(size: int) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        if at + size > len(data):
            raise BrokenValue("the bytes end within a value", len(data))
        return at + size

    return skip


def _bytes(data: bytes, at: int, depth: int) -> int:
    length, start = take_signed(data, at)
    if length < 0:
        raise BrokenValue("a negative length", at)
    if start + length > len(data):
        raise BrokenValue(f"a length of {length}, where {len(data) - start} bytes are left", at)
    return start + length


def _string(data: bytes, at: int, depth: int) -> int:
    end = _bytes(data, at, depth)
    start = take_signed(data, at)[1]
    try:
        data[start:end].decode()
    except UnicodeDecodeError as error:
        raise BrokenValue("text that is not UTF-8", start + error.start) from None
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
    def __init__(self) -> None:
        self.made: dict[AvroNode, Skip] = {}

    def skipper(self, node: AvroNode) -> Skip:
        found = self.made.get(node)
        if found is None:
            found = self.made[node] = self._compiled(node)
        return found

    def _compiled(self, node: AvroNode) -> Skip:
        match node.kind:
            case "record":
                fields: list[Skip] = []
                self.made[node] = skip = _record(fields)  # its fields may use it
                fields += [self.skipper(each.type) for each in node.fields]
                return skip
            case "union":
                return _union([self.skipper(branch) for branch in node.inner])
            case "enum":
                return _enum(len(node.symbols))
            case "fixed":
                return _sized(node.size)
            case "array":
                return _blocks(self.skipper(node.item))
            case "map":
                item = self.skipper(node.item)
                return _blocks(lambda data, at, depth: item(data, _string(data, at, depth), depth))
        return _PRIMITIVE[node.kind]


def _record(fields: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        _deeper(at, depth)
        for each in fields:
            at = each(data, at, depth + 1)
        return at

    return skip


def _enum(symbols: int) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        number, end = take_signed(data, at)
        if not 0 <= number < symbols:
            raise BrokenValue(f"symbol {number} of an enum of {symbols}", at)
        return end

    return skip


def _union(branches: list[Skip]) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        number, end = take_signed(data, at)
        if not 0 <= number < len(branches):
            raise BrokenValue(f"branch {number} of a union of {len(branches)}", at)
        _deeper(at, depth)
        return branches[number](data, end, depth + 1)

    return skip


def _blocks(item: Skip) -> Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        _deeper(at, depth)
        while True:
            begin = at
            count, at = take_signed(data, at)
            if count == 0:
                return at
            size = None
            if count < 0:
                count = -count
                size, at = take_signed(data, at)
            start = at
            for _ in range(count):
                before = at
                at = item(data, at, depth + 1)
                if at == before:
                    break  # items without bytes never take any
            if size is not None and at - start != size:
                raise BrokenValue(f"a block with the length {size} that has {at - start}", begin)

    return skip
