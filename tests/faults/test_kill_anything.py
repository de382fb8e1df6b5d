"""kill -9 of every process of a hub, under load, in seeded order: afterwards the view equals the fold of the
log.

What it shows: a process may die at any moment. It does not show power loss: the page cache survives a kill.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import patient
from pipeline import Pipeline, iso, plain, wait_until
from processes import own_settings

from hub.cli.platform.up import children
from hub.demo import customers
from hub.demo.feeder import Feeder
from hub.embedded import ensure_jars
from hub.errors import HubError
from hub.supervisor import Supervisor

SEED = int(os.environ.get("HUB_FAULT_SEED", "1"))
CUSTOMERS, EVENTS = 200, 9_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Supervisor, Pipeline]]:
    """A supervised hub of its own: it is going to be hurt."""
    settings = own_settings(tmp_path / "home", tmp_path / "project", spark_heap_mb=768)
    (settings.project / "views").mkdir(parents=True)
    ensure_jars(settings)
    supervisor = Supervisor(settings.home, print)
    pipeline = None
    try:
        for child in children(settings):
            supervisor.start(child)
        pipeline = Pipeline(settings, settings.url)
        yield supervisor, pipeline
    finally:
        if pipeline is not None:
            pipeline.close()
        supervisor.stop()


@pytest.mark.timeout(600)
def test_after_every_kill_the_view_equals_the_fold_of_the_log(hub: tuple[Supervisor, Pipeline]) -> None:
    supervisor, pipeline = hub
    print(f"seed {SEED}: again with HUB_FAULT_SEED={SEED}")
    chance = random.Random(SEED)
    pipeline.install("customer-360")
    stop = threading.Event()
    feeding = threading.Thread(target=feed_slowly, args=(pipeline, stop), daemon=True)
    feeding.start()
    try:
        run_until_rows(supervisor, pipeline)
        targets = ["materializer", "spark", "applier", "server", "kafka"]
        chance.shuffle(targets)
        for target in targets:
            print(f"kill -9 {target}")
            kill(supervisor, target)
            run_for(supervisor, chance.uniform(2.0, 6.0))  # some meet what still recovers from the last
        while feeding.is_alive():
            run_for(supervisor, 0.2)
    finally:
        stop.set()
        feeding.join(30.0)
    looking_after = threading.Event()
    settled: list[str] = []

    def wait_for_the_view() -> None:
        pipeline.covers("customer_360", customers.TOPICS, 180.0)
        settled.append("covered")
        looking_after.set()

    waiting = threading.Thread(target=wait_for_the_view, daemon=True)
    waiting.start()
    while waiting.is_alive():
        run_for(supervisor, 0.2)
    assert settled == ["covered"], pipeline.state("customer_360")
    expected = {
        key: {**row, "last_seen": iso(row["last_seen"])}
        for key, row in customers.fold(customers.generate(SEED, CUSTOMERS, EVENTS)).items()
    }
    served = {key: plain(row) for key, row in pipeline.rows("customer_360").items()}
    assert served == expected


def feed_slowly(pipeline: Pipeline, stop: threading.Event) -> None:
    """The events over about half a minute; a feeder that meets a fault is started again, as a user would."""
    events = list(customers.generate(SEED, CUSTOMERS, EVENTS))
    while not stop.is_set():
        try:
            feeder = Feeder(pipeline.cluster, pipeline.publisher(), customers.TOPICS)
            feeder.epoch_ms = 0
            for index, event in enumerate(events):
                if feeder.feed(event) and index % 250 == 0:
                    feeder.publisher.flush()
                    time.sleep(0.8)
                if stop.is_set():
                    return
            feeder.publisher.flush()
            return
        except HubError as error:
            print(f"the feeder meets: {error.message}")
            time.sleep(1.0)


def run_until_rows(supervisor: Supervisor, pipeline: Pipeline) -> None:
    """Wait until the view is reported: from then on every process has state to lose."""
    deadline = time.monotonic() + patient(120.0)
    while not pipeline.state("customer_360").get("last_batch"):
        assert time.monotonic() < deadline, pipeline.state("customer_360")
        run_for(supervisor, 0.2)


def kill(supervisor: Supervisor, target: str) -> None:
    """SIGKILL a child, or Spark's JVM below the materializer."""
    pids = supervisor.pids()
    if target != "spark":
        psutil.Process(pids[target]).kill()
        return

    def killed() -> bool:
        """Return whether the process existed: a Java that only prints its version ends by itself."""
        for process in psutil.Process(supervisor.pids()["materializer"]).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any("SparkSubmit" in word for word in process.cmdline()):
                    process.kill()
                    return True
        return False

    wait_until(killed, 60.0)


def run_for(supervisor: Supervisor, seconds: float) -> None:
    """Let the hub live: its supervisor looks after its processes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        supervisor.step()
        time.sleep(0.1)
