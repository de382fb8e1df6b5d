"""[edge] Facts of a project for the governance report: its files, the tags of schemas, origins of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from hub.access.masking.facts import MaskFacts, ViewColumns
from hub.backup.storage.last_run import last_runs
from hub.config import Settings
from hub.errors import ConfigError, PeerError
from hub.governance.model import GovernanceFacts, GovernedTopic, ViewNode, Way
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_views
from hub.materializers.definition.sql_view import SqlView
from hub.observability.format import duration
from hub.replication.config.load_mirrors import load as load_mirrors
from hub.replication.config.mirrors import MIRRORS_FILE, MirrorsFile
from hub.sinks.sinks_file import SINKS_FILE, SinkEntry, load_sinks
from hub.topics.tree.live_rules import TOPICS_FILE
from hub.topics.tree.tree import TopicSpec, load, matches
from hub.yaml import is_there

T = TypeVar("T")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


Declared = Callable[[View | SqlView, Collection[str]], ViewColumns]
"""Returns the facts of a view's file, with the topics that its patterns may stand for."""


def governance_facts(
    settings: Settings, masks: MaskFacts, declared: Declared, mirrors_file: Path | None = None
) -> GovernanceFacts:
    """Return the facts of a project. ``mirrors_file``: None for that of the project. Raises ConfigError for
    topics.yaml; other files that cannot be read are in ``unread``."""
    project, unread = settings.project.expanduser(), list[str]()
    mirrors = _mirrors(mirrors_file or project / MIRRORS_FILE, unread)
    sinks = _sinks(project, unread)
    backups = [Way("backup", run.place) for run in last_runs(settings.home)]
    specs = load(project / TOPICS_FILE).topics if is_there(project / TOPICS_FILE) else ()

    def leaving(topic: str, *, lake: bool) -> tuple[Way, ...]:
        found = [*sinks.get(topic, ()), *_mirrored(mirrors, topic)]
        return (*found, *([Way("lake", "Iceberg")] if lake else []), *backups)

    topics = {each.name: _topic(each, masks, leaving(each.name, lake=each.lake)) for each in specs}
    views = load_views(project, lambda path, _error: unread.append(f"views/{path.name}"))
    return GovernanceFacts(
        topics,
        {
            each.name: _view(
                each, masks, declared(each, topics), leaving(changelog_of(each.name), lake=False)
            )
            for each in views
        },
        tuple(unread),
    )


def _topic(spec: TopicSpec, masks: MaskFacts, ways: tuple[Way, ...]) -> GovernedTopic:
    return GovernedTopic(
        spec.name,
        spec.owner,
        spec.purpose,
        spec.tags,
        _known(lambda: masks.topic(spec.name).fields) or None,
        retention_of(spec.config),
        spec.legal_hold or "",
        spec.erasable.by if spec.erasable is not None else "",
        ways,
    )


def retention_of(config: Mapping[str, str]) -> str:
    """Return how long records stay; "" where the brokers' default decides.

    >>> retention_of({"retention.ms": "-1"}), retention_of({"cleanup.policy": "compact"}), retention_of({})
    ('forever', 'newest of each key', '')
    """
    policy, ms = config.get("cleanup.policy", ""), config.get("retention.ms", "")
    if policy == "compact":
        return "newest of each key"
    if not ms:
        return ""
    return "forever" if ms == "-1" else duration(float(ms)).removesuffix(" 0 h")


def _view(view: View | SqlView, masks: MaskFacts, declared: ViewColumns, ways: tuple[Way, ...]) -> ViewNode:
    """Return a view by its file and by its running versions: while one replaces another, both hold."""
    running = _known(lambda: masks.view(view.name))
    columns = dict(declared.columns)
    for name, origins in (running.columns if running is not None else {}).items():
        known = columns.get(name, ())
        columns[name] = None if known is None or origins is None else tuple(dict.fromkeys((*known, *origins)))
    sources = (*declared.sources, *(running.sources if running is not None else ()))
    return ViewNode(view.name, view.owner, columns, tuple(dict.fromkeys(sources)), _kept(view), ways)


def _kept(view: View | SqlView) -> str:
    rows = f"rows for {view.ttl}" if view.ttl else "rows until they are deleted"
    return f"{rows}, versions for {view.history}" if view.history else rows


def _known(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except PeerError:
        return None


def _mirrors(path: Path, unread: list[str]) -> MirrorsFile | None:
    try:
        return load_mirrors(path) if is_there(path) else None
    except ConfigError:
        unread.append(path.name)
        return None


def _mirrored(mirrors: MirrorsFile | None, topic: str) -> Iterable[Way]:
    for name, mirror in mirrors.mirrors.items() if mirrors is not None else ():
        if mirror.selects(topic):
            hidden = [
                field
                for rule in mirror.mask
                if any(matches(pattern, topic) for pattern in rule.topics)
                for field in rule.fields
            ]
            yield Way("mirror", name, mirror.target, None, frozenset(hidden))


def _sinks(project: Path, unread: list[str]) -> Mapping[str, list[Way]]:
    try:
        sinks, wrong = load_sinks(project / SINKS_FILE)
    except ConfigError:
        unread.append(SINKS_FILE)
        return {}
    unread += [f"{SINKS_FILE}: {name}" for name in wrong]
    found: dict[str, list[Way]] = {}
    for name, entry in sinks.items():
        copied = entry.topic.name if entry.topic is not None else ""
        way = Way("sink", name, "", selected_fields(entry), to_topic=copied)
        for topic in entry.topics:
            found.setdefault(topic, []).append(way)
    return found


def selected_fields(entry: SinkEntry) -> frozenset[str] | None:
    """Return the names in the selection of a sink; None: it sends everything."""
    if not entry.fields:
        return None
    return frozenset(name for text in entry.fields for name in _NAMES.findall(text))
