"""[core] Resolve the columns of all SELECTs of a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from hub.errors import did_you_mean, nearest
from hub.materializers.definition.declared import META
from hub.materializers.definition.sql_query import FromRelation, Query, Scope, SourceColumn, resolved
from hub.materializers.definition.sql_text import with_of
from hub.materializers.types.avro_types import AvroType

_WINDOW_COLUMNS = ("window", "session_window")


class ColumnResolver:
    """Resolves the columns of all SELECTs, from the inside out. Raises ConfigError for a column that no
    source has."""

    def __init__(self, query: Query, types: Mapping[str, Mapping[str, AvroType]]) -> None:
        self.query = query
        self.types = types

    def outputs(
        self,
        node: exp.Expr,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
        outer: Scope | None,
    ) -> dict[str, SourceColumn | None]:
        """Return the columns of a query, each with the source's column that it passes through, or None."""
        if isinstance(node, exp.Subquery):
            return self.outputs(node.this, ctes, outer)
        with_ = node.args.get("with_")
        if with_ is not None:
            if with_.recursive:
                raise self.query.error(
                    "a recursive query is not maintained", "unfold it to a fixed depth", with_, "HUB-2112"
                )
            ctes = dict(ctes)
            for cte in with_.expressions:
                made = self.outputs(cte.this, ctes, outer)
                names = cte.args["alias"].args.get("columns") or []
                if names:
                    made = dict(zip((each.name for each in names), made.values(), strict=False))
                ctes[cte.alias.lower()] = (cte.this, made)
        if isinstance(node, exp.SetOperation):
            left = self.outputs(node.this, ctes, outer)
            right = self.outputs(node.expression, ctes, outer)
            if len(left) != len(right):
                raise self.query.error(
                    f"one side has {len(left)} columns, the other {len(right)}",
                    "both sides of a set operation need the same columns",
                    node.expression,
                    "HUB-2113",
                )
            pairs = zip(left.items(), right.values(), strict=True)
            return {name: origin if origin == other else None for (name, origin), other in pairs}
        if not isinstance(node, exp.Select):
            raise self.query.error("not a SELECT", "write SELECT … FROM a source", node, "HUB-2111")
        return self._select(node, ctes, outer)

    def _select(
        self,
        select: exp.Select,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
        outer: Scope | None,
    ) -> dict[str, SourceColumn | None]:
        scope = Scope(select, outer=outer)
        self.query.scopes[id(select)] = scope
        from_ = select.args.get("from_")
        if from_ is None:
            raise self.query.error(
                "a SELECT without FROM reads no events",
                f"FROM one of {', '.join(self.query.view.sources)}",
                select,
                "HUB-2111",
            )
        tables = [from_.this, *(join.this for join in select.args.get("joins") or ())]
        for table in tables:
            self._relation(scope, table, ctes)
        for lateral in select.args.get("laterals") or ():
            self._made(scope, lateral)
        projections: dict[str, SourceColumn | None] = {}
        for projection in select.expressions:
            for name in self._names(projection):
                if name in projections:
                    raise self.query.error(
                        f'two columns are called "{name}"', "rename one: … AS name", projection, "HUB-2113"
                    )
                projections[name] = None
        for part in select.iter_expressions():
            if part is with_of(select):
                continue
            for found in _within(part):
                if isinstance(found, exp.Column):
                    self._column(scope, found, projections)
                elif found is not select:
                    self._inner(scope, found, tables, ctes)
        for projection in select.expressions:
            names = self._names(projection)
            if len(names) == 1:
                projections[names[0]] = self.query.origin(scope, projection)
        return projections

    def _inner(
        self,
        scope: Scope,
        node: exp.Expr,
        tables: Sequence[exp.Expr],
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
    ) -> None:
        """Resolve a query within an expression. Queries in FROM were resolved with it."""
        if id(node) not in self.query.scopes and not any(
            isinstance(table, exp.Subquery) and table.this is node for table in tables
        ):
            self.outputs(node, ctes, scope)

    def _relation(
        self,
        scope: Scope,
        table: exp.Expr,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
    ) -> None:
        view = self.query.view
        if isinstance(table, exp.Lateral):
            self._made(scope, table)
            return
        if isinstance(table, exp.Subquery):
            made = self.outputs(table.this, ctes, scope.outer)
            scope.relations.append(FromRelation(table.alias, made, query=table.this))
            return
        if not isinstance(table, exp.Table) or isinstance(table.this, exp.Func):
            raise self.query.error(
                f"`{table.sql('spark')[:60]}` is not a source",
                f"FROM reads the view's sources: {', '.join(view.sources)}",
                table,
                "HUB-2111",
            )
        name = table.name
        alias = table.alias or name
        if not table.args.get("db") and name.lower() in ctes:
            inner, outputs = ctes[name.lower()]
            scope.relations.append(FromRelation(alias, outputs, query=inner))
        elif not table.args.get("db") and name in view.sources:
            columns: dict[str, SourceColumn | None] | None = None
            if name in self.types:
                columns = {each: SourceColumn(name, each) for each in (*self.types[name], *META)}
            scope.relations.append(FromRelation(alias, columns, source=name))
        else:
            written = ".".join(part.name for part in table.parts)
            raise self.query.error(
                f'source "{written}" does not exist',
                did_you_mean(
                    name, [*view.sources, *ctes], f"declare it under sources: {', '.join(view.sources)}"
                ),
                table,
                "HUB-2111",
            )

    @staticmethod
    def _made(scope: Scope, lateral: exp.Expr) -> None:
        alias = lateral.args.get("alias")
        if alias is not None:
            scope.made |= {column.name for column in alias.args.get("columns") or ()}
            if alias.this is not None:
                scope.made.add(alias.this.name)
        if not (alias and alias.args.get("columns")):
            scope.made |= {"col", "pos", "key", "value"}  # Spark's default names for the columns of explode()

    def _names(self, projection: exp.Expr) -> list[str]:
        if isinstance(projection, exp.Aliases):
            return [each.name for each in projection.expressions]
        if projection.is_star:
            raise self.query.error(
                "`*` would change the view with every new field of its sources",
                "name the columns",
                projection,
                "HUB-2113",
            )
        name = projection.alias_or_name or projection.output_name
        if not name:
            raise self.query.error(
                f"`{projection.sql('spark')[:60]}` has no name", "name it: … AS name", projection, "HUB-2113"
            )
        return [name]

    def _column(self, scope: Scope, column: exp.Column, projections: Mapping[str, object]) -> None:
        parts = [part.name for part in column.parts]
        if isinstance(column.this, exp.Star):
            raise self.query.error("`*` is not read here", "name the columns", column, "HUB-2113")
        if parts[0] in _WINDOW_COLUMNS and len(parts) > 1 and scope.select.args.get("group") is not None:
            return  # window.start, a column made by GROUP BY window(…)
        at: Scope | None = scope
        while at is not None:
            if parts[0] in at.made:
                return
            found = resolved(at, parts)
            if found is not None and (found[0].columns is not None or parts[0] not in projections):
                self._use(found[0], found[1], column)
                return
            if found is not None and at is scope and not self._names_itself(column, projections):
                self._use(found[0], found[1], column)
                return
            at = at.outer
        if parts[0] in projections or parts[0] in _WINDOW_COLUMNS:
            return
        known = {name for each in scope.relations for name in (each.columns or ())}
        aliases = [each.alias for each in scope.relations if each.alias]
        raise self.query.error(
            f'column "{".".join(parts)}" does not exist',
            did_you_mean(
                parts[0],
                [*known, *aliases, *projections],
                f"there are {', '.join(sorted(known - set(META)))}",
            ),
            column,
            "HUB-2101",
        )

    @staticmethod
    def _names_itself(column: exp.Column, projections: Mapping[str, object]) -> bool:
        """Return True if a bare name outside the SELECT list may be a projection's alias, as in GROUP BY
        hour."""
        node: exp.Expr | None = column
        while node is not None and not isinstance(node, exp.Group | exp.Having | exp.Order | exp.Select):
            node = node.parent
        return isinstance(node, exp.Group | exp.Having | exp.Order) and column.name in projections

    def _use(self, relation: FromRelation, name: str, column: exp.Column) -> None:
        if relation.source is not None:
            if relation.columns is not None and name not in relation.columns:
                source = self.query.view.sources[relation.source]
                own = [each for each in relation.columns if each not in META]
                guess = nearest(name, own)
                raise self.query.error(
                    f'source "{relation.source}" (topic "{source.topic}") has no column "{name}"',
                    f'did you mean "{guess}"?' if guess else f"it has {', '.join(sorted(own))}",
                    column,
                    "HUB-2101",
                )
            self.query.columns_read[relation.source][name] = None
            if name not in META:
                self.query.used[relation.source][name] = None
        elif relation.columns is not None and name not in relation.columns:
            raise self.query.error(
                f'"{relation.alias}" has no column "{name}"',
                did_you_mean(name, relation.columns, f"it has {', '.join(relation.columns)}"),
                column,
                "HUB-2101",
            )


def _within(part: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the columns of an expression and the queries directly within it, without what those read."""
    if isinstance(part, exp.Column):
        yield part
        return
    if isinstance(part, exp.Select | exp.SetOperation):
        yield part
        return
    if isinstance(part, exp.Table):
        return
    for child in part.iter_expressions():
        yield from _within(child)
