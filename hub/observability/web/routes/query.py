"""[edge] FastAPI: the pages for SQL, and the view workbench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.explore.workbench import WorkbenchPage, workbench_page
from hub.observability.web.routes.page_router import PageRouter, Text, split_values


def query_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/query``."""
    pages = PageRouter(sources, "query")

    @pages.page("/query", "explore/query.html", for_programs=True)
    def query_console(
        request: Request, sql: Annotated[str, Query(max_length=20_000)] = ""
    ) -> Mapping[str, Any]:
        """Views and saved queries that the console offers."""
        overview = sources.topics.overview()
        names = [view.name for view in overview.views]
        return {"sql": sql, "views": names, "error": overview.error, "saved": sources.saved()}

    return pages.routes


def workbench_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/workbench``."""
    pages = PageRouter(sources, "workbench")

    @pages.page("/workbench", "explore/workbench.html")
    def workbench(
        request: Request,
        q: Text = "",
        sql: Annotated[str, Query(max_length=20_000)] = "",
        topic: Annotated[list[str] | None, Query()] = None,
    ) -> WorkbenchPage:
        """Topics with every word of ``q``, and views, for a statement that makes a view."""
        return workbench_page(sources.topics.overview(), q.strip(), sql, split_values(topic))

    return pages.routes
