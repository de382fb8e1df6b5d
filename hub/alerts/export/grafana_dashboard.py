"""[core] A Grafana dashboard over the series of ``GET /metrics``.
Format: Grafana's dashboard JSON, schema 39."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hub.alerts.export.prometheus_rules import READABLE

Panel = tuple[str, str, str, str, Sequence[tuple[str, str]]]
# (kind, title, description, unit, (expression, legend)…)
PANELS: Sequence[Panel] = (
    ("stat", "Alerts firing", "By rule.", "short", (("sum(hub_alerts_firing)", "firing"),)),
    ("stat", "Kafka answers", "1 while it does.", "short", (("hub_kafka_up", "up"),)),
    (
        "stat",
        "Alerts are evaluated",
        "0: no server watches.",
        "short",
        (("max(hub_alerts_watched)", "watched"),),
    ),
    (
        "stat",
        "Events per second",
        "Of all topics together.",
        "short",
        (("sum(deriv(hub_topic_end_offset[1m]))", "events"),),
    ),
    (
        "timeseries",
        "Partitions in trouble",
        "Without a leader, and with too few replicas in sync.",
        "short",
        (
            ("max(hub_kafka_offline_partitions)", "offline"),
            ("max(hub_kafka_under_replicated_partitions)", "under-replicated"),
        ),
    ),
    (
        "timeseries",
        "Processes without an answer of Kafka",
        "Time since Kafka last answered a process of the hub; 0 while it does.",
        "s",
        (("max by (process) (hub_kafka_cut_off_seconds)", "{{process}}"),),
    ),
    (
        "timeseries",
        "Disks of brokers",
        "The share that is free.",
        "percentunit",
        (
            (
                "hub_kafka_log_dir_usable_bytes / hub_kafka_log_dir_total_bytes",
                "{{broker}} {{folder}}",
            ),
        ),
    ),
    (
        "timeseries",
        "Lag, the worst readers",
        "Age of the oldest record that a reader has not read.",
        "s",
        (("topk(10, hub_consumer_lag_seconds)", "{{consumer}} on {{topic}}"),),
    ),
    (
        "timeseries",
        "Readers by state",
        "All readers, each topic of each once.",
        "short",
        (('sum by (state) (hub_consumers{state!="OK"})', "{{state}}"),),
    ),
    (
        "timeseries",
        "Freshness of views",
        "Age of the oldest event that a view does not show.",
        "s",
        (("hub_view_freshness_seconds", "{{view}}"),),
    ),
    (
        "timeseries",
        "Views that are proved",
        "Views in stores, by whether they are what their changelogs say.",
        "short",
        (("sum by (state) (hub_view_state_proofs)", "{{state}}"),),
    ),
    (
        "timeseries",
        "From event to view, p99",
        "Of events of the last five minutes.",
        "s",
        (
            (
                "histogram_quantile(0.99, sum by (view, le) (rate(hub_view_latency_seconds_bucket{"
                + READABLE
                + "}[5m])))",
                "{{view}}",
            ),
            ("hub_view_latency_objective_seconds", "{{view}} promised"),
        ),
    ),
    (
        "timeseries",
        "Missing records",
        "Of topics that are audited, by tier.",
        "short",
        (("sum by (topic, tier) (hub_completeness_missing) > 0", "{{topic}} {{tier}}"),),
    ),
    (
        "timeseries",
        "Canaries, p99",
        "From sending one to reading it, by way; only of those that came.",
        "s",
        (
            (
                "histogram_quantile(0.99, sum by (way, le) (rate(hub_canary_seconds_bucket[5m])))",
                "{{way}}",
            ),
        ),
    ),
    (
        "timeseries",
        "Canaries that did not come",
        "By way. One that comes after all is lost no more.",
        "short",
        (("hub_canary_lost", "{{way}}"),),
    ),
    (
        "timeseries",
        "Events that no view could take",
        "In dead-letter topics.",
        "short",
        (("hub_topic_undecodable_events > 0", "{{topic}}"),),
    ),
    (
        "timeseries",
        "Events per second by topic",
        "The ten busiest.",
        "short",
        (("topk(10, deriv(hub_topic_end_offset[1m]))", "{{topic}}"),),
    ),
    (
        "timeseries",
        "Tasks of Kafka Connect",
        "By state; UNKNOWN: their workers do not answer.",
        "short",
        (
            ('hub_connect_tasks{state!="RUNNING"}', "{{state}}"),
            ("hub_connect_up == 0", "{{worker}} is unreachable"),
        ),
    ),
    (
        "timeseries",
        "Mirrors, how late",
        "How long ago the source reached the offset of the latest partition.",
        "s",
        (("hub_mirror_lag_seconds_max", "{{mirror}}"), ("hub_mirror_standing == 1", "{{mirror}} stands")),
    ),
    (
        "timeseries",
        "Notifications",
        "Taken by a channel, and tries that were not.",
        "short",
        (
            ("increase(hub_alert_sent_total[5m])", "{{channel}} sent"),
            ("increase(hub_alert_failed_total[5m])", "{{channel}} failed"),
        ),
    ),
    (
        "table",
        "What fires",
        "An alert a line.",
        "short",
        (("hub_alert_firing == 1", ""),),
    ),
)
_WIDTH = {"stat": 6, "timeseries": 12, "table": 24}
_HEIGHT = {"stat": 4, "timeseries": 8, "table": 8}


def grafana_dashboard() -> dict[str, Any]:
    """Build the dashboard as a value for JSON. Grafana asks for its data source on import."""
    panels = []
    x = y = height = 0
    for number, panel in enumerate(PANELS, 1):
        kind = panel[0]
        if x + _WIDTH[kind] > 24:
            x, y = 0, y + height
        height = _HEIGHT[kind]
        panels.append(_panel(number, panel, {"h": height, "w": _WIDTH[kind], "x": x, "y": y}))
        x += _WIDTH[kind]
    return {
        "title": "Event hub",
        "uid": "event-hub",
        "tags": ["kafka", "event-hub"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
            ]
        },
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    kind, title, about, unit, targets = panel
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": about,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {},
        "targets": [
            {
                "datasource": source,
                "expr": expr,
                "legendFormat": legend,
                "refId": chr(ord("A") + at),
                **({"format": "table", "instant": True} if kind == "table" else {}),
            }
            for at, (expr, legend) in enumerate(targets)
        ],
    }
