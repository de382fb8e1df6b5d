"""Cost of a view's subscribers to the server, by their number: at a steady rate of events, with all rows to
each.

Run: ``./run bench pushed [--subscribers 0 1 50 200] [--rate 50] [--seconds 30]`` (some five minutes). Real
Kafka, Spark, SQLite and HTTP. Prints figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time

import psutil
from views import SUBSCRIBE, Arrivals, Hub, _quantile, hub, key_told, produce, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings

# Java compiles what is hot; subscribers are connected.
WARM_UP_S, SETTLE_S = 30.0, 5.0


async def follow(running: Hub, rows: list[int], arrivals: Arrivals | None) -> None:
    """Run one endless subscriber: add each row it receives to ``rows[0]``; with ``arrivals``, also parse the
    keys.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", running.settings.http_port)
    try:
        writer.write(SUBSCRIBE)
        while line := await reader.readline():
            if (key := key_told(line)) is not None:
                rows[0] += 1
                if arrivals is not None:
                    arrivals.heard(key, time.monotonic())
    finally:
        writer.close()


async def measured(running: Hub, subscribers: int, seconds: float, arrivals: Arrivals) -> str:
    """Measure the server with this number of subscribers and return the line to print."""
    rows = [0]
    tasks = [
        asyncio.create_task(follow(running, rows, None if number else arrivals))
        for number in range(subscribers)
    ]
    await asyncio.sleep(SETTLE_S)
    server = running.processes()["server"]
    used_s, own_s, told, began_at = _cpu_s(server), _cpu_s(psutil.Process()), rows[0], time.monotonic()
    await asyncio.sleep(seconds)
    passed_s, told = time.monotonic() - began_at, rows[0] - told
    used_s, own_s = _cpu_s(server) - used_s, _cpu_s(psutil.Process()) - own_s
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    late = arrivals.settled(began_at)
    latency = " / ".join(f"{_quantile(late, share) * 1000:,.0f}" for share in (0.5, 0.99)) if late else "-"
    return (
        f"{subscribers:4d} subscribers: {told / passed_s:8,.0f} rows/s; server {used_s / passed_s:.2f} "
        f"cores, {server.memory_info().rss >> 20:,} MB; p50 / p99 {latency} ms; this bench "
        f"{own_s / passed_s:.2f} cores"
    )


def _cpu_s(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def main() -> None:
    """Print a line a number of subscribers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subscribers", type=int, nargs="+", default=[0, 1, 50, 200])
    parser.add_argument("--rate", type=int, default=50, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="each number of subscribers is measured")
    given = parser.parse_args()
    fetch_jars(Settings())
    with hub() as running:
        running.load(2_000, 200)
        running.start_view()
        wait(lambda: running.progress().get("state") == "live")
        arrivals = Arrivals()
        seconds = WARM_UP_S + len(given.subscribers) * (SETTLE_S + given.seconds)
        load = threading.Thread(target=produce, args=(running, (arrivals,), given.rate, seconds), daemon=True)
        load.start()
        time.sleep(WARM_UP_S)
        for subscribers in given.subscribers:
            print(asyncio.run(measured(running, subscribers, given.seconds, arrivals)), flush=True)
        load.join(30.0)


if __name__ == "__main__":
    main()
