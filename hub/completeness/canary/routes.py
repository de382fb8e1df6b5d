"""[edge] FastAPI: ``/api/canary``, and the canary metrics."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from hub.completeness.canary.probes import CanaryState
from hub.completeness.canary.runner import Canaries, body_of


def create_router(canaries: Canaries | None) -> APIRouter:
    """Build the route for running canaries; None: canaries are off."""
    router = APIRouter(tags=["completeness"])

    @router.get("/api/canary")
    def canary() -> Response:
        """Show the arrival of canaries by path, the worst first. null: unknown."""
        return Response(orjson.dumps(body_of(canaries)), media_type="application/json")

    return router


def families(canaries: Canaries | None) -> Iterator[Metric]:
    """Yield metrics with one label, the route (never a partition). Yields nothing while canaries are off."""
    if canaries is None:
        return
    rows, spans = canaries.rows(), canaries.spans()
    with canaries.lock:
        sent, failed = sum(canaries.canary.sent.values()), canaries.canary.failed
    yield CounterMetricFamily("hub_canary_sent", "Canaries that were sent", value=sent)
    yield CounterMetricFamily("hub_canary_failed", "Canaries that Kafka did not acknowledge", value=failed)
    seconds = HistogramMetricFamily(
        "hub_canary_seconds",
        "From sending a canary to reading it on its way; lost ones are not in it",
        labels=["way"],
    )
    for way, each in sorted(spans.items()):
        seconds.add_metric([way], each.cumulative(), each.sum_s)
    yield seconds
    for name, help_text in (
        ("read", "Canaries that came"),
        ("late", "Canaries that came late"),
        ("repeated", "Canaries that came again"),
    ):
        counter = CounterMetricFamily(f"hub_canary_{name}", help_text, labels=["way"])
        for row in rows:
            counter.add_metric([row.way], getattr(row, name))
        yield counter
    # A gauge: the count falls when a late canary arrives.
    lost = GaugeMetricFamily("hub_canary_lost", "Canaries that did not come", labels=["way"])
    state = GaugeMetricFamily("hub_canary_state", "1 for the state a way is in", labels=["way", "state"])
    for row in rows:
        lost.add_metric([row.way], row.lost)
        for name in CanaryState:
            state.add_metric([row.way, name], float(row.state is name))
    yield from (lost, state)
