"""[edge] FastAPI: declare a topic in topics.yaml and change it: plan, confirm, carry out."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from hub.errors import NotFound
from hub.observability.web.forms import PostedForm
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.topics.editing.change import TopicChange, TopicChangePlan
from hub.topics.editing.editor import TopicEditor

_FIELDS = ("partitions", "retention", "owner", "config")
Lines = Annotated[str, Query(max_length=10_000)]


class TopicEdit(BaseModel, extra="forbid"):
    """An empty setting stays as it is; ``inherit`` takes it out of the topic's node. ``plan``: the ``digest``
    of the plan that was looked at; a changed situation is then refused (HUB-1941)."""

    partitions: str = Field("", max_length=100)
    retention: str = Field("", max_length=100)
    owner: str = Field("", max_length=500)
    config: str = Field("", max_length=10_000, description="KEY=VALUE, one a line")
    plan: str = Field("", max_length=64)
    dry_run: bool = False


def topic_editor_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/topic-editor``."""
    pages = PageRouter(sources, "topics")

    def editor() -> TopicEditor:
        if sources.topic_editor is None:
            raise NotFound("this server changes no topics", hint="hub topic apply --help")
        return sources.topic_editor

    pages.routes.add_api_route("/topic-editor", _open_editor, include_in_schema=False, response_model=None)

    @pages.page("/topic-editor/{topic}", "explore/topic_editor.html")
    def plan_topic(
        request: Request,
        topic: str,
        partitions: Text = "",
        retention: Text = "",
        owner: Text = "",
        config: Lines = "",
    ) -> TopicChangePlan:
        """Plan of a topic of topics.yaml with these settings: the difference of the file, and the steps in
        the cluster. A topic that the file does not name is added to it. Changes nothing."""
        return editor().plan(TopicChange(topic, partitions, retention, owner, config))

    @pages.routes.post("/api/topic-editor/{topic}", tags=["pages"], response_model=None)
    def change_topic(topic: str, body: TopicEdit) -> TopicChangePlan:
        """Write topics.yaml, then create or change the topic; return the plan that was carried out. With
        ``dry_run`` return the plan alone."""
        change = TopicChange(topic, body.partitions, body.retention, body.owner, body.config)
        if body.dry_run:
            return editor().plan(change)
        return editor().apply(change, body.plan or None)

    @pages.routes.post("/topic-editor/{topic}", include_in_schema=False)
    async def confirmed(request: Request, topic: str) -> Response:
        def act(values: PostedForm) -> None:
            change = TopicChange(topic, *(values.get(name, "") for name in _FIELDS))
            editor().apply(change, values.get("plan", ""))

        return await pages.carried_out(request, act, f"/topic-editor/{quote(topic, safe='')}?done=1")

    return pages.routes


def _open_editor(topic: Text = "") -> Response:
    """Lead the form that names a topic to the topic's page."""
    name = topic.strip(" .")
    where = f"/topic-editor/{quote(name, safe='')}" if name else "/topics"
    return Response(status_code=303, headers={"Location": where})
