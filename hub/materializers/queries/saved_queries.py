"""[core] Saved queries: the SQL files of a project's folder ``queries/``, and the columns that each of them
reads.

::

    -- How late do planes leave?            leading comments: the query's doc
    select d.carrier, avg(d.dep_delay)
    from "nyc.jfk.departures" d             a topic, in double quotes
    join customer_360 c on c.key = d.who    a view, by its name

One file holds one SELECT in DuckDB's dialect. sqlglot finds the columns that it reads: names are resolved to
their tables, ``*`` expands to the known columns, and columns of an inner query that no outer query uses are
left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from hub.caller import CALLER, Forbidden, Unauthenticated, reads_all, shows_all, topic_visibility
from hub.errors import ConfigError, PeerError
from hub.files import read_bytes
from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.schema_impact import ColumnBreak, columns_by_field
from hub.materializers.queries.inspection import tables_of
from hub.materializers.queries.parser import SqlError, parse
from hub.schema_registry.describe import describe
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.registry.snapshot import ParsedSchema
from hub.topics.tree.tree import matches

DIALECT = "duckdb"
FOLDER = "queries"
MOST_BYTES = 262_144
MOST_QUERIES = 1_000
_WRITES = (exp.DML, exp.DDL, exp.Command, exp.Into)
_KEY = "key"  # a column of every view's rows in addition to their fields

Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """One file. ``name`` is the file's without ``.sql``; ``sql`` is the whole text;
    ``doc`` its leading ``--`` lines."""

    name: str
    path: Path
    sql: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class QueryImpact:
    """A column that a query reads and that a schema version removes or changes.

    ``column`` is named as in the query: ``nyc.jfk.departures.tail``, ``customer_360.city``. For a view's
    column, ``what`` names the source fields that it is made of.
    """

    query: str
    path: str
    column: str
    what: str

    def __str__(self) -> str:
        return f"query {self.query} reads {self.column}, which {self.what}"


# ---- the files


def query_files(project: Path) -> list[Path]:
    """Return the files of a project's saved queries, by name."""
    return sorted((project / FOLDER).glob("*.sql"))


def load_query(path: Path) -> SavedQuery:
    """Load the query of one file. Raises ConfigError (HUB-1109) with line and column: unreadable, no SQL, not
    one SELECT.
    """
    try:
        content = read_bytes(path, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _wrong(f"larger than {MOST_BYTES} bytes", "is it one query?", str(path))
        sql = content.decode("utf-8-sig")
    except OSError as error:
        raise _wrong(
            f"cannot be read ({error.strerror})", "check the file and its rights", str(path)
        ) from None
    except UnicodeDecodeError:
        raise _wrong("not UTF-8 text", "save the file as UTF-8", str(path)) from None
    _parsed(sql, str(path))
    return SavedQuery(path.stem, path, sql, _doc(sql))


def load_queries(project: Path) -> list[SavedQuery]:
    """Load all saved queries of a project folder, by name; [] without any. Raises ConfigError (HUB-1109)."""
    files = query_files(project)
    if len(files) > MOST_QUERIES:
        raise _wrong(
            f"{len(files)} queries, {MOST_QUERIES} are allowed", "split the project", str(project / FOLDER)
        )
    return [load_query(path) for path in files]


def _doc(sql: str) -> str:
    lines = []
    for line in sql.splitlines():
        text = line.strip()
        if not text.startswith("--"):
            if text:
                break
            continue
        lines.append(text.removeprefix("--").strip())
    return "\n".join(lines).strip()


def _parsed(sql: str, where: str) -> exp.Query:
    try:
        trees = [each for each in sqlglot.parse(sql, dialect=DIALECT) if each is not None]
    except SqlglotError as error:
        first = (error.errors or [{}])[0] if isinstance(error, ParseError) else {}
        place = f"{where}:{first['line']}:{first['col']}" if first.get("line") else where
        message = str(first.get("description") or error).splitlines()[0]
        raise _wrong(f"no SQL: {message[:200]}", "one SELECT, as DuckDB has it", place) from None
    except RecursionError:
        raise _wrong("nested too deep", "make the query simpler", where) from None
    trees = [each for each in trees if not isinstance(each, exp.Semicolon)]
    if len(trees) != 1:
        raise _wrong(f"{len(trees)} statements", "a file has one SELECT", where)
    tree = trees[0]
    if not isinstance(tree, exp.Query) or tree.find(*_WRITES) is not None:
        raise _wrong("not a SELECT", "a saved query reads and changes nothing", where)
    return tree


def _wrong(what: str, hint: str, where: str) -> ConfigError:
    return ConfigError(what, hint=hint, where=where, code="HUB-1109")


# ---- columns that a query reads


def columns_used(sql: str, tables: Mapping[str, Sequence[str]]) -> dict[str, set[Path_]]:
    """Return the paths of the columns that a query reads, by table as the query names it.

    ``tables`` are the columns of the known tables; for other tables ``*`` contributes nothing. Raises
    ConfigError when the text is not one SELECT.
    """
    tree = _parsed(sql, "query")
    everything = tree.find(exp.Columns) is not None  # COLUMNS('regex'): any of them
    named = _renamed(tree)
    schema = {
        alias: {column.lower(): "unknown" for column in tables[table]}
        for alias, table in named.items()
        if tables.get(table)
    }
    try:
        found = list(_resolved(tree, named, schema))
    except (
        SqlglotError,
        RecursionError,
        AttributeError,
        KeyError,
        ValueError,
    ):  # SQL that sqlglot cannot resolve
        found = list(_mentioned(tree, named, tables))
    used: dict[str, set[Path_]] = {table: set() for table in named.values()}
    for table, path in found:
        spelled = {column.lower(): column for column in tables.get(table, ())}
        used[table].add((spelled.get(path[0].lower(), path[0]), *path[1:]))
    if everything:
        for table in used:
            used[table] |= {(column,) for column in tables.get(table, ())}
    return used


def _renamed(tree: exp.Expr) -> dict[str, str]:
    """Give every table a name without dots, with its own as the alias; return the original by new name."""
    named: dict[str, str] = {}
    within = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function
        called = ".".join(part.name for part in table.parts)
        if called.lower() in within and not _defines(table, called):
            continue
        known = next((new for new, old in named.items() if old == called), f"t_{len(named)}")
        named[known] = called
        if not table.alias:
            alias = exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            table.set("alias", alias)
        table.set("this", exp.to_identifier(known))
        table.set("db", None)
        table.set("catalog", None)
    return named


def _defines(table: exp.Expr, name: str) -> bool:
    """Return whether the table is in the definition of a CTE of its own name: ``with v as (select * from
    v)``.
    """
    cte = table.find_ancestor(exp.CTE)
    while cte is not None:
        if cte.alias_or_name.lower() == name.lower():
            within = cte.parent
            return not (isinstance(within, exp.With) and within.recursive)
        cte = cte.find_ancestor(exp.CTE)
    return False


def _resolved(
    tree: exp.Expr, named: Mapping[str, str], schema: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, Path_]]:
    made = qualify(
        tree.copy(),
        dialect=DIALECT,
        schema=dict(schema),
        validate_qualify_columns=False,
        quote_identifiers=False,
    )
    made = pushdown_projections(made)
    for scope in traverse_scope(made):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if (
                isinstance(source, exp.Table)
                and source.name in named
                and not isinstance(column.this, exp.Star)
            ):
                yield named[source.name], (column.name, *_steps(column))


def _steps(column: exp.Expr) -> Iterator[str]:
    """Yield the field accesses on a column: ``.city``, ``['city']``."""
    node = column
    while (parent := node.parent) is not None:
        if (
            isinstance(parent, exp.Dot)
            and parent.this is node
            and isinstance(parent.expression, exp.Identifier)
        ):
            yield parent.expression.name
        elif isinstance(parent, exp.Bracket) and parent.this is node and len(parent.expressions) == 1:
            if not parent.expressions[0].is_string:
                return  # an array element: the whole column is read
            yield parent.expressions[0].name
        elif not isinstance(parent, exp.Paren):
            return
        node = parent


def _mentioned(
    tree: exp.Expr, named: Mapping[str, str], tables: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Path_]]:
    """Fallback for unresolvable SQL: yield every named column of every table that has it; with a ``*`` all of
    them.
    """
    every = tree.find(exp.Star) is not None
    names = {part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts}
    for table in named.values():
        for column in tables.get(table, ()):
            if every or column.lower() in names:
                yield table, (column,)


# ---- impact of a schema version


def columns_of(parsed: ParsedSchema) -> tuple[str, ...]:
    """Return the columns of a topic as a table: top-level fields of its schema; () for a non-record."""
    try:
        view = describe(parsed.schema_type, parsed.schema, parsed.named)
    except InvalidSchema:
        return ()
    return tuple(field.name for root in view.roots[:1] for field in view.types[root].fields)


def query_impacts(
    queries: Iterable[SavedQuery],
    views: Sequence[View],
    topic: str,
    old: ParsedSchema,
    new: ParsedSchema,
    version: int,
    parsed_schemas: Mapping[str, ParsedSchema] | None = None,
) -> list[QueryImpact]:
    """Return what breaks in the queries when ``new`` becomes this version of the topic's value schema.

    A query may read the topic directly or through a view. ``parsed_schemas``: the schemas of other topics,
    by topic; without them ``*`` and unqualified names resolve to less.
    """
    by_view = {each.name: each for each in views}
    tables = {name: columns_of(each) for name, each in (parsed_schemas or {}).items()}
    tables[topic] = columns_of(old)
    for view in views:
        tables[view.name] = tables[f"{CHANGELOG_PREFIX}{view.name}"] = (_KEY, *view.columns)
    breaks = ColumnBreak(old, new)
    in_views = {name: _broken_columns(view, topic, breaks, version) for name, view in by_view.items()}
    found: dict[QueryImpact, None] = {}
    for query in queries:
        for table, paths in sorted(columns_used(query.sql, tables).items()):
            name = table.removeprefix(CHANGELOG_PREFIX)
            if name in by_view:
                for column, what in _in_view(in_views[name], paths):
                    place = f"{table}.{column}" if column else table
                    found[QueryImpact(query.name, str(query.path), place, what)] = None
            elif table == topic:
                for path in sorted(paths):
                    for inner, what in breaks.of(path):
                        column = ".".join((table, *inner))
                        found[
                            QueryImpact(query.name, str(query.path), column, f"version {version} {what}")
                        ] = None
    return list(found)


def _broken_columns(view: View, topic: str, breaks: ColumnBreak, version: int) -> dict[str, list[str]]:
    """Return the breaking inputs of each column of the view; the column "" stands for every row."""
    found: dict[str, list[str]] = {}
    for column, reads in columns_by_field(view).items():
        for source, paths in reads.items():
            if not matches(view.sources[source].topic, topic):
                continue
            for path in sorted(paths):
                for inner, what in breaks.of(path):
                    message = f"needs {'.'.join((source, *inner))}, which version {version} {what}"
                    found.setdefault(column, []).append(message)
    return found


def _in_view(
    broken_columns: Mapping[str, Sequence[str]], paths: Iterable[Path_]
) -> Iterator[tuple[str, str]]:
    for column in ("", *sorted({path[0] for path in paths})):
        for what in broken_columns.get(column, ()):
            yield column, what


def readable(known: Collection[str], sql: str) -> bool:
    """Return whether the caller may read everything that a statement names; True for text that does not
    parse.

    ``known``: names of the views.
    """
    if CALLER.get() is None:
        return True
    try:
        named = tables_of(parse(sql))
    except SqlError:
        return True
    views = [each if each in known else each.lower() for each in named if {each, each.lower()} & {*known}]
    try:
        reads_all([each for each in named if not {each, each.lower()} & {*known}], views)
    except (Forbidden, Unauthenticated):
        return False
    return True


def shows_all_of(known: Collection[str], sql: str) -> bool:
    """Return whether the caller sees everything that a statement names, with no field masked and no row
    filtered.

    ``known``: names of the views. Rows that the hub itself has read by the statement are then the caller's,
    too.
    """
    caller = CALLER.get()
    if caller is None or not caller.is_masked:
        return True
    try:
        named = tables_of(parse(sql))
        views = [each if each in known else each.lower() for each in named]
        return all(
            shows_all(view) if view in known else topic_visibility(name).is_open
            for name, view in zip(named, views, strict=True)
        )
    except (SqlError, PeerError):
        return False
