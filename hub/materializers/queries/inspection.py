"""[core] Questions about a parsed statement:
its tables, names, parameters, and the time from which it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.queries.functions.values import interval_ms
from hub.materializers.queries.parser import ParsedStatement, SqlError, placeholders_in
from hub.materializers.queries.relations import Value
from hub.times import parse_iso

_DAY_MS = 86_400_000


def tables_of(statement: ParsedStatement) -> list[str]:
    """Return the names behind FROM and JOIN that are not CTEs of the statement."""
    own = {each.alias for each in statement.tree.find_all(exp.CTE)}
    found = [
        each.name for each in statement.tree.find_all(exp.Table) if isinstance(each.this, exp.Identifier)
    ]
    return [name for name in dict.fromkeys(found) if name not in own]


def references_of(statement: ParsedStatement) -> list[str]:
    """Return the name of each reference to a table, as often as it is referred to."""
    tables = statement.tree.find_all(exp.Table)
    return [each.name for each in tables if isinstance(each.this, exp.Identifier)]


def no_table(statement: ParsedStatement, name: str, known: Iterable[str]) -> SqlError:
    """Return the error about a table that is neither a view nor a topic, with the nearest name."""
    tables = (each for each in statement.tree.find_all(exp.Table) if each.name == name)
    whole = next((each for each in tables if each.args.get("db") is not None), None)
    if whole is not None:
        dotted = ".".join(each.name for each in whole.parts)
        return statement.error(
            f"no table {dotted}: the name of a topic must be in double quotes",
            whole,
            hint=f'FROM "{dotted}"',
            code="HUB-1444",
        )
    guess = nearest(name, known)
    shown = "" if guess is None else f': did you mean "{guess}"?'
    node = next((each for each in statement.tree.find_all(exp.Table) if each.name == name), None)
    return statement.error(
        f'no view and no topic "{name}"{shown}',
        node,
        hint=None if guess else "GET /views lists the views, GET /topics the topics",
        code="HUB-1444",
    )


def system_time_ms(
    statement: ParsedStatement, table: exp.Table, parameters: Mapping[str, Value], now_ms: int
) -> int | None:
    """Return the time (epoch ms) of a table's FOR SYSTEM_TIME AS OF; None without one. Raises SqlError for
    anything but a constant time."""
    version = table.args.get("version")
    if version is None:
        return None
    moment = _moment_ms(version.expression, parameters, now_ms)
    if version.args.get("kind") != "AS OF" or moment is None:
        raise statement.error(
            "FOR SYSTEM_TIME takes AS OF and one constant time",
            table,
            hint="FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-31 14:03:00', or a parameter",
            code="HUB-1442",
        )
    return moment


def times_of(
    statement: ParsedStatement, parameters: Mapping[str, Value], now_ms: int
) -> list[tuple[str, int]]:
    """Return (name of a table, time) of each FOR SYSTEM_TIME AS OF. Raises SqlError."""
    found = []
    for table in statement.tree.find_all(exp.Table):
        at_ms = system_time_ms(statement, table, parameters, now_ms)
        if at_ms is not None:
            found.append((table.name, at_ms))
    return found


def _moment_ms(node: Any, parameters: Mapping[str, Value], now_ms: int) -> int | None:
    """Return the time of a constant; a cast to a date is its midnight."""
    if isinstance(node, exp.Cast) and not node.to.is_type(exp.DataType.Type.DATE):
        return _moment_ms(node.this, parameters, now_ms)
    return _constant_ms(node, parameters, now_ms)


def names_of(statement: ParsedStatement) -> frozenset[str]:
    """Return every name in the statement in lower case, and ``*`` for a star other than COUNT's."""
    stars = ("*" for each in statement.tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count))
    return frozenset([*stars, *(each.name.lower() for each in statement.tree.find_all(exp.Identifier))])


def placeholders(statement: ParsedStatement) -> list[str]:
    """Return the names of the statement's parameters, each once."""
    return placeholders_in(statement.tree)


def since_of(statement: ParsedStatement, parameters: Mapping[str, Value], now_ms: int) -> int | None:
    """Return the earliest ``_timestamp`` (epoch ms) that the WHERE of a statement over one topic allows.

    None when there is no such bound or its form is not recognized: the query then reads too much, never too
    little.
    """
    tree = statement.tree
    if not isinstance(tree, exp.Select) or len(list(tree.find_all(exp.Table))) != 1:
        return None
    table = tree.args["from_"].this if tree.args.get("from_") is not None else None
    if not isinstance(table, exp.Table) or table.args.get("joins") or tree.args.get("joins"):
        return None  # a subquery may call its own by that name
    where = tree.args.get("where")
    found = [_lower_bound(each, parameters, now_ms) for each in _conjuncts(where.this)] if where else []
    return max((each for each in found if each is not None), default=None)


def _conjuncts(node: Any) -> Iterable[Any]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _lower_bound(node: Any, parameters: Mapping[str, Value], now_ms: int) -> int | None:
    if isinstance(node, exp.GT | exp.GTE):
        column, moment = node.this, node.expression
    elif isinstance(node, exp.LT | exp.LTE):
        column, moment = node.expression, node.this
    elif isinstance(node, exp.Between):
        column, moment = node.this, node.args["low"]
    else:
        return None
    if not isinstance(column, exp.Column) or column.name.lower() != "_timestamp":
        return None
    return _constant_ms(moment, parameters, now_ms)


def _constant_ms(node: Any, parameters: Mapping[str, Value], now_ms: int) -> int | None:
    if isinstance(node, exp.Paren):
        return _constant_ms(node.this, parameters, now_ms)
    if isinstance(node, exp.Cast):
        moment = _constant_ms(node.this, parameters, now_ms)
        # The day of a moment begins before it.
        return None if moment is None else moment - moment % _DAY_MS
    if isinstance(node, exp.CurrentTimestamp):
        return now_ms
    value: Value = None
    if isinstance(node, exp.Literal) and node.is_string:
        value = str(node.this)
    elif isinstance(node, exp.Placeholder):
        value = parameters.get(str(node.this))
    if isinstance(value, str):
        try:
            return parse_iso(value)
        except ValueError:
            return None
    if isinstance(node, exp.Sub) and isinstance(node.expression, exp.Interval):
        moment = _constant_ms(node.this, parameters, now_ms)
        length = interval_ms(node.expression)
        return None if moment is None or length is None else moment - length
    return None
