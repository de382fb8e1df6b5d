"""[core] The delta operator's plan: which rows of a SQL view a change can touch, and which input rows they need.

Spark's streams have no retractions, so joins of tables, HAVING, top-n, distinct counts and aggregates of aggregates are
no streaming queries. The delta operator (``delta_engine.py``) keeps the inputs as tables, recomputes *the same SQL text*
for what a batch can have touched, and emits the difference. Everything that has to be right about "can have touched" is
here, as pure functions over sqlglot's tree. One relation says it all::

    handle   some columns H of the view's result
    leaf     one occurrence of a table in the SQL
    bound    leaf.c ∈ H, or leaf.c ∈ parent.p where the parent leaf is bound itself

A leaf is bound when, for every state of the tables and every set V, the rows of the result with H ∈ V do not depend on
other rows of the leaf than those that the chain reaches from V. Read downwards, the chain is what to fetch to recompute
V. Read upwards it is what a changed row can touch: a row that is not reached from {v}, neither as it was nor as it is,
leaves the result's rows at v alone. So one derivation gives both, and a superset of either is right as well.

Selections commute with joins (not on the null-supplying side), with grouping on the group's expressions, with windows on
their PARTITION BY, with set operations; equalities carry them across a join; a semi-join reduces the side of a join that
cannot add rows. What cannot be pushed through a derived table is *cut*: it becomes a stage of its own, whose output is a
table with changes like any other. What is then still not bound is computed whole, where a size is declared for it, or
refused. Rules in the order in which they are applied: ``_Select.push``, ``_push_join``, ``_bounds``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, Protocol

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from hub.errors import ConfigError, NotFound

_DIALECT = "spark"
_MOST_HANDLE_COLUMNS = 6


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
class Bound:
    """``columns`` of a leaf are among ``of`` of its parent leaf, or of the affected handles where ``parent`` is None."""

    columns: tuple[str, ...]
    parent: int | None
    of: tuple[str, ...]


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
        if leaf.bound.parent is None:
            return f"rows whose {columns} = view's {', '.join(leaf.bound.of)}"
        parent = stage.leaves[leaf.bound.parent]
        of = ", ".join(self.derived.get(parent.table, {}).get(each, each) for each in leaf.bound.of)
        return f"rows whose {columns} = {of} of {leaf.bound.parent} {parent.table}"


class Catalog(Protocol):
    """What Spark knows of the tables: asked for types while planning. None of it runs a query."""

    def columns(self, sql: str) -> Mapping[str, str]:
        """Names and types of the columns that a query has. Raises ConfigError in Spark's words."""

    def define(self, name: str, sql: str) -> None:
        """Let ``name`` be a table with the columns of that query."""


def plan(
    sql: str,
    tables: Sequence[Table],
    key: Sequence[str],
    *,
    view: str = "view",
    whole_rows: int = 0,
    catalog: Catalog | None = None,
) -> DeltaPlan:
    """How to maintain ``sql`` (Spark SQL, one query) under changes of its tables. Pure but for the catalog.

    ``key``: the result's columns that are unique in it. ``whole_rows``: up to how many input rows a part that cannot be
    bound may be computed whole at every batch; 0 refuses such a part. Without a catalog, types of expressions are
    taken to be comparable. Raises ConfigError (HUB-2130 … HUB-2134) with the reason and the nearest form that can.
    """
    named = {table.name.lower(): table for table in tables}
    work = _Planning({name: dict(table.columns) for name, table in named.items()}, catalog, view, whole_rows)
    work.keys = {name: table.key for name, table in named.items()}
    wanted = tuple(each.lower() for each in key)
    work.plan_stage(view, sql, wanted, top=True)
    used = {leaf.table for stage in work.stages for leaf in stage.leaves}
    return DeltaPlan(
        tuple(table for name, table in named.items() if name in used),
        tuple(work.stages),
        {name: dict(made) for name, made in work.derived.items() if made},
        whole_rows,
    )


# ---- constraints: values that are enough


@dataclass(frozen=True, slots=True)
class _Enough:
    """Rows whose ``pairs[i][0]`` equal, null-safe and together, ``pairs[i][1]`` of one row of the parent are enough.

    ``parent`` None: of one affected handle; else a leaf's number. The expressions are over the relation at hand.
    """

    parent: int | None
    pairs: tuple[tuple[exp.Expr, str], ...]


@dataclass
class _Leaf:
    number: int
    table: str
    enough: list[tuple[int | None, tuple[tuple[str, str], ...]]] = field(default_factory=list)


@dataclass
class _Scan:
    """A table, derived table or generated rows (``of`` None) under its alias."""

    alias: str
    of: _Leaf | _Rel | None
    cut: _Cut | None = None

    @property
    def aliases(self) -> set[str]:
        return {self.alias}


@dataclass
class _Join:
    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left: _Tree
    right: _Scan
    on: list[exp.Expr]

    @property
    def aliases(self) -> set[str]:
        return self.left.aliases | self.right.aliases


_Tree = _Scan | _Join


@dataclass
class _Sub:
    """A subquery in an expression. ``equals``: for a positive IN, what the outer row compares with the first column."""

    rel: _Rel
    equals: list[exp.Expr]
    bindable: bool


@dataclass
class _Cut:
    """Where a derived table stands in the SQL's text (between its parentheses), and how it can be a stage of its own."""

    start: int
    end: int
    name: str | None
    rel: _Rel


class _Rel(Protocol):
    names: list[str]

    def push(self, given: list[_Enough], within: list[_Enough]) -> None:
        """Take constraints over the output's columns (``exp.Column`` without a table), and over the rows inside."""

    def trace(self, work: _Planning, of: exp.Expr) -> tuple[_Leaf, exp.Expr] | None:
        """The leaf whose values of an expression include, but for null, all that ``of`` can have."""


class _Set:
    """UNION [ALL], INTERSECT, EXCEPT: a selection goes into each branch."""

    def __init__(self, branches: list[_Rel], limited: bool) -> None:
        self.branches = branches
        self.limited = limited
        self.names = branches[0].names

    def push(self, given: list[_Enough], within: list[_Enough]) -> None:
        for branch in self.branches:
            if self.limited:
                branch.push([], [])
                continue
            renamed = dict(zip(self.names, branch.names, strict=True))
            branch.push([_renamed(each, renamed) for each in given], [])

    def trace(self, work: _Planning, of: exp.Expr) -> tuple[_Leaf, exp.Expr] | None:
        return None


def _renamed(enough: _Enough, names: Mapping[str, str]) -> _Enough:
    return _Enough(
        enough.parent,
        tuple(
            (_mapped(each, lambda column: exp.column(names[column.name])), source)
            for each, source in enough.pairs
        ),
    )


class _Select:
    """One SELECT. ``groups`` None: no grouping; []: one group of all rows, or a grouping that nothing passes."""

    def __init__(self, work: _Planning) -> None:
        self.work = work
        self.names: list[str] = []
        self.projections: dict[str, exp.Expr] = {}
        self.tree: _Tree | None = None
        self.where: list[exp.Expr] = []
        self.groups: list[exp.Expr] | None = None
        self.partitions: list[list[exp.Expr]] = []
        self.distinct = False
        self.limited = False
        self.subs: list[_Sub] = []

    def push(self, given: list[_Enough], within: list[_Enough]) -> None:
        passed = list(within)
        for each in given:
            pairs = tuple(
                (inner, source) for outer, source in each.pairs if (inner := self._through(outer)) is not None
            )
            if pairs:
                passed.append(_Enough(each.parent, pairs))
        if self.tree is not None:
            equal = list(_equalities(self.where))
            _push_tree(self.work, self.tree, passed, equal, _preserved(self.tree))
        for sub in self.subs:
            self._push_sub(sub, passed)

    def _through(self, of: exp.Expr) -> exp.Expr | None:
        """``of`` over the output, as an expression over the rows of FROM that select the same; None when none does."""
        if self.limited:
            return None
        inner = self._inside(of)
        if inner is None or any(not _built_from(inner, partition) for partition in self.partitions):
            return None
        return inner

    def _inside(self, of: exp.Expr) -> exp.Expr | None:
        if any(column.name not in self.projections for column in of.find_all(exp.Column)):
            return None
        inner = _mapped(of, lambda column: self.projections[column.name].copy())
        if inner.find(exp.AggFunc, exp.Window, exp.Query, exp.UDTF) is not None:
            return None
        if self.groups is not None and not _built_from(inner, self.groups):
            return None
        return inner

    def trace(self, work: _Planning, of: exp.Expr) -> tuple[_Leaf, exp.Expr] | None:
        inner = self._inside(of)
        return None if inner is None or self.tree is None else _trace(work, self.tree, inner)

    def _push_sub(self, sub: _Sub, passed: list[_Enough]) -> None:
        """A subquery is asked for the rows that passed: what equals their columns is enough of it."""
        inner, given = sub.rel, list[_Enough]()
        if not sub.bindable or self.tree is None:
            inner.push([], [])
            return
        if sub.equals:
            equal = [
                (_column(name), outer)
                for name, outer in zip(inner.names, sub.equals, strict=False)
                if isinstance(inner, _Select) and _alike(inner.projections[name].type, outer.type)
            ]
            given = _carried(self.work, self.tree, passed, equal)
        within: list[_Enough] = []
        if isinstance(inner, _Select) and inner.tree is not None:
            mine, outers = inner.tree.aliases, self.tree.aliases
            tied: list[tuple[exp.Expr, exp.Expr]] = []
            for left, right in _equalities(inner.where):
                for here, there in ((left, right), (right, left)):
                    if _within(here, mine) and _within(there, outers - mine):
                        tied.append((here, there))
            within = _carried(self.work, self.tree, passed, tied)
        inner.push(given, within)


def _carried(
    work: _Planning, tree: _Tree, passed: list[_Enough], equal: list[tuple[exp.Expr, exp.Expr]]
) -> list[_Enough]:
    """What ``here = there`` makes enough of here: the passed values of there, and the values that its leaf has."""
    found: list[_Enough] = []
    for each in passed:
        pairs = tuple(
            (here, source) for outer, source in each.pairs for here, there in equal if outer == there
        )
        if pairs:
            found.append(_Enough(each.parent, pairs))
    return found + _semi(work, tree, equal)


def _semi(work: _Planning, tree: _Tree, equal: list[tuple[exp.Expr, exp.Expr]]) -> list[_Enough]:
    """Semi-join: rows whose ``here`` is among the values of ``there`` that the tree's fetched leaves have."""
    by_leaf: dict[int, list[tuple[exp.Expr, str]]] = {}
    for here, there in equal:
        traced = _trace(work, tree, there)
        if traced is not None:
            leaf, of = traced
            by_leaf.setdefault(leaf.number, []).append((here, work.handle(leaf.table, of)))
    return [_Enough(number, tuple(pairs)) for number, pairs in by_leaf.items()]


# ---- joins


def _push_tree(
    work: _Planning,
    tree: _Tree,
    given: list[_Enough],
    where: list[tuple[exp.Expr, exp.Expr]],
    preserved: set[str],
) -> None:
    if isinstance(tree, _Scan):
        _push_scan(work, tree, given)
    else:
        _push_join(work, tree, given, where, preserved)


# Which sides of a join a selection on their own columns goes into, and which sides a semi-join with the other may reduce:
# those that add no row of their own.
_SELECTS: Mapping[str, str] = {"inner": "LR", "left": "L", "right": "R", "full": "", "semi": "L", "anti": "L"}
_REDUCES: Mapping[str, str] = {"inner": "LR", "left": "R", "right": "L", "full": "", "semi": "R", "anti": "R"}


def _push_join(
    work: _Planning,
    join: _Join,
    given: list[_Enough],
    where: list[tuple[exp.Expr, exp.Expr]],
    preserved: set[str],
) -> None:
    left, right = join.left.aliases, join.right.aliases
    equal = list(_sided(_equalities(join.on), left, right))
    if join.kind == "inner":  # an equality in WHERE of rows that no outer join makes up is one of the join
        equal += [
            (one, other)
            for one, other in _sided(where, left, right)
            if _aliases(one) | _aliases(other) <= preserved
        ]
    selects, reduces = _SELECTS[join.kind], _REDUCES[join.kind]
    to_left: list[_Enough] = []
    to_right: list[_Enough] = []
    for each in given:
        lefts: list[tuple[exp.Expr, str]] = []
        rights: list[tuple[exp.Expr, str]] = []
        for of, source in each.pairs:
            split = _coalesced(of, equal)
            if split is not None:
                lefts.append((split[0], source))
                rights.append((split[1], source))
            elif _within(of, left) and "L" in selects:
                lefts.append((of, source))
                if "R" in reduces:
                    rights += [(other, source) for one, other in equal if one == of]
            elif _within(of, right) and "R" in selects:
                rights.append((of, source))
                if "L" in reduces:
                    lefts += [(one, source) for one, other in equal if other == of]
        if lefts:
            to_left.append(_Enough(each.parent, tuple(lefts)))
        if rights:
            to_right.append(_Enough(each.parent, tuple(rights)))
    if "R" in reduces:
        to_right += _semi(work, join.left, [(other, one) for one, other in equal])
    if "L" in reduces:
        to_left += _semi(work, join.right, equal)
    _push_tree(work, join.left, to_left, where, preserved)
    _push_scan(work, join.right, to_right)


def _coalesced(of: exp.Expr, equal: list[tuple[exp.Expr, exp.Expr]]) -> tuple[exp.Expr, exp.Expr] | None:
    """``coalesce(l, r)`` of a join on ``l = r``: a row that has either has that value, in each kind of join."""
    if not isinstance(of, exp.Coalesce):
        return None
    parts = _parts(of)
    for one, other in equal:
        if parts in (_parts(one) + _parts(other), _parts(other) + _parts(one)):
            return one, other
    return None


def _parts(of: exp.Expr) -> list[exp.Expr]:
    if not isinstance(of, exp.Coalesce):
        return [of]
    return [part for each in (of.this, *of.expressions) for part in _parts(each)]


def _push_scan(work: _Planning, scan: _Scan, given: list[_Enough]) -> None:
    if isinstance(scan.of, _Leaf):
        for each in given:
            pairs = tuple(
                (work.handle(scan.of.table, of), source)
                for of, source in each.pairs
                if _within(of, {scan.alias}) and _plain(of)
            )
            if pairs:
                scan.of.enough.append((each.parent, pairs))
    elif scan.of is not None:
        inner = [
            _Enough(
                each.parent,
                tuple(
                    (_mapped(of, lambda column: exp.column(column.name)), source)
                    for of, source in each.pairs
                    if _within(of, {scan.alias})
                ),
            )
            for each in given
        ]
        scan.of.push([each for each in inner if each.pairs], [])


def _preserved(tree: _Tree) -> set[str]:
    """The aliases whose rows no outer join replaces by nulls."""
    if isinstance(tree, _Scan):
        return {tree.alias}
    left = _preserved(tree.left) if tree.kind not in ("right", "full") else set()
    right = {tree.right.alias} if tree.kind in ("inner", "right") else set()
    return left | right


def _trace(work: _Planning, tree: _Tree, of: exp.Expr) -> tuple[_Leaf, exp.Expr] | None:
    aliases = _aliases(of)
    if len(aliases) != 1:
        return None
    (alias,) = aliases
    if alias not in _preserved(tree) and not isinstance(of, exp.Column):
        return None  # an expression over nulls may be a value that no row has
    scan = _scan(tree, alias)
    if scan is None or scan.of is None:
        return None
    if isinstance(scan.of, _Leaf):
        return (scan.of, of) if _plain(of) else None
    inner = scan.of.trace(work, _mapped(of, lambda column: exp.column(column.name)))
    if inner is None or isinstance(of, exp.Column):
        return inner
    return inner if alias in _preserved(tree) else None


def _scan(tree: _Tree, alias: str) -> _Scan | None:
    if isinstance(tree, _Scan):
        return tree if tree.alias == alias else None
    return tree.right if tree.right.alias == alias else _scan(tree.left, alias)


# ---- small predicates on expressions


def _column(name: str) -> exp.Expr:
    return exp.column(name)


def _mapped(of: exp.Expr, change: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    if isinstance(of, exp.Column):
        return change(of)
    return of.copy().transform(lambda node: change(node) if isinstance(node, exp.Column) else node)


def _aliases(of: exp.Expr) -> set[str]:
    return {column.table for column in of.find_all(exp.Column)}


def _within(of: exp.Expr, aliases: set[str]) -> bool:
    """Whether an expression has columns, and all of these aliases."""
    found = _aliases(of)
    return bool(found) and found <= aliases


# What sqlglot writes as it read it, one value a row. Another function may come back as one that is only nearly the same,
# and one that sqlglot does not know may be an aggregate or make rows.
_VERBATIM: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Var, exp.DataType,
    exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.Coalesce, exp.Lower, exp.Upper,
    exp.TimestampTrunc, exp.DateTrunc, exp.Year, exp.Month, exp.Day,
)  # fmt: skip


def _plain(of: exp.Expr) -> bool:
    """Whether an expression can be stored beside a table's columns and asked for again in other words."""
    return all(isinstance(node, _VERBATIM) for node in of.walk())


def _built_from(of: exp.Expr, allowed: list[exp.Expr]) -> bool:
    """Whether an expression is one of these, or a function of those of them that are columns."""
    if of in allowed:
        return True
    columns = list(of.find_all(exp.Column))
    return bool(columns) and all(column in allowed for column in columns)


def _conjuncts(of: exp.Expr | None) -> Iterator[exp.Expr]:
    if of is None:
        return
    of = of.unnest()
    if isinstance(of, exp.And):
        yield from _conjuncts(of.this)
        yield from _conjuncts(of.expression)
    else:
        yield of


def _equalities(conjuncts: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """``one = other`` where neither side is cast to be compared: else '01' = 1 = '1' would carry '01' to '1'."""
    for each in conjuncts:
        if isinstance(each, exp.EQ) and _alike(each.this.type, each.expression.type):
            yield each.this.unnest(), each.expression.unnest()


_WHOLE = {
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
}


def _alike(one: exp.DataType | None, other: exp.DataType | None) -> bool:
    if one is None or other is None or one.this == exp.DataType.Type.UNKNOWN:
        return False
    return one == other or {one.this, other.this} <= _WHOLE


def _sided(
    equal: Iterable[tuple[exp.Expr, exp.Expr]], left: set[str], right: set[str]
) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    for one, other in equal:
        if _within(one, left) and _within(other, right):
            yield one, other
        elif _within(one, right) and _within(other, left):
            yield other, one


# ---- planning


_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"}
# No floating point: whether -0.0 and NaN are equal to themselves is each engine's own business.
_EXACT = {"string", "boolean", "binary", "date", "timestamp", "timestamp_ntz"}

# Functions that do not say the same when they are asked again.
_UNSTEADY: tuple[type[exp.Expr], ...] = (
    exp.Rand, exp.Randn, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.CurrentDatetime, exp.Uuid,
)  # fmt: skip
_UNSTEADY_NAMES = {
    "now", "curdate", "localtimestamp", "unix_timestamp", "monotonically_increasing_id", "spark_partition_id",
    "input_file_name", "shuffle", "random", "randstr", "uniform", "rand", "randn", "uuid", "current_user", "user",
    "current_timestamp", "current_date", "current_time", "session_user", "version", "current_timezone",
}  # fmt: skip


def comparable(one: str | None, other: str | None) -> bool:
    """Whether equal in the store is equal in Spark for two types; None, an unknown type, is trusted."""
    if one is None or other is None:
        return True
    one, other = one.lower(), other.lower()
    if one in _INTEGERS and other in _INTEGERS:
        return True
    return one == other and (one in _EXACT or one.startswith("decimal"))


class _Planning:
    """The tables and stages so far."""

    def __init__(
        self, schema: dict[str, dict[str, str]], catalog: Catalog | None, view: str, whole_rows: int
    ) -> None:
        self.schema = schema
        self.catalog = catalog
        self.view = view
        self.whole_rows = whole_rows
        self.keys: dict[str, tuple[str, ...]] = {}
        self.stages: list[Stage] = []
        self.derived: dict[str, dict[str, str]] = {}
        self._types: dict[tuple[str, str], str | None] = {}
        self.leaves: list[_Leaf] = []
        self.cuts: list[_Cut] = []

    def refuse(self, why: str, hint: str, code: str = "HUB-2130") -> ConfigError:
        return ConfigError(f'view "{self.view}": {why}', hint=hint, code=code)

    # -- handles

    def handle(self, table: str, of: exp.Expr) -> str:
        """The stored column of a table that has this expression's values."""
        if isinstance(of, exp.Column):
            return of.name
        text = _mapped(of, lambda column: exp.column(column.name)).sql(_DIALECT)
        name = f"_x{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.derived.setdefault(table, {})[name] = text
        return name

    def type_of(self, table: str, handle: str) -> str | None:
        known = self._types.get((table, handle))
        if known is None:
            expression = self.derived.get(table, {}).get(handle)
            if expression is None:
                known = self.schema[table].get(handle) or None
            elif self.catalog is not None:
                (known,) = self.catalog.columns(f"SELECT {expression} AS x FROM {table}").values()
            self._types[table, handle] = known
        return known

    # -- stages

    def plan_stage(self, name: str, sql: str, key: tuple[str, ...], *, top: bool) -> Stage:
        root, names, types = self._read(sql)
        missing = [each for each in key if each not in names]
        if missing:
            raise self.refuse(
                f'its key "{missing[0]}" is no column of its SQL',
                f"it has: {', '.join(names)}",
                "HUB-2131",
            )
        handles = list(_handles(names, key))
        for handle in handles:
            leaves = self._bounds(root, names, types, handle)
            if leaves is not None:
                return self._staged(Stage(name, sql, tuple(names), key, handle, leaves))
        for cut in list(self.cuts):
            outer = self._without(sql, cut, f"{name}__{len(self.stages) + 1}")
            if outer is not None:
                inner_name, inner_sql, inner_key, outer_sql = outer
                before = (len(self.stages), dict(self.schema))
                try:
                    self.plan_stage(inner_name, inner_sql, inner_key, top=False)
                    return self.plan_stage(name, outer_sql, key, top=top)
                except ConfigError:
                    del self.stages[before[0] :]
                    self.schema = before[1]
                    self._read(sql)
        if self.whole_rows > 0:
            leaves = tuple(Leaf(leaf.table, None) for leaf in self.leaves)
            return self._staged(Stage(name, sql, tuple(names), key, (), leaves))
        raise self._unbound(root, names, types, key)

    def _staged(self, stage: Stage) -> Stage:
        _, names, types = self._read(stage.sql)
        self.stages.append(stage)
        self.schema[stage.name] = dict(zip(names, types, strict=True))
        self.keys[stage.name] = stage.key
        if self.catalog is not None:
            self.catalog.define(stage.name, stage.sql)
        return stage

    def _unbound(self, root: _Rel, names: list[str], types: list[str], key: tuple[str, ...]) -> ConfigError:
        """Says which table a change of which would touch everything, with the form that would not."""
        best = [leaf.table for leaf in self.leaves]
        for handle in _handles(names, key):
            self._bounds(root, names, types, handle)
            loose = [leaf.table for leaf in self.leaves if leaf.number not in self._bound_numbers]
            if len(loose) < len(best):
                best = loose
        form = (
            "group by a column and make it the view's key, or select the column that rows are joined or ranked by "
            "(PARTITION BY); or declare up to how many rows may be computed whole at every batch (whole_rows: 10000)"
        )
        if isinstance(root, _Select) and (
            root.limited or (isinstance(root.groups, list) and not root.groups)
        ):
            form = (
                "rank within groups: row_number() OVER (PARTITION BY …), or GROUP BY a column that is the view's key; "
                "or declare up to how many rows may be computed whole at every batch (whole_rows: 10000)"
            )
        said = ", ".join(f'"{table}"' for table in dict.fromkeys(best))
        return self.refuse(
            f"a change of {said} can touch every row: nothing ties its rows to the view's", form, "HUB-2132"
        )

    _bound_numbers: frozenset[int] = frozenset()

    def _bounds(
        self, root: _Rel, names: list[str], types: list[str], handle: tuple[str, ...]
    ) -> tuple[Leaf, ...] | None:
        """Every leaf with its bound, parents first, when all are bound to this handle; breadth first: shortest chains."""
        of_type = dict(zip(names, types, strict=True))
        for leaf in self.leaves:
            leaf.enough.clear()
        root.push([_Enough(None, tuple((exp.column(each), each) for each in handle))], [])
        order: list[tuple[_Leaf, Bound]] = []
        placed: dict[int, int] = {}
        level: list[tuple[_Leaf, Bound]] = [(leaf, Bound((), None, ())) for leaf in self.leaves]
        while level:
            level = []
            for leaf in self.leaves:
                if leaf.number in placed:
                    continue
                bound = self._best(leaf, handle, of_type, placed)
                if bound is not None:
                    level.append((leaf, bound))
            for leaf, bound in level:
                placed[leaf.number] = len(order)
                order.append((leaf, bound))
        self._bound_numbers = frozenset(placed)
        if len(order) < len(self.leaves):
            return None
        return tuple(Leaf(leaf.table, bound) for leaf, bound in order)

    def _best(
        self, leaf: _Leaf, handle: tuple[str, ...], types: Mapping[str, str], placed: Mapping[int, int]
    ) -> Bound | None:
        found: list[Bound] = []
        for parent, pairs in leaf.enough:
            if parent is not None and parent not in placed:
                continue
            table = None if parent is None else self.leaves[parent].table
            fit: dict[str, str] = {}
            for column, source in pairs:
                theirs = types[source] if table is None else self.type_of(table, source)
                if source not in fit and comparable(self.type_of(leaf.table, column) or None, theirs or None):
                    fit[source] = column
            if fit and (parent is not None or set(fit) == set(handle)):
                at = None if parent is None else placed[parent]
                found.append(Bound(tuple(fit.values()), at, tuple(fit)))
        return min(found, key=lambda bound: (bound.parent is not None, -len(bound.columns)), default=None)

    # -- from text to relations

    def _read(self, sql: str) -> tuple[_Rel, list[str], list[str]]:
        """The relations of a query; names and types of its columns ("" for a type that is not known)."""
        self.leaves, self.cuts = [], []
        try:
            parsed = [each for each in sqlglot.parse(sql, dialect=_DIALECT) if each is not None]
        except SqlglotError as error:
            raise self.refuse(
                f"its SQL cannot be read: {_first(error)}", "it is one SELECT in Spark SQL"
            ) from None
        if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
            raise self.refuse("its SQL is not one query", "write one SELECT, with CTEs where it needs steps")
        tree = parsed[0]
        self._steady(tree)
        self._unambiguous(tree)
        self._inputs_only(tree)
        known: Mapping[str, str] = self.catalog.columns(sql) if self.catalog is not None else {}
        try:
            schema: dict[str, object] = {
                name: {column: _typed(of) for column, of in columns.items()}
                for name, columns in self.schema.items()
            }
            qualified = qualify(
                tree,
                schema=schema,
                dialect=_DIALECT,
                quote_identifiers=False,
                identify=False,
            )
            qualified = annotate_types(qualified, schema=schema, dialect=_DIALECT)
        except SqlglotError as error:
            raise self.refuse(
                f"its SQL cannot be resolved: {_first(error)}", "qualify columns with their table's alias"
            ) from None
        assert isinstance(qualified, exp.Query)
        root = self._query(qualified, {}, _Text(sql))
        names = list(root.names)
        if known:
            if len(known) != len(names):
                raise self.refuse("its SQL has two columns of one name", "give each column a name with AS")
            renamed = [each.lower() for each in known]
            if isinstance(root, _Select):
                root.projections = dict(zip(renamed, root.projections.values(), strict=True))
            if renamed != names:
                root.names = renamed
                names = renamed
            types = list(known.values())
        else:
            types = [_untyped(each.type) for each in qualified.selects]
        if len(set(names)) != len(names):
            raise self.refuse("its SQL has two columns of one name", "give each column a name with AS")
        return root, names, types

    def _steady(self, tree: exp.Expr) -> None:
        for node in tree.walk():
            name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
            if isinstance(node, _UNSTEADY) or name in _UNSTEADY_NAMES:
                raise self.refuse(
                    f"{node.sql(_DIALECT)} says something else each time it is asked",
                    "take times from the events; a recomputed row must be the same row",
                    "HUB-2133",
                )
            if isinstance(node, (exp.TableSample, exp.Pivot)):
                raise self.refuse(
                    f"{type(node).__name__.upper()} cannot be maintained",
                    "write it with CASE and GROUP BY",
                    "HUB-2133",
                )
            if isinstance(node, exp.With) and node.args.get("recursive"):
                raise self.refuse(
                    "a recursive WITH cannot be maintained", "unroll the steps that it needs", "HUB-2133"
                )

    def _inputs_only(self, tree: exp.Expr) -> None:
        steps = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            if isinstance(table.this, exp.Func) or (not table.db and table.name.lower() in steps):
                continue
            if table.db or table.name.lower() not in self.schema:
                raise NotFound(
                    f'view "{self.view}": its SQL reads "{table.sql(_DIALECT)}", which is no input',
                    hint=f"inputs: {', '.join(self.schema)}",
                    code="HUB-2106",
                )

    def _unambiguous(self, tree: exp.Expr) -> None:
        """A name in GROUP BY that is an alias here and a column below: Spark takes the column, readers the alias."""
        columns = {column for table in self.schema.values() for column in table}
        for select in tree.find_all(exp.Select):
            below = columns | {
                alias.alias.lower() for other in tree.find_all(exp.Select) if other is not select
                for alias in other.expressions if isinstance(alias, exp.Alias)
            }  # fmt: skip
            aliases = {
                each.alias.lower()
                for each in select.expressions
                if isinstance(each, exp.Alias)
                and not (isinstance(each.this, exp.Column) and each.this.name.lower() == each.alias.lower())
            }
            used = [
                *([select.args["group"]] if select.args.get("group") else []),
                *select.find_all(exp.Window),
            ]
            for part in used:
                for column in part.find_all(exp.Column):
                    name = column.name.lower()
                    if (
                        not column.table
                        and name in aliases
                        and name in below
                        and column.parent_select is select
                    ):
                        raise self.refuse(
                            f'"{name}" in {part.sql(_DIALECT)[:80]} may be a column or the alias',
                            f'name the alias otherwise, or write "<table>.{name}"',
                            "HUB-2134",
                        )

    def _query(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: _Text) -> _Rel:
        node = node.unnest() if isinstance(node, exp.Subquery) else node
        with_ = node.args.get("with_")
        if with_ is not None:
            ctes = dict(ctes)
            for cte in with_.expressions:
                ctes[cte.alias.lower()] = _Cte(cte.this, dict(ctes), cte.alias)
        limited = any(node.args.get(each) is not None for each in ("limit", "offset", "fetch"))
        if isinstance(node, exp.SetOperation):
            if node.args.get("by_name"):
                raise self.refuse("UNION BY NAME is not read", "list the columns and use UNION")
            left = self._query(node.this, ctes, text)
            right = self._query(node.expression, ctes, text)
            if len(left.names) != len(right.names):
                raise self.refuse(
                    "the sides of a UNION differ in their columns", "select as many on each side"
                )
            return _Set([left, right], limited)
        if not isinstance(node, exp.Select):
            raise self.refuse(f"{node.sql(_DIALECT)[:60]} is not read", "write it as SELECT … FROM …")
        return self._select(node, ctes, text, limited)

    def _select(self, node: exp.Select, ctes: Mapping[str, _Cte], text: _Text, limited: bool) -> _Rel:
        made = _Select(self)
        made.limited = limited
        for each in node.expressions:
            made.names.append(each.alias_or_name.lower())
            made.projections[made.names[-1]] = each.unalias()
        if node.args.get("distinct") is not None:
            made.distinct = True
        source = node.args.get("from_")
        if source is not None:
            made.tree = self._source(source.this, ctes, text)
            for join in node.args.get("joins") or []:
                made.tree = self._join(made.tree, join, ctes, text)
            for lateral in node.args.get("laterals") or []:
                made.tree = _Join("inner", made.tree, _Scan(lateral.alias.lower(), None), [])
        where = node.args.get("where")
        made.where = list(_conjuncts(where.this)) if where is not None else []
        made.groups = self._groups(node)
        partitions = [list(window.args.get("partition_by") or []) for window in _own(node, exp.Window)]
        for window in _own(node, exp.Window):
            if window.args.get("alias") or isinstance(window.args.get("this"), exp.Identifier):
                partitions = [[]]
        if node.args.get("windows"):  # WINDOW w AS (…): as good as any OVER, and rare
            partitions.append([])
        made.partitions = partitions
        bindable = {
            id(sub)
            for part in ("where", "having")
            if node.args.get(part)
            for sub in _subqueries(node.args[part])
        }
        bindable |= {id(sub) for each in node.expressions for sub in _subqueries(each)}
        for sub in _own_queries(node):
            made.subs.append(self._sub(sub, made.where, ctes, text, id(sub) in bindable))
        return made

    def _sub(
        self,
        sub: exp.Expr,
        where: list[exp.Expr],
        ctes: Mapping[str, _Cte],
        text: _Text,
        bindable: bool,
    ) -> _Sub:
        equals: list[exp.Expr] = []
        for each in where:
            if isinstance(each, exp.In) and each.args.get("query") is not None:
                query = each.args["query"]
                if query is sub or query.unnest() is sub:
                    one = each.this.unnest()
                    equals = list(one.expressions) if isinstance(one, exp.Tuple) else [one]
        return _Sub(self._query(sub, ctes, text.none()), equals, bindable)

    def _groups(self, node: exp.Select) -> list[exp.Expr] | None:
        group = node.args.get("group")
        if group is None:
            aggregated = any(_own(node, exp.AggFunc, over=False))
            return [] if aggregated or node.args.get("having") is not None else None
        if any(group.args.get(each) for each in ("rollup", "cube", "grouping_sets", "totals")):
            return []
        if group.args.get("all"):
            return [
                each.unalias()
                for each in node.expressions
                if each.find(exp.AggFunc, exp.Query, exp.Window) is None
            ]
        found = list(group.expressions)
        return (
            [] if any(isinstance(each, (exp.Rollup, exp.Cube, exp.GroupingSets)) for each in found) else found
        )

    def _source(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: _Text) -> _Scan:
        if node.args.get("joins"):
            raise self.refuse("joins in parentheses are not read", "write them one after the other")
        alias = node.alias_or_name.lower()
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Func):
            name = node.name.lower()
            if name in ctes:
                cte = ctes[name]
                rel = self._query(cte.query, cte.ctes, text.none())
                return _Scan(alias, rel, self._cut(rel, text.cte(cte.alias)))
            leaf = _Leaf(len(self.leaves), name)
            self.leaves.append(leaf)
            return _Scan(alias, leaf)
        if isinstance(node, exp.Subquery):
            if not isinstance(node.this, exp.Query):
                raise self.refuse("joins in parentheses are not read", "write them one after the other")
            rel = self._query(node.this, ctes, text)
            return _Scan(alias, rel, self._cut(rel, text.derived(node.alias)))
        if node.find(exp.Query, exp.Column) is not None:
            raise self.refuse(f"{node.sql(_DIALECT)[:60]} in FROM is not read", "use LATERAL VIEW, or a join")
        return _Scan(alias, None)

    def _join(self, left: _Tree, join: exp.Join, ctes: Mapping[str, _Cte], text: _Text) -> _Join:
        if join.args.get("method") or join.args.get("using"):
            raise self.refuse(f"{join.sql(_DIALECT)[:60]} is not read", "write the join with ON")
        if isinstance(join.this, exp.Lateral):
            raise self.refuse("a LATERAL subquery is not read", "write it as a join, or a window")
        kind = _KINDS.get((join.side.upper(), join.kind.upper()))
        if kind is None:
            raise self.refuse(f"{join.side} {join.kind} JOIN is not read", "use INNER, LEFT, RIGHT or FULL")
        right = self._source(join.this, ctes, text)
        return _Join(kind, left, right, list(_conjuncts(join.args.get("on"))))

    # -- cuts

    def _cut(self, rel: _Rel, at: tuple[int, int, str | None] | None) -> _Cut | None:
        if at is None or not isinstance(rel, _Select):
            return None
        if rel.groups is None and not rel.partitions and not rel.distinct:
            return None
        cut = _Cut(at[0], at[1], at[2], rel)
        if not any(known.start == cut.start for known in self.cuts):
            self.cuts.insert(0, cut)
        return cut

    def _without(self, sql: str, cut: _Cut, name: str) -> tuple[str, str, tuple[str, ...], str] | None:
        """(stage, its SQL, its key, the SQL that reads it): the SQL's own text, but for one derived table."""
        rel = cut.rel
        assert isinstance(rel, _Select)
        key = self._key_of(rel)
        if key is None:
            return None
        inner = sql[cut.start : cut.end]
        before = _Text(sql).ctes_before(cut.start)
        inner = (
            f"WITH {before} {inner}" if before and not inner.lstrip().lower().startswith("with") else inner
        )
        outer = f"{sql[: cut.start]}SELECT * FROM {name}{sql[cut.end :]}"
        return name, inner, key, outer

    def _key_of(self, rel: _Select) -> tuple[str, ...] | None:
        if rel.groups is not None:
            key = []
            for group in rel.groups:
                named = [name for name, of in rel.projections.items() if of == group]
                if not named:
                    return None
                key.append(named[0])
            return tuple(key) if key else None
        if rel.distinct:
            return tuple(rel.names)
        tree = rel.tree
        if isinstance(tree, _Scan) and isinstance(tree.of, _Leaf):
            named_by = {of.name: name for name, of in rel.projections.items() if isinstance(of, exp.Column)}
            if all(each in named_by for each in self.keys[tree.of.table]):
                return tuple(named_by[each] for each in self.keys[tree.of.table])
        return None


_KINDS: Mapping[tuple[str, str], Literal["inner", "left", "right", "full", "semi", "anti"]] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


@dataclass(frozen=True, slots=True)
class _Cte:
    query: exp.Expr
    ctes: Mapping[str, _Cte]
    alias: str


def _handles(names: Sequence[str], key: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Finest first: the key, its parts, then any one column of the result."""
    if key:
        yield key
    for size in range(min(len(key), _MOST_HANDLE_COLUMNS) - 1, 0, -1):
        yield from combinations(key, size)
    yield from ((name,) for name in names if name not in key)


class _Text:
    """The SQL's text and tokens, to take derived tables out of it word for word."""

    def __init__(self, sql: str, *, blind: bool = False) -> None:
        self.sql = sql
        self.blind = blind
        self.tokens: list[Token] = [] if blind else list(sqlglot.tokenize(sql, read=_DIALECT))

    def none(self) -> _Text:
        """Where nothing can be cut: inside what is read several times or inside an expression."""
        return _Text("", blind=True)

    def derived(self, alias: str) -> tuple[int, int, str | None] | None:
        """The inside of ``(…) [AS] alias``, when there is exactly one such."""
        found = []
        for number, token in enumerate(self.tokens):
            if token.text.lower() != alias.lower() or number < 2:
                continue
            before = number - (2 if self.tokens[number - 1].token_type == TokenType.ALIAS else 1)
            if self.tokens[before].token_type == TokenType.R_PAREN:
                opening = self._opening(before)
                if opening is not None and self._is_query(opening):
                    found.append((self.tokens[opening].end + 1, self.tokens[before].start, None))
        return found[0] if len(found) == 1 else None

    def cte(self, alias: str) -> tuple[int, int, str | None] | None:
        """The inside of ``alias AS (…)``, when there is exactly one such."""
        found = []
        for number, token in enumerate(self.tokens[:-2]):
            if token.text.lower() != alias.lower() or self.tokens[number + 1].token_type != TokenType.ALIAS:
                continue
            if self.tokens[number + 2].token_type == TokenType.L_PAREN:
                closing = self._closing(number + 2)
                if closing is not None and self._is_query(number + 2):
                    found.append((self.tokens[number + 2].end + 1, self.tokens[closing].start, alias))
        return found[0] if len(found) == 1 else None

    def ctes_before(self, at: int) -> str:
        """The text of the top WITH's parts that end before ``at``: what a query at that place can refer to."""
        if not self.tokens or self.tokens[0].token_type != TokenType.WITH:
            return ""
        parts: list[tuple[int, int]] = []
        number = 1
        while number + 2 < len(self.tokens) and self.tokens[number + 2].token_type == TokenType.L_PAREN:
            closing = self._closing(number + 2)
            if closing is None or self.tokens[closing].end >= at:
                break
            parts.append((self.tokens[number].start, self.tokens[closing].end + 1))
            if closing + 1 >= len(self.tokens) or self.tokens[closing + 1].token_type != TokenType.COMMA:
                break
            number = closing + 2
        return ", ".join(self.sql[start:end] for start, end in parts)

    def _is_query(self, opening: int) -> bool:
        return self.tokens[opening + 1].token_type in (TokenType.SELECT, TokenType.WITH)

    def _closing(self, opening: int) -> int | None:
        depth = 0
        for number in range(opening, len(self.tokens)):
            depth += _DEPTH.get(self.tokens[number].token_type, 0)
            if depth == 0:
                return number
        return None

    def _opening(self, closing: int) -> int | None:
        depth = 0
        for number in range(closing, -1, -1):
            depth += _DEPTH.get(self.tokens[number].token_type, 0)
            if depth == 0:
                return number
        return None


_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def _own(node: exp.Select, kind: type[exp.Expr], *, over: bool = True) -> Iterator[exp.Expr]:
    """Nodes of a kind in this SELECT's own expressions, not in its subqueries; ``over`` False: not those of windows."""
    parts = [*node.expressions]
    parts += [
        node.args[each] for each in ("where", "having", "order", "qualify", "group") if node.args.get(each)
    ]
    for part in parts:
        for found in part.walk(prune=lambda each: isinstance(each, exp.Query)):
            if isinstance(found, kind) and (over or not isinstance(found.parent, exp.Window)):
                yield found


def _own_queries(node: exp.Select) -> Iterator[exp.Expr]:
    """The subqueries in this SELECT's expressions and join conditions."""
    parts = [*node.expressions]
    parts += [
        node.args[each] for each in ("where", "having", "order", "qualify", "group") if node.args.get(each)
    ]
    parts += [join.args["on"] for join in node.args.get("joins") or [] if join.args.get("on")]
    for part in parts:
        yield from _subqueries(part)


def _subqueries(part: exp.Expr) -> Iterator[exp.Expr]:
    for found in part.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(found, exp.Query):
            yield found.unnest() if isinstance(found, exp.Subquery) else found


def _typed(spark_type: str) -> exp.DataType:
    """A type for sqlglot; unknown where it does not read Spark's."""
    try:
        return exp.DataType.build(spark_type or "unknown", dialect=_DIALECT)
    except (SqlglotError, ValueError):
        return exp.DataType(this=exp.DataType.Type.UNKNOWN)


def _untyped(known: exp.DataType | None) -> str:
    if known is None or known.this in (exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL):
        return ""
    return known.sql(_DIALECT).lower()


def _first(error: Exception) -> str:
    return str(error).split("\n")[0].split(". Line")[0][:200]
