"""[core] A query as a tree of relations, and constraints: values of columns that suffice for its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from sqlglot import exp

from hub.materializers.planning.delta_plan import Hops


class Handles(Protocol):
    """Interface of the planner for selections: the stored column with an expression's values."""

    def handle(self, table: str, of: exp.Expr) -> str: ...


@dataclass(frozen=True, slots=True)
class Enough:
    """Constraint: rows whose ``pairs[i][0]`` together equal, null-safe, ``pairs[i][1]`` of one parent row
    suffice.

    ``parent`` None: the parent row is an affected handle; else a leaf's number. The expressions are over the
    current relation.
    """

    parent: int | None
    pairs: tuple[tuple[exp.Expr, str], ...]


@dataclass
class Occurrence:
    number: int
    table: str
    # (parent, (stored column, the parent's column, the times it stands for) …)
    enough: list[tuple[int | None, tuple[tuple[str, str, Hops | None], ...]]] = field(default_factory=list)


@dataclass
class Scan:
    """A table, derived table or generated rows (``of`` None) under its alias."""

    alias: str
    of: Occurrence | SelectRelation | None
    cut: DerivedTableSpan | None = None

    @property
    def aliases(self) -> set[str]:
        return {self.alias}


@dataclass
class Join:
    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left: Tree
    right: Scan
    on: list[exp.Expr]

    @property
    def aliases(self) -> set[str]:
        return self.left.aliases | self.right.aliases


Tree = Scan | Join


@dataclass
class Sub:
    """A subquery in an expression. ``equals``: for a positive IN, the outer expression that its first column
    is compared with.
    """

    rel: SelectRelation
    equals: list[exp.Expr]
    bindable: bool


@dataclass
class DerivedTableSpan:
    """Span of a derived table in the SQL's text (inside its parentheses), and how it becomes a stage of its
    own.
    """

    start: int
    end: int
    name: str | None
    rel: SelectRelation


class SelectRelation(Protocol):
    names: list[str]

    def push(self, given: list[Enough], within: list[Enough]) -> None:
        """Take constraints over the output's columns (``exp.Column`` without a table), and over the rows
        inside.
        """

    def trace(self, work: Handles, of: exp.Expr) -> tuple[Occurrence, exp.Expr] | None:
        """Return the leaf and its expression whose values include, except for null, all values of ``of``."""
