"""[edge] Cost to a real broker of the hub's monitoring, as CPU.

The broker is measured busy (a producer at a steady rate and a reader of everything, without the hub), idle,
idle while the hub watches it, and idle again. The cost of watching is the difference to idle, printed as a
share of the busy broker's CPU.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer
from served import cost_of

from hub.cli.context import environment_of
from hub.config import Settings
from hub.embedded import KafkaNode, ensure_jars
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.log import NewTopic
from hub.observability.lag.anchors import QUIET_EVERY_MS
from hub.record import Positions, TopicPartition, lag_records
from hub.runtime import die_with_parent
from hub.supervisor import end, last_line

RATE = 10_000
VALUE = b"x" * 200
_SETTLE_S = 8.0
_WATCHED_S = 90.0
_ASKED = 300
_FIRST_PORT = 19_292


def beside(figure: float, goal: float) -> str:
    """A figure with the goal that it is to stay below."""
    return f"{figure:g} (goal < {goal:g}{'' if figure < goal else ': MISSED'})"


def live(seconds: int, *, quick: bool = False) -> dict[str, object]:
    """Figures by name. Raises PeerError when the broker or the hub does not come up."""
    topics, partitions, groups = (20, 5, 20) if quick else (100, 10, 100)
    with own_kafka() as (node, settings):
        names = [f"team{n % 7}.events{n}" for n in range(topics)]
        _fill(settings, names, partitions, groups)
        return _measured(node, settings, names, seconds, groups)


@contextmanager
def own_kafka() -> Iterator[tuple[KafkaNode, Settings]]:
    """A broker in a folder of its own, and the settings of a hub on it."""
    with tempfile.TemporaryDirectory() as kept:
        port = _port(3)
        settings = Settings(
            home=Path(kept) / "home",
            project=Path(kept) / "project",
            kafka_port=port,
            bootstrap=f"127.0.0.1:{port}",
            http_port=port + 2,
        )
        settings.project.mkdir(parents=True)
        ensure_jars(settings)
        node = KafkaNode(settings)
        node.start()
        try:
            node.wait_ready()
            yield node, settings
        finally:
            node.stop()


def _measured(
    node: KafkaNode, settings: Settings, names: Sequence[str], seconds: int, groups: int
) -> dict[str, object]:
    assert node.process is not None
    broker = psutil.Process(node.process.pid)

    def share() -> float:
        """Return the broker's CPU as a share of one core, over the measurement."""
        began_s, before_s = time.perf_counter(), cost_of(broker).cpu_s
        time.sleep(seconds)
        return (cost_of(broker).cpu_s - before_s) / (time.perf_counter() - began_s)

    found: dict[str, object] = {
        "topics / partitions / groups": f"{len(names)} / {_partitions(settings, names)} / {groups}",
        "load of the machine at the start": os.getloadavg()[0],
    }
    cluster = KafkaCluster(settings.bootstrap, 30.0)
    with _busy(settings, names):
        time.sleep(_SETTLE_S)
        began_s, before = time.perf_counter(), cluster.end_offsets(names)
        busy = share()
        wrote = lag_records(cluster.end_offsets(names), before) / (time.perf_counter() - began_s)
    time.sleep(_SETTLE_S)
    idle = share()
    found["records/s while it is busy"] = round(wrote)
    found["broker busy, % of a core"] = round(busy * 100, 1)
    found["broker idle, % of a core"] = round(idle * 100, 1)
    log = settings.home / "serve.log"
    with running([sys.executable, "-m", "hub.cli", "serve"], environment_of(settings), log) as process:
        # Its start is not what is measured, nor what a broker's compilers make of requests that it has never
        # seen.
        time.sleep(_WATCHED_S)
        before_s, watched = cost_of(process).cpu_s, share()
        if process.poll() is not None:
            raise PeerError("the hub ended", hint=last_line(log))
        cost = cost_of(process)
    time.sleep(_SETTLE_S)
    idle_again = share()
    more = watched - (idle + idle_again) / 2
    # The hub asks quiet topics every few seconds; this is the cost if it asked for all of them each second.
    all_busy = more + _cost_of_ends(broker, cluster, names) * (1 - 1000 / QUIET_EVERY_MS)
    found["broker watched, % of a core"] = round(watched * 100, 1)
    found["broker idle again, % of a core"] = round(idle_again * 100, 1)
    found["watching, % of the busy broker's"] = beside(round(more / busy * 100, 2), 2)
    found["the same, had all partitions traffic"] = f"{all_busy / busy * 100:.2f}"
    found["hub's own CPU, % of a core"] = round((cost.cpu_s - before_s) / seconds * 100, 1)
    found["hub's memory MB"] = round(cost.memory_mb)
    return found


def _cost_of_ends(broker: psutil.Process, cluster: KafkaCluster, names: Sequence[str]) -> float:
    """Return the broker's CPU-seconds for one request for the ends of all partitions."""
    partitions = [
        TopicPartition(name, number)
        for name, count in cluster.partition_counts(names).items()
        for number in range(count)
    ]
    for _ in range(_ASKED):  # its compilers first
        cluster.known_ends(partitions)
    before_s = cost_of(broker).cpu_s
    for _ in range(_ASKED):
        cluster.known_ends(partitions)
    return (cost_of(broker).cpu_s - before_s) / _ASKED


def _fill(settings: Settings, names: Sequence[str], partitions: int, groups: int) -> None:
    """Topics with a record in each partition, and groups that have read half of five topics each."""
    cluster = KafkaCluster(settings.bootstrap, 30.0)
    cluster.create_topics([NewTopic(name, partitions, 1) for name in names])
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for name in names:
        for partition in range(partitions):
            for _ in range(2):
                producer.produce(name, VALUE, partition=partition)
    if producer.flush(60):
        raise PeerError("the broker did not take what was to be there at the start")
    for group in range(groups):
        read = [names[(group * 5 + at) % len(names)] for at in range(5)]
        positions = Positions.of((name, each, group % 3) for name in read for each in range(partitions))
        retried(lambda made=positions, at=group: cluster.publish_group(f"group-{at}", made))


def retried(call: Callable[[], object]) -> None:
    """A coordinator that is just made has to load."""
    deadline = time.monotonic() + 60
    while True:
        try:
            call()
            return
        except PeerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _busy(settings: Settings, names: Sequence[str]) -> Iterator[None]:
    """A process that writes at a steady rate, and one that reads all of it and commits."""
    with (
        running(
            [sys.executable, __file__, "produce", settings.bootstrap, *names],
            {},
            settings.home / "produce.log",
        ) as writer,
        running(
            [sys.executable, __file__, "consume", settings.bootstrap, *names],
            {},
            settings.home / "consume.log",
        ) as reader,
    ):
        yield
        if writer.poll() is not None or reader.poll() is not None:
            raise PeerError("the load ended early", hint=last_line(settings.home / "produce.log"))


@contextmanager
def running(command: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[psutil.Popen]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = psutil.Popen(
            die_with_parent(list(command)),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        end(process, 10.0)


def _partitions(settings: Settings, names: Sequence[str]) -> int:
    topics = KafkaCluster(settings.bootstrap, 15.0).topics()
    return sum(topics[name].partitions for name in names)


def _port(count: int) -> int:
    """A port that is free with those after it."""
    first = _FIRST_PORT
    while not all(_free(first + at) for at in range(count)):
        first += 7
    return first


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def produce(bootstrap: str, names: Sequence[str]) -> None:
    """``RATE`` records a second, in steps of a tenth of one, until it is ended."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    due_s, at = time.monotonic(), 0
    while True:
        for _ in range(RATE // 10):
            try:
                producer.produce(names[at % len(names)], VALUE)
            except BufferError:  # the broker is slower than that for a while
                producer.poll(0.1)
                continue
            at += 1
        producer.poll(0)
        due_s += 0.1
        time.sleep(max(0.0, due_s - time.monotonic()))


def consume(bootstrap: str, names: Sequence[str]) -> None:
    """All of it, as one group, until it is ended."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "load", "auto.offset.reset": "earliest"})
    consumer.subscribe(list(names))
    while True:
        consumer.consume(5_000, 0.5)


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](sys.argv[2], sys.argv[3:])
