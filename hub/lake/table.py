"""[edge] One Iceberg table of a topic: create, evolve, append, compact, expire, sweep.

An append names the snapshot that it follows (``commit.retry.num-retries`` is 0, so pyiceberg never repeats
it on top of another writer's). After any error the caller opens the table again: its newest snapshot is
the state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField

from hub.errors import Conflict
from hub.iceberg.catalog import Identifier, catalog_errors
from hub.iceberg.files import PROPERTIES, ensure_namespaces, expire, sweep, written
from hub.lake.columns import META, LakeColumn
from hub.lake.evolution import ColumnChange, next_changes
from hub.lake.snapshots import OWN_COMPACTION, SmallFile, TableProgress, plan_compaction, progress_of

log = logging.getLogger(__name__)

TOPIC, SCHEMA_VERSION = "hub.topic", "hub.schema-version"
_DAY = PartitionSpec(PartitionField(3, 1_000, DayTransform(), "_timestamp_day"))
_MOST_PASSES = 10


class LakeTable:
    """An open table. Not thread safe. Its methods raise Conflict (HUB-1813) for another writer, PeerError
    (HUB-3810).
    """

    def __init__(self, table: Table, name: str) -> None:
        self._table, self.name = table, name
        self.progress = self._read_progress()

    @property
    def table(self) -> Table:
        """The table of pyiceberg, for readers."""
        return self._table

    @property
    def fields(self) -> Sequence[NestedField]:
        return self._table.schema().fields

    @property
    def arrow_schema(self) -> pyarrow.Schema:
        return self._table.schema().as_arrow()

    @property
    def version(self) -> int:
        """The newest schema version whose columns the table has; -1 for a table without any."""
        return int(self._table.properties.get(SCHEMA_VERSION, -1))

    @property
    def rows(self) -> int | None:
        """Rows by the newest snapshot; None if it does not say."""
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return 0
        total = None if snapshot.summary is None else snapshot.summary["total-records"]
        return None if total is None else int(total)

    @property
    def committed_at_ms(self) -> int | None:
        """Time of the newest commit, epoch milliseconds; None without one."""
        snapshot = self._table.current_snapshot()
        return None if snapshot is None else snapshot.timestamp_ms

    def evolve(self, versions: Sequence[Sequence[LakeColumn]], number: int) -> int:
        """Bring the table to the columns of each version in turn; returns the number of changes."""
        done = 0
        with catalog_errors(f'table "{self.name}"'):
            for columns in versions:
                for _ in range(_MOST_PASSES):
                    changes = next_changes(self.fields, columns)
                    if not changes:
                        break
                    with self._table.update_schema() as update:
                        for change in changes:
                            _apply(update, change)
                    done += len(changes)
            if self.version != number:
                with self._table.transaction() as transaction:
                    transaction.set_properties({SCHEMA_VERSION: str(number)})
        if done:
            log.info('table "%s": %d changes of its schema', self.name, done)
        return done

    def append(self, rows: pyarrow.Table, progress: TableProgress) -> None:
        """Append rows and positions in one commit."""
        with catalog_errors(f'table "{self.name}"'):
            self._table.append(rows, snapshot_properties=progress.summary())
        self.progress = progress

    def compact(self, target_bytes: int, least_files: int) -> tuple[int, int]:
        """Merge small files of a day, sorted by partition and offset. Returns (files before, files after).

        Each group is a commit of its own, with the positions as they are.
        """
        before = after = 0
        with catalog_errors(f'table "{self.name}"'):
            tasks = {task.file.file_path: task for task in self._table.scan().plan_files()}
            files = [
                SmallFile(path, task.file.partition[0], task.file.file_size_in_bytes, task.file.record_count)
                for path, task in tasks.items()
                if not task.delete_files
            ]
            for group in plan_compaction(files, target_bytes, least_files):
                after += self._merge([tasks[each.path] for each in group])
                before += len(group)
        return before, after

    def _merge(self, tasks: Sequence[FileScanTask]) -> int:
        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        rows = scan.to_table(tasks).sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        with self._table.transaction() as transaction:
            files = written(transaction, rows)
            if sum(each.record_count for each in files) != sum(task.file.record_count for task in tasks):
                raise ValueError("the merged files have another number of rows; nothing was changed")
            properties = {**self.progress.summary(), **OWN_COMPACTION}
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as update:
                for task in tasks:
                    update.delete_data_file(task.file)
                for each in files:
                    update.append_data_file(each)
        return len(files)

    def expire(self, older_than: datetime) -> int:
        """Expire snapshots that were made before a time, never the newest one. Returns their number."""
        with catalog_errors(f'table "{self.name}"'):
            return expire(self._table, older_than)

    def sweep(self, older_than: datetime) -> int:
        """Delete files that no snapshot has and that are older. Returns their number."""
        with catalog_errors(f'table "{self.name}"'):
            return sweep(self._table, older_than)

    def _read_progress(self) -> TableProgress:
        """Return the progress of the newest snapshot that has one; else by the rows themselves, for a table
        whose snapshots are other engines' by now.
        """
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return TableProgress("")
        for each in ancestors_of(snapshot, self._table.metadata):
            table_progress = progress_of({} if each.summary is None else each.summary.additional_properties)
            if table_progress is not None:
                return table_progress
        rows = self._table.scan(selected_fields=("_partition", "_offset")).to_arrow()
        last = rows.group_by("_partition").aggregate([("_offset", "max")])
        pairs = zip(last["_partition"].to_pylist(), last["_offset_max"].to_pylist(), strict=True)
        return TableProgress("", {partition: offset + 1 for partition, offset in pairs}, missing=None)


def open_table(catalog: Catalog, identifier: Identifier) -> LakeTable:
    """Return the topic's table. Raises NotFound (HUB-1812), PeerError (HUB-3810)."""
    name = ".".join(identifier)
    with catalog_errors(f'table "{name}"'):
        return LakeTable(catalog.load_table(identifier), name)


def ensure_table(catalog: Catalog, identifier: Identifier, topic: str) -> LakeTable:
    """Return the topic's table; create it, with the columns of records alone, if it does not exist."""
    name = ".".join(identifier)
    with catalog_errors(f'table "{name}"'):
        try:
            return LakeTable(catalog.load_table(identifier), name)
        except NoSuchTableError:
            pass
        ensure_namespaces(catalog, identifier)
        with suppress(TableAlreadyExistsError):
            catalog.create_table(
                identifier, Schema(*META), partition_spec=_DAY, properties={**PROPERTIES, TOPIC: topic}
            )
        return LakeTable(catalog.load_table(identifier), name)


def _apply(update: Any, change: ColumnChange) -> None:
    match change.kind:
        case "add":
            update.add_column(change.path, change.type, doc=change.doc)
        case "widen":
            update.update_column(change.path, field_type=change.type)
        case "rename":
            update.rename_column(change.path, change.name)


def check_same_topic(table: LakeTable, name: str, topic_id: str) -> None:
    """Raise Conflict (HUB-1811) if the table has rows of another topic of that name."""
    if table.progress.topic_id not in ("", topic_id):
        raise topic_changed(table.name, name)


def topic_changed(table: str, topic: str) -> Conflict:
    return Conflict(
        f'topic "{topic}" is not that of table "{table}": it was deleted and created again, or cut',
        hint="rename or drop the table in its catalog; the topic is then written into a new one",
        code="HUB-1811",
    )
