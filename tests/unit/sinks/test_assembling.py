"""Source transactions as domain events, without Kafka: boundaries and changes, which transactions close, and
positions after which nothing is lost or doubled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.materializers.source_transactions.changes import (
    NO_TRANSACTION,
    NotOfDebezium,
    RowChange,
    SnapshotRow,
    boundary_of,
    change_of,
)
from hub.materializers.source_transactions.transactions import Closed, Limits, Stray, Transactions
from hub.record import Positions, Record, TopicPartition
from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.sinks.assembling.domain_event import Unassembled, event_schema, events_of, net_changes
from hub.sinks.assembling.entry import Assemble
from hub.sinks.sinks_file import SinkEntry, find_circle, load_sinks

SOURCE = TopicPartition("shop.transaction", 0)
TABLES = {"shop.public.orders": "public.orders", "shop.public.lines": "public.lines"}
PLACES = [TopicPartition(topic, partition) for topic in TABLES for partition in range(2)]
WAIT_S = 30.0
ASSEMBLE: dict[str, Any] = {
    "root": {
        "topic": "shop.public.orders",
        "key": "id",
        "schema": {"id": "bigint", "placed_at": "timestamp", "total": "decimal(12,2)", "note": "string"},
    },
    "parts": {
        "lines": {
            "topic": "shop.public.lines",
            "on": {"order_id": "id"},
            "schema": {"order_id": "bigint", "sku": "string", "due": "date"},
        }
    },
}


def boundary(offset: int, id: str, counts: Mapping[str, int] | None = None) -> Record:
    body: dict[str, Any] = {"status": "BEGIN" if counts is None else "END", "id": id, "ts_ms": 1_700}
    if counts is not None:
        listed = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
        body |= {"event_count": sum(counts.values()), "data_collections": listed}
    return Record(*SOURCE, offset, 1_700, None, orjson.dumps(body))


def change(place: TopicPartition, offset: int, id: str, order: int, **envelope: Any) -> Record:
    schema, table = TABLES[place.topic].split(".")
    body = {
        "op": "c",
        "before": None,
        "after": {"id": order},
        "source": {"schema": schema, "table": table, "db": "crm"},
        "transaction": {"id": id, "total_order": order, "data_collection_order": 1},
        **envelope,
    }
    key = orjson.dumps({"id": (body["after"] or body["before"] or {}).get("id")})
    return Record(*place, offset, 1_700, key, orjson.dumps(body))


def row(topic: str, order: int, op: str = "c", key: bytes = b"1", **columns: Any) -> RowChange:
    record = Record(topic, 0, order, 0, key, b"")
    return RowChange(record, TABLES[topic], "7", order, op, columns, {})


# ---- records of Debezium


def test_boundaries_and_changes_are_read_with_and_without_connects_schema() -> None:
    end = boundary(4, "571:90", {"public.orders": 1, "public.lines": 2})
    for value in (orjson.loads(end.value or b""), {"schema": {}, "payload": orjson.loads(end.value or b"")}):
        read = boundary_of(end, value)
        assert (read.id, read.name, read.at_ms) == ("571", "571:90", 1_700)
        assert read.counts == {"public.orders": 1, "public.lines": 2}
    record = change(PLACES[0], 3, "571:88", 2, op="d", before={"id": 5}, after=None)
    read_row = change_of(record, orjson.loads(record.value or b""))
    assert isinstance(read_row, RowChange)
    assert (read_row.transaction, read_row.order, read_row.row) == ("571", 2, {"id": 5})


@pytest.mark.parametrize(
    ("envelope", "why"),
    [({"transaction": None}, NO_TRANSACTION), ({"transaction": {}}, "no id"), ({"op": None}, "no op")],
)
def test_a_change_that_belongs_to_no_transaction_has_its_reason(envelope: dict[str, Any], why: str) -> None:
    record = change(PLACES[0], 3, "1:1", 1, **envelope)
    with pytest.raises(NotOfDebezium, match=why.split(":")[0]):
        change_of(record, orjson.loads(record.value or b""))
    snapshot = change(PLACES[0], 3, "1:1", 1, op="r", transaction=None)
    assert isinstance(change_of(snapshot, orjson.loads(snapshot.value or b"")), SnapshotRow)


# ---- which transactions close


class Reading:
    """A reader of partitions in any order, which is killed and continues at the committed positions."""

    def __init__(self, logs: dict[TopicPartition, list[Record]], rows: int = 1_000) -> None:
        self.logs, self.limits = logs, Limits(rows, 10**9, WAIT_S)
        self.committed = Positions(dict.fromkeys([SOURCE, *PLACES], 0))
        self.closed: list[Closed] = []
        self.strays: list[Stray] = []
        self.now_s = 0.0
        self.start()

    def start(self) -> None:
        """Begin again at the committed positions, with nothing else."""
        self.transactions = Transactions(SOURCE, TABLES, PLACES, self.limits)
        self.at = dict(self.committed.offsets)

    def step(self, choose: random.Random, *, commits: bool = True) -> None:
        """Read a page of one partition, and close what can be closed. Without ``commits`` the process dies
        before the commit."""
        self.now_s += choose.choice([0.1, 1.0, 20.0])
        places = sorted(self.transactions.to_read())
        place = choose.choice(places)
        for record in self.logs[place][self.index(place) :][: choose.randint(0, 5)]:
            self.at[place] = record.offset + 1
            take(self.transactions, record, self.now_s)
        settled = frozenset[TopicPartition]()
        if self.transactions.is_overdue(self.now_s):
            settled = frozenset(each for each in self.logs if self.index(each) == len(self.logs[each]))
        closed, strays = self.transactions.close(settled, self.now_s)
        if commits:
            self.closed += closed
            self.strays += strays
            self.committed = self.transactions.positions(Positions(dict(self.at)))
        else:
            self.start()

    def index(self, place: TopicPartition) -> int:
        """Return the index of the next record: offsets have gaps, of markers and of removed records."""
        log = self.logs[place]
        return next((n for n, each in enumerate(log) if each.offset >= self.at[place]), len(log))


def take(transactions: Transactions, record: Record, now_s: float) -> None:
    value = orjson.loads(record.value or b"")
    if record.topic_partition == SOURCE:
        transactions.take_boundary(boundary_of(record, value), now_s)
        return
    try:
        found = change_of(record, value)
    except NotOfDebezium as error:
        transactions.take_stray(record, str(error))
        return
    assert isinstance(found, RowChange)
    transactions.take_row(found, now_s)


class Written:
    """Logs as a connector writes them, and what must become of each transaction."""

    def __init__(self, choose: random.Random) -> None:
        self.logs: dict[TopicPartition, list[Record]] = {each: [] for each in [SOURCE, *PLACES]}
        self.events: list[tuple[str, list[int]]] = []  # in the order of commits
        self.refused: list[str] = []
        self.strays: list[tuple[TopicPartition, int]] = []
        self.uncertain: set[tuple[TopicPartition, int]] = set()
        self._next = dict.fromkeys(self.logs, 0)
        for number in range(choose.randint(1, 12)):
            kind = choose.choice(["whole"] * 5 + ["short", "no begin", "no end", "garbage"])
            self.transaction(str(100 + number), kind, choose)
        self.transaction("999", "whole", choose)

    def offset(self, place: TopicPartition) -> int:
        self._next[place] += 1
        return self._next[place] - 1

    def transaction(self, id: str, kind: str, choose: random.Random) -> None:
        if kind == "garbage":
            place = choose.choice(PLACES)
            at = self.offset(place)
            self.logs[place].append(change(place, at, id, 1, transaction=None))
            self.strays.append((place, at))
            return
        if kind != "no begin":
            self.logs[SOURCE].append(boundary(self.offset(SOURCE), f"{id}:1"))
        counts: Counter[str] = Counter()
        rows = [choose.choice(PLACES) for _ in range(choose.randint(1 if kind == "short" else 0, 6))]
        removed = choose.randrange(len(rows)) if kind == "short" else -1
        places = []
        for order, place in enumerate(rows):
            counts[TABLES[place.topic]] += 1
            at = self.offset(place)
            places.append((place, at))
            if order != removed:
                self.logs[place].append(change(place, at, f"{id}:{order + 2}", order))
        if kind in ("whole", "short"):
            self.logs[SOURCE].append(boundary(self.offset(SOURCE), f"{id}:99", counts))
        else:
            self.offset(SOURCE)
        if kind == "whole":
            self.events.append((f"{id}:99", [*range(len(rows))]))
        elif kind == "no begin":
            self.strays += places
        else:
            self.refused.append(f"{id}:{99 if kind == 'short' else 1}")
        if kind == "no end":
            self.uncertain.update(places)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([6, 8, 1_000]))
def test_each_transaction_is_closed_once_in_order_whatever_is_read_first_and_killed(
    seed: int, rows: int
) -> None:
    choose = random.Random(seed)
    written = Written(choose)
    reading = Reading(written.logs, rows)
    for _ in range(1_500):
        reading.step(choose, commits=choose.random() > 0.1)
        if choose.random() < 0.05:
            reading.start()
    closed = [(each.id, [row.order for row in each.rows]) for each in reading.closed if not each.reason]
    assert closed == written.events
    assert sorted(each.id for each in reading.closed if each.reason) == sorted(written.refused)
    strays = Counter((each.record.topic_partition, each.record.offset) for each in reading.strays)
    certain = Counter(written.strays)
    assert {place for place in strays if place not in written.uncertain} == set(certain)
    assert max(strays.values(), default=1) == 1
    ends = {place: log[-1].offset + 1 for place, log in written.logs.items() if log}
    assert {place: reading.committed.get(place) for place in ends} == ends


def fed(*records: Record, limits: Limits | None = None) -> Transactions:
    transactions = Transactions(SOURCE, TABLES, PLACES, limits or Limits(100, 10**6, WAIT_S))
    for record in records:
        take(transactions, record, 0.0)
    return transactions


def test_a_missing_end_is_waited_for_without_an_end_and_shown_with_its_age() -> None:
    transactions = fed(boundary(0, "1:1"), change(PLACES[0], 4, "1:1", 0))
    everything = frozenset([SOURCE, *PLACES])
    assert transactions.close(everything, 86_400.0) == ([], [])
    waiting = transactions.waiting(86_400.0)
    assert waiting is not None and waiting.since_s == 86_400.0 and waiting.oldest_ms == 1_700
    assert waiting.what == "transaction 1 (shop.transaction 0:0) has no END"
    read = Positions({SOURCE: 1, PLACES[0]: 5, PLACES[1]: 9})
    assert transactions.positions(read) == Positions({SOURCE: 0, PLACES[0]: 4, PLACES[1]: 9})


def test_rows_that_are_not_in_the_log_are_given_up_after_the_wait_only() -> None:
    records = (boundary(0, "1:1"), boundary(1, "1:1", {"public.orders": 2}), change(PLACES[0], 0, "1:1", 0))
    transactions = fed(*records)
    settled = frozenset([SOURCE, *PLACES])
    assert transactions.close(settled, WAIT_S - 1)[0] == []
    assert transactions.close(frozenset({SOURCE}), WAIT_S)[0] == []  # not read to their ends
    (closed,), _ = transactions.close(settled, WAIT_S)
    assert closed.boundary.offset == 1 and "1 of 2 rows of public.orders" in closed.reason


def test_a_transaction_above_the_limit_is_counted_and_not_kept() -> None:
    rows = [change(PLACES[n % 2], n, "1:1", n) for n in range(50)]
    transactions = fed(boundary(0, "1:1"), *rows, limits=Limits(10, 10**6, WAIT_S))
    assert transactions.held_rows == 0
    take(transactions, boundary(1, "1:1", {"public.orders": 50}), 1.0)
    (closed,), _ = transactions.close(frozenset(), 1.0)
    assert "larger than most_rows" in closed.reason and closed.rows == ()


def test_partitions_that_are_ahead_wait_while_much_is_held() -> None:
    limits = Limits(2, 10**6, WAIT_S)
    records = [boundary(0, "1:1")]
    records += [boundary(n, f"{n}:1") for n in range(1, 7)]
    records += [change(PLACES[0], n, f"{n}:1", 0) for n in range(1, 7)]
    transactions = fed(boundary(0, "0:1"), boundary(1, "0:1", {"public.lines": 1}), *records, limits=limits)
    assert transactions.to_read() == frozenset(PLACES) - {PLACES[0]}
    take(transactions, change(PLACES[3], 0, "0:1", 0), 1.0)
    assert transactions.close(frozenset(), 1.0)[0][0].id == "0:1"


# ---- events


def test_rows_of_a_transaction_become_one_event_with_their_parts() -> None:
    changes = [
        row("shop.public.orders", 1, id=7, placed_at="2024-02-29T11:30:00.5Z", total="12.50", note="n"),
        row("shop.public.lines", 2, key=b"1", order_id=7, sku="a", due=19_782),
        row("shop.public.lines", 3, key=b"2", order_id=7, sku="b", due=None),
        row("shop.public.lines", 4, key=b"3", order_id=8, sku="of another order", due=None),
        row("shop.public.lines", 5, "u", key=b"2", order_id=7, sku="c", due=None),
    ]
    assemble = Assemble.model_validate(ASSEMBLE)
    (event,) = events_of(assemble, "7:1", 1_700_000_000_000, changes)
    assert event.key == b"7"
    assert [(each["sku"], each["_op"]) for each in event.value["lines"]] == [
        ("a", "created"),
        ("c", "created"),
    ]
    assert (event.value["_op"], event.value["_transaction"]) == ("created", "7:1")
    schema = event_schema("shop.orders.placed", assemble)
    assert (schema["name"], schema["namespace"]) == ("placed", "shop.orders")
    assert JsonEncoder(schema).body(event.value)


def test_the_effect_of_a_transaction_on_a_row_is_told_from_its_first_and_last_change() -> None:
    topic = "shop.public.orders"

    def effects(*ops: str) -> list[str]:
        return [each.op for each in net_changes(row(topic, n, op, n=n) for n, op in enumerate(ops))]

    assert effects("c", "u") == ["created"] and effects("u", "u") == ["updated"]
    assert effects("c", "d") == [] and effects("u", "d") == ["deleted"] and effects("d", "c") == ["updated"]
    (kept,) = net_changes(
        [row(topic, 0, "c", note="long"), row(topic, 1, "u", note="__debezium_unavailable_value", id=1)]
    )
    assert kept.row == {"note": "long", "id": 1}


def test_only_declared_changes_make_events_and_an_unknown_value_refuses_them() -> None:
    updated = row("shop.public.orders", 1, "u", id=7, note="__debezium_unavailable_value")
    assert events_of(Assemble.model_validate(ASSEMBLE), "7:1", 0, [updated]) == []
    with pytest.raises(Unassembled, match="note of root is a TOAST value"):
        events_of(Assemble.model_validate({**ASSEMBLE, "when": ["updated"]}), "7:1", 0, [updated])


# ---- the file


def entry(**more: Any) -> dict[str, Any]:
    return {"from": "shop.transaction", "assemble": ASSEMBLE, "topic": {"name": "shop.placed"}, **more}


def test_the_sink_reads_the_transaction_topic_and_the_tables() -> None:
    known = SinkEntry.model_validate(entry())
    assert known.topics == ["shop.transaction", "shop.public.orders", "shop.public.lines"]
    back = SinkEntry.model_validate({"from": "shop.placed", "topic": {"name": "shop.public.lines"}})
    assert find_circle({"a": known, "b": back})


def edited(path: str, value: Any) -> dict[str, Any]:
    """Return ASSEMBLE with another value at a path."""
    made: dict[str, Any] = orjson.loads(orjson.dumps(ASSEMBLE))
    *steps, last = path.split(".")
    at = made
    for step in steps:
        at = at[step]
    at[last] = value
    return made


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (entry(where="id > 1"), "without where and fields"),
        (entry(topic=None, files={"to": "x"}), "has the target `topic`"),
        (entry(**{"from": "shop.public.orders"}), "not the topic of a table"),
        (entry(assemble=edited("root.key", "nr")), "lacks the column nr of `key`"),
        (entry(assemble=edited("root.schema.id", "struct<a: int>")), "cannot be a struct"),
        (entry(assemble=edited("root.schema.lines", "int")), "lines is the name of a column"),
        (entry(assemble=edited("parts.lines.on", {"order": "id"})), "lacks the column order of `on`"),
        (entry(assemble=edited("parts.lines.on", {"order_id": "nr"})), "the root lacks the column nr"),
        (entry(assemble=edited("parts.lines.topic", "shop.public.orders")), "two tables have one topic"),
    ],
)
def test_a_wrong_assembly_is_refused_with_its_reason(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    path = tmp_path / "sinks.yaml"
    wrong = {name: value for name, value in wrong.items() if value is not None}
    path.write_text(orjson.dumps({"sinks": {"placed": wrong}}).decode())
    entries, errors = load_sinks(path)
    assert not entries and why in errors["placed"].message
