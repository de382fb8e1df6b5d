"""[core] A view's columns and rows as every store keeps them: plain values in column order, and their digest.

``RowShaper`` makes the values for all kinds of stores: times as epoch milliseconds, dates as epoch days,
decimals as text, nested values as JSON text. ``Digester`` hashes a row, as read from a store or from the
changelog, to one number; the number of a table is the sum over its rows, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import orjson

from hub.errors import CallerError
from hub.materializers.stores.columns import Convert, json_text, plain_type, stored_alike, to_sql
from hub.materializers.stores.store import RowVersion
from hub.materializers.types.avro_types import AvroType
from hub.times import epoch_ms

HASH_BITS = 64
# Columnar stores keep times in 64-bit microseconds: later times are stored as the last possible one.
FARTHEST_MS = 9 * 10**15
_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis")
_NUL = "\0"


def columns_of(view: str, schema: AvroType) -> dict[str, AvroType]:
    """Return the columns of a changelog's schema. Raises CallerError for a name that the table reserves."""
    types = {each["name"]: each["type"] for each in schema["fields"] if not each["name"].startswith("_")}
    if "key" in types:
        raise CallerError(
            f'view "{view}": a field cannot be called "key"',
            hint="the row's key is shown under that name already; give the field another one",
            code="HUB-1412",
        )
    return types


def must_refill(
    known: tuple[str, Mapping[str, AvroType], Sequence[str]] | None,
    topic_id: str,
    types: Mapping[str, AvroType],
) -> bool:
    """Return whether a view known as (topic id, types, indexes) must be filled from the start of its
    changelog.
    """
    if known is None or known[0] != topic_id:
        return True
    return any(not stored_alike(known[1][each], kind) for each, kind in types.items() if each in known[1])


class RowShaper:
    """Converts rows to values in the order of ``types``.

    For stores with limits: ``nul`` False replaces NUL with U+FFFD, ``far`` False replaces times past all
    calendars with the last one.
    """

    def __init__(self, types: Mapping[str, AvroType], *, nul: bool = True, far: bool = True) -> None:
        self.names = tuple(types)
        self._get = itemgetter(*self.names) if len(self.names) > 1 else None
        converts = ((place, _converter(kind, nul, far)) for place, kind in enumerate(types.values()))
        self._convert = tuple((place, convert) for place, convert in converts if convert is not None)

    def values(self, row: Mapping[str, Any]) -> list[Any]:
        """Return the stored values; None for columns that the row's schema lacks."""
        try:
            found = list(self._get(row)) if self._get is not None else [row.get(each) for each in self.names]
        except KeyError:
            found = [row.get(each) for each in self.names]
        for place, convert in self._convert:
            value = found[place]
            if value is not None:
                found[place] = convert(value)
        return found


def _converter(avro_type: AvroType, nul: bool, far: bool) -> Convert | None:
    kind = plain_type(avro_type)
    if kind in _TIMES and not far:
        milliseconds = to_sql(avro_type)
        return lambda value: within_calendars(milliseconds(value) if milliseconds is not None else value)
    if kind == "json":
        return json_text
    if kind == "string" and not nul:
        return without_nul
    return to_sql(avro_type)


def sources_text(sources: Mapping[str, Any] | None) -> str | None:
    """Return the provenance of a row, or of its delete, as JSON text; None without any."""
    return json_text(sources) if sources is not None else None


def newest_by_key(
    changes: Sequence[RowVersion], stored_key: Callable[[str], str] = str
) -> dict[str, RowVersion]:
    """Return the newest of the changes for each stored key, because a statement may touch a row only once."""
    newest = {stored_key(change.key): change for change in changes}
    if len(newest) < len(changes):
        for change in changes:
            key = stored_key(change.key)
            newest[key] = max(newest[key], change, key=lambda each: each.version)
    return newest


def newest_rows(shaper: RowShaper, changes: Sequence[RowVersion]) -> list[tuple[Any, ...]]:
    """Return the newest row of each key, with values in the order of ``arrow.schema_of``."""
    now_ms = epoch_ms()
    return [
        (
            key,
            *shaper.values(each.values or {}),
            each.version,
            each.partition,
            each.offset,
            sources_text(each.sources),
            each.values is None,
            now_ms,
        )
        for key, each in newest_by_key(changes).items()
    ]


def without_nul(value: str) -> str:
    return value.replace(_NUL, "\ufffd") if _NUL in value else value


def within_calendars(milliseconds: int) -> int:
    return max(-FARTHEST_MS, min(FARTHEST_MS, milliseconds))


class Digester:
    """Hashes of live rows, equal for the changelog and for any store's reading of it.

    Values that some store cannot distinguish hash equally: NUL and U+FFFD, −0.0 and 0.0, NaN and null, times
    past all calendars.
    """

    def __init__(self, types: Mapping[str, AvroType]) -> None:
        kinds = [plain_type(each) for each in types.values()]
        self._booleans = [place for place, kind in enumerate(kinds) if kind == "boolean"]
        self._floats = [place for place, kind in enumerate(kinds) if kind in ("float", "double")]
        self._times = [place for place, kind in enumerate(kinds) if kind in _TIMES]

    def row(self, key: str, version: int, values: Sequence[Any]) -> tuple[int, int]:
        """Return (hash of the key, hash of key, version and values). ``values``: from RowShaper, then
        ``_sources``.
        """
        found = list(values)
        for place in self._booleans:
            if found[place] is not None:
                found[place] = bool(found[place])
        for place in self._floats:
            if found[place] is not None:
                found[place] = float(found[place]) + 0.0
        for place in self._times:
            if found[place] is not None:
                found[place] = within_calendars(found[place])
        body = orjson.dumps([without_nul(key), version, *found], default=_spelled)
        return key_hash(key), _number(body.replace(b"\\u0000", b"\xef\xbf\xbd"))


def key_hash(key: str) -> int:
    return _number(without_nul(key).encode())


def _number(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=HASH_BITS // 8).digest(), "big", signed=True)


def _spelled(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return str(value)
