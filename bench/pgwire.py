"""Rows per second out of a store by Postgres' protocol: psycopg in text and binary, asyncpg, and COPY.

Run: ``./run bench pgwire [--rows N]`` (about half a minute). Client and server are threads of one process, so
the figures are those of both together. Every way has to return every row; times are printed, none is
asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import asyncpg
import psycopg
from pg_server import PgHub, served_pg
from sql_cases import FACTS_SQL, store_facts

from hub.pgwire.results import ResultLimits


def by_psycopg(hub: PgHub, *, binary: bool) -> int:
    with psycopg.connect(host="127.0.0.1", port=hub.port, user="bench", dbname="hub") as connection:
        return len(connection.cursor(binary=binary).execute(FACTS_SQL).fetchall())


def by_copy(hub: PgHub) -> int:
    asked = f"COPY ({FACTS_SQL}) TO STDOUT CSV"
    with (
        psycopg.connect(host="127.0.0.1", port=hub.port, user="bench", dbname="hub") as connection,
        connection.cursor().copy(asked) as copy,
    ):
        return sum(bytes(each).count(b"\n") for each in copy)


def by_asyncpg(hub: PgHub) -> int:
    async def go() -> int:
        connection = await asyncpg.connect(host="127.0.0.1", port=hub.port, user="bench", database="hub")
        try:
            return len(await connection.fetch(FACTS_SQL))
        finally:
            await connection.close()

    return asyncio.run(go())


WAYS: dict[str, Callable[[PgHub], int]] = {
    "psycopg, text": lambda hub: by_psycopg(hub, binary=False),
    "psycopg, binary": lambda hub: by_psycopg(hub, binary=True),
    "asyncpg": by_asyncpg,
    "COPY, CSV": by_copy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    limits = ResultLimits(rows, 4 << 30)
    with tempfile.TemporaryDirectory() as folder, served_pg(Path(folder), limits=limits) as hub:
        store_facts(hub.store, rows)
        for name, read in WAYS.items():
            started = time.monotonic()
            found = read(hub)
            took = time.monotonic() - started
            assert found == rows, (name, found)
            print(f"{name:16} {rows:>9,} rows in {took:6.2f} s  {rows / took:>10,.0f} rows/s")


if __name__ == "__main__":
    main()
