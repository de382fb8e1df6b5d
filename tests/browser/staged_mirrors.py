"""Operations on mirrors for pages of tests: a plan with two steps; what is done is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.errors import Conflict
from hub.observability.web.pages.mirror_actions import MirrorPlan, MirrorRequest, plan_of
from hub.record import TopicPartition

HOUR_MS = 3_600_000


def staged_rehearsals(now_ms: int) -> dict[str, Any]:
    """Return the rehearsals of a mirror: the last one failed, the one before passed."""

    def row(hours: int, state: str, reason: str, lost: int | None, proved: list[str]) -> dict[str, Any]:
        return {
            "started_at_ms": now_ms - hours * HOUR_MS,
            "ago_s": hours * 3_600.0,
            "state": state,
            "by": "w1",
            "scheduled": True,
            "reason": reason,
            "took_ms": 1_400,
            "lost": lost,
            "lost_at_least": 12,
            "lag_s": 0.4,
            "proved": proved,
        }

    failed = row(3, "failed", 'topic "nyc.full" is not mirrored: it has records of others', None, [])
    passed = row(171, "passed", "", 12, ["A failover can begin: 6 steps", "12 offsets would be lost"])
    return {
        "schedule": "weekly, Tue 03:00 UTC",
        "next_at_ms": now_ms + 165 * HOUR_MS,
        "waits": "",
        "overdue_s": None,
        "running": None,
        "last": failed,
        "results": [failed, passed],
    }


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
