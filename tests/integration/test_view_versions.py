"""Versions of views on real Kafka and Spark: a changed view is built while the old one serves; readers
notice nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import httpx2
import pytest
from pipeline import Pipeline, wait_until
from plant import Plant
from plant_traffic import SENSORS, Events, Reader, served, shown, versions
from processes import call_hub

pytestmark = pytest.mark.timeout(900)


def hub(pipeline: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call_hub(pipeline.settings, *arguments)


def running(
    pipeline: Pipeline, name: str, fields: dict[str, str], indexes: str = "[]"
) -> tuple[Plant, Events]:
    """A plant whose view runs, after a first round of readings."""
    plant = Plant(pipeline, name)
    plant.declare(fields, indexes)
    events = Events(plant)
    events.once()
    plant.running()
    return plant, events


def test_a_changed_view_is_swapped_under_its_readers_and_rolled_back(pipeline: Pipeline) -> None:
    plant, events = running(pipeline, "swapped", {"celsius": "r.celsius"})
    plant.covered("s39", events.last)
    wait_until(lambda: plant.pipeline.state(plant.view).get("rows") == SENSORS, 120.0)
    with events, Reader(plant) as reader:
        time.sleep(2.0)
        plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"})
        wait_until(lambda: served(plant, 2), 180.0, lambda: shown(plant))
        wait_until(lambda: plant.row("s7").json().get("readings", 0) > 1, 120.0, lambda: plant.row("s7").text)
        plant.covered("s39", events.last)  # a write is read from the new version too
        told = httpx2.get(f"{pipeline.url}/view-versions/{plant.view}", timeout=60.0).json()["versions"]
        report = told[-1]["comparison"]
        assert (report["rows_before"], report["rows_after"], report["differing"]) == (SENSORS, SENSORS, 0)
        assert report["columns"] == ["celsius"] and report["added"] == ["readings"]
        wait_until(lambda: "readings" in reader.copy.get("s7", {}), 120.0, lambda: str(reader.copy.get("s7")))
        assert len(reader.copy) == SENSORS

        planned = hub(pipeline, "view", "plan", plant.view)
        assert planned.returncode == 0 and "version 2 is served" in planned.stdout, planned
        back = hub(pipeline, "view", "rollback", plant.view)
        assert back.returncode == 0, back
        assert "readings" not in plant.row("s7").json()
        assert versions(plant) == {1: "served", 2: "former"}
        plant.covered("s39", events.last)  # it was kept up to date
        again = hub(pipeline, "view", "rollback", plant.view)
        assert again.returncode != 0 and "already" in again.stderr, again
        forward = hub(pipeline, "view", "apply", plant.view)
        assert forward.returncode == 0, forward
        assert "readings" in plant.row("s7").json()
    assert reader.wrong == [] and reader.reads > 10
    assert reader.resets >= 1
    row = plant.row("s7", events.last).json()
    assert (row["celsius"], row["readings"]) == (float(events.rounds - 1), events.rounds)

    dropped = hub(pipeline, "view", "drop", plant.view)
    assert dropped.returncode == 0, dropped
    topic = f"views.{plant.view}"
    wait_until(lambda: topic not in pipeline.cluster.topics(), 120.0)
    assert f"{topic}.v2" in pipeline.cluster.topics()
    assert plant.row("s7").json()["readings"] == events.rounds
    proven = hub(pipeline, "view", "verify", plant.view)
    assert proven.returncode == 0, proven


def test_a_view_over_a_view_follows_the_version_that_is_served(pipeline: Pipeline) -> None:
    plant, _ = running(pipeline, "below", {"site": "concat('one-', substring(r.sensor, 1, 1))"})
    above = Plant(pipeline, "above")
    above.view = "plant_above"
    text = (
        f"view: plant_above\nsources:\n  v: {{view: {plant.view}}}\n"
        "sql: SELECT site, count(*) AS sensors FROM v GROUP BY site\n"
    )
    (pipeline.settings.project / "views" / "plant_above.yaml").write_text(text)
    wait_until(lambda: _sensors(above, "one-s") == SENSORS, 120.0, lambda: str(pipeline.state("plant_above")))
    plant.declare({"site": "concat('two-', substring(r.sensor, 1, 1))"})
    wait_until(lambda: served(plant, 2), 180.0, lambda: shown(plant))
    seen: set[int | None] = set()

    def swapped() -> bool:
        seen.add(_sensors(above, "one-s"))
        return _sensors(above, "two-s") == SENSORS

    wait_until(swapped, 180.0, lambda: shown(above))
    assert versions(above) == {1: "former", 2: "served"}
    assert seen <= {SENSORS, None}  # as it was, until it was as it is


def _sensors(plant: Plant, site: str) -> int | None:
    found: int | None = plant.row(site).json().get("sensors")
    return found


def test_manual_waits_for_apply_and_a_lost_checkpoint_is_built_anew_beside(pipeline: Pipeline) -> None:
    plant, events = running(pipeline, "manual", {"celsius": "r.celsius"}, "[]\nswap: manual")
    plant.declare({"celsius": "r.celsius * 2"}, "[]\nswap: {when: manual, keep_hours: 0}")
    wait_until(lambda: versions(plant) == {1: "served", 2: "ready"}, 180.0, lambda: shown(plant))
    # It is held when it has been compared, too.
    wait_until(lambda: versions(plant, "held")[2] == "swap: manual", 120.0, lambda: shown(plant))
    events.once()
    assert plant.row("s7", events.last).json()["celsius"] == 1.0
    assert hub(pipeline, "view", "apply", plant.view).returncode == 0
    assert plant.row("s7").json()["celsius"] == 2.0
    wait_until(lambda: versions(plant) == {2: "served"}, 120.0, lambda: shown(plant))


@pytest.mark.parametrize("moment_s", [0.2, 3.0] if "HUB_FAULT_SEEDS" in os.environ else [3.0])
def test_a_kill_while_a_version_is_built_leaves_one_whole_version_served(
    pipeline: Pipeline, moment_s: float
) -> None:
    plant, events = running(pipeline, f"killed{round(moment_s * 10)}", {"celsius": "r.celsius"})
    wait_until(lambda: pipeline.state(plant.view).get("rows") == SENSORS, 120.0)
    with events, Reader(plant) as reader:
        plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"})
        wait_until(lambda: 2 in versions(plant), 120.0, lambda: shown(plant))
        time.sleep(moment_s)
        pipeline.kill("materialize")
        assert list(versions(plant).values()).count("served") == 1
        pipeline.start("materialize")
        wait_until(lambda: served(plant, 2), 240.0, lambda: shown(plant))
        wait_until(lambda: "readings" in plant.row("s7").json(), 120.0)
    assert reader.wrong == [] and reader.reads > 5
    row = plant.row("s7", events.last).json()
    assert (row["celsius"], row["readings"]) == (float(events.rounds - 1), events.rounds)

    # And without its checkpoint: the rows stay while the view is rebuilt.
    pipeline.kill("materialize")
    shutil.rmtree(pipeline.settings.checkpoints / f"{plant.view}@2")
    with Reader(plant) as reader:
        pipeline.start("materialize")
        wait_until(lambda: served(plant, 3), 240.0, lambda: shown(plant))
        wait_until(lambda: plant.row("s7").json()["readings"] == events.rounds, 120.0)
    assert reader.wrong == []


def test_in_place_keeps_the_one_topic_and_replaces_its_rows(pipeline: Pipeline) -> None:
    plant, _ = running(pipeline, "in_place", {"celsius": "r.celsius"}, "[]\nswap: in_place")
    plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"}, "[]\nswap: in_place")
    wait_until(lambda: plant.row("s7").json().get("readings") == 1, 120.0, lambda: plant.row("s7").text)
    assert list(versions(plant).values()) == ["served"]
    assert f"views.{plant.view}.v2" not in pipeline.cluster.topics()


def test_a_file_that_is_wrong_leaves_the_view_as_it_is_and_says_so(pipeline: Pipeline) -> None:
    plant, events = running(pipeline, "misspelled", {"celsius": "r.celsius"})
    plant.declare({"celsius": "r.celsious"})
    wait_until(lambda: "celsious" in str(pipeline.state(plant.view).get("reason")), 120.0)
    events.once()
    assert plant.row("s7", events.last).json()["celsius"] == 1.0
    assert pipeline.state(plant.view).get("state") == "live"
    plant.declare({"celsius": "r.celsius"}, "[celsius]")  # no new meaning: an index
    wait_until(lambda: not pipeline.state(plant.view).get("reason", "nothing is told"), 120.0)
    wait_until(lambda: pipeline.state(plant.view).get("indexes") == ["celsius"], 120.0)
    assert versions(plant) == {1: "served"}
