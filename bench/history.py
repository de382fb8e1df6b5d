"""Cost of the history of rows in SQLite and Postgres: writes with and without it, and reads as of a time.

Run: ``./run bench history [--keys N] [--versions N] [--reads N] [--store sqlite|postgresql …]`` (about a
minute with the default of 20,000 keys with 10 versions each). Prints CPU seconds of this process and of the
database, memory, sizes, and the times of reads. Asserts none on time; a row as of a time that is not the one
that was written then ends the bench.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from postgres import BINARIES, Postgres
from search import report, spent, timed

from hub.materializers.history.spec import noted_history
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions
from hub.times import epoch_ms

BATCH, STEP_MS, HOUR_MS = 5_000, 1_000, 3_600_000
_TYPES = {"name": "string", "city": "string", "points": "long", "paid": "double", "note": "string"}
SCHEMA = {
    "type": "record",
    "name": "v",
    "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in _TYPES.items()],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--reads", type=int, default=2_000)
    parser.add_argument("--store", nargs="*", default=["sqlite", "postgresql"])
    given = parser.parse_args()
    for kind in given.store:
        if kind == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "store.db"
                measure(f"sqlite:///{file}", given, (), file)
        elif BINARIES:
            server = Postgres()
            server.start()
            try:
                assert server.process is not None
                measure(server.url("postgres"), given, (psutil.Process(server.process.pid),), None)
            finally:
                server.stop()


def batches_of(name: str, keys: int, versions: int, began_ms: int) -> Iterator[ViewBatch]:
    """Yield the versions of all keys, one version of each after the other."""
    offset = 0
    for version in range(1, versions + 1):
        for start in range(0, keys, BATCH):
            rows = []
            for number in range(start, min(keys, start + BATCH)):
                values = {
                    "name": f"Person {number}",
                    "city": f"City {number % 997}",
                    "points": version,
                    "paid": number / 7,
                    "note": "x" * 60,
                }
                sources = {"s": {"topic": "in", "partition": 0, "offset": offset}}
                at_ms = began_ms + version * STEP_MS
                rows.append(RowVersion(f"k{number:08d}", version, 0, offset, values, sources, at_ms))
                offset += 1
            yield ViewBatch(name, rows, Positions.of([(f"views.{name}", 0, offset)]))


def measure(url: str, given: argparse.Namespace, others: Sequence[psutil.Process], file: Path | None) -> None:
    store = Store(url)
    print(f"{store.engine.dialect.name}: {given.keys:,} keys, {given.versions} versions each")
    began_ms = epoch_ms() + 600_000  # after the histories begin, whatever the first writes take
    for name, noted in (("plain", []), ("v", noted_history(24 * HOUR_MS))):
        store.ensure_view(name, SCHEMA, noted, "t")
        with spent(f"  write {'with' if noted else 'without'} history", others, file):
            for batch in batches_of(name, given.keys, given.versions, began_ms):
                store.apply([batch])
    chance, now_ms = random.Random(1), began_ms + HOUR_MS
    times: dict[str, list[tuple[float, float]]] = {
        "row now": [],
        "row as of a time": [],
        "history of a row": [],
    }
    for _ in range(given.reads):
        key, version = f"k{chance.randrange(given.keys):08d}", chance.randrange(1, given.versions + 1)
        times["row now"].append(timed(lambda: store.get("v", key)))  # noqa: B023 called at once
        times["row as of a time"].append(
            timed(lambda: check(store, key, version, began_ms, now_ms))  # noqa: B023
        )
        times["history of a row"].append(
            timed(lambda: store.history.timeline("v", key, now_ms, now_ms, None, 20))  # noqa: B023
        )
    pages = [
        timed(lambda: store.history.select_at("v", began_ms + STEP_MS, now_ms, (), 100, None))
        for _ in range(max(1, given.reads // 20))
    ]
    for title, each in (*times.items(), ("page of 100 rows as of a time", pages)):
        report(f"  {title}", each)
    for size in store.history.sizes():
        print(f"  {size.versions:,} versions, {size.size_bytes} bytes of history")
    store.close()


def check(store: Store, key: str, version: int, began_ms: int, now_ms: int) -> None:
    row = store.history.row_at("v", key, began_ms + version * STEP_MS, now_ms)
    assert row is not None and row.values is not None and row.values["points"] == version, (key, version)


if __name__ == "__main__":
    main()
