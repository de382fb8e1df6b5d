"""``hub mirror`` between two real clusters, workers as processes: declared, applied, mirrored, watched, handed over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirror_world import World, node

_numbers = itertools.count()


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node(tmp_path_factory.mktemp("lon")) as made:
        yield made.bootstrap


@pytest.fixture
def world(kafka: str, away: str, tmp_path: Path) -> Iterator[World]:
    """Both clusters are shared by the tests of this file: each has topics and a mirror of its own."""
    made = World(tmp_path / "project", kafka, away)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def label() -> str:
    return f"nyc.t{next(_numbers)}"


def test_declare_apply_run_status_verify(world: World, label: str) -> None:
    chat, loot = f"{label}.chat", f"{label}.loot"
    name = label.replace(".", "-")
    world.make(chat, retention_ms="3600000000")
    world.make(loot, 3)
    world.produce(chat, 500)
    world.declare([f"{label}.**"], name)

    assert any(chat in step for step in world.json("plan", name, ok=(2,))[0]["steps"])
    world.hub("apply", name)
    assert world.json("plan", name)[0]["steps"] == []
    assert world.clusters["lon"].topic_config([chat])[chat]["retention.ms"] == "3600000000"

    world.start_worker()
    world.caught_up({chat: 500}, name)
    world.produce(loot, 300, partitions=3)
    found = world.caught_up({chat: 500, loot: 300}, name)
    assert found["workers"] == 1

    found = world.until(lambda each: each["state"] == "mirroring" and each["lag_records"] == 0, name)
    assert {row["engine"] for row in found["partitions"]} <= {"batch", "record", "batch+record"}
    assert world.values(chat, "lon") == world.values(chat, "nyc")
    verdict = world.json("verify", name)
    assert (verdict["equal"], verdict["different"]) == (5, 0)
    assert sum(row["records"] for row in verdict["partitions"]) == 800
