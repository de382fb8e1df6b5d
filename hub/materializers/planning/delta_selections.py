"""[core] Push selections through SQL: values of a query's columns become values of its tables' columns.

A query is read as a tree of relations (``Scan``, ``Join``, ``Select``, ``SetOperation``, ``Sub``). Given
values that suffice for its result (``Enough``), ``push`` derives the values that suffice for every
``Occurrence`` of a table in it: through joins (not to the null-supplying side), grouping, windows' PARTITION
BY and set operations; equalities carry them across a join, and a semi-join reduces the side that cannot add
rows. The correctness of ``delta_planner.plan`` rests on this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sqlglot import exp

from hub.materializers.planning.delta_plan import Hops


class Handles(Protocol):
    """Interface of the planner for selections: the stored column with an expression's values."""

    def handle(self, table: str, of: exp.Expr) -> str: ...


# ---- constraints: values that suffice


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


class SetOperation:
    """UNION [ALL], INTERSECT, EXCEPT: a selection is pushed into each branch."""

    def __init__(self, branches: list[SelectRelation], limited: bool) -> None:
        self.branches = branches
        self.limited = limited
        self.names = branches[0].names

    def push(self, given: list[Enough], within: list[Enough]) -> None:
        for branch in self.branches:
            if self.limited:
                branch.push([], [])
                continue
            renamed = dict(zip(self.names, branch.names, strict=True))
            branch.push([_renamed(each, renamed) for each in given], [])

    def trace(self, work: Handles, of: exp.Expr) -> tuple[Occurrence, exp.Expr] | None:
        return None


def _renamed(enough: Enough, names: Mapping[str, str]) -> Enough:
    return Enough(
        enough.parent,
        tuple(
            (mapped(each, lambda column: exp.column(names[column.name])), source)
            for each, source in enough.pairs
        ),
    )


class Select:
    """One SELECT. ``groups`` None: no grouping; []: one group of all rows, or a grouping that blocks every
    selection.
    """

    def __init__(self, work: Handles) -> None:
        self.work = work
        self.names: list[str] = []
        self.projections: dict[str, exp.Expr] = {}
        self.tree: Tree | None = None
        self.where: list[exp.Expr] = []
        self.groups: list[exp.Expr] | None = None
        self.partitions: list[list[exp.Expr]] = []
        self.distinct = False
        self.limited = False
        self.subs: list[Sub] = []

    def push(self, given: list[Enough], within: list[Enough]) -> None:
        passed = list(within)
        for each in given:
            pairs = tuple(
                (inner, source) for outer, source in each.pairs if (inner := self._through(outer)) is not None
            )
            if pairs:
                passed.append(Enough(each.parent, pairs))
        if self.tree is not None:
            equal = list(_equalities(self.where))
            _push_tree(self.work, self.tree, passed, equal, _preserved(self.tree))
        for sub in self.subs:
            self._push_sub(sub, passed)

    def _through(self, of: exp.Expr) -> exp.Expr | None:
        """Return ``of`` over the output as an expression over FROM's rows that selects the same; None if
        there is none.
        """
        if self.limited:
            return None
        inner = self._inside(of)
        if inner is None or any(not _built_from(inner, partition) for partition in self.partitions):
            return None
        return inner

    def _inside(self, of: exp.Expr) -> exp.Expr | None:
        if any(column.name not in self.projections for column in of.find_all(exp.Column)):
            return None
        inner = mapped(of, lambda column: self.projections[column.name].copy())
        if inner.find(exp.AggFunc, exp.Window, exp.Query, exp.UDTF) is not None:
            return None
        if self.groups is not None and not _built_from(inner, self.groups):
            return None
        if self.distinct and not _built_from(inner, list(self.projections.values())):
            return None
        return inner

    def trace(self, work: Handles, of: exp.Expr) -> tuple[Occurrence, exp.Expr] | None:
        inner = self._inside(of)
        return None if inner is None or self.tree is None else _trace(work, self.tree, inner)

    def _push_sub(self, sub: Sub, passed: list[Enough]) -> None:
        """Push the rows that passed into a subquery: the rows that equal their columns suffice."""
        inner, given = sub.rel, list[Enough]()
        if not sub.bindable or self.tree is None:
            inner.push([], [])
            return
        if sub.equals:
            equal = [
                (_column(name), outer)
                for name, outer in zip(inner.names, sub.equals, strict=False)
                if isinstance(inner, Select) and _alike(inner.projections[name].type, outer.type)
            ]
            given = _carried(self.work, self.tree, passed, equal)
        within: list[Enough] = []
        if isinstance(inner, Select) and inner.tree is not None:
            mine, outers = inner.tree.aliases, self.tree.aliases
            tied: list[tuple[exp.Expr, exp.Expr]] = []
            for left, right in _equalities(inner.where):
                for here, there in ((left, right), (right, left)):
                    if _within(here, mine) and _within(there, outers - mine):
                        tied.append((here, there))
            within = _carried(self.work, self.tree, passed, tied)
        inner.push(given, within)


def _carried(
    work: Handles, tree: Tree, passed: list[Enough], equal: list[tuple[exp.Expr, exp.Expr]]
) -> list[Enough]:
    """Return the constraints that ``here = there`` gives: passed values of there, and its leaf's."""
    found: list[Enough] = []
    for each in passed:
        pairs = tuple(
            (here, source) for outer, source in each.pairs for here, there in equal if outer == there
        )
        if pairs:
            found.append(Enough(each.parent, pairs))
    return found + _semi(work, tree, equal)


def _semi(work: Handles, tree: Tree, equal: list[tuple[exp.Expr, exp.Expr]]) -> list[Enough]:
    """Semi-join: rows whose ``here`` is among the values of ``there`` that the tree's fetched leaves have."""
    by_leaf: dict[int, list[tuple[exp.Expr, str]]] = {}
    for here, there in equal:
        traced = _trace(work, tree, there)
        if traced is not None:
            leaf, of = traced
            by_leaf.setdefault(leaf.number, []).append((here, work.handle(leaf.table, of)))
    return [Enough(number, tuple(pairs)) for number, pairs in by_leaf.items()]


# ---- joins


def _push_tree(
    work: Handles,
    tree: Tree,
    given: list[Enough],
    where: list[tuple[exp.Expr, exp.Expr]],
    preserved: set[str],
) -> None:
    if isinstance(tree, Scan):
        _push_scan(work, tree, given)
    else:
        _push_join(work, tree, given, where, preserved)


# Sides of a join into which a selection on their own columns is pushed, and sides that a semi-join with the
# other may reduce: those that add no row of their own.
_SELECTS: Mapping[str, str] = {"inner": "LR", "left": "L", "right": "R", "full": "", "semi": "L", "anti": "L"}
_REDUCES: Mapping[str, str] = {"inner": "LR", "left": "R", "right": "L", "full": "", "semi": "R", "anti": "R"}


def _push_join(
    work: Handles,
    join: Join,
    given: list[Enough],
    where: list[tuple[exp.Expr, exp.Expr]],
    preserved: set[str],
) -> None:
    left, right = join.left.aliases, join.right.aliases
    equal = list(_sided(_equalities(join.on), left, right))
    if join.kind == "inner":  # an equality in WHERE over rows that no outer join supplies belongs to the join
        equal += [
            (one, other)
            for one, other in _sided(where, left, right)
            if _aliases(one) | _aliases(other) <= preserved
        ]
    selects, reduces = _SELECTS[join.kind], _REDUCES[join.kind]
    to_left: list[Enough] = []
    to_right: list[Enough] = []
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
            to_left.append(Enough(each.parent, tuple(lefts)))
        if rights:
            to_right.append(Enough(each.parent, tuple(rights)))
    if "R" in reduces:
        to_right += _semi(work, join.left, [(other, one) for one, other in equal])
    if "L" in reduces:
        to_left += _semi(work, join.right, equal)
    _push_tree(work, join.left, to_left, where, preserved)
    _push_scan(work, join.right, to_right)


def _coalesced(of: exp.Expr, equal: list[tuple[exp.Expr, exp.Expr]]) -> tuple[exp.Expr, exp.Expr] | None:
    """Resolve ``coalesce(l, r)`` of a join on ``l = r``: a row that has either has that value, in each kind
    of join.
    """
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


def _push_scan(work: Handles, scan: Scan, given: list[Enough]) -> None:
    if isinstance(scan.of, Occurrence):
        for each in given:
            tied = tuple(
                (work.handle(scan.of.table, tie[0]), source, tie[1])
                for of, source in each.pairs
                if _within(of, {scan.alias}) and (tie := _tie(of)) is not None
            )
            if tied:
                scan.of.enough.append((each.parent, tied))
    elif scan.of is not None:
        inner = [
            Enough(
                each.parent,
                tuple(
                    (mapped(of, lambda column: exp.column(column.name)), source)
                    for of, source in each.pairs
                    if _within(of, {scan.alias})
                ),
            )
            for each in given
        ]
        scan.of.push([each for each in inner if each.pairs], [])


def _preserved(tree: Tree) -> set[str]:
    """Return the aliases whose rows no outer join replaces by nulls."""
    if isinstance(tree, Scan):
        return {tree.alias}
    left = _preserved(tree.left) if tree.kind not in ("right", "full") else set()
    right = {tree.right.alias} if tree.kind in ("inner", "right") else set()
    return left | right


def _trace(work: Handles, tree: Tree, of: exp.Expr) -> tuple[Occurrence, exp.Expr] | None:
    aliases = _aliases(of)
    if len(aliases) != 1:
        return None
    (alias,) = aliases
    if alias not in _preserved(tree) and not isinstance(of, exp.Column):
        return None  # an expression over nulls may be a value that no row has
    scan = _scan(tree, alias)
    if scan is None or scan.of is None:
        return None
    if isinstance(scan.of, Occurrence):
        stored = storable(of)
        return None if stored is None else (scan.of, stored)
    inner = scan.of.trace(work, mapped(of, lambda column: exp.column(column.name)))
    if inner is None or isinstance(of, exp.Column):
        return inner
    return inner if alias in _preserved(tree) else None


def _scan(tree: Tree, alias: str) -> Scan | None:
    if isinstance(tree, Scan):
        return tree if tree.alias == alias else None
    return tree.right if tree.right.alias == alias else _scan(tree.left, alias)


# ---- predicates on expressions


def _column(name: str) -> exp.Expr:
    return exp.column(name)


def mapped(of: exp.Expr, change: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    if isinstance(of, exp.Column):
        return change(of)
    return of.copy().transform(lambda node: change(node) if isinstance(node, exp.Column) else node)


def _aliases(of: exp.Expr) -> set[str]:
    return {column.table for column in of.find_all(exp.Column)}


def _within(of: exp.Expr, aliases: set[str]) -> bool:
    """Return whether an expression has columns, all of them of these aliases."""
    found = _aliases(of)
    return bool(found) and found <= aliases


# Functions that sqlglot writes as it parsed them, one value per row. Another one may be generated in a
# slightly different form, and one unknown to sqlglot may be an aggregate or generate rows.
_VERBATIM: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Var, exp.DataType,
    exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Sign, exp.Floor, exp.Ceil,
    exp.Coalesce, exp.Lower, exp.Upper, exp.TimestampTrunc, exp.DateTrunc, exp.Year, exp.Quarter, exp.Month, exp.Day,
    exp.Hour, exp.Minute, exp.Second, exp.TimeStrToTime, exp.UnixMicros, exp.UnixMillis, exp.UnixSeconds,
)  # fmt: skip
# Pattern of date_format in sqlglot's form: yyyy, MM, dd, HH, mm and ss.
_FORMAT = re.compile(r"(?:%Y|%[mdHMS]strict|[-/:._ ])*")
_VERBATIM_NAMES = {"pmod", "timestamp_micros", "timestamp_millis", "timestamp_seconds"}


def storable(of: exp.Expr) -> exp.Expr | None:
    """Return an expression in the form that can be stored as a table's column and looked up; None if there is
    none.
    """
    made = of.copy()
    for node in list(made.find_all(exp.Dot)):
        call = window_of(node)
        spans = _spans(call) if call is not None and _is_window(call) else None
        if call is None or spans is None or spans[0] != spans[1]:  # a row of a hopping window has several
            continue
        edge = _edge(call, spans, node.expression.name.lower())
        if edge is None:
            continue
        if node is made:
            made = edge
        else:
            node.replace(edge)
    return made if all(_is_verbatim(node) for node in made.walk()) else None


def _tie(of: exp.Expr) -> tuple[exp.Expr, Hops | None] | None:
    """Return what to store of a row to find it by an expression's value, and the values that it stands for.

    None when the row cannot be found so. Only a hopping window's start or end has several values per row.
    """
    stored = storable(of)
    if stored is not None:
        return stored, None
    call = window_of(of)
    spans = _spans(call) if call is not None and _is_window(call) else None
    if call is None or spans is None or (hops := _hops(spans)) is None:
        return None
    latest = _edge(call, spans, of.expression.name.lower())
    if latest is None or not all(_is_verbatim(node) for node in latest.walk()):
        return None
    return latest, hops


def _hops(spans: tuple[int, int, int]) -> Hops | None:
    """Return the windows of this length and slide that contain a row; None for too many to look up."""
    length, slide, _ = spans
    count = -(-length // slide)
    return Hops(slide, count) if count <= _MOST_HOPS else None


def _is_verbatim(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _VERBATIM_NAMES
    if isinstance(node, exp.TsOrDsToDate):
        return node.args.get("format") is None
    if isinstance(node, exp.TimeToStr):
        form = node.args["format"]
        return isinstance(form, exp.Literal) and _FORMAT.fullmatch(form.name) is not None
    return isinstance(node, _VERBATIM)


_WINDOW_ARGUMENTS = 4
# Each event is looked up in all its windows, and each affected window in the events of all of them.
_MOST_HOPS = 2_000
_SPAN_US: Mapping[str, int] = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_SPAN = re.compile(rf"\s*(?:interval\s+)?((?:\d{{1,9}}\s+(?:{'|'.join(_SPAN_US)})s?\s*)+)", re.IGNORECASE)
_TIMES = {exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ}


def _is_window(of: exp.Expr) -> bool:
    return isinstance(of, exp.Anonymous) and of.name.lower() == "window"


def window_of(of: exp.Expr) -> exp.Expr | None:
    """Return the window or session of which an expression is the start or end; either identifies it."""
    if not isinstance(of, exp.Dot) or of.expression.name.lower() not in ("start", "end"):
        return None
    call = of.this
    known = isinstance(call, exp.Anonymous) and call.name.lower() in ("window", "session_window")
    return call if known else None


def _edge(call: exp.Expr, spans: tuple[int, int, int], edge: str) -> exp.Expr | None:
    """Return ``window(t, '10 seconds').end`` as arithmetic: Spark's function drops rows without a time.

    For overlapping windows it is the latest one's.
    """
    length, slide, begin = spans
    time = call.expressions[0]
    if time.type is None or time.type.this not in _TIMES:
        return None

    def micros() -> exp.Expr:
        return exp.UnixMicros(this=time.copy())

    since = exp.Sub(this=micros(), expression=exp.Literal.number(begin)) if begin else micros()
    into = exp.Anonymous(this="pmod", expressions=[since, exp.Literal.number(slide)])
    at: exp.Expr = exp.Sub(this=micros(), expression=into)
    if edge == "end":
        at = exp.Add(this=at, expression=exp.Literal.number(length))
    return exp.Anonymous(this="timestamp_micros", expressions=[at])


def _spans(call: exp.Expr) -> tuple[int, int, int] | None:
    """Return (length, slide, start) of ``window(…)`` in microseconds; None for an unsupported form."""
    given = [_span_us(each) for each in call.expressions[1:_WINDOW_ARGUMENTS]]
    if not given or None in given:
        return None
    length, slide, begin = (*given, *(given[0], 0)[len(given) - 1 :])
    return (length, slide, begin) if length and slide and begin is not None else None


def _span_us(of: exp.Expr) -> int | None:
    found = _SPAN.fullmatch(of.name) if isinstance(of, exp.Literal) and of.is_string else None
    if found is None:
        return None
    words = found[1].lower().split()
    return sum(
        int(n) * _SPAN_US[unit.removesuffix("s")] for n, unit in zip(words[::2], words[1::2], strict=True)
    )


def obstacle(rel: SelectRelation, name: str) -> tuple[str, str] | None:
    """Return (why no stored row can be found by a result column, the nearest form that works); None if it
    can.
    """
    of = _made_of(rel, exp.column(name))
    for node in of.walk():
        if isinstance(node, exp.Anonymous) and node.name.lower() == "session_window":
            return (
                f"which session a row is in, its neighbours decide: {_sql_text(node)}",
                "group by a column as well, such as the user whose sessions they are, and make it part of the key",
            )
        if _is_window(node):
            spans = _spans(node)
            if spans is not None and _hops(spans) is None:
                return (
                    f"a row is in {-(-spans[0] // spans[1])} windows, more than {_MOST_HOPS}: {_sql_text(node)}",
                    "take windows that are shorter or further apart, or group by a column as well and make it part of the key",
                )
            if spans is not None and spans[0] != spans[1] and node.parent is not of:
                return (
                    f"a row is in several windows: {_sql_text(node)}",
                    "select its .start or its .end as it is and make that the key, or take windows that do not overlap",
                )
            if not isinstance(node.parent, exp.Dot):
                return (
                    f"a window is two times: {_sql_text(node)}",
                    "select its .start or its .end and make that the key",
                )
        if isinstance(node, exp.AggFunc | exp.Window | exp.Query | exp.UDTF):
            return None
    if isinstance(of, exp.Column) or storable(of) is not None:
        return None
    return (
        f"rows are not found by {_sql_text(of)}",
        "make a view with it as a column of each event (class A), and read that view as a stream",
    )


def _sql_text(of: exp.Expr) -> str:
    bare = mapped(of, lambda column: exp.column(column.name))
    text = bare.sql("spark", normalize_functions=False)
    return f"`{text[:80]}`"


def _made_of(rel: SelectRelation, of: exp.Expr) -> exp.Expr:
    """Return a result's expression in terms of the query that computes it."""
    if not isinstance(rel, Select) or rel.tree is None:
        return of
    inner = mapped(of, lambda column: rel.projections.get(column.name, column).copy())
    aliases = _aliases(inner)
    scan = _scan(rel.tree, next(iter(aliases))) if len(aliases) == 1 else None
    if scan is None or scan.of is None or isinstance(scan.of, Occurrence):
        return inner
    return _made_of(scan.of, mapped(inner, lambda column: exp.column(column.name)))


def _built_from(of: exp.Expr, allowed: list[exp.Expr]) -> bool:
    """Return whether an expression is one of these, or a function of the exact ones.

    It has columns, and each column is within one of these.
    """
    if of in allowed:
        return of.find(exp.Column) is not None
    return of.find(exp.Column) is not None and _covered(of, [each for each in allowed if _is_exact(each)])


# Functions that sqlglot does not type, and that make no floating point from other types.
_EXACT_NAMES = _VERBATIM_NAMES | {"window", "session_window"}
_EXACT_CALLS = (exp.TimestampTrunc, exp.DateTrunc, exp.Literal, exp.Var, exp.Paren)


def _is_exact(of: exp.Expr) -> bool:
    """Return whether equal values of an expression are identical: -0.0 and 0.0 are one group in Spark but two
    texts.
    """
    if of.type is not None and not of.is_type(exp.DataType.Type.UNKNOWN):
        return not any(each.is_type(*exp.DataType.FLOAT_TYPES) for each in of.type.find_all(exp.DataType))
    known = of.name.lower() in _EXACT_NAMES if isinstance(of, exp.Anonymous) else isinstance(of, _EXACT_CALLS)
    return known and all(map(_is_exact, of.iter_expressions()))


def _covered(of: exp.Expr, allowed: list[exp.Expr]) -> bool:
    if of in allowed:
        return True
    return not isinstance(of, exp.Column) and all(_covered(part, allowed) for part in of.iter_expressions())


def conjuncts(of: exp.Expr | None) -> Iterator[exp.Expr]:
    if of is None:
        return
    of = of.unnest()
    if isinstance(of, exp.And):
        yield from conjuncts(of.this)
        yield from conjuncts(of.expression)
    else:
        yield of


def _equalities(parts: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield ``one = other`` where neither side is cast: otherwise '01' = 1 = '1' would carry '01' to '1'."""
    for each in parts:
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
