"""[edge] FastAPI: the search page."""

from __future__ import annotations

from fastapi import APIRouter, Request

from hub.caller import HUB, Action, may
from hub.errors import HubError
from hub.observability.web.layout import visible_navigation
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.explore.search import SearchPage, search_page
from hub.observability.web.pages.index import SearchIndex
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.schema_registry.folder.search import SearchEntry


def search_routes(sources: PageSources, index: SearchIndex) -> APIRouter:
    """Return the route of ``/search``."""
    pages = PageRouter(sources, "")

    def entries(words: str) -> tuple[list[SearchEntry], tuple[str, ...]]:
        """Return the registry's search entries, or why they are unavailable."""
        try:
            return (index.entries() if words else []), ()
        except HubError as error:
            return [], (f"schemas: {error.message}",)

    def mirrors() -> list[str]:
        """Return the names of the mirrors, as last heard, for callers who may read the hub."""
        known = sources.mirrors().mirrors if may(Action.read, HUB) else ()
        return [str(each["mirror"]) for each in known]

    @pages.page("/search", "explore/search.html", for_programs=True)
    def everything(request: Request, q: Text = "") -> SearchPage:
        """Topics, schemas with their fields, and views that have every word of ``q``; pages, mirrors and
        connectors by name."""
        search_entries, missing = entries(q.strip())
        sections = [each for group in visible_navigation() for each in group.sections]
        return search_page(
            q.strip(), sources.topics.overview(), sources.tree(), search_entries, missing, sections, mirrors()
        )

    return pages.routes
