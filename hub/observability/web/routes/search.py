"""[edge] FastAPI: the search page."""

from __future__ import annotations

from fastapi import APIRouter, Request

from hub.errors import HubError
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

    @pages.page("/search", "explore/search.html", for_programs=True)
    def everything(request: Request, q: Text = "") -> SearchPage:
        """Topics, schemas with their fields, and views that have every word of ``q``."""
        found, missing = entries(q.strip())
        return search_page(q.strip(), sources.topics.overview(), sources.tree(), found, missing)

    return pages.routes
