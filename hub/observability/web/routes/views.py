"""[edge] FastAPI: the pages of views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request

from hub.errors import HubError
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.explore.lookup import Lookup
from hub.observability.web.pages.monitor import views
from hub.observability.web.pages.row_history import HasHistory, row_history
from hub.observability.web.routes.page_router import PageRouter, Text


def view_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/views`` and of each view."""
    pages = PageRouter(sources, "views")
    lookup = Lookup(sources.rows)

    @pages.page("/views", "monitor/views.html")
    def views_list(request: Request, q: Text = "", owner: Text = "", state: Text = "") -> views.ViewsPage:
        """Views, those that need eyes first: with every word of ``q``, of an ``owner``, in a ``state``."""
        return views.views_page(sources.topics.overview(), q.strip(), owner, state)

    def row_of(request: Request, found: views.ViewPage) -> Mapping[str, Any]:
        key = request.query_params.get("key", "")
        return {**lookup.facts(sources.topics.overview(), found.line.name, key), "only": True}

    @pages.page("/views/{name}", "monitor/view.html", more=row_of)
    def view_page(
        request: Request,
        name: str,
        q: Text = "",
        after: Text = "",
        key: Text = "",
        as_of: Text = "",
        changes_after: Text = "",
    ) -> views.ViewPage:
        """One view: how fresh it is, its sources, stores, versions, its file, and how to ask it. ``q``:
        words to search in its rows, with the cursor ``after`` of a further page. ``key``: of a row whose
        changes are listed, with the row ``as_of`` a time, and the cursor ``changes_after`` of older ones."""
        overview, missing = sources.topics.overview(), []
        answers: list[Mapping[str, Any]] = []
        known = any(view.name == name for view in overview.views)
        for what, question in (
            ("fields and stores", sources.views.describe),
            ("versions", sources.views.versions),
        ):
            try:
                answers.append(question(name) if known else {})
            except HubError as error:
                answers.append({})
                missing.append(f"{what}: {error.message}")
        keys = lookup.recent(name) if known else ()
        about, versions = answers
        found = views.view_page(overview, name, about, versions, keys, str(request.base_url), tuple(missing))
        search = views.searched(sources.views.search, found, q.strip(), after)
        found = replace(found, batches=tuple(sources.topics.batches(name)), search=search)
        return with_history(found, sources.history if known else None, key, as_of, changes_after)

    return pages.routes


def with_history(
    page: views.ViewPage, history: HasHistory | None, key: str, as_of: str, cursor: str
) -> views.ViewPage:
    """Return the page with the history of a row, or with the reason why it is missing."""
    try:
        return replace(page, history=row_history(history, page.line.name, key, as_of, cursor))
    except HubError as error:
        return replace(page, missing=(*page.missing, f"history: {error.message}"))
