"""[edge] The delta operator alone: a foreign-key join over 10 k, 100 k and 1 M stored rows, with small
batches of changes.

``./run bench delta [--rows N …] [--batches N]``. No Kafka: rows go into ``DeltaRun.step`` as Arrow tables,
and come out as changelog bytes. Orders (all the rows) belong to a tenth as many customers; a batch changes
100 orders and 10 customers, so it touches about 200 rows of the view. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from hub.config import Settings
from hub.materializers.planning.delta_plan import Table
from hub.materializers.spark import session as spark
from hub.materializers.spark.delta.catalog import prepare, row_schema
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.spark.delta_engine import DeltaRun
from hub.materializers.spark.slots import Slots

TABLES = [
    Table("orders", {"order_id": "bigint", "customer_id": "bigint", "amount": "double"}, ("order_id",)),
    Table("customers", {"id": "bigint", "name": "string", "city": "string"}, ("id",)),
]
SQL = (
    "SELECT o.order_id, o.amount, c.name, c.city FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
)


def orders(numbers: list[int], customers: int, chance: random.Random) -> pa.Table:
    columns = {
        "order_id": pa.array(numbers, pa.int64()),
        "customer_id": pa.array([number % customers for number in numbers], pa.int64()),
        "amount": pa.array([chance.random() * 100 for _ in numbers], pa.float64()),
    }
    return _changes(columns, len(numbers))


def people(numbers: list[int], chance: random.Random) -> pa.Table:
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "name": pa.array([f"name {chance.random()}" for _ in numbers]),
        "city": pa.array([chance.choice(["Rome", "Oslo", "Bonn"]) for _ in numbers]),
    }
    return _changes(columns, len(numbers))


def _changes(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    return pa.table(
        {
            **columns,
            "_deleted": pa.array([False] * rows),
            "_order": pa.array(range(rows), pa.int64()),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--batches", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hub-bench-") as folder:
        settings = Settings(home=Path(folder), project=Path(folder), spark_master="local[2]")
        session, gateway = spark.open_session(settings, Slots(2, 2, 2))
        made = prepare(session, SQL, TABLES, ["order_id"])
        schema = row_schema(session, made)
        print(f"{'rows':>9} {'first batch':>12} {'rows/s':>8} {'ms/batch':>9} {'touched/s':>9}  parts, ms")
        for rows in given.rows:
            chance = random.Random(rows)
            state = DeltaState(Path(folder) / str(rows))
            run = DeltaRun(session, made, state, 1, schema=schema, schema_id=1)
            customers = rows // 10
            first = {
                "orders": orders(list(range(rows)), customers, chance),
                "customers": people(list(range(customers)), chance),
            }
            begun = time.perf_counter()
            run.step(0, first)
            bulk_s = time.perf_counter() - begun
            took: list[float] = []
            touched = 0
            parts: dict[str, list[float]] = {}
            for batch in range(1, given.batches + 1):
                changes = {
                    "orders": orders(chance.sample(range(rows), 100), customers, chance),
                    "customers": people(chance.sample(range(customers), 10), chance),
                }
                begun = time.perf_counter()
                emitted = run.step(batch, changes)
                took.append((time.perf_counter() - begun) * 1000)
                touched += emitted.upserts.num_rows
                for name, ms in run.timing.ms.items():
                    parts.setdefault(name, []).append(ms)
            said = ", ".join(f"{name} {statistics.median(each):.0f}" for name, each in parts.items())
            print(
                f"{rows:>9,} {bulk_s:>10.1f} s {rows / bulk_s:>8,.0f} {statistics.median(took):>9.0f} "
                f"{touched / (sum(took) / 1000):>9,.0f}  {said}",
                flush=True,
            )
            state.close()
        session.stop()
        gateway.stop()


if __name__ == "__main__":
    main()
