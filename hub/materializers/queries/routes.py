"""[edge] FastAPI: SQL over views and recent events, and a project's saved queries.

``POST /query`` returns rows, column types, the positions that the rows cover (Hub-Position, as every read)
and the offsets that were scanned of each topic. Statements run in threads of their own, a few at a time, so a
slow one does not delay reads by key. A statement is stopped when its caller disconnects.
"""

from __future__ import annotations

import asyncio
import csv
import io
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
import orjson
from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hub.caller import CALLER, Forbidden, Unauthenticated, reads_all, sees_topic, sees_view
from hub.csv_cells import in_cell
from hub.errors import CallerError, NotFound, PeerError, nearest
from hub.materializers.progress.view_states import Newest
from hub.materializers.queries.compiler import (
    MOST_ROWS,
    Value,
    names_of,
    no_table,
    placeholders,
    since_of,
    tables_of,
)
from hub.materializers.queries.executor import EVENTS, EventTable, QueryAnswer, QueryExecutor, RunningQuery
from hub.materializers.queries.functions import FUNCTIONS, epoch_ms
from hub.materializers.queries.parser import ParsedStatement, SqlError, parse
from hub.materializers.queries.saved_queries import SavedQuery, load_queries
from hub.materializers.queries.topic_rows import DEFAULT_EVENTS, MOST_EVENTS, ScannedRange, TopicTables
from hub.materializers.serving.pull_query import only
from hub.materializers.serving.read_your_writes import POSITION_HEADER
from hub.materializers.serving.routes import no_rows_yet, wait_for
from hub.materializers.serving.subscriptions import Watcher
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.sql_store import Store
from hub.shares import ASKER, Shares

DEFAULT_ROWS = 1_000
_LONGEST_MS = 60_000
_AT_ONCE, _WAITING = 4, 32
_LOOK_S = 0.25
# Poll interval of a query that requires a common snapshot, when no apply is reported.
_CUT_LOOK_S = 0.5
_OWN = ("limit", "after", "timeout_ms", "format", "events", "since", "cut")
_MEDIA = {"json": "application/json", "ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

Format = Literal["json", "ndjson", "csv"]
T = TypeVar("T")


class QueryBody(BaseModel):
    """A query. ``events``: how many events of each partition of a topic, the last ones; ``since``: or those since then.
    ``cut``: its views must be at one place of the log."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(min_length=1, max_length=20_000)
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict, max_length=100)
    limit: int = Field(DEFAULT_ROWS, ge=1, le=MOST_ROWS)
    timeout_ms: int | None = Field(None, ge=1, le=_LONGEST_MS)
    after: str | None = None
    format: Format = "json"
    events: int = Field(DEFAULT_EVENTS, ge=1, le=MOST_EVENTS)
    since: str | None = None
    cut: Literal["required"] | None = None


def create_router(
    queries: QueryExecutor,
    store: Store,
    watcher: Watcher,
    topics: TopicTables,
    project: Path,
    query_timeout_ms: int,
    *,
    newest: Newest = dict,
    shares: Shares | None = None,
) -> APIRouter:
    """Return the routes over one store and one cluster. Saved queries are read from ``project`` on each
    request.
    """
    router = APIRouter(tags=["queries"])
    gate = _QueryGate(_AT_ONCE, _WAITING, shares)

    def not_yet(name: str) -> None:
        no_rows_yet(store, name, newest)

    async def answered(body: QueryBody, request: Request, hub_position: str | None) -> Response:
        try:
            return await _answered(body, request, hub_position)
        except SqlError as error:
            return _wrong(error)

    async def _answered(body: QueryBody, request: Request, hub_position: str | None) -> Response:
        started = time.monotonic()
        timeout_ms = query_timeout_ms if body.timeout_ms is None else body.timeout_ms
        deadline = started + min(timeout_ms, _LONGEST_MS) / 1000
        statement = parse(body.sql)
        since_ms = _since(body.since)
        with gate.admitted():
            running = RunningQuery(deadline)
            asking = _QueryCall(queries, topics, statement, body, since_ms, running, not_yet)
            token = body.after or hub_position
            if token:
                views = await gate.run(partial(queries.views_of, statement))
                reads_all(views=views)
                await wait_for(store, watcher, views, token, deadline)
            while True:
                seen = watcher.generation
                async with gate.slot(deadline):
                    answer, scanned = await _unless_gone(request, asking, gate)
                if body.cut is None or answer.cut.together:
                    break
                await _until_news(answer.cut, watcher, seen, deadline)
        return _shown(answer, scanned, body.format, round((time.monotonic() - started) * 1000))

    @router.post("/query")
    async def query(body: QueryBody, request: Request, hub_position: str | None = Header(None)) -> Response:
        """SQL over views, and over recent events: ``FROM "nyc.jfk.departures"``. Read-only; see docs/queries.md."""
        only(request.query_params, (), "POST /query: its body has the options; the address")
        return await answered(body, request, hub_position)

    @router.get("/queries")
    def saved() -> Response:
        """The project's saved queries and their parameters."""
        listed = [
            {"query": each.name, "doc": each.doc, "parameters": _parameters(each), "sql": each.sql}
            for each in load_queries(project)
            if readable(queries.view_names(), each.sql)
        ]
        return Response(orjson.dumps({"queries": listed}), media_type="application/json")

    @router.get("/queries/{name}")
    async def saved_query(
        name: str,
        request: Request,
        limit: int = DEFAULT_ROWS,
        timeout_ms: int | None = None,
        after: str | None = None,
        format: Format = "json",
        events: int = DEFAULT_EVENTS,
        since: str | None = None,
        cut: Literal["required"] | None = None,
        hub_position: str | None = Header(None),
    ) -> Response:
        """Run a saved query; its parameters are the request's: ``/queries/customer?customer_id=C-00001``."""
        found = await anyio.to_thread.run_sync(_saved, project, name)
        given: dict[str, Value] = {
            key: value for key, value in request.query_params.items() if key not in _OWN
        }
        own = {key: request.query_params[key] for key in set(_OWN) & set(_parameters(found))}
        if own:
            raise CallerError(
                f'query "{name}": a parameter cannot be called "{min(own)}" here',
                hint="give it another name in its file, or send the text to POST /query",
                code="HUB-1454",
            )
        body = QueryBody.model_construct(
            sql=found.sql,
            parameters=given,
            limit=_within("limit", limit, MOST_ROWS),
            timeout_ms=None if timeout_ms is None else _within("timeout_ms", timeout_ms, _LONGEST_MS),
            after=after,
            format=format,
            events=_within("events", events, MOST_EVENTS),
            since=since,
            cut=cut,
        )
        return await answered(body, request, hub_position)

    @router.get("/query/tables")
    def tables() -> Response:
        """What can be asked: views with their columns, and the functions."""
        views = [
            {
                "view": relation.name,
                "columns": _listed(relation.columns),
                "hidden": _listed(relation.hidden),
                "indexes": list(indexes),
            }
            for relation, indexes in queries.views()
            if sees_view(relation.name)
        ]
        return Response(
            orjson.dumps({"views": views, "functions": list(FUNCTIONS)}), media_type="application/json"
        )

    @router.get("/query/topics/{topic}")
    def topic_table(topic: str) -> Response:
        """A topic's columns as a table."""
        found = topics.table(topic)
        if found is None:
            raise NotFound(f'topic "{topic}" does not exist', hint="GET /topics lists the topics")
        body = {"topic": topic, "columns": _listed(found.columns), "hidden": _listed(found.hidden)}
        return Response(orjson.dumps(body), media_type="application/json")

    return router


def rows_of(
    queries: QueryExecutor, topics: TopicTables, sql: str, limit: int, timeout_ms: int
) -> tuple[list[str], list[list[Any]], bool]:
    """Return columns and rows of a statement and whether there are more, for callers within the server.

    The query is read-only and bounded, as every query. Blocks. Raises SqlError, PeerError.
    """
    body = QueryBody(sql=sql, limit=limit, timeout_ms=timeout_ms)
    running = RunningQuery(time.monotonic() + timeout_ms / 1000)
    answer, _ = _QueryCall(queries, topics, parse(sql), body, None, running).run()
    return [column.name for column in answer.columns], answer.rows, answer.more


def readable(known: Collection[str], sql: str) -> bool:
    """Return whether the caller may read everything that a statement names; True for text that does not
    parse.

    ``known``: names of the views.
    """
    if CALLER.get() is None:
        return True
    try:
        named = tables_of(parse(sql))
    except SqlError:
        return True
    views = [each if each in known else each.lower() for each in named if {each, each.lower()} & {*known}]
    try:
        reads_all([each for each in named if not {each, each.lower()} & {*known}], views)
    except (Forbidden, Unauthenticated):
        return False
    return True


class _QueryCall:
    """One query: ``run`` reads its events from Kafka, then runs its statement. Blocks."""

    def __init__(
        self,
        queries: QueryExecutor,
        topics: TopicTables,
        statement: ParsedStatement,
        body: QueryBody,
        since_ms: int | None,
        running: RunningQuery,
        not_yet: Callable[[str], object] = lambda _name: None,
    ) -> None:
        """``not_yet`` raises PeerError for the name of a view that has no table yet."""
        self.running = running
        self._queries = queries
        self._topics = topics
        self._statement = statement
        self._body = body
        self._since_ms = since_ms
        self._not_yet = not_yet
        self._now_ms = time.time_ns() // 1_000_000

    def run(self) -> tuple[QueryAnswer, list[ScannedRange]]:
        parameters: Mapping[str, Value] = self._body.parameters
        # Checked again here, where names become tables, so that no form of a statement bypasses it.
        known = set(self._queries.views_of(self._statement))
        reads_all(views=sorted(known))
        named = [
            name for name in tables_of(self._statement) if name not in known and name.lower() not in known
        ]
        tables = []
        for name in named:
            reads_all([name])
            found = self._topics.table(name)
            if found is None:
                self._not_yet(name)
                near = [
                    *filter(sees_view, self._queries.view_names()),
                    *filter(sees_topic, self._topics.names()),
                ]
                raise no_table(self._statement, name, near)
            tables.append(found)
        events: list[EventTable] = []
        scanned: list[ScannedRange] = []
        if tables:
            if self._body.cut is not None:
                raise _no_common_snapshot(str(EVENTS.why))
            self._queries.check(self._statement, parameters, self._now_ms, tables)
            since_ms = self._since_ms
            if since_ms is None:
                since_ms = since_of(self._statement, parameters, self._now_ms)
            wanted = names_of(self._statement)
            for table in tables:
                filled, ranges = self._topics.read(
                    table, wanted, self.running, last=self._body.events, since_ms=since_ms
                )
                events.append(filled)
                scanned += ranges
        answer = self._queries.run(
            self._statement,
            parameters,
            self.running,
            limit=self._body.limit,
            now_ms=self._now_ms,
            events=events,
            at_a_cut=self._body.cut is not None,
        )
        return answer, scanned


class _QueryGate:
    """Admission control: ``at_once`` queries run, ``waiting`` queries wait, more are refused at once.

    A caller that waits for rows (a token, a cut) is admitted but holds no slot, so other queries run
    meanwhile.
    """

    def __init__(self, at_once: int, waiting: int, shares: Shares | None = None) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._threads = anyio.CapacityLimiter(at_once * 2)
        self._most = at_once + waiting
        self._inside = 0
        self._shares = shares
        # Each caller gets at most half of the slots, so that another caller's query never waits for all of
        # them.
        self._own: dict[str, asyncio.Semaphore] = {}
        self._half = max(1, at_once // 2)
        self._asking: Counter[str] = Counter()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        if self._shares is not None:
            self._shares.require()
        if self._inside >= self._most:
            raise self._busy()
        self._inside += 1
        try:
            with nullcontext() if self._shares is None else self._shares.held():
                yield
        finally:
            self._inside -= 1

    @asynccontextmanager
    async def slot(self, deadline: float) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(max(0.001, deadline - time.monotonic())):
                    if self._shares is not None and (asker := ASKER.get()):
                        await held.enter_async_context(self._half_of(asker))
                    await held.enter_async_context(self._free)
            except TimeoutError:
                raise self._busy() from None
            yield

    @asynccontextmanager
    async def _half_of(self, asker: str) -> AsyncIterator[None]:
        """Hold one of the slots that this caller may use at the same time."""
        own = self._own.setdefault(asker, asyncio.Semaphore(self._half))
        self._asking[asker] += 1
        try:
            async with own:
                yield
        finally:
            self._asking[asker] -= 1
            if not self._asking[asker]:
                del self._asking[asker], self._own[asker]

    async def run(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    @staticmethod
    def _busy() -> PeerError:
        return PeerError(
            f"server: {_AT_ONCE} queries are running and others wait",
            hint="try again, or ask by key: that is never refused",
            code="HUB-3066",
        )


async def _until_news(found: CommonSnapshot, watcher: Watcher, seen: int, deadline: float) -> None:
    """Wait for an apply after ``seen`` that may bring the views to a common snapshot. ``found``: why there is
    none.

    Raises PeerError with that reason after the deadline, CallerError when there can never be one.
    """
    if found.name is None:
        raise _no_common_snapshot(str(found.why))
    await watcher.wait(seen, min(max(0.0, deadline - time.monotonic()), _CUT_LOOK_S))
    if time.monotonic() >= deadline:
        detail = f": {found.detail}" if found.detail and all(map(sees_view, _views(found.views))) else ""
        raise PeerError(
            f"cut: {found.why}{detail}",
            hint="ask again, with a longer timeout_ms, or without cut; hub view ls shows the group",
            code="HUB-3060",
        )


def _no_common_snapshot(why: str) -> CallerError:
    return CallerError(
        f"cut: {why}",
        hint="write the same `cut: NAME` into the files of these views; events of topics are at no cut",
        code="HUB-1455",
    )


def _views(tables: Iterable[str]) -> set[str]:
    return {table.partition("@")[0] for table in tables}


async def _unless_gone(
    request: Request, asking: _QueryCall, gate: _QueryGate
) -> tuple[QueryAnswer, list[ScannedRange]]:
    """Return the answer; stop the query when its caller disconnects. Holds the slot until the query has
    ended.
    """
    done = threading.Event()

    async def watch() -> None:
        while not done.is_set():
            if await request.is_disconnected():
                asking.running.cancel()
                return
            await asyncio.sleep(_LOOK_S)

    watching = asyncio.create_task(watch())
    try:
        return await gate.run(asking.run)
    except asyncio.CancelledError:
        asking.running.cancel()
        raise
    finally:
        done.set()
        watching.cancel()


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return epoch_ms(text)
    except (ValueError, OverflowError):
        raise CallerError(
            f'since "{text[:40]}" is no time', hint="ISO 8601, such as 2026-01-31T12:00:00Z", code="HUB-1423"
        ) from None


def _saved(project: Path, name: str) -> SavedQuery:
    known = {each.name: each for each in load_queries(project)}
    if name not in known:
        guess = nearest(name, known)
        raise NotFound(
            f'query "{name}" does not exist',
            hint=f'did you mean "{guess}"?'
            if guess
            else "GET /queries lists them; they are files queries/*.sql",
            code="HUB-1453",
        )
    return known[name]


def _parameters(query: SavedQuery) -> list[str]:
    try:
        return placeholders(parse(query.sql))
    except SqlError:
        return []


def _within(name: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise CallerError(f"{name} {value} is not between 1 and {most}", code="HUB-1424")
    return value


def _listed(columns: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in columns.items()]


def _wrong(error: SqlError) -> Response:
    body = {
        "error_code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "caret": error.caret,
    }
    return Response(orjson.dumps(body), 400, media_type="application/json")


def _shown(answer: QueryAnswer, scanned: list[ScannedRange], form: Format, elapsed_ms: int) -> Response:
    names = [column.name for column in answer.columns]
    columns = [{"name": column.name, "type": column.kind} for column in answer.columns]
    told = [each.as_json() for each in scanned]
    headers = {"Hub-More": "true" if answer.more else "false"}
    if answer.positions:
        headers[POSITION_HEADER] = str(answer.positions)
    cut = None
    if answer.cut.together:
        cut = {"name": answer.cut.name, "at": str(answer.cut.at)}
        headers["Hub-Cut"] = str(answer.cut.name)
    if form == "json":
        body = {
            "columns": columns,
            "rows": [dict(zip(names, row, strict=True)) for row in answer.rows],
            "more": answer.more,
            "views": list(answer.views),
            "positions": str(answer.positions),
            "cut": cut,
            "scanned": told,
            "elapsed_ms": elapsed_ms,
        }
        return Response(orjson.dumps(body), 200, headers, _MEDIA[form])
    headers["Hub-Scanned"] = ",".join(
        f"{each.topic}:{each.partition}:{each.start}-{each.end}" for each in scanned
    )
    if form == "ndjson":
        lines = b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in answer.rows)
        return Response(lines, 200, headers, _MEDIA[form])
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([in_cell(name) for name in names])
    writer.writerows([in_cell(_field(value)) for value in row] for row in answer.rows)
    return Response(text.getvalue().encode(), 200, headers, _MEDIA[form])


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value
