"""Canaries: exact outcomes in any order of arrival; none is lost while a route is not read."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.monitor.canary import line
from hub.completeness.canary.probes import (
    FAIL_S,
    FORGET_S,
    LATE_S,
    WINDOW_S,
    Canary,
    CanaryRouteRow,
    CanaryState,
    Probe,
    probe_of,
    view_file,
    worst,
)
from hub.completeness.canary.routes import create_router, families
from hub.completeness.canary.runner import Canaries, body_of
from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryReader, Unreadable
from hub.materializers.definition.load import load_view
from hub.record import NewRecord, Record, TopicPartition


def started() -> Canary:
    made = Canary("r", 0.0)
    made.way("read", 0.0)
    return made


def row(canary: Canary, now_s: float, way: str = "read") -> CanaryRouteRow:
    canary.passed(now_s)
    return next(each for each in canary.rows(now_s) if each.way == way)


@given(
    st.lists(st.sampled_from(["came", "lost", "late", "twice"]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_every_probe_is_counted_as_what_became_of_it(fates: list[str], chance: random.Random) -> None:
    canary = started()
    probes = [canary.next(0, 0, 0.0) for _ in fates]
    both = list(zip(probes, fates, strict=True))
    chance.shuffle(both)
    for probe, fate in both:
        if fate in ("came", "twice"):
            canary.came("read", probe, 1.0)
    canary.passed(LATE_S + 1)
    for probe, fate in both:
        if fate == "late":
            canary.came("read", probe, LATE_S + 2)
        if fate == "twice":
            canary.came("read", probe, LATE_S + 2)
    found = row(canary, LATE_S + 3)
    count = {name: fates.count(name) for name in ("came", "lost", "late", "twice")}
    assert (found.lost, found.late, found.repeated) == (count["lost"], count["late"], count["twice"])
    assert found.read == count["came"] + count["late"] + count["twice"]
    assert found.expected == len(fates) == found.read + found.lost + found.waiting


def test_states_from_unknown_to_failing_and_back() -> None:
    canary = started()
    assert row(canary, 0.0).state is CanaryState.UNKNOWN
    first = canary.next(0, 0, 0.0)
    assert row(canary, 0.5).state is CanaryState.UNKNOWN
    canary.came("read", first, 0.5)
    assert row(canary, 1.0).state is CanaryState.OK
    waiting = [canary.next(0, 0, 1.0 + number) for number in range(3)]
    assert row(canary, 10.0).state is CanaryState.OK
    losing = row(canary, 4.0 + LATE_S)
    assert (losing.state, losing.lost) == (CanaryState.LOSING, 3)
    failing = row(canary, 4.0 + FAIL_S)
    assert (failing.state, failing.cause) == (CanaryState.FAILING, "nothing came for 34 s")
    for each in waiting:
        canary.came("read", each, 40.0)
    late = row(canary, 41.0)
    assert (late.state, late.lost, late.late) == (CanaryState.LATE, 0, 3)
    assert row(canary, 41.0 + WINDOW_S).state is CanaryState.OK


def test_a_way_that_nobody_reads_is_unknown_and_loses_nothing() -> None:
    canary = started()
    for number in range(5):
        canary.next(0, 0, float(number))
    canary.ways["read"].blind("its reader is away")
    found = row(canary, 100.0)
    assert (found.state, found.cause, found.lost) == (CanaryState.UNKNOWN, "its reader is away", 0)
    canary.next(0, 0, 100.0)
    canary.ways["read"].blind(None)
    assert row(canary, 200.0).lost == 0  # it was not expected on that route
    canary.came("read", canary.next(0, 0, 201.0), 201.1)
    assert row(canary, 202.0).state is CanaryState.OK


def test_what_kafka_did_not_take_is_lost_nowhere_but_at_kafka() -> None:
    canary = started()
    probe = canary.next(0, 0, 0.0)
    canary.refused(probe)
    assert row(canary, FAIL_S + 1).expected == 0
    acked = row(canary, FAIL_S + 1, "ack")
    assert (acked.state, acked.lost) == (CanaryState.FAILING, 1)
    canary.came("read", probe, FAIL_S + 2)  # it was in the log after all
    assert row(canary, FAIL_S + 3).repeated == 0


def test_memory_is_bounded_by_the_time_after_which_probes_are_forgotten() -> None:
    canary = started()
    for number in range(2_000):
        canary.next(0, 0, float(number))
        canary.passed(float(number))
    assert all(len(way.open) <= FORGET_S + 2 for way in canary.ways.values())
    assert row(canary, 2_000.0).lost >= 2_000 - LATE_S - 1


def test_order_and_other_senders() -> None:
    canary = started()
    one, two = canary.next(0, 0, 0.0), canary.next(0, 0, 0.0)
    canary.came("read", two, 0.1)
    canary.came("read", one, 0.2)
    canary.came("read", Probe("another", 0, 0, 0), 0.3)
    found = row(canary, 1.0)
    assert (found.read, found.reordered, found.repeated) == (2, 1, 0)


def test_a_row_of_the_view_says_what_came_unless_it_has_a_hole() -> None:
    canary = started()
    canary.way("view", 0.0)
    for _ in range(4):
        canary.next(0, 0, 0.0)
    canary.shown("view", 0, seq=1, count=2, now_s=1.0)
    assert row(canary, 1.0, "view").read == 2
    canary.shown("view", 0, seq=3, count=3, now_s=1.0)  # one of 2 and 3 is missing, and 3 has arrived
    found = row(canary, LATE_S + 5, "view")
    assert (found.read, found.lost) == (3, 1)


def test_the_view_that_is_printed_loads(tmp_path: Path) -> None:
    file = tmp_path / "hub_canary.yaml"
    file.write_text(view_file("_hub.canary"))
    assert load_view(file).view == "hub_canary"


def test_a_probe_comes_back_from_its_record() -> None:
    probe = Probe("run1", 3, 17, 99)
    new = probe.record("t", 1)
    stored = Record("t", 3, 0, 99, new.key, new.value, new.headers)
    assert probe_of(stored) == probe
    assert probe_of(Record("t", 3, 0, 99, None, b"x")) is None


def test_the_whole_is_its_worst_way_that_is_known() -> None:
    canary = started()
    canary.way("view", 0.0).blind("no view takes them")
    probe = canary.next(0, 0, 0.0)
    canary.acknowledged(probe, 0.1)
    canary.came("read", probe, 0.1)
    assert worst(canary.rows(1.0)) == (CanaryState.OK, "ack: all came in time")
    assert worst([]) == (CanaryState.UNKNOWN, "nothing was sent yet")
    shown: dict[str, Any] = {
        name: getattr(row(canary, 1.0, "view"), name) for name in CanaryRouteRow.__dataclass_fields__
    }
    assert (line(shown)["p50"], line(shown)["read"]) == ("–", "0")


def test_off_is_said_as_off() -> None:
    app = FastAPI()
    app.include_router(create_router(None))
    body = TestClient(app).get("/api/canary").json()
    assert (body["enabled"], body["state"]) == (False, "UNKNOWN")
    assert body == body_of(None)
    assert list(families(None)) == []


def test_a_mirror_that_is_called_as_a_way_is_another_way() -> None:
    canaries = Canaries(None, None, "t", {"read": None}, row=lambda key: None)  # type: ignore[arg-type, dict-item]
    began: list[str] = []

    def broken(name: str) -> None:
        began.append(name)
        canaries.stopping.set()
        raise PeerError(f"{name} does not answer")

    canaries.run_forever("mirror:read", lambda: broken("the mirror's target"))
    ways = canaries.canary.ways
    assert ways["mirror:read"].why == "the mirror's target does not answer"
    assert ways["read"].why == "no reader yet" and began == ["the mirror's target"]


def test_what_cannot_be_read_is_passed_on_a_way() -> None:
    """Regression: an unreadable record of another producer blocked a route forever, and its canaries counted
    as lost.
    """
    cluster: Any = MemoryCluster()
    cluster.create_topic("t", partitions=2, config={}, replication_factor=1)
    canaries = Canaries(cluster, None, "t")  # type: ignore[arg-type]
    place = TopicPartition("t", 0)

    class Poisoned(MemoryReader):
        def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
            if not cluster.logs["t"][
                0
            ]:  # the route begins at the end; then another producer's record and canaries arrive
                probes = [canaries.canary.next(partition, 0, time.monotonic()) for partition in range(2)]
                for each in probes:
                    canaries.canary.acknowledged(each, time.monotonic())
                records = [NewRecord("t", None, b"", partition=0), *(each.record("t", 1) for each in probes)]
                cluster.writer().append(records)
            if self.positions[place] == 0:
                raise Unreadable("a header there has a name that is not UTF-8", place, 0)
            found = super().poll(limit, timeout_s)
            if found:
                canaries.stopping.set()
            return found

    cluster.reader = lambda queue_kb: Poisoned(cluster)
    canaries.read_events("read", cluster)
    assert canaries.canary.ways["read"].read == 2


def test_no_way_is_open_because_nothing_is_sent_any_more() -> None:
    canaries = Canaries(None, None, "t")  # type: ignore[arg-type]
    canaries.canary.ways["read"].blind(None)

    def sent(now_s: float) -> None:
        probe = canaries.canary.next(0, 0, now_s)
        canaries.canary.acknowledged(probe, now_s)
        canaries.canary.came("read", probe, now_s)

    sent(time.monotonic() - 100.0)
    canaries.mark_unknown("send", "the registry does not answer")
    assert {(each.state, each.lost) for each in canaries.rows()} == {(CanaryState.UNKNOWN, 0)}
    state, cause = canaries.state()
    assert state is CanaryState.UNKNOWN and cause == "none was sent for 100 s: the registry does not answer"
    sent(time.monotonic())
    assert canaries.state()[0] is CanaryState.OK
