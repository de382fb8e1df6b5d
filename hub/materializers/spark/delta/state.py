"""[edge] DuckDB: the state of the incremental engine, a file in the view's checkpoint folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from hub.errors import ConfigError, HubFault, PeerError
from hub.formats.stamps import Stamp
from hub.formats.table import DELTA
from hub.formats.verdicts import judge, refusal
from hub.materializers.spark import checkpoint_corruption

_MEMORY_MB = 256
EMIT_ROWS = 10_000


def noted_version(file: Path) -> Stamp | None:
    """Return the version of a state's format; None if it cannot be read now, such as while its view runs."""
    try:
        with contextlib.closing(duckdb.connect(str(file), read_only=True)) as database:
            found = database.execute("SELECT format FROM delta_state").fetchone()
    except duckdb.Error:
        return None
    return None if found is None else Stamp(int(found[0]))


class DeltaState:
    """The view's tables in ``<folder>/delta.duckdb``. DuckDB locks the file: one process at a time.

    ``memory_mb``: most memory that DuckDB takes; the rest is spilled beside the file.

    Raises HubFault (HUB-5021) when the file is corrupt, or was written by an older release of the hub or for
    another plan; ConfigError (HUB-1150) when a newer release wrote it; PeerError while another process has it
    open.
    """

    def __init__(self, folder: Path, fingerprint: str = "", memory_mb: int = _MEMORY_MB) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.memory_mb = memory_mb
        self.spill = folder / "spill"
        shutil.rmtree(self.spill, ignore_errors=True)
        try:
            self.db = duckdb.connect(str(folder / "delta.duckdb"))
        except duckdb.Error as error:
            message = str(error).split("\n")[0]
            if "set lock" in message:  # not "block"
                raise PeerError(f"{folder}: another process has the state: {message}") from None
            if checkpoint_corruption.is_outage(message):
                raise PeerError(f"{folder}: the state there cannot be read now: {message}") from None
            raise HubFault(f"{folder}/delta.duckdb cannot be read: {message}", code="HUB-5021") from None
        self.db.execute(f"SET memory_limit = '{memory_mb}MB'")
        # Each thread of a sort needs memory of its own.
        self.db.execute(f"SET threads = {max(1, min(4, os.cpu_count() or 1, memory_mb // 100))}")
        self.db.execute("SET TimeZone = 'UTC'")
        self.db.execute("SET preserve_insertion_order = false")
        self.db.execute(f"SET temp_directory = '{str(self.spill).replace(chr(39), chr(39) * 2)}'")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS delta_state "
            "(format INT, fingerprint VARCHAR, batch_id BIGINT, version BIGINT, positions VARCHAR, "
            "unsent BOOLEAN, left_out BIGINT)"
        )
        found = self.one("SELECT format, fingerprint FROM delta_state")
        if found is None:
            self.db.execute(
                "INSERT INTO delta_state VALUES (?, ?, -1, -1, '', false, 0)", [DELTA.version, fingerprint]
            )
        elif judge(DELTA, stamp := Stamp(found[0])) == "refused":
            self.db.close()
            raise refusal(DELTA, stamp, f'file "{folder}/delta.duckdb"')
        elif found != (DELTA.version, fingerprint):
            self.db.close()
            raise HubFault(
                f"{folder}: the state there is of another plan of the view",
                hint="delete the folder; the view is rebuilt from the start of its log",
                code="HUB-5021",
            )

    def one(self, sql: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a result. Fetches all rows: DuckDB can do nothing else while a result is
        unfinished."""
        found = self.db.execute(sql, list(values)).fetchall()
        return found[0] if found else None

    def committed(self) -> tuple[int, int, str]:
        """Return (batch id, version, source positions) of the last committed batch; (-1, -1, "") before the
        first."""
        found = self.one("SELECT batch_id, version, positions FROM delta_state")
        assert found is not None
        return int(found[0]), int(found[1]), str(found[2])

    def unsent(self) -> bool:
        """Return True if the last output may be missing in the log and no batch will request it."""
        return self.one("SELECT 1 FROM delta_state WHERE unsent") is not None

    def sent(self) -> None:
        self.db.execute("UPDATE delta_state SET unsent = false")

    def left_out(self) -> int:
        """Return how many events were not accepted so far, as counted by ``step``."""
        found = self.one("SELECT left_out FROM delta_state")
        assert found is not None
        return int(found[0])

    def table(self, name: str) -> pa.Table:
        """Return a whole table; a table without columns if it does not exist."""
        return (
            self.db.sql(f"SELECT * FROM {quoted(name)}").to_arrow_table() if self.has(name) else pa.table({})
        )

    def pieces(self, sql: str) -> Iterator[pa.RecordBatch]:
        yield from self.db.sql(sql).to_arrow_reader(EMIT_ROWS)

    def has(self, table: str) -> bool:
        return bool(self.one("SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND NOT temporary", [table]))

    def rows(self, table: str) -> int:
        found = self.one(f"SELECT count(*) FROM {quoted(table)}")
        assert found is not None
        return int(found[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one transaction. Raises ConfigError (HUB-2142) when it needs more memory than
        ``memory_mb``."""
        self.db.execute("BEGIN")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(duckdb.Error):  # a failed COMMIT has rolled back
                self.db.execute("ROLLBACK")
            if isinstance(error, duckdb.OutOfMemoryException):
                raise ConfigError(
                    f"{self.folder}: a batch needs more than the {self.memory_mb} MB "
                    "that its tables may take",
                    hint="raise delta_memory_mb",
                    code="HUB-2142",
                ) from error
            raise

    def close(self) -> None:
        self.db.close()
        shutil.rmtree(self.spill, ignore_errors=True)


def stored_table(name: str) -> str:
    """Return the stored table of an input or stage. The prefix keeps it apart from working tables."""
    return f"t_{name.lower()}"


def deleted_table(name: str) -> str:
    """Return the table with keys and versions of a versioned input's deleted rows."""
    return f"gone_{name.lower()}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_text(path: Path) -> str:
    return str(path).replace("'", "''")


def all_equal(one: str, other: str, columns: Sequence[str]) -> str:
    """Return a null-safe comparison of all columns of two rows."""
    return (
        " AND ".join(f"{one}.{quoted(each)} IS NOT DISTINCT FROM {other}.{quoted(each)}" for each in columns)
        or "true"
    )
