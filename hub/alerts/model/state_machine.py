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

Notifications are sent per group, see ``grouping.py``.

Limits: ``MOST_ALERTS`` at a time (the rest is counted), ``MOST_PAST`` past ones for ``PAST_MS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hub.alerts.model.alert_state import (
    FIRING,
    PAST,
    PENDING,
    Alert,
    AlertingState,
    Notification,
    NotificationRoute,
    Past,
)
from hub.alerts.model.grouping import notify
from hub.alerts.model.matching import Labels, labels_of
from hub.alerts.model.rules import GONE_MS, AlertRule, Observation, RuleObservations, Verdict, key_of

MOST_ALERTS = 10_000
MOST_PAST = 500
PAST_MS = 14 * 86_400_000


def step(
    state: AlertingState,
    observations: Sequence[RuleObservations],
    routes: Sequence[NotificationRoute],
    now_ms: int,
) -> tuple[AlertingState, tuple[Notification, ...]]:
    """Return the state after these observations, and the notifications to send. Depends on the arguments
    only.
    """
    alerts, past, left_out = _evaluate_all(state, observations, now_ms)
    silences = {id: each for id, each in state.silences.items() if each.ends_ms > now_ms - PAST_MS}
    evaluated = AlertingState(alerts, past, state.groups, silences, left_out)
    groups, notifications = notify(evaluated, routes, now_ms)
    notified = {once for group in groups.values() for once in group.notified}
    return replace(evaluated, groups=groups, past=_trimmed(past, notified, now_ms)), notifications


# ---- alerts


def _evaluate_all(
    state: AlertingState, observations: Sequence[RuleObservations], now_ms: int
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

    for each in observations:
        known = {alert.key: alert for alert in by_rule.pop(each.rule.name, ())}
        if not each.rule.on:
            for alert in known.values():
                keep(_end(alert, "the rule is off", now_ms))
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
            keep(evaluate(each.rule, key, observation, before, now_ms))
        for alert in known.values():
            keep(_evaluate_unobserved(each, alert, now_ms))
    for rest in by_rule.values():
        for alert in rest:
            keep(_end(alert, "the rule no longer exists", now_ms))
    return alerts, past, left_out


def evaluate(
    rule: AlertRule, key: str, observation: Observation, before: Alert | None, now_ms: int
) -> Alert | None:
    """Return the alert after one more observation, None if there is none. Phase "resolved" means that it
    ended.
    """
    labels = _labels(rule, observation)
    if before is None:
        return _first(rule, key, observation, labels, now_ms) if observation.verdict is Verdict.BAD else None
    goes_on = before.goes_on(now_ms)
    if goes_on and observation.verdict is Verdict.UNKNOWN:
        return replace(before, labels=labels, detail=observation.detail or before.detail)
    same = observation.verdict is before.last
    held_ms = before.held_ms if goes_on else before.held_ms + max(0, now_ms - before.last_ms) if same else 0
    after = replace(
        before, last=observation.verdict, last_ms=now_ms, labels=labels, runbook=rule.runbook, missing_ms=0
    )
    if observation.verdict is Verdict.UNKNOWN:
        # The gap has an unknown length: reset the held time, but keep a pending alert pending.
        return replace(after, held_ms=0, detail=observation.detail or before.detail)
    after = replace(after, held_ms=held_ms)
    if observation.verdict is Verdict.BAD:
        updated = replace(
            after, summary=observation.summary, detail=observation.detail, value=observation.value
        )
        if before.phase == PENDING and held_ms >= rule.for_ms:
            return replace(updated, phase=FIRING, fired_at_ms=now_ms)
        return updated
    if before.phase == PENDING:
        return None
    return _end(after, "well again", now_ms) if held_ms >= rule.keep_ms else after


def _labels(rule: AlertRule, observation: Observation) -> Labels:
    return labels_of(
        {
            "owner": rule.owner,
            **dict(observation.labels),
            **dict(observation.object),
            "alertname": rule.name,
            "severity": rule.severity,
        }
    )


def _first(rule: AlertRule, key: str, observation: Observation, labels: Labels, now_ms: int) -> Alert:
    """Return the alert that a first bad observation opens."""
    is_firing = rule.for_ms <= 0
    return Alert(
        key,
        rule.name,
        observation.object,
        labels,
        observation.summary,
        observation.detail,
        observation.value,
        phase=FIRING if is_firing else PENDING,
        since_ms=now_ms,
        last=Verdict.BAD,
        last_ms=now_ms,
        fired_at_ms=now_ms if is_firing else None,
        runbook=rule.runbook,
    )


def _evaluate_unobserved(evaluation: RuleObservations, alert: Alert, now_ms: int) -> Alert | None:
    """Update an alert whose object was not observed."""
    if evaluation.absent is Verdict.GOOD:
        nothing = Observation(alert.object, Verdict.GOOD, labels=alert.labels)
        return evaluate(evaluation.rule, alert.key, nothing, alert, now_ms)
    if alert.goes_on(now_ms):
        return alert  # a server that has just started has not checked everything yet
    missing_ms = alert.missing_ms + (max(0, now_ms - alert.last_ms) if evaluation.whole else 0)
    if missing_ms >= GONE_MS:
        return _end(alert, "it is not there any more", now_ms)
    return replace(alert, last=Verdict.UNKNOWN, last_ms=now_ms, held_ms=0, missing_ms=missing_ms)


def _end(alert: Alert, why: str, now_ms: int) -> Alert | None:
    if not alert.firing:
        return None
    return replace(alert, phase=PAST, ended_at_ms=now_ms, ended=why)


def _trimmed(past: Past, notified: set[tuple[str, int]], now_ms: int) -> dict[tuple[str, int], Alert]:
    """Keep the newest past alerts, and those whose end is not notified yet."""
    newest = sorted(past.values(), key=lambda each: -(each.ended_at_ms or 0))[:MOST_PAST]
    kept = {each.once for each in newest if (each.ended_at_ms or 0) > now_ms - PAST_MS} | (
        notified & past.keys()
    )
    return {once: each for once, each in past.items() if once in kept}
