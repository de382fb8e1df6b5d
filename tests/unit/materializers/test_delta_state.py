"""The incremental engine's state by itself: all or nothing, within its memory. Needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from hub.errors import CallerError, ConfigError, HubFault
from hub.materializers.planning.delta_plan import Table
from hub.materializers.planning.delta_planner import plan
from hub.materializers.spark.delta.inputs import InputTables
from hub.materializers.spark.delta.stage_query import RECORD_KEY
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.spark.delta_engine import DeltaRun


@pytest.fixture
def state(tmp_path: Path) -> DeltaState:
    return DeltaState(tmp_path / "delta", memory_mb=64)


def run_of(state: DeltaState, sql: str, tables: list[Table], *key: str) -> DeltaRun:
    """A run without Spark over existing rows."""
    run = object.__new__(DeltaRun)
    run.plan, run.state, run.schema = plan(sql, tables, key), state, None
    run.inputs = InputTables(None, run.plan, state)  # type: ignore[arg-type]
    return run


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
    with state.transaction():  # and it continues
        state.db.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert state.rows("t") == 1
    state.close()


def test_a_damaged_file_is_said(state: DeltaState, tmp_path: Path) -> None:
    state.close()
    (tmp_path / "delta" / "delta.duckdb").write_bytes(b"no database" * 1_000)
    with pytest.raises(HubFault, match="cannot be read") as told:
        DeltaState(tmp_path / "delta")
    assert told.value.code == "HUB-5021"


def test_two_keys_with_one_text_are_said_and_nothing_is_deleted(state: DeltaState) -> None:
    """Consumers know a row by its record's key alone:
    of two rows with one text, the deletion of one would take both."""
    run = run_of(
        state, "SELECT id, name FROM o", [Table("o", {"id": "bigint", "name": "string"}, ("id",))], "id"
    )
    view = run.plan.view
    run.shapes = {view.name: StructType([StructField("id", LongType()), StructField("name", StringType())])}

    def fresh(*rows: tuple[int, str]) -> None:
        listed = ", ".join(f"({number}, '{text}')" for number, text in rows)
        state.db.execute(
            f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT id, 'n' AS name, text AS {RECORD_KEY} FROM "
            f"(VALUES {listed}) v(id, text)"
        )

    fresh((1, "same"), (2, "same"))
    with pytest.raises(CallerError, match=r"have the key \(id\) = \([12]\)") as told:
        run.merge_fresh(view, first=True, whole=True)
    assert told.value.code == "HUB-2140"
    fresh((1, "same"), (2, "other"))
    run.merge_fresh(view, first=True, whole=True)
    state.db.execute("CREATE TEMP TABLE affected AS SELECT 3 AS id")
    fresh((3, "same"))
    with pytest.raises(CallerError, match=r"have the key \(id\) = \(1\)"):
        run.merge_fresh(view, first=False, whole=False)


VERSIONED = Table("v", {"name": "string"}, ("_key",), versioned=True)


def changed(
    run: DeltaRun, *rows: tuple[str, str | None, int], below: int = 0, images: bool = True
) -> list[tuple[str, int]]:
    """The table after a batch of (key, name or None of a tombstone, version):
    its rows' names and versions."""
    given = pa.table(
        {
            "name": pa.array([name for _, name, _ in rows], pa.string()),
            "_key": pa.array([key for key, _, _ in rows], pa.string()),
            "_deleted": pa.array([name is None for _, name, _ in rows], pa.bool_()),
            "_order": pa.array([version for _, _, version in rows], pa.int64()),
        }
    )
    run.inputs.empty = lambda table: given  # type: ignore[method-assign]
    run.inputs.take(VERSIONED, given, below, images=images)
    return run.state.db.execute("SELECT name, _order FROM t_v ORDER BY name").fetchall()


@pytest.mark.parametrize("beside", [[("x", "x", 1)], []], ids=["beside a row", "alone"])
def test_a_deleted_row_does_not_come_back_with_an_older_record(
    state: DeltaState, beside: list[tuple[str, str | None, int]]
) -> None:
    """A realtime view repeats, after a crash, its rows since the last checkpoint."""
    run = run_of(state, "SELECT name FROM v", [VERSIONED], "name")
    others = [(str(name), version) for _, name, version in beside]
    assert changed(run, ("k", "k5", 5), *beside) == [("k5", 5), *others]
    assert changed(run, ("k", None, 6)) == others
    assert changed(run, ("k", "k5", 5)) == others
    assert changed(run, ("k", "k5", 5), ("k", None, 6)) == others
    assert changed(run, ("k", "k7", 7)) == [("k7", 7), *others]
    assert changed(run, ("k", None, 6)) == [("k7", 7), *others]
    assert changed(run, ("k", None, 8), ("k", "k7", 7)) == others
    assert changed(run, ("k", "k7", 7), images=False) == others
    assert run.has_below("v", 9)


def test_what_was_deleted_is_forgotten_with_its_generation(state: DeltaState) -> None:
    run = run_of(state, "SELECT name FROM v", [VERSIONED], "name")
    changed(run, ("k", "k5", 5), ("l", "l5", 5))
    changed(run, ("k", None, 6), ("l", None, 12))
    assert run.has_below("v", 10)
    assert changed(run, below=10) == []
    assert not run.has_below("v", 10)
    assert state.db.execute("SELECT _key, _order FROM gone_v").fetchall() == [("l", 12)]


def test_a_state_of_before_goes_on(state: DeltaState) -> None:
    """The state has no record of its deleted rows."""
    run = run_of(state, "SELECT name FROM v", [VERSIONED], "name")
    state.db.execute("CREATE TABLE t_v AS SELECT 'x' AS name, 'x' AS _key, 3::BIGINT AS _order")
    assert run.has_below("v", 4) and not run.has_below("v", 3)
    assert changed(run, ("k", "k5", 5)) == [("k5", 5), ("x", 3)]
    assert changed(run, ("x", None, 4)) == [("k5", 5)]
    assert changed(run, ("x", "x", 3)) == [("k5", 5)]
