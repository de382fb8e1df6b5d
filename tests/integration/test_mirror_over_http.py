"""Operations on a mirror over HTTP, between two real clusters: planned, confirmed, carried out, and continued
after kill -9 of the server and of the worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until
from processes import Server, own_settings

from hub.config import Settings
from hub.replication.clusters.readers import read_control_state


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        yield made


@pytest.fixture
def settings(world: World, tmp_path: Path) -> Settings:
    return own_settings(tmp_path / "home", world.folder).model_copy(update={"bootstrap": world.lon})


def states(world: World) -> dict[str, str]:
    return {row["topic"]: row["state"] for row in world.status()["topic_states"]}


@pytest.mark.timeout(420)
def test_a_mirror_is_operated_over_http(world: World, settings: Settings) -> None:
    orders, chat = f"{world.label}.orders", f"{world.label}.chat"
    for topic in (orders, chat):
        world.make(topic)
        world.produce(topic, 60)
    world.declare([f"{world.label}.**"])
    server = Server(settings)
    server.start()
    try:
        _prepare(world, settings, [orders, chat])
        worker = world.start_worker()
        world.until(well)
        _operate(world, settings, orders, chat)
        killed = _kill_in_a_switchover(world, settings, server, chat)
        worker.kill()
        world.start_worker()
        server.start()
        done = _post(settings, world, "resume", {})
        assert [each["id"] for each in done["completed"]] == [killed]
    finally:
        server.stop()
    wait_until(lambda: states(world)[chat] == "switched over", 60.0, world.logs)
    for topic in (orders, chat):  # nothing lost, nothing twice
        assert world.values(topic, "lon") == world.values(topic, "nyc")


def _url(settings: Settings, world: World, action: str) -> str:
    return f"{settings.url}/api/mirrors/{world.name}/{action}"


def _post(settings: Settings, world: World, action: str, body: dict[str, Any], ok: int = 200) -> Any:
    answer = httpx2.post(_url(settings, world, action), json=body, timeout=200)
    assert answer.status_code == ok, f"{action}: {answer.text}"
    return answer.json()


def _prepare(world: World, settings: Settings, topics: list[str]) -> None:
    """The target is prepared before any worker runs, by the plan that the command shows."""
    planned = httpx2.get(_url(settings, world, "apply"), timeout=60).json()
    assert planned["plan"] == world.json("plan", world.name, ok=(2,))[0]
    assert [step["does"] for step in planned["steps"]] == planned["plan"]["steps"]
    assert not set(topics) & world.clusters["lon"].topics().keys()
    _post(settings, world, "apply", {"topics": topics}, ok=400)
    applied = _post(settings, world, "apply", {})
    assert len(applied["done"]) == len(planned["steps"])
    assert (applied["failed"], applied["refused"]) == ({}, [])
    assert set(topics) <= world.clusters["lon"].topics().keys()
    assert httpx2.get(_url(settings, world, "apply"), timeout=60).json()["steps"] == []


def _operate(world: World, settings: Settings, orders: str, chat: str) -> None:
    assert _post(settings, world, "pause", {"topics": [orders], "by": "ana"})["topics"] == [orders]
    paused = {row["topic"]: row["reason"] for row in world.status()["topic_states"]}
    assert paused == {orders: "paused by ana", chat: ""}
    refused = _post(settings, world, "promote", {"topics": [orders], "name": world.name}, ok=409)
    assert refused["error_code"] == "HUB-1973" and "hub mirror resume" in refused["hint"]
    _post(settings, world, "drop", {"name": world.name}, ok=409)  # it is not paused
    assert _post(settings, world, "resume", {"topics": [orders]})["completed"] == []
    assert states(world) == dict.fromkeys((orders, chat), "mirroring")

    compared = _post(settings, world, "verify", {"topics": [f"{world.label}.orders"], "newest": 10})
    assert {row["topic"] for row in compared["partitions"]} == {orders} and compared["different"] == 0
    assert compared["equal"] == 2 and sum(row["records"] for row in compared["partitions"]) == 20
    _post(settings, world, "verify", {"topics": ["nyc.none"]}, ok=404)

    rehearsed = _post(settings, world, "rehearse", {"by": "ana"})["rehearsal"]
    assert (rehearsed["state"], rehearsed["by"], rehearsed["lost"]) == ("passed", "ana", 0)
    assert world.status()["rehearsal"]["last"]["started_at_ms"] == rehearsed["started_at_ms"]
    _post(settings, world, "rehearse", {"topics": [orders]}, ok=400)

    # The plan of the server is that of the command.
    world.until(well)
    asked = {"topic": orders}
    plan = httpx2.get(_url(settings, world, "promote"), params=asked, timeout=60).json()
    printed = world.json("promote", world.name, "--topic", orders, "--dry-run")
    assert plan["plan"] == printed and plan["plan"]["steps"] == plan["steps"]
    assert plan["command"] == f"hub mirror promote {world.name} --topic {orders}"
    unnamed = _post(settings, world, "promote", {"topics": [orders]}, ok=400)
    assert unnamed["error_code"] == "HUB-1606" and states(world)[orders] == "mirroring"
    done = _post(settings, world, "promote", {"topics": [orders], "name": world.name})
    assert done["new"] == "lon" and done["topics"] == [orders]
    assert states(world)[orders] == "promoted"


def _kill_in_a_switchover(world: World, settings: Settings, server: Server, chat: str) -> str:
    """Kill the server as soon as the switchover of one topic has begun; return the id of the operation."""

    def request() -> None:
        with contextlib.suppress(httpx2.HTTPError):  # the server is killed
            _post(settings, world, "switchover", {"topics": [chat]})

    thread = Thread(target=request, daemon=True)
    thread.start()
    begun: list[str] = []

    def claimed() -> bool:
        control = read_control_state(world.reached["lon"], status=False).control
        begun[:] = [each.id for each in control.operations.values() if each.state == "running"]
        return bool(begun)

    wait_until(claimed, 120.0, server.last_words)
    other = httpx2.post(_url(settings, world, "pause"), json={}, timeout=60)
    assert other.status_code == 409 and other.json()["error_code"] == "HUB-1974", other.text
    server.kill()
    thread.join(60.0)
    assert states(world)[chat] == "moving"
    return begun[0]
