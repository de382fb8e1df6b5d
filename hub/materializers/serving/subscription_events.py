"""[core] Subscriptions as values: requests, events, and the positions from which they resume."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote

from hub.errors import CallerError
from hub.masking.shape import OPEN, Visibility
from hub.materializers.serving.pull_query import Condition
from hub.materializers.stores.sql.queries import Filter
from hub.record import Positions

Name = Literal[
    "snapshot",
    "synced",
    "upsert",
    "delete",
    "reset",
    "behind",
    "covered",
    "alive",
    "closing",
    "columns",
    "row",
    "skipped",
    "complete",
]


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """Position of a subscriber, valid for one incarnation of the view and one set of filters.

    ``positions``: of the changelog. ``after``: in a snapshot, the last key it has. ``filters``: hash of the
    filters.
    """

    incarnation: str
    positions: Positions
    after: str | None = None
    filters: str = ""

    def __str__(self) -> str:
        """Return an event's id, opaque to clients. Topic ids are base64 and may contain a slash."""
        filters = f";{self.filters}" if self.filters else ""
        key = "" if self.after is None else f"/{quote(self.after, safe='')}"
        return f"{quote(self.incarnation, safe='')}{filters}/{self.positions}{key}"


def parse_event_id(text: str | None) -> SubscriberPosition | None:
    """Parse an event id. Raises CallerError for an invalid one."""
    if not text:
        return None
    head, *rest = text.split("/")
    if not 1 <= len(rest) <= 2:
        raise CallerError(
            "Last-Event-ID is not one that this server sent",
            hint="leave it out to start with a snapshot",
            code="HUB-1430",
        )
    incarnation, _, filters = head.partition(";")
    after = unquote(rest[1]) if len(rest) == 2 else None
    return SubscriberPosition(unquote(incarnation), Positions.parse(rest[0]), after, filters)


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """An event of a subscription. ``mark``: id with which the client may resume after this event.

    snapshot, upsert, delete   ``{"key", "row", "version"}``, row null when it is deleted or has left the filters
    synced                     ``{"positions"}`` of the changelog: the snapshot is whole
    reset                      ``{"reason"}``: drop every row, a new snapshot follows
    behind                     ``{"slow_ms", "records", "rows", "coalesced"}``: the reader was slow, changes were merged
    covered                    ``{"positions"}`` of the sources that all sent rows include; only on request
    alive                      heartbeat without a change
    closing                    ``{"reason"}``: the server closes the connection; reconnect with the last id

    Of push queries only:

    columns                    ``{"columns"}``: name and type of each, before any row
    row                        ``{"row"}`` of an event of a topic
    skipped                    ``{"unreadable"}``: events of the topic that cannot be decoded
    complete                   ``{"rows"}``: the query's LIMIT is reached
    """  # noqa: E501

    name: Name
    mark: SubscriberPosition | Positions | None
    body: Mapping[str, Any]

    @property
    def has_next(self) -> bool:
        """Return whether another event follows at once.

        A page of changes ends with an event that has an id, a snapshot with ``synced``.
        """
        if self.name in ("columns", "snapshot"):
            return True
        return self.name in ("upsert", "delete", "row", "skipped") and self.mark is None


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """Request of a subscriber. ``covered``: send the source positions that the sent rows include.

    ``shape``: what the subscriber sees; ``rows``: its filter of rows, as conditions. ``look`` returns the
    shape of now; the subscription ends when it is another.
    """

    view: str
    filters: tuple[Condition, ...] = ()
    snapshot: bool = True
    covered: bool = False
    shape: Visibility = OPEN
    rows: tuple[Filter, ...] = ()
    look: Callable[[], Visibility] | None = None
    own: str = field(default_factory=lambda: secrets.token_hex(8))

    def conditions(self) -> list[Filter]:
        return [*(each.as_tuple() for each in self.filters), *self.rows]

    def mark(self) -> str:
        """Return a hash that differs between filters; "" without filters.

        With a filter of rows no two subscriptions have the same: who resumes gets a snapshot, because
        deletes of rows that it never saw would name their keys.
        """
        if not self.filters and not self.rows:
            return ""
        parts = sorted(repr(each) for each in self.conditions()) + [self.own] * bool(self.rows)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
