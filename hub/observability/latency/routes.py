"""[edge] FastAPI: ``/api/latency``, from memory; no route queries Kafka or a store."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from hub.caller import sees_view
from hub.observability.latency.recorder import LatencyRecorder


def create_router(board: LatencyRecorder) -> APIRouter:
    """Return the route over a running LatencyRecorder."""
    router = APIRouter(tags=["observability"])

    @router.get("/api/latency")
    def latency(
        view: Annotated[str | None, Query(description="Only this view.")] = None,
        stage: Annotated[
            Literal["appended", "read", "changelog", "readable", "pushed"] | None,
            Query(description="Only this stage."),
        ] = None,
        origin: Annotated[Literal["live", "replay"] | None, Query(description="live or replay.")] = None,
    ) -> Response:
        """One row a view, stage, store and origin: how long events of the last minutes took from their own
        time, the share within the objective, and how fresh the view is. null: not known."""
        rows = [
            row
            for row in board.rows()
            if (view is None or row.view == view)
            and (stage is None or row.stage == stage)
            and (origin is None or row.origin == origin)
            and sees_view(row.view)
        ]
        return Response(orjson.dumps(rows), media_type="application/json")

    return router
