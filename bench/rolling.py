"""Longest time without an answer while every process of a replicated hub restarts in turn.

Run: ``./run bench rolling [--rounds 1]`` (some five minutes). Three real brokers, two servers, two
materializers, an applier and Postgres, under writers and readers. Prints a line for each restart and fails
if an event is lost or doubled; bench/README.md says what each column means.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres import Postgres
from rolling import GATEWAY, KAFKA, READS, ROWS, TOPIC, VIEW, Load, RollingHub, await_success, restarts


def measured(hub: RollingHub, rounds: int) -> None:
    """Print the gaps of ``rounds`` rolling restarts. Raises SystemExit if a row is wrong."""
    kinds = (READS, GATEWAY, KAFKA, ROWS)
    print(f"{'restart':16}" + "".join(f"{kind:>16}" for kind in (*kinds, "until well")), flush=True)
    with Load(hub.urls, hub.brokers.bootstrap, hub.start()) as load:
        await_success(hub, load)
        for _ in range(rounds):
            for restart in restarts(hub, load):
                gaps = load.journal.gaps_s(restart)
                values = [*(gaps[kind] for kind in kinds), restart.ended_at - restart.began_at]
                print(f"{restart.name:16}" + "".join(f"{value:14.2f} s" for value in values), flush=True)
    hub.pipeline.covers(VIEW, [TOPIC])
    rows = {key: row["events"] for key, row in hub.pipeline.rows(VIEW).items()}
    journal = load.journal
    if journal.wrong or rows != dict(journal.acknowledged):
        raise SystemExit(f"wrong: {journal.wrong[:5]}, rows {rows}, acknowledged {journal.acknowledged}")
    print(f"{journal.acknowledged.total():,} events acknowledged, each counted once; requests that failed at")
    print(f"one server: {dict(journal.refused)}; processes that ended by themselves: {hub.ended}")


def main() -> None:
    """Print a line for each restart."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    postgres = Postgres()
    try:
        postgres.start()
        with tempfile.TemporaryDirectory(prefix="hub-bench-") as folder:
            hub = RollingHub(Path(folder), postgres)
            try:
                measured(hub, given.rounds)
            finally:
                hub.stop()
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
