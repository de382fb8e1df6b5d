"""A query service over a store with two views and an in-memory log, for unit tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sql_cases import fill

from hub.api.app import on_hub_error
from hub.errors import HubError, NotFound
from hub.log import MemoryCluster
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http.routes import create_router
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import NewRecord, Positions
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource

ORDERS = "shop.orders"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"}],
}


class OneSchema:
    """A registry with one schema, of ``ORDERS``."""

    def versions(self, subject: str) -> list[RegisteredSchema]:
        return [RegisteredSchema(1, 1, json.dumps(ORDER))] if subject == f"{ORDERS}-value" else []

    def subjects_of(self, schema_id: int) -> list[str]:
        return [f"{ORDERS}-value"] if schema_id == 1 else []

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id != 1:
            raise NotFound(f"schema {schema_id} not found")
        return SchemaSource.of("AVRO", json.dumps(ORDER))


class QueryHub:
    """The service, its app, and ways to publish events and to change rows of the view ``plant``."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(f"sqlite:///{folder / 'store.db'}")
        fill(self.store)
        self.queries = QueryExecutor(self.store)
        self.cluster = MemoryCluster()
        self.cluster.create_topic(ORDERS, partitions=1, config={}, replication_factor=1)
        self.watcher = Watcher(self.store)
        topics = TopicTables(self.cluster, OneSchema())  # type: ignore[arg-type]
        self.service = QueryService.of(self.store, self.watcher, self.queries, topics, folder, 3_000)
        self.app = FastAPI()
        self.app.add_exception_handler(HubError, on_hub_error)
        self.app.include_router(create_router(self.service))

    def order(self, number: int, at_ms: int = 0) -> None:
        value = encode(1, parsed(ORDER), {"id": f"o{number}", "cents": number * 100})
        self.publish(value, at_ms)

    def publish(self, value: bytes, at_ms: int = 0) -> None:
        self.cluster.writer().append([NewRecord(ORDERS, b"k", value, timestamp_ms=at_ms)])

    def change(self, key: str, values: dict[str, Any] | None, offset: int) -> None:
        row = RowVersion(key, offset, 0, offset, values)
        covered = Positions.of([("in", 0, offset)])
        self.store.apply([ViewBatch("plant", [row], Positions.of([("views.plant", 0, offset + 1)]), covered)])

    def close(self) -> None:
        self.queries.close()
        self.store.close()
