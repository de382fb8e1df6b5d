"""[core] Plan of the incremental engine as values: tables, and stages whose leaves are bound to their result
rows.

``delta_planner.plan`` makes it (and defines bound), ``spark/delta_engine.py`` executes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Table:
    """An input. ``columns``: those the SQL sees, by lower-case name, with Spark types in DDL form.

    A *table* keeps the last row of each ``key`` and removes it on a delete; a *stream* only grows, and its
    key are the record's coordinates (``STREAM_KEY``). Key columns outside ``columns`` are stored and hidden
    from the SQL. A *versioned* table keeps the order of changes with each row and ignores a change of a lower
    one.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    kind: Literal["table", "stream"] = "table"
    versioned: bool = False


STREAM_KEY = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Hops:
    """Times that a stored time stands for: itself and earlier ones, ``count`` in all, ``step_us``
    microseconds apart.

    They are the starts (or ends) of the windows that contain a row. When the last of them do not reach the
    row, the lookup returns more rows than needed.
    """

    step_us: int
    count: int


@dataclass(frozen=True, slots=True)
class Bound:
    """Bind ``columns`` of a leaf to ``of`` of its parent leaf, or of the affected handles where ``parent`` is
    None.

    For the column ``hopping`` (one of ``columns``, or None), any of the times that it stands for may match.
    """

    columns: tuple[str, ...]
    parent: int | None
    of: tuple[str, ...]
    # Not in repr: the lookup of rows does not change the state's content (delta_inputs.fingerprint).
    hopping: str | None = field(default=None, repr=False)
    hops: Hops | None = field(default=None, repr=False)

    @property
    def hopping_of(self) -> str:
        """The parent's column that the times of ``hopping`` are matched with."""
        assert self.hopping is not None
        return self.of[self.columns.index(self.hopping)]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One occurrence of a table. ``bound`` is None in a stage that is computed whole."""

    table: str
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One query of the plan. Its result is a table ``name`` with ``key``; ``handle`` () means: computed
    whole.

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
    """Stages in order; the last is the view. ``derived``: expressions stored as extra columns of a table.

    They exist because a bound is over them. Spark computes them, so that equality is Spark's.
    """

    tables: tuple[Table, ...]
    stages: tuple[Stage, ...]
    derived: Mapping[str, Mapping[str, str]]
    whole_rows: int

    @property
    def view(self) -> Stage:
        return self.stages[-1]

    def explain(self) -> list[str]:
        """Return one line per stage and leaf, for ``hub view plan``."""
        lines: list[str] = []
        for stage in self.stages:
            by = f"recomputed by ({', '.join(stage.handle)})" if stage.handle else "computed whole each time"
            lines.append(f"{stage.name}: key ({', '.join(stage.key)}), {by}")
            for number, leaf in enumerate(stage.leaves):
                lines.append(f"  {number} {leaf.table}: {self._leaf_text(stage, leaf)}")
        return lines

    def _leaf_text(self, stage: Stage, leaf: Leaf) -> str:
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
    """Spark's types of the tables, for planning. No call runs a query."""

    def columns(self, sql: str) -> Mapping[str, str]:
        """Return names and types of a query's columns. Raises ConfigError with Spark's message."""

    def define(self, name: str, sql: str) -> None:
        """Define ``name`` as a table with the columns of that query."""
