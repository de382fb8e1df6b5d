"""Random SELECTs and random views, compared with a real Postgres and with Spark over the same rows.

    ./run bench differential                             10,000 SELECTs over ten sets of rows, in two stores
    ./run bench differential --first 7 --statements 300  the first 300 SELECTs of seed 7
    ./run bench differential --views 200 [--first 7]     incremental views, each over four batches of changes

Queries run over stores in SQLite and Postgres; the same text in a real Postgres says what is right. Views run
in the incremental engine; their SQL over the whole tables by Spark says what is right. Prints figures, and
each statement with another answer. Needs the environment of the tests: ``./run test --fast`` makes it. Exit
code 1: an answer differs.
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
from differential.view_compare import FoundViews, run_view
from differential.worlds import random_world
from postgres import Postgres

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.materializers.spark import session as spark
from hub.materializers.spark.slots import Slots


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed; each has its own rows")
    parser.add_argument("--seeds", type=int, default=0, help="how many (default: one for 1,000 statements)")
    parser.add_argument("--statements", type=int, default=10_000, help="in all")
    parser.add_argument("--views", type=int, default=0, help="so many views instead of SELECTs")
    asked = parser.parse_args()
    if asked.views:
        return views(asked.first, asked.views)
    return queries(asked.first, asked.seeds or max(1, asked.statements // 1_000), asked.statements)


def queries(first: int, seeds: int, statements: int) -> int:
    found, began = Found(), time.monotonic()
    server = Postgres()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(first, first + seeds):
                with random_world(server, Path(folder), f"random_{seed}") as (stores, judge):
                    pair = Pair(stores, judge, seed)
                    run(pair, seed, statements // seeds, found)
                    pair.close()
                print(f"seed {seed}: {found.equal} answers equal, {len(found.different)} differ", flush=True)
    finally:
        server.stop()
    took_s = time.monotonic() - began
    print("\n".join(sorted(found.different, key=len)[:20]))
    for message, count in found.refused.most_common(10):
        print(f"refused {count} times: {message}")
    print(
        f"{found.asked:,} SELECTs, {found.failed:,} of them refused by Postgres itself; answers of two "
        f"stores: {found.equal:,} equal, {len(found.different):,} different, {found.refused.total():,} "
        f"refused; {found.asked / took_s:,.0f} SELECTs/s, {used()}"
    )
    return 1 if found.different else 0


def views(seed: int, count: int) -> int:
    found, began = FoundViews(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(home=folder, project=folder, spark_master="local[2]", spark_heap_mb=1024)
        ensure_jars(settings)
        session, gateway = spark.open_session(settings, Slots(2, 2, 2))
        try:
            for number in range(count):
                run_view(session, f"{seed}:{number}", folder / str(number), found)
                if number % 25 == 24:
                    told = f"{found.equal} equal, {len(found.different)} differ"
                    print(f"{found.asked} views: {told}", flush=True)
        finally:
            session.stop()
            gateway.stop()
    print("\n".join(found.different[:20]))
    for message, times in found.refused.most_common(10):
        print(f"refused {times} times: {message}")
    print(
        f"{found.asked} views: {found.equal} equal, {len(found.different)} different, "
        f"{found.refused.total()} refused; {time.monotonic() - began:.0f} s, {used()} without Spark's JVM"
    )
    return 1 if found.different else 0


def used() -> str:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return f"{own.ru_utime + own.ru_stime:.0f} CPU-s, {own.ru_maxrss / 1024:.0f} MB of this process"


if __name__ == "__main__":
    sys.exit(main())
