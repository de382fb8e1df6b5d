"""Views with ``consistent_with: transaction`` over records as Debezium writes them, in a hostile order.

Each transaction keeps two sums: an order's total is that of its lines, and all totals together are 100 for
each order. Records of the partitions are written in any order that a connector can cause: rows before their
BEGIN, one partition far ahead of another, the END last. Whatever a reader sees must keep both sums, while the
materializer and the applier are killed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import orjson
import pytest
from pipeline import Pipeline, wait_until

from hub.materializers.source_transactions.cuts import NOTE
from hub.record import NewRecord, Positions, TopicPartition

# Each move of an amount changes the squares.
SUMS = "SELECT count(*) AS n, sum(total) AS t, sum(paid) AS p, sum(total * total) AS squares FROM {view}"
BOUNDARIES = "till.transaction"
ORDERS, LINES = "till.public.orders", "till.public.lines"
PARTITIONS = 3
# At most so many, however long the test takes: a list has all of them.
_ORDERS = 200
CDC = {"cdc": "debezium", "format": "json"}
ORDER_COLUMNS = {"id": "bigint", "total": "bigint"}
LINE_COLUMNS = {"id": "bigint", "order_id": "bigint", "amount": "bigint"}
VIEWS: dict[str, dict[str, Any]] = {
    "till_orders": {
        "sources": {
            "o": {"topic": ORDERS, **CDC, "schema": ORDER_COLUMNS, "key": "id"},
            "l": {"topic": LINES, **CDC, "schema": LINE_COLUMNS, "key": "order_id", "unique_by": "id"},
        },
        "fields": {"total": "o.total", "paid": "sum(l.amount)"},
    },
    "till_sums": {  # by the incremental engine
        "sources": {
            "o": {"topic": ORDERS, **CDC, "schema": ORDER_COLUMNS, "table": {"key": "id"}},
            "l": {"topic": LINES, **CDC, "schema": LINE_COLUMNS, "table": {"key": "id"}},
        },
        "sql": "SELECT o.id, o.total, sum(l.amount) AS paid FROM o JOIN l ON l.order_id = o.id "
        "GROUP BY o.id, o.total",
        "key": "id",
    },
}


class Till:
    """A database of orders and lines, and its connector."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.chance = random.Random(11)
        self.orders: dict[int, dict[int, int]] = {}  # amounts of lines, by order
        self.transactions = self.lines = 0
        self.logs: dict[TopicPartition, list[NewRecord]] = {}
        pipeline.cluster.create_topic(BOUNDARIES, partitions=1, config={}, replication_factor=1)
        for topic in (ORDERS, LINES):
            pipeline.cluster.create_topic(topic, partitions=PARTITIONS, config={}, replication_factor=1)

    def declare(self, **more: Any) -> None:
        for name, body in VIEWS.items():
            (self.pipeline.views / f"{name}.yaml").write_text(json.dumps({"view": name, **body, **more}))

    # ---- the database

    def place(self) -> None:
        """Place an order with lines, in one transaction; or move an amount from one order to another."""
        with self.transaction() as changes:
            is_new = len(self.orders) < _ORDERS and self.chance.random() < 0.3
            if is_new or len(self.orders) < 20:
                id, count = len(self.orders), self.chance.randint(1, 5)
                amounts = [100 // count + (100 % count if n == 0 else 0) for n in range(count)]
                self.orders[id] = {self.lines + n: amount for n, amount in enumerate(amounts)}
                self.lines += count
                changes.append((ORDERS, "c", None, {"id": id, "total": 100}))
                changes += [
                    (LINES, "c", None, {"id": line, "order_id": id, "amount": amount})
                    for line, amount in self.orders[id].items()
                ]
                return
            moved = self.chance.randint(1, 50)
            for id, by in zip(self.chance.sample(sorted(self.orders), 2), (moved, -moved), strict=True):
                lines = self.orders[id]
                line, total = self.chance.choice(sorted(lines)), sum(lines.values())
                before = {"id": line, "order_id": id, "amount": lines[line]}
                lines[line] += by
                changes.append((LINES, "u", before, {**before, "amount": lines[line]}))
                changes.append(
                    (ORDERS, "u", {"id": id, "total": total}, {"id": id, "total": sum(lines.values())})
                )

    @contextmanager
    def transaction(self) -> Iterator[list[tuple[str, str, Any, Any]]]:
        """Put the records of a transaction behind the earlier ones of their partitions."""
        changes: list[tuple[str, str, Any, Any]] = []
        yield changes
        self.transactions += 1
        id = str(self.transactions)
        self.note(boundary(id, None))
        counts: dict[str, int] = {}
        for order, (topic, op, before, after) in enumerate(changes, 1):
            table = topic.partition(".")[2]
            counts[table] = counts.get(table, 0) + 1
            body = {
                "op": op,
                "before": before,
                "after": after,
                "ts_ms": 1,
                "source": {"schema": "public", "table": topic.rpartition(".")[2], "lsn": self.transactions},
                "transaction": {"id": f"{id}:{order}", "total_order": order, "data_collection_order": 1},
            }
            key = orjson.dumps({"id": after["id"]})
            self.note(NewRecord(topic, key, orjson.dumps(body), partition=after["id"] % PARTITIONS))
        self.note(boundary(id, counts))

    def note(self, record: NewRecord) -> None:
        place = TopicPartition(record.topic, record.partition or 0)
        self.logs.setdefault(place, []).append(record)

    # ---- the connector

    def write(self, transactions: int, pause_s: float = 0.0) -> None:
        """Make transactions, and write their records: the partitions in any order, each in its own."""
        for _ in range(transactions):
            self.place()
        while logs := [log for log in self.logs.values() if log]:
            log = self.chance.choice(logs)
            count = self.chance.randint(1, len(log))
            self.pipeline.writer.append(log[:count])
            del log[:count]
            if pause_s:
                time.sleep(self.chance.uniform(0.0, pause_s))

    @contextmanager
    def trading(self) -> Iterator[None]:
        """Transactions all the while."""
        stop = threading.Event()
        failed: list[Exception] = []

        def trade() -> None:
            try:
                while not stop.is_set():
                    self.write(self.chance.randint(1, 6), 0.04)
            except Exception as error:  # noqa: BLE001 - shown by the test
                failed.append(error)

        thread = threading.Thread(target=trade, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(180.0)
            assert not thread.is_alive() and not failed, failed


def boundary(id: str, counts: dict[str, int] | None) -> NewRecord:
    body: dict[str, Any] = {"status": "BEGIN" if counts is None else "END", "id": f"{id}:0", "ts_ms": 1}
    if counts is not None:
        listed = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
        body |= {"event_count": sum(counts.values()), "data_collections": listed}
    return NewRecord(BOUNDARIES, None, orjson.dumps(body), partition=0)


def sums(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("total", "paid")}


def whole(rows: dict[str, dict[str, Any]]) -> bool:
    """Return whether rows keep both sums."""
    return all(row["total"] == row["paid"] for row in rows.values()) and sum(
        row["total"] for row in rows.values()
    ) == 100 * len(rows)


class Watch:
    """Readers by list, by SQL and by subscription. ``states``: different states that each of them saw."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.broken: list[str] = []
        self.states: dict[str, set[str]] = {}
        self.stop = threading.Event()
        self.threads = [
            threading.Thread(target=follow, args=(view,), daemon=True)
            for view in VIEWS
            for follow in (self.lists, self.queries, self.subscribes)
        ]

    def saw(self, reader: str, rows: dict[str, dict[str, Any]]) -> None:
        state = json.dumps(rows, sort_keys=True)
        self.states.setdefault(reader, set()).add(str(hash(state)))
        if not whole(rows):
            self.broken.append(f"{reader}: {state[:2_000]}")

    def lists(self, view: str) -> None:
        while not self.stop.wait(0.1):
            answer = self.get(f"/views/{view}", limit=1000)
            if answer is not None and "rows" in answer:
                self.saw(f"list {view}", {each.pop("key"): sums(each) for each in answer["rows"]})

    def queries(self, view: str) -> None:
        while not self.stop.wait(0.1):
            try:
                answer = httpx2.post(
                    f"{self.pipeline.url}/query",
                    json={"sql": SUMS.format(view=view)},
                    timeout=60.0,
                )
            except httpx2.HTTPError:
                continue
            if answer.is_success:
                (row,) = answer.json()["rows"]
                row = {name: row[name] or 0 for name in ("n", "t", "p", "squares")}
                self.states.setdefault(f"sql {view}", set()).add(str(row))
                if not row["t"] == row["p"] == 100 * row["n"]:
                    self.broken.append(f"sql {view}: {row}")

    def subscribes(self, view: str) -> None:
        """Fold the changes, and look whenever all rows up to a position were sent."""
        while not self.stop.wait(0.1):
            rows: dict[str, dict[str, Any]] = {}
            address = f"{self.pipeline.url}/views/{view}/changes?covered=true"
            try:
                with httpx2.stream("GET", address, timeout=60.0) as answer:
                    name = ""
                    for line in answer.iter_lines():
                        if self.stop.is_set():
                            return
                        if line.startswith("event:"):
                            name = line.partition(":")[2].strip()
                        elif line.startswith("data:"):
                            self.take(view, name, json.loads(line.partition(":")[2]), rows)
            except httpx2.HTTPError:
                continue

    def take(self, view: str, name: str, body: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
        if name in ("snapshot", "upsert"):
            rows[body["key"]] = sums(body.get("row") or body)
        elif name == "delete":
            rows.pop(body["key"], None)
        elif name == "covered":
            self.saw(f"subscription {view}", dict(rows))

    def get(self, path: str, **parameters: Any) -> dict[str, Any] | None:
        try:
            answer = httpx2.get(f"{self.pipeline.url}{path}", params=parameters, timeout=60.0)
        except httpx2.HTTPError:
            return None
        return dict(answer.json()) if answer.is_success else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        for each in self.threads:
            each.start()
        try:
            yield
        finally:
            self.stop.set()
            for each in self.threads:
                each.join(90.0)

    def until(self, more: int, timeout_s: float = 300.0) -> None:
        """Wait until each reader has seen that many more states."""
        readers = [f"{how} {view}" for view in VIEWS for how in ("list", "sql", "subscription")]
        before = {each: len(self.states.get(each, ())) for each in readers}

        def seen() -> bool:
            assert not self.broken, self.broken[0]
            return all(len(self.states.get(each, ())) >= before[each] + more for each in readers)

        wait_until(seen, timeout_s, lambda: f"{self.counts()} {[self.pipeline.state(v) for v in VIEWS]}")

    def counts(self) -> dict[str, int]:
        return {reader: len(states) for reader, states in self.states.items()}


@pytest.mark.timeout(1200)
def test_no_reader_sees_a_part_of_a_source_transaction(pipeline: Pipeline) -> None:
    till = Till(pipeline)
    till.write(30)
    till.declare(consistent_with="transaction")
    watch = Watch(pipeline)
    with watch.watching():
        with till.trading():
            watch.until(4, 600.0)
            pipeline.kill("materialize", "too")
            pipeline.start("materialize")
            watch.until(3)
            for command in ("apply-changelogs", "materialize"):
                pipeline.kill(command)
                pipeline.start(command)
            watch.until(3)
        wait_until(lambda: complete(pipeline, till), 120.0, lambda: str(watch.counts()))
        assert not watch.broken, watch.broken[0]
        a_missing_end_is_shown_and_waited_for(pipeline, till)
    assert not watch.broken, watch.broken[0]
    notes = list(pipeline.settings.checkpoints.glob(f"till_*/**/{NOTE}"))
    assert len(notes) == len(VIEWS)
    assert Positions.parse(json.loads(notes[0].read_text())["cut"]).get(TopicPartition(BOUNDARIES, 0)) > 0


def complete(pipeline: Pipeline, till: Till) -> bool:
    """Return whether both views have what the database has."""
    wanted = {str(id): sum(lines.values()) for id, lines in till.orders.items()}
    return all({key: row["paid"] for key, row in pipeline.rows(view).items()} == wanted for view in VIEWS)


def a_missing_end_is_shown_and_waited_for(pipeline: Pipeline, till: Till) -> None:
    """Rows of a transaction without END do not appear, and the view's state says what it waits for."""
    till.place()
    (*_, end) = till.logs[TopicPartition(BOUNDARIES, 0)]
    till.logs[TopicPartition(BOUNDARIES, 0)].pop()
    till.write(0)

    def shown() -> bool:
        group = pipeline.state("till_orders").get("cut") or {}
        return group.get("engine") == "waiting" and "has no END; it began at" in group["engine_why"]

    wait_until(shown, 60.0, lambda: str(pipeline.state("till_orders")))
    assert not complete(pipeline, till)
    pipeline.writer.append([end])
    wait_until(lambda: complete(pipeline, till), 60.0, lambda: str(pipeline.state("till_orders")))
    wait_until(lambda: pipeline.state("till_orders")["cut"]["engine"] == "together", 60.0)


def test_a_transaction_topic_that_does_not_exist_is_an_error_of_the_view(pipeline: Pipeline) -> None:
    pipeline.cluster.create_topic("lost.public.orders", partitions=1, config={}, replication_factor=1)
    source = {"topic": "lost.public.orders", **CDC, "schema": ORDER_COLUMNS, "key": "id"}
    body = {"view": "lost_orders", "sources": {"o": source}, "fields": {"total": "o.total"}}
    path = pipeline.views / "lost_orders.yaml"
    path.write_text(json.dumps({**body, "consistent_with": "transaction"}))

    def reason() -> str:
        return str(pipeline.state("lost_orders").get("reason"))

    wait_until(lambda: 'transaction topic "lost.transaction" does not exist' in reason(), 60.0, reason)
    pipeline.cluster.create_topic("lost.transaction", partitions=2, config={}, replication_factor=1)
    wait_until(lambda: "has 2 partitions" in reason(), 60.0, reason)
