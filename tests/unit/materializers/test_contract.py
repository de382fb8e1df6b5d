"""Contract of the stores without a server, and their own features: files, locks, merges and crashes."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import duckdb
import orjson
import pytest
import store_contract
from samples import fast_or
from store_contract import FIRST, Model, Open, schema

from hub.errors import PeerError
from hub.materializers.stores import parquet_manifest, parquet_store
from hub.materializers.stores.duckdb_store import DuckStore
from hub.materializers.stores.open_store import open_store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions, TopicPartition
from hub.runtime import die_with_parent

URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'store.db'}",
    "duckdb": lambda folder: f"duckdb:///{folder / 'store.duckdb'}",
    "parquet": lambda folder: f"parquet:///{folder / 'lake'}",
}


@pytest.fixture(params=sorted(URLS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return lambda: open_store(URLS[request.param](tmp_path))


@pytest.mark.parametrize("seed", range(6 if "HUB_FAULT_SEEDS" in os.environ else fast_or(1, 4)))
def test_any_history_gives_the_rows_of_the_highest_versions(opened: Open, seed: int) -> None:
    store_contract.any_history(opened, seed)


def test_refusals_tables_made_anew_and_progress(opened: Open) -> None:
    store_contract.the_rest(opened)


# ---- Parquet: a kill between any two steps, merges, errors for readers


class Killed(BaseException):
    """End of the process, as seen by the code that it interrupts."""


@pytest.mark.parametrize("seed", range(fast_or(1, 3)))
def test_parquet_is_right_after_a_kill_between_any_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(parquet_manifest, "SNAPSHOT_ROWS", 30)
    monkeypatch.setattr(parquet_manifest, "MOST_ALIKE", 3)
    steps_left = 10**9

    def counted(name: str) -> None:
        original = getattr(Path, name)

        def step(self: Path, *arguments: Any, **named: Any) -> Any:
            nonlocal steps_left
            if self.is_relative_to(tmp_path):
                steps_left -= 1
                if steps_left < 0:
                    raise Killed
            return original(self, *arguments, **named)

        monkeypatch.setattr(Path, name, step)

    for name in ("rename", "unlink", "open"):
        counted(name)
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0:
            raise Killed
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    model = Model(parquet_store.ParquetStore(tmp_path / "lake", grace_s=0.0))
    model.store.ensure_view("v", schema(FIRST), [], "topic-1")
    killed = 0
    for version in range(1, 26):
        changes = [
            (
                f"k{chance.randrange(12)}",
                version,
                None if chance.random() < 0.2 else store_contract.row(chance, FIRST),
            )
        ]
        before = model.offset, dict(model.rows)
        steps_left = chance.randrange(14)
        try:
            model.apply(changes, version // 2 if chance.random() < 0.1 else 0)
        except Killed:
            killed += 1
            steps_left = 10**9
            model.store.close()
            model.store = parquet_store.ParquetStore(tmp_path / "lake", grace_s=0.0)
            # Rows and positions of before, or of after: the manifest decides.
            if model.store.positions("v", "changelog").get(TopicPartition("views.v", 0)) == before[0]:
                model.offset, model.rows = before
            else:
                model.rows.update({key: (at, row) for key, at, row in changes})
        steps_left = 10**9
        if model.offset:
            model.check()
    assert killed > 3
    model.store.close()


def test_few_files_are_left_and_none_that_nobody_names(tmp_path: Path) -> None:
    store = parquet_store.ParquetStore(tmp_path, grace_s=0.0)
    model = Model(store)
    store.ensure_view("v", schema(FIRST), [], "topic-1")
    chance = random.Random(2)
    for version in range(1, 70):
        model.apply([(f"k{version}", version, store_contract.row(chance, FIRST))])
    model.check()
    store.apply([])
    names = {path.name for path in (tmp_path / "v").glob("*.parquet")}
    manifest = orjson.loads((tmp_path / "v" / "manifest.json").read_bytes())
    assert {each["name"] for each in manifest["files"]} <= names
    assert len(manifest["files"]) < 16 and len(names) < 26
    (tmp_path / "v" / "000099-delta.parquet").write_bytes(b"half")
    store.close()
    model.store = parquet_store.ParquetStore(tmp_path)
    assert not (tmp_path / "v" / "000099-delta.parquet").exists()
    model.check()
    with pytest.raises(PeerError, match="another process"):
        parquet_store.ParquetStore(tmp_path)
    model.store.close()


def test_what_is_merged_and_into_what() -> None:
    def files(kind: Literal["snapshot", "delta"], *rows: int) -> list[parquet_manifest.File]:
        return [parquet_manifest.File(f"{kind}-{place}", kind, each) for place, each in enumerate(rows)]

    assert parquet_manifest.to_merge(files("delta", *[1] * 7)) is None
    assert parquet_manifest.to_merge(files("delta", *[1] * 8, 5_000)) == (
        "delta",
        tuple(files("delta", *[1] * 8)),
    )
    assert parquet_manifest.to_merge(files("delta", 10**6)) is None  # alone it is as good as a snapshot
    every = [*files("snapshot", 400_000), *files("delta", 150_000, 50_000)]
    assert parquet_manifest.to_merge(every) == ("snapshot", tuple(every))
    assert parquet_manifest.to_merge([*files("snapshot", 400_000), *files("delta", 150_000)]) is None


def test_the_ways_of_reading_that_the_docs_tell_give_the_live_rows(tmp_path: Path) -> None:
    model = Model(parquet_store.ParquetStore(tmp_path))
    model.store.ensure_view("customer_360", schema({"points": "long"}), [], "topic-1")
    for version, deleted in ((1, False), (2, False), (3, True)):
        changes = [
            RowVersion(f"k{key}", version, 0, 0, None if deleted else {"points": version})
            for key in range(version, 5)
        ]
        model.store.apply([ViewBatch("customer_360", changes, Positions())])
    model.store.close()
    text = (
        (Path(__file__).parents[3] / "docs/how-to/choose-stores.md")
        .read_text()
        .replace("/data/lake", str(tmp_path))
    )
    (sql,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    with duckdb.connect(":memory:") as database:
        database.execute(sql)
        found = database.execute("SELECT key, points FROM customer_360 ORDER BY key").fetchall()
    assert found == [("k1", 1), ("k2", 2)]
    space: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], space)  # noqa: S102 our own docs
    rows = space["rows"].sort_values("key")
    assert list(zip(rows["key"], rows["points"], strict=True)) == [("k1", 1), ("k2", 2)]


# ---- DuckDB: other processes


# One process handles all lines of its input, because a writer's imports take longer than its work.
WRITER = """
import os
import sys
from hub.materializers.stores.open_store import open_store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

def write(pid):
    store = open_store(sys.argv[1])
    store.ensure_view("v", {"fields": [{"name": "n", "type": "long"}]}, [], "topic")
    done = store.positions("v", "changelog")
    at = max((offset for _, offset in done), default=0)
    while True:
        at += 1
        rows = [RowVersion(f"k{n}", at, 0, at, {"n": at}) for n in range(500)]
        store.apply([ViewBatch("v", rows, Positions.of([("views.v", 0, at)]))])
        print(pid, at, flush=True)

while sys.stdin.readline():
    writer = os.fork()
    if writer == 0:
        write(os.getpid())
    os.waitpid(writer, 0)
    print("ended", flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["duckdb", "parquet", "sqlite"])
def test_a_writer_that_is_killed_leaves_rows_and_positions_of_one_batch(kind: str, tmp_path: Path) -> None:
    url = URLS[kind](tmp_path)
    process = subprocess.Popen(
        die_with_parent([sys.executable, "-c", WRITER, url]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    for seconds in (0.05, 0.2, 0.45):
        print("write", file=process.stdin, flush=True)
        writer, told = map(int, process.stdout.readline().split())
        time.sleep(seconds)
        os.kill(writer, signal.SIGKILL)
        while (line := process.stdout.readline()) != "ended\n":
            told = int(line.split()[1])
        store = open_store(url, read_only=True)
        with store.cut("v") as cut:
            ((_, at),) = cut.positions
            assert at >= told  # reported rows are there
            assert {(version, values[0]) for _, version, values in cut.rows()} == {(at, at)}
        assert store.count("v") == 500
        store.close()
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.processes
def test_duckdb_can_be_read_between_applies_and_names_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    store = DuckStore(path, wait_s=0.2)
    store.ensure_view(
        "v", schema({"n": "long", "at": FIRST["seen"], "words": store_contract.WORDS}), [], "topic"
    )
    rows = [
        RowVersion("a", 1, 0, 0, {"n": 5, "at": 1_700_000_000_123, "words": ["x", "y"]}),
        RowVersion("b", 1, 0, 0, None),
    ]
    store.apply([ViewBatch("v", rows, Positions())])
    reader = f"import duckdb; c = duckdb.connect({str(path)!r}, read_only=True); "
    query = 'SELECT key, n, "at"::VARCHAR, words->>1 FROM v'
    asked = [sys.executable, "-c", f"{reader}print(c.execute({query!r}).fetchall())"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[('a', 5, '2023-11-14 22:13:20.123', 'y')]"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{reader}print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None and holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(PeerError, match=f"PID {holder.pid}"):
        store.apply([ViewBatch("v", [RowVersion("c", 1, 0, 0, {"n": 1})], Positions())])
    holder.communicate(b"\n", timeout=20)
    store.apply([ViewBatch("v", [RowVersion("c", 1, 0, 0, {"n": 1})], Positions())])
    assert store.count("v") == 2
    store.close()
