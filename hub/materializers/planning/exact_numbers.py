"""[core] Sums and arithmetic of SQL views that give null instead of wrapping.

Without ANSI mode, in which one event could stop a view, Spark's ``sum``, ``+``, ``-`` and ``*`` of whole
numbers
wrap: the total of two large amounts is a negative number. ``try_sum``, ``try_add``, ``try_subtract`` and
``try_multiply`` are the same functions and give null then. An author's text is not regenerated: ``a + b``
becomes
``try_add(a , b)`` by insertions into it.

Times are left alone: a stream's join is bounded by the form ``t - INTERVAL 1 HOUR``, which Spark must
recognize.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from sqlglot import TokenType, exp
from sqlglot.parsers.spark import SparkParser

from hub.materializers.definition.sql_text import SPARK, trees_of
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import DeltaPlan

SUMS, ARITHMETIC = 1, 2
"""First rules of views (``entity_plan.RULES``) under which sums, and arithmetic, give null."""

_TRIED: Mapping[type[exp.Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
}
_OPERATIONS = (exp.Add, exp.Sub, exp.Mul)
_OPERATORS = (TokenType.PLUS, TokenType.DASH, TokenType.STAR)
_INTERVALS = ("makeinterval", "makedtinterval", "makeyminterval", "trymakeinterval")
_MOST_NESTED = 40  # Spark's parser is recursive: deeper operations are left as they are
_SPAN, _CALL = "tokens", "call"


def exact(sql: str, rules: int = ARITHMETIC) -> str:
    """Return the text with functions that give null.

    >>> exact("SELECT sum(x) AS `sum(x)`, t.sum, a + b * 2 FROM t WHERE a = 'sum(x)'")
    "SELECT try_sum(x) AS `sum(x)`, t.sum, try_add(a , try_multiply(b , 2)) FROM t WHERE a = 'sum(x)'"
    """
    return _sums(_arithmetic(sql) if rules >= ARITHMETIC else sql)


def rules_of(sql: str, rules: int) -> int:
    """Return the earliest rules that give the text the same meaning as ``rules``; 0 if no number can wrap."""
    return next(
        each for each in (0, SUMS, rules) if each == rules or exact_by(sql, each) == exact_by(sql, rules)
    )


def exact_by(sql: str, rules: int) -> str:
    """Return the text as ``rules`` have it."""
    return exact(sql, rules) if rules else sql


def of_classified(classified: Classified, rules: int = ARITHMETIC) -> Classified:
    """Return the view with exact numbers."""
    return replace(classified, sql=exact_by(classified.sql, rules), traced=exact_by(classified.traced, rules))


def of_plan(plan: DeltaPlan, rules: int = ARITHMETIC) -> DeltaPlan:
    """Return the plan with exact numbers, also in the columns by which affected rows are found."""
    head = "SELECT "
    return replace(
        plan,
        stages=tuple(replace(each, sql=exact_by(each.sql, rules)) for each in plan.stages),
        derived={
            table: {name: exact_by(head + of, rules).removeprefix(head) for name, of in columns.items()}
            for table, columns in plan.derived.items()
        },
    )


def _sums(sql: str) -> str:
    made, done = [], 0
    for token, after in pairwise(SPARK.tokenize(sql)):
        if token.text.lower() == "sum" and after.token_type is TokenType.L_PAREN and sql[token.start] in "sS":
            made.append(sql[done : token.start])
            done = token.start
            made.append("try_")
    return "".join([*made, sql[done:]])


# ---- arithmetic


class _CallParser(SparkParser):
    """Parser that notes the first token, the operator and the last token of each ``+``, ``-`` and ``*``."""

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        return _with_calls(super()._parse_term(parse_mod))

    def _parse_factor(self, parse_mod: bool = True) -> exp.Expr | None:
        return self._spanned(self._index, _with_calls(super()._parse_factor(parse_mod)))

    def _parse_factor_operand(self) -> exp.Expr | None:
        return self._spanned(self._index, super()._parse_factor_operand())

    def _spanned(self, first: int, node: exp.Expr | None) -> exp.Expr | None:
        if node is not None:
            node.meta[_SPAN] = first, self._index - 1
        return node


def _with_calls(tree: exp.Expr | None) -> exp.Expr | None:
    """Note the tokens of a chain ``a + b - c``, whose operands have theirs. A lambda's operands are replaced
    later, therefore at once.
    """
    chain = []
    node = tree
    while isinstance(node, exp.Binary) and _SPAN not in node.meta:
        chain.append(node)
        node = node.this
    first = None if node is None else node.meta.get(_SPAN)
    for each in reversed(chain):
        last = each.expression.meta.get(_SPAN) if each.expression is not None else None
        if first is None or last is None:
            break
        if isinstance(each, _OPERATIONS):
            each.meta[_CALL] = first[0], last[0] - 1, last[1]
    return tree


def _arithmetic(sql: str) -> str:
    """Return the text with functions for ``+``, ``-`` and ``*``,
    where the result is not too deep for Spark."""
    tokens = SPARK.tokenize(sql)
    if not any(token.token_type in _OPERATORS for token in tokens):
        return sql
    edits: list[tuple[int, int, str]] = []  # from, to, text
    done: set[int] = set()
    for tree in trees_of(sql, _CallParser(dialect=SPARK)):
        for node in _to_replace(tree):
            first, operator, last = node.meta[_CALL]
            if operator not in done:
                done.add(operator)
                begin, middle, end = tokens[first].start, tokens[operator], tokens[last].end + 1
                edits += [(begin, begin, f"{_TRIED[type(node)]}("), (middle.start, middle.end + 1, ",")]
                edits.append((end, end, ")"))
    made, at = [], 0
    for begin, end, text in sorted(edits, key=lambda each: each[0]):  # stable: an outer call comes first
        made += [sql[at:begin], text]
        at = end
    return "".join([*made, sql[at:]])


def _to_replace(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operations to replace; an outer one before those within it."""
    found = list(tree.find_all(*_OPERATIONS, bfs=True))
    depths: dict[int, tuple[int, int]] = {}
    for node in found:
        outer = node.find_ancestor(*_OPERATIONS)
        root, depth = (id(node), 0) if outer is None else depths[id(outer)]
        depths[id(node)] = root, depth + 1
    too_deep = {root for root, depth in depths.values() if depth > _MOST_NESTED}
    for node in found:
        is_time = any(_is_time(each) for each in (node.this, node.expression))
        if _CALL in node.meta and depths[id(node)][0] not in too_deep and not is_time:
            yield node


def _is_time(node: exp.Expr) -> bool:
    """Return whether an operand is an interval, or arithmetic with one."""
    node = node.unnest()
    if isinstance(node, (*_OPERATIONS, exp.Neg)):
        return any(_is_time(each) for each in node.iter_expressions())
    function = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
    return isinstance(node, exp.Interval) or function.lower().replace("_", "") in _INTERVALS
