"""[edge] pyspark: a stage's SQL over rows of the state. Small results pass in memory, large ones in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from hub.materializers.planning.delta_plan import DeltaPlan, Stage
from hub.materializers.spark.delta.state import DeltaState, quoted
from hub.materializers.spark.session_settings import code_settings
from hub.materializers.spark.sql_rows import key_text
from hub.materializers.types.avro_types import AvroType

RECORD_KEY, VALUE = "_record_key", "_value"
# Above this size, rows are passed to Spark and back in files, and this process holds no copy of them.
_BYTES_BY_FILE = 48_000_000
_ROWS_AT_A_TIME = 50_000
# Above this number of rows, Spark compiles the SQL and computes it in several tasks.
_ROWS_INTERPRETED = 50_000
# A small batch finishes sooner when its expressions are interpreted (docs/explanation/notes-on-cost.md).
_SMALL: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    **code_settings("live"),
}
_LARGE: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "4",
    **code_settings("bulk"),
}
FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class StageQuery:
    """Runs the SQL of stages in Spark, over rows of the state. ``shapes``: columns of each input and stage.

    ``schema`` with ``schema_id``: also encode the view's rows as Avro records of the changelog.
    """

    def __init__(
        self,
        session: SparkSession,
        made: DeltaPlan,
        state: DeltaState,
        shapes: Mapping[str, StructType],
        schema: AvroType | None,
        schema_id: int,
    ) -> None:
        self.session = session
        self.plan = made
        self.state = state
        self.shapes = shapes
        self.schema = schema
        self.schema_id = schema_id

    def run(self, stage: Stage, rows: Mapping[str, str], version: int) -> tuple[pa.Table | Path, int]:
        """Run the stage's SQL, as written, over the fetched rows. A large result is returned as a folder of
        Parquet files. Also returns the number of fetched rows."""
        sizes = {table: self.state.rows(at) for table, at in rows.items()}
        total = sum(sizes.values())
        for name, value in (_LARGE if total > _ROWS_INTERPRETED else _SMALL).items():
            self.session.conf.set(name, value)
        order = {table.name.lower(): table.key for table in self.plan.tables}
        order |= {each.name: each.key for each in self.plan.stages}
        in_memory = True
        for table, at in rows.items():
            shape = self.shapes[table]
            listed = ", ".join(quoted(each.name) for each in shape.fields)
            keys = ", ".join(quoted(each) for each in order[table])
            # In key order, so that results that depend on order stay the same, as far as Spark guarantees it.
            sql = f"SELECT {listed} FROM {quoted(at)} ORDER BY {keys}"
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
            return loose(made).toArrow(), total
        path = self.state.folder / "rows" / "fresh"
        made.write.mode("overwrite").parquet(str(path))
        return path, total

    def _frame(self, table: str, sql: str, shape: StructType, size: int) -> tuple[DataFrame, bool]:
        """Return (rows of the store as a DataFrame, True if they were passed in memory)."""
        arrow_shape = to_arrow_schema(shape, timezone="UTC")
        if not size:  # Spark refuses an Arrow table without chunks
            types = {each.name: each.dataType.simpleString() for each in shape.fields}
            return no_rows(self.session, types), True
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
        columns = [F.col(spark_quoted(each.name)) for each in self.shapes[stage.name].fields]
        body = F.struct(*columns, F.lit(version).cast("bigint").alias("_version"))
        head = b"\x00" + self.schema_id.to_bytes(4, "big")
        return F.concat(F.lit(head), to_avro(body, orjson.dumps(self.schema).decode()))


def _record_key(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return the key of a changelog record, built as in every SQL view."""
    return key_text(frame, key) if key else F.lit("[]")


def loose(frame: DataFrame) -> DataFrame:
    """Return the frame with nested fields made nullable, for ``toArrow``.

    Spark's type of a struct marks a field as never null even if the struct itself may be null, as after an
    outer join. Arrow refuses such a struct when it is null.
    """
    columns = []
    for each in frame.schema.fields:
        column, free = F.col(spark_quoted(each.name)), each.dataType
        if isinstance(free, StructType | ArrayType | MapType):
            free = free.toNullable()
        columns.append(column if free == each.dataType else column.cast(free).alias(each.name))
    return frame.select(*columns)


def no_rows(session: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    """Return a frame that Spark knows to be empty, so that it starts no task for it."""
    listed = ", ".join(f"CAST(NULL AS {of}) AS {spark_quoted(name)}" for name, of in columns.items())
    return session.sql(f"SELECT {listed} WHERE false")


def spark_quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
