"""Cost and latency of text searches in SQLite and Postgres, beside SQLite's LIKE and a plain tsvector of
Postgres.

Run: ``./run bench search [--rows N] [--queries N] [--store sqlite|postgresql …]`` (about two minutes with the
default of 100,000 rows). Rows have a title of 6 and a body of 40 words, drawn from 50,000 words by Zipf's
law. Prints CPU seconds of this process and of the database, memory, sizes, and the times of three kinds of
queries. Asserts none on time; a search that finds other keys than the plain tsvector ends the bench.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from postgres import BINARIES, Postgres
from registry import quantile
from sqlalchemy import text

from hub.materializers.search.text_index import TextIndex
from hub.materializers.search.text_query import parse_query
from hub.materializers.stores.sql.text_search import TextSearchRequest
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

WORDS, BATCH, PAGE = 50_000, 5_000, 10
INDEX = TextIndex(("title", "body"))
SCHEMA = {
    "type": "record",
    "name": "v",
    "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in INDEX.fields],
}


@dataclass(frozen=True, slots=True)
class Query:
    """A text of a search, and the words that rows must have."""

    kind: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100, help="queries of each kind")
    parser.add_argument("--store", nargs="*", default=["sqlite", "postgresql"])
    given = parser.parse_args()
    queries = list(queries_of(random.Random(2), given.queries))
    for kind in given.store:
        if kind == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                measure(f"sqlite:///{folder}/store.db", given.rows, queries, (), Path(folder) / "store.db")
        elif BINARIES:
            server = Postgres()
            server.start()
            try:
                assert server.process is not None
                process = psutil.Process(server.process.pid)
                measure(server.url("postgres"), given.rows, queries, (process,), None)
            finally:
                server.stop()


def chosen(chance: random.Random) -> str:
    """Return a word; the n-th is as frequent as 1/n."""
    return f"w{int(WORDS ** chance.random()):05d}"


def rows_of(count: int) -> Iterator[list[RowVersion]]:
    chance = random.Random(1)
    numbers = iter(range(count))
    while batch := list(itertools.islice(numbers, BATCH)):
        yield [
            RowVersion(
                f"k{n:08d}",
                1,
                0,
                n,
                {
                    "title": " ".join(chosen(chance) for _ in range(6)),
                    "body": " ".join(chosen(chance) for _ in range(40)),
                },
            )
            for n in batch
        ]


def queries_of(chance: random.Random, count: int) -> Iterator[Query]:
    for _ in range(count):
        yield Query("rare word", (f"w{chance.randrange(5_000, 50_000):05d}",))
        yield Query(
            "two words", (f"w{chance.randrange(20, 200):05d}", f"w{chance.randrange(200, 2_000):05d}")
        )
        yield Query("common word", (f"w{chance.randrange(2, 20):05d}",))


def measure(
    url: str, rows: int, queries: Sequence[Query], others: Sequence[psutil.Process], file: Path | None
) -> None:
    store = Store(url)
    kind = store.engine.dialect.name
    print(f"{kind}: {rows:,} rows")
    for name, indexes in (("plain", []), ("v", [INDEX.spec])):
        store.ensure_view(name, SCHEMA, indexes, "t")
        with spent(f"  write {'with' if indexes else 'without'} the text index", others, file):
            for batch in rows_of(rows):
                store.apply([ViewBatch(name, batch, Positions.of([(name, 0, batch[-1].offset + 1)]))])
    with spent("  build the index of a view that has the rows", others, file):
        store.ensure_view("plain", SCHEMA, [INDEX.spec], "t")
    if kind == "postgresql":
        prepare_plain(store)
    peer = plain_tsvector(store) if kind == "postgresql" else like(store)
    peer_name = "plain tsvector" if kind == "postgresql" else "LIKE"
    for kind_of_query in dict.fromkeys(each.kind for each in queries):
        own = [each for each in queries if each.kind == kind_of_query]
        of_hub = [timed(lambda each=each: found(store, each)) for each in own]  # type: ignore[misc]
        few = own if kind == "postgresql" else own[:10]
        of_peer = [timed(lambda each=each: peer(each)) for each in few]  # type: ignore[misc]
        report(f"  {kind_of_query}: search", of_hub)
        report(f"  {kind_of_query}: {peer_name}", of_peer)
    if kind == "postgresql":
        check(store, queries)
    store.close()


def found(store: Store, query: Query, limit: int = PAGE) -> list[str]:
    wanted = TextSearchRequest(parse_query(query.text), (0, 1), True)
    return [each.row.key for each in store.text.search("v", wanted, (), limit, None, 600.0)]


def prepare_plain(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE peer AS SELECT key, setweight(to_tsvector('simple', title), 'A') || "
                "setweight(to_tsvector('simple', body), 'B') AS words FROM view_v"
            )
        )
        connection.execute(text("CREATE INDEX peer_words ON peer USING gin (words)"))


def plain_tsvector(store: Store) -> Callable[[Query], list[str]]:
    statement = text(
        "SELECT v.* FROM view_v v JOIN (SELECT key, ts_rank(words, q) AS score FROM peer, "
        "plainto_tsquery('simple', :words) q WHERE words @@ q ORDER BY 2 DESC, 1 LIMIT 10) f USING (key)"
    )

    def ask(query: Query) -> list[str]:
        with store.engine.connect() as connection:
            return [row.key for row in connection.execute(statement, {"words": query.text})]

    return ask


def like(store: Store) -> Callable[[Query], list[str]]:
    def ask(query: Query) -> list[str]:
        tests = " AND ".join(f"(title LIKE :w{n} OR body LIKE :w{n})" for n in range(len(query.words)))
        statement = text(f"SELECT * FROM view_v WHERE {tests} LIMIT 10000000")
        given = {f"w{n}": f"%{word}%" for n, word in enumerate(query.words)}
        with store.engine.connect() as connection:
            return [row.key for row in connection.execute(statement, given)]

    return ask


def check(store: Store, queries: Sequence[Query]) -> None:
    """Compare all keys that both find, for queries with few rows."""
    statement = text("SELECT key FROM peer WHERE words @@ plainto_tsquery('simple', :words)")
    for query in queries:
        if query.kind != "common word":
            with store.engine.connect() as connection:
                expected = {row.key for row in connection.execute(statement, {"words": query.text})}
            assert set(found(store, query, 1_000_000)) == expected, query


class spent:  # noqa: N801 a context manager
    """Print the time and the CPU seconds of the block."""

    def __init__(self, title: str, others: Sequence[psutil.Process], file: Path | None) -> None:
        self.title, self.others, self.file = title, others, file

    def __enter__(self) -> None:
        self.began, self.own, self.their = time.monotonic(), time.process_time(), self.cpu_s()

    def __exit__(self, *_: object) -> None:
        took, own = time.monotonic() - self.began, time.process_time() - self.own
        size = "" if self.file is None else f", file {self.file.stat().st_size / 1e6:,.0f} MB"
        memory = psutil.Process().memory_info().rss / 1e6
        print(
            f"{self.title}: {took:.1f} s, CPU {own:.1f} s here and {self.cpu_s() - self.their:.1f} s in the "
            f"database's server, {memory:.0f} MB here{size}",
            flush=True,
        )

    def cpu_s(self) -> float:
        total = 0.0
        for process in self.others:
            for each in (process, *process.children(recursive=True)):
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Return the time and this process' CPU time of a call, in seconds."""
    began, own = time.monotonic(), time.process_time()
    act()
    return time.monotonic() - began, time.process_time() - own


def report(title: str, times: Sequence[tuple[float, float]]) -> None:
    took = sorted(wall for wall, _ in times)
    own = sum(cpu for _, cpu in times) / len(times)
    print(
        f"{title}: p50 {quantile(took, 0.5) * 1000:.1f} ms, p99 {quantile(took, 0.99) * 1000:.1f} ms, "
        f"CPU here {own * 1000:.1f} ms a query ({len(times)} queries)",
        flush=True,
    )


if __name__ == "__main__":
    main()
