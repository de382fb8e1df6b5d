"""Outcomes of spans, as reported by processes without a port of their own."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hub.api.dashboard import span_series
from hub.log import MemoryCluster
from hub.materializers.progress import span_counts
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.span_counts import MOST_SERVICES, SILENT_MS, SpanCounts, read_counts, record

NOW = 1_790_000_000_000


class Known:
    """Spans as the process has them."""

    def __init__(self) -> None:
        self.exported = 3

    def counters(self) -> dict[str, int]:
        return {"exported": self.exported, "failed": 0, "dropped": 1}


def bodies(cluster: MemoryCluster) -> list[tuple[bytes | None, Any]]:
    reader = cluster.reader()
    reader.assign(cluster.beginning_offsets([PROGRESS_TOPIC]))
    return [(each.key, orjson.loads(each.value or b"")["counters"]) for each in reader.poll(100, 0.0)]


def test_they_are_told_when_there_is_news_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    known, cluster = Known(), MemoryCluster()
    monkeypatch.setattr(span_counts, "spans", lambda: known)
    counts = SpanCounts(cluster, "hub-applier")
    assert not counts.step(0.0)  # nothing is there to write to
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    assert counts.step(1.0)
    assert not counts.step(6.0)
    known.exported = 4
    assert counts.step(11.0)
    assert not counts.step(40.0)
    assert counts.step(42.0)
    assert [body["exported"] for _, body in bodies(cluster)] == [3, 4, 4]
    assert {key for key, _ in bodies(cluster)} == {b"spans:hub-applier"}
    monkeypatch.setattr(span_counts, "spans", lambda: None)
    assert not counts.step(100.0)


def heard(*services: str, at_ms: int = NOW) -> dict[str, Any]:
    found = {}
    for service in services:
        written = record(service, {"exported": 7, "dropped": 1}, at_ms)
        found[(written.key or b"").decode()] = orjson.loads(written.value or b"")
    return found


def test_what_is_not_told_any_more_is_not_known() -> None:
    assert list(read_counts(heard("a"), NOW + SILENT_MS)) == [("a", "exported", 7), ("a", "dropped", 1)]
    assert list(read_counts(heard("a"), NOW + SILENT_MS + 1)) == []


def test_records_of_others_and_too_many_of_them_are_left_out() -> None:
    strange: dict[str, Any] = {
        "spans:x": {},
        "spans:y": {"at_ms": NOW, "counters": {"exported": "many", "else": 1}},
        "spans:z": {"at_ms": "now", "counters": {"exported": 1}},
        "latency:serving": {"at_ms": NOW, "counters": {"exported": 1}},
    }
    assert list(read_counts(strange, NOW)) == []
    many = heard(*(f"s-{number:03}" for number in range(MOST_SERVICES + 5)))
    assert len({each.service for each in read_counts(many, NOW)}) == MOST_SERVICES


def test_the_series_have_all_processes_and_nobody_speaks_for_the_server() -> None:
    samples = span_series(heard("hub-applier", "hub-server"), NOW).samples
    assert {(each.labels["service"], each.labels["outcome"], each.value) for each in samples} == {
        ("hub-applier", "exported", 7.0),
        ("hub-applier", "dropped", 1.0),
    }
