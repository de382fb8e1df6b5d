"""The collector over the in-memory log, and the resulting overview."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hub.alerts.model.rules import RuleChanges
from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.observability.export.metrics import exposition
from hub.observability.export.objectives import observe_store
from hub.observability.lag.states import LagState
from hub.observability.overview import collector as collector_module
from hub.observability.overview.collector import TOPICS_EVERY_S, Collector
from hub.observability.overview.overview import TopicKind, kind_of
from hub.observability.overview.reports import reports_of
from hub.observability.web.page import render
from hub.record import NewRecord, Positions, TopicPartition


@dataclass
class Views:
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    broken: bool = False

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        if self.broken:
            raise PeerError("the store is locked")
        return self.records

    def row_counts(self) -> Mapping[str, int]:
        return self.rows

    def subscribers(self) -> Mapping[str, int]:
        return {}

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        return None

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        return []


class Cluster(MemoryCluster):
    down = False
    away: frozenset[str] = frozenset()  # topics without a leader
    asked: int = 0

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        there = [tp for tp in partitions if tp.topic not in self.away]
        if self.down or (partitions and not there):
            raise PeerError("Kafka does not answer")
        self.asked += len(partitions)
        return super().known_ends(there)


class Stage:
    """A collector whose clock is moved by hand."""

    def __init__(self) -> None:
        self.cluster, self.views, self.now_ms = Cluster(), Views(), 1_000_000
        self.collector = Collector(self.cluster, self.views, "b:1", now_ms=lambda: self.now_ms)

    def topic(self, name: str, partitions: int = 1) -> None:
        self.cluster.create_topic(name, partitions=partitions, config={}, replication_factor=1)

    def publish(self, topic: str, count: int) -> None:
        self.cluster.writer().append([NewRecord(topic, b"k", b"v", partition=0)] * count)

    def commit(self, view: str, topic: str, position: int) -> None:
        self.views.records[f"progress:{view}"] = {
            "sources": {topic: {"0": position}},
            "mode": "live",
            "committed_at_ms": self.now_ms,
            "batch_ms": 50,
            "input_rows": 1,
        }

    def pass_s(self, seconds: int) -> None:
        """Poll once a second for a while."""
        for _ in range(seconds):
            self.now_ms += 1000
            self.collector.ask_what_is_due()
            self.collector.ask_store()


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.topic("shop.orders")
    made.views.records["state:v"] = {"state": "live", "reason": None, "sources": {"o": "shop.orders"}}
    return made


def test_lag_of_a_view_counts_up_while_it_stands_and_falls_when_it_reads(stage: Stage) -> None:
    stage.commit("v", "shop.orders", 0)
    stage.pass_s(3)
    stage.publish("shop.orders", 10)
    stage.pass_s(8)
    lag = stage.collector.overview().views[0].lag
    assert lag is not None
    assert (lag.records, lag.seconds) == (10, 7.95)  # the first of ten that came between 8 s and 7 s ago
    assert lag.error_s == pytest.approx(0.95)
    stage.commit("v", "shop.orders", 10)
    stage.pass_s(1)
    lag = stage.collector.overview().views[0].lag
    assert lag is not None
    assert (lag.records, lag.state) == (0, LagState.OK)


def test_where_nothing_comes_it_is_asked_every_few_seconds_and_each_second_again_when_something_came(
    stage: Stage,
) -> None:
    stage.topic("shop.quiet", partitions=99)
    stage.pass_s(40)  # some seconds after the start nothing is known to be quiet
    stage.cluster.asked = 0
    stage.pass_s(60)
    assert 100 * 10 <= stage.cluster.asked <= 100 * 13
    stage.publish("shop.orders", 1)
    # Found by the next poll at the latest; the bracket shows since when it may exist.
    stage.pass_s(6)
    stage.commit("v", "shop.orders", 0)
    stage.pass_s(1)
    lag = stage.collector.overview().views[0].lag
    assert lag is not None and lag.records == 1
    assert lag.seconds is not None and lag.error_s is not None
    assert lag.seconds - lag.error_s <= 7.0 <= lag.seconds + lag.error_s
    stage.cluster.asked = 0
    stage.pass_s(10)
    assert stage.cluster.asked - 2 * 99 == pytest.approx(10, abs=99)
    stage.cluster.asked = 0
    stage.collector.ask_kafka()
    assert stage.cluster.asked == 100


def test_a_topic_without_a_leader_that_alone_is_due_does_not_make_kafka_look_away(stage: Stage) -> None:
    stage.topic("shop.away")
    stage.pass_s(40)
    stage.publish("shop.away", 1)
    stage.pass_s(6)
    stage.cluster.away = frozenset({"shop.away"})
    stage.pass_s(3)
    assert stage.collector.overview().kafka.error is None
    stage.cluster.down = True
    stage.pass_s(6)
    assert stage.collector.overview().kafka.error is not None


def test_before_the_first_batch_lag_is_unknown_not_zero(stage: Stage) -> None:
    stage.publish("shop.orders", 10)
    stage.pass_s(2)
    (view,) = stage.collector.overview().views
    assert view.lag is None
    assert [(source.state, source.seconds) for source in view.sources] == [(LagState.UNKNOWN, None)]
    assert stage.collector.overview().worst_lag is None


def test_what_nobody_has_told_yet_is_unknown_and_not_zero(stage: Stage) -> None:
    fresh = Collector(stage.cluster, stage.views).overview()  # nobody was asked yet
    assert (fresh.live_views, fresh.views_heard, fresh.error) == (None, False, None)
    stage.cluster.down, stage.views.broken = True, True
    stage.pass_s(1)
    overview = stage.collector.overview()
    assert (overview.events, overview.undecodable, overview.events_per_second) == (None, None, None)
    assert overview.live_views is None
    tiles = render("overview/tiles.html", overview=overview, firing=None)
    figures = [each.split("<")[0] for each in tiles.split('class="figure">')[1:]]
    assert figures == ["–"] * 6 and "nothing was lost" not in tiles
    stage.cluster.down, stage.views.broken = False, False
    stage.pass_s(1)
    overview = stage.collector.overview()
    assert (overview.events, overview.undecodable, overview.live_views) == (0, 0, 1)


def test_kafka_down_is_said_with_what_was_known(stage: Stage) -> None:
    stage.publish("shop.orders", 4)
    stage.pass_s(2)
    answered = stage.now_ms
    stage.cluster.down = True
    stage.pass_s(3)
    overview = stage.collector.overview()
    assert (overview.kafka.state, overview.kafka.answered_at_ms) == ("down", answered)
    assert overview.kafka.error == "Kafka does not answer"
    assert overview.events == 4
    stage.cluster.down = False
    stage.pass_s(1)
    assert stage.collector.overview().kafka.state == "up"


def test_a_store_that_cannot_be_read_is_said_and_kafka_goes_on(stage: Stage) -> None:
    stage.views.broken = True
    stage.pass_s(1)
    overview = stage.collector.overview()
    assert (overview.error, overview.kafka.state) == ("the store is locked", "up")


def test_topics_come_go_and_come_again(stage: Stage) -> None:
    stage.publish("shop.orders", 9)
    stage.pass_s(1)
    stage.topic("shop.refunds")
    stage.pass_s(int(TOPICS_EVERY_S) + 1)
    assert [topic.name for topic in stage.collector.overview().topics] == ["shop.orders", "shop.refunds"]
    stage.cluster.delete_topic("shop.orders")
    stage.topic("shop.orders")
    stage.publish("shop.orders", 20)  # past the old end: only the topic's id shows the change
    stage.pass_s(int(TOPICS_EVERY_S) + 1)
    (orders, _) = stage.collector.overview().topics
    assert (orders.events, orders.events_per_second) == (20, 0.0)


def test_dead_letters_are_counted_at_their_topic_and_internal_topics_hidden(stage: Stage) -> None:
    stage.topic("shop.orders.dlq")
    stage.topic("_schemas")
    stage.topic("views.v")
    stage.publish("shop.orders.dlq", 2)
    stage.publish("views.v", 5)
    stage.pass_s(2)
    overview = stage.collector.overview()
    assert [(topic.name, topic.undecodable) for topic in overview.topics] == [
        ("shop.orders", 2),
        ("views.v", 0),
    ]
    assert (overview.undecodable, overview.events) == (2, 0)
    assert kind_of("views.v") is TopicKind.changelog


def test_a_view_that_is_gone_leaves_nothing_behind(stage: Stage) -> None:
    stage.commit("v", "shop.orders", 0)
    stage.pass_s(2)
    stage.views.records.clear()
    stage.pass_s(1)
    assert stage.collector.overview().views == ()
    assert stage.collector.readings == {}


def test_reports_join_state_and_progress() -> None:
    (one, two) = reports_of(
        {
            "state:a": {"state": "failed", "reason": "no topic", "sources": {"x": "t.x", "y": "t.*"}},
            "progress:b": {"sources": {"t.z": {"0": 4}}, "mode": "bulk"},
            "other": {},
        }
    )
    assert (one.view, one.state, one.reason, one.topics, one.positions) == (
        "a",
        "failed",
        "no topic",
        ("t.x",),
        None,
    )
    assert (two.view, two.state, two.topics, two.positions) == (
        "b",
        "bulk",
        ("t.z",),
        Positions.of([("t.z", 0, 4)]),
    )


def test_a_view_is_not_well_while_nobody_knows_how_far_its_topic_reaches(stage: Stage) -> None:
    stage.commit("v", "shop.orders", 0)
    stage.pass_s(3)
    (view,) = stage.collector.overview().views
    assert view.lag is not None and view.lag.state == LagState.OK
    stage.cluster.down = True
    stage.pass_s(90)
    (view,) = stage.collector.overview().views
    assert view.lag is None and view.sources[0].state == LagState.UNKNOWN
    stage.cluster.down = False
    stage.pass_s(2)
    (view,) = stage.collector.overview().views
    assert view.lag is not None and view.lag.state == LagState.OK


def test_rates_of_many_topics_are_not_of_now_when_kafka_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "MANY_TOPICS", 0)
    for _ in range(5):
        stage.publish("shop.orders", 10)
        stage.pass_s(1)
    assert stage.collector.overview().events_per_second == pytest.approx(10.0)
    stage.cluster.down = True
    stage.pass_s(90)
    assert stage.collector.overview().events_per_second is None


def test_what_a_view_reads_no_more_is_not_remembered(stage: Stage) -> None:
    for number in range(5):
        stage.topic(f"day.{number}")
        stage.views.records["progress:v"] = {"sources": {f"day.{number}": {"0": 0}}, "committed_at_ms": 1}
        stage.pass_s(int(TOPICS_EVERY_S) + 1)
    assert set(stage.collector.readings["v"]) <= {"day.4", "shop.orders"}


def test_a_view_past_the_end_of_a_topic_made_again_has_not_read_everything(stage: Stage) -> None:
    stage.publish("shop.orders", 4)
    stage.commit("v", "shop.orders", 9)
    stage.pass_s(30)  # a view may be ahead of a poll
    (view,) = stage.collector.overview().views
    assert view.lag is not None and view.lag.state == LagState.OK
    stage.pass_s(60)
    (view,) = stage.collector.overview().views
    assert view.lag is None and view.sources[0].state == LagState.UNKNOWN
    stage.publish("shop.orders", 6)
    stage.pass_s(2)
    (view,) = stage.collector.overview().views
    assert view.lag is not None and view.lag.records == 1


def test_a_store_that_cannot_be_read_is_an_alert_and_a_series_of_its_own(stage: Stage) -> None:
    """Lag and freshness of views are unknown meanwhile, so no other rule would fire."""

    def seen() -> list[tuple[str, str]]:
        collector = stage.collector
        (found,) = observe_store(collector.store_trouble(), RuleChanges(), answered=collector.store_answered)
        return [(each.verdict.name, each.detail) for each in found.observations]

    def series() -> list[float]:
        told = exposition(stage.collector.overview()).decode().splitlines()
        return [float(line.split()[1]) for line in told if line.startswith("hub_store_up ")]

    assert (seen(), series()) == ([], [])  # nobody was asked yet
    stage.pass_s(1)
    assert (seen(), series()) == ([("GOOD", "")], [1.0])
    stage.views.broken = True
    stage.pass_s(3)
    assert (seen(), series()) == ([("BAD", "the store is locked")], [0.0])
    stage.views.broken = False
    stage.pass_s(3)
    stage.now_ms += 75_000  # it hangs
    stage.collector.ask_what_is_due()
    assert (seen(), series()) == ([("BAD", "it has not answered for 75 s")], [0.0])


def test_a_store_that_tells_nothing_for_a_minute_leaves_no_views_that_look_well(stage: Stage) -> None:
    stage.publish("shop.orders", 10)
    stage.commit("v", "shop.orders", 10)
    stage.views.rows["v"] = 3
    stage.pass_s(3)
    stage.views.broken = True
    stage.pass_s(30)
    (view,) = stage.collector.overview().views  # a short failure does not make the views unknown
    assert (view.state, view.rows) == ("live", 3)
    stage.pass_s(40)
    overview = stage.collector.overview()
    (view,) = overview.views
    assert (view.state, view.reason, view.lag, view.rows) == ("unknown", "the store is locked", None, None)
    assert [(each.state, each.cause) for each in view.sources] == [(LagState.UNKNOWN, "the store is locked")]
    assert (overview.live_views, overview.worst_lag) == (None, None)
    stage.views.broken = False
    stage.pass_s(1)
    assert stage.collector.overview().live_views == 1
    stage.now_ms += 75_000  # it hangs: no error, and no answer
    stage.collector.ask_what_is_due()
    overview = stage.collector.overview()
    assert (overview.error, overview.live_views) == ("it has not answered for 75 s", None)
