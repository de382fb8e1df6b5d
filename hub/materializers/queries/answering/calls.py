"""[edge] One query of a caller: its body, its events from Kafka, and its statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from hub.caller import reads_all, sees_topic, sees_view
from hub.errors import CallerError
from hub.materializers.queries.answering.whole_reads import read_whole
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import (
    names_of,
    no_table,
    placeholders,
    references_of,
    since_of,
    tables_of,
    times_of,
)
from hub.materializers.queries.parser import ParsedStatement, parse
from hub.materializers.queries.relations import Compiled, Value
from hub.materializers.queries.running import (
    EVENTS,
    MOST_ROWS,
    QueryAnswer,
    RunningQuery,
    TakeRows,
    take_rows,
)
from hub.materializers.queries.topic_rows import DEFAULT_EVENTS, MOST_EVENTS, ScannedRange, TopicTables
from hub.materializers.queries.whole_topic import WholeRead
from hub.record import Positions
from hub.times import epoch_ms

DEFAULT_ROWS = 1_000
LONGEST_MS = 60_000
# Rows of an answer in Arrow's form, which is written to a file and not held in memory.
MOST_ARROW_ROWS = 5_000_000
Format = Literal["json", "ndjson", "csv", "arrow"]
EventCount = Annotated[int, Field(ge=1, le=MOST_EVENTS)] | Literal["all"]


class QueryBody(BaseModel, extra="forbid"):
    """A query. ``events``: how many events of each partition of a topic, the last ones; ``since``: or those
    since then; ``all``: all of its archive and its log. ``before``: a position; of the whole topic, what is
    before it.
    ``cut``: its views must be at one place of the log."""

    sql: str = Field(min_length=1, max_length=20_000)
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict, max_length=100)
    format: Format = "json"
    limit: int = Field(DEFAULT_ROWS, ge=1, le=MOST_ARROW_ROWS)
    timeout_ms: int | None = Field(None, ge=1, le=LONGEST_MS)
    after: str | None = None
    events: EventCount = DEFAULT_EVENTS
    since: str | None = None
    before: str | None = None
    cut: Literal["required"] | None = None

    @field_validator("limit")
    @classmethod
    def _fits_the_format(cls, limit: int, known: ValidationInfo) -> int:
        if limit > MOST_ROWS and known.data.get("format") != "arrow":
            raise ValueError(f"Input should be less than or equal to {MOST_ROWS}; format arrow takes more")
        return limit


def rows_of(
    queries: QueryExecutor, topics: TopicTables, sql: str, limit: int, timeout_ms: int
) -> tuple[list[str], list[list[Any]], bool]:
    """Return columns and rows of a statement and whether there are more, for callers within the server.

    The query is read-only and bounded, as every query. Blocks. Raises SqlError, PeerError.
    """
    body = QueryBody(sql=sql, limit=limit, timeout_ms=timeout_ms)
    running = RunningQuery(time.monotonic() + timeout_ms / 1000)
    answer, _ = QueryCall(queries, topics, parse(sql), body, None, running).run()
    return [column.name for column in answer.columns], answer.rows, answer.more


class QueryCall:
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
        take: TakeRows = take_rows,
    ) -> None:
        """``not_yet`` raises PeerError for the name of a view that has no table yet. ``take``: see
        QueryExecutor.run.
        """
        self._take = take
        self.running = running
        self._queries = queries
        self._topics = topics
        self._statement = statement
        self._body = body
        self._since_ms = since_ms
        self._not_yet = not_yet
        self._now_ms = epoch_ms()

    def describe(self) -> Compiled:
        """Return the statement's columns and what its parameters have to be; no row is read. Blocks."""
        tables = self._tables()
        return self._queries.check(self._statement, self._body.parameters, self._now_ms, tables)

    def _tables(self) -> list[EventTable]:
        """Return the topics of the statement. Raises Forbidden, and SqlError for an unknown name."""
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
            tables.append(replace(found, whole=self._is_whole(name)))
        return tables

    def _is_whole(self, topic: str) -> bool:
        """Return whether the statement reads all of a topic: by ``events``, ``before`` or AS OF."""
        body = self._body
        return body.events == "all" or body.before is not None or topic in dict(self._times())

    def _times(self) -> list[tuple[str, int]]:
        return times_of(self._statement, self._body.parameters, self._now_ms)

    def _read(
        self, table: EventTable, wanted: frozenset[str], since_ms: int | None
    ) -> tuple[EventTable, list[ScannedRange]]:
        """Return a topic's table with its rows, and the ranges that were read."""
        body = self._body
        if not table.whole:
            last = DEFAULT_EVENTS if body.events == "all" else body.events
            return self._topics.read(table, wanted, self.running, last=last, since_ms=since_ms)
        references = sum(each == table.name for each in references_of(self._statement))
        times = [at_ms for name, at_ms in self._times() if name == table.name]
        # Without a time for each reference to the topic, one of them reads it to its end.
        until_ms = max(times) if times and len(times) == references else None
        before = None if body.before is None else Positions.parse(body.before).of_topics([table.name])
        whole_read = WholeRead(since_ms, until_ms, before or None)
        wanted |= {"_timestamp"} if times else set()
        return read_whole(self._topics, table, wanted, self.running, whole_read)

    def run(self) -> tuple[QueryAnswer, list[ScannedRange]]:
        parameters: Mapping[str, Value] = self._body.parameters
        tables = self._tables()
        events: list[EventTable] = []
        scanned: list[ScannedRange] = []
        if tables:
            if self._body.cut is not None:
                raise no_common_snapshot(str(EVENTS.why))
            self._queries.check(self._statement, parameters, self._now_ms, tables)
            since_ms = self._since_ms
            if since_ms is None:
                since_ms = since_of(self._statement, parameters, self._now_ms)
            wanted = names_of(self._statement)
            for table in tables:
                filled, ranges = self._read(table, wanted, since_ms)
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
            take=self._take,
        )
        return answer, scanned


def compiled_query(queries: QueryExecutor, topics: TopicTables, statement: ParsedStatement) -> Compiled:
    """Compile a statement as a call would, with NULL for its parameters; no row is read. Blocks.

    Raises SqlError, Forbidden, PeerError.
    """
    body = QueryBody(sql=statement.text, parameters=dict.fromkeys(placeholders(statement)))
    running = RunningQuery(time.monotonic() + LONGEST_MS / 1000)
    return QueryCall(queries, topics, statement, body, None, running).describe()


def no_common_snapshot(why: str) -> CallerError:
    return CallerError(
        f"cut: {why}",
        hint="write the same `cut: NAME` into the files of these views; events of topics are at no cut",
        code="HUB-1455",
    )
