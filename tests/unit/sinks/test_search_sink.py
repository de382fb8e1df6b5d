"""The sink ``search`` against a double of the ``_bulk`` API (tests/search_cluster.py)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from search_cluster import SearchCluster, search_cluster

from hub.errors import ConfigError
from hub.record import Positions, Record, TopicPartition
from hub.sinks.events import SinkBatch, SinkEvent
from hub.sinks.sinks_file import SearchTarget, SinkEntry, load_sinks
from hub.sinks.targets import bulk
from hub.sinks.targets.bulk import actions_of, judge_items, version_of
from hub.sinks.targets.search import SearchIndexSink

PLACE = TopicPartition("docs.articles", 0)


def event(
    offset: int, key: bytes | None, row: dict[str, Any] | None, topic: str = "docs.articles"
) -> SinkEvent:
    headers = (("hub.version", str((1 << 40) + offset).encode()),) if topic != "docs.articles" else ()
    return SinkEvent(Record(topic, 0, offset, 1_700_000_000_000, key, b"{}" if row else None, headers), row)


def batch(events: Sequence[SinkEvent], before: int = 0) -> SinkBatch:
    after = max((each.record.offset for each in events), default=before) + 1
    return SinkBatch(events, Positions({PLACE: before}), Positions({PLACE: after}))


@pytest.fixture
def cluster() -> Iterator[SearchCluster]:
    with search_cluster() as made:
        yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "FIRST_PAUSE_S", 0.001)


def opened(cluster: SearchCluster, **more: Any) -> tuple[SearchIndexSink, list[str]]:
    said: list[str] = []
    target = SearchTarget.model_validate(
        {"url": cluster.url, "index": "articles", "authorization": "${KEY}", **more}
    )
    return SearchIndexSink("s", target, {"KEY": "ApiKey abc"}, said.append), said


def deliver(target: SearchIndexSink, events: Sequence[SinkEvent]) -> Any:
    return target.deliver(batch(events), threading.Event(), lambda _refused: None)


def test_documents_are_written_replaced_and_deleted_by_key(cluster: SearchCluster) -> None:
    target, said = opened(cluster)
    rows = [
        event(0, b"a", {"n": 1}),
        event(1, b"b", {"n": 2}),
        event(2, b"a", {"n": 3}),
        event(3, b"b", None),
    ]
    found = deliver(target, [*rows, event(4, None, {"n": 4})])
    assert cluster.live() == {"a": {"n": 3}, "docs.articles-0-4": {"n": 4}}
    assert (found.events, found.refused, found.positions) == (5, [], Positions({PLACE: 5}))
    assert cluster.authorization == {"ApiKey abc"} and said == [""]
    target.close()


def test_a_repeat_changes_nothing(cluster: SearchCluster) -> None:
    target, _ = opened(cluster)
    rows = [event(n, f"k{n % 5}".encode(), None if n % 3 == 0 else {"n": n}) for n in range(40)]
    deliver(target, rows)
    before, changes = cluster.live(), cluster.changes
    for start in (0, 17, 39):
        found = deliver(target, rows[start:])
        assert not found.refused
    deliver(target, rows[:20])  # a former worker that is late
    assert (cluster.live(), cluster.changes) == (before, changes)
    target.close()


def test_any_batches_and_failures_give_the_newest_documents(cluster: SearchCluster) -> None:
    chance = random.Random(4)
    target, _ = opened(cluster, request_mb=0.0005)
    expected: dict[str, Any] = {}
    for start in range(0, 300, 20):
        rows = []
        for offset in range(start, start + 20):
            key = f"k{chance.randrange(12)}"
            row = None if chance.random() < 0.3 else {"n": offset, "text": "x" * chance.randrange(90)}
            rows.append(event(offset, key.encode(), row))
            expected[key] = row
        cluster.answers = chance.choices([200, 429, 503, 500, 502, 401], k=2)
        cluster.refusals = {f"k{n}": [chance.choice([429, 503, 404])] for n in range(3)}
        assert deliver(target, rows).refused == []
    assert cluster.live() == {key: row for key, row in expected.items() if row is not None}
    assert len(cluster.requests) > 15
    target.close()


def test_a_document_that_does_not_fit_is_refused_alone(cluster: SearchCluster) -> None:
    target, _ = opened(cluster)
    cluster.wrong = {"bad"}
    found = deliver(
        target, [event(0, b"a", {"n": 1}), event(1, b"bad", {"n": 2}), event(2, b"x" * 600, {"n": 3})]
    )
    reasons = {each.record.offset: each.reason for each in found.refused}
    assert "mapper_parsing_exception" in reasons[1] and "600 bytes" in reasons[2] and len(reasons) == 2
    assert cluster.live() == {"a": {"n": 1}} and found.events == 1
    target.close()


def test_a_document_that_the_cluster_fails_on_is_given_up_after_its_attempts(cluster: SearchCluster) -> None:
    target, said = opened(cluster, attempts=3)
    cluster.refusals = {"a": [500] * 9, "b": [429] * 9}
    found = deliver(target, [event(0, b"a", {"n": 1}), event(1, b"b", {"n": 2})])
    assert [each.record.offset for each in found.refused] == [0] and "3 attempts" in found.refused[0].reason
    assert cluster.live() == {"b": {"n": 2}}  # busy is waited for without an end
    assert "documents wait" in said[0] and said[-1] == ""
    target.close()


def test_a_request_that_is_too_large_is_halved(cluster: SearchCluster) -> None:
    target, _ = opened(cluster)
    cluster.most_bytes = 400
    rows = [event(n, b"k%d" % n, {"n": n}) for n in range(9)]
    found = deliver(target, [*rows, event(9, b"large", {"text": "x" * 500})])
    assert [each.record.offset for each in found.refused] == [9] and "HTTP 413" in found.refused[0].reason
    assert len(cluster.live()) == 9
    target.close()


def test_a_cluster_that_is_away_is_waited_for_until_the_sink_stops(cluster: SearchCluster) -> None:
    target, said = opened(cluster)
    cluster.answers = [503] * 10_000
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    found = target.deliver(batch([event(5, b"a", {"n": 1}), event(6, b"b", {"n": 2})]), stop, lambda _: None)
    assert (found.events, found.refused, found.positions) == (0, [], Positions({PLACE: 5}))
    assert "2 documents wait: HTTP 503" in said[0]
    target.close()


def test_rows_of_views_have_the_version_of_the_row() -> None:
    assert version_of(event(7, b"k", {"n": 1}).record) == 8
    assert version_of(event(7, b"k", {"n": 1}, "views.articles").record) == (1 << 40) + 7
    left = SinkEvent(event(7, b"k", None, "views.articles").record, None, left=True)
    ((action,), refused) = actions_of("articles", [left])
    assert action.deletes and not refused


@pytest.mark.parametrize("body", [None, {}, {"items": []}, {"items": [{"index": {}}]}, [], {"items": [{}]}])
def test_another_answer_is_none_of_bulk(body: Any) -> None:
    actions, _ = actions_of("articles", [event(0, b"a", {"n": 1})])
    with pytest.raises((ValueError, KeyError, StopIteration)):
        judge_items(body, actions)


def test_the_file_has_no_secrets_and_its_address_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "sinks.yaml"
    for authorization, wrong in (('"ApiKey abc"', True), ('"${KEY}"', False)):
        path.write_text(
            "sinks:\n  s:\n    from: views.articles\n"
            f"    search: {{url: https://search.example, index: articles, authorization: {authorization}}}\n"
        )
        entries, errors = load_sinks(path)
        assert bool(errors) is wrong
    assert (entries["s"].kind, entries["s"].place) == ("search", "https://search.example articles")
    two = {"from": "a", "search": {"url": "http://x", "index": "i"}, "topic": {"name": "t"}}
    with pytest.raises(ValueError, match="webhook, topic, database, files or search"):
        SinkEntry.model_validate(two)
    target = SearchTarget.model_validate(
        {"url": "http://169.254.169.254", "index": "i", "authorization": "${KEY}"}
    )
    with pytest.raises(ConfigError, match="KEY is not set"):
        SearchIndexSink("s", target, {})
    opened_ = SearchIndexSink("s", target, {"KEY": "x"})
    answer, _ = opened_.request([])
    assert answer.status is None and "search: host" in answer.text
    opened_.close()
