"""Snapshot groups in a store: the store never claims to be at a snapshot that it is not at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cut_world import Killed, World
from pydantic import ValidationError

from hub.materializers.definition.entity_view import View
from hub.materializers.progress.records import ViewState
from hub.materializers.snapshot_groups.group import GroupNote, GroupSnapshot, MemberPosition
from hub.materializers.stores.store import ViewBatch
from hub.record import NewRecord, Positions


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
    assert world.at() == 4  # the rows of a are there and hidden
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
    places = {view: MemberPosition(1, world.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"}
    world.tell(GroupSnapshot("shop", Positions.of([("in", 0, 7)]), places, 7).record())
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
    world.drain()  # a is past the snapshot before it is published
    world.tell(
        GroupSnapshot(
            "shop", Positions.of([("in", 0, 9)]), {v: MemberPosition(1, ends[v], ("in",)) for v in "ab"}, 9
        ).record()
    )
    world.drain()
    assert world.at() is None
    world.fold("b", 11)
    world.fold("a", 12)
    world.drain()
    assert world.answer()[:2] == (11, 9)  # it received a snapshot and waits for the next
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
    # More rows than may wait: they cannot be applied at once, and stay visible.
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
    places = {view: MemberPosition(1, world.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"}
    world.tell(GroupSnapshot("shop", Positions.of([("in", 0, 6)]), places, 6).record())
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
    world.rampage(150)
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


def test_a_view_of_a_group_runs_in_batches() -> None:
    body = {"view": "v", "sources": {"s": {"topic": "in", "key": "k"}}, "fields": {"n": "s.n"}, "cut": "shop"}
    assert View.model_validate(body).cut == "shop"
    with pytest.raises(ValidationError, match="real-time mode stops nowhere"):
        View.model_validate({**body, "mode": "realtime"})
