"""Cost of mirroring, compared with MirrorMaker 2 in the same run: two real Kafkas on this machine, dense and
tiny batches.

Run: ``./run bench mirror`` (``--quick`` for a few minutes; ``--records N``; ``--no-peer`` without
MirrorMaker). Prints figures and the goals beside them, asserts none on time; a record that did not arrive
ends it. bench/README.md says what each figure means.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one, also in the worker, which is a process of its own.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]
os.environ["PYTHONPATH"] = str(ROOT)

import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from mirror_world import World
from peers.mirror_maker import MirrorMakerPeer
from ports import free_pair, free_ports
from served import cost_of

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import BrokerBusy, BrokerCluster, ClusterAccess
from hub.kafka.protocol.record_batch import BatchLimits
from hub.record import TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import CHECKPOINTS_CONFIG, CHECKPOINTS_TOPIC, MAP_CONFIG, MAP_TOPIC
from hub.replication.verification.committed_records import committed_records

PARTITIONS = 6
RATE = 10_000
BATCHES, RECORDS, TLS, AT_LEAST_ONCE, EXACTLY_ONCE = (
    "hub", "hub, record by record", "hub, over TLS", "MirrorMaker 2", "MirrorMaker 2, exactly once"
)  # fmt: skip
# Rewrite every batch, as the engine does with tiny batches, holes, and batches that it changes.
ANEW = BatchLimits(tiny_records=1 << 30, tiny_bytes=1 << 30)


@dataclass(frozen=True, slots=True)
class Case:
    """``per_batch``: records a batch at most."""

    name: str
    records: int
    size: int
    codec: str
    per_batch: int

    def topic(self, who: str) -> str:
        return f"nyc.bench.{who}.{''.join(each if each.isalnum() else '-' for each in self.name)}"

    @property
    def dense(self) -> bool:
        return self.per_batch > 100


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one mirror in one case. ``cpu_s``: CPU of its processes alone; ``broker_s``: CPU of the
    target broker.
    """

    records: int
    wall_s: float
    cpu_s: float
    broker_s: float
    memory_mb: float
    passed: int = 0
    rewritten: int = 0

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    @property
    def cpu_each(self) -> float:
        """CPU-seconds a million records, which is microseconds a record."""
        return self.cpu_s / self.records * 1e6


# Not counted: the brokers' own Java is cold at first, and only the first to be measured would pay for it.
WARM_UP = Case("warm up of the brokers", 200_000, 600, "lz4", 1_000)
# The hub's runs are short: run this many, in turns, and take the one with the median CPU.
ROUNDS = 3
CPU_EACH = attrgetter("cpu_each")


class TlsNode(KafkaNode):
    """A node with an additional TLS listener and a self-signed certificate."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        (self.tls_port,) = free_ports(1)
        self.certificate = self.folder / "certificate.pem"

    def prepare(self) -> list[str]:
        command = super().prepare()
        key = self.folder / "key.pem"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                "/CN=localhost",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip
        (self.folder / "both.pem").write_text(key.read_text() + self.certificate.read_text())
        properties = self.folder / "server.properties"
        lines = [line for line in properties.read_text().splitlines() if "listener" not in line]
        both = f"PLAINTEXT://127.0.0.1:{self.port},SSL://127.0.0.1:{self.tls_port}"
        lines += [
            f"listeners={both},CONTROLLER://127.0.0.1:{self.port + 1}",
            f"advertised.listeners={both}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.folder / 'both.pem'}",
        ]
        properties.write_text("\n".join(lines) + "\n")
        return command

    def access(self, tls: bool) -> dict[str, str]:
        """Return the arguments of ClusterAccess."""
        if not tls:
            return {"bootstrap": self.bootstrap}
        return {
            "bootstrap": f"127.0.0.1:{self.tls_port}",
            "security_protocol": "SSL",
            "ssl_cafile": str(self.certificate),
        }


Node = TypeVar("Node", bound=KafkaNode)


@contextmanager
def two_clusters(folder: Path, kind: Callable[[Settings], Node]) -> Iterator[tuple[Node, Node]]:
    """Start a source and a target, with the topics of a mirror, for as long as the block runs."""
    nodes = []
    for name in ("source", "target"):
        port, home = free_pair(), folder / name
        bootstrap = f"127.0.0.1:{port}"
        settings = Settings(home=home, project=home / "project", kafka_port=port, bootstrap=bootstrap)
        nodes.append(kind(settings))
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready()
        target = KafkaCluster(nodes[1].bootstrap)
        for name, config in ((CHECKPOINTS_TOPIC, CHECKPOINTS_CONFIG), (MAP_TOPIC, MAP_CONFIG)):
            target.create_topic(name, partitions=8, config=config, replication_factor=1)
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.stop()


# ---- the source


def make(node: KafkaNode, topic: str) -> None:
    KafkaCluster(node.bootstrap).create_topic(
        topic, partitions=PARTITIONS, config={"compression.type": "producer"}, replication_factor=1
    )


def fill(bootstrap: str, topic: str, case: Case, *, at_once: bool = False) -> Callable[[], None]:
    """Text that compresses about as well as JSON does. ``at_once``: in one transaction, so that readers of
    committed records, which MirrorMaker is here, see all of it at the moment at which the returned function
    is called."""
    words = [random.Random(number).randbytes(6).hex() for number in range(4_000)]
    chance = random.Random(1)
    values = [
        " ".join(chance.choices(words, k=case.size // 13 + 1))[: case.size].encode() for _ in range(5_000)
    ]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": case.codec,
            "linger.ms": 50 if case.dense else 0,
            "batch.num.messages": case.per_batch,
            "batch.size": 131_072,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,  # nodes end before clients do
            **(
                {"transactional.id": f"bench.{topic}.{time.time_ns()}", "transaction.timeout.ms": 900_000}
                if at_once
                else {}
            ),
        }
    )
    if at_once:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(case.records):
        while True:
            try:
                producer.produce(
                    topic, values[number % 5_000], f"key-{number % 9_973}", partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 5_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the source could not be filled")
    return (lambda: producer.commit_transaction(60)) if at_once else (lambda: None)


def arrived(node: TlsNode, topic: str) -> int:
    """Committed records of the copy, read."""
    cluster = BrokerCluster(ClusterAccess(**node.access(False)))
    try:
        cluster.refresh([topic])
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = cluster.offsets(places)
        return sum(1 for tp in places for _ in committed_records(cluster, tp, 0, ends[tp]))
    finally:
        cluster.close()


def cost_of_node(node: KafkaNode) -> float:
    assert node.process is not None
    return cost_of(psutil.Process(node.process.pid)).cpu_s


# ---- the hub


def copy(words: str) -> None:
    """Run the child process: copy the topic, wait for a line on standard input (the copy was recreated), copy
    it again with warm code as workers and the peer have, and print the figures of the second copy as JSON.
    """
    given = json.loads(words)
    case = Case(**given["case"])
    for name in ("warm-up", "measured"):
        engine = BatchEngine(
            KafkaConnection(ClusterAccess(**given["source"]), "source"),
            KafkaConnection(ClusterAccess(**given["target"]), "target"),
            link=f"{given['link']}-{name}",
            shard=0,
            partitions=[TopicPartition(given["topic"], number) for number in range(PARTITIONS)],
            settings=EngineSettings(limits=ANEW) if given["anew"] else EngineSettings(),
        )
        begin(engine)
        used = resource.getrusage(resource.RUSAGE_SELF)
        began, cpu, done = time.monotonic(), used.ru_utime + used.ru_stime, 0
        while done < case.records:
            done += engine.step()
            if engine.error is not None:
                raise engine.error
        wall_s = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_SELF)
        progress = engine.progress()
        engine.close()
        figures = Figures(
            done,
            wall_s,
            used.ru_utime + used.ru_stime - cpu,
            0.0,
            peak_memory_mb(os.getpid()),
            sum(each.batches_passed for each in progress),
            sum(each.batches_rewritten for each in progress),
        )
        print(json.dumps(asdict(figures)), flush=True)
        sys.stdin.readline()


def begin(engine: BatchEngine) -> None:
    """The target's topic is new: its partitions have leaders in a moment."""
    deadline = time.monotonic() + 30.0
    while True:
        try:
            return engine.start()
        except BrokerBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def peak_memory_mb(pid: int) -> float:
    """Return the peak memory of this program alone, in MB. After a fork, getrusage's figure is at least the
    parent's.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def by_hub(source: TlsNode, target: TlsNode, case: Case, who: str) -> Figures:
    """One engine, from the first record to the last, in a process that has done just that before."""
    topic, tls = case.topic("hub"), who == TLS
    given = {
        "case": asdict(case),
        "topic": topic,
        "link": f"bench-{time.time_ns()}",
        "source": source.access(tls),
        "target": target.access(tls),
        "anew": who == RECORDS,
    }
    make_anew(target, topic)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "--copy", json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        watchdog = threading.Timer(600.0, child.kill)
        watchdog.start()
        try:
            if not child.stdout.readline():
                raise RuntimeError(f"{topic}: the engine ended before it was warm")
            make_anew(target, topic)
            before = cost_of_node(target)
            print(file=child.stdin)
            said = child.stdout.readline()
            broker_s = cost_of_node(target) - before
            print(file=child.stdin)
        finally:
            watchdog.cancel()
    if not said:
        raise RuntimeError(f"{topic}: the engine ended before all was copied")
    check(target, topic, case)
    return Figures(**{**json.loads(said), "broker_s": broker_s})


def make_anew(target: TlsNode, topic: str) -> None:
    there = KafkaCluster(target.bootstrap)
    if topic in there.topics():
        there.delete_topic(topic)
    make(target, topic)


def check(target: TlsNode, topic: str, case: Case) -> None:
    if (count := arrived(target, topic)) != case.records:
        raise RuntimeError(f"{topic}: {count} of {case.records} records arrived")


# ---- the peer


def by_peer(
    peer: MirrorMakerPeer, target: TlsNode, topic: str, case: Case, release: Callable[[], None]
) -> Figures:
    """Measure the peer from the moment the topic's records are readable until the last one arrives, by the
    copy's end offsets.
    """
    cluster = KafkaCluster(target.bootstrap)
    cpu, broker = peer.cpu_s(), cost_of_node(target)
    release()
    began = last = time.monotonic()
    ends, cpu_s, broker_s = -1, 0.0, 0.0
    while ends < case.records or time.monotonic() - last < 2.0:
        now = sum(end for _, end in cluster.end_offsets([topic], committed=False))
        if now != ends:
            ends, last = now, time.monotonic()
            cpu_s, broker_s = peer.cpu_s() - cpu, cost_of_node(target) - broker
        if time.monotonic() - last > 120:
            raise RuntimeError(f"{topic}: {ends} of {case.records} offsets after two minutes of nothing")
        time.sleep(0.1)
    check(target, topic, case)
    return Figures(case.records, last - began, cpu_s, broker_s, peer.peak_memory_mb())


@contextmanager
def peer_of(
    source: TlsNode,
    target: TlsNode,
    folder: Path,
    codec: str,
    exactly_once: bool,
    cases: Sequence[Case],
    warm_up: int,
) -> Iterator[tuple[MirrorMakerPeer, str]]:
    """Yield a warm MirrorMaker for which the topics of the cases (and one for the lag) exist."""
    who = f"{'eos' if exactly_once else 'alo'}.{codec}"
    rounds = Case("warm up", 50_000, 600, codec, 1_000)
    for each in (*cases, rounds):
        make(source, each.topic(who))
    make(source, lag_topic(who))
    peer = MirrorMakerPeer(
        source.settings, folder / who, source.bootstrap, target.bootstrap, rf"nyc[.]bench[.]{who}[.].*",
        codec=codec, exactly_once=exactly_once,
    )  # fmt: skip
    try:
        cluster, topic = KafkaCluster(target.bootstrap), rounds.topic(who)
        deadline = time.monotonic() + 180
        while topic not in cluster.topics():
            peer.running.alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"MirrorMaker makes no topic: {peer.running.log.read_text()[-3000:]}")
            time.sleep(0.5)
        gone = 0

        def one_round() -> tuple[float, int]:
            nonlocal gone
            gone += rounds.records
            fill(source.bootstrap, topic, rounds)
            before, began = peer.cpu_s(), time.monotonic()
            while sum(end for _, end in cluster.end_offsets([topic], committed=False)) < gone:
                peer.running.alive()
                if time.monotonic() - began > 120:
                    raise RuntimeError(f"MirrorMaker stands: {peer.running.log.read_text()[-3000:]}")
                time.sleep(0.1)
            return peer.cpu_s() - before, rounds.records

        warmed = peer.warm_up(one_round, warm_up)
        told = [f"compression.type = {codec}", "max.poll.records = 5000", "batch.size = 524288"]
        told += ["transactional.id = nyc-mm2-MirrorSourceConnector"] if exactly_once else []
        if unheard := [each for each in told if not peer.knows(each)]:
            raise RuntimeError(f"settings did not reach MirrorMaker's clients: {unheard}")
        print(
            f"MirrorMaker 2 ({who}) warmed up: {', '.join(f'{each:.1f}' for each in warmed)} us a record",
            flush=True,
        )
        yield peer, who
    finally:
        peer.stop()


# ---- lag


def lag_topic(who: str) -> str:
    return f"nyc.bench.{who}.lag"


def lag(source: TlsNode, target: TlsNode, topic: str, seconds: float) -> tuple[float, float]:
    """p50 and p99 in ms from ``produce`` at the source to a reader of committed records at the target, at
    10,000 records a second; the first fifth is left out."""
    # What the cases before left to be written to the disk stops both brokers for seconds once the kernel
    # writes it.
    os.sync()
    latencies: list[tuple[float, float]] = []
    done, ready, seen = threading.Event(), threading.Event(), set[int]()

    def listen() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": target.bootstrap,
                "group.id": f"bench-{time.time_ns()}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([KafkaTopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while not done.is_set():
            for message in consumer.consume(1_000, 0.02):
                if message.error() is None:
                    seen.add(message.partition())
                    if len(seen) == PARTITIONS:
                        ready.set()
                    now = time.monotonic()
                    latencies.append((float(message.value()[:20]), now))
        consumer.close()

    thread = threading.Thread(target=listen)
    thread.start()
    producer = Producer({"bootstrap.servers": source.bootstrap, "compression.type": "lz4", "linger.ms": 5})
    filler = b" " + random.Random(1).randbytes(90).hex().encode()

    def send(number: int) -> None:
        producer.produce(topic, b"%020.6f" % time.monotonic() + filler, partition=number % PARTITIONS)

    try:
        began = time.monotonic()
        while not ready.wait(0.5):  # until the mirror carries every partition of it
            for number in range(PARTITIONS):
                send(number)
            producer.poll(0)
            if time.monotonic() - began > 120:
                raise RuntimeError(f"{topic}: nothing arrives")
        time.sleep(1.0)
        latencies.clear()
        began = time.monotonic()
        sent = paced(producer, send, seconds)
        until = time.monotonic() + 60
        while len(latencies) < sent and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        done.set()
        thread.join()
    if len(latencies) < sent:
        raise RuntimeError(f"{topic}: {len(latencies)} of {sent} records arrived")
    waits = sorted((there - here) * 1e3 for here, there in latencies if here > began + seconds / 5)
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    # Lag depends on the load of the machine more than any other figure here.
    print(
        f"lag of {topic}: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms at a load of {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return p50, p99


def paced(producer: Producer, send: Callable[[int], None], seconds: float) -> int:
    """10,000 a second for so long; how many it were."""
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        for _ in range(min(1_000, int(passed * RATE) - sent)):
            send(sent)
            sent += 1
        producer.poll(0)
        time.sleep(0.005)
    producer.flush(30)
    return sent


def lag_of_worker(
    source: TlsNode, target: TlsNode, folder: Path, seconds: float
) -> tuple[float, float, float]:
    """Return (p50, p99, peak memory in MB) of ``hub mirror run``, as users run it."""
    world = World(folder / "worker", source.bootstrap, target.bootstrap)
    topic = lag_topic("hub")
    make(source, topic)
    world.declare([topic])
    try:
        worker = world.start_worker()
        p50, p99 = lag(source, target, topic, seconds)
        return p50, p99, peak_memory_mb(worker.process.pid)
    finally:
        world.close()


# ---- both sides compared all the time


def cost_of_worker(
    source: TlsNode, target: TlsNode, folder: Path, seconds: float, verify: bool, turn: int
) -> tuple[float, int]:
    """Return the CPU of a worker in microseconds per record, as users run it, with heartbeats, plans and
    groups, at 10,000 records a second; and the number of records that it compared meanwhile.
    """
    world = World(folder / f"verify-{verify}-{turn}", source.bootstrap, target.bootstrap)
    world.name = f"verify-{str(verify).lower()}-{turn}"
    topic = f"nyc.bench.{world.name}"
    make(source, topic)
    world.declare([topic], verify=verify)
    producer = Producer({"bootstrap.servers": source.bootstrap, "compression.type": "lz4", "linger.ms": 5})
    filler = random.Random(1).randbytes(100).hex().encode()
    try:
        process = psutil.Process(world.start_worker().process.pid)
        sent = paced(producer, lambda n: producer.produce(topic, filler, partition=n % PARTITIONS), 5.0)
        world.caught_up({topic: sent})
        before, compared = cost_of(process).cpu_s, world.status()["verified_records"]
        more = paced(producer, lambda n: producer.produce(topic, filler, partition=n % PARTITIONS), seconds)
        world.caught_up({topic: sent + more})
        cpu_s = cost_of(process).cpu_s - before
        return cpu_s / more * 1e6, world.status()["verified_records"] - compared
    finally:
        world.close()


def price_of_verify(source: TlsNode, target: TlsNode, folder: Path, seconds: float) -> None:
    """In turns, the median of each."""
    found: dict[bool, list[float]] = {True: [], False: []}
    compared = 0
    for turn in range(ROUNDS):
        for verify in (True, False):
            cost, count = cost_of_worker(source, target, folder, seconds, verify, turn)
            found[verify].append(cost)
            compared += count
    with_it, without = (sorted(found[verify])[ROUNDS // 2] for verify in (True, False))
    print(
        f"CPU of a worker at {RATE:,} records/s: {with_it:.2f} us a record with `verify`, {without:.2f} "
        f"without; {compared:,} records were compared in {ROUNDS} x {seconds:g} s",
        flush=True,
    )


# ---- what is printed


def say(*cells: str) -> None:
    widths = (24, 28, 12, 14, 14, 10, 18)
    print(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True
    )


def row(case: Case, who: str, found: Figures) -> None:
    say(
        case.name,
        who,
        f"{found.rate:,.0f}",
        f"{found.cpu_each:.2f}",
        f"{found.broker_s / found.records * 1e6:.2f}",
        f"{found.memory_mb:,.0f} MB",
        f"{found.passed:,} / {found.rewritten:,}" if found.passed or found.rewritten else "",
    )


def goals(
    found: Mapping[tuple[Case, str], Figures], lags: Mapping[str, tuple[float, float]], worker_mb: float
) -> None:
    print("\ngoals")
    for case in dict.fromkeys(case for case, _ in found):
        hub, peer, anew = (found.get((case, who)) for who in (BATCHES, EXACTLY_ONCE, RECORDS))
        if hub and peer and case.dense:
            print(
                f"  {case.name}: CPU of warm MirrorMaker 2 exactly once / hub's = "
                f"{peer.cpu_each / hub.cpu_each:.1f} (goal: 20 or more); throughput hub / its = "
                f"{hub.rate / peer.rate:.1f} (goal: 2 or more)"
            )
        if hub and anew and not case.dense:
            print(
                f"  {case.name}: CPU hub / record by record = "
                f"{hub.cpu_each / anew.cpu_each:.2f} (goal: 1 or less)"
                + (f"; MirrorMaker 2 exactly once / hub = {peer.cpu_each / hub.cpu_each:.1f}" if peer else "")
            )
    for who, (p50, p99) in lags.items():
        goal = " (goal: p99 below 500 ms)" if who == BATCHES else ""
        print(f"  lag at {RATE:,} records/s, {who}: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms{goal}")
    if worker_mb:
        print(f"  memory of a worker at that rate: {worker_mb:,.0f} MB (goal: below 150 MB)")


def cases_of(records: int, quick: bool) -> list[Case]:
    tiny = max(1_000, records // 4)
    if quick:
        return [
            Case("dense, 1 KB, lz4", records, 1_000, "lz4", 1_000),
            Case("5 a batch, 200 B, lz4", tiny, 200, "lz4", 5),
        ]
    found = []
    for codec in ("lz4", "zstd", "none"):
        for size, said in ((1_000, "1 KB"), (200, "200 B")):
            # About as many bytes: what a start and an end cost would show in a quarter of a second of CPU.
            dense = records if size == 1_000 else 3 * records
            found.append(Case(f"dense, {said}, {codec}", dense, size, codec, 1_000))
            found.append(Case(f"5 a batch, {said}, {codec}", tiny, size, codec, 5))
    return [*found, Case("1 a batch, 200 B, none", max(1_000, tiny // 2), 200, "none", 1)]


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--records",
        type=int,
        help="of each dense topic of 1 KB; of 200 B thrice, the tiny ones a quarter. Default: "
        "400,000, quick 100,000",
    )
    arguments.add_argument("--quick", action="store_true", help="two cases, lz4 only: a few minutes")
    arguments.add_argument(
        "--only", default="", metavar="WORDS", help='cases with these words in their name: "1 KB, none"'
    )
    arguments.add_argument("--no-peer", action="store_true", help="without MirrorMaker 2")
    arguments.add_argument(
        "--warm-up", type=int, help="MirrorMaker's warm-up at most. Default: 1,000,000, quick 300,000"
    )
    arguments.add_argument(
        "--seconds", type=float, default=15.0, help="of each measurement of lag; 0 for none"
    )
    arguments.add_argument(
        "--verify",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="of each measurement of what comparing all the time costs; 0 for none",
    )
    arguments.add_argument("--copy", help=argparse.SUPPRESS)
    given = arguments.parse_args(words)
    if given.copy:
        copy(given.copy)
        return
    os.environ.pop("JAVA_TOOL_OPTIONS", None)
    records = given.records or (100_000 if given.quick else 400_000)
    warm_up = given.warm_up or (300_000 if given.quick else 1_000_000)
    cases = [case for case in cases_of(records, given.quick) if given.only in case.name]
    if not cases:
        arguments.error(f'no case has "{given.only}" in its name')
    folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
    found: dict[tuple[Case, str], Figures] = {}
    lags: dict[str, tuple[float, float]] = {}
    worker_mb = 0.0
    print(f"hub: {ROOT}   cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}")
    try:
        with two_clusters(folder, TlsNode) as (source, target):
            say("case", "by", "records/s", "CPU-s a million", "broker's", "peak RSS", "passed / anew")
            for case in (WARM_UP, *cases):
                make(source, case.topic("hub"))
                fill(source.bootstrap, case.topic("hub"), case)
                whose = (BATCHES, RECORDS, TLS) if case.dense else (BATCHES, RECORDS)
                rounds = [{who: by_hub(source, target, case, who) for who in whose} for _ in range(ROUNDS)]
                if case is WARM_UP:
                    continue
                for who in whose:
                    found[case, who] = sorted((each[who] for each in rounds), key=CPU_EACH)[ROUNDS // 2]
                    row(case, who, found[case, who])
            if given.seconds:
                *p, worker_mb = lag_of_worker(source, target, folder, given.seconds)
                lags[BATCHES] = p[0], p[1]
            if given.verify:
                price_of_verify(source, target, folder, given.verify)
            for codec in () if given.no_peer else dict.fromkeys(case.codec for case in cases):
                for exactly_once in (False, True):
                    name = EXACTLY_ONCE if exactly_once else AT_LEAST_ONCE
                    mine = [case for case in cases if case.codec == codec]
                    with peer_of(source, target, folder, codec, exactly_once, mine, warm_up) as (peer, who):
                        for case in mine:
                            release = fill(source.bootstrap, case.topic(who), case, at_once=True)
                            found[case, name] = by_peer(peer, target, case.topic(who), case, release)
                            row(case, name, found[case, name])
                        if given.seconds and codec == "lz4":
                            lags[name] = lag(source, target, lag_topic(who), given.seconds)
            goals(found, lags, worker_mb)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
