"""[core] Alert observations: completeness of each topic with ``slo.completeness``, and the state of each
canary route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.completeness.balances import CompletenessState, TopicCompleteness
from hub.completeness.canary.probes import CanaryRouteRow, CanaryState
from hub.completeness.counts_follower import KnownCounts
from hub.topics.tree.tree import TopicSpec


def observe_completeness(
    known_counts: KnownCounts, tree: Mapping[str, TopicSpec], changes: RuleChanges
) -> RuleObservations:
    """Evaluate the rule ``completeness``. A topic that was never audited, or cannot be compared, is
    UNKNOWN.
    """
    audits = {each.topic: each for each in known_counts.audits}
    observations = []
    for spec in tree.values():
        promised = spec.slo.completeness
        if promised is None:
            continue
        audit = audits.get(spec.name)
        labels = labels_of({"owner": spec.owner, "node": spec.set_by.get("slo.completeness", spec.name)})
        about = labels_of({"topic": spec.name})
        if audit is None or known_counts.error is not None:
            why = known_counts.error or f"never audited: hub completeness run {spec.name}"
            observations.append(Observation(about, Verdict.UNKNOWN, labels=labels, detail=why))
            continue
        verdict, share = verdict_of(audit, promised)
        summary = (
            "" if share is None else f"{spec.name}: {_percent(share)} of the records are where they belong"
        )
        observations.append(
            Observation(about, verdict, summary or f"{spec.name}: {audit.state}", share, labels, audit.cause)
        )
    return RuleObservations(
        changes.rule("completeness"), tuple(observations), whole=known_counts.error is None
    )


_CANARY_VERDICTS = {
    CanaryState.FAILING: Verdict.BAD,
    CanaryState.LOSING: Verdict.BAD,
    CanaryState.UNKNOWN: Verdict.UNKNOWN,
}


def observe_canaries(
    rows: Iterable[CanaryRouteRow], changes: RuleChanges, resting: Collection[str] = frozenset()
) -> RuleObservations:
    """Evaluate the rule ``canary`` for each route. Late canaries are GOOD: ``slo.latency`` covers lateness.
    ``resting`` names mirrors that are paused or handed over; failures of their routes are UNKNOWN.
    """
    observations, ways = [], {f"mirror:{name}" for name in resting}
    for row in rows:
        verdict, why = _CANARY_VERDICTS.get(row.state, Verdict.GOOD), row.cause
        if row.way in ways and verdict is Verdict.BAD:
            verdict, why = Verdict.UNKNOWN, "its mirror is paused, or was handed over"
        summaries = {
            CanaryState.FAILING: f"no canary comes on the way {row.way}",
            CanaryState.LOSING: f"canaries are lost on the way {row.way}",
        }
        observations.append(
            Observation(
                labels_of({"way": row.way}),
                verdict,
                summaries[row.state] if verdict is Verdict.BAD else "",
                float(row.lost) if verdict is Verdict.BAD else None,
                detail="" if verdict is Verdict.GOOD else why,
            )
        )
    return RuleObservations(changes.rule("canary"), tuple(observations))


def verdict_of(audit: TopicCompleteness, promised: float) -> tuple[Verdict, float | None]:
    """Return (verdict, share of the worst tier).

    A mismatch (other records in place of the right ones) is BAD at any objective, and records that were not
    compared make the result UNKNOWN. Neither is hidden by missing records that are within the objective.
    """
    shares = [
        max(0.0, 1 - each.missing / (each.compared or each.missing))
        for each in audit.balances
        if each.missing or each.compared
    ]
    if audit.holes.unexplained and audit.offsets:
        shares.append(1 - audit.holes.unexplained / audit.offsets)
    share = min(shares, default=None)
    if share is not None and share < promised:
        return Verdict.BAD, share
    states = {audit.state}
    for each in audit.balances:
        states |= {each.state, *(one.state for one in each.differences)}
    if CompletenessState.MISMATCH in states:
        return Verdict.BAD, share
    partly = bool(audit.unread) or any(each.waiting or each.dropped for each in audit.balances)
    if share is None or partly or not states.isdisjoint((CompletenessState.UNKNOWN, CompletenessState.OPEN)):
        return Verdict.UNKNOWN, None
    return Verdict.GOOD, share


def _percent(share: float) -> str:
    """Format a share; never rounds up to 100 %."""
    return f"{int(share * 10_000_000) / 100_000:.8g} %"
