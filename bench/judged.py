"""[edge] Errors of lag in seconds on a real broker: the hub as users run it, compared with an interpolating
exporter.

Topics are written and groups moved for a while; then both begin, as after a restart, and go on. Afterwards
the topics are read, and each reading is compared with the append time of the first record that its group had
not read.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from confluent_kafka import KafkaException, Producer
from interpolated import Interpolating, middle_and_tail
from watched import own_kafka, retried, running

from hub.cli.context import environment_of
from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster
from hub.log import NewTopic
from hub.record import Positions, TopicPartition

EXPORTER_S = 10.0
_BEFORE_S = 80.0
_STEP_S = 0.05
_SEND_S = 0.02
_ROUNDING_S = 0.002
STEADY, BURSTS, RARE = "lag.steady", "lag.bursts", "lag.rare"
# Number of records in each topic after a number of seconds.
_WRITTEN: Mapping[str, Callable[[float], int]] = {
    STEADY: lambda s: int(s * 20),
    BURSTS: lambda s: int(s / 45) * 5_000 + min(5_000, int(s % 45 * 5_000)),
    RARE: lambda s: int(s / 25) + 1,
}


@dataclass
class Group:
    """One reader of one topic: its position after a number of seconds,
    and the readings to judge at the end."""

    name: str
    topic: str
    position: Callable[[float], int]
    guess: Interpolating = field(default_factory=Interpolating)
    guessed: list[tuple[float, int, float]] = field(default_factory=list)  # when, position, lag
    told: dict[int, tuple[int, float, float | None]] = field(
        default_factory=dict
    )  # by ms: position, lag, bound


def _groups() -> list[Group]:
    def behind(topic: str, by_s: float) -> Callable[[float], int]:
        return lambda s: _WRITTEN[topic](max(0.0, s - by_s))

    def stopped(topic: str, at_s: float) -> Callable[[float], int]:
        return lambda s: _WRITTEN[topic](min(s, at_s))

    return [
        Group("steady 20/s, 10 s behind", STEADY, behind(STEADY, 10)),
        Group("steady 20/s, stopped before", STEADY, stopped(STEADY, 40)),
        Group("5,000 every 45 s, 20 s behind", BURSTS, behind(BURSTS, 20)),
        Group("5,000 every 45 s, stopped before", BURSTS, stopped(BURSTS, 50)),
        Group("1 every 25 s, stopped before", RARE, stopped(RARE, 60)),
        Group("replay of all at 60/s", STEADY, lambda s: int(max(0.0, s - _BEFORE_S) * 60)),
    ]


def errors(seconds: float) -> Iterator[dict[str, object]]:
    """Absolute errors of both, over ``seconds`` after both have begun.
    Raises PeerError when broker or hub fails."""
    with own_kafka() as (_, settings):
        cluster, groups = KafkaCluster(settings.bootstrap, 30.0), _groups()
        cluster.create_topics(
            [NewTopic(name, 1, 1, {"message.timestamp.type": "LogAppendTime"}) for name in _WRITTEN]
        )
        for group in groups:  # their coordinator has to load
            retried(lambda made=group: cluster.publish_group(made.name, Positions.of([(made.topic, 0, 0)])))
        with _traffic(settings.bootstrap, groups):
            time.sleep(_BEFORE_S)
            command = [sys.executable, "-m", "hub.cli", "serve"]
            with running(command, environment_of(settings), settings.home / "serve.log"):
                _look(cluster, groups, f"http://127.0.0.1:{settings.http_port}", seconds)
        appended = {name: _appended(cluster, name) for name in _WRITTEN}
    for group in groups:
        yield _judged(group, appended[group.topic])


@contextmanager
def _traffic(bootstrap: str, groups: Sequence[Group]) -> Iterator[None]:
    """Records and positions by the clock, until the block ends."""
    ended, failed = threading.Event(), list[Exception]()
    began_s = time.monotonic()

    def write() -> None:
        producer, sent = (
            Producer({"bootstrap.servers": bootstrap, "linger.ms": 2}),
            dict.fromkeys(_WRITTEN, 0),
        )
        while not ended.wait(_SEND_S):
            for topic, count in _WRITTEN.items():
                for _ in range(min(2_000, count(time.monotonic() - began_s) - sent[topic])):
                    producer.produce(topic, b"x" * 100)
                    sent[topic] += 1
            producer.poll(0)
        producer.flush(30)

    def move() -> None:
        cluster = KafkaCluster(bootstrap, 30.0)
        while not ended.wait(0.5):
            ends = cluster.end_offsets(list(_WRITTEN))
            for group in groups:
                place = TopicPartition(group.topic, 0)
                at = min(ends.get(place), group.position(time.monotonic() - began_s))
                cluster.publish_group(group.name, Positions({place: at}))

    def kept(work: Callable[[], None]) -> None:
        try:
            work()
        except (HubError, KafkaException) as error:
            failed.append(error)

    threads = [threading.Thread(target=kept, args=(work,), daemon=True) for work in (write, move)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60.0)
    if failed:
        raise failed[0]


def _look(cluster: KafkaCluster, groups: Sequence[Group], url: str, seconds: float) -> None:
    """Record the readings of the hub and of the exporter, as often as either has new ones."""
    by_name = {group.name: group for group in groups}
    deadline = time.monotonic() + seconds
    polls_at_s = 0.0
    while time.monotonic() < deadline:
        if time.monotonic() >= polls_at_s:
            polls_at_s = time.monotonic() + EXPORTER_S
            _poll(cluster, groups)
        for row in _rows(url):
            group = by_name.get(row["name"])
            if group is not None and row["topic"] == group.topic and row["seconds"] is not None:
                group.told[row["measured_at_ms"]] = (row["position"], row["seconds"], row["error_s"])
        time.sleep(_STEP_S * 5)
    if any(not group.told for group in groups):
        raise PeerError("the hub measured nothing of some groups")


def _poll(cluster: KafkaCluster, groups: Sequence[Group]) -> None:
    positions = cluster.positions_of_groups([group.name for group in groups])
    ends, now_s = cluster.end_offsets(list(_WRITTEN)), time.time()
    for group in groups:
        place = TopicPartition(group.topic, 0)
        group.guess.add(ends.get(place), now_s)
        at = positions[group.name].get(place)
        group.guessed.append((now_s, at, group.guess.lag_s(at, now_s)))


def _rows(url: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = httpx2.get(f"{url}/api/lag?kind=group", timeout=5.0).json()
        return found
    except (httpx2.HTTPError, ValueError):  # it is starting
        return []


def _appended(cluster: KafkaCluster, topic: str) -> list[float]:
    """Return the append time of each record, by offset, in seconds."""
    reader, place = cluster.reader(), TopicPartition(topic, 0)
    end, found = cluster.end_offsets([topic]), list[float]()
    try:
        reader.assign(Positions({place: 0}))
        while not reader.position().covers(end):
            found += [record.timestamp_ms / 1000 for record in reader.poll(10_000, 1.0)]
    finally:
        reader.close()
    return found


def _judged(group: Group, appended: Sequence[float]) -> dict[str, object]:
    def truth(position: int, at_s: float) -> float:
        return at_s - appended[position] if position < bisect_right(appended, at_s) else 0.0

    theirs = [
        math.inf if math.isnan(lag) else abs(lag - truth(at, now_s)) for now_s, at, lag in group.guessed
    ]
    own = [abs(lag - truth(at, ms / 1000)) for ms, (at, lag, _) in group.told.items()]
    bounds = [bound for _, _, bound in group.told.values() if bound is not None]
    outside = sum(
        abs(lag - truth(at, ms / 1000)) > bound + _ROUNDING_S
        for ms, (at, lag, bound) in group.told.items()
        if bound is not None
    )
    return {
        "group": group.name,
        "interpolated": middle_and_tail(theirs),
        "hub": middle_and_tail(own),
        "bound": middle_and_tail(bounds),
        "outside its bound": outside,
        "without bound": len(own) - len(bounds),
        "readings": len(own),
    }
