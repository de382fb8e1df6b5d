"""[edge] SQLAlchemy: a table with the columns topic, partition and offset, in Postgres or SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Connection, MetaData, Table, bindparam, create_engine, select, update
from sqlalchemy.exc import ArgumentError, NoSuchTableError, SQLAlchemyError

from hub.config.urls import without_credentials
from hub.errors import CallerError, ConfigError, PeerError
from hub.replication.positions.position_table import TablePlan, check_table, plan_table
from hub.replication.positions.translation import MapsOfMirror

_TIMEOUT_S = 10
_MOST_ROWS = 100_000
_COLUMNS = ("topic", "partition", "offset")


def read_plan(url: str, table: str, maps: MapsOfMirror, *, back: bool = False) -> TablePlan:
    """Read the table, and return its plan. Changes nothing. Raises ConfigError, CallerError (HUB-1642),
    PeerError (HUB-3618).
    """
    with _transaction(url) as connection:
        return _plan(connection, _table(connection, table), maps, back)


def apply_plan(url: str, table: str, maps: MapsOfMirror, digest: str, *, back: bool = False) -> TablePlan:
    """Update every row in one transaction, if the table still has the positions of ``digest``. Raises
    Conflict (HUB-1975, HUB-1978), and what ``read_plan`` raises.

    Rows are locked while they are read, so a reader that moves them meanwhile waits, or makes this fail.
    """
    with _transaction(url) as connection:
        named = _table(connection, table)
        plan = _plan(connection, named, maps, back, lock=True)
        check_table(plan, digest)
        topic, partition, offset = _columns(named)
        statement = (
            update(named)
            .where(topic == bindparam("of_topic"), partition == bindparam("of_partition"))
            .where(offset == bindparam("former"))
            .values({offset.name: bindparam("translated")})
        )
        # Of one partition from the far end: a new position must not meet the former one of another row.
        for each in sorted(
            plan.positions, key=lambda each: (each.place, _step(each.offset, each.translated))
        ):
            connection.execute(
                statement,
                {
                    "of_topic": each.place.topic,
                    "of_partition": each.place.partition,
                    "former": each.offset,
                    "translated": each.translated,
                },
            )
        return plan


def _step(offset: int, translated: int | None) -> int:
    """Return the order of updates: positions that grow from the highest on, others from the lowest on."""
    return -offset if (translated or 0) > offset else offset


def _plan(
    connection: Connection, table: Table, maps: MapsOfMirror, back: bool, *, lock: bool = False
) -> TablePlan:
    wanted = select(*_columns(table)).limit(_MOST_ROWS + 1)
    found = connection.execute(wanted.with_for_update() if lock else wanted).all()
    if len(found) > _MOST_ROWS:
        raise CallerError(
            f'table "{table.name}" has more than {_MOST_ROWS:,} rows: it is not a table of positions',
            code="HUB-1642",
        )
    rows = sorted({(row[0], row[1], row[2]) for row in found})
    return plan_table(str(table.name), rows, maps, back=back)


def _table(connection: Connection, name: str) -> Table:
    schema, _, alone = name.rpartition(".")
    try:
        found = Table(alone, MetaData(), schema=schema or None, autoload_with=connection)
    except NoSuchTableError:
        raise CallerError(
            f'table "{name}" does not exist', hint="schema.table, or table", code="HUB-1642"
        ) from None
    if missing := [each for each in _COLUMNS if each not in found.columns]:
        raise CallerError(
            f'table "{name}" has no column {", ".join(missing)}',
            hint="it needs the columns topic, partition and offset; a view over the table can rename them",
            code="HUB-1642",
        )
    return found


def _columns(table: Table) -> tuple[Column[str], Column[int], Column[int]]:
    topic, partition, offset = (table.columns[each] for each in _COLUMNS)
    return topic, partition, offset


@contextmanager
def _transaction(url: str) -> Iterator[Connection]:
    spelled = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)
    postgres = spelled.startswith("postgresql+psycopg://")
    if not postgres and not spelled.startswith("sqlite:"):
        raise ConfigError(
            f'"{without_credentials(url)[:100]}" is neither Postgres nor SQLite',
            hint="write postgresql://user@host/database or sqlite:////PATH",
            code="HUB-1101",
        )
    waits = {"connect_timeout": _TIMEOUT_S, "options": "-c statement_timeout=60000 -c lock_timeout=10000"}
    try:
        engine = create_engine(spelled, connect_args=waits if postgres else {"timeout": _TIMEOUT_S})
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"the address of the database: {error}", code="HUB-1101") from None
    try:
        with engine.begin() as connection:
            if not postgres:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
    except SQLAlchemyError as error:
        raise PeerError(
            f"database: {str(error).splitlines()[0][:300]}",
            hint="nothing was changed; the message is the database's own",
            code="HUB-3618",
        ) from None
    finally:
        engine.dispose()
