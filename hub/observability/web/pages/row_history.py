"""[core] History of one row on the page of its view: its changes, and the row as of a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hub.errors import HubError
from hub.observability.format import UNKNOWN
from hub.observability.web.card import CardField, card, field_of


class HasHistory(Protocol):
    """Rows of the past. Each method raises HubError."""

    def kept_from(self, view: str) -> int | None:
        """Return the earliest time with an answer, epoch milliseconds; None: the view has no history."""

    def changes(self, view: str, key: str, cursor: str) -> Mapping[str, Any]:
        """Return a page of changes as ``GET /views/V/KEY/history`` does. ``cursor`` "": the newest."""

    def row_as_of(self, view: str, key: str, as_of: str) -> Mapping[str, Any] | None:
        """Return the fields of a row as of a time; None if it did not exist."""


@dataclass(frozen=True, slots=True)
class FieldLine:
    """Old and new value of a field as text."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class EventLink:
    """An event of a change. ``link`` None: the caller may not read it, ``why``."""

    place: str
    source: str
    link: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A change of the row. ``as_of``: the time as the page's parameter. ``fields`` None: nothing earlier is
    kept to compare with. ``events``: links to messages; ``precision`` "": no event made it.
    """

    at_ms: int
    as_of: str
    kind: str
    fields: tuple[FieldLine, ...] | None
    precision: str
    meaning: str
    between: str
    events: tuple[EventLink, ...]


@dataclass(frozen=True, slots=True)
class RowHistoryPart:
    """History of a row. ``key`` "": no row is chosen. ``entries`` None: unknown, and ``trouble`` is
    the reason.

    ``row``: fields as of ``as_of``; None: it did not exist then, or ``row_trouble``. ``next``: cursor of
    older changes; ``further``: these are older ones.
    """

    kept_from_ms: int
    key: str = ""
    as_of: str = ""
    entries: tuple[TimelineEntry, ...] | None = None
    next: str | None = None
    further: bool = False
    trouble: str = ""
    hint: str = ""
    row: tuple[CardField, ...] | None = None
    row_trouble: str = ""


def row_history(
    history: HasHistory | None, view: str, key: str, as_of: str, cursor: str
) -> RowHistoryPart | None:
    """Return the part of a view's page; None for a view without a history."""
    kept_from_ms = None if history is None else history.kept_from(view)
    if history is None or kept_from_ms is None:
        return None
    part = RowHistoryPart(kept_from_ms, key, as_of, further=bool(cursor))
    if not key:
        return part
    try:
        found = history.changes(view, key, cursor)
        part = replace(part, entries=tuple(_entry(each) for each in found["changes"]), next=found["next"])
    except HubError as error:
        part = replace(part, trouble=error.message, hint=error.hint or "")
    return part if not as_of else _as_of(history, view, part)


def _as_of(history: HasHistory, view: str, part: RowHistoryPart) -> RowHistoryPart:
    try:
        row = history.row_as_of(view, part.key, part.as_of)
    except HubError as error:
        return replace(part, row_trouble=error.message)
    return replace(part, row=None if row is None else card(row).fields)


def _entry(change: Mapping[str, Any]) -> TimelineEntry:
    fields, events = change["changes"], change["events"]
    lines = None if fields is None else tuple(_line(each) for each in fields)
    if events is None:
        return TimelineEntry(change["at_ms"], change["at"], change["kind"], lines, "", "", "", ())
    between = ""
    if events["precision"] == "within":
        between = f"{events['after']} to {events['up_to']}"
    links = tuple(_link(each) for each in events["events"])
    precision, meaning = events["precision"], events["meaning"]
    return TimelineEntry(
        change["at_ms"], change["at"], change["kind"], lines, precision, meaning, between, links
    )


def _line(change: Mapping[str, Any]) -> FieldLine:
    old, new = (
        UNKNOWN if change[side] is None else field_of(change["field"], change[side]).text
        for side in ("old", "new")
    )
    return FieldLine(change["field"], old, new)


def _link(event: Mapping[str, Any]) -> EventLink:
    place = f"{event['topic']}:{event['partition']}:{event['offset']}"
    if event["state"] == "hidden":
        return EventLink(place, event["source"], None, event["why"])
    return EventLink(place, event["source"], event["link"])
