"""[edge] FastAPI: the governance report as JSON and as a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from hub.access.live_config import LiveAccess
from hub.errors import CallerError, HubError
from hub.governance.flow_rules import FlowJudgement, judged
from hub.governance.flows_file import FlowsFile
from hub.governance.model import GovernanceFacts
from hub.governance.report import GovernanceReport, report_of
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html

_Text = Annotated[str, Query(max_length=249)]


def create_router(
    facts: Callable[[], GovernanceFacts], access: LiveAccess, flows: Callable[[], FlowsFile]
) -> APIRouter:
    """Return the routes. ``facts`` and ``flows`` block."""
    router = APIRouter(tags=["governance"])

    @router.get("/api/governance")
    def report(tree: _Text = "", tag: _Text = "") -> dict[str, Any]:
        """Report each topic and view: owner, purpose, tagged fields, flows, readers in clear, retention.
        ``tree``: a node of the tree, or ``view:NAME``; ``tag``: objects with a field of this tag."""
        return asdict(report_of(facts(), access.rules, tree, tag))

    @router.get("/api/governance/flows")
    def judge_flows() -> dict[str, Any]:
        """Judge the flows of tagged fields by the rules of flows.yaml: each that a rule refuses, with its
        steps. ``is_kept``: every rule is known to be kept."""
        judgement = judged(facts(), flows())
        return {"is_kept": judgement.is_kept, **asdict(judgement)}

    @router.get("/governance", include_in_schema=False)
    def page(tree: _Text = "", tag: _Text = "") -> Response:
        error: HubError | None = None
        governance_report, judgement = GovernanceReport((), 0, ()), FlowJudgement(0, ())
        try:
            known = facts()
            governance_report = report_of(known, access.rules, tree.strip(), tag.strip())
            judgement = judged(known, flows())
        except HubError as failed:
            error = failed
        status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
        return html(
            "frame/governance.html",
            status,
            section="governance",
            report=governance_report,
            judgement=judgement,
            error=error,
            tree=tree,
            tag=tag,
        )

    return router
