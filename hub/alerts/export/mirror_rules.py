"""[core] The alert rules of mirrors for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hub.alerts.export.rule_writer import RuleWriter, by_objective, one_of
from hub.topics.tree.tree import TopicSpec


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
    yield from _rehearsals(rules)


def _rehearsals(rules: RuleWriter) -> Iterable[dict[str, Any]]:
    """Yield the rules of rehearsals. The series are absent without a schedule."""
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
