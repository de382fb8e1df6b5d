"""Places that divide no source transaction: for any order of writing and reading, and with restarts."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from hub.errors import ConfigError, PeerError
from hub.log import MemoryCluster
from hub.materializers.definition.entity_view import View
from hub.materializers.engine.plans.transactions import cut_rules
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.snapshot_groups.barrier import GroupBarrier, MemberStanding
from hub.materializers.snapshot_groups.coordinator import SnapshotGroups
from hub.materializers.snapshot_groups.group import CUT, GroupSnapshot, MemberPosition, group_snapshot_of
from hub.materializers.snapshot_groups.members import Member
from hub.materializers.source_transactions.cuts import NOTE, CutRules, TransactionCuts
from hub.materializers.source_transactions.decoding import ValueDecoder
from hub.record import NewRecord, Positions, TopicPartition

SOURCE = "shop.transaction"
TABLES = {"shop.public.orders": "public.orders", "shop.public.lines": "public.lines"}


class World:
    """Transactions of a database, written in a hostile order: each partition in its own order."""

    def __init__(self, seed: int, folder: Path, *, rows: int = 1_000, splits: bool = False) -> None:
        self.chance, self.folder = random.Random(seed), folder
        self.cluster = MemoryCluster()
        self.cluster.create_topic(SOURCE, partitions=1, config={}, replication_factor=1)
        for topic in TABLES:
            self.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
        self.rules = CutRules("v", SOURCE, TABLES, rows, 30.0, splits, 1_000)
        self.logs: dict[tuple[str, int], list[NewRecord]] = {}
        self.sizes: dict[str, int] = {}
        self.cuts = self.opened()
        self.place = self.cluster.beginning_offsets(list(TABLES))

    def opened(self) -> TransactionCuts:
        return TransactionCuts(self.cluster, ValueDecoder(None), self.folder, self.rules)  # type: ignore[arg-type]

    def transact(self, count: int, *, rows: int | None = None) -> None:
        for _ in range(count):
            id = str(len(self.sizes) + 1)
            self.sizes[id] = rows if rows is not None else self.chance.randint(0, 6)
            counts = dict.fromkeys(TABLES.values(), 0)
            self.note(SOURCE, 0, {"status": "BEGIN", "id": f"{id}:1", "ts_ms": 1})
            for order in range(1, self.sizes[id] + 1):
                topic = self.chance.choice(sorted(TABLES))
                counts[TABLES[topic]] += 1
                schema, table = TABLES[topic].split(".")
                body = {
                    "op": "c",
                    "before": None,
                    "after": {"id": order},
                    "source": {"schema": schema, "table": table},
                    "transaction": {"id": f"{id}:{order}", "total_order": order},
                }
                self.note(topic, self.chance.randrange(2), body)
            listed = [{"data_collection": name, "event_count": each} for name, each in counts.items()]
            self.note(SOURCE, 0, {"status": "END", "id": f"{id}:9", "ts_ms": 1, "data_collections": listed})

    def note(self, topic: str, partition: int, body: object) -> None:
        record = NewRecord(topic, b"k", orjson.dumps(body), partition=partition)
        self.logs.setdefault((topic, partition), []).append(record)

    def write(self) -> bool:
        """Write some records of one partition. False: all are written."""
        logs = [log for log in self.logs.values() if log]
        if logs:
            log = self.chance.choice(logs)
            count = self.chance.randint(1, len(log))
            self.cluster.writer().append(log[:count])
            del log[:count]
        return bool(logs)

    def step(self) -> None:
        self.place = self.cuts.following(self.place)

    def read_on(self) -> None:
        for _ in range(20):
            self.step()
            self.assert_whole()

    def restart(self) -> None:
        """Begin again with the note and the place that the view has read to, as after kill -9."""
        self.cuts.close()
        self.cuts = self.opened()
        first = None
        for _ in range(100):
            first = first or self.cuts.first(self.place)
        assert first is not None and first.covers(self.place)
        self.place = first

    def shown(self) -> dict[str, int]:
        """Return the number of rows before the place, by transaction."""
        found = dict[str, int]()
        for topic in TABLES:
            for records in self.cluster.logs[topic]:
                for record in records:
                    if record.offset < self.place.get(record.topic_partition):
                        id = orjson.loads(record.value or b"")["transaction"]["id"].partition(":")[0]
                        found[id] = found.get(id, 0) + 1
        return found

    def assert_whole(self) -> None:
        shown = self.shown()
        assert all(self.sizes[id] == count for id, count in shown.items()), shown


@pytest.mark.parametrize("seed", range(60))
def test_no_place_divides_a_transaction(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    world.transact(25)
    while world.write():
        for _ in range(world.chance.randint(0, 3)):
            before = world.place
            world.step()
            assert world.place.covers(before)
            world.assert_whole()
        if world.chance.random() < 0.3:
            world.restart()
            world.assert_whole()
    world.read_on()
    assert world.shown() == {id: size for id, size in world.sizes.items() if size}


def test_without_its_note_a_view_begins_at_the_start_of_the_log_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    world = World(1, tmp_path)
    world.transact(10)
    while world.write():
        world.step()
    world.read_on()
    for file in tmp_path.iterdir():
        file.unlink()
    world.restart()
    world.assert_whole()
    assert world.place == world.cluster.end_offsets(list(TABLES))


def test_a_transaction_that_is_too_large_is_held_until_it_may_be_split(tmp_path: Path) -> None:
    world = World(2, tmp_path, rows=10)
    world.transact(3, rows=2)
    world.transact(1, rows=30)
    world.transact(2, rows=2)
    while world.write():
        pass
    world.read_on()
    assert world.shown() == {"1": 2, "2": 2, "3": 2}
    split = World(2, tmp_path / "split", rows=10, splits=True)
    split.transact(1, rows=30)
    while split.write():
        pass
    split.read_on()
    assert split.shown() == {"1": 30}


def test_a_place_is_noted_before_it_is_given(tmp_path: Path) -> None:
    world = World(3, tmp_path)
    world.transact(3)
    while world.write():
        pass
    world.step()
    noted = Positions.parse(orjson.loads((tmp_path / NOTE).read_bytes())["cut"])
    assert noted.of_topics(TABLES) == world.place


def test_rows_in_a_new_partition_are_found_before_their_transaction_is_given_up(tmp_path: Path) -> None:
    world = World(4, tmp_path)
    world.transact(5)
    while world.write():
        pass
    world.step()
    for topic in TABLES:
        world.cluster.logs[topic].append([])
    world.note(SOURCE, 0, {"status": "BEGIN", "id": "6:1", "ts_ms": 1})
    world.sizes["6"] = 1
    body = {
        "op": "c",
        "before": None,
        "after": {"id": 1},
        "source": {"schema": "public", "table": "orders"},
        "transaction": {"id": "6:1", "total_order": 1},
    }
    world.note("shop.public.orders", 2, body)
    counts = [{"data_collection": "public.orders", "event_count": 1}]
    world.note(SOURCE, 0, {"status": "END", "id": "6:9", "ts_ms": 1, "data_collections": counts})
    world.transact(20, rows=6)  # they have rows in all other partitions
    while world.write():
        pass
    with pytest.raises(PeerError, match="has a new partition"):
        world.read_on()
    world.restart()
    world.read_on()
    assert world.shown() == {id: size for id, size in world.sizes.items() if size}


def test_a_missing_end_is_named_with_the_time_of_its_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(5, tmp_path)
    world.transact(2, rows=2)
    end = world.logs[(SOURCE, 0)].pop()
    while world.write():
        pass
    world.step()
    assert world.cuts.waiting() is None  # it came just now
    now_s = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now_s + 60.0)
    first = world.cuts.waiting()
    assert first is not None and first.startswith("transaction 2 (shop.transaction 0:2) has no END; it began")
    monkeypatch.setattr("time.monotonic", lambda: now_s + 90.0)
    assert world.cuts.waiting() == first  # it is reported once
    world.cluster.writer().append([end])
    world.step()
    assert world.cuts.waiting() is None and world.shown() == world.sizes


# ---- the group of a view


@dataclass
class Query:
    """A query that commits at once what it may read."""

    world: World
    member: Member | None = None
    held: bool = False

    def hold(self, begin: Positions) -> Positions:
        self.held = True
        return begin.advanced(self.world.place)

    def until(self, place: Positions) -> None:
        self.world.place = place
        if self.member is not None:
            self.member.reached = place

    def free(self) -> None:
        """Do nothing: such a query is never freed (spark/read_ends.py)."""


@dataclass
class Version:
    """A version in building, as its group sees it."""

    member: Member | None
    table: str = "v"
    group: str | None = "v.transactions"
    served: bool = False
    unheld: str | None = None
    reported: tuple[str, str | None] = ("live", None)


@pytest.mark.parametrize("seed", range(10))
def test_a_view_stops_between_transactions_while_it_is_built(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    for topic in ("views.v", PROGRESS_TOPIC):
        world.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    query = Query(world)
    member = Member("v", 1, tuple(TABLES), "views.v", query, world.place, places=world.cuts)
    query.member = member
    version = Version(member)
    groups = SnapshotGroups(world.cluster, world.cluster.writer(), 5, 0.0, lambda: 1, running=[version])
    world.transact(25)
    steps = 0
    while world.write() or steps < 200:
        steps += 1
        groups.step(float(steps))
        world.assert_whole()
        member.open = world.chance.random() > 0.1  # else the query ends; its next one is held again
    assert query.held and world.shown() == {id: size for id, size in world.sizes.items() if size}
    published = [
        group_snapshot_of(orjson.loads(record.value or b""))
        for record in world.cluster.logs[PROGRESS_TOPIC][0]
        if (record.key or b"").startswith(CUT.encode())
    ]
    assert len(published) > 2 and published[-1].at == world.place


def test_a_store_applies_rows_at_snapshots_only_however_long_they_wait() -> None:
    place = TopicPartition("views.v", 0)
    barrier = GroupBarrier("v.transactions", patience_s=10.0, most=100, strict=True)

    def judged(read: int, now_s: float, *, applied: int = 0, stopped: bool = False) -> tuple[str, bool]:
        standing = MemberStanding(
            Positions({place: applied}), Positions({place: read}), read - applied, stopped
        )
        return barrier.judge({"v": standing}, now_s), bool(barrier.full({"v": standing}))

    assert judged(5, 0.0) == judged(5, 1_000.0) == ("hold", False)  # there is no snapshot
    assert judged(200, 0.0) == ("hold", True)
    views = {"v": MemberPosition(1, Positions({place: 300}), ("t",))}
    barrier.take_snapshot(GroupSnapshot("v.transactions", Positions(), views, 0), 0)
    assert judged(200, 2_000.0) == ("hold", False)  # read on, however much it is
    assert judged(300, 2_000.0, stopped=True)[0] == "hold"
    assert judged(300, 2_000.0) == ("apply", True)
    barrier.applied()
    assert judged(500, 3_000.0, applied=300) == judged(500, 9_000.0, applied=300) == ("hold", True)
    barrier.part("somebody asks")
    assert judged(500, 9_000.0, applied=300)[0] == "hold"


# ---- what is declared

SOURCES = {"o": {"topic": "shop.public.orders", "cdc": "debezium", "key": "id"}}


def view(**more: Any) -> View:
    body = {"view": "v", "sources": SOURCES, "fields": {"id": "o.id"}, "consistent_with": "transaction"}
    return View.model_validate({**body, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"consistent_with": "transactions"}, "consistent with `transaction`, not with `transactions`"),
        ({"sources": {"o": {"topic": "shop.public.orders", "key": "id"}}}, "has no source transactions"),
        ({"sources": {"o": {**SOURCES["o"], "topic": "orders"}}}, "does not follow from the topics"),
        ({"sources": {**SOURCES, "p": {**SOURCES["o"], "topic": "crm.public.p"}}}, "does not follow"),
        ({"cut": "shop"}, "consistent_with and `cut` cannot be combined"),
        ({"mode": "realtime"}, "consistent_with and `mode: realtime` cannot be combined"),
        ({"ttl": "1d"}, "consistent_with and `ttl` cannot be combined"),
        ({"swap": "in_place"}, "consistent_with and `swap: in_place` cannot be combined"),
        ({"consistent_with": {"wait": "long"}}, "long"),
    ],
)
def test_a_view_that_cannot_follow_transactions_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        view(**more)


def test_a_transaction_topic_must_exist_and_have_one_partition() -> None:
    cluster = MemoryCluster()
    topics = ["shop.public.orders"]
    with pytest.raises(ConfigError, match=r'"shop.transaction" does not exist'):
        cut_rules(view(), topics, cluster.topics(), 10, in_place=False)
    cluster.create_topic(SOURCE, partitions=2, config={}, replication_factor=1)
    with pytest.raises(ConfigError, match="has 2 partitions"):
        cut_rules(view(), topics, cluster.topics(), 10, in_place=False)
    cluster.create_topic("other", partitions=1, config={}, replication_factor=1)
    other = view(consistent_with={"transaction": "other", "larger": "split", "most_rows": 7, "wait": "2m"})
    assert cut_rules(other, topics, cluster.topics(), 10, in_place=False) == CutRules(
        "v", "other", {topics[0]: "public.orders"}, 7, 120.0, True, 10
    )
    with pytest.raises(ConfigError, match="keeps one table of a view"):
        cut_rules(other, topics, cluster.topics(), 10, in_place=True)
    assert cut_rules(view(consistent_with=None), topics, {}, 10, in_place=True) is None
