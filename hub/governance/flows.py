"""[core] Follow a classified field through views, and out of the hub.

::

    topic shop.orders.email ─▶ view customers.mail ─▶ view top.mail ─▶ sink crm
              └─▶ mirror nyc-lon (region lon)

A column without a known origin is assumed to hold every field of its sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hub.access.masking.decision import related
from hub.access.masking.facts import ColumnOrigin, Tags
from hub.governance.model import Flow, GovernanceFacts, GovernedTopic, ViewNode, Way
from hub.masking.shape import FieldPath
from hub.materializers.definition.declared import CHANGELOG_PREFIX

_MOST_FLOWS = 2_000  # of one topic; a report with more helps nobody
_MOST_STEPS = 20


@dataclass(frozen=True, slots=True)
class _Place:
    """A field at one place of its way. ``topic``: a topic, or the changelog of a view."""

    topic: str
    path: FieldPath
    steps: tuple[str, ...]
    is_traced: bool = True


def flows_of(facts: GovernanceFacts, topic: GovernedTopic) -> list[Flow]:
    """Return the flows of all tagged fields of a topic, in the order of their fields."""
    flows: list[Flow] = []
    for path, tags in sorted((topic.fields or {}).items()):
        if tags:
            flows += flows_of_field(facts, topic.name, path, tags)
        if len(flows) >= _MOST_FLOWS:
            return flows[:_MOST_FLOWS]
    return flows


def possible_flows(facts: GovernanceFacts, topic: str) -> Iterator[Flow]:
    """Yield each place that a topic without a schema reaches: any of its fields may get there."""
    return _followed(facts, _Place(topic, (), (f"topic {topic} without a schema",), False), frozenset())


def flows_of_field(facts: GovernanceFacts, topic: str, path: FieldPath, tags: Tags) -> Iterator[Flow]:
    """Yield each place that a field reaches: views, sinks and their topics, mirrors, lake, backups. Each
    place comes once, by its shortest way, traced ways first."""
    return _followed(facts, _Place(topic, path, (f"topic {topic} field {'.'.join(path)}",)), tags)


def _followed(facts: GovernanceFacts, start: _Place, tags: Tags) -> Iterator[Flow]:
    name, named_tags = ".".join(start.path), tuple(sorted(tags))
    waiting, visited = [start], {(start.topic, start.path)}
    yielded: set[str] = set()
    while waiting:
        at = waiting.pop(0)
        for way in _ways_out(facts, at):
            text, is_sure = str(way), at.is_traced and way.kind != "backup"  # a run chooses its topics
            if text not in yielded:
                yielded.add(text)
                yield Flow.by(way, name, named_tags, at.steps, is_traced=is_sure)
            if way.to_topic:
                is_same = at.is_traced and way.fields is None
                copy = f"topic {way.to_topic}"
                for step in _next(at, way.to_topic, at.path, (text, copy), is_same, visited):
                    yield Flow(name, named_tags, copy, step.steps, step.is_traced, "topic", way.to_topic)
                    waiting.append(step)
        for view, column, is_sure in sorted(_columns(facts, at), key=lambda each: not each[2]):
            text = f"view {view.name} column {column}"
            place = f"{CHANGELOG_PREFIX}{view.name}"
            for step in _next(at, place, (column,), (text,), at.is_traced and is_sure, visited):
                yield Flow(name, named_tags, text, step.steps, step.is_traced, "view", view.name)
                waiting.append(step)


def _next(
    at: _Place,
    topic: str,
    path: FieldPath,
    steps: tuple[str, ...],
    is_traced: bool,
    visited: set[tuple[str, FieldPath]],
) -> list[_Place]:
    """Return the next place of a field; [] if it was there before, or the way is too long."""
    if (topic, path) in visited or len(at.steps) >= _MOST_STEPS:
        return []
    visited.add((topic, path))
    return [_Place(topic, path, (*at.steps, *steps), is_traced)]


def _ways_out(facts: GovernanceFacts, at: _Place) -> Iterator[Way]:
    view = facts.views.get(at.topic.removeprefix(CHANGELOG_PREFIX))
    node = view if at.topic.startswith(CHANGELOG_PREFIX) else facts.topics.get(at.topic)
    return (way for way in (node.ways if node is not None else ()) if carries(way, at.path))


def carries(way: Way, path: FieldPath) -> bool:
    """Return whether a field leaves on this way as it is. ``path``: () for a field that is not known."""
    if not path:
        return True
    name = ".".join(path)
    if any(name == each or name.startswith(f"{each}.") for each in way.masked):
        return False
    return way.fields is None or bool({name, *path} & way.fields)


def _columns(facts: GovernanceFacts, at: _Place) -> Iterator[tuple[ViewNode, str, bool]]:
    """Yield the columns that hold the field, and whether that is traced."""
    for view in facts.views.values():
        if at.topic not in view.sources:
            continue
        for column, origins in view.columns.items():
            if origins is None:
                yield view, column, False
            elif _holds(origins, at):
                yield view, column, True


def _holds(origins: Iterable[ColumnOrigin], at: _Place) -> bool:
    return any(each.topic == at.topic and (not at.path or related(at.path, each.path)) for each in origins)


def tags_of_column(facts: GovernanceFacts, view: ViewNode, column: str, depth: int = 0) -> tuple[Tags, bool]:
    """Return the tags of a view's column, and whether all its origins are traced."""
    origins = view.columns.get(column)
    if origins is None or depth >= _MOST_STEPS:
        every = [tags for source in view.sources for tags in _tags_of_source(facts, source, depth)]
        return frozenset().union(*every), False
    found, is_traced = frozenset[str](), True
    for each in origins:
        inner = facts.views.get(each.topic.removeprefix(CHANGELOG_PREFIX))
        if each.topic.startswith(CHANGELOG_PREFIX) and inner is not None:
            tags, sure = tags_of_column(facts, inner, each.path[0], depth + 1)
            found, is_traced = found | tags, is_traced and sure
            continue
        topic = facts.topics.get(each.topic)
        if topic is None or topic.fields is None:
            is_traced = False
            continue
        for path, tags in topic.fields.items():
            found |= tags if related(path, each.path) else frozenset()
    return found, is_traced


def _tags_of_source(facts: GovernanceFacts, source: str, depth: int) -> Iterator[Tags]:
    view = facts.views.get(source.removeprefix(CHANGELOG_PREFIX))
    if source.startswith(CHANGELOG_PREFIX) and view is not None:
        if depth < _MOST_STEPS:
            yield from (tags_of_column(facts, view, each, depth + 1)[0] for each in view.columns)
        return
    topic = facts.topics.get(source)
    yield from () if topic is None else (topic.fields or {}).values()
