"""[edge] pyspark and DuckDB: execution of a DeltaPlan, batch by batch, exactly once.

``DeltaState`` is a DuckDB file in the view's checkpoint folder. It holds every input as a table of current
rows, every stage's result, and the last output. ``DeltaRun.step`` processes a batch in these steps: changed
rows, old and new → affected handles → the input rows that these need → the view's own SQL in Spark over just
those rows → difference to the stored result. All of this is one transaction, which includes what the batch
emits. A batch that is requested again returns the same rows with the same versions from the state, without
computing anything.

The store finds and compares rows. Only Spark evaluates expressions, so the semantics are Spark's, including
casts.

The order around a crash is: state committed → emitted → Spark's commit. Before the first of these nothing has
changed. Between them, Spark requests the same batch again, and it is emitted again; consumers accept a row
only with a higher version.

Two things happen outside the deltas of batches. While a view *loads* (``step(…, load=True)``: its first
computation, far behind), batches only fill the inputs, and the SQL runs once over all of it. ``settle`` is a
change without a batch: it ends the loading, or removes rows that an input's next generation no longer has.
Its output counts as unsent until ``sent``, because no batch would request it again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from hub.errors import CallerError, ConfigError, HubFault, PeerError
from hub.log import Writer
from hub.materializers.definition.declared import CHANGELOG_PREFIX, ViewDeclaration
from hub.materializers.planning.delta_plan import STREAM_KEY, Bound, DeltaPlan, Leaf, Stage, Table
from hub.materializers.planning.delta_planner import plan
from hub.materializers.spark import checkpoint_corruption
from hub.materializers.spark.dataframes import GENERATION_SHIFT, VERSION_HEADER
from hub.materializers.spark.python_udfs import register
from hub.materializers.spark.session import code_settings
from hub.materializers.spark.sql_stream import key_text
from hub.materializers.types.avro_types import AvroType, changelog_schema
from hub.record import NewRecord

# Columns of a change besides the table's own columns and key.
DELETED, ORDER = "_deleted", "_order"

RECORD_KEY, VALUE = "_record_key", "_value"
_FORMAT = 2
_MEMORY_MB = 256
# Above this size, rows are passed to Spark and back in files, and this process holds no copy of them.
_BYTES_BY_FILE = 48_000_000
_ROWS_AT_A_TIME = 50_000
# Above this number of rows, Spark compiles the SQL and computes it in several tasks.
_ROWS_INTERPRETED = 50_000
_EMIT_ROWS = 10_000

# A small batch finishes sooner when its expressions are interpreted (docs/explanation/notes-on-cost.md).
_SMALL: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    **code_settings("live"),
}
_LARGE: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "4",
    **code_settings("bulk"),
}
_FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True, slots=True)
class Emitted:
    """The changes that a batch makes to the view. The state keeps them until the next batch.

    ``upserts``: the view's columns, ``_record_key`` (text) and, if the run encodes, ``_value`` (a changelog
    record's bytes). ``deletes``: ``_record_key``. All rows of both have ``version``, which is higher than
    that of every earlier batch. ``replayed``: the batch was already in the state.
    """

    state: DeltaState
    batch_id: int
    version: int
    replayed: bool = False

    @property
    def upserts(self) -> pa.Table:
        return self.state.table("emitted_upserts")

    @property
    def deletes(self) -> pa.Table:
        return self.state.table("emitted_deletes")

    def records(self, topic: str) -> Iterator[NewRecord]:
        """Yield the changelog records: rows, then tombstones, with the header ``hub.version``.

        Rows are read piece by piece. The state must not be used for anything else meanwhile.
        """
        headers = ((VERSION_HEADER, str(self.version).encode()),)
        if not self.state.has("emitted_upserts"):
            return
        for batch in self.state.pieces(f"SELECT {RECORD_KEY}, {VALUE} FROM emitted_upserts"):
            keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            for key, value in zip(keys, values, strict=True):
                yield NewRecord(topic, key.encode(), value, headers)
        for batch in self.state.pieces(f"SELECT {RECORD_KEY} FROM emitted_deletes"):
            for key in batch.column(0).to_pylist():
                yield NewRecord(topic, key.encode(), None, headers)


@dataclass
class Timing:
    """Milliseconds of the last step by part, and the affected and fetched rows. Used by the benchmark and the
    log."""

    ms: dict[str, float] = field(default_factory=dict)
    affected: int = 0
    fetched: int = 0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.ms[name] = self.ms.get(name, 0.0) + (time.perf_counter() - begun) * 1000


def corruption_of(error: BaseException) -> str | None:
    """Return the message of an error that reports a corrupt state; None if it is about something else."""
    if isinstance(error, duckdb.Error) and checkpoint_corruption.of_duckdb(str(error)):
        return f"delta.duckdb: {str(error).splitlines()[0]}"
    return None


class SparkCatalog:
    """The planner's Catalog: empty tables in a session of their own that knows the view's Python
    functions."""

    def __init__(
        self, session: SparkSession, tables: Sequence[Table], functions: ViewDeclaration | None = None
    ) -> None:
        self.session = register(session.newSession(), functions)
        for key, value in _FIXED.items():
            self.session.conf.set(key, value)
        for table in tables:
            _no_rows(self.session, table.columns).createOrReplaceTempView(table.name)
        self._asked: dict[str, DataFrame] = {}

    def columns(self, sql: str) -> Mapping[str, str]:
        fields = self.schema(sql).fields
        return {each.name: each.dataType.simpleString() for each in fields}

    def schema(self, sql: str) -> StructType:
        """Return the schema of a query as Spark types it. Raises ConfigError (HUB-2105) with
        Spark's message."""
        try:
            return self._analyzed(sql).schema
        except PySparkException as error:
            said = str(error).split("\n")[0].split("; line")[0]
            raise ConfigError(
                f"Spark refuses the SQL: {said}",
                hint="it is Spark SQL over the view's inputs",
                code="HUB-2105",
            ) from None

    def define(self, name: str, sql: str) -> None:
        self._analyzed(sql).createOrReplaceTempView(name)
        self._asked = {known: frame for known, frame in self._asked.items() if name not in known}

    def _analyzed(self, sql: str) -> DataFrame:
        """Return the analyzed query, cached: planning asks for one query several times, and an analysis costs
        a small batch."""
        if sql not in self._asked:
            self._asked[sql] = self.session.sql(sql)
        return self._asked[sql]


def prepare(
    session: SparkSession,
    sql: str,
    tables: Sequence[Table],
    key: Sequence[str],
    *,
    view: str = "view",
    whole_rows: int = 0,
    functions: ViewDeclaration | None = None,
    catalog: SparkCatalog | None = None,
) -> DeltaPlan:
    """Make a plan with ``delta_planner.plan``, with the types from Spark. Runs nothing. Raises ConfigError as
    ``plan`` does.

    ``functions``: the view whose Python functions the SQL may call. ``catalog``: an existing catalog over
    these tables.
    """
    catalog = catalog or SparkCatalog(session, tables, functions)
    return plan(sql, tables, key, view=view, whole_rows=whole_rows, catalog=catalog)


def row_schema(
    session: SparkSession,
    made: DeltaPlan,
    view: str = "",
    *,
    functions: ViewDeclaration | None = None,
    catalog: SparkCatalog | None = None,
) -> AvroType:
    """Return the Avro schema of the view's changelog: the view's columns and ``_version``.

    ``view``: name of the view, if it differs from its stage's. ``catalog``: the one that ``prepare`` used.
    """
    if catalog is None:
        catalog = SparkCatalog(session, made.tables, functions)
        for stage in made.stages[:-1]:
            catalog.define(stage.name, stage.sql)
    fields = catalog.schema(made.view.sql).jsonValue()["fields"]
    fields.append({"name": "_version", "type": "long", "nullable": False, "metadata": {}})
    return changelog_schema(view or made.view.name, fields, required=("_version",))


class DeltaState:
    """The view's tables in ``<folder>/delta.duckdb``. DuckDB locks the file: one process at a time.

    ``memory_mb``: most memory that DuckDB takes; the rest is spilled beside the file.

    Raises HubFault (HUB-5021) when the file is corrupt, or was written by another version of the hub or for
    another plan; PeerError while another process has it open.
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
            said = str(error).split("\n")[0]
            if "set lock" in said:  # not "block"
                raise PeerError(f"{folder}: another process has the state: {said}") from None
            if checkpoint_corruption.is_outage(said):
                raise PeerError(f"{folder}: the state there cannot be read now: {said}") from None
            raise HubFault(f"{folder}/delta.duckdb cannot be read: {said}", code="HUB-5021") from None
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
                "INSERT INTO delta_state VALUES (?, ?, -1, -1, '', false, 0)", [_FORMAT, fingerprint]
            )
        elif found != (_FORMAT, fingerprint):
            self.db.close()
            raise HubFault(
                f"{folder}: the state there is of another plan of the view",
                hint="delete the folder; the view is computed anew from the start of its log",
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
        return self.db.sql(f"SELECT * FROM {_q(name)}").to_arrow_table() if self.has(name) else pa.table({})

    def pieces(self, sql: str) -> Iterator[pa.RecordBatch]:
        yield from self.db.sql(sql).to_arrow_reader(_EMIT_ROWS)

    def has(self, table: str) -> bool:
        return bool(self.one("SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND NOT temporary", [table]))

    def rows(self, table: str) -> int:
        found = self.one(f"SELECT count(*) FROM {_q(table)}")
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
                    f"{self.folder}: a batch needs more than the {self.memory_mb} MB that its tables may take",
                    hint="raise delta_memory_mb",
                    code="HUB-2142",
                ) from error
            raise

    def close(self) -> None:
        self.db.close()
        shutil.rmtree(self.spill, ignore_errors=True)


class DeltaRun:
    """A plan, its state and a Spark session. Processes batches with ``step``. Not thread-safe.

    ``schema_id`` with ``schema`` (from ``row_schema``): also encode rows as Avro records of the changelog.
    """

    def __init__(
        self,
        session: SparkSession,
        made: DeltaPlan,
        state: DeltaState,
        generation: int,
        *,
        schema: AvroType | None = None,
        schema_id: int = 0,
        functions: ViewDeclaration | None = None,
    ) -> None:
        self.plan = made
        self.state = state
        self.generation = generation
        self.schema = schema
        self.schema_id = schema_id
        self.timing = Timing()
        # By stream, the last offset of each partition in its table.
        self.reached: dict[str, dict[tuple[str, int], int]] = {}
        self.session = register(session.newSession(), functions)
        for name, value in _FIXED.items():
            self.session.conf.set(name, value)
        catalog = SparkCatalog(session, made.tables, functions)
        self.shapes: dict[str, StructType] = {}
        for table in made.tables:
            self.shapes[table.name.lower()] = catalog.schema(f"SELECT * FROM {table.name}").toNullable()
        for stage in made.stages:
            self.shapes[stage.name] = catalog.schema(stage.sql).toNullable()
            catalog.define(stage.name, stage.sql)

    # ---- input

    def input_columns(self, table: str) -> list[Column]:
        """Return the expressions over a table's own columns that its changes must include."""
        return [F.expr(sql).alias(name) for name, sql in self.plan.derived.get(table.lower(), {}).items()]

    def with_derived(self, table: str, changes: DataFrame) -> DataFrame:
        """Add the derived columns to changes with the table's columns, key, ``_deleted`` and ``_order``, for
        ``step``."""
        return changes.select("*", *self.input_columns(table))

    def derived(self, table: str) -> list[str]:
        """Return the names of the derived columns of a table."""
        return list(self.plan.derived.get(table.lower(), {}))

    def has_below(self, table: str, version: int) -> bool:
        """Return True if a versioned input has rows, or deleted rows, with a version lower than
        ``version``."""
        return any(
            self.state.has(at)
            and self.state.one(f"SELECT 1 FROM {_q(at)} WHERE {ORDER} < ? LIMIT 1", [version]) is not None
            for at in (_t(table), _gone(table))
        )

    # ---- a batch

    @property
    def computed(self) -> bool:
        """True once the SQL has run. False before the first batch, and while the view loads."""
        return self.state.has(_t(self.plan.view.name))

    def step(
        self,
        batch_id: int,
        changes: Mapping[str, pa.Table],
        positions: str = "",
        *,
        load: bool = False,
        left_out: int = 0,
    ) -> Emitted:
        """Process a batch. ``changes``, by input: the table's columns, key, derived columns, ``_deleted`` and
        ``_order``.

        For each key, the last row by ``_order`` counts. ``positions`` are stored with the batch, and
        ``left_out`` is added up. With ``load``, until the SQL has run once, the batch only fills the inputs
        and emits nothing. Batches are numbered from 0. The last committed batch returns its output again.

        Raises HubFault (HUB-5022) for a batch that is neither the last nor the next one, CallerError
        (HUB-2140) when the SQL has two rows for one key, and CallerError (HUB-2141) when a part that is
        computed as a whole exceeds ``whole_rows``.
        """
        last, last_version, _ = self.state.committed()
        if batch_id == last:
            return self._again(batch_id, last_version)
        first = (self.generation << GENERATION_SHIFT) + batch_id + 1
        if batch_id != last + 1:
            raise HubFault(
                f'view "{self.plan.view.name}": batch {batch_id} is asked for, and its state is at batch {last}',
                hint="state and checkpoint are of different times; delete both, the view is computed anew",
                code="HUB-5022",
            )
        if last_version >> GENERATION_SHIFT > self.generation:
            raise HubFault(
                f'view "{self.plan.view.name}": generation {self.generation} batch {batch_id} is older than its state',
                hint="delete its checkpoint; the view is computed anew",
                code="HUB-5022",
            )
        # ``settle`` between batches used versions, too.
        version = max(first, last_version + 1)
        with self.state.transaction():
            self._change(changes, version, {}, load=load and not self.computed)
            self.state.db.execute(
                "UPDATE delta_state SET batch_id = ?, version = ?, positions = ?, unsent = false, "
                "left_out = left_out + ?",
                [batch_id, version, positions, left_out],
            )
        return Emitted(self.state, batch_id, version)

    def settle(self, below: Mapping[str, int] | None = None) -> Emitted:
        """Change the view without a batch: run the SQL over loaded rows, and delete outdated rows of
        versioned inputs.

        ``below``: by input, the version below which rows are deleted. The caller must send the output and
        then call ``state.sent()``.
        """
        last, last_version, _ = self.state.committed()
        version = max(last_version, self.generation << GENERATION_SHIFT) + 1
        with self.state.transaction():
            self._change({}, version, below or {}, load=False)
            self.state.db.execute("UPDATE delta_state SET version = ?, unsent = true", [version])
        return Emitted(self.state, last, version)

    def last(self) -> Emitted:
        """Return the output of the last batch or ``settle``."""
        batch_id, version, _ = self.state.committed()
        return Emitted(self.state, batch_id, version, replayed=True)

    def _again(self, batch_id: int, version: int) -> Emitted:
        if version >> GENERATION_SHIFT != self.generation:
            raise HubFault(
                f'view "{self.plan.view.name}": its state is of generation {version >> GENERATION_SHIFT}',
                hint="delete its checkpoint; the view is computed anew",
                code="HUB-5022",
            )
        return Emitted(self.state, batch_id, version, replayed=True)

    def _change(
        self, changes: Mapping[str, pa.Table], version: int, below: Mapping[str, int], *, load: bool
    ) -> None:
        self.timing = Timing()
        touched = {}
        images = self.computed
        given = {name.lower(): rows for name, rows in changes.items()}
        oldest = {name.lower(): each for name, each in below.items()}
        for table in self.plan.tables:
            name = table.name.lower()
            with self.timing.part("store"):
                touched[name] = self._take(table, given.get(name), oldest.get(name, 0), images=images)
        if load:
            self.state.db.execute("DROP TABLE IF EXISTS emitted_upserts")
            self.state.db.execute("DROP TABLE IF EXISTS emitted_deletes")
            return
        for stage in self.plan.stages:
            touched[stage.name] = self._stage(stage, touched, version)
        self._keep(self.plan.view, first=not images)

    # ---- inputs: rows as they were and as they are

    def _take(self, table: Table, given: pa.Table | None, below: int = 0, *, images: bool = True) -> int:
        """Apply changes to the table of an input.

        Leaves ``old_<t>`` and ``new_<t>``, the images of the rows that changed. They are skipped without
        ``images``: before the first computation, everything is new.
        """
        name = _t(table.name)
        stored, old, new = _q(name), _q(f"old_{name}"), _q(f"new_{name}")
        db = self.state.db
        if given is None or given.num_rows == 0:
            if self.state.has(name) and not below:
                for image in (old, new) if images else ():
                    db.execute(f"CREATE OR REPLACE TEMP TABLE {image} AS SELECT * FROM {stored} LIMIT 0")
                return 0
            given = self._empty(table)
        columns = [each for each in given.column_names if each not in (DELETED, ORDER)]
        kept = [*columns, ORDER] if table.versioned else columns
        listed = ", ".join(_q(each) for each in kept)
        db.register("given_rows", given)
        try:
            if not self.state.has(name):
                db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM given_rows LIMIT 0")
            rows = f"SELECT {listed} FROM given_rows"
            appends = self._appends(table, given)
            if not appends:
                db.execute(
                    f"CREATE OR REPLACE TEMP TABLE taken AS SELECT * FROM given_rows "
                    f"QUALIFY row_number() OVER (PARTITION BY {', '.join(map(_q, table.key))} ORDER BY {ORDER} DESC) = 1"
                )
                if table.versioned:
                    self._outdated(table, below)
                if self.state.rows(name):
                    return self._merge(table, columns, listed, below)
                rows = f"SELECT {listed} FROM taken WHERE NOT {DELETED}"
            if images:
                db.execute(f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT * FROM {stored} LIMIT 0")
                db.execute(f"CREATE OR REPLACE TEMP TABLE {new} AS {rows}")
                rows = f"SELECT * FROM {new}"
            db.execute(f"INSERT INTO {stored} {rows}")
            return int(given.num_rows)
        finally:
            db.unregister("given_rows")

    def _appends(self, table: Table, given: pa.Table) -> bool:
        """Return True if the changes are events of a stream behind all stored ones, each once, so that no row
        must be looked up.

        That holds for every batch unless a topic was recreated.
        """
        if table.key != STREAM_KEY or pc.any(given.column(DELETED)).as_py():
            return False
        reached = self.reached.get(table.name)
        if reached is None:
            sql = f"SELECT _topic, _partition, max(_offset) FROM {_q(_t(table.name))} GROUP BY ALL"
            reached = {(topic, number): most for topic, number, most in self.state.db.execute(sql).fetchall()}
        topics, offset = given.group_by(["_topic", "_partition"]), "_offset"
        found = topics.aggregate([(offset, each) for each in ("min", "max", "count", "count_distinct")])
        appends = True
        for each in found.to_pylist():
            at = each["_topic"], each["_partition"]
            once = each["_offset_count"] == each["_offset_count_distinct"]
            appends = appends and once and each["_offset_min"] > reached.get(at, -1)
            reached[at] = max(reached.get(at, -1), each["_offset_max"])
        # After a rollback these offsets are too high. Then the batch's events are looked up when they come
        # again.
        self.reached[table.name] = reached
        return appends

    def _outdated(self, table: Table, below: int) -> None:
        """Remove from ``taken`` what is older than the deletion of its row.

        After a crash, a real-time view writes again what it wrote since its last checkpoint. Key and version
        of each deleted row are kept, as in every store, until its generation is over.
        """
        db, gone = self.state.db, _q(_gone(table.name))
        keys = ", ".join(_q(each) for each in table.key)
        same = _same("g", "n", table.key)
        db.execute(f"CREATE TABLE IF NOT EXISTS {gone} AS SELECT {keys}, {ORDER} FROM taken LIMIT 0")
        db.execute(
            f"DELETE FROM taken n WHERE EXISTS (SELECT 1 FROM {gone} g WHERE {same} AND g.{ORDER} > n.{ORDER})"
        )
        db.execute(
            f"DELETE FROM {gone} g WHERE EXISTS (SELECT 1 FROM taken n WHERE {same}) OR g.{ORDER} < {below}"
        )
        db.execute(
            f"INSERT INTO {gone} SELECT {keys}, {ORDER} FROM taken WHERE {DELETED} AND {ORDER} >= {below}"
        )

    def _merge(self, table: Table, columns: Sequence[str], listed: str, below: int) -> int:
        """Merge ``taken``, one row per key, into a table that has rows."""
        name = _t(table.name)
        stored, old, new = _q(name), _q(f"old_{name}"), _q(f"new_{name}")
        db = self.state.db
        same = _same("t", "n", table.key)
        if table.versioned:
            db.execute(
                f"DELETE FROM taken n WHERE EXISTS (SELECT 1 FROM {stored} t WHERE {same} AND t.{ORDER} > n.{ORDER})"
            )
            db.execute(
                f"INSERT INTO taken BY NAME SELECT t.*, true AS {DELETED} FROM {stored} t "
                f"ANTI JOIN taken n ON {same} WHERE t.{ORDER} < {below}"
            )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE old_all AS SELECT t.*, t.rowid AS _rowid FROM {stored} t SEMI JOIN taken n ON {same}"
        )
        # A row that is written again unchanged affects nothing.
        equal = " AND ".join(f"t.{_q(each)} IS NOT DISTINCT FROM n.{_q(each)}" for each in columns)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {new} AS SELECT {listed} FROM taken n "
            f"ANTI JOIN old_all t ON {equal} WHERE NOT {DELETED}"
        )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT t.* FROM old_all t ANTI JOIN (SELECT * FROM taken WHERE NOT {DELETED}) n ON {equal}"
        )
        db.execute(f"DELETE FROM {stored} WHERE rowid IN (SELECT _rowid FROM {old})")
        db.execute(f"ALTER TABLE {old} DROP _rowid")
        db.execute(f"INSERT INTO {stored} SELECT {listed} FROM {new}")
        if table.versioned:  # but its version still counts
            db.execute(
                f"UPDATE {stored} AS t SET {ORDER} = n.{ORDER} FROM taken n WHERE {same} AND t.{ORDER} < n.{ORDER}"
            )
        return self.state.rows(f"old_{name}") + self.state.rows(f"new_{name}")

    def _empty(self, table: Table) -> pa.Table:
        """Return an empty table with the column types that Spark will give."""
        ddl = {**table.columns}
        for each in table.key:
            ddl.setdefault(each, _COORDINATES.get(each, "string"))
        frame = _no_rows(self.session, {**ddl, DELETED: "boolean", ORDER: "bigint"})
        return self.with_derived(table.name, frame).toArrow()

    # ---- a stage: affected, fetched, recomputed, compared

    def _stage(self, stage: Stage, touched: Mapping[str, int], version: int) -> int:
        db = self.state.db
        first = not self.state.has(_t(stage.name))
        changed = sum(touched[table] for table in stage.tables)
        if not first and not changed:
            return self._unchanged(stage)
        stored = sum(self.state.rows(_t(table)) for table in stage.tables)
        whole = first or not stage.handle or changed > stored
        if not stage.handle and stored > self.plan.whole_rows:
            raise CallerError(
                f'view "{self.plan.view.name}": {stored} rows of {", ".join(stage.tables)} are computed whole at every '
                f"batch, which is declared for {self.plan.whole_rows} at most",
                hint="give it a GROUP BY or PARTITION BY that is part of its key, or declare more rows",
                code="HUB-2141",
            )
        if not whole:
            with self.timing.part("affected"):
                self._affected(stage)
                self.timing.affected += (affected := self.state.rows("affected"))
            if not affected:
                return self._unchanged(stage)
        with self.timing.part("fetch"):
            rows = self._fetch(stage, whole)
        with self.timing.part("spark"):
            fresh = self._recompute(stage, rows, version)
        with self.timing.part("compare"):
            within = "" if whole else f" SEMI JOIN affected a ON {_same('f', 'a', stage.handle)}"
            if isinstance(fresh, Path):
                source = f"read_parquet('{_text(fresh)}/*.parquet')"
            else:
                source = "fresh_rows"
                db.register(source, fresh)
            try:
                db.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT f.* FROM {source} f{within}")
            finally:
                if isinstance(fresh, Path):
                    shutil.rmtree(self.state.folder / "rows", ignore_errors=True)
                else:
                    db.unregister(source)
            return self._compare(stage, first, whole)

    def _unchanged(self, stage: Stage) -> int:
        encoded = f", NULL::BLOB AS {VALUE}" if stage is self.plan.view and self.schema is not None else ""
        for image, more in (("old", ""), ("new", encoded)):
            self.state.db.execute(
                f"CREATE OR REPLACE TEMP TABLE {_q(f'{image}_{_t(stage.name)}')} AS "
                f"SELECT *{more} FROM {_q(_t(stage.name))} LIMIT 0"
            )
        return 0

    def _affected(self, stage: Stage) -> None:
        """Find the handles that a changed row of any leaf reaches through its chain of parents, with old and
        new rows."""
        parts = []
        for leaf in stage.leaves:
            changed = _t(leaf.table)
            rows = f"(SELECT * FROM {_q(f'old_{changed}')} UNION ALL SELECT * FROM {_q(f'new_{changed}')})"
            at: Leaf = leaf
            while True:
                bound = at.bound
                assert bound is not None
                if bound.hopping is not None:
                    rows = _each_hop(rows, bound, bound.hopping, "-")
                if bound.parent is None:
                    listed = ", ".join(
                        f"{_q(column)} AS {_q(of)}"
                        for of, column in sorted(zip(bound.of, bound.columns, strict=True))
                    )
                    parts.append(f"SELECT {listed} FROM {rows}")
                    break
                parent = stage.leaves[bound.parent]
                above = _t(parent.table)
                both = f"(SELECT * FROM {_q(above)} UNION ALL SELECT * FROM {_q(f'old_{above}')})"
                on = " AND ".join(
                    f"p.{_q(of)} = c.{_q(column)}" for column, of in zip(bound.columns, bound.of, strict=True)
                )
                rows = f"(SELECT p.* FROM {both} p SEMI JOIN {rows} c ON {on})"
                at = parent
        self.state.db.execute(f"CREATE OR REPLACE TEMP TABLE affected AS {' UNION '.join(parts)}")

    def _fetch(self, stage: Stage, whole: bool) -> dict[str, str]:
        """Return, by table, the temporary or stored table with the rows that the affected handles need."""
        if whole:
            return {table: _t(table) for table in stage.tables}
        db = self.state.db
        by_table: dict[str, list[str]] = {}
        for number, leaf in enumerate(stage.leaves):
            bound = leaf.bound
            assert bound is not None
            source = "affected" if bound.parent is None else f"fetched_{bound.parent}"
            if bound.hopping is not None:
                source = _each_hop(source, bound, bound.hopping_of, "+")
            on = " AND ".join(
                f"t.{_q(column)} {'IS NOT DISTINCT FROM' if bound.parent is None else '='} s.{_q(of)}"
                for column, of in zip(bound.columns, bound.of, strict=True)
            )
            db.execute(
                f"CREATE OR REPLACE TEMP TABLE fetched_{number} AS "
                f"SELECT t.*, t.rowid AS _rowid FROM {_q(_t(leaf.table))} t SEMI JOIN {source} s ON {on}"
            )
            by_table.setdefault(leaf.table, []).append(f"fetched_{number}")
        found = {}
        for table, parts in by_table.items():
            found[table] = parts[0]
            if len(parts) > 1:  # each occurrence sees the rows of all: more rows than needed are also correct
                found[table] = f"all_{parts[0]}"
                union = " UNION ".join(f"SELECT _rowid FROM {part}" for part in parts)
                db.execute(
                    f"CREATE OR REPLACE TEMP TABLE all_{parts[0]} AS "
                    f"SELECT t.* FROM {_q(_t(table))} t WHERE t.rowid IN ({union})"
                )
        return found

    def _recompute(self, stage: Stage, rows: Mapping[str, str], version: int) -> pa.Table | Path:
        """Run the stage's SQL, as written, over the fetched rows. A large result is returned as a folder of
        Parquet files."""
        sizes = {table: self.state.rows(at) for table, at in rows.items()}
        total = sum(sizes.values())
        self.timing.fetched += total
        for name, value in (_LARGE if total > _ROWS_INTERPRETED else _SMALL).items():
            self.session.conf.set(name, value)
        order = {table.name.lower(): table.key for table in self.plan.tables}
        order |= {each.name: each.key for each in self.plan.stages}
        in_memory = True
        for table, at in rows.items():
            shape = self.shapes[table]
            listed = ", ".join(_q(each.name) for each in shape.fields)
            keys = ", ".join(_q(each) for each in order[table])
            # In key order, so that results that depend on order stay the same, as far as Spark guarantees it.
            sql = f"SELECT {listed} FROM {_q(at)} ORDER BY {keys}"
            frame, held = self._frame(table, sql, shape, sizes[table])
            in_memory = in_memory and held
            frame.createOrReplaceTempView(table)
        frame = self.session.sql(stage.sql)
        extra = [F.expr(sql).alias(name) for name, sql in self.plan.derived.get(stage.name, {}).items()]
        if stage is self.plan.view:
            extra.append(_record_key(frame, stage.key).alias(RECORD_KEY))
            if self.schema is not None:
                extra.append(self._encoded(stage, version).alias(VALUE))
        made = frame.select("*", *extra)
        if in_memory:
            return loose(made).toArrow()
        path = self.state.folder / "rows" / "fresh"
        made.write.mode("overwrite").parquet(str(path))
        return path

    def _frame(self, table: str, sql: str, shape: StructType, size: int) -> tuple[DataFrame, bool]:
        """Return (rows of the store as a DataFrame, True if they were passed in memory)."""
        arrow_shape = to_arrow_schema(shape, timezone="UTC")
        if not size:  # Spark refuses an Arrow table without chunks
            types = {each.name: each.dataType.simpleString() for each in shape.fields}
            return _no_rows(self.session, types), True
        reader = self.state.db.sql(sql).to_arrow_reader(_ROWS_AT_A_TIME)
        pieces, held = [], 0
        for batch in reader:
            pieces.append(pa.Table.from_batches([batch]).cast(arrow_shape))
            held += pieces[-1].nbytes
            if held > _BYTES_BY_FILE:
                return self._filed(table, shape, arrow_shape, pieces, reader), False
        frame = self.session.createDataFrame(pa.concat_tables(pieces), shape)
        # Spark knows that this is one partition: joins and groups need no exchange, and the batch is one
        # task.
        return (frame.coalesce(1) if size <= _ROWS_INTERPRETED else frame), True

    def _filed(
        self,
        table: str,
        shape: StructType,
        arrow_shape: pa.Schema,
        begun: Sequence[pa.Table],
        rest: pa.RecordBatchReader,
    ) -> DataFrame:
        path = self.state.folder / "rows" / f"{table}.parquet"
        path.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(path, arrow_shape) as writer:
            for piece in begun:
                writer.write_table(piece)
            for batch in rest:
                writer.write_table(pa.Table.from_batches([batch]).cast(arrow_shape))
        return self.session.read.schema(shape).parquet(str(path))

    def _encoded(self, stage: Stage, version: int) -> Column:
        assert self.schema is not None
        columns = [F.col(_b(each.name)) for each in self.shapes[stage.name].fields]
        body = F.struct(*columns, F.lit(version).cast("bigint").alias("_version"))
        head = b"\x00" + self.schema_id.to_bytes(4, "big")
        return F.concat(F.lit(head), to_avro(body, orjson.dumps(self.schema).decode()))

    def _compare(self, stage: Stage, first: bool, whole: bool) -> int:
        """Merge ``fresh`` into the stored result. Leaves the difference in ``old_<stage>`` and
        ``new_<stage>``.

        The first time, all of ``fresh`` is new.
        """
        name = _t(stage.name)
        db, stored = self.state.db, _q(name)
        old, new = _q(f"old_{name}"), _q(f"new_{name}")
        # Consumers identify the view's rows by record key alone.
        one = [RECORD_KEY] if stage is self.plan.view else stage.key
        keys = ", ".join(f"first(t.{_q(each)})" for each in stage.key)
        if stage.key:
            by = ", ".join(_q(each) for each in one)
            self._unique(stage, f"SELECT {keys} FROM fresh t GROUP BY {by} HAVING count(*) > 1 LIMIT 1")
        elif self.state.rows("fresh") > 1:
            self._unique(stage, "SELECT 'more than one row'")
        kept = [each.name for each in self.shapes[stage.name].fields]
        kept += list(self.plan.derived.get(stage.name, {}))
        kept += [RECORD_KEY] if stage is self.plan.view else []
        listed = ", ".join(_q(each) for each in kept)
        if first:
            db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM fresh")
            return self.state.rows(name)
        within = "" if whole else f" SEMI JOIN affected a ON {_same('t', 'a', stage.handle)}"
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE prior AS SELECT t.*, t.rowid AS _rowid FROM {stored} t{within}"
        )
        equal = " AND ".join(f"p.{_q(each)} IS NOT DISTINCT FROM f.{_q(each)}" for each in kept)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {new} AS SELECT f.* FROM fresh f ANTI JOIN prior p ON {equal}"
        )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT p.* FROM prior p ANTI JOIN fresh f ON {equal}"
        )
        db.execute(f"DELETE FROM {stored} WHERE rowid IN (SELECT _rowid FROM {old})")
        if not whole and stage.key:
            self._unique(
                stage,
                f"SELECT {keys} FROM {stored} t SEMI JOIN {new} n ON {_same('t', 'n', one)} HAVING count(*) > 0",
            )
        db.execute(f"INSERT INTO {stored} SELECT {listed} FROM {new}")
        db.execute(f"ALTER TABLE {old} DROP _rowid")
        return self.state.rows(f"old_{name}") + self.state.rows(f"new_{name}")

    def _unique(self, stage: Stage, sql: str) -> None:
        twice = self.state.one(sql)
        if twice is not None:
            raise CallerError(
                f'view "{self.plan.view.name}": two rows of its SQL have the key ({", ".join(stage.key)}) = '
                f"({', '.join(str(each)[:80] for each in twice)})",
                hint="a view's key is unique: add a column to it, or GROUP BY it",
                code="HUB-2140",
            )

    # ---- output

    def _keep(self, view: Stage, *, first: bool) -> None:
        """Store the batch's difference until the next batch."""
        db = self.state.db
        old, new = _q(f"old_{_t(view.name)}"), _q(f"new_{_t(view.name)}")
        db.execute("DROP TABLE IF EXISTS emitted_upserts")
        db.execute("DROP TABLE IF EXISTS emitted_deletes")
        if first:
            db.execute("CREATE TABLE emitted_upserts AS SELECT * FROM fresh")
            db.execute(f"CREATE TABLE emitted_deletes AS SELECT {RECORD_KEY} FROM fresh LIMIT 0")
            return
        db.execute(f"CREATE TABLE emitted_upserts AS SELECT * FROM {new} ORDER BY {RECORD_KEY}")
        db.execute(
            f"CREATE TABLE emitted_deletes AS SELECT {RECORD_KEY} FROM {old} o "
            f"ANTI JOIN {new} n ON o.{RECORD_KEY} = n.{RECORD_KEY} ORDER BY {RECORD_KEY}"
        )


_COORDINATES: Mapping[str, str] = {"_topic": "string", "_partition": "int", "_offset": "bigint"}


def _record_key(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return the key of a changelog record, built as in every SQL view."""
    return key_text(frame, key) if key else F.lit("[]")


def foreach_batch(
    run: DeltaRun, writer: Writer, positions: Callable[[int], str] = lambda batch_id: ""
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch``: rows of ``tagged`` → step → changelog.

    It returns when the log has all records.
    """
    topic = CHANGELOG_PREFIX + run.plan.view.name

    def take(rows: DataFrame, batch_id: int) -> None:
        emit(run.step(batch_id, split(run, rows.toArrow()), positions(batch_id)), writer, topic)

    return take


def emit(emitted: Emitted, writer: Writer, topic: str) -> None:
    """Append a batch's records to the changelog, in bounded pieces. A replay appends the same
    records again."""
    waiting: list[NewRecord] = []
    for record in emitted.records(topic):
        waiting.append(record)
        if len(waiting) >= _EMIT_ROWS:
            writer.append(waiting)
            waiting = []
    if waiting:
        writer.append(waiting)


def tagged(run: DeltaRun, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Return all inputs' changes as one frame, because one query has one sink.

    Each input has a struct column ``i_<input>``, null in other inputs' rows. An input's frame has its
    columns, key, ``_deleted`` and ``_order``; it may be a stream.
    """
    union: DataFrame | None = None
    for name, frame in inputs.items():
        ready = run.with_derived(name, frame)
        one = ready.select(F.struct(*(F.col(_b(each)) for each in ready.columns)).alias(f"i_{name.lower()}"))
        union = one if union is None else union.unionByName(one, allowMissingColumns=True)
    if union is None:
        raise ConfigError(f'view "{run.plan.view.name}" has no inputs')
    return loose(union)


def loose(frame: DataFrame) -> DataFrame:
    """Return the frame with nested fields made nullable, for ``toArrow``.

    Spark's type of a struct marks a field as never null even if the struct itself may be null, as after an
    outer join. Arrow refuses such a struct when it is null.
    """
    columns = []
    for each in frame.schema.fields:
        column, free = F.col(_b(each.name)), each.dataType
        if isinstance(free, StructType | ArrayType | MapType):
            free = free.toNullable()
        columns.append(column if free == each.dataType else column.cast(free).alias(each.name))
    return frame.select(*columns)


def split(run: DeltaRun, found: pa.Table) -> dict[str, pa.Table]:
    """Split a batch of ``tagged``'s frame by input, for ``step``."""
    changes = {}
    for table in run.plan.tables:
        name = table.name.lower()
        column = found.column(f"i_{name}")
        mine = [each if each.null_count == 0 else each.drop_null() for each in column.chunks]
        pieces = [pa.RecordBatch.from_struct_array(each) for each in mine if len(each)]
        fields = pa.schema(column.type.fields)
        changes[name] = pa.Table.from_batches(pieces, fields)
    return changes


def _no_rows(session: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    """Return a frame that Spark knows to be empty, so that it starts no task for it."""
    listed = ", ".join(f"CAST(NULL AS {of}) AS {_b(name)}" for name, of in columns.items())
    return session.sql(f"SELECT {listed} WHERE false")


def _t(name: str) -> str:
    """Return the stored table of an input or stage. The prefix keeps it apart from working tables."""
    return f"t_{name.lower()}"


def _gone(name: str) -> str:
    """Return the table with keys and versions of a versioned input's deleted rows."""
    return f"gone_{name.lower()}"


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _b(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _each_hop(rows: str, bound: Bound, column: str, sign: str) -> str:
    """Repeat each row for all hops of a window column.

    ``-``: every time that the column's time stands for. ``+``: every time that stands for it.
    """
    hops, name = bound.hops, _q(column)
    assert hops is not None
    # An impossible time is null: Spark makes no such window either.
    shifted = f"TRY(r.{name} {sign} to_microseconds(h.n * {hops.step_us}))"
    return f"(SELECT r.* REPLACE ({shifted} AS {name}) FROM {rows} r, range({hops.count}) h(n))"


def _text(path: Path) -> str:
    return str(path).replace("'", "''")


def _same(one: str, other: str, columns: Sequence[str]) -> str:
    """Return a null-safe comparison of all columns of two rows."""
    return (
        " AND ".join(f"{one}.{_q(each)} IS NOT DISTINCT FROM {other}.{_q(each)}" for each in columns)
        or "true"
    )
