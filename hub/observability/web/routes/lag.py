"""[edge] FastAPI: the pages of lag and latency. Their JSON are the API's own routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.monitor import lag, latency
from hub.observability.web.routes.page_router import PageRouter, Text, split_values


def lag_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/lag``."""
    pages = PageRouter(sources, "lag")

    @pages.page("/lag", "monitor/lag.html", has_json=False)
    def lag_list(
        request: Request,
        state: Annotated[list[str] | None, Query()] = None,
        owner: Text = "",
        prefix: Text = "",
        name: Text = "",
        kind: Text = "",
        page: int = 1,
    ) -> lag.LagPage:
        states = lag.checked(split_values(state))
        wanted = lag.LagFilter(states, owner, prefix.strip(), name.strip(), kind)
        return lag.lag_page(sources.lag(), wanted, page, sources.unmeasured())

    return pages.routes


def latency_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/latency``."""
    pages = PageRouter(sources, "latency")

    @pages.page("/latency", "monitor/latency.html", has_json=False)
    def latency_list(
        request: Request, view: Text = "", stage: Text = "", origin: Text = "", page: int = 1
    ) -> latency.LatencyPage:
        wanted = latency.checked(latency.LatencyFilter(view.strip(), stage, origin))
        return latency.latency_page(sources.latency(), wanted, page)

    return pages.routes
