"""[edge] FastAPI: make, list, show, approve, refuse and withdraw requests for access."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from hub.access_requests.asking import MOST_TEXT, AccessRequests, AskedAccess


class Answer(BaseModel, extra="forbid"):
    """``by``: the account that answers; a signed-in name takes its place."""

    reason: str = Field("", max_length=MOST_TEXT)
    by: str = Field("", max_length=200)


def create_router(requests: AccessRequests) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/access/requests", tags=["access"])

    @router.get("")
    def list_requests(waiting: bool = False) -> list[dict[str, Any]]:
        """List the requests that the caller made, may answer, or would gain by; oldest first."""
        return requests.rows(waiting=waiting)

    @router.post("", status_code=201)
    def make_request(body: AskedAccess) -> dict[str, Any]:
        """Ask for a grant, or without ``role`` for a new topic. Nothing is granted before an answer."""
        return requests.make(body)

    @router.get("/{id}")
    def show_request(id: str) -> dict[str, Any]:
        """Show a request; for those who may answer, with the difference of an approved one in git."""
        return requests.row(id)

    @router.post("/{id}/approve")
    def approve_request(id: str, body: Answer) -> dict[str, Any]:
        """Approve a request as its owner or an admin, and not as the one who asked."""
        return requests.approve(id, body.reason, body.by)

    @router.post("/{id}/refuse")
    def refuse_request(id: str, body: Answer) -> dict[str, Any]:
        """Refuse a request with a reason."""
        return requests.refuse(id, body.reason, body.by)

    @router.post("/{id}/withdraw")
    def withdraw_request(id: str, body: Answer) -> dict[str, Any]:
        """Withdraw the caller's own request."""
        return requests.withdraw(id, body.by)

    return router
