"""Random SELECTs over the hub's stores (SQLite and Postgres), compared with a real Postgres over the same
rows.

    ./run bench differential                                  10,000 statements over ten sets of rows
    ./run bench differential --first 7 --statements 300       the first 300 statements of seed 7

Prints statements a second, CPU-seconds, memory, and each statement whose answer differs, with the rows that
only one side has. Needs the environment of the tests: ``./run test --fast`` makes it. Exit code 1: an answer
differs.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this checkout, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from differential.compare import Found, Pair, run
from differential.worlds import random_world
from postgres import Postgres


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed; each has its own rows")
    parser.add_argument("--seeds", type=int, default=0, help="how many (default: one for 1,000 statements)")
    parser.add_argument("--statements", type=int, default=10_000, help="in all")
    asked = parser.parse_args()
    seeds = asked.seeds or max(1, asked.statements // 1_000)
    found, began = Found(), time.monotonic()
    server = Postgres()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(asked.first, asked.first + seeds):
                with random_world(server, Path(folder), f"random_{seed}") as (stores, judge):
                    pair = Pair(stores, judge, seed)
                    run(pair, seed, asked.statements // seeds, found)
                    pair.close()
                print(f"seed {seed}: {found.equal} answers equal, {len(found.different)} differ", flush=True)
    finally:
        server.stop()
    return summary(found, time.monotonic() - began)


def summary(found: Found, took_s: float) -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    for difference in sorted(found.different, key=len)[:20]:
        print(difference)
    for message, count in found.refused.most_common(10):
        print(f"refused {count} times: {message}")
    print(
        f"{found.asked:,} statements, {found.failed:,} of them refused by Postgres itself; answers of two "
        f"stores: {found.equal:,} equal, {len(found.different):,} different, {found.refused.total():,} "
        f"refused; {found.asked / took_s:,.0f} statements/s, {used.ru_utime + used.ru_stime:.0f} CPU-s "
        f"without Postgres, {used.ru_maxrss / 1024:.0f} MB"
    )
    return 1 if found.different else 0


if __name__ == "__main__":
    sys.exit(main())
