"""Classification of SQL views: class, key and reason; refusals and their hints."""

from __future__ import annotations

from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.sql_checks import checked, query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.classified import Classified, LateRule
from hub.materializers.planning.classify import classify

SOURCES: dict[str, dict[str, Any]] = {
    "e": {"topic": "shop.events", "event_time": "t", "watermark": "10 minutes"},
    "p": {"topic": "shop.payments", "event_time": "paid_at", "watermark": "10 minutes"},
    "q": {"topic": "shop.parcels", "event_time": "sent_at", "watermark": "10 minutes"},
    "raw": {"topic": "shop.raw"},
    "names": {"topic": "ref.names", "as": "static"},
    "c360": {"view": "customer_360"},
    "c360_changes": {"view": "customer_360", "as": "stream"},
}


def view(sql: str, *key: str) -> SqlView:
    words = set(sql.replace(",", " ").replace(")", " ").replace("(", " ").split())
    used = {name: source for name, source in SOURCES.items() if name in words}
    return SqlView.model_validate(
        {"view": "v", "sources": used or {"e": SOURCES["e"]}, "sql": sql, "key": list(key)}
    )


def classified(sql: str, *key: str) -> Classified:
    return classify(query_of(view(sql, *key)))


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "E", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
SCHEMAS: dict[str, Any] = {
    "e": record(id="string", kind="string", x="long", t=MILLIS),
    "p": record(id="string", paid_at=MILLIS),
    "raw": record(id="string", city=["null", "string"], product="string", at=["null", MICROS]),
}


def known(sql: str, *key: str) -> Classified:
    """Classify with the schemas of the sources, as the hub does before a view runs."""
    made = view(sql, *key)
    return classify(checked(made, {name: SCHEMAS[name] for name in made.sources}))


HOUR = "window(t, '1 hour')"
WITHIN = "e.id = p.id AND p.paid_at BETWEEN e.t AND e.t + INTERVAL 1 HOUR"

CASES: list[tuple[str, tuple[str, ...], str, str]] = [
    # (SQL, key, class, part of the reason)
    ("SELECT id, x FROM e", ("id",), "stateless", "stateless"),
    ("SELECT id, x + 1 AS y FROM e WHERE x > 3 AND kind IN ('a', 'b')", ("id",), "stateless", "stateless"),
    ("SELECT id, address.city AS city, tags[0] AS tag FROM e", ("id",), "stateless", "stateless"),
    (("SELECT id, item.sku AS sku FROM e LATERAL VIEW "
    "explode(items) i AS item"), ("id", "sku"), "stateless", "stateless"),
    ("SELECT id, explode(tags) AS tag FROM e", ("id", "tag"), "stateless", "stateless"),
    ("SELECT id, transform(tags, x -> upper(x)) AS tags FROM e", ("id",), "stateless", "stateless"),
    ("SELECT id FROM e UNION ALL SELECT id FROM raw", ("id",), "stateless", "UNION ALL"),
    ("SELECT id, y FROM (SELECT id, x * 2 AS y FROM e) s WHERE y > 2", ("id",), "stateless", "stateless"),
    (("WITH big AS (SELECT id, x FROM e WHERE x > 9) "
    "SELECT id, x FROM big"), ("id",), "stateless", "stateless"),
    ("SELECT id, name FROM c360_changes", ("id",), "stateless", "stateless"),
    ("SELECT id, count(*) AS n FROM e GROUP BY id", (), "aggregate", "by key"),
    ("SELECT id, max_by(x, t) AS x FROM e GROUP BY id", (), "aggregate", "by key"),
    ("SELECT id, max_by(x, t, 3) AS top FROM e GROUP BY 1", (), "aggregate", "by key"),
    (("SELECT upper(id) AS u, approx_count_distinct(x) AS n FROM "
    "raw GROUP BY upper(id)"), (), "aggregate", "by key"),
    ("SELECT id AS k, hll_sketch_agg(x) AS n FROM raw GROUP BY k", (), "aggregate", "by key"),
    ("SELECT id, sum(x) FILTER (WHERE x > 0) AS s FROM e GROUP BY id", (), "aggregate", "by key"),
    (("SELECT a, b, grouping_id() AS g, count(*) AS n FROM raw "
    "GROUP BY ROLLUP (a, b)"), (), "aggregate", "by key"),
    (f"SELECT {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}", (), "aggregate", "tumbling"),
    (("SELECT window.end AS h, id, count(*) AS n FROM e GROUP BY window(t, '1 "
    "hour', '10 minutes'), id"), (), "aggregate", "hopping"),
    ((f"SELECT {HOUR}.start AS h, sort_array(collect_set(x)) AS xs "
    f"FROM e GROUP BY {HOUR}"), (), "aggregate", "tumbling"),
    (("SELECT window(at, '1 hour').start AS h, count(*) AS n FROM raw GROUP "
    "BY window(at, '1 hour')"), (), "aggregate", "without a watermark"),
    ("SELECT DISTINCT id, kind FROM e", (), "aggregate", "DISTINCT"),
    (("SELECT id, n + 1 AS m FROM (SELECT id, count(*) AS n "
    "FROM e GROUP BY id) s"), ("id",), "aggregate", "by key"),
    (("SELECT id, session_window(t, '5 minutes').start AS s, count(*) AS n FROM e GROUP BY id, "
    "session_window(t, '5 minutes')"), (), "session", "closed"),
    (f"SELECT e.id, p.cents FROM e JOIN p ON {WITHIN}", ("id",), "join", "inner join"),
    (f"SELECT e.id, p.cents FROM e LEFT JOIN p ON {WITHIN}", ("id",), "join", "left join"),
    (f"SELECT p.id, e.x FROM e RIGHT OUTER JOIN p ON {WITHIN}", ("id",), "join", "right join"),
    (f"SELECT coalesce(e.id, p.id) AS id FROM e FULL OUTER JOIN p ON {WITHIN}", ("id",), "join", "full join"),
    (f"SELECT e.id FROM e LEFT SEMI JOIN p ON {WITHIN}", ("id",), "join", "left semi join"),
    (("SELECT e.id FROM e JOIN p ON e.id = p.id AND p.paid_at >= e.t AND p.paid_at < "
    "e.t + INTERVAL 1 HOUR"), ("id",), "join", "inner join"),
    ("SELECT e.id FROM e JOIN p ON e.id = p.id AND e.t = p.paid_at", ("id",), "join", "inner join"),
    (("WITH f AS (SELECT id, t AS at FROM e WHERE x > 1) SELECT f.id FROM f JOIN p ON f.id = p.id AND "
    "p.paid_at BETWEEN f.at AND f.at + INTERVAL 1 HOUR"), ("id",), "join", "inner join"),
    ((f"SELECT window(e.t, '1 hour').start AS h, count(*) AS n FROM e JOIN p ON {WITHIN} GROUP BY "
    "window(e.t, '1 hour')"), (), "join", "window over"),
    ("SELECT e.id, names.name FROM e LEFT JOIN names ON e.c = names.c", ("id",), "join", "static"),
    ("SELECT e.id, names.name FROM e JOIN names USING (c)", ("id",), "join", "static"),
    ("SELECT id, name FROM c360", ("id",), "incremental", "rows change and disappear"),
    ("SELECT city, count(*) AS n FROM c360 GROUP BY city", (), "incremental", "rows change and disappear"),
    (("SELECT e.id, c360.name FROM e "
    "JOIN c360 ON e.c = c360.c"), ("id",), "incremental", "rows change and disappear"),
    ("SELECT id, count(*) AS n FROM e GROUP BY id HAVING count(*) > 1", (), "incremental", "HAVING"),
    ("SELECT id, count(DISTINCT x) AS n FROM e GROUP BY id", (), "incremental", "every value"),
    (("SELECT id, row_number() OVER (PARTITION BY id "
    "ORDER BY t) AS r FROM e"), ("id", "r"), "incremental", "OVER"),
    (("SELECT id, x FROM e QUALIFY row_number() OVER (PARTITION BY "
    "id ORDER BY t DESC) = 1"), ("id",), "incremental", "QUALIFY"),
    ("SELECT id, x FROM e ORDER BY x DESC LIMIT 10", ("id",), "incremental", "LIMIT"),
    (("SELECT n, count(*) AS m FROM (SELECT id, count(*) AS n FROM e "
    "GROUP BY id) s GROUP BY n"), (), "incremental", "over an aggregate"),
    (("SELECT id, n FROM (SELECT id, count(*) AS n FROM e "
    "GROUP BY id) s WHERE n > 2"), ("id",), "incremental", "WHERE over an aggregate"),
    ("SELECT e.id, p.cents FROM e JOIN p ON e.id = p.id", ("id",), "incremental", "no interval"),
    ("SELECT e.id, raw.x FROM e JOIN raw ON e.id = raw.id", ("id",), "incremental", "no watermark"),
    ("SELECT e.id, p.id AS pid FROM e CROSS JOIN p", ("id", "pid"), "incremental", "without an equality"),
    ("SELECT e.id FROM e LEFT ANTI JOIN p ON e.id = p.id", ("id",), "incremental", "ANTI"),
    (f"SELECT e.id FROM e JOIN p ON {WITHIN} JOIN q ON q.id = p.id", ("id",), "incremental", "more than two"),
    ((f"SELECT e.id, count(*) AS n FROM e JOIN p ON "
    f"{WITHIN} GROUP BY e.id"), (), "incremental", "without a window"),
    (("SELECT names.c, count(*) AS n FROM names LEFT JOIN e ON e.c = "
    "names.c GROUP BY names.c"), (), "incremental", "begins with the static"),
    ("SELECT id FROM e WHERE id IN (SELECT id FROM p)", ("id",), "incremental", "within an expression"),
    ("SELECT id FROM e UNION SELECT id FROM p", ("id",), "incremental", "UNION compares"),
    ("SELECT id FROM e EXCEPT SELECT id FROM p", ("id",), "incremental", "EXCEPT compares"),
    ("SELECT id, sort_array(collect_list(x)) AS xs FROM e GROUP BY id", (), "incremental",
    "without a window"),
    (f"SELECT DISTINCT e.id FROM e JOIN p ON {WITHIN}", ("id",), "incremental", "DISTINCT over"),
    ("SELECT c, name FROM names", ("c",), "incremental", "only a static"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "key", "name", "reason"), CASES, ids=[case[0][:70] for case in CASES])
def test_the_class_and_its_reason(sql: str, key: tuple[str, ...], name: str, reason: str) -> None:
    found = classified(sql, *key)
    assert (found.name, found.native) == (name, name != "incremental")
    assert reason in found.reason
    assert found.mode == (None if name == "incremental" else "update" if name == "aggregate" else "append")
    assert (not found.sql) == (name == "incremental")


REFUSED: list[tuple[str, tuple[str, ...], str, str]] = [
    # (SQL, key, part of the message, part of the hint)
    ("SELECT id, now() AS n FROM e", ("id",), "`now` gives another value", "event's time"),
    ("SELECT id, current_timestamp AS n FROM e", ("id",), "`current_timestamp` gives another", "_timestamp"),
    ("SELECT id FROM e WHERE t > current_date() - 3", ("id",), ("`current_date` gives "
    "another"), "when you read"),
    ("SELECT id, unix_timestamp() AS n FROM e", ("id",), "`unix_timestamp` gives another", "_timestamp"),
    ("SELECT id, rand() AS n FROM e", ("id",), "`rand` gives another", "hash(id)"),
    ("SELECT id, `uuid`() AS n FROM e", ("id",), "`uuid` gives another", "hash(id)"),
    ("SELECT id, first(x) AS n FROM e GROUP BY id", (), "`first` gives another", "max_by(x, time)"),
    ("SELECT id, reflect('java.lang.System', 'exit', 1) AS n FROM e", ("id",), "calls Java", "in SQL"),
    ("SELECT id, raise_error('no') AS n FROM e", ("id",), "stops the view", "gives null"),
    ("SELECT id, collect_list(x) AS n FROM e GROUP BY id", (), "another order on every replay", "sort_array"),
    ("SELECT id FROM e TABLESAMPLE (10 PERCENT)", ("id",), "sample", "pmod(hash(id)"),
    ("SELECT id FROM e LIMIT 3", ("id",), "LIMIT without ORDER BY", "max_by(x, score, 10)"),
    ("SELECT id FROM e ORDER BY id", ("id",), "without an order", "when you read"),
    ("SELECT id FROM e; SELECT id FROM p", ("id",), "2 statements", "two views"),
    ("INSERT INTO e SELECT id FROM e", ("id",), "not a SELECT", "only reads"),
    ("DROP TABLE e", ("id",), "not a SELECT", "only reads"),
    ("SELECT id FROM e |> WHERE x > 1", ("id",), "pipe syntax", "SELECT … FROM"),
    ("SELECT * FROM e", (), "`*` would change", "name the columns"),
    ("SELECT id, x + 1 FROM e", ("id",), "has no name", "AS name"),
    ("SELECT id, x AS `Mean Delay` FROM e", ("id",), "cannot be a field", "lower-case"),
    ("SELECT id, x AS id FROM e", ("id",), 'two columns are called "id"', "rename"),
    ("SELECT id, x FROM e", (), "no key of their own", "key: [flight_id]"),
    ("SELECT id, x FROM e", ("ide",), 'key "ide" is not a column', 'did you mean "id"?'),
    ("SELECT count(*) AS n FROM e", ("n",), "one row and no key", "GROUP BY scope"),
    ("SELECT count(*) AS n FROM e GROUP BY id", (), "not in the SELECT list", "key:"),
    (("SELECT id, kind, count(*) AS n "
    "FROM e GROUP BY id, kind"), ("id",), "several rows have it", "key: [id, kind]"),
    ("SELECT id, count(*) AS n FROM e GROUP BY id, kind", ("id",), ("makes one of each kind as "
    "well"), "select kind with a name"),
    (f"SELECT id, count(*) AS n FROM e GROUP BY id, {HOUR}", ("id",), ("makes one of each "
    "window(t,"), "with a name"),
    (("SELECT id, n FROM (SELECT id, kind, count(*) AS n FROM "
    "e GROUP BY id, kind) s"), ("id",), "makes one of each kind", "select kind"),
    (("WITH s(i, n) AS (SELECT id, count(*) FROM e GROUP BY id, kind) "
    "SELECT i AS id, n FROM s"), ("id",), "makes one of each kind", "select kind"),
    (("SELECT id, n FROM (SELECT id, kind, count(*) AS n "
    "FROM e GROUP BY 1, 2) s"), ("id",), "makes one of each kind", "select kind"),
    (("SELECT a, b, count(*) AS n FROM raw "
    "GROUP BY ROLLUP (a, b)"), (), "a total and a row whose own value is null", "grouping_id() AS"),
    (("SELECT a, b, count(*) AS n FROM raw "
    "GROUP BY a, b WITH CUBE"), ("a", "b"), "a total and a row", "grouping_id() AS"),
    (("SELECT a, n FROM (SELECT a, count(*) AS n FROM raw GROUP BY "
    "GROUPING SETS ((a), ())) s"), ("a",), "a total and a row", "grouping_id() AS"),
    (("SELECT a, b, grouping_id() AS g, count(*) AS n FROM "
    "raw GROUP BY CUBE (a, b)"), ("a", "b"), "makes one of each g as well", "key: [a, b, g]"),
    ("SELECT id, count(*) AS n FROM e GROUP BY ALL", (), "hides the key", "name the columns"),
    (("SELECT session_window(at, '5 minutes').start AS s, count(*) AS n FROM raw GROUP BY "
    "session_window(at, '5 minutes')"), (), "only when a watermark", "declare event_time"),
    ("SELECT id FROM e, parquet.`/etc`", ("id",), ('source "parquet./etc" does not '
    'exist'), "declare it under sources"),
    ("SELECT id FROM e JOIN ee ON e.id = ee.id", ("id",), 'source "ee" does not exist', 'did you mean "e"?'),
    ("SELECT e.id FROM e NATURAL JOIN p", ("id",), "follows the columns' names", "name them"),
    ("SELECT id FROM range(10) JOIN e ON id = x", ("id",), "is not a source",
    "FROM reads the view's sources"),
    ("SELECT 1 AS id", ("id",), "without FROM", "FROM one of"),
    ("SELECT id FROM e PIVOT (sum(x) FOR kind IN ('a'))", ("id",), "PIVOT", "sum(IF("),
    ("SELECT id, x FORM e", ("id",), "Unexpected token", "one SELECT"),
    ("SELECT id, 'x FROM e", ("id",), "not SQL", "quote"),
    ("WITH RECURSIVE r AS (SELECT id FROM e UNION ALL SELECT id FROM r) SELECT id FROM r", ("id",),
    "recursive", "fixed depth"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "key", "what", "hint"), REFUSED, ids=[case[0][:70] for case in REFUSED])
def test_what_is_refused_and_the_way_out(sql: str, key: tuple[str, ...], what: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        classified(sql, *key)
    assert what in caught.value.message
    assert hint in (caught.value.hint or "")


def test_keys_are_inferred_from_what_makes_rows_one() -> None:
    both = classified(f"SELECT id, {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}, id")
    assert (both.key, both.key_from) == (("id", "h"), "GROUP BY")  # in the order of the SELECT list
    assert classified("SELECT DISTINCT id, kind FROM e").key == ("id", "kind")
    total = "SELECT count(*) AS n, a, grouping_id() AS g FROM raw GROUP BY a WITH ROLLUP"
    assert classified(total).key == ("a", "g")
    assert classified("SELECT id, x FROM e", "id").key_from == "declared"


def test_versions_are_added_to_the_authors_words_and_nothing_else_changes() -> None:
    sql = "SELECT id, max_by(x, t, 3) AS top -- top three\nFROM e GROUP BY id"
    assert classified(sql).sql.split() == sql.replace("three", "three\n, count(1) AS _hub_version").split()
    compared = classified("SELECT id, x IS DISTINCT FROM y AS changed FROM e", "id").sql
    assert compared.index("AS changed") < compared.index("_hub_version") < compared.index("FROM e")
    nested = classified("SELECT id, n FROM (SELECT id, count(*) AS n FROM e GROUP BY id) s", "id").sql
    assert nested.count("_hub_version") == 3
    assert "coalesce(`s`._hub_version, 0) AS _hub_version" in nested
    twice = classified("SELECT id FROM e UNION ALL SELECT id FROM raw", "id").sql
    assert "coalesce(`e`._offset, 0)" in twice and "coalesce(`raw`._offset, 0)" in twice
    semi = classified(f"SELECT e.id FROM e LEFT SEMI JOIN p ON {WITHIN}", "id").sql
    assert "`p`._offset" not in semi


def test_which_events_are_late() -> None:
    hourly = classified(f"SELECT {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}")
    assert hourly.late == (LateRule("e", "t", "window(`t`, '1 hour')"),)
    renamed = classified(
        "SELECT window(at, '1 hour').start AS h, count(*) AS n FROM (SELECT t AS at FROM e) s GROUP BY "
        "window(at, '1 hour')"
    )
    assert renamed.late == (LateRule("e", "t", "window(`t`, '1 hour')"),)
    joined = classified(f"SELECT e.id FROM e JOIN p ON {WITHIN}", "id")
    assert joined.late == (LateRule("e", "t"), LateRule("p", "paid_at"))
    assert classified("SELECT id, count(*) AS n FROM e GROUP BY id").late == ()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT lower(city) AS city, count(*) AS n FROM raw GROUP BY city",
        "SELECT date_trunc('HOUR', at) AS at, count(*) AS n FROM raw GROUP BY at",
        "SELECT coalesce(city, 'unknown') AS city, count(*) AS n FROM raw GROUP BY city",
        "SELECT city AS town, upper(product) AS city, count(*) AS n FROM raw GROUP BY city, upper(product)",
        "SELECT city, n FROM (SELECT lower(city) AS city, count(*) AS n FROM raw GROUP BY city) s",
        "SELECT lower(s.city) AS city, count(*) AS n FROM (SELECT city FROM raw) s GROUP BY city",
        (
            "SELECT upper(item) AS item, count(*) AS n FROM raw LATERAL VIEW explode(split(city, ',')) l "
            "AS item GROUP BY item"
        ),
    ],
)
def test_a_name_in_group_by_that_is_a_column_is_not_the_alias(sql: str) -> None:
    """Spark groups by the column; with the alias as key, the rows of Oslo and oslo would share one."""
    with pytest.raises(ConfigError, match="may be a column or the alias") as caught:
        known(sql, *(["city"] if sql.endswith(" s") else []))
    assert caught.value.code == "HUB-2134"
    assert "name the alias otherwise" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT city, count(*) AS n FROM raw GROUP BY city",
        "SELECT raw.city AS city, count(*) AS n FROM raw GROUP BY city",
        "SELECT lower(city) AS city, count(*) AS n FROM raw GROUP BY lower(city)",
        "SELECT lower(city) AS city, count(*) AS n FROM raw GROUP BY 1",
        "SELECT lower(s.city) AS city, count(*) AS n FROM (SELECT city FROM raw) s GROUP BY lower(s.city)",
        (
            "SELECT city AS city, count(*) AS n FROM raw LATERAL VIEW explode(split(product, ',')) l "
            "AS city GROUP BY city"
        ),
        "SELECT lower(town) AS city, count(*) AS n FROM (SELECT city AS town FROM raw) s GROUP BY city",
    ],
)
def test_a_name_in_group_by_that_means_one_thing_is_taken(sql: str) -> None:
    assert known(sql).key == ("city",)


@pytest.mark.parametrize(
    ("sql", "key", "source", "watermark"),
    [
        (f"SELECT {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}", (), "e", True),
        ((f"SELECT h, n FROM (SELECT {HOUR}.start AS h, count(*) AS n "
        f"FROM e GROUP BY {HOUR}) s"), ("h",), "e", True),
        (("SELECT id, session_window(t, '5 minutes').start AS s, count(*) AS n FROM e GROUP BY id, "
        "session_window(t, '5 minutes')"), (), "e", True),
        (f"SELECT e.id FROM e LEFT JOIN p ON {WITHIN}", ("id",), "p", True),
        ((f"SELECT window(e.t, '1 hour').start AS h, count(*) AS n FROM e JOIN p ON {WITHIN} GROUP BY "
        "window(e.t, '1 hour')"), (), "p", True),
        ("SELECT id, t, count(*) AS n FROM e GROUP BY id, t", (), "e", False),
        ("SELECT DISTINCT id, t FROM e", (), "e", False),
        ((f"SELECT {HOUR}.start AS h, count(*) AS n FROM (SELECT t FROM e UNION ALL SELECT paid_at "
        f"FROM p) u GROUP BY {HOUR}"), (), "p", False),
        ("SELECT id, x FROM e", ("id",), "e", False),
        ("SELECT e.id, names.name FROM e LEFT JOIN names ON e.c = names.c", ("id",), "e", False),
    ],
)  # fmt: skip
def test_spark_gets_a_watermark_only_where_late_events_are_told(
    sql: str, key: tuple[str, ...], source: str, watermark: bool
) -> None:
    """Otherwise Spark drops rows that are neither in the view nor among the late events."""
    found = classified(sql, *key)
    time = {"e": "t", "p": "paid_at"}[source]
    assert found.watermark(source) == ((time, "10 minutes") if watermark else None)
    assert (
        "closes nothing here" in found.nearest or "one source's event_time" in found.nearest
    ) is not watermark


@pytest.mark.parametrize(
    ("sql", "anew"),
    [
        ("SELECT id, t, count(*) AS n FROM e GROUP BY id, t", True),
        ("SELECT DISTINCT id, t FROM e", True),
        ((f"SELECT {HOUR}.start AS h, count(*) AS n FROM (SELECT t FROM e UNION ALL SELECT paid_at "
        f"FROM p) u GROUP BY {HOUR}"), True),
        (f"SELECT {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}", False),
        ("SELECT id, max_by(x, t) AS x FROM e GROUP BY id", False),
        ("SELECT DISTINCT id, kind FROM e", False),
        ("SELECT DISTINCT id, t FROM raw", False),
    ],
)  # fmt: skip
def test_a_view_of_which_spark_dropped_events_is_computed_anew_and_no_other(sql: str, anew: bool) -> None:
    """The engine computes its fingerprint from the view's words."""
    added = classified(sql).query.tokens[len(query_of(view(sql)).tokens) :]
    assert bool(added) is anew


@pytest.mark.parametrize(
    ("sql", "key", "finer"),
    [
        ("SELECT id, at, count(*) AS n FROM raw GROUP BY id, at", (), True),
        ("SELECT id, s.time AS at FROM (SELECT id, at AS time FROM raw) s", ("id", "at"), True),
        ("SELECT id, t FROM e UNION ALL SELECT id, at FROM raw", ("id", "t"), True),
        ("SELECT id, coalesce(at, paid_at) AS at FROM raw, p", ("id", "at"), True),
        ("SELECT id, at, x FROM raw", ("id",), False),
        ("SELECT id, t, count(*) AS n FROM e GROUP BY id, t", (), False),  # milliseconds
        ("SELECT window(at, '1 hour').start AS at, count(*) AS n FROM raw GROUP BY window(at, '1 hour')", (),
        False),
        ("SELECT date_trunc('HOUR', at) AS h, count(*) AS n FROM raw GROUP BY date_trunc('HOUR', at)", (),
        False),
    ],
)  # fmt: skip
def test_a_view_whose_key_s_text_may_be_another_is_computed_anew_and_no_other(
    sql: str, key: tuple[str, ...], finer: bool
) -> None:
    made = view(sql, *key)
    schemas = {**SCHEMAS, "raw": record(id="string", x="long", at=["null", MICROS])}
    found = classify(checked(made, {name: schemas[name] for name in made.sources}))
    words = [token.text for token in found.query.tokens]
    assert ("-- a key's text has microseconds" in words) is finer


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT concat(id, '/', kind) AS k, count(*) AS n FROM e GROUP BY id, kind", ("k",)),
        (
            "SELECT k, n FROM (SELECT concat(id, '/', kind) AS k, count(*) AS n FROM e GROUP BY id, kind) s",
            ("k",),
        ),
        (
            (
                "SELECT concat(s.id, s.kind) AS k, n FROM (SELECT id, kind, count(*) AS n FROM "
                "e GROUP BY id, kind) s"
            ),
            ("k",),
        ),
        ("WITH s(i, k) AS (SELECT id, kind FROM e GROUP BY id, kind) SELECT i, k FROM s", ("i", "k")),
        ("SELECT id, count(*) AS n FROM e GROUP BY id, 'all'", ("id",)),
        (f"SELECT id, window.start AS h, count(*) AS n FROM e GROUP BY id, {HOUR}", ("id", "h")),
        (f"SELECT h, n FROM (SELECT {HOUR}.start AS h, count(*) AS n FROM e GROUP BY {HOUR}) s", ("h",)),
        ("SELECT id AS k, count(*) AS n FROM raw GROUP BY k", ("k",)),
        ("SELECT e.id AS k, count(*) AS n FROM e GROUP BY id", ("k",)),
        ("SELECT lower(id) AS k, count(*) AS n FROM e GROUP BY lower(e.id)", ()),
        (
            (
                "SELECT id, date_format(window.start, 'HH') AS h, count(*) AS n FROM e GROUP BY id, "
                "window(e.t, '1 hour')"
            ),
            ("id", "h"),
        ),
        (
            (
                "SELECT a, g, n FROM (SELECT a, grouping_id() AS g, count(*) AS n FROM raw "
                "GROUP BY ROLLUP (a)) s"
            ),
            ("a", "g"),
        ),
    ],
)
def test_a_declared_key_is_taken_when_every_group_is_in_it(sql: str, key: tuple[str, ...]) -> None:
    """A group may also be within an expression of the key, which is not checked further."""
    assert classified(sql, *key).key == (key or ("k",))
