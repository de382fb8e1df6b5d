"""Two materializers of one home: one computes, the other takes over from it, whatever happens to the first,
and every event counts once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil
import pytest
from pipeline import Pipeline, wait_until
from plant import SCHEMA, Plant
from ports import free_ports
from processes import HubProcess, Server

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.record import Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

NAMES = ("first", "second")


class Pair:
    """A hub with two materializers."""

    def __init__(self, pipeline: Pipeline, settings: Settings) -> None:
        self.pipeline = pipeline
        self.started: set[str] = set()
        self.materializers = {
            name: HubProcess(settings, "materialize", "--name", name, log=f"{name}.log") for name in NAMES
        }

    def computes(self, name: str) -> None:
        """Wait until this one has the lease."""
        process = self.materializers[name]
        wait_until(lambda: "computes the views" in process.last_words(), 120.0, process.last_words)

    def stands_by(self, name: str) -> None:
        process = self.materializers[name]
        wait_until(lambda: "Spark is open" in process.last_words(), 120.0, process.last_words)

    def start(self, name: str) -> None:
        self.materializers[name].log.unlink(missing_ok=True)
        self.materializers[name].start()
        self.started.add(name)

    def send(self, name: str, number: signal.Signals) -> None:
        """To the process and its JVM."""
        process = psutil.Process(self.materializers[name].process.pid)
        for each in (process, *process.children(recursive=True)):
            each.send_signal(number)


@pytest.fixture
def pair(settings: Settings, hub_server: str, tmp_path: Path) -> Iterator[Pair]:
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path,
            "registry_url": hub_server,
            "http_port": free_ports(1)[0],
            "store_url": None,
            "stores": {},
            "spark_heap_mb": 768,
        }
    )
    ensure_jars(own)
    (tmp_path / "views").mkdir()
    pipeline = Pipeline(own, own.url)
    applier, server = HubProcess(own, "apply-changelogs"), Server(own)
    made = Pair(pipeline, own)
    try:
        applier.start()
        server.start()
        yield made
    finally:
        for name in made.started:
            made.materializers[name].thaw()
            made.materializers[name].stop()
        server.stop()
        applier.stop()
        pipeline.close()


class Readings:
    """Writes readings, two a key, from a thread until it is stopped."""

    def __init__(self, plant: Plant) -> None:
        self.plant, self.written, self.last = plant, 0, Positions()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.last = self.write(f"k{self.written // 2}")
            self.written += 1

    def write(self, sensor: str) -> Positions:
        event = {"sensor": sensor, "celsius": 1.0}
        return self.plant.write(sensor, encode(self.plant.schema_id, parsed(SCHEMA), event))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30.0)


@pytest.mark.timeout(600)
def test_whatever_happens_to_the_one_that_computes_the_other_goes_on_exactly(pair: Pair) -> None:
    plant = Plant(pair.pipeline, "standby")
    plant.declare({"readings": "count(r.celsius)"})
    pair.start("first")
    pair.computes("first")
    plant.running()
    pair.start("second")
    pair.stands_by("second")
    with Readings(plant) as readings:
        plant.covered("other", readings.write("other"))

        pair.materializers["first"].kill()
        pair.computes("second")
        plant.covered("other", readings.write("other"))

        pair.start("first")
        pair.stands_by("first")
        pair.send("second", signal.SIGSTOP)  # as a machine that hangs
        pair.computes("first")
        plant.covered("other", readings.write("other"))
        pair.send("second", signal.SIGCONT)
        pair.materializers["second"].process.wait(60.0)
        assert "has taken over" in pair.materializers["second"].last_words()

        pair.start("second")
        pair.stands_by("second")
        pair.materializers["first"].freeze()  # its JVM computes on, and nobody looks after it
        pair.computes("second")
        plant.covered("other", readings.write("other"))
        pair.materializers["first"].thaw()
        pair.materializers["first"].process.wait(60.0)

        pair.start("first")
        pair.stands_by("first")
        pair.materializers["second"].stop()  # an orderly one gives the lease back
        pair.computes("first")
        last = readings.write("other")
        plant.covered("other", last)
    plant.covered(f"k{(readings.written - 1) // 2}", readings.last)
    pair.pipeline.covers(plant.view, [plant.topic])
    rows = {key: row["readings"] for key, row in pair.pipeline.rows(plant.view).items()}
    assert rows.pop("other") == 5
    assert sum(rows.values()) == readings.written
    assert all(count == 2 for key, count in rows.items() if key != f"k{(readings.written - 1) // 2}")
