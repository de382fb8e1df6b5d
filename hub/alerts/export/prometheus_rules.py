"""[core] The alert rules for Prometheus, over the series of ``GET /metrics``.

For users who have an Alertmanager, or who want to know when the hub itself is down: two more rules fire if no
server evaluates alerts, and if a channel fails. Topics with the same objective, owner and node share one
rule, so a tree of thousands needs few. Format:
https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hub.alerts.export.rule_writer import Grouped, RuleWriter, by_objective, one_of
from hub.alerts.model.rules import FEW_FREE, FILE_RULE, AlertRule, Promise, RuleChanges, Severity
from hub.config import SLOT_WAL_MB
from hub.kafka.contact.watchdog import CUT_OFF_S
from hub.topics.tree.tree import TopicSpec

# Rules that only an external system can evaluate. Each has a page in docs/runbooks, too.
OUTSIDE: Mapping[str, AlertRule] = {
    rule.name: rule
    for rule in (
        AlertRule(
            "not-watched",
            "outside",
            "No server of the hub evaluates alerts.",
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
READABLE = 'stage="readable",store="serving",origin="live"'


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
    writer = RuleWriter(changes, link)
    rules = [
        *_lag(topics, writer),
        *_freshness(topics, writer),
        *_completeness(topics, writer),
        *_views(promises, writer),
        *_verification_rules(writer),
        *_cluster(writer),
        # If Kafka does not answer the server either, that is kafka-away.
        writer.write(
            "kafka-cut-off",
            f"max by (instance, process) (hub_kafka_cut_off_seconds) >= {cut_off_s:g} and on "
            "(instance) hub_kafka_up == 1",
            "Kafka has not answered {{ $labels.process }} for {{ $value | humanizeDuration }}",
        ),
        *_canaries(writer),
        *_connect(writer),
        *mirror_rules(topics, writer),
        writer.write(
            FILE_RULE,
            "max by (job) (hub_alert_file_errors) > 0",
            "alerts.yaml or a file in alerts/ has an error: a part of it does not hold",
        ),
        *_queries(queries, writer),
        *_outside(writer),
    ]
    return {"groups": [{"name": "hub", "rules": rules}]}


def _queries(queries: Iterable[AlertRule], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield a rule for each query of alerts/*.yaml, which the hub evaluates itself."""
    for each in queries:
        expr = f'hub_alerts_firing{{alertname="{each.name}"}} > 0'
        yield rules.write(each, expr, each.doc, (each.owner, ""), now=True)


def _outside(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the rules that only an external system can evaluate."""
    # A cluster is one job: one of its servers is active, and the others export 0.
    yield rules.write(
        OUTSIDE["not-watched"],
        "absent(hub_alerts_watched) or max by (job) (hub_alerts_watched) == 0",
        "No server of the hub evaluates alerts: faults are not reported.",
    )
    yield rules.write(
        OUTSIDE["channel-dead"],
        "increase(hub_alert_given_up_total[10m]) > 0",
        "Channel {{ $labels.channel }} did not take a notification.",
    )


def _lag(topics: Sequence[TopicSpec], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    for (lag_ms, who), names in by_objective(topics, lambda spec: spec.slo.lag_ms, "slo.lag").items():
        those = one_of("topic", names)
        yield rules.write(
            "lag",
            f"hub_consumer_lag_seconds{{{those}}} > {lag_ms / 1000:g}",
            "{{ $labels.kind }} {{ $labels.consumer }} is {{ $value | humanizeDuration }} behind on "
            "{{ $labels.topic }}; "
            f"promised are {lag_ms / 1000:g} s",
            who,
            f"{lag_ms / 1000:g}s",
        )
        yield rules.write(
            "loss",
            f'hub_consumer_state{{state=~"LOST|AT_RISK",{those}}} == 1',
            "{{ $labels.kind }} {{ $labels.consumer }} loses records of {{ $labels.topic "
            "}}: {{ $labels.state }}",
            who,
            f"{lag_ms / 1000:g}s",
        )


def _freshness(topics: Sequence[TopicSpec], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    for (ms, who), names in by_objective(topics, lambda spec: spec.slo.freshness_ms, "slo.freshness").items():
        seconds = max(1, round(ms / 1000))
        ends = f"hub_topic_end_offset{{{one_of('topic', names)}}}"
        # A single sample has no changes: a server that started less than this time ago cannot know.
        yield rules.write(
            "topic-freshness",
            f"changes({ends}[{seconds}s]) == 0 and {ends} offset {seconds}s and on "
            "(instance) hub_kafka_up == 1",
            f"{{{{ $labels.topic }}}} had no event for {seconds} s",
            who,
            f"{seconds}s",
        )


def _completeness(topics: Sequence[TopicSpec], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    for (share, who), names in by_objective(
        topics, lambda spec: spec.slo.completeness, "slo.completeness"
    ).items():
        those = one_of("topic", names)
        missing = f"sum by (topic, tier) (hub_completeness_missing{{{those}}})"
        records = f"sum by (topic) (hub_completeness_records{{{those}}})"
        expr = (
            f"{missing} > 0"
            if share >= 1
            else f"{missing} / on (topic) group_left () {records} > {round(1 - share, 8):g}"
        )
        yield rules.write(
            "completeness",
            expr,
            "{{ $labels.topic }}: records are missing at the {{ $labels.tier }}",
            who,
            f"{share * 100:g}%",
        )


def _views(promises: Sequence[Promise], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    fast: Grouped = {}
    fresh: Grouped = {}
    for each in promises:
        who = (each.owner, each.node)
        if each.latency_ms is not None:
            fast.setdefault(((each.latency_ms, each.latency_share), who), []).append(each.view)
        if each.freshness_ms is not None:
            fresh.setdefault((each.freshness_ms, who), []).append(each.view)
    for ((ms, share), who), names in sorted(fast.items()):
        those = f"{READABLE},{one_of('view', names)}"
        met = (
            f"sum by (view) "
            f'(increase(hub_view_latency_seconds_bucket{{{those},le="{ms / 1000}"}}[{_WINDOW_S}s]))'
        )
        every = f"sum by (view) (increase(hub_view_latency_seconds_count{{{those}}}[{_WINDOW_S}s]))"
        yield rules.write(
            "latency",
            f"{met} / {every} < {share:g}",
            "{{ $labels.view }}: {{ $value | humanizePercentage }} of the events were readable within "
            f"{ms / 1000:g} s; promised are {share * 100:g} %",
            who,
            f"{ms / 1000:g}s for {share * 100:g}%",
        )
    for (ms, who), names in sorted(fresh.items()):
        yield rules.write(
            "view-freshness",
            f"hub_view_freshness_seconds{{{one_of('view', names)}}} > {ms / 1000:g}",
            "{{ $labels.view }} does not show an event that is {{ $value | humanizeDuration }} old; "
            f"promised are {ms / 1000:g} s",
            who,
            f"{ms / 1000:g}s",
        )


def _verification_rules(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the rules of view verification. Unknown results have no sample, so nothing fires."""
    yield rules.write(
        "view-differs",
        "hub_view_state_match == 0 or hub_view_recomputed_match == 0",
        "view {{ $labels.view }} differs from its {{ with $labels.store }}changelog, in store {{ . }}{{ "
        "else }}sources{{ end }}",
    )
    yield rules.write(
        "view-unproved",
        "hub_view_state_unproved == 1",
        "store {{ $labels.store }} of view {{ $labels.view }} has not been compared with its changelog",
    )


def _cluster(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    for name, expr, summary in (
        ("kafka-away", "max by (job) (hub_kafka_up) == 0", "Kafka does not answer the hub"),
        (
            "store-away",
            "max by (job) (hub_store_up) == 0",
            "the server cannot read its store: views are not served",
        ),
        (
            "partitions-offline",
            "max by (job) (hub_kafka_offline_partitions) > 0",
            "{{ $value }} partitions have no leader: they can be neither written nor read",
        ),
        (
            "under-replicated",
            (
                "max by (job) (hub_kafka_under_replicated_partitions) > 0 or max by (job) "
                "(hub_kafka_missing_brokers) > 0"
            ),
            "{{ $value }} partitions have too few replicas in sync, or brokers are unreachable",
        ),
        (
            "disk-full",
            (
                f"hub_kafka_log_dir_usable_bytes / hub_kafka_log_dir_total_bytes < {FEW_FREE:g} or "
                "hub_kafka_log_dir_failed == 1"
            ),
            "broker {{ $labels.broker }}, {{ $labels.folder }}: its disk is nearly full, or cannot be used",
        ),
    ):
        yield rules.write(name, expr, summary)


def _canaries(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the canary rule. The series are absent while canaries are off, so nothing fires; mirrors that are
    paused or handed over are excluded.
    """
    resting = 'hub_mirror_state{state=~"paused|handed over"} == 1'
    yield rules.write(
        "canary",
        'hub_canary_state{state=~"FAILING|LOSING"} == 1 '
        f'unless on (way) label_replace({resting}, "way", "mirror:$1", "mirror", "(.*)")',
        "canaries do not come on the way {{ $labels.way }}: {{ $labels.state }}",
    )


def _connect(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the Kafka Connect rules. The series are absent without workers in the settings, so nothing
    fires.
    """
    yield rules.write(
        "connect-failed",
        "hub_connect_failed == 1",
        "connector {{ $labels.connector }} of Kafka Connect or one of its tasks failed",
    )
    yield rules.write(
        "connect-unreachable",
        "hub_connect_up == 0",
        "Kafka Connect at {{ $labels.worker }} does not answer: its connectors are not known",
    )
    yield rules.write(
        "slot-retains-wal",
        f"hub_postgres_slot_retained_bytes > {SLOT_WAL_MB * (1 << 20)}",
        "slot {{ $labels.slot }} of connector {{ $labels.connector }} retains {{ $value | "
        "humanize1024 }}B of WAL",
    )
    yield rules.write(
        "outbox-stopped",
        "hub_outbox_up == 0",
        "the relay of the outbox fails: events of committed transactions are not in Kafka",
    )
    yield rules.write(
        "sink-stopped",
        "hub_sink_up == 0",
        "sink {{ $labels.sink }} does not deliver, or is later than its late_after",
    )


def mirror_rules(topics: Sequence[TopicSpec], rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the mirror rules. The series are absent without mirrors.yaml, so nothing fires."""
    yield rules.write(
        "mirror-trouble",
        "hub_mirror_standing == 1",
        "mirror {{ $labels.mirror }} or a part of it is stopped, or no worker runs it",
    )
    yield rules.write(
        "mirror-unknown",
        'hub_mirror_state{state=~"starting|unknown"} == 1 or hub_mirror_known == 0',
        "the state of {{ with $labels.mirror }}mirror {{ . }}{{ else }}mirrors{{ end }} is unknown",
    )
    late = rules.changes.rule("mirror-lag")
    promised = by_objective(topics, lambda spec: spec.slo.lag_ms, "slo.lag")
    for (lag_ms, who), names in promised.items():
        yield rules.write(
            late,
            _lag_expression(one_of("topic", names), "mirror, topic", lag_ms),
            "mirror {{ $labels.mirror }} is {{ $value | humanizeDuration }} behind on {{ $labels.topic }}; "
            f"promised are {lag_ms / 1000:g} s",
            who,
            f"{lag_ms / 1000:g}s",
        )
    others = sorted(name for names in promised.values() for name in names)
    limit_ms = late.limit_ms or 0
    yield rules.write(
        late,
        _lag_expression(
            one_of("topic", others).replace("=", "!=", 1).replace("!=~", "!~", 1), "mirror", limit_ms
        )
        if others
        else _lag_expression("", "mirror", limit_ms),
        "mirror {{ $labels.mirror }} is {{ $value | humanizeDuration }} behind",
    )
    yield rules.write(
        "mirror-differs",
        "hub_mirror_different_partitions > 0",
        "mirror {{ $labels.mirror }}: {{ $value }} partitions are not what their source is",
    )
    lost = rules.changes.rule("mirror-gap")
    yield rules.write(
        lost,
        f"hub_mirror_gap_age_seconds < {(lost.limit_ms or 0) / 1000:g}",
        "mirror {{ $labels.mirror }} will never have some records of {{ $labels.topic }}",
    )
    yield from _drift_and_rehearsals(rules)


def _drift_and_rehearsals(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the rules of changed copies and of rehearsals. Without them the series are absent."""
    yield rules.write(
        "mirror-drift",
        "hub_mirror_drifted_topics > 0",
        "mirror {{ $labels.mirror }}: {{ $value }} of its copies were changed by hand",
    )
    yield rules.write(
        "rehearsal-failed",
        "hub_mirror_rehearsal_passed == 0",
        "a failover of mirror {{ $labels.mirror }} would fail, as its last rehearsal showed",
    )
    overdue = rules.changes.rule("rehearsal-overdue")
    yield rules.write(
        overdue,
        f"hub_mirror_rehearsal_overdue_seconds > {(overdue.limit_ms or 0) / 1000:g}",
        "mirror {{ $labels.mirror }} was not rehearsed when it was due",
    )


def _lag_expression(those: str, by: str, limit_ms: int) -> str:
    """Build the lag expression. It excludes paused mirrors, whose lag is intended."""
    unless_paused = 'unless on (mirror) hub_mirror_state{state="paused"} == 1'
    return f"max by ({by}) (hub_mirror_lag_seconds{{{those}}} > {limit_ms / 1000:g}) {unless_paused}"
