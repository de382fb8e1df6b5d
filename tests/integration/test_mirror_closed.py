"""A mirror out of a closed region: its cluster accepts connections only from inside, where the worker runs.
The target's side has an address of it at which a trap counts connections: there are none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
import yaml
from mirror_world import World, own_world, well
from patience import patient
from pipeline import wait_until
from processes import Running, Server, call_hub, own_settings

from hub.config import Settings

ROOT = Path(__file__).parents[2]


class Trap:
    """An address that accepts connections, counts them and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.accepted: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.accepted.append(self._socket.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        for each in (self._socket, *self.accepted):
            each.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    """The side of the region: its commands and its worker have the source as their own cluster."""
    with own_world(tmp_path / "inside", home, away) as made:
        made.told["HUB_BOOTSTRAP"] = home
        made.declare([f"{made.label}.**"])
        body = json.loads(made.path.read_text())
        body["clusters"]["nyc"]["closed"] = True
        made.path.write_text(json.dumps(body))
        yield made


@pytest.fixture
def outside(world: World, trap: Trap, tmp_path: Path) -> Settings:
    """The target's side: the same file, in which the region's address is the trap."""
    folder = tmp_path / "outside"
    folder.mkdir()
    body = json.loads(world.path.read_text())
    body["clusters"]["nyc"]["bootstrap"] = trap.address
    (folder / "mirrors.yaml").write_text(json.dumps(body))
    return own_settings(tmp_path / "home", folder).model_copy(update={"bootstrap": world.lon})


def hub(outside: Settings, *arguments: str, ok: int = 0) -> tuple[str, str]:
    done = call_hub(outside, "mirror", *arguments)
    assert done.returncode == ok, f"{arguments}: {done}"
    return done.stdout, done.stderr


def status(outside: Settings, world: World) -> dict[str, Any]:
    """The status as the server at the target returns it."""
    answer = httpx2.get(f"{outside.url}/api/mirrors", timeout=60)
    assert answer.status_code == 200, answer.text
    cards = {each["name"]: each for each in answer.json()["mirrors"]}
    card = cards.get(world.name, {})
    return {**card["status"], "partitions": card["partitions"]} if card else {}


def post(outside: Settings, world: World, action: str, ok: int = 200) -> Any:
    url = f"{outside.url}/api/mirrors/{world.name}/{action}"
    answer = httpx2.post(url, json={"name": world.name, "wait_s": 120}, timeout=300)
    assert answer.status_code == ok, f"{action}: {answer.text}"
    return answer.json()


@pytest.mark.timeout(420)
def test_a_closed_region_is_mirrored_from_inside(
    world: World, outside: Settings, trap: Trap, tmp_path: Path
) -> None:
    orders = f"{world.label}.orders"
    world.make(orders)
    world.produce(orders, 60)
    idle = Running({**_variables(outside)}, "mirror", "run", log=tmp_path / "idle.log")
    idle.start()
    worker = world.start_worker()
    server = Server(outside)
    server.start()
    try:
        world.until(well)
        _is_watched(world, outside)
        _is_operated_inside(world, outside)
        # The region goes away with records that were not mirrored, is failed over, and comes back.
        worker.kill()
        world.produce(orders, 5, mark="tail")
        wait_until(lambda: status(outside, world).get("state") == "no worker", 60.0, world.logs)
        assert status(outside, world)["ok"] is False
        lost = post(outside, world, "failover")
        assert lost["new"] == "lon" and lost["exact"] is False and lost["source_heard_at_ms"] is not None
        world.produce(orders, 7, at="lon", mark="away")
        world.start_worker()
        world.hub("resume", world.name)
        world.hub("failback", world.name, "--wait", "120")
        wait_until(lambda: status(outside, world).get("acting") == {}, 60.0, world.logs)
        world.until(well)
    finally:
        idle.stop()
        server.stop()
    kept = world.values(orders, "nyc")
    assert len(kept) == len(set(kept)) == 72
    assert sorted(world.values(orders, "lon")) == sorted(kept)
    assert "accepts only workers inside" in idle.log.read_text()
    assert trap.accepted == []


def test_the_workflow_plans_applies_and_finds_drift(world: World, tmp_path: Path) -> None:
    """The scripts of the example run as CI runs them: with bash, in a checkout of the file."""
    orders = f"{world.label}.orders"
    world.make(orders)
    workflow = yaml.safe_load((ROOT / "examples/mirrors/ci/mirrors.yml").read_text())
    scripts = {
        (job, step["name"]): step["run"]
        for job, body in workflow["jobs"].items()
        for step in body["steps"]
        if "run" in step
    }
    command = tmp_path / "bin" / "hub"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hub.cli "$@"\n')
    command.chmod(0o755)
    summary = tmp_path / "summary.md"
    environment = {**os.environ, **world.told, "GITHUB_STEP_SUMMARY": str(summary)}
    environment["PATH"] = f"{command.parent}:{environment['PATH']}"

    def run(job: str, step: str) -> int:
        script = ["bash", "--noprofile", "-eo", "pipefail", "-c", scripts.pop((job, step))]
        return subprocess.run(
            script, cwd=world.folder, env=environment, check=False, timeout=patient(60)
        ).returncode

    assert run("plan", "Check the file") == 0
    assert run("plan", "Plan") == 0 and f"+ topic {orders}" in summary.read_text()
    assert orders not in world.clusters["lon"].topics()  # a plan changes nothing
    assert run("apply", "Apply") == 0
    assert run("apply", "Nothing is left") == 0
    world.clusters["nyc"].add_partitions(orders, 3)
    assert run("drift", "Drift") == 2
    assert run("drift", "Trouble") == 1  # no worker
    assert not scripts, "a script of the example is not tested"


def _variables(outside: Settings) -> dict[str, str]:
    return {
        "HUB_PROJECT": str(outside.project),
        "HUB_HOME": str(outside.home),
        "HUB_BOOTSTRAP": outside.bootstrap,
    }


def _is_watched(world: World, outside: Settings) -> None:
    """The target's server knows all of it by the reports of the worker, with their age."""
    wait_until(lambda: status(outside, world).get("state") == "mirroring", 60.0, world.logs)
    seen = status(outside, world)
    assert seen["ok"] and seen["cautions"] == [] and seen["lag_records"] == 0
    assert all(row["source_end_s"] is not None for row in seen["partitions"])
    assert {beat["worker"].split("-")[-2] for beat in seen["heartbeats"]} == {
        str(world.workers[0].process.pid)
    }
    regions = httpx2.get(f"{outside.url}/api/regions", timeout=60).json()
    assert {each["name"]: each["state"] for each in regions["regions"]}["nyc"] == "answers"
    assert httpx2.get(f"{outside.url}/mirrors", timeout=60).status_code == 200
    listed, _ = hub(outside, "status", "-o", "json")
    assert [each["state"] for each in json.loads(listed)] == ["mirroring"]


def _is_operated_inside(world: World, outside: Settings) -> None:
    """Outside, commands that need the region's cluster name the command to run inside, where they work."""
    _, notes = hub(outside, "plan")
    assert f"{world.name}: left out, nyc accepts connections only from inside" in notes
    for command in ("plan", "apply", "verify", "switchover"):
        done = call_hub(outside, "mirror", command, world.name)
        assert done.returncode != 0 and "HUB-3623" in done.stderr, done
        assert f"hub mirror {command} {world.name}" in done.stderr
    refused = post(outside, world, "switchover", ok=503)
    assert refused["error_code"] == "HUB-3623"
    assert f"hub mirror switchover {world.name}" in refused["hint"]
    world.hub("plan", world.name)
    world.hub("verify", world.name)
