"""SQL over archive and log: equal to SQL over the log that lost nothing, and gaps that are named."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from lake_world import NOON_MS, LakeWorld
from mask_facts import KnownFacts, caller_of, rules_of

from hub.access.masking.facts import TopicFields
from hub.caller import CALLER
from hub.errors import Conflict, HubError
from hub.lake.archive import LakeArchive
from hub.lake.snapshots import MISSING, TableProgress, progress_of
from hub.materializers.queries.answering.calls import QueryBody, QueryCall
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.running import QueryAnswer, RunningQuery
from hub.materializers.queries.topic_rows import ScannedRange, TopicTables
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord, Positions

TOPIC = "shop.orders"
MINUTE_MS = 60_000


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    named = [
        {"name": name, "type": kind, **({"default": more[0]} if more else {})} for name, kind, *more in fields
    ]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": named}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "at", "type": logical("long", "timestamp-millis")}, {"name": "n", "type": "int"}],
}
FIRST = record(
    ("id", "int"),
    ("name", ["null", "string"], None),
    ("seen", logical("long", "timestamp-millis")),
    ("exact", logical("long", "timestamp-micros")),
    ("born", logical("int", "date")),
    ("clock", logical("int", "time-millis")),
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
    ("raw", "bytes"),
    ("share", "float"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("tags", {"type": "map", "values": "long"}),
    ("parts", {"type": "array", "items": INNER}),
    ("either", ["int", "string"]),
    ("gone", "string"),
    ("amount", "int"),
)
SECOND = record(
    ("id", "long"),
    ("label", ["null", "string"], None),
    ("seen", logical("long", "timestamp-millis")),
    ("exact", logical("long", "timestamp-micros")),
    ("born", logical("int", "date")),
    ("clock", logical("int", "time-millis")),
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
    ("raw", "bytes"),
    ("share", "float"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("tags", {"type": "map", "values": "long"}),
    ("parts", {"type": "array", "items": INNER}),
    ("either", ["int", "string"]),
    ("amount", "string"),
    ("level", "string", "base"),
    ("since", logical("long", "timestamp-millis"), 1_700_000_000_000),
    ("count", "int", 7),
)
SECOND["fields"][1]["aliases"] = ["name"]


def event(n: int, *, second: bool = False) -> dict[str, Any]:
    chance = random.Random(n)
    found = {
        "id": n,
        "name": chance.choice([None, "Ærø", "x"]),
        "seen": 1_700_000_000_123 + n,
        "exact": 1_700_000_000_123_456 + n,
        "born": 20_000 + n,
        "clock": 45_000_000 + n * 1_000,
        "price": (b"\x00\xff", b"\x01\x02")[n % 2],
        "raw": bytes([n % 256, 255]),
        "share": n / 7,
        "kind": "AB"[n % 2],
        "tags": {"a": n, "b": -n},
        "parts": [{"at": 1_700_000_000_123, "n": n}, {"at": 0, "n": 1}][: n % 3],
        "either": (n, str(n))[n % 2],
        "gone": f"g{n}",
        "amount": n,
    }
    if second:
        del found["gone"]
        del found["name"]
        found |= {"label": f"l{n}", "amount": f"{n}", "level": "high", "since": n, "count": n}
    return found


class PastWorld(LakeWorld):
    """A topic, its archive, and a store for the statements. ``begins``: where the log begins by now."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begins = [0] * self.partitions
        self.registry.subjects_of = lambda _id: [f"{TOPIC}-value"]  # type: ignore[attr-defined]
        self.store = Store(f"sqlite:///{self.home / 'store.db'}")
        self.queries = QueryExecutor(self.store)
        self.whole_log = self.cluster.beginning_offsets

    def archived(self) -> None:
        self.now_s += 3_600
        writer = self.writer()
        with self.log_lost():
            while writer.step():
                pass
        writer.close()

    def log_lost(self) -> Any:
        """Retention as the log's readers meet it."""
        found = Positions.of((TOPIC, each, at) for each, at in enumerate(self.begins))
        return patch.object(self.cluster, "beginning_offsets", lambda _names: found)

    def ask(self, sql: str, *, archive: bool = True, **body: Any) -> tuple[QueryAnswer, list[ScannedRange]]:
        """Answer from archive and log, or from the log as it was before retention."""
        topics = TopicTables(
            self.cluster,
            self.registry,  # type: ignore[arg-type]
            LakeArchive(self.settings, self.registry) if archive else None,  # type: ignore[arg-type]
        )
        asked = QueryBody(**{"sql": sql, "limit": 10_000, "events": "all", **body})
        running = RunningQuery(time.monotonic() + 60)
        call = QueryCall(self.queries, topics, parse(sql), asked, None, running)
        if not archive:
            return call.run()
        with self.log_lost():
            return call.run()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PastWorld]:
    made = PastWorld(tmp_path)
    yield made
    made.queries.close()
    made.store.close()


def fill(world: PastWorld) -> None:
    """Two schema versions; a tombstone; the log lost all but the newest of each partition."""
    first = world.registry.add(TOPIC, FIRST)
    world.write(first, *map(event, range(8)), at_ms=NOON_MS)
    world.write(first, *map(event, range(8, 12)), at_ms=NOON_MS + MINUTE_MS, partition=1)
    world.cluster.writer().append([NewRecord(TOPIC, b"k0", None, (), NOON_MS + MINUTE_MS, 0)])
    world.archived()
    second = world.registry.add(TOPIC, SECOND)
    world.write(second, *(event(n, second=True) for n in range(12, 18)), at_ms=NOON_MS + 2 * MINUTE_MS)
    world.archived()
    world.write(second, *(event(n, second=True) for n in range(18, 21)), at_ms=NOON_MS + 3 * MINUTE_MS)
    world.begins = [12, 4]


COLUMNS = [each["name"] for each in [*FIRST["fields"], *SECOND["fields"]] if each["name"] != "name"]
EVERY = ", ".join(
    dict.fromkeys([*COLUMNS, "_topic", "_partition", "_offset", "_timestamp", "_key", "_deleted"])
)


def test_rows_of_archive_and_log_equal_those_of_a_log_that_lost_nothing(world: PastWorld) -> None:
    fill(world)
    sql = f'SELECT {EVERY} FROM "{TOPIC}" ORDER BY _partition, _offset'
    found, scanned = world.ask(sql)
    wanted, _ = world.ask(sql, archive=False)
    assert [each.name for each in found.columns] == [each.name for each in wanted.columns]
    for one, other in zip(found.rows, wanted.rows, strict=True):
        assert dict(zip(EVERY.split(", "), one, strict=True)) == dict(
            zip(EVERY.split(", "), other, strict=True)
        )
    assert len(found.rows) == 22
    assert [(each.partition, each.start, each.end, each.events, each.unreadable) for each in scanned] == [
        (0, 0, 18, 18, 0),
        (1, 0, 4, 4, 0),
    ]
    assert [(each.archived_to, each.missing) for each in scanned] == [(15, ()), (4, ())]


def test_rows_are_in_the_order_of_the_log_without_order_by(world: PastWorld) -> None:
    fill(world)
    rows = world.ask(f'SELECT _partition, _offset FROM "{TOPIC}"')[0].rows
    assert rows == sorted(rows) and len(rows) == 22


def test_as_of_a_time_and_before_a_position(world: PastWorld) -> None:
    fill(world)
    at = "2023-11-14 22:14:20"  # NOON_MS and a minute
    count = f"SELECT count(*) FROM \"{TOPIC}\" FOR SYSTEM_TIME AS OF TIMESTAMP '{at}'"
    assert world.ask(count, events=10)[0].rows == [[13]]
    both = (
        f"SELECT (SELECT count(*) FROM \"{TOPIC}\" FOR SYSTEM_TIME AS OF TIMESTAMP '2023-11-14 22:13:20'), "
        f'count(*) FROM "{TOPIC}"'
    )
    assert world.ask(both, events=10)[0].rows == [[8, 22]]
    found, scanned = world.ask(
        f'SELECT _partition, count(*) FROM "{TOPIC}" GROUP BY 1', events=10, before=f"{TOPIC}:0:3"
    )
    assert found.rows == [[0, 3]] and [each.end for each in scanned] == [3, 0]
    assert world.ask(f"SELECT max(id) FROM \"{TOPIC}\" WHERE _timestamp >= TIMESTAMP '{at}'")[0].rows == [
        [20]
    ]


def test_ranges_that_neither_has_are_named(world: PastWorld) -> None:
    first = world.registry.add(TOPIC, FIRST)
    world.write(first, *map(event, range(10)))
    world.begins = [2, 0]
    world.archived()
    world.write(first, *map(event, range(10, 20)))
    world.begins = [13, 0]
    world.archived()
    world.write(first, *map(event, range(20, 30)))
    world.begins = [25, 0]
    found, scanned = world.ask(f'SELECT count(*), min(id) FROM "{TOPIC}"')
    assert found.rows == [[8 + 7 + 5, 2]]
    assert scanned[0].missing == ((0, 2), (10, 13), (20, 25)) and scanned[1].missing == ()
    assert scanned[0].as_json()["missing"] == [[0, 2], [10, 13], [20, 25]]
    _, scanned = world.ask(f'SELECT 1 FROM "{TOPIC}"', before=f"{TOPIC}:0:11")
    assert scanned[0].missing == ((0, 2), (10, 11))


def test_a_table_of_an_earlier_release_does_not_know_what_it_lacks(world: PastWorld) -> None:
    fill(world)
    summary = TableProgress("t", {0: 5}, 3).summary()
    assert progress_of(summary) == TableProgress("t", {0: 5}, 3)
    del summary[MISSING]
    old = progress_of(summary)
    assert old is not None and old.missing is None and MISSING not in old.summary()


def test_a_topic_without_a_table_is_its_log(world: PastWorld) -> None:
    first = world.registry.add(TOPIC, FIRST)
    world.write(first, *map(event, range(10)))
    world.begins = [4, 0]
    found, scanned = world.ask(f'SELECT count(*), count(_value) FROM "{TOPIC}"')
    assert found.rows == [[6, 6]] and scanned[0].missing == ((0, 4),) and scanned[0].archived_to is None


def test_values_of_a_topic_without_a_schema_are_read_as_they_were_written(world: PastWorld) -> None:
    values = [b'{"a": 1}', b"not json", b'{"a": 3}']
    world.cluster.writer().append([NewRecord(TOPIC, b"k", each, (), NOON_MS, 0) for each in values])
    world.archived()
    world.begins = [3, 0]
    found, scanned = world.ask(f"SELECT _value->>'a' FROM \"{TOPIC}\"")
    assert found.rows == [["1"], ["3"]] and scanned[0].unreadable == 1


def test_the_archive_has_no_value_as_written(world: PastWorld) -> None:
    fill(world)
    with pytest.raises(SqlError, match="no _value") as refused:
        world.ask(f'SELECT _value FROM "{TOPIC}"')
    assert refused.value.code == "HUB-1494"


def test_the_archive_of_a_former_topic_is_refused(world: PastWorld) -> None:
    fill(world)
    world.cluster.delete_topic(TOPIC)
    world.cluster.create_topic(TOPIC, partitions=2, config={}, replication_factor=1)
    world.begins = [0, 0]
    with pytest.raises(Conflict, match="deleted and created again"):
        world.ask(f'SELECT 1 FROM "{TOPIC}"')


def test_a_commit_while_a_query_reads_changes_nothing(world: PastWorld) -> None:
    fill(world)
    topics = TopicTables(world.cluster, world.registry, LakeArchive(world.settings, world.registry))  # type: ignore[arg-type]
    archive = topics.archive
    assert archive is not None
    opened = archive.open

    def then_committed(topic: str, topic_id: str) -> Any:
        found = opened(topic, topic_id)
        world.archived()
        return found

    with patch.object(archive, "open", then_committed), world.log_lost():
        body = QueryBody(sql=f'SELECT count(*), count(DISTINCT id) FROM "{TOPIC}"', events="all")
        call = QueryCall(
            world.queries, topics, parse(body.sql), body, None, RunningQuery(time.monotonic() + 60)
        )
        answer, scanned = call.run()
    assert answer.rows == [[22, 21]] and scanned[0].archived_to == 15


def test_masks_and_row_filters_hold_for_the_archive(world: PastWorld) -> None:
    fill(world)
    facts = KnownFacts({TOPIC: TopicFields({("label",): frozenset({"PII"})}, "")}, {})
    rules = rules_of(facts, [{"tags": ["PII"], "topics": [TOPIC], "as": "hashed"}], ana={})
    before = CALLER.set(caller_of(rules, "ana"))
    try:
        sql = f'SELECT label, id FROM "{TOPIC}" ORDER BY _partition, _offset'
        found, wanted = world.ask(sql)[0].rows, world.ask(sql, archive=False)[0].rows
    finally:
        CALLER.reset(before)
    assert found == wanted and "Ærø" not in str(found) and "l12" not in str(found) and len(found) == 22


def test_a_query_is_stopped_in_time_and_bytes(world: PastWorld) -> None:
    fill(world)
    most = patch("hub.materializers.queries.answering.whole_reads.MOST_BYTES", 500)
    with most, pytest.raises(SqlError, match="its rows are more than"):
        world.ask(f'SELECT id FROM "{TOPIC}"')
    with patch.object(RunningQuery, "over", True), pytest.raises(HubError) as ended:
        world.ask(f'SELECT id FROM "{TOPIC}"')
    assert ended.value.code in ("HUB-1472", "HUB-1449")
