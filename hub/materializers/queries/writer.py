"""[core] Pieces of a compiled statement, and the writer that handlers use.

No text of a caller is copied: a handler writes its own SQL around that of its operands, names are quoted,
texts are bound. Anything without a handler cannot reach a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from hub.materializers.queries.parser import ParsedStatement, SqlError
from hub.materializers.queries.relations import CompiledQuery, Ctes, QueryScope, TableCatalog, Value

Node = exp.Expr
# Longest statement, and longest expression with what a database writes out.
MOST_WRITTEN = 400_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the compiled statement, and the kind of its value.

    ``kind``: long double decimal string boolean timestamp date bytes json, null (a bare NULL), interval
    (milliseconds). ``value``: content of a literal or parameter, so that next to a time it is read as a time.
    ``bare``: a column in it outside any aggregate. A decimal stays text until an operation computes with it.
    ``inlined``: how much longer the text gets when a database replaces a subquery's columns with their
    expressions, as both do: a chain of subqueries that each select a || a would double at every step.
    """

    text: str
    kind: str
    value: Any = None
    bare: Node | None = None
    aggregate: bool = False
    window: bool = False
    inlined: int = 0


class SqlWriter:
    """State of one compiled statement, and what its handlers write with. ``scope`` is the current scope.

    ``compile_expr`` and ``compile_tree`` compile any expression and any query.
    """

    def __init__(
        self,
        statement: ParsedStatement,
        catalog: TableCatalog,
        postgres: bool,
        parameters: Mapping[str, Value],
        now_ms: int,
        compile_expr: Callable[[SqlWriter, Any], Piece],
        compile_tree: Callable[[SqlWriter, Any, QueryScope | None, Ctes], CompiledQuery],
    ) -> None:
        self.statement = statement
        self.catalog = catalog
        self.postgres = postgres
        self.parameters = parameters
        self.now_ms = now_ms
        self.used: set[str] = set()
        self.parameter_kinds: dict[str, str] = {}
        self.bound_values: dict[str, str] = {}
        self.scope = QueryScope(None, {})
        self._compile_expr, self._compile_tree = compile_expr, compile_tree
        self._numbers: dict[str, str] = {}
        self._aliases = 0

    def expr(self, node: Any) -> Piece:
        """Compile an expression in the current scope."""
        piece = self._compile_expr(self, node)
        if len(piece.text) + piece.inlined > MOST_WRITTEN:
            raise self.fail("this becomes too long", node, "subqueries count as often as they are used")
        if piece.bare is not None and piece.text in self.scope.grouped:
            piece = replace(piece, bare=None)
        return piece

    def query(self, tree: Any, parent: QueryScope | None, ctes: Ctes) -> CompiledQuery:
        """Compile a SELECT or a UNION with all its clauses."""
        before = self.scope
        try:
            return self._compile_tree(self, tree, parent, ctes)
        finally:
            self.scope = before

    def bound(self, value: str) -> str:
        """Bind a text as a parameter."""
        if value not in self._numbers:
            name = f"p{len(self._numbers) + 1}"
            self._numbers[value] = name
            # No database accepts a NUL or half a surrogate pair; JSON can contain both.
            self.bound_values[name] = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        name = self._numbers[value]
        # One value is one parameter: Postgres treats GROUP BY f($1) and SELECT f($2) as different
        # expressions.
        return f"CAST(%({name})s AS TEXT)" if self.postgres else f":{name}"

    def wants(self, node: Any, kind: str) -> None:
        """Note that the node, if it is a parameter, stands where a value of this kind is needed."""
        if isinstance(node, exp.Placeholder) and isinstance(node.this, str):
            self.parameter_kinds.setdefault(node.this, "double" if kind == "decimal" else kind)

    def alias(self, letter: str) -> str:
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def quoted(self, name: str) -> str:
        quoted = '"' + name.replace('"', '""').replace("\0", "\ufffd") + '"'
        return quoted.replace("%", "%%") if self.postgres else quoted

    def only(self, node: Node, *names: str) -> None:
        """Refuse the node when it has arguments other than these."""
        for name, argument in node.args.items():
            if argument not in (None, False, "", []) and name not in names:
                word = name.rstrip("_").upper().replace("_", " ")
                raise self.fail(f"{type(node).__name__.upper()}: {word} is not supported", node)

    def fail(self, message: str, node: Any, hint: str | None = None) -> SqlError:
        return self.statement.error(message, node, hint=hint, code="HUB-1445")

    def unknown(self, message: str, node: Node, guess: str | None, code: str = "HUB-1471") -> SqlError:
        """Return the error for a name that does not exist: of a column, unless another ``code`` is given."""
        return self.statement.error(
            f'{message}: did you mean "{guess}"?' if guess else message,
            node,
            hint=None if guess else r"hub sql shows what there is: \d and \d NAME",
            code=code,
        )


Handler = Callable[[SqlWriter, Any], Piece]


def made(text: str, kind: str, *parts: Piece) -> Piece:
    """Return a piece made of parts, with their bare columns, aggregates, windows and sizes combined."""
    bare = next((each.bare for each in parts if each.bare is not None), None)
    return Piece(
        text,
        kind,
        None,
        bare,
        any(each.aggregate for each in parts),
        any(each.window for each in parts),
        sum(each.inlined * max(1, text.count(each.text)) for each in parts if each.inlined),
    )
