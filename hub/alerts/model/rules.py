"""[core] Alert rules, which follow from objectives, and their observations.

A rule has a name, and every object that breaks it is an alert of its own: a consumer on a topic, a topic, a
view, a row of a query. The rule must be broken for ``for_ms`` before the alert fires, and satisfied for
``keep_ms`` before it ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hub.alerts.model.matching import Labels
from hub.topics.tree.tree_file import LATENCY_SHARE


class Verdict(StrEnum):
    """Result of one observation. UNKNOWN is never treated as GOOD or BAD."""

    BAD = "BAD"
    GOOD = "GOOD"
    UNKNOWN = "UNKNOWN"


class Severity(StrEnum):
    """Severity of an alert, worst first."""

    page = "page"
    warning = "warning"
    info = "info"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert rule. ``kind`` is ``slo``, ``health`` (needs no objective) or ``query`` (alerts/*.yaml).
    ``runbook`` is the name of a page in docs/runbooks, or a URL. ``limit_ms`` is the rule's default limit
    where no objective is set, None if it has none.
    """

    name: str
    kind: str
    doc: str
    severity: str = Severity.warning
    for_ms: int = 60_000
    keep_ms: int = 60_000
    runbook: str = ""
    owner: str = ""
    query: str = ""
    on: bool = True
    limit_ms: int | None = None


def _rule(
    name: str,
    doc: str,
    severity: Severity = Severity.warning,
    for_ms: int = 60_000,
    kind: str = "slo",
    limit_ms: int | None = None,
) -> AlertRule:
    return AlertRule(name, kind, doc, severity, for_ms, runbook=name, limit_ms=limit_ms)


# Sent to every channel, independent of the routes.
FILE_RULE = "alerts-file"
# Rules about the whole cluster. A disk with less than this free share triggers disk-full.
CLUSTER_RULES = ("kafka-away", "partitions-offline", "under-replicated", "disk-full")
FEW_FREE = 0.1

# docs/how-to/set-up-alerts.md lists the objective of each rule; docs/runbooks/NAME.md is its page.
RULES: Mapping[str, AlertRule] = {
    rule.name: rule
    for rule in (
        _rule("lag", "A reader is later than slo.lag of the topic."),
        _rule(
            "loss",
            "Records of a topic with slo.lag are deleted, or soon will be, before a reader read them.",
            Severity.page,
        ),
        _rule("topic-freshness", "A topic had no new event for longer than its slo.freshness.", for_ms=0),
        _rule(
            "completeness",
            "Less than slo.completeness of the records are where they belong.",
            Severity.page,
        ),
        _rule("latency", "Too few events of the last minutes were readable within slo.latency."),
        _rule(
            "view-freshness", "The oldest event that a view does not show is older than its slo.freshness."
        ),
        # It is compared twice before it is reported, and only another comparison ends it.
        _rule(
            "view-differs",
            "A store differs from its view's changelog, or a view differs from its sources.",
            Severity.page,
            0,
            "health",
        ),
        # A restart, a store that is being refilled and a busy day are normal; a long time without any
        # comparison is not.
        _rule(
            "view-unproved",
            "A store has not been compared with its view's changelog for a long time.",
            for_ms=3_600_000,
            kind="health",
        ),
        _rule("kafka-away", "Kafka does not answer the hub.", Severity.page, kind="health"),
        _rule(
            "kafka-cut-off",
            "Kafka answers the server, and does not answer another process of the hub.",
            Severity.page,
            kind="health",
        ),
        _rule(
            "store-away",
            "The server cannot read its store: views are not served, and how late they are is not known.",
            Severity.page,
            kind="health",
        ),
        _rule(
            "partitions-offline",
            "Partitions have no leader: they can be neither written nor read.",
            Severity.page,
            30_000,
            "health",
        ),
        _rule(
            "under-replicated",
            "A broker is unreachable, or partitions have fewer replicas in sync than they should.",
            for_ms=300_000,
            kind="health",
        ),
        _rule(
            "disk-full", "A disk of a broker has less than a tenth free, or cannot be used.", kind="health"
        ),
        _rule(
            "canary", "Canaries do not come, or are lost, on a way that users' events take.", kind="health"
        ),
        _rule("connect-failed", "A connector of Kafka Connect or one of its tasks failed.", kind="health"),
        _rule("connect-unreachable", "A worker of Kafka Connect does not answer.", kind="health"),
        _rule(
            "slot-retains-wal",
            "A replication slot of a connector makes its database keep much WAL, or is lost.",
            Severity.page,
            kind="health",
        ),
        _rule(
            "outbox-stopped",
            "The relay of an outbox fails: events of committed transactions are not in Kafka.",
            Severity.page,
            kind="health",
        ),
        _rule(
            "sink-stopped",
            "A sink does not deliver, or its oldest waiting record is older than its late_after.",
            Severity.page,
            kind="health",
        ),
        _rule(
            "mirror-trouble",
            "A mirror, or a part of it, is stopped and should not be, or no worker runs it.",
            Severity.page,
            kind="health",
        ),
        _rule("mirror-unknown", "The state of a mirror is unknown.", for_ms=300_000, kind="health"),
        _rule(
            "mirror-lag",
            "A mirror is later than slo.lag of a topic, or than the limit where none is promised.",
            kind="health",
            limit_ms=300_000,
        ),
        # It is compared twice before it is reported, and only a comparison of everything ends it.
        _rule("mirror-differs", "A copy is not what its source is.", Severity.page, 0, "health"),
        _rule(
            "mirror-drift",
            "Somebody changed settings of a copy, and they are not what the mirror would have.",
            kind="health",
        ),
        _rule(
            FILE_RULE,
            "alerts.yaml or a file in alerts/ has an error: a part of it does not hold.",
            kind="health",
        ),
        # Lost records stay lost: the alert ends one day after the loss is known.
        _rule(
            "mirror-gap",
            "Records of the source will never be in the copy.",
            for_ms=0,
            kind="health",
            limit_ms=86_400_000,
        ),
        _rule(
            "rehearsal-failed",
            "The last rehearsal of a mirror shows that a failover would fail.",
            for_ms=0,
            kind="health",
        ),
        _rule(
            "rehearsal-overdue",
            "A scheduled rehearsal of a mirror has not been made.",
            for_ms=300_000,
            kind="health",
            limit_ms=3_600_000,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One object at a time. ``object`` identifies it; ``labels`` are further labels (owner, node of the
    tree). ``value`` is the measured number, None if there is none. ``detail`` is the cause in words.
    """

    object: Labels
    verdict: Verdict
    summary: str = ""
    value: float | None = None
    labels: Labels = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RuleObservations:
    """A rule with all its observations. ``absent`` is the verdict for objects without an observation. With
    UNKNOWN, an object that is missing for ``GONE_MS`` while ``whole`` (all objects were checked) counts as
    gone.
    """

    rule: AlertRule
    observations: tuple[Observation, ...] = ()
    absent: Verdict = Verdict.UNKNOWN
    whole: bool = True
    error: str | None = None


GONE_MS = 900_000


def key_of(rule: str, of: Labels) -> str:
    """Return the key of an alert, 16 hex digits. It depends on rule and object only, so it survives
    restarts.
    """
    text = "\0".join([rule, *(f"{name}\1{value}" for name, value in of)])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Changes of alerts.yaml to a rule; None: unchanged."""

    for_ms: int | None = None
    keep_ms: int | None = None
    severity: str | None = None
    off: bool = False
    limit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """Changes of alerts.yaml to all rules."""

    by_rule: Mapping[str, RuleChange] = field(default_factory=dict)

    def rule(self, name: str) -> AlertRule:
        """Return a rule with its changes applied."""
        rule, change = RULES[name], self.by_rule.get(name, RuleChange())
        return replace(
            rule,
            for_ms=rule.for_ms if change.for_ms is None else change.for_ms,
            keep_ms=rule.keep_ms if change.keep_ms is None else change.keep_ms,
            severity=change.severity or rule.severity,
            on=not change.off,
            limit_ms=rule.limit_ms if change.limit_ms is None else change.limit_ms,
        )


@dataclass(frozen=True, slots=True)
class Promise:
    """Objectives of a view, its owner, and the tree node that sets them ("": the view's own file)."""

    view: str
    owner: str = ""
    node: str = ""
    latency_ms: int | None = None
    latency_share: float = LATENCY_SHARE
    freshness_ms: int | None = None
