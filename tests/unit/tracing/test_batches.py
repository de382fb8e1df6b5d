"""Spans of batches and pushes: linked to their origins, bounded, and found by the changelog's offsets."""

from __future__ import annotations

import random
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hub.api.push_traces import MOST_WAITING, Push, PushTraces, applied_by
from hub.materializers.progress.batch_traces import BatchTraces, chosen, stretches_of
from hub.materializers.progress.latency_samples import SAMPLES
from hub.materializers.progress.records import Progress, progress_of
from hub.record import Positions, Record, TopicPartition
from hub.tracing import Trace, parse, with_trace

PLACE = TopicPartition("t", 0)


def trace_of(offset: int) -> Trace:
    return Trace(f"{offset + 1:032x}", f"{offset + 1:016x}", offset % 2 == 0)


class Reading:
    """A reader of a log whose every event is of a trace of its own; those of odd offsets are not sampled."""

    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}

    def reader(self, *, queue_kb: int = 0) -> Reading:
        return self

    def assign(self, positions: Positions) -> None:
        self.at = dict(positions)

    def poll(self, most: int, _timeout_s: float) -> list[Record]:
        found = []
        for place, at in self.at.items():
            for offset in range(at, at + 3):
                headers = with_trace((), trace_of(offset))
                found.append(Record(*place, offset, 0, b"k", b"v", headers))
            self.at[place] = at + 3
        return found[:most]

    def position(self) -> Positions:
        return Positions(self.at)

    def close(self) -> None: ...


def progress(offset: int, view: str = "v") -> Progress:
    return Progress(view, 1, offset, "live", Positions({PLACE: offset}), Positions(), 5, 40, 1_000)


def test_a_batch_links_to_a_few_of_its_sampled_events(
    recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = BatchTraces(Reading(), random.Random(1))  # type: ignore[arg-type]
    monkeypatch.setattr(BatchTraces, "_run", lambda self: None)
    first = traces.traced(progress(10))
    second = traces.traced(progress(13))
    third = traces.traced(progress(1_000_000))
    assert traces.traced(third) is third and traces.step() == 3
    one, two, three = recorded.get_finished_spans()
    assert one.links == () and parse(first.trace) is not None
    assert [f"{each.context.trace_id:032x}" for each in two.links] == [
        trace_of(10).trace_id,
        trace_of(12).trace_id,
    ]
    assert 1 <= len(three.links) <= SAMPLES
    assert (two.start_time, two.end_time) == (960_000_000, 1_000_000_000)
    assert f"{two.context.span_id:016x}" in second.trace
    again = Record("_hub.progress", 0, 0, 0, second.record().key, second.record().value)
    told = progress_of(again, "views.v")
    assert told is not None and told.trace == second.trace


def test_untraced_progress_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.tracing.otel._spans", None)
    asked = progress(10)
    assert BatchTraces(Reading()).traced(asked) is asked  # type: ignore[arg-type]
    assert b"trace" not in (asked.record().value or b"")


def test_places_to_look_at_are_few_and_within() -> None:
    before, after = Positions({PLACE: 5}), Positions({TopicPartition("t", n): 1_000 for n in range(40)})
    found = chosen(stretches_of(before, after), random.Random(3))
    assert 1 <= len(found) <= SAMPLES
    assert all(0 <= first < end == 1_000 for first, end in found.values())
    assert stretches_of(None, after) == {} == stretches_of(after, after)


def batches(*stretches: tuple[int, int]) -> list[dict[str, Any]]:
    return [
        {"traceparent": trace_of(2 * n).traceparent, "first": {"0": first}, "end": {"0": end}}
        for n, (first, end) in enumerate(stretches)
    ]


def test_a_push_is_of_the_batch_whose_stretch_has_its_row() -> None:
    told = batches((0, 10), (10, 20))
    assert applied_by(Push(0, 9, 0, 0), told) == trace_of(0)
    assert applied_by(Push(0, 10, 0, 0), told) == trace_of(2)
    assert applied_by(Push(0, 3, 0, 0), batches((5, 10))) is None
    assert applied_by(Push(0, 20, 0, 0), told) is applied_by(Push(1, 5, 0, 0), told) is None


def test_pushes_wait_for_their_batch_and_not_for_ever(recorded: InMemorySpanExporter) -> None:
    from hub.tracing import spans

    known, now, told = spans(), [10**9], {}
    assert known is not None
    pushes = PushTraces(known, lambda: told, lambda: now[0])
    row: Any = type("Row", (), {"partition": 0, "offset": 12})
    pushes.sent("v", row, 5)
    pushes.sent("v", row, 6)  # within the same quarter of a second
    pushes.step()
    assert recorded.get_finished_spans() == ()
    told["trace:v"] = {"batches": batches((0, 10), (10, 20))}
    pushes.step()
    (span,) = recorded.get_finished_spans()
    assert (span.name, span.start_time, span.end_time) == ("push v", 5, 10**9)
    assert f"{span.links[0].context.trace_id:032x}" == trace_of(2).trace_id
    for _ in range(100):
        now[0] += 10**9
        pushes.sent("other", row, 5)
    assert len(pushes.waiting["other"]) == MOST_WAITING
    now[0] += 60 * 10**9
    pushes.step()
    assert not pushes.waiting and len(recorded.get_finished_spans()) == 1


def test_pushes_are_traced_after_the_clock_was_set_back(recorded: InMemorySpanExporter) -> None:
    from hub.tracing import spans

    known, now = spans(), [3_600 * 10**9]
    assert known is not None
    pushes = PushTraces(known, dict, lambda: now[0])
    row: Any = type("Row", (), {"partition": 0, "offset": 12})
    pushes.sent("v", row, 5)
    now[0] = 10**9
    pushes.sent("v", row, 6)
    assert [each.ended_ns for each in pushes.waiting["v"]] == [3_600 * 10**9, 10**9]
    pushes.step()
    assert [each.ended_ns for each in pushes.waiting["v"]] == [10**9]
