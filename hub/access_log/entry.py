"""[core] An entry of the access log, and its form in the topic: a CloudEvent in JSON (structured mode).

Source: CloudEvents 1.0.2. ``chain``, ``sequence`` and ``previous`` are extension attributes; ``chain.py``
explains them. No entry holds a secret or a value of a record.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from hub.access_log.actions import LoggedAction, Outcome
from hub.errors import HubFault
from hub.times import parse_iso

TOPIC: Final = "_hub.access_log"
# Header with the account of a command that signs in by the key of the home.
ACCOUNT_HEADER: Final = "Hub-Account"
_TYPE: Final = "hub.access."
_MOST_TEXT = 4_000  # characters of a text; SQL statements are the longest
_MOST_LINES = 100  # of a list, such as the steps of a plan

_next = itertools.count(1)
_prefix = secrets.token_hex(6)
# A child process continues with the parent's counter.
os.register_at_fork(after_in_child=lambda: globals().update(_prefix=secrets.token_hex(6)))


def new_id() -> str:
    """Return an id that no other entry or request has."""
    return f"{_prefix}-{next(_next)}"


@dataclass(frozen=True, slots=True)
class Who:
    """Principal, how it signed in, and where from. ``name`` is empty for nobody."""

    name: str = ""
    way: str = "nobody"
    address: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``kind`` and ``name``: the object, such as topic and shop.orders. ``detail``: texts, numbers
    and lists of texts. ``count``: how many times it happened; ``at_ms``: epoch milliseconds, of the first.
    """

    action: LoggedAction
    result: Outcome
    who: Who
    at_ms: int
    kind: str = "hub"
    name: str = ""
    request_id: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    id: str = field(default_factory=new_id)

    def then(self, result: Outcome, at_ms: int, **detail: Any) -> Entry:
        """Return the second entry of a change: its result."""
        return replace(self, result=result, at_ms=at_ms, detail={**self.detail, **detail}, id=new_id())


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as the topic holds it."""

    entry: Entry
    offset: int
    chain: str
    sequence: int
    previous: str

    def row(self) -> dict[str, Any]:
        """Return the entry as JSON shows it."""
        entry = self.entry
        return {
            "offset": self.offset,
            "time": iso(entry.at_ms),
            "who": entry.who.name,
            "way": entry.who.way,
            "address": entry.who.address,
            "action": entry.action,
            "kind": entry.kind,
            "name": entry.name,
            "result": entry.result,
            "count": entry.count,
            "request_id": entry.request_id,
            "detail": dict(entry.detail),
            "id": entry.id,
            "chain": self.chain,
            "sequence": self.sequence,
        }


def encode(entry: Entry, chain: str, sequence: int, previous: str) -> bytes:
    """Return the CloudEvent of an entry."""
    return orjson.dumps(
        {
            "specversion": "1.0",
            "id": entry.id,
            "source": "/hub/access-log",
            "type": _TYPE + entry.action,
            "subject": f"{entry.kind}/{entry.name}" if entry.name else entry.kind,
            "time": iso(entry.at_ms),
            "datacontenttype": "application/json",
            "chain": chain,
            "sequence": sequence,
            "previous": previous,
            "data": {
                "action": entry.action,
                "result": entry.result,
                "who": entry.who.name[:200],
                "way": entry.who.way,
                "address": entry.who.address[:100],
                "kind": entry.kind,
                "name": entry.name[:300],
                "request_id": entry.request_id[:100],
                "count": entry.count,
                "detail": {name: _short(value) for name, value in entry.detail.items()},
            },
        },
        default=str,
    )


def decode(value: bytes | None, offset: int) -> StoredEntry:
    """Parse a record of the topic. Raises HubFault (HUB-5702) for one that the hub did not write."""
    try:
        body = orjson.loads(value or b"")
        data = body["data"]
        entry = Entry(
            LoggedAction(data["action"]),
            Outcome(data["result"]),
            Who(str(data["who"]), str(data["way"]), str(data["address"])),
            parse_iso(body["time"]),
            str(data["kind"]),
            str(data["name"]),
            str(data["request_id"]),
            dict(data["detail"]),
            int(data["count"]),
            str(body["id"]),
        )
        return StoredEntry(entry, offset, str(body["chain"]), int(body["sequence"]), str(body["previous"]))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise HubFault(
            f'topic "{TOPIC}" offset {offset}: the record is not an entry of the access log '
            f"({type(error).__name__})",
            hint="find the writer: only the hub may write this topic",
            code="HUB-5702",
        ) from None


def iso(at_ms: int) -> str:
    """Format a time as ISO 8601 in UTC, with milliseconds.

    >>> iso(1_700_000_000_123)
    '2023-11-14T22:13:20.123+00:00'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}…"
    if isinstance(value, list | tuple):
        kept = [_short(str(each)) for each in value[:_MOST_LINES]]
        return kept if len(value) <= _MOST_LINES else [*kept, f"and {len(value) - _MOST_LINES} more"]
    return value


# The JSON Schema of a record's value; docs/reference/access-log.md describes the fields.
SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Entry of the access log",
    "type": "object",
    "required": ["specversion", "id", "source", "type", "time", "chain", "sequence", "previous", "data"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"const": "/hub/access-log"},
        "type": {"enum": [_TYPE + each for each in LoggedAction]},
        "subject": {"type": "string"},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "chain": {"type": "string", "minLength": 1},
        "sequence": {"type": "integer", "minimum": 0},
        "previous": {"type": "string", "pattern": "^([0-9a-f]{64})?$"},
        "data": {
            "type": "object",
            "required": ["action", "result", "who", "way", "address", "kind", "name", "request_id", "count"],
            "properties": {
                "action": {"enum": [str(each) for each in LoggedAction]},
                "result": {"enum": [str(each) for each in Outcome]},
                **{
                    each: {"type": "string"}
                    for each in ("who", "way", "address", "kind", "name", "request_id")
                },
                "count": {"type": "integer", "minimum": 1},
                "detail": {"type": "object"},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
