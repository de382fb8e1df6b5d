"""[core] Compile a parsed statement over views and topics to one read-only statement for SQLite or Postgres.

The compiler writes every word of the statement that a database gets; it only reads the caller's text. Every
table comes from the catalog, every column from its table, every function from functions.py. Names are
generated ("t1"."city"), texts are bound as parameters. Anything unknown is refused with its place and the
nearest name. The compiler limits what databases do not limit: the number of columns, the tables that a chain
of WITH multiplies, and the length of the statement.

The dialect is that of Postgres (texts compare by code point); docs/queries.md lists what it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.queries.functions import (
    AGGREGATES,
    FUNCTIONS,
    HANDLERS,
    NAMED,
    Node,
    Piece,
    alike,
    boolean,
    call,
    comparable,
    epoch_ms,
    given,
    interval_ms,
    made,
    ordered,
)
from hub.materializers.queries.parser import ParsedStatement, SqlError, placeholders_in

MOST_COLUMNS = 500
# Table references; each WITH counts as often as it is used, because databases plan every use separately.
MOST_TABLES = 40
MOST_WRITTEN = 400_000
MOST_ROWS = 10_000
_DAY_MS = 86_400_000

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class QueryRelation:
    """A table that a query may read. ``source`` is the SQL behind FROM: trusted text with exactly these
    columns.

    ``columns`` and ``hidden`` (not in ``*``) map name to kind.
    """

    name: str
    noun: str
    source: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str] = field(default_factory=dict)


class TableCatalog(Protocol):
    """Catalog of the tables that a statement may read."""

    def relation(self, name: str) -> QueryRelation | None: ...

    def names(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the answer."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement for a database: ``:p1`` (SQLite) or ``%(p1)s`` (Postgres) are its parameters."""

    sql: str
    parameters: Mapping[str, str]
    columns: tuple[OutputColumn, ...]


def tables_of(statement: ParsedStatement) -> list[str]:
    """Return the names behind FROM and JOIN that are not CTEs of the statement."""
    own = {each.alias for each in statement.tree.find_all(exp.CTE)}
    found = [
        each.name for each in statement.tree.find_all(exp.Table) if isinstance(each.this, exp.Identifier)
    ]
    return [name for name in dict.fromkeys(found) if name not in own]


def no_table(statement: ParsedStatement, name: str, known: Iterable[str]) -> SqlError:
    """Return the error about a table that is neither a view nor a topic, with the nearest name."""
    tables = (each for each in statement.tree.find_all(exp.Table) if each.name == name)
    whole = next((each for each in tables if each.args.get("db") is not None), None)
    if whole is not None:
        dotted = ".".join(each.name for each in whole.parts)
        return statement.error(
            f"no table {dotted}: a topic's name stands in double quotes",
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


def names_of(statement: ParsedStatement) -> frozenset[str]:
    """Return every name in the statement in lower case, and ``*`` for a star other than COUNT's."""
    stars = ("*" for each in statement.tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count))
    return frozenset([*stars, *(each.name.lower() for each in statement.tree.find_all(exp.Identifier))])


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
            return epoch_ms(value)
        except (ValueError, OverflowError):
            return None
    if isinstance(node, exp.Sub) and isinstance(node.expression, exp.Interval):
        moment = _constant_ms(node.this, parameters, now_ms)
        length = interval_ms(node.expression)
        return None if moment is None or length is None else moment - length
    return None


def compile_query(
    statement: ParsedStatement,
    catalog: TableCatalog,
    *,
    postgres: bool,
    parameters: Mapping[str, Value],
    now_ms: int,
) -> Compiled:
    """Compile the statement for the database. Raises SqlError with line, column and a caret."""
    compiler = _QueryCompiler(statement, catalog, postgres, parameters, now_ms)
    query = _as_sql_error(statement, lambda: compiler.query(statement.tree, None, {}))
    unused = sorted(parameters.keys() - compiler.used)
    if unused:
        guess = nearest(unused[0], compiler.asked)
        raise SqlError(
            f'parameter "{unused[0]}" is not in the statement',
            hint=f"write :{unused[0]} where it belongs" if guess is None else f'did you mean "{guess}"?',
            code="HUB-1447",
        )
    shown = tuple(OutputColumn(name, kind) for name, kind in query.columns.items())
    return Compiled(query.text, compiler.bound_values, shown)


def placeholders(statement: ParsedStatement) -> list[str]:
    """Return the names of the statement's parameters, each once."""
    return placeholders_in(statement.tree)


def _as_sql_error(statement: ParsedStatement, act: Callable[[], _Query]) -> _Query:
    try:
        return act()
    except RecursionError:
        raise statement.error("the statement nests too deep", code="HUB-1441") from None
    except OverflowError:
        raise statement.error("a number does not fit 64 bits", code="HUB-1445") from None


@dataclass(frozen=True, slots=True)
class _Query:
    """A compiled SELECT or UNION: output columns, and the number of tables that a database plans."""

    text: str
    columns: Mapping[str, str]
    weight: int
    sizes: tuple[int, ...]  # of each column's expression, written out


@dataclass(frozen=True, slots=True)
class _FromTable:
    """A table of a FROM under its generated name."""

    alias: str
    name: str
    noun: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str]
    sizes: Mapping[str, int]

    def column(self, name: str, quoted: bool) -> tuple[str, str] | None:
        """Return (name, kind) of a column; an unquoted name matches case-insensitively."""
        for columns in (self.columns, self.hidden):
            if name in columns:
                return name, columns[name]
        if not quoted:
            near = [each for each in (*self.columns, *self.hidden) if each.lower() == name.lower()]
            if len(near) == 1:
                return near[0], self.columns.get(near[0]) or self.hidden[near[0]]
        return None


@dataclass(slots=True)
class _Scope:
    """Scope of name lookup: the tables of one SELECT, then those of the enclosing ones."""

    parent: _Scope | None
    ctes: Mapping[str, tuple[str, _Query]]
    sources: list[_FromTable] = field(default_factory=list)
    joined: set[tuple[str, str]] = field(
        default_factory=set
    )  # (alias, column) that USING made one with another
    grouped: set[str] = field(default_factory=set)
    place: str = "the select list"
    weight: int = 0


class _QueryCompiler:
    """Compiler of one statement; see ``compile_query``. ``_scope`` is the current scope."""

    def __init__(
        self,
        statement: ParsedStatement,
        catalog: TableCatalog,
        postgres: bool,
        parameters: Mapping[str, Value],
        now_ms: int,
    ) -> None:
        self.postgres = postgres
        self.now_ms = now_ms
        self.used: set[str] = set()
        self.asked: list[str] = placeholders(statement)
        self.bound_values: dict[str, str] = {}
        self._statement = statement
        self._catalog = catalog
        self._parameters = parameters
        self._numbers: dict[str, str] = {}
        self._aliases = 0
        self._tables = 0
        self._scope = _Scope(None, {})

    # ---- interface for handlers

    def bound(self, value: str) -> str:
        if value not in self._numbers:
            name = f"p{len(self._numbers) + 1}"
            self._numbers[value] = name
            # No database accepts a NUL or half a surrogate pair; JSON can contain both.
            self.bound_values[name] = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        name = self._numbers[value]
        # One value is one parameter: Postgres treats GROUP BY f($1) and SELECT f($2) as different
        # expressions.
        return f"CAST(%({name})s AS TEXT)" if self.postgres else f":{name}"

    def only(self, node: Node, *names: str) -> None:
        for name, said in node.args.items():
            if said not in (None, False, "", []) and name not in names:
                word = name.rstrip("_").upper().replace("_", " ")
                raise self.fail(
                    f"{type(node).__name__.upper()}: {word} is not part of what can be asked", node
                )

    def fail(self, message: str, node: Any, hint: str | None = None) -> SqlError:
        return self._statement.error(message, node, hint=hint, code="HUB-1445")

    def expr(self, node: Any) -> Piece:
        piece = self._expr(node)
        if len(piece.text) + piece.inlined > MOST_WRITTEN:
            raise self.fail("this becomes too long", node, "subqueries count as often as they are used")
        if piece.bare is not None and piece.text in self._scope.grouped:
            piece = replace(piece, bare=None)
        return piece

    def _expr(self, node: Any) -> Piece:
        handler = HANDLERS.get(type(node)) or _OWN.get(type(node))
        if handler is not None:
            return handler(self, node)
        if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            named = NAMED.get(node.this.lower())
            if named is not None:
                return named(self, node)
            guess = nearest(node.this.lower(), FUNCTIONS)
            raise self._refused(f'no function "{node.this[:60]}" here', node, guess)
        if isinstance(node, exp.Func):
            raise self._refused(
                f"{node.sql_name()[:60].lower()}() is no function that can be asked", node, None
            )
        raise self.fail(f"{type(node).__name__} is not part of what can be asked", node)

    def _refused(self, message: str, node: Any, guess: str | None) -> SqlError:
        if guess is not None:
            message += f': did you mean "{guess}"?'
        return self._statement.error(
            message, node, hint="docs/queries.md lists the functions", code="HUB-1446"
        )

    # ---- expressions that look up names

    def column(self, node: exp.Column) -> Piece:
        self.only(node, "this", "table")
        if not isinstance(node.this, exp.Identifier):
            raise self.fail("* stands alone in a select list", node)
        name, quoted, table = node.name, bool(node.this.args.get("quoted")), node.args.get("table")
        scope: _Scope | None = self._scope
        outer = False
        while scope is not None:
            found = self._in_scope(scope, node, name, quoted, table)
            if found is not None:
                source, (column, kind) = found
                text = f'"{source.alias}".{self._quoted(column)}'
                return Piece(text, kind, bare=None if outer else node, inlined=source.sizes.get(column, 0))
            scope, outer = scope.parent, True
        raise self._no_column(node, name, table)

    def _in_scope(
        self, scope: _Scope, node: Node, name: str, quoted: bool, table: exp.Identifier | None
    ) -> tuple[_FromTable, tuple[str, str]] | None:
        sources = scope.sources
        if table is not None:
            sources = [each for each in sources if _same(each.name, table)]
            if not sources:
                return None
        found = []
        for source in sources:
            column = source.column(name, quoted)
            if column is not None and (table is not None or (source.alias, column[0]) not in scope.joined):
                found.append((source, column))
        if len(found) > 1:
            raise self.fail(
                f'"{name}" is a column of {found[0][0].name} and of {found[1][0].name}',
                node,
                f"say which: {found[0][0].name}.{name}",
            )
        if not found and table is not None:
            raise self._no_column(node, name, table)
        return found[0] if found else None

    def _no_column(self, node: Node, name: str, table: exp.Identifier | None) -> SqlError:
        sources: list[_FromTable] = []
        scope: _Scope | None = self._scope
        while scope is not None:
            sources += scope.sources
            scope = scope.parent
        if table is not None:
            named = [each for each in sources if _same(each.name, table)]
            if not named:
                guess = nearest(table.name, [each.name for each in sources])
                return self._unknown(f'no table "{table.name}" in this FROM', table, guess)
            sources = named
        if not sources:
            return self._unknown(f'no column "{name}": the query has no FROM', node, None)
        known = [column for each in sources for column in (*each.columns, *each.hidden)]
        guess = nearest(name.lower(), known)
        where = ", ".join(dict.fromkeys(f"{each.noun} {each.name}" for each in sources[:4]))
        return self._unknown(f'no column "{name}" in {where}', node, guess)

    def _unknown(self, message: str, node: Node, guess: str | None) -> SqlError:
        return self._statement.error(
            f'{message}: did you mean "{guess}"?' if guess else message,
            node,
            hint=None if guess else r"hub sql shows what there is: \d and \d NAME",
            code="HUB-1444",
        )

    def placeholder(self, node: exp.Placeholder) -> Piece:
        name = node.this
        if not isinstance(name, str) or not name:
            raise self.fail("parameters have names: write :name", node)
        if name not in self._parameters:
            given_ = nearest(name, self._parameters)
            raise self._statement.parameter_error(
                name,
                f'parameter "{name}" was not given',
                hint=f'did you mean "{given_}"?' if given_ else f'give it: {{"parameters": {{"{name}": …}}}}',
                code="HUB-1447",
            )
        self.used.add(name)
        return given(self, self._parameters[name], node)

    def in_(self, node: exp.In) -> Piece:
        self.only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is not None:
            tree = query.this if isinstance(query, exp.Subquery) else query
            inner = self._nested(tree, node)
            kind = self._single(inner, node)
            value = self.expr(node.this)
            _, (value, _) = alike(self, [value, Piece("", kind)], [node.this, node])
            comparable(self, value, node)
            return made(f"({value.text} IN ({inner.text}))", "boolean", value)
        nodes = [node.this, *node.expressions]
        if len(nodes) < 2:
            raise self.fail("IN takes at least one value", node)
        _, pieces = alike(self, [self.expr(each) for each in nodes], nodes)
        comparable(self, pieces[0], node.this)
        values = ", ".join(each.text for each in pieces[1:])
        return made(f"({pieces[0].text} IN ({values}))", "boolean", *pieces)

    def exists(self, node: exp.Exists) -> Piece:
        self.only(node, "this")
        tree = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return Piece(f"(EXISTS ({self._nested(tree, node).text}))", "boolean")

    def subquery(self, node: exp.Subquery) -> Piece:
        self.only(node, "this")
        inner = self._nested(node.this, node)
        return Piece(f"({inner.text})", self._single(inner, node), inlined=inner.sizes[0])

    def _nested(self, tree: Any, node: Node) -> _Query:
        scope = self._scope
        inner = self.query(tree, scope, scope.ctes)
        scope.weight += inner.weight
        return inner

    def _single(self, inner: _Query, node: Node) -> str:
        if len(inner.columns) != 1:
            raise self.fail(f"a subquery of {len(inner.columns)} columns where one value is needed", node)
        return next(iter(inner.columns.values()))

    def filtered(self, node: exp.Filter) -> Piece:
        return self._many_rows(node, None)

    def windowed(self, node: exp.Window) -> Piece:
        self.only(node, "this", "partition_by", "order", "spec", "over")
        if self._scope.place not in ("the select list", "ORDER BY"):
            raise self.fail(
                f"a window function cannot stand in {self._scope.place}", node, "take it in a subquery"
            )
        words, pieces = [], []
        if node.args.get("partition_by"):
            parts = [comparable(self, self.expr(each), each) for each in node.args["partition_by"]]
            words.append(f"PARTITION BY {', '.join(each.text for each in parts)}")
            pieces += parts
        if node.args.get("order") is not None:
            text, parts = self._order(node.args["order"], self.expr)
            words.append(text)
            pieces += parts
        if node.args.get("spec") is not None:
            words.append(self._frame(node.args["spec"]))
        if any(each.window for each in pieces):
            raise self.fail("a window function within another", node)
        return self._many_rows(node, f" OVER ({' '.join(words)})", *pieces)

    def _frame(self, spec: exp.WindowSpec) -> str:
        self.only(spec, "kind", "start", "start_side", "end", "end_side")
        kind = str(spec.args.get("kind") or "").upper()
        if kind not in ("ROWS", "RANGE"):
            raise self.fail("frames are ROWS or RANGE", spec)
        start = self._edge(spec, "start")
        if spec.args.get("end") is None:
            return f"{kind} {start}"
        return f"{kind} BETWEEN {start} AND {self._edge(spec, 'end')}"

    def _edge(self, spec: exp.WindowSpec, which: str) -> str:
        value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
        if value == "CURRENT ROW":
            return "CURRENT ROW"
        if side not in ("PRECEDING", "FOLLOWING"):
            raise self.fail("a frame goes from … PRECEDING to … FOLLOWING", spec)
        if value == "UNBOUNDED":
            return f"UNBOUNDED {side}"
        if (
            isinstance(value, exp.Literal)
            and str(value.this).isdecimal()
            and str(spec.args["kind"]).upper() == "ROWS"
        ):
            return f"{min(int(value.this), 1_000_000)} {side}"
        raise self.fail("a frame counts rows: ROWS 3 PRECEDING", spec)

    def _many_rows(self, node: Any, over: str | None, *extra: Piece) -> Piece:
        inner = node.this if over is not None else node
        if over is None and self._scope.place not in ("the select list", "ORDER BY", "HAVING"):
            raise self.fail(f"an aggregate cannot stand in {self._scope.place}", node, "HAVING takes them")
        tail = ""
        if isinstance(inner, exp.Filter):
            self.only(inner, "this", "expression")
            condition = boolean(self, inner.expression.this)
            if condition.aggregate or condition.window:
                raise self.fail("an aggregate within FILTER", inner)
            tail, inner = f" FILTER (WHERE {condition.text})", inner.this
        return call(self, inner, tail + (over or ""), over is not None, *extra)

    # ---- queries

    def query(self, tree: Any, parent: _Scope | None, ctes: Mapping[str, tuple[str, _Query]]) -> _Query:
        """Compile a SELECT or a UNION with all its clauses."""
        before = self._scope
        try:
            return self._query(tree, parent, ctes)
        finally:
            self._scope = before

    def _query(self, tree: Any, parent: _Scope | None, ctes: Mapping[str, tuple[str, _Query]]) -> _Query:
        head, ctes = self._with(tree, parent, ctes)
        if isinstance(tree, exp.Select):
            found = self._select(tree, parent, ctes)
        elif isinstance(tree, exp.SetOperation):
            found = self._set_operation(tree, parent, ctes)
        elif isinstance(tree, exp.Subquery):
            self.only(tree, "this", "with_", "order", "limit", "offset")
            inner = self.query(tree.this, parent, ctes)
            found = self._sorted_outside(tree, inner) if _sorts(tree) else inner
        else:
            raise self.fail(f"{type(tree).__name__.upper()} is not part of what can be asked", tree)
        text = head + found.text
        if len(text) > MOST_WRITTEN:
            raise self.fail("the statement becomes too long", tree)
        return replace(found, text=text)

    def _with(
        self, tree: Any, parent: _Scope | None, ctes: Mapping[str, tuple[str, _Query]]
    ) -> tuple[str, Mapping[str, tuple[str, _Query]]]:
        with_ = tree.args.get("with_")
        if with_ is None:
            return "", ctes
        self.only(with_, "expressions", "recursive")
        if with_.args.get("recursive"):
            raise self.fail("WITH RECURSIVE is not part of what can be asked", with_)
        known, words = dict(ctes), []
        for each in with_.expressions:
            self.only(each, "this", "alias", "materialized")
            name = each.alias
            inner = self.query(each.this, parent, known)
            inner = replace(inner, columns=self._renamed(each.args["alias"], inner))
            alias = self._alias("w")
            listed = ", ".join(map(self._quoted, inner.columns))
            words.append(f'"{alias}" ({listed}) AS ({inner.text})')
            known[name] = (alias, inner)
        return f"WITH {', '.join(words)} ", known

    def _renamed(self, alias: exp.TableAlias, inner: _Query) -> dict[str, str]:
        """Return the columns of a subquery under the names that ``AS name (a, b)`` gives them."""
        self.only(alias, "this", "columns")
        names = [each.name for each in alias.args.get("columns") or ()]
        if len(names) > len(inner.columns):
            raise self.fail(f"{len(names)} names for {len(inner.columns)} columns", alias)
        if len(set(names)) != len(names):
            raise self.fail("two columns of one name", alias)
        return dict(zip([*names, *list(inner.columns)[len(names) :]], inner.columns.values(), strict=True))

    def _set_operation(
        self, tree: Any, parent: _Scope | None, ctes: Mapping[str, tuple[str, _Query]]
    ) -> _Query:
        self.only(tree, "this", "expression", "distinct", "with_", "order", "limit", "offset")
        word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}.get(type(tree))
        distinct = bool(tree.args.get("distinct"))
        if word is None or (word != "UNION" and not distinct):
            raise self.fail("sets are joined by UNION, UNION ALL, EXCEPT and INTERSECT", tree)
        left = self.query(tree.this, parent, ctes)
        right = self.query(tree.expression, parent, ctes)
        if len(left.columns) != len(right.columns):
            raise self.fail(
                f"{word} of {len(left.columns)} and {len(right.columns)} columns", tree.expression
            )
        columns: dict[str, str] = {}
        for (name, one), other in zip(left.columns.items(), right.columns.values(), strict=True):
            kind = other if one == "null" else one
            if other not in (kind, "null"):
                if {one, other} != {"long", "double"}:
                    raise self.fail(f'{word}: column "{name}" is a {one} and a {other}', tree.expression)
                kind = "double"
            if distinct and kind == "json":
                raise self.fail(f'{word}: nested column "{name}" cannot be compared', tree)
            columns[name] = kind
        words = word if distinct else f"{word} ALL"
        text = f"{self._branch(left)} {words} {self._branch(right)}"
        sizes = tuple(one + other for one, other in zip(left.sizes, right.sizes, strict=True))
        joined = _Query(text, columns, left.weight + right.weight, sizes)
        return self._sorted_outside(tree, joined) if _sorts(tree) else joined

    def _branch(self, query: _Query) -> str:
        """Wrap a branch in a SELECT: SQLite takes no brackets around one, and an ORDER BY or a WITH needs
        them.
        """
        alias = self._alias("b")
        listed = ", ".join(f'"{alias}".{self._quoted(name)}' for name in query.columns)
        return f'SELECT {listed} FROM ({query.text}) AS "{alias}"'

    def _sorted_outside(self, tree: Any, inner: _Query) -> _Query:
        """Apply ORDER BY, LIMIT and OFFSET to a query that exposes output columns only (UNION, DISTINCT,
        brackets).
        """
        alias = self._alias("u")
        listed = ", ".join(f'"{alias}".{self._quoted(name)}' for name in inner.columns)
        text = f'SELECT {listed} FROM ({inner.text}) AS "{alias}"'
        if tree.args.get("order") is not None:
            order, _ = self._order(tree.args["order"], lambda node: self._output(node, inner.columns, alias))
            text += f" {order}"
        return replace(inner, text=text + self._limited(tree))

    def _output(self, node: Any, columns: Mapping[str, str], alias: str) -> Piece:
        names = list(columns)
        number = _ordinal(node)
        if number is not None and 1 <= number <= len(names):
            name = names[number - 1]
        elif isinstance(node, exp.Column) and node.args.get("table") is None:
            found = _among(names, node.this)
            if found is None:
                guess = nearest(node.name, names)
                raise self._unknown(f'no column "{node.name}" in the result', node, guess)
            name = found
        else:
            raise self.fail("here ORDER BY takes the result's columns: a name or a number", node)
        return Piece(f'"{alias}".{self._quoted(name)}', columns[name])

    def _select(self, tree: Any, parent: _Scope | None, ctes: Mapping[str, tuple[str, _Query]]) -> _Query:
        self.only(
            tree,
            *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"),
            *("distinct", "with_"),
        )
        scope = self._scope = _Scope(parent, ctes)
        from_ = self._from(tree, scope)
        where, _ = self._condition(tree, "where", "WHERE")
        items = list(self._items(tree))
        group, grouping = self._group(tree, items)
        outputs: dict[str, str] = {}
        texts, pieces = [], []
        for wanted, node in items:
            piece = self.expr(node)
            if piece.kind == "interval":
                raise self.fail("an interval is added to a time, not shown", node)
            name = _unique(wanted, outputs)
            outputs[name] = piece.kind
            texts.append((piece.text, name))
            pieces.append((piece, node))
        if not outputs:
            raise self.fail("the select list is empty", tree)
        having, condition = self._condition(tree, "having", "HAVING")
        scope.place = "ORDER BY"
        distinct = self._distinct(tree, pieces)
        by_itself = tree.args.get("order") is not None and not distinct
        order, sorted_by = "", list[Piece]()
        if by_itself:
            order, sorted_by = self._order(
                tree.args["order"], lambda node: self._sort_key(node, pieces, list(outputs))
            )
        aggregated = (
            grouping
            or condition is not None
            or any(each.aggregate for each, _ in pieces)
            or any(each.aggregate for each in sorted_by)
        )
        if aggregated:
            checked = [*(each for each, _ in pieces), *sorted_by]
            checked += [condition] if condition is not None else []
            for piece in checked:
                if piece.bare is not None:
                    raise self.fail(
                        f'"{piece.bare.name}" stands in no aggregate and not in GROUP BY',
                        piece.bare,
                        f"GROUP BY {piece.bare.name}, or max({piece.bare.name})",
                    )
        listed = ", ".join(f"{text} AS {self._quoted(name)}" for text, name in texts)
        text = f"SELECT {'DISTINCT ' if distinct else ''}{listed}{from_}{where}{group}{having}"
        sizes = tuple(len(each.text) + each.inlined for each, _ in pieces)
        query = _Query(text, outputs, max(1, scope.weight), sizes)
        if query.weight > MOST_TABLES:
            raise self.fail(
                f"the query reads {query.weight} tables, each WITH counted where it is used; {MOST_TABLES} are allowed",
                tree.args.get("from_") or tree,
            )
        if distinct:
            return self._sorted_outside(tree, query) if _sorts(tree) else query
        return replace(query, text=f"{text}{' ' + order if order else ''}{self._limited(tree)}")

    def _distinct(self, tree: Any, pieces: Sequence[tuple[Piece, Node]]) -> bool:
        distinct = tree.args.get("distinct")
        if distinct is None:
            return False
        if distinct.args.get("on") is not None:
            raise self.fail(
                "DISTINCT ON is not part of what can be asked", distinct, "row_number() in a subquery"
            )
        self.only(distinct)
        for piece, node in pieces:
            comparable(self, piece, node)
        return True

    def _items(self, tree: Any) -> Iterable[tuple[str, Node]]:
        """Yield (wanted name, expression) of the select list with ``*`` expanded."""
        count = 0
        for node in tree.expressions:
            for name, each in self._spelled(node):
                count += 1
                if count > MOST_COLUMNS:
                    raise self.fail(f"more than {MOST_COLUMNS} columns", node)
                yield name, each

    def _spelled(self, node: Any) -> Iterable[tuple[str, Node]]:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            self.only(node.this if isinstance(node, exp.Column) else node)
            if isinstance(node, exp.Column):
                self.only(node, "this", "table")
            table = node.args.get("table") if isinstance(node, exp.Column) else None
            sources = [each for each in self._scope.sources if table is None or _same(each.name, table)]
            if not sources:
                raise (
                    self.fail("* needs a FROM", node) if table is None else self._no_column(node, "*", table)
                )
            for source in sources:
                for column in source.columns:
                    if table is None and (source.alias, column) in self._scope.joined:
                        continue
                    yield column, _ResolvedColumn(source, column)
            return
        if isinstance(node, exp.Alias):
            self.only(node, "this", "alias")
            yield node.alias, node.this
            return
        yield _name_of(node), node

    def known(self, node: _ResolvedColumn) -> Piece:
        """Compile a column that a ``*`` stands for."""
        text = f'"{node.source.alias}".{self._quoted(node.column)}'
        size = node.source.sizes.get(node.column, 0)
        return Piece(text, node.source.columns[node.column], bare=exp.column(node.column), inlined=size)

    def _condition(self, tree: Any, name: str, word: str) -> tuple[str, Piece | None]:
        clause = tree.args.get(name)
        if clause is None:
            return "", None
        self._scope.place = word
        piece = boolean(self, clause.this)
        self._scope.place = "the select list"
        return f" {word} {piece.text}", piece

    def _group(self, tree: Any, items: Sequence[tuple[str, Node]]) -> tuple[str, bool]:
        group = tree.args.get("group")
        if group is None:
            return "", False
        self.only(group, "expressions")
        self._scope.place = "GROUP BY"
        texts = []
        for node in group.expressions:
            piece = self._group_key(node, items)
            if piece.kind == "interval":
                raise self.fail("an interval is added to a time, not grouped", node)
            texts.append(comparable(self, piece, node).text)
        self._scope.place = "the select list"
        self._scope.grouped = set(texts)
        # A bare number would be an ordinal of the select list.
        shown = [f"CAST({text} AS INTEGER)" if text.lstrip("-").isdigit() else text for text in texts]
        return f" GROUP BY {', '.join(shown)}", True

    def _group_key(self, node: Any, items: Sequence[tuple[str, Node]]) -> Piece:
        number = _ordinal(node)
        if number is not None:
            if not 1 <= number <= len(items):
                raise self.fail(f"GROUP BY {number}: the select list has {len(items)} columns", node)
            return self.expr(items[number - 1][1])
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            inside = [each for each in self._scope.sources if each.column(node.name, False)]
            named = [each for name, each in items if _same(name, node.this)]
            if not inside and len(named) == 1:
                return self.expr(named[0])
        return self.expr(node)

    def _sort_key(self, node: Any, pieces: Sequence[tuple[Piece, Node]], names: Sequence[str]) -> Piece:
        number = _ordinal(node)
        if number is not None:
            if not 1 <= number <= len(names):
                raise self.fail(f"ORDER BY {number}: the select list has {len(names)} columns", node)
            return pieces[number - 1][0]
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            name = _among(names, node.this)
            if name is not None:
                return pieces[names.index(name)][0]
        return self.expr(node)

    def _order(self, order: Any, key: Callable[[Any], Piece]) -> tuple[str, list[Piece]]:
        self.only(order, "expressions")
        words, pieces = [], []
        for each in order.expressions:
            self.only(each, "this", "desc", "nulls_first")
            piece = key(each.this)
            if piece.kind == "interval":
                raise self.fail("an interval is added to a time, not sorted", each)
            comparable(self, piece, each)
            text = ordered(self, piece)
            if text.lstrip("-").isdigit() or piece.kind == "null":
                text = f"CAST({text} AS INTEGER)"  # a bare number would be an ordinal of the select list
            nulls = "FIRST" if each.args.get("nulls_first") else "LAST"
            words.append(f"{text} {'DESC' if each.args.get('desc') else 'ASC'} NULLS {nulls}")
            pieces.append(piece)
        return f"ORDER BY {', '.join(words)}", pieces

    def _limited(self, tree: Any) -> str:
        text = ""
        for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
            clause = tree.args.get(name)
            if clause is None:
                continue
            if not isinstance(clause, exp.Limit | exp.Offset):
                raise self.fail("say LIMIT and OFFSET", clause)
            self.only(clause, "expression")
            said = clause.expression
            value = said.this if isinstance(said, exp.Literal) and not said.is_string else None
            if isinstance(said, exp.Placeholder):
                self.placeholder(said)
                value = self._parameters[str(said.this)]
            if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) >= 2**31:
                raise self.fail(f"{word} takes a whole number", clause)
            text += f" {word} {int(str(value))}"
        if tree.args.get("offset") is not None and tree.args.get("limit") is None and not self.postgres:
            text = f" LIMIT -1{text}"
        return text

    # ---- FROM

    def _from(self, tree: Any, scope: _Scope) -> str:
        from_ = tree.args.get("from_")
        if from_ is None:
            if tree.args.get("joins"):
                raise self.fail("a JOIN without a FROM", tree)
            return ""
        self.only(from_, "this")
        text = f" FROM {self._table(from_.this, scope)}"
        for join in [*(from_.this.args.get("joins") or ()), *(tree.args.get("joins") or ())]:
            text += self._join(join, scope)
        return text

    def _join(self, join: exp.Join, scope: _Scope) -> str:
        self.only(join, "this", "side", "kind", "on", "using")
        side, kind = (str(join.args.get(each) or "").upper() for each in ("side", "kind"))
        if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise self.fail(f"{side} {kind} JOIN is not part of what can be asked".strip(), join)
        if join.this.args.get("joins"):
            raise self.fail("a JOIN within a JOIN", join, "write one after the other, each with its ON")
        before = list(scope.sources)
        table = self._table(join.this, scope)
        right = scope.sources[-1]
        on, using = join.args.get("on"), join.args.get("using")
        if on is None and not using:
            if side or kind not in ("", "CROSS"):
                raise self.fail("a JOIN needs ON or USING", join.this)
            return f" CROSS JOIN {table}"
        word = f"{side} JOIN" if side else "JOIN"
        if on is not None:
            scope.place = "ON"
            condition = boolean(self, on).text
            scope.place = "the select list"
            return f" {word} {table} ON {condition}"
        if side in ("RIGHT", "FULL"):
            raise self.fail(
                f"{side} JOIN … USING is not part of what can be asked", join.this, "write ON a.x = b.x"
            )
        return f" {word} {table} ON {self._using(join, scope, before, right)}"

    def _using(self, join: exp.Join, scope: _Scope, before: Sequence[_FromTable], right: _FromTable) -> str:
        words = []
        for name in join.args["using"]:
            if not isinstance(name, exp.Identifier):
                raise self.fail("USING takes columns", join.this)
            quoted = bool(name.args.get("quoted"))
            there = right.column(name.name, quoted)
            mine = [
                (each, found)
                for each in before
                if (found := each.column(name.name, quoted)) is not None
                and (each.alias, found[0]) not in scope.joined
            ]
            if there is None or not mine:
                missing = right if there is None else before[0]
                guess = nearest(name.name, missing.columns)
                raise self._unknown(f'no column "{name.name}" in {missing.noun} {missing.name}', name, guess)
            if len(mine) > 1:
                raise self.fail(f'"{name.name}" is a column of several tables', name, "write ON a.x = b.x")
            left, (column, kind) = mine[0]
            one = Piece(f'"{left.alias}".{self._quoted(column)}', kind)
            other = Piece(f'"{right.alias}".{self._quoted(there[0])}', there[1])
            _, (one, other) = alike(self, [one, other], [name, name])
            comparable(self, one, name)
            words.append(f"{one.text} = {other.text}")
            scope.joined.add((right.alias, there[0]))
        return " AND ".join(words)

    def _table(self, node: Any, scope: _Scope) -> str:
        if isinstance(node, exp.Subquery):
            return self._subselect(node, scope)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.fail("FROM takes views, topics and subqueries", node, "functions are no tables here")
        if node.args.get("db") is not None:
            raise no_table(self._statement, node.name, ())
        self.only(node, "this", "alias", "joins")
        self._tables += 1
        cte = self._cte(node, scope)
        if cte is not None:
            alias, query = cte
            scope.weight += query.weight
            sizes = dict(zip(query.columns, query.sizes, strict=True))
            return self._add(scope, node, f'"{alias}"', "result", query.columns, {}, sizes)
        relation = self._relation(node)
        scope.weight += 1
        return self._add(scope, node, relation.source, relation.noun, relation.columns, relation.hidden, {})

    def _cte(self, node: exp.Table, scope: _Scope) -> tuple[str, _Query] | None:
        name = node.name
        if name in scope.ctes:
            return scope.ctes[name]
        near = [each for each in scope.ctes if _same(each, node.this)]
        return scope.ctes[near[0]] if len(near) == 1 else None

    def _relation(self, node: exp.Table) -> QueryRelation:
        found = self._catalog.relation(node.name)
        if found is None and not node.this.args.get("quoted"):
            found = self._catalog.relation(node.name.lower())
        if found is None:
            raise no_table(self._statement, node.name, [*self._catalog.names(), *self._scope.ctes])
        return found

    def _subselect(self, node: exp.Subquery, scope: _Scope) -> str:
        self.only(node, "this", "alias", "joins")
        # Not LATERAL: the subquery does not see its sibling tables, only those of the enclosing queries.
        inner = self.query(node.this, scope.parent, scope.ctes)
        self._scope = scope
        alias = node.args.get("alias")
        if alias is not None:
            renamed = self._renamed(alias, inner)
            if list(renamed) != list(inner.columns):
                name = self._alias("r")
                pairs = ", ".join(
                    f'"{name}".{self._quoted(old)} AS {self._quoted(new)}'
                    for old, new in zip(inner.columns, renamed, strict=True)
                )
                inner = replace(
                    inner, text=f'SELECT {pairs} FROM ({inner.text}) AS "{name}"', columns=renamed
                )
        scope.weight += inner.weight
        sizes = dict(zip(inner.columns, inner.sizes, strict=True))
        return self._add(scope, node, f"({inner.text})", "result", inner.columns, {}, sizes)

    def _add(
        self,
        scope: _Scope,
        node: Any,
        source: str,
        noun: str,
        columns: Mapping[str, str],
        hidden: Mapping[str, str],
        sizes: Mapping[str, int],
    ) -> str:
        said = node.args.get("alias")
        if said is not None and isinstance(node, exp.Table):
            self.only(said, "this")
        name = node.alias or node.name or "subquery"
        if name != "subquery" and any(each.name == name for each in scope.sources):
            raise self.fail(f'two tables are called "{name}"', node, "give one another name: AS …")
        alias = self._alias("t")
        scope.sources.append(_FromTable(alias, name, noun, columns, hidden, sizes))
        return f'{source} AS "{alias}"'

    def _alias(self, letter: str) -> str:
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def _quoted(self, name: str) -> str:
        quoted = '"' + name.replace('"', '""').replace("\0", "\ufffd") + '"'
        return quoted.replace("%", "%%") if self.postgres else quoted


class _ResolvedColumn(exp.Expression):
    """A column that a ``*`` stands for, already resolved."""

    def __init__(self, source: _FromTable, column: str) -> None:
        super().__init__()
        self.source = source
        self.column = column


_OWN: Mapping[type, Callable[[_QueryCompiler, Any], Piece]] = {
    _ResolvedColumn: _QueryCompiler.known,
    exp.Column: _QueryCompiler.column,
    exp.Placeholder: _QueryCompiler.placeholder,
    exp.In: _QueryCompiler.in_,
    exp.Exists: _QueryCompiler.exists,
    exp.Subquery: _QueryCompiler.subquery,
    exp.Filter: _QueryCompiler.filtered,
    **dict.fromkeys(AGGREGATES, _QueryCompiler.filtered),
    exp.Window: _QueryCompiler.windowed,
}


def _same(name: str, identifier: Any) -> bool:
    """Return whether the identifier names this; a quoted identifier is case-sensitive."""
    if name == identifier.name:
        return True
    return not identifier.args.get("quoted") and name.lower() == identifier.name.lower()


def _among(names: Sequence[str], identifier: Any) -> str | None:
    if identifier.name in names:
        return str(identifier.name)
    near = [each for each in names if _same(each, identifier)]
    return near[0] if len(near) == 1 else None


def _ordinal(node: Any) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(str(node.this)[:9])
    return None


def _sorts(tree: Any) -> bool:
    return any(tree.args.get(name) is not None for name in ("order", "limit", "offset"))


# Names that the parser spells differently from the usual ones.
_CALLED: Mapping[type, str] = {
    exp.TimestampTrunc: "date_trunc",
    exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and",
    exp.GroupConcat: "string_agg",
    exp.StrPosition: "position",
    exp.CurrentTimestamp: "now",
    exp.UnixToTime: "to_timestamp",
    exp.StartsWith: "starts_with",
    exp.ConcatWs: "concat_ws",
}


def _name_of(node: Any) -> str:
    """Return the name of a result column that has no AS."""
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Paren | exp.Cast | exp.Window | exp.Filter):
        return _name_of(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if type(node) in _CALLED:
        return _CALLED[type(node)]
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar) and isinstance(
        node.expression, exp.JSONPath
    ):
        keys = [each for each in node.expression.expressions if isinstance(each, exp.JSONPathKey)]
        return str(keys[-1].this) if keys else "column"
    if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or):
        return node.sql_name().lower()
    return "column"


def _unique(wanted: str, taken: Mapping[str, str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name
