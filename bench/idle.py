"""Cost of a hub without traffic, by its number of live views.

Run: ``./run bench idle [--views 0 1 20] [--seconds 30]`` (some five minutes). Real Kafka, Spark, SQLite and
HTTP. Prints figures, asserts none; bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import time

from views import VIEW, Hub, hub, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings

EVENTS, KEYS = 2_000, 200


def measured(running: Hub, seconds: float) -> dict[str, float]:
    """Percent of a core, of each process."""

    def used() -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in running.processes().items()}
        return {name: each.user + each.system for name, each in times.items()}

    before, began_at = used(), time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - began_at
    return {name: 100 * (after_s - before[name]) / passed_s for name, after_s in used().items()}


def idle(views: int, settle_s: float, seconds: float) -> dict[str, float]:
    """Measure a hub whose views have read all events and wait for more."""
    with hub() as running:
        running.load(EVENTS, KEYS)
        folder = running.settings.project / "views"
        (folder / "bench.yaml").unlink()
        names = [f"bench_{number}" for number in range(views)]
        for name in names:
            (folder / f"{name}.yaml").write_text(VIEW.replace("view: bench", f"view: {name}"))
        running.start_view()
        wait(lambda: all(running.progress(name).get("state") == "live" for name in names))
        time.sleep(settle_s)
        return measured(running, seconds)


def main() -> None:
    """Print a line a number of views."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", type=int, nargs="+", default=[0, 1, 20], help="each a hub of its own")
    parser.add_argument(
        "--settle", type=float, default=30.0, help="seconds before, for Java to compile what is hot"
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    fetch_jars(Settings())
    for views in given.views:
        shares = idle(views, given.settle, given.seconds)
        parts = ", ".join(
            f"{name} {share:.1f}" for name, share in sorted(shares.items(), key=lambda one: -one[1])
        )
        print(f"{views:3d} views: {sum(shares.values()):5.1f} % of a core: {parts}", flush=True)


if __name__ == "__main__":
    main()
