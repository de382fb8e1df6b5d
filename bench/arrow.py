"""Rows per second out of a store over HTTP: Arrow's stream, lines of JSON, and the client's data frames.

Run: ``./run bench arrow [--rows N]`` (about half a minute). Server and client are one process, so the figures
are those of both together. Every way has to return every row; times are printed, none is asserted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fastapi.testclient import TestClient
from hub.client.frames import ArrowResult
from query_hub import QueryHub
from sql_cases import FACTS_SQL, store_facts

from hub.record import Positions

NARROW = "SELECT n, price FROM facts"


def asked(http: TestClient, sql: str, form: str, limit: int) -> bytes:
    body = {"sql": sql, "format": form, "limit": limit, "timeout_ms": 60_000}
    answer = http.post("/query", json=body)
    assert answer.status_code == 200, answer.text
    return answer.content


def by_arrow(http: TestClient, sql: str, rows: int) -> int:
    return int(ArrowResult(asked(http, sql, "arrow", rows), False, Positions()).to_arrow().num_rows)


def by_pandas(http: TestClient, sql: str, rows: int) -> int:
    return len(ArrowResult(asked(http, sql, "arrow", rows), False, Positions()).to_pandas())


def by_lines(http: TestClient, sql: str, _rows: int) -> int:
    return asked(http, sql, "ndjson", 10_000).count(b"\n")


WAYS: dict[str, Callable[[TestClient, str, int], int]] = {
    "Arrow": by_arrow,
    "Arrow, to pandas": by_pandas,
    "lines of JSON (10,000 rows)": by_lines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        hub = QueryHub(Path(folder))
        store_facts(hub.store, rows)
        with TestClient(hub.app) as http:
            by_pandas(http, f"{NARROW} WHERE n < 10", rows)  # imports pyarrow and pandas
            for what, sql in (("2 numbers", NARROW), ("5 columns", FACTS_SQL)):
                for name, way in WAYS.items():
                    begun, cpu = time.perf_counter(), time.process_time()
                    count = way(http, sql, rows)
                    took, used = time.perf_counter() - begun, time.process_time() - cpu
                    assert count in (rows, 10_000), (name, count)
                    figures = f"{count / took:12,.0f} rows/s {used / count * 1e6:8.2f} CPU-s a million"
                    print(f"{what:10} {name:28} {figures}")
        hub.close()


if __name__ == "__main__":
    main()
