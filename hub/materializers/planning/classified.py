"""[core] Classification of a SQL view, as values: kind, mode, key, and rules for late events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hub.materializers.definition.sql_query import Query

PlanKind = Literal["stateless", "aggregate", "session", "join", "incremental"]
Mode = Literal["append", "update"]


@dataclass(frozen=True, slots=True)
class LateRule:
    """Rule for late events of a source, as SQL over their event time.

    ``windows`` is the call ``window(…)`` over the column; an event is then late as soon as one of its windows
    ends at or before the watermark. Without it the event is late when ``time`` itself is not after the
    watermark.
    """

    source: str
    time: str
    windows: str | None = None


@dataclass(frozen=True, slots=True)
class Classified:
    """Classification of a SQL view: kind, SQL for Spark, key and late rules.

    ``sql``: what Spark runs, the author's text with the column ``_hub_version``; empty for an incremental
    view, whose engine has its own. ``traced``: for a stateless view the same with ``_hub_from``, the event
    that made the row.
    ``nearest``: the nearest native form, if there is one.
    """

    query: Query
    name: PlanKind
    reason: str
    nearest: str
    mode: Mode | None
    key: tuple[str, ...]
    key_from: str
    sql: str
    late: tuple[LateRule, ...]
    traced: str = ""

    @property
    def native(self) -> bool:
        return self.name != "incremental"

    @property
    def has_state(self) -> bool:
        """True when rows wait for a watermark, which advances in a batch without events."""
        return self.mode == "append" and bool(self.late)

    def watermark(self, source: str) -> tuple[str, str] | None:
        """Return (event time, delay) of a source's watermark for Spark; None where no event of it counts as
        late.

        Spark drops late rows wherever an event time is in a group, and does not report them.
        """
        source_settings = self.query.view.sources[source]
        if (
            source_settings.event_time is None
            or source_settings.watermark is None
            or all(each.source != source for each in self.late)
        ):
            return None
        return source_settings.event_time, source_settings.watermark


@dataclass(frozen=True, slots=True)
class QueryShape:
    """Result of classifying a query, from the inside out. ``static``: no stream event makes a row of it."""

    name: PlanKind
    reason: str
    nearest: str = ""
    late: tuple[LateRule, ...] = ()
    static: bool = False
    bounded_join: bool = False


STATIC = QueryShape("stateless", "a static table", static=True)


def state_of(plan: Classified) -> str:
    """Return what a view keeps between batches, and whether that is bounded."""
    bound = "until the watermark has passed them" if plan.late else "forever: no source has a watermark"
    match plan.name:
        case "stateless":
            return "none"
        case "incremental":
            return "every current row of its tables, every event of its streams"
        case "join":
            return f"events that may find a partner, {bound}"
        case "session":
            return f"open sessions, {bound}"
        case "aggregate":
            return f"one row for each key, {bound}"
