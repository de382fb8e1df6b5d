"""Latency counted by the applier: from rows that name their events, from samples for the others."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import changelog
import pytest
from changelog import CHANGELOG, Bench
from hypothesis import given
from hypothesis import strategies as st

from hub.materializers.applying.applier import Applier
from hub.materializers.applying.store_thread import objectives
from hub.materializers.progress.latency import MOST_UNREAD, ChangedRow, Latencies, event_ms, latest_event
from hub.materializers.progress.latency_samples import Sampler
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, progress_of
from hub.metrics.histogram import Histogram, histogram_of
from hub.record import NewRecord, Positions, Record
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.topics.tree.tree import LiveTree
from hub.tracing import Trace

ORIGIN = {
    "type": "record",
    "name": "origin",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SOURCES = {"type": "record", "name": "sources", "fields": [{"name": "s", "type": ["null", ORIGIN]}]}


def told(latencies: Latencies, view: str = "v") -> dict[tuple[str, str], Histogram]:
    body = json.loads(latencies.record(1).value or b"")
    return {
        (each["stage"], each["origin"]): histogram_of(each)
        for each in body["views"].get(view, {"counts": []})["counts"]
    }


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Rows whose ``_sources`` name their events, as the engine writes them."""
    meta = [changelog.META[0], {"name": "_sources", "type": ["null", SOURCES], "default": None}]
    monkeypatch.setattr(changelog, "META", meta)
    made = Bench(tmp_path)
    yield made
    made.store.close()


def write(
    bench: Bench, key: str, version: int, event_at_ms: int, appended_ms: int, *, gone: bool = False
) -> None:
    at = datetime.fromtimestamp(event_at_ms / 1000, UTC)
    origin: dict[str, Any] = {"topic": "in", "partition": 0, "offset": version}
    headers = [("hub.version", str(version).encode())]
    value = None
    if gone:
        origin["timestamp"] = at.isoformat()
        headers.append(("hub.sources", json.dumps({"s": origin}).encode()))
    else:
        row = {"city": None, "points": 1, "_version": version, "_sources": {"s": {**origin, "timestamp": at}}}
        value = encode(1, parsed(json.loads(bench.schemas.schema(1))), row)
    bench.cluster.now_ms = appended_ms
    bench.cluster.writer().append([NewRecord(CHANGELOG, key.encode(), value, tuple(headers))])


def test_each_changed_row_counts_once_by_its_latest_event_and_old_events_apart(bench: Bench) -> None:
    now_ms = time.time_ns() // 1_000_000
    latencies = Latencies("serving", now_ms, lambda _view: 2.0, replay_s=600.0)
    applier = Applier(bench.cluster, bench.schemas, bench.store, latencies=latencies)
    applier.follow([bench.view])
    write(bench, "a", 1, now_ms - 1_500, now_ms - 1_000)  # 0.5 s, then readable at once: less than 2.5 s
    write(bench, "b", 2, now_ms - 1_500, now_ms, gone=True)
    write(bench, "c", 3, now_ms - 3_600_000, now_ms - 1_000)  # an hour old: history
    write(bench, "d", 4, now_ms + 60_000, now_ms)  # a producer's clock is ahead
    while applier.step(0):
        pass
    counts = told(latencies)
    # The latency of d is unknown: a clock that is ahead makes nothing fast.
    assert counts["changelog", "live"].count == counts["readable", "live"].count == 2
    assert counts["changelog", "live"].within(0.5) == pytest.approx(1 / 2)
    assert counts["readable", "replay"].count == counts["changelog", "replay"].count == 1
    body = json.loads(latencies.record(1).value or b"")["views"]["v"]
    assert body["skewed"] == 2  # at both stages
    assert len(body["named"]) == 4
    assert body["objective_s"] == 2.0 in body["counts"][0]["edges"]
    applier.follow([])
    assert told(latencies) == {}


def test_of_many_rows_in_one_step_every_kth_stands_for_k(bench: Bench) -> None:
    now_ms = time.time_ns() // 1_000_000
    latencies = Latencies("serving", now_ms)
    applier = Applier(bench.cluster, bench.schemas, bench.store, latencies=latencies)
    applier.follow([bench.view])
    for number in range(1_203):
        write(bench, f"k{number}", 1, now_ms - 3_000, now_ms - 1_000)
    while applier.step(0):
        pass
    assert told(latencies)["readable", "live"].count == 1_203
    assert len(applier.followed["v"].due) == 0


def progress(reached: int, committed_ms: int) -> Progress:
    at = Positions.of([("in", 0, reached)])
    return Progress("v", 0, reached, "live", at, Positions(), 1, 1, committed_ms)


def test_of_rows_that_name_no_events_some_are_looked_up(bench: Bench) -> None:
    bench.cluster.create_topic("in", partitions=1, config={}, replication_factor=1)
    for number in range(100):
        bench.cluster.writer().append([NewRecord("in", b"k", b"v", (), 1_000_000 + number)])
    latencies = Latencies("serving", 0)
    latencies.covered(
        "v", [progress(40, 1_000_900)], 1_001_000
    )  # events before the applier's start are not counted
    assert latencies.waiting() == []
    latencies.covered("v", [progress(90, 1_000_900)], 1_001_300)
    sampler = Sampler(Offset(bench.cluster), random.Random(1))
    assert sampler.step([latencies]) == 1
    counts = told(latencies)
    assert counts["changelog", "live"].counts[4] == counts["changelog", "live"].count == 1  # 0.5 to 1 s
    assert counts["readable", "live"].counts[5] == 1  # 1 to 2.5 s
    assert sampler.step([latencies]) == 0  # a stretch is looked at once
    latencies.covered("v", [progress(300, 1_000_900)], 1_001_300)  # as if all of it were compacted away
    sampler.step([latencies])
    assert told(latencies)["readable", "live"].count <= 2
    sampler.close()


def batch(number: int, reached: int, read_at_ms: int | None, generation: int = 0) -> Progress:
    told = replace(progress(reached, 1_000_900), batch_id=number, generation=generation)
    return replace(told, read_at_ms=read_at_ms)


def test_a_change_counts_as_read_when_its_batch_is_told_of(bench: Bench) -> None:
    now_ms = time.time_ns() // 1_000_000
    latencies = Latencies("serving", now_ms, lambda _view: 2.0, replay_s=600.0)
    applier = Applier(bench.cluster, bench.schemas, bench.store, latencies=latencies)
    applier.follow([bench.view])

    def tell(done: Progress) -> None:
        end = bench.cluster.end_offsets([CHANGELOG])
        bench.cluster.writer().append([replace(done, changelog=end).record()])
        while applier.step(0):
            pass

    write(bench, "a", 10, now_ms - 9_000, now_ms)  # of a batch before the first report: unknown
    tell(batch(4, 11, now_ms - 8_000))
    write(bench, "b", 11, now_ms - 1_500, now_ms - 1_000)
    write(bench, "c", 12, now_ms - 3_600_000, now_ms - 1_000)  # history
    write(bench, "d", 13, now_ms + 60_000, now_ms)  # a producer's clock is ahead
    write(bench, "e", 14, now_ms - 500, now_ms)  # of the batch after
    while applier.step(0):
        pass
    assert ("read", "live") not in told(latencies)
    news = latencies.counted
    tell(batch(5, 14, now_ms - 1_200))
    counts = told(latencies)
    assert counts["read", "live"].count == 1 and counts["read", "replay"].count == 1
    assert counts["read", "live"].sum_s == pytest.approx(0.3)  # b; of d it is not known
    assert latencies.counted > news  # else it would be reported with the next row only
    assert json.loads(latencies.record(1).value or b"")["views"]["v"]["skewed"] == 3  # at each stage
    tell(batch(6, 15, now_ms - 100))
    assert told(latencies)["read", "live"].sum_s == pytest.approx(0.7)


def test_when_it_was_read_is_unknown_rather_than_guessed() -> None:
    unknown = [
        batch(6, 9, 1_000_300),  # batch 5 has no report
        batch(5, 9, 1_000_300, generation=1),
        batch(5, 9, None),  # real time, or a record of before
        batch(5, 9, 1_000_401),  # after its row was made
        batch(5, 7, 1_000_300),  # the event is of a later batch
    ]
    for after in unknown:
        keyed, looked_up = Latencies("serving", 0), Latencies("serving", 0)
        keyed.applied("v", [ChangedRow("in", 0, 7, 1_000_000, 1_000_400)], 1_000_900)
        keyed.record_progress("v", [batch(4, 5, 1_000_100), after])
        assert sorted(told(keyed)) == [("changelog", "live"), ("readable", "live")], after
        before, committed = batch(4, 5, 1_000_100), replace(after, committed_at_ms=1_000_400)
        looked_up.covered("v", [before, committed], 1_000_900)
        (stretch,) = looked_up.waiting()
        looked_up.sampled(stretch, stretch.first, 1_000_000)
        assert (("read", "live") in told(looked_up)) == (after is unknown[-1])
    known = Latencies("serving", 0)
    known.applied("v", [ChangedRow("in", 0, 7, 1_000_000, 1_000_400)], 1_000_900)
    known.record_progress("v", [batch(4, 5, 1_000_100), batch(5, 9, 1_000_300)])
    known.record_progress("v", [batch(5, 9, 1_000_300), batch(6, 12, 1_000_350)])
    assert told(known)["read", "live"].sum_s == pytest.approx(0.3)  # once


TIMES = st.integers(0, 4_000_000)


@given(event_ms=TIMES, read_ms=TIMES, changelog_ms=TIMES, more_ms=TIMES, keyed=st.booleans())
def test_no_event_is_read_after_its_row_was_made(
    event_ms: int, read_ms: int, changelog_ms: int, more_ms: int, keyed: bool
) -> None:
    latencies = Latencies("serving", 0)
    first, then = batch(4, 5, 1), replace(batch(5, 9, read_ms), committed_at_ms=changelog_ms)
    if keyed:
        latencies.applied("v", [ChangedRow("in", 0, 7, event_ms, changelog_ms)], changelog_ms + more_ms)
        latencies.record_progress("v", [first, then])
    else:
        latencies.covered("v", [first, then], changelog_ms + more_ms)
        (stretch,) = latencies.waiting()
        latencies.sampled(stretch, 7, event_ms)
    spans = {stage: counts.sum_s for (stage, _), counts in told(latencies).items()}
    assert ("read" in spans) == (read_ms <= changelog_ms)
    assert spans.get("read", 0.0) <= spans["changelog"] <= spans["readable"]
    assert all(span >= 0 for span in spans.values())


def test_changes_that_wait_to_hear_of_their_batch_are_bounded_and_none_is_lost() -> None:
    latencies, total = Latencies("serving", 0), 5 * MOST_UNREAD + 3
    latencies.record_progress("v", [batch(4, 0, 1_000_000)])
    for offset in range(total):
        latencies.applied("v", [ChangedRow("in", 0, offset, 1_000_000, 1_000_400, 2)], 1_000_900)
        assert len(latencies._unread["v"]) < MOST_UNREAD
    latencies.record_progress("v", [batch(5, total, 1_000_300)])
    assert told(latencies)["read", "live"].count == 2 * total
    assert latencies._unread["v"] == []


def test_progress_says_when_its_batch_read_and_records_of_before_say_nothing() -> None:
    def kept(of: Progress) -> tuple[Progress | None, dict[str, Any]]:
        made = of.record()
        record = Record(PROGRESS_TOPIC, 0, 0, 1, made.key, made.value, ())
        return progress_of(record, CHANGELOG), json.loads(made.value or b"")

    known, body = kept(batch(5, 9, 1_000_300))
    assert known == batch(5, 9, 1_000_300) and body["read_at_ms"] == 1_000_300
    known, body = kept(batch(5, 9, None))
    assert known is not None and known.read_at_ms is None and "read_at_ms" not in body


class Offset:
    """The cluster as the sampler sees it."""

    def __init__(self, cluster: changelog.Cluster) -> None:
        self.cluster = cluster

    def reader(self, *, queue_kb: int = 0) -> Any:
        return self.cluster.reader()


def test_the_latest_of_several_events_counts_whatever_form_its_time_has() -> None:
    old = {"topic": "a", "partition": 0, "offset": 1, "timestamp": 1_000}
    new = {"topic": "b", "partition": 2, "offset": 7, "timestamp": "1970-01-01T00:00:02Z"}
    assert latest_event({"x": old, "y": new, "z": None}) == ("b", 2, 7, 2_000)
    assert latest_event({"x": {"topic": "a", "partition": 0, "offset": 1}}) is None
    assert latest_event(None) is None
    assert event_ms(datetime(1970, 1, 1, 0, 0, 3)) == 3_000
    assert event_ms("yesterday") is event_ms(True) is event_ms(-1) is None


def test_a_view_is_promised_the_shortest_of_its_topics(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: {in: {slo: {latency: 3s}}, other: {}}")
    assert objectives([bench.view], LiveTree(file)) == {"v": 3.0}
    assert objectives([bench.view], LiveTree(tmp_path / "none.yaml")) == {}


def test_a_looked_up_event_that_was_traced_is_named_and_one_that_was_not_is_not() -> None:
    latencies = Latencies("serving", 0)
    due = ChangedRow("in", 0, 7, 1_000_000, 1_000_400)
    latencies.applied("v", [due], 1_000_900)
    ((view, waits, readable_ms),) = latencies.unseen()
    assert (view, waits) == ("v", due) and latencies.unseen() == []
    latencies.exemplify(view, due, readable_ms, Trace("a" * 32, "b" * 16, sampled=False))
    latencies.exemplify(view, due, readable_ms, None)
    assert json.loads(latencies.record(1).value or b"")["views"]["v"]["exemplars"] == []
    latencies.exemplify(view, due, readable_ms, Trace("a" * 32, "b" * 16))
    latencies.exemplify("gone", due, readable_ms, Trace("a" * 32, "b" * 16))
    (first, second) = json.loads(latencies.record(1).value or b"")["views"]["v"]["exemplars"]
    assert (first["stage"], first["seconds"], first["trace_id"]) == ("changelog", 0.4, "a" * 32)
    assert (second["stage"], second["seconds"], second["at_ms"]) == ("readable", 0.9, 1_000_900)
    # An event whose batch was reported before the lookup is also named at that stage.
    latencies.applied("v", [due], 1_000_900)
    latencies.record_progress("v", [batch(4, 5, 1_000_100), batch(5, 9, 1_000_300)])
    ((view, waits, readable_ms),) = latencies.unseen()
    latencies.exemplify(view, waits, readable_ms, Trace("c" * 32, "b" * 16))
    named = json.loads(latencies.record(1).value or b"")["views"]["v"]["exemplars"]
    assert [(each["stage"], each["seconds"]) for each in named] == [
        ("changelog", 0.4),
        ("read", 0.3),
        ("readable", 0.9),
    ]
