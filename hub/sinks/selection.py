"""[edge] sqlite3: ``where`` and ``fields`` of a sink over a page of records.

A page becomes the rows of a table in memory, and one SELECT of the hub's dialect runs over it, compiled as
every query is. No store and no Spark is needed. Records with a schema that was not seen before renew the
table's columns first.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from hub.errors import CallerError, ConfigError, NotFound
from hub.materializers.queries.compiler import compile_query
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.inspection import names_of
from hub.materializers.queries.parser import ParsedStatement, SqlError
from hub.materializers.queries.push.statement import push_statement
from hub.materializers.queries.relations import Compiled, OutputColumn, QueryRelation
from hub.materializers.queries.running import RunningQuery, refusal, take_rows
from hub.materializers.queries.sqlite_functions import fence, prepare, unfence
from hub.materializers.queries.topic_columns import META, VALUE
from hub.materializers.queries.topic_rows import TopicTables
from hub.record import Record
from hub.schema_registry.codecs.wire_format import Undecodable, unframe
from hub.sinks.events import RefusedRecord, SinkEvent
from hub.sinks.sinks_file import SinkEntry
from hub.times import epoch_ms

_PAGE_S = 30.0
_MOST_ROWS = 10_000
_PLACE = ("_hub_partition", "_hub_offset")


@dataclass(frozen=True, slots=True)
class Selected:
    """Events of a page, in its order, and the records that cannot be decoded or computed."""

    events: list[SinkEvent]
    refused: list[RefusedRecord]


def statement_of(entry: SinkEntry, *, whole: bool = False) -> ParsedStatement:
    """Return the SELECT of a sink, with each row's partition and offset as the last columns. ``whole``: the
    source has no columns, so a row is the record's value.

    Raises SqlError for a condition or field that is not stateless SQL over one table.
    """
    listed = ",\n".join(entry.fields) if entry.fields else VALUE if whole else "*"
    where = f"\nWHERE (\n{entry.where}\n)" if entry.where else ""
    push = push_statement(f'SELECT {listed}\nFROM "{entry.source}"{where}\nEMIT CHANGES')
    if push is None or push.limit is not None or push.table != entry.source:
        raise SqlError("`where` is one condition, and `fields` are expressions", code="HUB-1820")
    tree = push.statement.tree.copy()
    assert isinstance(tree, exp.Select)
    for name, shown in zip(("_partition", "_offset"), _PLACE, strict=True):
        tree = tree.select(exp.alias_(exp.column(name), shown, quoted=True), copy=False)
    return ParsedStatement(push.statement.text, tree)


@dataclass
class SinkSelection:
    """The selection of one sink. Not thread safe."""

    entry: SinkEntry
    topics: TopicTables
    _statement: ParsedStatement = field(init=False)
    _whole: bool = False
    _table: EventTable | None = None
    _schemas: set[int] = field(default_factory=set)
    _compiled: tuple[float, Compiled] | None = None
    _database: sqlite3.Connection | None = None

    def __post_init__(self) -> None:
        self._statement = statement_of(self.entry)

    @property
    def columns(self) -> Sequence[OutputColumn]:
        """Return the columns of rows. Raises SqlError, NotFound (HUB-1823), PeerError."""
        return [each for each in self._ready().columns if self._is_shown(each.name)]

    def select(self, records: Sequence[Record]) -> Selected:
        """Return the events of a page. Raises SqlError, NotFound (HUB-1823) for a topic that is gone,
        PeerError.
        """
        self._renew(records)
        selected = Selected([], [])
        live = [each for each in records if each.value is not None]
        rows, failed = self._rows(live) if live else ({}, {})
        for record in records:
            place = (record.partition, record.offset)
            if record.unread is not None or place in failed:
                selected.refused.append(RefusedRecord(record, record.unread or failed[place]))
            elif record.value is None:
                selected.events.append(SinkEvent(record, None))
            elif place in rows:
                selected.events.append(SinkEvent(record, rows[place]))
            elif self.entry.of_view:
                selected.events.append(SinkEvent(record, None, left=True))
        return selected

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    # ---- the table

    def _renew(self, records: Iterable[Record]) -> None:
        """Read the columns again if a record has a schema that was not seen before."""
        new = {each for each in _schema_ids(records) if each not in self._schemas}
        if new or self._table is None:
            self.close()
            self._table = self._compiled = None
            self._schemas |= new

    def _open_table(self) -> tuple[EventTable, sqlite3.Connection]:
        if self._table is None:
            self._table = self.topics.table(self.entry.source)
            if self._table is None:
                raise NotFound(
                    f'topic "{self.entry.source}" does not exist',
                    hint="create it (hub topic apply, or the view), or correct `from` in sinks.yaml",
                    code="HUB-1823",
                )
            self._whole = not self.entry.fields and not self._table.columns.keys() - META.keys()
            self._statement = statement_of(self.entry, whole=self._whole)
        if self._database is None:
            self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            prepare(self._database)
            listed = ", ".join('"' + each.replace('"', '""') + '"' for each in _names(self._table))
            self._database.execute(f'CREATE TABLE "events_0" ({listed})')
        return self._table, self._database

    def _ready(self) -> Compiled:
        """Return the compiled statement; it is compiled again every second, for functions of the time."""
        table, _ = self._open_table()
        now_s = time.monotonic()
        if self._compiled is None or now_s - self._compiled[0] > 1.0:
            now_ms = epoch_ms()
            found = compile_query(
                self._statement, _OneTable(table), postgres=False, parameters={}, now_ms=now_ms
            )
            self._compiled = (now_s, found)
        return self._compiled[1]

    # ---- rows

    def _rows(
        self, records: Sequence[Record]
    ) -> tuple[dict[tuple[int, int], dict[str, Any]], dict[tuple[int, int], str]]:
        """Return the rows by partition and offset, and the records without one that failed, with reasons."""
        ready = self._ready()
        table, database = self._open_table()
        named = names_of(self._statement)
        loaded, unreadable = self.topics.rows(table, named, records)
        try:
            rows, more = self._run(database, ready, list(loaded.rows))
        except SqlError as error:
            if len(records) == 1:
                return {}, {(records[0].partition, records[0].offset): error.message}
            more = True
        if (more or unreadable) and len(records) > 1:  # larger than an answer may be, or to find which
            middle = len(records) // 2
            first, second = self._rows(records[:middle]), self._rows(records[middle:])
            return first[0] | second[0], first[1] | second[1]
        if unreadable:
            place = (records[0].partition, records[0].offset)
            return {}, {place: "its bytes do not fit its schema id, or it is not JSON"}
        names = [each.name for each in ready.columns[:-2]]
        shown = [self._is_shown(each) for each in names]
        found = {}
        for row in rows:
            cells = zip(names, row[:-2], shown, strict=True)
            found[row[-2], row[-1]] = self._row({name: value for name, value, keep in cells if keep})
        return found, {}

    def _run(
        self, database: sqlite3.Connection, ready: Compiled, rows: list[Sequence[Any]]
    ) -> tuple[list[list[Any]], bool]:
        running = RunningQuery(time.monotonic() + _PAGE_S)
        database.execute('DELETE FROM "events_0"')
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f'INSERT INTO "events_0" VALUES ({marks})', rows)
        fence(database, frozenset({"events_0"}))
        database.set_progress_handler(lambda: running.over, 10_000)
        try:
            with closing(database.cursor()) as cursor:
                cursor.execute(ready.sql, dict(ready.parameters))
                return take_rows(cursor, ready.columns, running, _MOST_ROWS)
        except sqlite3.Error as error:
            raise refusal(running, str(error)) from None
        finally:
            unfence(database)

    def _is_shown(self, name: str) -> bool:
        """Return whether a column is part of a row: of ``*``, those of the record's value."""
        return name not in _PLACE and (bool(self.entry.fields) or name not in META)

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row; of a topic without a schema the record's value, if it is an object."""
        value = row.get(VALUE) if self._whole else None
        return value if isinstance(value, dict) else row


@dataclass(frozen=True, slots=True)
class _OneTable:
    """The catalog of a sink's statement: its source alone."""

    table: EventTable

    def relation(self, name: str, at_ms: int | None = None) -> QueryRelation | None:
        if at_ms is not None:
            raise CallerError("a sink sends changes as they come, without FOR SYSTEM_TIME", code="HUB-1490")
        if name != self.table.name:
            return None
        return QueryRelation(name, "topic", '"events_0"', self.table.columns, self.table.hidden)

    def names(self) -> Iterable[str]:
        return [self.table.name]


def _names(table: EventTable) -> list[str]:
    return [*table.columns, *table.hidden]


def _schema_ids(records: Iterable[Record]) -> Iterator[int]:
    for record in records:
        if record.value is not None:
            try:
                yield unframe(record.value)[0]
            except Undecodable:
                continue


def sql_refused(error: SqlError) -> ConfigError:
    """Return the error of a `where` or of `fields`, with the place in the SQL."""
    shown = f"\n{error.caret}" if error.caret else ""
    return ConfigError(f"where or fields: {error.message}{shown}", hint=error.hint, code="HUB-1820")
