"""World of a trial: two regions, all processes of the hub, and the handles that faults need."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from link_proxy import Link
from patience import patient
from pipeline import Pipeline
from ports import free_ports
from postgres import Postgres

from fault_suite.brokers import Brokers
from fault_suite.journal import Journal
from fault_suite.model import PARTITIONS, SCHEMAS, VIEWS, Codec, schema_text
from hub.cli.platform.up import children
from hub.config import Settings
from hub.embedded import ensure_jars
from hub.errors import HubError
from hub.supervisor import Supervisor

MIRROR = "home-away"
HUB_PARTS = ("server", "applier", "materializer", "auditor", "mirror")
SECOND_PARTS = ("server-2", "mirror-2")


@dataclass(frozen=True)
class Size:
    """Size of a world. ``brokers``: 1 or 3, of the home region. ``disk_mb``: size of a separate disk for the
    home folder (needs root); 0: a plain folder."""

    brokers: int = 1
    disk_mb: int = 0
    spark_heap_mb: int = 768


@dataclass
class World:
    """Built by ``running_world``. Call everything that starts or waits from the main thread: the hub's
    processes end with the thread that started them."""

    folder: Path
    size: Size
    home: Brokers
    away: Brokers
    postgres: Postgres
    journal: Journal = field(default_factory=Journal)
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        ports = free_ports(4)
        self.postgres_link = Link(ports[0], self.postgres.port, framed=False)
        warehouse = self.postgres.database("warehouse").replace(
            f":{self.postgres.port}/", f":{self.postgres_link.port}/"
        )
        shared = {
            "embedded_kafka": False,
            "bootstrap": self.home.through,
            "replication_factor": self.size.brokers,
            "kafka_timeout_s": 10.0,
        }
        self.settings = Settings(
            home=self.folder / "home",
            project=self.folder / "project",
            http_port=ports[1],
            stores={"warehouse": warehouse},
            spark_heap_mb=self.size.spark_heap_mb,
            **shared,
        )
        self.second = Settings(
            home=self.folder / "home-2", project=self.folder / "project-2", http_port=ports[2], **shared
        )
        self.http_link = Link(ports[3], self.settings.http_port, framed=False)
        self.http_url = f"http://127.0.0.1:{self.http_link.port}"
        """The first server through a link: for writers whose connections are to be hurt."""
        self.urls = {"server": self.settings.url, "server-2": self.second.url}
        self.pipeline = Pipeline(
            self.settings.model_copy(update={"bootstrap": self.home.bootstrap}), self.settings.url
        )
        self.background: list[Callable[[], None]] = []
        """Called with each step, as long as a fault has them here."""
        self.passing: list[Any] = []
        """Lives of the topic that is deleted and made again, see copies.py."""
        self.schema_id: int | None = None
        """Id of the orders' schema that writers use; None: the first."""
        self.aborts_may_be_lost = False
        """Kafka's only broker was fenced. Seen with Kafka 4.3.1: the coordinator then wrote CompleteAbort and
        no marker into the topic, and the next commit of that producer made the events of the rolled back
        transaction readable."""
        self.clock_file = self.folder / "clock"
        """Seconds by which the clocks of the hub's Python processes are wrong."""

    # ---- its life

    def start(self) -> None:
        ensure_jars(self.settings)
        self._write_project()
        self.supervisor = Supervisor(self.settings.home, self.say)
        self.second_supervisor = Supervisor(self.second.home, self.say)
        every = children(self.settings)
        for child in every:
            if child.name == "applier":
                self.prepare()
            self.supervisor.start(child)
        mirror = next(child for child in every if child.name == "mirror")
        second = next(child for child in children(self.second) if child.name == "server")
        self.second_supervisor.start(replace(second, name="server-2"))
        self.second_supervisor.start(replace(mirror, name="mirror-2"))

    def prepare(self) -> None:
        cluster = self.pipeline.cluster
        for topic, partitions in PARTITIONS.items():
            cluster.create_topic(
                topic, partitions=partitions, config={}, replication_factor=self.size.brokers
            )
        ids = {
            topic: self.pipeline.registry.register(f"{topic}-value", schema_text(schema))
            for topic, schema in SCHEMAS.items()
        }
        self.codec = Codec(ids, {ids[topic]: schema for topic, schema in SCHEMAS.items()})

    def _write_project(self) -> None:
        views = self.settings.project / "views"
        views.mkdir(parents=True)
        self.second.project.mkdir(parents=True)
        for name, text in VIEWS.items():
            (views / f"{name}.yaml").write_text(text)
        mirrors = {
            "clusters": {
                "home": {"bootstrap": self.home.through, "owns": ["home.**"]},
                "away": {"bootstrap": self.away.through, "owns": ["away.**"]},
            },
            "mirrors": {
                MIRROR: {
                    "source": "home",
                    "target": "away",
                    "topics": ["home.**"],
                    "shards": 3,
                    "on_recreate": "continue",
                }
            },
        }
        (self.settings.project / "mirrors.yaml").write_text(json.dumps(mirrors))

    def step(self) -> None:
        """Start what has ended, as a user's supervisors would. Call it often."""
        self.home.step()
        self.away.step()
        for supervisor in (self.supervisor, self.second_supervisor):
            supervisor.step()
        for work in list(self.background):
            work()

    def live(self, seconds: float) -> None:
        """Let everything run for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.step()
            time.sleep(0.05)

    def until(self, done: Callable[[], bool], timeout_s: float, say: Callable[[], str]) -> None:
        """Live until ``done``; AssertionError with ``say()`` when it takes longer than ``timeout_s``,
        times patience."""
        deadline = time.monotonic() + patient(timeout_s)
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(say())
            self.live(0.1)

    def stop(self) -> None:
        for link in (self.http_link, self.postgres_link):
            link.heal()
        for name in ("supervisor", "second_supervisor"):
            if (supervisor := getattr(self, name, None)) is not None:
                for pid in supervisor.pids().values():
                    _signal_tree(pid, signal.SIGCONT)
                supervisor.stop()
        for link in (self.http_link, self.postgres_link):
            link.close()
        with suppress(HubError, OSError):
            self.pipeline.close()

    # ---- handles for faults

    def pid(self, part: str) -> int | None:
        """The process id of a part that runs; of ``spark`` its JVM below the materializer."""
        if part == "spark":
            return self._spark()
        supervisor = self.second_supervisor if part in SECOND_PARTS else self.supervisor
        return supervisor.pids().get(part)

    def _spark(self) -> int | None:
        above = self.pid("materializer")
        if above is None:
            return None
        with suppress(psutil.Error):
            for process in psutil.Process(above).children(recursive=True):
                with suppress(psutil.Error):
                    if any("SparkSubmit" in word for word in process.cmdline()):
                        return process.pid
        return None

    def kill(self, part: str) -> None:
        """Kill a process with kill -9. Waits for a JVM that is just starting."""
        deadline = time.monotonic() + patient(60.0)
        while time.monotonic() < deadline:
            pid = self.pid(part)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return
            self.live(0.1)

    def send(self, part: str, number: signal.Signals) -> int | None:
        """A signal to a part and all below it; the pid, None where it does not run now."""
        pid = self.pid(part)
        if pid is not None:
            _signal_tree(pid, number)
        return pid

    def part_processes(self) -> dict[str, psutil.Process]:
        """Every process of the hub itself that runs now, by part."""
        found = {}
        for part in (*HUB_PARTS, *SECOND_PARTS, "spark"):
            pid = self.pid(part)
            with suppress(psutil.Error):
                if pid is not None:
                    found[part] = psutil.Process(pid)
        return found

    def log_of(self, part: str) -> Path:
        supervisor = self.second_supervisor if part in SECOND_PARTS else self.supervisor
        return supervisor.log_of(part)


def _signal_tree(pid: int, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                each.send_signal(number)


@contextmanager
def running_world(folder: Path, size: Size, say: Callable[[str], None] = print) -> Iterator[World]:
    """Everything started and ready; everything stopped at the end, whatever happened."""
    with ExitStack() as opened:
        if size.disk_mb:
            opened.enter_context(own_disk(folder / "home", size.disk_mb))
            opened.callback(keep_logs, folder)
        home, away = Brokers(folder / "kafka-home", size.brokers), Brokers(folder / "kafka-away", 1)
        opened.callback(home.stop)
        opened.callback(away.stop)
        home.start()
        away.start()
        postgres = Postgres()
        opened.callback(postgres.stop)
        postgres.start()
        world = World(folder, size, home, away, postgres, say=say)
        opened.callback(world.stop)
        world.start()
        yield world


def keep_logs(folder: Path) -> None:
    """Copy the logs of the home folder, whose disk is about to go."""
    for logs in (folder / "home").glob("*/*.log*"):
        with suppress(OSError):
            kept = folder / "logs" / logs.name
            kept.parent.mkdir(exist_ok=True)
            shutil.copy(logs, kept)


@contextmanager
def own_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """The folder is a disk (tmpfs) of its own of this size. Needs root."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "hub-faults", str(folder)]
    subprocess.run(command, check=True, timeout=20)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, timeout=20)
