"""[core] Trees of SQL expressions: replace columns and aggregates, and write them as Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import ErrorLevel, exp

DIALECT = "spark"


def sql_of(tree: exp.Expr) -> str:
    """Return the tree as Spark SQL. What cannot be written was refused by ``_parse``."""
    return tree.sql(dialect=DIALECT, unsupported_level=ErrorLevel.IGNORE)


_MOST_NESTED = 40


_TRIED: Mapping[type[exp.Expr], str] = {exp.Add: "TRY_ADD", exp.Sub: "TRY_SUBTRACT", exp.Mul: "TRY_MULTIPLY"}


def _is_deep(node: exp.Expr) -> bool:
    """Return True if a node is nested deeper than ``_MOST_NESTED`` levels."""
    above: exp.Expr | None = node
    for _ in range(_MOST_NESTED):
        above = None if above is None else above.parent
    return above is not None


def unwrapped(tree: exp.Expr) -> exp.Expr:
    """Return a copy in which sums and arithmetic use functions that give null on overflow.

    Without ANSI mode, in which one event could stop a view, Spark's own operators wrap whole numbers.
    """
    tree = exp.paren(tree, copy=True)  # so that each node has a parent
    expressions = list(tree.find_all(exp.Sum, *_TRIED))
    # Spark's parser is recursive and cannot parse deeply nested functions
    if any(_is_deep(node) for node in expressions):
        expressions = [node for node in expressions if isinstance(node, exp.Sum)]
    for node in reversed(expressions):  # innermost first
        if any(isinstance(each, exp.Interval | exp.Distinct) for each in node.iter_expressions()):
            continue
        name = _TRIED.get(type(node), "TRY_SUM")
        node.replace(exp.Anonymous(this=name, expressions=list(node.iter_expressions())))
    made: exp.Expr = tree.this
    return made


def path_to(head: Sequence[str], rest: Sequence[str]) -> exp.Expr:
    """Return ``head.rest`` with every part quoted where needed, so that no column name is mistaken for a
    keyword."""
    parts = [exp.to_identifier(part, quoted=not part.isidentifier()) for part in (*head, *rest)]
    node: exp.Expr = exp.Column(this=parts[0])
    for part in parts[1:]:
        node = exp.Dot(this=node, expression=part)
    return node.transform(mark_done)


def mark_done(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column):
        node.meta["done"] = True
    return node


def done(column: exp.Column) -> exp.Column:
    column.meta["done"] = True
    return column


def replace_columns(tree: exp.Expr, of: type[exp.Column], make: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """Replace every column in the tree that is not resolved yet."""
    for column in list(tree.find_all(of)):
        if column.meta.get("done"):
            continue
        made = make(column)
        if column is tree:
            return made
        column.replace(made)
    return tree


def replace_aggregates(tree: exp.Expr, make: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        aggregate = isinstance(node, exp.AggFunc) or (
            isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc)
        )
        return make(node) if aggregate else node

    def walk(node: exp.Expr) -> exp.Expr:
        made = visit(node)
        if made is not node:
            return made
        for child in list(node.iter_expressions()):
            replaced = walk(child)
            if replaced is not child:
                child.replace(replaced)
        return node

    return walk(tree)
