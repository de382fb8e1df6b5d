"""[edge] pyspark and DuckDB: a DeltaPlan carried out, batch by batch, exactly once.

``DeltaState`` is a DuckDB file in the view's checkpoint folder: every input as a table of current rows, every stage's
result, and the last batch's output. ``DeltaRun.step`` brings in a batch: rows as they were and as they are → affected
handles → the input rows that these need → the view's own SQL in Spark over just those rows → difference with the
stored result. All of it is one transaction, and what the batch emits is part of it: a batch that is asked for again
gives the same rows with the same versions, from the state, without computing anything.

The store finds and compares rows; only Spark evaluates expressions. So the semantics are Spark's to the last cast.

Orders of events around a crash: state committed → emitted → Spark's commit. Before the first nothing has happened; between
them Spark asks for the same batch again, and it is emitted again; consumers take a row only with a higher version.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hub.errors import CallerError, ConfigError, HubFault
from hub.log import Writer
from hub.materializers.avro_shape import AvroType, changelog_schema
from hub.materializers.dataframes import GENERATION_SHIFT, VERSION_HEADER
from hub.materializers.delta import DeltaPlan, Leaf, Stage, Table, plan
from hub.materializers.view import CHANGELOG_PREFIX
from hub.record import NewRecord

# What changes carry besides a table's columns and key.
DELETED, ORDER = "_deleted", "_order"

RECORD_KEY, VALUE = "_record_key", "_value"
_FORMAT = 1
# Above this, rows go to Spark as a file: it reads it in parallel, and holds no copy of it in this process.
_ROWS_BY_FILE = 100_000
_EMIT_ROWS = 10_000

# A small batch is done sooner by interpreting its expressions (docs/architecture.md, "Non-obvious").
_SMALL: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_LARGE: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
_FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a batch changes in the view.

    ``upserts``: the view's columns, ``_record_key`` (text) and, where the run encodes, ``_value`` (a changelog record's bytes).
    ``deletes``: ``_record_key``. Both have all rows at ``version``, which is higher than at every batch before. ``replayed``
    says that the batch was in the state already.
    """

    batch_id: int
    version: int
    upserts: pa.Table
    deletes: pa.Table
    replayed: bool = False

    def records(self, topic: str) -> Iterator[NewRecord]:
        """As records of the changelog: rows, then tombstones, with the header ``hub.version``."""
        headers = ((VERSION_HEADER, str(self.version).encode()),)
        for batch in self.upserts.select([RECORD_KEY, VALUE]).to_batches(max_chunksize=_EMIT_ROWS):
            keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            for key, value in zip(keys, values, strict=True):
                yield NewRecord(topic, key.encode(), value, headers)
        for key in self.deletes.column(RECORD_KEY).to_pylist():
            yield NewRecord(topic, key.encode(), None, headers)


@dataclass
class Timing:
    """Milliseconds of the last step by part, and what it touched: for the bench and the log."""

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


class SparkCatalog:
    """The planner's Catalog over empty tables in a session of their own."""

    def __init__(self, session: SparkSession, tables: Sequence[Table]) -> None:
        self.session = session.newSession()
        for key, value in _FIXED.items():
            self.session.conf.set(key, value)
        for table in tables:
            _no_rows(self.session, table.columns).createOrReplaceTempView(table.name)

    def columns(self, sql: str) -> Mapping[str, str]:
        fields = self.schema(sql).fields
        return {each.name: each.dataType.simpleString() for each in fields}

    def schema(self, sql: str) -> StructType:
        """As Spark types the query. Raises ConfigError in Spark's own words."""
        try:
            return self.session.sql(sql).schema
        except PySparkException as error:
            said = str(error).split("\n")[0].split("; line")[0]
            raise ConfigError(
                f"Spark refuses the SQL: {said}",
                hint="it is Spark SQL over the view's inputs",
                code="HUB-2105",
            ) from None

    def define(self, name: str, sql: str) -> None:
        self.session.sql(sql).createOrReplaceTempView(name)


def prepare(
    session: SparkSession,
    sql: str,
    tables: Sequence[Table],
    key: Sequence[str],
    *,
    view: str = "view",
    whole_rows: int = 0,
) -> DeltaPlan:
    """``delta.plan`` with Spark's own types. Raises ConfigError as it does; nothing is run."""
    return plan(sql, tables, key, view=view, whole_rows=whole_rows, catalog=SparkCatalog(session, tables))


def row_schema(session: SparkSession, made: DeltaPlan) -> AvroType:
    """The changelog's Avro schema of the view's rows: its columns and ``_version``."""
    catalog = SparkCatalog(session, made.tables)
    for stage in made.stages[:-1]:
        catalog.define(stage.name, stage.sql)
    fields = catalog.schema(made.view.sql).jsonValue()["fields"]
    fields.append({"name": "_version", "type": "long", "nullable": False, "metadata": {}})
    return changelog_schema(made.view.name, fields, required=("_version",))


class DeltaState:
    """The view's tables in ``<folder>/delta.duckdb``. One process at a time (DuckDB locks the file).

    Raises HubFault when the file was written by another version of the hub or for another plan.
    """

    def __init__(self, folder: Path, fingerprint: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.spill = folder / "spill"
        shutil.rmtree(self.spill, ignore_errors=True)
        self.db = duckdb.connect(str(folder / "delta.duckdb"))
        self.db.execute("SET TimeZone = 'UTC'")
        self.db.execute("SET preserve_insertion_order = false")
        self.db.execute(f"SET temp_directory = '{str(self.spill).replace(chr(39), chr(39) * 2)}'")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS delta_state "
            "(format INT, fingerprint VARCHAR, batch_id BIGINT, version BIGINT, positions VARCHAR)"
        )
        found = self.one("SELECT format, fingerprint FROM delta_state")
        if found is None:
            self.db.execute("INSERT INTO delta_state VALUES (?, ?, -1, -1, '')", [_FORMAT, fingerprint])
        elif found != (_FORMAT, fingerprint):
            self.db.close()
            raise HubFault(
                f"{folder}: the state there is of another plan of the view",
                hint="delete the folder; the view is computed anew from the start of its log",
                code="HUB-5021",
            )

    def one(self, sql: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """The first row of a result. All are fetched: DuckDB does nothing else while a result is unfinished."""
        found = self.db.execute(sql, list(values)).fetchall()
        return found[0] if found else None

    def committed(self) -> tuple[int, int, str]:
        """(batch id, version, source positions) of the last committed batch; (-1, -1, "") before the first."""
        found = self.one("SELECT batch_id, version, positions FROM delta_state")
        assert found is not None
        return int(found[0]), int(found[1]), str(found[2])

    def has(self, table: str) -> bool:
        return bool(self.one("SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND NOT temporary", [table]))

    def rows(self, table: str) -> int:
        found = self.one(f"SELECT count(*) FROM {_q(table)}")
        assert found is not None
        return int(found[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def close(self) -> None:
        self.db.close()
        shutil.rmtree(self.spill, ignore_errors=True)


class DeltaRun:
    """A plan, its state and a Spark session: ``step`` by ``step``. One thread.

    ``schema_id`` with ``schema`` (of ``row_schema``): encode rows as the changelog's Avro records while they are recomputed.
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
    ) -> None:
        self.plan = made
        self.state = state
        self.generation = generation
        self.schema = schema
        self.schema_id = schema_id
        self.timing = Timing()
        self.session = session.newSession()
        for name, value in _FIXED.items():
            self.session.conf.set(name, value)
        catalog = SparkCatalog(session, made.tables)
        self.shapes: dict[str, StructType] = {}
        for table in made.tables:
            self.shapes[table.name.lower()] = catalog.schema(f"SELECT * FROM {table.name}")
        for stage in made.stages:
            self.shapes[stage.name] = catalog.schema(stage.sql)
            catalog.define(stage.name, stage.sql)

    # ---- input

    def input_columns(self, table: str) -> list[Column]:
        """The expressions over a table's own columns that its changes must carry beside them."""
        return [F.expr(sql).alias(name) for name, sql in self.plan.derived.get(table.lower(), {}).items()]

    def with_derived(self, table: str, changes: DataFrame) -> DataFrame:
        """Changed rows as ``step`` takes them, from rows with the table's columns, key, ``_deleted`` and ``_order``."""
        return changes.select("*", *self.input_columns(table))

    # ---- a batch

    def step(self, batch_id: int, changes: Mapping[str, pa.Table], positions: str = "") -> Emitted:
        """Bring in a batch, by input: the table's columns, key, derived columns, ``_deleted`` and ``_order``.

        The last row by ``_order`` of each key counts. ``positions`` are kept with the batch. Batches are counted from 0; the
        last one committed gives again what it gave, any other but the next raises HubFault (HUB-5022). Raises CallerError (HUB-2140) when the SQL
        has two rows for one key, (HUB-2141) when a part that is computed whole has outgrown ``whole_rows``.
        """
        self.timing = Timing()
        last, last_version, _ = self.state.committed()
        if batch_id == last:
            return self._again(batch_id, last_version)
        version = (self.generation << GENERATION_SHIFT) + batch_id + 1
        if batch_id != last + 1:
            raise HubFault(
                f'view "{self.plan.view.name}": batch {batch_id} is asked for, and its state is at batch {last}',
                hint="state and checkpoint are of different times; delete both, the view is computed anew",
                code="HUB-5022",
            )
        if version <= last_version:
            raise HubFault(
                f'view "{self.plan.view.name}": generation {self.generation} batch {batch_id} is older than its state',
                hint="delete its checkpoint; the view is computed anew",
                code="HUB-5022",
            )
        with self.state.transaction():
            touched = {}
            for table in self.plan.tables:
                name = table.name.lower()
                given = next((rows for key, rows in changes.items() if key.lower() == name), None)
                with self.timing.part("store"):
                    touched[name] = self._take(table, given)
            for stage in self.plan.stages:
                touched[stage.name] = self._stage(stage, touched, version)
            self.state.db.execute(
                "UPDATE delta_state SET batch_id = ?, version = ?, positions = ?",
                [batch_id, version, positions],
            )
            self._keep(self.plan.view)
        return self._emitted(batch_id, version, replayed=False)

    def _again(self, batch_id: int, version: int) -> Emitted:
        if version >> GENERATION_SHIFT != self.generation:
            raise HubFault(
                f'view "{self.plan.view.name}": its state is of generation {version >> GENERATION_SHIFT}',
                hint="delete its checkpoint; the view is computed anew",
                code="HUB-5022",
            )
        return self._emitted(batch_id, version, replayed=True)

    # ---- inputs: rows as they were and as they are

    def _take(self, table: Table, given: pa.Table | None) -> int:
        """Bring changes into the table. Leaves ``old_<t>`` and ``new_<t>``: the images of the rows that changed."""
        name = table.name.lower()
        stored, old, new = _q(name), _q(f"old_{name}"), _q(f"new_{name}")
        db = self.state.db
        if given is None or given.num_rows == 0:
            if self.state.has(name):
                db.execute(f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT * FROM {stored} LIMIT 0")
                db.execute(f"CREATE OR REPLACE TEMP TABLE {new} AS SELECT * FROM {stored} LIMIT 0")
                return 0
            given = self._empty(table)
        columns = [each for each in given.column_names if each not in (DELETED, ORDER)]
        keys = ", ".join(_q(each) for each in table.key)
        db.register("given_rows", given)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE taken AS SELECT * FROM given_rows "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {ORDER} DESC) = 1"
        )
        db.unregister("given_rows")
        listed = ", ".join(_q(each) for each in columns)
        if not self.state.has(name):
            db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM taken LIMIT 0")
        same = _same("t", "n", table.key)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE old_all AS SELECT t.*, t.rowid AS _rowid FROM {stored} t SEMI JOIN taken n ON {same}"
        )
        # What is written again as it was touches nothing.
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
        return self.state.rows(f"old_{name}") + self.state.rows(f"new_{name}")

    def _empty(self, table: Table) -> pa.Table:
        """No rows, with the types that rows will have: as Spark gives them."""
        ddl = {**table.columns}
        for each in table.key:
            ddl.setdefault(each, _COORDINATES.get(each, "string"))
        frame = _no_rows(self.session, {**ddl, DELETED: "boolean", ORDER: "bigint"})
        return self.with_derived(table.name, frame).toArrow()

    # ---- a stage: affected, fetched, recomputed, compared

    def _stage(self, stage: Stage, touched: Mapping[str, int], version: int) -> int:
        db, name = self.state.db, stage.name
        first = not self.state.has(name)
        changed = sum(touched[table] for table in stage.tables)
        if not first and not changed:
            return self._unchanged(stage)
        stored = sum(self.state.rows(table) for table in stage.tables)
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
            db.register("fresh_rows", fresh)
            within = "" if whole else f" SEMI JOIN affected a ON {_same('f', 'a', stage.handle)}"
            db.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT f.* FROM fresh_rows f{within}")
            db.unregister("fresh_rows")
            return self._compare(stage, first, whole)

    def _unchanged(self, stage: Stage) -> int:
        for image in ("old", "new"):
            self.state.db.execute(
                f"CREATE OR REPLACE TEMP TABLE {_q(f'{image}_{stage.name}')} AS SELECT * FROM {_q(stage.name)} LIMIT 0"
            )
        return 0

    def _affected(self, stage: Stage) -> None:
        """The handles that a changed row of any leaf reaches, up its chain; the tables in between as they were and
        as they are."""
        parts = []
        for leaf in stage.leaves:
            rows = (
                f"(SELECT * FROM {_q(f'old_{leaf.table}')} UNION ALL SELECT * FROM {_q(f'new_{leaf.table}')})"
            )
            at: Leaf = leaf
            while True:
                bound = at.bound
                assert bound is not None
                if bound.parent is None:
                    listed = ", ".join(
                        f"{_q(column)} AS {_q(of)}"
                        for of, column in sorted(zip(bound.of, bound.columns, strict=True))
                    )
                    parts.append(f"SELECT {listed} FROM {rows}")
                    break
                parent = stage.leaves[bound.parent]
                both = (
                    f"(SELECT * FROM {_q(parent.table)} UNION ALL SELECT * FROM {_q(f'old_{parent.table}')})"
                )
                on = " AND ".join(
                    f"p.{_q(of)} = c.{_q(column)}" for column, of in zip(bound.columns, bound.of, strict=True)
                )
                rows = f"(SELECT p.* FROM {both} p SEMI JOIN {rows} c ON {on})"
                at = parent
        self.state.db.execute(f"CREATE OR REPLACE TEMP TABLE affected AS {' UNION '.join(parts)}")

    def _fetch(self, stage: Stage, whole: bool) -> dict[str, str]:
        """By table, the temporary or stored table that has the rows which the affected handles need."""
        if whole:
            return {table: table for table in stage.tables}
        db = self.state.db
        by_table: dict[str, list[str]] = {}
        for number, leaf in enumerate(stage.leaves):
            bound = leaf.bound
            assert bound is not None
            source = "affected" if bound.parent is None else f"fetched_{bound.parent}"
            on = " AND ".join(
                f"t.{_q(column)} {'IS NOT DISTINCT FROM' if bound.parent is None else '='} s.{_q(of)}"
                for column, of in zip(bound.columns, bound.of, strict=True)
            )
            db.execute(
                f"CREATE OR REPLACE TEMP TABLE fetched_{number} AS "
                f"SELECT t.*, t.rowid AS _rowid FROM {_q(leaf.table)} t SEMI JOIN {source} s ON {on}"
            )
            by_table.setdefault(leaf.table, []).append(f"fetched_{number}")
        found = {}
        for table, parts in by_table.items():
            found[table] = parts[0]
            if len(parts) > 1:  # each occurrence sees the rows of all: more than it needs is right as well
                found[table] = f"all_{parts[0]}"
                union = " UNION ".join(f"SELECT _rowid FROM {part}" for part in parts)
                db.execute(
                    f"CREATE OR REPLACE TEMP TABLE all_{parts[0]} AS "
                    f"SELECT t.* FROM {_q(table)} t WHERE t.rowid IN ({union})"
                )
        return found

    def _recompute(self, stage: Stage, rows: Mapping[str, str], version: int) -> pa.Table:
        """The stage's SQL, as it was written, over those rows."""
        sizes = {table: self.state.rows(at) for table, at in rows.items()}
        total = sum(sizes.values())
        self.timing.fetched += total
        for name, value in (_LARGE if total > _ROWS_BY_FILE else _SMALL).items():
            self.session.conf.set(name, value)
        order = {table.name.lower(): table.key for table in self.plan.tables}
        order |= {each.name: each.key for each in self.plan.stages}
        for table, at in rows.items():
            shape = self.shapes[table]
            listed = ", ".join(_q(each.name) for each in shape.fields)
            keys = ", ".join(_q(each) for each in order[table])
            # In the order of the key, so that what depends on order is the same as far as Spark lets it.
            sql = f"SELECT {listed} FROM {_q(at)} ORDER BY {keys}"
            self._frame(table, sql, shape, sizes[table]).createOrReplaceTempView(table)
        frame = self.session.sql(stage.sql)
        extra = [F.expr(sql).alias(name) for name, sql in self.plan.derived.get(stage.name, {}).items()]
        if stage is self.plan.view:
            extra.append(_record_key(stage.key).alias(RECORD_KEY))
            if self.schema is not None:
                extra.append(self._encoded(stage, version).alias(VALUE))
        return frame.select("*", *extra).toArrow()

    def _frame(self, table: str, sql: str, shape: StructType, size: int) -> DataFrame:
        arrow_shape = to_arrow_schema(shape, timezone="UTC")
        if size <= _ROWS_BY_FILE:
            if not size:  # an Arrow table without chunks is refused
                return _no_rows(
                    self.session, {each.name: each.dataType.simpleString() for each in shape.fields}
                )
            found = self.state.db.sql(sql).to_arrow_table().cast(arrow_shape)
            # In one partition, which Spark knows: joins and groups need no exchange, and the batch is one task.
            return self.session.createDataFrame(found, shape).coalesce(1)
        path = self.state.folder / "rows" / f"{table}.parquet"
        path.parent.mkdir(exist_ok=True)
        reader = self.state.db.sql(sql).to_arrow_reader(_ROWS_BY_FILE)
        with pq.ParquetWriter(path, arrow_shape) as writer:
            for batch in reader:
                writer.write_table(pa.Table.from_batches([batch]).cast(arrow_shape))
        return self.session.read.schema(shape).parquet(str(path))

    def _encoded(self, stage: Stage, version: int) -> Column:
        assert self.schema is not None
        columns = [F.col(_b(each.name)) for each in self.shapes[stage.name].fields]
        body = F.struct(*columns, F.lit(version).cast("bigint").alias("_version"))
        head = b"\x00" + self.schema_id.to_bytes(4, "big")
        return F.concat(F.lit(head), to_avro(body, orjson.dumps(self.schema).decode()))

    def _compare(self, stage: Stage, first: bool, whole: bool) -> int:
        """Bring ``fresh`` into the stored result. Leaves ``old_<stage>`` and ``new_<stage>``: what the difference is."""
        db, stored = self.state.db, _q(stage.name)
        old, new = _q(f"old_{stage.name}"), _q(f"new_{stage.name}")
        keys = ", ".join(_q(each) for each in stage.key)
        if stage.key:
            self._unique(stage, f"SELECT {keys} FROM fresh GROUP BY {keys} HAVING count(*) > 1 LIMIT 1")
        elif self.state.rows("fresh") > 1:
            self._unique(stage, "SELECT 'more than one row'")
        kept = [each.name for each in self.shapes[stage.name].fields]
        kept += list(self.plan.derived.get(stage.name, {}))
        kept += [RECORD_KEY] if stage is self.plan.view else []
        listed = ", ".join(_q(each) for each in kept)
        if first:
            db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM fresh LIMIT 0")
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
                f"SELECT {keys} FROM {stored} t SEMI JOIN {new} n ON {_same('t', 'n', stage.key)} LIMIT 1",
            )
        db.execute(f"INSERT INTO {stored} SELECT {listed} FROM {new}")
        db.execute(f"ALTER TABLE {old} DROP _rowid")
        return self.state.rows(f"old_{stage.name}") + self.state.rows(f"new_{stage.name}")

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

    def _keep(self, view: Stage) -> None:
        """The batch's difference, in the state until the next batch's."""
        db = self.state.db
        old, new = _q(f"old_{view.name}"), _q(f"new_{view.name}")
        db.execute("DROP TABLE IF EXISTS emitted_upserts")
        db.execute("DROP TABLE IF EXISTS emitted_deletes")
        db.execute(f"CREATE TABLE emitted_upserts AS SELECT * FROM {new} ORDER BY {RECORD_KEY}")
        db.execute(
            f"CREATE TABLE emitted_deletes AS SELECT {RECORD_KEY} FROM {old} o "
            f"ANTI JOIN {new} n ON o.{RECORD_KEY} = n.{RECORD_KEY} ORDER BY {RECORD_KEY}"
        )

    def _emitted(self, batch_id: int, version: int, *, replayed: bool) -> Emitted:
        upserts = self.state.db.sql("SELECT * FROM emitted_upserts").to_arrow_table()
        deletes = self.state.db.sql("SELECT * FROM emitted_deletes").to_arrow_table()
        return Emitted(batch_id, version, upserts, deletes, replayed)


_COORDINATES: Mapping[str, str] = {"_topic": "string", "_partition": "int", "_offset": "bigint"}


def _record_key(key: Sequence[str]) -> Column:
    """A changelog record's key: one column's text; JSON of several, of a null, and of a text that looks like it."""
    texts = [F.col(_b(each)).cast("string") for each in key]
    as_json = F.to_json(F.array(*texts)) if texts else F.lit("[]")
    if len(texts) != 1:
        return as_json
    (text,) = texts
    return F.when(text.isNull() | text.startswith("["), as_json).otherwise(text)


def foreach_batch(
    run: DeltaRun, writer: Writer, positions: Callable[[int], str] = lambda batch_id: ""
) -> Callable[[DataFrame, int], None]:
    """For ``writeStream.foreachBatch``: rows as ``tagged`` makes them → step → changelog. Returns when the log has all."""
    topic = CHANGELOG_PREFIX + run.plan.view.name

    def take(rows: DataFrame, batch_id: int) -> None:
        emit(run.step(batch_id, split(run, rows), positions(batch_id)), writer, topic)

    return take


def emit(emitted: Emitted, writer: Writer, topic: str) -> None:
    """Append a batch's records to the changelog, in bounded pieces. A replay appends the same again."""
    waiting: list[NewRecord] = []
    for record in emitted.records(topic):
        waiting.append(record)
        if len(waiting) >= _EMIT_ROWS:
            writer.append(waiting)
            waiting = []
    if waiting:
        writer.append(waiting)


def tagged(run: DeltaRun, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """All inputs' changes as one frame (one query has one sink): a struct column ``i_<input>`` each, null in others' rows.

    An input's frame has its columns, key, ``_deleted`` and ``_order``; it may be a stream.
    """
    union: DataFrame | None = None
    for name, frame in inputs.items():
        ready = run.with_derived(name, frame)
        one = ready.select(F.struct(*(F.col(_b(each)) for each in ready.columns)).alias(f"i_{name.lower()}"))
        union = one if union is None else union.unionByName(one, allowMissingColumns=True)
    if union is None:
        raise ConfigError(f'view "{run.plan.view.name}" has no inputs')
    return union


def split(run: DeltaRun, rows: DataFrame) -> dict[str, pa.Table]:
    """A batch of ``tagged``'s frame as ``step`` takes it: one Spark job for all inputs."""
    found = rows.toArrow()
    changes = {}
    for table in run.plan.tables:
        name = table.name.lower()
        column = found.column(f"i_{name}").combine_chunks()
        mine = column.drop_null()
        changes[name] = pa.Table.from_struct_array(mine)
    return changes


def _no_rows(session: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    """An empty frame, which Spark knows to be empty: no task is made for it."""
    listed = ", ".join(f"CAST(NULL AS {of}) AS {_b(name)}" for name, of in columns.items())
    return session.sql(f"SELECT {listed} WHERE false")


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _b(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _same(one: str, other: str, columns: Sequence[str]) -> str:
    """Null-safe and all together."""
    return (
        " AND ".join(f"{one}.{_q(each)} IS NOT DISTINCT FROM {other}.{_q(each)}" for each in columns)
        or "true"
    )
