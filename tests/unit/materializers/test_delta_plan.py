"""Plans of the incremental engine: the bounds of each input, and refusals."""

from __future__ import annotations

import pytest

from hub.errors import ConfigError, NotFound
from hub.materializers.planning.delta_plan import Hops, Table
from hub.materializers.planning.delta_planner import plan

ORDERS = {
    "order_id": "int",
    "cid": "int",
    "amount": "double",
    "cents": "bigint",
    "product": "string",
    "ts": "timestamp",
    "code": "string",
}
TABLES = [
    Table("orders", ORDERS, ("order_id",)),
    Table("customers", {"id": "bigint", "name": "string", "region": "string"}, ("id",)),
    Table("regions", {"code": "string", "title": "string"}, ("code",)),
    Table("notes", {"code": "int", "text": "string"}, ("code",)),
]


def said(sql: str, *key: str, whole_rows: int = 0) -> list[str]:
    return [line.strip() for line in plan(sql, TABLES, key, whole_rows=whole_rows).explain()]


def test_a_foreign_key_is_a_chain_through_the_table_that_has_it() -> None:
    joined = (
        "SELECT o.order_id, r.title FROM orders o JOIN customers c ON o.cid = c.id LEFT JOIN regions r "
        "ON r.code = c.region"
    )
    assert said(joined, "order_id") == [
        "view: key (order_id), recomputed by (order_id)",
        "0 orders: rows whose order_id = view's order_id",
        "1 customers: rows whose id = cid of 0 orders",
        "2 regions: rows whose code = region of 1 customers",
    ]


def test_a_selection_does_not_go_into_the_side_that_nulls_replace() -> None:
    """Rows of c without a match are not rows of the view: a restricted c would add false rows with nulls."""
    assert said("SELECT o.order_id, c.name FROM orders o LEFT JOIN customers c ON c.id = o.cid", "order_id",
        "name") == [
        "view: key (order_id, name), recomputed by (order_id)",
        "0 orders: rows whose order_id = view's order_id",
        "1 customers: rows whose id = cid of 0 orders",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match='a change of "orders", "customers" can affect every row'):
        plan("SELECT c.name FROM orders o LEFT JOIN customers c ON c.id = o.cid", TABLES, ["name"])
    with pytest.raises(ConfigError):
        plan("SELECT c.id, o.product FROM orders o FULL JOIN customers c ON c.id = o.cid", TABLES, ["id"])


BEST = (
    "SELECT o.order_id, o.cents, m.ended FROM orders o JOIN (SELECT max(cents) AS most, window(ts, '10 "
    "seconds').end AS ended FROM orders GROUP BY window(ts, '10 seconds')) m ON o.cents = "
    "m.most WHERE o.ts < m.ended"
)


def test_a_window_s_end_is_as_good_as_a_column() -> None:
    """sqlglot reads ``GROUP BY window(…)`` as the clause WINDOW, so such views were refused."""
    made = plan(BEST, TABLES, ["order_id"])
    first, second = made.stages
    assert (first.key, first.handle, second.handle) == (("ended",), ("ended",), ("order_id",))
    assert list(made.derived["orders"].values()) == [
        "TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts), 10000000) + 10000000)"
    ]
    assert [line.strip() for line in made.explain()][1:] == [
        f"0 orders: rows whose {made.derived['orders'][first.leaves[0].bound.columns[0]]} = view's ended",  # type: ignore[union-attr]
        "view: key (order_id), recomputed by (order_id)",
        "0 orders: rows whose order_id = view's order_id",
        "1 view__1: rows whose most = cents of 0 orders",
    ]
    with pytest.raises(ConfigError, match="can affect every row"):  # bound by an amount, which is not exact
        plan(BEST.replace("cents", "amount"), TABLES, ["order_id"])


@pytest.mark.parametrize(
    ("window", "stored"),
    [
        ("window(ts, '1 hour').start", ("TIMESTAMP_MICROS(UNIX_MICROS(ts) - "
        "PMOD(UNIX_MICROS(ts), 3600000000))")),
        ("window(ts, '1 day', '1 day', '6 hours').end",
         ("TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts) - 21600000000, "
         "86400000000) + 86400000000)")),
        ("window.start", "TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts), 60000000))"),
        ("window(ts, 'interval 1 minute 30 seconds').start",
         "TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts), 90000000))"),
    ],
)  # fmt: skip
def test_groups_of_a_window_with_having_are_recomputed_by_window(window: str, stored: str) -> None:
    call = "window(ts, '1 minute')" if "(" not in window else window[: window.rindex(".")]
    made = plan(
        f"SELECT {window} AS at, count(*) AS n FROM orders GROUP BY {call} HAVING n > 2", TABLES, ["at"]
    )
    assert made.view.handle == ("at",)
    assert list(made.derived["orders"].values()) == [stored]


@pytest.mark.parametrize(
    "of",
    [
        "FLOOR(cents / 100)", "CEIL(cents / 100)", "FLOOR(UNIX_SECONDS(ts) / 10)",
        "UNIX_MILLIS(ts) DIV 10000",
        "cents - PMOD(cents, 10)", "cents - cents % 10", "CAST(UNIX_MICROS(ts) / 1000 AS BIGINT)",
        "TIMESTAMP_SECONDS(UNIX_SECONDS(ts) - UNIX_SECONDS(ts) % 10)", "ABS(cents)", "LOWER(product)",
        "HOUR(ts)",
        "DATE_TRUNC('HOUR', ts)", "TIMESTAMP_MILLIS(cents)", "SIGN(cents)", "DATE_FORMAT(ts, 'yyyy-MM-dd')",
    ],
)  # fmt: skip
def test_an_expression_of_a_row_s_own_columns_ties_it_in_the_words_of_the_sql(of: str) -> None:
    made = plan(
        f"SELECT {of} AS part, count(*) AS n FROM orders GROUP BY {of} HAVING count(*) > 1", TABLES, ["part"]
    )
    assert made.view.handle == ("part",) and list(made.derived["orders"].values()) == [of]


def test_a_row_of_windows_that_overlap_is_tied_by_the_latest_of_them_and_those_before() -> None:
    call = "window(ts, '10 minutes', '4 minutes', '1 minute')"
    made = plan(
        f"SELECT product, {call}.start AS began, {call}.end AS ended, count(*) AS n FROM orders "
        f"GROUP BY product, {call} HAVING n > 1",
        TABLES,
        ["product", "began", "ended"],
    )
    # Not by both times: the pairing of ends and starts is unknown, and either identifies the window.
    assert made.view.handle == ("product", "began")
    (bound,) = (leaf.bound for leaf in made.view.leaves)
    assert bound is not None and (bound.hopping_of, bound.hops) == ("began", Hops(240_000_000, 3))
    assert made.derived["orders"][bound.hopping or ""] == (
        "TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts) - 60000000, 240000000))"
    )
    assert made.explain()[1].endswith(" (or 2 times 240 s before) = view's product, began")
    # Without them no row is found by the window alone, and a window that the rows are not grouped by ties
    # nothing.
    other = "window(ts, '10 minutes', '5 minutes')"
    with pytest.raises(ConfigError, match="can affect every row"):
        plan(f"SELECT {other}.start AS at, count(*) AS n FROM orders GROUP BY {call}", TABLES, ["at"])


def test_windows_that_overlap_and_windows_that_do_not_are_told_apart_though_they_store_the_same() -> None:
    """Their latest start is one stored column, which stands for two times of an overlapping window, else for
    one.
    """
    hop, tumbling = "window(ts, '10 minutes', '5 minutes')", "window(ts, '5 minutes')"
    made = plan(
        f"SELECT b, {hop}.start AS a, count(*) AS n FROM (SELECT *, {tumbling}.start AS b FROM "
        f"orders) GROUP BY b, {hop}",
        TABLES,
        ["b", "a"],
    )
    assert made.view.handle == ("b",) and len(made.derived["orders"]) == 1
    (bound,) = (leaf.bound for leaf in made.view.leaves)
    assert bound is not None and bound.hops is None


def test_a_function_of_what_is_grouped_by_ties_as_well() -> None:
    made = plan(
        "SELECT floor(cents / 100) * 100 AS part, count(*) AS n FROM orders GROUP BY "
        "floor(cents / 100) HAVING n > 1",
        TABLES,
        ["part"],
    )
    assert list(made.derived["orders"].values()) == ["FLOOR(cents / 100) * 100"]
    with pytest.raises(ConfigError, match="can affect every row"):  # of something that it is not grouped by
        plan(
            "SELECT floor(cents / 100) + cid AS part, count(*) AS n FROM orders GROUP BY "
            "floor(cents / 100), order_id",
            TABLES,
            ["part"],
        )


@pytest.mark.parametrize(
    ("of", "grouped"),
    [
        ("cast(amount AS string)", "amount"),
        ("cast(amount * 2 AS bigint)", "amount * 2"),
        ("lower(cast(cents / 2.0e0 AS string))", "cents / 2.0e0"),
    ],
)
def test_a_function_of_a_floating_group_ties_nothing(of: str, grouped: str) -> None:
    """-0.0 and 0.0 are one group in Spark but two texts: rows of one were not found by the other's."""
    with pytest.raises(ConfigError, match="can affect every row"):
        plan(
            f"SELECT {of} AS part, count(*) AS n FROM orders GROUP BY {grouped} HAVING n > 1",
            TABLES,
            ["part"],
        )
    with pytest.raises(ConfigError, match="can affect every row"):
        plan(
            f"SELECT {of} AS part, order_id, rank() OVER (PARTITION BY {grouped} ORDER "
            "BY ts) AS r FROM orders",
            TABLES,
            ["part"],
        )


def test_a_function_of_a_distinct_floating_value_ties_nothing() -> None:
    distinct = (
        "SELECT cast({0} AS string) AS part, count(*) AS n FROM (SELECT DISTINCT {0} FROM orders) d "
        "GROUP BY cast({0} AS string)"
    )
    assert plan(distinct.format("cents"), TABLES, ["part"]).view.handle == ("part",)
    with pytest.raises(ConfigError, match="can affect every row"):
        plan(distinct.format("amount"), TABLES, ["part"])


@pytest.mark.parametrize(
    ("of", "grouped"),
    [
        ("hour(window.start)", "window(ts, '1 hour')"),
        ("pmod(cents, 3) + 1", "pmod(cents, 3)"),
        ("hour(date_trunc('HOUR', ts))", "date_trunc('HOUR', ts)"),
        ("lower(product)", "product"),
        ("floor(cents / 10) * 10", "floor(cents / 10)"),
    ],
)
def test_a_function_of_an_exact_group_ties(of: str, grouped: str) -> None:
    sql = f"SELECT {of} AS part, count(*) AS n FROM orders GROUP BY {grouped} HAVING n > 1"
    assert plan(sql, TABLES, ["part"]).view.handle == ("part",)


def test_ranks_within_groups_are_recomputed_by_group_though_keyed_by_row() -> None:
    ranked = (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY product ORDER BY amount) AS rn FROM "
        "orders) WHERE rn < 3"
    )
    assert said(ranked, "order_id")[0] == "view: key (order_id), recomputed by (product)"
    two = (
        "SELECT *, sum(amount) OVER (PARTITION BY cid ORDER BY ts) AS s, rank() OVER (PARTITION BY "
        "product, cid ORDER BY ts) AS r FROM orders"
    )
    assert said(two, "order_id")[0] == "view: key (order_id), recomputed by (cid)"


def test_an_aggregate_of_an_aggregate_is_two_stages_in_the_words_of_the_sql() -> None:
    made = plan(
        "WITH a AS (SELECT * FROM orders WHERE product != 'AS (')\n, b AS (SELECT cid, /* ) */ count(*) AS "
        "n FROM a GROUP BY cid) SELECT n, count(*) AS c FROM b GROUP BY n",
        TABLES,
        ["n"],
    )
    first, second = made.stages
    assert first.key == ("cid",) and first.sql == (
        "WITH a AS (SELECT * FROM orders WHERE product != 'AS (') SELECT cid, /* ) */ count(*) AS "
        "n FROM a GROUP BY cid"
    )
    assert second.sql.endswith(f"b AS (SELECT * FROM {first.name}) SELECT n, count(*) AS c FROM b GROUP BY n")
    assert second.tables == (first.name,) and second.handle == ("n",)


def test_an_expression_that_groups_is_stored_as_spark_computes_it() -> None:
    made = plan("SELECT date_trunc('DAY', ts) AS day, count(*) AS n FROM orders GROUP BY 1", TABLES, ["day"])
    assert list(made.derived["orders"].values()) == ["DATE_TRUNC('DAY', ts)"]


def test_equal_after_a_cast_carries_nothing() -> None:
    """'01' = 1 = '1', but '01' is not '1'."""
    with pytest.raises(ConfigError, match='"notes"'):
        plan("SELECT o.order_id, n.text FROM orders o JOIN notes n ON n.code = o.code", TABLES, ["order_id"])


@pytest.mark.parametrize(
    ("sql", "key", "code", "says"),
    [
        (("SELECT id FROM customers WHERE id NOT IN "
        "(SELECT cid FROM orders)"), "id", "HUB-2132", '"orders" can affect every row'),
        ("SELECT count(*) AS n FROM orders", "n", "HUB-2132", "rank within groups"),
        ("SELECT order_id FROM orders ORDER BY amount LIMIT 3", "order_id", "HUB-2132", "row_number"),
        (("SELECT order_id, rank() OVER (ORDER BY "
        "amount) AS r FROM orders"), "order_id", "HUB-2132", "PARTITION BY"),
        (("SELECT product, count(*) AS n FROM orders "
        "GROUP BY ROLLUP (product)"), "product", "HUB-2132", "GROUP BY"),
        ("SELECT o.order_id FROM orders o, customers c", "order_id", "HUB-2132", '"customers"'),
        (("SELECT window(ts, '1 day', '10 seconds').end AS at, count(*) AS n FROM orders "
         "GROUP BY window(ts, '1 day', '10 "
         "seconds') HAVING n > 1"), "at", "HUB-2132", "a row is in 8640 windows, more than 2000"),
        (("SELECT date_trunc('HOUR', window(ts, '10 minutes', '5 minutes').end) AS at, count(*) AS n FROM "
         "orders GROUP BY window(ts, '10 minutes', '5 "
         "minutes') HAVING n > 1"), "at", "HUB-2132", "select its .start or its .end as it is"),
        (("SELECT session_window(ts, '5 minutes').start AS at, count(*) AS n FROM orders GROUP BY "
         "session_window(ts, '5 minutes') HAVING n > 1"), "at", "HUB-2132", "its neighbours decide"),
        (("SELECT window(ts, '5 minutes') AS at, count(*) AS n FROM orders GROUP BY window(ts, '5 "
        "minutes') HAVING n > 1"),
         "at", "HUB-2132", "two times: `window(ts, '5 minutes')`\nHint: select its .start"),
        ("SELECT soundex(product) AS at, count(*) AS n FROM orders GROUP BY soundex(product) HAVING n > 1",
         "at", "HUB-2132", "make a view with it as a column"),
        ("SELECT name FROM customers", "id", "HUB-2131", 'its key "id" is not a column'),
        ("SELECT order_id, now() AS t FROM orders", "order_id", "HUB-2133", ("gives another "
        "value on every replay")),
        ("SELECT order_id, rand() AS t FROM orders", "order_id", "HUB-2133", ("gives another "
        "value on every replay")),
        ("SELECT order_id, getdate() AS t FROM orders", "order_id", "HUB-2133", ("`getdate` gives another "
        "value")),
        (("SELECT order_id FROM orders "
        "WHERE ts > TIMESTAMP 'now'"), "order_id", "HUB-2133", "'now'` gives another value"),
        (("SELECT order_id FROM orders "
        "TABLESAMPLE (10 PERCENT)"), "order_id", "HUB-2133", "cannot be maintained"),
        (("SELECT upper(product) AS code, count(*) AS n "
        "FROM orders GROUP BY code"), "code", "HUB-2134", "may be a column or the alias"),
        ("SELECT order_id, order_id FROM orders", "order_id", "HUB-2130", "two columns of one name"),
        ("DELETE FROM orders", "order_id", "HUB-2130", "is not one query"),
        ("SELECT order_id FROM", "order_id", "HUB-2130", "cannot be read"),
        ("SELECT nothing FROM orders", "nothing", "HUB-2130", "cannot be resolved"),
        ("SELECT orders.order_id FROM orders NATURAL JOIN customers", "order_id", "HUB-2130",
        "write the join with ON"),
    ],
)  # fmt: skip
def test_what_cannot_be_maintained_is_refused_with_the_reason(
    sql: str, key: str, code: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(sql, TABLES, [key])
    assert refused.value.code == code and says in str(refused.value)


def test_a_table_that_is_no_input_is_not_found() -> None:
    with pytest.raises(NotFound, match="inputs: orders, customers"):
        plan("SELECT order_id FROM nothing", TABLES, ["order_id"])


def test_what_nothing_ties_is_computed_whole_where_a_size_is_declared() -> None:
    assert said("SELECT count(*) AS n FROM orders", "n", whole_rows=10) == [
        "view: key (n), computed whole each time",
        "0 orders: every row",
    ]
