"""[core] Compile a parsed statement over views and topics to one read-only statement for SQLite or Postgres.

The compiler writes every word of the statement that a database gets; it only reads the caller's text. Every
table comes from the catalog, every column from its table, every function from functions/. Names are
generated ("t1"."city"), texts are bound as parameters. Anything unknown is refused with its place and the
nearest name. The compiler limits what databases do not limit: the number of columns, the tables that a chain
of WITH multiplies, and the length of the statement.

The dialect is that of Postgres (texts compare by code point); docs/reference/sql.md lists what it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.queries.clauses.expressions import (
    aggregate,
    exists,
    in_list,
    scalar_subquery,
    windowed,
)
from hub.materializers.queries.clauses.names import column, placeholder, resolved_column
from hub.materializers.queries.clauses.select import compile_tree
from hub.materializers.queries.functions.aggregates import AGGREGATES
from hub.materializers.queries.functions.catalog import FUNCTIONS, HANDLERS, NAMED
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import ParsedStatement, SqlError
from hub.materializers.queries.relations import (
    Compiled,
    CompiledQuery,
    OutputColumn,
    ResolvedColumn,
    TableCatalog,
    Value,
)
from hub.materializers.queries.writer import Handler, Piece, SqlWriter


def compile_query(
    statement: ParsedStatement,
    catalog: TableCatalog,
    *,
    postgres: bool,
    parameters: Mapping[str, Value],
    now_ms: int,
) -> Compiled:
    """Compile the statement for the database. Raises SqlError with line, column and a caret."""
    writer = SqlWriter(statement, catalog, postgres, parameters, now_ms, compile_expr, compile_tree)
    query = _as_sql_error(statement, lambda: writer.query(statement.tree, None, {}))
    unused = sorted(parameters.keys() - writer.used)
    if unused:
        guess = nearest(unused[0], placeholders(statement))
        raise SqlError(
            f'parameter "{unused[0]}" is not in the statement',
            hint=f"write :{unused[0]} where it belongs" if guess is None else f'did you mean "{guess}"?',
            code="HUB-1447",
        )
    shown = tuple(OutputColumn(name, kind) for name, kind in query.columns.items())
    return Compiled(query.text, writer.bound_values, shown, writer.parameter_kinds)


def _as_sql_error(statement: ParsedStatement, act: Callable[[], CompiledQuery]) -> CompiledQuery:
    try:
        return act()
    except RecursionError:
        raise statement.error("the statement nests too deep", code="HUB-1441") from None
    except OverflowError:
        raise statement.error("a number does not fit 64 bits", code="HUB-1445") from None


def compile_expr(w: SqlWriter, node: Any) -> Piece:
    """Compile an expression by its handler. Raises SqlError for anything without one."""
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(w, node)
    if isinstance(node, exp.Func) and _function_name(node) in _TEXT_SEARCHES:
        raise w.statement.error(
            f"{_function_name(node)}(): SQL does not search by words",
            node,
            hint="GET /views/VIEW?q=words or hub view search VIEW words; then query the keys that it finds",
            code="HUB-1446",
        )
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
        named = NAMED.get(node.this.lower())
        if named is not None:
            return named(w, node)
        guess = nearest(node.this.lower(), FUNCTIONS)
        raise _refused(w, f'no function "{node.this[:60]}" here', node, guess)
    if isinstance(node, exp.Func):
        raise _refused(w, f"{node.sql_name()[:60].lower()}() is not a supported function", node, None)
    raise w.fail(f"{type(node).__name__} is not supported", node)


# Functions of other databases for text searches, and names that people try.
_TEXT_SEARCHES = frozenset(
    [
        "match",
        "matches",
        "search",
        "to_tsvector",
        "to_tsquery",
        "plainto_tsquery",
        "phraseto_tsquery",
        "websearch_to_tsquery",
        "ts_rank",
        "ts_rank_cd",
        "ts_headline",
    ]
)


def _function_name(node: exp.Func) -> str:
    named = node.this if isinstance(node, exp.Anonymous) else node.sql_name()
    return str(named).lower()


def _refused(w: SqlWriter, message: str, node: Any, guess: str | None) -> SqlError:
    if guess is not None:
        message += f': did you mean "{guess}"?'
    return w.statement.error(message, node, hint="docs/reference/sql.md lists the functions", code="HUB-1446")


_HANDLERS: Mapping[type, Handler] = {
    **HANDLERS,
    ResolvedColumn: resolved_column,
    exp.Column: column,
    exp.Placeholder: placeholder,
    exp.In: in_list,
    exp.Exists: exists,
    exp.Subquery: scalar_subquery,
    exp.Filter: aggregate,
    **dict.fromkeys(AGGREGATES, aggregate),
    exp.Window: windowed,
}
