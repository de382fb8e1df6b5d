"""[core] Parse an expression of a view, or say why it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, UnsupportedError

from hub.errors import ConfigError, did_you_mean, nearest
from hub.materializers.definition.compiling.trees import DIALECT, sql_of
from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.python_functions import misused
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.sql_rules.checks import is_aggregate, kinds, problem_in
from hub.materializers.sql_rules.determinism import refused
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS, deep_node, deep_token, shortened
from hub.materializers.types.avro_types import AvroType

_OF_BYTES = ("value", "key", "_topic")  # what a transform may read
_NOT_HERE = (exp.Select, exp.Subquery, exp.Window, exp.Star)
_CODE = "HUB-2100"


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks of a view's expressions. ``types``: the fields of each source's events."""

    view: View | SqlView
    types: Mapping[str, Mapping[str, AvroType]]

    def parse(self, where: str, text: str) -> exp.Expr:
        """Return the expression as a tree. Raises ConfigError that names the problem and the way out."""
        tree = self._tree(where, text)
        for what, hint, code in self._refusals(tree, text):
            raise self.wrong(where, what, hint, code=code)
        return tree

    def _tree(self, where: str, text: str) -> exp.Expr:
        try:
            deep = deep_token(sqlglot.tokenize(text, dialect=DIALECT)) is not None
            tree = None if deep else sqlglot.parse_one(text, dialect=DIALECT)
        except RecursionError:
            tree = None
        except SqlglotError as error:
            first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
            at = f" at column {first['col']}" if "col" in first else ""
            why = str(first.get("description", error)).splitlines()[0].rstrip(".")
            raise self.wrong(
                where,
                f"`{shortened(text)}` is not a SQL expression: {why}{at}",
                "see docs/reference/view-files.md",
            ) from None
        if tree is None or deep_node(tree) is not None:
            raise self.wrong(
                where,
                f"`{shortened(text)}` is nested too deep",
                f"{MOST_BRACKETS} brackets, {MOST_LEVELS} parts of a chain; a field may name the fields "
                "before it",
            )
        return tree

    def _refusals(self, tree: exp.Expr, text: str) -> Iterator[tuple[str, str, str]]:
        """Yield (problem, hint, code) in the order of the checks. A later check may assume the earlier
        ones.
        """
        if (bad := tree.find(*_NOT_HERE)) is not None:
            hint = "a field is one expression without subquery, window or *"
            yield f"`{text}` has `{sql_of(bad)}`", hint, _CODE
        for each in tree.find_all(exp.ArgMax, exp.ArgMin):
            if each.args.get("count"):
                name = "max_by" if isinstance(each, exp.ArgMax) else "min_by"
                hint = (
                    f"{name}(x, time) keeps one; a SQL view (`sql:`) keeps the top of each key: "
                    f"{name}(x, time, 3)"
                )
                yield f"`{text}` keeps several values", hint, "HUB-2103"
        try:
            tree.sql(dialect=DIALECT, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as error:
            hint = "say it with other functions, or in a SQL view (`sql:`), whose text is not changed"
            yield f"`{text}` cannot be written again as it is: {str(error).splitlines()[0]}", hint, _CODE
        if (misuse := misused(tree, self.view.functions)) is not None:
            yield *misuse, "HUB-2151"
        if (never := refused(Dialect.get_or_raise(DIALECT).tokenize(text), tree)) is not None:
            yield never.what, never.hint, "HUB-2102"
        problem = problem_in(tree, [each.name for each in self.view.functions], kinds(self.types))
        if problem is not None:
            yield problem.what, problem.hint, "HUB-2105"

    def check_transform(self, source: str) -> None:
        """Raise ConfigError if the source's ``transform`` cannot be computed from the bytes of an event."""
        text = self.view.sources[source].transform
        if text is None:
            return
        where = f'source "{source}": transform'
        tree = self.parse(where, text)
        if any(is_aggregate(each) for each in tree.walk()):
            raise self.wrong(where, f"`{text}` aggregates", "it is computed from the bytes of one event")
        for column in tree.find_all(exp.Column):
            name = column.parts[0].name
            if name not in _OF_BYTES:
                raise self.wrong(
                    where,
                    f'there is no column "{name}" before an event is decoded',
                    "value and key are its bytes, _topic is its topic",
                    code="HUB-2101",
                )

    def known_column(self, where: str, source: str, name: str) -> None:
        """Raise ConfigError if the source has no such column."""
        if name not in META and name not in self.types[source]:
            known = ", ".join(sorted(self.types[source]))
            raise self.wrong(
                where,
                f'source "{source}" (topic "{self.view.sources[source].topic}") has no column "{name}"',
                did_you_mean(name, self.types[source], f"it has {known}"),
                code="HUB-2101",
            )

    def unknown_name(self, where: str, parts: Sequence[str], earlier: Sequence[str]) -> ConfigError:
        """Return the error for a name that is neither a source's column nor an earlier field."""
        dotted = ".".join(parts)
        guess = nearest(parts[0], [*self.view.sources, *earlier])
        if guess is not None and guess != parts[0]:
            hint = f'did you mean "{".".join([guess, *parts[1:]])}"?'
        elif parts[0] in self.view.sources:
            hint = f"name a column of it, such as {parts[0]}.{min(self.types[parts[0]])}"
        else:
            hint = f"write source.column (sources: {', '.join(self.view.sources)}) or a field declared above"
        return self.wrong(
            where, f'"{dotted}" is neither a source nor an earlier field', hint, code="HUB-2101"
        )

    def wrong(self, where: str, what: str, hint: str, *, code: str = "HUB-2100") -> ConfigError:
        """Return the error of one expression of the view. ``where`` names it."""
        return ConfigError(f'view "{self.view.name}": {where}: {what}', hint=hint, code=code)
