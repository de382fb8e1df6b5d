"""Reports of views, built from their records."""

from __future__ import annotations

from typing import Any

from hub.observability.overview.reports import reports_of
from hub.record import Positions


def records(state: str) -> dict[str, Any]:
    return {
        "state:v": {"state": state, "sources": {"o": "in"}},
        "progress:v": {
            "sources": {"in": {"0": 10, "1": 10}},
            "mode": state,
            "committed_at_ms": 1_000,
            "batch_ms": 60_000,
        },
        "seen:v": {"sources": {"in": {"0": 25, "1": 4}}, "at_ms": 31_000},
    }


def test_between_checkpoints_a_realtime_view_is_where_its_rows_show_it_to_be() -> None:
    (report,) = reports_of(records("realtime"))
    assert report.positions == Positions.of([("in", 0, 25), ("in", 1, 10)])
    assert report.committed_at_ms == 31_000


def test_a_micro_batch_view_is_where_its_batches_are() -> None:
    (report,) = reports_of(records("live"))
    assert report.positions == Positions.of([("in", 0, 10), ("in", 1, 10)])
    assert report.committed_at_ms == 1_000
