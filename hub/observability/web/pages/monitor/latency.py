"""[core] Page of latency from event to view: the stages of every view, by view, stage and origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hub.errors import CallerError
from hub.observability.lag.states import SEVERITY, LagState
from hub.observability.latency.latency import STAGES, LatencyRow
from hub.observability.web.layout import Pager, paged

# Views per page.
PAGE = 50
ORIGINS = ("live", "replay")


@dataclass(frozen=True, slots=True)
class LatencyFilter:
    """Filter as in ``/api/latency``; an empty one matches everything."""

    view: str = ""
    stage: str = ""
    origin: str = ""

    @property
    def is_narrow(self) -> bool:
        return bool(self.view or self.stage or self.origin)


@dataclass(frozen=True, slots=True)
class LatencyPage:
    """Values of the page. ``views``: rows by view, worst state first. ``total`` of ``of`` views match;
    ``pager`` counts views."""

    filter: LatencyFilter
    views: tuple[tuple[str, tuple[LatencyRow, ...]], ...]
    total: int
    of: int
    pager: Pager
    names: tuple[str, ...]


def checked(wanted: LatencyFilter) -> LatencyFilter:
    """Return the filter. Raises CallerError for an unknown stage or origin."""
    for what, value, values in (("stage", wanted.stage, STAGES), ("origin", wanted.origin, ORIGINS)):
        if value and value not in values:
            raise CallerError(f'"{value[:30]}" is not a valid {what}', hint=f"one of: {', '.join(values)}")
    return wanted


def latency_page(rows: Sequence[LatencyRow], wanted: LatencyFilter, number: int) -> LatencyPage:
    """Return the page's values."""
    by_view: dict[str, list[LatencyRow]] = {}
    for row in rows:
        if (
            wanted.view in ("", row.view)
            and wanted.stage in ("", row.stage)
            and wanted.origin in ("", row.origin)
        ):
            by_view.setdefault(row.view, []).append(row)
    names = tuple(sorted({row.view for row in rows}))
    ordered = sorted(
        by_view, key=lambda view: (min(SEVERITY[LagState(row.state)] for row in by_view[view]), view)
    )
    pager = paged(len(ordered), number, PAGE)
    return LatencyPage(
        wanted,
        tuple((view, tuple(by_view[view])) for view in ordered[pager.first : pager.last]),
        len(ordered),
        len(names),
        pager,
        names[:300],
    )
