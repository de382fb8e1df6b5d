"""[shell] A table compared with its topic, record by record.

Each partition is compared in ranges of offsets, from the first one that the log still has up to the table's
position. Records in the dead-letter topic have no row. A column whose type changed (``amount__int`` beside
``amount``) holds values by the schema of the day on which they were written, and is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow

from hub.errors import PeerError
from hub.lake.batch import LakeBatch, take
from hub.lake.evolution import is_retired
from hub.lake.schemas import LakeSchemas
from hub.lake.table import LakeTable
from hub.log import Log, up_to
from hub.record import Positions, Record, TopicPartition

RANGE = 50_000
_SILENT_S = 30.0
_MOST_NAMED = 20


@dataclass(slots=True)
class LakeComparison:
    """Outcome for one topic. ``examples``: up to 20 places with what differs."""

    topic: str
    table: str
    compared: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    dead_letters: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": "EQUAL" if self.equal else "DIFFERS"}

    def name(self, what: str, partition: int, offset: int) -> None:
        """Keep an example."""
        if len(self.examples) < _MOST_NAMED:
            self.examples.append(f"{self.topic}:{partition}:{offset} {what}")


def compare(
    cluster: Log, table: LakeTable, schemas: LakeSchemas, begins: Mapping[int, int]
) -> LakeComparison:
    """Compare the table with the log. ``begins``: first offset of the log by partition. Raises PeerError."""
    found = LakeComparison(schemas.topic, table.name)
    if table.version != schemas.number:
        raise PeerError(
            f'table "{table.name}" does not have the newest schema of its topic yet',
            hint="wait for the writer's next commit: hub lake ls",
            code="HUB-3811",
        )
    schemas.use(table.fields)
    for partition, end in sorted(table.progress.positions.items()):
        for first in range(begins.get(partition, 0), end, RANGE):
            _compare_range(cluster, table, schemas, partition, (first, min(first + RANGE, end)), found)
    return found


def _compare_range(
    cluster: Log,
    table: LakeTable,
    schemas: LakeSchemas,
    partition: int,
    span: tuple[int, int],
    found: LakeComparison,
) -> None:
    batch = LakeBatch()
    for records in _records(cluster, schemas.topic, partition, span):
        take(batch, records, schemas, table.arrow_schema)
    found.dead_letters += len(batch.dead)
    wanted = pyarrow.concat_tables([table.arrow_schema.empty_table(), *batch.tables])
    rows = table.table.scan(
        row_filter=f"_partition == {partition} and _offset >= {span[0]} and _offset < {span[1]}"
    ).to_arrow()
    compare_rows(wanted, rows.cast(table.arrow_schema).sort_by("_offset"), partition, found)


def compare_rows(wanted: pyarrow.Table, rows: pyarrow.Table, partition: int, found: LakeComparison) -> None:
    """Add what differs between the rows of the log and those of the table, both in the order of offsets."""
    found.compared += wanted.num_rows
    names = [name for name in wanted.column_names if not _changed(name, wanted.column_names)]
    if wanted["_offset"].equals(rows["_offset"]):
        for place in _different(wanted.select(names), rows.select(names)):
            found.different += 1
            found.name("differs", partition, place)
        return
    log, lake = wanted["_offset"].to_pylist(), rows["_offset"].to_pylist()
    for offset in sorted(set(log) - set(lake)):
        found.missing += 1
        found.name("is missing", partition, offset)
    compared: set[int] = set()
    known = set(log)
    for offset in lake:
        if offset in compared or offset not in known:
            found.extra += 1
            found.name("is there twice" if offset in compared else "is not in the log", partition, offset)
        compared.add(offset)


def _changed(name: str, names: Sequence[str]) -> bool:
    return is_retired(name, names) or any(is_retired(each, [name]) for each in names)


def _different(wanted: pyarrow.Table, rows: pyarrow.Table) -> Iterator[int]:
    """Yield the offsets of rows that are not equal; both tables have the same offsets."""
    if wanted.equals(rows):
        return
    for one, other in zip(wanted.to_pylist(), rows.to_pylist(), strict=True):
        if repr(one) != repr(other):  # NaN equals NaN
            yield one["_offset"]


def _records(cluster: Log, topic: str, partition: int, span: tuple[int, int]) -> Iterator[Sequence[Record]]:
    place = TopicPartition(topic, partition)
    reader = cluster.reader()
    try:
        reader.assign(Positions({place: span[0]}))
        for records in up_to(Positions({place: span[1]}), reader, _SILENT_S):
            yield [each for each in records if each.offset < span[1]]
    finally:
        reader.close()
