"""Two real clusters, a mirrors.yaml between them, and workers as processes: what tests of ``hub mirror`` do with them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import records_of, wait_until
from ports import free_pair
from typer.testing import CliRunner

from hub.cli import app
from hub.config import Settings
from hub.embedded import KafkaNode
from hub.errors import HubError
from hub.kafka import KafkaCluster, KafkaWriter
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters import Reached, read_board, read_progress
from hub.replication.links import links
from hub.replication.mirrors import load
from hub.replication.summary import summary_of
from hub.replication.wire import ClusterAccess
from hub.runtime import die_with_parent, end, last_line

PATIENCE_S = 90.0


@dataclass
class Worker:
    """``hub mirror run`` as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10.0)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        end(self.process, 25.0)


@dataclass
class World:
    """``nyc`` and ``lon``; the file says what is mirrored. ``tag`` keeps the topics of one test from another's."""

    folder: Path
    nyc: str
    lon: str
    workers: list[Worker] = field(default_factory=list)
    label: str = "nyc.t"
    name: str = "nyc-lon"
    through: dict[str, str] = field(default_factory=dict)
    """Addresses for the workers, where they are others than the test's own."""

    def __post_init__(self) -> None:
        self.clusters = {"nyc": KafkaCluster(self.nyc), "lon": KafkaCluster(self.lon)}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "mirrors.yaml"
        self.reached: dict[str, Reached] = {}
        self.writers: dict[str, KafkaWriter] = {}

    def declare(self, topics: Sequence[str], **more: Any) -> None:
        body = {
            "clusters": {
                "nyc": {"bootstrap": self.through.get("nyc", self.nyc), "owns": ["nyc.**"]},
                "lon": {"bootstrap": self.through.get("lon", self.lon), "owns": ["lon.**"]},
            },
            "mirrors": {
                self.name: {
                    "source": "nyc",
                    "target": "lon",
                    "topics": list(topics),
                    "shards": 2,
                    "groups": {"interval": "1s"},
                    **more,
                }
            },
        }
        self.path.write_text(json.dumps(body))

    def hub(self, *arguments: str, ok: Sequence[int] = (0,)) -> str:
        """What ``hub mirror …`` prints on standard output; in this process, as each of its own takes a second."""
        done = CliRunner().invoke(
            app, ["mirror", *arguments, "-f", str(self.path)], env={"HUB_PROJECT": str(self.folder)}
        )
        if not isinstance(done.exception, HubError | SystemExit | None):
            raise done.exception
        said = f"{arguments}: exit {done.exit_code}\n{done.output}\n{done.exception}"
        assert done.exit_code in ok, said
        return done.stdout

    def process(self, *arguments: str, ok: int = 0) -> tuple[str, str]:
        """The same as a process of its own, as a user has it: standard output and standard error."""
        done = subprocess.run(
            [sys.executable, "-m", "hub.cli", "mirror", *arguments, "-f", str(self.path)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "HUB_PROJECT": str(self.folder)},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == ok, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout, done.stderr

    def json(self, *arguments: str, ok: Sequence[int] = (0,)) -> Any:
        return json.loads(self.hub(*arguments, "-o", "json", ok=ok))

    def status(self, name: str = "") -> dict[str, Any]:
        """What ``hub mirror status`` tells, asked for in this process: a process for each look takes seconds."""
        file = load(self.path)
        link = links(file)[name or self.name]
        if link.target not in self.reached:
            direct = {name: ClusterAccess(bootstrap=each.bootstrap) for name, each in self.clusters.items()}
            self.reached[link.target] = Reached(link.target, self.clusters[link.target], direct[link.target])
        reached = self.reached[link.target]
        board, progress = read_board(reached), read_progress(reached, maps=False)
        return summary_of(file, link, board, progress, int(time.time() * 1000))

    def until(
        self, good: Callable[[dict[str, Any]], bool], name: str = "", timeout_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The first status that is good."""
        last: dict[str, Any] = {}

        def look() -> bool:
            last.clear()
            last.update(self.status(name))
            return good(last)

        wait_until(look, timeout_s, lambda: f"{json.dumps(last, indent=1)}\n{self.logs()}")
        return last

    def caught_up(self, topics: Mapping[str, int], name: str = "") -> dict[str, Any]:
        """Wait until so many offsets of each topic are mirrored, over its partitions."""

        def good(found: Mapping[str, Any]) -> bool:
            sums: dict[str, int] = {}
            for row in found["partitions"]:
                sums[row["topic"]] = sums.get(row["topic"], 0) + (row["source_next"] or 0)
            return all(sums.get(topic, 0) >= count for topic, count in topics.items())

        return self.until(good, name)

    def start_worker(self) -> Worker:
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                die_with_parent([sys.executable, "-m", "hub.cli", "mirror", "run", "-f", str(self.path)]),
                env={**os.environ, "HUB_PROJECT": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    def logs(self) -> str:
        return "\n".join(f"{each.log.name}: {each.log.read_text()[-3000:]}" for each in self.workers)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        for each in self.workers:
            if each.process.poll() is None and each is not self.workers[-1]:
                each.process.terminate()
        for each in self.workers:
            with contextlib.suppress(ProcessLookupError):
                each.thaw()
            each.stop()

    # ---- what happens at the clusters

    def make(self, topic: str, partitions: int = 2, at: str = "nyc", **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.clusters[at].create_topic(topic, partitions=partitions, config=named, replication_factor=1)

    def delete(self, topic: str, at: str = "nyc") -> None:
        """The next producer is another: to one that outlives its topic, the topic made again is the old one, and the broker
        takes its records for duplicates at times."""
        if at in self.writers:
            self.writers.pop(at).close()
        self.clusters[at].delete_topic(topic)

    def produce(self, topic: str, count: int, at: str = "nyc", mark: str = "r", partitions: int = 2) -> None:
        if at not in self.writers:  # kept: half a second each
            self.writers[at] = self.clusters[at].writer()
        self.writers[at].append(
            [
                NewRecord(
                    topic,
                    f"k{number}".encode(),
                    f"{mark}{number}".encode(),
                    (("n", b"%d" % number),),
                    partition=number % partitions,
                )
                for number in range(count)
            ]
        )

    def end(self, topic: str, partition: int, at: str = "nyc") -> int:
        return self.clusters[at].end_offsets([topic]).get(TopicPartition(topic, partition))

    def from_position(self, at: str, place: TopicPartition, position: int) -> list[bytes]:
        """What a reader at this position reads."""
        return [
            record.value or b""
            for record in self.records(place.topic, at)
            if record.partition == place.partition and record.offset >= position
        ]

    def ends(self, topic: str, at: str = "nyc") -> int:
        return sum(offset for _, offset in self.clusters[at].end_offsets([topic]))

    def values(self, topic: str, at: str) -> list[bytes]:
        """Every committed value, by partition and offset."""
        return [record.value or b"" for record in self.records(topic, at)]

    def records(self, topic: str, at: str) -> list[Record]:
        return sorted(
            records_of(self.clusters[at], topic), key=lambda record: (record.partition, record.offset)
        )


@contextlib.contextmanager
def node(home: Path, kind: type[KafkaNode] = KafkaNode) -> Iterator[KafkaNode]:
    """A cluster of its own, which a test may hurt."""
    port = free_pair()
    made = kind(Settings(home=home, kafka_port=port, bootstrap=f"127.0.0.1:{port}"))
    made.start()
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


def last_words(worker: Worker) -> str:
    return last_line(worker.log)


_numbers = itertools.count()


@contextlib.contextmanager
def own_world(folder: Path, nyc: str, lon: str) -> Iterator[World]:
    """On two clusters that tests share: with topics and a mirror of its own."""
    made = World(folder, nyc, lon)
    made.label = f"nyc.t{next(_numbers)}"
    made.name = made.label.replace(".", "-")
    try:
        yield made
    finally:
        made.close()


def well(found: Mapping[str, Any]) -> bool:
    return bool(found["state"] == "mirroring" and found["lag_records"] == 0 and found["partitions"])
