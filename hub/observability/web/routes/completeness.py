"""[edge] FastAPI: the page of completeness."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.monitor import completeness, completeness_times
from hub.observability.web.pages.monitor.completeness_counts import MEANING
from hub.observability.web.routes.page_router import PageRouter, Text, split_values


def completeness_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/completeness``."""
    pages = PageRouter(sources, "completeness")

    @pages.page("/completeness", "monitor/completeness.html", for_programs=True, more=map_of)
    def completeness_map(
        request: Request,
        topics: Text = "",
        state: Annotated[list[str] | None, Query()] = None,
        span: Annotated[str, Query(alias="range", max_length=10)] = "1h",
        until: Text = "",
        order: Annotated[str, Query(max_length=10)] = "worst",
        topic: Text = "",
        at: Text = "",
        page: int = 1,
    ) -> completeness.CompletenessPage:
        """Topics by time: is everything there that was written? ``topics`` a pattern, ``range`` up to
        ``until``, and one cell (``topic``, ``at``) looked at closely."""
        wanted = completeness.GridFilter(topics.strip(), split_values(state), span, until.strip(), order)
        names = [line.name for line in sources.topics.overview().topics]
        counted, now_ms = sources.completeness(), sources.now_ms()
        return completeness.completeness_page(counted, names, wanted, now_ms, page, topic.strip(), at.strip())

    return pages.routes


def map_of(_request: Request, facts: completeness.CompletenessPage) -> Mapping[str, Any]:
    """Return the values of the heat map's template besides its facts."""
    branches = [(name, list(rows)) for name, rows in groupby(facts.rows, lambda row: row.branch)]
    return {
        "branches": branches,
        "meaning": MEANING,
        "ranges": completeness_times.RANGES,
        "minute": completeness_times.minute,
        "tick": completeness_times.tick,
    }
