"""[core] The class of a query, from the inside out: set operations, SELECT, and aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from hub.materializers.definition.sql_query import FromRelation, Query, Scope, SourceColumn
from hub.materializers.definition.sql_text import with_of
from hub.materializers.planning.classified import STATIC, LateRule, QueryShape
from hub.materializers.planning.join_shapes import classify_join, never
from hub.materializers.planning.select_parts import (
    call_text,
    group_of,
    named,
    over_column,
    own_nodes,
    projected,
    window_call,
)
from hub.materializers.sql_rules.checks import is_aggregate


def _needs_other_rows(node: exp.Expr, select: exp.Select) -> Iterator[tuple[str, str]]:
    """Yield (why, what to write instead) if new events change what an expression gave for older rows."""
    if isinstance(node, exp.Window):
        ranked = f"`{node.this.sql('spark')[:40]} OVER (…)`"
        yield (
            f"{ranked}: a new event changes the ranks and frames of others",
            "max_by(x, y) keeps the latest of each key, max_by(x, y, k) the top k",
        )
    if isinstance(node, exp.Select | exp.SetOperation):
        within = "a query within an expression (IN, EXISTS, a scalar)"
        yield (
            f"{within}: its answer changes for rows that are written",
            "a JOIN within an interval, or LEFT SEMI JOIN, is native between streams",
        )
    if isinstance(node, exp.Distinct) and node.parent is not select:
        counted = node.parent.sql("spark")[:50] if node.parent else ""
        yield (
            f"`{counted}` needs every value that was ever counted",
            "approx_count_distinct(x) is native, within 5 %",
        )


class QueryClassifier:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.known: dict[int, QueryShape] = {}

    def of(self, node: exp.Expr) -> QueryShape:
        if isinstance(node, exp.Subquery):
            return self.of(node.this)
        if id(node) not in self.known:
            made = self._set(node) if isinstance(node, exp.SetOperation) else self._select(node)
            self.known[id(node)] = made
        return self.known[id(node)]

    # ---- set operations

    def _set(self, node: exp.SetOperation) -> QueryShape:
        self._no_order(node)
        sides = [self.of(node.this), self.of(node.expression)]
        operation = type(node).__name__.upper()
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            return QueryShape(
                "incremental",
                f"{operation} compares rows of both sides: a row leaves when its partner comes",
                "UNION ALL keeps every row and is stateless",
            )
        worst = next((side for side in sides if side.name == "incremental"), None)
        if worst is not None:
            return worst
        if any(side.name != "stateless" for side in sides):
            return QueryShape(
                "incremental",
                "UNION ALL over aggregates or joins: each side is a query of its own",
                "make a view of each side, or UNION ALL the events first and aggregate once",
            )
        if any(side.static for side in sides):
            return QueryShape("incremental", "UNION ALL of events and a static table, whose rows may change")
        return QueryShape("stateless", "stateless: UNION ALL of stateless queries")

    # ---- a SELECT

    def _select(self, node: exp.Expr) -> QueryShape:
        assert isinstance(node, exp.Select)
        self._no_order(node)
        scope = self.query.scope(node)
        if with_of(node) is not None:
            for cte in with_of(node).expressions:  # type: ignore[union-attr]
                self.of(cte.this)
        for reason, nearer in self._retracting(node):
            return QueryShape("incremental", reason, nearer)
        base = self._from(node, scope)
        if base.name == "incremental":
            return base
        if self._aggregates(node):
            return self._aggregate(node, scope, base)
        if node.args.get("distinct"):
            return self._distinct(base)
        where = node.args.get("where")
        if where is not None and base.name in ("aggregate", "session"):
            return QueryShape(
                "incremental",
                "WHERE over an aggregate: a row leaves the view when its aggregate no longer passes",
                "aggregate without it, index the column, and filter when you read the view",
            )
        return base

    def _no_order(self, node: exp.Expr) -> None:
        """Refuse ORDER BY and LIMIT, which have no meaning for a view as a set of rows; a top-k has."""
        for arg, what in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY"),
            ("distribute", "DISTRIBUTE BY")):  # fmt: skip
            if node.args.get(arg) is not None and not (arg == "order" and node.args.get("limit") is not None):
                raise never(
                    self.query,
                    node.args[arg],
                    f"{what}: a view is a set of rows by key, without an order",
                    "order when you read it",
                )
        if node.args.get("offset") is not None:
            raise never(
                self.query, node.args["offset"], "OFFSET: a view has no order", "page when you read it"
            )
        if node.args.get("limit") is not None and node.args.get("order") is None:
            raise never(
                self.query,
                node,
                "LIMIT without ORDER BY takes other rows on every replay",
                "keep the top ones by key: max_by(x, score, 10), or ORDER BY … LIMIT",
            )

    def _retracting(self, select: exp.Select) -> Iterator[tuple[str, str]]:
        """Yield the parts that retract rows anywhere in a query: (reason, nearest native form)."""
        if select.args.get("limit") is not None:
            yield (
                "ORDER BY … LIMIT: a row leaves when a better one comes",
                "max_by(x, score, 10) keeps the top of each key natively",
            )
        if select.args.get("having") is not None:
            yield (
                "HAVING: a row leaves the view when its group no longer passes",
                "leave HAVING out, index the column, and filter when you read the view",
            )
        if select.args.get("qualify") is not None:
            yield (
                "QUALIFY: a row leaves when another takes its rank",
                "max_by(x, y, k) keeps the top k",
            )
        for node in own_nodes(select):
            yield from _needs_other_rows(node, select)
            if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
                yield from self._collected(select, node)

    def _collected(self, select: exp.Select, node: exp.Expr) -> Iterator[tuple[str, str]]:
        windowed = any(window_call(each) for each in group_of(select))
        parent = node.parent
        if not isinstance(parent, exp.ArraySort):
            raise never(
                self.query,
                node,
                f"`{node.sql('spark')[:50]}` has its values in another order on every replay",
                "sort them: sort_array(collect_list(x))",
            )
        if not windowed:
            yield (
                f"`{node.sql('spark')[:50]}` without a window collects every event forever",
                "collect within window(event_time, '1 day'), or keep the top ones: max_by(x, y, 100)",
            )

    # ---- FROM

    def _from(self, select: exp.Select, scope: Scope) -> QueryShape:
        shapes = [self._relation(relation) for relation in scope.relations]
        worst = next((shape for shape in shapes if shape.name == "incremental"), None)
        if worst is not None:
            return worst
        if len(shapes) == 1:
            if shapes[0].static:
                return QueryShape(
                    "incremental",
                    "reads only a static table, whose rows may change",
                    "read it as a stream: {as: stream}",
                )
            return shapes[0]
        joins = [join for join in select.args.get("joins") or () if not isinstance(join.this, exp.Lateral)]
        return classify_join(self.query, joins, scope, shapes)

    def _relation(self, relation: FromRelation) -> QueryShape:
        if relation.query is not None:
            return self.of(relation.query)
        assert relation.source is not None
        source = self.query.view.sources[relation.source]
        if source.read_as == "stream":
            return QueryShape("stateless", "stateless: each row is made of one event")
        if source.read_as == "static":
            return STATIC
        what = f'the view "{source.view}"' if source.view else f'the topic "{source.topic}" as a table'
        return QueryShape(
            "incremental",
            f"reads {what}: its rows change and disappear, and derived rows must follow",
            "with {as: stream}"
            + (", without table:," if source.table is not None else "")
            + " every change is an event of its own (a count then counts changes); with {as: "
            "static} it only enriches",
        )

    # ---- aggregates

    def _aggregates(self, select: exp.Select) -> bool:
        return select.args.get("group") is not None or any(is_aggregate(node) for node in own_nodes(select))

    def _aggregate(self, select: exp.Select, scope: Scope, base: QueryShape) -> QueryShape:
        group = select.args.get("group")
        if group is None or (not group_of(select) and not group.args.get("all")):
            raise never(
                self.query,
                select,
                "an aggregate without GROUP BY has one row and no key",
                "group by a constant with a name: SELECT 'all' AS scope, count(*) AS n FROM … GROUP BY scope",
            )
        if group.args.get("all"):
            raise never(self.query, group, "GROUP BY ALL hides the key", "name the columns")
        self._unambiguous(select, scope)
        if base.name in ("aggregate", "session"):
            return QueryShape(
                "incremental",
                "an aggregate over an aggregate: the inner rows change after the outer one has counted them",
                "one GROUP BY over the events, or two views",
            )
        calls = [(each, name) for each in self._grouped(select) if (name := window_call(each)) is not None]
        if base.name == "join" and not (base.bounded_join and calls and calls[0][1] == "window"):
            return QueryShape(
                "incremental",
                "an aggregate over a join without a window: Spark can neither close nor correct it",
                "GROUP BY window(event_time, '1 hour') over an inner interval join is native",
            )
        if len(calls) > 1:
            raise never(self.query, calls[1][0], "two windows in one GROUP BY", "keep one")
        if not calls:
            return QueryShape(
                "aggregate",
                "one aggregation by key: each event gives the key's new state; state is kept for every key",
                "",
            )
        return self._windowed(*calls[0], scope, base)

    def _windowed(self, call: exp.Expr, name: str, scope: Scope, base: QueryShape) -> QueryShape:
        """Return the shape of an aggregate by the window ``call``, a function ``name``."""
        argument = call.expressions[0] if call.expressions else None
        time = self.query.origin(scope, argument)
        source = self.query.view.sources[time.source] if time is not None else None
        watermarked = time is not None and source is not None and source.event_time == time.column
        if name == "session_window":
            return self._session(call, time if watermarked else None, base)
        if base.name == "join":
            if not watermarked:
                return QueryShape(
                    "incremental",
                    "a window over a join, not of an event time with a watermark",
                    "window(the event_time column, …)",
                )
            return QueryShape(
                "join", "a window over an inner interval join: append when it has closed", late=base.late
            )
        if not watermarked or time is None:
            return QueryShape(
                "aggregate",
                "one aggregation by window, without a watermark of its time: state is kept for every window, "
                "and no event is too late",
                "to forget old windows, take those of one source's event_time, and declare its watermark",
            )
        text = call_text(call)
        hops = len(call.expressions) > 2 and call.expressions[1] != call.expressions[2]
        return QueryShape(
            "aggregate",
            f"one aggregation by {'hopping' if hops else 'tumbling'} window: each event gives "
            "the window's new state, "
            "until the watermark closes it",
            late=(LateRule(time.source, time.column, over_column(text, time.column)),),
        )

    def _session(self, call: exp.Expr, time: SourceColumn | None, base: QueryShape) -> QueryShape:
        if time is None or base.name == "join":
            raise never(
                self.query,
                call,
                "a session is complete only when a watermark shows that no more events will arrive",
                "declare event_time and watermark on its source and use that column: "
                "session_window(event_time, '10 minutes')",
            )
        return QueryShape(
            "session",
            "a session is written once the watermark has closed it: later events may join two of them",
            late=(LateRule(time.source, time.column, over_column(call_text(call), time.column)),),
        )

    def _unambiguous(self, select: exp.Select, scope: Scope) -> None:
        """Refuse a bare name in GROUP BY that is an alias and a column of FROM: Spark takes the column, a key
        the alias.
        """
        for each in group_of(select):
            alias = named(select, each)
            if alias is None:
                continue
            name, of = alias.alias.lower(), alias.this
            below = [*scope.made, *(column for known in scope.relations for column in known.columns or ())]
            itself = isinstance(of, exp.Column) and of.name.lower() == name
            if itself and (not of.table or self.query.column(scope, of) is not None):
                continue
            if name in map(str.lower, below):
                raise self.query.error(
                    f'"{each.name}" in GROUP BY may be a column or the alias',
                    f'name the alias otherwise, or write "<table>.{each.name}"',
                    each,
                    "HUB-2134",
                )

    def _grouped(self, select: exp.Select) -> Iterator[exp.Expr]:
        """Yield the expressions of GROUP BY, with names and numbers resolved in the SELECT list."""
        for each in group_of(select):
            yield projected(select, each)

    def _distinct(self, base: QueryShape) -> QueryShape:
        if base.name != "stateless":
            return QueryShape(
                "incremental",
                "DISTINCT over an aggregate or a join: rows change after they were compared",
                "DISTINCT over the events themselves is native",
            )
        return QueryShape(
            "aggregate", "DISTINCT: the first event of each row makes it; one row of state each, forever"
        )
