"""[core] Sums of SQL views that give null instead of wrapping.

Without ANSI mode, in which one event could stop a view, Spark's ``sum`` of whole numbers wraps beyond BIGINT:
the total of two large amounts is a negative number. ``try_sum`` is the same function and gives null then. An
author's text is not regenerated, so ``try_`` is inserted before the function's name.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from sqlglot import TokenType
from sqlglot.dialects.dialect import Dialect

from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import DeltaPlan

_SPARK = Dialect.get_or_raise("spark")


def exact(sql: str) -> str:
    """Return the text with ``try_sum`` for ``sum``.

    >>> exact("SELECT sum(x) AS `sum(x)`, t.sum FROM t WHERE a = 'sum(x)'")
    "SELECT try_sum(x) AS `sum(x)`, t.sum FROM t WHERE a = 'sum(x)'"
    """
    made, done = [], 0
    tokens = _SPARK.tokenize(sql)
    for token, after in pairwise(tokens):
        if token.text.lower() == "sum" and after.token_type is TokenType.L_PAREN and sql[token.start] in "sS":
            made.append(sql[done : token.start])
            done = token.start
            made.append("try_")
    return "".join([*made, sql[done:]])


def has_sums(classified: Classified) -> bool:
    """Return whether the view's text has a sum."""
    text = classified.query.view.sql
    return exact(text) != text


def of_classified(classified: Classified) -> Classified:
    """Return the view with exact sums."""
    return replace(classified, sql=exact(classified.sql), traced=exact(classified.traced))


def of_plan(plan: DeltaPlan) -> DeltaPlan:
    """Return the plan with exact sums."""
    return replace(plan, stages=tuple(replace(each, sql=exact(each.sql)) for each in plan.stages))
