"""[core] Periods of a view's history, and the one that answers for a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.errors import CallerError, Gone, PeerError
from hub.materializers.types.avro_types import AvroType
from hub.times import iso, parse_iso


@dataclass(frozen=True, slots=True)
class HistoryPeriod:
    """Time in which readers of a view got one table, whose versions are in the table ``stored``.

    ``until_ms`` None: it is served now. ``kept_from_ms``: versions that ended before it were removed.
    """

    stored: str
    name: str
    types: Mapping[str, AvroType]
    from_ms: int
    until_ms: int | None
    keep_ms: int
    kept_from_ms: int

    def begins_ms(self, now_ms: int) -> int:
        """Return the earliest time that the period answers for."""
        return max(self.from_ms, self.kept_from_ms, now_ms - self.keep_ms)


def answerable(periods: Sequence[HistoryPeriod], now_ms: int) -> list[HistoryPeriod]:
    """Return the periods with a time that is still kept, the latest first."""
    history_periods = [
        each for each in periods if each.until_ms is None or each.until_ms > each.begins_ms(now_ms)
    ]
    return sorted(history_periods, key=lambda each: each.from_ms, reverse=True)


def require_history(view: str, periods: Sequence[HistoryPeriod]) -> None:
    """Raise CallerError for a view without any history."""
    if not periods:
        raise CallerError(
            f'view "{view}" keeps no history',
            hint="write `history: 30d` into its file; it begins then",
            code="HUB-1490",
        )


def period_at(view: str, periods: Sequence[HistoryPeriod], at_ms: int, now_ms: int) -> HistoryPeriod:
    """Return the period that answers for a time. Raises CallerError for a view without history or a time to
    come, Gone for a time before the kept ones or between two periods.
    """
    require_history(view, periods)
    if at_ms > now_ms:
        raise CallerError(
            f'view "{view}": {iso(at_ms)} is in the future', hint="name a time up to now", code="HUB-1492"
        )
    history_periods = answerable(periods, now_ms)
    for each in history_periods:
        if each.begins_ms(now_ms) <= at_ms and (each.until_ms is None or at_ms < each.until_ms):
            return each
    begins = [each.begins_ms(now_ms) for each in history_periods]
    since = f"its history begins at {iso(min(begins))}" if begins else "nothing is kept any more"
    raise Gone(
        f'view "{view}": {iso(at_ms)} is not kept: {since}',
        hint="ask for a later time, or raise `history` in the view's file for times to come",
        code="HUB-1491",
    )


@dataclass(frozen=True, slots=True)
class StoreReach:
    """Progress of a store with a view's changes. ``until_ms``: time of its last complete batch; None if
    unknown. ``is_behind``: the log has a later batch. None: unknown.
    """

    until_ms: int | None
    is_behind: bool | None

    def require(self, view: str, at_ms: int) -> None:
        """Raise PeerError if the store may lack changes of that time."""
        if self.until_ms is not None and at_ms <= self.until_ms:
            return
        if self.is_behind is not False:
            reached = "an unknown time" if self.until_ms is None else iso(self.until_ms)
            raise PeerError(
                f'view "{view}": the store has its changes up to {reached}, not yet those of {iso(at_ms)}',
                hint="ask again later; hub lag shows whether the view is running",
                code="HUB-3099",
            )


def time_of(name: str, text: str) -> int:
    """Return the epoch milliseconds of a time in a request. Raises CallerError."""
    try:
        return parse_iso(text)
    except ValueError:
        raise CallerError(
            f'{name} "{text[:60]}" is not a time',
            hint="ISO 8601, such as 2026-01-31T14:03:00Z; in a URL write + as %2B",
            code="HUB-1423",
        ) from None
