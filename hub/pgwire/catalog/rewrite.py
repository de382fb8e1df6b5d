"""[core] A client's query over catalogs as DuckDB's SQL.

DuckDB's grammar is Postgres', so most of a query stays as it is. Tables become those of the catalog,
functions its macros, types that DuckDB does not have (regclass, name, oid) plain ones, and what depends on
the session (current_user, version()) a literal. Only tables of the catalog and functions of a list are let
through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from hub.materializers.queries.parser import ParsedStatement
from hub.materializers.queries.relations import Value
from hub.pgwire.catalog.layout import LAYOUT, schema_of, stored_name
from hub.pgwire.catalog.macros import MACRO_NAMES, OWN_FUNCTIONS, PREFIX, TABLE_FUNCTIONS
from hub.pgwire.session_settings import DEFAULTS
from hub.pgwire.sign_in import DATABASE
from hub.pgwire.sqlstates import PgError
from hub.pgwire.values import types as t
from hub.pgwire.values.decode import Items, decoded

VERSION = "PostgreSQL 15.0 (event hub)"


@dataclass(frozen=True, slots=True)
class CatalogSession:
    """Values of the session that a query may ask for."""

    user: str
    process: int
    now: str  # ISO 8601, without a zone
    settings: Mapping[str, str] = field(default_factory=dict)


def is_catalog(statement: ParsedStatement) -> bool:
    """Return whether a query reads catalogs, or no table. Raises PgError for one that reads both."""
    own = {each.alias for each in statement.tree.find_all(exp.CTE)}
    tables = [
        each for each in statement.tree.find_all(exp.Table) if each.args.get("db") or each.name not in own
    ]
    named = [each for each in tables if isinstance(each.this, exp.Identifier)]
    theirs = [each for each in named if _stored(each) is not None]
    if theirs and len(theirs) < len(named):
        raise PgError(
            "0A000",
            "a query reads either views and topics, or catalogs (pg_catalog, information_schema, hub)",
            "ask them one after the other",
        )
    return len(theirs) == len(named)


def _stored(table: exp.Table) -> str | None:
    schema = table.args.get("db")
    known: str = (schema_of(table.name.lower()) or "") if schema is None else str(schema.name).lower()
    if known in LAYOUT and table.name.lower() in LAYOUT[known]:
        return stored_name(known, table.name.lower())
    if known in LAYOUT:
        raise PgError("42P01", f'relation "{known}.{table.name[:63]}" does not exist')
    return None


def catalog_sql(statement: ParsedStatement, values: Sequence[Value | Items], session: CatalogSession) -> str:
    """Return the statement in DuckDB's SQL with its parameters written out. Raises PgError."""
    tree: Any = statement.tree.copy()
    for node in list(tree.find_all(exp.Parameter)):
        number = int(str(node.this.this)[:6]) if str(node.this.this)[:6].isdecimal() else 0
        if not 1 <= number <= len(values):
            raise PgError("42P02", f"there is no parameter ${number}")
        node.replace(_literal(values[number - 1]))
    names = {each.alias_or_name for each in tree.find_all(exp.CTE)}
    # Children first, so that what a node is replaced with needs no second look.
    for node in reversed(list(tree.walk(bfs=True))):
        rewritten = _rewritten(node, session)
        if rewritten is node:
            continue
        if node is tree:
            tree = rewritten
        else:
            node.replace(rewritten)
    for table in list(tree.find_all(exp.Table)):
        _plain(table, names)
    for select in tree.find_all(exp.Select):
        _named_outputs(select)
    return str(tree.sql(dialect="duckdb"))


def parameter_types(statement: ParsedStatement, declared: Sequence[int]) -> list[int]:
    """Return the types of a query's parameters: as declared, cast, or compared with, else text."""
    found = list(declared)
    for node in statement.tree.find_all(exp.Parameter):
        number = int(str(node.this.this)[:6]) if str(node.this.this)[:6].isdecimal() else 0
        if 1 <= number <= len(found) and not found[number - 1]:
            found[number - 1] = _type_at(node)
    return [each or t.TEXT for each in found]


def _type_at(node: exp.Parameter) -> int:
    around = node.parent
    while isinstance(around, exp.Paren | exp.Tuple):
        around = around.parent
    if isinstance(around, exp.Cast):
        return _CAST_TYPES.get(_type_name(around.args["to"]), t.TEXT)
    if isinstance(around, exp.Any) and isinstance(around.parent, exp.EQ):
        return t.OID_ARRAY if _is_oid(around.parent.this) else t.TEXT_ARRAY
    if isinstance(around, exp.EQ | exp.In):
        return t.OID if _is_oid(around.this) else t.TEXT
    return t.INT8 if isinstance(around, exp.Limit | exp.Offset) else t.TEXT


def _is_oid(node: Any) -> bool:
    return isinstance(node, exp.Column) and re.search(r"(oid|relid|typarray|typelem)$", node.name) is not None


_CAST_TYPES: Mapping[str, int] = {
    **dict.fromkeys(("int", "integer", "int4", "smallint"), t.INT4),
    **dict.fromkeys(("bigint", "int8"), t.INT8),
    **dict.fromkeys(("oid",), t.OID),
    **dict.fromkeys(("boolean", "bool"), t.BOOL),
    **dict.fromkeys(("double precision", "float8", "real"), t.FLOAT8),
    **dict.fromkeys(("text[]", "name[]", "varchar[]"), t.TEXT_ARRAY),
}


def _literal(value: Value | Items) -> exp.Expr:
    if isinstance(value, list):
        return exp.Array(expressions=[_literal(each) for each in value])
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    return exp.Literal.string(value) if isinstance(value, str) else exp.Literal.number(value)


def _plain(table: exp.Table, ctes: set[str]) -> None:
    if isinstance(table.this, exp.Func):
        _table_function(table, table.this)
        return
    stored = _stored(table)
    if stored is None:
        if table.name in ctes:
            return
        raise PgError("42P01", f'relation "{table.name[:63]}" does not exist')
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name.lower())))
    table.set("this", exp.to_identifier(stored))
    table.set("db", None)
    table.set("catalog", None)


def _table_function(table: exp.Table, call: exp.Func) -> None:
    """Let a function stand in FROM; its column has the table's name, as in Postgres."""
    name, alias = _function_name(call), table.alias
    table.set("db", None)
    if name not in TABLE_FUNCTIONS:
        if name not in OWN_FUNCTIONS:
            raise PgError("42883", f"function {name}() is not a table here")
        made = exp.Subquery(this=exp.select(exp.alias_(call.copy(), alias or name, quoted=True)))
        made.set("alias", exp.TableAlias(this=exp.to_identifier(alias or name, quoted=True)))
        table.replace(made)
    elif alias and not table.args["alias"].args.get("columns"):
        table.args["alias"].set("columns", [exp.to_identifier(alias)])


def _named_outputs(select: exp.Select) -> None:
    """Name outputs as Postgres does: a function's without its prefix, "?column?" for an expression."""
    for node in list(select.expressions):
        if isinstance(node, exp.Column | exp.Alias | exp.Star | exp.Aliases):
            continue
        name = node.meta.get("pg_name") or _output_name(node)
        node.replace(exp.alias_(node.copy(), name, quoted=True))


def _output_name(node: Any) -> str:
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
        if node.meta.get("pg_name"):
            return str(node.meta["pg_name"])
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower().removeprefix(PREFIX)
    if isinstance(node, exp.Case | exp.Coalesce):
        return node.key
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
        return node.sql_name().lower()
    return "?column?"


# ---- nodes


def _rewritten(node: Any, session: CatalogSession) -> Any:
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(node, session)
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector | exp.Case | exp.Cast):
        return _function(node, session)
    if isinstance(node, exp.Into | exp.Lock | exp.DML | exp.DDL | exp.Command):
        raise PgError("25006", "the hub is read-only here")
    return node


def _function_name(node: exp.Func) -> str:
    name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()
    name = name.lower().removeprefix(PREFIX)
    return {"exploding_generate_series": "generate_series", "explode": "unnest"}.get(name, name)


def _function(node: Any, session: CatalogSession) -> Any:
    name = _function_name(node)
    known = _session_value(name, node, session)
    if known is not None:
        known.meta["pg_name"] = {"current_version": "version", "current_timestamp": "now"}.get(name, name)
        return known
    if name in MACRO_NAMES:
        arguments = node.expressions if isinstance(node, exp.Anonymous) else list(node.iter_expressions())
        made = exp.Anonymous(this=PREFIX + name, expressions=arguments)
        made.meta["pg_name"] = name
        return made
    if name == "json_build_object":
        return exp.Anonymous(this="json_object", expressions=node.expressions)
    if isinstance(node, exp.Anonymous) and name not in OWN_FUNCTIONS:
        raise PgError(
            "42883", f"function {name[:63]}() does not exist", "docs/reference/sql-tools.md lists them"
        )
    return node


def _session_value(name: str, node: Any, session: CatalogSession) -> Any | None:
    text = {
        "version": VERSION,
        "current_version": VERSION,
        "current_database": DATABASE,
        "current_catalog": DATABASE,
        "current_schema": "public",
        "current_user": session.user,
        "session_user": session.user,
        "current_role": session.user,
        "user": session.user,
        "getdatabaseencoding": "UTF8",
        "pg_client_encoding": "UTF8",
    }.get(name)
    if text is not None:
        return exp.cast(exp.Literal.string(text), "text")
    if name in (
        "now",
        "current_timestamp",
        "transaction_timestamp",
        "statement_timestamp",
        "clock_timestamp",
    ):
        return exp.cast(exp.Literal.string(session.now), "timestamp")
    if name == "pg_backend_pid":
        return exp.Literal.number(session.process)
    if name == "current_schemas":
        return exp.Array(
            expressions=[exp.Literal.string(each) for each in ("pg_catalog", "public", "topics")]
        )
    if name in ("current_setting", "set_config"):
        arguments = node.expressions if isinstance(node, exp.Anonymous) else list(node.iter_expressions())
        setting = arguments[0].name.lower() if arguments and isinstance(arguments[0], exp.Literal) else ""
        found = session.settings.get(setting, DEFAULTS.get(setting))
        if name == "set_config":
            return exp.cast(arguments[1].copy(), "text") if len(arguments) > 1 else exp.Null()
        return exp.Null() if found is None else exp.cast(exp.Literal.string(found), "text")
    if name == "_pg_expandarray":
        return exp.Struct(
            expressions=[
                exp.PropertyEQ(this=exp.to_identifier(each), expression=exp.Literal.number(0))
                for each in ("x", "n")
            ]
        )
    return None


def _dot(node: exp.Dot, session: CatalogSession) -> Any:
    """Take the schema from a function: ``pg_catalog.format_type(…)``."""
    schema = node.this.name.lower() if isinstance(node.this, exp.Identifier) else ""
    return node.expression if schema in ("pg_catalog", "information_schema") else node


def _column(node: exp.Column, session: CatalogSession) -> Any:
    if node.args.get("db") is not None:  # pg_catalog.pg_class.oid
        node.set("db", None)
        node.set("catalog", None)
    name = node.name.lower()
    if node.args.get("table") is None and not node.this.args.get("quoted"):
        if name in ("current_user", "session_user", "user", "current_catalog", "current_role"):
            return _function(exp.Anonymous(this=name), session)
        if name == "current_schema":
            return _function(exp.Anonymous(this=name), session)
    return node


_PLAIN_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("oid", "xid", "regproc", "regprocedure", "regoper", "cid"), "uinteger"),
    **dict.fromkeys(("name", "char", '"char"', "bpchar", "varchar", "citext", "regrole", "inet"), "text"),
    **dict.fromkeys(("pg_node_tree", "aclitem", "unknown", "json", "jsonb", "cstring"), "text"),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), "timestamp"),
    "int2vector": "smallint[]",
    "oidvector": "uinteger[]",
}


def _type_name(to: Any) -> str:
    return str(to.sql(dialect="postgres")).lower().removeprefix("pg_catalog.").removeprefix('"pg_catalog".')


def _cast(node: exp.Cast, session: CatalogSession) -> Any:
    name = _type_name(node.args["to"])
    if name in ("regclass", "regtype", "regnamespace"):
        return _registered(node, name)
    inner = node.this
    if name.endswith("[]") and isinstance(inner, exp.Literal) and inner.is_string:
        items = decoded(str(inner.this).encode(), 1009, 0, 0) if str(inner.this).startswith("{") else None
        if isinstance(items, list):
            node.set("this", exp.Array(expressions=[exp.Literal.string(str(each)) for each in items]))
    plain = _PLAIN_TYPES.get(name.removesuffix("[]").split("(")[0])
    if plain is not None:
        node.set("to", exp.DataType.build(plain + "[]" * name.endswith("[]"), dialect="duckdb"))
    return node


def _registered(node: exp.Cast, name: str) -> Any:
    """Return a cast to a type of registered names: the number of a literal, the name of a column shown."""
    inner = node.this
    if isinstance(inner, exp.Literal) and inner.is_string and not str(inner.this).isdecimal():
        return _named(f"to_{name}", inner, name)
    if isinstance(inner, exp.Literal):
        return exp.cast(inner, exp.DataType.build("uinteger", dialect="duckdb"))
    around = node.parent
    as_text = isinstance(around, exp.Cast) and _type_name(around.args["to"]) in ("text", "varchar")
    if as_text or isinstance(around, exp.Select | exp.Alias):
        shown = {"regclass": "regclass_name", "regtype": "format_type", "regnamespace": "namespace_name"}
        return _named(shown[name], inner, _output_name(inner))
    return inner


def _named(macro: str, argument: Any, output: str) -> exp.Anonymous:
    more = [exp.Null()] if macro == "format_type" else []
    made = exp.Anonymous(this=PREFIX + macro, expressions=[argument, *more])
    made.meta["pg_name"] = output
    return made


def _collate(node: exp.Collate, _session: CatalogSession) -> Any:
    return node.this


def _operator(node: exp.Operator, _session: CatalogSession) -> Any:
    sign = str(node.args["operator"]).split(".")[-1].strip()
    made = _SIGNS.get(sign)
    if made is None:
        raise PgError("42883", f"operator {sign[:20]} does not exist")
    return made(node.this, node.expression)


_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "~": lambda left, right: exp.RegexpLike(this=left, expression=right),
    "!~": lambda left, right: exp.Not(this=exp.RegexpLike(this=left, expression=right)),
    "=": lambda left, right: exp.EQ(this=left, expression=right),
    "<>": lambda left, right: exp.NEQ(this=left, expression=right),
    "~~": lambda left, right: exp.Like(this=left, expression=right),
}


def _any(node: Any, _session: CatalogSession) -> Any:
    """Write ``x = ANY(array)`` as list_contains: DuckDB's ANY takes a subquery."""
    right = node.expression
    if not isinstance(right, exp.Any | exp.All):
        return node
    array = right.this
    while isinstance(array, exp.Paren | exp.Tuple) and not isinstance(array, exp.Subquery):
        array = array.this if isinstance(array, exp.Paren) else array.expressions[0]
    if isinstance(array, exp.Subquery | exp.Select):
        return node
    found = exp.Anonymous(this="list_contains", expressions=[array, node.this])
    return found if isinstance(node, exp.EQ) else exp.Not(this=found)


_HANDLERS: Mapping[type, Callable[[Any, CatalogSession], Any]] = {
    exp.Dot: _dot,
    exp.Column: _column,
    exp.Cast: _cast,
    exp.Collate: _collate,
    exp.Operator: _operator,
    exp.EQ: _any,
    exp.NEQ: _any,
}
