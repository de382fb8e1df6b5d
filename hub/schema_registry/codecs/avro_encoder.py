"""[core] Encode JSON values as Avro, or refuse them with a path.

This module writes the bytes itself instead of calling fastavro: fastavro recurses in C without a limit,
guesses the branch of a union by its own rules, silently accepts unknown fields, and its errors name no
path. Depth and work are limited here.

Values that JSON lacks are written as text: times as RFC 3339 (a number is in the schema's epoch units),
dates as 2024-02-29, decimals as "12.50", bytes as in Avro's JSON encoding (one character per byte), NaN
and Infinity by name. In a union the value's JSON kind selects the branch; {"branch": value}, as in Avro's
JSON encoding, names it.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from itertools import islice
from typing import Any

import fastavro
import orjson

from hub.errors import CallerError, nearest
from hub.schema_registry.formats.exact_json import dumped

# Each level costs two of Python's 1,000 frames; schemas are at most 64 types deep.
MOST_DEPTH = 200
# Values visited in one encoding, including retries for union branches; 1 MiB of JSON has fewer.
MOST_STEPS = 2_000_000

# Names compared with an unknown one for a hint: each of a thousand records may have one.
_MOST_GUESSES = 200
# Digits of a decimal: a schema may declare any precision, and a short text ("1E9") any number of digits.
_MOST_DIGITS = 10_000

_INT, _LONG = 1 << 31, 1 << 63
_FLOAT_MOST = 3.4028235677973366e38  # rounds to infinity from here on (IEEE 754, ties to even)
_LARGEST_DOUBLE = int(sys.float_info.max)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIME = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
_TIME_OF_DAY = re.compile(_TIME, re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATE_TIME = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[Tt ]{_TIME}([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_UNITS_NS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_BY_NAME = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NAMED = ("record", "error", "enum", "fixed")


class Unfit(CallerError):
    """The JSON value does not fit its schema; the message names the path and both types."""

    code = "HUB-1221"


class JsonEncoder:
    """Encoder of one schema, prepared for many values. Thread safe.

    ``named`` holds the schemas of referenced types, dependencies first. Raises Unfit for a schema that is
    not valid Avro.
    """

    def __init__(self, schema: Any, named: Iterable[Any] = ()) -> None:
        known: dict[str, Any] = {}
        try:
            for each in named:
                fastavro.parse_schema(each, named_schemas=known, _ignore_default_error=True)
            prepared = fastavro.parse_schema(schema, named_schemas=known, _ignore_default_error=True)
        except (fastavro.schema.UnknownType, fastavro.schema.SchemaParseException, ValueError) as error:
            raise Unfit(f"the schema is no valid Avro: {error or type(error).__name__}") from None
        self._encode = _EncoderCompiler(known).encoder(prepared, plain=False)

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """Return the Avro bytes of a JSON value, without framing; ``place`` begins the path. Raises Unfit.

        ``most_steps`` limits the number of values visited, including those of tried branches.
        """
        out = _Out()
        out.steps_left = most_steps
        try:
            self._encode(value, out, 0)
        except UnicodeEncodeError:  # no JSON parser in the hub returns one
            raise Unfit(f"{place}: half a surrogate is no text") from None
        except _Misfit as misfit:
            path = place + "".join(reversed(misfit.path))
            hint = misfit.hint() if callable(misfit.hint) else misfit.hint
            raise Unfit(f"{path}: {misfit.said}", hint=hint) from None
        return bytes(out)


class _Out(bytearray):
    """Output buffer with the number of values that may still be visited."""

    steps_left = MOST_STEPS


Encode = Callable[[Any, _Out, int], None]


Hint = str | Callable[[], str] | None


class _Misfit(Exception):
    """A value that does not fit; ``path`` is collected on the way up, innermost first.

    A callable hint is evaluated only when the error is shown, so tried branches do not pay for it.
    """

    def __init__(self, said: str, hint: Hint = None, *, of_default: bool = False) -> None:
        super().__init__(said)
        self.said = said
        self.hint = hint
        self.of_default = of_default
        self.path: list[str] = []


def _wrong(value: Any, wanted: str, hint: Hint = None) -> _Misfit:
    return _Misfit(f"is {_shown(value)}, the schema wants {wanted}", hint)


def _shown(value: Any) -> str:
    """Describe a JSON value by its kind, with the value itself when it is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, str):
        value = value[:80].encode(errors="replace").decode()
    text = dumped(value).decode()
    article = {str: "the text", bool: "the boolean", int: "the integer", float: "the number"}[type(value)]
    return f"{article} {text if len(text) <= 60 else text[:57] + '…'}"


def _step(out: _Out, cost: int, depth: int) -> None:
    out.steps_left -= cost
    if depth > MOST_DEPTH:
        raise _Misfit(f"is nested deeper than {MOST_DEPTH} levels")
    if out.steps_left < 0:
        raise _Misfit(
            "there are too many ways to read it", 'say the branches of unions: {"branch name": value}'
        )


# ---- bytes


def _put_long(number: int, out: bytearray) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)


def _put_bytes(data: bytes, out: bytearray) -> None:
    _put_long(len(data), out)
    out += data


# ---- primitives


def _null(value: Any, out: _Out, depth: int) -> None:
    if value is not None:
        raise _wrong(value, "null")


def _boolean(value: Any, out: _Out, depth: int) -> None:
    if value is not True and value is not False:
        raise _wrong(value, "boolean")
    out.append(value)


def _integer(wanted: str, limit: int) -> Encode:
    def encode(value: Any, out: _Out, depth: int) -> None:
        if type(value) is not int:
            raise _wrong(value, wanted)
        if not -limit <= value < limit:
            raise _wrong(value, f"{wanted}, which ends at {limit - 1}")
        _put_long(value, out)

    return encode


def _floating(value: Any, wanted: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        number = float(value) if abs(value) <= _LARGEST_DOUBLE else 0.0
        if int(number) != value:
            raise _wrong(value, f"{wanted}, which cannot hold it exactly")
        return number
    if type(value) is str and value in _BY_NAME:
        return _BY_NAME[value]
    raise _wrong(value, wanted)


def _double(value: Any, out: _Out, depth: int) -> None:
    out += struct.pack("<d", _floating(value, "double"))


def _float(value: Any, out: _Out, depth: int) -> None:
    number = _floating(value, "float")
    if _FLOAT_MOST <= abs(number) < float("inf"):
        raise _wrong(value, "float, which ends at 3.4e38")
    out += struct.pack("<f", number)


def _string(value: Any, out: _Out, depth: int) -> None:
    if type(value) is not str:
        raise _wrong(value, "string")
    out.steps_left -= len(value) >> 6
    _put_bytes(value.encode(), out)


def _latin(value: Any, wanted: str) -> bytes:
    if type(value) is not str:
        raise _wrong(value, f"{wanted} as text")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _wrong(
            value, f"{wanted} as text", "one character a byte, \\u0000 to \\u00FF, as Avro's JSON has it"
        ) from None


def _bytes(value: Any, out: _Out, depth: int) -> None:
    data = _latin(value, "bytes")
    out.steps_left -= len(data) >> 6
    _put_bytes(data, out)


def _fixed(name: str, size: int) -> Encode:
    wanted = f'fixed "{name}" of {size} bytes'

    def encode(value: Any, out: _Out, depth: int) -> None:
        data = _latin(value, wanted)
        if len(data) != size:
            raise _Misfit(f"has {len(data)} bytes, the schema wants {wanted}")
        out += data

    return encode


def _enum(name: str, symbols: Sequence[str]) -> Encode:
    index = {symbol: number for number, symbol in enumerate(symbols)}

    def encode(value: Any, out: _Out, depth: int) -> None:
        if type(value) is not str:
            raise _wrong(value, f'enum "{name}"')
        if value not in index:
            known = ", ".join(list(symbols)[:10])
            raise _wrong(value, f'enum "{name}"', lambda: _guess(value, symbols, f"it has {known}"))
        _put_long(index[value], out)

    return encode


def _guess(wrong: str, names: Iterable[str], otherwise: str) -> str:
    guess = nearest(wrong[:80], islice(names, _MOST_GUESSES))
    return f'did you mean "{guess}"?' if guess else otherwise


# ---- logical types


def _fraction(digits: str | None, unit_ns: int, text: str, wanted: str) -> int:
    """Return a fraction of a second in units of ``unit_ns``; refuse digits that the unit cannot hold."""
    nanos = int((digits or "").ljust(9, "0"))
    if nanos % unit_ns:
        raise _wrong(text, wanted, "it has more digits of a second than the type holds")
    return nanos // unit_ns


def _seconds(hours: str, minutes: str, seconds: str) -> int:
    h, m, s = int(hours), int(minutes), int(seconds)
    if h > 23 or m > 59 or s > 59:
        raise ValueError("no time of a day")
    return h * 3_600 + m * 60 + s


def _days(year: str, month: str, day: str) -> int:
    return date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY


def _timestamp(logical: str) -> Callable[[str], int]:
    unit_ns = _UNITS_NS[logical.rpartition("-")[2]]
    local = logical.startswith("local-")
    example = "2024-02-29T12:30:00" + ("" if local else "Z")
    hint = "without an offset" if local else "with its offset: Z or +01:00"

    def read(text: str) -> int:
        found = _DATE_TIME.fullmatch(text)
        wanted = f"{logical}, such as {example}"
        if found is None or (found[8] is None) != local:
            raise _wrong(text, wanted, hint)
        try:
            seconds = _days(*found.group(1, 2, 3)) * 86_400 + _seconds(*found.group(4, 5, 6))
            if found[8] not in (None, "Z", "z"):
                offset = _seconds(found[8][1:3], found[8][4:6], "0")
                seconds += offset if found[8][0] == "-" else -offset
        except ValueError as error:
            raise _wrong(text, wanted, str(error)) from None
        return seconds * (1_000_000_000 // unit_ns) + _fraction(found[7], unit_ns, text, wanted)

    return read


def _time_of_day(logical: str) -> Callable[[str], int]:
    unit_ns = _UNITS_NS[logical.rpartition("-")[2]]

    def read(text: str) -> int:
        found = _TIME_OF_DAY.fullmatch(text)
        wanted = f"{logical}, such as 12:30:00"
        if found is None:
            raise _wrong(text, wanted)
        try:
            seconds = _seconds(*found.group(1, 2, 3))
        except ValueError as error:
            raise _wrong(text, wanted, str(error)) from None
        return seconds * (1_000_000_000 // unit_ns) + _fraction(found[4], unit_ns, text, wanted)

    return read


def _day(text: str) -> int:
    found = _DATE.fullmatch(text)
    wanted = "date, such as 2024-02-29"
    if found is None:
        raise _wrong(text, wanted)
    try:
        return _days(*found.groups())
    except ValueError as error:
        raise _wrong(text, wanted, str(error)) from None


# (Avro type, logical type) -> parser of its text form; plain numbers are accepted unchanged.
_FROM_TEXT: Mapping[tuple[str, str], Callable[[str], int]] = {
    ("int", "date"): _day,
    ("int", "time-millis"): _time_of_day("time-millis"),
    ("long", "time-micros"): _time_of_day("time-micros"),
    **{
        ("long", name): _timestamp(name)
        for unit in _UNITS_NS
        for name in (f"timestamp-{unit}", f"local-timestamp-{unit}")
    },
}


def _from_text(kind: str, logical: str) -> Encode:
    plain = _integer(f"{logical} ({kind})", _INT if kind == "int" else _LONG)
    read = _FROM_TEXT[kind, logical]

    def encode(value: Any, out: _Out, depth: int) -> None:
        plain(read(value) if type(value) is str else value, out, depth)

    return encode


def _uuid(value: Any, out: _Out, depth: int) -> None:
    if type(value) is not str or not _UUID.fullmatch(value):
        raise _wrong(value, "uuid (string), such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    _put_bytes(value.encode(), out)


def _uuid_bytes(value: Any, out: _Out, depth: int) -> None:
    if type(value) is not str or not _UUID.fullmatch(value):
        raise _wrong(value, "uuid (fixed), such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    out += bytes.fromhex(value.replace("-", ""))


def _decimal(precision: int, scale: int, size: int | None) -> Encode:
    """Return an encoder of decimals. ``size``: bytes of the fixed type; None for the bytes type."""
    wanted = f"decimal({precision}, {scale})"

    def encode(value: Any, out: _Out, depth: int) -> None:
        if type(value) is float:
            raise _wrong(value, f"{wanted} as text", f'write it as text: "{value!r}"')
        if type(value) not in (str, int):
            raise _wrong(value, f"{wanted} as text")
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise _wrong(value, f"{wanted} as text") from None
        if not number.is_finite():
            raise _wrong(value, f"{wanted} as text")
        number = number.normalize(_EXACT)  # 12.500 is 12.5
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        digits = number.adjusted() + 1 + scale if number else 0
        if exponent + scale < 0:
            raise _wrong(value, f"{wanted}, with at most {scale} digits after the point")
        if digits > precision:
            raise _wrong(value, f"{wanted}, with at most {precision - scale} digits before the point")
        if digits > _MOST_DIGITS:
            raise _wrong(value, f"{wanted}, of which {_MOST_DIGITS} digits are written at most")
        unscaled = int(number.scaleb(scale, _EXACT)) if number else 0
        length = size if size is not None else (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        try:
            data = unscaled.to_bytes(length, "big", signed=True)
        except OverflowError:
            raise _wrong(value, f"{wanted} in {size} bytes") from None
        if size is None:
            _put_bytes(data, out)
        else:
            out += data

    return encode


# ---- complex types


@dataclass
class _Field:
    name: str
    encode: Encode
    default: Callable[[_Out, int], None] | None


@dataclass(frozen=True, slots=True)
class _UnionBranch:
    """Branch of a union: its index, the names that a tag may use, and the JSON kinds it accepts, best
    first.
    """

    index: int
    names: frozenset[str]
    shown: str
    ranks: Mapping[str, int]
    encode: Encode
    is_record: bool


_KIND = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "text"}
_KIND |= {list: "array", dict: "object"}
# Avro type -> JSON kind -> rank; the lowest is tried first. Only the kind counts, never a text's content.
_RANKS: Mapping[str, Mapping[str, int]] = {
    "null": {"null": 0},
    "boolean": {"boolean": 0},
    "int": {"integer": 0},
    "long": {"integer": 0},
    "float": {"number": 1, "integer": 2, "text": 3},
    "double": {"number": 0, "integer": 2, "text": 3},
    "string": {"text": 0},
    "enum": {"text": 1},
    "bytes": {"text": 2},
    "fixed": {"text": 2},
    "array": {"array": 0},
    "map": {"object": 1},
    "record": {"object": 0},
    "error": {"object": 0},
}


@dataclass
class _EncoderCompiler:
    """Compile schemas into encoders. ``plain``: the form of defaults, without logical types."""

    known: Mapping[str, Any]
    named: dict[tuple[str, bool], Encode] = field(default_factory=dict)

    def encoder(self, schema: Any, *, plain: bool) -> Encode:
        if isinstance(schema, list):
            return self._union(schema, plain)
        if isinstance(schema, str):
            return _PRIMITIVE[schema] if schema in _PRIMITIVE else self._reference(schema, plain)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.encoder(kind, plain=plain)
        logical = None if plain else schema.get("logicalType")
        if logical is not None:
            found = self._logical(kind, logical, schema)
            if found is not None:
                return found
        if kind in ("record", "error"):
            return self._record(schema, plain)
        if kind == "enum":
            return _enum(schema["name"], schema["symbols"])
        if kind == "fixed":
            return _fixed(schema["name"], schema["size"])
        if kind == "array":
            return self._array(self.encoder(schema["items"], plain=plain))
        if kind == "map":
            return self._map(self.encoder(schema["values"], plain=plain))
        return self.encoder(kind, plain=plain)

    def _reference(self, name: str, plain: bool) -> Encode:
        named = self.named

        def encode(value: Any, out: _Out, depth: int) -> None:
            named[name, plain](value, out, depth)

        if (name, plain) not in named:
            named[name, plain] = encode  # a recursive type finds its own reference here
            named[name, plain] = self.encoder(self.known[name], plain=plain)
        return encode

    def _logical(self, kind: str, logical: str, schema: Mapping[str, Any]) -> Encode | None:
        """Return the encoder of a logical type; None for one that is unknown or does not apply to ``kind``.

        Avro requires readers to ignore those.
        """
        if (kind, logical) in _FROM_TEXT:
            return _from_text(kind, logical)
        if logical == "uuid" and kind == "string":
            return _uuid
        if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
            return _uuid_bytes
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
                return _decimal(precision, scale, schema["size"] if kind == "fixed" else None)
        return None

    def _array(self, item: Encode) -> Encode:
        def encode(value: Any, out: _Out, depth: int) -> None:
            if type(value) is not list:
                raise _wrong(value, "array")
            _step(out, 1 + len(value), depth)
            if value:
                _put_long(len(value), out)
            for number, each in enumerate(value):
                try:
                    item(each, out, depth + 1)
                except _Misfit as misfit:
                    misfit.path.append(f"[{number}]")
                    raise
            out.append(0)

        return encode

    def _map(self, item: Encode) -> Encode:
        def encode(value: Any, out: _Out, depth: int) -> None:
            if type(value) is not dict:
                raise _wrong(value, "map")
            _step(out, 1 + len(value), depth)
            if value:
                _put_long(len(value), out)
            for key, each in value.items():
                _put_bytes(key.encode(), out)
                try:
                    item(each, out, depth + 1)
                except _Misfit as misfit:
                    misfit.path.append(f"[{orjson.dumps(key[:80]).decode()}]")
                    raise
            out.append(0)

        return encode

    def _record(self, schema: Mapping[str, Any], plain: bool) -> Encode:
        name: str = schema["name"]
        fields: list[_Field] = []
        names: dict[str, None] = {}

        def encode(value: Any, out: _Out, depth: int) -> None:
            if type(value) is not dict:
                raise _wrong(value, f'record "{name}"')
            _step(out, 1 + len(fields), depth)
            given = 0
            for each in fields:
                if each.name in value:
                    given += 1
                    try:
                        each.encode(value[each.name], out, depth + 1)
                    except _Misfit as misfit:
                        misfit.path.append(f".{each.name}")
                        raise
                elif each.default is not None:
                    each.default(out, depth + 1)
                else:
                    _refuse_unknown(value, names, name)
                    raise _Misfit(f'record "{name}" needs field "{each.name}", which has no default')
            if given != len(value):
                _refuse_unknown(value, names, name)

        self.named[name, plain] = encode
        for each in schema["fields"]:
            default = self._default(name, each) if "default" in each else None
            fields.append(_Field(each["name"], self.encoder(each["type"], plain=plain), default))
            names[each["name"]] = None
        return encode

    def _default(self, record: str, spec: Mapping[str, Any]) -> Callable[[_Out, int], None]:
        """Return a writer of a field's default; its bytes are made on first use and cached."""
        made: list[bytes] = []

        def write(out: _Out, depth: int) -> None:
            if not made:
                found = _Out()
                try:
                    _step(found, 1, depth)
                    self.encoder(spec["type"], plain=True)(spec["default"], found, depth)
                except _Misfit as misfit:
                    if misfit.of_default:
                        raise
                    said = f'field "{spec["name"]}" of "{record}" is missing, and its default does not fit: '
                    raise _Misfit(said + misfit.said, of_default=True) from None
                made.append(bytes(found))
            out.steps_left -= 1 + (len(made[0]) >> 6)
            out += made[0]

        return write

    def _union(self, schemas: Sequence[Any], plain: bool) -> Encode:
        branches = [self._branch(index, schema, plain) for index, schema in enumerate(schemas)]
        shown = " or ".join(branch.shown for branch in branches)
        tags = {name: branch for branch in reversed(branches) for name in branch.names}
        by_kind: dict[str, list[_UnionBranch]] = {}
        for kind in _KIND.values():
            fitting = [branch for branch in branches if kind in branch.ranks]
            by_kind[kind] = sorted(fitting, key=lambda branch: (branch.ranks[kind], branch.index))

        def encode(value: Any, out: _Out, depth: int) -> None:
            candidates = by_kind[_KIND[type(value)]]
            if len(candidates) == 1 and type(value) is not dict:
                _put_long(candidates[0].index, out)
                candidates[0].encode(value, out, depth + 1)
                return
            _step(out, 1, depth)
            tagged = None
            if type(value) is dict and len(value) == 1 and not plain:
                ((tag, inner),) = value.items()
                if tag in tags:
                    tagged = _tried(tags[tag], inner, out, depth)
                    if tagged is None:
                        return
                    tagged.path.append(f'["{tag}"]')
            if tagged is not None and not candidates:
                raise tagged
            if not candidates:
                raise _wrong(value, shown)
            if len(candidates) == 1 and tagged is None:
                _put_long(candidates[0].index, out)
                candidates[0].encode(value, out, depth + 1)
                return
            misfit = _first_fit(candidates, value, out, depth)
            if misfit is not None:
                raise tagged or misfit

        return encode

    def _branch(self, index: int, schema: Any, plain: bool) -> _UnionBranch:
        definition = schema
        if isinstance(schema, str) and schema not in _PRIMITIVE:
            definition = self.known[schema]
        while isinstance(definition, dict) and isinstance(definition["type"], dict):
            definition = definition["type"]
        kind = definition if isinstance(definition, str) else definition["type"]
        logical = None if plain or not isinstance(definition, dict) else definition.get("logicalType")
        ranks, names, shown = dict(_RANKS[kind]), {kind}, kind
        if kind in _NAMED:
            full = str(definition["name"])
            names, shown = {full, full.rpartition(".")[2]}, f'{kind} "{full}"'
        if logical is not None and self._logical(kind, logical, definition) is not None:
            shown = f"{logical} ({kind})"
            ranks["text"] = 1
            if "integer" in ranks:
                ranks["integer"] = 1
            if logical == "decimal":
                ranks |= {"integer": 3, "number": 4}  # only for the error that asks for text
        encode = self.encoder(schema, plain=plain)
        return _UnionBranch(index, frozenset(names), shown, ranks, encode, kind in ("record", "error"))


def _tried(branch: _UnionBranch, value: Any, out: _Out, depth: int) -> _Misfit | None:
    """Write the branch; on a misfit write nothing and return the misfit."""
    mark = len(out)
    _put_long(branch.index, out)
    try:
        branch.encode(value, out, depth + 1)
    except _Misfit as misfit:
        del out[mark:]
        return misfit
    return None


def _first_fit(candidates: Sequence[_UnionBranch], value: Any, out: _Out, depth: int) -> _Misfit | None:
    """Write the first branch that fits and return None; return a misfit when no branch fits.

    Raises _Misfit when two records fit, because a guess could be wrong.
    """
    mark, fitted, refusals = len(out), None, []
    for branch in candidates:
        if fitted is not None and not branch.is_record:
            continue
        reached = len(out)
        misfit = _tried(branch, value, out, depth)
        if misfit is not None:
            _step(out, 1, depth)
            refusals.append(f"{branch.shown}: {''.join(reversed(misfit.path))} {misfit.said}")
        elif fitted is None:
            fitted = branch
            if not branch.is_record:
                return None
        else:
            del out[min(mark, reached) :]
            raise _Misfit(
                f"fits {fitted.shown} and {branch.shown}",
                f'say which: {{"{max(branch.names, key=len)}": …}}',
            )
    if fitted is not None:
        return None
    return _Misfit(f"is {_shown(value)} that fits no branch: {'; '.join(refusals)}"[:2_000])


def _refuse_unknown(value: Mapping[str, Any], names: Mapping[str, None], record: str) -> None:
    unknown = next((key for key in value if key not in names), None)
    if unknown is None:
        return
    shown = ", ".join(list(names)[:20])
    raise _Misfit(
        f'record "{record}" has no field "{unknown[:80]}"',
        lambda: _guess(unknown, names, f"it has {shown or 'no fields'}"),
    )


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
