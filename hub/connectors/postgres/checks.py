"""[core] Requirements on a Postgres whose changes are captured: findings, each with the exact SQL that
resolves it.

Source: Debezium's documentation of its Postgres connector, and Postgres's chapters on logical replication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hub.connectors.postgres.facts import PostgresFacts, PostgresTable
from hub.errors import NotFound


@dataclass(frozen=True, slots=True)
class PostgresFinding:
    """One check. ``fix``: the SQL, and what else, for one that is not ``ok``."""

    check: str
    ok: bool
    found: str
    fix: str = ""


def chosen(facts: PostgresFacts, patterns: Sequence[str]) -> list[PostgresTable]:
    """Return the tables that a pattern such as ``public.*`` names; all without patterns. Raises NotFound."""
    for pattern in patterns:
        if not any(fnmatchcase(each.full_name, pattern) for each in facts.tables):
            known = ", ".join(each.full_name for each in facts.tables[:10]) or "none"
            raise NotFound(
                f'database "{facts.database}": no table is called {pattern}',
                hint=f"its tables: {known}",
                code="HUB-1461",
            )
    postgres_tables = [
        each
        for each in facts.tables
        if not patterns or any(fnmatchcase(each.full_name, pattern) for pattern in patterns)
    ]
    if not postgres_tables:
        raise NotFound(
            f'database "{facts.database}" has no table',
            hint="create one, or name another database",
            code="HUB-1461",
        )
    return postgres_tables


def findings(facts: PostgresFacts, tables: Sequence[PostgresTable], name: str) -> list[PostgresFinding]:
    """Return every check of the database for these tables. ``name``: of slot and publication."""
    return [
        _version(facts),
        _wal_level(facts),
        _role(facts),
        *_room(facts, name),
        _readable(facts, tables),
        _publication(facts, tables, name),
        *_identities(tables),
    ]


def _version(facts: PostgresFacts) -> PostgresFinding:
    return PostgresFinding(
        "version", facts.version >= 10, f"Postgres {facts.version}", "pgoutput needs Postgres 10 or later"
    )


def _wal_level(facts: PostgresFacts) -> PostgresFinding:
    fix = "ALTER SYSTEM SET wal_level = 'logical';  -- then restart Postgres"
    return PostgresFinding("wal_level", facts.wal_level == "logical", facts.wal_level, fix)


def _role(facts: PostgresFacts) -> PostgresFinding:
    ok = facts.may_replicate or facts.is_super
    found = f"role {facts.role} {'may' if ok else 'may not'} replicate"
    return PostgresFinding("role", ok, found, f"ALTER ROLE {_quoted(facts.role)} WITH REPLICATION;")


def _room(facts: PostgresFacts, slot: str) -> Iterator[PostgresFinding]:
    if slot in facts.slots:
        active = facts.slots[slot]
        found = f"slot {slot} exists, {'in use by another connector' if active else 'not in use'}"
        yield PostgresFinding(
            "slot", not active, found, "choose another --name, or stop the reader of this slot"
        )
    else:
        ok = facts.free_slots > 0
        fix = "ALTER SYSTEM SET max_replication_slots = 20;  -- then restart Postgres"
        yield PostgresFinding("slot", ok, f"{max(0, facts.free_slots)} replication slots are free", fix)
    fix = "ALTER SYSTEM SET max_wal_senders = 20;  -- then restart Postgres"
    yield PostgresFinding(
        "wal_senders", facts.free_senders > 0, f"{max(0, facts.free_senders)} WAL senders are free", fix
    )


def _readable(facts: PostgresFacts, tables: Sequence[PostgresTable]) -> PostgresFinding:
    closed = [each for each in tables if not each.readable]
    role = _quoted(facts.role)
    schemas = dict.fromkeys(each.schema for each in closed)
    fix = " ".join(
        [f"GRANT USAGE ON SCHEMA {_quoted(each)} TO {role};" for each in schemas]
        + [f"GRANT SELECT ON {', '.join(map(_table, closed))} TO {role};"]
    )
    found = f"{len(tables) - len(closed)} of {len(tables)} tables may be read"
    return PostgresFinding("read", not closed, found, fix)


def _publication(facts: PostgresFacts, tables: Sequence[PostgresTable], name: str) -> PostgresFinding:
    if name not in facts.publications:
        owned = all(each.owned for each in tables) and facts.may_create
        found = f"publication {name} is missing" + ("; the connector creates it" if owned else "")
        ok, fix = owned, f"CREATE PUBLICATION {_quoted(name)} FOR TABLE {', '.join(map(_table, tables))};"
    else:
        published = facts.publications[name]
        missing = [each for each in tables if published is not None and each.full_name not in published]
        found = f"publication {name} has {len(tables) - len(missing)} of {len(tables)} tables"
        ok, fix = (
            not missing,
            f"ALTER PUBLICATION {_quoted(name)} ADD TABLE {', '.join(map(_table, missing))};",
        )
    return PostgresFinding("publication", ok, found, fix)


def _identities(tables: Sequence[PostgresTable]) -> Iterator[PostgresFinding]:
    """Yield the tables of which Postgres would refuse updates once they are published,
    or lose the old key."""
    lost = [each for each in tables if each.identity == "n" or (each.identity == "d" and not each.has_key)]
    if not lost:
        yield PostgresFinding("replica identity", True, "every table has a primary key or a replica identity")
    for each in lost:
        found = (
            f"{each.full_name} has no primary key: its updates and deletes are refused once it is published"
        )
        fix = f"ALTER TABLE {_table(each)} REPLICA IDENTITY FULL;  -- or give it a primary key"
        yield PostgresFinding("replica identity", False, found, fix)


def _table(table: PostgresTable) -> str:
    return f"{_quoted(table.schema)}.{_quoted(table.name)}"


def _quoted(name: str) -> str:
    """Quote an identifier.

    >>> _quoted('a"b'), _quoted("hub_crm")
    ('"a""b"', '"hub_crm"')
    """
    return '"' + name.replace('"', '""') + '"'
