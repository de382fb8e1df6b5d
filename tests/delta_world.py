"""Tables of orders, customers, regions and clicks that change at random, for tests of the incremental engine,
and the result that Spark alone gives for a view over them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hub.materializers.planning.delta_plan import STREAM_KEY, Table
from hub.materializers.spark.delta.emitted import Emitted
from hub.materializers.spark.delta.stage_query import loose
from hub.materializers.spark.delta_engine import DeltaRun

ORDERS = Table(
    "orders",
    {
        "order_id": "int", "customer_id": "int", "product": "string", "amount": "decimal(10,2)",
        "at": "timestamp", "place": "struct<city:string,zip:int>", "tags": "array<string>",
    },
    ("order_id",),
)  # fmt: skip
CUSTOMERS = Table(
    "customers", {"id": "bigint", "name": "string", "region": "string", "boss": "bigint"}, ("id",)
)
REGIONS = Table("regions", {"code": "string", "title": "string", "country": "string"}, ("code",))
CLICKS = Table("clicks", {"customer_id": "int", "page": "string"}, STREAM_KEY, "stream")
TABLES = [ORDERS, CUSTOMERS, REGIONS, CLICKS]


@dataclass
class World:
    """Tables as they are, and random changes of them."""

    chance: random.Random
    rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    offset: int = 0

    def __post_init__(self) -> None:
        self.rows = {table.name: {} for table in TABLES}

    def batch(self, most: int) -> dict[str, list[dict[str, Any]]]:
        changes: dict[str, list[dict[str, Any]]] = {}
        tables = self.chance.sample(TABLES, self.chance.randint(1, len(TABLES)))
        for table in tables:
            for _ in range(self.chance.randint(1, most)):
                self.offset += 1
                row = self.row(table)
                key = tuple(row[each] for each in table.key)
                gone = table.kind == "table" and self.chance.random() < 0.3
                if gone:
                    row = {name: value if name in table.key else None for name, value in row.items()}
                    self.rows[table.name].pop(key, None)
                else:
                    self.rows[table.name][key] = row
                changes.setdefault(table.name, []).append({**row, "_deleted": gone, "_order": self.offset})
        return changes

    def row(self, table: Table) -> dict[str, Any]:
        some = self.chance
        customer = some.choice([None, *range(8)])
        if table is ORDERS:
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=some.randrange(100))
            city = some.choice([None, "Rome", "Oslo", "Bonn"])
            tags = some.choice([None, [], ["a"], ["a", "b", None]])
            return {
                "order_id": some.randrange(15), "customer_id": customer, "product": some.choice("xyz"),
                "amount": some.randrange(5000) / 100, "at": at,
                "place": some.choice([None, {"city": city, "zip": 1}]), "tags": tags,
            }  # fmt: skip
        region = some.choice([None, "r1", "r2", "r3"])
        if table is CUSTOMERS:
            name = some.choice(["Ann", "Bob", None])
            return {"id": some.randrange(8), "name": name, "region": region, "boss": customer}
        if table is REGIONS:
            code, title = some.choice(["r1", "r2", "r3"]), some.choice("AB")
            return {"code": code, "title": title, "country": some.choice(["it", "no"])}
        at_ = {"_topic": "clicks", "_partition": 0, "_offset": self.offset}
        return {"customer_id": customer, "page": some.choice(["home", "shop"]), **at_}


def schema_of(session: SparkSession, table_name: str, changes: bool) -> StructType:
    (table,) = (each for each in TABLES if each.name == table_name)
    types = {**table.columns}
    for each in table.key:
        types.setdefault(each, {"_partition": "int", "_offset": "bigint"}.get(each, "string"))
    ddl = ", ".join(f"`{name}` {of}" for name, of in types.items())
    return session.createDataFrame([], ddl + (", _deleted boolean, _order bigint" if changes else "")).schema


def arrow(
    session: SparkSession, run: DeltaRun | None, table: Table, rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """Rows as the engine is given them: with what Spark derives."""
    schema = schema_of(session, table.name, run is not None)
    shape = to_arrow_schema(schema, timezone="UTC")
    if "amount" in schema.names:
        exact = pa.decimal128(10, 2)
        amounts = [None if row["amount"] is None else pa.scalar(row["amount"]).cast(exact) for row in rows]
        rows = [
            {**row, "amount": None if each is None else each.as_py()}
            for row, each in zip(rows, amounts, strict=True)
        ]
    made = pa.Table.from_pylist(list(rows), shape)
    if run is None or not run.derived(table.name):
        return made
    return run.with_derived(table.name, session.createDataFrame(made, schema)).toArrow()


def fold(view: dict[str, Any], emitted: Emitted) -> None:
    """Apply rows and tombstones like a store."""
    seen = (
        emitted.upserts.column("_record_key").to_pylist() + emitted.deletes.column("_record_key").to_pylist()
    )
    assert len(seen) == len(set(seen)), "a key twice in a batch"
    for row in emitted.upserts.to_pylist():
        key = row.pop("_record_key")
        assert view.get(key) != row, "emitted without a change"
        view[key] = row
    for key in emitted.deletes.column("_record_key").to_pylist():
        assert view.pop(key, None) is not None, "deleted what was not there"


def recomputed(session: SparkSession, world: World, sql: str) -> list[dict[str, Any]]:
    """The SQL over the whole tables, by Spark alone."""
    fresh = session.newSession()
    fresh.conf.set("spark.sql.shuffle.partitions", "1")
    fresh.conf.set("spark.sql.codegen.wholeStage", "false")
    for table in TABLES:
        made = arrow(session, None, table, list(world.rows[table.name].values()))
        shown = (
            fresh.createDataFrame(made)
            if made.num_rows
            else fresh.createDataFrame([], schema_of(session, table.name, False))
        )
        shown = shown.select(*table.columns)
        shown.createOrReplaceTempView(table.name)
    return loose(fresh.sql(sql)).toArrow().to_pylist()


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
