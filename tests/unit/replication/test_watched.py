"""Reports about a mirror: by status, metrics, the watchdog and continuous verification."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from mirror_statuses import MARK, PLACE, T, board, partition, status
from prometheus_client import CollectorRegistry, generate_latest

from hub.errors import PeerError
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.status_records import (
    CarriedTopic,
    GroupPlace,
    GroupStatus,
    LinkContents,
    SourceEnds,
    VerifiedRange,
    copy_of,
)
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.engine.shard_state import PartitionProgress
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.ownership.links import links
from hub.replication.ownership.shards import Shard
from hub.replication.status.metrics import families
from hub.replication.status.mirror_status import summary_of
from hub.replication.verification.continuous_check import (
    MOST_OFFSETS,
    ContinuousVerification,
    after,
    begun,
    of_everything,
)
from hub.replication.verification.digest import Digest
from hub.replication.verification.verify import ComparedPartition, PartitionVerdict
from hub.replication.worker.status_reports import HUNG_S, PATIENCE_MS, StatusReports

# ---- the watchdog


@dataclass
class StagedRun:
    """A shard's thread as the fleet sees it."""

    position: int = 5
    held: str = ""
    throttled: bool = False
    state: str = "mirroring"
    reason: str = ""
    name: str = "m.0"
    ticked_at_s: float = 0.0
    restarted: list[float] = field(default_factory=list)

    @property
    def progress(self) -> tuple[PartitionProgress, ...]:
        return (PartitionProgress(T, 0, self.position, 90, 90, 5, 1, 9, 1, 0, 0, -1, 3, None),)

    def restart(self) -> None:
        self.restarted.append(self.ticked_at_s)


SHARD = Shard("m", 0)


def reports(sent: list[NewRecord] | None = None) -> StatusReports:
    return StatusReports("w1", (sent if sent is not None else []).append)


def told(made: StatusReports, run: StagedRun, now_s: float) -> dict[str, Any]:
    said = made.status(SHARD, run, run.progress[0], now_s)  # type: ignore[arg-type]
    return status(replace(said, at_ms=49_000).record())


def watch(made: StatusReports, run: StagedRun, now_s: float) -> None:
    made.watch({SHARD: run}, now_s)  # type: ignore[dict-item]


def test_a_shard_that_does_not_get_on_is_restarted_and_the_second_time_it_is_an_alarm() -> None:
    run = StagedRun()
    made = reports()
    now_s = 0.0
    seen = []
    while now_s < PATIENCE_MS / 1000 * 3.5:
        now_s += 5.0
        run.ticked_at_s = now_s
        watch(made, run, now_s)
        found = told(made, run, now_s)
        seen.append((len(run.restarted), found["state"], found["restarts"]))
    assert (0, "mirroring", 0) in seen and (1, "mirroring", 1) in seen
    times, state, restarts = seen[-1]
    assert (times, state, restarts) == (2, "trouble", 2)
    found = told(made, run, now_s)
    assert not found["ok"] and "was restarted 2 times" in found["partitions"][0]["reason"]

    run.position, run.ticked_at_s = 90, now_s + 1
    watch(made, run, now_s + 1)
    found = told(made, run, now_s + 1)
    assert (found["state"], found["restarts"]) == ("mirroring", 0)


def test_a_shard_whose_thread_hangs_is_an_alarm_until_it_ticks() -> None:
    run = StagedRun(position=90)
    made = reports()
    watch(made, run, HUNG_S + 1)
    for later_s in (1, 2):
        watch(made, run, HUNG_S + 1 + later_s)
        assert told(made, run, HUNG_S + 1 + later_s)["state"] == "trouble"
    assert len(run.restarted) == 1
    run.ticked_at_s = HUNG_S + 5
    watch(made, run, HUNG_S + 6)
    assert told(made, run, HUNG_S + 6)["state"] == "mirroring"


@dataclass
class StagedChores:
    carries: LinkContents = field(default_factory=lambda: LinkContents("m", {T: CarriedTopic(1, "s")}))
    ticked_at_s: float = 0.0
    groups: tuple[GroupStatus, ...] = ()
    ends: SourceEnds | None = None
    verified: dict[TopicPartition, VerifiedRange] = field(default_factory=dict)


def test_chores_that_do_not_come_round_are_told_of_and_nothing_is_dropped_for_it() -> None:
    sent: list[NewRecord] = []
    made, chores = reports(sent), StagedChores()
    states = []
    for now_s, ticked_at_s in ((HUNG_S - 1, 0.0), (HUNG_S + 1, 0.0), (HUNG_S + 2, HUNG_S + 2)):
        chores.ticked_at_s = ticked_at_s
        made.report({}, {Shard("m", -1): chores}, now_s)  # type: ignore[dict-item]
        found = status(sent[-1], partition())
        states.append((found["state"], found["topics"], "groups were not looked at" in found["reason"]))
    assert states == [("mirroring", 1, False), ("trouble", 1, True), ("mirroring", 1, False)]


# ---- compared all the time


def verdict(first: int, end: int, differs_at: int | None = None, **more: Any) -> PartitionVerdict:
    return PartitionVerdict(PLACE, first, end, end - first, Digest(), differs_at, **more)


class StagedVerifier:
    """Answers in turn; what it was asked for."""

    def __init__(self, *answers: PartitionVerdict | Exception) -> None:
        self.answers, self.asked = list(answers), list[int | None]()

    def verify(self, each: ComparedPartition, newest: int | None = None) -> PartitionVerdict:
        self.asked.append(newest)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        pass


class StagedKafka:
    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}

    def known_ends(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in places if tp in self.ends}

    def topic_config(self, topics: list[str]) -> dict[str, dict[str, str]]:
        return {}


class StagedSide:
    def __init__(self) -> None:
        self.kafka = StagedKafka()


def rolling(*answers: PartitionVerdict | Exception) -> tuple[ContinuousVerification, StagedVerifier]:
    made, verifier = ContinuousVerification(StagedSide(), StagedSide(), "m", {}), StagedVerifier(*answers)  # type: ignore[arg-type]
    made._verifier = verifier  # type: ignore[assignment]
    return made, verifier


def known(upto: int, partitions: int = 1) -> WrittenState:
    progress = WrittenState()
    for number in range(partitions):
        mark = replace(MARK, partition=number, source_next=upto, target_next=upto)
        table = OffsetMap.of(
            [Run(10, 10, upto - 10)], source_start=10, target_start=10, source_next=upto, target_next=upto
        )
        progress.checkpoints["m", T, number] = mark
        progress._tables["m", T, number] = mark, table
    return progress


def test_what_is_new_is_compared_and_what_there_was_no_time_for_is_counted() -> None:
    made, verifier = rolling(verdict(10, 100), verdict(1_000, 1_500))
    places = {PLACE: ()}
    first = made.step(known(100), places)
    assert first is not None and (first.to, first.compared, first.skipped) == (100, 90, 0)
    assert made.step(known(100), places) is None
    second = made.step(known(1_500), places)
    assert second is not None and (second.to, second.compared, second.skipped) == (1_500, 590, 900)
    assert verifier.asked == [90, MOST_OFFSETS]


def test_partitions_take_turns_and_those_that_may_not_be_compared_are_left_out() -> None:
    made, _ = rolling(*(verdict(10, 100) for _ in range(2)))
    places = {TopicPartition(T, n): () for n in (0, 2)}
    found = [made.step(known(100, 3), places) for _ in range(3)]
    assert [each.partition if each is not None else None for each in found] == [0, 2, None]


def test_a_difference_is_looked_at_again_before_it_is_told_and_stays_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hub.replication.verification.continuous_check._LOOK_AGAIN_S", 0.0)
    made, _ = rolling(verdict(10, 100, 99), verdict(10, 100))
    first = made.step(known(100), {PLACE: ()})
    assert first is not None and first.differs_at is None
    bad = verdict(100, 200, 150, why="it is missing at the target")
    made, _ = rolling(bad, bad, bad, verdict(200, 300))
    found = made.step(known(200), {PLACE: ()})
    assert found is not None and (found.differs_at, found.why) == (150, "it is missing at the target")
    found = made.step(known(300), {PLACE: ()})
    assert found is not None and (found.to, found.differs_at) == (300, 150)
    # Only a comparison of all of it takes it back; or another copy.
    whole = of_everything("m", replace(MARK, source_next=300), verdict(10, 300), found.at_ms + 1)
    made.remember({PLACE: whole})
    assert made.known[PLACE].differs_at is None
    made.remember({PLACE: found})
    assert made.known[PLACE].differs_at is None
    anew = begun(found, "m", replace(MARK, target_topic_id="another"))
    assert (anew.to, anew.differs_at, anew.compared) == (10, None, 0)


def test_a_copy_that_the_mirror_does_not_write_to_is_looked_at_when_somebody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hub.replication.verification.continuous_check._LOOK_AGAIN_S", 0.0)
    bad = verdict(100, 100, 100, why="foreign")
    made, verifier = rolling(verdict(10, 100), verdict(100, 100), bad, bad, bad)
    ends = made.target.kafka.ends  # type: ignore[attr-defined]
    assert made.step(known(100), {PLACE: ()}) is not None and made.step(known(100), {PLACE: ()}) is None
    ends[PLACE] = 101  # the mirror's own marker
    found = made.step(known(100), {PLACE: ()})
    assert found is not None and (found.to, found.differs_at) == (100, None)
    assert made.step(known(100), {PLACE: ()}) is None
    ends[PLACE] = 102
    found = made.step(known(100), {PLACE: ()})
    assert found is not None and (found.to, found.differs_at, found.why) == (100, 100, "foreign")
    assert verifier.asked == [90, 0, 0, 0, 0]


def test_a_side_that_does_not_answer_is_no_difference() -> None:
    made, _ = rolling(PeerError("away"))
    assert made.step(known(100), {PLACE: ()}) is None and made.known == {}
    before = begun(None, "m", MARK)
    held = after(before, MARK, verdict(0, 0, compared=False, why="gone"), 7)
    assert (held.to, held.why, held.at_ms) == (10, "gone", 7)


# ---- status and series


def samples(*statuses: dict[str, Any]) -> dict[str, float]:
    class Of:
        def collect(self) -> Any:
            return families(statuses)

    registry = CollectorRegistry()
    registry.register(Of())
    lines = generate_latest(registry).decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
    }


def test_lag_rpo_heartbeats_and_comparisons_are_in_status_and_in_series() -> None:
    run = StagedRun(position=60)
    made = reports()
    partition = replace(made.status(SHARD, run, run.progress[0], time.monotonic()), at_ms=49_000)  # type: ignore[arg-type]
    partition = replace(partition, source_end=130, lag_records=30, lag_bytes=600, lag_s=2.5)
    group = GroupStatus("m", "readers", (GroupPlace(T, 0, "pending", "", 120, 110, 7, 2),), 49_000)
    seen = VerifiedRange("m", T, 0, copy_of(MARK), 90, 70, 10, at_ms=45_000)
    found = status(partition.record(), group.record(), seen.record())
    assert found["heartbeats"] == [{"worker": "w1", "host": "host", "pid": 7, "shards": [0], "ago_s": 2.0}]
    assert (found["verified_records"], found["unverified_records"], found["verified_s"]) == (70, 20, 5.0)
    assert found["groups"][0]["rpo_records"] == 7 and found["groups"][0]["rpo_s"] == 2.5

    series = samples(found, {"mirror": "gone", "state": "unknown", "reason": "away", "ok": False})
    of = f'{{mirror="m",partition="0",topic="{T}"}}'
    assert series[f"hub_mirror_lag_records{of}"] == 30
    assert series[f"hub_mirror_lag_bytes{of}"] == 600
    assert series[f"hub_mirror_lag_seconds{of}"] == 2.5
    for name, value in (
        ("up", 1),
        ("workers", 1),
        ("heartbeat_age_seconds", 2),
        ("verified_records", 70),
        ("unverified_offsets", 20),
        ("verified_age_seconds", 5),
        ("different_partitions", 0),
        ("restarts", 0),
        ("gaps", 0),
    ):
        assert series[f'hub_mirror_{name}{{mirror="m"}}'] == value, name
    of = '{group="readers",mirror="m"}'
    assert series[f"hub_mirror_group_rpo_records{of}"] == 7
    assert series[f"hub_mirror_group_rpo_seconds{of}"] == 2.5
    assert series[f"hub_mirror_group_redelivered_records{of}"] == 2
    assert series['hub_mirror_state{mirror="m",state="mirroring"}'] == 1
    assert series['hub_mirror_up{mirror="gone"}'] == 0
    assert series['hub_mirror_state{mirror="gone",state="unknown"}'] == 1
    assert 'hub_mirror_workers{mirror="gone"}' not in series  # what is not known has no sample


def test_a_copy_that_differs_is_trouble_and_of_a_former_copy_nothing_is_said() -> None:
    bad = VerifiedRange("m", T, 0, copy_of(MARK), 90, 70, 0, 33, "the records differ", 45_000)
    found = status(bad.record())
    assert (found["state"], found["ok"], found["different"]) == ("trouble", False, 1)
    assert "at offset 33: hub mirror verify m" in found["reason"]
    assert samples(found)['hub_mirror_different_partitions{mirror="m"}'] == 1
    former = status(partition(), replace(bad, copy="s>former").record())
    assert (former["state"], former["different"], former["verified_s"]) == ("mirroring", 0, None)


def test_only_the_worst_have_series_of_their_own() -> None:
    found = status()
    (row,) = found["partitions"]
    rows = [{**row, "partition": n, "lag_records": n, "lag_bytes": n, "lag_s": n} for n in range(5)]

    class Of:
        def collect(self) -> Any:
            return families([{**found, "partitions": rows}], most=2)

    registry = CollectorRegistry()
    registry.register(Of())
    text = generate_latest(registry).decode()
    assert [n for n in range(5) if f'hub_mirror_lag_records{{mirror="m",partition="{n}"' in text] == [3, 4]


def test_what_a_mirror_does_not_carry_any_more_is_not_late() -> None:
    """Its topic was deleted with five offsets to go, or its target acts for its source by now."""
    gone = TopicPartition("nyc.gone", 0)
    progress = WrittenState(checkpoints={("m", *PLACE): MARK, ("m", *gone): replace(MARK, topic=gone.topic)})
    left = partition(topic=gone.topic, source_end=105, lag_records=5, lag_bytes=50, lag_s=3.0)
    found = status(partition(), left, progress=progress)
    assert [row["state"] for row in found["partitions"]] == ["mirroring", "left"]
    assert (found["lag_records"], found["lag_bytes"], found["lag_s"]) == (0, 0, 0.0)
    assert samples(found)['hub_mirror_stopped_partitions{mirror="m"}'] == 0
    # One that is refused stands still, and is late by that.
    refused = LinkContents("m", {T: CarriedTopic(1, "s")}, {gone.topic: "made again"}).record()
    found = status(partition(), left, refused, progress=progress)
    assert (found["lag_records"], found["lag_s"]) == (5, 3.0)
    assert samples(found)['hub_mirror_stopped_partitions{mirror="m"}'] == 1


def test_a_mirror_outside_its_schedule_is_paused_and_says_until_when() -> None:
    mirror = {"source": "nyc", "target": "lon", "topics": ["nyc.**"]}
    windows = [{"days": ["fri"], "from": "22:00", "to": "23:00"}]
    clusters = {"nyc": {"bootstrap": "a:1", "owns": ["nyc.**"]}, "lon": {"bootstrap": "b:1"}}
    scheduled = MirrorsFile.model_validate(
        {
            "clusters": clusters,
            "mirrors": {"m": {**mirror, "schedule": {"zone": "UTC", "windows": windows}}},
        }
    )
    link = links(scheduled)["m"]
    found = summary_of(scheduled, link, board(), WrittenState(), 50_000)  # a Thursday, 1970-01-01
    assert (found["state"], found["reason"]) == (
        "paused",
        "outside its schedule: continues Fri 1970-01-02 22:00 UTC",
    )
