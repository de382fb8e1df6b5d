"""[edge] Open the requests for access of a server, and the rules of grants with ``until``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from fastapi import FastAPI

from hub.access.access_yaml import ACCESS_FILE
from hub.access.live_config import LiveAccess
from hub.access_requests import routes
from hub.access_requests.access_file import AccessEditor
from hub.access_requests.asking import AccessRequests
from hub.access_requests.log import request_log
from hub.access_requests.model import DAY_MS
from hub.access_requests.owners import OwnerFacts
from hub.access_requests.runner import RequestRunner
from hub.access_requests.timed_rules import TimedRules
from hub.api.granting import page
from hub.api.masking.install import open_masks
from hub.api.masking.view_origins import declared_facts
from hub.config import Settings
from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.governance import routes as governance_routes
from hub.governance.facts import governance_facts
from hub.governance.flows_file import load_flows
from hub.kafka import KafkaCluster
from hub.materializers.definition.load import load_views, view_files
from hub.materializers.progress.store_watch import StoreWatch
from hub.materializers.serving.watcher import Watcher
from hub.runtime import repeating
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.server.node import RegistryNode
from hub.times import epoch_ms
from hub.topics.editing.editor import TopicEditor
from hub.topics.tree.live_rules import TOPICS_FILE
from hub.topics.tree.tree import load
from hub.topics.tree.tree_file import TreeFile
from hub.yaml import load_model

_LOOK_S = 2.0


def open_access(
    app: FastAPI,
    settings: Settings,
    cluster: KafkaCluster,
    live: LiveAccess,
    node: RegistryNode,
    watcher: Watcher,
    news: StoreWatch,
    opened: AsyncExitStack,
) -> None:
    """Open the masks, the requests for access, and the governance report. Blocks. Raises ConfigError."""
    open_masks(settings, live, node, watcher.store, news.over)
    add_access_requests(app, settings, cluster, live, opened)
    sources = live.mask_sources
    app.include_router(
        governance_routes.create_router(
            lambda: governance_facts(settings, sources.require_facts(), declared_facts),
            live,
            lambda: load_flows(settings.project.expanduser()),
        )
    )


def add_access_requests(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, live: LiveAccess, opened: AsyncExitStack
) -> None:
    """Add the routes and the page, and start the threads that carry out what is due. Raises ConfigError."""
    project, copies = settings.project.expanduser(), settings.replication_factor
    log = request_log(cluster, copies)
    access = AccessEditor(project / ACCESS_FILE, cluster, copies)
    topics = TopicEditor(project / TOPICS_FILE, cluster, RegistryClient(settings.registry), copies)
    open_ms = int(settings.access_request_open_days * DAY_MS)
    owners = LiveOwners(project)
    requests = AccessRequests(
        log, live, access, topics, owners.facts, open_ms, settings.access_request_most_days, epoch_ms
    )
    app.include_router(routes.create_router(requests))
    app.include_router(page.create_router(requests))
    kept_ms = int(settings.access_request_kept_days * DAY_MS)
    noted = app.state.access_log if settings.writes_access_log else None
    runner = RequestRunner(log, access, topics, open_ms, kept_ms, noted, epoch_ms)
    own = settings.sasl.username if settings.sasl is not None else None
    rules = TimedRules(live, cluster, own, epoch_ms)
    steps = [(runner.step, "access-requests", "requests for access are not carried out now")]
    if settings.apply_timed_grants:
        steps.append((rules.step, "timed-grants", "access rules of Kafka do not follow `until` now"))
    for step, name, failed in steps:
        opened.enter_context(
            repeating(step, name=name, pause_s=lambda took_s: max(_LOOK_S, 2 * took_s), failed=failed)
        )


class LiveOwners:
    """Owners of a project's files, which are read again when one of them changed."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._known: tuple[Mapping[Path, Stamp | None], OwnerFacts] | None = None

    def facts(self) -> OwnerFacts:
        files = [self._project / TOPICS_FILE, *view_files(self._project)]
        stamps = {path: stamp_if_there(path) for path in files}
        if self._known is None or self._known[0] != stamps:
            self._known = stamps, owner_facts(self._project)
        return self._known[1]


def owner_facts(project: Path) -> OwnerFacts:
    """Return the owners of a project's files. A file that cannot be read has none: admins answer then."""
    path = project / TOPICS_FILE
    try:
        tree = load_model(path, TreeFile) if path.exists() else TreeFile(topics={})
        topics = {each.name: each.owner for each in load(path).topics} if path.exists() else {}
    except ConfigError:
        tree, topics = TreeFile(topics={}), {}
    views = {each.name: each.owner for each in load_views(project, lambda _path, _error: None)}
    return OwnerFacts(topics, views, tree)
