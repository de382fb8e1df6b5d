"""[edge] The outbox in its database: table, publication and slot, the checks before them,
and the slot's lag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from hub.config import without_credentials
from hub.errors import CallerError, ConfigError, HubError, PeerError
from hub.outbox.pgoutput import parse_lsn

TABLE, PUBLICATION = "hub_outbox", "hub_outbox"
_OLDEST = 100_000  # Postgres 10 has pgoutput
_ANSWER_MS = 5_000

CREATE_TABLE = """CREATE TABLE IF NOT EXISTS {table} (
  id uuid PRIMARY KEY,
  aggregatetype text NOT NULL,
  aggregateid text NOT NULL,
  type text,
  payload bytea,
  headers jsonb NOT NULL DEFAULT '{{}}' CHECK (jsonb_typeof(headers) = 'object'),
  created_at timestamptz NOT NULL DEFAULT now()
)"""
CREATE_PUBLICATION = "CREATE PUBLICATION {publication} FOR TABLE {table} WITH (publish = 'insert')"
ADD_TO_PUBLICATION = "ALTER PUBLICATION {publication} ADD TABLE {table}"
CREATE_SLOT = "SELECT pg_create_logical_replication_slot({slot}, 'pgoutput')"


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts of a database that the checks judge. ``free_slots`` and ``free_senders``: how many more may be
    opened.
    ``publishes``: the publication has the table.
    """

    version: int
    in_recovery: bool
    wal_level: str
    may_replicate: bool
    free_slots: int
    free_senders: int
    keeps_wal_mb: int
    role: str
    database: str
    table: bool
    publication: bool
    publishes: bool
    slot: bool


@dataclass(frozen=True, slots=True)
class OutboxProblem:
    """Something that keeps the relay from working (``fatal``) or from being safe, and its exact fix."""

    what: str
    fix: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class OutboxSlot:
    """State of the slot. ``lag_bytes``: log that the relay has not confirmed. ``active``: a relay reads it.
    ``confirmed_lsn``: place from which the slot has the log.
    """

    active: bool
    lag_bytes: int | None
    retained_bytes: int | None
    wal_status: str
    confirmed_lsn: int | None


def problems(facts: DatabaseFacts) -> list[OutboxProblem]:
    """Return what stands between this database and a relay, fatal problems first."""
    problems = []
    if facts.version < _OLDEST:
        problems.append(
            OutboxProblem(
                f"Postgres {facts.version // 10_000} has no pgoutput", "upgrade to Postgres 10 or later"
            )
        )
    if facts.in_recovery:
        problems.append(OutboxProblem("the server is a standby", "name the primary in the URL"))
    if facts.wal_level != "logical":
        fix = "ALTER SYSTEM SET wal_level = 'logical';  then restart Postgres"
        problems.append(OutboxProblem(f"wal_level is {facts.wal_level}", fix))
    if not facts.may_replicate:
        fix = (
            f'ALTER ROLE "{facts.role}" REPLICATION;  on Amazon RDS: GRANT rds_replication TO "{facts.role}";'
        )
        problems.append(OutboxProblem(f'role "{facts.role}" may not replicate', fix))
    if facts.free_slots < 1 and not facts.slot:
        fix = "ALTER SYSTEM SET max_replication_slots = …;  one more than now, then restart Postgres"
        problems.append(OutboxProblem("every replication slot is taken", fix))
    if facts.free_senders < 1:
        fix = "ALTER SYSTEM SET max_wal_senders = …;  one more than now, then restart Postgres"
        problems.append(OutboxProblem("every WAL sender is taken", fix))
    if facts.keeps_wal_mb < 0:
        fix = "ALTER SYSTEM SET max_slot_wal_keep_size = '20GB';  SELECT pg_reload_conf();"
        problem = "max_slot_wal_keep_size is unlimited: while no relay runs, the log fills the disk"
        problems.append(OutboxProblem(problem, fix, fatal=False))
    return problems


def slot_name(database: str) -> str:
    """Return the name of a database's slot: slots are named per server, not per database.

    >>> slot_name("shop-eu")
    'hub_outbox_shop_eu'
    """
    return f"hub_outbox_{re.sub(r'[^a-z0-9_]', '_', database.lower())}"[:63]


def plain_url(url: str) -> str:
    """Return the URL for psycopg. Raises ConfigError (HUB-1101) for another database.

    >>> plain_url("postgresql+psycopg://app@db/shop")
    'postgresql://app@db/shop'
    """
    found = re.sub(r"^postgres(ql)?(\+psycopg)?://", "postgresql://", url)
    if not found.startswith("postgresql://"):
        raise ConfigError(
            f'"{without_credentials(url)[:100]}" is not a URL of Postgres',
            hint="write postgresql://user:password@host:5432/database",
            code="HUB-1101",
        )
    return found


class OutboxDatabase:
    """An ordinary connection to the outbox's database. Not thread safe; statements end within 5 s."""

    def __init__(self, connection: psycopg.Connection[Any], table: str) -> None:
        self._connection = connection
        self.table = table
        parts = table.split(".")
        if len(parts) > 2 or not all(parts):
            raise ConfigError(
                f'"{table}" is not a table', hint="write table or schema.table", code="HUB-1101"
            )
        self._names = {
            "table": sql.Identifier(*parts),
            "publication": sql.Identifier(PUBLICATION),
        }
        with _translated():
            self.slot = slot_name(self._fetch_row("SELECT current_database()")[0])

    def system_id(self) -> str:
        """Return the id of the database server, which its replicas share. Raises PeerError."""
        with _translated():
            return str(self._fetch_row("SELECT system_identifier FROM pg_control_system()")[0])

    def facts(self) -> DatabaseFacts:
        """Return what the checks look at. Raises PeerError."""
        with _translated():
            row = self._fetch_row(
                """SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                current_setting('wal_level'),
                EXISTS (SELECT FROM pg_roles r WHERE (r.rolreplication OR r.rolsuper) AND r.rolname = current_user)
                  OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication'
                             AND pg_has_role(current_user, r.oid, 'member')),
                current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),
                current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication),
                coalesce((SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), -1),
                current_user, current_database(), to_regclass(%s) IS NOT NULL,
                EXISTS (SELECT FROM pg_publication WHERE pubname = %s),
                EXISTS (SELECT FROM pg_publication_tables WHERE pubname = %s
                        AND to_regclass(format('%%I.%%I', schemaname, tablename)) = to_regclass(%s)),
                EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)""",  # noqa: E501
                (self.table, PUBLICATION, PUBLICATION, self.table, self.slot),
            )
        return DatabaseFacts(*row)

    def statements(self, facts: DatabaseFacts) -> list[str]:
        """Return the SQL that is still to run, in order:
        a slot sees publications that were made before it."""
        wanted = (
            (facts.table, CREATE_TABLE),
            (facts.publishes, ADD_TO_PUBLICATION if facts.publication else CREATE_PUBLICATION),
            (facts.slot, CREATE_SLOT),
        )
        names = {**self._names, "slot": sql.Literal(self.slot)}
        return [
            sql.SQL(text).format(**names).as_string(self._connection) for done, text in wanted if not done
        ]

    def run(self, statements: Iterable[str]) -> None:
        """Run statements of ``statements``. Raises ConfigError (HUB-1140) for one that Postgres refuses."""
        for statement in statements:
            with _translated(statement.splitlines()[0]):
                self._connection.execute(statement.encode())

    def slot_state(self) -> OutboxSlot | None:
        """Return the state of the slot; None: there is none. Raises PeerError."""
        with _translated():
            # wal_status came with Postgres 13.
            row = self._connection.execute(
                """SELECT active, pg_current_wal_lsn() - confirmed_flush_lsn,
                pg_current_wal_lsn() - restart_lsn,
                coalesce(to_jsonb(s) ->> 'wal_status', 'unknown'), confirmed_flush_lsn::text
                FROM pg_replication_slots s WHERE slot_name = %s""",
                (self.slot,),
            ).fetchone()
        if row is None:
            return None
        lag, retained = (None if value is None else int(value) for value in row[1:3])
        return OutboxSlot(row[0], lag, retained, row[3], None if row[4] is None else parse_lsn(row[4]))

    def publishes(self) -> bool:
        """Return whether the publication has the table, with its inserts. Raises PeerError."""
        with _translated():
            row = self._fetch_row(
                """SELECT EXISTS (SELECT FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
                WHERE pubname = %s AND p.pubinsert
                AND to_regclass(format('%%I.%%I', schemaname, tablename)) = to_regclass(%s))""",
                (PUBLICATION, self.table),
            )
        return bool(row[0])

    def clock_ms(self) -> int:
        """Return the database's time, epoch milliseconds. Raises PeerError."""
        with _translated():
            return int(self._fetch_row("SELECT extract(epoch FROM clock_timestamp()) * 1000")[0])

    def waiting_rows(self, limit: int, since_ms: int) -> tuple[int, list[str]]:
        """Return the end of the log, and ids of rows that were made after a time and committed before that
        end. Raises PeerError.
        """
        text = "SELECT id::text FROM {table} WHERE created_at > to_timestamp(%s / 1000.0) LIMIT %s"
        with _translated():
            ids = self._connection.execute(self._sql(text), (since_ms, limit)).fetchall()
            (end,) = self._fetch_row("SELECT pg_current_wal_insert_lsn()::text")
        return parse_lsn(end), [row[0] for row in ids]

    def delete(self, ids: Sequence[str]) -> set[str]:
        """Delete relayed rows and return the ids of those that were there; the publication does not publish
        deletions. Raises PeerError.
        """
        statement = self._sql("DELETE FROM {table} WHERE id = ANY(%s::uuid[]) RETURNING id::text")
        with _translated("DELETE"):
            return {row[0] for row in self._connection.execute(statement, (list(ids),)).fetchall()}

    def insert_again(self, event_id: str | None) -> int:
        """Write a row again under its id, so that it is relayed again; None: every row.
        Return their number."""
        again = self._sql("INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, %s)).*")
        gone = self._sql(
            "DELETE FROM {table} t WHERE %s::uuid IS NULL OR id = %s::uuid RETURNING to_jsonb(t)"
        )
        with _translated("INSERT"), self._connection.transaction():
            rows = self._connection.execute(gone, (event_id, event_id)).fetchall()
            for (row,) in rows:
                self._connection.execute(again, (Jsonb(row),))
        return len(rows)

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(table=self._names["table"])

    def _fetch_row(self, text: str, parameters: Sequence[object] = ()) -> Any:
        return self._connection.execute(text.encode(), parameters).fetchone()


@contextmanager
def opened(url: str, table: str = TABLE) -> Iterator[OutboxDatabase]:
    """Connect for the block. Raises ConfigError (HUB-1101, HUB-1140), PeerError (HUB-3092)."""
    with _translated():
        connection = psycopg.connect(
            plain_url(url),
            autocommit=True,
            connect_timeout=5,
            options=f"-c statement_timeout={_ANSWER_MS}",
            application_name="hub outbox",
        )
    try:
        yield OutboxDatabase(connection, table)
    finally:
        connection.close()


def check_fatal(facts: DatabaseFacts) -> None:
    """Raise ConfigError (HUB-1140) for the first fatal problem."""
    for problem in problems(facts):
        if problem.fatal:
            raise ConfigError(
                f'database "{facts.database}": {problem.what}', hint=problem.fix, code="HUB-1140"
            )


@contextmanager
def _translated(doing: str = "") -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise _explained(error, doing) from None


def _explained(error: psycopg.Error, doing: str) -> HubError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    message = f"database of the outbox{f': {doing}' if doing else ''}: {reason}"
    if isinstance(error, psycopg.OperationalError):
        return PeerError(message, hint="check the database and its URL", code="HUB-3092")
    if isinstance(error, psycopg.errors.InsufficientPrivilege | psycopg.errors.UndefinedTable):
        return ConfigError(
            message, hint="run `hub outbox init` as a role that owns the table", code="HUB-1140"
        )
    return CallerError(message, hint="correct it in the database", code="HUB-1140")
