"""[edge] prometheus-client: series on which stores equal their changelogs. An unknown state has no sample.

Bounded: the ``MOST`` views and stores with the most severe states have series of their own; all are counted
by state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from hub.materializers.verification.verification_status import (
    SEVERITY,
    VerificationState,
    is_unproved,
    reported_states,
    reported_verifications,
)
from hub.metrics.gauges import gauge

MOST = 200
_MATCH = {VerificationState.MATCHES: 1, VerificationState.DIFFERS: 0}


def families(records: Mapping[str, Any], now_ms: int) -> Iterator[Metric]:
    """Yield the metric families. ``records``: the progress records by key."""
    found = reported_verifications(records, now_ms)
    worst = sorted(found, key=lambda each: (SEVERITY[each[1].state], each[1].view, each[0]))[:MOST]
    names = ("view", "store")
    yield gauge(
        "hub_view_state_match",
        "1: a store's rows are the fold of the view's changelog; 0: they are not",
        names,
        (((proof.view, store), _MATCH.get(proof.state)) for store, proof in worst),
    )
    yield gauge(
        "hub_view_state_match_age_seconds",
        "How long ago a store's rows were the fold of the view's changelog last",
        names,
        (
            (
                (proof.view, store),
                None if proof.matched_ms is None else max(0, now_ms - proof.matched_ms) / 1000,
            )
            for store, proof in worst
        ),
    )
    opinions = list(reported_states(records).items())[:MOST]
    yield gauge(
        "hub_view_state_unproved",
        "1: it is unknown whether a store's rows are the fold of the view's changelog; 0: it was compared, "
        "or soon will be. Without a store: whether the view computed again has the same rows",
        names,
        (
            *(((proof.view, store), float(is_unproved(proof, now_ms))) for store, proof in worst),
            *(((view, ""), float(state not in _MATCH)) for view, (state, _, _) in opinions),
        ),
    )
    yield gauge(
        "hub_view_recomputed_match",
        "1: a view that was computed again from its sources had the same rows; 0: it had others",
        ("view",),
        (((view,), _MATCH.get(state)) for view, (state, _, _) in opinions),
    )
    numbers = Counter(proof.state for _, proof in found)
    yield gauge(
        "hub_view_state_proofs",
        "Views in stores by result: MATCHES, DIFFERS, OPEN, UNKNOWN",
        ("state",),
        (((str(state),), numbers[state] if found else None) for state in VerificationState),
    )
