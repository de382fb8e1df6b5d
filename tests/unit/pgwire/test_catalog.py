"""A client's SQL as the hub's and as DuckDB's: names, parameters, functions, what is let through."""

from __future__ import annotations

import pytest

from hub.materializers.queries.inspection import tables_of
from hub.materializers.queries.parser import SqlError, parse
from hub.pgwire.catalog.layout import LAYOUT, definitions
from hub.pgwire.catalog.rewrite import CatalogSession, catalog_sql, is_catalog
from hub.pgwire.catalog.snapshot import CatalogTable, numbered
from hub.pgwire.hub_sql import hub_query, parameter_count
from hub.pgwire.sqlstates import PgError

ME = CatalogSession("ada", 7, "2026-01-01 00:00:00")


def rewritten(sql: str, *values: object) -> str:
    return catalog_sql(parse(sql), values, ME)  # type: ignore[arg-type]


def test_a_query_is_of_the_hub_or_of_catalogs() -> None:
    for sql, catalog in {
        "SELECT 1": True,
        "SELECT * FROM pg_class": True,
        "SELECT * FROM information_schema.tables": True,
        "WITH pg AS (SELECT * FROM pg_type) SELECT * FROM pg": True,
        "SELECT * FROM hub.views": True,
        "SELECT * FROM plant": False,
        'SELECT * FROM topics."shop.orders"': False,
        "SELECT * FROM tables": False,
    }.items():
        assert is_catalog(parse(sql)) is catalog, sql
    with pytest.raises(PgError, match="either views and topics, or catalogs"):
        is_catalog(parse("SELECT * FROM plant, pg_class"))
    with pytest.raises(PgError, match="does not exist"):
        is_catalog(parse("SELECT * FROM pg_catalog.pg_nothing"))


def test_catalog_names_functions_and_types() -> None:
    assert rewritten("SELECT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c") == (
        'SELECT PGF_PG_GET_USERBYID(c.relowner) AS "pg_get_userbyid" FROM pg_catalog__pg_class AS c'
    )
    assert "7" in rewritten("SELECT pg_backend_pid()")
    assert "'ada'" in rewritten("SELECT current_user")
    assert "list_contains" in rewritten("SELECT 1 FROM pg_class WHERE relkind = ANY(ARRAY['r', 'v'])").lower()
    assert "COLLATE" not in rewritten('SELECT relname COLLATE pg_catalog."default" FROM pg_class')


def test_parameters_are_literals_that_cannot_leave_their_quotes() -> None:
    assert "'x''; DROP TABLE y; --'" in rewritten(
        "SELECT 1 FROM pg_class WHERE relname = $1", "x'; DROP TABLE y; --"
    )
    with pytest.raises(PgError, match=r"no parameter \$2"):
        rewritten("SELECT $2", 1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('*')",
        "SELECT getenv('HOME')",
        "SELECT pg_sleep(10)",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM pg_class, nothing",
    ],
)
def test_only_the_catalog_is_let_through(sql: str) -> None:
    with pytest.raises((PgError, SqlError)):
        is_catalog(parse(sql)) and rewritten(sql)


def test_a_query_over_views_gets_plain_names_and_named_parameters() -> None:
    asked = hub_query(
        parse('SELECT "public"."plant"."n" FROM "hub"."public"."plant" WHERE n = $1 LIMIT $2'), [5, 2], {}
    )
    assert tables_of(asked.statement) == ["plant"] and asked.parameters == {"p1": 5, "p2": 2}
    sql = asked.statement.tree.sql(dialect="postgres")
    assert '"public"' not in sql and "p1" in sql
    assert parameter_count(parse("SELECT $3, $1 FROM plant")) == 3


def test_any_of_an_array_is_a_list() -> None:
    statement = parse("SELECT 1 FROM plant WHERE city = ANY($1)")
    assert hub_query(statement, [["a", "b"]], {}).parameters == {"p1_1": "a", "p1_2": "b"}
    assert hub_query(statement, ["{a,b}"], {}).parameters == {"p1_1": "a", "p1_2": "b"}
    assert "FALSE" in hub_query(statement, [[]], {}).statement.tree.sql()
    with pytest.raises(SqlError, match="1000 are allowed"):
        hub_query(statement, [["x"] * 1_001], {})
    with pytest.raises(SqlError, match="is an array"):
        hub_query(parse("SELECT 1 FROM plant WHERE city = $1"), [["a"]], {})


def test_saved_queries_are_tables() -> None:
    asked = hub_query(parse("SELECT q.n FROM queries.warm AS q"), [], {"warm": "SELECT n FROM plant"})
    assert tables_of(asked.statement) == ["plant"]
    with pytest.raises(SqlError, match="does not exist"):
        hub_query(parse("SELECT * FROM queries.cold"), [], {})


def test_tables_keep_their_numbers() -> None:
    tables = [CatalogTable("public", name, "v", ()) for name in ("a", "b", "c")]
    before = {table.name: oid for oid, table in numbered(tables)}
    assert {table.name: oid for oid, table in numbered(tables[1:])}.items() <= before.items()
    assert len({*before.values()}) == 3
    assert len(definitions()) == sum(len(each) for each in LAYOUT.values())
