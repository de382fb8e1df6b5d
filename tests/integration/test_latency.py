"""Latency of events on real Kafka and Spark: every row of a keyed view, samples of a SQL view, pushes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pipeline import Pipeline, records_of, wait_until
from plant import Plant
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.client import Hub
from hub.materializers.progress.records import PROGRESS_TOPIC, progress_of
from hub.record import NewRecord, Positions, TopicPartition

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def plant(pipeline: Pipeline) -> Iterator[Plant]:
    """A keyed view and a SQL view over one topic, both live, with an objective."""
    made = Plant(pipeline, "latency")
    made.declare({"celsius": "r.celsius"})
    (pipeline.settings.project / "views" / "plant_latency_sql.yaml").write_text(
        f"view: plant_latency_sql\nsources:\n  r: {{topic: {made.topic}}}\n"
        "sql: SELECT sensor, count(*) AS readings FROM r GROUP BY sensor\n"
    )
    (pipeline.settings.project / "topics.yaml").write_text(
        "topics: {plant: {topics: {latency: {slo: {latency: 45s}}}}}\n"
    )
    made.running()
    yield made
    made.writer.close()
    (pipeline.settings.project / "topics.yaml").unlink()


def rows(plant: Plant, **asked: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = (
        httpx2.get(f"{plant.pipeline.url}/api/latency", params=asked, timeout=60.0).raise_for_status().json()
    )
    return {(row["view"], row["stage"], row["origin"]): row for row in found}


def test_every_stage_is_measured_and_history_apart(plant: Plant) -> None:
    pipeline = plant.pipeline
    wait_until(
        lambda: pipeline.state("plant_latency_sql").get("state") == "live",
        PATIENCE_S,
        lambda: str(pipeline.state("plant_latency_sql")),
    )
    stop, heard = threading.Event(), threading.Event()

    def listen(view: str) -> None:
        with Hub(pipeline.url).subscribe(view) as changes:
            for _ in changes:
                heard.set()
                if stop.is_set():
                    return

    views = (plant.view, "plant_latency_sql")
    listeners = [threading.Thread(target=listen, args=(view,), daemon=True) for view in views]
    for listener in listeners:
        listener.start()
    old = plant.reading("s-old", 1.0)
    plant.writer.append([NewRecord(plant.topic, b"s-old", old, (), time.time_ns() // 1_000_000 - 7_200_000)])
    written = 0

    def measured() -> bool:
        nonlocal written
        written += 1
        plant.covered("s-1", plant.write("s-1", plant.reading("s-1", float(written))))
        known = rows(plant)
        wanted = [
            *(
                (plant.view, stage, "live")
                for stage in ("appended", "read", "changelog", "readable", "pushed")
            ),
            (plant.view, "readable", "replay"),
            *(("plant_latency_sql", stage, "live") for stage in ("read", "readable", "pushed")),
        ]
        return all(known.get(each, {}).get("total") for each in wanted)

    wait_until(measured, PATIENCE_S, lambda: str(rows(plant)))
    stop.set()
    plant.covered("s-1", plant.write("s-1", plant.reading("s-1", 0.5)))
    for listener in listeners:
        listener.join(60.0)
    assert heard.is_set()
    known = rows(plant)
    live = known[plant.view, "readable", "live"]
    assert live["total"] <= written + 1
    assert not live["sampled"]
    for stage in ("read", "readable", "pushed"):
        assert known["plant_latency_sql", stage, "live"]["sampled"]
    assert not known[plant.view, "pushed", "live"]["sampled"]
    assert live["objective_s"] == 45.0
    # Each stage is measured from the event's own time, so a later one is never earlier.
    assert known[plant.view, "changelog", "live"]["p50_s"] <= live["p50_s"]
    read = known[plant.view, "read", "live"]
    assert 0 < read["total"] <= known[plant.view, "changelog", "live"]["total"]
    assert not read["sampled"] and read["store"] == "" and read["objective_s"] == 45.0
    assert known[plant.view, "readable", "replay"]["total"] == 1
    text = httpx2.get(f"{pipeline.url}/metrics", timeout=60.0).text
    assert (
        f'hub_view_latency_seconds_count{{origin="replay",stage="readable",store="serving",view="{plant.view}"}} 1.0'  # noqa: E501
        in text
    )
    assert f'hub_view_latency_objective_seconds{{view="{plant.view}"}} 45.0' in text


def test_a_batch_takes_an_event_after_it_was_written_and_before_its_row_is(plant: Plant) -> None:
    """One event a batch: each was written before its batch took it, and the batch wrote its row after."""
    pipeline, said = plant.pipeline, []
    for number in range(6):
        after = plant.write("s-read", plant.reading("s-read", 100.0 + number))
        plant.covered("s-read", after)
        wait_until(lambda after=after: reached(plant).covers(after), PATIENCE_S, lambda: str(reached(plant)))
        said.append(after)
    progress = [
        told
        for record in records_of(pipeline.cluster, PROGRESS_TOPIC)
        if record.key == f"progress:{plant.view}".encode()
        and (told := progress_of(record, f"views.{plant.view}")) is not None
    ]
    events = {record.offset: record.timestamp_ms for record in records_of(pipeline.cluster, plant.topic)}
    rows_at = [record for record in pipeline.changelog(plant.view) if record.key == b"s-read"]
    place = TopicPartition(plant.topic, 0)
    proven = 0
    for before, batch in pairwise(progress):
        taken = range(before.sources.get(place), batch.sources.get(place))
        if batch.batch_id != before.batch_id + 1 or not taken:
            continue
        assert batch.read_at_ms is not None
        assert all(events[offset] <= batch.read_at_ms for offset in taken)
        assert batch.read_at_ms <= batch.committed_at_ms
        # Of one key and one event a write, so the newest row before the batch's end is its own.
        made = [row for row in rows_at if row.offset < batch.changelog.get(row.topic_partition)]
        if made and taken[-1] >= said[0].get(place) - 1:
            assert batch.read_at_ms <= made[-1].timestamp_ms
            proven += 1
    assert proven > 0, progress


def reached(plant: Plant) -> Positions:
    """Return the source positions in the view's progress."""
    newest = [
        told
        for record in records_of(plant.pipeline.cluster, PROGRESS_TOPIC)
        if (told := progress_of(record, f"views.{plant.view}")) is not None and told.view == plant.view
    ]
    return newest[-1].sources if newest else Positions()


def test_the_command_shows_them(plant: Plant, tmp_path: Path) -> None:
    environment = environment_of(plant.pipeline.settings)
    shown = CliRunner().invoke(app, ["latency", plant.view], env=environment)
    assert shown.exit_code == 0, shown.output
    assert "45 s" in shown.stdout
    assert {"read", "changelog", "readable"} <= set(shown.stdout.split())
    assert "replay" in shown.stdout
    # Of a view its rows are compared wherever the command is run, and of a topic that is only called like one
    # nothing is.
    audited = ["completeness", "run", f"views.{plant.view}", "-o", "json"]
    ran = CliRunner().invoke(app, audited, env={**environment, "HUB_PROJECT": str(tmp_path)})
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)[0]["tiers"][0]["state"] == "BALANCED"
    ran = CliRunner().invoke(app, audited, env=environment)
    assert ran.exit_code == 0, ran.output
    (audit,) = json.loads(ran.stdout)
    (store,) = audit["tiers"]
    assert (store["kind"], store["instance"], store["state"]) == ("view", f"{plant.view}@serving", "BALANCED")
    assert store["compared"] == len(plant.pipeline.rows(plant.view))
    missing = CliRunner().invoke(app, ["latency", "plant_latencx"], env=environment)
    assert missing.exit_code == 1
    assert "not measured" in str(missing.exception)


def test_lineage_shows_what_runs_with_columns_and_why_it_is_late(plant: Plant) -> None:
    environment = environment_of(plant.pipeline.settings)
    shown = CliRunner().invoke(app, ["lineage", plant.view, "-o", "json"], env=environment)
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    ways = {(edge["source"], edge["target"]) for edge in found["edges"]}
    assert {
        (f"topic:{plant.topic}", f"view:{plant.view}"),
        (f"view:{plant.view}", f"topic:views.{plant.view}"),
        (f"topic:views.{plant.view}", f"store:{plant.view}/serving"),
    } <= ways
    assert found["columns"]["celsius"] == [[plant.topic, "celsius"]]
    assert found["late"]["path"][-1]["target"] == f"view:{plant.view}"
    table = CliRunner().invoke(app, ["lineage", plant.view], env=environment)
    assert table.exit_code == 0, table.output
    assert f"celsius <- {plant.topic} celsius" in table.stdout
    told = CliRunner().invoke(app, ["lineage", "-o", "openlineage"], env=environment)
    jobs = {event["job"]["name"]: event for event in json.loads(told.stdout)}
    assert [each["name"] for each in jobs[plant.view]["inputs"]] == [plant.topic]
    missing = CliRunner().invoke(app, ["lineage", "plant_latencx"], env=environment)
    assert missing.exit_code == 1 and plant.view in str(getattr(missing.exception, "hint", ""))
