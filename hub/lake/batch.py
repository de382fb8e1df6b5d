"""[shell] The next records of a topic, read and decoded up to a bound of rows and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow

from hub.errors import PeerError
from hub.lake.rows import rows_of
from hub.lake.schemas import LakeSchemas, Rejected
from hub.log import Reader, Unreadable
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.topics.dead_letters.model import dead_letter

MOST_ROWS, MOST_BYTES = 200_000, 64_000_000
_POLL = 5_000
_SILENT_S = 30.0
WRITER = "lake"
"""The name under which dead-letter records of the lake are listed."""


@dataclass(slots=True)
class LakeBatch:
    """Rows and dead-letter records of some records, and the positions after them.

    ``stopped``: partitions with a batch that cannot be unpacked, with the reason. ``newer_schema``: the
    next records need the columns of a schema version that was not known before.
    """

    tables: list[pyarrow.Table] = field(default_factory=list)
    dead: list[NewRecord] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    stopped: dict[int, str] = field(default_factory=dict)
    newer_schema: bool = False


def read_batch(
    reader: Reader,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    schemas: LakeSchemas,
    schema: pyarrow.Schema,
    going: Callable[[], bool] = lambda: True,
) -> LakeBatch:
    """Read records from ``starts`` until ``ends``, or until the batch is full.

    ``schema``: of the table. Ends before the first record of a schema version that is not known. ``going``:
    whether to read on. Raises HubError, such as HUB-3020 for offsets that are gone.
    """
    batch = LakeBatch(positions=dict(starts))
    wanted = {partition: end for partition, end in ends.items() if starts.get(partition, 0) < end}
    reader.assign(Positions({TopicPartition(topic, each): starts[each] for each in wanted}))
    answered_s = time.monotonic()
    while wanted and batch.rows < MOST_ROWS and batch.bytes < MOST_BYTES and going():
        try:
            records = reader.poll(_POLL, 0.2)
        except Unreadable as error:
            batch.stopped[error.place.partition] = error.message
            wanted.pop(error.place.partition, None)
            reader.assign(Positions({TopicPartition(topic, each): batch.positions[each] for each in wanted}))
            continue
        at = reader.position()
        moved = any(at.get(TopicPartition(topic, each)) != batch.positions[each] for each in wanted)
        if not all(map(schemas.knows, records)) and schemas.refresh():
            batch.newer_schema = True
            break
        take(batch, records, schemas, schema)
        for each in list(wanted):
            batch.positions[each] = at.get(TopicPartition(topic, each), batch.positions[each])
            if batch.positions[each] >= wanted[each]:
                del wanted[each]
        if moved:
            answered_s = time.monotonic()
        elif time.monotonic() - answered_s > _SILENT_S:
            raise PeerError(f'topic "{topic}" is not read to its end: nothing came for {_SILENT_S:g} s')
    return batch


def take(batch: LakeBatch, records: Sequence[Record], schemas: LakeSchemas, schema: pyarrow.Schema) -> None:
    """Add records to a batch: as rows, or as dead-letter records."""
    decoded = []
    for record in records:
        batch.bytes += len(record.value or b"") + len(record.key or b"")
        try:
            decoded.append(schemas.decoded(record))
        except Rejected as rejected:
            batch.dead.append(dead_letter(record, str(rejected), WRITER))
    if decoded:
        table, unfit = rows_of(decoded, schema)
        batch.dead += [dead_letter(record, reason, WRITER) for record, reason in unfit]
        batch.tables.append(table)
        batch.rows += table.num_rows
