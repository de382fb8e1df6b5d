"""Errors that Spark would raise are reported when a view's file is checked, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import parse_one

from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.sql_rules.checks import slow_patterns

_DECLARED = "{id: bigint, n: bigint, name: string, items: array<bigint>, at: timestamp}"
SCHEMAS = {
    "s": {
        "type": "record",
        "name": "s",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "n", "type": ["null", "long"]},
            {"name": "name", "type": ["null", "string"]},
            {"name": "items", "type": ["null", {"type": "array", "items": ["null", "long"]}]},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
}


def check(file: Path, sql: str | None, field: str | None = None) -> None:
    """Check a SQL view, or an entity view with one field."""
    source = f"{{topic: t, format: json, schema: {_DECLARED}"
    if sql is not None:
        time = ", event_time: at, watermark: 1 hour" if "window" in sql else ""
        file.write_text(f"view: v\nsources: {{s: {source}{time}}}}}\nsql: {sql}\nkey: id\n")
        view = load_view(file)
        assert isinstance(view, SqlView)
        checked(view, SCHEMAS)
        return
    file.write_text(f"view: v\nsources: {{s: {source}, key: id}}}}\nfields: {{x: {field}}}\n")
    entity = load_view(file)
    assert isinstance(entity, View)
    shape(entity, SCHEMAS)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, lenght(name) AS x FROM s", (r"function lenght\(\) does not exist.*did "
        r"you mean length\(\)\?")),
        (("SELECT id, count(*) AS x FROM s WHERE "
        "uper(name) = 'A' GROUP BY id"), r"function uper\(\) does not exist"),
        ("SELECT id, max(count(n)) AS x FROM s GROUP BY id", r"`MAX\(COUNT\(n\)\)` aggregates an aggregate"),
        (("SELECT id, max(try_sum(n) FILTER (WHERE n > 1)) "
        "AS x FROM s GROUP BY id"), r"aggregates an aggregate"),
        ("SELECT id, sum(items) AS x FROM s GROUP BY id", r"`SUM\(items\)` adds a list"),
        ("SELECT id, count(*) AS x FROM s GROUP BY id, window(at, '0 seconds')", r"the length of a window"),
        ("SELECT id, count(*) AS x FROM s GROUP BY id, window(at, '5 minutes', '0 minutes')",
        r"the slide of"),
        ("SELECT id, count(*) AS x FROM s GROUP BY id, session_window(at, '-1 minute')", r"the gap of"),
        ("SELECT id, count(*) AS x FROM s GROUP BY id, window(at, INTERVAL '0' HOUR)", r"the length of"),
    ],
)  # fmt: skip
def test_a_sql_view_is_refused_with_the_place(tmp_path: Path, sql: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)SQL line 1, column .*{said}|{said}") as error:
        check(tmp_path / "v.yaml", sql)
    assert error.value.code == "HUB-2105"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("lenght(s.name)", r"function lenght\(\) does not exist"),
        ("max(count(s.n))", r"aggregates an aggregate"),
        ("sum(s.items)", r"adds a list"),
    ],
)
def test_an_entity_view_is_refused_with_its_field(tmp_path: Path, field: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f'field "x": .*{said}'):
        check(tmp_path / "v.yaml", None, field)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, length(name) AS x FROM s",
        "SELECT id, max(n) AS x FROM s GROUP BY id",
        "SELECT id, sum(aggregate(items, 0L, (a, b) -> a + b)) AS x FROM s GROUP BY id",
        "SELECT id, max(c) AS x FROM (SELECT id, count(n) AS c FROM s GROUP BY id) GROUP BY id",
        "SELECT id, try_sum(n) AS x FROM s GROUP BY id",
        "SELECT id, count(*) AS x FROM s GROUP BY id, window(at, '10 minutes', '5 minutes')",
        "SELECT id, bit_get(n, 1) AS x, xxhash64(name) AS y, nullifzero(n) AS z FROM s",
        "SELECT id, name RLIKE '^(a+)+$' AS x FROM s",
    ],
)
def test_what_spark_takes_is_taken(tmp_path: Path, sql: str) -> None:
    check(tmp_path / "v.yaml", sql)


@pytest.mark.parametrize(
    ("pattern", "slow"),
    [
        ("^(a+)+$", True),
        ("(x+x+)+y", True),
        ("([a-z]*)*", True),
        ("^([a-z]+)@([a-z]+)$", False),
        ("^(ab)+c*$", False),
        ("a+b+", False),
    ],
)  # fmt: skip
def test_a_pattern_whose_time_may_double_is_told(pattern: str, slow: bool) -> None:
    for call in (f"name RLIKE '{pattern}'", f"regexp_replace(name, '{pattern}', '')"):
        assert (slow_patterns(parse_one(f"SELECT {call} FROM s", dialect="spark")) == [pattern]) is slow
