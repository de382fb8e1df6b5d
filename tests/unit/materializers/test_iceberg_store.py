"""Views as Iceberg tables: kills between any two steps, two writers, upkeep, and readers of other engines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from samples import fast_or
from store_contract import FIRST, GROWN, Model, count_rows, opened_in, row, schema, settings_in

from hub.errors import PeerError
from hub.iceberg.catalog import open_catalog
from hub.iceberg.files import expire, sweep
from hub.materializers.stores import iceberg_merge, iceberg_table
from hub.materializers.stores.iceberg_merge import KeyedFile, may_have, merged_files, to_rewrite
from hub.materializers.stores.store import RowVersion, StoreRefused, ViewBatch
from hub.record import Positions, TopicPartition

AT = TopicPartition("views.v", 0)


class Killed(BaseException):
    """End of the process, as seen by the code that it interrupts."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """The catalog as other tools open it."""
    with open_catalog(settings_in(tmp_path)) as opened:
        yield opened


def reopened(model: Model, folder: Path) -> None:
    model.store.close()
    model.store = opened_in("iceberg", folder)


@pytest.mark.parametrize("seed", range(fast_or(1, 3)))
def test_a_kill_between_any_two_steps_leaves_one_batch_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, steps_left = random.Random(seed), 10**9
    monkeypatch.setattr(iceberg_merge, "TARGET_ROWS", 5)
    monkeypatch.setattr(iceberg_merge, "MOST_SMALL", 3)

    def step() -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0:
            raise Killed

    def counted(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def around(*arguments: Any, **named: Any) -> Any:
            step()
            found = original(*arguments, **named)
            step()
            return found

        monkeypatch.setattr(owner, name, around)

    counted(iceberg_table, "written")
    counted(SqlCatalog, "commit_table")
    counted(iceberg_table.TableBranch, "stage")
    model = Model(opened_in("iceberg", tmp_path))
    model.store.ensure_view("v", schema(FIRST), [], "topic-1")
    killed = kept = 0
    for version in range(1, 26):
        key, below = f"k{chance.randrange(12)}", version // 2 if chance.random() < 0.2 else 0
        changes = [(key, version, None if chance.random() < 0.3 else row(chance, FIRST))]
        before = model.offset, dict(model.rows)
        steps_left = chance.randrange(9)
        try:
            model.apply(changes, below)
        except Killed:
            killed += 1
            steps_left = 10**9
            reopened(model, tmp_path)
            # The catalog decides whether the commit counts.
            if model.store.positions("v", "changelog").get(AT) == before[0]:
                model.offset, model.rows = before
            else:
                kept += 1
                model.note(changes, below)
        steps_left = 10**9
        if model.offset:
            model.check()
    assert killed > kept > 0
    model.store.close()


def test_of_two_writers_one_fails_and_doubles_nothing(tmp_path: Path) -> None:
    first, second = (Model(opened_in("iceberg", tmp_path)) for _ in range(2))
    first.store.ensure_view("v", schema(FIRST), [], "topic-1")
    chance = random.Random(1)
    first.apply([("a", 1, row(chance, FIRST))])
    second.offset, second.rows = first.offset, dict(first.rows)
    second.check()  # its table is open now
    first.apply([("b", 2, row(chance, FIRST))])
    with pytest.raises(PeerError, match="another process writes") as refused:
        second.apply([("b", 2, row(chance, FIRST)), ("c", 3, None)])
    assert refused.value.code == "HUB-3042"
    first.check()
    second.offset, second.rows = first.offset, dict(first.rows)
    second.apply([("c", 3, row(chance, FIRST))])
    second.check()
    for each in (first, second):
        each.store.close()


def test_other_engines_read_live_rows_and_the_past(tmp_path: Path, catalog: Catalog) -> None:
    model = Model(opened_in("iceberg", tmp_path))
    model.store.ensure_view("v", schema({"points": "long", "seen": FIRST["seen"]}), [], "topic-1")
    for version, deleted in ((1, False), (2, False), (3, True)):
        changes = [
            RowVersion(
                f"k{key}", version, 0, 0, None if deleted else {"points": version, "seen": 1_700_000_000_123}
            )
            for key in range(version, 5)
        ]
        model.store.apply([ViewBatch("v", changes, Positions.of([("views.v", 0, version)]))])
    table = catalog.load_table(("lake", "v"))
    connection = table.scan().to_duckdb("v")
    found = connection.sql("SELECT key, points, seen::VARCHAR FROM v ORDER BY key").fetchall()
    assert [each[:2] for each in found] == [("k1", 1), ("k2", 2)] and "22:13:20.123" in found[0][2]
    # Two snapshots of that branch each: the first has no rows, and is of the second commit on.
    past = [each for each in table.history() if table.snapshot_by_id(each.snapshot_id) is not None]
    rows = table.scan(snapshot_id=past[1].snapshot_id, selected_fields=("key", "points")).to_arrow()
    assert sorted(zip(rows["key"].to_pylist(), rows["points"].to_pylist(), strict=True)) == [
        ("k1", 1),
        *((f"k{key}", 2) for key in range(2, 5)),
    ]
    model.store.close()


def test_a_view_whose_columns_change_keeps_its_rows(tmp_path: Path, catalog: Catalog) -> None:
    chance = random.Random(5)
    model = Model(opened_in("iceberg", tmp_path))
    model.store.ensure_view("v", schema(FIRST), [], "topic-1")
    model.apply([(f"k{n}", n + 1, row(chance, FIRST)) for n in range(9)])
    assert not model.store.ensure_view("v", schema(GROWN), ["tier"], "topic-1")
    model.types = GROWN
    model.apply([("k1", 20, row(chance, GROWN))])
    model.check()
    names = catalog.load_table(("lake", "v")).scan().to_arrow().column_names
    assert set(GROWN) < set(names)
    model.store.close()


def test_rows_of_other_writers_do_not_move_the_positions(tmp_path: Path, catalog: Catalog) -> None:
    chance = random.Random(6)
    model = Model(opened_in("iceberg", tmp_path))
    model.store.ensure_view("v", schema(FIRST), [], "topic-1")
    model.apply([("a", 1, row(chance, FIRST)), ("b", 2, row(chance, FIRST))])
    catalog.load_table(("lake", "v")).delete("key == 'a'")
    reopened(model, tmp_path)
    assert model.store.positions("v", "changelog").get(AT) == model.offset
    assert count_rows(model.store, "v") == 1, "verification finds it"
    # A table of somebody else is not touched.
    catalog.create_table(("lake", "w"), table_schema())
    with pytest.raises(StoreRefused, match="is not the hub's"):
        model.store.ensure_view("w", schema(FIRST), [], "topic-1")
    assert model.store.views() == ["v"]
    model.store.close()


def table_schema() -> pyarrow.Schema:
    return pyarrow.schema([("x", pyarrow.int64())])


def test_files_and_manifests_stay_few_and_unused_ones_are_deleted(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_merge, "TARGET_ROWS", 100)
    chance = random.Random(2)
    model = Model(opened_in("iceberg", tmp_path))
    model.store.ensure_view("v", schema(FIRST), [], "topic-1")
    for version in range(1, 50):
        gone = [(f"k{version - 1}", version, None)] if version % 3 == 0 else []
        model.apply([(f"k{version}", version, row(chance, FIRST)), *gone])
    model.check()
    table = catalog.load_table(("lake", "v"))
    snapshot = table.current_snapshot()
    assert snapshot is not None and len(snapshot.manifests(table.io)) < 25
    assert len(list(table.scan().plan_files())) <= 10
    before = on_disk(table)
    assert expire(table, datetime.now(UTC)) > 20 and sweep(table, datetime.now(UTC)) > 20
    assert len(on_disk(table)) < len(before) / 3
    reopened(model, tmp_path)
    model.check()
    model.apply([("k1", 99, None), ("k2", 99, None)])
    model.check()
    model.store.close()


def on_disk(table: Table) -> list[Path]:
    return [each for each in Path(table.location().removeprefix("file://")).rglob("*") if each.is_file()]


def test_the_store_maintains_its_tables_by_itself(tmp_path: Path, catalog: Catalog) -> None:
    store = opened_in("iceberg", tmp_path)
    store.settings = store.settings.model_copy(update={"lake_maintain_h": 1e-9, "lake_keep_h": 0.0})  # type: ignore[attr-defined]
    store.ensure_view("v", schema({"n": "long"}), [], "topic-1")
    for version in range(1, 5):
        row_ = RowVersion("a", version, 0, 0, {"n": version})
        store.apply([ViewBatch("v", [row_], Positions.of([("views.v", 0, version)]))])
    assert len(catalog.load_table(("lake", "v")).snapshots()) <= 2
    assert count_rows(store, "v") == 1
    store.close()


# ---- decisions


def test_files_are_read_by_their_bounds_and_written_again_by_their_rows() -> None:
    files = [
        KeyedFile("a", 100_000, "b", "f"),
        KeyedFile("b", 100_000, "h", "k"),
        KeyedFile("c", 100_000, None, None),
    ]
    assert [each.path for each in may_have(files, ["f", "g"])] == ["a", "c"]
    assert [each.path for each in may_have(files, ["g"])] == ["c"]
    assert may_have(files, []) == []
    small = [KeyedFile(f"s{n}", 3, f"{n}", f"{n}") for n in range(iceberg_merge.MOST_SMALL)]
    assert [each.path for each in to_rewrite([*files, *small], {"b"}, added=False)] == ["b"]
    merged = to_rewrite([*files, *small], {"b"}, added=True)
    assert [each.path for each in merged] == [*(each.path for each in small), "b"]
    assert to_rewrite([*files, *small[1:]], set(), added=True) == []


@given(
    some.lists(some.sets(some.integers(0, 60), min_size=1, max_size=20), max_size=5),
    some.sets(some.integers(61, 120)),
)
@settings(deadline=None)
def test_files_that_are_written_again_have_each_row_once_in_files_of_few_rows(
    old: list[set[int]], new: set[int]
) -> None:
    target, iceberg_merge.TARGET_ROWS = iceberg_merge.TARGET_ROWS, 7
    try:
        parts = [
            (KeyedFile("f", len(keys), f"{min(keys):03}", f"{max(keys):03}"), keyed(keys)) for keys in old
        ]
        files = list(merged_files(parts, keyed(new)))
    finally:
        iceberg_merge.TARGET_ROWS = target
    assert all(0 < each.num_rows <= 7 for each in files)
    found = [key for each in files for key in each["key"].to_pylist()]
    assert sorted(found) == sorted(f"{key:03}" for keys in (*old, new) for key in keys)


def keyed(keys: set[int]) -> pyarrow.Table:
    return pyarrow.table({"key": pyarrow.array([f"{key:03}" for key in keys], pyarrow.large_string())})
