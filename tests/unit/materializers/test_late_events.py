"""Late events by window, and the watermark that would have taken them."""

from __future__ import annotations

from hub.materializers.progress.late_events import LateEvent, by_window, late_event, needed_ms, window_ms
from hub.record import Record

MINUTE = 60_000


def test_counts_by_window_and_topic() -> None:
    events = [LateEvent("t", n * MINUTE, 20 * MINUTE) for n in (0, 4, 5)] + [LateEvent("u", 0, MINUTE)]
    assert by_window(events, 5 * MINUTE) == [
        {
            "window": f"1970-01-01T00:0{start}:00.000Z",
            "until": f"1970-01-01T00:{start + 5:02d}:00.000Z",
            "topic": topic,
            "late": late,
            "behind_ms": behind * MINUTE,
        }
        for start, topic, late, behind in ((0, "t", 2, 20), (0, "u", 1, 1), (5, "t", 1, 15))
    ]


def test_the_watermark_that_would_have_taken_them() -> None:
    events = [LateEvent("t", 0, 20 * MINUTE), LateEvent("t", 0, 5 * MINUTE)]
    assert needed_ms(events, 10 * MINUTE) == 31 * MINUTE  # an event exactly at the watermark is late
    assert needed_ms([], 10 * MINUTE) == 10 * MINUTE


def test_a_record_says_when_it_was_and_how_far_the_view() -> None:
    headers = (
        ("hub.late.topic", b"t"),
        ("hub.late.event_time", b"1970-01-01T00:00:01.500Z"),
        ("hub.late.watermark", b"1970-01-01T00:01:00.000Z"),
    )
    record = Record("views.v.late", 0, 0, 0, None, None, headers)
    assert late_event(record) == LateEvent("t", 1_500, MINUTE)
    assert late_event(Record("views.v.late", 0, 0, 0, None, None, headers[:2])) is None


def test_the_length_of_the_window() -> None:
    assert window_ms("SELECT window(at, '2 hours', '1 hour').start FROM t") == 120 * MINUTE
    assert window_ms("SELECT a FROM t") == 60 * MINUTE
