"""[core] Facts for decisions about masks: fields of topics with their tags, and origins of views' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import PeerError
from hub.masking.shape import FieldPath

Tags = frozenset[str]


@dataclass(frozen=True, slots=True)
class TopicFields:
    """Fields of all versions of a topic's value schema with their tags, those of its key schema below
    ``_key``, and the field that is declared as its key."""

    fields: Mapping[FieldPath, Tags] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column of a topic that a view's column is made of."""

    topic: str
    path: FieldPath


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """Columns of a view with their origins; None: not known. ``sources``: all topics that the view
    reads.

    ``key``: columns of topics that the key is made of. ``key_columns``: or columns of the view.
    ``nested``: columns whose values are records, lists or maps.
    """

    columns: Mapping[str, tuple[ColumnOrigin, ...] | None]
    sources: tuple[str, ...] = ()
    key: tuple[ColumnOrigin, ...] | None = None
    key_columns: tuple[str, ...] = ()
    nested: frozenset[str] = frozenset()


class MaskFacts(Protocol):
    """Facts of a running hub. Each method may raise PeerError while they are not known."""

    def topic(self, name: str) -> TopicFields: ...

    def view(self, name: str) -> ViewColumns: ...


@dataclass(slots=True)
class MaskSources:
    """Sources of a server's decisions: the facts, and the key of the hashes, once it is open."""

    facts: MaskFacts | None = None
    secret: bytes = field(default=b"", repr=False)

    def require_facts(self) -> MaskFacts:
        """Return the facts. Raises PeerError before the server is open."""
        if self.facts is None:
            raise PeerError(
                "masks: the fields of topics and views are not known yet",
                hint="the server is starting: try again",
                code="HUB-3078",
            )
        return self.facts
