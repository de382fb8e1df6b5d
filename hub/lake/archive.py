"""[shell] Archives of topics for queries: their tables, opened when a query reads the whole past."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hub.config import Settings
from hub.errors import NotFound
from hub.log import Log
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.queries.whole_topic import ArchivedTopic
from hub.schema_registry.client.port import SchemaRegistry

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass
class LakeArchive:
    """Implements TopicArchive. Thread-safe. pyiceberg is imported by the first query that needs it."""

    settings: Settings
    registry: SchemaRegistry
    _catalog: Catalog | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, topic: str, topic_id: str) -> ArchivedTopic | None:
        """Implements TopicArchive."""
        from hub.iceberg.catalog import catalog_exists, identifier_of, open_catalog
        from hub.lake.archived_table import ArchivedTable
        from hub.lake.schemas import LakeSchemas
        from hub.lake.table import check_same_topic, open_table

        with self._lock:
            if self._catalog is None:
                if not catalog_exists(self.settings):
                    return None
                self._catalog = open_catalog(self.settings)
            try:
                table = open_table(self._catalog, identifier_of(self.settings, topic))
            except NotFound:
                return None
        check_same_topic(table, topic, topic_id)
        schemas = LakeSchemas(self.registry, topic)
        schemas.refresh()
        return ArchivedTable(topic, table, schemas.versions)

    def close(self) -> None:
        with self._lock:
            if self._catalog is not None:
                self._catalog.close()
                self._catalog = None


@contextmanager
def topic_tables(settings: Settings, cluster: Log, registry: SchemaRegistry) -> Iterator[TopicTables]:
    """Yield topics as tables of queries, with their archives."""
    with closing(LakeArchive(settings, registry)) as archive:
        yield TopicTables(cluster, registry, archive)
