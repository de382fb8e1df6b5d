"""[core] SQLAlchemy: names within the databases' limits, and the statement that takes newer rows."""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy import Connection, Table

# Postgres truncates longer names, possibly to the same name.
_LONGEST_NAME = 63


def stored_name(wanted: str, also: str = "") -> str:
    """Return a name within the databases' length limit; a hash keeps truncated names distinct."""
    if len(wanted) <= _LONGEST_NAME:
        return wanted
    return f"{wanted[: _LONGEST_NAME - 9]}_{sha256(f'{wanted}/{also}'.encode()).hexdigest()[:8]}"


def upsert_text(connection: Connection, table: Table, key: str, newer: str) -> str:
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
