"""[core] Page of alerts: firing and past alerts, rules, silences, channels; filtered by severity, owner
and rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.alerts.alerts_json import rows_of, rules_of, silences_of
from hub.alerts.model.listing import ListedAlert
from hub.alerts.snapshot import AlertSnapshot
from hub.observability.web.layout import Pager, paged

PAGE = 50
_CHOICES = 300
_NOTHING = paged(0, 1, PAGE)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertsFilter:
    """A filter; an empty one matches everything."""

    severity: str = ""
    owner: str = ""
    name: str = ""

    @property
    def is_narrow(self) -> bool:
        return bool(self.severity or self.owner or self.name)

    def fits(self, each: ListedAlert) -> bool:
        return (
            self.severity in ("", each.severity)
            and self.owner in ("", each.owner)
            and self.name in ("", each.alert.rule)
        )


@dataclass(frozen=True, slots=True)
class AlertsPage:
    """Values of the page.

    ``on`` False: the settings have `alerts: false`. ``error``: why alerts are not evaluated now. ``firing``
    None: unknown. ``pager`` and ``past_pager``: the shown part of each list. ``whole`` False: only alerts
    that the caller may see.
    """

    filter: AlertsFilter
    on: bool = True
    error: str | None = None
    troubles: Sequence[str] = ()
    firing: int | None = None
    pending: int = 0
    silenced: int = 0
    rows: Sequence[Row] = ()
    pager: Pager = _NOTHING
    past: Sequence[Row] = ()
    past_pager: Pager = _NOTHING
    rules: Sequence[Row] = ()
    silences: Sequence[Row] = ()
    channels: Sequence[Any] = ()
    owners: Sequence[str] = ()
    names: Sequence[str] = ()
    whole: bool = True


def alerts_page(
    snapshot: AlertSnapshot | None, wanted: AlertsFilter, number: int = 1, past: int = 1
) -> AlertsPage:
    """Return the page from the alert manager's snapshot; None: alerts are off. ``number`` and ``past``:
    pages of the lists."""
    if snapshot is None:
        return AlertsPage(wanted, on=False)
    every, rules = snapshot.listing, rules_of(snapshot)
    rows, over = _fitting(every.open, wanted), _fitting(every.past, wanted)
    pager, past_pager = paged(len(rows), number, PAGE), paged(len(over), past, PAGE)
    return AlertsPage(
        wanted,
        True,
        snapshot.error,
        snapshot.problems,
        snapshot.firing,
        every.pending,
        every.silenced,
        rows_of(rows[pager.first : pager.last], snapshot.unheard),
        pager,
        rows_of(over[past_pager.first : past_pager.last]),
        past_pager,
        rules,
        silences_of(snapshot),
        snapshot.channels,
        sorted({*every.owners[:_CHOICES], wanted.owner} - {""}),
        [row["alert"] for row in rules],
        snapshot.whole,
    )


def _fitting(those: Sequence[ListedAlert], wanted: AlertsFilter) -> Sequence[ListedAlert]:
    return [each for each in those if wanted.fits(each)] if wanted.is_narrow else those


# Separators of matchers and of values; names of groups, connectors and query rows may contain them.
_SEPARATORS = str.maketrans(",|", "??")


def narrow(row: Row) -> str:
    """Return the matchers of exactly this alert, in the format of the silence form.

    A separator in a name becomes ``?``, which matches any single character.
    """
    own = [name for name in row["labels"] if name not in ("severity", "owner", "node", "kind")]
    return ", ".join(f"{name}={row['labels'][name].translate(_SEPARATORS)}" for name in own)
