"""Two real clusters, a mirrors.yaml between them, and workers as processes:
what tests of ``hub mirror`` do with them."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import records_of, wait_until
from processes import Running, call_hub, run_hub

from hub.kafka import KafkaCluster, KafkaWriter
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.config.load_mirrors import load
from hub.replication.ownership.links import links
from hub.replication.status.mirror_rows import places_of
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.source_ends import SourceEndsReader

PATIENCE_S = 90.0


@dataclass
class World:
    """Two clusters, ``nyc`` and ``lon``, and the mirrors file. ``tag`` keeps the topics of tests apart."""

    folder: Path
    nyc: str
    lon: str
    workers: list[Running] = field(default_factory=list)
    label: str = "nyc.t"
    name: str = "nyc-lon"
    through: dict[str, str] = field(default_factory=dict)
    """Addresses for the workers, where they are others than the test's own."""

    def __post_init__(self) -> None:
        self.clusters = {"nyc": KafkaCluster(self.nyc), "lon": KafkaCluster(self.lon)}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "mirrors.yaml"
        self.told = {"HUB_PROJECT": str(self.folder)}
        self.reached: dict[str, ClusterHandle] = {}
        self.writers: dict[str, KafkaWriter] = {}
        self.asker = SourceEndsReader()

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
        """Run ``hub mirror …`` in this process, because a process of its own takes a second, and return its
        standard output.
        """
        done = call_hub(self.told, "mirror", *arguments, "-f", str(self.path))
        assert done.returncode in ok, f"{arguments}: {done}"
        return done.stdout

    def process(self, *arguments: str, ok: int = 0) -> tuple[str, str]:
        """Run ``hub mirror …`` as a process of its own, as users do; return standard output and standard
        error.
        """
        done = run_hub(self.told, "mirror", *arguments, "-f", str(self.path))
        assert done.returncode == ok, f"{arguments}: {done}"
        return done.stdout, done.stderr

    def json(self, *arguments: str, ok: Sequence[int] = (0,)) -> Any:
        return json.loads(self.hub(*arguments, "-o", "json", ok=ok))

    def status(self, name: str = "") -> dict[str, Any]:
        """Return the output of ``hub mirror status``, computed in this process because a process takes
        seconds.
        """
        file = load(self.path)
        link = links(file)[name or self.name]
        for end in (link.target, link.source):
            if end not in self.reached:
                direct = ClusterAccess(bootstrap=self.clusters[end].bootstrap)
                self.reached[end] = ClusterHandle(end, self.clusters[end], direct)
        reached = self.reached[link.target]
        board, progress = read_control_state(reached), read_progress(reached, maps=False)
        places, known = places_of(link, board, progress), progress.of(link.name)
        ends = self.asker.ask(self.reached[link.source], places, places - known.keys())
        return summary_of(file, link, board, progress, int(time.time() * 1000), ends)

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
        """Wait until this many offsets of each topic are mirrored, summed over its partitions."""

        def good(found: Mapping[str, Any]) -> bool:
            sums: dict[str, int] = {}
            for row in found["partitions"]:
                sums[row["topic"]] = sums.get(row["topic"], 0) + (row["source_next"] or 0)
            return all(sums.get(topic, 0) >= count for topic, count in topics.items())

        return self.until(good, name)

    def start_worker(self) -> Running:
        """``hub mirror run``."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        self.workers.append(Running(self.told, "mirror", "run", "-f", str(self.path), log=log))
        self.workers[-1].start()
        return self.workers[-1]

    def logs(self) -> str:
        return "\n".join(f"{each.log.name}: {each.last_words()}" for each in self.workers)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        for each in self.workers:
            if each.process.poll() is None and each is not self.workers[-1]:
                each.process.terminate()
        for each in self.workers:
            with contextlib.suppress(ProcessLookupError):
                each.thaw()
            each.stop(25.0)

    # ---- what happens at the clusters

    def make(self, topic: str, partitions: int = 2, at: str = "nyc", **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.clusters[at].create_topic(topic, partitions=partitions, config=named, replication_factor=1)

    def delete(self, topic: str, at: str = "nyc") -> None:
        """Delete a topic and close its producer; the next record gets a new one. For a producer that outlives
        its topic, a recreated topic is the old one, and the broker sometimes takes its records for
        duplicates.
        """
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
        """Return the values that a reader at this position reads."""
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
    """Return whether every partition is reported and has no lag. The sum in the status omits partitions
    without a report.
    """
    lags = {row["lag_records"] for row in found["partitions"] if row["state"] != "left"}
    return found["state"] == "mirroring" and lags == {0}
