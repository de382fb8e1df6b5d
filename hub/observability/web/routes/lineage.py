"""[edge] FastAPI: the page of lineage, and lineage as OpenLineage events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.errors import HubError
from hub.observability.lineage.drawing import drawn
from hub.observability.lineage.graph import Lineage
from hub.observability.lineage.live_graph import ViewStorage, lineage_of, visible_lineage
from hub.observability.lineage.open_lineage import open_lineage
from hub.observability.overview.mirror_readers import MirrorStatuses
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.monitor import lineage
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.observability.web.routes.page_router import PageRouter, Text, json_of

# Longest wait for the first answer of the mirrors' clusters, where an answer without them would be wrong.
_MIRRORS_S = 10.0
Graph = tuple[Lineage, tuple[str, ...], MirrorStatuses]


def lineage_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/lineage``."""
    pages = PageRouter(sources, "lineage")

    @pages.page("/lineage", "monitor/lineage.html", for_programs=True, more=drawing_of)
    def lineage_of_all(request: Request, of: Text = "", steps: int = 3) -> lineage.LineagePage:
        """Topics, views, stores and readers ``of`` a name or id (``view:customer_360``), up to ``steps``
        each way, with the live lag on each edge; why it is late, and what a view's columns are made of."""
        whole, missing, _ = graph(sources)
        if of and lineage.ASKING in missing and not whole.knows(of.strip()):
            whole, missing, _ = graph(sources, _MIRRORS_S)  # it may be the name of a mirror
        return lineage.lineage_page(
            whole, of.strip(), steps, sources.columns_of, missing, sources.unmeasured()
        )

    @pages.routes.get("/api/openlineage", tags=["pages"], response_model=None)
    def as_open_lineage() -> Response:
        """Return lineage as OpenLineage job events, with the columns of views."""
        whole, _, mirrored = graph(sources, _MIRRORS_S)
        views = [node.name for node in whole.nodes.values() if node.kind == "view"]
        at = datetime.now(UTC).isoformat(timespec="seconds")
        first = sources.bootstrap.partition(",")[0]
        return json_of(open_lineage(whole, sources.columns_of(views), first, at, mirrored.clusters))

    return pages.routes


def graph(sources: PageSources, wait_s: float = 0.0) -> Graph:
    """Return the lineage that the caller may see, what is missing in it, and the mirrors.

    ``wait_s``: longest wait for mirrors that were not read yet.
    """
    storage: Mapping[str, ViewStorage] = {}
    missing: tuple[str, ...] = ()
    try:
        storage = sources.views.storage()
    except HubError as error:
        missing = (f"stores: {error.message}",)
    facts = _mirrors(sources, wait_s)
    if facts.declared and facts.asked_at_ms is None:
        missing += (lineage.ASKING,)
    missing += lineage.unreported_mirrors(facts)
    mirrored = MirrorStatuses(facts.mirrors, facts.here, facts.clusters, facts.asked_at_ms)
    views = sources.topics.overview().views
    flows = sources.connector_flows()
    whole = lineage_of(views, sources.lag(), storage, mirrored, sources.now_ms(), flows)
    return visible_lineage(whole), missing, mirrored


def _mirrors(sources: PageSources, wait_s: float) -> MirrorFacts:
    """Return the mirrors; wait up to ``wait_s`` for their first status."""
    until_s = time.monotonic() + wait_s
    while (facts := sources.mirrors()).declared and facts.asked_at_ms is None:
        if time.monotonic() >= until_s:
            break
        time.sleep(0.1)
    return facts


def drawing_of(_request: Request, found: lineage.LineagePage) -> Mapping[str, Any]:
    """Return the values of the drawing's template."""
    part = Lineage({node.id: node for node in found.nodes}, found.edges)
    return {"drawing": drawn(part), "short": lineage.short, "home_of": lineage.home_of}
