"""[core] What the delta operator's plan says: tables, and stages whose leaves are bound to the rows they make.

Values only, made by ``delta.plan`` (which tells what bound means) and carried out by ``spark/delta_engine.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Table:
    """An input. ``columns`` are those the SQL sees, by lower-case name, with Spark's types as DDL writes them.

    A *table* keeps the last row of each ``key`` and forgets it on a delete; a *stream* only grows, and its key are the
    record's coordinates (``STREAM_KEY``). Key columns that are not among ``columns`` are stored and not shown to the SQL.
    Of a *versioned* table the order of changes is kept with each row, and a change of a lower one is none.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    kind: Literal["table", "stream"] = "table"
    versioned: bool = False


STREAM_KEY = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Hops:
    """A stored time stands for ``count`` times: itself, and those before it, ``step_us`` microseconds apart. They are the starts
    (or ends) of the windows that a row is in; when the last of them do not reach it, rows are found that need not be."""

    step_us: int
    count: int


@dataclass(frozen=True, slots=True)
class Bound:
    """``columns`` of a leaf are among ``of`` of its parent leaf, or of the affected handles where ``parent`` is None.

    Of the column ``hopping``, which is one of ``columns`` or None, any of the times that it stands for is.
    """

    columns: tuple[str, ...]
    parent: int | None
    of: tuple[str, ...]
    # Not in repr: what a state holds is the same however its rows are found (delta_inputs.fingerprint).
    hopping: str | None = field(default=None, repr=False)
    hops: Hops | None = field(default=None, repr=False)

    @property
    def hopping_of(self) -> str:
        """What the times of ``hopping`` are among."""
        assert self.hopping is not None
        return self.of[self.columns.index(self.hopping)]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One occurrence of a table; ``bound`` is None in a stage that is computed whole."""

    table: str
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One query of the plan. Its result is a table ``name`` with ``key``; ``handle`` () means: computed whole.

    ``leaves`` are ordered so that parents come first (``Bound.parent`` is an index into them).
    """

    name: str
    sql: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    handle: tuple[str, ...]
    leaves: tuple[Leaf, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(leaf.table for leaf in self.leaves))


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """Stages in order; the last is the view. ``derived`` are expressions that are stored beside a table's columns, because
    a bound is over them: Spark computes them, so that equal means what Spark calls equal."""

    tables: tuple[Table, ...]
    stages: tuple[Stage, ...]
    derived: Mapping[str, Mapping[str, str]]
    whole_rows: int

    @property
    def view(self) -> Stage:
        return self.stages[-1]

    def explain(self) -> list[str]:
        """One line a stage and a leaf, for ``hub view plan``."""
        lines: list[str] = []
        for stage in self.stages:
            by = f"recomputed by ({', '.join(stage.handle)})" if stage.handle else "computed whole each time"
            lines.append(f"{stage.name}: key ({', '.join(stage.key)}), {by}")
            for number, leaf in enumerate(stage.leaves):
                lines.append(f"  {number} {leaf.table}: {self._said(stage, leaf)}")
        return lines

    def _said(self, stage: Stage, leaf: Leaf) -> str:
        if leaf.bound is None:
            return "every row"
        shown = {**self.derived.get(leaf.table, {})}
        columns = ", ".join(shown.get(each, each) for each in leaf.bound.columns)
        if leaf.bound.hops is not None:
            columns += f" (or {leaf.bound.hops.count - 1} times {leaf.bound.hops.step_us / 1e6:g} s before)"
        if leaf.bound.parent is None:
            return f"rows whose {columns} = view's {', '.join(leaf.bound.of)}"
        parent = stage.leaves[leaf.bound.parent]
        of = ", ".join(self.derived.get(parent.table, {}).get(each, each) for each in leaf.bound.of)
        return f"rows whose {columns} = {of} of {leaf.bound.parent} {parent.table}"


class TypeCatalog(Protocol):
    """What Spark knows of the tables: asked for types while planning. None of it runs a query."""

    def columns(self, sql: str) -> Mapping[str, str]:
        """Names and types of the columns that a query has. Raises ConfigError in Spark's words."""

    def define(self, name: str, sql: str) -> None:
        """Let ``name`` be a table with the columns of that query."""
