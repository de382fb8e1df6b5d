"""Shared parts of the tests of whole views: a project folder, its events, its rows, and the waits between
them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import httpx2
import psutil
from patience import patient
from processes import HubProcess

from hub.config import Settings
from hub.demo.customers import DemoEvent
from hub.demo.feeder import PATIENCE_S, Feeder, load
from hub.kafka import KafkaCluster, KafkaWriter, own_cluster
from hub.record import Positions, Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.gateway.producer import Publisher
from hub.topics.tree.apply_plan import apply, make_plan
from hub.topics.tree.tree import load as load_tree

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass
class Pipeline:
    """A running hub as a user has it: settings, Kafka, the server's address."""

    settings: Settings
    url: str
    cluster: KafkaCluster = field(init=False)
    registry: RegistryClient = field(init=False)
    processes: dict[str, HubProcess] = field(default_factory=dict)
    meanwhile: Callable[[], object] = lambda: None
    """Done now and then while it is waited: who runs the processes looks after them."""

    def __post_init__(self) -> None:
        self.cluster = own_cluster(self.settings)
        self.registry = RegistryClient(self.url)

    @cached_property
    def writer(self) -> KafkaWriter:
        """Return one writer for all sequential writes: a new producer takes half a second to be ready."""
        return self.cluster.writer()

    def close(self) -> None:
        """Stop the processes, the last started first, and close the connections."""
        self.registry.close()
        self.writer.close()
        for process in reversed(self.processes.values()):
            process.stop()

    def start(self, command: str) -> None:
        """A process of the hub, by its command; again after ``kill``."""
        self.processes.setdefault(command, HubProcess(self.settings, command)).start()

    def kill(self, command: str, jvm: Literal["left", "too", "alone"] = "left") -> None:
        """kill -9 of the process; of Spark's JVM below it ``too``, or of that ``alone``,
        which the process is to notice."""
        process = self.processes[command].process
        below = [] if jvm == "left" else psutil.Process(process.pid).children(recursive=True)
        for each in below:
            each.kill()
        if jvm != "alone":
            process.kill()
        process.wait(60.0)

    @property
    def views(self) -> Path:
        return self.settings.project / "views"

    @contextmanager
    def own_views(self) -> Iterator[None]:
        """Remove view files that are added within the block, at its end: each file is a query that Spark
        would keep running.
        """
        before = set(self.views.glob("*.yaml"))
        try:
            yield
        finally:
            for path in set(self.views.glob("*.yaml")) - before:
                path.unlink()

    def install(self, example: str) -> None:
        """The example's topics and schemas applied, its views put into the project."""
        folder = EXAMPLES / example
        wanted = load_tree(folder / "topics.yaml")
        apply(make_plan(wanted, self.cluster, self.registry), self.cluster, self.registry)
        self.views.mkdir(parents=True, exist_ok=True)
        for view in (folder / "views").glob("*.yaml"):
            shutil.copy(view, self.views / view.name)

    def publisher(self) -> Publisher:
        return Publisher(self.cluster, self.registry, linger_ms=5, delivery_timeout_s=PATIENCE_S)

    def feed(self, topics: Iterable[str], events: Iterable[DemoEvent], epoch_ms: int = 0) -> int:
        """Append what is missing of a stream of sample events."""
        feeder = Feeder(self.cluster, self.publisher(), topics)
        feeder.epoch_ms = epoch_ms
        return load(feeder, events)

    def covers(self, view: str, topics: Iterable[str], timeout_s: float = 240.0) -> None:
        """Wait until the view serves everything that is in the topics now."""
        # A commit is acknowledged before its markers are written: only the high watermark is after all
        # committed records.
        end = self.cluster.end_offsets(list(topics), committed=False)

        def covered() -> bool:
            self.meanwhile()
            answer = httpx2.get(f"{self.url}/views/{view}?limit=1", timeout=10.0)
            return answer.is_success and Positions.parse(answer.headers.get("Hub-Position", "")).covers(end)

        wait_until(covered, timeout_s, lambda: f"{view} does not cover {end}: {self.state(view)}")

    def state(self, view: str) -> dict[str, Any]:
        """Return the view's entry of GET /views; {} if there is none."""
        try:
            views = httpx2.get(f"{self.url}/views", timeout=10.0).json()["views"]
        except (httpx2.HTTPError, KeyError, ValueError):
            return {}
        return next((each for each in views if each["view"] == view), {})

    def rows(self, view: str) -> dict[str, dict[str, Any]]:
        """Every row, through the query API, page by page."""
        found: dict[str, dict[str, Any]] = {}
        after: str | None = None
        while True:
            parameters = {"limit": "1000", **({"after": after} if after else {})}
            page = (
                httpx2.get(f"{self.url}/views/{view}", params=parameters, timeout=60.0)
                .raise_for_status()
                .json()
            )
            found |= {row.pop("key"): row for row in page["rows"]}
            after = page["next"]
            if after is None:
                return found

    def changelog(self, view: str) -> list[Record]:
        """Everything that the view has written, as far as compaction has left it."""
        return records_of(self.cluster, f"views.{view}")

    def written(self, view: str) -> int:
        """Return the number of changelog records of the view, in offsets."""
        topic = f"views.{view}"
        there = topic in self.cluster.topics()
        return sum(end for _, end in self.cluster.end_offsets([topic])) if there else 0


def records_of(cluster: KafkaCluster, topic: str) -> list[Record]:
    """Return all records of a topic, including those committed a moment ago."""
    ends = cluster.end_offsets([topic], committed=False)
    reader = cluster.reader()
    found: list[Record] = []
    try:
        reader.assign(cluster.beginning_offsets([topic]))
        deadline = time.monotonic() + patient(60.0)
        while not reader.position().covers(ends):
            assert time.monotonic() < deadline, f"{topic} is read to {reader.position()}, not to {ends}"
            found += reader.poll(5_000, 0.2)
    finally:
        reader.close()
    return found


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A served row without what the hub adds."""
    return {name: value for name, value in row.items() if not name.startswith("_")}


def iso(milliseconds: int | None) -> str | None:
    """Format a time as the query API does."""
    if milliseconds is None:
        return None
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{shown}.{milliseconds % 1000:03d}Z"


def wait_until(
    done: Callable[[], bool], timeout_s: float, say: Callable[[], str] = lambda: "it does not happen"
) -> None:
    """Wait until ``done``; HTTP errors count as not done. Fails with the text of ``say``."""
    deadline = time.monotonic() + patient(timeout_s)
    while True:
        try:
            if done():
                return
        except httpx2.HTTPError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(say())
        time.sleep(0.1)
