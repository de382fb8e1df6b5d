"""[core] Page of lag: consumers and how late they are, worst first, filtered by state, owner, kind and
topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hub.errors import CallerError
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import SEVERITY, LagState
from hub.observability.web.layout import Pager, paged

PAGE = 100
_MOST_CHOICES = 300
KINDS = ("group", "view", "applier", "mirror")


@dataclass(frozen=True, slots=True)
class LagFilter:
    """Filter as in ``/api/lag``; an empty one matches everything. ``prefix``: of topic names."""

    state: tuple[str, ...] = ()
    owner: str = ""
    prefix: str = ""
    name: str = ""
    kind: str = ""

    @property
    def is_narrow(self) -> bool:
        return bool(self.state or self.owner or self.prefix or self.name or self.kind)


@dataclass(frozen=True, slots=True)
class LagPage:
    """Values of the page.

    ``counts``: (state, number) of the matches without the filter on states. ``measured_at_ms``: time of the
    newest reading. ``unmeasured``: see PageSources.
    """

    filter: LagFilter
    rows: tuple[LagRow, ...]
    counts: tuple[tuple[str, int], ...]
    total: int
    of: int
    pager: Pager
    owners: tuple[str, ...]
    kinds: tuple[str, ...]
    measured_at_ms: int | None
    unmeasured: str | None = None


def checked(states: Iterable[str]) -> tuple[str, ...]:
    """Return the states without empty ones. Raises CallerError for an unknown state."""
    wanted = tuple(each for each in states if each)
    for each in wanted:
        if each not in SEVERITY:
            raise CallerError(f'"{each[:30]}" is not a state', hint=f"one of: {', '.join(LagState)}")
    return wanted


def fitting(rows: Iterable[LagRow], wanted: LagFilter) -> list[LagRow]:
    """Return the rows that match the filter, in their order."""
    return [
        row
        for row in rows
        if (not wanted.state or row.state in wanted.state)
        and (not wanted.owner or row.owner == wanted.owner)
        and (not wanted.prefix or (row.topic or "").startswith(wanted.prefix))
        and (not wanted.name or row.name == wanted.name)
        and (not wanted.kind or row.kind == wanted.kind)
    ]


def lag_page(
    rows: Sequence[LagRow], wanted: LagFilter, number: int = 1, unmeasured: str | None = None
) -> LagPage:
    """Return the page with that number; ``rows`` must be ordered worst first."""
    anyhow = fitting(rows, LagFilter((), wanted.owner, wanted.prefix, wanted.name, wanted.kind))
    counts = Counter(row.state for row in anyhow)
    fit = fitting(anyhow, LagFilter(wanted.state))
    pager = paged(len(fit), number, PAGE)
    return LagPage(
        wanted,
        tuple(fit[pager.first : pager.last]),
        tuple((str(state), counts[state]) for state in LagState if counts[state]),
        len(fit),
        len(rows),
        pager,
        tuple(sorted({row.owner for row in rows if row.owner})[:_MOST_CHOICES]),
        tuple(kind for kind in KINDS if any(row.kind == kind for row in rows)),
        max((row.measured_at_ms for row in rows if row.measured_at_ms is not None), default=None),
        unmeasured,
    )
