"""[core] Rows of the past: the changes of a row, newest first, and its difference between two times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from hub.client.requests import Moment, Request, Row, below_row_path, named_times
from hub.record import Positions, TopicPartition


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Old and new value of a field; None in a row that does not exist."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """An event of a change. ``source``: its source in the view. ``state``: ``shown``, ``hidden`` from you,
    ``gone`` from the log, or ``unknown``; only a shown event has its time, key and value, else ``why`` has
    the reason.
    """

    place: TopicPartition
    offset: int
    source: str
    state: str
    why: str = ""
    timestamp_ms: int | None = None
    key: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """Events of a change. ``precision``: ``exact`` (these and no others), ``within`` (all are from ``after``
    to ``up_to``, and some are listed) or ``unknown``. ``count``: their number, if it is known.
    """

    precision: str
    events: tuple[ChangeEvent, ...]
    count: int | None
    after: Positions | None
    up_to: Positions | None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row, published at ``at_ms``. ``kind``: ``created``, ``changed``, ``deleted``, ``swapped``
    (another version of the view is served from then on) or ``known`` (nothing earlier is kept, so there are
    no ``changes``). ``row`` None: it does not exist after the change. ``events`` None: no event made it.
    """

    at_ms: int
    kind: str
    changes: tuple[FieldChange, ...]
    row: Row | None
    version: int | None
    applied_at_ms: int | None
    events: ChangeEvents | None

    @property
    def at(self) -> datetime:
        """Return the time at which it was published, in UTC."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of a row's changes, the newest first; ``next`` begins the page of older ones, None: there is
    none.
    """

    changes: tuple[RowChange, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class RowDiff:
    """Fields of a row that differ between two times; ``existed`` at the earlier, ``exists`` at the later."""

    changes: tuple[FieldChange, ...]
    existed: bool
    exists: bool


class HistoryOptions(TypedDict, total=False):
    """Changes from ``since`` to ``until``, in pages of up to 100 ``page_changes``; ``timeout_s`` of each
    page.
    """

    since: Moment | None
    until: Moment | None
    page_changes: int
    timeout_s: float | None


def history_request(view: str, key: str, options: HistoryOptions, cursor: str | None) -> Request:
    """Return the request for a page of changes. ``cursor``: ``next`` of the page before."""
    times = {"from": options.get("since"), "to": options.get("until")}
    parameters = {**times, "limit": str(options.get("page_changes", 20)), "after": cursor}
    return Request("GET", below_row_path(view, key, "history"), named_times(**parameters))


def diff_request(view: str, key: str, since: Moment, until: Moment | None) -> Request:
    return Request("GET", below_row_path(view, key, "diff"), named_times(**{"from": since, "to": until}))


def history_page(body: Any) -> HistoryPage:
    """Return the page in an answer's body."""
    return HistoryPage(tuple(_change(each) for each in body["changes"]), body["next"])


def row_diff(body: Any) -> RowDiff:
    """Return the difference in an answer's body."""
    return RowDiff(_fields(body["changes"]), bool(body["existed"]), bool(body["exists"]))


def _change(body: Mapping[str, Any]) -> RowChange:
    events = body["events"]
    return RowChange(
        body["at_ms"],
        body["kind"],
        _fields(body["changes"] or ()),
        body["row"],
        body["version"],
        body["applied_at_ms"],
        None if events is None else _events(events),
    )


def _fields(listed: Any) -> tuple[FieldChange, ...]:
    return tuple(FieldChange(each["field"], each["old"], each["new"]) for each in listed)


def _events(body: Mapping[str, Any]) -> ChangeEvents:
    begin, end = (None if body[name] is None else Positions.parse(body[name]) for name in ("after", "up_to"))
    return ChangeEvents(
        body["precision"], tuple(_event(each) for each in body["events"]), body["count"], begin, end
    )


def _event(body: Mapping[str, Any]) -> ChangeEvent:
    return ChangeEvent(
        TopicPartition(body["topic"], body["partition"]),
        body["offset"],
        body["source"],
        body["state"],
        body.get("why", ""),
        body.get("timestamp_ms"),
        body.get("key"),
        body.get("value"),
    )
