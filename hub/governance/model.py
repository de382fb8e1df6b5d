"""[core] Values of the governance report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hub.access.masking.facts import ColumnOrigin, Tags
from hub.masking.shape import FieldPath

UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Way:
    """A way out of a topic or view: a sink, mirror, the lake or a backup. ``region``: of a mirror's target.
    ``fields``: the only ones that leave; None: all. ``masked``: fields that leave in another form.
    ``to_topic``: the topic that a sink writes; what reads that topic reads the field, too."""

    kind: Literal["sink", "mirror", "lake", "backup"]
    name: str
    region: str = ""
    fields: frozenset[str] | None = None
    masked: frozenset[str] = frozenset()
    to_topic: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" (region {self.region})" if self.region else "")


@dataclass(frozen=True, slots=True)
class GovernedTopic:
    """A topic of the tree. ``fields``: with their tags; None: no schema is known."""

    name: str
    owner: str = ""
    purpose: str = ""
    labels: tuple[str, ...] = ()
    fields: Mapping[FieldPath, Tags] | None = None
    retention: str = ""
    legal_hold: str = ""
    erasable_by: str = ""
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewNode:
    """A view. ``columns``: with their origins, None where one cannot be traced; "*": columns that are not
    known. ``sources``: topics, and changelogs of views."""

    name: str
    owner: str = ""
    columns: Mapping[str, tuple[ColumnOrigin, ...] | None] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    retention: str = ""
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True)
class GovernanceFacts:
    """Facts of a project. ``unread``: files whose declarations are unknown."""

    topics: Mapping[str, GovernedTopic]
    views: Mapping[str, ViewNode]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """A classified field that reaches a place. ``steps``: from the field to the place. ``is_traced`` False:
    some column on the way is not traced, so the flow is possible. ``kind``, ``name`` and ``region`` are the
    place's. ``leaves``: the field leaves the hub's Kafka and views there."""

    field: str
    tags: tuple[str, ...]
    place: str
    steps: tuple[str, ...]
    is_traced: bool = True
    kind: Literal["view", "topic", "sink", "mirror", "lake", "backup"] = "view"
    name: str = ""
    region: str = ""
    leaves: bool = False

    @classmethod
    def by(
        cls, way: Way, field: str, tags: tuple[str, ...], steps: tuple[str, ...], *, is_traced: bool
    ) -> Flow:
        """Return the flow of a field on a way out."""
        place, leaves = f"{way}", not way.to_topic
        return cls(field, tags, place, (*steps, place), is_traced, way.kind, way.name, way.region, leaves)


@dataclass(frozen=True, slots=True)
class ClearReader:
    """A principal who may read the object. ``clear``: tagged fields in clear; ``reason``: the grant.
    ``is_known`` False: the masks could not be decided."""

    name: str
    kind: str
    clear: tuple[str, ...]
    reason: str
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class GovernanceRow:
    """One topic or view. ``fields``: tagged fields with their tags. ``unknown``: reasons."""

    kind: Literal["topic", "view"]
    name: str
    owner: str
    purpose: str
    tags: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]
    flows: tuple[Flow, ...]
    readers: tuple[ClearReader, ...]
    more_readers: int
    retention: str
    legal_hold: str
    erasable_by: str
    unknown: tuple[str, ...] = field(default=())
