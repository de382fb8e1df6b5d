"""Simulation of snapshot groups: through ends, restarts, delays and failures, every published snapshot is
consistent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import orjson
import pytest
from samples import fast_or

from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryWriter
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.snapshot_groups.barrier import GroupBarrier, MemberStanding
from hub.materializers.snapshot_groups.coordinator import SnapshotGroups
from hub.materializers.snapshot_groups.group import (
    CUT,
    GROUP,
    GroupSnapshot,
    MemberPosition,
    group_snapshot_of,
    next_place,
)
from hub.materializers.snapshot_groups.members import Member
from hub.record import NewRecord, Positions, Record, TopicPartition

READS = {
    "rich": ("payments", "views.balances"),  # and it is first in the list
    "orders_by_city": ("orders",),
    "balances": ("orders", "payments"),
    "richest": ("views.rich",),
    "paid": ("payments",),
}
PARTITIONS = {"orders": 3, "payments": 2}


@dataclass
class Query:
    """A streaming query as Spark runs it; its rows name their events.

    A batch's end is noted before it runs, and rows are written while it runs. The view's next query runs an
    unfinished batch again from its beginning.
    """

    world: World
    view: str
    ends_made: list[Positions]  # the checkpoint: shared by the queries of a view, one after the other
    committed: list[Positions]
    bound: Positions | None = None
    to_write: list[NewRecord] | None = None
    over: bool = False

    # ---- hub.materializers.snapshot_groups.members.ReadEnds

    def hold(self, begin: Positions) -> Positions | None:
        self.world.meanwhile()
        if self.over or self.world.chance.random() < 0.3:
            return None
        self.bound = begin.advanced(self.ends_made[-1] if self.ends_made else Positions())
        at = self.bound
        self.world.meanwhile()
        return at

    def until(self, place: Positions) -> None:
        self.world.meanwhile()
        if self.over:
            raise PeerError("the query has ended")
        assert {tp.topic for tp, _ in place} == set(READS[self.view])
        assert self.bound is not None and place.covers(self.bound)
        self.bound = place

    def free(self) -> None:
        self.bound = None

    # ---- Spark

    def tick(self) -> None:
        """Do a part of the query's work."""
        chance = self.world.chance
        if self.over:
            return
        if self.to_write is None:
            if len(self.ends_made) == len(self.committed):
                self._make()
            if len(self.ends_made) > len(self.committed):
                start = self.committed[-1] if self.committed else Positions()
                self.to_write = [
                    NewRecord(f"views.{self.view}", str(record.key).encode(), name_of(record))
                    for record in self.world.events(start, self.ends_made[-1])
                ]
            return
        part = chance.randint(0, len(self.to_write))
        self.world.cluster.writer().append(self.to_write[:part])
        self.to_write = self.to_write[part:]
        if not self.to_write:
            self.committed.append(self.ends_made[-1])
            self.to_write = None

    def _make(self) -> None:
        start = self.ends_made[-1] if self.ends_made else Positions()
        ends = self.bound if self.bound is not None else self.world.cluster.end_offsets(READS[self.view])
        assert ends.covers(start), "it would have to go back"
        most = self.world.chance.randint(1, 20)
        end = Positions({tp: min(offset, start.get(tp) + most) for tp, offset in ends})
        if end != start:
            self.ends_made.append(end)


@dataclass
class View:
    """A running view; see hub.materializers.snapshot_groups.members.RunningVersion."""

    table: str
    group: str | None = "shop"
    served: bool = True
    member: Member | None = None
    unheld: str | None = None
    reported: tuple[str, str | None] = ("starting", None)
    query: Query | None = None
    ends_made: list[Positions] = field(default_factory=list)
    committed: list[Positions] = field(default_factory=list)


class Writer(MemoryWriter):
    """A log that fails now and then, before or after the record is written; the caller cannot distinguish
    these."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, None, 0)
        self.world = world

    def append(self, records: Sequence[NewRecord]) -> Positions:
        self.world.meanwhile()
        how = self.world.chance.random() if self.world.chaos else 1.0
        if how < 0.02:
            raise PeerError("Kafka is away")
        after = super().append(records)
        if how < 0.04:
            raise PeerError("no answer")
        return after


class Log:
    """Kafka as the groups use it, while everything else continues."""

    def __init__(self, world: World) -> None:
        self.world = world

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        self.world.meanwhile()
        found = self.world.cluster.end_offsets(topics)
        self.world.meanwhile()
        return found

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self.world.cluster.beginning_offsets(topics)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.chaos = True
        self.cluster = MemoryCluster()
        for topic, partitions in PARTITIONS.items():
            self.cluster.create_topic(topic, partitions=partitions, config={}, replication_factor=1)
        self.views = [View(name) for name in READS]
        for view in self.views:
            self.cluster.create_topic(f"views.{view.table}", partitions=2, config={}, replication_factor=1)
        self.cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.cuts = self.materializer()

    def materializer(self) -> SnapshotGroups:
        return SnapshotGroups(
            Log(self), Writer(self), most=25, pause_s=0.0, now_ms=lambda: 1, running=self.views
        )

    def events(self, start: Positions, end: Positions) -> list[Record]:
        return [
            record
            for tp, offset in end
            for record in self.cluster.logs[tp.topic][tp.partition][start.get(tp) : offset]
        ]

    def write(self) -> None:
        topic = self.chance.choice(list(PARTITIONS))
        records = [
            NewRecord(topic, None, b"", partition=self.chance.randrange(PARTITIONS[topic]))
            for _ in range(self.chance.randint(1, 8))
        ]
        self.cluster.writer().append(records)

    def meanwhile(self) -> None:
        """Simulate the work of other threads and processes at this point."""
        for _ in range(self.chance.choice((0, 0, 0, 0, 1, 3, 40))):
            view = self.chance.choice(self.views)
            what = self.chance.random()
            if self.chaos and what < 0.08:
                self.write()
            elif self.chaos and what < 0.09:
                self.end(view)
            elif what < 0.5:
                self.begin(view)
                self.join(view)
            for _ in range(4):
                if view.query is not None:
                    view.query.tick()
            self.commit(view)

    # ---- what the thread of a view does (engine/view_thread.py)

    def end(self, view: View) -> None:
        if view.member is not None:
            view.member.open = False
            view.member = None
        if view.query is not None:
            view.query.over, view.query = True, None
            view.reported = ("failed", "it was planted")

    def begin(self, view: View) -> None:
        """Start a query that reads everything until it is held."""
        if view.query is None:
            view.query = Query(self, view.table, view.ends_made, view.committed)

    def join(self, view: View) -> None:
        if view.query is not None and view.member is None:
            reached = view.committed[-1] if view.committed else Positions()
            reads = READS[view.table]
            views = tuple(topic for topic in reads if topic.startswith("views."))
            view.member = Member(
                view.table, 1, reads, f"views.{view.table}", view.query, reached, views=views
            )
            view.reported = ("live", None)

    def commit(self, view: View) -> None:
        """Report a commit, which happened earlier."""
        if view.member is not None and view.committed and self.chance.random() < 0.5:
            view.member.reached = view.committed[-1]

    def told(self) -> list[GroupSnapshot]:
        log = self.cluster.logs[PROGRESS_TOPIC][0]
        return [
            group_snapshot_of(orjson.loads(record.value or b""))
            for record in log
            if (record.key or b"").startswith(CUT.encode()) and record.value is not None
        ]


def name_of(record: Record) -> bytes:
    return f"{record.topic}:{record.partition}:{record.offset}".encode()


def assert_cut(world: World, cut: GroupSnapshot) -> None:
    """Assert that each member's rows are made of exactly the events before the snapshot."""
    assert set(cut.views) == set(READS)
    for table, place in cut.views.items():
        rows = {record.value for record in world.events(Positions(), place.changelog)}
        events = {name_of(record) for record in world.events(Positions(), cut.sources(table))}
        assert rows == events, f"{table} is not at {cut.at}"
        for below in READS[table]:
            if below.startswith("views."):
                assert cut.at.of_topics([below]) == cut.views[below.removeprefix("views.")].changelog


@pytest.mark.parametrize("seed", range(fast_or(8, 25)))
def test_each_cut_is_one_and_the_last_is_at_the_end_of_the_log(seed: int) -> None:
    world = World(seed)
    for step in range(400):
        world.meanwhile()
        world.cuts.step(float(step))
        if world.chance.random() < 0.01:  # kill -9: its queries are gone with it
            for view in world.views:
                world.end(view)
            world.cuts = world.materializer()
    before = len(world.told())
    world.chaos = False
    end = world.cluster.end_offsets(list(PARTITIONS))
    for step in range(400, 4_000):
        world.meanwhile()
        world.cuts.step(float(step))
        if step % 50 == 0 and len(world.told()) > before and world.told()[-1].at.of_topics(PARTITIONS) == end:
            break
    cuts = world.told()
    assert len(cuts) > before
    assert cuts[-1].at.of_topics(PARTITIONS) == end
    for cut in cuts:
        assert_cut(world, cut)
    for one, other in pairwise(cuts):
        assert other.at.covers(one.at)


def test_one_that_does_not_run_leaves_the_others_free() -> None:
    world = World(1)
    world.chaos = False
    for step in range(100):
        world.meanwhile()
        world.cuts.step(float(step))
    assert all(view.query is not None and view.query.bound is not None for view in world.views)
    stopped = next(view for view in world.views if view.table == "orders_by_city")
    world.end(stopped)
    world.cuts.step(100.0)
    assert all(view.query is None or view.query.bound is None for view in world.views)
    note = orjson.loads(
        [r for r in world.cluster.logs[PROGRESS_TOPIC][0] if r.key == f"{GROUP}shop".encode()][-1].value
        or b""
    )
    assert (note["state"], note["why"]) == ("apart", 'view "orders_by_city" is failed: it was planted')
    stopped.reported = ("bulk", None)
    world.cuts.step(101.0)
    assert world.cuts.groups["shop"].note is not None
    assert world.cuts.groups["shop"].note.state == "catching up"


def test_a_group_that_nobody_names_is_forgotten_and_its_views_are_free() -> None:
    world = World(2)
    world.chaos = False
    for step in range(100):
        world.meanwhile()
        world.cuts.step(float(step))
    for view in world.views:
        view.group = None
    world.cuts.step(100.0)
    log = world.cluster.logs[PROGRESS_TOPIC][0]
    assert [(record.key, record.value) for record in log[-2:]] == [(b"cut:shop", None), (b"group:shop", None)]
    assert all(view.query is None or view.query.bound is None for view in world.views)


def test_a_place_is_at_most_so_many_events_on_and_starves_no_partition() -> None:
    at, ends = (
        Positions.of([("t", 0, 5), ("t", 1, 0)]),
        Positions.of([("t", 0, 6), ("t", 1, 1_000_000), ("t", 2, 0)]),
    )
    following = next_place(at, ends, 100)
    assert following.get(TopicPartition("t", 0)) == 6
    assert following.get(TopicPartition("t", 1)) == 99
    assert next_place(at, ends, 2_000_000) == ends
    # An end may be behind for a moment (another broker answers): no position goes back.
    assert next_place(ends, at, 10) == ends


def test_a_group_with_a_view_of_a_view_that_is_not_in_it_is_apart_and_says_which() -> None:
    world = World(3)
    world.chaos = False
    for view in world.views:
        if view.table == "balances":
            view.group = None
    for step in range(100):
        world.meanwhile()
        world.cuts.step(float(step))
    note = world.cuts.groups["shop"].note
    assert note is not None and note.state == "apart"
    assert note.why == 'view "rich" reads views.balances, which no view of its group writes'
    assert all(view.query is None or view.query.bound is None for view in world.views)
    assert world.told() == []


def test_one_member_whose_rows_wait_starts_the_clock_of_its_group() -> None:
    place = {name: TopicPartition(f"views.{name}", 0) for name in ("one", "two")}
    views = {name: MemberPosition(1, Positions({tp: 10}), ("orders",)) for name, tp in place.items()}
    barrier = GroupBarrier("g", patience_s=10.0, most=100)
    barrier.take_snapshot(GroupSnapshot("g", Positions(), views, 0), 0)

    def judged(waiting: int, now_s: float) -> str:
        members = {
            name: MemberStanding(Positions({tp: 12}), Positions({tp: 12}), waiting)
            for name, tp in place.items()
        }
        members["two"] = replace(members["two"], waiting=0)
        return barrier.judge(members, now_s)

    assert [judged(0, 100.0), barrier.since_s] == ["hold", None]
    assert [judged(3, 200.0), barrier.since_s] == ["hold", 200.0]
    assert judged(3, 209.0) == "hold"
    assert judged(3, 211.0) != "hold" and "have waited" in str(barrier.why)
