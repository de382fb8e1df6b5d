"""Views of one group in a store: at its cuts or apart, and never said to be at a cut that is none."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from changelog import Cluster, Schemas

from hub.materializers.applier import Applier
from hub.materializers.cut_state import Common
from hub.materializers.cuts import GroupCut, GroupNote, Place
from hub.materializers.progress import PROGRESS_TOPIC, Progress, ViewState
from hub.materializers.sql_text import parse
from hub.materializers.stores.queries import Queries, Running
from hub.materializers.stores.sql import Store, ViewBatch
from hub.materializers.view import View
from hub.record import NewRecord, Positions
from hub.schema_registry.codec import encode, parsed

BOTH = "SELECT (SELECT sum(points) FROM a) AS of_a, (SELECT sum(points) FROM b) AS of_b"


class Killed(Exception):
    """kill -9 in the middle of a transaction."""


class Unsteady(Store):
    """Remembers what each transaction had; dies in the middle of one when it is told to."""

    dies = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.transactions: list[set[str]] = []

    def apply(self, batches: Sequence[ViewBatch], progress: Mapping[str, Any] | None = None) -> None:
        if self.dies and batches:
            raise Killed
        super().apply(batches, progress)
        self.transactions.append({each.view for each in batches})


class World:
    """Two views of the same events, counted by different keys: the sums are equal exactly where both have the same events."""

    def __init__(self, folder: Path, seed: int = 0, **limits: Any) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster()
        for topic, partitions in (("views.a", 2), ("views.b", 2), (PROGRESS_TOPIC, 1)):
            self.cluster.create_topic(topic, partitions=partitions, config={}, replication_factor=1)
        self.schemas = Schemas()
        self.store = Unsteady(f"sqlite:///{folder / 'store.db'}")
        self.queries = Queries(self.store)
        self.views = [
            View.model_validate(
                {
                    "view": name,
                    "cut": "shop",
                    "sources": {"s": {"topic": "in", "key": "k"}},
                    "fields": {"points": "s.points"},
                }
            )
            for name in "ab"
        ]
        self.limits = {"cut_wait_s": 5.0, "most_waiting": 1_000, **limits}
        self.now_s = 0.0
        self.folded = {"a": 0, "b": 0}  # events, as far as each view's changelog has them
        self.told = 0
        self.applier = self.restarted()
        for name in "ab":
            self.tell(ViewState(name, "live", 1, None, "", "", {"s": "in"}, None, "shop").record())

    def restarted(self) -> Applier:
        applier = Applier(self.cluster, self.schemas, self.store, **self.limits)
        applier.clock = lambda: self.now_s
        applier.follow(self.views)
        return applier

    def tell(self, record: NewRecord) -> None:
        self.cluster.writer().append([record])

    def fold(self, view: str, until: int) -> None:
        """The rows of the next events, as the view writes them."""
        for number in range(self.folded[view], until):
            ways = {"a": 5, "b": 3}[view]
            key, version = f"{view}{number % ways}", (1 << 40) + number // ways + 1
            row = {"city": None, "points": number // ways + 1, "_version": version}
            value = encode(1, parsed(json.loads(self.schemas.schema(1))), row)
            headers = (("hub.version", str(version).encode()),)
            self.tell(NewRecord(f"views.{view}", key.encode(), value, headers))
        self.folded[view] = max(until, self.folded[view])

    def progress(self, view: str) -> None:
        end = self.cluster.end_offsets([f"views.{view}"])
        sources = Positions.of([("in", 0, self.folded[view])])
        self.tell(Progress(view, 1, self.folded[view], "live", sources, end, 1, 1, 1).record())

    def cut(self, until: int) -> None:
        """Both views are at the same events, and the materializer says so."""
        for view in "ab":
            self.fold(view, until)
        assert set(self.folded.values()) == {until}
        self.told = until
        places = {view: Place(1, self.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"}
        self.tell(GroupCut("shop", Positions.of([("in", 0, until)]), places, until).record())

    def drain(self) -> None:
        while self.applier.step(0):
            pass
        self.applier.step(0)

    def answer(self) -> tuple[int, int, Common]:
        answer = self.queries.run(parse(BOTH), {}, Running(1e12), now_ms=1)
        return answer.rows[0][0] or 0, answer.rows[0][1] or 0, answer.cut

    def at(self) -> int | None:
        """How many events the cut has that the store is at; None: it is at none. What it says must be so."""
        of_a, of_b, common = self.answer()
        if not common.together:
            assert common.why
            return None
        ((_, events),) = common.at
        assert (of_a, of_b) == (events, events), "this is no cut"
        return events

    def close(self) -> None:
        self.queries.close()
        self.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.close()


def test_rows_beyond_the_cut_wait_and_both_views_move_in_one_transaction(world: World) -> None:
    world.cut(4)
    world.drain()
    assert world.at() == 4
    world.fold("a", 9)
    world.progress("a")
    world.drain()
    assert world.at() == 4  # the rows of a are there and nobody sees them
    assert len(world.applier.followed["a"].ahead) == 5
    world.fold("b", 9)
    world.drain()
    assert world.at() == 4
    world.store.transactions.clear()
    world.cut(9)
    world.fold("a", 11)
    world.drain()
    assert world.at() == 9
    assert world.store.transactions[0] == {"a", "b"}
    assert str(world.store.positions("a", "source")) == "in:0:9"


def test_a_cut_without_rows_moves_what_is_covered(world: World) -> None:
    world.cut(4)
    world.drain()
    places = {view: Place(1, world.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"}
    world.tell(GroupCut("shop", Positions.of([("in", 0, 7)]), places, 7).record())
    world.drain()
    assert [str(world.store.positions(view, "source")) for view in "ab"] == ["in:0:7", "in:0:7"]
    assert str(world.answer()[2].at) == "in:0:7"


def test_a_group_whose_cut_does_not_come_is_applied_as_it_comes_until_the_next_one(world: World) -> None:
    world.cut(4)
    world.drain()
    world.tell(GroupNote("shop", "apart", 'view "b" is failed', ("a", "b"), 1).record())
    world.fold("a", 9)
    world.drain()
    world.now_s = 5.5
    world.drain()
    of_a, of_b, common = world.answer()
    assert (of_a, of_b) == (9, 4)
    assert (common.name, common.together) == ("shop", False)
    assert common.detail == 'rows have waited for a cut for 5 s; view "b" is failed'
    world.fold("a", 10)  # free now: nothing waits
    world.drain()
    assert world.answer()[0] == 10
    world.tell(GroupNote("shop", "together", None, ("a", "b"), 2).record())
    world.cut(10)
    world.drain()
    assert world.at() == 10
    world.fold("a", 12)
    world.drain()
    assert world.at() == 10


def test_a_cut_that_the_rows_are_past_already_is_none_here_and_the_next_one_is(world: World) -> None:
    world.cut(4)
    world.drain()
    world.fold("a", 9)
    world.now_s = 1.0
    world.drain()
    world.now_s = 7.0
    world.drain()
    assert world.at() is None
    world.fold("b", 9)
    ends = {view: world.cluster.end_offsets([f"views.{view}"]) for view in "ab"}
    world.fold("a", 11)
    world.drain()  # a is past the cut before it is told
    world.tell(
        GroupCut(
            "shop", Positions.of([("in", 0, 9)]), {v: Place(1, ends[v], ("in",)) for v in "ab"}, 9
        ).record()
    )
    world.drain()
    assert world.at() is None
    world.fold("b", 11)
    world.fold("a", 12)
    world.drain()
    assert world.answer()[:2] == (11, 9)  # since it heard of a cut, it waits for the next
    world.cut(12)
    world.drain()
    assert world.at() == 12


def test_what_waits_is_bounded_and_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    world = World(tmp_path, most_waiting=20)
    world.cut(4)
    world.drain()
    world.fold("a", 500)
    world.store.rhythm = type(world.store.rhythm)(30)
    for _ in range(20):
        world.applier.step(0)
    waiting = len(world.applier.followed["a"].ahead)
    assert 20 < waiting <= 50, waiting
    assert world.applier.paused == {"a"}
    assert world.at() == 4
    world.cut(500)
    for _ in range(100):
        world.applier.step(0)
    # More rows than may wait: they cannot be applied at once, and are not kept from anybody for it.
    assert world.applier.paused == set()
    assert world.answer()[:2] == (500, 500)
    world.cut(505)
    world.drain()
    assert world.at() == 505
    world.close()


def test_a_view_that_is_stopped_leaves_the_other_free(world: World) -> None:
    world.cut(4)
    world.drain()
    world.tell(NewRecord("views.b", b"b0", b"\x00\x00\x00\x00\x07nothing", (("hub.version", b"9"),)))
    world.fold("a", 6)
    places = {view: Place(1, world.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"}
    world.tell(GroupCut("shop", Positions.of([("in", 0, 6)]), places, 6).record())
    world.drain()
    of_a, of_b, common = world.answer()
    assert (of_a, of_b, common.together) == (6, 4, False)
    assert 'view "b" is stopped in this store' in (common.detail or "")


def test_rows_applied_by_somebody_else_make_the_note_void(world: World) -> None:
    world.cut(4)
    world.drain()
    assert world.at() == 4
    world.store.apply([ViewBatch("a", [], Positions.of([("views.a", 0, 100)]))])
    assert world.answer()[2].why == 'the rows of view "a" are not at the cut of group "shop"'


def test_views_without_a_group_and_of_two_groups_say_so(world: World) -> None:
    world.cut(4)
    world.drain()
    world.tell(ViewState("b", "live", 1, None, "", "", {}, None, "other").record())
    world.drain()
    assert world.answer()[2].why == "they are of different groups: other, shop"
    world.tell(ViewState("b", "live", 1, None, "", "", {}).record())
    world.drain()
    assert world.answer()[2].why == 'view "b" is of no group: its file does not say `cut`'


def test_a_group_that_is_no_more_holds_nothing_and_its_note_goes(world: World) -> None:
    world.cut(4)
    world.drain()
    world.views = [each.model_copy(update={"cut": None}) for each in world.views]
    world.applier.follow(world.views)
    world.fold("a", 6)
    world.drain()
    assert world.answer()[0] == 6
    assert "cut:shop" not in world.store.progress()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_killed_a_cut_that_is_said_is_one(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path, seed, most_waiting=15)
    chance, seen = world.chance, set()
    for _ in range(150):
        what = chance.random()
        view = chance.choice("ab")
        if what < 0.3:
            most = min(world.folded.values()) + 12
            world.fold(view, min(most, world.folded[view] + chance.randint(1, 6)))
        elif what < 0.35:
            world.progress(view)
        elif what < 0.5:
            world.cut(max(world.folded.values()))
        elif what < 0.55:
            world.now_s += chance.choice((1.0, 3.0, 7.0))
        elif what < 0.59:
            world.applier = world.restarted()
        elif what < 0.63:
            world.store.dies = True
            try:
                world.applier.step(0)
            except Killed:
                world.applier = world.restarted()
            world.store.dies = False
        elif what < 0.65:
            world.applier.follow(world.views)
        else:
            world.store.rhythm = type(world.store.rhythm)(chance.choice((3, 10, 100)))
            world.applier.step(0)
        seen.add(world.at())
    world.store.rhythm = type(world.store.rhythm)(1_000)
    world.cut(max(world.folded.values()))
    world.drain()
    world.cut(max(world.folded.values()) + 1)
    world.drain()
    assert world.at() == world.folded["a"]
    assert len(seen) > 5
    world.close()


def test_a_kill_within_the_transaction_leaves_the_former_cut(world: World) -> None:
    world.cut(4)
    world.drain()
    world.fold("a", 6)
    world.cut(6)
    world.store.dies = True
    with pytest.raises(Killed):
        world.drain()
    assert world.at() == 4
    world.store.dies = False
    world.applier = world.restarted()
    world.drain()
    assert world.at() == 6
