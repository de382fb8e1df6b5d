"""[edge] Facts of a project for ``places.py``, from its files: topics, views, sinks, mirrors, backups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from hub.backup.storage.last_run import last_runs
from hub.config import Settings
from hub.config.views import SERVING
from hub.erasure.places import ProjectFacts, SinkFacts, TopicPlace, ViewPlace
from hub.errors import ConfigError
from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_views
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.plans.definitions import in_place
from hub.materializers.stores.open_store import kind_of
from hub.replication.config.load_mirrors import load as load_mirrors
from hub.replication.config.mirrors import MIRRORS_FILE, Mirror
from hub.sinks.sinks_file import SINKS_FILE, SinkEntry, load_sinks
from hub.topics.tree.live_rules import TOPICS_FILE
from hub.topics.tree.tree import load as load_tree
from hub.yaml import is_there

T = TypeVar("T")


def project_facts(settings: Settings) -> ProjectFacts:
    """Return the facts of a project. Raises ConfigError for topics.yaml; other files that cannot be read are
    in ``unread``.
    """
    project, unread = settings.project.expanduser(), list[str]()

    def read(name: str, look: Callable[[], T], without: T) -> T:
        try:
            return look()
        except ConfigError:
            unread.append(name)
            return without

    mirrors_file = project / MIRRORS_FILE
    mirrors: dict[str, Mirror] = {}
    if is_there(mirrors_file):
        mirrors = read(MIRRORS_FILE, lambda: dict(load_mirrors(mirrors_file).mirrors), {})
    topics = [
        TopicPlace(
            each.name,
            each.erasable is not None,
            each.legal_hold,
            each.lake,
            tuple(name for name, mirror in mirrors.items() if mirror.selects(each.name)),
        )
        for each in load_tree(project / TOPICS_FILE).topics
    ]
    views = [
        _view(each, settings)
        for each in load_views(project, lambda path, _error: unread.append(f"views/{path.name}"))
    ]
    no_sinks: tuple[Mapping[str, SinkEntry], Mapping[str, ConfigError]] = ({}, {})
    sinks, wrong = read(SINKS_FILE, lambda: load_sinks(project / SINKS_FILE), no_sinks)
    unread += [f"{SINKS_FILE}: {name}" for name in wrong]
    of_views = [
        SinkFacts(name, each.source.removeprefix(CHANGELOG_PREFIX), each.kind)
        for name, each in sinks.items()
        if each.of_view
    ]
    backups = [run.place for run in last_runs(settings.home)]
    return ProjectFacts(topics, views, of_views, backups, unread)


def _view(view: View | SqlView, settings: Settings) -> ViewPlace:
    sources = [each.topic for each in view.sources.values()]
    opens = [each.topic for each in view.sources.values() if getattr(each, "decrypt", False)]
    reads = [
        each.removeprefix(CHANGELOG_PREFIX).partition(".")[0]
        for each in sources
        if each.startswith(CHANGELOG_PREFIX)
    ]
    urls = settings.store_urls
    names = [SERVING, *(each for each in view.stores if each in urls and each != SERVING)]
    stores = tuple((name, kind_of(urls[name])) for name in names)
    return ViewPlace(view.name, tuple(opens), tuple(reads), stores, in_place(view, settings))
