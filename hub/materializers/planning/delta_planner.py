"""[core] Plan of the incremental engine: which rows of a SQL view a change can affect, and which input rows
they need.

Spark's streams have no retractions, so joins of tables, HAVING, top-n, distinct counts and aggregates of
aggregates are not streaming queries. The incremental engine (``spark/delta_engine.py``) keeps the inputs as
tables, recomputes *the same SQL text* for the rows that a batch can have affected, and emits the difference.
Everything that has to be right about "can have affected" is here and in ``delta/selections.py``, as pure
functions over sqlglot's tree. It rests on one relation:

    handle   some columns H of the view's result
    leaf     one occurrence of a table in the SQL
    bound    leaf.c ∈ H, or leaf.c ∈ parent.p where the parent leaf is bound itself; of a row of hopping windows
             leaf.c is several values, of which one is

A leaf is bound when, for every state of the tables and every set V, the rows of the result with H ∈ V depend
on no rows of the leaf except those that the chain reaches from V. Read downwards, the chain gives the rows to
fetch to recompute V. Read upwards, it gives the rows that a change can affect: a row that is not reached from
{v}, neither before nor after the change, leaves the result's rows at v unchanged. So one derivation gives
both, and a superset of either is correct as well.

Selections commute with joins (not on the null-supplying side), with grouping on the group's expressions, with
windows on their PARTITION BY, with set operations; equalities carry them across a join; a semi-join reduces
the side of a join that cannot add rows. A derived table through which a selection cannot be pushed is *cut*:
it becomes a stage of its own, whose output is a table with changes like any other. Parts that are still not
bound are computed whole, where a size is declared for them, or refused. Rules in the order of application:
``Select.push``, ``_push_join``, ``_bounds``.
"""  # noqa: E501

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from sqlglot import exp

from hub.errors import ConfigError
from hub.materializers.planning.delta.expressions import mapped, window_of
from hub.materializers.planning.delta.query_reader import QueryReader
from hub.materializers.planning.delta.relations import (
    DerivedTableSpan,
    Enough,
    Occurrence,
    Scan,
    SelectRelation,
)
from hub.materializers.planning.delta.selections import Select, obstacle
from hub.materializers.planning.delta.sql_text import DIALECT, SqlText
from hub.materializers.planning.delta_plan import Bound, DeltaPlan, Hops, Leaf, Stage, Table, TypeCatalog

_MOST_HANDLE_COLUMNS = 6


def plan(
    sql: str,
    tables: Sequence[Table],
    key: Sequence[str],
    *,
    view: str = "view",
    whole_rows: int = 0,
    catalog: TypeCatalog | None = None,
) -> DeltaPlan:
    """Plan how to maintain ``sql`` (Spark SQL, one query) under changes of its tables. Pure except for the
    catalog.

    ``key``: the result's columns that are unique in it. ``whole_rows``: up to how many input rows an unbound
    part may be computed whole at every batch; 0 refuses such a part. Without a catalog, types of expressions
    are taken to be comparable. Raises ConfigError (HUB-2130 … HUB-2134) with the reason and the nearest form
    that works.
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


_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"}
# No floating point: engines differ on whether -0.0 and NaN equal themselves.
_EXACT = {"string", "boolean", "binary", "date", "timestamp", "timestamp_ntz"}


def comparable(one: str | None, other: str | None) -> bool:
    """Return whether equality in the store is Spark's equality for two types; True for an unknown type
    (None).
    """
    if one is None or other is None:
        return True
    one, other = one.lower(), other.lower()
    if one in _INTEGERS and other in _INTEGERS:
        return True
    return one == other and (one in _EXACT or one.startswith("decimal"))


class _Planning:
    """Tables and stages planned so far."""

    def __init__(
        self, schema: dict[str, dict[str, str]], catalog: TypeCatalog | None, view: str, whole_rows: int
    ) -> None:
        self.schema = schema
        self.catalog = catalog
        self.view = view
        self.whole_rows = whole_rows
        self.keys: dict[str, tuple[str, ...]] = {}
        self.stages: list[Stage] = []
        self.derived: dict[str, dict[str, str]] = {}
        self._types: dict[tuple[str, str], str | None] = {}
        self.leaves: list[Occurrence] = []
        self.cuts: list[DerivedTableSpan] = []

    def refuse(self, why: str, hint: str, code: str = "HUB-2130") -> ConfigError:
        return ConfigError(f'view "{self.view}": {why}', hint=hint, code=code)

    # -- handles

    def handle(self, table: str, of: exp.Expr) -> str:
        """Return the stored column of a table that has this expression's values."""
        if isinstance(of, exp.Column):
            return of.name
        text = mapped(of, lambda column: exp.column(column.name)).sql(DIALECT)
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

    def _read(self, sql: str) -> tuple[SelectRelation, list[str], list[str]]:
        reader = QueryReader(self.view, self.schema, self.catalog, self)
        found = reader.read(sql)
        self.leaves, self.cuts = reader.leaves, reader.cuts
        return found

    def plan_stage(self, name: str, sql: str, key: tuple[str, ...], *, top: bool) -> Stage:
        root, names, types = self._read(sql)
        missing = [each for each in key if each not in names]
        if missing:
            raise self.refuse(
                f'its key "{missing[0]}" is not a column of its SQL',
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

    def _unbound(
        self, root: SelectRelation, names: list[str], types: list[str], key: tuple[str, ...]
    ) -> ConfigError:
        """Return an error naming the table a change of which would affect every row, and the nearest form
        that works.
        """
        best = [leaf.table for leaf in self.leaves]
        for handle in _handles(names, key):
            self._bounds(root, names, types, handle)
            loose = [leaf.table for leaf in self.leaves if leaf.number not in self._bound_numbers]
            if len(loose) < len(best):
                best = loose
        form = (
            "group by a column and make it the view's key, or select the column that rows are joined or "
            "ranked by (PARTITION BY); or declare up to how many rows may be computed whole at every batch "
            "(whole_rows: 10000)"
        )
        if isinstance(root, Select) and (root.limited or (isinstance(root.groups, list) and not root.groups)):
            form = (
                "rank within groups: row_number() OVER (PARTITION BY …), or GROUP BY a column that is the "
                "view's key; or declare up to how many rows may be computed whole at every batch "
                "(whole_rows: 10000)"
            )
        listed = ", ".join(f'"{table}"' for table in dict.fromkeys(best))
        found = next(filter(None, (obstacle(root, each) for each in key)), None)
        if found is not None:
            return self.refuse(f"a change of {listed} can affect every row: {found[0]}", found[1], "HUB-2132")
        return self.refuse(
            f"a change of {listed} can affect every row: nothing binds its rows to the view's",
            form,
            "HUB-2132",
        )

    _bound_numbers: frozenset[int] = frozenset()

    def _bounds(
        self, root: SelectRelation, names: list[str], types: list[str], handle: tuple[str, ...]
    ) -> tuple[Leaf, ...] | None:
        """Return every leaf with its bound, parents first, if all are bound to this handle. Breadth first:
        shortest chains.
        """
        of_type = dict(zip(names, types, strict=True))
        for leaf in self.leaves:
            leaf.enough.clear()
        root.push([Enough(None, tuple((exp.column(each), each) for each in handle))], [])
        order: list[tuple[Occurrence, Bound]] = []
        placed: dict[int, int] = {}
        level: list[tuple[Occurrence, Bound]] = [(leaf, Bound((), None, ())) for leaf in self.leaves]
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
        self, leaf: Occurrence, handle: tuple[str, ...], types: Mapping[str, str], placed: Mapping[int, int]
    ) -> Bound | None:
        bounds: list[Bound] = []
        for parent, pairs in leaf.enough:
            if parent is not None and parent not in placed:
                continue
            table = None if parent is None else self.leaves[parent].table
            fit: dict[str, str] = {}
            hopping: tuple[str, Hops] | tuple[None, None] = (None, None)
            for column, source, hops in sorted(pairs, key=lambda pair: pair[2] is not None):
                theirs = types[source] if table is None else self.type_of(table, source)
                # Of two hopping columns the second is left out: the pairing of their times is unknown.
                if source in fit or (hops and (hopping[0] is not None or column in fit.values())):
                    continue
                if comparable(self.type_of(leaf.table, column) or None, theirs or None):
                    fit[source] = column
                    hopping = hopping if hops is None else (column, hops)
            if fit and (parent is not None or set(fit) == set(handle)):
                at = None if parent is None else placed[parent]
                bounds.append(Bound(tuple(fit.values()), at, tuple(fit), *hopping))
        return min(bounds, key=lambda bound: (bound.parent is not None, -len(bound.columns)), default=None)

    def _without(
        self, sql: str, cut: DerivedTableSpan, name: str
    ) -> tuple[str, str, tuple[str, ...], str] | None:
        """Return (stage, its SQL, its key, the SQL that reads it): the text unchanged except for one derived
        table.
        """
        rel = cut.rel
        assert isinstance(rel, Select)
        key = self._key_of(rel)
        if key is None:
            return None
        inner = sql[cut.start : cut.end]
        before = SqlText(sql).ctes_before(cut.start)
        inner = (
            f"WITH {before} {inner}" if before and not inner.lstrip().lower().startswith("with") else inner
        )
        outer = f"{sql[: cut.start]}SELECT * FROM {name}{sql[cut.end :]}"
        return name, inner, key, outer

    def _key_of(self, rel: Select) -> tuple[str, ...] | None:
        if rel.groups is not None:
            key = []
            for group in rel.groups:
                named = [name for name, of in rel.projections.items() if group in (of, window_of(of))]
                if not named:
                    return None
                key.append(named[0])
            return tuple(key) if key else None
        if rel.distinct:
            return tuple(rel.names)
        tree = rel.tree
        if isinstance(tree, Scan) and isinstance(tree.of, Occurrence):
            named_by = {of.name: name for name, of in rel.projections.items() if isinstance(of, exp.Column)}
            if all(each in named_by for each in self.keys[tree.of.table]):
                return tuple(named_by[each] for each in self.keys[tree.of.table])
        return None


def _handles(names: Sequence[str], key: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield handles, finest first: the key, its parts, then any one column of the result."""
    if key:
        yield key
    for size in range(min(len(key), _MOST_HANDLE_COLUMNS) - 1, 0, -1):
        yield from combinations(key, size)
    yield from ((name,) for name in names if name not in key)
