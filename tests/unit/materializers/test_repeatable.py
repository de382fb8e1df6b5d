"""Expressions that no view may have: other values on a replay, calls out of Spark, failures at one event."""

from __future__ import annotations

import re

import pytest
from sqlglot.dialects.dialect import Dialect

from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_checks import delete_columns, query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.delta_plan import Table
from hub.materializers.planning.delta_planner import plan
from hub.materializers.sql_rules.determinism import refused

SPARK = Dialect.get_or_raise("spark")
EVENT = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "string"}],
}

NEVER = [
    "localtimestamp()", "localtime()", "current_timestamp", "getdate()", "curdate()", "unix_timestamp()",
    "current_timezone()",
    "uniform(1, 2)", "randstr(3)", "random()", "uuid()", "shuffle(array(x))", "monotonically_increasing_id()",
    "spark_partition_id()", "input_file_name()", "current_user()", "session_user()", "user()", "version()",
    "current_schema()",
    "first(x)", "any_value(x)", "mode(x)", "mode(x, false)", "listagg(x)", "aes_encrypt(x, 'k')",
    "reflect('java.lang.System', 'exit', 1)", "raise_error('no')",
    "TIMESTAMP 'now'", "DATE 'today'", "CAST(' Yesterday ' AS DATE)", "TIMESTAMP_NTZ 'tomorrow CET'",
    "try_cast('now' AS timestamp)",
    "to_date('today')", "to_timestamp_ntz('now')", "date_add('today', 1)", "year('now')", "x > 'today'",
    "x BETWEEN 'today' AND 'z'",
]  # fmt: skip
TAKEN = [
    "unix_timestamp(x)", "mode(x, true)", "mode() WITHIN GROUP (ORDER BY x)", "aes_encrypt(x, 'k', 'ECB')",
    "hash(x)",
    "if(x = 'now', 1, 0)", "x IN ('today', 'later')", "concat('today ', x)", "date_format(x, 'yyyy')",
    "DATE '2024-01-01'",
    "'now' AS version", "x >= 'Nowak'", "CAST('now' AS STRING)", "x.user", "version",
]  # fmt: skip


@pytest.mark.parametrize("text", NEVER)
def test_no_kind_of_view_takes_it(text: str) -> None:
    found: list[str] = []
    sources = {"o": {"topic": "o", "key": "id"}}
    entity = View.model_validate(
        {"view": "v", "sources": sources, "fields": {"f": re.sub(r"\bx\b", "o.x", text)}}
    )
    sql = f"SELECT id, {text} AS f FROM o GROUP BY id"
    sql_view = SqlView.model_validate(
        {"view": "v", "sources": {"o": {"topic": "o"}}, "sql": sql, "key": "id"}
    )
    table = Table("o", {"id": "string", "x": "string"}, ("id",))
    for make in (
        lambda: shape(entity, {"o": EVENT}),
        lambda: query_of(sql_view),
        lambda: plan(sql, [table], ["id"]),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        found.append(caught.value.code)
    assert found == ["HUB-2102", "HUB-2112", "HUB-2133"]


def test_nor_does_a_table_s_delete_when() -> None:
    source = {"topic": "o", "table": {"key": "id", "delete_when": "x < localtimestamp()"}}
    view = SqlView.model_validate({"view": "v", "sources": {"o": source}, "sql": "SELECT id FROM o"})
    with pytest.raises(ConfigError, match="not an expression over one event"):
        delete_columns("o", view.sources["o"])


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_the_same_on_every_replay_is_taken(text: str) -> None:
    sql = f"SELECT {text} FROM o"
    (tree,) = SPARK.parse(sql)
    assert tree is not None and refused(SPARK.tokenize(sql), tree) is None
