"""Law of the incremental engine: after any changes, its output folds to the result of the SQL over the
current tables."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from delta_world import ORDERS, TABLES, World, arrow, fold, ordered, recomputed, schema_of
from differential.view_compare import FoundViews, run_view
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hub.errors import CallerError, ConfigError, HubFault, PeerError
from hub.log import MemoryCluster, MemoryWriter, Writer
from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.materializers.planning.exact_numbers import exact, of_plan
from hub.materializers.spark import delta_engine
from hub.materializers.spark.delta.catalog import prepare, row_schema
from hub.materializers.spark.delta.emitted import Emitted, emit
from hub.materializers.spark.delta.stage_query import loose
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.spark.delta_engine import DeltaRun
from hub.record import NewRecord, Positions, Record

SHAPES: Mapping[str, tuple[Sequence[str], str]] = {
    "inner join by foreign key": (
        ["order_id"],
        "SELECT o.order_id, o.amount, c.name FROM orders o JOIN customers c ON o.customer_id = c.id",
    ),
    "left join by foreign key": (
        ["order_id"],
        ("SELECT o.order_id, o.customer_id, c.name, o.place, o.tags FROM orders o LEFT JOIN customers c ON "
        "c.id = o.customer_id"),
    ),
    "right join": (
        ["id"],
        ("SELECT c.id, c.name, max(o.amount) AS most FROM orders o RIGHT JOIN customers c ON o.customer_id "
        "= c.id GROUP BY c.id, c.name"),
    ),
    "full join": (
        ["id"],
        ("SELECT coalesce(o.customer_id, c.id) AS id, max(c.name) AS name, sum(o.amount) AS total FROM "
        "orders o FULL JOIN customers c ON o.customer_id = c.id GROUP BY coalesce(o.customer_id, c.id)"),
    ),
    "full join of aggregates, using": (
        ["k"],
        ("SELECT k, n, m FROM (SELECT customer_id AS k, count(*) AS n FROM orders GROUP BY customer_id) "
        "FULL JOIN (SELECT customer_id AS k, count(*) AS m FROM clicks WHERE customer_id IS NOT NULL GROUP "
        "BY customer_id) USING (k)"),
    ),
    # Spark declares the fields of such a struct as never null, also where the join has no row for it.
    "left join with a struct": (
        ["id"],
        ("SELECT c.id, s.sums, array(s.sums) AS list FROM customers c LEFT JOIN (SELECT customer_id, "
        "struct(count(*) AS n, 'x' AS t) AS sums FROM orders GROUP BY customer_id) s "
        "ON s.customer_id = c.id"),
    ),
    "three tables": (
        ["order_id"],
        ("SELECT o.order_id, c.name, r.title FROM orders o LEFT JOIN customers c ON c.id = o.customer_id "
        "LEFT JOIN regions r ON r.code = c.region"),
    ),
    "three tables, in WHERE": (
        ["order_id"],
        ("SELECT o.order_id, r.country FROM orders o, customers c, regions r "
        "WHERE o.customer_id = c.id AND c.region = r.code AND o.amount > 20"),
    ),
    "aggregate over a join": (
        ["country"],
        ("SELECT r.country, count(*) AS n, sum(o.amount) AS total FROM orders o JOIN customers c ON "
        "o.customer_id = c.id JOIN regions r ON r.code = c.region GROUP BY r.country"),
    ),
    "having": (
        ["customer_id"],
        "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id HAVING count(*) > 2",
    ),
    "count distinct": (
        ["product"],
        ("SELECT product, count(DISTINCT customer_id) AS n, collect_list(1) AS ones FROM "
        "orders GROUP BY product"),
    ),
    "group by an expression": (
        ["day"],
        "SELECT date_trunc('DAY', at) AS day, count(*) AS n FROM orders GROUP BY date_trunc('DAY', at)",
    ),
    "having by window": (
        ["ended"],
        ("SELECT window(at, '6 hours').end AS ended, count(*) AS n, sum(amount) AS total FROM orders "
        "GROUP BY window(at, '6 hours') HAVING count(*) > 1"),
    ),
    "having by the start of a window that begins at an odd time": (
        ["began"],
        ("SELECT window.start AS began, count(DISTINCT product) AS n FROM orders "
        "GROUP BY window(at, '1 day', '1 day', '5 hours 30 minutes') HAVING n > 1"),
    ),
    "having by the floor of a division": (
        ["part"],
        ("SELECT floor(unix_seconds(at) / 18000) AS part, count(*) AS n FROM orders "
        "GROUP BY floor(unix_seconds(at) / 18000) HAVING n > 1"),
    ),
    "a function of what is grouped by": (
        ["began"],
        ("SELECT timestamp_seconds(unix_seconds(at) DIV 7200 * 7200) AS began, max(amount) AS most FROM "
        "orders GROUP BY unix_seconds(at) DIV 7200 HAVING count(*) > 1"),
    ),
    "having by the day's text": (
        ["day"],
        ("SELECT date_format(at, 'yyyy-MM-dd') AS day, count(*) AS n FROM orders GROUP BY date_format(at, "
        "'yyyy-MM-dd') HAVING count(*) > 2"),
    ),
    "having by windows that overlap": (
        ["began"],
        ("SELECT window(at, '12 hours', '6 hours').start AS began, count(*) AS n FROM orders "
        "GROUP BY window(at, '12 hours', '6 hours') HAVING count(*) > 1"),
    ),
    # Their length is not a multiple of their slide: an order is in two of them or in three.
    "distinct by product and windows that overlap at odd times": (
        ["product", "began", "ended"],
        ("SELECT product, window.start AS began, window.end AS ended, count(DISTINCT customer_id) AS n FROM "
        "orders GROUP BY product, window(at, '10 hours', '4 hours', '90 minutes')"),
    ),
    "the most ordered of each of the windows that overlap": (
        ["ended", "product"],
        ("SELECT c.ended, c.product, c.n FROM (SELECT product, window(at, '1 day', '8 hours').end AS ended, "
        "count(*) AS n FROM orders GROUP BY product, window(at, '1 day', '8 hours')) c JOIN (SELECT ended, "
        "max(n) AS most FROM (SELECT product, window(at, '1 day', '8 hours').end AS ended, count(*) AS n "
        "FROM orders GROUP BY product, window(at, '1 day', '8 hours')) GROUP BY ended) m ON m.ended = "
        "c.ended AND m.most = c.n"),
    ),
    "each order in each of its windows, with the region of who ordered": (
        ["began", "order_id"],
        ("SELECT o.order_id, window(o.at, '9 hours', '3 hours').start AS began, c.region FROM orders o "
        "LEFT JOIN customers c ON c.id = o.customer_id"),
    ),
    "the highest of each window": (
        ["order_id"],
        ("SELECT o.order_id, o.amount, m.ended FROM orders o JOIN (SELECT max(amount) AS most, window(at, "
        "'12 hours').end AS ended FROM orders GROUP BY window(at, '12 hours')) m ON o.amount = m.most "
        "WHERE o.at BETWEEN m.ended - INTERVAL 12 HOURS AND m.ended"),
    ),
    "group by a field": (
        ["city"],
        "SELECT place.city AS city, min(amount) AS least FROM orders GROUP BY place.city",
    ),
    "top n by group, keyed by row": (
        ["order_id"],
        ("SELECT order_id, product, amount FROM (SELECT *, row_number() OVER (PARTITION BY product ORDER BY "
        "amount DESC, order_id) AS rn FROM orders) WHERE rn <= 2"),
    ),
    "top n by group, keyed by rank": (
        ["product", "rn"],
        ("SELECT product, rn, order_id FROM (SELECT *, row_number() OVER (PARTITION BY product ORDER BY "
        "amount DESC, order_id) AS rn FROM orders) WHERE rn <= 2"),
    ),
    "aggregate of an aggregate": (
        ["n"],
        ("SELECT n, count(*) AS customers FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY "
        "customer_id) q GROUP BY n"),
    ),
    "aggregate of an aggregate in WITH": (
        ["n"],
        ("WITH big AS (SELECT * FROM orders WHERE amount > 10), per AS (SELECT customer_id, count(*) AS n "
        "FROM big GROUP BY customer_id) SELECT n, count(*) AS customers FROM per GROUP BY n"),
    ),
    "aggregate of joined aggregates": (
        ["region"],
        ("SELECT c.region, max(s.total) AS most FROM customers c JOIN (SELECT customer_id, sum(amount) AS "
        "total FROM orders GROUP BY customer_id) s ON s.customer_id = c.id GROUP BY c.region"),
    ),
    "not exists": (
        ["id"],
        ("SELECT c.id, c.name FROM customers c WHERE NOT EXISTS "
        "(SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.amount > 30)"),
    ),
    "exists or": (
        ["id"],
        ("SELECT c.id FROM customers c WHERE c.region = 'r1' OR EXISTS (SELECT 1 FROM orders o WHERE "
        "o.customer_id = c.id)"),
    ),
    "in": (["id"], ("SELECT id, name FROM customers WHERE id IN (SELECT customer_id FROM "
    "orders WHERE amount > 25)")),
    "scalar subquery": (
        ["id"],
        ("SELECT c.id, (SELECT max(o.amount) FROM orders o WHERE o.customer_id = c.id) AS "
        "most FROM customers c"),
    ),
    "above its group's mean": (
        ["order_id"],
        ("SELECT o.order_id FROM orders o WHERE o.amount > (SELECT avg(i.amount) FROM orders i WHERE "
        "i.product = o.product)"),
    ),
    "union all": (
        ["what", "id"],
        ("SELECT 'order' AS what, CAST(order_id AS BIGINT) AS id, product AS text FROM orders WHERE amount "
        "> 15 UNION ALL SELECT 'customer', id, name FROM customers"),
    ),
    "union": (
        ["region"],
        "SELECT region FROM customers UNION SELECT code FROM regions",
    ),
    "except": (["region"], "SELECT region FROM customers EXCEPT SELECT code FROM regions"),
    "self-join": (
        ["id"],
        "SELECT c.id, c.name, b.name AS boss FROM customers c LEFT JOIN customers b ON c.boss = b.id",
    ),
    "self-join, many to many": (
        ["a", "b"],
        ("SELECT x.order_id AS a, y.order_id AS b FROM orders x JOIN orders y ON x.product = y.product "
        "AND x.customer_id = y.customer_id AND x.order_id < y.order_id"),
    ),
    "left semi join": (["id"], ("SELECT c.id, c.name FROM customers c LEFT SEMI JOIN clicks k ON "
    "k.customer_id = c.id")),
    "left anti join": (["code"], ("SELECT r.code, r.title FROM regions r LEFT ANTI JOIN customers "
    "c ON c.region = r.code")),
    "distinct": (
        ["customer_id", "product"],
        "SELECT DISTINCT customer_id, product FROM orders",
    ),
    "stream with table": (
        ["region", "page"],
        ("SELECT c.region, k.page, count(*) AS n FROM clicks k LEFT JOIN customers c ON c.id = k.customer_id "
        "GROUP BY c.region, k.page"),
    ),
    "explode": (
        ["tag"],
        ("SELECT tag, count(*) AS n FROM (SELECT order_id, product AS p, tag FROM orders LATERAL VIEW "
        "explode(tags) t AS tag) GROUP BY tag"),
    ),
    "running total": (
        ["order_id"],
        ("SELECT order_id, customer_id, sum(amount) OVER (PARTITION BY customer_id ORDER BY order_id) "
        "AS so_far FROM orders"),
    ),
    "a window that slides with each row": (
        ["order_id"],
        ("SELECT order_id, product, count(*) OVER (PARTITION BY product ORDER BY at RANGE BETWEEN INTERVAL "
        "10 HOURS PRECEDING AND CURRENT ROW) AS recent FROM orders"),
    ),
    "share of all": (["n"], "SELECT count(*) AS n, sum(amount) AS total FROM orders"),
}  # fmt: skip
# Nothing ties a row of these to a row of the view: they are computed whole, as declared.
WHOLE = {"share of all", "explode"}


def foreach_batch(
    run: DeltaRun, writer: Writer, positions: Callable[[int], str] = lambda batch_id: ""
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch``: rows of ``tagged`` → step → changelog.

    It returns when the log has all records.
    """
    topic = CHANGELOG_PREFIX + run.plan.view.name

    def take(rows: DataFrame, batch_id: int) -> None:
        emit(run.step(batch_id, delta_engine.split(run, rows.toArrow()), positions(batch_id)), writer, topic)

    return take


def tagged(run: DeltaRun, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Return all inputs' changes as one frame, because one query has one sink.

    Each input has a struct column ``i_<input>``, null in other inputs' rows. An input's frame has its
    columns, key, ``_deleted`` and ``_order``; it may be a stream.
    """
    union: DataFrame | None = None
    for name, frame in inputs.items():
        ready = run.with_derived(name, frame)
        one = ready.select(
            F.struct(*(F.col(f"`{each}`") for each in ready.columns)).alias(f"i_{name.lower()}")
        )
        union = one if union is None else union.unionByName(one, allowMissingColumns=True)
    if union is None:
        raise ConfigError(f'view "{run.plan.view.name}" has no inputs')
    return loose(union)


@pytest.mark.parametrize("name", SHAPES)
def test_what_was_emitted_folds_to_what_the_sql_says(
    name: str, spark_session: SparkSession, tmp_path: Path
) -> None:
    key, sql = SHAPES[name]
    seed = os.environ.get("HUB_DELTA_SEED", "")
    made = of_plan(prepare(spark_session, sql, TABLES, key, whole_rows=1000 if name in WHOLE else 0))
    if name not in WHOLE:
        assert all(stage.handle for stage in made.stages), made.explain()
    state = DeltaState(tmp_path)
    run = DeltaRun(spark_session, made, state, 1)
    world = World(random.Random(name + seed))
    view: dict[str, Any] = {}
    used = {table.name for table in made.tables}
    last = 0
    for batch_id, most in enumerate([12, 1, 3, 2] * int(os.environ.get("HUB_DELTA_ROUNDS", "1"))):
        changes = world.batch(most)
        given = {
            table.name: arrow(spark_session, run, table, changes[table.name])
            for table in TABLES
            if table.name in changes and table.name in used
        }
        emitted = run.step(batch_id, given)
        assert emitted.version > last and emitted.version >> 40 == 1
        last = emitted.version
        fold(view, emitted)
        if batch_id % 2:
            expected = recomputed(spark_session, world, exact(sql))
            assert ordered(list(view.values())) == ordered(expected), (
                f"after batch {batch_id}: {made.explain()}"
            )
    state.close()


def test_random_views_fold_to_what_their_sql_says(spark_session: SparkSession, tmp_path: Path) -> None:
    """A few of those that ``./run bench differential --views 200`` makes."""
    found = FoundViews()
    for number in range(6):
        run_view(spark_session, f"1:{number}", tmp_path / str(number), found)
    assert not found.different, "\n".join(found.different)
    assert found.equal == found.asked == 6


JOINED = "SELECT o.order_id, o.product, c.name FROM orders o JOIN customers c ON o.customer_id = c.id"


def order(order_id: int, customer: int | None, at: int = 0, *, gone: bool = False) -> dict[str, Any]:
    blank = dict.fromkeys(ORDERS.columns)
    return {
        **blank,
        "order_id": order_id,
        "customer_id": customer,
        "product": "x",
        "_deleted": gone,
        "_order": at,
    }


def customer(number: int, name: str | None, *, gone: bool = False) -> dict[str, Any]:
    return {"id": number, "name": name, "region": None, "boss": None, "_deleted": gone, "_order": 0}


def changes(session: SparkSession, run: DeltaRun, **rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Table]:
    return {
        table.name: arrow(session, run, table, rows[table.name]) for table in TABLES if table.name in rows
    }


def shown(emitted: Emitted) -> tuple[dict[str, Any], list[str]]:
    rows = {row["_record_key"]: row["name"] for row in emitted.upserts.to_pylist()}
    return rows, emitted.deletes.column("_record_key").to_pylist()


def test_a_batch_asked_for_again_gives_the_same_rows_and_versions(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    made = prepare(spark_session, JOINED, TABLES, ["order_id"])
    schema = row_schema(spark_session, made)

    def opened() -> DeltaRun:
        return DeltaRun(spark_session, made, DeltaState(tmp_path, "plan"), 3, schema=schema, schema_id=7)

    run = opened()
    first = changes(
        spark_session, run, orders=[order(1, 1), order(2, 1), order(3, 2)], customers=[customer(1, "Ann")]
    )
    assert shown(run.step(0, first)) == ({"1": "Ann", "2": "Ann"}, [])
    second = changes(
        spark_session,
        run,
        orders=[order(1, 2, 1), order(2, None, 2, gone=True)],
        customers=[customer(2, "Bob")],
    )
    emitted = run.step(1, second, "orders:0:5")
    assert shown(emitted) == ({"1": "Bob", "3": "Bob"}, ["2"]) and not emitted.replayed
    records = list(emitted.records("views.view"))
    run.state.close()  # the process dies: was anything of it written?

    again = opened()
    assert again.state.committed() == (1, (3 << 40) + 2, "orders:0:5")
    replayed = again.step(1, {})
    assert replayed.replayed and list(replayed.records("views.view")) == records
    assert [record.key for record in records] == [b"1", b"3", b"2"]
    assert {record.header("hub.version") for record in map(as_read, records)} == {str((3 << 40) + 2).encode()}
    assert records[2].value is None
    assert records[0].value is not None and records[0].value[:5] == b"\x00\x00\x00\x00\x07"
    row = fastavro.schemaless_reader(io.BytesIO(records[0].value[5:]), schema, None)
    assert row == {"order_id": 1, "product": "x", "name": "Bob", "_version": (3 << 40) + 2}
    with pytest.raises(HubFault, match="batch 3 is asked for, and its state is at batch 1"):
        again.step(3, {})
    nothing = again.step(2, changes(spark_session, again, customers=[customer(2, "Bob")]))
    assert shown(nothing) == ({}, []), "written again as it was"
    assert not list(nothing.records("views.view"))
    again.state.close()
    with pytest.raises(HubFault, match="another plan"):
        DeltaState(tmp_path, "other plan")


def as_read(new: NewRecord) -> Record:
    return Record(new.topic, 0, 0, 0, new.key, new.value, new.headers)


def test_numbers_beyond_their_type_are_null_in_every_part(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Groups are found by the stored value of the grouped expression, which does not wrap either."""
    sum_ = "coalesce(customer_id + 2147483645, -1)"
    sql = (
        f"SELECT {sum_} AS k, count(*) AS n, max(order_id * 2000000000) AS most FROM orders"
        f" GROUP BY {sum_} HAVING count(*) > 0"
    )
    made = of_plan(prepare(spark_session, sql, TABLES, ["k"]))
    assert made.derived["orders"] and made.view.handle
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    view: dict[str, Any] = {}
    placed = [order(number, customer, number) for number, customer in ((1, 2), (3, 3), (4, 9), (0, 9))]
    fold(view, run.step(0, changes(spark_session, run, orders=placed)))
    found = {row["k"]: (row["n"], row["most"]) for row in view.values()}
    assert found == {2_147_483_647: (1, 2_000_000_000), -1: (3, 0)}
    fold(
        view, run.step(1, changes(spark_session, run, orders=[order(4, 2, 9)]))
    )  # from one group to the other
    found = {row["k"]: (row["n"], row["most"]) for row in view.values()}
    assert found == {2_147_483_647: (2, 2_000_000_000), -1: (2, 0)}


def test_a_batch_that_fails_leaves_nothing_behind(spark_session: SparkSession, tmp_path: Path) -> None:
    made = prepare(spark_session, JOINED, TABLES, ["order_id"])
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    run.step(0, changes(spark_session, run, orders=[order(1, 1)], customers=[customer(1, "Ann")]))
    given = changes(spark_session, run, customers=[customer(1, "Bob")])
    compare = run.merge_fresh

    def dies(*_: Any) -> int:
        compare(*_)
        raise KeyboardInterrupt

    run.merge_fresh = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run.step(1, given)
    assert run.state.committed()[0] == 0
    run.merge_fresh = compare  # type: ignore[method-assign]
    assert shown(run.step(1, given)) == ({"1": "Bob"}, [])
    run.state.close()


def test_a_key_that_is_not_unique_is_said(spark_session: SparkSession, tmp_path: Path) -> None:
    made = prepare(spark_session, JOINED, TABLES, ["product"])
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    run.step(0, changes(spark_session, run, orders=[order(1, 1)], customers=[customer(1, "Ann")]))
    with pytest.raises(CallerError, match=r"the key \(product\) = \(x\)"):
        run.step(1, changes(spark_session, run, orders=[order(2, 1)]))
    assert shown(run.step(1, changes(spark_session, run, orders=[order(1, 2)]))) == ({}, ["x"])
    run.state.close()


def test_a_key_may_move_to_another_group(spark_session: SparkSession, tmp_path: Path) -> None:
    """A row's key continues in a group of another handle: one upsert, no delete."""
    sql = (
        "SELECT order_id, product AS name, rank() OVER (PARTITION BY product ORDER BY "
        "order_id) AS r FROM orders"
    )
    made = prepare(spark_session, sql, TABLES, ["order_id"])
    assert made.view.handle == ("name",)
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    run.step(0, changes(spark_session, run, orders=[order(1, 1), order(2, 1), order(3, 1)]))
    moved = run.step(1, changes(spark_session, run, orders=[{**order(1, 1), "product": "y"}]))
    assert shown(moved) == ({"1": "y", "2": "x", "3": "x"}, [])
    run.state.close()


def test_rows_of_a_window_come_and_go_with_its_events(spark_session: SparkSession, tmp_path: Path) -> None:
    """Bind by a window's end, by the remainder of a division, and as in Nexmark's highest bid: exactly
    these rows and deletes."""
    made = {
        "window": prepare(spark_session, SHAPES["having by window"][1], TABLES, ["ended"]),
        "part": prepare(spark_session, SHAPES["having by the floor of a division"][1], TABLES, ["part"]),
        "highest": prepare(spark_session, SHAPES["the highest of each window"][1], TABLES, ["order_id"]),
    }
    runs = {
        name: DeltaRun(spark_session, each, DeltaState(tmp_path / name), 1) for name, each in made.items()
    }
    assert [stage.handle for stage in made["highest"].stages] == [("ended",), ("order_id",)]

    def at(hour: int, order_id: int, amount: int, *, gone: bool = False) -> dict[str, Any]:
        placed = datetime(2026, 1, 1, hour, tzinfo=UTC)
        changed = order(order_id, 1, order_id, gone=gone)
        return changed if gone else {**changed, "at": placed, "amount": float(amount)}

    def stepped(batch_id: int, *orders: dict[str, Any]) -> dict[str, tuple[dict[str, list[Any]], list[str]]]:
        found = {}
        for name, run in runs.items():
            emitted = run.step(batch_id, changes(spark_session, run, orders=orders))
            upserts = {row.pop("_record_key"): list(row.values())[1:] for row in emitted.upserts.to_pylist()}
            found[name] = upserts, emitted.deletes.column("_record_key").to_pylist()
        return found

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    night = noon + timedelta(hours=12)
    six, twelve, eighteen = (f"2026-01-01T{hour}:00:00.000Z" for hour in ("06", "12", "18"))
    # Hours in fives since 1970: those from 4 to 8 are one part.
    part = str(int(datetime(2026, 1, 1, 4, tzinfo=UTC).timestamp()) // 18_000)

    said = stepped(0, at(1, 1, 10), at(4, 2, 30), at(7, 3, 20), at(13, 4, 50))
    assert said["window"] == ({six: [2, Decimal(40)]}, [])
    assert said["part"] == ({part: [2]}, [])
    assert said["highest"] == ({"2": [Decimal(30), noon], "4": [Decimal(50), night]}, [])
    # A second order in the next window, higher than any before it.
    said = stepped(1, at(8, 5, 40))
    assert said["window"] == ({twelve: [2, Decimal(60)]}, [])
    assert said["part"] == ({part: [3]}, [])
    assert said["highest"] == ({"5": [Decimal(40), noon]}, ["2"])
    # It goes again: a window with one order is none, and the highest before it is the highest.
    said = stepped(2, at(8, 5, 0, gone=True), at(1, 1, 0, gone=True))
    assert said["window"] == ({}, [six, twelve])
    assert said["part"] == ({part: [2]}, [])
    assert said["highest"] == ({"2": [Decimal(30), noon]}, ["5"])
    # An order moves into another window: no row of the one, another highest in both.
    said = stepped(3, at(14, 2, 60))
    assert said["window"] == ({eighteen: [2, Decimal(110)]}, [])
    assert said["part"] == ({}, [part])
    assert said["highest"] == ({"2": [Decimal(60), night], "3": [Decimal(20), noon]}, ["4"])
    for run in runs.values():
        run.state.close()


def test_an_event_touches_all_of_its_windows_and_no_other(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Windows that overlap: exactly these rows and deletes,
    and of many events those of the windows alone are read."""
    made = prepare(spark_session, SHAPES["having by windows that overlap"][1], TABLES, ["began"])
    assert made.view.handle == ("began",)
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)

    def at(day: int, hour: int, order_id: int, *, gone: bool = False) -> dict[str, Any]:
        changed = order(order_id, 1, order_id, gone=gone)
        return changed if gone else {**changed, "at": datetime(2026, 1, day, hour, tzinfo=UTC)}

    def stepped(batch_id: int, *orders: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
        emitted = run.step(batch_id, changes(spark_session, run, orders=orders))
        rows = {row["_record_key"][5:13]: row["n"] for row in emitted.upserts.to_pylist()}
        return rows, [key[5:13] for key in emitted.deletes.column("_record_key").to_pylist()]

    pairs = [at(day, hour, 100 + day * 2 + part) for day in range(2, 30) for part, hour in enumerate((1, 2))]
    stepped(0, at(1, 7, 1), *pairs)
    # Windows begin every six hours and take twelve: at eight those since 0 and 6 have it.
    assert stepped(1, at(1, 8, 2)) == ({"01-01T00": 2, "01-01T06": 2}, [])
    assert (run.timing.affected, run.timing.fetched) == (2, 2)
    assert stepped(2, at(1, 13, 3)) == ({"01-01T06": 3}, [])
    # It moves to where two others are; one of its windows then has it instead.
    assert stepped(3, at(2, 3, 3)) == ({"01-01T06": 2, "01-01T18": 3, "01-02T00": 3}, [])
    assert stepped(4, at(1, 8, 2, gone=True)) == ({}, ["01-01T00", "01-01T06"])
    # One without a time is in no window; one whose windows no calendar has stops nothing.
    earliest = {**order(5, 1), "at": datetime(1, 1, 1, tzinfo=UTC)}
    assert stepped(5, order(4, 1), earliest) == ({}, [])
    run.state.close()


def test_a_stream_s_events_are_appended_and_replaced_where_they_come_again(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    sql = "SELECT page, count(*) AS n, count(DISTINCT customer_id) AS people FROM clicks GROUP BY page"
    made = prepare(spark_session, sql, TABLES, ["page"])

    def click(offset: int, page: str, partition: int = 0, order: int = 0) -> dict[str, Any]:
        place = {"_topic": "clicks", "_partition": partition, "_offset": offset}
        return {"customer_id": 1, "page": page, **place, "_deleted": False, "_order": order or offset}

    def stepped(run: DeltaRun, batch_id: int, *clicks: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
        emitted = run.step(batch_id, changes(spark_session, run, clicks=clicks))
        rows = {row["page"]: row["n"] for row in emitted.upserts.to_pylist()}
        return rows, emitted.deletes.column("_record_key").to_pylist()

    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    assert stepped(run, 0, click(7, "home"), click(8, "shop")) == ({"home": 1, "shop": 1}, [])
    # Each partition has offsets of its own.
    assert stepped(run, 1, click(9, "home"), click(3, "help", 1)) == ({"home": 2, "help": 1}, [])
    run.state.close()
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)  # it knows how far they reach from the table
    # The topic was made again, and events have the places of others; of two at one place the later counts.
    assert stepped(run, 2, click(8, "home"), click(10, "home")) == ({"home": 4}, ["shop"])
    assert stepped(run, 3, click(11, "help", 0, 1), click(11, "shop", 0, 2)) == ({"shop": 1}, [])
    assert run.state.rows("t_clicks") == 6
    run.state.close()


def test_a_part_that_is_computed_whole_stays_within_its_size(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    made = prepare(
        spark_session, "SELECT 1 AS name, count(*) AS n FROM orders", TABLES, ["name"], whole_rows=2
    )
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    run.step(0, changes(spark_session, run, orders=[order(1, 1), order(2, 1)]))
    with pytest.raises(CallerError, match="3 rows of orders are computed whole"):
        run.step(1, changes(spark_session, run, orders=[order(3, 1)]))
    run.state.close()


def test_only_what_was_touched_is_read(spark_session: SparkSession, tmp_path: Path) -> None:
    made = prepare(spark_session, JOINED, TABLES, ["order_id"])
    run = DeltaRun(spark_session, made, DeltaState(tmp_path), 1)
    many = [order(number, number % 50) for number in range(1000)]
    run.step(0, changes(spark_session, run, orders=many, customers=[customer(n, "Ann") for n in range(50)]))
    emitted = run.step(1, changes(spark_session, run, customers=[customer(7, "Bob")]))
    assert emitted.upserts.num_rows == 20 and run.timing.affected == 20 and run.timing.fetched == 21
    run.state.close()


class Dying:
    """A writer that fails at one of its calls, before or after the log took the records."""

    def __init__(self, writer: MemoryWriter, at: int, *, after: bool) -> None:
        self.writer, self.left, self.after = writer, at, after

    def append(self, records: Sequence[NewRecord]) -> Positions:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise PeerError("the log is away")
        done = self.writer.append(records)
        if self.left == 0:
            raise PeerError("the log is away")
        return done

    def close(self) -> None: ...


@pytest.mark.parametrize("after", [False, True], ids=["before the log has it", "after"])
def test_a_stream_that_dies_and_starts_again_writes_every_row_once(
    spark_session: SparkSession, tmp_path: Path, after: bool
) -> None:
    """Spark's own checkpoint and replay: foreachBatch over two streams, killed in its second batch."""
    made = prepare(spark_session, JOINED, TABLES, ["order_id"])
    schema = row_schema(spark_session, made)
    cluster = MemoryCluster()
    cluster.create_topic("views.view", partitions=1, config={}, replication_factor=1)

    def run_until_done(writer: Any) -> None:
        state = DeltaState(tmp_path / "checkpoint" / "delta")
        run = DeltaRun(spark_session, made, state, 1, schema=schema, schema_id=1)
        streams = {
            table.name: spark_session.readStream.schema(schema_of(spark_session, table.name, True))
            .option("maxFilesPerTrigger", 1)
            .json(str(tmp_path / table.name))
            # Never null, as in a topic's events; the other stream has no matching row.
            .withColumn("_deleted", F.coalesce("_deleted", F.lit(False)))
            for table in made.tables
        }
        query = (
            tagged(run, streams)
            .writeStream.foreachBatch(foreach_batch(run, writer))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
            state.close()

    for number in range(3):
        rows = {
            "orders": [
                order(number, number),
                order(9, number, number),
                order(8, 0, number, gone=number == 2),
            ],
            "customers": [customer(number, f"name {number}")],
        }
        for name, given in rows.items():
            (tmp_path / name).mkdir(exist_ok=True)
            lines = [orjson.dumps({**row, "_order": number}).decode() for row in given]
            (tmp_path / name / f"{number}.json").write_text("\n".join(lines))
            os.utime(tmp_path / name / f"{number}.json", (1e9 + number, 1e9 + number))  # read in this order
    with pytest.raises(StreamingQueryException):
        run_until_done(Dying(cluster.writer(), 2, after=after))
    run_until_done(cluster.writer())

    latest: dict[str, tuple[int, bytes | None]] = {}
    written: dict[tuple[str, int], bytes | None] = {}
    for record in cluster.logs["views.view"][0]:
        version = int(record.header("hub.version") or b"0")
        key = (record.key or b"").decode()
        assert written.setdefault((key, version), record.value) == record.value, "two rows of one version"
        assert version >= latest.get(key, (0, None))[0]
        latest[key] = (version, record.value)
    names = {
        key: fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)["name"]
        for key, (_, value) in latest.items()
        if value is not None
    }
    assert names == {"0": "name 0", "1": "name 1", "2": "name 2", "9": "name 2"}
    assert latest["8"][1] is None
