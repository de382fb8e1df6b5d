"""[edge] FastAPI: plan, request, approve, show and cancel erasures, and their proof."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field

from hub.access_log.chain import LogSigner
from hub.approvals.second_person import needs_second
from hub.caller import done_by
from hub.erasure.log import ErasureLog, as_json
from hub.erasure.model import Erasure, approve, cancel, checked_request, find_erasure
from hub.erasure.places import ProjectFacts, find_places
from hub.erasure.proof import proof_of
from hub.schema_registry.policy.label_patterns import checked

Pattern = Annotated[str, AfterValidator(checked)]


class PlannedErasure(BaseModel, extra="forbid"):
    """A person, and topics of the tree as patterns of labels."""

    person: str = Field(min_length=1, max_length=1_000, description="the id in the field of erasable_by")
    topics: list[Pattern] = Field(min_length=1, max_length=100)


class RequestedErasure(PlannedErasure):
    """``by``: the account that asks; a signed-in name takes its place."""

    reason: str = Field(min_length=1, max_length=1_000)
    by: str = Field("", max_length=200)


class ErasureDecision(BaseModel, extra="forbid"):
    """``by``: the account that decides; a signed-in name takes its place."""

    by: str = Field("", max_length=200)


@dataclass(frozen=True, slots=True)
class Erasing:
    """Parts that the routes use. ``delay_ms``: from the approval to the first step."""

    log: ErasureLog
    facts: Callable[[], ProjectFacts]
    signer: LogSigner
    delay_ms: int
    now_ms: Callable[[], int]


def create_router(erasing: Erasing) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["erasures"])
    _add_reads(router, erasing)
    _add_decisions(router, erasing)

    @router.post("/api/erasures/plan")
    def plan(body: PlannedErasure) -> dict[str, Any]:
        """Show every place that holds a person, and what would be done there. Changes nothing."""
        places = find_places(erasing.facts(), body.topics)
        return {"person": body.person, "topics": body.topics, "places": [asdict(each) for each in places]}

    @router.post("/api/erasures", status_code=201)
    def request(body: RequestedErasure) -> dict[str, Any]:
        """Request an erasure. Nothing is done before somebody approves it."""
        new = Erasure(
            secrets.token_hex(6),
            body.person,
            tuple(body.topics),
            body.reason,
            done_by(body.by),
            erasing.now_ms(),
            find_places(erasing.facts(), body.topics),
        )
        return as_json(erasing.log.submit(lambda known: checked_request(new, known)))

    return router


def _add_reads(router: APIRouter, erasing: Erasing) -> None:
    @router.get("/api/erasures")
    def erasures() -> list[dict[str, Any]]:
        """List all erasures, oldest first."""
        return [as_json(each) for each in erasing.log.all().values()]

    @router.get("/api/erasures/{id}")
    def erasure(id: str) -> dict[str, Any]:
        """Show an erasure with the state of each place."""
        return as_json(find_erasure(erasing.log.all(), id))

    @router.get("/api/erasures/{id}/proof")
    def proof(id: str) -> dict[str, Any]:
        """Return the signed report of an erasure."""
        return proof_of(find_erasure(erasing.log.all(), id), erasing.signer, erasing.now_ms())


def _add_decisions(router: APIRouter, erasing: Erasing) -> None:
    @router.post("/api/erasures/{id}/approve")
    def approved(id: str, body: ErasureDecision) -> dict[str, Any]:
        """Approve an erasure. While access is controlled, the requester cannot."""
        by, second = done_by(body.by), needs_second()
        now_ms, delay_ms = erasing.now_ms(), erasing.delay_ms
        return as_json(
            erasing.log.submit(
                lambda known: approve(find_erasure(known, id), by, now_ms, delay_ms, needs_second=second)
            )
        )

    @router.post("/api/erasures/{id}/cancel")
    def canceled(id: str, body: ErasureDecision) -> dict[str, Any]:
        """Cancel an erasure before its first step."""
        by, now_ms = done_by(body.by), erasing.now_ms()
        return as_json(erasing.log.submit(lambda known: cancel(find_erasure(known, id), by, now_ms)))
