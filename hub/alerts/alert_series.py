"""[core] Series of alerts for ``/metrics``: a few per rule and channel, and one per firing alert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hub.alerts.delivery.notification_queues import ChannelStatus
from hub.alerts.model.rules import RULES
from hub.alerts.snapshot import AlertSnapshot

# Limit of alerts with a series of their own.
MOST_SERIES = 200


def families(snapshot: AlertSnapshot, notifications: int = 0) -> Iterator[Metric]:
    """Yield all series. While nothing is evaluated, the series of alerts have no samples."""
    evaluated = GaugeMetricFamily(
        "hub_alerts_watched", "1 while this server evaluates alerts and sends notifications"
    )
    evaluated.add_metric([], 0.0 if snapshot.error else 1.0)
    yield evaluated
    wrong = GaugeMetricFamily("hub_alert_file_errors", "Errors in alerts.yaml and alerts/*.yaml")
    wrong.add_metric([], snapshot.file_errors)
    yield wrong
    yield from _of_rules(snapshot)
    yield _of_alerts(snapshot)
    yield from _of_channels(snapshot.channels)
    yield CounterMetricFamily("hub_alert_notifications", "Notifications that were made", value=notifications)


def _of_rules(snapshot: AlertSnapshot) -> tuple[Metric, Metric]:
    firing = GaugeMetricFamily(
        "hub_alerts_firing", "Alerts that fire, by rule and severity", labels=["alertname", "severity"]
    )
    objects = GaugeMetricFamily(
        "hub_alert_objects", "Objects that a rule watches, by observation", labels=["alertname", "state"]
    )
    for each in snapshot.rules if snapshot.error is None else ():
        if each.rule.kind == "slo" and each.rule.name not in RULES:
            continue
        firing.add_metric([each.rule.name, each.rule.severity], each.firing)
        for state, number in (("good", each.good), ("bad", each.bad), ("unknown", each.unknown)):
            if number is not None:
                objects.add_metric([each.rule.name, state], number)
    return firing, objects


def _of_alerts(snapshot: AlertSnapshot) -> Metric:
    """Return the series of the alerts that have fired for longest."""
    found = GaugeMetricFamily(
        "hub_alert_firing",
        "1 for a firing alert; the label silenced shows whether a silence suppresses its notifications",
        labels=["alertname", "severity", "owner", "object", "silenced"],
    )
    if snapshot.error is None:
        firing = [each for each in snapshot.listing.open if each.alert.firing]
        for each in sorted(firing, key=lambda each: each.alert.fired_at_ms or 0)[:MOST_SERIES]:
            alert, silenced = each.alert, str(each.silence is not None).lower()
            object = ",".join(f"{name}={value}" for name, value in alert.object)
            found.add_metric([alert.rule, each.severity, each.owner, object[:300], silenced], 1.0)
    return found


def _of_channels(channels: Sequence[ChannelStatus]) -> tuple[Metric, ...]:
    label = ["channel"]
    sent = CounterMetricFamily("hub_alert_sent", "Notifications that a channel took", labels=label)
    failed = CounterMetricFamily("hub_alert_failed", "Tries that a channel did not take", labels=label)
    given_up = CounterMetricFamily(
        "hub_alert_given_up", "Notifications that were given up after all tries", labels=label
    )
    waiting = GaugeMetricFamily("hub_alert_waiting", "Notifications that wait for a channel", labels=label)
    for channel in channels:
        sent.add_metric([channel.name], channel.sent)
        failed.add_metric([channel.name], channel.failed)
        given_up.add_metric([channel.name], channel.given_up)
        waiting.add_metric([channel.name], channel.waiting)
    return sent, failed, given_up, waiting
