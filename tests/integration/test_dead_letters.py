"""Views with bad input, on real Kafka and real Spark: nothing is lost, and a repaired event counts once."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pipeline import Pipeline, plain, records_of, wait_until

from hub.cli import main
from hub.cli.context import environment_of
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord, Record
from hub.schema_registry.codecs.wire_format import encode, frame, parsed
from hub.topics.dead_letters.model import ACTIONS_TOPIC, RecordPlace
from hub.topics.dead_letters.queue import DeadLetters

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
MINUTE = 60_000
AT = {"type": "long", "logicalType": "timestamp-millis"}
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": ["null", "string"], "default": None},
        {"name": "name", "type": "string"},
        {"name": "at", "type": AT},
        {"name": "cents", "type": "long"},
        {"name": "n", "type": "long"},
        {"name": "event_id", "type": "string"},
    ],
}
# The same names, other types: each view reads one of them.
OTHER = {
    "type": "record",
    "name": "Other",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}],
}


class Desk:
    """One topic and the views over it."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.pipeline, self.topic = pipeline, f"{name}.events"
        self.writer = pipeline.cluster.writer(self.topic)  # named: it takes what the topic takes
        config = {"max.message.bytes": "4000000"}
        pipeline.cluster.create_topic(self.topic, partitions=1, config=config, replication_factor=1)
        self.schema_id = pipeline.registry.register(f"{self.topic}-value", json.dumps(EVENT))
        self.views: list[Path] = []
        self.letters = DeadLetters(pipeline.cluster, pipeline.registry)

    def declare(self, view: str, body: dict[str, Any]) -> None:
        path = self.pipeline.views / f"{view}.yaml"
        path.write_text(json.dumps({"view": view, **body}))
        self.views.append(path)

    def value(self, number: int, **more: Any) -> bytes:
        event = {
            "id": "a",
            "name": f"n{number}",
            "at": START + number * MINUTE,
            "cents": number * 10,
            "n": number,
            "event_id": f"e{number}",
        }
        return encode(self.schema_id, parsed(EVENT), {**event, **more})

    def write(self, value: bytes | None, key: str = "a", at: int = START) -> int:
        after = self.writer.append([NewRecord(self.topic, key.encode(), value, (("x", b"y"),), at)])
        ((_, end),) = list(after)
        return end - 1

    def rows(self, view: str) -> dict[str, dict[str, Any]]:
        self.pipeline.covers(view, [self.topic], 400.0)
        return {key: plain(row) for key, row in self.pipeline.rows(view).items()}

    def dead(self, view: str, *offsets: int) -> list[RecordPlace]:
        """Return the positions of the view's dead-letter records for these events."""
        name, found = f"{self.topic}.dlq", dict[int, RecordPlace]()

        def all_there() -> bool:
            letters = self.letters.letters([name]).letters
            found.update(
                {
                    each.letter.of.offset: each.letter.at
                    for each in letters
                    if each.letter.by == view and each.letter.of
                }
            )
            return set(offsets) <= found.keys()

        wait_until(all_there, 120.0, lambda: f"{view} has letters of {sorted(found)}, not of all {offsets}")
        return [found[offset] for offset in offsets]


@pytest.fixture
def desk(pipeline: Pipeline, request: pytest.FixtureRequest) -> Desk:
    return Desk(pipeline, request.node.name.removeprefix("test_")[:20].rstrip("_"))


def entity(topic: str, **more: Any) -> dict[str, Any]:
    return {
        "sources": {"e": {"topic": topic, "key": "id", **more}},
        "fields": {"name": "e.name", "sum": "sum(e.cents)", "count": "count(e.n)"},
    }


@pytest.mark.timeout(900)
def test_bad_events_become_letters_and_a_replay_has_its_first_place(
    desk: Desk, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    latest, unique, clicks = (
        f"{desk.topic.partition('.')[0]}_{kind}" for kind in ("latest", "unique", "clicks")
    )
    desk.declare(latest, entity(desk.topic))
    desk.declare(unique, entity(desk.topic, order="n", unique_by="event_id"))
    times = {"topic": desk.topic, "event_time": "at", "watermark": "10 minutes", "max_ahead": "1 day"}
    desk.declare(
        clicks,
        {
            "sources": {"e": times},
            "sql": "SELECT window(at, '5 minutes').start AS w, count(*) AS n FROM e GROUP BY "
            "window(at, '5 minutes')",
        },
    )
    other_id = pipeline.registry.register("somebody-value", json.dumps(OTHER))
    desk.write(desk.value(0))
    cut = desk.write(desk.value(1)[:-1])
    wrong_type = desk.write(frame(other_id, b"\x02\x02x"))
    unknown = desk.write(frame(987_654, b"\x02"))
    no_key = desk.write(desk.value(2, id=None))
    large = desk.write(b"x" * 2_000_000)
    null = desk.write(None)  # a tombstone of key "a", and one whose order is a number cannot be placed
    future = desk.write(desk.value(3, at=4_000_000_000_000))
    desk.write(desk.value(4))
    desk.write(desk.value(4))  # a duplicate
    desk.write(desk.value(5, n=-1))  # out of order
    for jump in (
        90,
        91,
    ):  # the clock jumps; a batch is judged by the watermark of the one before, so two of them
        desk.write(desk.value(jump))
        desk.rows(clicks)
    idle_until = (
        time.monotonic() + 12.0
    )  # a query that was idle so long is reported as if its next batch had run already

    offsets = (cut, wrong_type, unknown, no_key, large)
    dead = dict(zip(offsets, desk.dead(latest, *offsets), strict=True))
    desk.dead(unique, *offsets, null)
    desk.dead(clicks, cut, wrong_type, unknown, large, future)  # and not the tombstone: it makes no row
    # Shown: the field that is cut off; the bytes, the headers and the time are the event's own.
    row = desk.letters.show(dead[cut])
    assert row["field"] == "event_id" and row["json"]["name"] == "n1" and row["json"]["cents"] == 10
    assert row["headers"] == {"x": "y"} and row["timestamp_ms"] == START
    assert desk.letters.show(dead[large])["bytes"] == 2_000_000

    time.sleep(max(0.0, idle_until - time.monotonic()))
    late = desk.write(desk.value(6))
    rows = desk.rows(latest)
    assert rows["a"]["name"] == "n6" and rows["a"]["count"] == 8
    assert desk.rows(unique)["a"]["count"] == 7
    assert desk.rows(unique)["a"]["name"] == "n91"
    desk.rows(clicks)
    state = pipeline.state(clicks)
    by_reason = {row["topic"]: row["by_reason"] for row in desk.letters.heaps()[0]}
    assert by_reason[f"views.{clicks}.late"] == {"late": 1}, state
    reasons = {
        "undecodable": 3,
        "unfitting": 3,
        "unknown_schema": 3,
        "framing": 3,
        "null_key": 2,
        "tombstone": 1,
    }
    reasons |= {"event_time_ahead": 1}
    assert by_reason[f"{desk.topic}.dlq"] == reasons
    assert sum(row["n"] for row in desk.rows(clicks).values()) <= 7
    assert desk.letters.letters([f"views.{clicks}.late"]).letters[0].letter.of == RecordPlace(
        desk.topic, 0, late
    )

    # Repaired by the command line and replayed, twice: it is counted once, and is not the latest.
    for name, text in environment_of(pipeline.settings).items():
        monkeypatch.setenv(name, text)

    def hub(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["dlq", *arguments])
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out

    place = dead[cut]
    assert "event_id" in hub("repair", place.topic, str(place.offset), "--set", "event_id=e1", "--by", "ann")
    for _ in range(2):
        hub("replay", place.topic, str(place.offset))
    (replayed,) = _replays(pipeline, desk.topic)
    assert (replayed.key, replayed.value, replayed.timestamp_ms) == (b"a", desk.value(1), START)
    assert replayed.header("hub.replay.of") == f"{desk.topic}:0:{cut}".encode()
    rows = desk.rows(latest)
    assert rows["a"]["name"] == "n6" and rows["a"]["count"] == 9
    assert desk.rows(unique)["a"]["count"] == 8

    # Only the views that had it dead take the one whose key was null: the windows have counted it already.
    counted = sum(row["n"] for row in desk.rows(clicks).values())
    url = f"{pipeline.url}/dlq/{dead[no_key].topic}/0/{dead[no_key].offset}"
    assert httpx2.post(f"{url}/replay", timeout=60.0).status_code == 400
    body = {"set": {"id": "a"}, "by": "web"}
    assert httpx2.post(f"{url}/repair", json={**body, "dry_run": True}, timeout=60.0).json()["changes"] == [
        {"field": "id", "before": None, "after": "a"}
    ]
    assert httpx2.post(f"{url}/repair", json=body, timeout=60.0).json()["state"] == "repaired"
    assert httpx2.post(f"{url}/replay", timeout=60.0).json()["for"] == sorted([latest, unique])
    assert httpx2.post(f"{url}/replay", timeout=60.0).json()["done"] == "before"
    assert desk.rows(latest)["a"]["count"] == 10 and desk.rows(latest)["a"]["name"] == "n6"
    assert sum(row["n"] for row in desk.rows(clicks).values()) == counted

    # The others are closed.
    listed = json.loads(hub("ls", place.topic, "-l", "-o", "json"))
    hub("dismiss", place.topic, *(str(each["offset"]) for each in listed), "--why", "tests")
    counts = httpx2.get(f"{pipeline.url}/dlq", params={"topic": desk.topic}, timeout=60.0).json()
    assert counts["complete"] and counts["topics"][0]["open"] == 0 and counts["topics"][0]["replayed"] == 5
    assert httpx2.get(f"{pipeline.url}/dlq/nowhere.dlq/0/0", timeout=60.0).status_code == 404
    assert pipeline.cluster.topic_config([ACTIONS_TOPIC])[ACTIONS_TOPIC]["cleanup.policy"] == "compact"

    # Rebuilt, the view has the same row; it writes its dead-letter records again, and their state is kept.
    before, written = desk.rows(latest)["a"], pipeline.cluster.end_offsets([place.topic])
    body = entity(desk.topic)
    desk.declare(latest, {**body, "fields": {**body["fields"], "most": "max(e.cents)"}})
    wait_until(
        lambda: "most" in pipeline.rows(latest).get("a", {}), 120.0, lambda: str(pipeline.state(latest))
    )
    assert desk.rows(latest)["a"] == {**before, "most": 910}
    assert not written.covers(pipeline.cluster.end_offsets([place.topic]))
    (heap,), _ = desk.letters.heaps(place.topic)
    assert (heap["open"], heap["repaired"]) == (0, 0)


@pytest.mark.timeout(600)
def test_large_events_become_rows_or_letters_whatever_keeps_the_view(desk: Desk, pipeline: Pipeline) -> None:
    """Views accept whatever their topic accepts: as rows, or as dead-letter records. By Spark's sink and
    by the hub's own."""
    head = desk.topic.partition(".")[0]
    one, native, delta = (f"{head}_{kind}" for kind in ("entity", "native", "delta"))
    desk.declare(one, {"sources": {"e": {"topic": desk.topic, "key": "id"}}, "fields": {"name": "e.name"}})
    columns = {
        "sources": {"e": {"topic": desk.topic}},
        "sql": "SELECT id, max(name) AS name FROM e GROUP BY id",
    }
    desk.declare(native, columns)
    desk.declare(delta, {**columns, "sql": f"{columns['sql']} HAVING count(DISTINCT n) > 0"})
    desk.write(desk.value(0))
    large = incompressible(3_000_000)  # a topic counts the bytes of compressed batches
    dead = desk.write(desk.value(1, name=large)[:-1])
    desk.write(desk.value(2, name=large, id="b"))
    desk.write(desk.value(3, id="c"))
    for view in (one, native, delta):
        rows = desk.rows(view)
        assert {key: len(row["name"]) for key, row in rows.items()} == {"a": 2, "b": len(large), "c": 2}
        (place,) = desk.dead(view, dead)
        assert desk.letters.show(place)["bytes"] == len(desk.value(1, name=large)) - 1


@pytest.mark.timeout(600)
def test_a_row_that_its_changelog_does_not_take_stops_its_view_which_says_so(
    desk: Desk, pipeline: Pipeline
) -> None:
    """A list that grows: no event is large, the row is. The view keeps its rows, and continues when there
    is room."""
    head = desk.topic.partition(".")[0]
    listed, counted = f"{head}_listed", f"{head}_counted"
    source = {"topic": desk.topic, "key": "id", "unique_by": "event_id"}
    desk.declare(listed, {"sources": {"e": source}, "fields": {"names": "collect_list(e.name)"}})
    desk.declare(counted, {"sources": {"e": source}, "fields": {"names": "count(e.name)"}})
    part = incompressible(1_500_000)
    for n in range(2):
        desk.write(desk.value(n, name=part))
    assert len(desk.rows(listed)["a"]["names"]) == 2
    for n in range(2, 4):
        desk.write(desk.value(n, name=part))
    assert desk.rows(counted)["a"]["names"] == 4  # it stops alone
    wait_until(
        lambda: f"max.message.bytes of topic views.{listed}" in (pipeline.state(listed).get("reason") or ""),
        120.0,
        lambda: str(pipeline.state(listed)),
    )
    assert len(pipeline.rows(listed)["a"]["names"]) == 2
    pipeline.cluster.alter_config(f"views.{listed}", {"max.message.bytes": "9000000"})
    assert len(desk.rows(listed)["a"]["names"]) == 4


def incompressible(length: int) -> str:
    return random.Random(length).randbytes(length // 2).hex()


def _replays(pipeline: Pipeline, topic: str) -> list[Record]:
    return [record for record in records_of(pipeline.cluster, topic) if record.header("hub.replay.letter")]


def _last_report(pipeline: Pipeline, view: str) -> dict[str, Any]:
    """Return what the materializer itself reported last about a view."""
    reports = [
        each for each in records_of(pipeline.cluster, PROGRESS_TOPIC) if each.key == f"state:{view}".encode()
    ]
    return dict(json.loads(reports[-1].value or b"{}"))


@pytest.mark.timeout(900)
def test_a_topic_made_anew_and_a_log_cut_off_under_a_view(desk: Desk, pipeline: Pipeline) -> None:
    view = f"{desk.topic.partition('.')[0]}_view"
    desk.declare(view, entity(desk.topic))
    for n in range(5):
        desk.write(desk.value(n))
    assert desk.rows(view)["a"]["count"] == 5
    # Larger than the dead-letter topic allowed at its creation: it now accepts what its source accepts.
    pipeline.cluster.alter_config(desk.topic, {"max.message.bytes": "6000000"})
    desk.writer = pipeline.cluster.writer(desk.topic)
    desk.dead(view, desk.write(b"x" * 5_000_000))
    # Deleted: the view reports it and keeps its rows. Recreated: its rows are those of the new topic.
    pipeline.cluster.delete_topic(desk.topic)
    wait_until(
        lambda: f'topic "{desk.topic}" does not exist' in (pipeline.state(view).get("reason") or ""),
        120.0,
        lambda: str(pipeline.state(view)),
    )
    assert pipeline.rows(view)["a"]["count"] == 5
    pipeline.cluster.create_topic(desk.topic, partitions=1, config={}, replication_factor=1)
    desk.writer = pipeline.cluster.writer(desk.topic)
    desk.write(desk.value(7))
    wait_until(
        lambda: plain(pipeline.rows(view).get("a", {})).get("count") == 1,
        180.0,
        lambda: str(pipeline.state(view)),
    )
    assert desk.rows(view)["a"]["name"] == "n7"
    # Retention deletes records that a stopped view has not read: the view reports it and does not skip them.
    path = desk.views[0]
    text = path.read_text()
    path.unlink()
    wait_until(lambda: _last_report(pipeline, view)["state"] == "stopped", 120.0)
    wait_until(lambda: pipeline.state(view).get("state") == "removed", 60.0)
    for n in range(3):
        desk.write(desk.value(n))
    cut = KafkaTopicPartition(desk.topic, 0, desk.write(desk.value(8)))
    for future in pipeline.cluster.admin.delete_records([cut]).values():
        future.result(15.0)
    path.write_text(text)
    wait_until(
        lambda: pipeline.state(view).get("state") in ("retrying", "failed"),
        120.0,
        lambda: str(pipeline.state(view)),
    )
    said = f"{desk.topic} partition 0: ["
    wait_until(
        lambda: said in (pipeline.state(view).get("reason") or ""), 120.0, lambda: str(pipeline.state(view))
    )
