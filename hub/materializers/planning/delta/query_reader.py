"""[core] A view's SQL as relations, read from sqlglot's tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from hub.errors import ConfigError, NotFound
from hub.materializers.definition.sql_text import trees_of
from hub.materializers.planning.delta.expressions import conjuncts, spell_windows
from hub.materializers.planning.delta.relations import (
    DerivedTableSpan,
    Handles,
    Join,
    Occurrence,
    Scan,
    SelectRelation,
    Sub,
    Tree,
)
from hub.materializers.planning.delta.selections import Select, SetOperation
from hub.materializers.planning.delta.sql_text import DIALECT, SqlText
from hub.materializers.planning.delta_plan import TypeCatalog
from hub.materializers.sql_rules.determinism import refused


class QueryReader:
    """Reads one SQL text as relations. ``leaves``: its occurrences of tables; ``cuts``: its derived tables
    that may become stages.
    """

    def __init__(
        self,
        view: str,
        schema: Mapping[str, Mapping[str, str]],
        catalog: TypeCatalog | None,
        handles: Handles,
    ) -> None:
        self.view = view
        self.schema = schema
        self.catalog = catalog
        self.handles = handles
        self.leaves: list[Occurrence] = []
        self.cuts: list[DerivedTableSpan] = []

    def refuse(self, why: str, hint: str, code: str = "HUB-2130") -> ConfigError:
        return ConfigError(f'view "{self.view}": {why}', hint=hint, code=code)

    def read(self, sql: str) -> tuple[SelectRelation, list[str], list[str]]:
        """Return the relations of a query, and names and types of its columns ("" for an unknown type)."""
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
        spell_windows(tree)
        qualified = self._qualified(tree)
        known: Mapping[str, str] = self.catalog.columns(sql) if self.catalog is not None else {}
        root = self._query(qualified, {}, SqlText(sql))
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

    def _qualified(self, tree: exp.Expr) -> exp.Query:
        """Return the query with every column's table and every expression's type."""
        try:
            schema: dict[str, object] = {
                name: {column: _typed(of) for column, of in columns.items()}
                for name, columns in self.schema.items()
            }
            qualified = qualify(
                tree,
                schema=schema,
                dialect=DIALECT,
                quote_identifiers=False,
                identify=False,
            )
            qualified = annotate_types(qualified, schema=schema, dialect=DIALECT)
        except SqlglotError as error:
            raise self.refuse(
                f"its SQL cannot be resolved: {_first(error)}", "qualify columns with their table's alias"
            ) from None
        assert isinstance(qualified, exp.Query)
        return qualified

    def _steady(self, sql: str, tree: exp.Expr) -> None:
        never = refused(sqlglot.tokenize(sql, read=DIALECT), tree)
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
                    f'view "{self.view}": its SQL reads "{table.sql(DIALECT)}", which is not an input',
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
                            f'"{name}" in {part.sql(DIALECT)[:80]} may be a column or the alias',
                            f'name the alias otherwise, or write "<table>.{name}"',
                            "HUB-2134",
                        )

    def _query(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: SqlText) -> SelectRelation:
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
            raise self.refuse(f"{node.sql(DIALECT)[:60]} is not read", "write it as SELECT … FROM …")
        return self._select(node, ctes, text, limited)

    def _select(
        self, node: exp.Select, ctes: Mapping[str, _Cte], text: SqlText, limited: bool
    ) -> SelectRelation:
        made = Select(self.handles)
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
        text: SqlText,
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

    def _source(self, node: exp.Expr, ctes: Mapping[str, _Cte], text: SqlText) -> Scan:
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
            raise self.refuse(f"{node.sql(DIALECT)[:60]} in FROM is not read", "use LATERAL VIEW, or a join")
        return Scan(alias, None)

    def _join(self, left: Tree, join: exp.Join, ctes: Mapping[str, _Cte], text: SqlText) -> Join:
        if join.args.get("method") or join.args.get("using"):
            raise self.refuse(f"{join.sql(DIALECT)[:60]} is not read", "write the join with ON")
        if isinstance(join.this, exp.Lateral):
            raise self.refuse("a LATERAL subquery is not read", "write it as a join, or a window")
        kind = _KINDS.get((join.side.upper(), join.kind.upper()))
        if kind is None:
            raise self.refuse(f"{join.side} {join.kind} JOIN is not read", "use INNER, LEFT, RIGHT or FULL")
        right = self._source(join.this, ctes, text)
        return Join(kind, left, right, list(conjuncts(join.args.get("on"))))

    def _cut(self, rel: SelectRelation, at: tuple[int, int, str | None] | None) -> DerivedTableSpan | None:
        if at is None or not isinstance(rel, Select):
            return None
        if rel.groups is None and not rel.partitions and not rel.distinct:
            return None
        cut = DerivedTableSpan(at[0], at[1], at[2], rel)
        if not any(known.start == cut.start for known in self.cuts):
            self.cuts.insert(0, cut)
        return cut


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


def _subqueries(part: exp.Expr) -> Iterator[exp.Expr]:
    for found in part.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(found, exp.Query):
            yield found.unnest() if isinstance(found, exp.Subquery) else found


def _typed(spark_type: str) -> exp.DataType:
    """Return a type for sqlglot; unknown where sqlglot does not parse Spark's."""
    try:
        return exp.DataType.build(spark_type or "unknown", dialect=DIALECT)
    except (SqlglotError, ValueError):
        return exp.DataType(this=exp.DataType.Type.UNKNOWN)


def _untyped(known: exp.DataType | None) -> str:
    if known is None or known.this in (exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL):
        return ""
    return known.sql(DIALECT).lower()


def _first(error: Exception) -> str:
    return str(error).split("\n")[0].split(". Line")[0][:200]
