"""[edge] The web app over the running hub: what its pages ask (hub.observability.web.pages.estate), answered by all packages.

Here, because siblings do not know each other: views are materializers', mirrors replication's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.routes import describe as describe_view
from hub.materializers.saved_queries import load_queries
from hub.materializers.stores.sql import Store
from hub.materializers.version_routes import view_versions
from hub.observability.collector import Collector
from hub.observability.monitor import Monitor
from hub.observability.overview import lag_rows
from hub.observability.reports import ViewSource
from hub.observability.web.pages.estate import Estate, NodeSchemas
from hub.observability.web.pages.routes import create_router
from hub.schema_registry.client import RegistryClient
from hub.schema_registry.node import Node
from hub.topics.browse import Browser
from hub.topics.describe import TopicFacts, describe
from hub.topics.tree import LiveTree

# A part of a page waits for it, not the page.
DESCRIBE_S = 5.0


def add_pages(
    app: FastAPI,
    settings: Settings,
    node: Node,
    store: Store,
    collector: Collector,
    monitor: Monitor,
    rows: ViewSource,
    tree: LiveTree,
) -> None:
    """The pages, first: programs' routes at the same addresses come behind them."""
    cluster = KafkaCluster(settings.bootstrap, min(settings.kafka_timeout_s, DESCRIBE_S))
    registry = RegistryClient(settings.registry, DESCRIBE_S)

    def described(topic: str) -> TopicFacts:
        return describe(topic, tree.topics().get(topic), cluster, registry, DESCRIBE_S)

    estate = Estate(
        topics=collector,
        rows=rows,
        registry=node,
        browser=Browser(cluster, NodeSchemas(node)),
        describe=described,
        tree=tree.topics,
        lag=lambda: monitor.rows() or lag_rows(collector.overview()),
        views=StoreFacts(store),
        saved=lambda: _saved(settings.project),
    )
    # Behind all others they would never be asked: the addresses of some are a program's, too.
    routes, others = app.router.routes, len(app.router.routes)
    app.include_router(create_router(estate))
    routes[:] = routes[others:] + routes[:others]


@dataclass(frozen=True)
class StoreFacts:
    """See hub.observability.web.pages.estate.HasViews."""

    store: Store

    def describe(self, view: str) -> Mapping[str, Any]:
        return describe_view(self.store, view)

    def versions(self, view: str) -> Mapping[str, Any]:
        return view_versions(self.store, view)


def _saved(project: Path) -> Sequence[Mapping[str, Any]]:
    return [{"name": each.name, "doc": each.doc, "sql": each.sql} for each in load_queries(project)]
