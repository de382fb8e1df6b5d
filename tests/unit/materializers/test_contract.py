"""Contract of the stores without a server, and their own features: files, locks, merges and crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import store_contract
from samples import fast_or
from store_contract import FIRST, Open, schema

from hub.errors import PeerError
from hub.materializers.stores.duckdb_store import DuckStore
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions
from hub.runtime import die_with_parent


@pytest.fixture(params=sorted(store_contract.URLS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return lambda: store_contract.opened_in(request.param, tmp_path)


@pytest.mark.parametrize("seed", range(6 if "HUB_FAULT_SEEDS" in os.environ else fast_or(1, 4)))
def test_any_history_gives_the_rows_of_the_highest_versions(opened: Open, seed: int) -> None:
    store_contract.any_history(opened, seed)


def test_records_older_than_a_delete_or_a_sweep_bring_nothing_back(opened: Open) -> None:
    store_contract.stale_records(opened)


def test_refusals_tables_made_anew_and_progress(opened: Open) -> None:
    store_contract.the_rest(opened)


# ---- DuckDB: other processes


# One process handles all lines of its input, because a writer's imports take longer than its work.
WRITER = """
import os
import sys
from pathlib import Path
from store_contract import opened_in
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

def write(pid):
    store = opened_in(sys.argv[1], Path(sys.argv[2]))
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
@pytest.mark.parametrize("kind", sorted(store_contract.URLS))
def test_a_writer_that_is_killed_leaves_rows_and_positions_of_one_batch(kind: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        die_with_parent([sys.executable, "-c", WRITER, kind, str(tmp_path)]),
        env={**os.environ, "PYTHONPATH": str(Path(store_contract.__file__).parent)},
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
        store = store_contract.opened_in(kind, tmp_path, read_only=True)
        with store.cut("v") as cut:
            ((_, at),) = cut.positions
            assert at >= told  # reported rows are there
            assert {(version, values[0]) for _, version, values in cut.rows()} == {(at, at)}
        assert store_contract.count_rows(store, "v") == 500
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
    assert store_contract.count_rows(store, "v") == 2
    store.close()
