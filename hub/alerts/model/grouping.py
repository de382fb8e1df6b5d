"""[core] Group alerts by route and labels, and decide which groups are notified now.

A group that changed waits ``wait_ms`` for more changes, then notifies all its firing alerts and those that
ended since. While an alert fires, the notification is repeated after ``repeat_ms``. ``notified`` holds the
alerts that were notified: an alert is notified once until it ends, and its end only if the alert was
notified. A silenced alert is not notified; if it still fires when the silence ends, it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hub.alerts.model.alert_state import (
    Alert,
    AlertingState,
    GroupKey,
    Notification,
    NotificationGroup,
    NotificationRoute,
    Past,
)
from hub.alerts.model.matching import Labels, fits, labels_of

# Limit of alerts in one notification; the rest is counted in it.
MOST_NOTIFIED = 100


def route_of(routes: Iterable[NotificationRoute], labels: Labels) -> list[NotificationRoute]:
    """Return the routes for alerts with these labels."""
    found = []
    for route in routes:
        if fits(route.matchers, labels):
            found.append(route)
            if not route.goes_on:
                break
    return found


def notify(
    state: AlertingState, routes: Sequence[NotificationRoute], now_ms: int
) -> tuple[dict[GroupKey, NotificationGroup], tuple[Notification, ...]]:
    """Return the groups after this round, and the notifications to send."""
    members: dict[GroupKey, list[Alert]] = {}
    silenced: set[tuple[str, int]] = set()
    holding = [each for each in state.silences.values() if each.starts_ms <= now_ms < each.ends_ms]
    for alert in state.firing:
        if any(fits(each.matchers, alert.labels) for each in holding):
            silenced.add(alert.once)
            continue
        labels = dict(alert.labels)
        for route in route_of(routes, alert.labels):
            of = labels_of({name: labels.get(name, "") for name in route.by})
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
                notified, id = tuple(alerts[:MOST_NOTIFIED]), _id(key, channel, now_ms)
                notifications.append(
                    Notification(id, channel, key, notified, now_ms, len(alerts) - len(notified))
                )
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
    notified = set(group.notified)
    firing = {alert.once for alert in members}
    ended = [past[once] for once in group.notified if once in past]
    quiet = notified & silenced
    if ended or firing - notified:
        changed_ms = now_ms if group.changed_ms is None else group.changed_ms
        if now_ms - changed_ms < route.wait_ms:
            return replace(group, changed_ms=changed_ms), []
    elif not (firing and group.notified_ms is not None and now_ms - group.notified_ms >= route.repeat_ms):
        left = tuple(sorted(notified & (firing | quiet)))
        return (replace(group, notified=left, changed_ms=None) if left else None), []
    after = tuple(sorted(firing | quiet))
    alerts = sorted(members, key=lambda each: (each.fired_at_ms or 0, each.key)) + ended
    return (NotificationGroup(group.key, after, now_ms) if after else None), alerts


def _id(key: GroupKey, channel: str, now_ms: int) -> str:
    text = repr((key, channel, now_ms))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
