"""[core] Events on charts: swaps and rollbacks of views, starts of processes, changes of
ownership, alerts that begin to fire.

Each is derived from state that has its own time, so it is the same mark however often it is seen, and is seen
after a restart too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from hub.alerts.model.alert_state import Alert
from hub.observability.series.catalog import HUB, SeriesKind, SeriesObject, reader_object
from hub.observability.series.sampling import Moment

LONGEST_TEXT = 200


class MarkKind(StrEnum):
    """Kind of a mark."""

    swap = "swap"
    rollback = "rollback"
    start = "start"
    failover = "failover"
    alert = "alert"


class Mark(NamedTuple):
    """An event of an object at a time (epoch ms)."""

    at_ms: int
    kind: str
    object: SeriesObject
    text: str


def marks_of(moment: Moment) -> Iterator[Mark]:
    """Yield the marks that follow from a moment, those of the past too. Records in another format are
    skipped.
    """
    for view, body in moment.versions.items():
        try:
            yield from _of_view(view, body)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    for process in moment.processes:
        yield Mark(process.started_at_ms, MarkKind.start, HUB, f"{process.process} started")
    for status in moment.mirrors:
        yield from _of_mirror(status)
    if moment.alerts is not None:
        state = moment.alerts.state
        for alert in (*state.alerts.values(), *state.past.values()):
            if alert.fired_at_ms is not None:
                # Texts of an alert may have values of rows: the mark names its rule alone.
                yield Mark(
                    alert.fired_at_ms, MarkKind.alert, object_of_alert(alert), f"alert {alert.rule} fires"
                )


def _of_view(view: str, body: Mapping[str, Any]) -> Iterator[Mark]:
    served = next(each for each in body["versions"] if each["state"] == "served")
    newer = any(each["state"] == "former" and each["number"] > served["number"] for each in body["versions"])
    about, number, at_ms = SeriesObject(SeriesKind.view, view), int(served["number"]), int(served["since_ms"])
    if newer:
        yield Mark(at_ms, MarkKind.rollback, about, f"{view} was rolled back to version {number}")
    elif served["why"] != "first":
        yield Mark(at_ms, MarkKind.swap, about, f"version {number} of {view} was swapped in")


def _of_mirror(status: Mapping[str, Any]) -> Iterator[Mark]:
    about = SeriesObject(SeriesKind.mirror, str(status["mirror"]))
    for row in status.get("ownership", ()):
        what = ", ".join(row["topics"]) or f"the topics of {row['home']}"
        text = f"{row['acting']} became the owner of {what}"[:LONGEST_TEXT]
        yield Mark(int(row["at_ms"]), MarkKind.failover, about, text)


def object_of_alert(alert: Alert) -> SeriesObject:
    """Return the object whose charts show an alert."""
    about = dict(alert.object)
    topic, view, consumer = about.get("topic"), about.get("view"), about.get("consumer")
    if about.get("mirror"):
        return SeriesObject(SeriesKind.mirror, about["mirror"])
    if about.get("kind") == "view" and consumer:
        return SeriesObject(SeriesKind.view, consumer)
    if consumer and topic:
        return reader_object(about.get("kind", "group"), consumer, topic)
    if view:
        return SeriesObject(SeriesKind.view, view)
    return SeriesObject(SeriesKind.topic, topic) if topic else HUB


def concerns(mark: Mark, shown: SeriesObject) -> bool:
    """Return whether the charts of ``shown`` have this mark: its own, the hub's, those of the readers of a
    topic; all of them on the charts of the hub and the cluster."""
    if shown.kind in (SeriesKind.hub, SeriesKind.cluster, SeriesKind.process):
        return True
    if mark.object in (HUB, shown):
        return True
    if mark.object.kind == SeriesKind.reader and shown.kind == SeriesKind.topic:
        return mark.object.reader[2] == shown.name
    if shown.kind != SeriesKind.reader:
        return False
    kind, name, topic = shown.reader
    own = SeriesObject(SeriesKind.view if kind == "applier" else kind, name)
    return mark.object in (own, SeriesObject(SeriesKind.topic, topic))
