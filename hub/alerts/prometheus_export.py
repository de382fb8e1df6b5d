"""[core] The alert rules for Prometheus, and a Grafana dashboard, over the series of ``GET /metrics``.

For users who have an Alertmanager, or who want to know when the hub itself is down: two more rules fire if no
server evaluates alerts, and if a channel fails. Topics with the same objective, owner and node share one
rule, so a tree of thousands needs few. Formats:
https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/, Grafana's dashboard JSON (schema
39).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hub.alerts.delivery.payloads import runbook_path
from hub.alerts.model.rules import FEW_FREE, FILE_RULE, AlertRule, Promise, RuleChanges, Severity
from hub.kafka.contact.watchdog import CUT_OFF_S
from hub.topics.tree.tree import TopicSpec

# Rules that only an external system can evaluate. Each has a page in docs/runbooks, too.
OUTSIDE: Mapping[str, AlertRule] = {
    rule.name: rule
    for rule in (
        AlertRule(
            "not-watched",
            "outside",
            "No server of the hub judges alerts.",
            Severity.page,
            120_000,
            runbook="not-watched",
        ),
        AlertRule(
            "channel-dead",
            "outside",
            "A channel did not take a notification after all tries.",
            Severity.warning,
            0,
            runbook="channel-dead",
        ),
    )
}
_WINDOW_S = 300
_READABLE = 'stage="readable",store="serving",origin="live"'

Who = tuple[str, str]
Grouped = dict[tuple[Any, Who], list[str]]


def prometheus_rules(
    topics: Iterable[TopicSpec],
    promises: Iterable[Promise],
    queries: Iterable[AlertRule],
    changes: RuleChanges,
    link: str = "",
    cut_off_s: float = CUT_OFF_S,
) -> dict[str, Any]:
    """Build a rule file as a value for YAML. ``cut_off_s`` is the time without an answer after which a client
    is cut off.
    """
    topics, promises = list(topics), list(promises)
    rules = [
        *_lag(topics, changes, link),
        *_freshness(topics, changes, link),
        *_completeness(topics, changes, link),
        *_views(promises, changes, link),
        *_verification_rules(changes, link),
        *_cluster(changes, link),
        # If Kafka does not answer the server either, that is kafka-away.
        _rule(
            changes.rule("kafka-cut-off"),
            f"max by (instance, process) (hub_kafka_cut_off_seconds) >= {cut_off_s:g} and on (instance) hub_kafka_up == 1",
            "Kafka has not answered {{ $labels.process }} for {{ $value | humanizeDuration }}",
            ("", ""),
            link,
        ),
        *_canaries(changes, link),
        *_connect(changes, link),
        *_mirrors(topics, changes, link),
        _rule(
            changes.rule(FILE_RULE),
            "max by (job) (hub_alert_file_errors) > 0",
            "alerts.yaml or a file in alerts/ has an error: a part of it does not hold",
            ("", ""),
            link,
        ),
        *(
            _rule(
                each,
                f'hub_alerts_firing{{alertname="{each.name}"}} > 0',
                each.doc,
                (each.owner, ""),
                link,
                now=True,
            )
            for each in queries
        ),
        # A cluster is one job: one of its servers is active, and the others export 0.
        _rule(
            OUTSIDE["not-watched"],
            "absent(hub_alerts_watched) or max by (job) (hub_alerts_watched) == 0",
            "No server of the hub judges alerts: what is broken is told to nobody.",
            ("", ""),
            link,
        ),
        _rule(
            OUTSIDE["channel-dead"],
            "increase(hub_alert_given_up_total[10m]) > 0",
            "Channel {{ $labels.channel }} did not take a notification.",
            ("", ""),
            link,
        ),
    ]
    return {"groups": [{"name": "hub", "rules": rules}]}


def _lag(topics: Sequence[TopicSpec], changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    for (lag_ms, who), names in _by(topics, lambda spec: spec.slo.lag_ms, "slo.lag").items():
        those = _one_of("topic", names)
        yield _rule(
            changes.rule("lag"),
            f"hub_consumer_lag_seconds{{{those}}} > {lag_ms / 1000:g}",
            "{{ $labels.kind }} {{ $labels.consumer }} is {{ $value | humanizeDuration }} behind on {{ $labels.topic }}; "
            f"promised are {lag_ms / 1000:g} s",
            who,
            link,
            f"{lag_ms / 1000:g}s",
        )
        yield _rule(
            changes.rule("loss"),
            f'hub_consumer_state{{state=~"LOST|AT_RISK",{those}}} == 1',
            "{{ $labels.kind }} {{ $labels.consumer }} loses records of {{ $labels.topic }}: {{ $labels.state }}",
            who,
            link,
            f"{lag_ms / 1000:g}s",
        )


def _freshness(topics: Sequence[TopicSpec], changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    for (ms, who), names in _by(topics, lambda spec: spec.slo.freshness_ms, "slo.freshness").items():
        seconds = max(1, round(ms / 1000))
        ends = f"hub_topic_end_offset{{{_one_of('topic', names)}}}"
        # A single sample has no changes: a server that started less than this time ago cannot know.
        yield _rule(
            changes.rule("topic-freshness"),
            f"changes({ends}[{seconds}s]) == 0 and {ends} offset {seconds}s and on (instance) hub_kafka_up == 1",
            f"{{{{ $labels.topic }}}} had no event for {seconds} s",
            who,
            link,
            f"{seconds}s",
        )


def _completeness(topics: Sequence[TopicSpec], changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    for (share, who), names in _by(topics, lambda spec: spec.slo.completeness, "slo.completeness").items():
        those = _one_of("topic", names)
        missing = f"sum by (topic, tier) (hub_completeness_missing{{{those}}})"
        records = f"sum by (topic) (hub_completeness_records{{{those}}})"
        expr = (
            f"{missing} > 0"
            if share >= 1
            else f"{missing} / on (topic) group_left () {records} > {round(1 - share, 8):g}"
        )
        yield _rule(
            changes.rule("completeness"),
            expr,
            "{{ $labels.topic }}: records are missing at the {{ $labels.tier }}",
            who,
            link,
            f"{share * 100:g}%",
        )


def _views(promises: Sequence[Promise], changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    fast: Grouped = {}
    fresh: Grouped = {}
    for each in promises:
        who = (each.owner, each.node)
        if each.latency_ms is not None:
            fast.setdefault(((each.latency_ms, each.latency_share), who), []).append(each.view)
        if each.freshness_ms is not None:
            fresh.setdefault((each.freshness_ms, who), []).append(each.view)
    for ((ms, share), who), names in sorted(fast.items()):
        those = f"{_READABLE},{_one_of('view', names)}"
        met = f'sum by (view) (increase(hub_view_latency_seconds_bucket{{{those},le="{ms / 1000}"}}[{_WINDOW_S}s]))'
        every = f"sum by (view) (increase(hub_view_latency_seconds_count{{{those}}}[{_WINDOW_S}s]))"
        yield _rule(
            changes.rule("latency"),
            f"{met} / {every} < {share:g}",
            "{{ $labels.view }}: {{ $value | humanizePercentage }} of the events were readable within "
            f"{ms / 1000:g} s; promised are {share * 100:g} %",
            who,
            link,
            f"{ms / 1000:g}s for {share * 100:g}%",
        )
    for (ms, who), names in sorted(fresh.items()):
        yield _rule(
            changes.rule("view-freshness"),
            f"hub_view_freshness_seconds{{{_one_of('view', names)}}} > {ms / 1000:g}",
            "{{ $labels.view }} does not show an event that is {{ $value | humanizeDuration }} old; "
            f"promised are {ms / 1000:g} s",
            who,
            link,
            f"{ms / 1000:g}s",
        )


def _verification_rules(changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    """Yield the rules of view verification. Unknown results have no sample, so nothing fires."""
    yield _rule(
        changes.rule("view-differs"),
        "hub_view_state_match == 0 or hub_view_recomputed_match == 0",
        "view {{ $labels.view }} is not what its "
        "{{ with $labels.store }}changelog says, in store {{ . }}{{ else }}sources say{{ end }}",
        ("", ""),
        link,
    )
    yield _rule(
        changes.rule("view-unproved"),
        "hub_view_state_unproved == 1",
        "nothing shows that store {{ $labels.store }} of view {{ $labels.view }} is what its changelog says",
        ("", ""),
        link,
    )


def _cluster(changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    nobody = ("", "")
    for name, expr, words in (
        ("kafka-away", "max by (job) (hub_kafka_up) == 0", "Kafka does not answer the hub"),
        (
            "store-away",
            "max by (job) (hub_store_up) == 0",
            "the server cannot read its store: views are not served",
        ),
        (
            "partitions-offline",
            "max by (job) (hub_kafka_offline_partitions) > 0",
            "{{ $value }} partitions have no leader: nobody can write or read them",
        ),
        (
            "under-replicated",
            "max by (job) (hub_kafka_under_replicated_partitions) > 0 or max by (job) (hub_kafka_missing_brokers) > 0",
            "{{ $value }} partitions have too few replicas in sync, or brokers are away",
        ),
        (
            "disk-full",
            f"hub_kafka_log_dir_usable_bytes / hub_kafka_log_dir_total_bytes < {FEW_FREE:g} or hub_kafka_log_dir_failed == 1",
            "broker {{ $labels.broker }}, {{ $labels.folder }}: its disk is nearly full, or cannot be used",
        ),
    ):
        yield _rule(changes.rule(name), expr, words, nobody, link)


def _canaries(changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    """Yield the canary rule. The series are absent while canaries are off, so nothing fires; mirrors that are
    paused or handed over are excluded.
    """
    resting = 'hub_mirror_state{state=~"paused|handed over"} == 1'
    yield _rule(
        changes.rule("canary"),
        'hub_canary_state{state=~"FAILING|LOSING"} == 1 '
        f'unless on (way) label_replace({resting}, "way", "mirror:$1", "mirror", "(.*)")',
        "canaries do not come on the way {{ $labels.way }}: {{ $labels.state }}",
        ("", ""),
        link,
    )


def _connect(changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    """Yield the Kafka Connect rules. The series are absent without workers in the settings, so nothing
    fires.
    """
    yield _rule(
        changes.rule("connect-failed"),
        "hub_connect_failed == 1",
        "connector {{ $labels.connector }} of Kafka Connect or one of its tasks failed",
        ("", ""),
        link,
    )
    yield _rule(
        changes.rule("connect-unreachable"),
        "hub_connect_up == 0",
        "Kafka Connect at {{ $labels.worker }} does not answer: its connectors are not known",
        ("", ""),
        link,
    )


def _mirrors(topics: Sequence[TopicSpec], changes: RuleChanges, link: str) -> Iterable[dict[str, Any]]:
    """Yield the mirror rules. The series are absent without mirrors.yaml, so nothing fires."""
    nobody = ("", "")
    yield _rule(
        changes.rule("mirror-trouble"),
        "hub_mirror_standing == 1",
        "mirror {{ $labels.mirror }} or a part of it stands still, or no worker carries it",
        nobody,
        link,
    )
    yield _rule(
        changes.rule("mirror-unknown"),
        'hub_mirror_state{state=~"starting|unknown"} == 1 or hub_mirror_known == 0',
        "nobody can tell how {{ with $labels.mirror }}mirror {{ . }} goes{{ else }}mirrors go{{ end }}",
        nobody,
        link,
    )
    late = changes.rule("mirror-lag")
    promised = _by(topics, lambda spec: spec.slo.lag_ms, "slo.lag")
    for (lag_ms, who), names in promised.items():
        yield _rule(
            late,
            _late(_one_of("topic", names), "mirror, topic", lag_ms),
            "mirror {{ $labels.mirror }} is {{ $value | humanizeDuration }} behind on {{ $labels.topic }}; "
            f"promised are {lag_ms / 1000:g} s",
            who,
            link,
            f"{lag_ms / 1000:g}s",
        )
    others = sorted(name for names in promised.values() for name in names)
    limit_ms = late.limit_ms or 0
    yield _rule(
        late,
        _late(_one_of("topic", others).replace("=", "!=", 1).replace("!=~", "!~", 1), "mirror", limit_ms)
        if others
        else _late("", "mirror", limit_ms),
        "mirror {{ $labels.mirror }} is {{ $value | humanizeDuration }} behind",
        nobody,
        link,
    )
    yield _rule(
        changes.rule("mirror-differs"),
        "hub_mirror_different_partitions > 0",
        "mirror {{ $labels.mirror }}: {{ $value }} partitions are not what their source is",
        nobody,
        link,
    )
    lost = changes.rule("mirror-gap")
    yield _rule(
        lost,
        f"hub_mirror_gap_age_seconds < {(lost.limit_ms or 0) / 1000:g}",
        "mirror {{ $labels.mirror }} will never have some records of {{ $labels.topic }}",
        nobody,
        link,
    )


def _late(those: str, by: str, limit_ms: int) -> str:
    """Build the lag expression. It excludes paused mirrors, whose lag is intended."""
    meant = 'unless on (mirror) hub_mirror_state{state="paused"} == 1'
    return f"max by ({by}) (hub_mirror_lag_seconds{{{those}}} > {limit_ms / 1000:g}) {meant}"


def _by(topics: Sequence[TopicSpec], promised: Callable[[TopicSpec], Any], key: str) -> Grouped:
    found: Grouped = {}
    for spec in topics:
        if promised(spec) is not None:
            who = (spec.owner, spec.set_by.get(key, ""))
            found.setdefault((promised(spec), who), []).append(spec.name)
    return dict(sorted(found.items()))


def _one_of(label: str, names: Sequence[str]) -> str:
    r"""Build a label matcher: ``topic="a"``, ``topic=~"a\\\\.b|c"``."""
    if len(names) == 1:
        return f'{label}="{names[0]}"'
    return f'{label}=~"{"|".join(sorted(name.replace(".", chr(92) * 2 + ".") for name in names))}"'


def _rule(
    rule: AlertRule, expr: str, summary: str, who: Who, link: str, promised: str = "", *, now: bool = False
) -> dict[str, Any]:
    labels = {"severity": str(rule.severity), "owner": who[0], "node": who[1], "promised": promised}
    return {
        "alert": rule.name,
        "expr": expr,
        "for": "0s" if now else f"{rule.for_ms // 1000}s",
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {
            "summary": summary,
            "runbook_url": path
            if (path := runbook_path(rule.runbook)).startswith("http")
            else f"{link}{path}",
        },
    }


# ---- Grafana

Panel = tuple[str, str, str, str, Sequence[tuple[str, str]]]
# (kind, title, description, unit, (expression, legend)…)
PANELS: Sequence[Panel] = (
    ("stat", "Alerts firing", "By rule.", "short", (("sum(hub_alerts_firing)", "firing"),)),
    ("stat", "Kafka answers", "1 while it does.", "short", (("hub_kafka_up", "up"),)),
    ("stat", "Alerts are judged", "0: nobody watches.", "short", (("max(hub_alerts_watched)", "watched"),)),
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
                + _READABLE
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
        (('hub_connect_tasks{state!="RUNNING"}', "{{state}}"), ("hub_connect_up == 0", "{{worker}} is away")),
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
    for number, (kind, title, about, unit, targets) in enumerate(PANELS, 1):
        if x + _WIDTH[kind] > 24:
            x, y = 0, y + height
        height = _HEIGHT[kind]
        source = {"type": "prometheus", "uid": "${datasource}"}
        panels.append(
            {
                "id": number,
                "type": kind,
                "title": title,
                "description": about,
                "datasource": source,
                "gridPos": {"h": height, "w": _WIDTH[kind], "x": x, "y": y},
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
        )
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
