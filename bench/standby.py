"""Seconds without new rows after kill -9 of the materializer, with its supervisor alone and with a standby.

Run: ``./run bench standby [--kills 3]`` (some five minutes). Real Kafka, Spark, SQLite and HTTP. Prints
figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import psutil
from views import Hub, hub, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings
from hub.record import NewRecord

COMPUTES, WAITS = "computes the views of its home", "Spark is open; this materializer"
EVENTS, KEYS, KEY = 20_000, 500, "C-0000007"


@contextmanager
def reading(running: Hub) -> Iterator[list[str]]:
    """Read one row repeatedly while the block runs. Yields the failures."""
    failures: list[str] = []
    ended = threading.Event()

    def read() -> None:
        with httpx2.Client(base_url=running.url, timeout=10) as client:
            while not ended.wait(0.05):
                status = client.get(f"/views/bench/{KEY}").status_code
                if status != 200:
                    failures.append(str(status))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield failures
    ended.set()
    thread.join(10.0)


def standstill_s(running: Hub, number: int) -> float:
    """Kill the materializer that computes. Return the seconds until a row has an event of after that."""
    began_s = time.monotonic()
    os.kill(computing(running), signal.SIGKILL)
    topic, value = running.event(4 * number, KEY)
    written = running.cluster.writer().append([NewRecord(topic, KEY.encode(), value)])

    def covered() -> bool:
        running.supervisor.step()
        asked = {"after": str(written), "timeout_ms": "200"}
        try:
            return running.client.get(f"/views/bench/{KEY}", params=asked).status_code == 200
        except httpx2.HTTPError:
            return False

    return wait(covered) - began_s


def last_lines(running: Hub) -> dict[str, str]:
    """Return what each materializer wrote last of its part in the lease."""
    found = {}
    for name in ("materializer", "standby"):
        path = running.supervisor.log_of(name)
        lines = path.read_text().splitlines() if path.exists() else []
        found[name] = next((line for line in reversed(lines) if COMPUTES in line or WAITS in line), "")
    return found


def computing(running: Hub) -> int:
    """Return the process id of the materializer that took over last."""
    takeovers = {
        name: int(line.rpartition("takeover ")[2].rstrip(")"))
        for name, line in last_lines(running).items()
        if COMPUTES in line
    }
    return running.supervisor.pids()[max(takeovers, key=lambda name: takeovers[name])]


def ready(running: Hub) -> bool:
    """Return True if one materializer computes, and the other has opened Spark and waits."""
    running.supervisor.step()
    return any(WAITS in line for line in last_lines(running).values())


def measured(kills: int, *, standby: bool) -> str:
    fit = lambda settings: settings.model_copy(update={"standby_materializer": standby})
    with hub(fit=fit) as running:
        running.load(EVENTS, KEYS)
        running.start_view()
        wait(lambda: running.progress().get("state") == "live")
        wait(lambda: running.client.get(f"/views/bench/{KEY}").status_code == 200)
        times = []
        with reading(running) as failures:
            for number in range(kills):
                if standby:
                    wait(lambda: ready(running))
                time.sleep(3.0)
                times.append(standstill_s(running, EVENTS + number))
        parents = [psutil.Process(pid) for pid in running.supervisor.pids().values()]
        every = {each for parent in parents for each in (parent, *parent.children(recursive=True))}
        memory = sum(process.memory_info().rss for process in every) / 1e6
    spread = f"{min(times):.1f} to {max(times):.1f} s, median {statistics.median(times):.1f} s"
    return f"{spread}; {len(failures)} reads failed; {memory:,.0f} MB in all processes"


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    fetch_jars(Settings())
    for standby in (False, True):
        name = "one that stands by" if standby else "supervisor alone"
        print(f"{name:20} {measured(given.kills, standby=standby)}", flush=True)


if __name__ == "__main__":
    main()
