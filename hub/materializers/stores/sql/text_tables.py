"""[edge] SQLAlchemy: the text index of a view in tables of its own, written in the transaction of the rows.

SQLite::

    view_v.words (key, _version, id)     view_v.text: an FTS5 table; its row ``id`` has the words of the key

Postgres::

    view_v.words (key, _version, words tsvector)     with a GIN index of ``words``

The version rule is that of rows: words are replaced only by those of a higher version, and a deleted row
keeps its version here and has no words. FTS5 gets words that are split already: for its tokenizer
``ascii`` every character beyond ASCII is a part of a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import OperationalError

from hub.errors import CallerError
from hub.materializers.search.compiled import fts_columns, tsvector
from hub.materializers.search.text_index import TextIndex
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql.names import stored_name, upsert_text
from hub.materializers.stores.sql.postgres_copy import copy_and_merge
from hub.materializers.types.avro_types import AvroType

# Rows per step of a build, and keys per lookup.
_STEP = 5_000
_KEYS = 500
# As for rows: Postgres takes this many or more by COPY.
_COPY_FROM = 200

# Key, version, and the row's words by field; None: deleted.
WordsOfRow = tuple[str, int, Sequence[Sequence[str]] | None]


@dataclass(frozen=True, slots=True)
class TextTables:
    """The tables of one text index. ``view``: the table of the rows."""

    index: TextIndex
    view: Table
    words: Table
    postgres: bool

    @property
    def fts(self) -> str:
        """Name of the FTS5 table. The names of its own tables begin with it and no other view's do, because
        no view's name has a dot."""
        return stored_name(f"{self.view.name}.text")

    # ---- definition

    def create(self, connection: Connection) -> None:
        """Create the tables, empty. Raises CallerError if this SQLite has no FTS5."""
        self.drop(connection)
        self.words.create(connection)
        if not self.postgres:
            columns = ", ".join(fts_columns(len(self.index.fields)))
            statement = f"CREATE VIRTUAL TABLE {_quoted(self.fts)} USING fts5({columns}, tokenize = 'ascii')"
            try:
                connection.exec_driver_sql(statement)
            except OperationalError as error:
                if "no such module" not in str(error):
                    raise
                raise CallerError(
                    "this SQLite has no FTS5, so no view can have a text index",
                    hint="use a Python whose sqlite3 has FTS5, or a store_url of Postgres",
                    code="HUB-1483",
                ) from None

    def drop(self, connection: Connection) -> None:
        """Remove the tables if they exist, those of an index with other fields as well."""
        drop_text_tables(connection, self.view.name)

    def build(self, connection: Connection) -> None:
        """Create the tables with the words of the rows that there are, deleted rows' versions included.

        A step reads and writes a bounded number of rows; all are one transaction, the caller's.
        """
        self.create(connection)
        rows, after = self.view.c, None
        columns = [rows[name] for name in self.index.fields]
        while True:
            query = select(rows.key, rows._version, rows._deleted, *columns).order_by(rows.key).limit(_STEP)
            found = connection.execute(query if after is None else query.where(rows.key > after)).all()
            self.write(connection, [self._words_of(each) for each in found])
            if len(found) < _STEP:
                return
            after = found[-1].key

    def _words_of(self, row: Any) -> WordsOfRow:
        key, version, deleted, *texts = row
        values = dict(zip(self.index.fields, texts, strict=True))
        return key, version, None if deleted else self.index.words(values)

    # ---- write

    def write(self, connection: Connection, rows: Sequence[WordsOfRow]) -> None:
        """Take the words of rows that have a higher version; each key occurs once."""
        if self.postgres:
            self._write_postgres(connection, rows)
            return
        for start in range(0, len(rows), _KEYS):
            self._write_sqlite(connection, rows[start : start + _KEYS])

    def _write_postgres(self, connection: Connection, rows: Sequence[WordsOfRow]) -> None:
        values = [(key, version, None if words is None else tsvector(words)) for key, version, words in rows]
        if len(values) >= _COPY_FROM:
            copy_and_merge(connection, self.words, values, None)
        elif values:
            connection.exec_driver_sql(upsert_text(connection, self.words, "key", "_version"), values)

    def _write_sqlite(self, connection: Connection, rows: Sequence[WordsOfRow]) -> None:
        words = self.words.c
        query = select(words.key, words._version, words.id).where(words.key.in_([key for key, _, _ in rows]))
        known = {key: (version, number) for key, version, number in connection.execute(query)}
        last = connection.execute(select(func.max(words.id))).scalar() or 0
        newer = [each for each in rows if each[1] > known.get(each[0], (0, 0))[0] or each[0] not in known]
        added = {key: last + n for n, key in enumerate((k for k, _, _ in newer if k not in known), 1)}
        taken = [(added.get(key) or known[key][1], key, version, texts) for key, version, texts in newer]
        _each(connection, f"DELETE FROM {_quoted(self.fts)} WHERE rowid = ?", [
            (number,) for number, key, _, _ in taken if key in known
        ])  # fmt: skip
        columns = fts_columns(len(self.index.fields))
        places = ", ".join("?" * (len(columns) + 1))
        _each(
            connection,
            f"INSERT INTO {_quoted(self.fts)} (rowid, {', '.join(columns)}) VALUES ({places})",
            [(number, *map(" ".join, texts)) for number, _, _, texts in taken if texts is not None],
        )
        names = "key, _version, id"
        _each(
            connection,
            f"INSERT INTO {_quoted(self.words.name)} ({names}) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET _version = excluded._version",
            [(key, version, number) for number, key, version, _ in taken],
        )

    def expire(self, connection: Connection, below: int) -> None:
        """Remove the words of rows of versions below ``below``; the versions stay."""
        words = self.words.c
        if self.postgres:
            gone = words._version < below, words.words.is_not(None)
            connection.execute(update(self.words).where(*gone).values(words=None))
            return
        connection.execute(
            text(
                f"DELETE FROM {_quoted(self.fts)} WHERE rowid IN "
                f"(SELECT id FROM {_quoted(self.words.name)} WHERE _version < :below)"
            ),
            {"below": below},
        )


def text_tables(
    connection: Connection, index: TextIndex | None, view: Table, types: Mapping[str, AvroType]
) -> TextTables | None:
    """Return the tables of a view's text index; None without one.

    Raises CallerError for a field of the index that is no text.
    """
    if index is None:
        return None
    for name in index.fields:
        if name in types and plain_type(types[name]) != "string":
            raise CallerError(
                f'text index: field "{name}" is {plain_type(types[name])}, and only texts have words',
                hint=f"remove it from `text`, or make it a text in the view: CAST({name} AS STRING)",
                code="HUB-1483",
            )
    postgres = connection.dialect.name == "postgresql"
    name = stored_name(f"{view.name}.words")
    key_type = Text(collation="C") if postgres else Text()
    kept: Column[Any] = (
        Column("words", postgresql.TSVECTOR) if postgres else Column("id", BigInteger, nullable=False)
    )
    words = Table(
        name,
        MetaData(),
        Column("key", key_type, primary_key=True),
        Column("_version", BigInteger, nullable=False),
        kept,
    )
    if postgres:
        Index(stored_name(f"ix_{name}"), words.c.words, postgresql_using="gin")
    else:
        Index(stored_name(f"ix_{name}"), words.c.id, unique=True)
    return TextTables(index, view, words, postgres)


def drop_text_tables(connection: Connection, view: str) -> None:
    """Remove the text index of a table, if it has one. ``view``: the table's name in the database."""
    for name in (stored_name(f"{view}.text"), stored_name(f"{view}.words")):
        if inspect(connection).has_table(name):
            connection.execute(text(f"DROP TABLE {_quoted(name)}"))


def _each(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        connection.exec_driver_sql(statement, list(rows))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
