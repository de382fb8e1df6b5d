"""[edge] SQLAlchemy: the table of a view, the store's own tables, and a row in a view's table.

Columns and indexes are added and removed in
place; another column type needs a new table (``stored_row.must_refill``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    String,
    Table,
    Text,
    cast,
    inspect,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

from hub.materializers.history.spec import kept_ms
from hub.materializers.search.text_index import field_indexes, text_index_of
from hub.materializers.stores.columns import Convert, from_sql, sql_type
from hub.materializers.stores.sql.names import stored_name, upsert_text
from hub.materializers.stores.sql.text_tables import TextTables, WordsOfRow, text_tables
from hub.materializers.stores.store import RowVersion
from hub.materializers.stores.stored_row import RowShaper, sources_text
from hub.materializers.types.avro_types import AvroType


class OwnTables:
    """Tables that a store has besides those of views, and the statements that replace their rows."""

    def __init__(self, engine: Engine) -> None:
        self.metadata = MetaData()
        self.positions = Table(
            "hub_positions",
            self.metadata,
            Column("view", String(80), primary_key=True),
            Column("kind", String(16), primary_key=True),
            Column("topic", String(249), primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("next_offset", BigInteger, nullable=False),
        )
        self.progress = Table(
            "hub_progress",
            self.metadata,
            Column("key", String(128), primary_key=True),
            Column("value", JSON, nullable=False),
        )
        self.views = Table(
            "hub_views",
            self.metadata,
            Column("view", String(80), primary_key=True),
            Column("topic_id", String(64), nullable=False),
            Column("schema", JSON, nullable=False),
            Column("indexes", JSON, nullable=False),
        )
        self.histories, self.history_periods, self.history_marks = _history_tables(self.metadata)
        # Building statements took SQLAlchemy a third of a small transaction, so these are built once.
        self._upserts = {
            table.name: _upsert_of(engine, table) for table in (self.positions, self.progress, self.views)
        }

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of one of these tables, or replace those with the same primary keys."""
        if rows:
            connection.execute(self._upserts[table.name], list(rows))

    def mark(self, connection: Connection, view: str, kind: str, number: int) -> None:
        """Keep one number of a view: ``served`` version, or ``swept`` (rows below that
        version are expired)."""
        mark = {"view": view, "kind": kind, "topic": "", "partition": 0, "next_offset": number}
        self.upsert(connection, self.positions, [mark])


def _history_tables(metadata: MetaData) -> tuple[Table, Table, Table]:
    """Return the tables about histories, their periods and their marks: see history_tables.py."""
    histories = Table(
        "hub_histories",
        metadata,
        Column("stored", String(63), primary_key=True),
        Column("view", String(80), nullable=False),
        Column("name", String(80), nullable=False),
        Column("types", JSON, nullable=False),
        Column("keep_ms", BigInteger, nullable=False),
        Column("pruned_ms", BigInteger, nullable=False),
        Column("active", Boolean, nullable=False),
    )
    periods = Table(
        "hub_history_periods",
        metadata,
        Column("view", String(80), primary_key=True),
        Column("from_ms", BigInteger, primary_key=True, autoincrement=False),
        Column("stored", String(63), nullable=False),
        Column("until_ms", BigInteger),
    )
    marks = Table(
        "hub_history_marks",
        metadata,
        Column("stored", String(63), primary_key=True),
        Column("partition", Integer, primary_key=True, autoincrement=False),
        Column("next_offset", BigInteger, primary_key=True, autoincrement=False),
        Column("at_ms", BigInteger, nullable=False),
        Column("sources", Text, nullable=False),
        Column("last_sources", Text, nullable=False),
    )
    return histories, periods, marks


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view's table: Avro types of its columns in order, declared indexes, and changelog topic.

    ``indexes``: those of fields. ``noted``: all, as the store notes them, with that of ``text`` if there
    is one, and the time of its history. ``history_ms``: that time; None without a history.
    """

    name: str
    topic_id: str
    incarnation: str
    types: Mapping[str, AvroType]
    indexes: tuple[str, ...]
    noted: tuple[str, ...]
    table: Table
    shaper: RowShaper
    upsert: str
    show: tuple[tuple[str, Convert], ...]
    text: TextTables | None = None
    history_ms: int | None = None

    @property
    def view(self) -> str:
        """Name of the view that the table is a version of."""
        return self.name.partition("@")[0]

    def values(self, key: str, change: RowVersion, now_ms: int) -> tuple[Any, ...]:
        """Return values in the order of the table's columns."""
        row = self.shaper.values(change.values or {})
        sources, deleted = sources_text(change.sources), change.values is None
        return (key, *row, change.version, change.partition, change.offset, sources, deleted, now_ms)

    def words(self, key: str, change: RowVersion) -> WordsOfRow:
        """Return the words of a row of a view with a text index."""
        assert self.text is not None
        return key, change.version, None if change.values is None else self.text.index.words(change.values)

    def read(self, found: Mapping[Any, Any]) -> RowVersion:
        """Return a row as read, from the table's columns by name."""
        values: dict[str, Any] | None = None
        if not found["_deleted"]:
            values = {name: found[name] for name in self.types}
            for name, convert in self.show:
                if values[name] is not None:
                    values[name] = convert(values[name])
            values["_version"] = found["_version"]
            values["_sources"] = found["_sources"]
        return RowVersion(
            found["key"], found["_version"], found["_partition"], found["_offset"], values, found["_sources"]
        )

    def stored_columns(self) -> list[ColumnElement[Any]]:
        """Return the columns of a KeptRow, nested values as their JSON text."""
        columns = self.table.c
        kept = [
            cast(columns[name], Text) if isinstance(columns[name].type, JSON) else columns[name]
            for name in (*self.types, "_sources")
        ]
        return [columns.key, columns._version, *kept]


def make_view_table(
    connection: Connection,
    name: str,
    topic_id: str,
    incarnation: str,
    types: Mapping[str, AvroType],
    indexes: Sequence[str],
) -> ViewTable:
    """Return the table of a view's definition, with what reading and writing its rows takes."""
    fields = field_indexes(indexes)
    table = table_definition(name, types, fields)
    show = ((column, from_sql(kind)) for column, kind in types.items())
    return ViewTable(
        name,
        topic_id,
        incarnation,
        types,
        tuple(fields),
        tuple(indexes),
        table,
        RowShaper(types, nul=connection.dialect.name != "postgresql"),
        upsert_text(connection, table, "key", "_version"),
        tuple((column, convert) for column, convert in show if convert is not None),
        text_tables(connection, text_index_of(indexes), table, types),
        kept_ms(indexes),
    )


def table_definition(name: str, types: Mapping[str, AvroType], indexes: Sequence[str]) -> Table:
    """Return the table of a view with these columns, and an index of each of ``indexes`` that is a column."""
    table = Table(stored_name(f"view_{name}"), MetaData(), *row_columns(types), *row_meta())
    Index(stored_name(f"ix_view_{name}_changes", "_partition,_offset"), table.c._partition, table.c._offset)
    for index in indexes:
        if index in types:
            # No name has a dot: view a_b's index c is not view a's index b_c.
            Index(stored_name(f"ix_view_{name}.{index}", index), table.c[index], table.c.key)
    return table


def row_columns(types: Mapping[str, AvroType]) -> list[Column[Any]]:
    """Return the columns of a row: its key, then its fields."""
    # Texts sort by code point everywhere: a cursor must mean the same in every store.
    key_type = Text().with_variant(Text(collation="C"), "postgresql")
    kinds = {column: sql_type(avro_type) for column, avro_type in types.items()}
    fields = [
        Column(column, key_type if isinstance(kind, Text) else kind, nullable=True)
        for column, kind in kinds.items()
    ]
    return [Column("key", key_type, primary_key=True), *fields]


def row_meta(*, version_is_key: bool = False) -> list[Column[Any]]:
    """Return the hub's own columns of a row. ``version_is_key``: the table has several versions of a key."""
    return [
        Column("_version", BigInteger, nullable=False, primary_key=version_is_key),
        Column("_partition", Integer, nullable=False),
        Column("_offset", BigInteger, nullable=False),
        Column("_sources", JSON(none_as_null=True)),
        Column("_deleted", Boolean, nullable=False),
        Column("_applied_at_ms", BigInteger, nullable=False),
    ]


def reshape(connection: Connection, table: Table) -> None:
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


def _upsert_of(engine: Engine, table: Table) -> Any:
    """Return the statement that replaces the row with the same primary key."""
    dialect: Any = postgresql if engine.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    key = [column.name for column in table.primary_key]
    replaced = {
        column.name: statement.excluded[column.name] for column in table.columns if column.name not in key
    }
    return statement.on_conflict_do_update(index_elements=key, set_=replaced)
