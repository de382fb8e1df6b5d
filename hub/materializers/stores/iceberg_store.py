"""[edge] pyiceberg: views as Iceberg tables, for any engine that reads them: Spark, Trino, DuckDB, pyiceberg.

::

    <catalog of the settings>
      <namespace>.<view>          branch main: the live rows, each key once;  branch deleted: tombstones
      <namespace>._hub_progress   records of the applier

A reader needs no condition: the table is the view. Rows, tombstones and positions are one commit, so a kill
at any moment leaves the last one. A batch writes again the data files that have a replaced row
(copy on write), because pyiceberg writes no delete files: a commit costs as much as these files have rows.
So the store commits every ``lake_commit_s``.

Limitations: one writing process, because of two writers one's commit fails; a transaction covers one view.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import NestedField, StringType

from hub.config import Settings
from hub.errors import Conflict, NotFound, PeerError
from hub.iceberg.catalog import Identifier, catalog_errors, open_catalog
from hub.iceberg.files import PROPERTIES, ago, ensure_namespaces, expire, sweep
from hub.materializers.stores import iceberg_table
from hub.materializers.stores.arrow import DoesNotFit, schema_of, stored_rows, table_of
from hub.materializers.stores.iceberg_merge import progress_with
from hub.materializers.stores.iceberg_table import Definition, column_type, definition_of, properties_of
from hub.materializers.stores.store import (
    KeptRow,
    Meanwhile,
    Rhythm,
    RowKind,
    StoreRefused,
    StoreSnapshot,
    ViewBatch,
)
from hub.materializers.stores.stored_row import RowShaper, columns_of, must_refill, newest_rows
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

log = logging.getLogger(__name__)

_PROGRESS_TABLE, _PROGRESS = "_hub_progress", "hub.progress"
_RECORDS = 100_000
# A file of a commit under way has no snapshot yet.
_SWEEP_AFTER_H = 24.0


class IcebergStore:
    """Implements ViewStore. Thread-safe. ``namespace``: of its tables in the catalog of the settings."""

    def __init__(self, settings: Settings, namespace: str, *, read_only: bool = False) -> None:
        self.settings, self.read_only = settings, read_only
        self.namespace: Identifier = tuple(namespace.split("."))
        self.name = f"iceberg:///{namespace}"
        self.rhythm = Rhythm(_RECORDS, few=_RECORDS, pause_s=settings.lake_commit_s)
        self._catalog: Catalog = open_catalog(settings)
        self._lock = threading.RLock()
        self._tables: dict[str, Table] = {}
        self._maintain_s: dict[str, float] = {}

    def close(self) -> None:
        self._catalog.close()

    # ---- tables

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        types = columns_of(name, schema)
        with self._writing(name):
            table = self._loaded(name)
            definition = None if table is None else definition_of(table.properties)
            if table is None or definition is None:
                self._create(name, types, properties_of(topic_id, types, indexes))
                return True
            fresh = must_refill((definition.topic_id, definition.types, definition.indexes), topic_id, types)
            if fresh or definition != Definition(topic_id, types, list(indexes)):
                with table.transaction() as transaction:
                    if fresh:
                        iceberg_table.empty(transaction, table)
                    _change_columns(transaction, definition.types, types)
                    transaction.set_properties(properties_of(topic_id, types, indexes))
        return fresh

    def _create(self, name: str, types: Mapping[str, AvroType], properties: dict[str, str]) -> None:
        identifier = (*self.namespace, name)
        ensure_namespaces(self._catalog, identifier)
        try:
            self._catalog.create_table(identifier, iceberg_table.new_schema(types), properties=properties)
        except TableAlreadyExistsError:
            raise StoreRefused(
                f'table "{".".join(identifier)}" is not the hub\'s, and view "{name}" needs its name',
                hint="rename or drop it, or name another namespace: iceberg:///NAMESPACE",
            ) from None

    def drop_view(self, name: str) -> None:
        with self._writing(name):
            self._table(name)
            self._catalog.purge_table((*self.namespace, name))
            self._tables.pop(name, None)
            left = {key: None for key in self.progress() if key.partition(":")[2] == name}
            self._note(left)

    def views(self) -> list[str]:
        with self._lock, self._errors(self.name):
            try:
                found = [each[-1] for each in self._catalog.list_tables(self.namespace)]
            except NoSuchNamespaceError:
                return []
            return sorted(each for each in found if self._definition(each) is not None)

    def _definition(self, view: str) -> Definition | None:
        table = self._loaded(view)
        return None if table is None else definition_of(table.properties)

    # ---- write

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        # What can be refused is refused first, so that a refused batch leaves nothing of the others.
        rows = [self._rows(batch) for batch in batches]
        for batch, of_batch in zip(batches, rows, strict=True):
            with self._writing(batch.view):
                iceberg_table.apply(self._table(batch.view), batch, of_batch)
            self._maintain(batch.view)
        if progress:
            with self._writing(_PROGRESS_TABLE):
                self._note(progress)

    def _rows(self, batch: ViewBatch) -> pyarrow.Table:
        with self._errors(batch.view):
            definition = self._known(self._table(batch.view), batch.view)
        shaper = RowShaper(definition.types, far=False)
        try:
            return table_of(schema_of(definition.types), newest_rows(shaper, batch.changes))
        except DoesNotFit as error:
            raise StoreRefused(
                f'store "{self.name}" refuses: {error}', hint="the message is Arrow's own"
            ) from error

    def _note(self, records: Mapping[str, Any]) -> None:
        table = self._loaded(_PROGRESS_TABLE)
        if table is None:
            identifier = (*self.namespace, _PROGRESS_TABLE)
            ensure_namespaces(self._catalog, identifier)
            schema = Schema(NestedField(1, "key", StringType()))
            table = self._catalog.create_table(identifier, schema, properties=PROPERTIES)
        text = progress_with(table.properties.get(_PROGRESS), records)
        with table.transaction() as transaction:
            transaction.set_properties({_PROGRESS: text})

    def _maintain(self, view: str) -> None:
        """Expire snapshots and delete unused files, every ``lake_maintain_h``. A failure stops nothing."""
        now_s, every_s = time.time(), self.settings.lake_maintain_h * 3_600
        if now_s < self._maintain_s.setdefault(view, now_s + every_s) or not every_s:
            return
        self._maintain_s[view] = now_s + every_s
        try:
            with self._writing(view):
                expired = expire(self._table(view), ago(self.settings.lake_keep_h, now_s))
                deleted = sweep(self._table(view), ago(_SWEEP_AFTER_H, now_s))
        except PeerError as error:
            log.warning("%s: not maintained: %s", self.name, error.message)
        else:
            log.info("%s: view %s: %d snapshots, %d files deleted", self.name, view, expired, deleted)

    # ---- read

    def positions(self, view: str, kind: RowKind) -> Positions:
        with self._errors(view):
            table = self._loaded(view)
            if table is None:
                return Positions()
            table_state = iceberg_table.state(table.scan())
        return table_state.changelog if kind == "changelog" else table_state.source

    def newest_version(self, view: str) -> int:
        with self._errors(view):
            return iceberg_table.state(self._table(view).scan()).newest_version

    def progress(self) -> dict[str, Any]:
        with self._errors(self.name):
            table = self._loaded(_PROGRESS_TABLE)
            found: dict[str, Any] = {}
            if table is not None:
                found = orjson.loads(table.properties.get(_PROGRESS, "{}"))
            return found

    @contextmanager
    def cut(self, view: str) -> Iterator[StoreSnapshot]:
        """Implements ViewStore: one snapshot of the table."""
        with self._errors(view):
            scan = self._table(view).scan()
            metadata = scan.table_metadata
            definition = self._known_in(metadata.properties, view)
            state = iceberg_table.state(scan)

        def rows() -> Iterator[KeptRow]:
            names = ("key", "_version", *definition.types, "_sources")
            with self._errors(view):
                yield from stored_rows(iceberg_table.read(scan, scan.plan_files(), *names))

        yield StoreSnapshot(definition.topic_id, definition.types, state.changelog, state.swept, rows)

    # ---- the catalog

    def _table(self, view: str) -> Table:
        """Return the open table of a view. Raises NotFound (HUB-1410)."""
        found = self._loaded(view)
        if found is None:
            raise NotFound(
                f'view "{view}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        return found

    def _loaded(self, name: str) -> Table | None:
        """Return a table; None if there is none. The writer's own are kept open: nobody else writes them."""
        with self._lock:
            found = self._tables.get(name)
            if found is None:
                try:
                    found = self._catalog.load_table((*self.namespace, name))
                except NoSuchTableError:
                    return None
                if not self.read_only:
                    self._tables[name] = found
            return found

    def _known(self, table: Table, view: str) -> Definition:
        return self._known_in(table.properties, view)

    def _known_in(self, properties: Mapping[str, str], view: str) -> Definition:
        definition = definition_of(properties)
        if definition is None:
            raise NotFound(
                f'table "{view}" in {self.name} is not a view of the hub',
                hint="name another namespace: iceberg:///NAMESPACE",
                code="HUB-1410",
            )
        return definition

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Translate errors, and open the table again after one: a commit's outcome may be unknown."""
        with self._lock:
            try:
                with self._errors(name):
                    yield
            except BaseException:
                self._tables.clear()
                raise

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            with catalog_errors(f'table "{".".join((*self.namespace, name))}"'):
                yield
        except Conflict as error:
            if error.code != "HUB-1813":
                raise
            raise PeerError(
                f'store "{self.name}": another process writes table "{name}"',
                hint="one applier a namespace: stop the other one",
                code="HUB-3042",
            ) from error


def _change_columns(
    transaction: Transaction, before: Mapping[str, AvroType], types: Mapping[str, AvroType]
) -> None:
    """Stage the removal and addition of columns. One of another type is removed and added."""
    kept = {
        name
        for name, kind in before.items()
        if name in types and column_type(kind) == column_type(types[name])
    }
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in before.keys() - kept:
            update.delete_column(name)
    with transaction.update_schema() as update:
        for name in [each for each in types if each not in kept]:
            update.add_column(name, column_type(types[name]))
