"""[edge] FastAPI: count, list, show, repair, replay and dismiss dead-letter records.

Repair scripts are available on the command line only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from hub.caller import done_by, reads_all, sees_topic, topic_visibility
from hub.errors import CallerError, PeerError
from hub.topics.dead_letters.event_builder import Repair, sets, whole
from hub.topics.dead_letters.listing import dead_letter_row, page
from hub.topics.dead_letters.model import RecordPlace, State
from hub.topics.dead_letters.queue import DeadLetters

# Each request reads whole topics in one of the server's threads.
_MOST_AT_ONCE = 4
MOST_RECORDS = 500
MOST_ANSWER_BYTES = 8 << 20


class RepairBody(BaseModel, extra="forbid"):
    """``set``: fields by path; ``value``: the whole event; ``schema_id``: what the bytes are. One of the
    first two, or none.
    """

    set: dict[str, Any] | None = None
    value: Any = None
    schema_id: int | None = None
    key: str | None = None
    why: str | None = Field(None, max_length=1_000)
    by: str = Field("http", min_length=1, max_length=100)
    dry_run: bool = False


class ReplayBody(BaseModel, extra="forbid"):
    """Options of a replay."""

    as_is: bool = False
    by: str = Field("http", min_length=1, max_length=100)
    dry_run: bool = False


class DismissBody(BaseModel, extra="forbid"):
    """Why nothing is to be done; ``undo`` takes it back."""

    why: str | None = Field(None, max_length=1_000)
    by: str = Field("http", min_length=1, max_length=100)
    undo: bool = False


class ManyBody(BaseModel, extra="forbid"):
    """Records of one dead-letter topic, as (partition, offset). All are checked before one is changed."""

    records: list[tuple[int, int]] = Field(min_length=1, max_length=MOST_RECORDS)

    def places(self, topic: str) -> list[RecordPlace]:
        return [RecordPlace(topic, partition, offset) for partition, offset in self.records]


class ReplayManyBody(ManyBody, ReplayBody):
    """Records to replay."""


class DismissManyBody(ManyBody, DismissBody):
    """Records to dismiss."""


def create_router(letters: DeadLetters) -> APIRouter:
    """Build the dead-letter routes for one cluster."""
    router, api = APIRouter(tags=["dead letters"]), _DeadLetterRoutes(letters)
    router.get("/dlq")(api.counts)
    router.get("/dlq/{topic}")(api.listed)
    router.post("/dlq/{topic}/replay")(api.replay_many)
    router.post("/dlq/{topic}/dismiss")(api.dismiss_many)
    router.get("/dlq/{topic}/{partition}/{offset}")(api.shown)
    router.post("/dlq/{topic}/{partition}/{offset}/repair")(api.repair)
    router.post("/dlq/{topic}/{partition}/{offset}/replay")(api.replay)
    router.post("/dlq/{topic}/{partition}/{offset}/dismiss")(api.dismiss)
    return router


class _DeadLetterRoutes:
    """Handlers of the routes. Few requests run at a time: each reads whole topics in one of the server's
    threads.
    """

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if not self._room.acquire(blocking=False):
            raise PeerError(f"{_MOST_AT_ONCE} requests already read dead-letter records", hint="try again")
        try:
            yield
        finally:
            self._room.release()

    def counts(self, topic: str | None = None) -> Response:
        """Return one row per topic with dead-letter records: counts by state, reason, producer and view,
        and ages."""
        with self._admitted():
            if topic is not None:
                reads_all(self._letters.resolved(topic))
            rows, complete = self._letters.heaps(topic)
        return _json({"topics": [row for row in rows if sees_topic(row["topic"])], "complete": complete})

    def listed(
        self,
        topic: str,
        state: State | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        after: str | None = None,
    ) -> Response:
        """List the dead-letter records of a topic, oldest first. Without ``state``: those that are not
        closed. ``after``: ``next`` of the previous page. A response has 8 MB at most, or one record."""
        behind = None if after is None else RecordPlace.parse(after)
        with self._admitted():
            named = self._letters.resolved(topic)
            reads_all(named)
            _require_open(named)
            found = self._letters.letters(named)
        wanted = ("open", "repaired") if state is None else (state,)
        chosen = (each for each in found.letters if each.state in wanted)
        shown_page = page(chosen, dead_letter_row, limit, MOST_ANSWER_BYTES, behind)
        following = None if shown_page.after is None else str(shown_page.after)
        return _json(
            {
                "letters": shown_page.rows,
                "more": shown_page.more,
                "next": following,
                "complete": found.complete,
            }
        )

    def shown(self, topic: str, partition: int, offset: int) -> Response:
        """Show one dead-letter record, decoded as far as possible."""
        _require_open([topic])
        with self._admitted():
            return _json(self._letters.show(RecordPlace(topic, partition, offset)))

    def repair(self, topic: str, partition: int, offset: int, body: RepairBody) -> Response:
        """Repair the event; with ``dry_run`` only show the repaired event."""
        _require_open([topic])
        whole_event = "value" in body.model_fields_set
        if whole_event and body.set is not None:
            raise CallerError("set and value both say what the event is to be", hint="say one of them")
        change = None
        if whole_event:
            change = whole(body.value)
        elif body.set is not None:
            change = sets(list(body.set.items()))
        if change is None and body.schema_id is None and body.key is None:
            raise CallerError("the repair is missing", hint="set, value, schema_id or key")
        how = Repair(change, body.schema_id, body.key)
        with self._admitted():
            place = RecordPlace(topic, partition, offset)
            (row,) = self._letters.repair([place], how, done_by(body.by), why=body.why, dry_run=body.dry_run)
        return _json(row)

    def replay(self, topic: str, partition: int, offset: int, body: ReplayBody | None = None) -> Response:
        """Append the event to its original topic. Idempotent: a repetition appends nothing, and ``done``
        is ``before``.
        """
        _require_open([topic])
        options = body or ReplayBody()
        with self._admitted():
            place = RecordPlace(topic, partition, offset)
            (row,) = self._letters.replay(
                [place], done_by(options.by), as_is=options.as_is, dry_run=options.dry_run
            )
        return _json(row)

    def dismiss(self, topic: str, partition: int, offset: int, body: DismissBody | None = None) -> Response:
        """Close the dead-letter record without a replay."""
        _require_open([topic])
        options = body or DismissBody()
        with self._admitted():
            place = RecordPlace(topic, partition, offset)
            (row,) = self._letters.dismiss([place], done_by(options.by), why=options.why, undo=options.undo)
        return _json(row)

    def replay_many(self, topic: str, body: ReplayManyBody) -> Response:
        """Append the events of many records to their original topics; with ``dry_run`` only show where to.
        Idempotent. One that cannot be replayed refuses all of them."""
        _require_open([topic])
        with self._admitted():
            rows = self._letters.replay(
                body.places(topic), done_by(body.by), as_is=body.as_is, dry_run=body.dry_run
            )
        return _json({"letters": rows})

    def dismiss_many(self, topic: str, body: DismissManyBody) -> Response:
        """Close many records without a replay."""
        _require_open([topic])
        with self._admitted():
            rows = self._letters.dismiss(body.places(topic), done_by(body.by), why=body.why, undo=body.undo)
        return _json({"letters": rows})


def _require_open(topics: Iterable[str]) -> None:
    """Raise MaskRefused for a topic of which the caller does not see everything."""
    for topic in topics:
        topic_visibility(topic).require_open("the dead-letter pages")


def _json(body: object) -> Response:
    return Response(orjson.dumps(body, default=str), media_type="application/json")
