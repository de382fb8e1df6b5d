"""[core] Encoders of Avro's types without parts: primitives, fixed, enum and logical types."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hub.schema_registry.codecs.logical_text import FROM_TEXT, logical_of, unscaled, uuid_of
from hub.schema_registry.codecs.misfit import Encode, Misfit, Out, guess, wrong
from hub.schema_registry.formats.avro.types import AvroNode
from hub.varint import put_signed

_INT, _LONG = 1 << 31, 1 << 63
_FLOAT_MOST = 3.4028235677973366e38  # rounds to infinity from here on (IEEE 754, ties to even)
_LARGEST_DOUBLE = int(sys.float_info.max)
_BY_NAME = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def scalar(node: AvroNode, *, plain: bool) -> Encode | None:
    """Return the encoder of a type without parts; None for others. ``plain``: the form of defaults, without
    logical types.
    """
    logical = "" if plain else logical_of(node)
    if logical:
        return _logical(node, logical)
    if node.kind == "enum":
        return _enum(node.name, node.symbols)
    if node.kind == "fixed":
        return _fixed(node.name, node.size)
    return _PRIMITIVE.get(node.kind)


def _logical(node: AvroNode, logical: str) -> Encode:
    if logical == "uuid":
        return _uuid if node.kind == "string" else _uuid_bytes
    if logical == "decimal":
        size = node.size if node.kind == "fixed" else None
        return _decimal(node.spec["precision"], node.spec.get("scale", 0), size)
    return _from_text(node.kind, logical)


# ---- primitives


def put_bytes(data: bytes, out: bytearray) -> None:
    """Append bytes after their length."""
    put_signed(len(data), out)
    out += data


def _null(value: Any, out: Out, depth: int) -> None:
    if value is not None:
        raise wrong(value, "null")


def _boolean(value: Any, out: Out, depth: int) -> None:
    if value is not True and value is not False:
        raise wrong(value, "boolean")
    out.append(value)


def _integer(wanted: str, limit: int) -> Encode:
    def encode(value: Any, out: Out, depth: int) -> None:
        if type(value) is not int:
            raise wrong(value, wanted)
        if not -limit <= value < limit:
            raise wrong(value, f"{wanted}, which ends at {limit - 1}")
        put_signed(value, out)

    return encode


def _floating(value: Any, wanted: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        number = float(value) if abs(value) <= _LARGEST_DOUBLE else 0.0
        if int(number) != value:
            raise wrong(value, f"{wanted}, which cannot hold it exactly")
        return number
    if type(value) is str and value in _BY_NAME:
        return _BY_NAME[value]
    raise wrong(value, wanted)


def _double(value: Any, out: Out, depth: int) -> None:
    out += struct.pack("<d", _floating(value, "double"))


def _float(value: Any, out: Out, depth: int) -> None:
    number = _floating(value, "float")
    if _FLOAT_MOST <= abs(number) < float("inf"):
        raise wrong(value, "float, which ends at 3.4e38")
    out += struct.pack("<f", number)


def _string(value: Any, out: Out, depth: int) -> None:
    if type(value) is not str:
        raise wrong(value, "string")
    out.steps_left -= len(value) >> 6
    put_bytes(value.encode(), out)


def _latin(value: Any, wanted: str) -> bytes:
    if type(value) is not str:
        raise wrong(value, f"{wanted} as text")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise wrong(
            value, f"{wanted} as text", "one character a byte, \\u0000 to \\u00FF, as Avro's JSON has it"
        ) from None


def _bytes(value: Any, out: Out, depth: int) -> None:
    data = _latin(value, "bytes")
    out.steps_left -= len(data) >> 6
    put_bytes(data, out)


def _fixed(name: str, size: int) -> Encode:
    wanted = f'fixed "{name}" of {size} bytes'

    def encode(value: Any, out: Out, depth: int) -> None:
        data = _latin(value, wanted)
        if len(data) != size:
            raise Misfit(f"has {len(data)} bytes, the schema requires {wanted}")
        out += data

    return encode


def _enum(name: str, symbols: Sequence[str]) -> Encode:
    index = {symbol: number for number, symbol in enumerate(symbols)}

    def encode(value: Any, out: Out, depth: int) -> None:
        if type(value) is not str:
            raise wrong(value, f'enum "{name}"')
        if value not in index:
            known = ", ".join(list(symbols)[:10])
            raise wrong(value, f'enum "{name}"', lambda: guess(value, symbols, f"it has {known}"))
        put_signed(index[value], out)

    return encode


# ---- logical types


def _from_text(kind: str, logical: str) -> Encode:
    plain = _integer(f"{logical} ({kind})", _INT if kind == "int" else _LONG)
    read = FROM_TEXT[kind, logical]

    def encode(value: Any, out: Out, depth: int) -> None:
        plain(read(value) if type(value) is str else value, out, depth)

    return encode


def _uuid(value: Any, out: Out, depth: int) -> None:
    put_bytes(uuid_of(value, "string").encode(), out)


def _uuid_bytes(value: Any, out: Out, depth: int) -> None:
    out += bytes.fromhex(uuid_of(value, "fixed").replace("-", ""))


def _decimal(precision: int, scale: int, size: int | None) -> Encode:
    """Return an encoder of decimals. ``size``: bytes of the fixed type; None for the bytes type."""
    wanted, read = f"decimal({precision}, {scale})", unscaled(precision, scale)

    def encode(value: Any, out: Out, depth: int) -> None:
        number = read(value)
        length = size if size is not None else (number + (number < 0)).bit_length() // 8 + 1
        try:
            data = number.to_bytes(length, "big", signed=True)
        except OverflowError:
            raise wrong(value, f"{wanted} in {size} bytes") from None
        if size is None:
            put_bytes(data, out)
        else:
            out += data

    return encode


_PRIMITIVE: Mapping[str, Encode] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int", _INT),
    "long": _integer("long", _LONG),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
