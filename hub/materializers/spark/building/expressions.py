"""[edge] pyspark: expressions of an analyzed plan as SQL text.

Spark prints every expression as SQL (``Expression.sql``). Parts whose text Spark's parser would not read back
are replaced before it prints: columns (by ``⟦number⟧``), lambda functions, functions that Spark has replaced
by others, Python functions, and operators that it prints without brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from py4j.java_gateway import JVMView, is_instance_of
from pyspark.sql import SparkSession

from hub.materializers.dataframes.plan_values import SqlTerm

_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_TOKEN = "hub_part_{}_"
_TOKENS = re.compile(r"`?hub_part_(\d+)_`?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Operators that Spark prints without brackets around them.
_OPEN = ("Like", "ILike", "LikeAll", "LikeAny", "TimestampAddInterval", "TimeAdd", "DateAddInterval")
_OWN = (
    "AttributeReference",
    "LambdaFunction",
    "NamedLambdaVariable",
    "GetStructField",
    "GetArrayStructFields",
)
_QUERIES = ("ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery")
_PYTHON = ("PythonUDF", "PythonUDAF", "ScalaUDF", "PythonUDTF")


class NotCarried(Exception):
    """A part of a data frame that a view cannot have. ``hint``: what to write instead; ``line``: of the
    view's Python file, 0 if unknown."""

    def __init__(self, what: str, hint: str, line: int = 0) -> None:
        super().__init__(what)
        self.what, self.hint, self.line = what, hint, line


def items_of(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(n) for n in range(sequence.size())]


def kind_of(node: Any) -> str:
    """Return the class name of a node of a plan or an expression."""
    return str(node.getClass().getSimpleName())


@dataclass
class ExpressionReader:
    """Reads the expressions of one plan. ``functions``: names of the view's Python functions. ``line_of``
    returns the line of the view's file from a place ``file:line`` in Python."""

    session: SparkSession
    functions: Collection[str]
    line_of: Callable[[str], int]
    _parts: list[str] = field(default_factory=list)
    _arguments: dict[int, int] = field(default_factory=dict)

    @property
    def _jvm(self) -> JVMView:
        return self.session._jvm

    def term(self, expression: Any) -> SqlTerm:
        """Return an expression as SQL. Raises NotCarried."""
        line = self.line(expression)
        if not expression.deterministic():
            raise NotCarried(
                f"`{_short(expression)}` gives another value on every replay",
                "a view is a function of its events: use a column of the event, such as its time or a hash "
                "of its id; compare with the clock when you read the view",
                line,
            )
        try:
            text = self._text(expression)
        except NotCarried as error:
            error.line = error.line or line
            raise
        return SqlTerm(text, line, _has(expression, "WindowExpression"))

    def line(self, node: Any) -> int:
        """Return the line of the view's file that made a node, or the first of its children's; 0: unknown."""
        found = node.origin().context()
        if kind_of(found) == "DataFrameQueryContext":
            place = self.line_of(str(found.callSite()))
            if place:
                return place
        return next(filter(None, map(self.line, items_of(node.children()))), 0)

    def _text(self, expression: Any) -> str:
        """Return the SQL of an expression, brackets included where Spark leaves them out."""
        kind = kind_of(expression)
        if kind == "AttributeReference":
            return f"⟦{expression.exprId().id()}⟧"
        if kind in _QUERIES:
            raise NotCarried(
                f"`{_short(expression)}` is a query within an expression",
                "join the other data frame: left.join(right, on, 'left_semi')",
            )
        if kind in _PYTHON:
            return self._python(expression)
        if kind == "NamedLambdaVariable":
            number = int(expression.exprId().id())
            return f"x{self._arguments.setdefault(number, len(self._arguments) + 1)}"
        if kind == "LambdaFunction":
            arguments = list(map(self._text, items_of(expression.arguments())))
            signature = arguments[0] if len(arguments) == 1 else f"({', '.join(arguments)})"
            return f"{signature} -> {self._text(expression.function())}"
        if kind in ("GetStructField", "GetArrayStructFields"):
            return self._field(expression, kind)
        if is_instance_of(self.session._sc._gateway, expression, f"{_CATALYST}.InheritAnalysisRules"):
            parameters = [self._text(each) for each in items_of(expression.parameters())]
            return f"{expression.prettyName()}({', '.join(parameters)})"
        text = self._filled(str(self._replaced_children(expression).sql()))
        return f"({text})" if kind in _OPEN else text

    def _field(self, expression: Any, kind: str) -> str:
        field_name = (
            str(expression.extractFieldName()) if kind == "GetStructField" else str(expression.field().name())
        )
        quoted = field_name if _PLAIN.fullmatch(field_name) else "`" + field_name.replace("`", "``") + "`"
        return f"{self._text(expression.child())}.{quoted}"

    def _python(self, expression: Any) -> str:
        name = str(expression.name()) if kind_of(expression) == "PythonUDF" else ""
        if name not in self.functions:
            raise NotCarried(
                f"`{_short(expression)}` calls a Python function that the view's file does not declare",
                "name its file in the view, `transforms: words.py`, and call it: "
                "F.call_function('section', p.page)",
            )
        arguments = [self._text(each) for each in items_of(expression.children())]
        return f"{name}({', '.join(arguments)})"

    def _replaced_children(self, expression: Any) -> Any:
        """Return the expression with texts of its own in place of parts that Spark prints in another way."""
        children = items_of(expression.children())
        if not children:
            return expression
        replaced = [self._replaced(each) for each in children]
        if all(one is other for one, other in zip(children, replaced, strict=True)):
            return expression
        return expression.withNewChildren(self._sequence(replaced))

    def _replaced(self, expression: Any) -> Any:
        kind = kind_of(expression)
        own = kind in (*_OWN, *_QUERIES, *_PYTHON, *_OPEN) or is_instance_of(
            self.session._sc._gateway, expression, f"{_CATALYST}.InheritAnalysisRules"
        )
        return self._part(expression) if own else self._replaced_children(expression)

    def _part(self, expression: Any) -> Any:
        """Return a column whose name stands for the expression's text."""
        self._parts.append(self._text(expression))
        name = _TOKEN.format(len(self._parts) - 1)
        expressions = getattr(self._jvm, _CATALYST)
        return expressions.AttributeReference(
            name,
            expression.dataType(),
            expression.nullable(),
            self._jvm.org.apache.spark.sql.types.Metadata.empty(),
            expressions.NamedExpression.newExprId(),
            self._sequence([]),
        )

    def _sequence(self, elements: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(elements)

    def _filled(self, text: str) -> str:
        """Return Spark's text with the parts in place, on one line."""
        whole = _TOKENS.sub(lambda found: self._parts[int(found[1])], text)
        return whole.replace("\n", "\\n").replace("\r", "\\r")


def _has(expression: Any, kind: str) -> bool:
    return kind_of(expression) == kind or any(_has(each, kind) for each in items_of(expression.children()))


def _short(expression: Any) -> str:
    return str(expression.sql())[:80]
