"""[edge] SQLAlchemy Core: a view as a table, in SQLite (embedded) or Postgres (production), by the same code.

A row is replaced only by a row with a higher ``_version``; a deleted row stays as a tombstone with its version, so that
late replays cannot bring it back and subscribers learn of it. Rows, changelog positions and source positions are
written in one transaction; a reader sees all of a batch or nothing.

Durability: SQLite runs in WAL mode with ``synchronous=NORMAL``. A power cut may take the last transactions, positions
and rows together, and the changelog has them still; a killed process loses nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    create_engine,
    delete,
    event,
    func,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from hub.errors import HubError, NotFound, PeerError
from hub.materializers.avro_shape import AvroType
from hub.record import Positions, TopicPartition

RowKind = Literal["changelog", "source"]

# How many rows one statement carries; bounds memory and the time that the write lock is held between steps.
_CHUNK = 500
# How long a table's definition is used without a look whether another process changed it.
_TABLE_AGE_S = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """A key's latest row in a batch. ``row`` None: deleted."""

    key: str
    version: int
    partition: int
    offset: int
    row: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """What one transaction does to one view.

    ``expire_below`` deletes rows of versions below it: what a later generation, now caught up, does not have.
    """

    view: str
    changes: Sequence[Change]
    changelog: Positions
    sources: Positions = field(default_factory=Positions)
    expire_below: int = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it is read; ``values`` None: deleted."""

    key: str
    version: int
    partition: int
    offset: int
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view's table: its columns' Avro types in order, its declared indexes, the changelog topic it is filled from."""

    name: str
    topic_id: str
    types: Mapping[str, AvroType]
    indexes: tuple[str, ...]
    table: Table


class Store:
    """Thread safe. One writer at a time; readers never wait for it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _engine(url)
        self._metadata = MetaData()
        self._positions = Table(
            "hub_positions",
            self._metadata,
            Column("view", String(64), primary_key=True),
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
            Column("view", String(64), primary_key=True),
            Column("topic_id", String(64), nullable=False),
            Column("schema", JSON, nullable=False),
            Column("indexes", JSON, nullable=False),
        )
        self._known: dict[str, tuple[ViewTable, float]] = {}
        self._lock = threading.Lock()
        with self._errors(), self.engine.begin() as connection:
            self._metadata.create_all(connection)

    def close(self) -> None:
        self.engine.dispose()

    # ---- tables

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        """Make the view's table fit a changelog schema. True when it was made anew and must be filled from the start:
        the topic is another one, or a column changed its type. New columns are added, dropped ones stay unused."""
        types = {each["name"]: each["type"] for each in schema["fields"] if not each["name"].startswith("_")}
        with self._errors(), self.engine.begin() as connection:
            stored = (
                connection.execute(select(self._views).where(self._views.c.view == name)).mappings().first()
            )
            fresh = (
                stored is None or stored["topic_id"] != topic_id or _changed_types(stored["schema"], types)
            )
            table = _table(name, types, indexes)
            if fresh:
                table.drop(connection, checkfirst=True)
                connection.execute(delete(self._positions).where(self._positions.c.view == name))
                table.create(connection)
            elif stored is not None and (stored["schema"] != types or stored["indexes"] != list(indexes)):
                _extend(connection, table)
            body = {"view": name, "topic_id": topic_id, "schema": dict(types), "indexes": list(indexes)}
            self._upsert(connection, self._views, [body], ["view"])
        with self._lock:
            self._known.pop(name, None)
        return fresh

    def drop_view(self, name: str) -> None:
        """Forget a view: its rows, positions and progress."""
        table = self.view(name).table
        with self._errors(), self.engine.begin() as connection:
            table.drop(connection, checkfirst=True)
            connection.execute(delete(self._positions).where(self._positions.c.view == name))
            connection.execute(delete(self._views).where(self._views.c.view == name))
            keys = [f"progress:{name}", f"state:{name}"]
            connection.execute(delete(self._progress).where(self._progress.c.key.in_(keys)))
        with self._lock:
            self._known.pop(name, None)

    def views(self) -> list[str]:
        """The names of the views that have a table."""
        with self._errors(), self.engine.connect() as connection:
            return sorted(connection.execute(select(self._views.c.view)).scalars())

    def view(self, name: str) -> ViewTable:
        """The table as it was within the last second: another process may change it. Raises NotFound."""
        with self._lock:
            known, read_at = self._known.get(name, (None, 0.0))
        if known is not None and time.monotonic() - read_at < _TABLE_AGE_S:
            return known
        with self._errors(), self.engine.connect() as connection:
            stored = (
                connection.execute(select(self._views).where(self._views.c.view == name)).mappings().first()
            )
        if stored is None:
            raise NotFound(
                f'view "{name}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        indexes = tuple(stored["indexes"])
        said = (stored["topic_id"], stored["schema"], indexes)
        if known is None or (known.topic_id, known.types, known.indexes) != said:
            table = _table(name, stored["schema"], indexes)
            known = ViewTable(name, stored["topic_id"], stored["schema"], indexes, table)
        with self._lock:
            self._known[name] = (known, time.monotonic())
        return known

    def topic_id(self, name: str) -> str:
        """The changelog incarnation that the table is filled from; "" when there is none any more."""
        try:
            return self.view(name).topic_id
        except NotFound:
            return ""

    # ---- write

    def apply(self, batches: Sequence[ViewBatch], progress: Mapping[str, Any] | None = None) -> None:
        """Rows, positions and progress records of several views: one transaction."""
        now = _now_ms()
        with self._errors(), self.engine.begin() as connection:
            for batch in batches:
                known = self.view(batch.view)
                rows = [_row(known, change, now) for change in batch.changes]
                for start in range(0, len(rows), _CHUNK):
                    self._upsert(
                        connection, known.table, rows[start : start + _CHUNK], ["key"], newer="_version"
                    )
                if batch.expire_below:
                    self._expire(connection, known.table, batch.expire_below, now)
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
                self._upsert(connection, self._positions, positions, ["view", "kind", "topic", "partition"])
            if progress:
                entries = [{"key": key, "value": value} for key, value in progress.items()]
                self._upsert(connection, self._progress, entries, ["key"])

    @staticmethod
    def _expire(connection: Connection, table: Table, below: int, now: int) -> None:
        gone = and_(table.c._version < below, table.c._deleted.is_(False))
        connection.execute(table.update().where(gone).values(_deleted=True, _applied_at_ms=now))

    def _upsert(
        self,
        connection: Connection,
        table: Table,
        rows: Sequence[Mapping[str, Any]],
        key: Sequence[str],
        *,
        newer: str | None = None,
    ) -> None:
        if not rows:
            return
        dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
        statement = dialect.insert(table)
        replaced = {
            column.name: statement.excluded[column.name] for column in table.columns if column.name not in key
        }
        condition = statement.excluded[newer] > table.c[newer] if newer is not None else None
        connection.execute(
            statement.on_conflict_do_update(index_elements=list(key), set_=replaced, where=condition),
            list(rows),
        )

    # ---- read

    def get(self, view: str, key: str) -> StoredRow | None:
        """One row, deleted or not; None when the key was never seen."""
        known = self.view(view)
        with self._reading(view) as connection:
            found = connection.execute(select(known.table).where(known.table.c.key == key)).mappings().first()
        return _stored(known, found) if found is not None else None

    def select(
        self, view: str, conditions: Iterable[tuple[str, str, Any]], limit: int, after: str | None
    ) -> list[StoredRow]:
        """Live rows in key order that meet every (column, operator, value); operators: eq gt gte lt lte."""
        known = self.view(view)
        where: list[ColumnElement[bool]] = [known.table.c._deleted.is_(False)]
        for name, operator, value in conditions:
            column = known.table.c[name]
            where.append(
                {
                    "eq": column == value,
                    "gt": column > value,
                    "gte": column >= value,
                    "lt": column < value,
                    "lte": column <= value,
                }[operator]
            )
        if after is not None:
            where.append(known.table.c.key > after)
        query = select(known.table).where(*where).order_by(known.table.c.key).limit(limit)
        with self._reading(view) as connection:
            return [_stored(known, found) for found in connection.execute(query).mappings()]

    def snapshot(
        self, view: str, after: str, limit: int, key: str | None = None
    ) -> tuple[list[StoredRow], Positions]:
        """Live rows with keys past ``after`` and the changelog positions they are read at: one consistent cut a call."""
        known = self.view(view)
        table = known.table
        where: list[ColumnElement[bool]] = [table.c._deleted.is_(False), table.c.key > after]
        if key is not None:
            where.append(table.c.key == key)
        with self._reading(view) as connection:
            positions = self._positions_of(connection, view, "changelog")
            rows = connection.execute(
                select(table).where(*where).order_by(table.c.key).limit(limit)
            ).mappings()
            return [_stored(known, found) for found in rows], positions

    def changes(
        self, view: str, since: Positions, limit: int, key: str | None = None
    ) -> tuple[list[StoredRow], Positions]:
        """Rows made by the changelog from ``since`` on, deletes included, coalesced per key, and the positions reached.

        At most ``limit``, in (partition, offset) order; the positions are those after the last row returned when there
        are more, so that asking again from them leaves nothing out.
        """
        known = self.view(view)
        table = known.table
        with self._reading(view) as connection:
            reached = self._positions_of(connection, view, "changelog")
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
                return [], reached
            where = [or_(*fresh)] if key is None else [or_(*fresh), table.c.key == key]
            query = select(table).where(*where).order_by(table.c._partition, table.c._offset).limit(limit + 1)
            found = [_stored(known, row) for row in connection.execute(query).mappings()]
        if len(found) <= limit:
            return found, reached
        kept = found[:limit]
        at = dict(since.offsets)
        for tp, offset in reached:
            if tp.partition < kept[-1].partition:
                at[tp] = offset
            elif tp.partition == kept[-1].partition:
                at[tp] = kept[-1].offset + 1
        return kept, Positions(at)

    def positions(self, view: str, kind: RowKind) -> Positions:
        """How far the view's changelog is applied, or which source positions its rows cover."""
        with self._errors(), self.engine.connect() as connection:
            return self._positions_of(connection, view, kind)

    def _positions_of(self, connection: Connection, view: str, kind: RowKind) -> Positions:
        table = self._positions
        query = select(table.c.topic, table.c.partition, table.c.next_offset).where(
            table.c.view == view, table.c.kind == kind
        )
        return Positions(
            {
                TopicPartition(topic, partition): offset
                for topic, partition, offset in connection.execute(query)
            }
        )

    def progress(self) -> dict[str, Any]:
        """The latest progress and state records, by their keys."""
        with self._errors(), self.engine.connect() as connection:
            found = connection.execute(select(self._progress)).mappings()
            return {row["key"]: row["value"] for row in found}

    def count(self, view: str) -> int:
        """How many live rows the view has."""
        table = self.view(view).table
        query = select(func.count()).select_from(table).where(table.c._deleted.is_(False))
        with self._reading(view) as connection:
            return int(connection.execute(query).scalar_one())

    def stamp(self) -> int:
        """A number that changes whenever a process applied something: cheap to ask often."""
        with self._errors(), self.engine.connect() as connection:
            return int(connection.execute(select(func.sum(self._positions.c.next_offset))).scalar() or 0)

    @contextmanager
    def _reading(self, view: str) -> Iterator[Connection]:
        with self._errors(), self.engine.connect() as connection:
            try:
                yield connection
            except OperationalError:
                # The applier may just have made the table anew: one fresh look at its definition next time.
                with self._lock:
                    self._known.pop(view, None)
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HubError:
            raise
        except SQLAlchemyError as error:
            said = str(getattr(error, "orig", None) or error).split("\n")[0]
            raise PeerError(
                f'store "{self.engine.url.render_as_string(hide_password=True)}": {said}',
                hint="is the database there and is there room on its disk?",
                code="HUB-3040",
            ) from error


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=8)
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, pool_size=8)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "temp_store=MEMORY", "cache_size=-32768"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _table(name: str, types: Mapping[str, AvroType], indexes: Sequence[str]) -> Table:
    columns = [Column(column, _sql_type(avro_type), nullable=True) for column, avro_type in types.items()]
    # Key order is the order of the code points everywhere: a cursor must mean the same in every store.
    key_type = Text().with_variant(Text(collation="C"), "postgresql")
    table = Table(
        f"view_{name}",
        MetaData(),
        Column("key", key_type, primary_key=True),
        *columns,
        Column("_version", BigInteger, nullable=False),
        Column("_partition", Integer, nullable=False),
        Column("_offset", BigInteger, nullable=False),
        Column("_sources", JSON),
        Column("_deleted", Boolean, nullable=False),
        Column("_applied_at_ms", BigInteger, nullable=False),
    )
    Index(f"ix_view_{name}_changes", table.c._partition, table.c._offset)
    for index in indexes:
        Index(f"ix_view_{name}_{index}", table.c[index], table.c.key)
    return table


_TYPES: Mapping[str, type[TypeEngine[Any]]] = {
    "string": Text,
    "int": BigInteger,
    "long": BigInteger,
    "float": Float,
    "double": Float,
    "boolean": Boolean,
    "bytes": LargeBinary,
}


def plain_type(avro_type: AvroType) -> str:
    """The type's name without null: a primitive, a logical type, or "json" for what is nested."""
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return plain_type(branches[0]) if len(branches) == 1 else "json"
    if isinstance(avro_type, dict):
        logical = avro_type.get("logicalType")
        if logical is not None:
            return str(logical)
        return (
            "string"
            if avro_type["type"] == "enum"
            else "json"
            if avro_type["type"] not in _TYPES
            else avro_type["type"]
        )
    return avro_type if avro_type in _TYPES else "json"


def _sql_type(avro_type: AvroType) -> TypeEngine[Any]:
    name = plain_type(avro_type)
    if name in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "date"):
        return BigInteger()  # epoch milliseconds (days for dates): the same in every store
    if name == "decimal":
        return Text()
    return _TYPES[name]() if name in _TYPES else JSON(none_as_null=True)


def _changed_types(stored: Mapping[str, AvroType], types: Mapping[str, AvroType]) -> bool:
    return any(
        name in stored and plain_type(stored[name]) != plain_type(kind) for name, kind in types.items()
    )


def _extend(connection: Connection, table: Table) -> None:
    """Add the columns and indexes that the table does not have yet."""
    found = inspect(connection)
    there = {column["name"] for column in found.get_columns(table.name)}
    for column in table.columns:
        if column.name not in there:
            kind = column.type.compile(connection.dialect)
            connection.execute(text(f'ALTER TABLE "{table.name}" ADD COLUMN "{column.name}" {kind}'))
    indexed = {index["name"] for index in found.get_indexes(table.name)}
    for index in table.indexes:
        if index.name not in indexed:
            index.create(connection)


def _row(known: ViewTable, change: Change, now: int) -> dict[str, Any]:
    values = change.row or {}
    return {
        "key": change.key,
        **{name: _to_sql(values.get(name), kind) for name, kind in known.types.items()},
        "_version": change.version,
        "_partition": change.partition,
        "_offset": change.offset,
        "_sources": _plain(values.get("_sources")),
        "_deleted": change.row is None,
        "_applied_at_ms": now,
    }


def _to_sql(value: Any, avro_type: AvroType) -> Any:
    if value is None:
        return None
    kind = plain_type(avro_type)
    if kind in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis"):
        return _epoch_ms(value)
    if kind == "date":
        return int(value.toordinal()) - 719_163
    if kind == "decimal":
        return str(value)
    return _plain(value) if kind == "json" else value


def _epoch_ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _plain(value: Any) -> Any:
    """JSON values of an Avro value: times as ISO 8601, decimals and bytes as text."""
    if value is None:
        return None
    return orjson.loads(
        orjson.dumps(value, default=_spelled, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)
    )


def _spelled(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def _stored(known: ViewTable, found: Mapping[Any, Any]) -> StoredRow:
    values: dict[str, Any] | None = None
    if not found["_deleted"]:
        values = {name: _from_sql(found[name], kind) for name, kind in known.types.items()}
        values["_version"] = found["_version"]
        values["_sources"] = found["_sources"]
    return StoredRow(found["key"], found["_version"], found["_partition"], found["_offset"], values)


def _from_sql(value: Any, avro_type: AvroType) -> Any:
    if value is None:
        return None
    kind = plain_type(avro_type)
    if kind in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis"):
        seconds, milliseconds = divmod(value, 1000)
        shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return f"{shown}.{milliseconds:03d}Z"
    if kind == "date":
        return time.strftime("%Y-%m-%d", time.gmtime(value * 86_400))
    return value.hex() if isinstance(value, bytes) else value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
