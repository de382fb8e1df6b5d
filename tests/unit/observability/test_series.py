"""Series of charts: buckets, the store over kills and limits, samples of a moment, marks, what a caller
sees.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.caller import CALLER, AccessDecision, Action, Caller, Forbidden, Kind, Resource
from hub.errors import CallerError, PeerError
from hub.observability.lag.consumers import LagRow
from hub.observability.overview.overview import BatchSummary, KafkaHealth, Overview, TopicKind, TopicLine
from hub.observability.series.catalog import (
    HUB,
    METRICS,
    PANELS,
    SeriesObject,
    checked_metrics,
    parsed_object,
    reader_object,
)
from hub.observability.series.database import SeriesDatabase, StoredSeries
from hub.observability.series.marks import Mark, concerns, marks_of
from hub.observability.series.reading import SeriesReader
from hub.observability.series.recorder import FILE, SeriesRecorder
from hub.observability.series.rollup import (
    FINE,
    HOUR,
    LEVELS,
    MINUTE,
    MOST_POINTS,
    RANGES,
    SeriesWindow,
    bucket_of,
    merged,
    points,
    rolled,
    window_of,
)
from hub.observability.series.sampling import Before, Moment, Sample, sampled
from hub.observability.series.selection import COARSE_TIMES, select

NOW = 1_790_000_000_000 // HOUR.step_ms * HOUR.step_ms
TOPIC = SeriesObject("topic", "shop.orders")
VIEW = SeriesObject("view", "people")


def window_over(start_ms: int, end_ms: int, step_ms: int = FINE.step_ms) -> SeriesWindow:
    return SeriesWindow(start_ms, end_ms, step_ms, FINE)


def stored(path: Path, level: Any, about: SeriesObject = TOPIC, metric: str = "in_per_s") -> dict[int, Any]:
    window = SeriesWindow(NOW - HOUR.step_ms, NOW + 2 * HOUR.step_ms, level.step_ms, level)
    return dict(StoredSeries(path).read([(about, metric)], window, level)[about, metric])


# ---- buckets

VALUES = st.lists(st.tuples(st.integers(0, 7_199), st.integers(-1000, 1000)), min_size=1, max_size=40)


@given(VALUES, st.lists(st.integers(0, 40), max_size=5), st.randoms())
def test_any_split_and_order_of_samples_gives_the_same_buckets(
    drawn: list[tuple[int, int]], cuts: list[int], chance: Any
) -> None:
    """Written in any parts, by any number of processes one after another, each level is what all samples
    together make."""
    samples = [Sample(TOPIC, "in_per_s", NOW + second * 1000, float(value)) for second, value in drawn]
    shuffled = chance.sample(samples, len(samples))
    edges = sorted({0, len(samples), *(min(cut, len(samples)) for cut in cuts)})
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        for first, after in pairwise(edges):
            with closing(SeriesDatabase(path)) as database:
                database.add(shuffled[first:after])
        for level in LEVELS:
            expected = rolled(((each.at_ms, bucket_of(each.value)) for each in samples), level.step_ms)
            assert stored(path, level) == expected


@given(VALUES)
def test_coarse_buckets_are_the_same_from_samples_and_from_fine_buckets(drawn: list[tuple[int, int]]) -> None:
    samples = [(second * 1000, bucket_of(float(value))) for second, value in drawn]
    fine = rolled(samples, FINE.step_ms)
    assert rolled(fine.items(), MINUTE.step_ms) == rolled(samples, MINUTE.step_ms)
    assert sum(each.samples for each in fine.values()) == len(samples)


@given(*[st.integers(-9, 9).map(lambda value: bucket_of(float(value)))] * 3)
def test_merging_is_associative_and_commutative(one: Any, two: Any, three: Any) -> None:
    assert merged(one, merged(two, three)) == merged(merged(three, one), two)


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("sample_ms", [10_000, 45_000])
def test_a_range_has_few_points_ends_now_and_is_kept(name: str, sample_ms: int) -> None:
    wanted = RANGES[name]
    window = window_of(wanted, NOW + 12_345, sample_ms)
    assert len(window.times) <= MOST_POINTS
    assert window.times[-1] <= NOW + 12_345 < window.end_ms
    assert window.step_ms >= sample_ms and window.step_ms % wanted.level.step_ms == 0
    assert window.end_ms - window.start_ms >= wanted.span_ms - window.step_ms
    assert wanted.level.keep_ms >= wanted.span_ms


def test_a_time_without_a_sample_is_a_gap_and_not_zero() -> None:
    window = window_over(NOW, NOW + 40_000)
    found = points([(NOW, bucket_of(0.0)), (NOW + 30_000, bucket_of(4.0))], window)
    assert [each and each.mean for each in found] == [0.0, None, None, 4.0]


# ---- the store

WRITER = """
import sys
from pathlib import Path
from hub.observability.series.catalog import SeriesObject
from hub.observability.series.database import SeriesDatabase
from hub.observability.series.sampling import Sample

database = SeriesDatabase(Path(sys.argv[1]))
for round in range(1_000_000):
    at_ms = int(sys.argv[2]) + round * 10_000
    database.add([Sample(SeriesObject("topic", f"t{n}"), "in_per_s", at_ms, 1.0) for n in range(50)])
    print(round, flush=True)
"""


def test_a_killed_writer_leaves_whole_rounds_and_the_next_goes_on(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(NOW)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 20:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = max([20, *(int(line) for line in writer.stdout if line.strip())])
    with closing(sqlite3.connect(path)) as found:
        rounds = dict(found.execute("SELECT slot, count(*) FROM fine GROUP BY slot"))
        samples = found.execute("SELECT sum(count) FROM hour").fetchone()[0]
    assert set(rounds.values()) == {50}
    assert len(rounds) in (last + 1, last + 2)  # a round may be committed and not printed
    assert samples == 50 * len(rounds)
    with closing(SeriesDatabase(path)) as database:
        database.add([Sample(SeriesObject("topic", "t7"), "in_per_s", NOW, 3.0)])
    assert stored(path, FINE, SeriesObject("topic", "t7"))[NOW] == (2, 4.0, 1.0, 3.0)


def test_each_level_forgets_by_itself(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(SeriesDatabase(path)) as database:
        database.add([Sample(TOPIC, "in_per_s", NOW, 5.0)])
        database.prune(NOW + FINE.keep_ms + FINE.step_ms, 10**9)
        assert (stored(path, FINE), len(stored(path, MINUTE))) == ({}, 1)
        database.prune(NOW + MINUTE.keep_ms + MINUTE.step_ms, 10**9)
        assert (stored(path, MINUTE), len(stored(path, HOUR))) == ({}, 1)
        database.prune(NOW + HOUR.keep_ms + 2 * HOUR.step_ms, 10**9)
        database.prune(NOW + 2 * HOUR.keep_ms + 4 * HOUR.step_ms, 10**9)
        assert stored(path, HOUR) == {}
    with closing(sqlite3.connect(path)) as found:
        assert found.execute("SELECT count(*) FROM series").fetchone() == (0,)


def test_the_limit_of_bytes_deletes_the_oldest_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(SeriesDatabase(path)) as database:
        for round in range(200):
            at_ms = NOW + round * FINE.step_ms
            database.add(
                [Sample(SeriesObject("topic", f"t{n}"), "in_per_s", at_ms, n + 0.5) for n in range(40)]
            )
        assert not database.prune(at_ms, 10**9)
        before = database.bytes()
        assert database.prune(at_ms, before // 2)
        assert database.bytes() <= before // 2
        left = stored(path, FINE, SeriesObject("topic", "t7"))
        assert max(left) == at_ms and min(left) > NOW
        assert not database.prune(at_ms, before)


@pytest.mark.parametrize("damage", [b"no database at all" * 100, None])
def test_a_file_that_is_not_usable_is_set_aside(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / FILE
    if damage is not None:
        path.write_bytes(damage)
    else:
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA user_version = 99")
    with closing(SeriesDatabase(path)) as database:
        database.add([Sample(TOPIC, "in_per_s", NOW, 5.0)])
    assert len(stored(path, FINE)) == 1
    assert path.with_name(f"{FILE}.damaged").exists()


def test_a_write_that_fails_is_an_error_and_loses_no_series_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(SeriesDatabase(path)) as database, closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON hour BEGIN SELECT raise(ABORT, 'full'); END")
        with pytest.raises(PeerError, match="full") as caught:
            database.add([Sample(TOPIC, "in_per_s", NOW, 5.0)])
        assert caught.value.code == "HUB-3097"
        other.execute("DROP TRIGGER full")
        database.add([Sample(VIEW, "rows", NOW, 1.0), Sample(TOPIC, "in_per_s", NOW, 6.0)])
    assert stored(path, FINE)[NOW].mean == 6.0
    assert stored(path, FINE, VIEW, "rows")[NOW].mean == 1.0


# ---- samples


def lag_row(
    name: str,
    topic: str | None,
    seconds: float | None,
    *,
    position: int = 0,
    at_ms: int = NOW,
    kind: str = "group",
) -> LagRow:
    state = "UNKNOWN" if seconds is None else "OK"
    error, records = (None, None) if seconds is None else (0.5, 10)
    view = name if kind == "view" else None
    return LagRow(
        *(kind, name, view, topic, "", state, "", None, records, seconds, error, None, None, None, None),
        position=position,
        members=None,
        measured_at_ms=at_ms,
        trend=(),
    )


def moment(
    *rows: LagRow, at_ms: int = NOW, rate: float | None = 4.0, error: str | None = None, **more: Any
) -> Moment:
    line = TopicLine(TOPIC.name, TopicKind.events, 1, 100, rate, 3, ())
    overview = Overview(at_ms, KafkaHealth("", at_ms, error), None, (line,), ())
    return Moment(at_ms, overview, rows, rows_known=error is None, **more)


def values_of(found: Moment, before: Before | None = None) -> dict[tuple[str, str], float]:
    samples, _ = sampled(found, before or Before())
    return {(str(each.object), each.metric): each.value for each in samples}


def test_what_is_not_known_has_no_sample() -> None:
    known = values_of(moment(lag_row("billing", TOPIC.name, 2.0)))
    assert known["topic:shop.orders", "in_per_s"] == 4.0
    assert known["topic:shop.orders", "undecodable"] == 3.0
    assert known["topic:shop.orders", "lag_s"] == 2.0
    assert known["reader:group/billing/shop.orders", "lag_error_s"] == 0.5
    away = values_of(moment(lag_row("billing", TOPIC.name, None), rate=4.0, error="no answer"))
    assert [name for name in away if name[0].startswith(("topic", "reader", "hub"))] == []


def test_what_readers_took_is_the_rate_out_of_a_topic() -> None:
    first = moment(lag_row("a", TOPIC.name, 0.0, position=100), lag_row("b", TOPIC.name, 0.0, position=50))
    _, before = sampled(first, Before())
    at_ms = NOW + 10_000
    rows = [
        lag_row("a", TOPIC.name, 0.0, position=200, at_ms=at_ms),
        lag_row("b", TOPIC.name, 0.0, position=70, at_ms=at_ms),
    ]
    found = values_of(moment(*rows, at_ms=at_ms), before)
    assert found["reader:group/a/shop.orders", "read_per_s"] == 10.0
    assert found["topic:shop.orders", "out_per_s"] == 12.0
    # Without an earlier position of b, the sum of a and b is not known; without a reader it is 0.
    only_a = Before({reader_object("group", "a", TOPIC.name): (100, NOW)}, NOW)
    assert ("topic:shop.orders", "out_per_s") not in values_of(moment(*rows, at_ms=at_ms), only_a)
    assert values_of(moment())["topic:shop.orders", "out_per_s"] == 0.0
    # A reader that was set back has no rate.
    back = Before({reader_object("group", "a", TOPIC.name): (300, NOW)}, NOW)
    assert ("reader:group/a/shop.orders", "read_per_s") not in values_of(moment(*rows, at_ms=at_ms), back)


def test_each_batch_is_sampled_once_and_none_of_before_the_start() -> None:
    def batches(*times: int) -> Moment:
        some = [BatchSummary(at_ms, 250, 10) for at_ms in times]
        return moment(at_ms=max(times), batches={"people": some})

    samples, before = sampled(batches(NOW), Before())
    assert [each for each in samples if each.metric == "batch_s"] == []
    samples, before = sampled(batches(NOW, NOW + 3_000, NOW + 6_000), before)
    assert [each.at_ms for each in samples if each.metric == "batch_s"] == [NOW + 3_000, NOW + 6_000]
    samples, _ = sampled(batches(NOW + 6_000), before)
    assert [each for each in samples if each.metric == "batch_s"] == []


# ---- marks


def version(number: int, state: str, why: str = "changed", since_ms: int = NOW) -> dict[str, Any]:
    return {"number": number, "state": state, "why": why, "since_ms": since_ms}


def test_swaps_and_rollbacks_are_marks_and_the_first_version_is_none() -> None:
    def marks(*versions: Mapping[str, Any]) -> list[tuple[str, str]]:
        found = marks_of(moment(versions={"people": {"versions": versions}}))
        return [(each.kind, each.text) for each in found]

    assert marks(version(1, "served", "first")) == []
    assert marks(version(1, "former", "first"), version(2, "served")) == [
        ("swap", "version 2 of people was swapped in")
    ]
    assert marks(version(1, "served", "first"), version(2, "former")) == [
        ("rollback", "people was rolled back to version 1")
    ]
    assert list(marks_of(moment(versions={"odd": {"versions": "of another release"}}))) == []


def test_a_failover_is_a_mark_of_its_mirror() -> None:
    owned = {"home": "east", "acting": "west", "at_ms": NOW, "topics": []}
    (mark,) = marks_of(moment(mirrors=[{"mirror": "dr", "state": "unknown", "ownership": [owned]}]))
    assert mark == Mark(
        NOW, "failover", SeriesObject("mirror", "dr"), "west became the owner of the topics of east"
    )
    assert concerns(mark, HUB) and not concerns(mark, TOPIC)


def test_charts_have_the_marks_of_their_objects() -> None:
    reader = Mark(NOW, "alert", reader_object("group", "a/b", TOPIC.name), "")
    assert concerns(reader, TOPIC) and concerns(reader, reader.object)
    assert not concerns(reader, SeriesObject("topic", "b")) and not concerns(reader, VIEW)
    swap = Mark(NOW, "swap", VIEW, "")
    assert concerns(swap, reader_object("applier", "people", TOPIC.name))
    assert not concerns(swap, reader_object("group", "people", TOPIC.name))


# ---- more series than the limit


def test_declared_and_busy_topics_are_kept_finely_and_the_rest_is_counted() -> None:
    topics = [SeriesObject("topic", f"t{n}") for n in range(100)]
    sizes = {HUB: 2, VIEW: 2, **dict.fromkeys(topics, 2)}
    rates = {each.name: float(number) for number, each in enumerate(topics)}
    found = select(sizes, rates, lambda topic: topic == "t0", frozenset(), 10)
    assert found.fine == {HUB, VIEW, topics[0], topics[99], topics[98]}
    assert len(found.coarse) == 20 and found.left_out == 102 - 5 - 20
    again = select(sizes, {**rates, "t1": 99.5}, lambda topic: topic == "t0", found.fine, 10)
    assert again.fine == found.fine  # a little busier is not enough
    much = select(sizes, {**rates, "t1": 999.0}, lambda topic: topic == "t0", found.fine, 10)
    assert topics[1] in much.fine and topics[98] not in much.fine
    assert select(sizes, {}, lambda _topic: False, frozenset(), 0).left_out == len(sizes)


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW

    def __call__(self) -> int:
        return self.now_ms


def recorder_of(folder: Path, clock: Clock, topics: int = 3, most: int = 1_000) -> SeriesRecorder:
    def now() -> Moment:
        lines = tuple(TopicLine(f"t{n}", TopicKind.events, 1, 10, float(n), 0, ()) for n in range(topics))
        overview = Overview(clock.now_ms, KafkaHealth("", clock.now_ms, None), None, lines, ())
        return Moment(clock.now_ms, overview, rows_known=True)

    return SeriesRecorder(folder, now, most=most, now_ms=clock)


def test_an_estate_over_the_limit_is_recorded_within_it(tmp_path: Path) -> None:
    clock = Clock()
    recorder = recorder_of(tmp_path, clock, topics=200, most=30)
    for _ in range(7):
        recorder.step()
        clock.now_ms += 10_000
    recorder.close()
    status = recorder.status
    assert status.fine <= 30 and status.coarse <= 30 * COARSE_TIMES
    kept = (30 * COARSE_TIMES - len(METRICS["hub"])) // len(METRICS["topic"])
    assert status.left_out == 200 - kept
    path = tmp_path / FILE
    busiest, idle = SeriesObject("topic", "t199"), SeriesObject("topic", "t185")
    assert len(stored(path, FINE, busiest)) == 7
    assert stored(path, FINE, idle) == {} and stored(path, HOUR, idle)[NOW].samples == 2
    reader = SeriesReader(tmp_path, lambda: status, now_ms=clock)
    found = reader.read([idle], ["in_per_s"], RANGES["1h"])
    assert found.window.step_ms == HOUR.step_ms and found.lines[0].values[-1] == 185.0
    assert "by the hour" in found.notes[0]


def test_of_two_servers_on_one_home_one_writes_and_the_other_takes_over(tmp_path: Path) -> None:
    clock = Clock()
    one, other = recorder_of(tmp_path, clock), recorder_of(tmp_path, clock)
    one.step()
    other.step()
    assert "another server" in (other.status.error or "")
    assert stored(tmp_path / FILE, FINE, SeriesObject("topic", "t2"))[NOW].samples == 1
    one.close()
    other.step()
    assert other.status.error is None
    assert stored(tmp_path / FILE, FINE, SeriesObject("topic", "t2"))[NOW].samples == 2
    other.close()


def test_rounds_are_in_the_middle_of_their_intervals(tmp_path: Path) -> None:
    clock = Clock()
    recorder = recorder_of(tmp_path, clock)
    for late_ms in (0, 3_000, 4_999, 5_001, 9_999):
        clock.now_ms = NOW + late_ms
        next_ms = clock.now_ms + recorder.pause_s(0.0) * 1000
        assert next_ms % 10_000 == pytest.approx(5_000)
        assert 0 < next_ms - clock.now_ms <= 10_000


def test_a_store_that_cannot_be_opened_is_said_and_tried_again(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path, Clock())
    (tmp_path / FILE).mkdir()
    with pytest.raises(PeerError):
        recorder.step()
    assert "series.db" in (recorder.status.error or "")
    (tmp_path / FILE).rmdir()
    recorder.step()
    assert recorder.status.error is None
    recorder.close()


# ---- reading


@contextmanager
def signed_in(may: Callable[[Action, Resource], bool]) -> Iterator[None]:
    def decide(action: Action, resource: Resource) -> AccessDecision:
        return AccessDecision(may(action, resource), "the grant is missing")

    token = CALLER.set(Caller("ana", frozenset(), decide))
    try:
        yield
    finally:
        CALLER.reset(token)


def test_a_caller_gets_the_series_and_marks_of_what_they_see(tmp_path: Path) -> None:
    other = SeriesObject("topic", "hr.salaries")
    with closing(SeriesDatabase(tmp_path / FILE)) as database:
        database.add([Sample(about, "in_per_s", NOW, 1.0) for about in (TOPIC, other)])
        database.add_marks(
            [
                Mark(NOW, "alert", TOPIC, "alert lag fires"),
                Mark(NOW, "alert", other, "alert secret fires"),
                Mark(NOW, "start", HUB, "server started"),
            ]
        )
    reader = SeriesReader(tmp_path, now_ms=lambda: NOW + 20_000)
    with signed_in(lambda _action, what: what.kind is Kind.topic and what.name.startswith("shop.")):
        found = reader.read([TOPIC], (), RANGES["1h"])
        assert found.lines[0].values[-3] == 1.0
        assert [mark.text for mark in found.marks] == ["alert lag fires"]
        assert reader.objects("topic") == [TOPIC]
        for hidden in (other, HUB, SeriesObject("mirror", "dr"), reader_object("group", "x", other.name)):
            with pytest.raises(Forbidden):
                reader.read([TOPIC, hidden], (), RANGES["1h"])
    assert len(reader.read([HUB], (), RANGES["1h"]).marks) == 3


def test_marks_are_the_same_however_often_they_are_written(tmp_path: Path) -> None:
    with closing(SeriesDatabase(tmp_path / FILE)) as database:
        for _ in range(3):
            database.add_marks([Mark(NOW, "swap", VIEW, "version 2 of people was swapped in")])
    assert len(StoredSeries(tmp_path / FILE).marks(NOW, NOW + 1)) == 1


def test_before_the_first_round_it_is_said_that_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="no series are recorded yet"):
        SeriesReader(tmp_path).read([TOPIC], (), RANGES["1h"])


@pytest.mark.parametrize(
    "text", ["", "topic:", "topic", "hub:x", "planet:x", "reader:group/x", "reader:group//t"]
)
def test_a_wrong_object_is_an_error_with_the_ways_to_write_one(text: str) -> None:
    with pytest.raises(CallerError) as caught:
        parsed_object(text)
    assert caught.value.code == "HUB-1006" and "topic:NAME" in (caught.value.hint or "")


@given(st.text(min_size=1), st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True))
def test_a_reader_is_read_back_from_its_text(name: str, topic: str) -> None:
    about = reader_object("group", name, topic)
    assert parsed_object(str(about)) == about and about.reader == ("group", name, topic)


def test_every_panel_shows_metrics_of_one_unit_that_are_recorded() -> None:
    for kind, panels in PANELS.items():
        for panel in panels:
            metrics = [METRICS[panel.per or kind][name] for name in panel.metrics]
            assert len({each.unit for each in metrics}) == 1
            assert not panel.error or METRICS[kind][panel.error].unit == metrics[0].unit
    with pytest.raises(CallerError, match="unknown"):
        checked_metrics([TOPIC], ["rows"])
