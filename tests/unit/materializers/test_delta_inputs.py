"""An incremental view's sources as the incremental engine's tables, and its plan from files alone."""

from __future__ import annotations

from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_inputs import fingerprint, planned, shares, stage_name, tables
from hub.materializers.planning.delta_plan import STREAM_KEY
from hub.materializers.types.avro_types import spark_types

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "orderId", "type": ["null", "long"]},
        {"name": "customer", "type": "int"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["open", "gone"]}},
        {"name": "before", "type": ["null", "Status"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hours", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "either", "type": ["string", "long"]},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "next", "type": ["null", "Line"]}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
    ],
}


def view(sql: str, sources: dict[str, Any], **more: Any) -> SqlView:
    return SqlView.model_validate({"view": "v", "sources": sources, "sql": sql, **more})


def test_avro_types_as_spark_reads_them() -> None:
    assert spark_types(ORDER) == {
        "orderId": "bigint", "customer": "int", "status": "string", "before": "string",
        "price": "decimal(9,2)",
        "at": "timestamp", "day": "date", "hours": "", "either": "", "lines": "",
        "tags": "map<string,double>",
    }  # fmt: skip


def test_keys_columns_and_kinds_of_the_inputs() -> None:
    sources = {
        "o": {"topic": "shop.orders", "table": {"key": ["orderId", "day"], "delete_when": "status = 'gone'"}},
        "r": {"topic": "shop.orders", "as": "table"},
        "s": {"topic": "shop.orders"},
        "w": {"view": "other"},
    }
    sql = (
        "SELECT o.customer, count(DISTINCT r.day) AS days, max(s._timestamp) AS at, max(w._key) AS last "
        "FROM o JOIN r ON o.customer = r.customer JOIN s ON s.customer = o.customer JOIN w ON w.customer = "
        "o.customer GROUP BY o.customer"
    )
    query = checked(view(sql, sources), dict.fromkeys(sources, ORDER))
    o, r, s, w = tables(query, {name: spark_types(ORDER) for name in sources})
    assert (o.key, o.kind, dict(o.columns)) == (
        ("orderid", "day"), "table", {"customer": "int", "orderid": "bigint", "day": "date"},
    )  # fmt: skip
    assert (r.key, dict(r.columns)) == (("_key",), {"day": "date", "customer": "int"})
    assert (s.key, s.kind, dict(s.columns)) == (
        STREAM_KEY, "stream", {"_timestamp": "timestamp", "customer": "int"},
    )  # fmt: skip
    assert (w.key, w.versioned, dict(w.columns)) == (("_key",), True, {"_key": "string", "customer": "int"})
    assert [each.versioned for each in (o, r, s)] == [False, False, False]


def test_an_input_of_which_nothing_is_read_still_has_rows_to_count() -> None:
    query = checked(view("SELECT 'all' AS k, count(*) AS n FROM o GROUP BY 'all'", {"o": {"topic": "t",
        "as": "table"}}), {"o": ORDER})  # fmt: skip
    (table,) = tables(query, {"o": spark_types(ORDER)})
    assert dict(table.columns) == {"_key": "string"}


def test_a_kept_row_is_never_deleted() -> None:
    query = checked(view("SELECT customer, count(*) AS n FROM o WHERE NOT _deleted GROUP BY customer",
        {"o": {"topic": "t", "as": "table"}}), {"o": ORDER})  # fmt: skip
    with pytest.raises(ConfigError, match="never `_deleted`"):
        tables(query, {"o": spark_types(ORDER)})


def test_the_plan_of_a_view_named_like_its_source() -> None:
    declared = view(
        "SELECT customer, count(*) AS n FROM v GROUP BY customer HAVING count(*) > 1", {"v": {"topic": "t"}}
    )
    found = classify(checked(declared, {"v": ORDER}))
    assert stage_name(found.query) == "v_rows"
    made = planned(found, {"v": ORDER})
    assert made.explain() == [
        "v_rows: key (customer), recomputed by (customer)",
        "  0 v: rows whose customer = view's customer",
    ]
    whole = declared.model_copy(update={"whole_rows": 5})
    again = planned(classify(checked(whole, {"v": ORDER})), {"v": ORDER})
    assert fingerprint(again) == fingerprint(made), "a limit is not a part of the state"
    other = view(declared.sql.replace("> 1", "> 2"), {"v": {"topic": "t"}})
    assert fingerprint(planned(classify(checked(other, {"v": ORDER})), {"v": ORDER})) != fingerprint(made)


def test_a_batch_takes_of_each_source_as_much_as_is_unread_of_it() -> None:
    """All sources are read in as few batches as possible, and none waits for single new events."""
    found = shares(200_000, {"bids": 138_000, "auctions": 9_000})
    assert found["bids"] >= 138_000 and found["auctions"] >= 10_000 and sum(found.values()) <= 200_000
    assert shares(1_000, {"one": 5_000_000}) == {"one": 1_000}
    assert shares(1_000, {"read": 0, "unread": 70}) == {"read": 50, "unread": 950}
    assert shares(1_000, {"a": 0, "b": 0}) == {"a": 500, "b": 500}
    assert shares(1, {"a": 3, "b": 9}) == {"a": 1, "b": 1}
