"""The monitor over an in-memory cluster: its requests, and the state that it keeps and forgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.errors import HubError, PeerError
from hub.log import GroupDescription, MemoryCluster
from hub.observability.export.routes import create_router
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.judge import LagRules
from hub.observability.overview import consumer_list, partition_facts
from hub.observability.overview.collector import Collector
from hub.observability.overview.mirror_readers import MIRROR_SILENT_S, MirrorStatuses, readers_of
from hub.observability.overview.monitor import Monitor, worst_first
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.worker.fleet import STATUS_S
from hub.replication.worker.status_reports import STATUS_AGAIN_S


@dataclass
class Estate(MemoryCluster):
    """Topics, and groups that a test sets. ``beginnings`` and ``hollow`` are by topic, of partition 0."""

    committed: dict[str, Positions | HubError] = field(default_factory=dict)
    members: dict[str, GroupDescription] = field(default_factory=dict)
    beginnings: dict[str, int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    hollow: dict[str, int] = field(default_factory=dict)
    away: bool = False
    asked: list[str] = field(default_factory=list)

    def groups(self) -> Sequence[str]:
        if self.away:
            raise PeerError("Kafka does not answer")
        return sorted(self.committed)

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        self.asked += groups
        return {group: self.committed.get(group, Positions()) for group in groups}

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        return {group: self.members.get(group, GroupDescription(group, "EMPTY", 0)) for group in groups}

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return Positions({tp: self.beginnings.get(tp.topic, 0) for tp in partitions})

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return Positions({tp: len(self.logs[tp.topic][tp.partition]) for tp in partitions})

    def offsets_by_time(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        return {
            tp: next(
                (each.offset for each in self.logs[tp.topic][tp.partition] if each.timestamp_ms >= at_ms),
                None,
            )
            for tp, at_ms in wanted.items()
        }

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        return Positions({tp: max(offset, self.hollow.get(tp.topic, 0)) for tp, offset in positions})

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        return {name: self.configs.get(name, {}) for name in names}  # type: ignore[misc]


@dataclass
class Views:
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        return self.records

    def row_counts(self) -> Mapping[str, int]:
        return {}

    def subscribers(self) -> Mapping[str, int]:
        return {}

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        return None

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        return []


class Stage:
    """A monitor whose clock is moved by hand, a round every ten seconds of it."""

    def __init__(self) -> None:
        self.estate, self.views = Estate(now_ms=10**12), Views()
        self.collector = Collector(self.estate, self.views, now_ms=lambda: self.estate.now_ms)
        self.mirrors = MirrorStatuses()
        self.monitor = Monitor(
            self.estate,
            self.collector,
            LagRules(),
            lambda topic: f"owner of {topic}",
            lambda now_ms: readers_of(self.mirrors, now_ms),
        )

    def topic(self, name: str, **config: str) -> None:
        self.estate.create_topic(name, partitions=1, config={}, replication_factor=1)
        self.estate.configs[name] = {key.replace("_", "."): value for key, value in config.items()}

    def publish(self, topic: str, count: int) -> None:
        self.estate.writer().append([NewRecord(topic, b"k", b"v", partition=0)] * count)

    def commit(self, group: str, topic: str, position: int) -> None:
        self.estate.committed[group] = Positions.of([(topic, 0, position)])

    def mirror(
        self, position: int, end: int, *, here: bool = False, seen_s: float = 1.0, **said: Any
    ) -> None:
        """Set the status of a mirror that carries ``t`` from nyc to lon. ``seen_s``: age of its worker's
        report."""
        row: dict[str, Any] = {"topic": "t", "partition": 0, "state": "mirroring", "reason": ""}
        row |= {"source_next": position, "source_end": end, "seen_s": seen_s, **said.pop("row", {})}
        status = {
            "mirror": "m",
            "source": "nyc",
            "target": "lon",
            "state": "mirroring",
            "reason": "",
            "workers": 1,
        }
        told = {**status, "partitions": [row], **said}
        self.mirrors = MirrorStatuses(
            [told], frozenset({"nyc" if here else "lon"}), {}, self.estate.now_ms + 10_000
        )

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.estate.now_ms += 10_000
            self.collector.ask_store()
            self.monitor.round()

    def row(self, name: str, kind: str = "group") -> LagRow:
        (found,) = [row for row in self.monitor.rows() if (row.kind, row.name) == (kind, name)]
        return found


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.topic("t")
    return made


def test_groups_views_and_appliers_are_rows_of_one_list_worst_first(stage: Stage) -> None:
    stage.topic("views.v")
    stage.publish("t", 10)
    stage.publish("views.v", 4)
    stage.views.records = {
        "state:v": {"state": "live", "owner": "data", "sources": {"o": "t", "later": "t.later"}},
        "progress:v": {"sources": {"t": {"0": 10}}, "committed_at_ms": stage.estate.now_ms},
        "applied:v": {"positions": {"views.v": {"0": 3}}},
    }
    stage.commit("g", "t", 4)
    stage.commit("hub.view.v", "t", 0)  # what the hub publishes for other tools is not measured twice
    stage.rounds(12)
    rows = stage.monitor.rows()
    assert {(row.kind, row.name, row.topic) for row in rows} == {
        ("group", "g", "t"),
        ("view", "v", "t"),
        ("view", "v", "t.later"),
        ("applier", "v", "views.v"),
    }
    assert list(rows) == sorted(rows, key=worst_first)
    assert (stage.row("g").state, stage.row("g").records, stage.row("g").owner) == (
        "STOPPED",
        6,
        "owner of t",
    )
    assert (stage.row("v", "applier").records, stage.row("v", "applier").owner) == (1, "data")
    later = next(row for row in rows if row.topic == "t.later")
    assert (later.state, later.cause, later.records) == ("UNKNOWN", "no batch is committed yet", None)


def test_the_ladder_makes_the_first_round_right(stage: Stage) -> None:
    stage.publish("t", 5)
    stage.estate.now_ms += 7_200_000
    stage.publish("t", 5)
    stage.commit("g", "t", 2)
    stage.rounds(1)
    row = stage.row("g")
    assert row.basis == "create_time" and row.seconds is not None and row.error_s is not None
    assert abs(row.seconds - 7_210) <= row.error_s <= 5
    stage.commit("g", "t", 7)
    stage.rounds(1)
    row = stage.row("g")
    assert row.seconds is not None and row.error_s is not None and abs(row.seconds - 20) <= row.error_s


def test_a_producers_clock_that_is_ahead_does_not_make_a_reader_that_stands_look_well(stage: Stage) -> None:
    """The records' timestamps are in the future; the first poll still proves that the records exist."""
    ahead_ms = stage.estate.now_ms + 3_600_000
    stage.estate.writer().append([NewRecord("t", b"k", b"v", (), ahead_ms, 0)] * 10)
    stage.commit("g", "t", 4)
    stage.rounds(1)
    began_ms = stage.estate.now_ms
    stage.rounds(12)
    row, known_s = stage.row("g"), (stage.estate.now_ms - began_ms) / 1000
    assert (row.state, row.records) == ("STOPPED", 6), row
    # At least so long, and nobody can say how much longer.
    assert row.seconds is not None and abs(row.seconds - known_s) <= 5 and row.error_s is None
    stage.commit("g", "t", 10)
    stage.rounds(5)
    assert (stage.row("g").state, stage.row("g").seconds) == ("OK", 0.0)


def test_a_producers_clock_that_is_behind_is_the_records_age(stage: Stage) -> None:
    behind_ms = stage.estate.now_ms - 3_600_000
    stage.estate.writer().append([NewRecord("t", b"k", b"v", (), behind_ms, 0)] * 10)
    stage.commit("g", "t", 4)
    stage.rounds(1)
    row = stage.row("g")
    assert row.basis == "create_time" and row.seconds is not None and row.error_s is not None
    assert abs(row.seconds - 3_610) <= row.error_s
    # What comes while the hub looks is measured by its polls, whatever a producer writes into it.
    stage.commit("g", "t", 10)
    stage.rounds(1)
    stage.estate.writer().append([NewRecord("t", b"k", b"v", (), behind_ms, 0)])
    stage.rounds(1)
    row = stage.row("g")
    assert row.basis == "arrival" and row.seconds is not None and row.seconds <= 20


def test_a_compacted_topic_is_measured_by_the_next_record_that_exists(stage: Stage) -> None:
    stage.topic("c", cleanup_policy="compact")
    stage.publish("c", 60)
    stage.rounds(3)
    stage.estate.now_ms += 3_600_000
    stage.publish("c", 10)
    stage.estate.now_ms += 600_000
    log = stage.estate.logs["c"][0]
    del log[10:60]  # compacted away: what waits at 20 is ten minutes old, not seventy
    stage.estate.end_offsets = lambda topics: Positions.of((t, 0, 70 if t == "c" else 0) for t in topics)  # type: ignore[method-assign]
    stage.commit("g", "c", 20)
    stage.rounds(1)
    row = stage.row("g")  # some record between seventy and ten minutes: it is not known which is the next
    assert row.seconds is not None and row.error_s is not None
    assert abs(row.seconds - 610) <= row.error_s
    stage.estate.hollow["c"] = 60
    stage.rounds(2)
    row = stage.row("g")
    assert row.seconds is not None and row.error_s is not None
    assert abs(row.seconds - 630) <= row.error_s <= 10


def test_a_stretch_without_records_is_no_lag_and_is_looked_at_once(stage: Stage) -> None:
    stage.publish("t", 5)
    stage.commit("g", "t", 3)
    stage.estate.hollow["t"] = 5
    stage.rounds(4)
    assert (stage.row("g").records, stage.row("g").seconds) == (0, 0.0)
    stage.publish("t", 2)
    stage.rounds(1)
    assert stage.row("g").records == 2


def test_a_topic_made_again_leaves_nothing_of_the_old_one(stage: Stage) -> None:
    stage.publish("t", 50)
    stage.commit("g", "t", 40)
    stage.rounds(9)
    assert stage.row("g").state == "STOPPED"
    stage.estate.delete_topic("t")
    stage.topic("t")
    stage.publish("t", 60)
    stage.commit("g", "t", 1)
    stage.rounds(1)
    row = stage.row("g")
    assert (row.records, row.state) == (59, "BEHIND")  # not REWOUND, not STOPPED
    assert row.seconds is not None and row.seconds <= 12


def test_a_group_that_cannot_be_told_is_unknown_and_its_topics_stay(stage: Stage) -> None:
    stage.commit("g", "t", 0)
    stage.rounds(1)
    stage.estate.committed["g"] = PeerError('group "g": Kafka refuses it: not authorized')
    stage.rounds(2)
    row = stage.row("g")
    assert (row.topic, row.state, row.records) == ("t", "UNKNOWN", None)
    assert "not authorized" in row.cause


def test_groups_without_commits_are_shown_while_somebody_is_connected(stage: Stage) -> None:
    stage.estate.committed = {"empty": Positions(), "joined": Positions()}
    stage.estate.members["joined"] = GroupDescription("joined", "STABLE", 1, frozenset({"t"}))
    stage.rounds(1)
    (row,) = stage.monitor.rows()
    assert (row.name, row.topic, row.state, row.cause) == (
        "joined",
        "t",
        "UNKNOWN",
        "it has committed nothing",
    )


def test_a_group_of_a_topic_that_is_gone_is_unknown_and_a_group_that_is_gone_is_not_shown(
    stage: Stage,
) -> None:
    stage.commit("g", "t.never", 4)
    stage.rounds(1)
    assert stage.row("g").cause == "its topic is gone"
    del stage.estate.committed["g"]
    stage.rounds(1)
    assert stage.row("g").state == "UNKNOWN"
    stage.rounds(2)
    assert stage.monitor.rows() == ()
    assert not stage.monitor.watched and not stage.monitor.marks and not stage.monitor.topics_of


def test_kafka_away_is_said_of_everybody_and_passes(stage: Stage) -> None:
    stage.publish("t", 4)
    stage.commit("g", "t", 4)
    stage.rounds(2)
    stage.estate.away = True
    stage.rounds(2)
    row = stage.row("g")
    assert (row.state, row.cause, row.records, row.seconds) == (
        "UNKNOWN",
        "Kafka does not answer",
        None,
        None,
    )
    stage.estate.away = False
    stage.rounds(1)
    assert (stage.row("g").state, stage.row("g").records) == ("OK", 0)


def test_a_partition_that_does_not_answer_makes_its_readers_unknown_and_nobody_else(stage: Stage) -> None:
    stage.topic("quiet")
    stage.commit("g", "t", 0)
    stage.commit("h", "quiet", 0)
    stage.rounds(1)
    stage.estate.known_ends = lambda topics: Positions.of([("t", 0, 0)])  # type: ignore[method-assign]
    stage.rounds(9)
    assert (stage.row("h").state, stage.row("h").records) == ("UNKNOWN", None)
    assert stage.row("h").cause == "some of its partitions do not answer"
    assert (stage.row("g").state, stage.row("g").records) == ("OK", 0)


def test_a_large_estate_has_its_turn_in_slices(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_list, "GROUPS", 3)
    for number in range(8):
        stage.commit(f"g{number}", "t", 0)
    stage.rounds(1)
    assert stage.estate.asked == ["g0", "g1", "g2"]
    stage.rounds(2)
    assert set(stage.estate.asked) == {f"g{number}" for number in range(8)}
    assert len(stage.monitor.rows()) == 8


def test_a_position_past_the_end_is_unknown_unless_a_transaction_is_open(stage: Stage) -> None:
    stage.publish("t", 5)
    stage.estate.end_offsets = lambda topics: Positions.of((t, 0, 3) for t in topics)  # type: ignore[method-assign]
    stage.commit("g", "t", 5)  # reads uncommitted records: past the last stable offset, not past the end
    stage.rounds(1)
    assert stage.row("g").state == "OK"
    stage.commit("g", "t", 9)
    stage.rounds(2)
    assert stage.row("g").state == "UNKNOWN" and "past the topic's end" in stage.row("g").cause


def test_records_behind_an_open_transaction_are_not_everything_read(stage: Stage) -> None:
    stage.publish("t", 5)
    stage.estate.end_offsets = lambda topics: Positions.of((t, 0, 3) for t in topics)  # type: ignore[method-assign]
    stage.commit("g", "t", 3)
    stage.rounds(1)
    assert (stage.row("g").state, stage.row("g").cause) == ("OK", "everything is read")
    stage.rounds(3)
    found = stage.row("g")
    assert (found.state, found.records) == ("BEHIND", 0)
    assert found.cause == "partition 0: 2 records wait behind a transaction that is open for 30 s"
    stage.rounds(4)
    assert stage.row("g").state == "STALLED" and "open for 70 s" in stage.row("g").cause
    stage.estate.end_offsets = lambda topics: Positions.of((t, 0, 5) for t in topics)  # type: ignore[method-assign]
    stage.commit("g", "t", 5)
    stage.rounds(4)
    assert (stage.row("g").state, stage.row("g").cause) == ("OK", "everything is read")


def test_transactions_that_end_hold_nothing_back_however_many_are_open(stage: Stage) -> None:
    stage.publish("t", 40)
    for stable in range(3, 13):
        stage.estate.end_offsets = lambda topics, at=stable: Positions.of((t, 0, at) for t in topics)  # type: ignore[misc, method-assign]
        stage.commit("g", "t", stable)
        stage.rounds(1)
        assert stage.row("g").state == "OK"


def test_a_mirror_of_this_clusters_topics_is_measured_like_a_group(stage: Stage) -> None:
    stage.publish("t", 10)
    stage.commit("g", "t", 4)
    for _ in range(12):
        stage.mirror(4, 10, here=True)
        stage.rounds()
    mirror, group = stage.row("m", "mirror"), stage.row("g")
    assert (mirror.records, mirror.seconds, mirror.error_s) == (group.records, group.seconds, group.error_s)
    assert (mirror.records, mirror.owner, mirror.topic) == (6, "owner of t", "t")
    assert (mirror.state, group.state) == ("STALLED", "STOPPED")  # a worker is there
    assert "though 1 member is connected" in mirror.cause


def test_a_mirror_from_another_cluster_is_measured_by_what_its_worker_tells(stage: Stage) -> None:
    stage.publish("t", 500)  # the local copy must not affect the lag on the source
    stage.mirror(50, 50)
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.records, row.seconds) == ("OK", 0, 0.0)
    assert row.error_s is not None and 1.0 <= row.error_s <= 4.0
    for waits in range(1, 4):  # 30 came, and nothing is carried
        stage.mirror(50, 80)
        stage.rounds()
        row = stage.row("m", "mirror")
        assert row.records == 30 and row.seconds is not None and row.error_s is not None
        # They came between the worker's last two words, ten seconds apart, and its look before the first.
        assert row.seconds - row.error_s <= 1 + (waits - 1) * 10 + 0.001
        assert row.seconds + row.error_s >= 1 + waits * 10 - 0.001
    for _ in range(9):
        stage.mirror(50, 80)
        stage.rounds()
    assert stage.row("m", "mirror").state == "STALLED"


def test_what_was_there_before_a_mirrors_worker_told_has_no_upper_bound(stage: Stage) -> None:
    stage.mirror(0, 1_000_000)
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.records, row.error_s) == (1_000_000, None)


def test_a_mirror_that_nobody_carries_stands_and_what_waits_waits_at_least_so_long(stage: Stage) -> None:
    stage.mirror(50, 80)
    stage.rounds()
    gone = {"state": "no worker", "reason": "no worker mirrors it now: hub mirror run", "workers": 0}
    for number in range(1, 20):
        stage.mirror(50, 80, seen_s=number * 10.0, **gone)
        stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.records, row.error_s) == ("STOPPED", 30, None)
    assert row.cause == "stopped: no worker mirrors it now: hub mirror run"
    assert row.seconds is not None and row.seconds >= 180
    # Paused with everything carried is not a failure; later arrivals are unknown.
    stage.mirror(80, 80, seen_s=300.0, state="paused", reason="paused by ana", workers=0)
    stage.rounds(4)
    row = stage.row("m", "mirror")
    assert (row.state, row.records, row.seconds) == ("UNKNOWN", None, None)
    assert "has not reported for" in row.cause and "paused by ana" in row.cause


def test_a_mirror_whose_worker_is_silent_is_unknown_at_once_and_stopped_when_that_is_known(
    stage: Stage,
) -> None:
    for _ in range(5):
        stage.mirror(50, 50, seen_s=10.0)  # a worker reports every ten seconds when nothing changes
        stage.rounds()
    assert stage.row("m", "mirror").state == "OK"
    stage.mirror(50, 50, seen_s=20.0)  # it was killed: two words are missing
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.records, row.error_s) == ("UNKNOWN", None, None)
    assert row.cause == "its worker has not reported for 20 s"
    gone = {"state": "no worker", "reason": "no worker mirrors it now: hub mirror run", "workers": 0}
    stage.mirror(50, 50, seen_s=30.0, **gone)
    stage.rounds(1)
    row = stage.row("m", "mirror")
    assert (row.state, row.cause) == ("STOPPED", "stopped: no worker mirrors it now: hub mirror run")
    for _ in range(5):  # it is there again
        stage.mirror(50, 50)
        stage.rounds()
    assert stage.row("m", "mirror").state == "OK"


def test_a_partition_that_no_worker_reports_makes_its_topic_unknown_whatever_the_others_say(
    stage: Stage,
) -> None:
    stage.mirror(50, 50)
    stage.rounds()
    assert stage.row("m", "mirror").state == "OK"
    told = {
        "topic": "t",
        "state": "mirroring",
        "reason": "",
        "source_next": 50,
        "source_end": 50,
        "seen_s": 1.0,
    }
    why = "no worker holds its shard (never reported)"
    untold = {"state": "unknown", "reason": why, "source_next": None, "source_end": 90, "seen_s": None}
    rows = [{**told, "partition": 0}, {**told, **untold, "partition": 1, "source_end_s": 0.0}]
    stage.mirror(50, 50, state="unknown", reason="1 of 2 partitions", partitions=rows)
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.cause) == ("UNKNOWN", f"partition 1: {why}")


def test_what_waits_at_a_silent_mirror_is_not_told_as_if_it_was_measured_now(stage: Stage) -> None:
    stage.mirror(50, 80)
    stage.rounds()
    stage.mirror(50, 80, seen_s=16.0)
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.records) == ("UNKNOWN", None)


def test_a_mirror_whose_target_was_not_asked_for_a_while_is_unknown(stage: Stage) -> None:
    stage.mirror(50, 50)
    stage.rounds(3)
    assert stage.row("m", "mirror").state == "OK"
    stage.rounds(2)
    row = stage.row("m", "mirror")
    assert (row.state, row.cause) == ("UNKNOWN", "its target has not reported for 40 s")


def test_the_rhythm_of_a_mirrors_worker_is_what_its_readers_think() -> None:
    assert STATUS_AGAIN_S + STATUS_S < MIRROR_SILENT_S < 2 * STATUS_AGAIN_S


def test_mirrors_are_counted_by_state_and_have_series_of_their_own_elsewhere(stage: Stage) -> None:
    stage.mirror(50, 50)
    stage.rounds()
    app = FastAPI()
    app.include_router(create_router(stage.collector, stage.views, tuple, stage.monitor, 4))
    with TestClient(app) as client:
        text = client.get("/metrics").text
        assert [row["name"] for row in client.get("/api/lag", params={"kind": "mirror"}).json()] == ["m"]
    assert 'hub_consumers{kind="mirror",state="OK"} 1.0' in text and 'consumer="m"' not in text


def test_a_mirrors_broken_topic_says_why_and_its_targets_silence_is_unknown(stage: Stage) -> None:
    stage.mirror(50, 80, row={"state": "stopped", "reason": "the topic was made again"})
    stage.rounds()
    row = stage.row("m", "mirror")
    assert (row.state, row.cause) == ("STOPPED", "failed: partition 0: the topic was made again")
    at_ms = stage.estate.now_ms
    stage.mirrors = MirrorStatuses(
        [{"mirror": "m", "source": "nyc", "target": "lon", "state": "unknown", "reason": "lon is away"}],
        frozenset({"lon"}),
        {},
        at_ms,
    )
    stage.rounds(2)
    row = stage.row("m", "mirror")
    assert (row.state, row.records, row.seconds) == ("UNKNOWN", None, None) and "lon is away" in row.cause
    stage.rounds(8)  # nobody asked the clusters for a while
    assert "have not reported lately" in stage.row("m", "mirror").cause
    # Given away: nothing of it is carried, so it reads nothing.
    stage.mirror(50, 80, row={"state": "left", "reason": "lon acts for nyc now"})
    stage.rounds()
    assert [row for row in stage.monitor.rows() if row.kind == "mirror"] == []


def test_the_api_filters_and_the_metrics_are_bounded(stage: Stage) -> None:
    stage.topic("shop.orders")
    stage.publish("t", 5)
    for number in range(9):
        stage.commit(f"late{number}", "t", number % 5)
        stage.commit(f"ok{number}", "shop.orders", 0)
    stage.rounds(12)
    app = FastAPI()
    app.include_router(create_router(stage.collector, stage.views, tuple, stage.monitor, 4))
    with TestClient(app) as client:

        def names(**asked: Any) -> list[str]:
            return [row["name"] for row in client.get("/api/lag", params=asked).json()]

        assert len(names()) == 18
        assert {name[:4] for name in names(state=["STOPPED"])} == {"late"}
        assert {name[:2] for name in names(prefix="shop.")} == {"ok"}
        assert names(name="ok3") == ["ok3"] and names(owner="nobody") == [] and len(names(limit=5)) == 5
        assert names(kind="view") == []
        assert client.get("/api/lag", params={"state": "SLEEPING"}).status_code == 422
        text = client.get("/metrics").text
    assert text.count("\nhub_consumer_lag_seconds{") == 4
    assert 'hub_consumers{kind="group",state="STOPPED"} 9.0' in text
    assert 'hub_consumers{kind="group",state="OK"} 9.0' in text


def test_a_group_whose_commits_went_with_their_topic_does_not_stand_there_for_ever(stage: Stage) -> None:
    stage.publish("t", 10)
    stage.commit("g", "t", 4)
    stage.rounds(12)
    assert stage.row("g").state == "STOPPED"
    stage.estate.committed["g"] = Positions()  # still listed, and nobody is in it
    stage.rounds(1)
    assert not stage.monitor.rows()
    stage.commit("g", "t", 10)
    stage.rounds(1)
    assert stage.row("g").state == "OK"


def test_a_partition_that_never_answered_since_the_start_is_not_well(stage: Stage) -> None:
    stage.estate.create_topic("p", partitions=2, config={}, replication_factor=1)
    told = stage.estate.known_ends
    stage.estate.known_ends = lambda those: told([tp for tp in those if tp != TopicPartition("p", 1)])  # type: ignore[method-assign]
    stage.estate.committed["g"] = Positions.of([("p", 0, 0), ("p", 1, 0)])
    stage.views.records = {"progress:v": {"sources": {"p": {"0": 0}}, "committed_at_ms": 1}}
    stage.rounds(3)
    for name, kind in (("g", "group"), ("v", "view")):
        row = stage.row(name, kind)
        assert (row.state, row.records, row.cause) == (
            "UNKNOWN",
            None,
            "some of its partitions do not answer",
        )
    (view,) = stage.collector.overview().views
    assert view.lag is None and view.sources[0].state == "UNKNOWN"
    stage.estate.known_ends = told  # type: ignore[method-assign]
    stage.rounds(1)
    assert stage.row("g").state == stage.row("v", "view").state == "OK"


def test_commits_of_partitions_that_are_no_more_hide_nothing(stage: Stage) -> None:
    stage.estate.committed["g"] = Positions.of([("t", 0, 0), ("t", 1, 500)])
    stage.rounds(2)
    assert stage.row("g").state == "OK"


def test_a_position_past_the_end_is_seen_behind_another_partition_that_lags(stage: Stage) -> None:
    stage.estate.create_topic("p", partitions=2, config={}, replication_factor=1)
    stage.estate.writer().append([NewRecord("p", b"k", b"v", partition=1)] * 50)
    stage.estate.committed["g"] = Positions.of([("p", 0, 20), ("p", 1, 10)])
    stage.rounds(2)
    assert stage.row("g").state == "UNKNOWN" and "past the topic's end" in stage.row("g").cause


def test_what_only_narrows_and_does_not_answer_leaves_everybody_measured(stage: Stage) -> None:
    def away(*_: object) -> Any:
        raise PeerError("no leader")

    stage.publish("t", 10)
    stage.commit("g", "t", 4)
    stage.commit("h", "t", 10)
    stage.estate.beginnings_of = stage.estate.offsets_by_time = away  # type: ignore[method-assign]
    stage.estate.effective_config = away  # type: ignore[method-assign]
    stage.rounds(3)
    assert (stage.row("h").state, stage.row("g").records, stage.monitor.error) == ("OK", 6, None)


def test_a_clock_that_is_set_back_does_not_make_a_reader_that_stands_look_well(stage: Stage) -> None:
    stage.commit("g", "t", 0)
    stage.rounds(2)
    stage.publish("t", 10)
    stage.rounds(9)
    assert stage.row("g").state == "STOPPED"
    stage.estate.now_ms -= 3_600_000
    for _ in range(30):
        stage.rounds(1)
        row = stage.row("g")
        assert row.state != "OK" and (row.seconds or row.error_s is None)
    assert row.state == "STOPPED" and (row.seconds or 0) >= 200
    stage.topic("later")
    stage.rounds(1)
    assert "later" in stage.collector.names()


def test_a_round_that_breaks_does_not_leave_rows_that_look_like_those_of_now(stage: Stage) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("never seen before")

    stage.commit("g", "t", 0)
    stage.rounds(1)
    assert stage.row("g").state == "OK"
    stage.estate.describe_groups = broken  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(RuntimeError):
            stage.rounds(1)
    assert stage.row("g").state == "UNKNOWN" and "never seen before" in stage.row("g").cause
    stage.collector.views.row_counts = broken  # type: ignore[method-assign]
    stage.estate.known_ends = broken  # type: ignore[method-assign]
    for step in (stage.collector.ask_store, stage.collector.ask_kafka):
        with pytest.raises(RuntimeError):
            step()
    overview = stage.collector.overview()
    assert overview.kafka.state == "down" and "never seen before" in (overview.error or "")


def test_a_view_that_failed_keeps_no_numbers_that_nobody_measures(stage: Stage) -> None:
    stage.publish("t", 10)
    stage.views.records = {
        "state:v": {"state": "failed", "reason": "out of memory"},
        "progress:v": {"sources": {"t": {"0": 9}}, "committed_at_ms": 1},
    }
    stage.rounds(2)
    assert stage.row("v", "view").records == 1
    stage.estate.known_ends = lambda those: Positions.of([("other", 0, 0)])  # type: ignore[method-assign]
    stage.rounds(9)
    row = stage.row("v", "view")
    assert (row.state, row.cause) == ("STOPPED", "failed: out of memory")
    assert (row.records, row.seconds) == (None, None)


def test_suspects_that_never_answer_keep_no_others_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_facts, "SUSPECTS", 1)
    stage.topic("marks")
    stage.publish("t", 2)
    stage.publish("marks", 2)
    stage.commit("a", "t", 1)
    stage.commit("b", "marks", 1)
    looked = stage.estate.next_records

    def next_records(positions: Positions, timeout_s: float) -> Positions:
        return looked(Positions({tp: at for tp, at in positions if tp.topic != "t"}), timeout_s)

    stage.estate.next_records = next_records  # type: ignore[method-assign]
    stage.estate.hollow["marks"] = 2
    stage.rounds(6)
    assert (stage.row("a").records, stage.row("b").records) == (1, 0)


def test_while_the_store_cannot_be_read_views_are_unknown_and_nobody_is_said_to_stand(stage: Stage) -> None:
    def locked() -> Any:
        raise PeerError("the store is locked")

    stage.topic("views.v")
    stage.publish("t", 10)
    stage.views.records = {
        "state:v": {"state": "live"},
        "progress:v": {"sources": {"t": {"0": 10}}, "committed_at_ms": stage.estate.now_ms},
        "applied:v": {"positions": {"views.v": {"0": 0}}},
    }
    stage.rounds(2)
    assert stage.row("v", "view").state == "OK"
    told, stage.views.progress = stage.views.progress, locked  # type: ignore[method-assign]
    seen = set()
    for _ in range(20):  # the view keeps running, and only its store is unreadable
        stage.publish("t", 5)
        stage.publish("views.v", 5)
        stage.rounds()
        seen |= {stage.row("v", "view").state, stage.row("v", "applier").state}
    assert not seen & {"STOPPED", "STALLED"}
    for kind in ("view", "applier"):
        row = stage.row("v", kind)
        assert (row.state, row.cause) == ("UNKNOWN", "the store cannot be read: the store is locked")
        assert (row.records, row.seconds) == (None, None)
    stage.views.progress = told  # type: ignore[method-assign]
    stage.views.records["progress:v"]["sources"] = {"t": {"0": 110}}
    stage.rounds()
    assert (stage.row("v", "view").state, stage.row("v", "view").records) == ("OK", 0)


def test_a_commit_past_the_end_that_was_mended_is_no_rewind_for_ever(stage: Stage) -> None:
    stage.publish("t", 100)
    stage.commit("g", "t", 1_000_000)
    stage.rounds(2)
    assert stage.row("g").state == "UNKNOWN"
    for number in range(1, 20):  # it reads on, half a minute late
        stage.publish("t", 50)
        stage.commit("g", "t", max(100, 50 * number - 50))
        stage.rounds()
    row = stage.row("g")
    assert row.records and row.state == "BEHIND", row.cause
