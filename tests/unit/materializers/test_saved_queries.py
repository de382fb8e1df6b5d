"""Saved queries: their files, the columns that they read, and the impact of a new schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.queries.saved_queries import (
    SavedQuery,
    columns_of,
    columns_used,
    load_queries,
    load_query,
    query_impacts,
)
from hub.schema_registry.registry.snapshot import ParsedSchema, parse

TOPIC = "nyc.jfk.departures"
TABLES = {
    TOPIC: ("carrier", "dep_delay", "Tail", "to"),
    "v": ("key", "a", "b", "items"),
    "w": ("key", "k", "x"),
}


# ---- files


def test_queries_are_loaded_by_name_with_the_comment_above_as_doc(tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "late.sql").write_text(
        "\n-- How late?\n--   By carrier.\n\nselect 1 -- not this\n-- nor this\n;"
    )
    (folder / "all.sql").write_text("from customer_360")
    (folder / "notes.txt").write_text("no query")
    first, second = load_queries(tmp_path)
    assert (first.name, first.doc) == ("all", "")
    assert second == SavedQuery(
        "late", folder / "late.sql", (folder / "late.sql").read_text(), "How late?\nBy carrier."
    )
    assert load_queries(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("select 1; select 2", "2 statements"),
        ("-- nothing", "0 statements"),
        ("drop table v", "not a SELECT"),
        ("insert into v select 1", "not a SELECT"),
        ("with x as (delete from v returning *) select * from x", "SELECT|SQL"),
        ("attach 'file.db'", "not a SELECT"),
        ("copy v to 'file'", "not a SELECT"),
        ("select a from\n  v where )", "no SQL"),
        ("select " + "(" * 5_000, "no SQL|nested too deep"),
    ],
)
def test_what_is_no_single_select_is_refused_with_its_place(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "q.sql"
    file.write_text(text)
    with pytest.raises(ConfigError, match=what) as refused:
        load_query(file)
    assert refused.value.code == "HUB-1109" and "q.sql" in refused.value.message


def test_the_place_of_an_error_in_sql_is_told(tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("select a from\n  v where )")
    with pytest.raises(ConfigError, match=r"q\.sql:2:"):
        load_query(file)


# ---- columns


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ((f'select d.carrier, TAIL from "{TOPIC}" '
        'd where dep_delay > 1'), {TOPIC: {"carrier", "Tail", "dep_delay"}}),
        (f'select "{TOPIC}".carrier from "{TOPIC}"', {TOPIC: {"carrier"}}),
        (f"select carrier from {TOPIC}", {TOPIC: {"carrier"}}),
        (f'select d.to.city, "to"[\'zip\'] from "{TOPIC}" d', {TOPIC: {"to.city", "to.zip"}}),
        ("select items[1].qty from v", {"v": {"items"}}),
        ("from v", {"v": {"key", "a", "b", "items"}}),
        ("select * exclude (a) from v", {"v": {"key", "b", "items"}}),
        ("select v.*, x from v join w on a = k", {"v": {"key", "a", "b", "items"}, "w": {"x", "k"}}),
        ("select a, x from v join w using (key)", {"v": {"a", "key"}, "w": {"x", "key"}}),
        ("with c as (select * from v) select a from c", {"v": {"a"}}),
        ("with v as (select * from v) select a from v", {"v": {"a"}}),
        ("with v as (select 1 as a) select a from v", {}),
        ("select count(*) from (select * from v)", {"v": set()}),
        ("select columns('a.*') from v", {"v": {"key", "a", "b", "items"}}),
        ("select a, (select max(x) from w where w.k = v.b) from v", {"v": {"a", "b"}, "w": {"x", "k"}}),
        ("select a from v union select x from w", {"v": {"a"}, "w": {"x"}}),
        ("select a as z, z + 1 from v group by all order by b", {"v": {"a", "b"}}),
        ("select i.qty from v, unnest(v.items) as t(i)", {"v": {"items"}}),
        ("select * from unknown", {"unknown": set()}),
        ("select u.x from unknown u", {"unknown": {"x"}}),
        ("select * from (pivot v on a using sum(b))", {"v": {"key", "a", "b", "items"}}),
        ("select _offset from v", {"v": set()}),
        ("select 1", {}),
    ],
)  # fmt: skip
def test_the_columns_that_a_query_reads(sql: str, expected: dict[str, set[str]]) -> None:
    found = columns_used(sql, TABLES)
    assert {name: {".".join(path) for path in paths} for name, paths in found.items()} == expected


# ---- impact


def avro(**fields: Any) -> ParsedSchema:
    made = [{"name": name, "type": kind} for name, kind in fields.items()]
    return parse("AVRO", json.dumps({"type": "record", "name": "D", "fields": made}))


PLACE = {"type": "record", "name": "P", "fields": [{"name": "city", "type": "string"}]}
OLD = avro(carrier="string", tail="string", delay="int", to=["null", PLACE], at="long")
VIEW = View.model_validate(
    {
        "view": "planes",
        "sources": {"d": {"topic": "nyc.*.departures", "key": "tail", "order": "d.at"}},
        "fields": {"late": "max(d.delay)", "carrier": "d.carrier", "city": "d.to.city"},
        "computed": {"very_late": "late > 60"},
    }
)


def broken(sql: str, new: ParsedSchema, old: ParsedSchema = OLD, topic: str = TOPIC) -> list[str]:
    query = SavedQuery("q", Path("queries/q.sql"), sql)
    return [str(each) for each in query_impacts([query], [VIEW], topic, old, new, 4)]


@pytest.mark.parametrize(
    ("sql", "new", "expected"),
    [
        (f'select delay from "{TOPIC}"', OLD, []),
        (f'select carrier from "{TOPIC}"', avro(carrier="string"), []),
        (f'select delay from "{TOPIC}"', avro(carrier="string"),
         [f"query q reads {TOPIC}.delay, which version 4 removes"]),
        (f'select * from "{TOPIC}"', avro(carrier="string", tail="long", delay="long", to=["null", PLACE],
        at="long"),
         [f"query q reads {TOPIC}.tail, which version 4 changes from string to long"]),
        (f'select d.to.city from "{TOPIC}" d', avro(to={**PLACE, "fields": []}),
         [f"query q reads {TOPIC}.to.city, which version 4 removes"]),
        ('select delay from "nyc.lga.departures"', avro(), []),
        ("select city from planes", avro(carrier="string", tail="string", delay="int", to=["null", PLACE],
        at="long"), []),
        ("select very_late from planes", avro(carrier="string", tail="string", to=["null", PLACE], at="long"),
         ["query q reads planes.very_late, which needs d.delay, which version 4 removes"]),
        ("select carrier from planes", avro(carrier="string", tail="string", to=["null", PLACE], at="long"),
        []),
        ("select carrier from planes", avro(carrier="string", tail="string", delay="int", to=["null", PLACE]),
         ["query q reads planes, which needs d.at, which version 4 removes"]),
        ("from planes", avro(tail="string", delay="int", to=["null", PLACE], at="long"),
         ["query q reads planes.carrier, which needs d.carrier, which version 4 removes"]),
        ('select city from "views.planes"', avro(carrier="string", tail="string", delay="int", at="long"),
         ["query q reads views.planes.city, which needs d.to, which version 4 removes"]),
    ],
)  # fmt: skip
def test_which_query_and_which_column_breaks(sql: str, new: ParsedSchema, expected: list[str]) -> None:
    assert broken(sql, new) == expected


def json_schema(**properties: Any) -> ParsedSchema:
    return parse("JSON", json.dumps({"type": "object", "properties": properties}))


def test_queries_over_json_schema_and_protobuf() -> None:
    text, number, place = (
        {"type": "string"},
        {"type": "integer"},
        {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
    )
    old = json_schema(a=text, to=place, n=number)
    less = {"type": "object", "properties": {"city": {"type": "string"}}}
    sql = f'select a, n, d.to from "{TOPIC}" d'
    assert broken(sql, old, old) == []
    assert broken(sql, json_schema(a=number, to=less), old) == [
        f"query q reads {TOPIC}.a, which version 4 changes from string to long",
        f"query q reads {TOPIC}.n, which version 4 removes",
        f"query q reads {TOPIC}.to.zip, which version 4 removes",
    ]
    was, now = (
        parse("PROTOBUF", f'syntax = "proto3"; message M {{ {fields} }}')
        for fields in ("int32 n = 1; string s = 2; repeated string l = 3;", "int64 n = 1; bytes s = 2;")
    )
    assert broken(f'select * from "{TOPIC}"', now, was) == [
        f"query q reads {TOPIC}.l, which version 4 removes",
        f"query q reads {TOPIC}.s, which version 4 changes from string to bytes",
    ]
    assert broken(sql, OLD, old) == []  # another format: no result by column


def test_a_part_of_what_is_no_record_breaks_with_the_whole() -> None:
    old = avro(m={"type": "map", "values": "int"}, l={"type": "array", "items": PLACE})
    new = avro(m={"type": "map", "values": "string"}, l={"type": "array", "items": {**PLACE, "fields": []}})
    assert broken(f"select m['a'], l[1].city from \"{TOPIC}\"", new, old) == [
        f"query q reads {TOPIC}.l.city, which version 4 removes",
        f"query q reads {TOPIC}.m, which version 4 changes from int to string",
    ]


def test_the_examples_read_columns_that_are_there() -> None:
    project = Path(__file__).parents[3] / "examples" / "customer-360"
    view = load_view(project / "views" / "customer_360.yaml")
    order = parse("AVRO", (project / "schemas" / "shop.orders.avsc").read_text())
    tables = {view.name: ("key", *view.columns), "shop.orders": columns_of(order)}
    found = {query.name: columns_used(query.sql, tables) for query in load_queries(project)}
    assert found["spending"].keys() == tables.keys()
    for used in found.values():
        for table, paths in used.items():
            assert paths and {path[0] for path in paths} <= {*tables[table], "_timestamp"}
