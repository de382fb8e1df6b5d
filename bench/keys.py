"""A view of many keys: time, CPU, memory, and bytes of disk a key in each place that holds it.

Run: ``./run bench keys [--keys 10000000]`` (half an hour, and 15 GB of disk). Real Kafka, Spark, SQLite and
HTTP. Prints figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from views import Hub, hub, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings
from hub.record import Positions

VIEW = """view: bench
sources:
  orders: {topic: shop.orders, key: customer_id, order: at}
fields:
  orders: count(orders.order_id)
  ordered: sum(orders.cents)
  last_status: orders.status
  last_at: max(orders.at)
"""
TOPIC = {"shop.orders": {"order_id": "string", "customer_id": "string", "status": "string", "cents": "long"}}
TOPIC["shop.orders"]["at"] = {"type": "long", "logicalType": "timestamp-millis"}  # type: ignore[assignment]


def bytes_below(*folders: Path) -> int:
    """Return the bytes of disk that files take, so that files with holes count what they hold."""
    return sum(
        512 * each.stat().st_blocks for folder in folders for each in folder.rglob("*") if each.is_file()
    )


def events(running: Hub, first: int, keys: int) -> Iterator[tuple[str, str, bytes]]:
    for number in range(first, first + keys):
        key = f"C-{number % keys:09d}"
        order = {"order_id": f"o{number}", "customer_id": key, "status": "open", "cents": number % 1_000}
        yield (
            "shop.orders",
            key,
            running.encoded("shop.orders", {**order, "at": 1_767_225_600_000 + number}),
        )


def covered(running: Hub) -> Callable[[], bool]:
    ends = running.cluster.end_offsets(list(running.topics))
    return lambda: Positions.parse(running.progress().get("positions", "")).covers(ends)


def cpu_s(running: Hub) -> dict[str, float]:
    times = {name: each.cpu_times() for name, each in running.processes().items()}
    return {name: each.user + each.system for name, each in times.items()}


@contextmanager
def most_memory(running: Hub) -> Iterator[dict[str, float]]:
    """The highest resident size of each process in MB, looked at every second."""
    most: dict[str, float] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(1.0):
            for name, process in running.processes().items():
                most[name] = max(most.get(name, 0.0), process.memory_info().rss / 1e6)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join(5.0)


def show(name: str, text: str) -> None:
    print(f"{name:28} {text}", flush=True)


def phase(running: Hub, name: str, count: int, work: Callable[[], object]) -> None:
    """Run ``work`` and wait until each of its events is served. Print time, CPU and memory."""
    before, began_at = cpu_s(running), time.monotonic()
    with most_memory(running) as most:
        work()
        passed_s = wait(covered(running), timeout_s=7_200.0) - began_at
    show(name, f"{passed_s:7.0f} s, {count / passed_s:8,.0f} events/s until served")
    for process, after_s in cpu_s(running).items():
        micros = 1e6 * (after_s - before.get(process, 0.0)) / count
        show(f"  {process}", f"{micros:6.1f} us of CPU an event, at most {most.get(process, 0.0):6.0f} MB")


def measured(running: Hub, keys: int, later: int) -> None:
    began_at = time.monotonic()
    running.append(events(running, 0, keys))
    show("events written after", f"{time.monotonic() - began_at:7.0f} s")
    phase(running, "the view is built", keys, running.start_view)
    phase(
        running,
        "one more event for some",
        later,
        lambda: running.append(
            each for _, each in zip(range(later), events(running, keys, keys), strict=False)
        ),
    )
    home, data = running.settings.home, running.settings.home / "kafka"
    places = {
        "events in the log": list(data.rglob("shop.orders-*")),
        "changelog": list(data.rglob("views.bench-*")),
        "state of the view": [running.settings.checkpoints],
    }
    for name, folders in places.items():
        show(name, f"{bytes_below(*folders) / keys:7.0f} bytes a key")
    store = sum(512 * each.stat().st_blocks for each in home.glob("store.db*"))
    show("SQLite store", f"{store / keys:7.0f} bytes a key")
    times: list[float] = []
    for number in range(0, keys, max(1, keys // 500)):
        asked_at = time.monotonic()
        running.client.get(f"/views/bench/C-{number:09d}").raise_for_status()
        times.append(1_000 * (time.monotonic() - asked_at))
    times.sort()
    show("reads by key", f"p50 {times[len(times) // 2]:.1f} ms, p99 {times[len(times) * 99 // 100]:.1f} ms")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--later", type=int, default=100_000, help="events after the view is built")
    options = parser.parse_args(given)
    fetch_jars(Settings())
    with hub(TOPIC, VIEW) as running:
        measured(running, options.keys, options.later)


if __name__ == "__main__":
    main()
