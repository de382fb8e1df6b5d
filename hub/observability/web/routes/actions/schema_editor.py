"""[edge] FastAPI: the editor of a schema: check a draft, then register it."""

from __future__ import annotations

from dataclasses import replace

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from hub.caller import Action, Kind, Resource, require
from hub.errors import HubError, NotFound
from hub.observability.web.forms import posted
from hub.observability.web.http_status import status_of
from hub.observability.web.pages.estate import PageSources, RegistersSchemas, ask
from hub.observability.web.pages.explore import schema_editor as editor
from hub.observability.web.pages.explore import schemas
from hub.observability.web.routes.page_router import PageRouter
from hub.quotas.kinds import Quota
from hub.quotas.spending import spend
from hub.schema_registry.model.facts import Reference

_TEMPLATE = "explore/schema_editor.html"


class DraftReference(BaseModel, extra="forbid"):
    name: str = Field(max_length=500)
    subject: str = Field(max_length=500)
    version: int = Field(ge=1)


class Draft(BaseModel, extra="forbid"):
    """``plan``: the ``digest`` of the check that was looked at; another situation is then refused (HUB-1941).
    ``dry_run``: check alone."""

    schema_text: str = Field(alias="schema", max_length=editor.MOST_SCHEMA_BYTES)
    schema_type: str = Field("AVRO", max_length=20)
    references: list[DraftReference] = Field(default=[], max_length=100)
    plan: str = Field("", max_length=64)
    dry_run: bool = False


def schema_editor_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/schema-editor``."""
    pages = PageRouter(sources, "schemas")

    @pages.page("/schema-editor/{subject:path}", _TEMPLATE)
    def edit(request: Request, subject: str) -> editor.SchemaEditor:
        """Editor of a subject: its newest version as a draft. Changes nothing."""
        _require_visible(subject, ())
        return ask(sources.registry, lambda registry: editor.opened(registry, subject))

    @pages.routes.post("/api/schema-editor/{subject:path}", tags=["pages"], response_model=None)
    def register_draft(subject: str, body: Draft) -> editor.SchemaEditor:
        """Register a draft after its check; with ``dry_run`` check it alone. A draft that breaks its
        compatibility or a policy is refused as at ``/subjects/SUBJECT/versions``."""
        references = tuple(Reference(each.name, each.subject, each.version) for each in body.references)
        draft = editor.SchemaDraft(subject, body.schema_text, body.schema_type, references)
        if body.dry_run:
            return _checked(sources, draft)
        return _registered(sources, draft, body.plan or None)

    @pages.routes.post("/schema-editor/{subject:path}", include_in_schema=False)
    async def submit(request: Request, subject: str) -> Response:
        try:
            values = await posted(request, editor.MOST_SCHEMA_BYTES)
            names = ("schema", "type", "references")
            draft = editor.draft_of(subject, *(values.get(each, "") for each in names))
            page = await anyio.to_thread.run_sync(_checked, sources, draft)
        except HubError as error:
            return pages.failed(request, error)
        status = 200
        if values.get("do") == "register":
            try:
                plan = values.get("plan", "")
                page = await anyio.to_thread.run_sync(_registered, sources, draft, plan)
            except HubError as error:
                page, status = replace(page, error=error), status_of(error)
        return pages.frame.shown(_TEMPLATE, request, status, facts=page, section="schemas")

    return pages.routes


def _node(sources: PageSources) -> RegistersSchemas:
    if sources.schemas is None:
        raise NotFound("this server registers no schemas", hint="hub schema register --help")
    return sources.schemas


def _require_visible(subject: str, references: tuple[Reference, ...]) -> None:
    """Raise Forbidden for a subject that the caller may not write, or a reference that they may not see."""
    require(Action.write, Resource(Kind.subject, subject))
    for each in references:
        require(Action.describe, Resource(Kind.subject, each.subject))


def _checked(sources: PageSources, draft: editor.SchemaDraft) -> editor.SchemaEditor:
    """Return the page with the check of a draft, and with who reads its topic."""
    _require_visible(draft.subject, draft.references)
    check = editor.checked(_node(sources), draft)
    page = ask(sources.registry, lambda registry: editor.opened(registry, draft.subject, draft))
    impact = schemas.impact_of(
        page.topic,
        check.comparison.touched if check.comparison is not None else (),
        sources.topics.overview().views,
        sources.columns_of,
        sources.lag(),
        sources.mirrors().mirrors,
    )
    return replace(page, check=replace(check, impact=impact))


def _registered(sources: PageSources, draft: editor.SchemaDraft, digest: str | None) -> editor.SchemaEditor:
    """Register a draft, and return the page with its version. Raises Conflict, RequestRefused, PeerError."""
    _require_visible(draft.subject, draft.references)
    node = _node(sources)
    editor.require_checked(editor.checked(node, draft), digest, draft.subject)
    topic = node.read(lambda registry: editor.opened(registry, draft.subject, draft).topic)
    spend(Quota.registrations, 1.0, topics=(topic,) if topic else ())
    stored, _ = node.submit(editor.registration(draft))
    page = ask(sources.registry, lambda registry: editor.opened(registry, draft.subject))
    return replace(page, registered=(stored.version, stored.schema_id))
