"""Operations on mirrors for pages of tests: a plan with two steps; what is done is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.errors import Conflict
from hub.observability.web.pages.mirror_actions import MirrorPlan, MirrorRequest, plan_of
from hub.record import TopicPartition


@dataclass
class StagedMirrorOperations:
    """The port of the pages (estate.HasMirrorOperations). ``refuses``: the operation that is refused."""

    done: list[tuple[MirrorRequest, str, float]] = field(default_factory=list)
    refuses: str = ""

    def plan(self, request: MirrorRequest) -> MirrorPlan:
        if request.action == self.refuses:
            raise Conflict("another change is in progress", hint="hub mirror resume nyc-lon", code="HUB-1961")
        return plan_of(
            request,
            [
                {"step": "claim", "does": "write the operation down", "at": "lon"},
                {"step": "take_ownership", "does": "lon owns the topics", "at": "lon, nyc"},
            ],
            topics=[{"topic": each, "now": "mirroring", "owner": "nyc"} for each in request.topics],
            notes=["lon: DENY <b>User:app</b> WRITE is removed"],
            effects=["Lost: 7 offsets. Read again: 2 records."],
            plan={"kind": request.action, "lost": 7},
        )

    def act(self, request: MirrorRequest, by: str, wait_s: float) -> Mapping[str, Any]:
        self.plan(request)
        self.done.append((request, by, wait_s))
        return {"mirror": request.mirror, "action": request.action}

    def translate(self, mirror: str, place: TopicPartition, offset: int, back: bool) -> Mapping[str, Any]:
        found = {"topic": place.topic, "partition": place.partition, "offset": offset}
        return {**found, "translated": offset - 1 if back else offset + 1, "precision": "exact"}
