"""[edge] SQLAlchemy: events as rows of a table in Postgres or SQLite, exactly once.

The rows of a batch and the sink's positions are one transaction. Each position is moved only from the one
before the batch, so a worker that was replaced cannot write once more. A batch that the database refuses is
halved until the one event is known that it refuses.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    create_engine,
    delete,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from hub.errors import ConfigError, Conflict, HubError, PeerError
from hub.materializers.queries.relations import OutputColumn
from hub.record import Positions, TopicPartition
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch, SinkEvent, halves
from hub.sinks.sinks_file import DatabaseTarget, filled
from hub.sinks.targets.column_values import Family, value_for
from hub.sinks.targets.target import Bury

POSITIONS = "hub_sink_positions"
_DEAD = (ValueError, TypeError, ArithmeticError)
_TIMEOUT_S = 15


class Database:
    """The target of one sink. ``columns``: of its rows, by which a missing table is made."""

    def __init__(
        self,
        sink: str,
        target: DatabaseTarget,
        columns: Sequence[OutputColumn],
        environ: Mapping[str, str],
    ) -> None:
        self.sink, self.target = sink, target
        self._engine = engine_of(sink, filled(sink, target.url, environ))
        self._metadata = MetaData()
        self._positions = Table(
            POSITIONS,
            self._metadata,
            Column("sink", String(80), primary_key=True),
            Column("topic", String(249), primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("next_offset", BigInteger, nullable=False),
        )
        with self._translated_errors():
            self._table = self._open_table(columns)
        self._families = {each.name: family_of(each.type) for each in self._table.columns}
        self._at: dict[TopicPartition, int] = {}

    def positions(self, first: Positions) -> Positions:
        """See Target. Stores those of ``first`` that it does not have."""
        table = self._positions
        with self._translated_errors(), self._engine.begin() as connection:
            rows = connection.execute(select(table).where(table.c.sink == self.sink)).mappings()
            held = {TopicPartition(row["topic"], row["partition"]): int(row["next_offset"]) for row in rows}
            new = {place: at for place, at in first if place not in held}
            if new:
                connection.execute(table.insert(), [self._position(*each) for each in new.items()])
        self._at = {place: held.get(place, at) for place, at in first}
        return Positions(dict(self._at))

    def deliver(self, batch: SinkBatch, stop: threading.Event, bury: Bury) -> Delivered:
        """See Target."""
        if not batch.events:
            return Delivered(batch.after)
        changes, refused = self._changes(batch.events)
        if refused:
            bury(refused)
        try:
            with self._translated_errors(), self._engine.begin() as connection:
                self._move(connection, batch.after)
                self._write(connection, changes)
        except _RefusedByDatabase as error:
            if len(batch.events) == 1:
                bury([RefusedRecord(batch.events[0].record, str(error))])
                self._skip(batch.after)
                return Delivered(batch.after)
            first, second = (self.deliver(half, stop, bury) for half in halves(batch))
            return Delivered(second.positions, first.events + second.events)
        self._at |= batch.after.offsets
        return Delivered(batch.after, len(batch.events) - len(refused))

    def close(self) -> None:
        self._engine.dispose()

    # ---- rows

    def _changes(
        self, events: Sequence[SinkEvent]
    ) -> tuple[list[tuple[Any, dict[str, Any] | None]], list[RefusedRecord]]:
        """Return (key, row or None for a deleted key), one for each key, and the events without a row."""
        changes, refused = list[tuple[Any, dict[str, Any] | None]](), list[RefusedRecord]()
        for event in events:
            try:
                change = self._change(event)
            except _DEAD as error:
                refused.append(RefusedRecord(event.record, f"its row does not fit the table: {error}"))
            else:
                if change is not None:
                    changes.append(change)
        return (list({key: (key, row) for key, row in changes}.values()), refused)

    def _change(self, event: SinkEvent) -> tuple[Any, dict[str, Any] | None] | None:
        name = self.target.key
        if self.target.append:
            if event.row is None:
                return None
            key: Any = event.id
        elif event.key is None:
            raise ValueError("the record has no key; write append: true to insert a row for each record")
        else:
            key = self._of_key(event.key)
        if event.row is None:
            return key, None
        row = {each: value_for(self._families[each], value) for each, value in event.row.items()}
        return key, {**row, name: key}

    def _of_key(self, key: str) -> Any:
        kind = self._table.c[self.target.key].type
        if isinstance(kind, Integer):
            return int(key)
        return value_for(self._families[self.target.key], key)

    def _write(self, connection: Connection, changes: Sequence[tuple[Any, dict[str, Any] | None]]) -> None:
        column = self._table.c[self.target.key]
        if gone := [key for key, row in changes if row is None]:
            connection.execute(delete(self._table).where(column.in_(gone)))
        by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for _, row in changes:
            if row is not None:
                by_columns.setdefault(tuple(sorted(row)), []).append(row)
        for names, rows in by_columns.items():
            connection.execute(self._upsert(names), rows)

    def _upsert(self, names: Sequence[str]) -> Any:
        insert = (postgresql if self._engine.dialect.name == "postgresql" else sqlite).insert(self._table)
        replaced = {each: insert.excluded[each] for each in names if each != self.target.key}
        if not replaced:
            return insert.on_conflict_do_nothing(index_elements=[self.target.key])
        return insert.on_conflict_do_update(index_elements=[self.target.key], set_=replaced)

    # ---- positions

    def _position(self, place: TopicPartition, at: int) -> dict[str, Any]:
        return {
            "sink": self.sink,
            "topic": place.topic,
            "partition": place.partition,
            "next_offset": at,
        }

    def _move(self, connection: Connection, after: Positions) -> None:
        """Move the stored positions. Raises Conflict (HUB-1825) if another worker has moved them."""
        table = self._positions
        for place, at in after:
            if self._at[place] == at:
                continue
            moved = connection.execute(
                table.update()
                .where(
                    table.c.sink == self.sink,
                    table.c.topic == place.topic,
                    table.c.partition == place.partition,
                    table.c.next_offset == self._at[place],
                )
                .values(next_offset=at)
            )
            if moved.rowcount != 1:
                raise Conflict(
                    f'sink "{self.sink}": another worker has written to "{self.target.table}" meanwhile',
                    hint="run one worker of a sink; it continues at the position in the database",
                    code="HUB-1825",
                )

    def _skip(self, after: Positions) -> None:
        with self._translated_errors(), self._engine.begin() as connection:
            self._move(connection, after)
        self._at |= after.offsets

    # ---- the table

    def _open_table(self, columns: Sequence[OutputColumn]) -> Table:
        """Return the table, made if it does not exist. Raises ConfigError for one without the columns."""
        self._positions.create(self._engine, checkfirst=True)
        name, key = self.target.table, self.target.key
        if not inspect(self._engine).has_table(name):
            made = [each for each in columns if each.name != key]
            Table(
                name,
                MetaData(),
                Column(key, Text, primary_key=True),
                *(Column(each.name, _type_of(each.kind)) for each in made),
            ).create(self._engine, checkfirst=True)
        table = Table(name, self._metadata, autoload_with=self._engine)
        missing = [each.name for each in columns if each.name not in table.c]
        if key not in table.c:
            missing.insert(0, key)
        if missing:
            raise ConfigError(
                f'table "{name}" has no column {", ".join(missing)}',
                hint="add it (ALTER TABLE), or choose columns with `fields` in sinks.yaml",
                code="HUB-1826",
            )
        self._check_unique(table)
        return table

    def _check_unique(self, table: Table) -> None:
        """Raise ConfigError (HUB-1826) unless the key column is unique: rows are replaced by it."""
        key = self.target.key
        inspector = inspect(self._engine)
        unique = [inspector.get_pk_constraint(table.name)["constrained_columns"]]
        unique += [each["column_names"] for each in inspector.get_unique_constraints(table.name)]
        unique += [
            [str(name) for name in each["column_names"]]
            for each in inspector.get_indexes(table.name)
            if each["unique"]
        ]
        if [key] not in unique:
            raise ConfigError(
                f'column "{key}" of table "{table.name}" is not unique: rows are replaced by it',
                hint="make it the primary key or a unique constraint, or name another `key`",
                code="HUB-1826",
            )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except HubError:
            raise
        except (DataError, IntegrityError) as error:
            raise _RefusedByDatabase(_message(error)) from None
        except ProgrammingError as error:
            raise ConfigError(
                f'table "{self.target.table}": {_message(error)}',
                hint="the message is the database's own",
                code="HUB-1826",
            ) from None
        except SQLAlchemyError as error:
            raise PeerError(f"database: {_message(error)}", code="HUB-3821") from None


class _RefusedByDatabase(Exception):
    """The database refuses a row of a batch, whenever it is written."""


def engine_of(sink: str, url: str) -> Engine:
    """Return an engine. Raises ConfigError (HUB-1826) for an address of another kind."""
    url = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)
    options: dict[str, Any] = {}
    if url.startswith("postgresql+psycopg://"):
        options = {"connect_timeout": _TIMEOUT_S, "options": "-c timezone=UTC -c statement_timeout=60000"}
    elif url.startswith("sqlite:"):
        options = {"timeout": _TIMEOUT_S, "check_same_thread": False}
    else:
        raise ConfigError(
            f'sink "{sink}": the database is neither Postgres nor SQLite',
            hint="write postgresql://user@host/database or sqlite:////PATH",
            code="HUB-1826",
        )
    try:
        return create_engine(url, connect_args=options, pool_pre_ping=True, pool_size=1)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f'sink "{sink}": the address of its database: {error}', code="HUB-1826") from None


def family_of(kind: TypeEngine[Any]) -> Family:
    """Return the kind of a column by its type in the database."""
    if isinstance(kind, DateTime):
        return "timestamp" if kind.timezone else "local-timestamp"
    for of, family in _FAMILIES:
        if isinstance(kind, of):
            return family
    return "other"


_FAMILIES: tuple[tuple[type[TypeEngine[Any]], Family], ...] = (
    (JSON, "json"),
    (String, "text"),
    (Date, "date"),
    (Float, "double"),
    (Numeric, "decimal"),
    (LargeBinary, "bytes"),
)


def _type_of(kind: str) -> TypeEngine[Any]:
    """Return the type of a new table's column by the kind of a query's column."""
    json: Any = JSON().with_variant(postgresql.JSONB(), "postgresql")
    types: Mapping[str, TypeEngine[Any]] = {
        "long": BigInteger(),
        "double": Float(53),
        "boolean": Boolean(),
        "decimal": Numeric(),
        "timestamp": DateTime(timezone=True),
        "date": Date(),
        "bytes": LargeBinary(),
        "json": json,
    }
    return types.get(kind, Text())


def _message(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).split("\n")[0][:300]
