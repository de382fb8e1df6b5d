"""[edge] The Iceberg table of one view: live rows in the branch ``main``, tombstones in ``deleted``.

A commit changes both branches and the positions at once, and names the snapshots that it follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow
import pyarrow.compute
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from hub.iceberg.files import PROPERTIES, written
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.iceberg_merge import (
    KeyedFile,
    TableState,
    changes_of,
    fitted,
    keys_of,
    may_have,
    merged_files,
    newer,
    state_of,
    to_rewrite,
    without,
)
from hub.materializers.stores.store import ViewBatch
from hub.materializers.types.avro_types import AvroType

MAIN, DELETED = "main", "deleted"
TOPIC_ID, TYPES, INDEXES = "hub.topic-id", "hub.types", "hub.indexes"
META: Mapping[str, PrimitiveType] = {
    "_version": LongType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_sources": StringType(),
    "_applied_at_ms": LongType(),
}
_TYPES: Mapping[str, PrimitiveType] = {
    "int": LongType(),
    "long": LongType(),
    "float": DoubleType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "bytes": BinaryType(),
    "timestamp-millis": TimestamptzType(),
    "timestamp-micros": TimestamptzType(),
    "local-timestamp-millis": TimestampType(),
    "date": DateType(),
}
_METRICS = "write.metadata.metrics.column."
_KEYS = pyarrow.schema([("key", pyarrow.large_string()), ("_version", pyarrow.int64())])
# An overwrite leaves a manifest of deleted files, which the next append drops.
_MOST_MANIFESTS = 20


def column_type(kind: AvroType) -> PrimitiveType:
    """Return the type of a view's column; nested values and decimals are text."""
    return _TYPES.get(plain_type(kind), StringType())


def new_schema(types: Mapping[str, AvroType]) -> Schema:
    """Return the schema of a new table."""
    columns = {**{name: column_type(kind) for name, kind in types.items()}, **META}
    fields = [NestedField(place, name, kind) for place, (name, kind) in enumerate(columns.items(), 2)]
    return Schema(NestedField(1, "key", StringType(), doc="key of the row"), *fields)


def properties_of(topic_id: str, types: Mapping[str, AvroType], indexes: Sequence[str]) -> dict[str, str]:
    """Return the properties of a table: its definition, and which bounds its manifests have."""
    # pyiceberg cannot take the bounds of times past the calendar from a file.
    unbounded = [name for name, kind in types.items() if column_type(kind) in _CALENDAR]
    return {
        **PROPERTIES,
        TOPIC_ID: topic_id,
        TYPES: orjson.dumps(dict(types)).decode(),
        INDEXES: orjson.dumps(list(indexes)).decode(),
        f"{_METRICS}key": "truncate(64)",
        **{f"{_METRICS}{name}": "counts" for name in unbounded},
    }


_CALENDAR = (TimestamptzType(), TimestampType(), DateType())


@dataclass(frozen=True, slots=True)
class Definition:
    """A view as its table notes it."""

    topic_id: str
    types: dict[str, AvroType]
    indexes: list[str]


def definition_of(properties: Mapping[str, str]) -> Definition | None:
    """Return the definition in a table's properties; None for a table of another writer."""
    if TOPIC_ID not in properties:
        return None
    types, indexes = orjson.loads(properties[TYPES]), orjson.loads(properties[INDEXES])
    return Definition(properties[TOPIC_ID], types, indexes)


def state(scan: DataScan) -> TableState:
    """Return the progress of the newest snapshot that has one; other engines' snapshots have none."""
    metadata = scan.table_metadata
    snapshot = metadata.snapshot_by_name(MAIN)
    for each in ancestors_of(snapshot, metadata) if snapshot is not None else ():
        table_state = state_of({} if each.summary is None else each.summary.additional_properties)
        if table_state is not None:
            return table_state
    return TableState()


def read(scan: DataScan, tasks: Iterable[FileScanTask], *names: str) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of files; ``names``: the columns, in this order; none: all."""
    metadata = scan.table_metadata
    schema = metadata.schema()
    projected = schema.select(*names) if names else schema
    for batch in ArrowScan(metadata, scan.io, projected, AlwaysTrue()).to_record_batches(tasks):
        yield batch.select(names) if names else batch


class TableBranch:
    """Files of one branch, and their replacement. ``file``: the bounds of each."""

    def __init__(self, table: Table, name: str) -> None:
        self.name, self.table = name, table
        head = table.metadata.snapshot_by_name(name)
        self.scan = table.scan(snapshot_id=None if head is None else head.snapshot_id)
        self.tasks = {} if head is None else {each.file.file_path: each for each in self.scan.plan_files()}
        self.manifests = 0 if head is None else len(head.manifests(table.io))
        fields = table.schema()
        self._key, self._version = fields.find_field("key").field_id, fields.find_field("_version").field_id
        self.files = [self._keyed(each.file) for each in self.tasks.values()]
        self.touched: set[str] = set()
        self._paths: dict[str, str] = {}

    def _keyed(self, file: DataFile) -> KeyedFile:
        bounds = [(each or {}).get(self._key) for each in (file.lower_bounds, file.upper_bounds)]
        first, last = (None if each is None else from_bytes(StringType(), each) for each in bounds)
        return KeyedFile(file.file_path, file.record_count, first, last)

    def versions(self, keys: pyarrow.Array) -> dict[str, int]:
        """Return the versions of those keys that the branch has. ``keys``: in order."""
        found: dict[str, int] = {}
        for file in may_have(self.files, keys.to_pylist()):
            for batch in self._read(file, "key", "_version"):
                some = batch.filter(pyarrow.compute.is_in(batch["key"], value_set=keys))
                there = some["key"].to_pylist()
                self._paths |= dict.fromkeys(there, file.path)
                found |= zip(there, some["_version"].to_pylist(), strict=True)
        return found

    def touch(self, keys: pyarrow.Array) -> None:
        """Note that these keys are replaced, of those whose versions were read."""
        self.touched |= {self._paths[each] for each in keys.to_pylist() if each in self._paths}

    def below(self, version: int) -> pyarrow.Table:
        """Return key and version of the rows with a lower version; their files are touched."""
        tables = []
        for file in self.files if version else ():
            bound = (self.tasks[file.path].file.lower_bounds or {}).get(self._version)
            if bound is not None and int(from_bytes(LongType(), bound)) >= version:
                continue
            for batch in self._read(file, "key", "_version"):
                some = batch.filter(pyarrow.compute.less(batch["_version"], version))
                if some.num_rows:
                    self.touched.add(file.path)
                    tables.append(pyarrow.Table.from_batches([some]))
        return pyarrow.concat_tables([_KEYS.empty_table(), *(each.cast(_KEYS) for each in tables)])

    def _read(self, file: KeyedFile, *names: str) -> Iterator[pyarrow.RecordBatch]:
        return read(self.scan, [self.tasks[file.path]], *names)

    def stage(
        self,
        transaction: Transaction,
        gone: pyarrow.Array,
        below: int,
        new: pyarrow.Table,
        note: dict[str, str],
    ) -> None:
        """Stage a snapshot with new rows, without those of keys ``gone`` and of versions below ``below``."""
        schema = self.table.schema().as_arrow()
        files = to_rewrite(self.files, self.touched, added=new.num_rows > 0)

        def old() -> Iterator[tuple[KeyedFile, pyarrow.Table]]:
            for each in files:
                rows = [fitted(pyarrow.Table.from_batches([part]), schema) for part in self._read(each)]
                yield each, without(pyarrow.concat_tables([schema.empty_table(), *rows]), gone, below)

        update = transaction.update_snapshot(note, self.name)
        with update.overwrite() if files else update.merge_append() as snapshot:
            for each in files:
                snapshot.delete_data_file(self.tasks[each.path].file)
            for rows in merged_files(old(), fitted(new, schema)):
                for data_file in written(transaction, rows):
                    snapshot.append_data_file(data_file)
        if files and self.manifests >= _MOST_MANIFESTS:
            with transaction.update_snapshot(note, self.name).merge_append():
                pass


def apply(table: Table, batch: ViewBatch, rows: pyarrow.Table) -> None:
    """Commit a batch. ``rows``: newest change of each key, with ``_deleted``. Raises pyiceberg's errors."""
    live, dead = TableBranch(table, MAIN), TableBranch(table, DELETED)
    keys = keys_of(rows)
    rows = newer(rows, {**live.versions(keys), **dead.versions(keys)})
    changes = changes_of(rows, live.below(batch.expire_below), batch.expire_below)
    live.touch(changes.gone)
    dead.touch(changes.gone)
    note = state(live.scan).after(batch, swept=changes.swept).summary()
    schema = table.schema().as_arrow()
    tombstones = pyarrow.concat_tables([fitted(each, schema) for each in changes.dead])
    with table.transaction() as transaction:
        live.stage(transaction, changes.gone, batch.expire_below, changes.live, note)
        if tombstones.num_rows or dead.touched:
            dead.stage(transaction, changes.gone, 0, tombstones, note)


def empty(transaction: Transaction, table: Table) -> None:
    """Stage the removal of all rows, tombstones and positions."""
    for name in (MAIN, DELETED):
        branch = TableBranch(table, name)
        if branch.tasks or name == MAIN:
            update: Any = transaction.update_snapshot(TableState().summary(), name)
            with update.overwrite() if branch.tasks else update.merge_append() as snapshot:
                for task in branch.tasks.values():
                    snapshot.delete_data_file(task.file)
