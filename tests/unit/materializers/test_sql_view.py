"""The file of a SQL view: its inputs, and errors with the place and the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.definition.schema_impact import columns_read
from hub.materializers.definition.sql_checks import checked, query_of
from hub.materializers.definition.sql_view import SqlView, duration_ms

AT = {"type": "long", "logicalType": "timestamp-millis"}
DEPARTURE: dict[str, Any] = {
    "type": "record",
    "name": "Departure",
    "fields": [
        {"name": "flight_id", "type": "string"},
        {"name": "origin", "type": "string"},
        {"name": "scheduled_at", "type": AT},
        {"name": "dep_delay", "type": ["null", "int"]},
        {
            "name": "plane",
            "type": {"type": "record", "name": "Plane", "fields": [{"name": "seats", "type": "int"}]},
        },
    ],
}
FILE = """view: late
sources:
  d: {topic: "nyc.*.departures", event_time: scheduled_at, watermark: 10 minutes}
sql: |
  SELECT flight_id, d.origin, plane.seats AS seats
  FROM d
  WHERE dep_delay > 15
key: flight_id
"""


def written(tmp_path: Path, text: str = FILE) -> Path:
    path = tmp_path / "late.yaml"
    path.write_text(text)
    return path


def test_a_file_with_sql_is_a_sql_view_and_says_what_it_reads(tmp_path: Path) -> None:
    view = load_view(written(tmp_path))
    assert isinstance(view, SqlView)
    assert query_of(view).columns == ("flight_id", "origin", "seats")
    assert (view.changelog, view.late_topic) == ("views.late", "views.late.late")
    query = checked(view, {"d": DEPARTURE})
    assert set(query.used["d"]) == {"flight_id", "origin", "plane", "dep_delay", "scheduled_at"}
    assert ("plane",) in columns_read(view)["d"]
    entity = "view: late\nsources: {d: {topic: a, key: x}}\nfields: {x: d.x}\n"
    assert isinstance(load_view(written(tmp_path, entity)), View)


def test_a_column_that_is_not_there_is_named_with_its_place_and_the_nearest(tmp_path: Path) -> None:
    view = load_view(written(tmp_path, FILE.replace("dep_delay", "dep_dealy")))
    assert isinstance(view, SqlView)
    with pytest.raises(ConfigError) as caught:
        checked(view, {"d": DEPARTURE})
    assert 'SQL line 3, column 7: column "dep_dealy" does not exist' in caught.value.message
    assert caught.value.message.splitlines()[1:] == ["    WHERE dep_dealy > 15", "          ^"]
    assert caught.value.hint == 'did you mean "dep_delay"?'
    qualified = load_view(written(tmp_path, FILE.replace("d.origin", "d.orgin AS origin")))
    assert isinstance(qualified, SqlView)
    with pytest.raises(ConfigError, match='source "d" .topic "nyc.\\*.departures". has no column "orgin"'):
        checked(qualified, {"d": DEPARTURE})


def test_a_mistake_in_the_sql_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, FILE.replace("WHERE", "WHEER"))
    with pytest.raises(ConfigError) as caught:
        load_view(path)
    assert str(path) in caught.value.message and "SQL line 3" in caught.value.message


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (", watermark: 10 minutes", "", "event_time and watermark go together"),
        ("10 minutes", "10 parsecs", '"10 parsecs" is not a duration'),
        ('topic: "nyc.*.departures"', "view: x, topic: y", "either a topic or a view"),
        ('topic: "nyc.*.departures"', "view: x", "a table has no watermark"),
        ('topic: "nyc.*.departures", ', "", "name a topic"),
        (
            "event_time: scheduled_at, watermark: 10 minutes",
            "as: stream, table: {key: x}",
            "contradict each other; leave out `as`",
        ),
        (
            "event_time: scheduled_at, watermark: 10 minutes",
            "as: static, table: {key: x}",
            "a static table is by record key",
        ),
        (
            "event_time: scheduled_at, watermark: 10 minutes",
            "table: flight_id",
            "write table: {key: flight_id}",
        ),
        ("event_time: scheduled_at, watermark: 10 minutes", "table: [a, b]", "write table: {key: [a, b]}"),
        (
            'topic: "nyc.*.departures", event_time: scheduled_at, watermark: 10 minutes',
            "view: x, table: {key: x}",
            "have its key already",
        ),
        ("event_time: scheduled_at, watermark: 10 minutes", "table: {kee: x}", "kee"),
        ("key: flight_id", "key: [flight]", 'did you mean "flight_id"'),
        ("key: flight_id", "key: flight_id\nindexes: [seat]", 'did you mean "seats"'),
        ("sources:", "source:", 'unknown key "source"'),
        (
            "sources:",
            "cut: shop\nsources:\n  other: {topic: nyc.planes, as: static}",
            'source "other" is static: each batch reads its current state',
        ),
    ],
)
def test_the_file_is_checked(tmp_path: Path, was: str, now: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_view(written(tmp_path, FILE.replace(was, now)))
    assert said in str(caught.value)


def test_an_event_time_is_a_time_of_the_source() -> None:
    def view(column: str) -> SqlView:
        return SqlView.model_validate(
            {
                "view": "v",
                "sources": {"d": {"topic": "t", "event_time": column, "watermark": "1 hour"}},
                "sql": "SELECT flight_id FROM d",
                "key": "flight_id",
            }
        )

    checked(view("scheduled_at"), {"d": DEPARTURE})
    checked(view("_timestamp"), {"d": DEPARTURE})
    with pytest.raises(ConfigError, match="is not a timestamp"):
        checked(view("dep_delay"), {"d": DEPARTURE})
    with pytest.raises(ConfigError, match='no column "scheduled"'):
        checked(view("scheduled"), {"d": DEPARTURE})


def test_a_source_of_another_view_is_its_changelog() -> None:
    view = SqlView.model_validate(
        {"view": "v", "sources": {"c": {"view": "customer_360"}}, "sql": "SELECT id FROM c", "key": "id"}
    )
    assert (view.sources["c"].topic, view.sources["c"].read_as) == ("views.customer_360", "table")
    assert SqlView.model_validate_json(view.model_dump_json(by_alias=True)) == view


def test_names_are_found_where_they_are_made() -> None:
    def used(sql: str) -> set[str]:
        view = SqlView.model_validate(
            {"view": "v", "sources": {"d": {"topic": "t"}}, "sql": sql, "key": "flight_id"}
        )
        return set(checked(view, {"d": DEPARTURE}).used["d"])

    assert used("SELECT x.flight_id FROM d AS x") == {"flight_id"}
    assert used("SELECT flight_id FROM (SELECT flight_id, origin AS o FROM d) s WHERE o = 'JFK'") == {
        "flight_id",
        "origin",
    }
    assert used("WITH c (flight_id) AS (SELECT origin FROM d) SELECT flight_id FROM c") == {"origin"}
    assert used("SELECT flight_id, _offset AS at FROM d") == {"flight_id"}
    with pytest.raises(ConfigError, match='"s" has no column "origin"'):
        used("SELECT s.origin AS flight_id FROM (SELECT flight_id FROM d) s")


def test_durations() -> None:
    assert [duration_ms(text) for text in ("1 second", "10 minutes", "2 hours", "1 day")] == [
        1_000,
        600_000,
        7_200_000,
        86_400_000,
    ]
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms("an hour")


def test_a_source_that_nothing_reads_is_a_mistake() -> None:
    view = SqlView.model_validate(
        {
            "view": "v",
            "sources": {"d": {"topic": "t"}, "spare": {"topic": "u"}},
            "sql": "SELECT flight_id FROM d",
            "key": "flight_id",
        }
    )
    with pytest.raises(ConfigError, match='source "spare" is not read'):
        query_of(view)


def test_deeply_nested_sql_is_refused_before_the_parser_sees_it() -> None:
    view = SqlView.model_validate(
        {
            "view": "v",
            "sources": {"d": {"topic": "t"}},
            "sql": f"SELECT {'(' * 500}x{')' * 500} AS x FROM d",
            "key": "x",
        }
    )
    with pytest.raises(ConfigError, match="nested deeper than 40"):
        query_of(view)


def table_of(**table: Any) -> SqlView:
    return SqlView.model_validate(
        {
            "view": "v",
            "sources": {"d": {"topic": "t", "table": table}},
            "sql": "SELECT origin, count(*) AS n FROM d GROUP BY origin",
        }
    )


def test_a_table_reads_its_key_and_what_deletes_a_row_beside_what_the_sql_reads() -> None:
    view = table_of(key="flight_id", delete_when="d.dep_delay < 0 OR plane IS NULL OR _key = ''")
    assert (view.sources["d"].read_as, table_of().sources["d"].read_as) == ("table", "table")
    query = checked(view, {"d": DEPARTURE})
    assert set(query.used["d"]) == {"origin", "flight_id", "dep_delay", "plane"}
    assert list(query.columns_read["d"]) == ["origin"]
    assert SqlView.model_validate_json(view.model_dump_json(by_alias=True)) == view


@pytest.mark.parametrize(
    ("table", "said", "hint"),
    [
        ({"key": "flightid"}, 'table key: topic "t" has no column "flightid"', 'did you mean "flight_id"?'),
        ({"key": "plane"}, 'column "plane" cannot identify rows', "or leave `key` out"),
        ({"key": "_key"}, "_key is of the record", "leave `key` out"),
        ({"delete_when": "dep_dely > 3"}, 'table delete_when: topic "t" has no column',
        'did you mean "dep_delay"?'),
        ({"delete_when": "count(*) > 3"}, "is not an expression over one event",
        "compare the event's own columns"),
        ({"delete_when": "scheduled_at < now()"}, "is not an expression over one event",
        "compare the event's own columns"),
        ({"delete_when": "a = 'x"}, "this is not SQL", "status = 'deleted'"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_says_the_nearest_form(table: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(table_of(**table), {"d": DEPARTURE})
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")
