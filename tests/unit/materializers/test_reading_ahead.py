"""Records polled and decoded while a store works on the previous step: none is lost or applied twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from changelog import CHANGELOG, Bench
from cut_world import Unsteady, World

from hub.errors import PeerError
from hub.materializers.applying.applier import Applier
from hub.materializers.stores.store import Rhythm
from hub.record import NewRecord


class Busily(Bench):
    """Two views, of one changelog each, into a busy store."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store.close()
        self.store = self.busy = Unsteady(f"sqlite:///{folder / 'store.db'}")
        self.store.rhythm = Rhythm(7)
        self.cluster.create_topic("views.w", partitions=2, config={}, replication_factor=1)
        self.other = self.view.model_copy(update={"view": "w"})
        self.applier = self.restarted()

    def restarted(self) -> Applier:
        applier = Applier(self.cluster, self.schemas, self.store)
        applier.many = 1
        applier.follow([self.view, self.other] if hasattr(self, "other") else [self.view])
        return applier

    def also_into_w(self, key: str, version: int, row: dict[str, Any] | None) -> None:
        """Write the row to the other view, too."""
        self.write(key, version, row)
        log = self.cluster.reader()
        log.assign(self.cluster.beginning_offsets([CHANGELOG]))
        record = [each for each in log.poll(10_000, 0) if each.key == key.encode()][-1]
        self.cluster.writer().append([NewRecord("views.w", record.key, record.value, record.headers)])

    def points(self, view: str) -> dict[str, Any]:
        return {row.key: (row.values or {})["points"] for row in self.store.select(view, [], 1_000, None)}


@pytest.fixture
def bench(tmp_path: Path) -> Busily:
    return Busily(tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_between_two_steps_the_rows_are_the_fold(bench: Busily, seed: int) -> None:
    chance, expected = random.Random(seed), dict[str, int]()
    for version in range(1, 120):
        key = chance.choice("abcdefghij")
        row = None if chance.random() < 0.3 else {"points": version}
        bench.also_into_w(key, version, row)
        if row is None:
            expected.pop(key, None)
        else:
            expected[key] = version
        if chance.random() < 0.1:
            bench.tell(version)
        what = chance.random()
        if what < 0.3:
            bench.applier.step(0)
        elif what < 0.36:
            bench.applier.follow([bench.view])
        elif what < 0.42:
            bench.applier.follow([bench.view, bench.other])
        elif what < 0.45:
            bench.applier = bench.restarted()
    bench.tell(120)
    bench.applier.follow([bench.view, bench.other])
    bench.drain()
    assert bench.points("v") == bench.points("w") == expected
    assert bench.busy.turns > 5
    assert str(bench.store.positions("v", "source")) == "in:0:120"


def test_a_step_is_of_one_poll_and_says_what_that_had(bench: Busily) -> None:
    for version in range(1, 18):
        bench.write(f"k{version}", version, {"points": version})
    assert [bench.applier.step(0) for _ in range(4)] == [7, 7, 3, 0]
    assert len(bench.points("v")) == 17


def test_what_cannot_be_read_stops_its_view_when_its_step_comes(bench: Busily) -> None:
    for version in range(1, 8):
        bench.also_into_w(f"k{version}", version, {"points": version})
    bad = NewRecord("views.w", b"bad", b"\x00\x00\x00\x00\x09?", (("hub.version", b"1"),))
    bench.cluster.writer().append([bad])
    for version in range(8, 30):
        bench.also_into_w(f"k{version}", version, {"points": version})
    bench.applier.step(0)
    assert bench.applier.followed["w"].stopped is None
    bench.drain()
    assert "schema 9" in (bench.applier.followed["w"].stopped or "")
    assert len(bench.points("v")) == 29
    assert "bad" not in bench.points("w")
    assert bench.store.progress()["state:w"]["state"] == "failed"


def test_rows_that_the_store_refuses_stop_their_view_and_no_other_loses_any(bench: Busily) -> None:
    bench.busy.refuses = "w"
    for version in range(1, 40):
        bench.also_into_w(f"k{version}", version, {"points": version})
    bench.tell(39)
    bench.drain()
    assert bench.points("w") == {} and len(bench.points("v")) == 39
    assert str(bench.store.positions("v", "source")) == "in:0:39"
    bench.busy.refuses = ""
    bench.applier.retry_stopped()
    bench.applier.follow([bench.view, bench.other])
    bench.drain()
    assert len(bench.points("w")) == 39


def test_a_log_that_is_away_while_the_store_works_does_the_store_no_harm(
    bench: Busily, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(1, 30):
        bench.write(f"k{version}", version, {"points": version})
    assert bench.applier.reader is not None
    first = bench.applier.reader.poll(7, 0)
    answers = iter([first])

    def poll(limit: int, timeout_s: float) -> Any:
        for each in answers:
            return each
        raise PeerError("the broker is away")

    monkeypatch.setattr(bench.applier.reader, "poll", poll)
    assert bench.applier.step(0) == 7
    assert len(bench.points("v")) == 7
    with pytest.raises(PeerError, match="away"):
        bench.applier.step(0)
    bench.applier = bench.restarted()
    bench.drain()
    assert len(bench.points("v")) == 29


def test_what_was_read_of_a_topic_that_is_made_anew_is_of_no_use(bench: Busily) -> None:
    for version in range(1, 20):
        bench.write(f"k{version}", version, {"points": version})
    assert bench.applier.step(0) == 7
    bench.cluster.delete_topic(CHANGELOG)
    bench.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
    bench.write("new", 1, {"points": 1})
    bench.applier.follow([bench.view])
    bench.drain()
    assert bench.points("v") == {"new": 1}


def test_a_cut_that_was_read_ahead_is_heard_though_reading_pauses(tmp_path: Path) -> None:
    world = World(tmp_path, most_waiting=5)
    world.applier.many = 1
    world.cut(2)
    world.drain()
    assert world.at() == 2
    for view in "ab":
        world.fold(view, 8)
    world.progress("a")
    world.cut(8)
    # All rows, so that both are full, and the progress; the cut is read ahead.
    world.store.rhythm = Rhythm(13)
    for _ in range(10):
        world.applier.step(0)
        assert world.at() in (2, 8)
    assert world.at() == 8
    world.close()
