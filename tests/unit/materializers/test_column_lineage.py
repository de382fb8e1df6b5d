"""Origin of a view's columns, for every example view of the project and for untraceable columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.materializers.definition.column_lineage import made_of
from hub.materializers.definition.load import body_of, load_view
from hub.materializers.definition.sql_view import SqlSource, SqlView

EXAMPLES = Path(__file__).parents[3] / "examples"


def of(example: str) -> dict[str, tuple[tuple[str, str], ...]]:
    folder, _, name = example.partition("/")
    return made_of(body_of(load_view(EXAMPLES / folder / "views" / f"{name}.yaml")))


def test_an_entity_view_through_its_computed_columns() -> None:
    found = of("customer-360/customer_360")
    assert found["city"] == (("crm.customers", "city"),)
    assert found["owes_cents"] == (
        ("shop.orders", "amount_cents"),
        ("shop.orders", "status"),
        ("shop.payments", "amount_cents"),
        ("shop.payments", "kind"),
    )
    assert ("crm.customers", "customer_id") in found[""]


@pytest.mark.parametrize(
    ("example", "column", "expected"),
    [
        ("sql-views/orders_with_customers", "name", {("market.customers", "name")}),
        ("sql-views/orders_with_customers", "", {("market.orders", "customer_id"), ("market.customers",
        "customer_id")}),
        ("sql-views/best_of_region", "place", {("views.orders_with_customers", each) for each in ("region",
        "amount_cents", "order_id")}),
        ("flights/departures_by_hour", "scheduled", set()),
        ("formats/order_lines", "product", {("shop.orders", "lines")}),
    ],
)  # fmt: skip
def test_a_sql_view_through_joins_windows_and_exploded_lists(
    example: str, column: str, expected: set[tuple[str, str]]
) -> None:
    assert set(of(example)[column]) == expected


def test_through_a_subquery_and_a_common_table_expression() -> None:
    view = SqlView(
        view="v",
        sources={"o": SqlSource(topic="shop.orders")},
        sql="WITH t AS (SELECT who, cents * 2 AS twice FROM o WHERE open) "
        "SELECT who, sum(more) AS total FROM (SELECT who, twice + 1 AS more FROM t) x GROUP BY who",
    )
    found = made_of(body_of(view))
    assert found == {
        "who": (("shop.orders", "who"),),
        "total": (("shop.orders", "cents"),),
        "": (("shop.orders", "open"),),
    }


def test_what_is_no_sql_is_made_of_nothing_known() -> None:
    view = SqlView(view="v", sources={"o": SqlSource(topic="shop.orders")}, sql="SELECT FROM WHERE")
    assert made_of(body_of(view)) == {}


def test_a_window_as_the_first_thing_that_is_grouped_by() -> None:
    view = SqlView(
        view="sums",
        sources={"b": SqlSource(topic="nexmark.bid", event_time="at", watermark="4 seconds")},
        sql="SELECT window(at, '10 seconds').end AS ended, sum(price) AS paid FROM b GROUP BY "
        "window(at, '10 seconds')",
    )
    assert made_of(body_of(view))["paid"] == (("nexmark.bid", "price"),)
