"""How long events take, on real Kafka and Spark: a keyed view's every row, a SQL view's samples, what is pushed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pipeline import Pipeline, wait_until
from plant import Plant
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.client import Hub
from hub.record import NewRecord

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
            *((plant.view, stage, "live") for stage in ("appended", "changelog", "readable", "pushed")),
            (plant.view, "readable", "replay"),
            *(("plant_latency_sql", stage, "live") for stage in ("readable", "pushed")),
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
    for stage in ("readable", "pushed"):
        assert known["plant_latency_sql", stage, "live"]["sampled"]
    assert not known[plant.view, "pushed", "live"]["sampled"]
    assert live["objective_s"] == 45.0
    # Each stage is measured from the event's own time, so a later one is never earlier.
    assert known[plant.view, "changelog", "live"]["p50_s"] <= live["p50_s"]
    assert known[plant.view, "readable", "replay"]["total"] == 1
    text = httpx2.get(f"{pipeline.url}/metrics", timeout=60.0).text
    assert (
        f'hub_view_latency_seconds_count{{origin="replay",stage="readable",store="serving",view="{plant.view}"}} 1.0'
        in text
    )
    assert f'hub_view_latency_objective_seconds{{view="{plant.view}"}} 45.0' in text


def test_the_command_shows_them(plant: Plant, tmp_path: Path) -> None:
    environment = environment_of(plant.pipeline.settings)
    shown = CliRunner().invoke(app, ["latency", plant.view], env=environment)
    assert shown.exit_code == 0, shown.output
    assert "45 s" in shown.stdout
    assert "replay" in shown.stdout
    # Of a view its rows are compared wherever the command is run, and of a topic that is only called like one nothing is.
    audited = ["audit", "run", f"views.{plant.view}", "-o", "json"]
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
