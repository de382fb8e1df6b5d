"""[edge] pyarrow and DuckDB: views as folders of Parquet files, for any reader of files: DuckDB, pandas,
Spark.

::

    <folder>/<view>/manifest.json          the truth: positions, schema, and which files are live
                    000004-snapshot.parquet   each key once
                    000007-delta.parquet      what came after: newer rows, tombstones, replays

A batch writes a file, then renames a new manifest into place: rows and positions change together, and a kill
at any point leaves the last manifest valid. Rows are merged on read: for each key the row with the highest
``_version`` (of two equal ones the deleted one); ``_deleted`` rows are tombstones. So files may be merged in
any order, and a file that holds a batch twice changes nothing.

Small deltas are merged eight at a time, and all deltas are merged into a snapshot when they have half of its
rows, so a row is rewritten a few times, however long the view lives. Files that are no longer live stay for a
grace period, for readers of an older manifest.

Limitations: one writing process (guarded by a lock file); a transaction covers one view, not several; a
snapshot is one file, merged in DuckDB's memory limit and beyond that on disk.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

import duckdb
import orjson
import pyarrow
import pyarrow.parquet

from hub.errors import HubError, NotFound, PeerError
from hub.files import sync
from hub.materializers.stores.arrow import DoesNotFit, schema_of, stored_rows, table_of
from hub.materializers.stores.parquet_manifest import MANIFEST, File, Manifest, manifest_of, to_merge
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
from hub.times import epoch_ms

GRACE_S = 600.0
_MEMORY = "1GB"
_READ_ROWS = 10_000
NEWEST = "QUALIFY row_number() OVER (PARTITION BY key ORDER BY _version DESC, _deleted DESC) = 1"


class ParquetStore:
    """Implements ViewStore. ``grace_s``: how long retired files stay for readers of an older manifest."""

    rhythm = Rhythm(100_000, few=100_000, pause_s=1.0)

    def __init__(self, folder: Path, *, read_only: bool = False, grace_s: float = GRACE_S) -> None:
        self.folder = folder
        self.grace_s = grace_s
        self._thread = threading.RLock()
        self._held: IO[str] | None = None
        if not read_only:
            with self._errors():
                folder.mkdir(parents=True, exist_ok=True)
                self._hold()
                try:
                    for view in self.views():
                        self._remove_strangers(view)
                except BaseException:
                    self.close()
                    raise

    def _hold(self) -> None:
        held = (self.folder / ".lock").open("a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held.close()
            raise PeerError(
                f'store "{self.folder}": another process writes it',
                hint="one applier a folder: stop the other one",
                code="HUB-3042",
            ) from None
        self._held = held

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    # ---- tables

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        types = columns_of(name, schema)
        with self._thread, self._errors():
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            found = self._found(name)
            fresh = must_refill(
                (found.topic_id, found.types, found.indexes) if found is not None else None, topic_id, types
            )
            if found is None or fresh:
                made = Manifest(name, topic_id, types, list(indexes))
                if found is not None:
                    made = replace(made, sequence=found.sequence, retired=found.retired)
                    made = made.instead(found.files, (), epoch_ms())
                self._commit(made)
            elif (found.types, found.indexes, list(found.types)) != (types, list(indexes), list(types)):
                made = replace(found, types=types, indexes=list(indexes))
                if found.types.keys() - types.keys() and made.files:
                    # A column of that name may be added later with another type: no live file may have it.
                    made = self._merged(made, "snapshot", made.files)
                self._commit(made)
        return fresh

    def drop_view(self, name: str) -> None:
        with self._thread, self._errors():
            self._manifest(name)
            (self.folder / name / MANIFEST).unlink()
            shutil.rmtree(self.folder / name)
            told = {key: value for key, value in self.progress().items() if key.partition(":")[2] != name}
            _write(self.folder / "progress.json", orjson.dumps(told))

    def views(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob(f"*/{MANIFEST}"))

    # ---- write

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        with self._thread, self._errors():
            # Check everything that can be refused first, so that a refused batch leaves nothing of the
            # others.
            tables = [self._table(batch) for batch in batches]
            for batch, table in zip(batches, tables, strict=True):
                self._apply(batch, table)
            if progress:
                told = {**self.progress(), **progress}
                said = {key: value for key, value in told.items() if value is not None}
                _write(self.folder / "progress.json", orjson.dumps(said))

    def _table(self, batch: ViewBatch) -> pyarrow.Table | None:
        types = self._manifest(batch.view).types
        if not batch.changes:
            return None
        return table_of(schema_of(types), newest_rows(RowShaper(types, far=False), batch.changes))

    def _apply(self, batch: ViewBatch, table: pyarrow.Table | None) -> None:
        made = self._manifest(batch.view)
        if table is not None:
            made, name = self._next(made, "delta")
            with _placed(self.folder / made.view / name) as path:
                pyarrow.parquet.write_table(table, path, compression="zstd")
            newest = max(change.version for change in batch.changes)
            made = replace(
                made,
                files=(*made.files, File(name, "delta", table.num_rows)),
                newest_version=max(made.newest_version, newest),
            )
        if batch.expire_below and self._has_below(made, batch.expire_below):
            made = replace(
                self._merged(made, "snapshot", made.files, batch.expire_below), swept=batch.expire_below
            )
        while (merge := to_merge(made.files)) is not None:
            made = self._merged(made, *merge)
        changelog = Positions({**made.changelog.offsets, **batch.changelog.offsets})
        source = Positions({**made.source.offsets, **batch.sources.offsets})
        self._commit(replace(made, changelog=changelog, source=source))

    def _next(self, made: Manifest, kind: str) -> tuple[Manifest, str]:
        number = made.sequence + 1
        return replace(made, sequence=number), f"{number:06d}-{kind}.parquet"

    def _merged(
        self, made: Manifest, kind: Literal["snapshot", "delta"], files: Sequence[File], below: int = 0
    ) -> Manifest:
        """Return the manifest with several files merged into one; rows of versions below ``below`` become
        tombstones.
        """
        made, name = self._next(made, kind)
        columns = ", ".join(
            f"_deleted OR _version < {below} AS _deleted" if each == "_deleted" else _quote(each)
            for each in schema_of(made.types).names
        )
        with self._database(made, files) as database, _placed(self.folder / made.view / name) as path:
            target = str(path).replace("'", "''")
            database.execute(
                f"COPY (SELECT {columns} FROM (SELECT * FROM hub_rows {NEWEST})) TO '{target}' "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            rows = pyarrow.parquet.read_metadata(path).num_rows
        return made.instead(files, [File(name, kind, rows)], epoch_ms())

    def _has_below(self, made: Manifest, below: int) -> bool:
        with self._database(made, made.files) as database:
            found = database.execute(
                f"SELECT 1 FROM (SELECT key, _version, _deleted FROM hub_rows {NEWEST}) "
                "WHERE _version < ? AND NOT _deleted LIMIT 1",
                [below],
            ).fetchall()
            return bool(found)

    def _commit(self, made: Manifest) -> None:
        """Write the manifest, then remove files whose grace period is over, each file before its entry.

        Removes only files that the previous manifest lists as retired: that one is valid until this one is in
        place.
        """
        before = epoch_ms() - int(self.grace_s * 1000)
        last = self._found(made.view)
        old = [name for name, since in (last.retired if last else {}).items() if since <= before]
        for name in old:
            (self.folder / made.view / name).unlink(missing_ok=True)
        made = replace(made, retired={name: at for name, at in made.retired.items() if name not in old})
        body = orjson.dumps(made.body(), option=orjson.OPT_INDENT_2)
        _write(self.folder / made.view / MANIFEST, body)

    def _remove_strangers(self, view: str) -> None:
        """Remove files that a kill left before any manifest named them. File numbers are reused, so none may
        stay.
        """
        made = self._manifest(view)
        named = {each.name for each in made.files} | made.retired.keys()
        for path in (self.folder / view).iterdir():
            if path.name not in named and re.fullmatch(
                r"\d+-(snapshot|delta)\.parquet|.*\.writing", path.name
            ):
                path.unlink(missing_ok=True)

    # ---- read

    def positions(self, view: str, kind: RowKind) -> Positions:
        found = self._found(view)
        if found is None:
            return Positions()
        return found.changelog if kind == "changelog" else found.source

    def newest_version(self, view: str) -> int:
        return self._manifest(view).newest_version

    def progress(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = orjson.loads((self.folder / "progress.json").read_bytes())
        except FileNotFoundError:
            return {}
        return told

    def count(self, view: str) -> int:
        made = self._manifest(view)
        with self._errors(), self._database(made, made.files) as database:
            query = f"SELECT count(*) FROM (SELECT _deleted FROM hub_rows {NEWEST}) WHERE NOT _deleted"
            ((rows,),) = database.execute(query).fetchall()
            return int(rows)

    @contextmanager
    def cut(self, view: str) -> Iterator[StoreSnapshot]:
        """Implements ViewStore: one manifest, whose files stay for the grace period."""
        made = self._manifest(view)
        columns = ", ".join(_quote(each) for each in ("key", "_version", *made.types, "_sources"))
        with self._errors(), self._database(made, made.files) as database:

            def rows() -> Iterator[KeptRow]:
                query = f"SELECT {columns} FROM (SELECT * FROM hub_rows {NEWEST}) WHERE NOT _deleted"
                return stored_rows(database.sql(query).to_arrow_reader(_READ_ROWS))

            yield StoreSnapshot(made.topic_id, made.types, made.changelog, made.swept, rows)

    @contextmanager
    def _database(self, made: Manifest, files: Sequence[File]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open an in-memory DuckDB with the files' rows as ``hub_rows``: all columns, null where a file lacks
        one.
        """
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 2,
            "memory_limit": _MEMORY,
            "temp_directory": str(self.folder / made.view / ".spill"),
        }
        with duckdb.connect(":memory:", config=config) as database:
            database.register("hub_none", table_of(schema_of(made.types), []))
            query = "SELECT * FROM hub_none"
            if files:
                names = ", ".join(
                    "'" + str(self.folder / made.view / each.name).replace("'", "''") + "'" for each in files
                )
                query += f" UNION ALL BY NAME SELECT * FROM read_parquet([{names}], union_by_name = true)"
            database.execute(f"CREATE TEMPORARY VIEW hub_rows AS {query}")
            yield database

    def _manifest(self, view: str) -> Manifest:
        found = self._found(view)
        if found is None:
            raise NotFound(
                f'view "{view}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        return found

    def _found(self, view: str) -> Manifest | None:
        path = self.folder / view / MANIFEST
        try:
            return manifest_of(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PeerError(
                f'store "{path}" cannot be read: {error}',
                hint="remove the view's folder: it is filled again from the changelog",
                code="HUB-3040",
            ) from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HubError:
            raise
        except DoesNotFit as error:
            raise StoreRefused(
                f'store "{self.folder}" refuses: {error}', hint="the message is Arrow's own"
            ) from error
        except (OSError, duckdb.Error, pyarrow.ArrowException) as error:
            raise PeerError(
                f'store "{self.folder}": {str(error).splitlines()[0]}',
                hint="is the folder there, and room on its disk?",
                code="HUB-3040",
            ) from error


@contextmanager
def _placed(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it once the file is complete and synced."""
    unfinished = path.with_name(f"{path.name}.writing")
    yield unfinished
    _sync(unfinished)
    unfinished.rename(path)


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.writing")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync(path)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
