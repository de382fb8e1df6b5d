"""Latency of a realtime view at 1,000 events a second, including the pauses of its checkpoints: an entity
view, a stateless and an aggregate SQL view.

Run: ``./run bench realtime`` (about a quarter of an hour; ``--only entity`` five minutes). Real Kafka, Spark,
SQLite and HTTP. Prints figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import httpx2
import psutil
from confluent_kafka import Producer
from views import SCHEMAS, VIEW, Arrivals, Hub, _quantile, keys_told, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings

SQL_A = """view: bench
sources: {web: {topic: web.visits}}
key: customer_id
sql: SELECT customer_id, event_id, page, at FROM web WHERE page IS NOT NULL
"""
SQL_B = """view: bench
sources: {web: {topic: web.visits}}
sql: SELECT customer_id, count(*) AS visits, max(at) AS last_seen, max_by(page, at) AS page FROM web GROUP BY customer_id
"""  # noqa: E501
VIEWS = {"entity": VIEW, "a": SQL_A, "b": SQL_B}
# An event that is later than this waited for a checkpoint, or for the machine.
LATE_S = 0.15
# Late events that far apart are of two spells.
_APART_S = 1.0


@dataclass
class Measured:
    """Figures of one view in one mode. Latencies are in seconds, ascending."""

    to_changelog: list[float]
    to_subscriber: list[float]
    to_reader: list[float]
    checkpoints: list[float]
    lost: int
    # CPU seconds of each process, this program among them.
    cpu_s: dict[str, float]
    seconds: float
    memory_mb: int
    load: tuple[float, float]
    # The longest times without a row in the changelog, and Spark's messages about the checkpoints.
    pauses: list[float]
    told: list[str]
    # When late events came together: seconds since the first figure, how long that went on, how many.
    spells: list[tuple[float, float, int]]


def switch(running: Hub, text: str, mode: str) -> None:
    file = running.settings.project / "views" / "bench.yaml"
    file.write_text(text.replace("\n", f"\nmode: {mode}\n", 1))
    wait(lambda: running.progress().get("state") == mode)


class Load:
    """Events at a steady rate from now until it is stopped, each with a key of its own."""

    def __init__(self, running: Hub, rate: int, one_topic: bool) -> None:
        self.running, self.rate, self.one_topic = running, rate, one_topic
        self.changelog, self.subscriber = Arrivals(), Arrivals()
        self.own: list[tuple[float, float]] = []
        self.quiet, self.done = threading.Event(), threading.Event()
        self.threads = [
            threading.Thread(target=each, daemon=True)
            for each in (self._produce, self._read_changelog, self._listen, self._read_own)
        ]

    def event(self, number: int, key: str) -> tuple[str, bytes]:
        # In SQL over one topic all events are that topic's.
        return self.running.event(number * 4 + 1 if self.one_topic else number, key)

    def start(self) -> None:
        for each in self.threads[1:]:
            each.start()
        time.sleep(1)
        self.threads[0].start()

    def stop(self) -> None:
        """First the events; what is under way may still come."""
        self.quiet.set()
        time.sleep(5)
        self.done.set()
        for each in self.threads:
            each.join(10)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.running.settings.bootstrap, "linger.ms": 5})
        began_at, number = time.monotonic(), 0
        while not self.quiet.is_set():
            due = (time.monotonic() - began_at) * self.rate
            while number < due:
                key = f"L-{number}"
                topic, value = self.event(10_000_000 + number, key)
                at = time.monotonic()
                self.changelog.sent[key] = self.subscriber.sent[key] = at
                producer.produce(topic, value, key)
                number += 1
            producer.poll(0)
            time.sleep(0.002)
        producer.flush(10)

    def _read_changelog(self) -> None:
        reader = self.running.cluster.reader()
        reader.assign(self.running.cluster.end_offsets(["views.bench"]))
        while not self.done.is_set():
            for record in reader.poll(5_000, 0.05):
                self.changelog.heard((record.key or b"").decode(), time.monotonic())
        reader.close()

    def _listen(self) -> None:
        for key in keys_told(self.running, self.done):
            self.subscriber.heard(key, time.monotonic())

    def _read_own(self) -> None:
        """Write an event four times a second and read its row by key until it arrives, as a reader that waits
        without a token.
        """
        producer = Producer({"bootstrap.servers": self.running.settings.bootstrap, "linger.ms": 0})
        with httpx2.Client(base_url=self.running.url, timeout=30) as client:
            while not self.quiet.wait(0.25):
                key = f"OWN-{len(self.own)}"
                topic, value = self.event(20_000_000 + len(self.own), key)
                began_at = time.monotonic()
                producer.produce(topic, value, key)
                producer.flush(10)
                with contextlib.suppress(httpx2.HTTPError):
                    while client.get(f"/views/bench/{key}").status_code != 200 and not self.done.is_set():
                        time.sleep(0.01)
                self.own.append((time.monotonic(), time.monotonic() - began_at))


def measure(running: Hub, name: str, mode: str, rate: int, checkpoints: int, warm_up_s: float) -> Measured:
    """Measure a view under a steady load that begins ``warm_up_s`` before the first figure, over
    ``checkpoints`` whole checkpoints (live mode: for the same time).
    """
    switch(running, VIEWS[name], mode)
    load = Load(running, rate, name != "entity")
    load.start()
    time.sleep(warm_up_s)
    interval_s = running.settings.realtime_checkpoint_s
    first = _batch(running)
    if mode == "realtime":  # begin and end right behind a checkpoint
        wait(lambda: _batch(running) > first, 4 * interval_s)
    began_at, cpu_then, load_then = time.monotonic(), _cpu_s(running), os.getloadavg()[0]
    seen: list[float] = []
    last = _batch(running)
    while len(seen) < checkpoints and time.monotonic() < began_at + (checkpoints + 2) * interval_s + 60:
        time.sleep(0.5)  # each request costs the server, too
        if mode == "realtime" and _batch(running) > last:
            last = _batch(running)
            seen.append(time.monotonic())
        if mode != "realtime" and time.monotonic() > began_at + (len(seen) + 1) * interval_s:
            seen.append(time.monotonic())
    seconds = time.monotonic() - began_at
    cpu_s = {name: now - cpu_then.get(name, 0.0) for name, now in _cpu_s(running).items()}
    memory = sum(
        process.memory_info().rss >> 20
        for name, process in running.processes().items()
        if name in ("spark", "materializer")
    )
    load.stop()
    came = [at for at, _ in load.changelog.late if at > began_at]
    log = (running.settings.logs / "materializer.log").read_text(errors="replace")
    return Measured(
        load.changelog.settled(began_at),
        load.subscriber.settled(began_at),
        sorted(took for at, took in load.own if at > began_at),
        seen if mode == "realtime" else [],
        len(load.changelog.sent),
        cpu_s,
        seconds,
        memory,
        (load_then, os.getloadavg()[0]),
        sorted((after - before for before, after in pairwise(came)), reverse=True)[: checkpoints + 1],
        [line.partition(": checkpoint ")[2] for line in log.splitlines() if ": checkpoint " in line][
            -checkpoints:
        ],
        late_together(load.changelog.late, began_at),
    )


def late_together(arrived: list[tuple[float, float]], since: float) -> list[tuple[float, float, int]]:
    """Return the groups of late events, the largest first. A checkpoint's group contains its pause and the
    queue after it.
    """
    spells: list[list[float]] = []
    for at, took in arrived:
        if at > since and took > LATE_S:
            if not spells or at - spells[-1][-1] > _APART_S:
                spells.append([])
            spells[-1].append(at)
    return sorted(
        ((each[0] - since, each[-1] - each[0], len(each)) for each in spells), key=lambda spell: -spell[2]
    )


def _cpu_s(running: Hub) -> dict[str, float]:
    processes = {**running.processes(), "this bench": psutil.Process()}
    return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}


def _batch(running: Hub) -> int:
    return int((running.progress().get("last_batch") or {}).get("batch_id", -1))


def quantiles(ordered: list[float]) -> str:
    shown = [f"{_quantile(ordered, share) * 1000:,.0f}" for share in (0.5, 0.99)]
    return " / ".join([*shown, f"{(ordered[-1] if ordered else float('nan')) * 1000:,.0f} ms"])


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    arguments.add_argument("--modes", nargs="+", choices=["realtime", "live"], default=["live", "realtime"])
    arguments.add_argument("--rate", type=int, default=1_000)
    arguments.add_argument("--checkpoints", type=int, default=3, help="measured; live: for as long")
    arguments.add_argument("--interval", type=float, help="seconds between two; default: the product's")
    arguments.add_argument("--warm-up", type=float, default=60.0, help="seconds under load before that")
    given = arguments.parse_args()
    fetch_jars(Settings())
    print(
        f"{given.rate:,} events/s on {os.cpu_count()} cores; p50 / p99 / max, goals in brackets", flush=True
    )
    for name in given.only:
        running = Hub(SCHEMAS, VIEWS[name])
        if given.interval is not None:
            running.settings = running.settings.model_copy(update={"realtime_checkpoint_s": given.interval})
        try:
            running.start_log()
            running.load(20_000, 2_000)
            running.start_view()
            wait(lambda: running.progress().get("state") == "live")  # noqa: B023 - asked at once
            for mode in given.modes:
                found = measure(running, name, mode, given.rate, given.checkpoints, given.warm_up)
                goal = "[40 / 150]" if mode == "realtime" else "[300 / -]"
                late = sum(each > LATE_S for each in found.to_changelog) / max(1, len(found.to_changelog))
                print(f"{name}, {mode}, {found.seconds:.0f} s, {len(found.checkpoints)} checkpoints")
                print(f"  event to changelog    {quantiles(found.to_changelog)}  {goal}")
                print(f"  event to subscriber   {quantiles(found.to_subscriber)}")
                print(
                    f"  event to readable     {quantiles(found.to_reader)}  "
                    f"{'[- / 250]' if mode == 'realtime' else ''}"
                )
                print(
                    f"  later than 150 ms     {late:.2%} of {len(found.to_changelog):,}; "
                    f"never came: {found.lost}"
                )
                of_view = found.cpu_s.pop("spark") + found.cpu_s.pop("materializer")
                print(
                    f"  CPU of the view       {of_view:.0f} s, {of_view / found.seconds:.2f} cores; "
                    f"{found.memory_mb:,} MB"
                )
                rest = (f"{each} {took / found.seconds:.2f}" for each, took in found.cpu_s.items())
                print(f"  cores of the others   {', '.join(rest)}")
                print(
                    f"  longest pauses        {', '.join(f'{each * 1000:,.0f}' for each in found.pauses)} ms"
                )
                shown = (
                    f"{count:,} within {took:.1f} s from {at:.0f} s on"
                    for at, took, count in found.spells[:6]
                )
                print(f"  late together         {'; '.join(shown)}; {len(found.spells)} times in all")
                for each in found.told if mode == "realtime" else ():
                    print(f"  checkpoint            {each}")
                print(
                    f"  load of the machine   {found.load[0]:.1f} before, {found.load[1]:.1f} after",
                    flush=True,
                )
        finally:
            running.stop()


if __name__ == "__main__":
    main()
