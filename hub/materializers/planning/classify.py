"""[core] Classify a SQL view: choose the cheapest engine that can maintain it, and give the reason.

Spark's streams never retract a row. So a query runs natively when each row it writes either stays (append) or
is replaced by a later state of the same key (update):

=========  ======  ==================================================================================
class      mode    what
=========  ======  ==================================================================================
A          append  stateless: filter, projection, explode, UNION ALL
B          update  one aggregation by key or window; SELECT DISTINCT
B-session  append  a session, written when the watermark has closed it
C          append  two streams joined within an interval; a stream enriched by a static table;
                   a window over an inner interval join
D          delta   all that must take rows back: joins of tables, aggregates over views and tables, HAVING,
                   count(DISTINCT), OVER (…), chained aggregates. The delta operator recomputes affected keys
=========  ======  ==================================================================================

Queries that no engine can maintain are refused, with the nearest form that works. The rules follow the
behavior of Spark 4.3 (the shapes that its append and update modes accept); the reason is part of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import Token, TokenType, exp

from hub.materializers.definition.sql_view import (
    FROM,
    ORIGIN,
    VERSION,
    FromRelation,
    Query,
    Scope,
    SourceColumn,
    with_columns,
    with_of,
    wrong,
)
from hub.materializers.planning import real_time
from hub.materializers.sql_rules.checks import is_aggregate

Class = Literal["A", "B", "B-session", "C", "D"]
Mode = Literal["append", "update"]

_WINDOWS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class LateRule:
    """Rule for late events of a source, as SQL over their event time.

    ``windows`` is the call ``window(…)`` over the column; an event is then late as soon as one of its windows
    ends at or before the watermark. Without it the event is late when ``time`` itself is not after the
    watermark.
    """

    source: str
    time: str
    windows: str | None = None


@dataclass(frozen=True, slots=True)
class Classified:
    """Classification of a SQL view: class, SQL for Spark, key and late rules.

    ``sql``: what Spark runs, the author's text with the column ``_hub_version``; empty for class D, whose
    operator has its own. ``traced``: for class A the same with ``_hub_from``, the event that made the row.
    ``nearest``: the nearest native form, if there is one.
    """

    query: Query
    name: Class
    reason: str
    nearest: str
    mode: Mode | None
    key: tuple[str, ...]
    key_from: str
    sql: str
    late: tuple[LateRule, ...]
    traced: str = ""

    @property
    def native(self) -> bool:
        return self.name != "D"

    @property
    def has_state(self) -> bool:
        """True when rows wait for a watermark, which advances in a batch without events."""
        return self.mode == "append" and bool(self.late)

    def watermark(self, source: str) -> tuple[str, str] | None:
        """Return (event time, delay) of a source's watermark for Spark; None where no event of it counts as
        late.

        Spark drops late rows wherever an event time is in a group, and does not report them.
        """
        told = self.query.view.sources[source]
        if (
            told.event_time is None
            or told.watermark is None
            or all(each.source != source for each in self.late)
        ):
            return None
        return told.event_time, told.watermark


def classify(query: Query) -> Classified:
    """Classify a view's SQL. Raises ConfigError: HUB-2114 if no engine maintains it, HUB-2108 if ``mode:
    realtime`` cannot.
    """
    shape = _Classifier(query).of(query.tree)
    if query.view.mode == "realtime":
        real_time.check(query, shape.name, shape.reason, shape.nearest)
    key, key_from = _key(query, shape)
    shape = _with_note(query, shape)
    versions = _versions(query) if shape.name != "D" else {}
    sql = with_columns(query, versions) if versions else ""
    traced = with_columns(query, _origins(query, versions)) if shape.name == "A" else ""
    anew = [_UNDROPPED] if _was_dropped(query, shape) else []
    if any(_is_fine(query, query.tree, query.columns.index(name)) for name in key):
        anew.append(_FINER)
    return Classified(
        _computed_anew(query, anew),
        shape.name,
        shape.reason,
        shape.nearest,
        None if shape.name == "D" else "update" if shape.name == "B" else "append",
        key,
        key_from,
        sql,
        shape.late,
        traced,
    )


@dataclass(frozen=True, slots=True)
class _QueryShape:
    """Result of classifying a query, from the inside out. ``static``: no stream event makes a row of it."""

    name: Class
    reason: str
    nearest: str = ""
    late: tuple[LateRule, ...] = ()
    static: bool = False
    bounded_join: bool = False


_STATIC = _QueryShape("A", "a static table", static=True)


class _Classifier:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.known: dict[int, _QueryShape] = {}

    def of(self, node: exp.Expr) -> _QueryShape:
        if isinstance(node, exp.Subquery):
            return self.of(node.this)
        if id(node) not in self.known:
            made = self._set(node) if isinstance(node, exp.SetOperation) else self._select(node)
            self.known[id(node)] = made
        return self.known[id(node)]

    # ---- set operations

    def _set(self, node: exp.SetOperation) -> _QueryShape:
        self._no_order(node)
        sides = [self.of(node.this), self.of(node.expression)]
        operation = type(node).__name__.upper()
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            return _QueryShape(
                "D",
                f"{operation} compares rows of both sides: a row leaves when its partner comes",
                "UNION ALL keeps every row and is stateless",
            )
        worst = next((side for side in sides if side.name == "D"), None)
        if worst is not None:
            return worst
        if any(side.name != "A" for side in sides):
            return _QueryShape(
                "D",
                "UNION ALL over aggregates or joins: each side is a query of its own",
                "make a view of each side, or UNION ALL the events first and aggregate once",
            )
        if any(side.static for side in sides):
            return _QueryShape("D", "UNION ALL of events and a static table, whose rows may change")
        return _QueryShape("A", "stateless: UNION ALL of stateless queries")

    # ---- a SELECT

    def _select(self, node: exp.Expr) -> _QueryShape:
        assert isinstance(node, exp.Select)
        self._no_order(node)
        scope = self.query.scope(node)
        if with_of(node) is not None:
            for cte in with_of(node).expressions:  # type: ignore[union-attr]
                self.of(cte.this)
        for reason, nearer in self._retracting(node):
            return _QueryShape("D", reason, nearer)
        base = self._from(node, scope)
        if base.name == "D":
            return base
        if self._aggregates(node):
            return self._aggregate(node, scope, base)
        if node.args.get("distinct"):
            return self._distinct(node, base)
        where = node.args.get("where")
        if where is not None and base.name in ("B", "B-session"):
            return _QueryShape(
                "D",
                "WHERE over an aggregate: a row leaves the view when its aggregate no longer passes",
                "aggregate without it, index the column, and filter when you read the view",
            )
        return base

    def _no_order(self, node: exp.Expr) -> None:
        """Refuse ORDER BY and LIMIT, which have no meaning for a view as a set of rows; a top-k has."""
        for arg, what in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY"), ("distribute", "DISTRIBUTE BY")):  # fmt: skip
            if node.args.get(arg) is not None and not (arg == "order" and node.args.get("limit") is not None):
                raise self._never(
                    node.args[arg],
                    f"{what}: a view is a set of rows by key, without an order",
                    "order when you read it",
                )
        if node.args.get("offset") is not None:
            raise self._never(node.args["offset"], "OFFSET: a view has no order", "page when you read it")
        if node.args.get("limit") is not None and node.args.get("order") is None:
            raise self._never(
                node,
                "LIMIT without ORDER BY takes other rows on every replay",
                "keep the top ones by key: max_by(x, score, 10), or ORDER BY … LIMIT",
            )

    def _never(self, node: exp.Expr, what: str, hint: str) -> Exception:
        return self.query.error(what, hint, node, "HUB-2114")

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
        for node in _own(select):
            if isinstance(node, exp.Window):
                yield (
                    f"`{node.this.sql('spark')[:40]} OVER (…)`: a new event changes the ranks and frames of others",
                    "max_by(x, y) keeps the latest of each key, max_by(x, y, k) the top k",
                )
            if isinstance(node, exp.Select | exp.SetOperation):
                yield (
                    "a query within an expression (IN, EXISTS, a scalar): its answer changes for rows that are written",
                    "a JOIN within an interval, or LEFT SEMI JOIN, is native between streams",
                )
            if isinstance(node, exp.Distinct) and node.parent is not select:
                yield (
                    f"`{node.parent.sql('spark')[:50] if node.parent else ''}` needs every value that was ever counted",
                    "approx_count_distinct(x) is native, within 5 %",
                )
            if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
                yield from self._collected(select, node)

    def _collected(self, select: exp.Select, node: exp.Expr) -> Iterator[tuple[str, str]]:
        windowed = any(_window_call(each) for each in _group(select))
        parent = node.parent
        if not isinstance(parent, exp.ArraySort):
            raise self._never(
                node,
                f"`{node.sql('spark')[:50]}` has its values in another order on every replay",
                "sort them: sort_array(collect_list(x))",
            )
        if not windowed:
            yield (
                f"`{node.sql('spark')[:50]}` without a window collects every event for ever",
                "collect within window(event_time, '1 day'), or keep the top ones: max_by(x, y, 100)",
            )

    # ---- FROM

    def _from(self, select: exp.Select, scope: Scope) -> _QueryShape:
        shapes = [self._relation(relation) for relation in scope.relations]
        worst = next((shape for shape in shapes if shape.name == "D"), None)
        if worst is not None:
            return worst
        if len(shapes) == 1:
            if shapes[0].static:
                return _QueryShape(
                    "D",
                    "reads only a static table, whose rows may change",
                    "read it as a stream: {as: stream}",
                )
            return shapes[0]
        joins = [join for join in select.args.get("joins") or () if not isinstance(join.this, exp.Lateral)]
        return self._join(joins, scope, shapes)

    def _relation(self, relation: FromRelation) -> _QueryShape:
        if relation.query is not None:
            return self.of(relation.query)
        assert relation.source is not None
        source = self.query.view.sources[relation.source]
        if source.read_as == "stream":
            return _QueryShape("A", "stateless: each row is made of one event")
        if source.read_as == "static":
            return _STATIC
        what = f'the view "{source.view}"' if source.view else f'the topic "{source.topic}" as a table'
        return _QueryShape(
            "D",
            f"reads {what}: its rows change and go, and what was made of them must follow",
            "with {as: stream}"
            + (", without table:," if source.table is not None else "")
            + " every change is an event of its own (a count then counts changes); with {as: static} it only enriches",
        )

    def _join(self, joins: list[exp.Expr], scope: Scope, shapes: list[_QueryShape]) -> _QueryShape:
        kinds = [_join_kind(join) for join in joins]
        for join, kind in zip(joins, kinds, strict=True):
            if join.args.get("method"):
                raise self._never(
                    join,
                    f"{join.args['method']} JOIN follows the columns' names, which change",
                    "name them: JOIN … ON a.id = b.id",
                )
            if kind == "left anti":
                return _QueryShape(
                    "D",
                    "LEFT ANTI JOIN: a row leaves when its partner comes",
                    "LEFT JOIN within an interval, and WHERE b.id IS NULL when you read the view",
                )
        if any(shape.name in ("B", "B-session", "C") for shape in shapes):
            return _QueryShape(
                "D",
                "joins what was aggregated or joined before: its rows change after they were joined",
                "join the events within an interval and aggregate the result",
            )
        streams = [shape for shape in shapes if not shape.static]
        if not streams:
            return _QueryShape("D", "joins static tables only, whose rows may change", "read one as a stream")
        if len(streams) == 1:
            return self._enriched(joins, kinds, shapes)
        if len(shapes) > 2:
            return _QueryShape(
                "D",
                "joins more than two inputs: Spark judges each join's lateness by the watermark of all",
                "join two streams natively in one view, and enrich its changelog in the next",
            )
        return self._interval(joins[0], kinds[0], scope)

    def _enriched(self, joins: list[exp.Expr], kinds: list[str], shapes: list[_QueryShape]) -> _QueryShape:
        if shapes[0].static:
            return _QueryShape(
                "D",
                "begins with the static table: its rows without an event would have to go when one comes",
                "begin with the stream: FROM events LEFT JOIN names",
            )
        allowed = ("inner", "left", "left semi")
        for join, kind in zip(joins, kinds, strict=True):
            if kind not in allowed:
                return _QueryShape(
                    "D",
                    f"{kind.upper()} JOIN of a stream with a static table: its rows without an event would have to go",
                    "LEFT JOIN the table to the stream",
                )
            if not join.args.get("on") and not join.args.get("using"):
                raise self._never(
                    join, "a join without ON pairs every event with every row", "JOIN … ON a.id = b.id"
                )
        return _QueryShape(
            "C",
            "each event is enriched by static tables, as they stand when its batch is read; later changes of a table "
            "do not change rows that are written",
        )

    def _interval(self, join: exp.Expr, kind: str, scope: Scope) -> _QueryShape:
        left, right = scope.relations
        times = [self._event_time(relation) for relation in (left, right)]
        condition = join.args.get("on")
        terms = list(_terms(condition)) if condition is not None else []
        using = join.args.get("using") or []
        sides = [self._sides(scope, term) for term in terms]
        equal = bool(using) or any(
            isinstance(term, exp.EQ) and both == {0, 1} for term, both in zip(terms, sides, strict=True)
        )
        if kind == "cross" or not equal:
            return _QueryShape(
                "D",
                "joins two streams without an equality: every event with every other",
                "JOIN … ON a.id = b.id AND b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR",
            )
        if times[0] is None or times[1] is None:
            missing = [
                relation.alias for relation, time in zip((left, right), times, strict=True) if not time
            ]
            return _QueryShape(
                "D",
                f'joins two streams for ever: "{missing[0]}" has no watermark, so none of its events can be forgotten',
                "declare event_time and watermark on both, and join within an interval of them",
            )
        bounds = self._bounds(scope, terms, times[0], times[1])
        if len(bounds) < 2:
            return _QueryShape(
                "D",
                "joins two streams for ever: no interval between their event times in ON",
                f"AND {right.alias}.{times[1].column} BETWEEN {left.alias}.{times[0].column} AND "
                f"{left.alias}.{times[0].column} + INTERVAL 1 HOUR",
            )
        late = tuple(LateRule(each.source, each.column) for each in (times[0], times[1]))
        waits = (
            ""
            if kind in ("inner", "left semi")
            else "; a row without partner comes when the watermark has passed"
        )
        return _QueryShape(
            "C",
            f"{kind} join of two streams within an interval of their event times: append{waits}",
            late=late,
            bounded_join=kind == "inner",
        )

    def _event_time(self, relation: FromRelation) -> SourceColumn | None:
        """Return the event time that a relation still has: its source's, passed through by the queries
        between.
        """
        if relation.source is not None:
            column = self.query.view.sources[relation.source].event_time
            return SourceColumn(relation.source, column) if column else None
        for origin in (relation.columns or {}).values():
            if origin is not None and self.query.view.sources[origin.source].event_time == origin.column:
                return origin
        return None

    def _sides(self, scope: Scope, term: exp.Expr) -> set[int]:
        """Return which of the two relations a condition refers to."""
        found = set()
        for column in term.find_all(exp.Column):
            parts = [part.name for part in column.parts]
            for n, relation in enumerate(scope.relations):
                named = len(parts) > 1 and relation.alias.lower() == parts[0].lower()
                if named or (
                    len(parts) == 1 and relation.columns is not None and parts[0] in relation.columns
                ):
                    found.add(n)
        return found

    def _bounds(
        self, scope: Scope, terms: list[exp.Expr], left: SourceColumn, right: SourceColumn
    ) -> set[str]:
        """Return which bounds of {"from", "to"} ON sets for the right event time against the left one."""
        found: set[str] = set()

        def side(node: exp.Expr) -> set[SourceColumn]:
            return {
                origin for column in node.find_all(exp.Column) if (origin := self.query.origin(scope, column))
            }

        def compare(low: exp.Expr, high: exp.Expr) -> None:
            smaller, greater = side(low), side(high)
            if left in smaller and right in greater:
                found.add("from")
            if right in smaller and left in greater:
                found.add("to")

        for term in terms:
            if isinstance(term, exp.Between):
                compare(term.args["low"], term.this)
                compare(term.this, term.args["high"])
            elif isinstance(term, exp.GT | exp.GTE):
                compare(term.expression, term.this)
            elif isinstance(term, exp.LT | exp.LTE):
                compare(term.this, term.expression)
            elif isinstance(term, exp.EQ) and {left} <= side(term) and {right} <= side(term):
                found |= {"from", "to"}
        return found

    # ---- aggregates

    def _aggregates(self, select: exp.Select) -> bool:
        return select.args.get("group") is not None or any(is_aggregate(node) for node in _own(select))

    def _aggregate(self, select: exp.Select, scope: Scope, base: _QueryShape) -> _QueryShape:
        group = select.args.get("group")
        if group is None or (not _group(select) and not group.args.get("all")):
            raise self._never(
                select,
                "an aggregate without GROUP BY has one row and no key",
                "group by a constant with a name: SELECT 'all' AS scope, count(*) AS n FROM … GROUP BY scope",
            )
        if group.args.get("all"):
            raise self._never(group, "GROUP BY ALL hides the key", "name the columns")
        self._unambiguous(select, scope)
        if base.name in ("B", "B-session"):
            return _QueryShape(
                "D",
                "an aggregate over an aggregate: the inner rows change after the outer one has counted them",
                "one GROUP BY over the events, or two views",
            )
        calls = [(each, name) for each in self._grouped(select) if (name := _window_call(each)) is not None]
        if base.name == "C" and not (base.bounded_join and calls and calls[0][1] == "window"):
            return _QueryShape(
                "D",
                "an aggregate over a join without a window: Spark can neither close nor correct it",
                "GROUP BY window(event_time, '1 hour') over an inner interval join is native",
            )
        if len(calls) > 1:
            raise self._never(calls[1][0], "two windows in one GROUP BY", "keep one")
        if not calls:
            return _QueryShape(
                "B",
                "one aggregation by key: each event gives the key's new state; state is kept for every key",
                "",
            )
        call, name = calls[0]
        argument = call.expressions[0] if call.expressions else None
        time = self.query.origin(scope, argument)
        source = self.query.view.sources[time.source] if time is not None else None
        watermarked = time is not None and source is not None and source.event_time == time.column
        if name == "session_window":
            return self._session(call, time if watermarked else None, base)
        if base.name == "C":
            if not watermarked:
                return _QueryShape(
                    "D",
                    "a window over a join, not of an event time with a watermark",
                    "window(the event_time column, …)",
                )
            return _QueryShape(
                "C", "a window over an inner interval join: append when it has closed", late=base.late
            )
        if not watermarked or time is None:
            return _QueryShape(
                "B",
                "one aggregation by window, without a watermark of its time: state is kept for every window, "
                "and no event is too late",
                "to forget old windows, take those of one source's event_time, and declare its watermark",
            )
        text = _text(call)
        hops = len(call.expressions) > 2 and call.expressions[1] != call.expressions[2]
        return _QueryShape(
            "B",
            f"one aggregation by {'hopping' if hops else 'tumbling'} window: each event gives the window's new state, "
            "until the watermark closes it",
            late=(LateRule(time.source, time.column, _over(text, time.column)),),
        )

    def _session(self, call: exp.Expr, time: SourceColumn | None, base: _QueryShape) -> _QueryShape:
        if time is None or base.name == "C":
            raise self._never(
                call,
                "a session is complete only when a watermark says that nothing more will come",
                "declare event_time and watermark on its source and use that column: session_window(event_time, '10 minutes')",
            )
        return _QueryShape(
            "B-session",
            "a session is written once the watermark has closed it: later events may join two of them",
            late=(LateRule(time.source, time.column, _over(_text(call), time.column)),),
        )

    def _unambiguous(self, select: exp.Select, scope: Scope) -> None:
        """Refuse a bare name in GROUP BY that is an alias and a column of FROM: Spark takes the column, a key
        the alias.
        """
        for each in _group(select):
            alias = _named(select, each)
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
        for each in _group(select):
            yield _projected(select, each)

    def _distinct(self, select: exp.Select, base: _QueryShape) -> _QueryShape:
        if base.name != "A":
            return _QueryShape(
                "D",
                "DISTINCT over an aggregate or a join: rows change after they were compared",
                "DISTINCT over the events themselves is native",
            )
        return _QueryShape(
            "B", "DISTINCT: the first event of each row makes it; a row of state each, for ever"
        )


# ---- keys and versions


def _key(query: Query, shape: _QueryShape) -> tuple[tuple[str, ...], str]:
    """Return (the row's key, where it comes from): declared, or the expressions that make a row unique."""
    declared = tuple(query.view.key)
    tree = query.tree
    natural: tuple[str, ...] | None = None
    of = ""
    if isinstance(tree, exp.Select):
        inner = _reached(query, tree)
        if shape.name != "D":
            _check_totals(query, inner)
        if _group(inner) and inner is tree:
            parts = _parts(tree)
            names = [_names_of(query, tree, each)[:1] for each in parts]
            natural = tuple(name for name in query.columns if [name] in names) if [] not in names else None
            of = "GROUP BY"
            if natural is None and not declared:
                missing = parts[names.index([])]
                raise query.error(
                    f"`{missing.sql('spark')[:60]}` of GROUP BY is not in the SELECT list, so rows cannot be told apart",
                    "select it with a name, or say `key:`",
                    missing,
                    "HUB-2113",
                )
        elif tree.args.get("distinct"):
            natural, of = query.columns, "DISTINCT"
    if declared:
        if isinstance(tree, exp.Select) and shape.name != "D":
            _check_declared(query, inner, natural, declared)
        return declared, "declared"
    if natural is None:
        raise wrong(
            query.view,
            "its rows have no key of their own",
            "say which columns tell rows apart, such as key: [flight_id]; rows with the same key replace each other",
            None,
            "HUB-2113",
        )
    return natural, of


def _check_declared(
    query: Query, inner: exp.Select, natural: tuple[str, ...] | None, key: tuple[str, ...]
) -> None:
    """Check that the declared key has every expression that makes a row unique. Raises ConfigError
    (HUB-2113).

    Each is in the key by name, or, where it has no name, within an expression of a key column. The check does
    not look at what that expression computes.
    """
    read = _read_of(query, inner, key)
    made = [each for each in inner.expressions if each.alias_or_name in read]
    held = {node for each in made for node in _spelled(query, inner, each).walk()}
    lost = []
    of = "GROUP BY" if _group(inner) else "DISTINCT"
    for each in _parts(inner) if _group(inner) else map(_unnamed, inner.expressions if natural else ()):
        names = _names_of(query, inner, each)
        is_held = bool(read.intersection(names)) if names else _spelled(query, inner, each) in held
        if not is_held and each.find(exp.Column, exp.GroupingId) is not None:
            lost.append(names[0] if names else each.sql("spark", normalize_functions=False)[:60])
    if lost:
        raise wrong(
            query.view,
            f"key [{', '.join(key)}]: several rows have it, for {of} makes one of each {', '.join(sorted(lost))} as well",
            f"key: [{', '.join(natural)}], or leave it out"
            if natural is not None
            else f"select {lost[0]} with a name that is part of the key, or leave it out of GROUP BY",
            None,
            "HUB-2113",
        )


def _check_totals(query: Query, select: exp.Select) -> None:
    """Refuse totals without a ``grouping_id()``: a total and a row with a null have the same key."""
    if _has_totals(select) and not any(
        isinstance(_unnamed(each), exp.GroupingId) for each in select.expressions
    ):
        raise query.error(
            "ROLLUP, CUBE and GROUPING SETS give a total and a row whose own value is null the same key",
            "tell them apart: select grouping_id() AS level, and have it in the key",
            select.args["group"],
            "HUB-2113",
        )


def _has_totals(select: exp.Select) -> bool:
    group = select.args.get("group")
    return group is not None and (
        any(group.args.get(arg) for arg in ("rollup", "cube", "grouping_sets"))
        or any(isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions)
    )


def _parts(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions that distinguish the rows of a GROUP BY, including the grouping id of totals."""
    levels = [_unnamed(each) for each in select.expressions if _has_totals(select)]
    return [
        *(_projected(select, each) for each in _group(select)),
        *(each for each in levels if isinstance(each, exp.GroupingId)),
    ]


def _read_of(query: Query, inner: exp.Select, names: Iterable[str]) -> set[str]:
    """Return the columns of the row-making SELECT from which these columns of the view are made."""
    select, read = query.tree, set(names)
    while select is not inner:
        scope = query.scope(select)
        (relation,) = scope.relations
        assert isinstance(relation.query, exp.Select)
        below = dict(zip(relation.columns or (), relation.query.expressions, strict=False))
        made = [each for each in select.expressions if each.alias_or_name in read]
        columns = {query.path(scope, column)[1:2] for each in made for column in each.find_all(exp.Column)}
        read = {below[name].alias_or_name for one in columns for name in one if name in below}
        select = relation.query
    return read


def _spelled(query: Query, select: exp.Select, of: exp.Expr) -> exp.Expr:
    """Return an expression with qualified columns (``e.id`` is ``id``) and ``window.end`` as the call's."""
    scope = query.scope(select)
    calls = {name: each for each in _group(select) if (name := _window_call(each)) is not None}

    def whole(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table in calls:
            return exp.Dot(this=_spelled(query, select, calls[node.table]), expression=node.this)
        return exp.column(".".join(query.path(scope, node)))

    return of.copy().transform(whole)


def _reached(query: Query, select: exp.Select) -> exp.Select:
    """Return the SELECT that makes the rows, through queries that only rename and compute."""
    scope = query.scope(select)
    if (
        _group(select)
        or select.args.get("distinct")
        or len(scope.relations) != 1
        or not isinstance(scope.relations[0].query, exp.Select)
    ):
        return select
    return _reached(query, scope.relations[0].query)


def _names_of(query: Query, select: exp.Select, part: exp.Expr) -> list[str]:
    """Return the SELECT list's names of a part of GROUP BY; for a window, of its start, its end or itself."""
    wanted = _spelled(query, select, part)
    found = []
    for projection in select.expressions:
        made = _spelled(query, select, _unnamed(projection))
        if _window_call(part) and isinstance(made, exp.Dot) and made.expression.name in ("start", "end"):
            made = made.this
        if made == wanted:
            found.append(str(projection.alias_or_name))
    return found


def _projected(select: exp.Select, each: exp.Expr) -> exp.Expr:
    """Return an expression of GROUP BY, resolved when it is a number or a name of the SELECT list."""
    if isinstance(each, exp.Literal) and not each.is_string and each.name.isdecimal():
        n = int(each.name)
        if 1 <= n <= len(select.expressions):
            found: exp.Expr = select.expressions[n - 1]
            return _unnamed(found)
    alias = _named(select, each)
    return each if alias is None else _unnamed(alias)


def _named(select: exp.Select, each: exp.Expr) -> exp.Alias | None:
    """Return the SELECT list's alias for a bare name, case-insensitively."""
    if not isinstance(each, exp.Column) or each.table:
        return None
    named = (one for one in select.expressions if isinstance(one, exp.Alias))
    return next((one for one in named if one.alias.lower() == each.name.lower()), None)


def _unnamed(projection: exp.Expr) -> exp.Expr:
    made: exp.Expr = projection.this if isinstance(projection, exp.Alias) else projection
    return made


# ---- views that an upgrade recomputes

# Comments that are added to the SQL text: a view with such a comment gets another fingerprint
# (engine/plans/fingerprints.py hashes it) and is rebuilt in parallel. The view keeps the comment for good;
# other views keep their fingerprint and continue after an upgrade.
_UNDROPPED = "-- late events of no window are rows"
_FINER = "-- a key's text has microseconds"


def _computed_anew(query: Query, why: Iterable[str]) -> Query:
    """Add comments to a query of whose text Spark now makes other rows than in earlier releases."""
    return replace(query, tokens=[*query.tokens, *(Token(TokenType.VAR, each) for each in why)])


def _was_dropped(query: Query, shape: _QueryShape) -> bool:
    """Return whether Spark may have dropped events by a watermark without a window.

    True when an event time, or a column of a subquery that may be one, is in the groups.
    """
    times = _event_times(query)
    if shape.name != "B" or shape.late or not times:
        return False
    assert isinstance(query.tree, exp.Select)
    select = _reached(query, query.tree)
    scope = query.scope(select)
    groups = [_projected(select, each) for each in _group(select)] or select.expressions
    for column in (column for each in groups for column in each.find_all(exp.Column)):
        found, origin = query.column(scope, column), query.origin(scope, column)
        if origin in times or (origin is None and found is not None and found[0].query is not None):
            return True
    return False


_GIVES_ONE_OF = (exp.Coalesce, exp.If, exp.Case, exp.Max, exp.Min, exp.Greatest, exp.Least)


def _is_fine(query: Query, node: exp.Expr, n: int) -> bool:
    """Return whether a query's n-th column may be an event's time finer than milliseconds, passed through."""
    if isinstance(node, exp.Subquery):
        return _is_fine(query, node.this, n)
    if isinstance(node, exp.SetOperation):
        return _is_fine(query, node.this, n) or _is_fine(query, node.expression, n)
    if not isinstance(node, exp.Select) or n >= len(node.expressions):
        return False
    made = _unnamed(node.expressions[n])
    passed = [made] if isinstance(made, exp.Column) else []
    if isinstance(made, _GIVES_ONE_OF):
        passed = list(made.find_all(exp.Column))
    for relation, name in filter(None, (query.column(query.scope(node), each) for each in passed)):
        if relation.source is not None and SourceColumn(relation.source, name) in query.micros:
            return True
        below = list(relation.columns or ())
        if (
            relation.query is not None
            and name in below
            and _is_fine(query, relation.query, below.index(name))
        ):
            return True
    return False


def _event_times(query: Query) -> set[SourceColumn]:
    sources = query.view.sources.items()
    return {
        SourceColumn(name, source.event_time) for name, source in sources if source.event_time is not None
    }


def _with_note(query: Query, shape: _QueryShape) -> _QueryShape:
    """Add a note to a native view about the watermarks that have no effect on it."""
    told = {late.source for late in shape.late}
    idle = [name for name, source in query.view.sources.items() if source.watermark and name not in told]
    if shape.name == "D" or shape.nearest or not idle:
        return shape
    return replace(
        shape,
        nearest=f"the watermark of {', '.join(idle)} closes nothing here: no event is late, none is forgotten",
    )


def _versions(query: Query) -> dict[int, str]:
    """Return the expression of ``_hub_version`` by SELECT: it grows with every state of a key, equal on every
    replay.

    For an aggregate: the number of rows that are folded in. For other rows: one plus the offsets of their
    input events, so that of two rows with one key the later event's row wins, in any order of arrival.
    """
    made: dict[int, str] = {}

    def of(node: exp.Expr) -> None:
        if isinstance(node, exp.Subquery):
            of(node.this)
        elif isinstance(node, exp.SetOperation):
            of(node.this)
            of(node.expression)
        elif isinstance(node, exp.Select) and id(node) not in made:
            made[id(node)] = f"{version(node)} AS {VERSION}"

    def version(select: exp.Select) -> str:
        if _group(select):
            return "count(1)"
        if select.args.get("distinct"):
            return "CAST(1 AS BIGINT)"
        terms = ["CAST(1 AS BIGINT)"]
        aggregated = False
        for relation in _read(query, select):
            if relation.query is not None:
                of(relation.query)
                terms.append(f"coalesce({_qualified(relation, VERSION)}, 0)")
                aggregated = aggregated or is_aggregated(query, relation.query)
            elif relation.source and query.view.sources[relation.source].read_as == "stream":
                terms.append(f"coalesce({_qualified(relation, '_offset')}, 0)")
        return " + ".join(terms[1:] if aggregated else terms)

    of(query.tree)
    return made


def _origins(query: Query, versions: Mapping[int, str]) -> dict[int, str]:
    """Return version and ``_hub_from`` expressions by SELECT of a stateless query: each row is made of one
    event.
    """
    made: dict[int, str] = {}
    for select in query.tree.find_all(exp.Select):
        if id(select) not in versions:
            continue
        (relation,) = _read(query, select)
        if relation.source is None:
            origin = _qualified(relation, FROM)
        else:
            named = ", ".join(f"'{name}', {_qualified(relation, f'_{name}')}" for name in ORIGIN)
            origin = f"named_struct('source', '{relation.source}', {named})"
        made[id(select)] = f"{versions[id(select)]}, {origin} AS {FROM}"
    return made


def _read(query: Query, select: exp.Select) -> Iterable[FromRelation]:
    """Yield the relations whose columns a row has: not the right side of a semi join."""
    hidden = {
        join.this.alias_or_name
        for join in select.args.get("joins") or ()
        if _join_kind(join) in ("left semi", "left anti")
    }
    return [each for each in query.scope(select).relations if each.alias not in hidden]


def is_aggregated(query: Query, node: exp.Expr) -> bool:
    return isinstance(node, exp.Select) and bool(_group(_reached(query, node)))


def _qualified(relation: FromRelation, column: str) -> str:
    return f"`{relation.alias}`.{column}" if relation.alias else column


# ---- reading the tree


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT's own expressions, without those of nested queries and of FROM."""
    for arg in ("expressions", "where", "group", "having", "qualify", "laterals"):
        for part in _list(select.args.get(arg)):
            yield from _nodes(part)
    for join in select.args.get("joins") or ():
        if join.args.get("on") is not None:
            yield from _nodes(join.args["on"])


def _nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    yield node
    if isinstance(node, exp.Select | exp.SetOperation):
        return
    for child in node.iter_expressions():
        yield from _nodes(child)


def _list(argument: object) -> list[exp.Expr]:
    if argument is None:
        return []
    return list(argument) if isinstance(argument, list) else [argument]  # type: ignore[list-item]


def _group(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions of GROUP BY, including those of ROLLUP, CUBE and GROUPING SETS."""
    group = select.args.get("group")
    if group is None:
        return []
    found: dict[exp.Expr, None] = dict.fromkeys(group.expressions)
    for arg in ("rollup", "cube", "grouping_sets"):
        for part in group.args.get(arg) or ():
            for each in part.expressions if isinstance(part, exp.Expr) else ():
                found |= dict.fromkeys(_spread(each))
    for each in list(found):
        if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube):
            del found[each]
            for inner in each.expressions:
                found |= dict.fromkeys(_spread(inner))
    return list(found)


def _spread(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]


def _window_call(node: exp.Expr) -> str | None:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else None
    return name if name in _WINDOWS else None


_JOINS: Mapping[tuple[str, str], str] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "cross",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "left semi",
    ("", "SEMI"): "left semi",
    ("LEFT", "ANTI"): "left anti",
    ("", "ANTI"): "left anti",
}


def _join_kind(join: exp.Expr) -> str:
    return _JOINS.get(((join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()), "cross")


def _terms(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that all must hold (the operands of AND)."""
    if isinstance(condition, exp.And):
        yield from _terms(condition.this)
        yield from _terms(condition.expression)
    elif isinstance(condition, exp.Paren):
        yield from _terms(condition.this)
    else:
        yield condition


def _text(call: exp.Expr) -> str:
    """Return a call as SQL. Its arguments are a column and literals, which generate faithfully."""
    return str(call.sql("spark"))


def _over(text: str, column: str) -> str:
    """Return ``window(d.t, '1 hour')`` as a call over the source's own column."""
    head, _, rest = text.partition("(")
    _, comma, arguments = rest.partition(",")
    return f"{head.lower()}(`{column}`{comma}{arguments}"
