"""[edge] psycopg: settings and tables of a Postgres, read in one short read-only transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.rows import dict_row

from hub.errors import ConfigError, PeerError

CONNECT_S = 10
_STATEMENT_MS = 30_000
MOST_TABLES = 2_000

_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.relreplident::text AS identity,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_key,
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS readable,
       pg_has_role(c.relowner, 'USAGE') AS owned, greatest(c.reltuples, 0)::bigint AS rows
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%%'
ORDER BY 1, 2 LIMIT %s
"""
_ROLE = (
    "SELECT rolname AS name, rolsuper AS super, rolreplication AS replication FROM pg_roles WHERE "
    "rolname = current_user"
)
_PUBLICATIONS = """
SELECT p.pubname AS name, p.puballtables AS whole, t.schemaname AS schema, t.tablename AS table
FROM pg_publication p LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname
"""


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table. ``identity``: its replica identity (d: primary key, f: full, i: an index, n: nothing)."""

    schema: str
    name: str
    has_key: bool
    identity: str
    readable: bool
    owned: bool
    rows: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A database as its role sees it.
    ``publications``: name → tables (``schema.name``), None for all tables."""

    host: str
    port: int
    database: str
    role: str
    version: int
    wal_level: str
    may_replicate: bool
    is_super: bool
    may_create: bool
    free_slots: int
    free_senders: int
    tables: Sequence[PostgresTable]
    publications: Mapping[str, frozenset[str] | None]
    slots: Mapping[str, bool]


def read_facts(url: str) -> PostgresFacts:
    """Return the facts. Raises ConfigError (HUB-1460) for an address that is none, PeerError (HUB-3083)."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.hostname or not parts.path.strip("/"):
        raise ConfigError(
            "--from is not an address of a database",
            hint="write postgresql://USER:PASSWORD@HOST:5432/DATABASE",
            code="HUB-1460",
        )
    where = f"{parts.hostname}:{parts.port or 5432}/{parts.path.strip('/')}"
    try:
        with psycopg.connect(
            url,
            connect_timeout=CONNECT_S,
            row_factory=dict_row,
            options=f"-c statement_timeout={_STATEMENT_MS} -c default_transaction_read_only=on",
        ) as connection:
            return _facts(connection, parts.hostname, parts.port or 5432)
    except psycopg.Error as error:
        password = unquote(parts.password or "")
        reason = " ".join(str(error).split())[:500]
        reason = reason.replace(password, "(hidden)") if password else reason
        raise PeerError(
            f"Postgres at {where}: {reason}",
            hint="is it running, and may this user sign in from here (pg_hba.conf)?",
            code="HUB-3083",
        ) from None


def _facts(connection: psycopg.Connection[dict[str, object]], host: str, port: int) -> PostgresFacts:
    def rows(sql: str, *values: object) -> list[dict[str, object]]:
        return connection.execute(sql.encode(), values or None).fetchall()

    def setting(name: str) -> str:
        return str(rows("SELECT current_setting(%s) AS it", name)[0]["it"])

    role = rows(_ROLE)[0]
    slots = rows("SELECT slot_name AS name, active FROM pg_replication_slots")
    senders = rows("SELECT count(*) AS it FROM pg_stat_replication")[0]["it"]
    publications: dict[str, set[str] | None] = {}
    for each in rows(_PUBLICATIONS):
        tables = publications.setdefault(str(each["name"]), None if each["whole"] else set())
        if tables is not None and each["table"] is not None:
            tables.add(f"{each['schema']}.{each['table']}")
    create = rows("SELECT has_database_privilege(current_database(), 'CREATE') AS it")[0]["it"]
    return PostgresFacts(
        host,
        port,
        str(rows("SELECT current_database() AS it")[0]["it"]),
        str(role["name"]),
        connection.info.server_version // 10_000,
        setting("wal_level"),
        bool(role["replication"]),
        bool(role["super"]),
        bool(create),
        int(setting("max_replication_slots")) - len(slots),
        int(setting("max_wal_senders")) - int(str(senders)),
        [
            PostgresTable(
                str(each["schema"]),
                str(each["name"]),
                bool(each["has_key"]),
                str(each["identity"]),
                bool(each["readable"]),
                bool(each["owned"]),
                int(str(each["rows"])),
            )
            for each in rows(_TABLES, MOST_TABLES)
        ],
        {name: None if tables is None else frozenset(tables) for name, tables in publications.items()},
        {str(each["name"]): bool(each["active"]) for each in slots},
    )
