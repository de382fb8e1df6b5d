"""[core] A row of a view as a card: its fields as text, and the latest event of each source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from hub.observability.format import UNKNOWN, count
from hub.times import parse_iso

# Mask of a row's version: the low bits count its events, the high bits the recomputations of its view
# (materializers.dataframes).
_EVENTS_OF_VERSION = (1 << 40) - 1


@dataclass(frozen=True, slots=True)
class CardField:
    """A field of the card. ``kind``: number, flag, time, text, nested or none; selects the style."""

    name: str
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Latest event of a source that is included in the row. ``timestamp_ms``: epoch milliseconds."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """A row as a card. ``deleted``: the row existed and was deleted. ``events``: number of events folded
    into it."""

    events: int | None
    deleted: bool
    fields: tuple[CardField, ...]
    sources: tuple[Provenance, ...]


def card(row: Mapping[str, Any]) -> Card:
    """Return the card of a served row."""
    version = row.get("_version")
    names = [name for name in row if name != "key" and not name.startswith("_")]
    return Card(
        None if version is None else version & _EVENTS_OF_VERSION,
        bool(row.get("_deleted")),
        tuple(field_of(name, row[name]) for name in names),
        tuple(
            _provenance(source, event)
            for source, event in (row.get("_sources") or {}).items()
            if event is not None
        ),
    )


def field_of(name: str, value: object) -> CardField:
    """Return a field formatted for people."""
    if value is None:
        return CardField(name, UNKNOWN, "none")
    if isinstance(value, bool):
        return CardField(name, "yes" if value else "no", "flag")
    if isinstance(value, int):
        return CardField(name, count(value) if not _names_a_number(name) else str(value), "number")
    if isinstance(value, float):
        return CardField(name, _float(value), "number")
    if isinstance(value, str):
        return (
            CardField(name, _readable(value), "time") if _is_time(value) else CardField(name, value, "text")
        )
    return CardField(name, _nested(value), "nested")


def _float(value: float) -> str:
    """Format with two decimals, or three significant digits below 0.1."""
    return f"{value:.3g}" if 0 < abs(value) < 0.1 else f"{value:,.2f}".replace(",", "\u202f")


def _nested(value: object) -> str:
    """Format as JSON. Values that orjson rejects (numbers beyond 64 bits, lone surrogates, deep nesting)
    do not fail the page."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value, default=str, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return "nested too deep to be shown"


def _names_a_number(name: str) -> bool:
    """Return whether a field is a year or an identifier, which is not grouped by thousands."""
    return name in ("year", "id") or name.endswith(("_year", "_id"))


def _readable(time: str) -> str:
    """Format an ISO time for people: without ``T``, ``Z`` and zero milliseconds. Offsets other than UTC
    are kept."""
    return time.replace("T", " ").removesuffix("Z").removesuffix("+00:00").removesuffix(".000")


def _is_time(value: str) -> bool:
    if len(value) < 19 or value[4:5] != "-" or value[10:11] not in ("T", " "):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _provenance(source: str, event: Mapping[str, Any]) -> Provenance:
    timestamp = event.get("timestamp")
    if isinstance(timestamp, str):
        try:
            timestamp = parse_iso(timestamp)
        except ValueError:  # a year out of Python's range
            timestamp = None
    return Provenance(source, event["topic"], event["partition"], event["offset"], timestamp)
