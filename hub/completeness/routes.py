"""[edge] FastAPI: ``/api/audit`` (completeness as JSON), and receipts of producers that do not use the
gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Protocol

import orjson
from fastapi import APIRouter, Body, Query
from fastapi.responses import Response
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel, Field

from hub.caller import Action, Kind, Resource, require, sees_topic
from hub.completeness.balances import CompletenessState
from hub.completeness.counts import COUNTS_TOPIC, MOST_RUNS, Cell, Cells, CountEntry
from hub.completeness.counts_follower import CountsFollower, KnownCounts, row_of
from hub.errors import CallerError, NotFound, did_you_mean

MOST_ENTRIES = 200
_INSTANCE = r"^[A-Za-z0-9._@:-]{1,100}$"
_LARGEST = (1 << 63) - 1  # largest offset or timestamp of Kafka
# Limit of records or bytes per minute, so that the sum of all minutes fits into 64 bits.
_MOST = 1 << 44


class HasCounts(Protocol):
    def latest(self) -> KnownCounts: ...


class ReceiptSink(Protocol):
    """Destination of receipts (hub.completeness.counting.write_entries)."""

    def __call__(self, entries: list[CountEntry]) -> object: ...


class _ReceiptModel(BaseModel, extra="forbid", frozen=True):
    """A part of a receipt."""


class Minute(_ReceiptModel):
    bucket_ms: int = Field(ge=0, le=_LARGEST, multiple_of=60_000)
    count: int = Field(gt=0, le=_MOST)
    sum: str = Field(pattern=r"^[0-9a-f]{16}$")
    bytes: int = Field(0, ge=0, le=_MOST)


class Receipt(_ReceiptModel):
    """Acknowledged records of one partition: ``runs`` of offsets (first, count), ascending, and their
    minutes.
    """

    topic: str = Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")
    partition: int = Field(ge=0, lt=1 << 31)
    runs: list[tuple[Annotated[int, Field(ge=0, le=_LARGEST)], Annotated[int, Field(gt=0, le=_MOST)]]] = (
        Field(min_length=1, max_length=MOST_RUNS)
    )
    minutes: list[Minute] = Field(min_length=1, max_length=1_500)
    dropped: int = Field(
        0, ge=0, le=_MOST, description="acknowledged records that did not fit into the buffer"
    )


class ReceiptsBody(_ReceiptModel):
    """``instance`` names the producer and this start of it: two with one name would write over each other."""

    instance: str = Field(pattern=_INSTANCE)
    at_ms: int = Field(ge=0, le=_LARGEST)
    receipts: list[Receipt] = Field(min_length=1, max_length=MOST_ENTRIES)


def create_router(follower: HasCounts, keep: ReceiptSink) -> APIRouter:
    """Build the routes for a running follower; ``keep`` writes receipts to ``_hub.ledger``."""
    router = APIRouter(tags=["completeness"])

    @router.get("/api/audit")
    def audits(
        topic: Annotated[str | None, Query(description="Only this topic, with its minutes.")] = None,
        state: Annotated[list[CompletenessState] | None, Query(description="Only these states.")] = None,
    ) -> Response:
        """List the audited topics, the worst first: the log, and every producer, mirror and store compared
        with it.
        """
        known = follower.latest()
        rows = [
            each
            for each in known.audits
            if topic in (None, each.topic) and (not state or each.state in state) and sees_topic(each.topic)
        ]
        if topic is not None and not rows and not state:
            raise NotFound(
                f'topic "{topic}" was never audited',
                hint=did_you_mean(
                    topic,
                    [each.topic for each in known.audits if sees_topic(each.topic)],
                    f"hub completeness run {topic[:249]}",
                ),
            )
        body = {
            "topics": [row_of(each, buckets=topic is not None) for each in rows],
            "error": known.error,
            "forgotten_entries": known.forgotten,
        }
        return Response(orjson.dumps(body), media_type="application/json")

    @router.post("/api/audit/receipts", status_code=204)
    def receipts(body: Annotated[ReceiptsBody, Body()]) -> Response:
        """Accept a producer's own counts of acknowledged records. Idempotent."""
        for each in body.receipts:
            require(Action.write, Resource(Kind.topic, each.topic))
        keep([_entry(body, each) for each in body.receipts])
        return Response(status_code=204)

    return router


def _entry(body: ReceiptsBody, receipt: Receipt) -> CountEntry:
    after = -1
    for first, count in receipt.runs:
        if first <= after:
            raise CallerError(
                f'topic "{receipt.topic}" partition {receipt.partition}: runs must ascend and not touch',
                hint="join neighbours: [[3, 2], [5, 1]] is [[3, 3]]",
            )
        after = first + count
    if receipt.topic == COUNTS_TOPIC:
        raise CallerError("the ledger does not audit itself")
    offsets, records = sum(count for _, count in receipt.runs), sum(each.count for each in receipt.minutes)
    if offsets != records:
        raise CallerError(
            f'topic "{receipt.topic}" partition {receipt.partition}: {offsets} offsets, and '
            f"minutes of {records} records",
            hint="each acknowledged record is one offset and counts in one minute",
        )
    minutes = Cells(
        {each.bucket_ms: Cell(each.count, int(each.sum, 16), each.bytes) for each in receipt.minutes}
    )
    return CountEntry(
        *(
            "source",
            body.instance,
            receipt.topic,
            receipt.partition,
            receipt.runs[0][0],
            after,
            body.at_ms,
            minutes,
        ),
        runs=tuple(receipt.runs),
        dropped=receipt.dropped,
    )


def families(follower: CountsFollower) -> Iterator[Metric]:
    """Yield Prometheus gauges. They are gauges because a repeated audit replaces earlier counts."""
    found: dict[str, GaugeMetricFamily] = {}
    for name, help_text, labels, value in follower.families():
        if name not in found:
            found[name] = GaugeMetricFamily(name, help_text, labels=list(labels))
        found[name].add_metric(list(labels.values()), value)
    yield from found.values()
