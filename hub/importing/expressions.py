"""[core] Expressions of other dialects, parsed by sqlglot and rewritten for Spark.

The parser knows no function: each call keeps its name, so that the table of functions alone decides what it
becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from sqlglot import exp, parse_one, parser
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer as SqlTokenizer

from hub.importing.column_types import ColumnType, type_of
from hub.importing.functions import FunctionTable, rule_of
from hub.importing.relations import RelationCatalog
from hub.importing.report import NotTranslated, StatementTranslation
from hub.importing.statements import Token, tokenize

_KEPT = ("CAST", "TRY_CAST", "EXTRACT")
_FIELDS = exp.PropertyEQ
# Key in the ``meta`` of an expression for the kind of its values: text, whole or fraction.
_KIND = "kind"
_KINDS_OF_TYPES = {
    "string": "text", "int": "whole", "bigint": "whole", "float": "fraction", "double": "fraction",
    "decimal": "fraction",
}  # fmt: skip
_WHOLE = {"count", "len", "length", "char_length", "instr", "array_length"}
_AS_ARGUMENT = {"sum", "min", "max", "abs"}
_DIVISION = "/ of numbers whose types are not known here: whole numbers give a fraction in Spark"
_BY_OFFSET = ("latest_by_offset", "earliest_by_offset")
# Deepest expression that is read.
DEEPEST = 40


class ImportedSql(Dialect):
    """The expressions of ksqlDB and Flink: SQL in which every function is just a name."""

    class Tokenizer(SqlTokenizer):
        IDENTIFIERS: ClassVar = ["`", '"']

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {each: parser.Parser.FUNCTION_PARSERS[each] for each in _KEPT}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


class Resolves(Protocol):
    """Names of a query. ``event_order`` is an expression that orders events, ``order_note`` how that order
    differs, "" if it does not."""

    @property
    def event_order(self) -> str: ...

    @property
    def order_note(self) -> str: ...

    def column(self, parts: Sequence[str]) -> tuple[exp.Expr, ColumnType | None]:
        """Return how a name is read. Raises NotTranslated."""


def parsed(text: str) -> exp.Expr:
    """Parse one expression. Raises NotTranslated."""
    try:
        tree = parse_one(f"SELECT {text}", dialect=ImportedSql)
    except (SqlglotError, RecursionError) as error:
        reason = str(error).splitlines()[0].partition(". Line")[0]
        raise NotTranslated(f"`{text[:60]}` cannot be parsed: {reason[:120]}", "check its syntax") from None
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        raise NotTranslated(f"`{text[:60]}` is not one expression", "check its brackets")
    found = tree.expressions[0].pop()
    assert isinstance(found, exp.Expr)
    return found


def plain_text(tokens: Sequence[Token]) -> str:
    """Return tokens of ksqlDB as SQL that the parser reads: names in lower case, ``.`` in place of ``->``."""
    return joined_text(
        tokens,
        lambda each: (
            each.text.lower() if each.kind == "word" else {"->": ".", "=>": "->"}.get(each.text, each.text)
        ),
    )


def joined_text(tokens: Sequence[Token], written: Callable[[Token], str] = lambda each: each.text) -> str:
    """Return tokens as one text. ``written``: text of a token that has no quotes."""
    parts = []
    for token in tokens:
        match token.kind:
            case "string":
                parts.append("'" + token.text.replace("'", "''") + "'")
            case "quoted":
                parts.append(f"`{token.text}`")
            case _:
                parts.append(written(token))
    return " ".join(parts).replace(" . ", ".")


def spark_text(node: exp.Expr) -> str:
    """Return an expression as text in Spark SQL."""
    return node.sql("spark", normalize_functions=False)


class ExpressionTranslator:
    """Rewrites expressions of one query. Differences are added to the translation."""

    def __init__(
        self,
        names: Resolves,
        functions: FunctionTable,
        catalog: RelationCatalog,
        translation: StatementTranslation,
    ) -> None:
        self.names, self.functions, self.catalog, self.translation = names, functions, catalog, translation

    def of(self, tokens: Sequence[Token]) -> exp.Expr:
        """Translate the tokens of an expression. Raises NotTranslated."""
        return self.rewritten(parsed(plain_text(tokens)))

    def rewritten(self, node: exp.Expr) -> exp.Expr:
        if _depth(node) > DEEPEST:
            raise NotTranslated(f"an expression is nested deeper than {DEEPEST}", "split it into two queries")
        return self._rewritten(node)

    def _rewritten(self, node: exp.Expr) -> exp.Expr:
        parts = name_parts(node)
        if parts is not None:
            expression, type_ = self.names.column(parts)
            return _marked(expression, "" if type_ is None else _KINDS_OF_TYPES.get(type_.name, ""))
        match node:
            case exp.Anonymous():
                return self._call(node)
            case exp.Cast():
                return self._cast(node)
            case exp.Bracket():
                return self._element(node)
            case exp.Lambda():
                node.set("this", self._rewritten(node.this))
                return node
        for name, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(name, self._rewritten(value))
            elif isinstance(value, list):
                node.set(
                    name, [self._rewritten(each) if isinstance(each, exp.Expr) else each for each in value]
                )
        return self._operator(node) if isinstance(node, exp.Binary) else node

    def _operator(self, node: exp.Expr) -> exp.Expr:
        """Return an operator by the kinds of its sides: + of texts, / of whole numbers."""
        kinds = {_kind(node.this), _kind(node.expression)}
        if isinstance(node, exp.Add) and "text" in kinds:
            return _marked(exp.DPipe(this=node.this, expression=node.expression), "text")
        if isinstance(node, exp.Div):
            if kinds == {"whole"}:
                return _marked(exp.IntDiv(this=node.this, expression=node.expression), "whole")
            if "fraction" not in kinds:
                self.translation.differ(_DIVISION)
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div) and len(kinds) == 1:
            return _marked(node, kinds.pop())
        return _marked(node, "fraction") if "fraction" in kinds else node

    def _cast(self, node: exp.Cast) -> exp.Expr:
        made = type_of(tokenize(node.to.sql(ImportedSql)), self.catalog.types)
        inner = self._rewritten(node.this)
        cast = exp.Cast(this=inner, to=exp.DataType.build(made.ddl, dialect="spark"))
        return _marked(cast, _KINDS_OF_TYPES.get(made.name, ""))

    def _element(self, node: exp.Bracket) -> exp.Expr:
        inner = self._rewritten(node.this)
        arguments = [self._rewritten(each) for each in node.expressions]
        return exp.Anonymous(this="try_element_at", expressions=[inner, *arguments])

    def _call(self, node: exp.Anonymous) -> exp.Expr:
        name = node.name.lower()
        fields = [each for each in node.expressions if isinstance(each, _FIELDS)]
        if name in ("struct", "map") and fields:
            pairs: list[exp.Expr] = []
            for each in fields:
                key = exp.Literal.string(each.this.name) if name == "struct" else self._rewritten(each.this)
                pairs += [key, self._rewritten(each.expression)]
            return exp.Anonymous(this="named_struct" if name == "struct" else "map", expressions=pairs)
        if name in _BY_OFFSET and isinstance(node.expressions[-1], exp.Boolean):
            name += "" if node.expressions.pop().this else "_or_null"
        rule = rule_of(self.functions, name)
        if rule.differs:
            self.translation.differ(f"{name.upper()}: {rule.differs}")
        if any("_unit(" in form for form in rule.forms) and node.expressions:
            node.expressions[0] = exp.Var(this=node.expressions[0].name)
        arguments = [self._rewritten(each) for each in node.expressions]
        if rule.first:
            arguments.insert(0, parsed(rule.first))
        if any("event_order" in form for form in rule.forms) and self.names.order_note:
            self.translation.differ(f"{name.upper()}: {self.names.order_note}")
        kind = "text" if rule.text else "whole" if name in _WHOLE else ""
        if name in _AS_ARGUMENT and arguments:
            kind = _kind(arguments[0])
        renamed = self._lambdas_of_maps(name, arguments) or rule.renamed
        if renamed is not None:
            return _marked(exp.Anonymous(this=renamed, expressions=arguments), kind)
        return _marked(self.filled(rule.template(name, len(arguments)), arguments), kind)

    @staticmethod
    def _lambdas_of_maps(name: str, arguments: Sequence[exp.Expr]) -> str | None:
        """Return Spark's function where ksqlDB has one name for lists and maps."""
        two = [each for each in arguments if isinstance(each, exp.Lambda) and len(each.expressions) == 2]
        if name == "filter" and two:
            return "map_filter"
        if name == "transform" and two:
            raise NotTranslated(
                "TRANSFORM of a map has two functions",
                "transform_keys() and transform_values() in the view's SQL",
            )
        return None

    def filled(self, template: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        """Return a template with its arguments."""
        tree = parsed(template)
        order = parsed(self.names.event_order) if "event_order" in template else None

        def fill(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and not node.table:
                if node.name == "event_order" and order is not None:
                    return order.copy()
                if node.name[:1] == "a" and node.name[1:].isdigit():
                    return _wrapped(arguments[int(node.name[1:]) - 1].copy(), node)
            if isinstance(node, exp.Anonymous) and node.name.endswith("_unit"):
                return _with_unit(node, arguments)
            return node

        made = tree.transform(fill)
        return made.this if isinstance(made, exp.Paren) else made


def _with_unit(node: exp.Anonymous, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """Return ``dateadd(UNIT, number, time)`` or ``datediff(UNIT, start, end)``."""
    name = "dateadd" if node.name.startswith("date_add") else "datediff"
    unit = arguments[0].name.upper().removesuffix("S")
    number = arguments[1].copy()
    if isinstance(node.expressions[1], exp.Neg):
        number = exp.Neg(this=exp.Paren(this=number))
    return exp.Anonymous(this=name, expressions=[exp.Var(this=unit), number, arguments[2].copy()])


def _wrapped(argument: exp.Expr, place: exp.Expr) -> exp.Expr:
    inside_operator = isinstance(place.parent, exp.Binary | exp.Unary)
    return (
        exp.Paren(this=argument)
        if inside_operator and isinstance(argument, exp.Binary | exp.Case)
        else argument
    )


def _marked(node: exp.Expr, kind: str) -> exp.Expr:
    if kind:
        node.meta[_KIND] = kind
    return node


def _kind(node: exp.Expr) -> str:
    """Return text, whole, fraction, or "" if it is not known."""
    if isinstance(node, exp.Paren | exp.Neg):
        return _kind(node.this)
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "whole" if node.is_int else "fraction"
    return str(node.meta.get(_KIND, ""))


def name_parts(node: exp.Expr) -> list[str] | None:
    """Return the parts of a dotted name; None for another expression, such as a field of a call."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts] if not isinstance(node.this, exp.Star) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = name_parts(node.this)
        return None if before is None else [*before, node.expression.name]
    return None


def dotted(node: exp.Expr, fields: Sequence[str]) -> exp.Expr:
    """Return a field within an expression."""
    for each in fields:
        node = exp.Dot(this=node, expression=exp.to_identifier(each))
    return node


def _depth(node: exp.Expr) -> int:
    deepest, level = 0, [node]
    while level:
        deepest += 1
        level = [child for each in level for child in each.iter_expressions()]
    return deepest
