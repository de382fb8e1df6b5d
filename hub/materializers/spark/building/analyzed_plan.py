"""[edge] pyspark: the analyzed plan of a data frame as values (dataframes/plan_values.py).

The data frame of a source is recognized by the metadata of its columns, which Spark keeps when it gives them
new numbers in a self-join. Spark's analyzer has replaced time windows by arithmetic; the node that computes
them is read back as the call ``window(…)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pyspark.sql import DataFrame

from hub.materializers.dataframes.plan_values import (
    DistinctStep,
    ExplodeStep,
    GroupStep,
    JoinKind,
    JoinStep,
    OverStep,
    Plan,
    PlanColumn,
    PlanItem,
    SelectStep,
    Source,
    SqlTerm,
    TopStep,
    UnionStep,
    WhereStep,
)
from hub.materializers.spark.building.expressions import ExpressionReader, NotCarried, items_of, kind_of

# Key of a column's metadata with the name of its source.
SOURCE = "hub.source"
_WINDOW, _SESSION = "spark.timeWindow", "spark.sessionWindow"
_PASSED = ("SubqueryAlias", "View", "ResolvedHint", "WithCTE")
_LEAVES = ("LogicalRDD", "LocalRelation", "Range", "OneRowRelation", "StreamingRelationV2", "LogicalRelation")
_JOINS: Mapping[str, JoinKind] = {
    "Inner": "INNER",
    "LeftOuter": "LEFT",
    "RightOuter": "RIGHT",
    "FullOuter": "FULL",
    "Cross": "CROSS",
    "LeftSemi": "LEFT SEMI",
    "LeftAnti": "LEFT ANTI",
}
_PYTHON = re.compile(r"Python|Pandas|Arrow|MapPartitions|MapElements|TransformWithState")
_UNITS = (
    (604_800_000_000, "week"),
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
)


def plan_of(frame: DataFrame, reader: ExpressionReader) -> tuple[Plan, tuple[PlanColumn, ...]]:
    """Return the plan of a data frame and its columns, in order. Raises NotCarried."""
    analyzed = frame._jdf.queryExecution().analyzed()
    return _PlanReader(reader).plan(analyzed), _columns(analyzed)


class _PlanReader:
    """Reads nodes from the top down."""

    def __init__(self, reader: ExpressionReader) -> None:
        self._reader = reader
        self._nodes: Mapping[str, Callable[[Any], Plan]] = {
            "Project": self._project,
            "Filter": self._filter,
            "Aggregate": self._aggregate,
            "Distinct": self._distinct,
            "Deduplicate": self._deduplicate,
            "Join": self._join,
            "Union": self._union,
            "Generate": self._generate,
            "Window": self._over,
            "GlobalLimit": self._limit,
            "Sort": self._sort,
        }

    def plan(self, node: Any) -> Plan:
        kind = kind_of(node)
        if kind in _PASSED:
            return self.plan(items_of(node.children())[-1])
        if kind in _LEAVES:
            return self._source(node)
        read = self._nodes.get(kind)
        if read is None:
            raise self._refused(node, kind)
        try:
            return read(node)
        except NotCarried as error:
            error.line = error.line or self._reader.line(node)
            raise

    def _refused(self, node: Any, kind: str) -> NotCarried:
        what, hint = f"`{kind}`", "a view has filters, columns, joins, unions and groups of its sources"
        if _PYTHON.search(kind):
            what = f"`{kind}`, a Python function over rows or groups,"
            hint = "call functions of `transforms` in expressions: F.call_function('name', p.x)"
        return NotCarried(f"{what} cannot be kept up to date", hint, self._reader.line(node))

    def _source(self, node: Any) -> Plan:
        columns = _columns(node)
        named = {orjson.loads(str(each.metadata().json())).get(SOURCE) for each in items_of(node.output())}
        if len(named) != 1 or None in named:
            raise NotCarried(
                f"`{kind_of(node)}` is not the data frame of a source",
                "declare its topic or view as a source of the view; a constant is F.lit(…)",
                self._reader.line(node),
            )
        return Source(str(named.pop()), columns)

    def _project(self, node: Any) -> Plan:
        expressions = items_of(node.projectList())
        window = next((each for each in expressions if _marked(each)), None)
        child = node.child()
        if window is None:
            return SelectStep(tuple(map(self._item, expressions)), self.plan(child))
        if _SESSION not in str(window.metadata().json()) and kind_of(child) == "Filter":
            child = child.child()  # window() has this filter of null times itself
        others = tuple(self._item(each) for each in expressions if each is not window)
        return SelectStep((PlanItem(_column(window), self._window(window)), *others), self.plan(child))

    def _item(self, expression: Any) -> PlanItem:
        made = expression.child() if kind_of(expression) == "Alias" else expression
        line = self._reader.line(expression)
        try:
            term = self._reader.term(made)
        except NotCarried as error:
            error.line = error.line or line
            raise
        return PlanItem(_column(expression), SqlTerm(term.text, line or term.line, term.ranks))

    def _window(self, alias: Any) -> SqlTerm:
        """Return the call of window() or session_window() that Spark has replaced by a struct of times."""
        _, start, _, end = items_of(alias.child().children())
        line = self._reader.line(alias)
        if _SESSION in str(alias.metadata().json()):
            time = start.child().child()
            gap = _unwrapped(end).child()
            while kind_of(gap) in ("Cast", "PreciseTimestampConversion"):
                gap = gap.child()
            length = items_of(gap.children())[1]
            while kind_of(length) == "Cast":
                length = length.child()
            if kind_of(length) != "Literal":
                raise NotCarried(
                    "a session window with a gap of its own for each event",
                    "write one gap: '10 minutes'",
                    line,
                )
            return SqlTerm(f"session_window({self._reader.term(time).text}, '{_interval(length)}')", line)
        begin = _unwrapped(start).child()
        late = begin.left()
        time, slid = late.left().child(), _first(late.right(), "Remainder")
        length = int(str(_unwrapped(end).child().right().value()))
        slide = int(str(slid.right().value()))
        shift = int(str(slid.left().right().value()))
        spans = [length] if length == slide and not shift else [length, slide, *([shift] if shift else [])]
        arguments = ", ".join(f"'{_span(each)}'" for each in spans)
        return SqlTerm(f"window({self._reader.term(time).text}, {arguments})", line)

    def _filter(self, node: Any) -> Plan:
        child = node.child()
        if kind_of(child) == "Expand" and (window := self._hopping(child)) is not None:
            return window
        if kind_of(child) == "Project" and any(
            _marked(each) and _SESSION in str(each.metadata().json())
            for each in items_of(child.projectList())
        ):
            return self.plan(child)  # session_window() has this filter of null times itself
        return WhereStep(self._reader.term(node.condition()), self.plan(child))

    def _hopping(self, node: Any) -> Plan | None:
        """Return the SELECT of hopping windows, which Spark has replaced by a row for each window of an
        event; None for another use of Expand."""
        outputs = items_of(node.output())
        first = items_of(items_of(node.projections())[0])
        if _WINDOW not in str(outputs[0].metadata().json()):
            return None
        window = PlanItem(_column(outputs[0]), self._window(_StructOf(outputs[0], first[0])))
        others = zip(outputs[1:], first[1:], strict=True)
        items = (window, *(PlanItem(_column(made), self._reader.term(read)) for made, read in others))
        return SelectStep(items, self.plan(node.child()))

    def _aggregate(self, node: Any) -> Plan:
        line = self._reader.line(node)
        keys = items_of(node.groupingExpressions())
        if not keys:
            raise NotCarried(
                "an aggregate of all rows has one row and no key",
                "group by a constant with a name: groupBy(F.lit('all').alias('scope'))",
                line,
            )
        terms = tuple(self._reader.term(each.child() if kind_of(each) == "Alias" else each) for each in keys)
        items = tuple(map(self._item, items_of(node.aggregateExpressions())))
        return GroupStep(terms, items, self.plan(node.child()), line)

    def _distinct(self, node: Any) -> Plan:
        return DistinctStep(_columns(node), self.plan(node.child()))

    def _deduplicate(self, node: Any) -> Plan:
        keys = {each.exprId().id() for each in items_of(node.keys())}
        columns = _columns(node)
        if keys != {each.number for each in columns}:
            raise NotCarried(
                "dropDuplicates of some columns keeps another row on every replay",
                "say which one: groupBy('id').agg(F.max_by('x', 'time').alias('x'))",
                self._reader.line(node),
            )
        return DistinctStep(columns, self.plan(node.child()))

    def _join(self, node: Any) -> Plan:
        kind = _JOINS.get(str(node.joinType().toString()))
        line = self._reader.line(node)
        if kind is None:
            raise NotCarried(
                f"a join of kind {node.joinType().toString()}", f"one of {', '.join(_JOINS)}", line
            )
        found = node.condition()
        condition = self._reader.term(found.get()) if found.isDefined() else None
        if condition is None and kind == "INNER":
            kind = "CROSS"
        return JoinStep(kind, condition, self.plan(node.left()), self.plan(node.right()), line)

    def _union(self, node: Any) -> Plan:
        children = items_of(node.children())
        inputs = tuple(tuple(column.number for column in _columns(child)) for child in children)
        return UnionStep(_columns(node), tuple(map(self.plan, children)), inputs)

    def _generate(self, node: Any) -> Plan:
        made = tuple(_column(each) for each in items_of(node.generatorOutput()))
        return ExplodeStep(
            self._reader.term(node.generator()), bool(node.outer()), made, self.plan(node.child())
        )

    def _over(self, node: Any) -> Plan:
        items = tuple(map(self._item, items_of(node.windowExpressions())))
        return OverStep(items, self.plan(node.child()))

    def _limit(self, node: Any) -> Plan:
        limit = self._reader.term(node.limitExpr())
        below = node.child()
        while kind_of(below) == "LocalLimit":
            below = below.child()
        if kind_of(below) != "Sort":
            raise NotCarried(
                "limit without orderBy takes other rows on every replay",
                "orderBy(…).limit(n), or the top ones of each key: F.max_by('x', 'score', 10)",
                self._reader.line(node),
            )
        order = tuple(map(self._reader.term, items_of(below.order())))
        return TopStep(order, limit, self.plan(below.child()))

    def _sort(self, node: Any) -> Plan:
        raise NotCarried(
            "orderBy: a view is a set of rows by key, without an order",
            "order when you read it; orderBy(…).limit(n) keeps the first rows",
            next(filter(None, map(self._reader.line, items_of(node.order()))), 0),
        )


class _StructOf:
    """A column with the struct that it is made of, as an alias has both."""

    def __init__(self, column: Any, made: Any) -> None:
        self._column, self._made = column, made

    def child(self) -> Any:
        return self._made

    def metadata(self) -> Any:
        return self._column.metadata()

    def origin(self) -> Any:
        return self._made.origin()

    def children(self) -> Any:
        return self._made.children()


def _columns(node: Any) -> tuple[PlanColumn, ...]:
    return tuple(map(_column, items_of(node.output())))


def _column(named: Any) -> PlanColumn:
    return PlanColumn(int(named.exprId().id()), str(named.name()))


def _marked(expression: Any) -> bool:
    """Return True for the alias of a time window that Spark's analyzer has inserted."""
    if kind_of(expression) != "Alias" or kind_of(expression.child()) != "CreateNamedStruct":
        return False
    metadata = str(expression.metadata().json())
    return _WINDOW in metadata or _SESSION in metadata


def _unwrapped(expression: Any) -> Any:
    """Return the conversion to a time within KnownNullable."""
    return expression.child() if kind_of(expression) == "KnownNullable" else expression


def _first(expression: Any, kind: str) -> Any:
    """Return the first node of a kind in an expression."""
    waiting = [expression]
    while waiting:
        node = waiting.pop(0)
        if kind_of(node) == kind:
            return node
        waiting += items_of(node.children())
    raise NotCarried("a time window in a form that the hub does not read", "F.window('time', '1 hour')")


def _interval(literal: Any) -> str:
    return str(literal.value().toString())


def _span(micros: int) -> str:
    """Return microseconds as Spark's interval text.

    >>> _span(3_600_000_000), _span(90_000_000)
    ('1 hour', '90 seconds')
    """
    size, unit = next(each for each in _UNITS if micros % each[0] == 0)
    count = micros // size
    return f"{count} {unit}{'s' if count != 1 else ''}"
