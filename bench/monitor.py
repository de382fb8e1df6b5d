"""Cost of measuring all consumer lag in a large estate and on a real broker, and errors of lag in seconds
compared with an interpolating exporter.

Run: ``./run bench monitor`` (some minutes; ``--quick`` a tenth of the estate). Prints figures beside the
goals, asserts none. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import judged
import orjson
import psutil
import watched
from fastapi import FastAPI
from interpolated import Interpolating, middle_and_tail
from watched import beside

from hub.errors import HubError, NotFound
from hub.log import GroupDescription, MemoryCluster, TopicDescription
from hub.observability.export import metrics
from hub.observability.export.routes import create_router
from hub.observability.lag.anchors import Ring, observed
from hub.observability.lag.consumers import LagTopicFacts, PartitionLagState, Wait, measure, question
from hub.observability.lag.timed import answered
from hub.observability.overview.collector import Collector
from hub.observability.overview.monitor import Monitor
from hub.observability.web.pages import estate as web
from hub.observability.web.routes import all_pages
from hub.record import Positions, TopicPartition
from hub.schema_registry.server.node import RegistryNode
from hub.topics.browse.browse import Browser

T = TypeVar("T")
NOW = 1_790_000_000_000


# ---- the estate


class NoViews:
    """A store without views."""

    def progress(self) -> Mapping[str, Mapping[str, object]]:
        return {}

    def row_counts(self) -> Mapping[str, int]:
        return {}

    def subscribers(self) -> Mapping[str, int]:
        return {}

    def describe(self, view: str) -> Mapping[str, object]:
        raise NotFound(f'view "{view}" does not exist')

    versions = row = describe

    def storage(self) -> Mapping[str, object]:
        return {}

    def made_of(self, views: Iterable[str]) -> Mapping[str, object]:
        return {}

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        return []


@dataclass
class Estate:
    """A simulated cluster in memory, second by second. Every partition grows by some records a second, and
    each group has read a share: most groups all of it, some stopped, some falling behind, some catching up.
    ``own_s`` counts the time of the simulation itself.
    """

    topics_: int
    partitions_: int
    groups_: int
    topics_of_a_group: int
    seconds: int = 0
    own_s: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = random.Random(1)
        self.names = [f"team{n % 97}.system{n % 997}.events{n}" for n in range(self.topics_)]
        self.rates = {name: chance.choice([0, 0, 0, 1, 5, 50]) for name in self.names}
        self.descriptions = {n: TopicDescription(n, f"id-{n}", self.partitions_, 3) for n in self.names}
        self.subscribed = {
            f"group-{n}": chance.sample(self.names, self.topics_of_a_group) for n in range(self.groups_)
        }
        self.order = [TopicPartition(n, p) for n in self.names for p in range(self.partitions_)]

    def end(self, topic: str) -> int:
        return 1_000 + self.rates[topic] * self.seconds

    def read(self, group: str, topic: str) -> int:
        kind, end = int(group[6:]) % 10, self.end(topic)
        if kind == 0:  # stopped
            return 1_000
        if kind == 1:  # falls behind
            return 1_000 + (end - 1_000) // 2
        if kind == 2:  # catches up
            return max(0, end - max(0, 900 - self.seconds))
        return end

    def _counted(self, name: str, call: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        try:
            return call()
        finally:
            self.own_s += time.perf_counter() - began_s
            self.calls[name] += 1

    def topics(self) -> Mapping[str, TopicDescription]:
        return self.descriptions

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        ends = {name: self.end(name) for name in self.names}
        return self._counted("ends", lambda: Positions({tp: ends[tp.topic] for tp in partitions}))

    def groups(self) -> Sequence[str]:
        return list(self.subscribed)

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        return self._counted(
            "commits",
            lambda: {
                group: Positions(
                    {
                        TopicPartition(topic, partition): position
                        for topic in self.subscribed[group]
                        for position in [self.read(group, topic)]
                        for partition in range(self.partitions_)
                    }
                )
                for group in groups
            },
        )

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        return {each: GroupDescription(each, "STABLE", int(each[6:]) % 10) for each in groups}

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._counted("beginnings", lambda: Positions(dict.fromkeys(partitions, 0)))

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return Positions({tp: self.end(tp.topic) for tp in partitions})

    def offsets_by_time(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        def asked(tp: TopicPartition, at_ms: int) -> int | None:
            at_s = (at_ms - NOW) / 1000
            if at_s >= self.seconds:
                return None
            return 0 if at_s < 0 else 1_000 + math.ceil(self.rates[tp.topic] * at_s)

        return self._counted("times", lambda: {tp: asked(tp, at_ms) for tp, at_ms in wanted.items()})

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        return positions

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "604800000"}
        return dict.fromkeys(names, config)


def estate(quick: bool, rounds: int) -> dict[str, object]:
    """Rounds over a simulated estate, ten seconds of its time apart."""
    share = 10 if quick else 1
    cluster = Estate(10_000 // share, 10, 1_000 // share, 20)
    process = psutil.Process()
    gc.collect()
    before_mb = process.memory_info().rss / 1e6
    collector = Collector(cluster, NoViews(), now_ms=lambda: NOW + cluster.seconds * 1000)  # type: ignore[arg-type]
    monitor = Monitor(cluster, collector)
    walls, cpus, twins = [], [], []
    for _ in range(rounds):
        cluster.seconds += 10
        cluster.own_s = 0.0
        began_s, cpu = time.perf_counter(), sum(process.cpu_times()[:2])
        monitor.round()
        walls.append(time.perf_counter() - began_s)
        cpus.append(sum(process.cpu_times()[:2]) - cpu)
        twins.append(cluster.own_s)
    memory_mb = process.memory_info().rss / 1e6
    exposed_s, text = _timed(
        lambda: metrics.exposition(collector.overview(), (), monitor.rows(), metrics.SERIES, 1.0)
    )
    json_s, body = _timed(lambda: orjson.dumps(monitor.rows()))
    pages = _pages(collector, monitor, PAGES)
    worst = max(pages, key=lambda path: pages[path][0])
    return {
        "topics": cluster.topics_,
        "partitions": cluster.topics_ * cluster.partitions_,
        "groups": cluster.groups_,
        "consumers' partitions": cluster.groups_ * cluster.topics_of_a_group * cluster.partitions_,
        "rows": len(monitor.rows()),
        "states": dict(Counter(row.state for row in monitor.rows())),
        "first round s": round(walls[0], 2),
        "round s, median": round(sorted(walls)[len(walls) // 2], 2),
        "round s, worst": beside(round(max(walls), 2), 10),
        "of which the twin's, median": round(sorted(twins)[len(twins) // 2], 2),
        "CPU s a round, median": round(sorted(cpus)[len(cpus) // 2], 2),
        "CPU s a round, worst": beside(round(max(cpus), 2), 10),
        "memory MB": beside(round(memory_mb), 1_000),
        "of which before the first round": round(before_mb),
        "/metrics s": beside(round(exposed_s, 2), 1),
        "/metrics kB": len(text) // 1000,
        "/api/lag s": round(json_s, 2),
        "/api/lag kB": len(body) // 1000,
        **{f"page {path} ms (kB)": f"{ms} ({size // 1000})" for path, (ms, size) in pages.items()},
        f"page ms, worst ({worst})": beside(pages[worst][0], 200),
    }


# ---- its pages

PAGES = (
    "/",
    "/ui/overview",
    "/topics",
    "/topics?under=team5",
    "/topics?q=system5",
    "/lag",
    "/lag?state=STOPPED",
    "/lag?page=40",
    "/schemas",
    "/views",
    "/connect",
    "/mirrors",
    "/completeness",
    "/query",
    "/search?q=events77",
)
_TRIES = 7


def _pages(collector: Collector, monitor: Monitor, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Milliseconds of server time (the median of seven requests that follow one for warming
    up) and bytes, a path."""
    log, views = MemoryCluster(), NoViews()
    node = RegistryNode(log)
    node.start()
    deadline = time.monotonic() + 30
    while not node.ready and time.monotonic() < deadline:
        time.sleep(0.01)
    app = FastAPI()
    app.include_router(
        all_pages.create_router(
            web.PageSources(
                collector,
                views,
                node,
                Browser(log, web.NodeSchemas(node)),
                views.describe,
                views,
                lag=monitor.rows,
            )  # type: ignore[arg-type]
        )
    )
    app.include_router(create_router(collector, views, monitor=monitor))  # type: ignore[arg-type]

    async def measured() -> dict[str, tuple[int, int]]:
        found = {}
        for path in paths:
            await _get(app, path)
            tries = [await _get(app, path) for _ in range(_TRIES)]
            found[path] = (round(sorted(took for took, _ in tries)[_TRIES // 2] * 1000), tries[-1][1])
        return found

    try:
        return asyncio.run(measured())
    finally:
        node.stop()


async def _get(app: FastAPI, path: str) -> tuple[float, int]:
    """Request one page as a browser does, without a network; return (seconds, bytes). Raises RuntimeError
    unless the status is 200.
    """
    at, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": at,
        "raw_path": at.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"accept", b"text/html"), (b"host", b"bench")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    status, size = 0, 0

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, object]) -> None:
        nonlocal status, size
        if message["type"] == "http.response.start":
            status = int(str(message["status"]))
        else:
            size += len(message.get("body", b""))  # type: ignore[arg-type]

    began_s = time.perf_counter()
    await app(scope, receive, send)  # type: ignore[arg-type]
    took_s = time.perf_counter() - began_s
    if status != 200:
        raise RuntimeError(f"{path} answered {status}")
    return took_s, size


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    began_s = time.perf_counter()
    found = call()
    return time.perf_counter() - began_s, found


# ---- lag in seconds, compared with interpolation


@dataclass
class Ours:
    """The product's own measuring of one partition: polls, and questions by time."""

    arrivals: Sequence[float]
    append_time: bool
    ring: Ring = ()
    about: PartitionLagState = field(default_factory=PartitionLagState)
    asked: int = 0

    def poll(self, end: int, at_s: float) -> None:
        at_ms = int(at_s * 1000)
        self.ring = observed(self.ring, end, at_ms, at_ms)

    def bracket(self, position: int, now_s: float) -> tuple[float, float | None]:
        now_ms, facts = int(now_s * 1000), LagTopicFacts(append_time=self.append_time)
        waits: list[Wait] = []
        measure("t", {0: position}, {0: self.ring}, {0: self.about}, facts, {}, now_ms, waits)
        for wait in waits * 24:
            at_ms = question(wait, self.ring, self.about, facts, now_ms)
            if at_ms is None:
                break
            self.asked += 1
            found = min(bisect_left(self.arrivals, at_ms / 1000), self.ring[-1].end)
            answered(self.about.answers, at_ms, found)
        reading = measure("t", {0: position}, {0: self.ring}, {0: self.about}, facts, {}, now_ms, [])
        assert reading is not None
        return reading.seconds, reading.error_s


@dataclass(frozen=True)
class History:
    """``arrivals`` in seconds; ``position`` at a time;
    from when on the exporter runs and when errors are taken."""

    name: str
    arrivals: Sequence[float]
    position: Callable[[float], int]
    runs_from_s: float
    judged_from_s: float
    until_s: float = 6 * 3_600.0


def histories() -> list[History]:
    """Six hours each, as in the study of lag exporters that the hub's way of measuring came from."""
    chance = random.Random(7)
    hour, day = 3_600.0, 6 * 3_600
    steady = sorted(second + chance.random() for second in range(day) for _ in range(5))
    bursts = sorted(n * hour + chance.random() * 20 for n in range(6) for _ in range(20_000))
    rare = [1_200.0 * n + 7.3 for n in range(18)]

    def stopped(arrivals: Sequence[float], at_s: float) -> Callable[[float], int]:
        return lambda now_s: bisect_left(arrivals, min(now_s, at_s))

    def delayed(arrivals: Sequence[float], by_s: float) -> Callable[[float], int]:
        return lambda now_s: bisect_left(arrivals, now_s - by_s)

    return [
        History(
            "steady 5/s, stopped at 3 h, exporter restarted",
            steady,
            stopped(steady, 3 * hour),
            5 * hour,
            5 * hour,
        ),
        History("steady 5/s, stopped at 3 h, exporter warm", steady, stopped(steady, 3 * hour), 0, 3 * hour),
        History("hourly burst of 20k, 90 s delay", bursts, delayed(bursts, 90), 0, hour / 2),
        History(
            "hourly burst, stopped, restarted", bursts, stopped(bursts, 2.5 * hour), 4.2 * hour, 4.2 * hour
        ),
        History("1 record per 20 min, stopped, restarted", rare, stopped(rare, 2 * hour), 4 * hour, 4 * hour),
        History(
            "replay from the start, restarted",
            steady,
            lambda now_s: int((now_s - 5 * hour) * 60),
            5 * hour,
            5 * hour,
        ),
    ]


def errors(history: History, poll_s: float = 30.0) -> dict[str, object]:
    """Return the absolute errors of both, at every poll after the first minute of the judged period."""
    guess, ours = Interpolating(), Ours(history.arrivals, append_time=True)
    theirs: list[float] = []
    own: list[float] = []
    bounds: list[float] = []
    outside = unbounded = 0
    now_s = history.runs_from_s + 1.7
    while now_s < history.until_s:
        end = bisect_left(history.arrivals, now_s)
        position = min(end, history.position(now_s))
        truth = now_s - history.arrivals[position] if position < end else 0.0
        guess.add(end, now_s)
        ours.poll(end, now_s)
        seconds, error = ours.bracket(position, now_s)
        if now_s >= history.judged_from_s:
            lag = guess.lag_s(position, now_s)
            theirs.append(math.inf if math.isnan(lag) else abs(lag - truth))
            own.append(abs(seconds - truth))
            if error is None:
                unbounded += 1
            else:
                bounds.append(error)
                outside += abs(seconds - truth) > error + 0.002
        now_s += poll_s
    return {
        "history": history.name,
        "interpolated": middle_and_tail(theirs),
        "hub": middle_and_tail(own),
        "bound": middle_and_tail(bounds),
        "outside its bound": outside,
        "without bound": unbounded,
        "questions a poll": round(ours.asked / max(1, len(own)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the estate")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=["estate", "errors", "broker", "live"], default=None)
    parser.add_argument("--seconds", type=int, default=60, help="of each measurement on the real broker")
    options = parser.parse_args()
    if options.only in (None, "estate"):
        for name, value in estate(options.quick, options.rounds).items():
            print(f"{name:34} {json.dumps(value)}")
    if options.only in (None, "errors"):
        print("\nerror in s, median/p99, polls every 30 s")
        for history in histories():
            print(json.dumps(errors(history)))
    if options.only in (None, "broker"):
        print(f"\nthe same on a real broker, an exporter's polls every {judged.EXPORTER_S:.0f} s")
        for line in judged.errors(120 if options.quick else 300):
            print(json.dumps(line))
    if options.only in (None, "live"):
        print("\na real broker, watched")
        for name, value in watched.live(
            20 if options.quick else options.seconds, quick=options.quick
        ).items():
            print(f"{name:34} {json.dumps(value)}")


if __name__ == "__main__":
    main()
