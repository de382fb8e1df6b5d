"""[core] Entity plan: a view as expressions over ONE tagged union. The expressions are text for Spark; Spark
is not needed.

Every event of every source becomes a row ``(_k, n_crm, n_orders, i_orders, s_web, …)`` of what the
aggregation keeps of it, one struct each (``UnionColumn``). All structs are null except those of the event's
own source. One aggregation by ``_k`` then holds, per key::

    l_<source>   the latest event:   the greatest n_<source>, struct(order, _at, used columns, where it came from)
    u_<source>   only with unique_by: every i_<source>, struct(order, _at, identity, used columns)
    a_<n>        an aggregate that Spark keeps as it is, of s_<source>: sum, count, max …
    _version     count(*): how many events are folded in; grows with every event, the same on every replay
    _last_at     only with a ttl: the time of the newest event
    _cutoff      only with a ttl: the latest time that an expiry event names (applying/ttl.py)

``_at`` is the event's place in its partition: twice its offset. A replayed event has that of its original
plus one.

Nothing here depends on a clock. A row is expired when an event of the expiry topic says so for a cutoff time,
and no event of the row is later. That compares two maxima, so the result is the same in any order and with
any repetition.

A projection makes the row. A source's column outside an aggregate reads ``l_<source>``. An aggregate over a
``unique_by`` source becomes a fold over the latest entry of each identity. State is one row per key for any
number of sources: no join, no watermark, no Python per event.

Scaling limit: ``u_<source>`` is rewritten with each event of its key, so it suits hundreds of identities per
key (orders of a customer), not millions (clicks of a country).
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, UnsupportedError
from sqlglot.optimizer.annotate_types import annotate_types

from hub.errors import ConfigError, nearest
from hub.materializers.definition.declared import EXPIRY, LAST_EVENT_AT, META
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.python_functions import called, misused
from hub.materializers.sql_rules.checks import kinds, problem_in
from hub.materializers.sql_rules.determinism import refused
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS, deep_node, deep_token, shortened
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import AvroType, Kind, field_types, has_map, kind
from hub.materializers.types.spark_text import quoted

_DIALECT = "spark"

# META columns kept of the latest event: the row's provenance.
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")

_SQL_TYPES: Mapping[Kind, str] = {
    "integer": "BIGINT",
    "floating": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}

# Version of the rules that give a view's file its meaning. It is noted with a version's checkpoint, and the
# version keeps the rules that it began with. 0: an event whose unique_by is null counts nowhere; sums and
# arithmetic of whole numbers wrap; tombstones may leave a row of nulls. 1: such an event counts by itself; a
# result beyond BIGINT is null; a row of nulls is deleted. 2: so is that of `+`, `-` and `*` in a SQL view.
RULES = 2

# Least number of fraction digits that a sum of decimals keeps.
_SCALE = 9

_NOT_HERE = (exp.Select, exp.Subquery, exp.Window, exp.Star)


@dataclass(frozen=True, slots=True)
class UnionColumn:
    """A column of the union: a struct with the fields that an aggregate reads of one source's events, else
    null.

    It is computed before the aggregation, which would compute it at each comparison.
    """

    column: str
    # Columns of the event, META, `_at`, and the source's own expressions `_order` and `_unique`.
    fields: tuple[str, ...]
    # If this field is null, the struct is null.
    wants: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Conversion of one source's events to rows of the union. Expressions read ``e_<source>``, the decoded
    event, and META."""

    name: str
    topic: str
    columns: tuple[str, ...]
    key: str
    order: str | None
    order_is_time: bool
    unique: str | None
    where: str | None
    entries: tuple[UnionColumn, ...] = ()
    # Of change events: columns that keep their value while an update leaves it out (an unchanged TOAST
    # value), and columns that an event must have.
    kept: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The union column that Spark's own aggregates read."""
        return f"s_{self.name}"

    @property
    def several(self) -> bool:
        """True if the source may read several topics. Places are then comparable only within a topic."""
        return any(mark in self.topic for mark in "*?")

    @property
    def event(self) -> str:
        return f"e_{self.name}"

    @property
    def latest(self) -> str:
        return f"l_{self.name}"


@dataclass(frozen=True, slots=True)
class EntityPlan:
    """A view ready for Spark: three stages of (name, SQL), each reading the stage before."""

    view: str
    sources: tuple[SourcePlan, ...]
    aggregates: tuple[tuple[str, str], ...]
    uniques: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    delete_when: str | None
    # Condition under which tombstones leave a key without a row. Reads the outputs and the latest events.
    absent: str | None = None
    # Only for a view with a ttl: the topic of its expiries, and the condition under which a row is expired.
    expiry: SourcePlan | None = None
    expired: str | None = None


def has_value(column: str) -> str:
    """Return the name of the mark that an event has a column's value; null: it was left out."""
    return f"_has_{column}"


def _kept(source: str, column: str) -> str:
    return f"t_{source}_{column}"


def shape(view: View, schemas: Mapping[str, AvroType], rules: int = RULES) -> EntityPlan:
    """Compile a view against its sources' event schemas, given by source name, with the given version of the
    rules.

    Raises ConfigError that names the view, the field, the problem and the nearest valid name.
    """
    types = {name: field_types(schemas[name]) for name in view.sources}
    left_out = {name: cdc.may_be_unavailable(schemas[name]) for name in view.sources}
    return _EntityCompiler(view, types, rules, left_out).shape()


@dataclass
class _EntityCompiler:
    view: View
    types: Mapping[str, Mapping[str, AvroType]]
    rules: int = RULES
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kept: dict[str, dict[str, None]] = field(default_factory=dict)
    on_edges: dict[str, dict[str, None]] = field(default_factory=dict)
    used: dict[str, dict[str, None]] = field(default_factory=dict)
    latest: dict[str, dict[str, None]] = field(default_factory=dict)
    in_sets: dict[str, dict[str, None]] = field(default_factory=dict)
    in_natives: dict[str, dict[str, None]] = field(default_factory=dict)
    natives: dict[str, str] = field(default_factory=dict)

    def shape(self) -> EntityPlan:
        for name in self.view.sources:
            self.used[name], self.latest[name], self.in_sets[name], self.in_natives[name] = {}, {}, {}, {}
            self.kept[name], self.on_edges[name] = {}, {}
            if self.view.sources[name].cdc is not None:
                self.in_sets[name]["_deleted"] = None
            if self.rules:
                self.latest[name]["_deleted"] = None
        edges = {name: self._edge_expressions(name) for name in self.view.sources}
        outputs: list[tuple[str, str]] = []
        for name, text in (*self.view.fields.items(), *self.view.computed.items()):
            outputs.append((name, self._output(f'field "{name}"', text, [known for known, _ in outputs])))
        delete_when = None
        if self.view.delete_when is not None:
            delete_when = self._output("delete_when", self.view.delete_when, [known for known, _ in outputs])
        sources = tuple(
            self._with_entries(SourcePlan(name, source.topic, tuple(sorted(self.used[name])), *edges[name]))
            for name, source in self.view.sources.items()
        )
        made = EntityPlan(
            self.view.name,
            sources,
            tuple(self._aggregates(sources)),
            tuple(self._uniques(sources)),
            tuple(outputs),
            delete_when,
            self._absent(sources, outputs),
        )
        return made if self.view.expiry_topic is None else _expiring(made, self.view.expiry_topic)

    def _absent(self, sources: Iterable[SourcePlan], outputs: Iterable[tuple[str, str]]) -> str | None:
        """Return the condition under which tombstones leave no row; None if the rules have no such condition.

        The latest event of every source is a tombstone, and one of these holds: the view has ``delete_when``,
        there never was an event other than a tombstone, or all outputs are null.
        """
        if not self.rules:
            return None
        gone = " AND ".join(self._gone(source) for source in sources)
        if self.view.delete_when is not None:
            return gone
        nulls = " AND ".join(f"{quoted(name)} IS NULL" for name, _ in outputs)
        return f"{gone} AND (NOT _live OR {nulls})"

    def _gone(self, source: SourcePlan) -> str:
        """Return the condition that a source has nothing for a key: its latest event is a tombstone. Of rows
        with an identity each one has a deletion of its own.
        """
        if source.unique is not None and self.view.sources[source.name].cdc is not None:
            return f"NOT EXISTS(r_{source.name}, _e -> NOT _e._deleted)"
        return f"COALESCE({source.latest}._deleted, TRUE)"

    # ---- per source: key, order, unique_by read the event itself

    def _edge_expressions(self, name: str) -> tuple[str, str | None, bool, str | None, str | None]:
        source = self.view.sources[name]
        key = self._over_event(name, "key", source.key)
        # Of a row's changes the later one is further on in the database's log.
        by = source.order or (cdc.LSN if source.cdc is not None else None)
        order = self._over_event(name, "order", by) if by else None
        unique = self._over_event(name, "unique_by", source.unique_by) if source.unique_by else None
        order_type = self._type_of(name, source.order) if source.order else None
        return (
            f"CAST({key} AS STRING)",
            order,
            order_type == "TIMESTAMP",
            self._identity(unique) if unique else None,
            self._over_event(name, "where", source.where) if source.where else None,
        )

    def _identity(self, unique: str) -> str:
        """Return the identity of an event as text.

        If ``unique_by`` is null, the event's place is its identity; a tombstone then has none.
        """
        said = f"CAST({unique} AS STRING)"
        if not self.rules:
            return said
        return f"COALESCE({said}, IF(_deleted, NULL, CONCAT_WS('-', '\x00', _topic, _partition, _offset)))"

    def _written(self, tree: exp.Expr) -> str:
        """Return the tree as Spark SQL, with sums and arithmetic that give null instead of wrapping."""
        return _sql(_unwrapped(tree) if self.rules else tree)

    def _over_event(self, name: str, what: str, text: str) -> str:
        where = f'source "{name}": {what}'
        tree = self._parse(where, text)
        if tree.find(exp.AggFunc):
            raise self._wrong(
                where, f"`{text}` aggregates", "it is computed from one event: use its columns only"
            )

        def rewritten(column: exp.Column) -> exp.Expr:
            parts = [part.name for part in column.parts]
            if len(parts) > 1 and parts[0] == name and parts[0] not in self.types[name]:
                parts = parts[1:]
            self._known_column(where, name, parts[0])
            self.on_edges[name][parts[0]] = None
            return _path([parts[0]] if parts[0] in META else [f"e_{name}", parts[0]], parts[1:])

        return self._written(_replaced(tree, exp.Column, rewritten))

    def _type_of(self, name: str, text: str) -> str | None:
        """Return the SQL type of an expression over a source's columns; None if it is unknown."""
        tree = sqlglot.parse_one(text, dialect=_DIALECT)
        if isinstance(tree, exp.Anonymous):
            function = called(exp.Anonymous(this=tree.this), self.view.functions)
            return function.returns.upper() if function is not None else None
        return self._inferred(tree, lambda parts: (name, parts[-1]))

    def _inferred(self, tree: exp.Expr, locate: Callable[[list[str]], tuple[str, str]]) -> str | None:
        def event(column: exp.Column) -> AvroType:
            source, name = locate([part.name for part in column.parts])
            return self.types[source].get(name, "null")

        # One decimal type per expression: of several, sqlglot takes any.
        scales = [_scale(each) for each in map(event, tree.find_all(exp.Column)) if kind(each) == "decimal"]
        decimal = f"DECIMAL(38, {max(scales, default=_SCALE)})"

        def typed(column: exp.Column) -> exp.Expr:
            name = column.parts[-1].name
            of = META[name] if name in META else kind(event(column))
            sql_type = decimal if of == "decimal" else _SQL_TYPES.get(of)
            return exp.null() if sql_type is None else exp.cast(exp.null(), sql_type, dialect=_DIALECT)

        found = annotate_types(_replaced(tree.copy(), exp.Column, typed), dialect=_DIALECT).type
        if found is None or found.is_type("unknown", "null"):
            return None
        if found.is_type("decimal") and not found.expressions:
            return decimal
        return found.sql(dialect=_DIALECT)

    # ---- per field: outside aggregates the latest event's values, inside every event's

    def _output(self, where: str, text: str, earlier: Sequence[str]) -> str:
        tree = self._parse(where, text)
        tree = _replaced_topmost_aggregates(tree, lambda node: self._aggregate(where, node))

        def rewritten(column: exp.Column) -> exp.Expr:
            if column.meta.get("done"):
                return column
            parts = [part.name for part in column.parts]
            if parts[0] in self.view.sources and len(parts) > 1:
                self._known_column(where, parts[0], parts[1])
                if parts[1] in self.left_out.get(parts[0], ()):
                    self.kept[parts[0]][parts[1]] = None
                    return _path([_kept(parts[0], parts[1]), parts[1]], parts[2:])
                self.latest[parts[0]][parts[1]] = None
                return _path([f"l_{parts[0]}", parts[1]], parts[2:])
            if parts[0] in earlier:
                return _path([parts[0]], parts[1:])
            raise self._unknown_name(where, parts, earlier)

        return self._written(_replaced(tree, exp.Column, rewritten))

    def _aggregate(self, where: str, node: exp.Expr) -> exp.Expr:
        """Replace an aggregate by a column of the aggregation, or by a fold over a unique_by source's
        entries."""
        source = self._one_source(where, node)
        if self.view.sources[source].unique_by is None:
            if node.find(exp.Distinct):
                raise self._wrong(
                    where,
                    f"`{_sql(node)}` counts distinct values of a source without unique_by",
                    f'declare `unique_by` on source "{source}", or use approx_count_distinct',
                    code="HUB-2103",
                )
            if node.find(exp.ArrayAgg, exp.ArrayUniqueAgg):
                raise self._wrong(
                    where,
                    f"`{_sql(node)}` would collect every event forever",
                    f'declare `unique_by` on source "{source}": then one entry an identity is kept',
                    code="HUB-2103",
                )
            self.in_natives[source]["_deleted"] = None
            native = self._written(
                self._only_of(source, _replaced(node, exp.Column, lambda column: self._tagged(where, column)))
            )
            alias = self.natives.setdefault(native, f"a_{len(self.natives)}")
            return _done(exp.column(alias))
        return self._fold(where, source, node)

    @staticmethod
    def _only_of(source: str, node: exp.Expr) -> exp.Expr:
        """Restrict an aggregate to events of this source, without tombstones.

        In rows of other sources and in tombstones its columns are null, and a condition such as ``column IS
        NULL`` must not count them.
        """
        mine: exp.Expr = exp.maybe_parse(f"s_{source}._deleted = FALSE", dialect=_DIALECT).transform(
            _mark_done
        )
        if isinstance(node, exp.Filter):
            node = node.copy()
            node.expression.set("this", exp.and_(mine, node.expression.this))
            return node
        return exp.Filter(this=node.copy(), expression=exp.Where(this=mine))

    def _one_source(self, where: str, node: exp.Expr) -> str:
        sources = set()
        for column in node.find_all(exp.Column):
            parts = [part.name for part in column.parts]
            if parts[0] not in self.view.sources or len(parts) < 2:
                raise self._unknown_name(where, parts, ())
            self._known_column(where, parts[0], parts[1])
            sources.add(parts[0])
        if len(sources) != 1:
            raise self._wrong(
                where,
                f"`{_sql(node)}` names {'several sources' if sources else 'no source'}",
                "an aggregate reads the columns of exactly one source, such as count(orders.order_id)",
            )
        return sources.pop()

    def _tagged(self, where: str, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        self._known_column(where, parts[0], parts[1])
        self.in_natives[parts[0]][parts[1]] = None
        return _path([f"s_{parts[0]}", parts[1]], parts[2:])

    def _fold(self, where: str, source: str, node: exp.Expr) -> exp.Expr:
        """Return an aggregate over a unique_by source as a higher-order expression over ``r_<source>``."""
        function = called(node, self.view.functions)
        if function is not None:
            raise self._wrong(
                where,
                f"`{_sql(node)}` calls the Python function {function.name} for entries of a "
                "source with unique_by",
                "Spark calls none inside of lists: use it outside of the aggregate, or in a view of its own",
                code="HUB-2151",
            )
        condition: exp.Expr | None = None
        if isinstance(node, exp.Filter):
            condition, node = node.expression.this, node.this

        def entry(column: exp.Column) -> exp.Expr:
            parts = [part.name for part in column.parts]
            self._known_column(where, parts[0], parts[1])
            self.in_sets[source][parts[1]] = None
            return _path(["_e", parts[1]], parts[2:])

        def over(tree: exp.Expr) -> str:
            return self._written(_replaced(tree.copy(), exp.Column, entry))

        entries = f"r_{source}" if condition is None else f"FILTER(r_{source}, _e -> {over(condition)})"
        make = _FOLDS.get(type(node))
        arguments = [node.this, *(node.expressions or ()), *filter(None, [node.args.get("expression")])]
        if isinstance(node.this, exp.Distinct):
            make = _count_distinct if isinstance(node, exp.Count) else None
            arguments = node.this.expressions
        if make is None:
            names = ", ".join(sorted(_FOLD_NAMES))
            raise self._wrong(
                where,
                f"`{_sql(node)}` is not available over a source with unique_by",
                f"use one of {names}",
                code="HUB-2103",
            )
        values = [over(argument) for argument in arguments if argument is not None]
        if len(values) > 1 and isinstance(node, exp.Count):
            entries, values = _several(entries, values)
        elif len(values) > (2 if isinstance(node, exp.ArgMax | exp.ArgMin) else 1):
            raise self._wrong(where, f"`{_sql(node)}` takes one value", "leave the others out")
        value_type = self._inferred(arguments[0], lambda parts: (parts[0], parts[1])) if values else None
        if make is _sum and self.rules:
            make = _exact_sum
        folded = make(entries, values, value_type)
        if folded is None:
            raise self._wrong(
                where, f"the type of `{_sql(node.this)}` is not clear", "cast it, such as CAST(… AS BIGINT)"
            )
        return exp.var(f"({folded})")

    # ---- the stages

    def _with_entries(self, source: SourcePlan) -> SourcePlan:
        rank, name = _rank(source), source.name
        entries = [UnionColumn(_newest(source), _each_once(*rank, *self.latest[name], *ORIGIN))]
        if source.unique is not None:
            kept = _each_once(*rank, "_unique", *self.in_sets[name])
            entries.append(UnionColumn(_identified(source), kept, "_unique"))
        if self.in_natives[name]:
            entries.append(UnionColumn(source.tag, tuple(self.in_natives[name])))
        entries += [
            UnionColumn(_kept(name, each), (*rank, each), has_value(each)) for each in self.kept[name]
        ]
        read = self.left_out.get(name, frozenset())
        whole = read & {*self.on_edges[name], *self.in_sets[name], *self.in_natives[name]}
        return replace(
            source, entries=tuple(entries), kept=tuple(self.kept[name]), whole=tuple(sorted(whole))
        )

    def _aggregates(self, sources: Iterable[SourcePlan]) -> Iterable[tuple[str, str]]:
        for source in sources:
            newest = _newest(source)
            # A struct that contains a map cannot be ordered.
            if has_map(list(self.types[source.name].values())):
                rank = ", ".join(f"{newest}.{name}" for name in _rank(source))
                yield source.latest, f"MAX_BY({newest}, STRUCT({rank})) FILTER (WHERE {newest} IS NOT NULL)"
            else:
                yield source.latest, f"MAX({newest})"
            for each in source.kept:
                yield _kept(source.name, each), f"MAX({_kept(source.name, each)})"
            if source.unique is not None:
                # A list is enough: no event comes twice, and a set would compare each of them.
                yield f"u_{source.name}", f"COLLECT_LIST({_identified(source)})"
        for native, alias in self.natives.items():
            yield alias, native
        if self.rules and self.view.delete_when is None:
            live = (f"COALESCE(BOOL_OR(NOT {_newest(source)}._deleted), FALSE)" for source in sources)
            yield "_live", " OR ".join(live)

    def _uniques(self, sources: Iterable[SourcePlan]) -> Iterable[tuple[str, str]]:
        """Yield ``r_<source>``, the latest entry of each identity. Sorted by order, so that the last entry
        wins in the map."""
        for source in sources:
            if source.unique is not None:
                entries = (
                    f"TRANSFORM(ARRAY_SORT(u_{source.name}), _e -> STRUCT(_e._unique AS key, _e AS value))"
                )
                yield f"r_{source.name}", f"MAP_VALUES(MAP_FROM_ENTRIES({entries}))"

    # ---- checks

    def _parse(self, where: str, text: str) -> exp.Expr:
        try:
            deep = deep_token(sqlglot.tokenize(text, dialect=_DIALECT)) is not None
            tree = None if deep else sqlglot.parse_one(text, dialect=_DIALECT)
        except RecursionError:
            tree = None
        except SqlglotError as error:
            first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
            at = f" at column {first['col']}" if "col" in first else ""
            why = str(first.get("description", error)).splitlines()[0].rstrip(".")
            raise self._wrong(
                where,
                f"`{shortened(text)}` is not a SQL expression: {why}{at}",
                "see docs/reference/view-files.md",
            ) from None
        if tree is None or deep_node(tree) is not None:
            raise self._wrong(
                where,
                f"`{shortened(text)}` is nested too deep",
                f"{MOST_BRACKETS} brackets, {MOST_LEVELS} parts of a chain; a field may "
                "name the fields before it",
            )
        bad = tree.find(*_NOT_HERE)
        if bad is not None:
            raise self._wrong(
                where,
                f"`{text}` has `{_sql(bad)}`",
                "a field is one expression without subquery, window or *",
            )
        several = next(
            (each for each in tree.find_all(exp.ArgMax, exp.ArgMin) if each.args.get("count")), None
        )
        if several is not None:
            called_ = "max_by" if isinstance(several, exp.ArgMax) else "min_by"
            raise self._wrong(
                where,
                f"`{text}` keeps several values",
                f"{called_}(x, time) keeps one; a SQL view (`sql:`) keeps the top of each key: "
                f"{called_}(x, time, 3)",
                code="HUB-2103",
            )
        try:
            tree.sql(dialect=_DIALECT, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as error:
            raise self._wrong(
                where,
                f"`{text}` cannot be written again as it is: {str(error).splitlines()[0]}",
                "say it with other functions, or in a SQL view (`sql:`), whose text is not changed",
            ) from None
        said = misused(tree, self.view.functions)
        if said is not None:
            raise self._wrong(where, *said, code="HUB-2151")
        never = refused(Dialect.get_or_raise(_DIALECT).tokenize(text), tree)
        if never is not None:
            raise self._wrong(where, never.what, never.hint, code="HUB-2102")
        problem = problem_in(tree, [each.name for each in self.view.functions], kinds(self.types))
        if problem is not None:
            raise self._wrong(where, problem.what, problem.hint, code="HUB-2105")
        return tree

    def _known_column(self, where: str, source: str, name: str) -> None:
        if name in META:
            return
        if name not in self.types[source]:
            guess = nearest(name, self.types[source])
            known = ", ".join(sorted(self.types[source]))
            raise self._wrong(
                where,
                f'source "{source}" (topic "{self.view.sources[source].topic}") has no column "{name}"',
                f'did you mean "{guess}"?' if guess else f"it has {known}",
                code="HUB-2101",
            )
        self.used[source][name] = None

    def _unknown_name(self, where: str, parts: Sequence[str], earlier: Sequence[str]) -> ConfigError:
        dotted = ".".join(parts)
        guess = nearest(parts[0], [*self.view.sources, *earlier])
        if guess is not None and guess != parts[0]:
            hint = f'did you mean "{".".join([guess, *parts[1:]])}"?'
        elif parts[0] in self.view.sources:
            hint = f"name a column of it, such as {parts[0]}.{min(self.types[parts[0]])}"
        else:
            hint = f"write source.column (sources: {', '.join(self.view.sources)}) or a field declared above"
        return self._wrong(
            where, f'"{dotted}" is neither a source nor an earlier field', hint, code="HUB-2101"
        )

    def _wrong(self, where: str, what: str, hint: str, *, code: str = "HUB-2100") -> ConfigError:
        return ConfigError(f'view "{self.view.name}": {where}: {what}', hint=hint, code=code)


# Not after a dot: there it is a field of the preceding value.
_WORD = re.compile(r"(?<![\w.])\w+")


def steps(outputs: Sequence[tuple[str, str]]) -> Iterable[Mapping[str, str]]:
    """Split the outputs, in order, into as few groups as possible, so that no output reads another one of its
    group.

    Spark analyzes the whole query again for each group. References are found by comparing words, so there may
    be a group more than necessary.
    """
    group: dict[str, str] = {}
    made: set[str] = set()  # names of the group in lower case, as Spark compares names
    for name, sql in outputs:
        if not made.isdisjoint(word.lower() for word in _WORD.findall(sql)):
            yield group
            group, made = {}, set()
        group[name] = sql
        made.add(name.lower())
    yield group


def _expiring(shape: EntityPlan, topic: str) -> EntityPlan:
    """Add what a ttl needs. Times are in milliseconds, as in stores: the cutoff that is written is a time
    that was read."""
    expiry = SourcePlan(EXPIRY, topic, ("cutoff",), "_key", None, False, None, None)
    expiry = replace(expiry, entries=(UnionColumn(expiry.tag, ("cutoff",)),))
    times = [f"MAX({_event_time(source)})" for source in shape.sources]
    newest = times[0] if len(times) == 1 else f"GREATEST({', '.join(times)})"
    return replace(
        shape,
        aggregates=(
            *shape.aggregates,
            ("_last_at", f"TIMESTAMP_MILLIS(UNIX_MILLIS({newest}))"),
            ("_cutoff", f"MAX({expiry.tag}.cutoff)"),
        ),
        outputs=(*shape.outputs, (LAST_EVENT_AT, "_last_at")),
        expiry=expiry,
        # A key that has only expiries has no row.
        expired="_cutoff IS NOT NULL AND COALESCE(_last_at <= _cutoff, TRUE)",
    )


def _event_time(source: SourcePlan) -> str:
    """Return the time of an event: its order if that is a time, but at most its record's time, which the
    broker bounds.

    Otherwise a time far in the future would keep the row forever. LEAST ignores null.
    """
    newest = _newest(source)
    if source.order is None or not source.order_is_time:
        return f"{newest}._timestamp"
    return f"LEAST({newest}._order, {newest}._timestamp)"


def _newest(source: SourcePlan) -> str:
    """Return the union column that is compared to find the source's latest event."""
    return f"n_{source.name}"


def _identified(source: SourcePlan) -> str:
    """Return the union column that is kept of each event of a source with unique_by."""
    return f"i_{source.name}"


def _rank(source: SourcePlan) -> tuple[str, ...]:
    """Return the fields that decide which of a source's events is later.

    Places are comparable only within a topic. Between several topics, time decides first.
    """
    place = ("_topic", "_at") if source.several else ("_at",)
    if source.order is not None:
        return ("_order", *place)
    return ("_timestamp", *place) if source.several else place


def _each_once(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _not_null(entries: str, value: str) -> str:
    return f"FILTER(TRANSFORM({entries}, _e -> {value}), _v -> _v IS NOT NULL)"


def _several(entries: str, values: Sequence[str]) -> tuple[str, list[str]]:
    """Combine several values into one, for entries in which none of them is null, as Spark counts."""
    whole = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    named = ", ".join(f"{value} AS _{n}" for n, value in enumerate(values))
    return f"FILTER({entries}, _e -> {whole})", [f"STRUCT({named})"]


def _scale(avro_type: AvroType) -> int:
    """Return the fraction digits that a sum of a decimal keeps: ``_SCALE``, or its own if it has more or
    needs the other digits."""
    if isinstance(avro_type, list):
        return max(_scale(each) for each in avro_type if each != "null")
    scale = int(avro_type.get("scale", 0))
    return _SCALE if scale <= _SCALE and avro_type["precision"] - scale <= 38 - _SCALE else scale


def _sum(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    if value_type is None:
        return None
    whole = value_type in ("INT", "BIGINT", "SMALLINT", "TINYINT")
    total = "BIGINT" if whole else value_type if value_type.startswith("DECIMAL") else "DOUBLE"
    values = _not_null(entries, arguments[0])
    folded = f"AGGREGATE({values}, CAST(0 AS {total}), (_a, _v) -> CAST(_a + _v AS {total}))"
    return f"IF(SIZE({values}) = 0, NULL, {folded})"


def _exact_sum(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    """``_sum``, with null where a whole number exceeds BIGINT."""
    folded = _sum(entries, arguments, value_type)
    return folded and folded.replace("CAST(_a + _v AS BIGINT)", "TRY_ADD(_a, CAST(_v AS BIGINT))")


def _avg(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    total = _sum(entries, [f"CAST({arguments[0]} AS DOUBLE)"], "DOUBLE")
    return f"{total} / SIZE({_not_null(entries, arguments[0])})"


def _count(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE({_not_null(entries, arguments[0])}) AS BIGINT)"


def _count_distinct(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE(ARRAY_DISTINCT({_not_null(entries, arguments[0])})) AS BIGINT)"


def _count_if(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE(FILTER({entries}, _e -> {arguments[0]})) AS BIGINT)"


def _extreme_by(which: str) -> Callable[[str, Sequence[str], str | None], str | None]:
    def fold(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
        pairs = f"TRANSFORM({entries}, _e -> STRUCT({arguments[1]} AS o, {arguments[0]} AS v))"
        return f"ARRAY_{which}(FILTER({pairs}, _v -> _v.o IS NOT NULL)).v"

    return fold


# How each aggregate reads the entries ``_e`` of a unique_by source. A function returns None if it needs the
# value's type.
_FOLDS: Mapping[type[exp.Expr], Callable[[str, Sequence[str], str | None], str | None]] = {
    exp.Sum: _sum,
    exp.Avg: _avg,
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Min: lambda entries, arguments, _: f"ARRAY_MIN(TRANSFORM({entries}, _e -> {arguments[0]}))",
    exp.Max: lambda entries, arguments, _: f"ARRAY_MAX(TRANSFORM({entries}, _e -> {arguments[0]}))",
    exp.ArgMax: _extreme_by("MAX"),
    exp.ArgMin: _extreme_by("MIN"),
    exp.ArrayAgg: lambda entries, arguments, _: _not_null(entries, arguments[0]),
}


_FOLD_NAMES = ("avg", "collect_list", "count", "count_if", "max", "max_by", "min", "min_by", "sum")


def _sql(tree: exp.Expr) -> str:
    """Return the tree as Spark SQL. What cannot be written was refused by ``_parse``."""
    return tree.sql(dialect=_DIALECT, unsupported_level=ErrorLevel.IGNORE)


_MOST_NESTED = 40
_TRIED: Mapping[type[exp.Expr], str] = {exp.Add: "TRY_ADD", exp.Sub: "TRY_SUBTRACT", exp.Mul: "TRY_MULTIPLY"}


def _is_deep(node: exp.Expr) -> bool:
    """Return True if a node is nested deeper than ``_MOST_NESTED`` levels."""
    above: exp.Expr | None = node
    for _ in range(_MOST_NESTED):
        above = None if above is None else above.parent
    return above is not None


def _unwrapped(tree: exp.Expr) -> exp.Expr:
    """Return a copy in which sums and arithmetic use functions that give null on overflow.

    Without ANSI mode, in which one event could stop a view, Spark's own operators wrap whole numbers.
    """
    tree = exp.paren(tree, copy=True)  # so that each node has a parent
    found = list(tree.find_all(exp.Sum, *_TRIED))
    # Spark's parser is recursive and cannot parse deeply nested functions
    if any(_is_deep(node) for node in found):
        found = [node for node in found if isinstance(node, exp.Sum)]
    for node in reversed(found):  # innermost first
        if any(isinstance(each, exp.Interval | exp.Distinct) for each in node.iter_expressions()):
            continue
        name = _TRIED.get(type(node), "TRY_SUM")
        node.replace(exp.Anonymous(this=name, expressions=list(node.iter_expressions())))
    made: exp.Expr = tree.this
    return made


def _path(head: Sequence[str], rest: Sequence[str]) -> exp.Expr:
    """Return ``head.rest`` with every part quoted where needed, so that no column name is mistaken for a
    keyword."""
    parts = [exp.to_identifier(part, quoted=not part.isidentifier()) for part in (*head, *rest)]
    node: exp.Expr = exp.Column(this=parts[0])
    for part in parts[1:]:
        node = exp.Dot(this=node, expression=part)
    return node.transform(_mark_done)


def _mark_done(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column):
        node.meta["done"] = True
    return node


def _done(column: exp.Column) -> exp.Column:
    column.meta["done"] = True
    return column


def _replaced(tree: exp.Expr, of: type[exp.Column], make: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """Replace every column in the tree that is not resolved yet."""
    for column in list(tree.find_all(of)):
        if column.meta.get("done"):
            continue
        made = make(column)
        if column is tree:
            return made
        column.replace(made)
    return tree


def _replaced_topmost_aggregates(tree: exp.Expr, make: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        aggregate = isinstance(node, exp.AggFunc) or (
            isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc)
        )
        return make(node) if aggregate else node

    def walk(node: exp.Expr) -> exp.Expr:
        made = visit(node)
        if made is not node:
            return made
        for child in list(node.iter_expressions()):
            replaced = walk(child)
            if replaced is not child:
                child.replace(replaced)
        return node

    return walk(tree)
