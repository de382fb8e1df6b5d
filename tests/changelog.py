"""A changelog in memory, an applier and a real store:
what the tests of stores, of appliers and of push share."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hub.errors import NotFound, PeerError
from hub.log import MemoryCluster
from hub.materializers.applying.applier import Applier
from hub.materializers.definition.entity_view import View
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord, Positions
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.wire_format import encode, parsed

CHANGELOG = "views.v"
NULLABLE = [("city", ["null", "string"]), ("points", ["null", "long"])]
META = [
    {"name": "_version", "type": "long"},
    {"name": "_sources", "type": ["null", "string"], "default": None},
]


def schema(*more: tuple[str, Any]) -> dict[str, Any]:
    columns = [{"name": name, "type": kind, "default": None} for name, kind in (*NULLABLE, *more)]
    return {"type": "record", "name": "v", "fields": [*columns, *META]}


class Schemas:
    """The registry, in memory."""

    def __init__(self) -> None:
        self.texts = [json.dumps(schema())]

    def schema(self, schema_id: int) -> str:
        if not 1 <= schema_id <= len(self.texts):
            raise NotFound(f"schema {schema_id} not found")
        return self.texts[schema_id - 1]

    def latest(self, subject: str) -> RegisteredSchema:
        return RegisteredSchema(len(self.texts), len(self.texts), self.texts[-1])


class Cluster(MemoryCluster):
    def publish_groups(self, positions: Mapping[str, Positions]) -> Mapping[str, PeerError]:
        return {}


class Bench:
    """A changelog of two partitions, an applier, a store (a URL, or the folder of an SQLite file)."""

    def __init__(self, store: Path | str) -> None:
        self.cluster = Cluster()
        self.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
        self.cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.schemas = Schemas()
        self.store = Store(store if isinstance(store, str) else f"sqlite:///{store / 'store.db'}")
        self.view = View.model_validate(
            {
                "view": "v",
                "sources": {"s": {"topic": "in", "key": "k"}},
                "fields": {"city": "s.city", "points": "s.points"},
                "indexes": ["city"],
            }
        )
        self.applier = self.restarted()

    def restarted(self) -> Applier:
        applier = Applier(self.cluster, self.schemas, self.store)
        applier.follow([self.view])
        return applier

    def write_history(self) -> None:
        """300 versions over 40 keys: tombstones, empty columns, and what a zombie writes again."""
        chance = random.Random(4)
        for version in range(1, 301):
            row = (
                None
                if chance.random() < 0.2
                else {"points": version, "city": chance.choice(["Oslo", "n\0l", None])}
            )
            self.write(f"k{chance.randrange(40)}", version, row)
            if chance.random() < 0.2:
                self.write(f"k{chance.randrange(40)}", 1, {"points": 0})  # a zombie

    def write(self, key: str, version: int, row: dict[str, Any] | None, schema_id: int = 1) -> None:
        value = None
        if row is not None:
            with_version = {"city": None, "points": None, **row, "_version": version}
            value = encode(schema_id, parsed(json.loads(self.schemas.schema(schema_id))), with_version)
        headers = (("hub.version", str(version).encode()),)
        self.cluster.writer().append([NewRecord(CHANGELOG, key.encode(), value, headers)])

    def tell(self, source_offset: int, generation: int = 0) -> None:
        """A progress record that speaks of the changelog as it is now."""
        end = self.cluster.end_offsets([CHANGELOG])
        sources = Positions.of([("in", 0, source_offset)])
        progress = Progress("v", generation, source_offset, "live", sources, end, 1, 1, 1)
        self.cluster.writer().append([progress.record()])

    def drain(self) -> None:
        while self.applier.step(0):
            pass

    def rows(self) -> dict[str, Any]:
        return {row.key: (row.values or {})["points"] for row in self.store.select("v", [], 1_000, None)}
