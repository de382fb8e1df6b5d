"""[core] Streams and tables that statements declare, as the sources of a view read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hub.importing.column_types import ColumnType
from hub.importing.report import NotTranslated

Kind = Literal["stream", "table"]
EVENT_TIME = "_timestamp"  # the broker's time of an event
# How a source with a watermark over a column of the event differs.
AHEAD = "an event whose time is over an hour ahead of its record's becomes a dead-letter record (max_ahead)"


@dataclass(frozen=True, slots=True)
class ImportedColumn:
    """A column. ``expression``: how a source's column is read, in Spark SQL. ``type`` None: not known."""

    expression: str
    type: ColumnType | None = None


@dataclass(frozen=True)
class Relation:
    """A stream or table. ``source``: its keys in a view's file. ``columns`` in order; not ``complete``: there
    may be others. ``key``: names of its key columns. ``time``: the expression of ROWTIME, a timestamp; ""
    without one. ``event_time``: the column that can have a watermark. ``unreadable``: columns with the
    reason. ``view``: the view that has its rows, None for a topic. ``partitions`` None: not known.
    """

    name: str
    kind: Kind
    source: Mapping[str, Any]
    columns: Mapping[str, ImportedColumn]
    key: tuple[str, ...] = ()
    complete: bool = True
    time: str = EVENT_TIME
    event_time: str | None = EVENT_TIME
    windowed: bool = False
    unreadable: Mapping[str, str] = field(default_factory=dict)
    view: str | None = None
    partitions: int | None = None

    def read_as(self, how: Literal["stream", "table", "static"]) -> dict[str, Any]:
        """Return the source's keys to read it so."""
        default = "stream" if self.view is None else "table"
        return {**self.source, **({} if how == default else {"as": how})}


@dataclass(frozen=True, slots=True)
class Declaration:
    """A relation that a statement declares over a topic. ``topic``: its name. ``node``: its keys in
    topics.yaml. ``schema``: (file's ending, text), None without one."""

    relation: Relation
    topic: str
    node: Mapping[str, Any]
    schema: tuple[str, str] | None


@dataclass
class RelationCatalog:
    """Declarations of earlier statements. ``types``: of CREATE TYPE, by upper-case name."""

    relations: dict[str, Relation] = field(default_factory=dict)
    types: dict[str, ColumnType] = field(default_factory=dict)

    def relation(self, name: str) -> Relation:
        found = self.relations.get(name) or self.relations.get(name.lower())
        if found is None:
            raise NotTranslated(
                f"{name} is not declared: no statement before this one makes it",
                "put its CREATE statement into the same file, before this one",
            )
        return found
