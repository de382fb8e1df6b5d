"""Time, CPU and memory of a hub over many topics on a real broker: plan, apply, drift, start, pages.

Run: ``./run bench topics [--topics 10000]`` (some ten minutes). One Kafka, one server, topics of one
partition each. Prints figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
from views import Hub, wait

from hub.cli.platform.up import children, fetch_jars
from hub.config import Settings

PAGES = ("/", "/topics", "/lag", "/lineage", "/topics/estate.g0000.t00", "/metrics")


def tree(topics: int) -> str:
    """Return a tree file of ``topics`` topics, a hundred below each node of the second level."""
    lines = [
        "topics:",
        "  estate:",
        "    owner: bench",
        "    partitions: 1",
        "    retention: 7d",
        "    topics:",
    ]
    for group in range(math.ceil(topics / 100)):
        lines += [f"      g{group:04d}:", "        topics:"]
        lines += [f"          t{number:02d}: {{}}" for number in range(min(100, topics - 100 * group))]
    return "\n".join(lines) + "\n"


@contextmanager
def started(heap_mb: int) -> Iterator[Hub]:
    """Run Kafka and a server, without any topic of a user."""
    running = Hub({}, fit=lambda settings: settings.model_copy(update={"kafka_heap_mb": heap_mb}))
    try:
        running.start_log()
        yield running
    finally:
        running.stop()


def command(running: Hub, *words: str) -> str:
    """Run a command of the hub. Return its time, CPU and most memory, as text."""
    environment = {
        **os.environ,
        "HUB_HOME": str(running.settings.home),
        "HUB_PROJECT": str(running.settings.project),
        "HUB_BOOTSTRAP": running.settings.bootstrap,
        "HUB_HTTP_PORT": str(running.settings.http_port),
    }
    began_at = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "hub.cli", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (
        f"{time.monotonic() - began_at:7.1f} s, {used.ru_utime + used.ru_stime:6.1f} CPU s, "
        f"{used.ru_maxrss / 1_024:5.0f} MB, exit code {process.returncode}"
    )


def page(running: Hub, path: str) -> str:
    """Return the median of five answers' times, the first one's, and the size."""
    times: list[float] = []
    for _ in range(5):
        began_at = time.monotonic()
        answer = running.client.get(path, headers={"Accept": "text/html"}, timeout=120.0)
        times.append(1_000 * (time.monotonic() - began_at))
    return (
        f"first {times[0]:6.0f} ms, median {sorted(times)[2]:6.0f} ms, "
        f"{len(answer.content) / 1_024:6.0f} KB, status {answer.status_code}"
    )


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def show(name: str, text: str) -> None:
    print(f"{name:28} {text}", flush=True)


def measured(running: Hub, topics: int, seconds: float) -> None:
    """Print the commands, then the server: its start, pages, memory and CPU at rest."""
    (running.settings.project / "topics.yaml").write_text(tree(topics))
    show("plan, nothing exists", command(running, "topic", "plan"))
    show("apply", command(running, "topic", "apply"))
    for name in ("plan", "drift", "ls", "tree"):
        show(name, command(running, "topic", name))
    server = running.processes()["server"]
    server.terminate()
    server.wait(60.0)
    began_at = time.monotonic()
    running.supervisor.start(children(running.settings)[1])
    show("server answers after", f"{time.monotonic() - began_at:7.1f} s")
    listed = lambda: len(running.client.get("/topics", timeout=120.0).json()["topics"]) >= topics
    show("server lists all after", f"{wait(listed) - began_at:7.1f} s")
    time.sleep(seconds)
    processes = running.processes()
    before, began_at = {name: used(each) for name, each in processes.items()}, time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - began_at
    for name, each in processes.items():
        share = 100 * (used(each) - before[name]) / passed_s
        show(f"{name} at rest", f"{share:5.1f} % of a core, {each.memory_info().rss / 1e6:6.0f} MB")
    for path in PAGES:
        show(f"GET {path}", page(running, path))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="rest before and during the measurement")
    parser.add_argument("--heap", type=int, default=2_048, metavar="MB", help="heap of Kafka")
    options = parser.parse_args(given)
    fetch_jars(Settings())
    with started(options.heap) as running:
        measured(running, options.topics, options.seconds)


if __name__ == "__main__":
    main()
