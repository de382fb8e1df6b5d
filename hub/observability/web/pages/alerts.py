"""[core] Alerts as a page: what fires, what was, rules, silences, channels; filtered by severity, owner and rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.alerts.desk import Known
from hub.alerts.shown import past_of, rows_of, rules_of, silences_of

MOST = 300
_CHOICES = 300

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertsFilter:
    """An empty one lets everything through."""

    severity: str = ""
    owner: str = ""
    name: str = ""

    @property
    def is_narrow(self) -> bool:
        return bool(self.severity or self.owner or self.name)

    def fits(self, row: Row) -> bool:
        return (
            self.severity in ("", row["severity"])
            and self.owner in ("", row["owner"])
            and self.name in ("", row["alert"])
        )


@dataclass(frozen=True, slots=True)
class AlertsPage:
    """``on`` False: the settings say `alerts: false`. ``error``: why nothing is watched now. ``firing`` None: not known.
    ``more`` and ``more_past``: how many are not among the rows."""

    filter: AlertsFilter
    on: bool = True
    error: str | None = None
    troubles: Sequence[str] = ()
    firing: int | None = None
    pending: int = 0
    silenced: int = 0
    rows: Sequence[Row] = ()
    more: int = 0
    past: Sequence[Row] = ()
    more_past: int = 0
    rules: Sequence[Row] = ()
    silences: Sequence[Row] = ()
    channels: Sequence[Any] = ()
    owners: Sequence[str] = ()
    names: Sequence[str] = ()


def alerts_page(known: Known | None, wanted: AlertsFilter) -> AlertsPage:
    """The page over a desk's knowledge; None: there is no desk."""
    if known is None:
        return AlertsPage(wanted, on=False)
    every, past = rows_of(known), past_of(known)
    rows, over = [row for row in every if wanted.fits(row)], [row for row in past if wanted.fits(row)]
    return AlertsPage(
        wanted,
        True,
        known.error,
        known.troubles,
        known.firing,
        sum(row["state"] == "pending" for row in every),
        sum(row["silenced_by"] is not None for row in every),
        rows[:MOST],
        max(0, len(rows) - MOST),
        over[:MOST],
        max(0, len(over) - MOST),
        rules_of(known),
        silences_of(known),
        known.channels,
        sorted({row["owner"] for row in [*every, *past] if row["owner"]} | ({wanted.owner} - {""}))[
            :_CHOICES
        ],
        [row["alert"] for row in rules_of(known)],
    )


def narrow(row: Row) -> str:
    """The matchers of this alert and no other, as the form of silences takes them."""
    own = [name for name in row["labels"] if name not in ("severity", "owner", "node", "kind")]
    return ", ".join(f"{name}={row['labels'][name]}" for name in own)
