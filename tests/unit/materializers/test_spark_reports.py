"""Interpretation of Spark's progress reports, as Spark 4.3 writes them; no Spark runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hub.materializers.spark.checkpoints.committed_batches import last_batch
from hub.materializers.spark.sql_stream import quiet_batches
from hub.record import Positions


@dataclass
class Report:
    """A report as Spark's JVM gives it."""

    body: dict[str, Any]

    def batchId(self) -> int:  # noqa: N802 - Java's name
        return int(self.body["batchId"])

    def durationMs(self) -> dict[str, int]:  # noqa: N802
        return dict(self.body["durationMs"])

    def json(self) -> str:
        return json.dumps(self.body)


@dataclass
class Query:
    reports: list[Report] = field(default_factory=list)

    @property
    def _jsq(self) -> Query:
        return self

    def lastProgress(self) -> Report | None:  # noqa: N802
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        return [each.body for each in self.reports]

    def tell(self, batch_id: int, end: int | None, *, ran: bool, rows: int = 0, bad: int = 0) -> None:
        took = {"addBatch": 5, "commitOffsets": 1, "walCommit": 1} if ran else {"latestOffset": 1}
        body = {
            "batchId": batch_id,
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 9, **took},
            "sources": [{"endOffset": None if end is None else {"t": {"0": end}}}],
            "observedMetrics": {"hub_e": {"bad": bad}} if rows else {},
            "stateOperators": [{"numRowsDroppedByWatermark": 0}],
        }
        self.reports.append(Report(body))


def test_an_idle_report_is_of_the_batch_before_and_hides_none() -> None:
    query = Query()
    assert last_batch(query) is None
    query.tell(0, None, ran=False)
    assert last_batch(query) is None
    query.tell(0, 5, ran=True, rows=5)
    first = last_batch(query)
    assert first is not None and (first.batch_id, first.input_rows) == (0, 5)
    query.tell(1, 5, ran=False)  # ten idle seconds later
    assert last_batch(query, 0) is None
    again = last_batch(query)  # its own report was missed
    assert again is not None and (again.batch_id, again.sources) == (0, Positions.of([("t", 0, 5)]))
    query.tell(1, 7, ran=True, rows=2, bad=1)
    second = last_batch(query, 0)
    assert second is not None and (second.batch_id, second.sources) == (1, Positions.of([("t", 0, 7)]))


def test_a_batch_that_has_not_run_is_not_known_to_have_taken_all() -> None:
    query = Query()
    query.tell(0, 5, ran=True, rows=5)
    query.tell(1, 5, ran=False)
    assert quiet_batches(query) == {0}
    query.tell(1, 7, ran=True, rows=2, bad=1)
    query.tell(2, 7, ran=True)
    assert quiet_batches(query) == {0, 2}
