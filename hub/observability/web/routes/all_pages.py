"""[edge] All pages as one router, and the page for unknown addresses."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.errors import NotFound
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.index import SearchIndex
from hub.observability.web.routes.actions.groups import group_routes
from hub.observability.web.routes.actions.mirrors import mirror_routes
from hub.observability.web.routes.actions.produce import produce_routes
from hub.observability.web.routes.actions.schema_editor import schema_editor_routes
from hub.observability.web.routes.actions.topic_editor import topic_editor_routes
from hub.observability.web.routes.alerts import alert_routes
from hub.observability.web.routes.cluster import cluster_routes, connect_routes, sink_routes, usage_routes
from hub.observability.web.routes.completeness import completeness_routes
from hub.observability.web.routes.lineage import lineage_routes
from hub.observability.web.routes.measurements import chart_routes, lag_routes, latency_routes
from hub.observability.web.routes.messages import message_routes
from hub.observability.web.routes.page_router import ForBrowsers, Frame
from hub.observability.web.routes.query import query_routes, workbench_routes
from hub.observability.web.routes.schemas import schema_routes
from hub.observability.web.routes.search import search_routes
from hub.observability.web.routes.topics import topic_routes
from hub.observability.web.routes.views import view_routes

_ROUTES = (
    view_routes,
    lag_routes,
    group_routes,
    produce_routes,
    schema_editor_routes,
    topic_editor_routes,
    latency_routes,
    chart_routes,
    cluster_routes,
    connect_routes,
    sink_routes,
    usage_routes,
    completeness_routes,
    alert_routes,
    lineage_routes,
    mirror_routes,
    query_routes,
    workbench_routes,
    topic_routes,
    message_routes,
)


def create_router(sources: PageSources) -> APIRouter:
    """Return the routes of all pages. Include it before the API routes at the same addresses."""
    router = APIRouter()
    index = SearchIndex(sources.registry)
    sections = [search_routes(sources, index), schema_routes(sources, index)]
    sections += [routes(sources) for routes in _ROUTES]
    for section in sections:
        router.routes.extend(section.routes)
    return router


def nowhere(sources: PageSources) -> APIRouter:
    """Return the page for unknown addresses. Include it after all other routes."""
    router = APIRouter(route_class=ForBrowsers)
    frame = Frame(sources)

    @router.get("/{rest:path}", include_in_schema=False)
    def nothing(request: Request, rest: str) -> Response:
        error = NotFound(
            f'there is nothing at "/{rest[:200]}"', hint="the navigation leads to all that there is"
        )
        return frame.failed(request, error, "")

    return router
