"""[core] Decisions on one batch of an Iceberg store: which rows count, and which files are written again.

A key is in exactly one data file, whose bounds of ``key`` contain it. So a batch reads the keys of the files
whose bounds contain one of its own, and writes again the files that have a replaced row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow
import pyarrow.compute

from hub.materializers.stores.store import ViewBatch
from hub.record import Positions

# Rows of a data file, at most. A file with a quarter of that is small, and small files are merged.
TARGET_ROWS, MOST_SMALL = 250_000, 8
_PREFIX = "hub."


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """A data file. ``first``, ``last``: bounds of its keys; None: no bound is known."""

    path: str
    rows: int
    first: str | None
    last: str | None


@dataclass(frozen=True, slots=True)
class TableState:
    """Progress of a table, in the summary of a snapshot. ``newest_version``: of any row, deleted ones too."""

    changelog: Positions = Positions()
    source: Positions = Positions()
    swept: int = 0
    newest_version: int = 0

    def summary(self) -> dict[str, str]:
        return {
            f"{_PREFIX}changelog": str(self.changelog),
            f"{_PREFIX}source": str(self.source),
            f"{_PREFIX}swept": str(self.swept),
            f"{_PREFIX}newest-version": str(self.newest_version),
        }

    def after(self, batch: ViewBatch, *, swept: bool) -> TableState:
        """Return the progress after a batch. ``swept``: whether rows below ``expire_below`` were deleted."""
        return TableState(
            Positions({**self.changelog.offsets, **batch.changelog.offsets}),
            Positions({**self.source.offsets, **batch.sources.offsets}),
            batch.expire_below if swept else self.swept,
            max(self.newest_version, *(each.version for each in batch.changes), 0),
        )


def state_of(summary: Mapping[str, str]) -> TableState | None:
    """Return the progress in a snapshot's summary; None for a snapshot of another writer."""
    if f"{_PREFIX}changelog" not in summary:
        return None
    return TableState(
        Positions.parse(summary[f"{_PREFIX}changelog"]),
        Positions.parse(summary[f"{_PREFIX}source"]),
        int(summary[f"{_PREFIX}swept"]),
        int(summary[f"{_PREFIX}newest-version"]),
    )


def may_have(files: Iterable[KeyedFile], keys: Sequence[str]) -> list[KeyedFile]:
    """Return the files whose bounds contain one of the keys, which are in order."""
    found = []
    for each in files:
        begin = 0 if each.first is None else bisect_left(keys, each.first)
        end = len(keys) if each.last is None else bisect_right(keys, each.last)
        if begin < end:
            found.append(each)
    return found


def to_rewrite(files: Sequence[KeyedFile], touched: Collection[str], *, added: bool) -> list[KeyedFile]:
    """Return the files to write again, by their first key: those with replaced rows; and if rows are added,
    all small ones once there are ``MOST_SMALL``.
    """
    small = [each for each in files if each.rows < TARGET_ROWS // 4]
    merged = {each.path for each in small} if added and len(small) >= MOST_SMALL else set()
    chosen = [each for each in files if each.path in touched or each.path in merged]
    return sorted(chosen, key=lambda each: each.first or "")


def newer(rows: pyarrow.Table, known: Mapping[str, int]) -> pyarrow.Table:
    """Return the rows with a higher version than the known one of their key."""
    pairs = zip(rows["key"].to_pylist(), rows["_version"].to_pylist(), strict=True)
    return rows.filter(
        pyarrow.array([version > known.get(key, -1) for key, version in pairs], pyarrow.bool_())
    )


@dataclass(frozen=True, slots=True)
class MergeChanges:
    """Changes of a table by one batch. ``gone``: keys whose former row or tombstone is replaced. ``live`` and
    ``dead``: new rows and tombstones. ``swept``: whether rows below ``expire_below`` were deleted.
    """

    gone: pyarrow.Array
    live: pyarrow.Table
    dead: Sequence[pyarrow.Table]
    swept: bool


def changes_of(rows: pyarrow.Table, expired: pyarrow.Table, below: int) -> MergeChanges:
    """Decide on rows that are newer than the table's. ``expired``: key and version of the table's rows of
    versions below ``below``, which become tombstones unless they are replaced.
    """
    gone = keys_of(rows)
    expired = without(expired, gone)
    over = pyarrow.compute.less(rows["_version"], below)
    written = pyarrow.compute.invert(rows["_deleted"])
    stays = pyarrow.compute.and_(written, pyarrow.compute.invert(over))
    swept = bool(expired.num_rows or pyarrow.compute.any(pyarrow.compute.and_(over, written)).as_py())
    dead = rows.filter(pyarrow.compute.invert(stays))
    return MergeChanges(gone, rows.filter(stays), (dead, expired), swept)


def keys_of(rows: pyarrow.Table) -> pyarrow.Array:
    """Return the keys of rows, in order."""
    keys = rows["key"].combine_chunks().cast(pyarrow.large_string())
    return keys.take(pyarrow.compute.sort_indices(keys))


def merged_files(
    old: Iterable[tuple[KeyedFile, pyarrow.Table]], new: pyarrow.Table
) -> Iterator[pyarrow.Table]:
    """Yield tables of at most ``TARGET_ROWS`` rows, each for a new file: the rows of old files, with the new
    rows whose keys are near. Holds two files and the new rows in memory.
    """
    new = new.sort_by("key")
    keys = new["key"].to_pylist()
    place, held = 0, new.slice(0, 0)
    for file, rows in old:
        end = len(keys) if file.last is None else max(place, bisect_right(keys, file.last))
        held = pyarrow.concat_tables([held, rows, new.slice(place, end - place)])
        place = end
        if held.num_rows >= TARGET_ROWS:
            held = held.sort_by("key")
            while held.num_rows >= TARGET_ROWS:
                yield held.slice(0, TARGET_ROWS)
                held = held.slice(TARGET_ROWS)
    held = pyarrow.concat_tables([held, new.slice(place)]).sort_by("key")
    for begin in range(0, held.num_rows, TARGET_ROWS):
        yield held.slice(begin, TARGET_ROWS)


def fitted(rows: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return rows with the columns of a schema; those that they lack are null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pyarrow.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def without(rows: pyarrow.Table, keys: pyarrow.Array, below: int = 0) -> pyarrow.Table:
    """Return the rows of other keys, and of versions from ``below`` on."""
    kept = pyarrow.compute.invert(pyarrow.compute.is_in(rows["key"], value_set=keys))
    if below:
        kept = pyarrow.compute.and_(kept, pyarrow.compute.greater_equal(rows["_version"], below))
    return rows.filter(kept)


def progress_with(text: str | None, records: Mapping[str, Any]) -> str:
    """Return progress records as JSON, with some replaced; a record that is None is removed."""
    known = {**({} if text is None else orjson.loads(text)), **records}
    return orjson.dumps({key: value for key, value in known.items() if value is not None}).decode()
