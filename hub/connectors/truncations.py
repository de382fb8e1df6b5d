"""[core] Deletions for the rows that a TRUNCATE of a database removed.

A truncation is one event of its table (``op`` t), without keys, so no view can tell which of its rows it
concerns. This finds the rows that the topic still has from before it. Each gets the event that a DELETE would
have written, with the truncation's place in the database's log (``_lsn``), so that rows that were inserted
later stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.errors import CallerError, ConfigError
from hub.record import NewRecord, Record

MOST_ROWS = 1_000_000
_ROW_OPS = ("c", "r", "u")
RowKey = tuple[int, bytes]
"""(partition, record key)"""


@dataclass
class TruncatedRows:
    """State of reading a topic. ``rows``: by key, LSN and last event of each row that exists. ``truncation``:
    the last one's envelope, without rows.
    """

    topic: str
    rows: dict[RowKey, tuple[int, bytes]] = field(default_factory=dict)
    truncation: Mapping[str, Any] | None = None
    truncations: int = 0

    def apply(self, record: Record) -> None:
        """Apply the next record. Raises CallerError for an event in another format than JSON, ConfigError
        for too many rows.
        """
        if record.key is not None and record.value is None:
            self.rows.pop((record.partition, record.key), None)
        if record.value is None:
            return
        envelope = envelope_of(record)
        op, lsn = envelope.get("op"), lsn_of(envelope)
        if op == "t":
            self.truncations += 1
            if self.truncation is None or lsn >= lsn_of(self.truncation):
                self.truncation = envelope
        elif record.key is not None and op in _ROW_OPS:
            self.rows[record.partition, record.key] = (lsn, record.value)
            if len(self.rows) > MOST_ROWS:
                raise ConfigError(
                    f'topic "{self.topic}" has more than {MOST_ROWS:,} rows',
                    hint="delete the rows in the database with DELETE",
                    code="HUB-1463",
                )
        elif record.key is not None and op == "d":
            self.rows.pop((record.partition, record.key), None)

    def deletions(self) -> list[NewRecord]:
        """Return a deletion and a tombstone for each row that is older than the last truncation."""
        if self.truncation is None:
            return []
        until = lsn_of(self.truncation)
        records: list[NewRecord] = []
        for (partition, key), (lsn, value) in self.rows.items():
            if lsn < until:
                body = orjson.dumps(_deleted(orjson.loads(value), self.truncation))
                records.append(NewRecord(self.topic, key, body, partition=partition))
                records.append(NewRecord(self.topic, key, None, partition=partition))
        return records


def envelope_of(record: Record) -> Mapping[str, Any]:
    """Return the envelope of a change event in JSON, with or without Connect's schema. Raises CallerError."""
    try:
        body = orjson.loads(record.value or b"")
        envelope = body.get("payload", body)
        if "op" not in envelope:
            raise ValueError("it has no op")
    except (ValueError, AttributeError, TypeError):
        raise CallerError(
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: no change event in'
            " JSON",
            hint="only topics with Connect's JSON converter can be read; for others delete rows with DELETE",
            code="HUB-1464",
        ) from None
    found: Mapping[str, Any] = envelope
    return found


def lsn_of(envelope: Mapping[str, Any]) -> int:
    """Return a change's place in the database's log; 0 when it has none."""
    source = envelope.get("source")
    lsn = source.get("lsn") if isinstance(source, Mapping) else None
    return lsn if isinstance(lsn, int) else 0


def _deleted(event: dict[str, Any], truncation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deletion of a row, in the form of its last event."""
    row = event.get("payload", event)
    deletion = {
        **row,
        "before": row["after"],
        "after": None,
        "op": "d",
        "source": truncation.get("source"),
        "ts_ms": truncation.get("ts_ms"),
    }
    return {**event, "payload": deletion} if "payload" in event else deletion
