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
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from hub.errors import CallerError, HubFault
from hub.materializers.definition.declared import ViewDeclaration
from hub.materializers.planning.delta_plan import DeltaPlan, Stage
from hub.materializers.spark import checkpoint_corruption
from hub.materializers.spark.dataframes import GENERATION_SHIFT
from hub.materializers.spark.delta.catalog import SparkCatalog
from hub.materializers.spark.delta.emitted import Emitted
from hub.materializers.spark.delta.inputs import ORDER, InputTables, derived_columns
from hub.materializers.spark.delta.reach import fetch_rows, find_affected
from hub.materializers.spark.delta.stage_query import FIXED, RECORD_KEY, VALUE, StageQuery
from hub.materializers.spark.delta.state import (
    DeltaState,
    all_equal,
    deleted_table,
    quoted,
    sql_text,
    stored_table,
)
from hub.materializers.spark.python_udfs import register
from hub.materializers.types.avro_types import AvroType


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
        self.timing = Timing()
        self.session = register(session.newSession(), functions)
        for name, value in FIXED.items():
            self.session.conf.set(name, value)
        self.inputs = InputTables(self.session, made, state)
        catalog = SparkCatalog(session, made.tables, functions)
        self.shapes: dict[str, StructType] = {}
        for table in made.tables:
            self.shapes[table.name.lower()] = catalog.schema(f"SELECT * FROM {table.name}").toNullable()
        for stage in made.stages:
            self.shapes[stage.name] = catalog.schema(stage.sql).toNullable()
            catalog.define(stage.name, stage.sql)
        self.query = StageQuery(self.session, made, state, self.shapes, schema, schema_id)

    def with_derived(self, table: str, changes: DataFrame) -> DataFrame:
        """Add the derived columns to changes with the table's columns, key, ``_deleted`` and ``_order``, for
        ``step``."""
        return changes.select("*", *derived_columns(self.plan, table))

    def derived(self, table: str) -> list[str]:
        """Return the names of the derived columns of a table."""
        return list(self.plan.derived.get(table.lower(), {}))

    def has_below(self, table: str, version: int) -> bool:
        """Return True if a versioned input has rows, or deleted rows, with a version lower than
        ``version``."""
        return any(
            self.state.has(at)
            and self.state.one(f"SELECT 1 FROM {quoted(at)} WHERE {ORDER} < ? LIMIT 1", [version]) is not None
            for at in (stored_table(table), deleted_table(table))
        )

    # ---- a batch

    @property
    def computed(self) -> bool:
        """True once the SQL has run. False before the first batch, and while the view loads."""
        return self.state.has(stored_table(self.plan.view.name))

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
                f'view "{self.plan.view.name}": batch {batch_id} is asked for, and its '
                f"state is at batch {last}",
                hint="state and checkpoint are of different times; delete both, the view is rebuilt",
                code="HUB-5022",
            )
        if last_version >> GENERATION_SHIFT > self.generation:
            raise HubFault(
                f'view "{self.plan.view.name}": generation {self.generation} batch {batch_id} '
                "is older than its state",
                hint="delete its checkpoint; the view is rebuilt",
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
                hint="delete its checkpoint; the view is rebuilt",
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
                touched[name] = self.inputs.take(table, given.get(name), oldest.get(name, 0), images=images)
        if load:
            self.state.db.execute("DROP TABLE IF EXISTS emitted_upserts")
            self.state.db.execute("DROP TABLE IF EXISTS emitted_deletes")
            return
        for stage in self.plan.stages:
            touched[stage.name] = self._stage(stage, touched, version)
        self._keep(self.plan.view, first=not images)

    # ---- a stage: affected, fetched, recomputed, compared

    def _stage(self, stage: Stage, touched: Mapping[str, int], version: int) -> int:
        db = self.state.db
        first = not self.state.has(stored_table(stage.name))
        changed = sum(touched[table] for table in stage.tables)
        if not first and not changed:
            return self._unchanged(stage)
        stored = sum(self.state.rows(stored_table(table)) for table in stage.tables)
        whole = first or not stage.handle or changed > stored
        if not stage.handle and stored > self.plan.whole_rows:
            raise CallerError(
                f'view "{self.plan.view.name}": {stored} rows of {", ".join(stage.tables)} are '
                "computed whole at every "
                f"batch, which is declared for {self.plan.whole_rows} at most",
                hint="give it a GROUP BY or PARTITION BY that is part of its key, or declare more rows",
                code="HUB-2141",
            )
        if not whole:
            with self.timing.part("affected"):
                find_affected(self.state, stage)
                self.timing.affected += (affected := self.state.rows("affected"))
            if not affected:
                return self._unchanged(stage)
        with self.timing.part("fetch"):
            rows = fetch_rows(self.state, stage, whole)
        with self.timing.part("spark"):
            fresh, fetched = self.query.run(stage, rows, version)
            self.timing.fetched += fetched
        with self.timing.part("compare"):
            within = "" if whole else f" SEMI JOIN affected a ON {all_equal('f', 'a', stage.handle)}"
            if isinstance(fresh, Path):
                source = f"read_parquet('{sql_text(fresh)}/*.parquet')"
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
            return self.merge_fresh(stage, first, whole)

    def _unchanged(self, stage: Stage) -> int:
        encoded = f", NULL::BLOB AS {VALUE}" if stage is self.plan.view and self.schema is not None else ""
        for image, more in (("old", ""), ("new", encoded)):
            self.state.db.execute(
                f"CREATE OR REPLACE TEMP TABLE {quoted(f'{image}_{stored_table(stage.name)}')} AS "
                f"SELECT *{more} FROM {quoted(stored_table(stage.name))} LIMIT 0"
            )
        return 0

    def merge_fresh(self, stage: Stage, first: bool, whole: bool) -> int:
        """Merge ``fresh`` into the stored result. Leaves the difference in ``old_<stage>`` and
        ``new_<stage>``.

        The first time, all of ``fresh`` is new.
        """
        name = stored_table(stage.name)
        db, stored = self.state.db, quoted(name)
        old, new = quoted(f"old_{name}"), quoted(f"new_{name}")
        # Consumers identify the view's rows by record key alone.
        one = [RECORD_KEY] if stage is self.plan.view else stage.key
        keys = ", ".join(f"first(t.{quoted(each)})" for each in stage.key)
        if stage.key:
            by = ", ".join(quoted(each) for each in one)
            self._unique(stage, f"SELECT {keys} FROM fresh t GROUP BY {by} HAVING count(*) > 1 LIMIT 1")
        elif self.state.rows("fresh") > 1:
            self._unique(stage, "SELECT 'more than one row'")
        kept = [each.name for each in self.shapes[stage.name].fields]
        kept += list(self.plan.derived.get(stage.name, {}))
        kept += [RECORD_KEY] if stage is self.plan.view else []
        listed = ", ".join(quoted(each) for each in kept)
        if first:
            db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM fresh")
            return self.state.rows(name)
        within = "" if whole else f" SEMI JOIN affected a ON {all_equal('t', 'a', stage.handle)}"
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE prior AS SELECT t.*, t.rowid AS _rowid FROM {stored} t{within}"
        )
        equal = " AND ".join(f"p.{quoted(each)} IS NOT DISTINCT FROM f.{quoted(each)}" for each in kept)
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
                f"SELECT {keys} FROM {stored} t SEMI JOIN {new} n ON "
                f"{all_equal('t', 'n', one)} HAVING count(*) > 0",
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
        old, new = quoted(f"old_{stored_table(view.name)}"), quoted(f"new_{stored_table(view.name)}")
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
