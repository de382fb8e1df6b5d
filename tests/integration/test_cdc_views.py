"""Views over change events of Debezium: Avro, JSON with and without its schema; golden, in bulk and live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipeline import Pipeline, plain, wait_until
from pyspark.sql import SparkSession

from hub.materializers.definition.load import load_views
from hub.materializers.golden.cases import Case
from hub.materializers.golden.runner import GoldenRunner
from hub.materializers.types import cdc
from hub.record import NewRecord
from hub.schema_registry.codecs.wire_format import encode, parsed

UNAVAILABLE = cdc.UNAVAILABLE


def connect(of: str, name: str) -> dict[str, str]:
    return {"type": of, "connect.name": name}


# As Debezium's Postgres connector and Confluent's AvroConverter write the table
# (id int primary key, name text not null, bio text, born date, seen timestamp, at timestamptz, balance
# numeric(12,2)).
COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "name", "type": "string"},
    {"name": "bio", "type": ["null", "string"], "default": None},
    {"name": "born", "type": ["null", connect("int", "io.debezium.time.Date")], "default": None},
    {"name": "seen", "type": ["null", connect("long", "io.debezium.time.MicroTimestamp")], "default": None},
    {"name": "at", "type": ["null", connect("string", "io.debezium.time.ZonedTimestamp")], "default": None},
    {
        "name": "balance",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}],
        "default": None,
    },
]


def envelope(*more: dict[str, Any]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "fields": [*COLUMNS, *more]}
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            {"name": "ts_ms", "type": "long"},
            {"name": "lsn", "type": ["null", "long"], "default": None},
        ],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "crm.public.customers",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def change(
    op: str, lsn: int, after: dict[str, Any] | None, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    source = {"ts_ms": 1_700_000_000_000 + lsn, "lsn": lsn}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}


def customer(id: int, name: str, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("bio", "born", "seen", "at", "balance"))
    return {"id": id, "name": name, **empty, **more}


CUSTOMERS = """
view: customers
sources:
  c: {topic: crm.public.customers, cdc: debezium, key: id}
fields: {name: c.name, bio: c.bio, born: c.born, seen: c.seen, at: c.at, balance: c.balance, op: c._op}
"""
TABLE = """
view: names
sources:
  c: {topic: crm.public.customers, cdc: debezium, table: {key: id}}
sql: SELECT id, name, born FROM c
key: id
"""
ORDERS = """
view: orders
sources:
  o:
    topic: shop.public.orders
    cdc: debezium
    format: json
    schema: {id: bigint, customer: string, status: string, cents: "decimal(12,2)", at: timestamp, day: date}
    key: customer
    unique_by: id
    where: status <> 'draft'
fields: {orders: count(o.id), cents: sum(o.cents), last: max(o.at), day: max(o.day)}
delete_when: orders = 0
"""


@pytest.fixture(scope="module")
def golden(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> GoldenRunner:
    folder = tmp_path_factory.mktemp("cdc")
    (folder / "views").mkdir()
    for text in (CUSTOMERS, TABLE, ORDERS):
        (folder / "views" / f"{yaml.safe_load(text)['view']}.yaml").write_text(text)
    views = {view.name: view for view in load_views(folder)}
    seen = cdc.unwrapped(envelope())
    return GoldenRunner(
        spark_session, views, {"customers": {"c": seen}, "names": {"c": seen}, "orders": {}}, folder
    )


def given(source: str, value: dict[str, Any] | None, key: str = "{}") -> dict[str, Any]:
    return {"source": source, "key": key, "value": value}


def test_changes_of_rows_are_rows(golden: GoldenRunner) -> None:
    """Snapshot, updates that come again, deletions with their tombstones, a new key,
    an unchanged TOAST value."""
    ada = customer(1, "Ada", bio="long", born=19_782, seen=1_700_000_000_123_456, balance="12.50")
    ada["at"] = "2024-02-29T12:30:00.5Z"
    events = [
        given("c", change("r", 10, ada)),
        given("c", change("u", 30, {**ada, "name": "Ada L.", "bio": UNAVAILABLE})),
        given("c", change("u", 20, {**ada, "name": "stale"})),
        given("c", change("c", 40, customer(2, "Bob"))),
        given("c", change("d", 50, None, customer(2, ""))),
        given("c", None),
        given("c", change("c", 60, customer(3, "Cy", bio="x"))),
        # UPDATE … SET id = 4 WHERE id = 3, as Debezium writes it.
        given("c", change("d", 70, None, customer(3, ""))),
        given("c", None),
        given("c", change("c", 70, customer(4, "Cy", bio="x"))),
        # Deleted, and inserted again without its former values.
        given("c", change("c", 80, customer(5, "Di", bio="old"))),
        given("c", change("d", 81, None, customer(5, ""))),
        given("c", change("c", 82, customer(5, "Di"))),
        given("c", change("d", 81, None, customer(5, ""))),
        # Sent again after its deletion.
        given("c", change("c", 40, customer(2, "Bob"))),
    ]
    found = golden.run("customers", Case.model_validate({"events": events, "rows": {}}))
    assert found.dead == []
    nulls = dict.fromkeys(("born", "seen", "at", "balance"))
    assert {key: plain(row) for key, row in found.rows.items()} == {
        "1": {
            "name": "Ada L.",
            "bio": "long",
            "born": "2024-02-29",
            "seen": "2023-11-14T22:13:20.123Z",
            "at": "2024-02-29T12:30:00.500Z",
            "balance": 12.5,
            "op": "u",
        },
        "4": {"name": "Cy", "bio": "x", **nulls, "op": "c"},
        "5": {"name": "Di", "bio": None, **nulls, "op": "c"},
    }
    table = golden.run("names", Case.model_validate({"events": events, "rows": {}}))
    names = {key: row["name"] for key, row in table.rows.items()}
    assert names == {"1": "Ada L.", "4": "Cy", "5": "Di"}


def test_what_is_no_change_of_a_row_is_refused(golden: GoldenRunner) -> None:
    ada = customer(1, "Ada")
    events = [
        given("c", change("c", 1, ada)),
        given("c", change("t", 2, None)),
        given("c", change("x", 3, ada)),
        given("c", change("u", 4, None)),
        given("c", change("d", 5, None)),
        # A new key of a row whose TOAST value did not change.
        given("c", change("d", 6, None, customer(1, ""))),
        given("c", change("c", 6, customer(7, "Ada", bio=UNAVAILABLE))),
    ]
    found = golden.run("customers", Case.model_validate({"events": events, "rows": {}}))
    assert list(found.rows) == []
    reasons = [reason for _, reason in found.dead]
    assert [number for number, _ in found.dead] == [2, 3, 4, 5, 7]
    for reason, said in zip(
        reasons,
        ("truncated", "its op is x", "no row in `after`", "REPLICA IDENTITY", "its bio is a TOAST value"),
        strict=True,
    ):
        assert said in reason
    placeholder = [given("c", change("u", 6, customer(1, UNAVAILABLE)))]
    table = golden.run("names", Case.model_validate({"events": placeholder, "rows": {}}))
    assert "its name is a TOAST value" in table.dead[0][1]


def test_json_is_read_with_and_without_connects_schema(golden: GoldenRunner) -> None:
    """With the row before an update, an order that moves to another customer leaves the former one."""

    def order(id: int, of: str, status: str, cents: Any, at: Any = None) -> dict[str, Any]:
        return {"id": id, "customer": of, "status": status, "cents": cents, "at": at, "day": 19_782}

    first, second = order(1, "a", "open", "9.95", 1_700_000_000_000_000), order(2, "a", "open", 1.05)
    third = order(3, "b", "open", 2, "2024-02-29T12:30:00Z")
    events = [
        given("o", change("c", 1, first)),
        given("o", {"schema": {"type": "struct"}, "payload": change("c", 2, second)}),
        given("o", change("c", 3, third)),
        given("o", change("u", 4, {**second, "customer": "b"}, second)),
        given("o", change("c", 5, order(4, "c", "open", 1))),
        given("o", change("u", 6, order(4, "c", "draft", 1), order(4, "c", "open", 1))),
        given("o", change("c", 7, order(5, "d", "open", 1))),
        given("o", {"payload": change("d", 8, None, order(5, "d", "open", 1))}),
        given("o", {"no": "envelope"}),
    ]
    found = golden.run("orders", Case.model_validate({"events": events, "rows": {}}))
    assert {key: (row["orders"], row["cents"], row["last"]) for key, row in found.rows.items()} == {
        "a": (1, 9.95, "2023-11-14T22:13:20.000Z"),
        "b": (2, 3.05, "2024-02-29T12:30:00.000Z"),
    }
    assert found.rows["a"]["day"] == "2024-02-29"
    assert [(number, "no op" in reason) for number, reason in found.dead] == [(9, True)]


def test_a_running_view_follows_changes_and_a_new_column(pipeline: Pipeline, tmp_path: Path) -> None:
    """Bulk, then live; ALTER TABLE … ADD COLUMN makes a new schema, and the view continues."""
    topic, view = "crm.live.customers", "live_customers"
    pipeline.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
    one = envelope()
    first = pipeline.registry.register(f"{topic}-value", json.dumps(one))

    def write(schema_id: int, schema: dict[str, Any], id: int, value: dict[str, Any] | None) -> None:
        body = None if value is None else encode(schema_id, parsed(schema), value)
        pipeline.writer.append([NewRecord(topic, json.dumps({"id": id}).encode(), body)])

    for id in range(4):
        write(first, one, id, change("r", 1, customer(id, f"n{id}", bio=f"b{id}")))
    write(first, one, 3, change("d", 2, None, customer(3, "")))
    write(first, one, 3, None)
    text = CUSTOMERS.replace("view: customers", f"view: {view}").replace("crm.public.customers", topic)
    (pipeline.views / f"{view}.yaml").write_text(text)
    pipeline.covers(view, [topic], 400.0)
    assert sorted(pipeline.rows(view)) == ["0", "1", "2"]
    two = envelope({"name": "city", "type": ["null", "string"], "default": None})
    second = pipeline.registry.register(f"{topic}-value", json.dumps(two))
    write(second, two, 0, change("u", 3, {**customer(0, "new", bio=UNAVAILABLE), "city": "Oslo"}))
    write(first, one, 1, change("d", 4, None, customer(1, "")))
    write(second, two, 9, change("c", 5, {**customer(9, "nine"), "city": "Rome"}))
    pipeline.covers(view, [topic], 400.0)
    wait_until(lambda: sorted(pipeline.rows(view)) == ["0", "2", "9"], 60.0)
    row = plain(pipeline.rows(view)["0"])
    assert (row["name"], row["bio"]) == ("new", "b0")
