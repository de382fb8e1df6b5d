"""[edge] The changes that a batch makes to the view, as records of its changelog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hub.log import Writer
from hub.materializers.spark.dataframes import VERSION_HEADER
from hub.materializers.spark.delta.stage_query import RECORD_KEY, VALUE
from hub.materializers.spark.delta.state import EMIT_ROWS, DeltaState
from hub.record import NewRecord


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


def emit(emitted: Emitted, writer: Writer, topic: str) -> None:
    """Append a batch's records to the changelog, in bounded pieces. A replay appends the same
    records again."""
    waiting: list[NewRecord] = []
    for record in emitted.records(topic):
        waiting.append(record)
        if len(waiting) >= EMIT_ROWS:
            writer.append(waiting)
            waiting = []
    if waiting:
        writer.append(waiting)
