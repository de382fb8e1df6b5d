"""An interrupted change of ownership: undone, continued, and made permanent. On clusters of its own,
because the owner of ``nyc`` is recorded in a cluster permanently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from processes import call_hub

from hub.record import Positions, TopicPartition
from hub.replication.clusters.readers import read_progress


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        own_node(tmp_path / "nyc") as nyc,
        own_node(tmp_path / "lon") as lon,
        own_world(tmp_path / "project", nyc.bootstrap, lon.bootstrap) as made,
    ):
        yield made


@pytest.mark.timeout(240)
def test_a_home_that_lost_its_data_gets_everything_back(world: World) -> None:
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic, 1)
    world.produce(topic, 50, partitions=1)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    world.hub("failover", world.name, "--name", world.name)
    world.produce(topic, 20, at="lon", mark="away", partitions=1)
    world.clusters["lon"].publish_group(group, Positions.of([(topic, 0, 30)]))
    world.delete(topic)
    assert world.json("drill", world.name, "--kind", "failback")["lost"] >= 70  # all is to go home
    world.hub("failback", world.name)
    assert world.values(topic, "nyc") == world.values(topic, "lon") and len(world.values(topic, "nyc")) == 70
    place = TopicPartition(topic, 0)
    (position,) = (at for tp, at in world.clusters["nyc"].group_positions(group) if tp == place)
    assert world.from_position("nyc", place, position) == world.from_position("lon", place, 30)


@pytest.mark.timeout(240)
def test_a_change_that_is_cut_short_is_undone_or_goes_on(world: World) -> None:
    """Nobody carries what is left, so a switchover, and then a promotion, ends before its end."""
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    world.produce(topic, 50, partitions=1)
    world.declare([f"{world.label}.**"])
    worker = world.start_worker()
    world.until(well)
    worker.stop()
    world.produce(topic, 5, mark="more", partitions=1)

    said = call_hub(world.told, "mirror", "switchover", world.name, "--wait", "1", "-f", str(world.path))
    assert said.returncode != 0 and "are not mirrored yet" in said.stderr
    assert f"hub mirror resume {world.name} (or --abort)" in said.stderr
    (operation,) = world.status()["operations"]
    assert (operation["kind"], operation["next"]) == ("switchover", "drain")
    world.hub("resume", world.name, "--abort")
    assert world.status()["operations"] == [] and world.status()["acting"] == {}
    world.hub("resume", world.name, "--abort", ok=(1,))  # there is nothing to undo any more
    worker = world.start_worker()
    world.until(lambda each: well(each) and len(world.values(topic, "lon")) == 55)

    worker.stop()
    world.produce(topic, 5, mark="last", partitions=1)
    promoted = ("promote", world.name, "--name", world.name)
    assert call_hub(world.told, "mirror", *promoted, "--wait", "1", "-f", str(world.path)).returncode != 0
    world.start_worker()
    world.hub("resume", world.name)
    assert world.status()["acting"] == {"nyc": "lon"} and world.status()["operations"] == []
    assert world.values(topic, "lon") == world.values(topic, "nyc")
    # It is for good: nothing is remembered of the mirror, and nothing goes home any more.
    assert read_progress(world.reached["lon"], maps=False).of(world.name) == {}
    world.produce(topic, 5, at="lon", mark="new", partitions=1)
    assert len(world.values(topic, "lon")) == 65
    world.until(lambda each: each["workers"] == 1 and each["state"] == "handed over")
    assert len(world.values(topic, "nyc")) == 60
