"""[core] The analyzed plan of a data frame as values.

A column is a number, Spark's expression id: names may repeat in a plan, numbers do not. A term is the SQL
text of an expression in which ``⟦number⟧`` stands for a column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

REFERENCE = re.compile(r"⟦(\d+)⟧")
JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL", "CROSS", "LEFT SEMI", "LEFT ANTI"]


@dataclass(frozen=True, slots=True)
class SqlTerm:
    """An expression. ``line``: the line of the view's Python file that made it; 0: unknown. ``ranks``: it has
    a window function (``OVER``)."""

    text: str
    line: int = 0
    ranks: bool = False

    @property
    def columns(self) -> set[int]:
        """The columns that it reads."""
        return {int(number) for number in REFERENCE.findall(self.text)}


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column of a plan: its number and its name."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class PlanItem:
    """A column that a plan computes."""

    column: PlanColumn
    term: SqlTerm


@dataclass(frozen=True, slots=True)
class Source:
    """The data frame of a source."""

    name: str
    columns: tuple[PlanColumn, ...]


@dataclass(frozen=True, slots=True)
class SelectStep:
    items: tuple[PlanItem, ...]
    child: Plan


@dataclass(frozen=True, slots=True)
class WhereStep:
    condition: SqlTerm
    child: Plan


@dataclass(frozen=True, slots=True)
class GroupStep:
    keys: tuple[SqlTerm, ...]
    items: tuple[PlanItem, ...]
    child: Plan
    line: int = 0


@dataclass(frozen=True, slots=True)
class DistinctStep:
    columns: tuple[PlanColumn, ...]
    child: Plan


@dataclass(frozen=True, slots=True)
class JoinStep:
    kind: JoinKind
    condition: SqlTerm | None
    left: Plan
    right: Plan
    line: int = 0


@dataclass(frozen=True, slots=True)
class UnionStep:
    """``inputs``: by child, the number of the column that becomes each of ``columns``."""

    columns: tuple[PlanColumn, ...]
    children: tuple[Plan, ...]
    inputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ExplodeStep:
    """Rows of an array or map: ``generator`` is the call, such as ``explode(x)``."""

    generator: SqlTerm
    outer: bool
    made: tuple[PlanColumn, ...]
    child: Plan


@dataclass(frozen=True, slots=True)
class OverStep:
    """The child with window functions as further columns."""

    items: tuple[PlanItem, ...]
    child: Plan


@dataclass(frozen=True, slots=True)
class TopStep:
    """The first rows in an order."""

    order: tuple[SqlTerm, ...]
    limit: SqlTerm
    child: Plan


Plan = (
    Source
    | SelectStep
    | WhereStep
    | GroupStep
    | DistinctStep
    | JoinStep
    | UnionStep
    | ExplodeStep
    | OverStep
    | TopStep
)


def new_columns(plan: Plan) -> tuple[PlanColumn, ...]:
    """Return the columns that the last step of a plan makes."""
    match plan:
        case Source() | DistinctStep() | UnionStep():
            return plan.columns
        case SelectStep() | GroupStep() | OverStep():
            return tuple(item.column for item in plan.items)
        case ExplodeStep():
            return plan.made
        case WhereStep() | JoinStep() | TopStep():
            return ()
