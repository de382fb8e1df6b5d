"""[edge] FastAPI: positions of a consumer group, and their reset: plan, confirm, carry out."""

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
from hub.topics.groups.reset import GroupPositions
from hub.topics.groups.reset_plan import ResetPlan, ResetRequest, reset_request

Topics = Annotated[list[str] | None, Query(max_length=1_000)]


class GroupReset(BaseModel, extra="forbid"):
    """``topics``: ``TOPIC`` or ``TOPIC:0,2``; empty: all of the group. ``plan``: the ``digest`` of the plan
    that was looked at; a changed situation is then refused (HUB-1941)."""

    to: str = Field(max_length=100, description="earliest, latest, an offset, +N, -N, a time, or 15m")
    topics: list[str] = Field(default=[], max_length=1_000)
    plan: str = Field("", max_length=64)
    dry_run: bool = False


def group_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/groups``."""
    pages = PageRouter(sources, "lag")

    def groups() -> GroupPositions:
        if sources.groups is None:
            raise NotFound("this server resets no groups", hint="hub group --help")
        return sources.groups

    def checked_request(group: str, topics: list[str] | None, to: str) -> ResetRequest:
        return reset_request(group, topics or (), to, sources.now_ms())

    @pages.page("/groups/{group:path}/offsets", "monitor/group.html")
    def group_offsets(request: Request, group: str, topic: Topics = None, to: Text = "") -> ResetPlan:
        """Positions of a consumer group; with ``to`` the plan of their reset. Changes nothing. ``topic``:
        TOPIC or TOPIC:0,2, repeated; separated by blanks too."""
        named = [word for each in topic or () for word in each.split()]
        return groups().plan(checked_request(group, named, to))

    @pages.routes.post("/api/groups/{group:path}/offsets", tags=["pages"], response_model=None)
    def reset_group(group: str, body: GroupReset) -> ResetPlan:
        """Reset the positions of a group without members, and return the plan that was carried out. With
        ``dry_run`` return the plan alone."""
        request = checked_request(group, body.topics, body.to)
        if body.dry_run:
            return groups().plan(request)
        return groups().reset(request, body.plan or None)

    @pages.routes.post("/groups/{group:path}/offsets", include_in_schema=False)
    async def reset(request: Request, group: str) -> Response:
        def act(values: PostedForm) -> None:
            wanted = checked_request(group, values.get("topic", "").split(), values.get("to", ""))
            groups().reset(wanted, values.get("plan", ""))

        return await pages.carried_out(request, act, f"/groups/{quote(group, safe='')}/offsets?done=1")

    return pages.routes
