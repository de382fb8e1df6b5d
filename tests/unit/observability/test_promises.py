"""Objectives against measurements, with unknown or malformed values."""

from __future__ import annotations

from typing import Any

import pytest

from hub.alerts.model.rules import Promise, RuleChanges, Verdict
from hub.observability.export.objectives import observe_readers, observe_topics, observe_views
from hub.observability.lag.anchors import Anchor
from hub.observability.lag.consumers import LagRow
from hub.observability.overview.reports import reports_of
from hub.topics.tree.tree import Slo, TopicSpec

NOW = 10_000_000
TREE = {"t": TopicSpec("t", "", "", 1, 1, {}, None, None, (), {}, Slo(lag_ms=60_000, freshness_ms=60_000))}


def row(kind: str, **said: Any) -> LagRow:
    plain: dict[str, Any] = dict.fromkeys(LagRow.__slots__)
    about = {"kind": kind, "name": "v", "topic": "t", "owner": "", "cause": "why", "trend": ()}
    return LagRow(**{**plain, **about, **said})


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        # Right after a start what waits has waited for a second at least, and an alert that fires must not
        # end by that.
        ({"seconds": 1.0, "error_s": None, "state": "BEHIND"}, Verdict.UNKNOWN),
        ({"seconds": 61.0, "error_s": None, "state": "BEHIND"}, Verdict.BAD),
        ({"seconds": 1.0, "error_s": 0.5, "state": "BEHIND"}, Verdict.GOOD),
    ],
)
def test_a_lag_without_an_upper_bound_keeps_no_promise(said: dict[str, Any], verdict: Verdict) -> None:
    late, _ = observe_readers([row("group", **said)], TREE, RuleChanges(), measured=True)
    assert [each.verdict for each in late.observations] == [verdict]
    promise = Promise("v", "", freshness_ms=60_000)
    _, old = observe_views([promise], [], [row("view", **said)], RuleChanges(), measured=True)
    assert [each.verdict for each in old.observations] == [verdict]


def test_a_partition_that_does_not_answer_may_be_the_one_where_events_come() -> None:
    still, away = (Anchor(5, NOW - 900_000, NOW),), (Anchor(5, NOW - 900_000, NOW - 400_000),)
    seen = observe_topics({"t": {0: still, 1: away}}, TREE, RuleChanges(), NOW)
    assert [each.verdict for each in seen.observations] == [Verdict.UNKNOWN]


def test_a_record_that_nobody_understands_hides_no_other_view() -> None:
    records = {
        "progress:good": {"sources": {"t": {"0": 4}}},
        "progress:odd": {"sources": {"t": {"all": 4}}},
        "state:odder": {"state": "realtime"},
        "progress:odder": {"sources": {}, "committed_at_ms": "now"},
        "seen:odder": {"sources": [], "at_ms": 3},
    }
    good, odd, odder = reports_of(records)
    assert good.positions is not None and good.state == "starting"
    for each in (odd, odder):
        assert each.state == "unknown" and "not understood" in (each.reason or "")
