"""[edge] FastAPI: conformance results as JSON."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Response

from hub.caller import sees_topic, shows_records
from hub.errors import NotFound, did_you_mean
from hub.topics.conformance.results import ConformanceResults


def create_router(results: ConformanceResults) -> APIRouter:
    """Build the route over followed results."""
    router = APIRouter(tags=["topics"])

    @router.get("/audit")
    def audit(topic: str | None = None) -> Response:
        """Return one row per topic: checked records, violations by reason and producer,
        quarantined records."""
        rows = [_visible_row(row) for row in results.rows() if sees_topic(row["topic"])]
        if topic is None:
            return _json({"topics": rows})
        found = [row for row in rows if row["topic"] == topic]
        if not found:
            raise NotFound(
                f'topic "{topic}" is not audited',
                hint=did_you_mean(
                    topic, [row["topic"] for row in rows], "topics with a registered schema are"
                ),
            )
        return _json({"topics": found})

    return router


def _visible_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the last violation's detail, which may quote the record, where masks hide some of
    it."""
    if not row.get("last") or shows_records(row["topic"]):
        return row
    return {**row, "last": {**row["last"], "detail": "masked for you"}}


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
