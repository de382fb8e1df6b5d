"""[shell] Recent events of a topic, as the caller sees them, within limits of events, bytes and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from hub.caller import topic_visibility
from hub.errors import NotFound
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_columns import VALUE
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.types.avro_types import AvroType, spark_types
from hub.materializers.types.source_formats import of_registry
from hub.schema_registry.formats import InvalidSchema

MOST_EVENTS = 200
MOST_BYTES = 1_000_000
_READ_S = 10.0
_WANTED = frozenset(("_partition", "_offset", "_timestamp", "_key", "_deleted", VALUE))


@dataclass(frozen=True, slots=True)
class SampledEvent:
    """One event. ``value``: as JSON, as it was written; None: a tombstone."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    key: str | None
    value: Any


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The newest events of a topic, oldest first. ``unreadable``: events that have no JSON value."""

    events: tuple[SampledEvent, ...]
    unreadable: int = 0


def sample(topics: TopicTables, topic: str, most: int) -> TopicSample:
    """Read the newest events of a topic, at most ``most``. Raises NotFound, MaskRefused, PeerError."""
    topic_visibility(topic).require_readable("the workbench")
    table = topics.table(topic)
    if table is None:
        raise NotFound(f'topic "{topic}" does not exist', hint="GET /topics lists the topics")
    read, scanned = topics.read(table, _WANTED, RunningQuery(time.monotonic() + _READ_S), last=most)
    names = [*table.columns, *table.hidden]
    rows = [dict(zip(names, row, strict=True)) for row in read.rows]
    rows.sort(key=lambda row: (row["_timestamp"], row["_partition"], row["_offset"]), reverse=True)
    events: list[SampledEvent] = []
    weight = 0
    for row in rows[:most]:
        text = row.get(VALUE)
        weight += len(text or "")
        if weight > MOST_BYTES and events:
            break
        value = None if text is None or row["_deleted"] else orjson.loads(text)
        place = (row["_partition"], row["_offset"], row["_timestamp"])
        events.append(SampledEvent(topic, *place, row["_key"], value))
    return TopicSample(tuple(reversed(events)), sum(each.unreadable for each in scanned))


def newest_schema(topics: TopicTables, topic: str) -> AvroType | None:
    """Return the newest schema of a topic's values, as columns; None without one that views read."""
    versions = topics.schemas.versions(f"{topic}-value")
    try:
        return of_registry(topics.schemas.source(versions[-1].id)) if versions else None
    except InvalidSchema:
        return None


def visible_fields(topics: TopicTables, topic: str) -> dict[str, str]:
    """Return the fields of a topic that the caller sees, with their types in Spark SQL. Raises NotFound."""
    table, schema = topics.table(topic), newest_schema(topics, topic)
    if table is None:
        raise NotFound(f'topic "{topic}" does not exist', hint="GET /topics lists the topics")
    known = {} if schema is None else spark_types(schema)
    return {name: known[name] for name in known if name in table.columns}
