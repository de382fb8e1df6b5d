"""[core] Questions of drivers that are asked in a way of their own, as plain ones with the same columns."""

from __future__ import annotations

# asyncpg's question about types that it does not know, arrays among them: a recursive query of 200 lines over
# domains, ranges and composite types (asyncpg/introspection.py), none of which is here.
_TYPES = """
SELECT t.oid, 'pg_catalog' AS ns, t.typname AS name, t.typtype AS kind, CAST(NULL AS oid) AS basetype,
  t.typelem AS elemtype, e.typdelim AS elemdelim, CAST(NULL AS oid) AS range_subtype,
  CAST(NULL AS text[]) AS attrtypoids, CAST(NULL AS text[]) AS attrnames, 0 AS depth,
  CAST(NULL AS text) AS basetype_name, e.typname AS elemtype_name, CAST(NULL AS text) AS range_subtype_name
FROM pg_catalog.pg_type AS t LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem
WHERE t.oid = ANY($1) OR t.typarray = ANY($1)
ORDER BY t.typelem
"""


def plain_question(sql: str) -> str:
    """Return the plain form of a driver's known question, and any other text as it is."""
    if "typeinfo_tree" in sql and "pg_catalog.pg_type" in sql and len(sql) > 3_000:
        return _TYPES
    return sql
