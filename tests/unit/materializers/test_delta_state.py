"""The delta operator's state by itself: all or nothing, within its memory. Needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.errors import ConfigError, HubFault
from hub.materializers.delta_engine import DeltaState


@pytest.fixture
def state(tmp_path: Path) -> DeltaState:
    return DeltaState(tmp_path / "delta", memory_mb=64)


def test_what_does_not_fit_into_memory_is_spilled_and_the_limit_holds(state: DeltaState) -> None:
    with state.transaction():  # 90 MB
        state.db.execute(
            "CREATE TABLE t AS SELECT i, md5(i::VARCHAR) || repeat('x', 68) AS text FROM range(700_000) r(i)"
        )
        state.db.execute("CREATE TEMP TABLE sorted AS SELECT * FROM t ORDER BY text")
    assert state.rows("sorted") == 700_000
    used = state.one("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
    assert used is not None and used[0] <= 64_000_000
    state.close()
    assert not state.spill.exists()


def test_too_little_memory_is_said_and_nothing_is_kept_of_the_batch(state: DeltaState) -> None:
    def batch() -> None:
        with state.transaction():
            state.db.execute("CREATE TABLE t AS SELECT 1 AS a")
            state.db.execute("SELECT list(i) FROM range(50_000_000) r(i)").fetchall()

    with pytest.raises(ConfigError, match="needs more than the 64 MB") as told:
        batch()
    assert told.value.code == "HUB-2142"
    assert told.value.hint == "raise delta_memory_mb"
    assert not state.has("t")
    with state.transaction():  # and it goes on
        state.db.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert state.rows("t") == 1
    state.close()


def test_a_damaged_file_is_said(state: DeltaState, tmp_path: Path) -> None:
    state.close()
    (tmp_path / "delta" / "delta.duckdb").write_bytes(b"no database" * 1_000)
    with pytest.raises(HubFault, match="cannot be read") as told:
        DeltaState(tmp_path / "delta")
    assert told.value.code == "HUB-5021"
