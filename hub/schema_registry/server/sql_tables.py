"""[edge] SQLAlchemy Core: the registry as tables in SQLite or Postgres, for search and joins by other tools.

The tables are a cache of the log ``_schemas``: only this module writes them, nothing of the hub reads them,
and a rebuild gives the same rows. They are built in one transaction together with the log position, so
readers see one complete state of the registry. Builds are serialized: a later one never leaves an older
state.

A table with other columns (of an older release) is dropped and created again.

Limit: the registry's state is held in memory during a build, as in a registry node.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from hub.errors import ConfigError, NotFound, PeerError
from hub.log import Log, Reader
from hub.record import Positions, TopicPartition
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, fact_of
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server import sql_rows
from hub.schema_registry.server.sql_rows import FIELDS, SCHEMAS, SETTINGS_, VERSIONS

POSITION = "registry_position"
_LOG = TopicPartition(SCHEMAS_TOPIC, 0)
_CHUNK = 500  # rows per statement
_POLL = 1_000
_OPEN_TRIES, _OPEN_PAUSE_S = 100, 0.05
_LOCK = int.from_bytes(sha256(b"hub registry tables").digest()[:7], "big")

METADATA = MetaData()
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            SCHEMAS,
            METADATA,
            Column("context", Text, primary_key=True),
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("guid", Text, nullable=False),
            Column("type", Text, nullable=False),
            Column("text", Text, nullable=False),
        ),
        Table(
            VERSIONS,
            METADATA,
            Column("subject", Text, primary_key=True),
            Column("version", Integer, primary_key=True, autoincrement=False),
            Column("context", Text, nullable=False),
            Column("id", Integer, nullable=False),
            Column("deleted", Boolean, nullable=False),
            Column("owner", Text),
            Column("tags", JSON, nullable=False),
            Column("described", Boolean, nullable=False),
            Index("ix_registry_versions_id", "context", "id"),
        ),
        Table(
            SETTINGS_,
            METADATA,
            Column("place", Text, primary_key=True),
            Column("name", Text, primary_key=True),
            Column("value", Text, nullable=False),
        ),
        Table(
            FIELDS,
            METADATA,
            Column("subject", Text, primary_key=True),
            Column("version", Integer, primary_key=True, autoincrement=False),
            Column("place", Integer, primary_key=True, autoincrement=False),
            Column("path", Text, nullable=False),
            Column("record", Text, nullable=False),
            Column("type", Text, nullable=False),
            Column("logical", Text),
            Column("optional", Boolean, nullable=False),
            Column("doc", Text),
            Column("tags", JSON, nullable=False),
            Index("ix_registry_fields_path", "path"),
        ),
        Table(
            POSITION,
            METADATA,
            Column("topic", Text, primary_key=True),
            Column("topic_id", Text, nullable=False),
            Column("next_offset", BigInteger, nullable=False),
        ),
    )
}

# Progress: the phase ("read" or "write"), amount done, total; in offsets, then in rows of versions.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Rows by table, and the state they show.

    ``position`` is the next offset of the log to read; ``not_described`` are versions without fields;
    ``unreadable`` and ``conflicts`` are records of the log.
    """

    position: int
    schemas: int
    versions: int
    settings: int
    fields: int
    not_described: int
    unreadable: int
    conflicts: int


class RegistryTables:
    """The tables in one database. ``url`` is SQLAlchemy's: ``sqlite:///file``, ``postgresql://...``."""

    def __init__(self, url: str) -> None:
        """Open the database.

        Raises ConfigError for an invalid URL, or a database other than SQLite and Postgres.
        """
        self.engine = _engine(url)

    def rebuild(
        self,
        cluster: Log,
        *,
        timeout_s: float = 60.0,
        progress: Progress = lambda _step, _done, _total: None,
    ) -> Rebuilt:
        """Rebuild the tables from the log. All or nothing.

        Raises NotFound when the log does not exist; PeerError when Kafka (for ``timeout_s`` without a record)
        or the database does not answer.
        """
        with self._errors(), self.engine.begin() as connection:
            self._lock(connection)
            registry, position, topic_id = _folded(cluster, timeout_s, progress)
            _lay_out(connection)
            counts = _write(connection, registry, progress)
            row = {"topic": SCHEMAS_TOPIC, "topic_id": topic_id, "next_offset": position}
            connection.execute(insert(TABLES[POSITION]), [row])
        return Rebuilt(
            position,
            counts[SCHEMAS],
            counts[VERSIONS],
            counts[SETTINGS_],
            counts[FIELDS],
            counts[""],
            registry.unreadable_count,
            registry.conflict_count,
        )

    @property
    def store(self) -> str:
        """Return the URL without its password."""
        return self.engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self.engine.dispose()

    def _lock(self, connection: Connection) -> None:
        """Allow one build at a time without blocking readers.

        In SQLite the transaction itself is the lock.
        """
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).split("\n")[0]
            raise PeerError(
                f'store "{self.store}": {reason}',
                hint="is the database there, is there room on its disk, and may this user make tables?",
                code="HUB-3040",
            ) from error


def _folded(cluster: Log, timeout_s: float, progress: Progress) -> tuple[Registry, int, str]:
    """Return (state, position, topic id) at the current end of the log, or slightly later."""
    description = cluster.topics().get(SCHEMAS_TOPIC)
    if description is None:
        raise NotFound(
            f'topic "{SCHEMAS_TOPIC}" does not exist: without a registry there are no tables to make',
            hint="the first start of a registry makes it: hub up",
        )
    begin = cluster.beginning_offsets([SCHEMAS_TOPIC]).get(_LOG)
    end = cluster.end_offsets([SCHEMAS_TOPIC]).get(_LOG)
    registry = Registry()
    reader = cluster.reader()
    try:
        reader.assign(Positions({_LOG: begin}))
        _read(reader, registry, begin, end, timeout_s, progress)
        return registry, max(end, reader.position().get(_LOG)), description.topic_id
    finally:
        reader.close()


def _read(
    reader: Reader, registry: Registry, begin: int, end: int, timeout_s: float, progress: Progress
) -> None:
    position, deadline = begin, time.monotonic() + timeout_s
    while position < end:
        for record in reader.poll(_POLL, 0.2):
            registry.apply(fact_of(record))
        reached = reader.position().get(_LOG)
        if reached > position:
            position, deadline = reached, time.monotonic() + timeout_s
            progress("read", min(position, end) - begin, end - begin)
        elif time.monotonic() > deadline:
            raise PeerError(
                f'topic "{SCHEMAS_TOPIC}" is read up to {position} of {end}, and nothing more comes',
                hint="check Kafka with hub doctor; the tables are unchanged",
                code="HUB-3031",
            )


def _lay_out(connection: Connection) -> None:
    """Create empty tables with the columns above.

    A table with these columns is kept, with its views and grants.
    """
    found = inspect(connection)
    for table in TABLES.values():
        if found.has_table(table.name):
            if _columns(connection, found.get_columns(table.name)) == _columns(connection, table.columns):
                connection.execute(delete(table))
                continue
            table.drop(connection)
        table.create(connection)


def _columns(connection: Connection, columns: Any) -> list[tuple[str, str, bool]]:
    """Return (name, type, may be NULL) in the database's spelling, of one of our tables or of an existing
    one.
    """
    plain = [
        (each.name, each.type, each.nullable)
        if isinstance(each, Column)
        else (each["name"], each["type"], each["nullable"])
        for each in columns
    ]
    return [(name, kind.compile(connection.dialect), bool(null)) for name, kind, null in plain]


def _write(connection: Connection, registry: Registry, progress: Progress) -> Counter[str]:
    """Write every row; return counts by table, and under "" the versions that are not described."""
    total = sum(map(len, registry.subjects.values()))
    counts: Counter[str] = Counter()
    waiting: defaultdict[str, list[Any]] = defaultdict(list)
    for table, values in sql_rows.rows(registry):
        waiting[table].append(values)
        counts[table] += 1
        if table == VERSIONS:
            counts[""] += not values["described"]
            progress("write", counts[VERSIONS], total)
        if len(waiting[table]) == _CHUNK:
            connection.execute(insert(TABLES[table]), waiting.pop(table))
    for table, left in waiting.items():
        connection.execute(insert(TABLES[table]), left)
    return counts


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url, json_serializer=_json)
    except (ArgumentError, ImportError) as error:
        raise ConfigError(
            f"the store's URL is none that is known: {str(error).splitlines()[0]}",
            hint="sqlite:///file.db or postgresql://user@host/database",
        ) from None
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise ConfigError(
            f'the store is "{engine.dialect.name}"; tables of the registry are made in SQLite and Postgres',
            hint="sqlite:///file.db or postgresql://user@host/database",
        )
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions: ours contain DDL
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=NORMAL"):
        for left in reversed(range(_OPEN_TRIES)):
            try:
                connection.execute(f"PRAGMA {pragma}").close()
                break
            except sqlite3.OperationalError as error:
                # Another process opens the new file too; SQLite does not wait for its switch to WAL.
                if "locked" not in str(error) or not left:
                    raise
                time.sleep(_OPEN_PAUSE_S)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
