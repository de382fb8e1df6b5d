"""[core] Find errors in SQL that Spark's analyzer would report, without Spark.

Finds unknown functions, aggregates of aggregates and of lists, and windows without a length. ``hub view
validate`` asks Spark itself where it is available.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.sql_rules.spark_functions import FUNCTIONS, MORE_AGGREGATES
from hub.materializers.types.avro_types import AvroType

# Aggregates that add: they do not work on a list, a map or a struct.
_ADDING = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop)
_NESTED_KINDS = {"array": "a list", "map": "a map", "record": "a struct"}
_WINDOWS = ("window", "session_window")
_LENGTH = re.compile(r"^\s*(?:interval\s+)?([+-]?\d+)\s*[a-z]+\s*$", re.IGNORECASE)
# A quantifier over a group that ends in a quantifier: (a+)+, (a*b?)*, ([a-z]+)*. Java tries all ways to split
# the text between them.
_NESTED_QUANTIFIER = re.compile(r"\((?:[^()\\]|\\.)*[+*]\)?[+*]|\((?:[^()\\]|\\.)*[+*]\)\{\d+,")
_PATTERNS = (
    exp.RegexpLike,
    exp.RegexpILike,
    exp.RegexpExtract,
    exp.RegexpExtractAll,
    exp.RegexpReplace,
    exp.RegexpCount,
)


@dataclass(frozen=True, slots=True)
class SqlProblem:
    """A problem in SQL: what is wrong, how to fix it, and the node."""

    what: str
    hint: str
    node: exp.Expr


def problem_in(
    tree: exp.Expr, own: Collection[str], kind_of: Callable[[exp.Column], str | None] = lambda _column: None
) -> SqlProblem | None:
    """Return the first problem that Spark would refuse; None if none is found.

    ``own``: names of the view's Python functions. ``kind_of``: returns the Avro kind of a column, None if
    unknown.
    """
    for node in tree.walk():
        sql_problem = (
            _unknown_function(node, own)
            or _nested_aggregate(node)
            or _sum_of_list(node, kind_of)
            or _empty_window(node)
        )
        if sql_problem is not None:
            return sql_problem
    return None


def slow_patterns(tree: exp.Expr) -> list[str]:
    """Return the regular expressions in a tree whose run time may double with each character of a text."""
    found = []
    for node in tree.find_all(*_PATTERNS):
        pattern = node.args.get("expression")
        if isinstance(pattern, exp.Literal) and pattern.is_string and _NESTED_QUANTIFIER.search(pattern.this):
            found.append(str(pattern.this))
    return found


def _unknown_function(node: exp.Expr, own: Collection[str]) -> SqlProblem | None:
    if not isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) or isinstance(node.parent, exp.Dot):
        return None
    name = node.name.lower()
    if not name or name in FUNCTIONS or name in own:
        return None
    guess = nearest(name, [*own, *FUNCTIONS])
    hint = (
        f"did you mean {guess}()?"
        if guess
        else "it is Spark SQL; a function of your own: transforms: FILE.py"
    )
    return SqlProblem(f"function {name}() does not exist", hint, node)


def is_aggregate(node: exp.Expr) -> bool:
    """Return True if a node is a call of an aggregate, including those that sqlglot does not know."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in MORE_AGGREGATES
    return isinstance(node, exp.AggFunc)


def _nested_aggregate(node: exp.Expr) -> SqlProblem | None:
    if not is_aggregate(node) or isinstance(_around(node).parent, exp.Window):
        return None
    at = node.parent
    while at is not None and not isinstance(at, exp.Query | exp.Lambda):
        if is_aggregate(at) and not isinstance(_around(at).parent, exp.Window):
            message = f"`{at.sql('spark')[:60]}` aggregates an aggregate"
            return SqlProblem(message, "compute the inner one in a subquery, or in a view of its own", at)
        at = at.parent
    return None


def _around(node: exp.Expr) -> exp.Expr:
    """Return an aggregate with its FILTER and similar clauses."""
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.parent
    return node


def _sum_of_list(node: exp.Expr, kind_of: Callable[[exp.Column], str | None]) -> SqlProblem | None:
    if not isinstance(node, _ADDING) or not isinstance(node.this, exp.Column):
        return None
    what = _NESTED_KINDS.get(kind_of(node.this) or "")
    if what is None:
        return None
    return SqlProblem(
        f"`{node.sql('spark')[:60]}` adds {what}",
        "add its elements: aggregate(items, 0, (total, each) -> total + each), or explode() them first",
        node,
    )


def _empty_window(node: exp.Expr) -> SqlProblem | None:
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in _WINDOWS:
        return None
    lengths = node.expressions[1:3]
    for place, each in enumerate(lengths):
        match = _LENGTH.match(_text(each))
        if match is not None and int(match[1]) <= 0:
            what = "slide" if place else ("gap" if node.name.lower() == "session_window" else "length")
            return SqlProblem(
                f"`{node.sql('spark')[:60]}`: the {what} of a window is more than nothing",
                "write a number and a unit, such as '10 minutes'",
                node,
            )
    return None


def _text(node: exp.Expr) -> str:
    if isinstance(node, exp.Interval):
        return f"{node.this.name} {node.args['unit'].name if node.args.get('unit') else ''}"
    return str(node.this) if isinstance(node, exp.Literal) else ""


def kinds(types: Mapping[str, Mapping[str, AvroType]]) -> Callable[[exp.Column], str | None]:
    """Return ``kind_of`` for the columns of sources, from their types by source and name.

    For a name that several sources have, it returns the kind that all of them share, else None.
    """
    found: dict[str, set[str]] = {}
    for columns in types.values():
        for name, each in columns.items():
            found.setdefault(name, set()).add(_kind(each))
    return lambda column: next(iter(found[column.name])) if len(found.get(column.name, ())) == 1 else None


def _kind(type_: AvroType) -> str:
    """Return the kind of a type besides null."""
    options = [each for each in type_ if each != "null"] if isinstance(type_, list) else [type_]
    only = options[0] if len(options) == 1 else None
    return str(only.get("type")) if isinstance(only, dict) else str(only)
