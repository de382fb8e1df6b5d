"""[core] State of the alert manager for readers: the API, pages, metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from hub.alerts.delivery.notification_queues import ChannelStatus
from hub.alerts.model.alert_state import AlertingState
from hub.alerts.model.listing import AlertListing, listing
from hub.alerts.model.rules import AlertRule, RuleObservations, Verdict


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """A rule with the number of its objects by state; None if the caller may not see them. ``nobody``: no
    channel for its alerts is usable.
    """

    rule: AlertRule
    good: int | None = 0
    bad: int | None = 0
    unknown: int | None = 0
    firing: int = 0
    error: str | None = None
    nobody: bool = False


@dataclass(frozen=True)
class AlertSnapshot:
    """State of the alert manager for readers.

    ``error`` is the reason if nothing is evaluated; ``problems`` lists other problems. ``listed`` is the
    listing, if already made. ``whole`` is False if the caller may not see everything. ``unheard`` holds the
    keys of alerts without a usable channel. ``file_errors`` counts errors in alerts.yaml and alerts/*.yaml.
    """

    at_ms: int
    state: AlertingState
    rules: tuple[RuleStatus, ...]
    channels: tuple[ChannelStatus, ...]
    error: str | None = None
    problems: tuple[str, ...] = ()
    listed: AlertListing | None = None
    whole: bool = True
    unheard: frozenset[str] = frozenset()
    file_errors: int = 0

    @cached_property
    def listing(self) -> AlertListing:
        """The alerts, sorted."""
        return self.listed if self.listed is not None else listing(self.state, self.at_ms)

    @property
    def firing(self) -> int | None:
        """Number of alerts that fire and are not silenced; None if unknown."""
        return None if self.error is not None else self.listing.firing


def status_of_rule(evaluation: RuleObservations, firing: int, nobody: bool) -> RuleStatus:
    """Return a rule with the number of its objects by state."""
    counts = Counter(each.verdict for each in evaluation.observations)
    good, bad, unknown = counts[Verdict.GOOD], counts[Verdict.BAD], counts[Verdict.UNKNOWN]
    return RuleStatus(evaluation.rule, good, bad, unknown, firing, evaluation.error, nobody)
