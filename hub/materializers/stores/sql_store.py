"""[edge] SQLAlchemy Core: a view as a table, in SQLite (embedded) or Postgres (production), by the same code.

A row is replaced only by a row with a higher ``_version``; a deleted row stays as a tombstone with its
version, so that late replays cannot restore it and subscribers get the delete. Rows, changelog positions and
source positions are written in one transaction; a reader sees all of a batch or nothing.

Every read looks up the view's definition in its own transaction, so it never meets a table that another
process has changed meanwhile. ``incarnation`` identifies the meaning of changelog positions for a subscriber:
it changes with the changelog topic, and when rows were removed without a record of their own
(``ViewBatch.expire_below``).

A view may have several tables, one per version (``customer_360@2``). The applier and ``cut`` name the table;
reads name the view and get the table that ``serve`` set last, looked up in the reading transaction.

Durability: SQLite runs in WAL mode with ``synchronous=NORMAL``. A power cut may lose the last transactions,
positions and rows together, and the changelog still has them; a killed process loses nothing. Readers never
wait for the writer.

Limitations: one applier per store (a second one is harmless, by the version rule, and useless); ``count``
reads the whole table; Postgres cannot store NUL in a text, which becomes U+FFFD there.
"""

from __future__ import annotations

import operator
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from hashlib import sha256
from typing import Any

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    PoolProxiedConnection,
    ScalarSelect,
    Select,
    String,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    collate,
    create_engine,
    delete,
    event,
    false,
    func,
    inspect,
    literal,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.materializers.definition.declared import table_of
from hub.materializers.snapshot_groups.in_store import (
    CommonSnapshot,
    StoredMember,
    common_snapshot,
    keys_of,
    label_of,
)
from hub.materializers.stores.columns import Convert, from_sql, json_text, sql_type, stored_alike
from hub.materializers.stores.postgres_copy import copy_and_merge, driver_refused, is_driver_error
from hub.materializers.stores.store import (
    KeptRow,
    Meanwhile,
    Rhythm,
    RowChange,
    RowKind,
    StoreSnapshot,
    ViewBatch,
)
from hub.materializers.stores.stored_row import RowShaper, sources_text, without_nul
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions, TopicPartition

# Column, operator (eq gt gte lt lte), value in the column's stored form.
Filter = tuple[str, str, Any]

# Rows per statement; bounds memory and the time that the write lock is held between steps.
_CHUNK = 10_000
# Postgres takes this many rows or more by COPY; for fewer, the temporary table costs more than it saves.
_COPY_FROM = 200
# When two processes open a new SQLite file at once, one waits for the other's switch to WAL.
_OPEN_TRIES, _OPEN_PAUSE_S = 100, 0.05
# Number of leading columns of ``row_query`` that identify the table it was made for.
MARKS = 5
# More digits than any Avro decimal of the hub has; rounding raises.
_EXACTLY = Context(prec=100, traps=[Inexact, InvalidOperation])
# Postgres truncates longer names, possibly to the same name.
_LONGEST_NAME = 63


class StoreRefused(PeerError):
    """The database answers and refuses these rows or this table; a retry fails again."""

    code = "HUB-3041"
    retriable = False


class BuiltAnew(HubError):
    """The view's rows are of another incarnation than the requested one: read it from its start."""

    code = "HUB-1431"


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as read; ``values`` None: deleted. ``sources``: the latest event of each source in it."""

    key: str
    version: int
    partition: int
    offset: int
    values: Mapping[str, Any] | None
    sources: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows in (partition, offset) order, the changelog positions for the next call, and the source positions
    covered.
    """

    rows: list[StoredRow]
    positions: Positions
    sources: Positions


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view's table: Avro types of its columns in order, declared indexes, and changelog topic."""

    name: str
    topic_id: str
    incarnation: str
    types: Mapping[str, AvroType]
    indexes: tuple[str, ...]
    table: Table
    shaper: RowShaper
    upsert: str
    show: tuple[tuple[str, Convert], ...]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One of two compared tables: column types, the source positions that its rows cover, and live rows."""

    types: Mapping[str, AvroType]
    sources: Positions
    rows: Callable[[], Iterator[KeptRow]]


class Store:
    """A store in SQLite or Postgres. Thread-safe. One writer at a time; readers never wait for it."""

    rhythm = Rhythm(10_000, few=1_000, pause_s=0.025)

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _engine(url)
        self._postgres = self.engine.dialect.name == "postgresql"
        self._writer = self.engine.execution_options(hub_writes=True)
        # Several statements of a read see one moment; SQLite's transactions always do.
        self._reader = (
            self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            if self._postgres
            else self.engine
        )
        self._metadata = MetaData()
        self._positions = Table(
            "hub_positions",
            self._metadata,
            Column("view", String(80), primary_key=True),
            Column("kind", String(16), primary_key=True),
            Column("topic", String(249), primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("next_offset", BigInteger, nullable=False),
        )
        self._progress = Table(
            "hub_progress",
            self._metadata,
            Column("key", String(128), primary_key=True),
            Column("value", JSON, nullable=False),
        )
        self._views = Table(
            "hub_views",
            self._metadata,
            Column("view", String(80), primary_key=True),
            Column("topic_id", String(64), nullable=False),
            Column("schema", JSON, nullable=False),
            Column("indexes", JSON, nullable=False),
        )
        # Building statements took SQLAlchemy a third of a small transaction, so these are built once.
        self._upserts = {
            each.name: _upsert_of(self.engine, each)
            for each in (self._positions, self._progress, self._views)
        }
        self._defining, self._placed = self._of_views(), self._of_positions()
        self._known: dict[str, ViewTable] = {}
        self._lock = threading.Lock()
        self._peephole: PoolProxiedConnection | None = None
        with self._errors():
            self._open()

    def _open(self) -> None:
        for attempt in range(_OPEN_TRIES):
            try:
                with self._writer.begin() as connection:
                    if self._postgres:  # IF NOT EXISTS alone races in the catalog
                        connection.execute(select(func.pg_advisory_xact_lock(_lock_number("hub_positions"))))
                    self._metadata.create_all(connection)
                return
            except OperationalError as error:
                if "locked" not in str(error) or attempt == _OPEN_TRIES - 1:
                    raise
                time.sleep(_OPEN_PAUSE_S)

    def close(self) -> None:
        if self._peephole is not None:
            self._peephole.close()
        self.engine.dispose()

    # ---- tables

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        """Make the view's table fit a changelog schema. Returns True when it was recreated and must be filled
        from the start.

        It is recreated for another topic or a changed column type. Columns and indexes are added and removed
        without that. Raises CallerError when a field has a name that the table reserves.
        """
        types = {each["name"]: each["type"] for each in schema["fields"] if not each["name"].startswith("_")}
        if "key" in types:
            raise CallerError(
                f'view "{name}": a field cannot be called "key"',
                hint="the row's key is shown under that name already; give the field another one",
                code="HUB-1412",
            )
        table = _table(name, types, indexes)
        with self._errors(), self._writer.begin() as connection:
            stored = (
                connection.execute(select(self._views).where(self._views.c.view == name)).mappings().first()
            )
            fresh = (
                stored is None
                or stored["topic_id"] != topic_id
                or any(
                    not stored_alike(stored["schema"][each], kind)
                    for each, kind in types.items()
                    if each in stored["schema"]
                )
            )
            if fresh:
                table.drop(connection, checkfirst=True)
                connection.execute(delete(self._positions).where(self._positions.c.view == name))
                table.create(connection)
            elif stored is not None and (stored["schema"] != types or stored["indexes"] != list(indexes)):
                _reshape(connection, table)
            body = {"view": name, "topic_id": topic_id, "schema": dict(types), "indexes": list(indexes)}
            self._upsert(connection, self._views, [body])
        return fresh

    def drop_view(self, name: str) -> None:
        """Remove a view: its rows, positions and progress."""
        with self._errors(), self._writer.begin() as connection:
            self._definition(connection, name).table.drop(connection, checkfirst=True)
            connection.execute(delete(self._positions).where(self._positions.c.view == name))
            connection.execute(delete(self._views).where(self._views.c.view == name))
            keys = [f"{kind}:{name}" for kind in ("progress", "state", "seen", "whole")]
            connection.execute(delete(self._progress).where(self._progress.c.key.in_(keys)))

    def views(self) -> list[str]:
        """Return the names of the tables: a view's own, and those of its versions."""
        with self.reading() as connection:
            return sorted(connection.execute(select(self._views.c.view)).scalars())

    def names(self) -> list[str]:
        """Return the names of the views that can be read."""
        with self.reading() as connection:
            return self.view_names(connection)

    def view(self, name: str) -> ViewTable:
        """Return the view's current table. Raises NotFound."""
        with self.reading() as connection:
            return self.definition(connection, name)

    # ---- served versions

    def serve(self, view: str, number: int | None) -> None:
        """Serve this version of ``view`` to readers from now on (None: the table of its own name)."""
        with self._errors(), self._writer.begin() as connection:
            mark = {
                "view": f"{view}@",
                "kind": "served",
                "topic": "",
                "partition": 0,
                "next_offset": number or 0,
            }
            self._upsert(connection, self._positions, [mark])

    def served(self, view: str) -> str:
        """Return the name of the table that readers of ``view`` get."""
        with self.reading() as connection:
            return self._served(connection, view)

    def served_tables(self) -> dict[str, str]:
        """Return the served table of every view whose served table has another name than the view."""
        with self.reading() as connection:
            return self._all_served(connection)

    def _served(self, connection: Connection, view: str) -> str:
        found = connection.execute(self._placed, {"view": f"{view}@", "kind": "served"}).first()
        return table_of(view, None if found is None else found.next_offset or None)

    def _all_served(self, connection: Connection) -> dict[str, str]:
        """``served_tables()`` in the caller's transaction."""
        table = self._positions
        query = select(table.c.view, table.c.next_offset).where(table.c.kind == "served")
        return {
            view[:-1]: table_of(view[:-1], number) for view, number in connection.execute(query) if number
        }

    @contextmanager
    def side_by_side(self, view: str, other: str) -> Iterator[tuple[ComparedTable, ComparedTable]]:
        """Yield two tables at one moment, rows in the order of their keys."""
        with self.reading() as connection:
            yield self._side(connection, view), self._side(connection, other)

    def _side(self, connection: Connection, name: str) -> ComparedTable:
        known = self._definition(connection, name)
        columns = known.table.c
        kept = [
            cast(columns[each], Text) if isinstance(columns[each].type, JSON) else columns[each]
            for each in (*known.types, "_sources")
        ]

        def rows() -> Iterator[KeptRow]:
            query = select(columns.key, columns._version, *kept).where(columns._deleted.is_(False))
            streamed = connection.execution_options(yield_per=_CHUNK).execute(query.order_by(columns.key))
            for key, version, *values in streamed:
                yield key, version, values

        return ComparedTable(known.types, self._positions_of(connection, name, "source"), rows)

    # For reads in a transaction of their own (queries/executor.py, stores/prepared.py):

    def view_names(self, connection: Connection) -> list[str]:
        tables = set(connection.execute(select(self._views.c.view)).scalars())
        served = self._all_served(connection)
        views = {name.partition("@")[0] for name in tables}
        return sorted(view for view in views if served.get(view, view) in tables)

    def definition(self, connection: Connection, name: str) -> ViewTable:
        """``view()`` in the caller's transaction. Raises NotFound."""
        known = self._definition(connection, self._served(connection, name), name)
        return known if known.name == name else replace(known, name=name)

    def covered(self, connection: Connection, view: str) -> Positions:
        """Return the source positions that the view's rows cover."""
        return self._positions_of(connection, self._served(connection, view), "source")

    def common_cut(self, connection: Connection, views: Collection[str]) -> CommonSnapshot:
        """Return the common snapshot of all these views, or why they have none."""
        tables = {view: self._served(connection, view) for view in views}
        told = self._told(connection, [f"state:{table}" for table in tables.values()])
        told |= self._told(connection, keys_of(label_of(told, table) for table in tables.values()))
        members = {
            view: StoredMember(table, self._positions_of(connection, table, "changelog"))
            for view, table in tables.items()
        }
        return common_snapshot(members, told)

    def group(self, view: str) -> tuple[list[str], CommonSnapshot] | None:
        """Return the views of this one's group in this store, and their common snapshot; None without a
        group.
        """
        with self.reading() as connection:
            tables = {each: self._served(connection, each) for each in self.view_names(connection)}
            told = self._told(connection, [f"state:{table}" for table in tables.values()])
            label = label_of(told, tables.get(view, view))
            if label is None:
                return None
            views = [each for each, table in tables.items() if label_of(told, table) == label]
            return views, self.common_cut(connection, views)

    def row_query(self, connection: Connection, view: str) -> tuple[Select[Any], ViewTable]:
        """Return the statement that reads the key ``wanted``, and the view's table. Raises NotFound.

        The statement returns a row in any case: MARKS columns that identify the table and its definition, the
        covered positions, then the table's own columns, or nulls. In Postgres ``wanted`` is a list of keys,
        with one row for each in its order; only the first row has the shared columns, because a round trip
        costs more than a row.
        """
        known = self._definition(connection, self._served(connection, view), view)
        positions, views, row = self._positions, self._views, known.table
        of_view = positions.c.view == known.name
        texts = [cast(each, Text) for each in (positions.c.partition, positions.c.next_offset)]
        place = positions.c.topic + ":" + texts[0] + ":" + texts[1]
        joined = func.string_agg if self._postgres else func.group_concat

        def one(column: ColumnElement[Any], *where: ColumnElement[bool]) -> ScalarSelect[Any]:
            return select(column).where(*where).scalar_subquery()

        told = (
            one(positions.c.next_offset, positions.c.view == f"{view}@", positions.c.kind == "served"),
            one(positions.c.next_offset, of_view, positions.c.kind == "swept"),
            one(views.c.topic_id, views.c.view == known.name),
            one(cast(views.c.schema, Text), views.c.view == known.name),
            one(cast(views.c.indexes, Text), views.c.view == known.name),
            one(joined(place, ","), of_view, positions.c.kind == "source"),
        )
        if self._postgres:
            listed = func.unnest(bindparam("wanted", type_=postgresql.ARRAY(Text)))
            wanted = listed.table_valued("key", with_ordinality="place").render_derived("wanted")
            joined_row = wanted.outerjoin(row, row.c.key == wanted.c.key)
            once = (case((wanted.c.place == 1, each)) for each in told)
            return select(*once, *row.columns).select_from(joined_row).order_by(wanted.c.place), known
        anchor = select(literal(1).label("one")).subquery("anchor")
        found = row.c.key == bindparam("wanted", type_=row.c.key.type)
        return select(*told, *row.columns).select_from(anchor.outerjoin(row, found)), known

    def _told(self, connection: Connection, keys: Sequence[str]) -> dict[str, Any]:
        """Return the progress records with these keys."""
        table = self._progress
        found = connection.execute(select(table.c.key, table.c.value).where(table.c.key.in_(keys)))
        return {key: value for key, value in found}  # noqa: C416 - rows are no pairs to the type checker

    def _of_views(self) -> Select[Any]:
        """Return the statement that reads the definition of the view ``name``."""
        views, positions = self._views, self._positions
        swept = and_(positions.c.view == views.c.view, positions.c.kind == "swept")
        return (
            select(views.c.topic_id, views.c.schema, views.c.indexes, positions.c.next_offset)
            .select_from(views.outerjoin(positions, swept))
            .where(views.c.view == bindparam("name", type_=views.c.view.type))
        )

    def _of_positions(self) -> Select[Any]:
        """Return the statement that reads the positions of the kind ``kind`` of the view ``view``."""
        table = self._positions
        asked = (table.c[each] == bindparam(each, type_=table.c[each].type) for each in ("view", "kind"))
        return select(table.c.topic, table.c.partition, table.c.next_offset).where(*asked)

    def _definition(self, connection: Connection, name: str, asked: str | None = None) -> ViewTable:
        found = connection.execute(self._defining, {"name": name}).first()
        if found is None:
            raise NotFound(
                f'view "{asked or name}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        topic_id, types, indexes, mark = found
        incarnation = topic_id if mark is None else f"{topic_id}.{mark}"
        with self._lock:
            known = self._known.get(name)
        # Compared as text too: JSON objects are equal in any order, columns have one.
        if known is not None and (known.incarnation, known.indexes, known.types, list(known.types)) == (
            incarnation,
            tuple(indexes),
            types,
            list(types),
        ):
            return known
        table = _table(name, types, indexes)
        show = {each: from_sql(kind) for each, kind in types.items()}
        known = ViewTable(
            name,
            topic_id,
            incarnation,
            types,
            tuple(indexes),
            table,
            RowShaper(types, nul=not self._postgres),
            _upsert_text(connection, table, "key", "_version"),
            tuple((each, convert) for each, convert in show.items() if convert is not None),
        )
        with self._lock:
            self._known[name] = known
        return known

    def _key(self, key: str) -> str:
        return without_nul(key) if self._postgres else key

    # ---- write

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Write rows, positions and progress records (None: removed) of several views in one transaction. See
        ViewStore.

        Raises StoreRefused when the database refuses a row, PeerError when it does not answer, NotFound.
        """
        now = _now_ms()
        with self._errors(), self._writer.begin() as connection:
            for batch in batches:
                known = self._definition(connection, batch.view)
                if self._take(connection, known, batch.changes, now, meanwhile):
                    meanwhile = None
                if batch.expire_below:
                    self._expire(connection, known, batch.expire_below, now)
                kinds: tuple[tuple[RowKind, Positions], ...] = (
                    ("changelog", batch.changelog),
                    ("source", batch.sources),
                )
                positions = [
                    {
                        "view": batch.view,
                        "kind": kind,
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "next_offset": offset,
                    }
                    for kind, reached in kinds
                    for tp, offset in reached
                ]
                self._upsert(connection, self._positions, positions)
            if progress:
                gone = [key for key, value in progress.items() if value is None]
                if gone:
                    connection.execute(delete(self._progress).where(self._progress.c.key.in_(gone)))
                entries = [
                    {"key": key, "value": value} for key, value in progress.items() if value is not None
                ]
                self._upsert(connection, self._progress, entries)

    def _take(
        self,
        connection: Connection,
        known: ViewTable,
        changes: Sequence[RowChange],
        now: int,
        meanwhile: Meanwhile | None,
    ) -> bool:
        """Write rows by the driver's bulk functions: SQLAlchemy's handling of values costs more than the
        database.

        Returns whether ``meanwhile`` was called.
        """
        newest = {self._key(change.key): change for change in changes}
        if len(newest) < len(changes):  # one statement may not touch a row twice
            for change in changes:
                key = self._key(change.key)
                newest[key] = max(newest[key], change, key=lambda each: each.version)
        rows = [_row(known, key, change, now) for key, change in newest.items()]
        if self._postgres and len(rows) >= _COPY_FROM:
            copy_and_merge(connection, known.table, rows, meanwhile)
            return True
        for start in range(0, len(rows), _CHUNK):
            connection.exec_driver_sql(known.upsert, rows[start : start + _CHUNK])
        return False

    def _expire(self, connection: Connection, known: ViewTable, below: int, now: int) -> None:
        """Delete rows of versions below ``below``. Changes the incarnation, so that subscribers start over.

        No record and so no position shows these deletes.
        """
        table = known.table
        gone = and_(table.c._version < below, table.c._deleted.is_(False))
        expired = connection.execute(table.update().where(gone).values(_deleted=True, _applied_at_ms=now))
        if expired.rowcount:
            mark = {"view": known.name, "kind": "swept", "topic": "", "partition": 0, "next_offset": below}
            self._upsert(connection, self._positions, [mark])

    def _upsert(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Upsert rows of one of the store's own tables."""
        if rows:
            connection.execute(self._upserts[table.name], list(rows))

    # ---- read

    def get(self, view: str, key: str) -> StoredRow | None:
        """Return one row, deleted or not; None when the key never existed."""
        return self.read(view, key)[0]

    def read(self, view: str, key: str) -> tuple[StoredRow | None, Positions]:
        """Return one row and the source positions that the view covers, of one moment."""
        with self.reading() as connection:
            known = self.definition(connection, view)
            found = (
                connection.execute(select(known.table).where(known.table.c.key == self._key(key)))
                .mappings()
                .first()
            )
            covered = self.covered(connection, view)
        return (stored_row(known, found) if found is not None else None), covered

    def select(
        self, view: str, conditions: Iterable[Filter], limit: int, after: str | None
    ) -> list[StoredRow]:
        """Return live rows in key order that meet every (column, operator, value); operators: eq gt gte lt
        lte.
        """
        with self.reading() as connection:
            known = self.definition(connection, view)
            table = known.table
            where = [table.c._deleted.is_(False), *self._meeting(known, conditions)]
            if after is not None:
                where.append(table.c.key > self._key(after))
            query = select(table).where(*where).order_by(table.c.key).limit(limit)
            return [stored_row(known, found) for found in connection.execute(query).mappings()]

    def _meeting(self, known: ViewTable, conditions: Iterable[Filter]) -> list[ColumnElement[bool]]:
        """Return the SQL conditions. Raises CallerError for a column that the view no longer has."""
        found: list[ColumnElement[bool]] = []
        for name, comparison, value in conditions:
            if name not in known.table.c:
                raise CallerError(f'view "{known.name}" has no field "{name}"', code="HUB-1422")
            wanted = _decimal_text(value, known.types[name]) if isinstance(value, Decimal) else value
            wanted = self._key(wanted) if isinstance(wanted, str) else _bound(wanted)
            found.append(_COMPARE[comparison](known.table.c[name], wanted))
        return found

    def ordered(
        self,
        view: str,
        conditions: Iterable[Filter],
        limit: int,
        order: Sequence[tuple[str, bool]],
        after: Sequence[Any] | None,
    ) -> list[tuple[StoredRow, tuple[Any, ...]]]:
        """Return live rows by (column, descending), each with its place: the stored values of those columns.

        ``after`` takes a place. The last column must be the key, or contain it, so that no two rows have one
        place.
        """
        with self.reading() as connection:
            known = self.definition(connection, view)
            table = known.table
            columns = [self._by_code_point(table.c[name]) for name, _ in order]
            where = [table.c._deleted.is_(False), *self._meeting(known, conditions)]
            if after is not None:
                behind = [self._key(each) if isinstance(each, str) else each for each in after]
                where.append(_behind(columns, [descending for _, descending in order], behind))
            sorting = [
                column.desc().nulls_first() if descending else column.asc().nulls_last()
                for column, (_, descending) in zip(columns, order, strict=True)
            ]
            query = select(table).where(*where).order_by(*sorting).limit(limit)
            return [
                (stored_row(known, found), tuple(found[name] for name, _ in order))
                for found in connection.execute(query).mappings()
            ]

    def _by_code_point(self, column: Column[Any]) -> ColumnElement[Any]:
        return collate(column, "C") if self._postgres and isinstance(column.type, Text) else column

    def snapshot(
        self,
        view: str,
        after: str | None,
        limit: int,
        conditions: Iterable[Filter] = (),
        incarnation: str | None = None,
    ) -> tuple[list[StoredRow], Positions]:
        """Return live rows with keys past ``after`` and the changelog positions they are read at, of one
        moment.

        Raises BuiltAnew when the view is no longer of this incarnation.
        """
        with self.reading() as connection:
            known = self._of_incarnation(connection, view, incarnation)
            table = known.table
            where = [table.c._deleted.is_(False), *self._meeting(known, conditions)]
            if after is not None:
                where.append(table.c.key > self._key(after))
            positions = self._positions_of(connection, self._served(connection, view), "changelog")
            rows = connection.execute(
                select(table).where(*where).order_by(table.c.key).limit(limit)
            ).mappings()
            return [stored_row(known, found) for found in rows], positions

    def changes(
        self,
        view: str,
        since: Positions,
        limit: int,
        conditions: Iterable[Filter] = (),
        incarnation: str | None = None,
    ) -> ChangedRows:
        """Return rows made by the changelog from ``since`` on, deletes included, coalesced per key, and the
        next positions.

        At most ``limit`` rows, in (partition, offset) order; if there are more, the positions are those after
        the last returned row, so that the next call skips nothing. A row that does not meet the conditions is
        returned as a deleted one, because it may have met them before. Rows with keys that the conditions
        exclude are left out.

        Raises BuiltAnew when the view is no longer of this incarnation: ``since`` is then meaningless.
        """
        wanted = list(conditions)
        with self.reading() as connection:
            known = self._of_incarnation(connection, view, incarnation)
            table = known.table
            reached = self._positions_of(connection, self._served(connection, view), "changelog")
            sources = self.covered(connection, view)
            fresh = [
                and_(
                    table.c._partition == tp.partition,
                    table.c._offset >= since.get(tp),
                    table.c._offset < offset,
                )
                for tp, offset in reached
                if offset > since.get(tp)
            ]
            if not fresh:
                return ChangedRows([], reached, sources)
            # A row's key never changes, so a condition on it never starts or stops matching a row; any other
            # may.
            where = [or_(*fresh), *self._meeting(known, [each for each in wanted if each[0] == "key"])]
            meets = and_(true(), *self._meeting(known, [each for each in wanted if each[0] != "key"]))
            query = (
                select(table, meets.label("_meets"))
                .where(*where)
                .order_by(table.c._partition, table.c._offset)
                .limit(limit + 1)
            )
            found = [
                stored_row(known, row) if row["_meets"] else replace(stored_row(known, row), values=None)
                for row in connection.execute(query).mappings()
            ]
        if len(found) <= limit:
            return ChangedRows(found, reached, sources)
        kept = found[:limit]
        at = dict(since.offsets)
        for tp, offset in reached:
            if tp.partition < kept[-1].partition:
                at[tp] = offset
            elif tp.partition == kept[-1].partition:
                at[tp] = kept[-1].offset + 1
        return ChangedRows(kept, Positions(at), sources)

    def _of_incarnation(self, connection: Connection, view: str, incarnation: str | None) -> ViewTable:
        known = self.definition(connection, view)
        if incarnation is not None and known.incarnation != incarnation:
            raise BuiltAnew(f'view "{view}" was built anew', hint="read it from its start")
        return known

    def positions(self, view: str, kind: RowKind) -> Positions:
        """Return the changelog positions applied to a version, or the source positions that the served rows
        cover.
        """
        with self.reading() as connection:
            return (
                self.covered(connection, view)
                if kind == "source"
                else self._positions_of(connection, view, kind)
            )

    def _positions_of(self, connection: Connection, view: str, kind: RowKind) -> Positions:
        found = connection.execute(self._placed, {"view": view, "kind": kind})
        return Positions({TopicPartition(topic, partition): offset for topic, partition, offset in found})

    def progress(self) -> dict[str, Any]:
        """Return the latest progress and state records by key.

        Keys with a view's own name are those of its served version; those of its other versions are
        ``version.<kind>:<view>@<number>``.
        """
        with self.reading() as connection:
            found = connection.execute(select(self._progress)).mappings()
            told = {row["key"]: row["value"] for row in found}
            served = self._all_served(connection)
        return _as_read(told, served) if served or any("@" in key for key in told) else told

    def count(self, view: str) -> int:
        """Return the number of live rows of the view. Reads the whole table."""
        with self.reading() as connection:
            table = self.definition(connection, view).table
            query = select(func.count()).select_from(table).where(table.c._deleted.is_(False))
            return int(connection.execute(query).scalar_one())

    def newest_version(self, view: str) -> int:
        """Return the highest version of any row, deleted ones included; 0 without rows. Reads the whole
        table.
        """
        with self.reading() as connection:
            table = self._definition(connection, view).table
            return int(connection.execute(select(func.max(table.c._version))).scalar() or 0)

    def due(self, view: str, column: str, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return (key, time) of live rows whose time in the indexed ``column`` is at most ``until_ms``,
        earliest first.

        [] for a table without that column. Raises NotFound.
        """
        with self.reading() as connection:
            known = self._definition(connection, view)
            if column not in known.types:
                return []
            table = known.table.c
            query = (
                select(table.key, table[column])
                .where(table._deleted.is_(False), table[column] <= until_ms)
                .order_by(table[column], table.key)
                .limit(limit)
            )
            return [(key, int(at)) for key, at in connection.execute(query)]

    @contextmanager
    def cut(self, view: str) -> Iterator[StoreSnapshot]:
        """Implements ViewStore. The rows are read in the transaction that read the positions."""
        with self.reading() as connection:
            known = self._definition(connection, view)
            where = (self._positions.c.view == view, self._positions.c.kind == "swept")
            swept = connection.execute(select(self._positions.c.next_offset).where(*where)).scalar()
            positions = self._positions_of(connection, view, "changelog")

            def rows() -> Iterator[KeptRow]:
                columns = known.table.c
                kept = [
                    cast(columns[each], Text) if isinstance(columns[each].type, JSON) else columns[each]
                    for each in (*known.types, "_sources")
                ]
                query = select(columns.key, columns._version, *kept).where(columns._deleted.is_(False))
                streamed = connection.execution_options(yield_per=_CHUNK).execute(query)
                for key, version, *values in streamed:
                    yield key, version, values

            yield StoreSnapshot(known.topic_id, known.types, positions, int(swept or 0), rows)

    def stamp(self) -> int:
        """Return a number that changes with every apply of any process. Cheap to poll."""
        with self.reading() as connection:
            return int(connection.execute(select(func.sum(self._positions.c.next_offset))).scalar() or 0)

    def glance(self) -> int | None:
        """Return a number that changes with each commit of any process, for two system calls: SQLite's
        ``data_version``.

        None where that needs a query, or the file is busy; use ``stamp`` then. For one thread.
        """
        if self._postgres:
            return None
        try:
            if self._peephole is None:
                # Not from the pool: data_version does not change for the connection's own writes.
                self._peephole = that_waits_for_no_lock(self.engine)
            cursor = self._peephole.cursor().execute("PRAGMA data_version")
            return int(cursor.fetchone()[0])
        except (sqlite3.Error, SQLAlchemyError):
            return None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one moment. Raises PeerError, StoreRefused."""
        with self._errors(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HubError:
            raise
        except Exception as error:
            if not (isinstance(error, SQLAlchemyError | OverflowError) or is_driver_error(error)):
                raise
            cause = getattr(error, "orig", None) or error
            said = str(cause).split("\n")[0]
            refused = (
                isinstance(error, DataError | IntegrityError | ProgrammingError | OverflowError)
                or type(error) is StatementError
                or driver_refused(cause)
                or _sqlite_refused(cause)
            )
            if refused:
                raise StoreRefused(
                    f'store "{self._named()}" refuses: {said}',
                    hint="the message is the database's own",
                ) from error
            raise PeerError(
                f'store "{self._named()}": {said}',
                hint="is the database there and is there room on its disk?",
                code="HUB-3040",
            ) from error

    def _named(self) -> str:
        return self.engine.url.render_as_string(hide_password=True)


def _sqlite_refused(error: BaseException) -> bool:
    """Return whether SQLite refused a statement (too many columns, a name in use), which it reports as
    operational.

    A missing object means that somebody removed the file, and is not a refusal.
    """
    wrong = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return wrong and not str(error).startswith("no such")


def that_waits_for_no_lock(engine: Engine) -> PoolProxiedConnection:
    """Open a connection to SQLite outside the pool that fails at once when the file is busy."""
    connection = engine.raw_connection()
    connection.detach()
    connection.cursor().execute("PRAGMA busy_timeout=0")
    return connection


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=8, json_serializer=json_text)
    engine = create_engine(
        url,
        connect_args={"timeout": 30, "check_same_thread": False},
        pool_size=8,
        json_serializer=json_text,
        json_deserializer=orjson.loads,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "temp_store=MEMORY", "cache_size=-32768"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer that reads first would be refused its lock after another's write: it takes the lock at
        # once.
        writes = connection.get_execution_options().get("hub_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


_COMPARE: Mapping[str, Callable[[ColumnElement[Any], Any], ColumnElement[bool]]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _bound(value: Any) -> Any:
    """Return a boolean as a parameter: SQLAlchemy compares the constants TRUE and FALSE for equality only."""
    return literal(value, Boolean) if isinstance(value, bool) else value


def _decimal_text(value: Decimal, avro_type: AvroType) -> str:
    """Return a decimal as its column's text, with the digits of its type's scale.

    A decimal that no row can have gives its own text, which no row has either.
    """
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    scale = next((each.get("scale", 0) for each in branches if isinstance(each, dict)), 0)
    with suppress(DecimalException):
        # Zero has no sign in Avro.
        value = (value or Decimal()).quantize(Decimal(1).scaleb(-scale), context=_EXACTLY)
    return str(value)


def _behind(
    columns: Sequence[ColumnElement[Any]], descending: Sequence[bool], place: Sequence[Any]
) -> ColumnElement[bool]:
    """Match rows after a place in an order where null is the greatest: equal up to a column, and past it
    there.
    """
    ways: list[ColumnElement[bool]] = []
    equal: list[ColumnElement[bool]] = []
    for column, down, value in zip(columns, descending, place, strict=True):
        if value is None:
            if down:  # nulls came first
                ways.append(and_(*equal, column.is_not(None)))
            equal.append(column.is_(None))
            continue
        value = _bound(value)
        past = column < value if down else or_(column > value, column.is_(None))
        ways.append(and_(*equal, past))
        equal.append(column == value)
    return or_(false(), *ways)


def _table(name: str, types: Mapping[str, AvroType], indexes: Sequence[str]) -> Table:
    # Texts sort by code point everywhere: a cursor must mean the same in every store.
    key_type = Text().with_variant(Text(collation="C"), "postgresql")
    kinds = {column: sql_type(avro_type) for column, avro_type in types.items()}
    columns = [
        Column(column, key_type if isinstance(kind, Text) else kind, nullable=True)
        for column, kind in kinds.items()
    ]
    table = Table(
        _name(f"view_{name}"),
        MetaData(),
        Column("key", key_type, primary_key=True),
        *columns,
        Column("_version", BigInteger, nullable=False),
        Column("_partition", Integer, nullable=False),
        Column("_offset", BigInteger, nullable=False),
        Column("_sources", JSON(none_as_null=True)),
        Column("_deleted", Boolean, nullable=False),
        Column("_applied_at_ms", BigInteger, nullable=False),
    )
    Index(_name(f"ix_view_{name}_changes", "_partition,_offset"), table.c._partition, table.c._offset)
    for index in indexes:
        if index in types:
            # No name has a dot: view a_b's index c is not view a's index b_c.
            Index(_name(f"ix_view_{name}.{index}", index), table.c[index], table.c.key)
    return table


def _name(wanted: str, also: str = "") -> str:
    """Return a name within the databases' length limit; a hash keeps truncated names distinct."""
    if len(wanted) <= _LONGEST_NAME:
        return wanted
    return f"{wanted[: _LONGEST_NAME - 9]}_{sha256(f'{wanted}/{also}'.encode()).hexdigest()[:8]}"


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:7], "big")


def _reshape(connection: Connection, table: Table) -> None:
    """Add missing columns and indexes and drop surplus ones: a column that is added again starts empty."""
    found = inspect(connection)
    there = {column["name"] for column in found.get_columns(table.name)}
    indexed = {str(index["name"]) for index in found.get_indexes(table.name)}
    quote = connection.dialect.identifier_preparer.quote_identifier
    for name in sorted(indexed - {index.name for index in table.indexes}):
        connection.execute(text(f"DROP INDEX {quote(name)}"))
    for name in sorted(there - set(table.columns.keys())):
        connection.execute(text(f"ALTER TABLE {quote(table.name)} DROP COLUMN {quote(name)}"))
    for column in table.columns:
        if column.name not in there:
            kind = column.type.compile(connection.dialect)
            connection.execute(
                text(f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {kind}")
            )
    for index in table.indexes:
        if index.name not in indexed:
            index.create(connection)


def _row(known: ViewTable, key: str, change: RowChange, now: int) -> tuple[Any, ...]:
    """Return values in the order of the table's columns."""
    row = change.row
    values = known.shaper.values(row or {})
    sources = sources_text(row, change.deleted_by)
    return (key, *values, change.version, change.partition, change.offset, sources, row is None, now)


def _upsert_of(engine: Engine, table: Table) -> Any:
    """Return the statement that replaces the row with the same primary key."""
    dialect: Any = postgresql if engine.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    key = [column.name for column in table.primary_key]
    replaced = {
        column.name: statement.excluded[column.name] for column in table.columns if column.name not in key
    }
    return statement.on_conflict_do_update(index_elements=key, set_=replaced)


def _upsert_text(connection: Connection, table: Table, key: str, newer: str) -> str:
    """Return the statement that takes a row unless the table has a newer or equal one; placeholders in column
    order.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    names = [quote(column.name) for column in table.columns]
    place = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    replaced = ", ".join(f"{each} = excluded.{each}" for each in names if each != quote(key))
    return (
        f"INSERT INTO {quote(table.name)} ({', '.join(names)}) VALUES ({', '.join([place] * len(names))}) "
        f"ON CONFLICT ({quote(key)}) DO UPDATE SET {replaced} "
        f"WHERE excluded.{quote(newer)} > {quote(table.name)}.{quote(newer)}"
    )


def stored_row(known: ViewTable, found: Mapping[Any, Any]) -> StoredRow:
    """Return a row as read, from its table's columns by name."""
    values: dict[str, Any] | None = None
    if not found["_deleted"]:
        values = {name: found[name] for name in known.types}
        for name, convert in known.show:
            if values[name] is not None:
                values[name] = convert(values[name])
        values["_version"] = found["_version"]
        values["_sources"] = found["_sources"]
    return StoredRow(
        found["key"], found["_version"], found["_partition"], found["_offset"], values, found["_sources"]
    )


def _as_read(told: Mapping[str, Any], served: Mapping[str, str]) -> dict[str, Any]:
    """See Store.progress."""
    found: dict[str, Any] = {}
    for key, value in told.items():
        kind, _, table = key.partition(":")
        view = table.partition("@")[0]
        if kind not in ("progress", "state", "seen") or (table == view and view not in served):
            found[key] = value
        elif served.get(view, view) == table:
            found[f"{kind}:{view}"] = value
        else:
            found[f"version.{key}"] = value
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
