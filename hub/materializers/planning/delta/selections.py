"""[core] Push selections through SQL: values of a query's columns become values of its tables' columns.

A query is read as a tree of relations (``Scan``, ``Join``, ``Select``, ``SetOperation``, ``Sub``). Given
values that suffice for its result (``Enough``), ``push`` derives the values that suffice for every
``Occurrence`` of a table in it: through joins (not to the null-supplying side), grouping, windows' PARTITION
BY and set operations; equalities carry them across a join, and a semi-join reduces the side that cannot add
rows. The correctness of ``delta_planner.plan`` rests on this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from hub.materializers.planning.delta.expressions import (
    MOST_HOPS,
    aliases_of,
    are_alike,
    column_of,
    covered,
    equalities_of,
    hops_of,
    is_exact,
    is_window,
    is_within,
    mapped,
    sides_of,
    spans_of,
    sql_text,
    storable,
    tie_of,
)
from hub.materializers.planning.delta.relations import (
    Enough,
    Handles,
    Join,
    Occurrence,
    Scan,
    SelectRelation,
    Sub,
    Tree,
)


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
            equal = list(equalities_of(self.where))
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
                (column_of(name), outer)
                for name, outer in zip(inner.names, sub.equals, strict=False)
                if isinstance(inner, Select) and are_alike(inner.projections[name].type, outer.type)
            ]
            given = _carried(self.work, self.tree, passed, equal)
        within: list[Enough] = []
        if isinstance(inner, Select) and inner.tree is not None:
            mine, outers = inner.tree.aliases, self.tree.aliases
            tied: list[tuple[exp.Expr, exp.Expr]] = []
            for left, right in equalities_of(inner.where):
                for here, there in ((left, right), (right, left)):
                    if is_within(here, mine) and is_within(there, outers - mine):
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
    equal = list(sides_of(equalities_of(join.on), left, right))
    if join.kind == "inner":  # an equality in WHERE over rows that no outer join supplies belongs to the join
        equal += [
            (one, other)
            for one, other in sides_of(where, left, right)
            if aliases_of(one) | aliases_of(other) <= preserved
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
            elif is_within(of, left) and "L" in selects:
                lefts.append((of, source))
                if "R" in reduces:
                    rights += [(other, source) for one, other in equal if one == of]
            elif is_within(of, right) and "R" in selects:
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
                if is_within(of, {scan.alias}) and (tie := tie_of(of)) is not None
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
                    if is_within(of, {scan.alias})
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
    aliases = aliases_of(of)
    if len(aliases) != 1:
        return None
    (alias,) = aliases
    if alias not in _preserved(tree) and not isinstance(of, exp.Column):
        return None  # an expression over nulls may be a value that no row has
    scan = scan_of(tree, alias)
    if scan is None or scan.of is None:
        return None
    if isinstance(scan.of, Occurrence):
        stored = storable(of)
        return None if stored is None else (scan.of, stored)
    inner = scan.of.trace(work, mapped(of, lambda column: exp.column(column.name)))
    if inner is None or isinstance(of, exp.Column):
        return inner
    return inner if alias in _preserved(tree) else None


def scan_of(tree: Tree, alias: str) -> Scan | None:
    if isinstance(tree, Scan):
        return tree if tree.alias == alias else None
    return tree.right if tree.right.alias == alias else scan_of(tree.left, alias)


def obstacle(rel: SelectRelation, name: str) -> tuple[str, str] | None:
    """Return (why no stored row can be found by a result column, the nearest form that works); None if it
    can.
    """
    of = _made_of(rel, exp.column(name))
    for node in of.walk():
        if isinstance(node, exp.Anonymous) and node.name.lower() == "session_window":
            return (
                f"which session a row is in, its neighbours decide: {sql_text(node)}",
                (
                    "group by a column as well, such as the user whose sessions they are, and "
                    "make it part of the key"
                ),
            )
        if is_window(node):
            spans = spans_of(node)
            if spans is not None and hops_of(spans) is None:
                return (
                    (
                        f"a row is in {-(-spans[0] // spans[1])} windows, more than "
                        f"{MOST_HOPS}: {sql_text(node)}"
                    ),
                    (
                        "take windows that are shorter or further apart, or group by a column as well and "
                        "make it part of the key"
                    ),
                )
            if spans is not None and spans[0] != spans[1] and node.parent is not of:
                return (
                    f"a row is in several windows: {sql_text(node)}",
                    (
                        "select its .start or its .end as it is and make that the key, or take "
                        "windows that do not overlap"
                    ),
                )
            if not isinstance(node.parent, exp.Dot):
                return (
                    f"a window is two times: {sql_text(node)}",
                    "select its .start or its .end and make that the key",
                )
        if isinstance(node, exp.AggFunc | exp.Window | exp.Query | exp.UDTF):
            return None
    if isinstance(of, exp.Column) or storable(of) is not None:
        return None
    return (
        f"rows are not found by {sql_text(of)}",
        "make a view with it as a column of each event (a stateless view), and read that view as a stream",
    )


def _made_of(rel: SelectRelation, of: exp.Expr) -> exp.Expr:
    """Return a result's expression in terms of the query that computes it."""
    if not isinstance(rel, Select) or rel.tree is None:
        return of
    inner = mapped(of, lambda column: rel.projections.get(column.name, column).copy())
    aliases = aliases_of(inner)
    scan = scan_of(rel.tree, next(iter(aliases))) if len(aliases) == 1 else None
    if scan is None or scan.of is None or isinstance(scan.of, Occurrence):
        return inner
    return _made_of(scan.of, mapped(inner, lambda column: exp.column(column.name)))


def _built_from(of: exp.Expr, allowed: list[exp.Expr]) -> bool:
    """Return whether an expression is one of these, or a function of the exact ones.

    It has columns, and each column is within one of these.
    """
    if of in allowed:
        return of.find(exp.Column) is not None
    return of.find(exp.Column) is not None and covered(of, [each for each in allowed if is_exact(each)])
