"""[core] Values of the alert state machine: alerts, silences, routes, groups and notifications."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.alerts.model.matching import Labels, Matchers, fits, fits_in
from hub.alerts.model.rules import GONE_MS, Verdict

# Interval at which held time is stored; longest gap after which it continues.
KEPT_EVERY_MS = 15_000
LONGEST_GAP_MS = GONE_MS
PENDING, FIRING, PAST = "pending", "firing", "resolved"


@dataclass(frozen=True, slots=True)
class Alert:
    """One object that breaks, or broke, a rule. Times are epoch milliseconds. ``held_ms`` is the time for
    which the verdict ``last`` was observed. ``ended`` is the reason for the end.
    """

    key: str
    rule: str
    object: Labels
    labels: Labels
    summary: str
    detail: str
    value: float | None
    phase: str
    since_ms: int
    last: Verdict
    last_ms: int
    held_ms: int = 0
    fired_at_ms: int | None = None
    ended_at_ms: int | None = None
    ended: str = ""
    runbook: str = ""
    missing_ms: int = 0

    @property
    def firing(self) -> bool:
        return self.phase == FIRING

    @property
    def held_unkept(self) -> bool:
        """True if the alert is pending and has held time that is not stored yet."""
        return self.phase == PENDING and self.last is Verdict.BAD and self.held_ms % KEPT_EVERY_MS > 0

    def goes_on(self, now_ms: int) -> bool:
        """Return True if the alert was pending before a restart, was not observed since, and its held time
        still counts.
        """
        carried = self.phase == PENDING and self.last is Verdict.UNKNOWN and self.held_ms > 0
        return carried and now_ms - self.last_ms <= LONGEST_GAP_MS

    @property
    def once(self) -> tuple[str, int]:
        """Identity of this firing of the alert."""
        return self.key, self.fired_at_ms or 0


@dataclass(frozen=True, slots=True)
class Silence:
    """No notifications for alerts with these labels until ``ends_ms``."""

    id: str
    matchers: Matchers
    reason: str
    by: str
    starts_ms: int
    ends_ms: int

    def holds(self, labels: Labels, now_ms: int) -> bool:
        return self.starts_ms <= now_ms < self.ends_ms and fits(self.matchers, labels)


@dataclass(frozen=True, slots=True)
class NotificationRoute:
    """Route of alerts that match ``matchers`` to ``channels``. With ``goes_on``, later routes are evaluated,
    too.
    """

    matchers: Matchers
    channels: tuple[str, ...]
    goes_on: bool = False
    by: tuple[str, ...] = ("owner", "node")
    wait_ms: int = 30_000
    repeat_ms: int = 4 * 3_600_000

    @property
    def id(self) -> str:
        """Identity of the route's content. Reordering the file does not change it, so nothing is repeated."""
        text = repr((self.matchers, self.channels, self.by))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


class GroupKey(NamedTuple):
    route: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NotificationGroup:
    """Notification state of a group.

    ``notified`` holds the notified firing alerts with their firing times. ``changed_ms`` is when the first
    change that is not notified yet was seen.
    """

    key: GroupKey
    notified: tuple[tuple[str, int], ...] = ()
    notified_ms: int | None = None
    changed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification for one channel. ``id`` is unique. ``left_out`` counts alerts over the limit."""

    id: str
    channel: str
    group: GroupKey
    alerts: tuple[Alert, ...]
    at_ms: int
    left_out: int = 0
    test: bool = False

    @property
    def firing(self) -> bool:
        return any(each.firing for each in self.alerts)


Past = Mapping[tuple[str, int], Alert]


@dataclass(frozen=True, slots=True)
class AlertingState:
    """The complete alert state. ``left_out`` counts objects that break a rule but exceed the limit."""

    alerts: Mapping[str, Alert] = field(default_factory=dict)
    past: Past = field(default_factory=dict)
    groups: Mapping[GroupKey, NotificationGroup] = field(default_factory=dict)
    silences: Mapping[str, Silence] = field(default_factory=dict)
    left_out: int = 0

    def quiet(self, now_ms: int) -> dict[str, Silence]:
        """Return the active silence of each silenced alert, by the alert's key."""
        holding = [each for each in self.silences.values() if each.starts_ms <= now_ms < each.ends_ms]
        found = {}
        for key, alert in self.alerts.items() if holding else ():
            labels = dict(alert.labels)
            silence = next((each for each in holding if fits_in(each.matchers, labels)), None)
            if silence is not None:
                found[key] = silence
        return found

    @property
    def firing(self) -> list[Alert]:
        return [each for each in self.alerts.values() if each.firing]
