"""[core] Plan of the delta operator: which rows of a SQL view a change can affect, and which input rows they
need.

Spark's streams have no retractions, so joins of tables, HAVING, top-n, distinct counts and aggregates of
aggregates are not streaming queries. The delta operator (``spark/delta_engine.py``) keeps the inputs as
tables, recomputes *the same SQL text* for the rows that a batch can have affected, and emits the difference.
Everything that has to be right about "can have affected" is here and in ``delta_selections.py``, as pure
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
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from hub.errors import ConfigError, NotFound
from hub.materializers.definition.sql_view import trees_of
from hub.materializers.planning.delta_plan import Bound, DeltaPlan, Hops, Leaf, Stage, Table, TypeCatalog
from hub.materializers.planning.delta_selections import (
    DerivedTableSpan,
    Enough,
    Join,
    Occurrence,
    Scan,
    Select,
    SelectRelation,
    SetOperation,
    Sub,
    Tree,
    conjuncts,
    mapped,
    obstacle,
    window_of,
)
from hub.materializers.sql_rules.determinism import refused

_DIALECT = "spark"
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


# ---- planning


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
        text = mapped(of, lambda column: exp.column(column.name)).sql(_DIALECT)
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
            "group by a column and make it the view's key, or select the column that rows are joined or ranked by "
            "(PARTITION BY); or declare up to how many rows may be computed whole at every batch (whole_rows: 10000)"
        )
        if isinstance(root, Select) and (root.limited or (isinstance(root.groups, list) and not root.groups)):
            form = (
                "rank within groups: row_number() OVER (PARTITION BY …), or GROUP BY a column that is the view's key; "
                "or declare up to how many rows may be computed whole at every batch (whole_rows: 10000)"
            )
        said = ", ".join(f'"{table}"' for table in dict.fromkeys(best))
        found = next(filter(None, (obstacle(root, each) for each in key)), None)
        if found is not None:
            return self.refuse(f"a change of {said} can touch every row: {found[0]}", found[1], "HUB-2132")
        return self.refuse(
            f"a change of {said} can touch every row: nothing ties its rows to the view's", form, "HUB-2132"
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
        found: list[Bound] = []
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
                found.append(Bound(tuple(fit.values()), at, tuple(fit), *hopping))
        return min(found, key=lambda bound: (bound.parent is not None, -len(bound.columns)), default=None)

    # -- from text to relations

    def _read(self, sql: str) -> tuple[SelectRelation, list[str], list[str]]:
        """Return the relations of a query, and names and types of its columns ("" for an unknown type)."""
        self.leaves, self.cuts = [], []
        try:
            parsed = trees_of(sql)
        except SqlglotError as error:
            raise self.refuse(
                f"its SQL cannot be read: {_first(error)}", "it is one SELECT in Spark SQL"
            ) from None
        if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
            raise self.refuse("its SQL is not one query", "write one SELECT, with CTEs where it needs steps")
        tree = parsed[0]
        self._steady(sql, tree)
        self._unambiguous(tree)
        self._inputs_only(tree)
        _spell_windows(tree)
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
        root = self._query(qualified, {}, _SqlText(sql))
        names = list(root.names)
        if known:
            if len(known) != len(names):
                raise self.refuse("its SQL has two columns of one name", "give each column a name with AS")
            renamed = [each.lower() for each in known]
            if isinstance(root, Select):
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

    def _steady(self, sql: str, tree: exp.Expr) -> None:
        never = refused(sqlglot.tokenize(sql, read=_DIALECT), tree)
        if never is not None:
            raise self.refuse(never.what, never.hint, "HUB-2133")
        for node in tree.walk():
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
        """Refuse a name in GROUP BY that is an alias and a column below: Spark takes the column, readers the
        alias.
        """
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

    def _query(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: _SqlText) -> SelectRelation:
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
            return SetOperation([left, right], limited)
        if not isinstance(node, exp.Select):
            raise self.refuse(f"{node.sql(_DIALECT)[:60]} is not read", "write it as SELECT … FROM …")
        return self._select(node, ctes, text, limited)

    def _select(
        self, node: exp.Select, ctes: Mapping[str, _Cte], text: _SqlText, limited: bool
    ) -> SelectRelation:
        made = Select(self)
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
                made.tree = Join("inner", made.tree, Scan(lateral.alias.lower(), None), [])
        where = node.args.get("where")
        made.where = list(conjuncts(where.this)) if where is not None else []
        made.groups = self._groups(node)
        partitions = [list(window.args.get("partition_by") or []) for window in _own(node, exp.Window)]
        for window in _own(node, exp.Window):
            if window.args.get("alias") or isinstance(window.args.get("this"), exp.Identifier):
                partitions = [[]]
        if node.args.get("windows"):  # WINDOW w AS (…): rare, and equivalent to OVER
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
        text: _SqlText,
        bindable: bool,
    ) -> Sub:
        equals: list[exp.Expr] = []
        for each in where:
            if isinstance(each, exp.In) and each.args.get("query") is not None:
                query = each.args["query"]
                if query is sub or query.unnest() is sub:
                    one = each.this.unnest()
                    equals = list(one.expressions) if isinstance(one, exp.Tuple) else [one]
        return Sub(self._query(sub, ctes, text.none()), equals, bindable)

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

    def _source(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: _SqlText) -> Scan:
        if node.args.get("joins"):
            raise self.refuse("joins in parentheses are not read", "write them one after the other")
        alias = node.alias_or_name.lower()
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Func):
            name = node.name.lower()
            if name in ctes:
                cte = ctes[name]
                rel = self._query(cte.query, cte.ctes, text.none())
                return Scan(alias, rel, self._cut(rel, text.cte(cte.alias)))
            leaf = Occurrence(len(self.leaves), name)
            self.leaves.append(leaf)
            return Scan(alias, leaf)
        if isinstance(node, exp.Subquery):
            if not isinstance(node.this, exp.Query):
                raise self.refuse("joins in parentheses are not read", "write them one after the other")
            rel = self._query(node.this, ctes, text)
            return Scan(alias, rel, self._cut(rel, text.derived(node.alias)))
        if node.find(exp.Query, exp.Column) is not None:
            raise self.refuse(f"{node.sql(_DIALECT)[:60]} in FROM is not read", "use LATERAL VIEW, or a join")
        return Scan(alias, None)

    def _join(self, left: Tree, join: exp.Join, ctes: Mapping[str, _Cte], text: _SqlText) -> Join:
        if join.args.get("method") or join.args.get("using"):
            raise self.refuse(f"{join.sql(_DIALECT)[:60]} is not read", "write the join with ON")
        if isinstance(join.this, exp.Lateral):
            raise self.refuse("a LATERAL subquery is not read", "write it as a join, or a window")
        kind = _KINDS.get((join.side.upper(), join.kind.upper()))
        if kind is None:
            raise self.refuse(f"{join.side} {join.kind} JOIN is not read", "use INNER, LEFT, RIGHT or FULL")
        right = self._source(join.this, ctes, text)
        return Join(kind, left, right, list(conjuncts(join.args.get("on"))))

    # -- cuts

    def _cut(self, rel: SelectRelation, at: tuple[int, int, str | None] | None) -> DerivedTableSpan | None:
        if at is None or not isinstance(rel, Select):
            return None
        if rel.groups is None and not rel.partitions and not rel.distinct:
            return None
        cut = DerivedTableSpan(at[0], at[1], at[2], rel)
        if not any(known.start == cut.start for known in self.cuts):
            self.cuts.insert(0, cut)
        return cut

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
        before = _SqlText(sql).ctes_before(cut.start)
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
    """Yield handles, finest first: the key, its parts, then any one column of the result."""
    if key:
        yield key
    for size in range(min(len(key), _MOST_HANDLE_COLUMNS) - 1, 0, -1):
        yield from combinations(key, size)
    yield from ((name,) for name in names if name not in key)


class _SqlText:
    """The SQL's text and tokens, from which derived tables are extracted verbatim."""

    def __init__(self, sql: str, *, blind: bool = False) -> None:
        self.sql = sql
        self.blind = blind
        self.tokens: list[Token] = [] if blind else list(sqlglot.tokenize(sql, read=_DIALECT))

    def none(self) -> _SqlText:
        """Return a text without cuts: for a part that is read several times or is inside an expression."""
        return _SqlText("", blind=True)

    def derived(self, alias: str) -> tuple[int, int, str | None] | None:
        """Return the span inside ``(…) [AS] alias`` if there is exactly one."""
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
        """Return the span inside ``alias AS (…)`` if there is exactly one."""
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
        """Return the text of the top WITH's parts that end before ``at``: those a query at that place can
        refer to.
        """
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
    """Yield nodes of a kind in this SELECT's own expressions, not in subqueries; ``over`` False: not in
    windows.
    """
    parts = [*node.expressions]
    parts += [
        node.args[each] for each in ("where", "having", "order", "qualify", "group") if node.args.get(each)
    ]
    for part in parts:
        for found in part.walk(prune=lambda each: isinstance(each, exp.Query)):
            if isinstance(found, kind) and (over or not isinstance(found.parent, exp.Window)):
                yield found


def _own_queries(node: exp.Select) -> Iterator[exp.Expr]:
    """Yield the subqueries in this SELECT's expressions and join conditions."""
    parts = [*node.expressions]
    parts += [
        node.args[each] for each in ("where", "having", "order", "qualify", "group") if node.args.get(each)
    ]
    parts += [join.args["on"] for join in node.args.get("joins") or [] if join.args.get("on")]
    for part in parts:
        yield from _subqueries(part)


def _spell_windows(tree: exp.Expr) -> None:
    """Rewrite ``window.end``, as GROUP BY window(…) makes it, to ``window(…).end``."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        calls = group.find_all(exp.Anonymous) if group is not None else ()
        made = {
            call.name.lower(): call for call in calls if call.name.lower() in ("window", "session_window")
        }
        scope = [select.args.get("from_"), *(select.args.get("joins") or ())]
        taken = {each.this.alias_or_name.lower() for each in scope if each is not None}
        for column in list(select.find_all(exp.Column)):
            name, *fields = (part.name.lower() for part in column.parts)
            if name not in made or name in taken or len(fields) > 1 or column.parent_select is not select:
                continue
            call: exp.Expr = made[name].copy()
            if fields:
                call = exp.Dot(this=call, expression=exp.to_identifier(fields[0]))
            named = column.parent is select
            column.replace(exp.alias_(call, column.name) if named else call)


def _subqueries(part: exp.Expr) -> Iterator[exp.Expr]:
    for found in part.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(found, exp.Query):
            yield found.unnest() if isinstance(found, exp.Subquery) else found


def _typed(spark_type: str) -> exp.DataType:
    """Return a type for sqlglot; unknown where sqlglot does not parse Spark's."""
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
