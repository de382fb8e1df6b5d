"""[edge] FastAPI: the pages of schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request

from hub.caller import Action, Kind, Resource, require
from hub.observability.web.pages.estate import PageSources, ask
from hub.observability.web.pages.explore import schemas
from hub.observability.web.pages.index import SearchIndex
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.schema_registry.folder.search import search_in


def schema_routes(sources: PageSources, index: SearchIndex) -> APIRouter:
    """Return the routes of ``/schemas`` and of each subject."""
    pages = PageRouter(sources, "schemas")

    @pages.page("/schemas", "explore/schemas.html")
    def subjects(
        request: Request,
        q: Text = "",
        schema_type: Annotated[str, Query(alias="type", max_length=20)] = "",
        page: int = 1,
    ) -> schemas.SubjectsPage:
        """All subjects, or those with every word of ``q`` in their names, fields, docs, owners or tags."""
        q = q.strip()
        matches = search_in(index.entries(), q) if q else None
        return ask(
            sources.registry, lambda registry: schemas.subjects_page(registry, matches, q, schema_type, page)
        )

    @pages.page("/schemas/{subject:path}", "explore/schema.html")
    def subject_page(
        request: Request, subject: str, version: int | None = None, against: int | None = None
    ) -> schemas.SubjectPage:
        """One subject at a ``version`` (the newest), and what changed since ``against`` (the one before)."""
        # Checked here, not in the guard: there the same address may be an API route that names no subject.
        require(Action.describe, Resource(Kind.subject, subject))
        taken = ask(sources.registry, lambda registry: schemas.take(registry, subject, version, against))
        comparison = schemas.compared(taken.stored, taken.against, taken.state)
        impact = schemas.impact_of(
            taken.page.topic,
            comparison.touched if comparison is not None else (),
            sources.topics.overview().views,
            sources.columns_of,
            sources.lag(),
            sources.mirrors().mirrors,
        )
        return replace(taken.page, comparison=comparison, impact=impact, unmeasured=sources.unmeasured())

    return pages.routes
