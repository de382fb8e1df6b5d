"""[shell] The newest row of each key of a changelog's records, chosen before they are decoded; for a history
all rows that replace another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hub.materializers.changelog.record import key_of, version_of
from hub.materializers.changelog.row_decoder import DecodedRow, RowDecoder, provenance, unreadable
from hub.materializers.progress.latency import MOST_ROWS, ChangedRow, latest_event
from hub.materializers.stores.store import RowVersion
from hub.record import Record


@dataclass(frozen=True, slots=True)
class NewestRows:
    """Chosen records of a changelog, with their versions, and the rows (None: deleted)."""

    of: Sequence[Record]
    records: Sequence[tuple[int, Record]]
    rows: Sequence[DecodedRow | None]

    def is_of(self, records: Sequence[Record]) -> bool:
        """Return whether these are the records. A step's records of one changelog are contiguous."""
        return len(records) == len(self.of) and records[0] is self.of[0]


def newest_rows(decoder: RowDecoder, records: Sequence[Record], *, every: bool = False) -> NewestRows:
    """Return the newest row of each key, decoded. Raises HubFault with topic, partition and offset.

    ``every``: also each row before it that replaced another, for a history.
    """
    newest: dict[bytes, tuple[int, Record]] = {}
    replacing: list[tuple[int, Record]] = []
    for record in records:
        version = version_of(record)
        if record.key is None:
            raise unreadable(record, record.unread or "it has no key")
        if record.key not in newest or newest[record.key][0] < version:
            newest[record.key] = (version, record)
            if every:
                replacing.append((version, record))
    kept = replacing if every else list(newest.values())
    return NewestRows(records, kept, decoder.rows([record for _, record in kept]))


def row_changes(newest: NewestRows, *, sampled: bool) -> tuple[list[RowVersion], list[ChangedRow]]:
    """Return the change of each key, and a sample of at most ``MOST_ROWS`` rows for measuring latency, empty
    unless ``sampled``."""
    changes: list[RowVersion] = []
    samples: list[ChangedRow] = []
    total = len(newest.records)
    every = -(-total // MOST_ROWS) if sampled else 0
    for index, ((version, record), row) in enumerate(zip(newest.records, newest.rows, strict=True)):
        origins = provenance(record) if row is None else row.get("_sources")
        place = (record.partition, record.offset)
        changes.append(RowVersion(key_of(record), version, *place, row, origins, record.timestamp_ms))
        if every and index % every == 0:
            event = latest_event(origins) if isinstance(origins, dict) else None
            if event is not None:
                samples.append(ChangedRow(*event, record.timestamp_ms, min(every, total - index)))
    return changes, samples
