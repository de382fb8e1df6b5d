"""[edge] FastAPI: the governance report as JSON and as a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from hub.access.live_config import LiveAccess
from hub.errors import CallerError, HubError
from hub.governance.model import GovernanceFacts
from hub.governance.report import GovernanceReport, report_of
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html

_Text = Annotated[str, Query(max_length=249)]


def create_router(facts: Callable[[], GovernanceFacts], access: LiveAccess) -> APIRouter:
    """Return the routes. ``facts`` blocks."""
    router = APIRouter(tags=["governance"])

    @router.get("/api/governance")
    def report(tree: _Text = "", tag: _Text = "") -> dict[str, Any]:
        """Report each topic and view: owner, purpose, tagged fields, flows, readers in clear, retention.
        ``tree``: a node of the tree, or ``view:NAME``; ``tag``: objects with a field of this tag."""
        return asdict(report_of(facts(), access.rules, tree, tag))

    @router.get("/governance", include_in_schema=False)
    def page(tree: _Text = "", tag: _Text = "") -> Response:
        error: HubError | None = None
        governance_report = GovernanceReport((), 0, ())
        try:
            governance_report = report_of(facts(), access.rules, tree.strip(), tag.strip())
        except HubError as failed:
            error = failed
        status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
        return html(
            "frame/governance.html",
            status,
            section="governance",
            report=governance_report,
            error=error,
            tree=tree,
            tag=tag,
        )

    return router
