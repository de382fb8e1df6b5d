"""[edge] Files of a table: its properties, new data files, and the removal of unused ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pyarrow
import pyarrow.fs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.io.pyarrow import PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from hub.iceberg.catalog import Identifier

PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of every table. Without retries pyiceberg never repeats a commit on top of another writer's."""

# Files that a sweep may delete: where a catalog nests folders, another table may lie below this one.
_OWN_FILE = re.compile(r"data/(_timestamp_day=[^/]+/)?[^/]+\.parquet|metadata/[^/]+\.(avro|json)")


def ensure_namespaces(catalog: Catalog, identifier: Identifier) -> None:
    """Create the namespaces of a table, the outermost first."""
    for length in range(1, len(identifier)):
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace_if_not_exists(identifier[:length])


def written(transaction: Transaction, rows: pyarrow.Table) -> list[DataFile]:
    """Write rows into new data files, for a snapshot of this transaction."""
    # pyiceberg has no public writer of data files besides append, which cannot replace files in its commit.
    metadata, io = transaction.table_metadata, transaction._table.io
    return list(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))


def expire(table: Table, older_than: datetime) -> int:
    """Expire snapshots that were made before a time, never the newest one. Returns their number."""
    before = len(table.snapshots())
    if before > 1:
        table.maintenance.expire_snapshots().older_than(older_than).commit()
        table.refresh()
    return before - len(table.snapshots())


def sweep(table: Table, older_than: datetime) -> int:
    """Delete files below the table's folder that no snapshot has: of expired snapshots, of killed writers.

    Younger files are left: a writer may be about to commit them. Returns the number of files.
    """
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return 0
    kept = {_path(each) for each in _reachable(table)}
    scheme, host, folder = io.parse_location(table.location())
    files = io.fs_by_scheme(scheme, host)
    selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=True)
    gone = [
        each.path
        for each in files.get_file_info(selector)
        if each.type == pyarrow.fs.FileType.File
        and _OWN_FILE.fullmatch(each.path.removeprefix(folder).lstrip("/"))
        and _path(each.path) not in kept
        and each.mtime is not None
        and each.mtime < older_than
    ]
    for path in gone:
        files.delete_file(path)
    return len(gone)


def _reachable(table: Table) -> Iterator[str]:
    """Yield the files of all snapshots, of every branch."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (each.metadata_file for each in metadata.metadata_log)
    yield from (each.statistics_path for each in metadata.statistics)
    yielded: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in yielded:
                yielded.add(manifest.manifest_path)
                yield manifest.manifest_path
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                yield from (entry.data_file.file_path for entry in entries)


def _path(location: str) -> str:
    """Return a location without scheme, so that names of files compare however they are written."""
    return location.partition("://")[2].lstrip("/") if "://" in location else location.lstrip("/")


def ago(hours: float, now_s: float) -> datetime:
    """Return the time ``hours`` before ``now_s``, which is in seconds since 1970."""
    return datetime.fromtimestamp(now_s, UTC) - timedelta(hours=hours)
