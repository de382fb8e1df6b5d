"""Cost of the sandbox: a view's Python functions in workers with and without it.

Run: ``./run bench sandbox [--rows N]`` (about two minutes). One Spark with one task slot for each setting
of `transforms`. The first query of a view starts its workers; the best of the next three has the cost of
rows. No figure is asserted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.materializers.definition.load import load_view
from hub.materializers.spark.python_udfs import register
from hub.materializers.spark.session import open_session
from hub.materializers.spark.slots import Slots

FUNCTIONS = """
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc


def doubled(n: pa.Array) -> Annotated[pa.Array, "bigint"]:
    return pc.multiply(n, 2)


def halved(n: int | None) -> int | None:
    return None if n is None else n // 2
"""
VIEW = """
view: bench
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint}}}
sql: SELECT s.id, doubled(s.id) AS d, halved(s.id) AS h FROM s
key: id
"""
REPEATS = 3


def measured(folder: Path, transforms: str, rows: int) -> None:
    """Print seconds and rows per second of each function with a setting."""
    settings = Settings(home=folder / transforms, project=folder, transforms=transforms, spark_heap_mb=1024)  # type: ignore[arg-type]
    ensure_jars(settings)
    settings.home.mkdir()
    session, gateway = open_session(settings, Slots(1, 1, 1), settings.home / "spark.log")
    try:
        own = register(session.newSession(), load_view(folder / "views" / "bench.yaml"))
        for name in ("doubled", "halved"):
            times = []
            for count in (1, *[rows] * REPEATS):
                began_at = time.perf_counter()
                own.range(count).selectExpr(f"sum({name}(id)) AS total").collect()
                times.append(time.perf_counter() - began_at)
            first_s, best_s = times[0], min(times[1:])
            print(f"{transforms:<10} {name:<8} first {first_s:6.2f} s   {rows / best_s:12,.0f} rows/s")
    finally:
        session.stop()
        gateway.stop()


def main() -> None:
    """Measure both settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "views").mkdir()
        (folder / "views" / "functions.py").write_text(FUNCTIONS)
        (folder / "views" / "bench.yaml").write_text(VIEW)
        for transforms in ("trusted", "sandboxed"):
            # A process can connect to one JVM.
            one = get_context("spawn").Process(target=measured, args=(folder, transforms, rows))
            one.start()
            one.join()


if __name__ == "__main__":
    main()
