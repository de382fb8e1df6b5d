"""[edge] FastAPI: the page of mirrors, and the operations on a mirror: plan, confirm, carry out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from hub.caller import HUB, Action, done_by, may
from hub.errors import NotFound
from hub.observability.series.reading import MOST_OBJECTS
from hub.observability.web.forms import PostedForm
from hub.observability.web.pages.estate import HasMirrorOperations, PageSources
from hub.observability.web.pages.mirror_actions import (
    LABELS,
    MirrorPlan,
    MirrorRequest,
    check_confirmed,
    checked_request,
)
from hub.observability.web.pages.monitor import mirrors
from hub.observability.web.pages.monitor.lineage import short
from hub.observability.web.pages.regions import facts
from hub.observability.web.pages.regions.drawing import region_map
from hub.observability.web.routes.page_router import PageRouter, Text, split_values
from hub.record import TopicPartition

WAIT_S = 120.0

Topics = Annotated[list[str] | None, Query(max_length=100)]


class MirrorOperation(BaseModel, extra="forbid"):
    """``topics``: patterns; empty: the whole mirror. ``name``: the mirror again, where it cannot be undone.
    ``wait_s``: the longest wait of one step. ``by``: a signed-in name takes its place. ``plan``: the
    ``digest`` of the plan of a failback that was looked at; a changed situation is then refused (HUB-1941).
    """

    topics: list[str] = Field(default=[], max_length=100)
    tail: str = Field(
        "replay",
        description="of a failback: replay, discard, merge or restore what only the source has",
    )
    export: bool = Field(
        False,
        description="of a failback: write these records to files of the server first; restore always does",
    )
    plan: str | None = Field(None, max_length=100)
    delete_copies: bool = Field(False, description="of a drop: delete the copies too")
    name: str = Field("", max_length=200)
    wait_s: float = Field(WAIT_S, ge=1, le=3_600)
    newest: int | None = Field(
        None, ge=1, description="of verify: number of newest offsets of each partition to compare"
    )
    by: str = Field("", max_length=200)
    dry_run: bool = False

    def request(self, mirror: str, action: str) -> MirrorRequest:
        """Return the request. Raises as ``checked_request``."""
        return checked_request(
            mirror,
            action,
            self.topics,
            self.tail,
            self.delete_copies,
            export=self.export,
            confirmed=self.plan,
            newest=self.newest,
        )


def mirror_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/mirrors``."""
    pages = PageRouter(sources, "mirrors")

    def operable(_request: Request, page: Any) -> Mapping[str, object]:
        operates = sources.mirror_operations is not None and may(Action.operate, HUB)
        charted = [f"mirror:{each.name}" for each in page.mirrors[:MOST_OBJECTS]]
        return {"may_operate": operates, "labels": LABELS, "charted": charted}

    @pages.page("/mirrors", "monitor/mirrors.html", for_programs=True, more=operable)
    def mirrors_list(request: Request) -> mirrors.MirrorsPage:
        """State of every mirror, and whether its target could take over. The clusters are read in the
        background: ``asked_at_ms`` is null until they answered once."""
        return mirrors.mirrors_page(sources.mirrors())

    @pages.page("/regions", "monitor/regions.html", more=_map_values)
    def regions_map(request: Request) -> facts.RegionsPage:
        """Clusters of mirrors.yaml and the mirrors between them: state, rate, lag with its bound, offsets
        that a failover now would lose, last rehearsal. Facts without a report are unknown, and null."""
        return facts.regions_page(sources.mirrors(), sources.now_ms())

    def operations() -> HasMirrorOperations:
        if sources.mirror_operations is None:
            raise NotFound("this server operates no mirrors", hint="hub mirror --help")
        return sources.mirror_operations

    _add_translation(pages, operations)
    _add_operations(pages, operations)
    return pages.routes


def _map_values(_request: Request, page: facts.RegionsPage) -> Mapping[str, object]:
    return {
        "drawing": region_map(page.regions, page.mirrors),
        "of": {each.name: each for each in page.regions},
        "short": short,
    }


def _add_translation(pages: PageRouter, operations: Callable[[], HasMirrorOperations]) -> None:
    @pages.routes.get("/api/mirrors/{mirror}/translate", tags=["pages"], response_model=None)
    def translate_position(
        mirror: str,
        topic: Annotated[str, Query(min_length=1, max_length=249)],
        offset: Annotated[int, Query(ge=0, le=2**63 - 1)],
        partition: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
        back: Annotated[bool, Query(description="from the target to the source")] = False,
    ) -> Mapping[str, Any]:
        """Translate a position, the next offset to read, from the source of a mirror to its target by the
        offset map. ``precision``: exact, next (the target has no record at that offset), bounded
        (``read_again`` records come again), or unknown (``translated`` is null, ``why`` has the reason)."""
        return operations().translate(mirror, TopicPartition(topic, partition), offset, back)


def _add_operations(pages: PageRouter, operations: Callable[[], HasMirrorOperations]) -> None:
    @pages.page("/mirrors/{mirror}/{action}", "monitor/mirror_action.html")
    def mirror_plan(
        request: Request,
        mirror: str,
        action: str,
        topic: Topics = None,
        tail: Text = "replay",
        delete_copies: bool = False,
        export: bool = False,
        newest: Annotated[int | None, Query(ge=1, description="of verify")] = None,
    ) -> MirrorPlan:
        """Plan of an operation: apply, verify, pause, resume, abort, drop, rehearse, switchover, failover,
        failback, promote. Reads both clusters, changes nothing."""
        asked = checked_request(
            mirror, action, split_values(topic), tail, delete_copies, export=export, newest=newest
        )
        return operations().plan(asked)

    @pages.routes.post("/api/mirrors/{mirror}/{action}", tags=["pages"], response_model=None)
    def operate_mirror(mirror: str, action: str, body: MirrorOperation) -> Mapping[str, Any] | MirrorPlan:
        """Carry out an operation, and answer when it is complete. With ``dry_run`` return its plan alone. If
        the server stops meanwhile, a change of ownership continues with ``resume``."""
        asked = body.request(mirror, action)
        if body.dry_run:
            return operations().plan(asked)
        check_confirmed(asked, body.name)
        return operations().act(asked, done_by(body.by), body.wait_s)

    @pages.routes.post("/mirrors/{mirror}/{action}", include_in_schema=False)
    async def operate(request: Request, mirror: str, action: str) -> Response:
        def act(values: PostedForm) -> None:
            topics = split_values([values.get("topic", "")])
            asked = checked_request(
                mirror,
                action,
                topics,
                values.get("tail", "replay"),
                values.get("delete_copies") == "true",
                export=values.get("export") == "true",
                confirmed=values.get("plan") or None,
            )  # a comparison from the page is of everything
            check_confirmed(asked, values.get("name", "").strip())
            operations().act(asked, done_by(values.get("by", "")[:200]), WAIT_S)

        return await pages.carried_out(request, act, "/mirrors")
