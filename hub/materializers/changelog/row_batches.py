"""[core] numpy: decode thousands of changelog records of one schema, one field of all records at a time.

All records are in one buffer, and an array has the read position in each of them. A number costs a fiftieth
of the microsecond that Python's own steps take, so an applier that catches up decodes this way; a few rows
are decoded faster one by one (row_decoder.py). Both must give equal rows.

A record that does not fit its schema is not decoded here: its position is set to ``stop``, past all records,
and its row is None. Positions only grow, so one check at the end finds the valid rows: those that end at or
before their record's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hub.materializers.types.avro_types import AvroType

Places = NDArray[np.int64]
# A type's values of some records, and the positions after them. ``ends``: where these records end.
Column = Callable[["RecordBlock", Places, Places], tuple[list[Any], Places]]
# Reads one value at a position of its bytes: (value, position after it). Raises one of BROKEN, or ends past
# the bytes.
ReadOne = Callable[[bytes, int], tuple[Any, int]]
ReadMany = Callable[[Sequence[bytes], int], list[dict[str, Any] | None]]

_WORD = 8
_HIGH, _LOW = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
# Groups of 7, 14 and 28 bits are shifted together, half of them at a step.
_STEPS = tuple(
    (np.uint64(upper), np.uint64(lower), np.uint64(shift))
    for upper, lower, shift in (
        (0x7F007F007F007F00, 0x007F007F007F007F, 1),
        (0x3FFF00003FFF0000, 0x00003FFF00003FFF, 2),
        (0x0FFFFFFF00000000, 0x000000000FFFFFFF, 4),
    )
)
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records in one buffer. ``words[place]``: the eight bytes from there on, little-endian."""

    data: bytes
    octets: NDArray[np.uint8]
    words: NDArray[np.uint64]
    stop: int

    @classmethod
    def of(cls, values: Sequence[bytes]) -> RecordBlock:
        data = b"".join((*values, bytes(2 * _WORD)))
        octets = np.frombuffer(data, np.uint8)
        words: NDArray[np.uint64] = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
        return cls(data, octets, words, len(data) - 2 * _WORD + 1)

    def numbers(self, at: Places) -> tuple[Places, Places]:
        """Read zigzag numbers of up to eight bytes, 56 bits (Avro 1.12, Binary Encoding), and the positions
        after them.
        """
        word = self.words[at]
        ends = ~word & _HIGH  # the first of these bits is of the number's last byte
        whole = ends ^ (ends - _ONE)  # all bits up to that one
        word &= whole & _LOW
        for upper, lower, shift in _STEPS:
            word = (word & upper) >> shift | word & lower
        values = (word >> _ONE).view(np.int64) ^ -(word & _ONE).view(np.int64)
        behind = at + (np.bitwise_count(whole) >> 3)
        return values, np.where(ends == 0, self.stop, np.minimum(behind, self.stop))

    def past(self, at: Places, count: int) -> Places:
        return np.minimum(at + count, self.stop)


def reader_of(
    schema: AvroType,
    read_one: Callable[[AvroType], ReadOne],
    broken: tuple[type[Exception], ...],
    convert: Mapping[str, Callable[..., Any]],
) -> ReadMany:
    """Return a function from (records, position of the first byte in each) to rows, None for each that it
    cannot read.

    ``read_one`` makes the reader of lists and maps, raising ``broken`` for bytes that do not fit;
    ``convert``: conversions of logical types. ``row_decoder`` must support the whole schema.
    """
    column = _Columns(read_one, broken, convert).of(schema)

    def read(values: Sequence[bytes], start: int) -> list[dict[str, Any] | None]:
        block = RecordBlock.of(values)
        ends = np.fromiter(accumulate(map(len, values)), np.int64, len(values))
        begins = np.zeros_like(ends)
        begins[1:] = ends[:-1]
        rows, behind = column(block, np.minimum(begins + start, block.stop), ends)
        for odd in np.flatnonzero(behind > ends).tolist():
            rows[odd] = None
        return rows

    return read


@dataclass(frozen=True, slots=True)
class _Columns:
    """Makes the readers of types."""

    read_one: Callable[[AvroType], ReadOne]
    broken: tuple[type[Exception], ...]
    convert: Mapping[str, Callable[..., Any]]

    def of(self, avro_type: AvroType) -> Column:
        if isinstance(avro_type, list):
            return _union([self.of(each) for each in avro_type], [each == "null" for each in avro_type])
        if not isinstance(avro_type, dict):
            return _PRIMITIVES[avro_type]
        kind = avro_type["type"]
        convert = self.convert.get(f"{kind}-{avro_type.get('logicalType')}")
        if convert is not None and isinstance(kind, str):
            return self._converted(self.of(kind), convert, avro_type)
        match kind:
            case "record":
                fields = avro_type["fields"]
                return _record([each["name"] for each in fields], [self.of(each["type"]) for each in fields])
            case "enum":
                return _enum(avro_type["symbols"])
            case "array" | "map":
                return self._one_by_one(self.read_one(avro_type))
        column: Column = self.of(kind)
        return column

    def _converted(self, plain: Column, convert: Callable[..., Any], avro_type: Mapping[str, Any]) -> Column:
        def column(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
            values, behind = plain(block, at, ends)
            for place, value in enumerate(values):
                try:
                    values[place] = convert(value, avro_type, None)
                except self.broken:
                    behind[place] = block.stop
            return values, behind

        return column

    def _one_by_one(self, read_one: ReadOne) -> Column:
        """Read lists and maps one by one, each within its record's bytes, which limits the effect of a broken
        count.
        """

        def column(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
            values, behind, data = [], [], block.data
            for begin, end in zip(at.tolist(), ends.tolist(), strict=True):
                try:
                    value, place = read_one(data[begin:end], 0)
                except self.broken:
                    value, place = None, block.stop
                values.append(value)
                behind.append(min(begin + place, block.stop))
            return values, np.array(behind, np.int64)

        return column


def _nulls(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    return [None] * len(at), at


def _booleans(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    return (block.octets[at] != 0).tolist(), block.past(at, 1)


def _longs(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    values, behind = block.numbers(at)
    return values.tolist(), behind


def _doubles(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    return block.words[at].view("<f8").tolist(), block.past(at, 8)


def _floats(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    return block.words[at].astype("<u4").view("<f4").tolist(), block.past(at, 4)


def _bytes(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    begins, behind = _lengths(block, at, ends)
    data = block.data
    return [data[begin:end] for begin, end in zip(begins.tolist(), behind.tolist(), strict=True)], behind


def _texts(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
    begins, behind = _lengths(block, at, ends)
    data = block.data
    pairs = zip(begins.tolist(), behind.tolist(), strict=True)
    try:
        return [data[begin:end].decode() for begin, end in pairs], behind
    except UnicodeDecodeError:
        values, _ = _bytes(block, at, ends)
    for place, value in enumerate(values):
        try:
            values[place] = value.decode()
        except UnicodeDecodeError:
            behind[place] = block.stop
    return values, behind


def _lengths(block: RecordBlock, at: Places, ends: Places) -> tuple[Places, Places]:
    """Return where texts begin and end, each within its record."""
    lengths, begins = block.numbers(at)
    behind = begins + lengths
    odd = (lengths < 0) | (behind > ends)
    begins[odd] = behind[odd] = block.stop
    return begins, behind


_PRIMITIVES: Mapping[str, Column] = {
    "null": _nulls,
    "boolean": _booleans,
    "int": _longs,
    "long": _longs,
    "double": _doubles,
    "float": _floats,
    "bytes": _bytes,
    "string": _texts,
}


def _union(branches: Sequence[Column], nulls: Sequence[bool]) -> Column:
    def column(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
        chosen, at = block.octets[at], block.past(at, 1)
        if (
            len(chosen)
            and chosen[0] < 2 * len(branches)
            and not chosen[0] & 1
            and (chosen == chosen[0]).all()
        ):
            return branches[int(chosen[0]) // 2](block, at, ends)
        values: list[Any] = [None] * len(at)
        at[(chosen & 1 != 0) | (chosen >= 2 * len(branches))] = block.stop
        for index, branch in enumerate(branches):
            places = np.flatnonzero(chosen == 2 * index)
            if nulls[index] or not len(places):
                continue
            found, at[places] = branch(block, at[places], ends[places])
            for place, value in zip(places.tolist(), found, strict=True):
                values[place] = value
        return values, at

    return column


def _record(names: Sequence[str], columns: Sequence[Column]) -> Column:
    if not names:
        return lambda block, at, ends: ([{} for _ in range(len(at))], at)
    each = [f"v{place}" for place in range(len(names))]
    body = ", ".join(f"{name!r}: {value}" for name, value in zip(names, each, strict=True))
    # A dict literal takes half the time of ``dict(zip(...))``. Only quoted names are in it.
    source = f"lambda columns: [{{{body}}} for {', '.join(each)}, in zip(*columns)]"
    rows: Callable[[list[list[Any]]], list[Any]] = eval(source, {"__builtins__": {"zip": zip}})

    def column(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
        values = []
        for each in columns:
            found, at = each(block, at, ends)
            values.append(found)
        return rows(values), at

    return column


def _enum(symbols: Sequence[str]) -> Column:
    def column(block: RecordBlock, at: Places, ends: Places) -> tuple[list[Any], Places]:
        chosen, behind = block.numbers(at)
        odd = (chosen < 0) | (chosen >= len(symbols))
        chosen[odd], behind[odd] = 0, block.stop
        return [symbols[each] for each in chosen.tolist()], behind

    return column
