"""[core] Logical types as text, in both directions: what JSON writes for times, dates, decimals and UUIDs.

Times are RFC 3339, dates 2024-02-29, decimals "12.50". A number outside the years 1 to 9999 has no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

from hub.schema_registry.codecs.misfit import wrong
from hub.schema_registry.formats.avro.types import AvroNode
from hub.times import EPOCH

# Digits of a decimal: a schema may declare any precision, and a short text ("1E9") any number of digits.
MOST_DIGITS = 10_000

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIME = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
_TIME_OF_DAY = re.compile(_TIME, re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATE_TIME = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[Tt ]{_TIME}([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_UNITS_NS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


def logical_of(node: AvroNode) -> str:
    """Return the logical type that has a text form; "" for one that is unknown or does not apply to the kind.

    Avro requires readers to ignore those.
    """
    kind, logical = node.kind, node.logical
    if (kind, logical) in FROM_TEXT or (logical == "uuid" and kind == "string"):
        return logical
    if logical == "uuid" and kind == "fixed" and node.size == 16:
        return logical
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.spec.get("precision"), node.spec.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
            return logical
    return ""


# ---- from text


def _fraction(digits: str | None, unit_ns: int, text: str, wanted: str) -> int:
    """Return a fraction of a second in units of ``unit_ns``; refuse digits that the unit cannot hold."""
    nanos = int((digits or "").ljust(9, "0"))
    if nanos % unit_ns:
        raise wrong(text, wanted, "it has more digits of a second than the type holds")
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
        match = _DATE_TIME.fullmatch(text)
        wanted = f"{logical}, such as {example}"
        if match is None or (match[8] is None) != local:
            raise wrong(text, wanted, hint)
        try:
            seconds = _days(*match.group(1, 2, 3)) * 86_400 + _seconds(*match.group(4, 5, 6))
            if match[8] not in (None, "Z", "z"):
                offset = _seconds(match[8][1:3], match[8][4:6], "0")
                seconds += offset if match[8][0] == "-" else -offset
        except ValueError as error:
            raise wrong(text, wanted, str(error)) from None
        return seconds * (1_000_000_000 // unit_ns) + _fraction(match[7], unit_ns, text, wanted)

    return read


def _time_of_day(logical: str) -> Callable[[str], int]:
    unit_ns = _UNITS_NS[logical.rpartition("-")[2]]

    def read(text: str) -> int:
        match = _TIME_OF_DAY.fullmatch(text)
        wanted = f"{logical}, such as 12:30:00"
        if match is None:
            raise wrong(text, wanted)
        try:
            seconds = _seconds(*match.group(1, 2, 3))
        except ValueError as error:
            raise wrong(text, wanted, str(error)) from None
        return seconds * (1_000_000_000 // unit_ns) + _fraction(match[4], unit_ns, text, wanted)

    return read


def _day(text: str) -> int:
    match = _DATE.fullmatch(text)
    wanted = "date, such as 2024-02-29"
    if match is None:
        raise wrong(text, wanted)
    try:
        return _days(*match.groups())
    except ValueError as error:
        raise wrong(text, wanted, str(error)) from None


# (Avro type, logical type) -> parser of its text form; plain numbers are accepted unchanged.
FROM_TEXT: Mapping[tuple[str, str], Callable[[str], int]] = {
    ("int", "date"): _day,
    ("int", "time-millis"): _time_of_day("time-millis"),
    ("long", "time-micros"): _time_of_day("time-micros"),
    **{
        ("long", name): _timestamp(name)
        for unit in _UNITS_NS
        for name in (f"timestamp-{unit}", f"local-timestamp-{unit}")
    },
}


def unscaled(precision: int, scale: int) -> Callable[[Any], int]:
    """Return the function from a decimal, as text or an integer, to its units of the last digit. It raises
    Misfit.
    """
    wanted = f"decimal({precision}, {scale})"

    def read(value: Any) -> int:
        if type(value) is float:
            raise wrong(value, f"{wanted} as text", f'write it as text: "{value!r}"')
        if type(value) not in (str, int):
            raise wrong(value, f"{wanted} as text")
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise wrong(value, f"{wanted} as text") from None
        if not number.is_finite():
            raise wrong(value, f"{wanted} as text")
        number = number.normalize(_EXACT)  # 12.500 is 12.5
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        digits = number.adjusted() + 1 + scale if number else 0
        if exponent + scale < 0:
            raise wrong(value, f"{wanted}, with at most {scale} digits after the point")
        if digits > precision:
            raise wrong(value, f"{wanted}, with at most {precision - scale} digits before the point")
        if digits > MOST_DIGITS:
            raise wrong(value, f"{wanted}, of which {MOST_DIGITS} digits are written at most")
        return int(number.scaleb(scale, _EXACT)) if number else 0

    return read


def uuid_of(value: Any, kind: str) -> str:
    """Return the text of a UUID. Raises Misfit."""
    if type(value) is not str or not _UUID.fullmatch(value):
        raise wrong(value, f"uuid ({kind}), such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    return value


# ---- to text


def text_of(node: AvroNode, value: Any) -> Any:
    """Return the text form of a logical type's value; the value itself when there is none."""
    logical = node.logical
    if isinstance(value, bytes):
        if logical == "decimal":
            scale = node.spec.get("scale") or 0
            if not isinstance(scale, int) or not 0 <= scale <= MOST_DIGITS or len(value) > MOST_DIGITS:
                return value.decode("latin-1")
            # The default context would round to 28 digits.
            number = Decimal(int.from_bytes(value, "big", signed=True))
            return format(number.scaleb(-scale, _EXACT), "f")
        if logical == "uuid" and len(value) == 16:
            text = value.hex()
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        return value.decode("latin-1")
    unit_ns = _UNITS_NS.get(logical.rpartition("-")[2])
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
    whole = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{whole}.{rest:09d}"[: len(whole) + 1 + digits]
