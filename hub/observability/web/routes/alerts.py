"""[edge] FastAPI: the page of alerts, its runbooks, and the forms that begin and end a silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.alerts.alerts_json import matchers_from
from hub.alerts.routes import end_of
from hub.alerts.runbooks import runbook
from hub.caller import done_by
from hub.errors import CallerError, HubError
from hub.observability.web.forms import posted
from hub.observability.web.http_status import status_of
from hub.observability.web.pages.estate import HasAlerts, PageSources
from hub.observability.web.pages.monitor import alerts
from hub.observability.web.routes.page_router import PageRouter, Text


def alert_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/alerts``, its runbooks and its forms."""
    pages = PageRouter(sources, "alerts")
    manager = sources.alerts

    @pages.page("/alerts", "monitor/alerts.html", has_json=manager is None, more=form_of)
    def alerts_list(
        request: Request,
        severity: Text = "",
        owner: Text = "",
        name: Text = "",
        page: int = 1,
        past: int = 1,
    ) -> alerts.AlertsPage:
        """Firing, pending and past alerts, rules, silences and channels. Without an alert manager: that
        alerts are off."""
        wanted = alerts.AlertsFilter(severity, owner, name)
        return alerts.alerts_page(None if manager is None else manager.snapshot(), wanted, page, past)

    @pages.page("/alerts/runbooks/{name}", "monitor/runbook.html")
    def runbook_page(request: Request, name: str) -> Mapping[str, Any]:
        """The runbook of an alert: its meaning and its remedy."""
        return {"name": name, "blocks": runbook(name)}

    add_silence_forms(pages, manager)
    return pages.routes


def add_silence_forms(pages: PageRouter, manager: HasAlerts | None) -> None:
    """Add the targets of the forms that begin and end a silence."""

    def running() -> HasAlerts:
        if manager is None:
            raise CallerError("alerts are off here")
        return manager

    @pages.routes.post("/alerts/silences", include_in_schema=False)
    async def new_silence(request: Request) -> Response:
        values = await posted(request)
        form: dict[str, Any] = {name: values.get(name, "") for name in ("matchers", "reason", "by", "for")}
        try:
            silence = running().silence
            matchers = matchers_from(each for each in form["matchers"].split(",") if each.strip())
            ends_ms = end_of(form["for"], None, pages.sources.now_ms())
            await anyio.to_thread.run_sync(silence, matchers, form["reason"], done_by(form["by"]), ends_ms)
        except (HubError, ValueError) as error:
            return _refused_form(pages, request, manager, form, error)
        return Response(status_code=303, headers={"Location": "/alerts#silence"})

    @pages.routes.post("/alerts/silences/{id}/end", include_in_schema=False)
    async def end_silence(request: Request, id: str) -> Response:
        await posted(request)
        try:
            await anyio.to_thread.run_sync(running().unsilence, id)
        except HubError as error:
            return pages.failed(request, error)
        return Response(status_code=303, headers={"Location": "/alerts#silence"})


def _refused_form(
    pages: PageRouter,
    request: Request,
    manager: HasAlerts | None,
    form: Mapping[str, Any],
    error: HubError | ValueError,
) -> Response:
    """Return the page of alerts with the form as it was sent and what is wrong in it."""
    status, message = (status_of(error), error.message) if isinstance(error, HubError) else (400, str(error))
    values = {
        "facts": alerts.alerts_page(None if manager is None else manager.snapshot(), alerts.AlertsFilter()),
        "form": {**form, "error": message},
        "narrow": alerts.narrow,
        "section": pages.section,
        # The page that sent the form, and from which it is refreshed.
        "here": "/alerts",
        "json_url": "/api/alerts",
    }
    return pages.frame.shown("monitor/alerts.html", request, status, **values)


def form_of(request: Request, _found: alerts.AlertsPage) -> Mapping[str, Any]:
    """Return the values of the empty form for a silence."""
    matchers = request.query_params.get("silence", "")[:2_000]
    form = {"matchers": matchers, "reason": "", "by": "", "for": "2h", "error": None}
    return {"form": form, "narrow": alerts.narrow}
