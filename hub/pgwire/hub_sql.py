"""[core] A client's query over views and topics as the hub's own: numbered parameters, schemas, saved
queries.

Tools write ``"public"."plant"."city"``, ``$1``, ``= ANY($1)`` and ``FETCH FIRST 5 ROWS ONLY``. The hub's
compiler (hub/materializers/queries/compiler.py) gets the same tree with names of one part and ``:p1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from hub.materializers.queries.parser import ParsedStatement, SqlError, parse
from hub.materializers.queries.relations import Value
from hub.pgwire.values.decode import Items, decoded
from hub.pgwire.values.types import TEXT_ARRAY

VIEWS, TOPICS, QUERIES = "public", "topics", "queries"
_MOST_ITEMS = 1_000


@dataclass(frozen=True, slots=True)
class HubQuery:
    """A statement for the hub's compiler and its parameters."""

    statement: ParsedStatement
    parameters: Mapping[str, Value]


def parameter_count(statement: ParsedStatement) -> int:
    """Return the highest number of a parameter ``$n``."""
    return max((_number(each) for each in statement.tree.find_all(exp.Parameter)), default=0)


def _number(node: exp.Parameter) -> int:
    try:
        return int(str(node.this.this if isinstance(node.this, exp.Expression) else node.this)[:6])
    except ValueError:
        return 0


def hub_query(
    statement: ParsedStatement,
    values: Sequence[Value | Items] | None,
    saved: Mapping[str, str],
) -> HubQuery:
    """Return the statement for the compiler. ``values`` None: its parameters are not known yet (NULL).

    ``saved``: texts of the saved queries by name, which are tables of the schema ``queries``. Raises
    SqlError.
    """
    tree = statement.tree.copy()
    parameters: dict[str, Value] = {}
    for node in list(tree.find_all(exp.Parameter)):
        _number_parameter(statement, node, values, parameters)
    for table in list(tree.find_all(exp.Table)):
        _plain_table(statement, table, saved)
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None:
            column.set("db", None)
            column.set("catalog", None)
    for fetch in list(tree.find_all(exp.Fetch)):
        limit = exp.Limit(expression=fetch.args.get("count") or exp.Literal.number(1))
        fetch.replace(limit)
    assert isinstance(tree, exp.Query)
    return HubQuery(ParsedStatement(statement.text, tree, statement.tokens), parameters)


def _number_parameter(
    statement: ParsedStatement,
    node: exp.Parameter,
    values: Sequence[Value | Items] | None,
    parameters: dict[str, Value],
) -> None:
    number = _number(node)
    if number < 1 or (values is not None and number > len(values)):
        raise statement.error(f"there is no parameter ${number}", node, code="HUB-1447")
    name = f"p{number}"
    value = None if values is None else values[number - 1]
    around = node.parent
    while isinstance(around, exp.Paren | exp.Cast):
        around = around.parent
    if isinstance(around, exp.Any) and isinstance(around.parent, exp.EQ):
        _one_of(around.parent, name, value, parameters)
        return
    if isinstance(value, list):
        raise statement.error(
            f"parameter ${number} is an array", node, hint=f"column = ANY(${number})", code="HUB-1447"
        )
    parameters[name] = value
    if isinstance(node.parent, exp.Limit | exp.Offset) and value is None:
        parameters[name] = 0 if isinstance(node.parent, exp.Offset) else 1
    node.replace(exp.Placeholder(this=name))


def _one_of(equal: exp.EQ, name: str, value: Any, parameters: dict[str, Value]) -> None:
    """Write ``x = ANY($1)`` as ``x IN (:p1_1, :p1_2, …)``."""
    if isinstance(value, str):  # a client that does not say that it is an array
        value = decoded(value.encode(), TEXT_ARRAY, 0, int(name[1:]))
    items = value if isinstance(value, list) else [None]
    if len(items) > _MOST_ITEMS:
        raise SqlError(f"an array of {len(items)} values; {_MOST_ITEMS} are allowed", code="HUB-1441")
    if not items:
        equal.replace(exp.false())
        return
    names = [f"{name}_{number}" for number in range(1, len(items) + 1)]
    parameters.update(zip(names, items, strict=True))
    equal.replace(exp.In(this=equal.this, expressions=[exp.Placeholder(this=each) for each in names]))


def _plain_table(statement: ParsedStatement, table: exp.Table, saved: Mapping[str, str]) -> None:
    schema = table.args.get("db")
    if schema is None:
        return
    if schema.name not in (VIEWS, TOPICS, QUERIES):
        return  # the compiler's error asks for double quotes around a topic's name
    if schema.name == QUERIES:
        if table.name not in saved:
            raise statement.error(
                f'query "{table.name}" does not exist, or has parameters',
                table,
                hint="SELECT * FROM hub.queries lists them",
                code="HUB-1444",
            )
        inner = exp.Subquery(this=parse(saved[table.name]).tree)
        inner.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))
        for name in ("joins",):
            inner.set(name, table.args.get(name))
        table.replace(inner)
        return
    table.set("db", None)
    table.set("catalog", None)
