"""A full disk under one view's checkpoints: only that view waits, shows the reason, loses nothing, and
resumes by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pipeline import Pipeline, wait_until
from plant import Plant
from ports import free_ports
from processes import HubProcess, Server
from small_disk import SmallDisk, small_disk

from hub.config import Settings
from hub.embedded import ensure_jars

SMALL, ROOMY = "on_full_checkpoints", "beside_full_checkpoints"


@dataclass
class Hub:
    """A hub of its own of which one view's checkpoints are on a small disk."""

    disk: SmallDisk
    pipeline: Pipeline

    def sh(self, command: str) -> None:
        subprocess.run(
            [*self.disk.within, "sh", "-c", f"cd '{self.disk.folder}' && {command}"],
            check=False,
            capture_output=True,
            timeout=60,
        )


@pytest.fixture
def hub(settings: Settings, hub_server: str, tmp_path: Path) -> Iterator[Hub]:
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path,
            "registry_url": hub_server,
            "http_port": free_ports(1)[0],
            "store_url": None,
            "stores": {},
        }
    )
    ensure_jars(own)
    (tmp_path / "views").mkdir()
    with small_disk(own.checkpoints / f"plant_{SMALL}", 8) as disk:
        pipeline = Pipeline(own, own.url)
        for command in ("apply-changelogs", "materialize"):
            process = pipeline.processes[command] = HubProcess(own, command)
            process.within = disk.within
            process.start()
        server = Server(own)
        server.start()
        try:
            yield Hub(disk, pipeline)
        finally:
            server.stop()
            pipeline.close()


@pytest.mark.timeout(420)
def test_a_view_whose_checkpoints_are_full_waits_alone_and_goes_on_when_there_is_room(hub: Hub) -> None:
    small, roomy = Plant(hub.pipeline, SMALL), Plant(hub.pipeline, ROOMY)
    for plant in (small, roomy):
        plant.declare({"celsius": "r.celsius", "readings": "count(r.celsius)"})
        first = plant.write("a", plant.reading("a", 1.0))
        plant.running()
        plant.covered("a", first)

    hub.sh("head -c 100000000 /dev/zero > filler")
    last = [small.write(f"k{n}", small.reading(f"k{n}", float(n))) for n in range(50)][-1]
    told: dict[str, object] = {}

    def stands() -> bool:
        nonlocal told
        told = hub.pipeline.state(small.view)
        return "disk" in str(told.get("reason") or "")

    wait_until(stands, 120.0, lambda: f"{told}\n{hub.pipeline.processes['materialize'].last_words()}")
    print(told["state"], told["reason"])
    assert told["state"] == "retrying"
    assert str(hub.disk.folder) in str(told["reason"])
    for n in range(3):  # the other one continues
        roomy.covered("b", roomy.write("b", roomy.reading("b", float(n))))
    assert hub.pipeline.state(roomy.view)["state"] == "live"

    hub.sh("rm filler")
    small.covered("k49", last)
    hub.pipeline.covers(small.view, [small.topic])  # a row may be ahead of its neighbours
    rows = hub.pipeline.rows(small.view)
    assert {key: row["readings"] for key, row in rows.items()} == {"a": 1} | {f"k{n}": 1 for n in range(50)}
    wait_until(lambda: hub.pipeline.state(small.view)["state"] == "live", 60.0)
