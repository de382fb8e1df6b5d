"""[core] Alert state as records of the compacted topic ``_hub.alerts``, and their fold.

::

    firing|KEY               a firing alert; a tombstone when it ends
    pending|KEY              a pending alert with its held time; a tombstone when it fires or is dropped
    past|KEY|FIRED_AT        an ended alert
    group|ROUTE|LABELS       the alerts that its channels were notified of, and when
    silence|ID               author, matchers, reason and end of a silence
    send|ID                  a notification to send; a tombstone when it was sent or given up
    watch|                   the active server, written again every minute

A pending alert is written when it begins, every 15 s while it holds, and when the server stops. Records of
newer versions are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from hub.alerts.model.alert_state import (
    KEPT_EVERY_MS,
    PENDING,
    Alert,
    AlertingState,
    GroupKey,
    Notification,
    NotificationGroup,
    Silence,
)
from hub.alerts.model.matching import Labels, Matchers
from hub.alerts.model.rules import Verdict
from hub.errors import HubFault
from hub.record import NewRecord, Record

ALERTS_TOPIC = "_hub.alerts"
ALERTS_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # The topic is read completely at every start, so compaction must keep it short.
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a server to be the active one."""

    by: str
    at_ms: int


@dataclass
class StoredAlerts:
    """Fold of the topic. ``unsent`` holds notifications that are still to be sent, in order."""

    alerts: dict[str, Alert] = field(default_factory=dict)
    pending: dict[str, Alert] = field(default_factory=dict)
    past: dict[tuple[str, int], Alert] = field(default_factory=dict)
    groups: dict[GroupKey, NotificationGroup] = field(default_factory=dict)
    silences: dict[str, Silence] = field(default_factory=dict)
    unsent: dict[str, Notification] = field(default_factory=dict)
    claim: Claim | None = None

    @property
    def state(self) -> AlertingState:
        return AlertingState(
            {**self.pending, **self.alerts}, dict(self.past), dict(self.groups), dict(self.silences)
        )

    def apply(self, record: Record) -> None:
        """Apply a record. Raises HubFault (HUB-5701) for an invalid one."""
        kind, _, rest = (record.key or b"").decode("utf-8", "replace").partition("|")
        try:
            body = None if record.value is None else orjson.loads(record.value)
            match kind:
                case "firing":
                    _put(self.alerts, rest, None if body is None else _alert(body))
                case "pending":
                    _put(self.pending, rest, None if body is None else _alert(body))
                case "past":
                    key, _, fired = rest.partition("|")
                    _put(self.past, (key, int(fired)), None if body is None else _alert(body))
                case "group":
                    route, _, labels = rest.partition("|")
                    group = GroupKey(route, _labels(orjson.loads(labels)))
                    _put(self.groups, group, None if body is None else _group(group, body))
                case "silence":
                    _put(self.silences, rest, None if body is None else _silence(rest, body))
                case "send":
                    _put(self.unsent, rest, None if body is None else _notification(rest, body))
                case "watch":
                    self.claim = None if body is None else Claim(body["by"], body["at_ms"])
                case _:
                    pass
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise HubFault(
                f"{record.topic}, partition {record.partition}, offset {record.offset}: not what "
                f"alerts write ({error!r})",
                hint=f"another program writes to {ALERTS_TOPIC}; delete the topic to start again, which "
                "also deletes all silences",
                code="HUB-5701",
            ) from None


def records_of(before: AlertingState, after: AlertingState) -> list[NewRecord]:
    """Return the records that turn the stored state ``before`` into ``after``."""
    records: list[NewRecord] = []
    old = {key: each for key, each in before.alerts.items() if each.firing}
    new = {key: each for key, each in after.alerts.items() if each.firing}
    for key, alert in new.items():
        known = old.get(key)
        if known is None or (known.once, known.labels) != (alert.once, alert.labels):
            records.append(_record(f"firing|{key}", _alert_body(alert)))
    records += [_record(f"firing|{key}", None) for key in old.keys() - new.keys()]
    records += _pending_records(before, after)
    for once, alert in after.past.items():
        if once not in before.past:
            records.append(_record(_past_key(once), _alert_body(alert)))
    records += [_record(_past_key(once), None) for once in before.past.keys() - after.past.keys()]
    for place, group in after.groups.items():
        known_group = before.groups.get(place)
        current = (group.notified, group.notified_ms)
        stored = ((), None) if known_group is None else (known_group.notified, known_group.notified_ms)
        if current != stored:
            body = {"told": [list(each) for each in group.notified], "notified_ms": group.notified_ms}
            records.append(_record(_group_key(place), body))
    gone = (place for place in before.groups.keys() - after.groups.keys() if before.groups[place].notified)
    records += [_record(_group_key(place), None) for place in gone]
    for id, silence in after.silences.items():
        if before.silences.get(id) != silence:
            records.append(silence_record(silence))
    records += [_record(f"silence|{id}", None) for id in before.silences.keys() - after.silences.keys()]
    return records


def _pending_records(before: AlertingState, after: AlertingState) -> Iterator[NewRecord]:
    old = {key: each for key, each in before.alerts.items() if each.phase == PENDING}
    new = {key: each for key, each in after.alerts.items() if each.phase == PENDING}
    for key, alert in new.items():
        known = old.get(key)
        if (
            known is None
            or alert.held_ms // KEPT_EVERY_MS > known.held_ms // KEPT_EVERY_MS
            or alert.held_ms < known.held_ms
            or alert.labels != known.labels
        ):
            yield pending_record(alert)
    for key in old.keys() - new.keys():
        yield _record(f"pending|{key}", None)


def pending_record(alert: Alert) -> NewRecord:
    """Serialize a pending alert with its held time and the time of the last observation; its current verdict
    is UNKNOWN.
    """
    return _record(f"pending|{alert.key}", {**_alert_body(alert), "held_ms": alert.held_ms})


def silence_record(silence: Silence) -> NewRecord:
    body = asdict(silence)
    del body["id"]
    return _record(f"silence|{silence.id}", body)


def send_record(notification: Notification) -> NewRecord:
    """Serialize a notification that is to be sent."""
    body = {
        "channel": notification.channel,
        "route": notification.group.route,
        "labels": notification.group.labels,
        "alerts": [_alert_body(each) for each in notification.alerts],
        "at_ms": notification.at_ms,
        "left_out": notification.left_out,
    }
    return _record(f"send|{notification.id}", body)


def sent_record(id: str) -> NewRecord:
    """Build the tombstone of a notification that was sent or given up."""
    return _record(f"send|{id}", None)


def claim_record(claim: Claim) -> NewRecord:
    return _record("watch|", asdict(claim))


def _record(key: str, body: Mapping[str, Any] | None) -> NewRecord:
    return NewRecord(ALERTS_TOPIC, key.encode(), None if body is None else orjson.dumps(body))


def _past_key(once: tuple[str, int]) -> str:
    return f"past|{once[0]}|{once[1]}"


def _group_key(key: GroupKey) -> str:
    return f"group|{key.route}|{orjson.dumps(key.labels).decode()}"


def _put(known: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _alert_body(alert: Alert) -> dict[str, Any]:
    return asdict(replace(alert, last=Verdict.UNKNOWN, held_ms=0, missing_ms=0))


def _labels(pairs: Iterable[Iterable[str]]) -> Labels:
    return tuple((str(name), str(value)) for name, value in pairs)


def _alert(body: Mapping[str, Any]) -> Alert:
    known = {name: body[name] for name in Alert.__slots__ if name in body}
    known |= {
        "object": _labels(body["object"]),
        "labels": _labels(body["labels"]),
        "last": Verdict(body["last"]),
    }
    return Alert(**known)


def _group(key: GroupKey, body: Mapping[str, Any]) -> NotificationGroup:
    return NotificationGroup(
        key, tuple((str(one), int(fired)) for one, fired in body["told"]), body["notified_ms"]
    )


def _silence(id: str, body: Mapping[str, Any]) -> Silence:
    matchers: Matchers = tuple((str(name), tuple(map(str, values))) for name, values in body["matchers"])
    return Silence(id, matchers, body["reason"], body["by"], int(body["starts_ms"]), int(body["ends_ms"]))


def _notification(id: str, body: Mapping[str, Any]) -> Notification:
    group = GroupKey(str(body["route"]), _labels(body["labels"]))
    alerts = tuple(_alert(each) for each in body["alerts"])
    return Notification(id, str(body["channel"]), group, alerts, int(body["at_ms"]), int(body["left_out"]))
