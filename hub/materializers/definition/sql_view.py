"""[core] A *SQL view*: one SELECT in Spark SQL over topics and other views, in one YAML file, checked before
it runs.

The tables of its SQL are the view's sources. Spark gets the author's own text. The hub parses it only to find
which columns it reads, what they are called, and if it is a function of its events. No SQL is generated from
the parse tree, because a generator may lose an argument that it does not know. What the hub must add is
inserted into the author's text (``with_columns``).

Errors name line and column of the SQL and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from hub.errors import ConfigError, nearest
from hub.materializers.definition.declared import CHANGELOG_PREFIX, META, EventFormat, Name, ViewDeclaration
from hub.materializers.definition.python_functions import misused
from hub.materializers.sql_rules.checks import kinds, problem_in
from hub.materializers.sql_rules.determinism import refused
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS, deep_node, deep_token, shortened
from hub.materializers.types.avro_types import AvroType, field_types, has_micros, kind
from hub.yaml import load_model, place

_WIDEST = 160  # most characters of a line that an error shows
_SPARK = Dialect.get_or_raise("spark")

# Name of the column that carries a row's version through the SQL. It cannot collide with other names.
VERSION = "_hub_version"
# Name of the column with the event that a stateless row is made of: its source's name, and these META
# columns.
FROM, ORIGIN = "_hub_from", ("topic", "partition", "offset", "timestamp")

As = Literal["stream", "table", "static"]

_UNITS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DURATION = re.compile(rf"^(\d{{1,6}}) ({'|'.join(_UNITS)})s?$")


def duration_ms(text: str) -> int:
    """Parse a duration such as ``10 minutes`` into milliseconds. Raises ValueError."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise ValueError(f'"{text}" is no duration: write a number and a unit, such as "10 minutes"')
    return int(found[1]) * _UNITS[found[2]]


class TableOf(BaseModel):
    """Declaration that a topic's events form a table.

    The latest event of each ``key`` is a row until a tombstone, or until an event for which ``delete_when``
    is true.

    ``key`` names columns of the event; [] means the record key. A tombstone has no columns: its record key is
    the text of that key (for several columns, a JSON array of their texts), as in every changelog.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: list[str] = Field(default_factory=list, max_length=8)
    delete_when: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_many(cls, key: Any) -> Any:
        return [key] if isinstance(key, str) else key


class SqlSource(EventFormat):
    """A table of the SQL: the events of a topic (or pattern of topics), or the rows of another view.

    ``as``: *stream*, every event is a row forever (default of a topic); *table*, the latest event of each
    record key until its tombstone (default of a view); *static*, such a table as it is when a batch reads it,
    for enrichment. ``table`` means *table* and gives the key. ``event_time`` names the column with the time
    of the event. The *watermark* follows the maximum of that column at the given distance, and an event
    behind it may be too late. An event whose time is more than ``max_ahead`` after its broker's time becomes
    a dead-letter record: it would move the watermark past all other events.
    """

    topic: str = Field(default="", max_length=249)
    view: Name | None = None
    as_: As | None = Field(default=None, alias="as")
    table: TableOf | None = None
    event_time: str | None = Field(default=None, min_length=1, max_length=200)
    watermark: str | None = None
    max_ahead: str = "1 hour"

    @field_validator("watermark", "max_ahead")
    @classmethod
    def _duration(cls, text: str | None) -> str | None:
        if text is not None:
            duration_ms(text)
        return text

    @field_validator("table", mode="before")
    @classmethod
    def _says_its_key(cls, given: Any) -> Any:
        if isinstance(given, str | list):
            names = ", ".join([given] if isinstance(given, str) else [str(each) for each in given])
            said = names if isinstance(given, str) else f"[{names}]"
            raise ValueError(f"write table: {{key: {said}}}")  # noqa: TRY004 - pydantic wants it
        return {} if given is True else given

    @model_validator(mode="before")
    @classmethod
    def _of_a_view(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("view"), str):
            topic = CHANGELOG_PREFIX + given["view"]
            # The engine sets the topic of the version that is read.
            if given.get("topic", topic) != topic and not str(given["topic"]).startswith(f"{topic}.v"):
                raise ValueError("a source is either a topic or a view")
            return {**given, "topic": given.get("topic") or topic}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> SqlSource:
        if not self.topic:
            raise ValueError('name a topic ("topic: nyc.*.departures") or a view ("view: customer_360")')
        if self.view is not None and self.format is not None:
            raise ValueError("the rows of a view have its schema already: leave `format` out")
        if self.table is not None and self.as_ not in (None, "table"):
            raise ValueError(
                f"as: {self.as_} and table: contradict each other; "
                + ("leave out `as`" if self.as_ == "stream" else "a static table is by record key")
            )
        if self.table is not None and self.view is not None and self.table.key:
            raise ValueError("the rows of a view have its key already: leave `key` out")
        if (self.event_time is None) != (self.watermark is None):
            raise ValueError(
                "event_time and watermark go together: the column, and how late an event may come"
            )
        if self.watermark is not None and self.read_as != "stream":
            raise ValueError(f"a {self.read_as} has no watermark: only the events of a stream come late")
        return self

    @property
    def read_as(self) -> As:
        if self.table is not None:
            return "table"
        return self.as_ or ("stream" if self.view is None else "table")

    @property
    def max_ahead_ms(self) -> int:
        return duration_ms(self.max_ahead)


class SqlView(ViewDeclaration):
    """A SQL view as declared in its file."""

    sources: dict[Name, SqlSource] = Field(min_length=1, max_length=16)
    sql: Annotated[str, Field(min_length=1, max_length=20_000)]
    key: list[Name] = Field(default_factory=list)

    @field_validator("ttl")
    @classmethod
    def _lasts_as_said(cls, ttl: str | None) -> str | None:
        if ttl is not None:
            raise ValueError(
                "the rows of a SQL view are what its SELECT says of its sources, so none is over by itself; write the ttl on an "
                "entity view (`fields:`) and read that one here (`{view: NAME}`): what it deletes goes from these rows too; "
                "or say in WHERE which events count"
            )
        return ttl

    @model_validator(mode="after")
    def _in_step(self) -> SqlView:
        if self.cut is None:
            return self
        for name, source in self.sources.items():
            if source.read_as == "static":
                raise ValueError(
                    f'source "{name}" is static: it is read as it stands when a batch looks, so nobody can say what of it is '
                    "before a cut. Write `table: {key: ...}`, or leave `cut` out"
                )
        return self

    # For the incremental engine: most input rows of a part that is recomputed as a whole in each batch,
    # because no column ties it to the result.
    whole_rows: int = Field(0, ge=0, le=1_000_000)

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_many(cls, key: Any) -> Any:
        return [key] if isinstance(key, str) else key

    @field_validator("key")
    @classmethod
    def _distinct_key(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a row, in order. Raises ConfigError when the SQL cannot be parsed."""
        return query_of(self).columns

    @property
    def all_sources(self) -> dict[str, SqlSource]:
        """All topics and views that the view reads: its sources."""
        return dict(self.sources)

    @property
    def late_topic(self) -> str:
        """Topic that receives events that arrived behind the watermark."""
        return f"{CHANGELOG_PREFIX}{self.view}.late"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source, passed through unchanged."""

    source: str
    column: str


@dataclass(frozen=True)
class FromRelation:
    """A named relation in a FROM: a source (``source``) or a query. ``columns`` None: the columns are
    unknown."""

    alias: str
    columns: Mapping[str, SourceColumn | None] | None
    source: str | None = None
    query: exp.Query | None = None


@dataclass
class Scope:
    """One SELECT: the relations that it reads, and the names that it creates itself (``LATERAL VIEW … AS
    item``)."""

    select: exp.Select
    relations: list[FromRelation] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    outer: Scope | None = None


@dataclass
class Query:
    """A view's SQL, parsed.

    ``used``: by source, the event columns that are read. ``seen``: by source, the columns that the SQL itself
    reads, including META. ``micros``: columns with times finer than milliseconds, for sources whose schema is
    known.
    """

    view: SqlView
    text: str
    tokens: list[Token]
    tree: exp.Query
    columns: tuple[str, ...] = ()
    used: dict[str, dict[str, None]] = field(default_factory=dict)
    seen: dict[str, dict[str, None]] = field(default_factory=dict)
    scopes: dict[int, Scope] = field(default_factory=dict)
    ctes: dict[int, exp.Query] = field(default_factory=dict)
    micros: frozenset[SourceColumn] = frozenset()

    def scope(self, select: exp.Expr) -> Scope:
        return self.scopes[id(select)]

    def column(self, scope: Scope, node: exp.Expr | None) -> tuple[FromRelation, str] | None:
        """Return (relation, column) if an expression is nothing but a column of FROM, else None."""
        if isinstance(node, exp.Alias | exp.Paren):
            return self.column(scope, node.this)
        if not isinstance(node, exp.Column):
            return None
        found = _found(scope, [part.name for part in node.parts])
        if found is None or found[2]:
            return None
        return found[0], found[1]

    def path(self, scope: Scope, column: exp.Column) -> tuple[str, ...]:
        """Resolve a column's name to (alias, column, fields within it). Return it as written if nothing in
        FROM has it."""
        parts = [part.name for part in column.parts]
        found = _found(scope, parts)
        return tuple(parts) if found is None else (found[0].alias, found[1], *found[2])

    def origin(self, scope: Scope, node: exp.Expr | None) -> SourceColumn | None:
        """Return the source's column if an expression is nothing but that column, else None."""
        found = self.column(scope, node)
        if found is None:
            return None
        relation, column = found
        if relation.source is not None:
            return SourceColumn(relation.source, column)
        return (relation.columns or {}).get(column)

    def error(self, what: str, hint: str, node: exp.Expr | Token | None, code: str) -> ConfigError:
        return wrong(self.view, what, hint, _start(node), code)


def load_sql_view(path: Path) -> SqlView:
    """Load a SQL view from its file. Raises ConfigError with file, line, column and the expected value."""
    view = load_model(path, SqlView)
    readable(path, view)
    return view


def readable(path: Path, view: SqlView) -> None:
    """Raise ConfigError with file, line and column when the view's SQL cannot be parsed."""
    try:
        query_of(view)
    except ConfigError as error:
        at = place(path, "sql").rsplit(":", 1)[0]
        raise ConfigError(error.message, hint=error.hint, code=error.code, where=at) from None


def query_of(view: SqlView) -> Query:
    """Parse and resolve the view's SQL, as far as possible without schemas. Raises ConfigError."""
    key = (view.model_dump_json(by_alias=True), ())
    return _cached(*key)


def checked(view: SqlView, schemas: Mapping[str, AvroType]) -> Query:
    """Parse the view's SQL and check it against the schemas of its sources' events, given by source name.

    Raises ConfigError when a column does not exist or an event time is no timestamp.
    """
    known = tuple(sorted((name, orjson.dumps(schema).decode()) for name, schema in schemas.items()))
    return _cached(view.model_dump_json(by_alias=True), known)


@lru_cache(maxsize=256)
def _cached(view: str, schemas: tuple[tuple[str, str], ...]) -> Query:
    return _read(SqlView.model_validate_json(view), {name: orjson.loads(text) for name, text in schemas})


def _read(view: SqlView, schemas: Mapping[str, AvroType]) -> Query:
    types = {name: field_types(schema) for name, schema in schemas.items()}
    for name, source in view.sources.items():
        _check_event_time(view, name, source, types.get(name))
        _check_table(view, name, source, types.get(name))
    tokens, tree = _parsed(view)
    query = Query(view, view.sql, tokens, tree)
    query.used = {name: {} for name in view.sources}
    query.seen = {name: {} for name in view.sources}
    query.micros = frozenset(
        SourceColumn(name, column)
        for name, of in types.items()
        for column, each in of.items()
        if has_micros(each)
    )
    said = misused(tree, view.functions)
    if said is not None:
        raise wrong(view, *said, None, "HUB-2151")
    _check_repeatable(query)
    problem = problem_in(tree, [each.name for each in view.functions], kinds(types))
    if problem is not None:
        raise wrong(view, problem.what, problem.hint, _start(problem.node), "HUB-2105")
    columns = _Resolver(query, types).outputs(tree, {}, None)
    query.columns = tuple(columns)
    _check_columns(query)
    for name, source in view.sources.items():
        # Also if the SQL reads only META, as in count(*).
        if source.event_time is not None and source.event_time not in META and name in _tables(tree):
            query.used[name][source.event_time] = None
        if source.table is not None:
            also = [*source.table.key, *delete_columns(name, source)]
            query.used[name] |= {each: None for each in also if each not in META}
    unread = [name for name, used in query.used.items() if not used and name not in _tables(tree)]
    if unread:
        raise wrong(
            view, f'source "{unread[0]}" is not read by the SQL', "remove it, or FROM it", None, "HUB-2110"
        )
    return query


# ---- reading the text


def wrong(view: SqlView, what: str, hint: str, at: int | None, code: str) -> ConfigError:
    """Return an error about the SQL, with line, column and the line of text at offset ``at``."""
    if at is None:
        return ConfigError(f'view "{view.name}": {what}', hint=hint, code=code)
    before = view.sql[:at]
    line, column = before.count("\n") + 1, at - before.rfind("\n")
    text = view.sql.splitlines()[line - 1]
    cut = max(0, column - 1 - _WIDEST // 2) if len(text) > _WIDEST else 0
    text = ("…" if cut else "") + text[cut : cut + _WIDEST]
    caret = " " * (column - 1 - cut + bool(cut)) + "^"
    return ConfigError(
        f'view "{view.name}": SQL line {line}, column {column}: {what}\n    {text}\n    {caret}',
        hint=hint,
        code=code,
    )


def _start(node: exp.Expr | Token | None) -> int | None:
    """Return the offset of a node in the text, which is that of its first name; None if it has none."""
    if node is None:
        return None
    if isinstance(node, Token):
        return int(node.start)
    starts = [each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta]
    return min(starts, default=None)


def trees_of(sql: str) -> list[exp.Expr]:
    """Parse the statements of a text in Spark SQL. Raises SqlglotError."""
    return _trees(_SPARK.tokenize(sql), sql)


def _trees(tokens: list[Token], sql: str) -> list[exp.Expr]:
    """Parse the statements of a text that has these tokens. Raises SqlglotError.

    All parsing goes through here: sqlglot by itself takes ``GROUP BY window(…)`` for the clause ``WINDOW w AS
    (…)``.
    """
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR
    return [tree for tree in _SPARK.parser().parse(tokens, sql) if tree is not None]


def _parsed(view: SqlView) -> tuple[list[Token], exp.Query]:
    try:
        tokens = _SPARK.tokenize(view.sql)
    except SqlglotError as error:
        raise wrong(
            view, f"this is no SQL: {str(error).splitlines()[0]}", "is a quote not closed?", None, "HUB-2110"
        ) from None
    deep = deep_token(tokens)
    if deep is not None:
        raise _too_deep(view, MOST_BRACKETS, deep.start)
    try:
        trees = _trees(tokens, view.sql)
    except RecursionError:
        raise _too_deep(view, MOST_BRACKETS, None) from None
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        at = _offset(view.sql, first.get("line"), first.get("col"), first.get("highlight") or "")
        said = re.sub(r" ?(for )?<class '[^']*'>", "", str(first.get("description", "no SQL"))).rstrip(".")
        raise wrong(view, said, "a view's SQL is one SELECT in Spark SQL", at, "HUB-2110") from None
    except SqlglotError as error:
        raise wrong(view, f"no SQL: {error}"[:200], "a view's SQL is one SELECT", None, "HUB-2110") from None
    if len(trees) != 1:
        raise wrong(
            view,
            f"{len(trees)} statements",
            "a view is one SELECT; make two views of two",
            None,
            "HUB-2111",
        )
    tree = trees[0]
    node = deep_node(tree)
    if node is not None:
        raise _too_deep(view, MOST_LEVELS, _start(node))
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise wrong(
            view,
            "not a SELECT",
            "a view's SQL only reads: SELECT … FROM a source",
            tokens[0].start,
            "HUB-2111",
        )
    for node in tree.walk():
        for place_, (said, hint) in _NEVER.items():
            if isinstance(node, place_):
                raise wrong(view, said, hint, _start(node) or _start(node.parent), "HUB-2112")
    selects = [token for token in tokens if token.token_type == TokenType.SELECT]
    if len(selects) != len(list(tree.find_all(exp.Select))):
        raise wrong(
            view, "not in a form that the hub reads", "write SELECT … FROM … WHERE …", None, "HUB-2111"
        )
    if any(token.text == "|>" or token.token_type == TokenType.PIPE_GT for token in tokens):
        raise wrong(view, "pipe syntax is not read here", "write SELECT … FROM … WHERE …", None, "HUB-2111")
    return tokens, tree


def _too_deep(view: SqlView, most: int, start: int | None) -> ConfigError:
    return wrong(
        view,
        f"nested deeper than {most}",
        "is a bracket wrong? WITH gives parts names; a long chain of OR is shorter as IN (…)",
        start,
        "HUB-2110",
    )


def _offset(sql: str, line: int | None, col: int | None, highlight: str) -> int | None:
    """Convert sqlglot's (line, column of the last character) to the offset of the first character."""
    if line is None or col is None:
        return None
    starts = [0]
    for text in sql.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    return max(0, min(len(sql) - 1, starts[min(line, len(starts)) - 1] + col - max(1, len(highlight))))


_NEVER: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Into: ("SELECT INTO writes", "a view's rows are its topic; leave INTO out"),
    exp.TableSample: (
        "a sample gives other rows on every replay",
        "choose by value: WHERE pmod(hash(id), 100) < 10",
    ),
    exp.Pivot: ("PIVOT is not maintained", "name the columns: sum(IF(kind = 'a', amount, 0)) AS a"),
    exp.Placeholder: ("a view has no parameters", "write the value, or filter when you read the view"),
    exp.Parameter: ("a view has no parameters", "write the value, or filter when you read the view"),
    exp.Command: ("not a SELECT", "a view's SQL only reads"),
}


def _check_repeatable(query: Query) -> None:
    found = refused(query.tokens, query.tree)
    if found is not None:
        raise query.error(found.what, found.hint, found.at, "HUB-2112")


def _no_column(
    view: SqlView, name: str, what: str, column: str, types: Mapping[str, AvroType]
) -> ConfigError:
    guess = nearest(column, types)
    return ConfigError(
        f'view "{view.name}": source "{name}": {what}: topic "{view.sources[name].topic}" has no column "{column}"',
        hint=f'did you mean "{guess}"?' if guess else f"it has {', '.join(sorted(types))}",
        code="HUB-2101",
    )


def _check_event_time(
    view: SqlView, name: str, source: SqlSource, types: Mapping[str, AvroType] | None
) -> None:
    column = source.event_time
    if column is None or column == "_timestamp" or types is None:
        return
    if column not in types:
        raise _no_column(view, name, "event_time", column, types)
    if kind(types[column]) != "timestamp":
        raise ConfigError(
            f'view "{view.name}": source "{name}": event_time: column "{column}" is no timestamp',
            hint="name a column with logicalType timestamp-millis or timestamp-micros, or _timestamp, the broker's time",
            code="HUB-2101",
        )


def _check_table(view: SqlView, name: str, source: SqlSource, types: Mapping[str, AvroType] | None) -> None:
    """Check that the columns of ``table:`` exist and that its key identifies rows. Raises ConfigError."""
    table = source.table
    if table is None:
        return
    for what, columns in (("key", table.key), ("delete_when", delete_columns(name, source, view))):
        for column in columns:
            if types is None or column in META:
                continue
            if column not in types:
                raise _no_column(view, name, f"table {what}", column, types)
            if what == "key" and kind(types[column]) in ("floating", "other"):
                raise ConfigError(
                    f'view "{view.name}": source "{name}": table key: column "{column}" is no value that tells rows apart',
                    hint="a key is text, a whole or decimal number, a boolean, a date or a time; or leave `key` out: "
                    "the record's own key",
                    code="HUB-2101",
                )
    if table.key and set(table.key) & set(META):
        raise ConfigError(
            f'view "{view.name}": source "{name}": table key: {", ".join(sorted(set(table.key) & set(META)))} is of the '
            "record, not of the event",
            hint="leave `key` out to have the record's own key",
            code="HUB-2101",
        )


def delete_columns(name: str, source: SqlSource, view: SqlView | None = None) -> list[str]:
    """Return the event columns in ``delete_when``. Raises ConfigError unless it is an expression over one
    event."""
    text = source.table.delete_when if source.table is not None else None
    if text is None:
        return []
    where = f'view "{view.name if view else ""}": source "{name}": delete_when'
    try:
        tokens = _SPARK.tokenize(text)
        if deep_token(tokens) is not None:
            raise RecursionError
        tree = _SPARK.parser().parse(tokens, text)
        if any(each is not None and deep_node(each) is not None for each in tree):
            raise RecursionError
    except RecursionError:
        raise ConfigError(
            f"{where}: `{shortened(text)}` is nested deeper than {MOST_BRACKETS}",
            hint="an expression over the event's columns, such as status = 'deleted'",
            code="HUB-2110",
        ) from None
    except SqlglotError as error:
        raise ConfigError(
            f"{where}: this is no SQL: {str(error).splitlines()[0]}",
            hint="an expression over the event's columns, such as status = 'deleted'",
            code="HUB-2110",
        ) from None
    whole = tree[0] if len(tree) == 1 else None
    never = None if whole is None else whole.find(exp.Query, exp.AggFunc, exp.Window, exp.Star)
    if whole is None or never is not None or isinstance(whole, exp.Alias) or refused(tokens, whole):
        raise ConfigError(
            f"{where}: `{text[:60]}` is no expression over one event",
            hint="compare the event's own columns, such as status = 'deleted'",
            code="HUB-2112",
        )
    found: dict[str, None] = {}
    for column in whole.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        found[parts[1] if len(parts) > 1 and parts[0] == name else parts[0]] = None
    return list(found)


def _check_columns(query: Query) -> None:
    view = query.view
    for name in query.columns:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name):
            raise query.error(
                f'the column "{name}" cannot be a field of a row',
                "give it a name of lower-case letters, digits and _, such as … AS delay",
                next((each for each in query.tree.find_all(exp.Identifier) if each.name == name), None),
                "HUB-2113",
            )
    twice = [name for n, name in enumerate(query.columns) if name in query.columns[:n]]
    if twice:
        raise query.error(f'two columns are called "{twice[0]}"', "rename one: … AS name", None, "HUB-2113")
    for what, names in (("key", view.key), ("index", view.indexes)):
        for name in names:
            if name not in query.columns:
                guess = nearest(name, query.columns)
                raise wrong(
                    view,
                    f'{what} "{name}" is no column of the SELECT',
                    f'did you mean "{guess}"?' if guess else f"it has {', '.join(query.columns)}",
                    None,
                    "HUB-2113",
                )


def _tables(tree: exp.Expr) -> set[str]:
    return {table.name for table in tree.find_all(exp.Table)}


# ---- names to columns


def _found(scope: Scope, parts: Sequence[str]) -> tuple[FromRelation, str, Sequence[str]] | None:
    """Resolve a dotted name to (relation, column, path within it); None if no relation has it."""
    if len(parts) > 1:
        for relation in scope.relations:
            if relation.alias.lower() == parts[0].lower() and relation.alias:
                return relation, parts[1], parts[2:]
    for relation in scope.relations:
        if relation.columns is not None and parts[0] in relation.columns:
            return relation, parts[0], parts[1:]
    unknown = [relation for relation in scope.relations if relation.columns is None]
    if unknown and parts[0] not in scope.made:
        return unknown[0], parts[0], parts[1:]
    return None


_WINDOW_COLUMNS = ("window", "session_window")


class _Resolver:
    """Resolves the columns of all SELECTs, from the inside out. Raises ConfigError for a column that no
    source has."""

    def __init__(self, query: Query, types: Mapping[str, Mapping[str, AvroType]]) -> None:
        self.query = query
        self.types = types

    def outputs(
        self,
        node: exp.Expr,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
        outer: Scope | None,
    ) -> dict[str, SourceColumn | None]:
        """Return the columns of a query, each with the source's column that it passes through, or None."""
        if isinstance(node, exp.Subquery):
            return self.outputs(node.this, ctes, outer)
        with_ = node.args.get("with_")
        if with_ is not None:
            if with_.recursive:
                raise self.query.error(
                    "a recursive query is not maintained", "unfold it to a fixed depth", with_, "HUB-2112"
                )
            ctes = dict(ctes)
            for cte in with_.expressions:
                made = self.outputs(cte.this, ctes, outer)
                names = cte.args["alias"].args.get("columns") or []
                if names:
                    made = dict(zip((each.name for each in names), made.values(), strict=False))
                ctes[cte.alias.lower()] = (cte.this, made)
        if isinstance(node, exp.SetOperation):
            left = self.outputs(node.this, ctes, outer)
            right = self.outputs(node.expression, ctes, outer)
            if len(left) != len(right):
                raise self.query.error(
                    f"one side has {len(left)} columns, the other {len(right)}",
                    "both sides of a set operation need the same columns",
                    node.expression,
                    "HUB-2113",
                )
            pairs = zip(left.items(), right.values(), strict=True)
            return {name: origin if origin == other else None for (name, origin), other in pairs}
        if not isinstance(node, exp.Select):
            raise self.query.error("not a SELECT", "write SELECT … FROM a source", node, "HUB-2111")
        return self._select(node, ctes, outer)

    def _select(
        self,
        select: exp.Select,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
        outer: Scope | None,
    ) -> dict[str, SourceColumn | None]:
        scope = Scope(select, outer=outer)
        self.query.scopes[id(select)] = scope
        from_ = select.args.get("from_")
        if from_ is None:
            raise self.query.error(
                "a SELECT without FROM reads no events",
                f"FROM one of {', '.join(self.query.view.sources)}",
                select,
                "HUB-2111",
            )
        tables = [from_.this, *(join.this for join in select.args.get("joins") or ())]
        for table in tables:
            self._relation(scope, table, ctes)
        for lateral in select.args.get("laterals") or ():
            self._made(scope, lateral)
        projections: dict[str, SourceColumn | None] = {}
        for projection in select.expressions:
            for name in self._names(projection):
                if name in projections:
                    raise self.query.error(
                        f'two columns are called "{name}"', "rename one: … AS name", projection, "HUB-2113"
                    )
                projections[name] = None
        for part in select.iter_expressions():
            if part is with_of(select):
                continue
            for found in _within(part):
                if isinstance(found, exp.Column):
                    self._column(scope, found, projections)
                elif found is not select:
                    self._inner(scope, found, tables, ctes)
        for projection in select.expressions:
            names = self._names(projection)
            if len(names) == 1:
                projections[names[0]] = self.query.origin(scope, projection)
        return projections

    def _inner(
        self,
        scope: Scope,
        node: exp.Expr,
        tables: Sequence[exp.Expr],
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
    ) -> None:
        """Resolve a query within an expression. Queries in FROM were resolved with it."""
        if id(node) not in self.query.scopes and not any(
            isinstance(table, exp.Subquery) and table.this is node for table in tables
        ):
            self.outputs(node, ctes, scope)

    def _relation(
        self,
        scope: Scope,
        table: exp.Expr,
        ctes: Mapping[str, tuple[exp.Query, Mapping[str, SourceColumn | None]]],
    ) -> None:
        view = self.query.view
        if isinstance(table, exp.Lateral):
            self._made(scope, table)
            return
        if isinstance(table, exp.Subquery):
            made = self.outputs(table.this, ctes, scope.outer)
            scope.relations.append(FromRelation(table.alias, made, query=table.this))
            return
        if not isinstance(table, exp.Table) or isinstance(table.this, exp.Func):
            raise self.query.error(
                f"`{table.sql('spark')[:60]}` is no source",
                f"FROM reads the view's sources: {', '.join(view.sources)}",
                table,
                "HUB-2111",
            )
        name = table.name
        alias = table.alias or name
        if not table.args.get("db") and name.lower() in ctes:
            inner, outputs = ctes[name.lower()]
            scope.relations.append(FromRelation(alias, outputs, query=inner))
        elif not table.args.get("db") and name in view.sources:
            columns: dict[str, SourceColumn | None] | None = None
            if name in self.types:
                columns = {each: SourceColumn(name, each) for each in (*self.types[name], *META)}
            scope.relations.append(FromRelation(alias, columns, source=name))
        else:
            written = ".".join(part.name for part in table.parts)
            guess = nearest(name, [*view.sources, *ctes])
            raise self.query.error(
                f'there is no source "{written}"',
                f'did you mean "{guess}"?'
                if guess
                else f"declare it under sources: {', '.join(view.sources)}",
                table,
                "HUB-2111",
            )

    @staticmethod
    def _made(scope: Scope, lateral: exp.Expr) -> None:
        alias = lateral.args.get("alias")
        if alias is not None:
            scope.made |= {column.name for column in alias.args.get("columns") or ()}
            if alias.this is not None:
                scope.made.add(alias.this.name)
        if not (alias and alias.args.get("columns")):
            scope.made |= {"col", "pos", "key", "value"}  # Spark's default names for the columns of explode()

    def _names(self, projection: exp.Expr) -> list[str]:
        if isinstance(projection, exp.Aliases):
            return [each.name for each in projection.expressions]
        if projection.is_star:
            raise self.query.error(
                "`*` would change the view with every new field of its sources",
                "name the columns",
                projection,
                "HUB-2113",
            )
        name = projection.alias_or_name or projection.output_name
        if not name:
            raise self.query.error(
                f"`{projection.sql('spark')[:60]}` has no name", "name it: … AS name", projection, "HUB-2113"
            )
        return [name]

    def _column(self, scope: Scope, column: exp.Column, projections: Mapping[str, object]) -> None:
        parts = [part.name for part in column.parts]
        if isinstance(column.this, exp.Star):
            raise self.query.error("`*` is not read here", "name the columns", column, "HUB-2113")
        if parts[0] in _WINDOW_COLUMNS and len(parts) > 1 and scope.select.args.get("group") is not None:
            return  # window.start, a column made by GROUP BY window(…)
        at: Scope | None = scope
        while at is not None:
            if parts[0] in at.made:
                return
            found = _found(at, parts)
            if found is not None and (found[0].columns is not None or parts[0] not in projections):
                self._use(found[0], found[1], column)
                return
            if found is not None and at is scope and not self._names_itself(column, projections):
                self._use(found[0], found[1], column)
                return
            at = at.outer
        if parts[0] in projections or parts[0] in _WINDOW_COLUMNS:
            return
        known = {name for each in scope.relations for name in (each.columns or ())}
        aliases = [each.alias for each in scope.relations if each.alias]
        guess = nearest(parts[0], [*known, *aliases, *projections])
        raise self.query.error(
            f'there is no column "{".".join(parts)}"',
            f'did you mean "{guess}"?' if guess else f"there are {', '.join(sorted(known - set(META)))}",
            column,
            "HUB-2101",
        )

    @staticmethod
    def _names_itself(column: exp.Column, projections: Mapping[str, object]) -> bool:
        """Return True if a bare name outside the SELECT list may be a projection's alias, as in GROUP BY
        hour."""
        node: exp.Expr | None = column
        while node is not None and not isinstance(node, exp.Group | exp.Having | exp.Order | exp.Select):
            node = node.parent
        return isinstance(node, exp.Group | exp.Having | exp.Order) and column.name in projections

    def _use(self, relation: FromRelation, name: str, column: exp.Column) -> None:
        if relation.source is not None:
            if relation.columns is not None and name not in relation.columns:
                source = self.query.view.sources[relation.source]
                own = [each for each in relation.columns if each not in META]
                guess = nearest(name, own)
                raise self.query.error(
                    f'source "{relation.source}" (topic "{source.topic}") has no column "{name}"',
                    f'did you mean "{guess}"?' if guess else f"it has {', '.join(sorted(own))}",
                    column,
                    "HUB-2101",
                )
            self.query.seen[relation.source][name] = None
            if name not in META:
                self.query.used[relation.source][name] = None
        elif relation.columns is not None and name not in relation.columns:
            guess = nearest(name, relation.columns)
            raise self.query.error(
                f'"{relation.alias}" has no column "{name}"',
                f'did you mean "{guess}"?' if guess else f"it has {', '.join(relation.columns)}",
                column,
                "HUB-2101",
            )


def with_of(node: exp.Expr) -> exp.Expr | None:
    """Return the WITH of a query."""
    found: exp.Expr | None = node.args.get("with_")
    return found


def _within(part: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the columns of an expression and the queries directly within it, without what those read."""
    if isinstance(part, exp.Column):
        yield part
        return
    if isinstance(part, exp.Select | exp.SetOperation):
        yield part
        return
    if isinstance(part, exp.Table):
        return
    for child in part.iter_expressions():
        yield from _within(child)


# ---- adding to the text


def in_text_order(node: exp.Expr) -> Iterator[exp.Select]:
    """Yield every SELECT in the order of the text."""
    if isinstance(node, exp.Select | exp.SetOperation):
        with_ = with_of(node)
        if with_ is not None:
            for cte in with_.expressions:
                yield from in_text_order(cte.this)
    if isinstance(node, exp.Select):
        yield node
    if isinstance(node, exp.SetOperation):
        yield from in_text_order(node.this)
        yield from in_text_order(node.expression)
        return
    first = ("expressions", "from_", "joins", "laterals", "where", "group", "having")
    children: Iterable[exp.Expr] = node.iter_expressions()
    if isinstance(node, exp.Select):
        named = [child for arg in first for child in _listed(node.args.get(arg))]
        rest = [
            child
            for child in children
            if child is not with_of(node) and not any(child is one for one in named)
        ]
        children = [*named, *rest]
    for child in children:
        yield from in_text_order(child)


def _listed(argument: Any) -> list[exp.Expr]:
    if argument is None:
        return []
    return list(argument) if isinstance(argument, list) else [argument]


def with_columns(query: Query, columns: Mapping[int, str]) -> str:
    """Return the author's text with one more expression at the end of the SELECT lists in ``columns`` (by
    ``id``)."""
    heads = [n for n, token in enumerate(query.tokens) if token.token_type == TokenType.SELECT]
    cuts: list[tuple[int, str]] = []
    for n, select in zip(heads, in_text_order(query.tree), strict=True):
        if id(select) in columns:
            cuts.append((_from_of(query.tokens, n).start, columns[id(select)]))
    text = query.text
    for at, column in sorted(cuts, reverse=True):
        # a new line, because the one before may end in a -- comment
        text = f"{text[:at].rstrip()}\n, {column}\n{text[at:]}"
    return text


def _from_of(tokens: Sequence[Token], select: int) -> Token:
    """Return the FROM token of a SELECT: the first at its depth that does not belong to IS DISTINCT FROM."""
    depth = 0
    for before, token in zip(tokens[select:], tokens[select + 1 :], strict=False):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.FROM and before.token_type != TokenType.DISTINCT:
            return token
    raise AssertionError("a SELECT that was parsed with a FROM has one")
