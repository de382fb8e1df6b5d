"""Extra latency of a row whose view belongs to a snapshot group with another one (``cut``), on the product's
own path.

Run: ``./run bench cuts`` (about two minutes). Ten times a second an event, then its row by key with the
event's position as the token: first with each view on its own, then as a group. Prints figures, asserts none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time

import httpx2
from views import SCHEMAS, VIEW, Hub, hub, read_own_writes, wait

BESIDE = {
    "view": "beside",
    "sources": {"o": {"topic": "shop.orders"}},
    "sql": "SELECT status, count(*) AS orders, sum(cents) AS cents FROM o GROUP BY status",
}
BOTH = "SELECT (SELECT sum(orders) FROM beside) AS beside, (SELECT count(*) FROM bench) AS bench"


def declare(running: Hub, label: str | None) -> None:
    """Both views' files, as a group or not, and the time until they are so."""
    folder = running.settings.project / "views"
    (folder / "bench.yaml").write_text(VIEW + (f"cut: {label}\n" if label else ""))
    (folder / "beside.yaml").write_text(json.dumps({**BESIDE, **({"cut": label} if label else {})}))
    wait(lambda: all(running.progress(view).get("state") == "live" for view in ("bench", "beside")))
    wait(lambda: ((running.progress().get("cut") or {}).get("state") == "together") == (label is not None))


def measured(running: Hub, seconds: int, warm_up_s: int) -> tuple[list[float], float, int]:
    """Return latencies in seconds, the share of queries over both views that had a common snapshot, and the
    number of snapshots.
    """
    own: list[tuple[float, float]] = []
    done = threading.Event()
    writer = threading.Thread(target=read_own_writes, args=(running, done, own))
    began_at = time.monotonic()
    writer.start()
    asked, cuts = 0, []
    while time.monotonic() < began_at + warm_up_s + seconds:
        time.sleep(0.2)
        answer = httpx2.post(f"{running.url}/query", json={"sql": BOTH}, timeout=30).json()
        if time.monotonic() > began_at + warm_up_s:
            asked += 1
            if answer.get("cut"):
                cuts.append(answer["cut"]["at"])
    done.set()
    writer.join()
    late = sorted(took for at, took in own if at > began_at + warm_up_s)
    return late, len(cuts) / max(1, asked), len(set(cuts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=20)
    arguments = parser.parse_args()
    with hub(SCHEMAS) as running:
        (running.settings.project / "views" / "beside.yaml").write_text(json.dumps(BESIDE))
        running.load(2_000, 500)
        running.start_view()
        for label in (None, "shop", None, "shop"):
            declare(running, label)
            late, share, cuts = measured(running, arguments.seconds, arguments.warm_up)
            print(
                f"{'in step' if label else 'alone  '}  {len(late)} rows  median "
                f"{statistics.median(late) * 1000:.0f} ms  p95 {late[int(len(late) * 0.95)] * 1000:.0f} ms  "
                f"answers with a cut {share:.0%}  cuts seen {cuts}",
                flush=True,
            )


if __name__ == "__main__":
    main()
