"""[core] Sorted alerts of a state with their silences, computed once per round and not per request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hub.alerts.model.alert_state import FIRING, PENDING, Alert, AlertingState, Silence
from hub.alerts.model.rules import Severity

_RANK = {FIRING: 0, PENDING: 1}
_SEVERITY = {str(each): rank for rank, each in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """An alert with the fields that lists need."""

    alert: Alert
    severity: str
    owner: str
    silence: Silence | None = None


@dataclass(frozen=True, slots=True)
class AlertListing:
    """Sorted alerts. ``open``: worst and newest first, silenced ones last; ``past``: newest first. ``firing``
    counts alerts that fire and are not silenced.

    The listing is valid for ``state`` until ``until_ms``, when a silence begins or ends (None: none does).
    """

    state: AlertingState
    open: tuple[ListedAlert, ...]
    past: tuple[ListedAlert, ...]
    owners: tuple[str, ...]
    firing: int
    pending: int
    silenced: int
    until_ms: int | None

    def holds(self, state: AlertingState, now_ms: int) -> bool:
        return self.state is state and (self.until_ms is None or now_ms < self.until_ms)


def listing(state: AlertingState, now_ms: int) -> AlertListing:
    """Build the listing of a state at a time."""
    quiet = state.quiet(now_ms)
    listed = [_listed(each, quiet) for each in state.alerts.values()]
    past = [_listed(each, {}) for each in state.past.values()]
    turns = [at for each in state.silences.values() for at in (each.starts_ms, each.ends_ms) if at > now_ms]
    return AlertListing(
        state,
        tuple(sorted(listed, key=_order)),
        tuple(sorted(past, key=lambda each: (-(each.alert.ended_at_ms or 0), each.alert.key))),
        tuple(sorted({each.owner for each in (*listed, *past)} - {""})),
        sum(each.alert.firing and each.silence is None for each in listed),
        sum(each.alert.phase == PENDING for each in listed),
        len(quiet),
        min(turns, default=None),
    )


def _listed(alert: Alert, quiet: Mapping[str, Silence]) -> ListedAlert:
    labels = dict(alert.labels)
    return ListedAlert(alert, labels.get("severity", ""), labels.get("owner", ""), quiet.get(alert.key))


def _order(each: ListedAlert) -> tuple[bool, int, int, int, str]:
    alert = each.alert
    return (
        each.silence is not None,
        _RANK.get(alert.phase, 9),
        _SEVERITY.get(each.severity, 9),
        -(alert.fired_at_ms or alert.since_ms),
        alert.key,
    )
