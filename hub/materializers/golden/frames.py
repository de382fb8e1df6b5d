"""[edge] pyspark: a case's events as frames and files, and what came of them as an outcome."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from hub.errors import HubError
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.golden.cases import CaseEvent, CaseOutcome
from hub.materializers.planning.classified import Classified
from hub.materializers.spark import sql_rows
from hub.materializers.spark.checkpoints import committed_batches
from hub.materializers.spark.formats.decode import Input, SchemaAnswers
from hub.materializers.types.avro_types import AvroType

EVENTS = f"{sql_rows.EVENTS}, headers array<struct<key:string,value:binary>>"
_STORED = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ]
)
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSX"}


class CaseInput:
    """A source of a SQL view with the case's events of it."""

    def __init__(
        self,
        session: SparkSession,
        given: Input,
        source: SqlSource,
        answered: SchemaAnswers,
        pairs: Iterable[tuple[CaseEvent, Any]],
    ) -> None:
        self.name = given.source.name
        self.input, self.source, self.answered = given, source, answered
        self._pairs = [(event, record) for event, record in pairs if event.source == self.name]
        self.frame = session.createDataFrame([record for _, record in self._pairs], EVENTS)

    def typed(self, events: DataFrame) -> DataFrame:
        return sql_rows.typed(events, self.input, self.source, self.answered)

    def by_batch(self, batches: int) -> list[list[Any]]:
        """Return the records of each batch of the case."""
        found: list[list[Any]] = [[] for _ in range(batches)]
        for event, record in self._pairs:
            found[event.batch].append(record)
        return found


def key_and_row(frame: DataFrame, how: Classified) -> tuple[Column, Column]:
    return sql_rows.key_text(frame, how.key).alias("_key"), row_json(tuple(how.query.columns)).alias("_row")


def count_late(
    view: SqlView,
    how: Classified,
    typed: Mapping[str, DataFrame],
    events: Sequence[CaseEvent],
    checkpoint: Path,
    batches: int,
) -> int:
    """Return how many events were late, each judged by the watermark that its batch ran with."""
    late = 0
    for batch in range(batches):
        watermark_ms = committed_batches.logged_watermark_ms(checkpoint, 2 * batch - 1)
        offsets = [(each.topic, each.partition, each.offset) for each in events if each.batch == batch]
        for rule in how.late if watermark_ms > 0 and offsets else ():
            rows = sql_rows.taken_with_bytes(typed[rule.source])
            rows = rows.where(F.struct("_topic", "_partition", "_offset").isin(_structs(offsets)))
            late += sql_rows.too_late(rows, rule, view, watermark_ms).count()
    return late


def whole_row(given: Any, schema: AvroType, version: int) -> Any:
    """Return a row of another view with the columns that the hub adds."""
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    added: dict[str, Any] = {}
    if "_version" in fields:
        added["_version"] = version
    sources = fields.get("_sources")
    if isinstance(sources, dict):
        added["_sources"] = {field["name"]: None for field in sources["fields"]}
    missing = {name: None for name in fields if name not in added}
    return {**missing, **added, **given}


def write_batches(folder: Path, batches: Sequence[Sequence[Any]]) -> None:
    """Write one file per batch, with modification times that give their order.

    An empty file follows each one: events are judged by the watermark of the batch before, and the empty
    batch moves it.
    """
    folder.mkdir(parents=True)
    empty: Sequence[Any] = ()
    for number, rows in enumerate(each for batch in batches for each in (batch, empty)):
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in _STORED]
        table = pyarrow.table(
            [
                pyarrow.array(_headers(column) if each.name == "headers" else list(column), each.type)
                for column, each in zip(columns, _STORED, strict=True)
            ],
            schema=_STORED,
        )
        path = folder / f"{number:06d}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _headers(column: Iterable[Any]) -> list[Any]:
    return [
        None if each is None else [{"key": key, "value": value} for key, value in each] for each in column
    ]


def _structs(offsets: Iterable[tuple[str, int, int]]) -> list[Column]:
    return [
        F.struct(
            F.lit(topic).alias("_topic"),
            F.lit(partition).alias("_partition"),
            F.lit(offset).cast("bigint").alias("_offset"),
        )
        for topic, partition, offset in offsets
    ]


def row_json(columns: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns), _JSON)


def dead_events(typed: Mapping[str, DataFrame], events: Sequence[CaseEvent]) -> list[tuple[int, str]]:
    found = []
    for frame in typed.values():
        why = F.col(sql_rows.WHY)
        for row in frame.where(why.isNotNull()).select("_topic", "_partition", "_offset", why).collect():
            found.append((event_number(events, row), row[sql_rows.WHY]))
    return found


def event_number(events: Sequence[CaseEvent], row: Any) -> int:
    place = (row["_topic"], row["_partition"], row["_offset"])
    for event in events:
        if (event.topic, event.partition, event.offset) == place:
            return event.number
    raise HubError(f"no event of the case is at {place}")


def outcome_of(
    columns: tuple[str, ...], rows: Mapping[str, str], dead: Iterable[tuple[int, str]], late: int = 0
) -> CaseOutcome:
    return CaseOutcome(columns, {key: orjson.loads(row) for key, row in rows.items()}, sorted(dead), late)
