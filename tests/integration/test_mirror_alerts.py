"""Alerts of mirrors between two real clusters: a worker, a watching server, and a receiver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from alert_receivers import webhook
from mirror_world import World, own_world, well
from pipeline import wait_until
from ports import free_ports
from processes import Running, running_server

from hub.config import Settings

ALERTS = """
group: {{wait: 0s, repeat: 1d}}
rules:
  mirror-trouble: {{for: 0s, keep: 0s}}
  mirror-unknown: {{for: 0s, keep: 0s}}
  mirror-gap: {{keep: 0s}}
channels:
  ops: {{webhook: {{url: "{url}"}}}}
"""


def mirrored(world: World, topic: str, records: int) -> Running:
    """Run a worker until it has carried the given number of records of a topic."""
    world.make(topic)
    world.produce(topic, records)
    world.declare([f"{world.label}.**"])
    worker = world.start_worker()
    world.caught_up({topic: records})
    return worker


@contextmanager
def watching(world: World, home: Path, bootstrap: str, hook: str) -> Iterator[str]:
    """Start a server that watches the world's mirrors and notifies ``hook``; return its address."""
    (world.folder / "alerts.yaml").write_text(ALERTS.format(url=hook))
    settings = Settings(
        home=home,
        project=world.folder,
        bootstrap=bootstrap,
        http_port=free_ports(1)[0],
        embedded_kafka=False,
        alert_every_s=0.3,
    )
    with running_server(settings) as url:
        yield url


@pytest.mark.timeout(300)
def test_a_mirror_in_trouble_is_told_of_and_its_end_too(home: str, away: str, tmp_path: Path) -> None:
    with webhook() as hook, own_world(tmp_path / "project", home, away) as world:
        topic = f"{world.label}.chat"
        mirrored(world, topic, 100)
        with watching(world, tmp_path / "home", away, hook.url) as url:

            def told() -> list[tuple[str, str, str]]:
                return [
                    (each["labels"]["alertname"], each["labels"]["mirror"], each["status"])
                    for body in hook.bodies
                    for each in body["alerts"]
                ]

            def rules() -> dict[str, dict[str, Any]]:
                found = httpx2.get(f"{url}/api/alerts/rules", timeout=30).json()
                return {each["alert"]: each for each in found}

            def until(name: str, state: str) -> None:
                wanted = (name, world.name, state)
                wait_until(lambda: wanted in told(), 90.0, lambda: f"{told()}\n{rules()}\n{world.logs()}")

            wait_until(lambda: rules().get("mirror-lag", {}).get("good") == 1, 60.0, lambda: str(rules()))
            assert {name: rules()[f"mirror-{name}"]["good"] for name in ("trouble", "unknown")} == {
                "trouble": 1,
                "unknown": 1,
            }
            assert told() == []

            # The topic is deleted and created again: the mirror stops it, with the reason.
            world.delete(topic)
            world.make(topic)
            world.produce(topic, 10)
            until("mirror-trouble", "firing")
            (alert,) = hook.bodies[0]["alerts"]
            why = alert["annotations"]["description"]  # whichever the worker has come upon first
            assert (
                "created again at the source" in why
                or "made again" in why
                or "was deleted in the source" in why
            ), alert
            assert alert["labels"]["severity"] == "page" and alert["generatorURL"].endswith("/mirrors")
            metrics = httpx2.get(f"{url}/metrics", timeout=30).text
            assert f'hub_mirror_standing{{mirror="{world.name}"}} 1.0' in metrics
            assert f"{topic}" in httpx2.get(f"{url}/alerts", headers={"accept": "text/html"}, timeout=30).text

            # It may continue after the old records: healthy again, and the loss is reported.
            world.declare([f"{world.label}.**"], on_recreate="continue")
            world.until(well)
            until("mirror-trouble", "resolved")
            until("mirror-gap", "firing")
            wait_until(lambda: len(world.values(topic, "lon")) == 110, 90.0, world.logs)

            # An unreadable file is reported too, and nothing is forgotten for it.
            good = world.path.read_text()
            world.path.write_text("clusters: 7\n")
            until("mirror-unknown", "firing")
            world.path.write_text(good)
            until("mirror-unknown", "resolved")
            assert ("mirror-gap", world.name, "resolved") not in told()
            assert [each for each in told() if each[0] == "mirror-trouble"] == [
                ("mirror-trouble", world.name, "firing"),
                ("mirror-trouble", world.name, "resolved"),
            ]


@pytest.mark.timeout(300)
def test_the_way_back_of_a_mirror_is_watched_while_it_carries_home(
    home: str, away: str, tmp_path: Path
) -> None:
    with webhook() as hook, own_world(tmp_path / "project", home, away) as world:
        topic, back = f"{world.label}.chat", f"{world.name}~back"
        worker = mirrored(world, topic, 20)
        with watching(world, tmp_path / "home", away, hook.url) as url:

            def series() -> dict[str, float]:
                lines = httpx2.get(f"{url}/metrics", timeout=30).text.splitlines()
                found = [line.rpartition(" ") for line in lines if line.startswith("hub_mirror_")]
                return {name: float(value) for name, _, value in found}

            def told() -> list[tuple[str, str, str]]:
                return [
                    (each["labels"]["alertname"], each["labels"]["mirror"], each["status"])
                    for body in hook.bodies
                    for each in body["alerts"]
                ]

            standing = f'hub_mirror_standing{{mirror="{back}"}}'
            wait_until(lambda: f'hub_mirror_up{{mirror="{world.name}"}}' in series(), 60.0, world.logs)
            assert standing not in series()  # nothing goes that way yet

            world.json("switchover", world.name)
            world.produce(topic, 10, at="lon", mark="away")
            wait_until(lambda: series().get(standing) == 0.0, 90.0, lambda: f"{series()}\n{world.logs()}")
            wait_until(
                lambda: series().get(f'hub_mirror_lag_records_all{{mirror="{back}"}}') == 0.0,
                90.0,
                lambda: f"{series()}\n{world.logs()}",
            )
            page = httpx2.get(f"{url}/mirrors", headers={"accept": "text/html"}, timeout=30).text
            assert f"The way back of {world.name}" in page and f"hub mirror failback {world.name}" in page

            # Nobody carries it any more: this is reported under its own name, as is its end.
            worker.kill()
            fires = ("mirror-trouble", back, "firing")
            wait_until(lambda: fires in told(), 120.0, lambda: f"{told()}\n{series()}")
            (status,) = world.json("status", back, ok=(1,))
            assert (status["mirror"], status["state"]) == (back, "no worker")
            world.start_worker()
            over = ("mirror-trouble", back, "resolved")
            wait_until(lambda: over in told(), 120.0, lambda: f"{told()}\n{series()}\n{world.logs()}")
            compared = world.json("verify", back)
            assert compared["mirror"] == back and all(each["equal"] for each in compared["partitions"])
            _, said = world.process("pause", back, ok=1)
            assert f"use {world.name}" in said
