"""[edge] FastAPI: the workbench. Sampled topics, plans and previews of a statement, and its files.

Errors of a statement have ``line`` and ``column`` in the statement's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from hub.access_log.actions import LoggedAction
from hub.access_log.request import log_change, note_sql
from hub.errors import HubError
from hub.materializers.queries.parser import MOST_CHARACTERS, without_literals
from hub.materializers.sql_rules.spark_functions import FUNCTIONS
from hub.materializers.workbench.samples import MOST_EVENTS, sample, visible_fields
from hub.materializers.workbench.service import Workbench, create_view, statement_select
from hub.materializers.workbench.statement import first_statement, place_of

_EVENTS = 20
_MOST_TEST = 4_000_000


class StatementBody(BaseModel, extra="forbid"):
    """A CREATE MATERIALIZED VIEW. ``events``: how many of each source a preview takes."""

    sql: str = Field(min_length=1, max_length=MOST_CHARACTERS)
    events: int = Field(_EVENTS, ge=1, le=MOST_EVENTS)


class SaveBody(BaseModel, extra="forbid"):
    """A CREATE MATERIALIZED VIEW, and the text of its golden test."""

    sql: str = Field(min_length=1, max_length=MOST_CHARACTERS)
    test: str | None = Field(None, max_length=_MOST_TEST)


def create_router(workbench: Workbench) -> APIRouter:
    """Return the routes of a workbench."""
    router = APIRouter(tags=["workbench"], prefix="/api/workbench")

    @router.get("/functions")
    def functions() -> Response:
        """The functions of Spark SQL."""
        return _json({"functions": sorted(FUNCTIONS)})

    @router.get("/topics/{topic}")
    def topic(topic: str, events: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = _EVENTS) -> Response:
        """A topic's fields with their types in Spark SQL, its newest events as the caller sees them, and
        a first statement."""
        fields = visible_fields(workbench.topics, topic)
        found = sample(workbench.topics, topic, events)
        return _json(
            {
                "topic": topic,
                "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
                "events": [asdict(each) for each in found.events],
                "unreadable": found.unreadable,
                "statement": first_statement(topic, fields),
            }
        )

    @router.post("/plan")
    def plan(body: StatementBody) -> Response:
        """The file that a statement would write, and how the view would be maintained. Nothing is written."""
        with _placing(body.sql):
            return _json(workbench.plan(body.sql))

    @router.post("/preview")
    def preview(body: StatementBody) -> Response:
        """The plan, and the rows that the view makes of recent events, computed by Spark as in
        `hub view test`. Nothing is written."""
        with _placing(body.sql):
            note_sql(lambda: without_literals(body.sql), ())
            return _json(workbench.preview(body.sql, body.events))

    @router.post("/save")
    async def save(body: SaveBody) -> Response:
        """Write the view's file, as the statement itself does, and its golden test."""
        with _placing(body.sql):
            note_sql(lambda: without_literals(body.sql), ())
            await log_change(LoggedAction.view_change, "view", create_view(body.sql).name)
            return _json(await run_in_threadpool(workbench.save, body.sql, body.test))

    return router


@contextmanager
def _placing(text: str) -> Iterator[None]:
    """Add the place of an error in the statement's text to its details."""
    try:
        yield
    except HubError as error:
        place = place_of(error, text, statement_select(text))
        if place is not None:
            line, column = place
            error.details = {"line": str(line), "column": "" if column is None else str(column)}
        raise


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body, default=str), media_type="application/json")
