"""Lineage over two real clusters: a topic of another region, the mirror that brings it,
and who reads the copy here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mirror_world import World, own_world
from pipeline import wait_until
from ports import free_ports
from processes import running_server
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.config import Settings
from hub.record import Positions


@pytest.mark.timeout(300)
def test_the_way_of_an_event_begins_in_the_other_region(kafka: str, home: str, tmp_path: Path) -> None:
    """The hub is at lon. Its lag is reported in seconds, also when no worker carries the topic."""
    with own_world(tmp_path / "project", home, kafka) as world:
        topic, group = f"{world.label}.chat", f"{world.label}.readers"
        world.make(topic)
        world.produce(topic, 200)
        world.declare([f"{world.label}.**"])
        world.hub("apply", world.name)
        world.start_worker()
        world.caught_up({topic: 200})
        world.clusters["lon"].publish_group(group, Positions.of([(topic, 0, 10), (topic, 1, 10)]))
        own = Settings(
            home=tmp_path / "home",
            project=world.folder,
            bootstrap=kafka,
            embedded_kafka=False,
            http_port=free_ports(1)[0],
            lag_sample_s=0.5,
            alerts=False,
        )
        with running_server(own) as url:
            _told_by_the_command(own, world, topic)
            _followed(url, world, topic, group)
        # A hub knows the ends of its own topics: it needs no worker to report waiting records.
        there = own.model_copy(
            update={"home": tmp_path / "at-nyc", "bootstrap": home, "http_port": free_ports(1)[0]}
        )
        with running_server(there) as url:
            _told_at_the_source(there, url, world, topic)


def _reader(url: str, world: World, topic: str) -> dict[str, Any]:
    """The mirror as a reader among all others."""
    rows = httpx2.get(f"{url}/api/lag", params={"kind": "mirror"}, timeout=30).json()
    assert {row["name"] for row in rows} <= {world.name}
    return next((row for row in rows if row["topic"] == topic), {})


def _told_at_the_source(own: Settings, url: str, world: World, topic: str) -> None:
    row: dict[str, Any] = {}

    def stopped() -> bool:
        row.clear()
        row.update(_reader(url, world, topic))
        return row.get("state") == "STOPPED"

    wait_until(stopped, 90.0, lambda: str(row))
    assert row["records"] == 40 and row["cause"].endswith("no worker mirrors it now: hub mirror run")
    assert row["seconds"] > 0 and row["error_s"] is not None
    done = CliRunner().invoke(
        app, ["lag", "--kind", "mirror"], env=environment_of(own), catch_exceptions=False
    )
    assert done.exit_code == 0 and topic in done.output and "STOPPED" in done.output


def _told_by_the_command(own: Settings, world: World, topic: str) -> None:
    """Also by the very first, which waits for the clusters' first answer."""
    done = CliRunner().invoke(
        app, ["lineage", f"{topic}@nyc", "-o", "json"], env=environment_of(own), catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    ways = {(edge["source"], edge["target"]) for edge in json.loads(done.stdout)["edges"]}
    mirror = f"mirror:{world.name}/{topic}"
    assert {(f"topic:{topic}@nyc", mirror), (mirror, f"topic:{topic}")} <= ways


def _followed(url: str, world: World, topic: str, group: str) -> None:
    found: dict[str, Any] = {}
    mirror = f"mirror:{world.name}/{topic}"

    def edge() -> dict[str, Any]:
        answer = httpx2.get(f"{url}/api/lineage", params={"of": f"group:{group}", "steps": 9}, timeout=30)
        found.clear()
        found.update(answer.json())
        return next((each for each in found.get("edges", ()) if each["target"] == mirror), {})

    def until(state: str) -> dict[str, Any]:
        wait_until(lambda: edge().get("state") == state, 90.0, lambda: f"{found}\n{world.logs()}")
        return edge()

    carried = until("OK")
    assert carried["seconds"] is not None and carried["error_s"] is not None
    wait_until(lambda: _reader(url, world, topic).get("state") == "OK", 60.0)
    reader = _reader(url, world, topic)
    assert (reader["records"], reader["seconds"]) == (0, 0.0) and reader["error_s"] > 0
    path = [each["target"] for each in found["late"]["path"]]
    assert path == [mirror, f"topic:{topic}", f"group:{group}"]
    page = httpx2.get(f"{url}/lineage?of={mirror}", headers={"accept": "text/html"}, timeout=30).text
    assert "Why late?" in page and f"{topic}@nyc" in page
    jobs = {each["job"]["name"]: each for each in httpx2.get(f"{url}/api/openlineage", timeout=30).json()}
    job = jobs[f"{world.name}/{topic}"]
    assert job["inputs"] == [{"namespace": f"kafka://{world.nyc}", "name": topic}]
    assert job["outputs"] == [{"namespace": f"kafka://{world.lon}", "name": topic}]

    world.workers[0].stop()
    # The hub asks the source itself how far it reaches: what waits is known, and grows.
    still = until("STOPPED")
    assert "hub mirror run" in still["cause"]
    assert (still["records"], still["seconds"]) == (0, 0.0) and still["error_s"] > 0
    world.produce(topic, 40)
    wait_until(lambda: edge().get("records") == 40, 90.0, lambda: str(found))
    still = edge()
    assert still["state"] == "STOPPED" and still["seconds"] is not None and still["error_s"] is not None
    assert mirror in {each["target"] for each in found["late"]["path"]}
