"""The lease of a home: of many materializers one computes, whatever dies, sleeps, or is compacted away."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.materializers.engine.standby import lease_thread
from hub.materializers.engine.standby.lease import (
    Lease,
    LeaseRecord,
    LeaseStep,
    lease_record_of,
    next_step,
)
from hub.materializers.engine.standby.lease_thread import LeaseThread
from hub.materializers.engine.standby.place import has_ended, own_place
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import Positions

LIMIT_S = 6.0


def held(run: str, epoch: int) -> LeaseRecord:
    return LeaseRecord("home", run, epoch, "held", f"place of {run}", 0)


def test_of_two_claims_of_one_epoch_the_first_in_the_log_has_the_lease() -> None:
    lease = Lease().after(held("a", 1)).after(held("b", 1))
    assert (lease.run, lease.epoch, lease.contested) == ("a", 1, True)
    assert next_step(lease, "a", had_it=True, silent_s=0, limit_s=6, gone=False) is LeaseStep.CLAIM
    assert next_step(lease, "b", had_it=False, silent_s=0, limit_s=6, gone=False) is LeaseStep.WAIT
    again = lease.after(held("a", 2))
    assert (again.run, again.contested) == ("a", False)
    # Compaction has dropped the first claim of a: whoever reads now finds the same.
    assert Lease().after(held("b", 1)).after(held("a", 2)) == again


def test_a_holder_that_slept_does_not_get_the_lease_back_by_writing() -> None:
    lease = Lease().after(held("a", 1)).after(held("b", 2))
    assert lease.after(held("a", 1)).run == "b"
    assert next_step(lease, "a", had_it=True, silent_s=0, limit_s=6, gone=False) is LeaseStep.LOST


def test_a_record_comes_back_from_the_log_as_it_was() -> None:
    record = LeaseRecord("0f3a", "b7c9", 3, "released", "pid:[1] 7 x/9", 12)
    new = record.record()
    assert new.key is not None and new.value is not None
    assert lease_record_of(new.key.decode(), new.value) == record


class Room:
    """Processes with one home, and a time that only ``pass_s`` moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.cluster = MemoryCluster()
        self.cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.awake: dict[str, LeaseThread] = {}
        self.asleep: dict[str, LeaseThread] = {}
        self.seen_to_end: set[str] = set()
        monkeypatch.setattr(lease_thread.time, "monotonic", lambda: self.now_s)

    def enter(self, run: str) -> None:
        ended: Callable[[str], bool] = lambda place: place in self.seen_to_end
        self.awake[run] = LeaseThread(self.cluster, "home", run, f"{run}", LIMIT_S, ended=ended)

    def pass_s(self, seconds: float) -> None:
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s += 0.5
            for run, process in list(self.awake.items()):
                process.step()
                if process.is_lost:
                    del self.awake[run]

    def holders(self) -> list[str]:
        return [run for run, process in self.awake.items() if process.wait(0)]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def test_one_computes_and_the_other_takes_over_when_it_is_silent(room: Room) -> None:
    room.enter("a")
    room.pass_s(1)
    room.enter("b")
    room.pass_s(100)
    assert room.holders() == ["a"]
    del room.awake["a"]
    room.pass_s(LIMIT_S - 1.0)
    assert room.holders() == []
    room.pass_s(3.0)
    assert room.holders() == ["b"]


def test_a_holder_that_is_seen_to_end_is_replaced_at_once(room: Room) -> None:
    room.enter("a")
    room.enter("b")
    room.pass_s(2)
    del room.awake["a"]
    room.seen_to_end.add("a")
    room.pass_s(1)
    assert room.holders() == ["b"]


def test_a_lease_that_is_given_back_is_taken_at_once(room: Room) -> None:
    room.enter("a")
    room.pass_s(1)
    with room.awake.pop("a").running():
        pass
    room.enter("b")
    room.pass_s(1)
    assert room.holders() == ["b"]


def test_nobody_takes_over_while_kafka_does_not_answer(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.enter("a")
    room.enter("b")
    room.pass_s(2)

    def away(*_: object, **__: object) -> Positions:
        raise PeerError("away")

    with monkeypatch.context() as patch:
        patch.setattr(room.cluster, "end_offsets", away)
        room.pass_s(10 * LIMIT_S)
    room.pass_s(LIMIT_S - 2)
    assert room.holders() == ["a"]


def test_a_holder_alone_writes_nothing_more(room: Room) -> None:
    room.enter("a")
    room.pass_s(5)
    before = room.cluster.end_offsets([PROGRESS_TOPIC])
    room.pass_s(500)
    assert room.cluster.end_offsets([PROGRESS_TOPIC]) == before


@pytest.mark.parametrize("seed", range(30))
def test_never_two_and_in_the_end_one(room: Room, seed: int) -> None:
    chance = random.Random(seed)
    made = 0
    for _ in range(120):
        match chance.choice(("enter", "kill", "sleep", "wake", "pass", "pass", "leave")):
            case "enter" if len(room.awake) < 4:
                made += 1
                room.enter(f"r{made}")
            case "kill" if room.awake:
                room.awake.pop(run := chance.choice(sorted(room.awake)))
                if chance.random() < 0.3:
                    room.seen_to_end.add(run)
            case "sleep" if room.awake:
                run = chance.choice(sorted(room.awake))
                room.asleep[run] = room.awake.pop(run)
            case "wake" if room.asleep:
                run = chance.choice(sorted(room.asleep))
                room.awake[run] = room.asleep.pop(run)
                room.awake[run].step()  # it reads before it computes on
                if room.awake[run].is_lost:
                    del room.awake[run]
            case "leave" if room.awake:
                with room.awake.pop(chance.choice(sorted(room.awake))).running():
                    pass
            case _:
                room.pass_s(chance.choice((0.5, 1, 3, LIMIT_S, 4 * LIMIT_S)))
        assert len(room.holders()) <= 1
    room.enter("last")
    room.pass_s(3 * LIMIT_S)
    assert len(room.holders()) == 1


def test_only_an_end_that_is_seen_is_an_end() -> None:
    assert own_place() and not has_ended(own_place())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        place = own_place().replace(f" {os.getpid()} ", f" {other.pid} ")
        other.kill()
    assert has_ended(place)
    assert not has_ended("") and not has_ended("pid:[1] 1 elsewhere/1") and not has_ended("nonsense")
