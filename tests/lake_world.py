"""A lake in memory and in a folder: a log in memory, a registry of subjects, tables in SQLite and files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import fastavro

from hub.config import Settings
from hub.errors import NotFound
from hub.iceberg.catalog import identifier_of, open_catalog
from hub.kafka import KafkaCluster
from hub.lake.table import LakeTable, open_table
from hub.lake.writer import LakeWriter
from hub.log import MemoryCluster
from hub.record import Headers, NewRecord
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.compat.resolved_schema import SchemaSource

DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000


@dataclass
class MemoryRegistry:
    """Subjects with versions, as the lake asks for them."""

    subjects: dict[str, list[RegisteredSchema]] = field(default_factory=dict)
    sources: dict[int, SchemaSource] = field(default_factory=dict)

    def add(self, topic: str, schema: object, schema_type: str = "AVRO") -> int:
        """Register a version; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        versions = self.subjects.setdefault(f"{topic}-value", [])
        number = len(self.sources) + 1
        self.sources[number] = SchemaSource.of(schema_type, text)
        versions.append(RegisteredSchema(number, len(versions) + 1, text, schema_type))
        return number

    def known_latest(self, subject: str) -> RegisteredSchema | None:
        return (self.subjects.get(subject) or [None])[-1]

    def versions(self, subject: str) -> list[RegisteredSchema]:
        return list(self.subjects.get(subject, []))

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id not in self.sources:
            raise NotFound(f"schema {schema_id} does not exist")
        return self.sources[schema_id]


@dataclass
class LakeWorld:
    """One topic, its table and a writer of it."""

    home: Path
    topic: str = "shop.orders"
    partitions: int = 2
    more: Mapping[str, Any] = field(default_factory=dict)
    now_s: float = NOON_MS / 1_000

    def __post_init__(self) -> None:
        self.settings = Settings(home=self.home, project=self.home, **self.more)
        self.cluster = MemoryCluster()
        self.registry = MemoryRegistry()
        self.cluster.create_topic(self.topic, partitions=self.partitions, config={}, replication_factor=1)

    def writer(self) -> LakeWriter:
        """Return a new writer, as after a restart."""
        return LakeWriter(
            self.settings,
            cast(KafkaCluster, self.cluster),
            cast(RegistryClient, self.registry),
            lambda: [self.topic],
            lambda: self.now_s,
            self.cluster.reader,
        )

    def write(
        self,
        schema_id: int,
        *values: Mapping[str, Any],
        at_ms: int = NOON_MS,
        partition: int = 0,
        headers: Headers = (),
    ) -> None:
        """Write Avro events with keys k0, k1, … to a partition."""
        schema = json.loads(self.registry.sources[schema_id].text)
        records = [
            NewRecord(self.topic, b"k%d" % n, framed(schema_id, schema, value), headers, at_ms, partition)
            for n, value in enumerate(values)
        ]
        self.cluster.writer().append(records)

    def table(self) -> LakeTable:
        return open_table(open_catalog(self.settings), identifier_of(self.settings, self.topic))

    def rows(self, *names: str) -> list[dict[str, Any]]:
        """Return the table's rows in the order of partition and offset; some columns, or all."""
        found = self.table().table.scan().to_arrow()
        found = found.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        rows: Sequence[dict[str, Any]] = (found.select(names) if names else found).to_pylist()
        return list(rows)


def framed(schema_id: int, schema: Any, value: Mapping[str, Any]) -> bytes:
    """Return an event's bytes in the wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()
