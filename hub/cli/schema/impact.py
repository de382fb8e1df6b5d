"""[edge] Impact of a folder plan: views and saved queries that would break, consumer groups that read the
topics.

Impact never blocks a plan: an unreadable file is named and left out, and so is a Kafka that does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hub.cli.terminal.output import note
from hub.config import Settings
from hub.errors import ConfigError, HubError

if TYPE_CHECKING:
    from hub.materializers.definition.entity_view import View
    from hub.materializers.definition.schema_impact import ColumnImpact
    from hub.materializers.definition.sql_view import SqlView
    from hub.materializers.queries.saved_queries import QueryImpact, SavedQuery
    from hub.schema_registry.folder.plan import FolderItem, FolderPlan
    from hub.topics.browse.readers import GroupReader

READERS_WAIT_S = 4.0  # all questions together
_ANSWER_S = 2.0  # each of them


@dataclass(frozen=True, slots=True)
class Touched:
    """Impact on one subject: views and queries that break, and readers of its topic."""

    views: Sequence[ColumnImpact] = ()
    queries: Sequence[QueryImpact] = ()
    readers: Sequence[GroupReader] = ()

    def lines(self) -> list[str]:
        return [str(each) for each in (*self.views, *self.queries, *self.readers)]

    def as_json(self) -> dict[str, object]:
        return {
            "impacts": [{"view": each.view, "column": each.column, "what": str(each)} for each in self.views],
            "queries": [
                {"query": each.query, "file": each.path, "column": each.column, "what": str(each)}
                for each in self.queries
            ],
            "readers": [
                {
                    "group": each.group,
                    "active": each.active,
                    "clients": list(each.clients),
                    "lag_records": each.lag_records,
                }
                for each in self.readers
            ],
        }


NOBODY = Touched()


@dataclass
class _Found:
    views: list[ColumnImpact] = field(default_factory=list)
    queries: list[QueryImpact] = field(default_factory=list)
    readers: Sequence[GroupReader] = ()


def topic_of(subject: str) -> str | None:
    """Return the topic whose values a subject describes; None for keys and for other subject names."""
    return subject.removesuffix("-value") if subject.endswith("-value") else None


def touched(project: Path, made: FolderPlan, kafka: Settings | None = None) -> dict[str, Touched]:
    """Return the impact of the plan by subject; ``kafka`` None skips readers. Waits at most some seconds."""
    from hub.materializers.definition.entity_view import View
    from hub.materializers.definition.schema_impact import impacts
    from hub.materializers.queries.saved_queries import query_impacts

    views, queries = _views(project), _queries(project)
    entities = [each for each in views if isinstance(each, View)]
    parsed_schemas = {
        topic: parsed
        for item in made.items
        if (topic := topic_of(item.subject)) is not None and (parsed := item.old or item.new) is not None
    }
    found: dict[str, _Found] = {}
    for item in made.items:
        topic = topic_of(item.subject)
        if topic is None or item.old is None or item.new is None or item.version is None:
            continue
        impact = found.setdefault(item.subject, _Found())
        impact.views = impacts(views, topic, item.old, item.new, item.version)
        impact.queries = query_impacts(
            queries, entities, topic, item.old, item.new, item.version, parsed_schemas
        )
    if kafka is not None:
        for subject, readers in _readers(kafka, made).items():
            found.setdefault(subject, _Found()).readers = readers
    all_ = {name: Touched(each.views, each.queries, each.readers) for name, each in found.items()}
    return {name: each for name, each in all_.items() if each.lines()}


def _views(project: Path) -> list[View | SqlView]:
    from hub.materializers.definition.load import load_view, view_files
    from hub.materializers.definition.sql_view import SqlView

    found: list[View | SqlView] = []
    for file in view_files(project):
        try:
            view = load_view(file)
            if isinstance(view, SqlView) and view.python is not None:
                note(f"not looked at: {file.name} is a PySpark view; `hub view validate` checks it")
                continue
            found.append(view)
        except ConfigError as error:
            note(f"not looked at: {error.message}")
    return found


def _queries(project: Path) -> list[SavedQuery]:
    from hub.materializers.queries.saved_queries import load_query, query_files

    saved_queries: list[SavedQuery] = []
    for file in query_files(project):
        try:
            saved_queries.append(load_query(file))
        except ConfigError as error:
            note(f"not looked at: {error.message}")
    return saved_queries


def _affects_readers(item: FolderItem) -> bool:
    return any(each.is_visible_to_readers for each in item.changes)


def _readers(settings: Settings, made: FolderPlan) -> dict[str, Sequence[GroupReader]]:
    """Return the readers of each subject whose change could affect readers."""
    topics = {
        item.subject: topic
        for item in made.items
        if (topic := topic_of(item.subject)) is not None and _affects_readers(item)
    }
    if not topics:
        return {}
    from hub.kafka import own_cluster
    from hub.topics.browse.readers import readers_of

    cluster = own_cluster(settings, _ANSWER_S)
    try:
        topic_readers = readers_of(cluster, sorted(set(topics.values())), READERS_WAIT_S)
    except HubError as error:
        note(f"Who reads the topics is not known: {error.message}")
        return {}
    if topic_readers.unread:
        note(f"Not all who read the topics are known: {topic_readers.unread}.")
    return {subject: topic_readers.by_topic.get(topic, ()) for subject, topic in topics.items()}
