"""[core] Pure alert state machine: (state, observations, routes, time) → (state, notifications).

::

             BAD              BAD, held for_ms              GOOD, held keep_ms
    (none) ────────▶ pending ─────────────────▶ firing ─────────────────────▶ past
                        │ GOOD                     ▲ │
                        ▼                          └─┘ UNKNOWN: nothing changes, and no time is counted
                      (none)

Held time counts only between two observations of the same kind, so a gap, including a restart, neither fires
nor ends anything. The held time of a pending alert continues after a short gap when the server restarts:
``for_ms`` does not start again.

Notifications are sent per group: alerts of a route with the same values of the labels ``by``. A group that
changed waits ``wait_ms`` for more changes, then notifies all its firing alerts and those that ended since.
While an alert fires, the notification is repeated after ``repeat_ms``. ``told`` records what was notified: an
alert is notified once until it ends, and its end only if the alert was notified. A silenced alert is not
notified; if it still fires when the silence ends, it is.

Limits: ``MOST_ALERTS`` at a time (the rest is counted), ``MOST_PAST`` past ones for ``PAST_MS``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hub.alerts.model.matching import Labels, Matchers, fits, fits_in, labels_of
from hub.alerts.model.rules import GONE_MS, AlertRule, Observation, RuleObservations, Verdict, key_of

MOST_ALERTS = 10_000
MOST_PAST = 500
PAST_MS = 14 * 86_400_000
# Interval at which held time is stored; longest gap after which it continues.
KEPT_EVERY_MS = 15_000
LONGEST_GAP_MS = GONE_MS
# Limit of alerts in one notification; the rest is counted in it.
MOST_TOLD = 100
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

    ``told`` holds the notified firing alerts with their firing times. ``changed_ms`` is when the first change
    that is not notified yet was seen.
    """

    key: GroupKey
    told: tuple[tuple[str, int], ...] = ()
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

    def silenced(self, alert: Alert, now_ms: int) -> Silence | None:
        """Return the active silence of an alert, if any."""
        return next((each for each in self.silences.values() if each.holds(alert.labels, now_ms)), None)

    def quiet(self, now_ms: int) -> dict[str, Silence]:
        """Return the active silence of each silenced alert, by the alert's key."""
        holding = [each for each in self.silences.values() if each.starts_ms <= now_ms < each.ends_ms]
        found = {}
        for key, alert in self.alerts.items() if holding else ():
            said = dict(alert.labels)
            silence = next((each for each in holding if fits_in(each.matchers, said)), None)
            if silence is not None:
                found[key] = silence
        return found

    @property
    def firing(self) -> list[Alert]:
        return [each for each in self.alerts.values() if each.firing]


def step(
    state: AlertingState, seen: Sequence[RuleObservations], routes: Sequence[NotificationRoute], now_ms: int
) -> tuple[AlertingState, tuple[Notification, ...]]:
    """Return the state after these observations, and the notifications to send. Depends on the arguments
    only.
    """
    alerts, past, left_out = _judged(state, seen, now_ms)
    kept = {id: each for id, each in state.silences.items() if each.ends_ms > now_ms - PAST_MS}
    judged = AlertingState(alerts, past, state.groups, kept, left_out)
    groups, notifications = _notify(judged, routes, now_ms)
    heard = {once for group in groups.values() for once in group.told}
    return replace(judged, groups=groups, past=_trimmed(past, heard, now_ms)), notifications


# ---- alerts


def _judged(
    state: AlertingState, seen: Sequence[RuleObservations], now_ms: int
) -> tuple[dict[str, Alert], dict[tuple[str, int], Alert], int]:
    alerts: dict[str, Alert] = {}
    past = dict(state.past)
    left_out = 0
    by_rule: dict[str, list[Alert]] = {}
    for alert in state.alerts.values():
        by_rule.setdefault(alert.rule, []).append(alert)

    def keep(alert: Alert | None) -> None:
        if alert is None:
            return
        if alert.phase == PAST:
            past[alert.once] = alert
        else:
            alerts[alert.key] = alert

    for each in seen:
        known = {alert.key: alert for alert in by_rule.pop(each.rule.name, ())}
        if not each.rule.on:
            for alert in known.values():
                keep(_over(alert, "the rule is off", now_ms))
            continue
        for observation in each.observations:
            key = key_of(each.rule.name, observation.object)
            before = known.pop(key, None)
            if key in alerts:
                continue  # duplicate observation
            if before is None:
                if observation.verdict is not Verdict.BAD:
                    continue
                if len(alerts) >= MOST_ALERTS:
                    left_out += 1
                    continue
            keep(judged(each.rule, key, observation, before, now_ms))
        for alert in known.values():
            keep(_absent(each, alert, now_ms))
    for rest in by_rule.values():
        for alert in rest:
            keep(_over(alert, "there is no such rule any more", now_ms))
    return alerts, past, left_out


def judged(rule: AlertRule, key: str, seen: Observation, before: Alert | None, now_ms: int) -> Alert | None:
    """Return the alert after one more observation, None if there is none. Phase "resolved" means that it
    ended.
    """
    labels = labels_of(
        {
            "owner": rule.owner,
            **dict(seen.labels),
            **dict(seen.object),
            "alertname": rule.name,
            "severity": rule.severity,
        }
    )
    if before is None:
        if seen.verdict is not Verdict.BAD:
            return None
        phase, fired = (FIRING, now_ms) if rule.for_ms <= 0 else (PENDING, None)
        return Alert(
            *(key, rule.name, seen.object, labels, seen.summary, seen.detail, seen.value, phase, now_ms),
            last=Verdict.BAD,
            last_ms=now_ms,
            fired_at_ms=fired,
            runbook=rule.runbook,
        )
    goes_on = before.goes_on(now_ms)
    if goes_on and seen.verdict is Verdict.UNKNOWN:
        return replace(before, labels=labels, detail=seen.detail or before.detail)
    same = seen.verdict is before.last
    held_ms = before.held_ms if goes_on else before.held_ms + max(0, now_ms - before.last_ms) if same else 0
    after = replace(
        before, last=seen.verdict, last_ms=now_ms, labels=labels, runbook=rule.runbook, missing_ms=0
    )
    if seen.verdict is Verdict.UNKNOWN:
        # The gap has an unknown length: reset the held time, but keep a pending alert pending.
        return replace(after, held_ms=0, detail=seen.detail or before.detail)
    after = replace(after, held_ms=held_ms)
    if seen.verdict is Verdict.BAD:
        told = replace(after, summary=seen.summary, detail=seen.detail, value=seen.value)
        if before.phase == PENDING and held_ms >= rule.for_ms:
            return replace(told, phase=FIRING, fired_at_ms=now_ms)
        return told
    if before.phase == PENDING:
        return None
    return _over(after, "well again", now_ms) if held_ms >= rule.keep_ms else after


def _absent(seen: RuleObservations, alert: Alert, now_ms: int) -> Alert | None:
    """Update an alert whose object was not observed."""
    if seen.absent is Verdict.GOOD:
        nothing = Observation(alert.object, Verdict.GOOD, labels=alert.labels)
        return judged(seen.rule, alert.key, nothing, alert, now_ms)
    if alert.goes_on(now_ms):
        return alert  # a server that has just started has not checked everything yet
    missing_ms = alert.missing_ms + (max(0, now_ms - alert.last_ms) if seen.whole else 0)
    if missing_ms >= GONE_MS:
        return _over(alert, "it is not there any more", now_ms)
    return replace(alert, last=Verdict.UNKNOWN, last_ms=now_ms, held_ms=0, missing_ms=missing_ms)


def _over(alert: Alert, why: str, now_ms: int) -> Alert | None:
    if not alert.firing:
        return None
    return replace(alert, phase=PAST, ended_at_ms=now_ms, ended=why)


def _trimmed(past: Past, heard: set[tuple[str, int]], now_ms: int) -> dict[tuple[str, int], Alert]:
    """Keep the newest past alerts, and those whose end is not notified yet."""
    newest = sorted(past.values(), key=lambda each: -(each.ended_at_ms or 0))[:MOST_PAST]
    kept = {each.once for each in newest if (each.ended_at_ms or 0) > now_ms - PAST_MS} | (
        heard & past.keys()
    )
    return {once: each for once, each in past.items() if once in kept}


# ---- groups


def route_of(routes: Iterable[NotificationRoute], labels: Labels) -> list[NotificationRoute]:
    """Return the routes for alerts with these labels."""
    found = []
    for route in routes:
        if fits(route.matchers, labels):
            found.append(route)
            if not route.goes_on:
                break
    return found


def _notify(
    state: AlertingState, routes: Sequence[NotificationRoute], now_ms: int
) -> tuple[dict[GroupKey, NotificationGroup], tuple[Notification, ...]]:
    members: dict[GroupKey, list[Alert]] = {}
    silenced: set[tuple[str, int]] = set()
    holding = [each for each in state.silences.values() if each.starts_ms <= now_ms < each.ends_ms]
    for alert in state.firing:
        if any(fits(each.matchers, alert.labels) for each in holding):
            silenced.add(alert.once)
            continue
        said = dict(alert.labels)
        for route in route_of(routes, alert.labels):
            of = labels_of({name: said.get(name, "") for name in route.by})
            members.setdefault(GroupKey(route.id, of), []).append(alert)
    by_id = {route.id: route for route in routes}
    groups: dict[GroupKey, NotificationGroup] = {}
    notifications: list[Notification] = []
    for key in sorted(state.groups.keys() | members.keys()):
        its = by_id.get(key.route)
        if its is None:
            continue  # the route was removed: another route, if any, notifies its alerts again
        before = state.groups.get(key, NotificationGroup(key))
        group, alerts = _group(before, its, members.get(key, []), silenced, state.past, now_ms)
        if alerts:
            for channel in its.channels:
                told, id = tuple(alerts[:MOST_TOLD]), _id(key, channel, now_ms)
                notifications.append(Notification(id, channel, key, told, now_ms, len(alerts) - len(told)))
        if group is not None:
            groups[key] = group
    return groups, tuple(notifications)


def _group(
    group: NotificationGroup,
    route: NotificationRoute,
    members: Sequence[Alert],
    silenced: set[tuple[str, int]],
    past: Past,
    now_ms: int,
) -> tuple[NotificationGroup | None, list[Alert]]:
    """Return the new group (None if it is empty) and the alerts to notify."""
    if max(group.changed_ms or 0, group.notified_ms or 0) > now_ms:  # the system clock was set back
        changed_ms, notified_ms = (
            None if at_ms is None else min(at_ms, now_ms) for at_ms in (group.changed_ms, group.notified_ms)
        )
        group = replace(group, changed_ms=changed_ms, notified_ms=notified_ms)
    told = set(group.told)
    firing = {alert.once for alert in members}
    ended = [past[once] for once in group.told if once in past]
    quiet = told & silenced
    if ended or firing - told:
        changed_ms = now_ms if group.changed_ms is None else group.changed_ms
        if now_ms - changed_ms < route.wait_ms:
            return replace(group, changed_ms=changed_ms), []
    elif not (firing and group.notified_ms is not None and now_ms - group.notified_ms >= route.repeat_ms):
        left = tuple(sorted(told & (firing | quiet)))
        return (replace(group, told=left, changed_ms=None) if left else None), []
    after = tuple(sorted(firing | quiet))
    alerts = sorted(members, key=lambda each: (each.fired_at_ms or 0, each.key)) + ended
    return (NotificationGroup(group.key, after, now_ms) if after else None), alerts


def _id(key: GroupKey, channel: str, now_ms: int) -> str:
    text = repr((key, channel, now_ms))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
