"""[core] Find every place that holds a person, from facts of the project.

The key is the center: places with ciphertext only (mirrors, lake tables, dead-letter records) need nothing
but its destruction. Clear text is in views with ``decrypt``, in what reads these, and in what left the hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hub.erasure.model import Place
from hub.topics.tree.tree import matches

KEYS_PLACE = "_dek_registry_keys"


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A topic of the tree. ``hold``: the reason of its legal hold."""

    name: str
    erasable: bool
    hold: str | None = None
    lake: bool = False
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """A view. ``opens``: patterns of topics that it decrypts; ``reads``: names of views that it reads;
    ``stores``: names and kinds of its stores; ``in_place``: it is not rebuilt as a new version.
    """

    name: str
    opens: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    stores: tuple[tuple[str, str], ...] = ()
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """A sink of a view."""

    name: str
    view: str
    kind: str


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """Everything that holds data of the project's topics. ``backups``: places of backups that this home made.
    ``unread``: files that cannot be read; their declarations are unknown.
    """

    topics: Sequence[TopicPlace]
    views: Sequence[ViewPlace] = ()
    sinks: Sequence[SinkFacts] = ()
    backups: Sequence[str] = ()
    unread: Sequence[str] = ()


def find_places(facts: ProjectFacts, patterns: Sequence[str]) -> tuple[Place, ...]:
    """Return all places of the topics that match a pattern."""
    topics = [each for each in facts.topics if any(matches(pattern, each.name) for pattern in patterns)]
    erased = [each for each in topics if each.erasable and each.hold is None]
    places = [_topic_place(each) for each in topics]
    if not erased:
        return tuple(places)
    places.append(Place("keys", KEYS_PLACE, "remove the destroyed keys by compaction"))
    places += _copies(erased)
    places += _views(facts, erased)
    places += _backups(facts)
    places += [
        Place("readers", each, "none", "unknown", "the file cannot be read, so what it declares is unknown")
        for each in facts.unread
    ]
    return tuple(places)


def _topic_place(topic: TopicPlace) -> Place:
    action = "destroy the person's key"
    if topic.hold is not None:
        return Place("topic", topic.name, "none", "not erased", f"legal hold: {topic.hold}")
    if not topic.erasable:
        why = "topics.yaml declares no erasable_by, so its records are in clear text"
        return Place("topic", topic.name, "none", "not erased", why)
    return Place("topic", topic.name, action)


def _copies(topics: Sequence[TopicPlace]) -> Iterator[Place]:
    """Yield the places that have ciphertext only."""
    action = "none: without the key its ciphertext cannot be read"
    for topic in topics:
        for mirror in topic.mirrors:
            yield Place("copies", f"{topic.name} in mirror {mirror}", action)
        if topic.lake:
            yield Place("copies", f"{topic.name} as an Iceberg table", action)
        yield Place("copies", f"{topic.name} in dead-letter records, sinks and backups", action)


def _views(facts: ProjectFacts, topics: Sequence[TopicPlace]) -> Iterator[Place]:
    """Yield views with clear text, their stores, and what reads them."""
    names = [each.name for each in topics]
    opened = [
        view for view in facts.views if any(matches(each, name) for each in view.opens for name in names)
    ]
    reached = {each.name for each in opened}
    for view in opened:
        yield _view_place(view)
        yield from _stores(view)
    while True:
        more = [each for each in facts.views if each.name not in reached and reached & set(each.reads)]
        if not more:
            break
        for view in more:
            reached.add(view.name)
            action = "follow the views that it reads, then remove its former version"
            yield Place("view over views", view.name, action, *_in_place(view))
            yield from _stores(view)
    for sink in facts.sinks:
        if sink.view in reached:
            why = f"the {sink.kind} was sent clear text, and the hub cannot take it back: ask its owner"
            yield Place("sink", f"{sink.name} from view {sink.view}", "none", "not erased", why)
    for name in sorted(reached):
        why = "programs that read this changelog may have copies that the hub does not know"
        yield Place("readers", f"views.{name}", "subscribers get the new rows", "unknown", why)


def _view_place(view: ViewPlace) -> Place:
    action = "compute it again, then remove the former changelog, checkpoint and tables"
    return Place("view", view.name, action, *_in_place(view))


def _in_place(view: ViewPlace) -> tuple[()] | tuple[str, str]:
    if not view.in_place:
        return ()
    return "not erased", "it changes in place: remove its checkpoint and store, and it is computed again"


def _stores(view: ViewPlace) -> Iterator[Place]:
    for name, kind in view.stores:
        place = f"{name} of view {view.name}"
        if kind == "sqlite":
            yield Place("store", place, "remove the former tables and histories, then rewrite the file")
        elif kind == "postgresql":
            yield Place(
                "store",
                place,
                "remove former tables and histories; its log and backups are its owner's",
            )
        else:
            yield Place(
                "store", place, "none", "not erased", f"a {kind} store is rewritten with its view only"
            )


def _backups(facts: ProjectFacts) -> Iterator[Place]:
    why = f"a run with {KEYS_PLACE} from before still has the wrapped key: hub backup prune removes old runs"
    for place in facts.backups:
        yield Place("backup", place, "none", "not erased", why)
    yield Place("backup", "backups of other homes, and of databases", "none", "unknown", why)
