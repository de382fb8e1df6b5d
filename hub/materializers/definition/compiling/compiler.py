"""[core] Compile an entity view against the schemas of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from hub.materializers.definition.compiling.checks import Checks
from hub.materializers.definition.compiling.folds import (
    FOLD_NAMES,
    FOLDS,
    SCALE,
    Fold,
    combined,
    count_distinct,
    exact_sum,
    scale_of,
    sum_of,
)
from hub.materializers.definition.compiling.stages import (
    SourceReads,
    aggregates,
    expiring,
    kept_column,
    newest_of,
    uniques,
    with_entries,
)
from hub.materializers.definition.compiling.trees import (
    DIALECT,
    done,
    mark_done,
    path_to,
    replace_aggregates,
    replace_columns,
    sql_of,
    unwrapped,
)
from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_plan import RULES, EntityPlan, SourcePlan
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.python_functions import called
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import AvroType, Kind, field_types, kind
from hub.materializers.types.spark_text import quoted

_SQL_TYPES: Mapping[Kind, str] = {
    "integer": "BIGINT",
    "floating": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}


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
    reads: dict[str, SourceReads] = field(default_factory=dict)
    natives: dict[str, str] = field(default_factory=dict)

    def shape(self) -> EntityPlan:
        for name, source in self.view.sources.items():
            reads = self.reads[name] = SourceReads()
            if source.cdc is not None:
                reads.in_sets["_deleted"] = None
            if self.rules:
                reads.latest["_deleted"] = None
        edges = {name: self._edge_expressions(name) for name in self.view.sources}
        outputs: list[tuple[str, str]] = []
        for name, text in (*self.view.fields.items(), *self.view.computed.items()):
            outputs.append((name, self._output(f'field "{name}"', text, [known for known, _ in outputs])))
        delete_when = None
        if self.view.delete_when is not None:
            delete_when = self._output("delete_when", self.view.delete_when, [known for known, _ in outputs])
        sources = tuple(
            with_entries(
                SourcePlan(name, source.topic, tuple(sorted(self.reads[name].used)), *edges[name]),
                self.reads[name],
                self.left_out.get(name, frozenset()),
            )
            for name, source in self.view.sources.items()
        )
        made = EntityPlan(
            self.view.name,
            sources,
            (*aggregates(sources, self.types), *self._more_aggregates(sources)),
            tuple(uniques(sources)),
            tuple(outputs),
            delete_when,
            self._absent(sources, outputs),
        )
        return made if self.view.expiry_topic is None else expiring(made, self.view.expiry_topic)

    @property
    def checks(self) -> Checks:
        return Checks(self.view, self.types)

    def _known_column(self, where: str, source: str, name: str) -> None:
        """Note that the view reads a column. Raises ConfigError if there is none."""
        self.checks.known_column(where, source, name)
        if name not in META:
            self.reads[source].used[name] = None

    def _more_aggregates(self, sources: Iterable[SourcePlan]) -> Iterable[tuple[str, str]]:
        """Yield Spark's own aggregates, and whether any event of a key is not a tombstone."""
        for native, alias in self.natives.items():
            yield alias, native
        if self.rules and self.view.delete_when is None:
            live = (f"COALESCE(BOOL_OR(NOT {newest_of(source)}._deleted), FALSE)" for source in sources)
            yield "_live", " OR ".join(live)

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
        self.checks.check_transform(name)
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
        text = f"CAST({unique} AS STRING)"
        if not self.rules:
            return text
        return f"COALESCE({text}, IF(_deleted, NULL, CONCAT_WS('-', '\x00', _topic, _partition, _offset)))"

    def _written(self, tree: exp.Expr) -> str:
        """Return the tree as Spark SQL, with sums and arithmetic that give null instead of wrapping."""
        return sql_of(unwrapped(tree) if self.rules else tree)

    def _over_event(self, name: str, what: str, text: str) -> str:
        where = f'source "{name}": {what}'
        tree = self.checks.parse(where, text)
        if tree.find(exp.AggFunc):
            raise self.checks.wrong(
                where, f"`{text}` aggregates", "it is computed from one event: use its columns only"
            )

        def rewritten(column: exp.Column) -> exp.Expr:
            parts = [part.name for part in column.parts]
            if len(parts) > 1 and parts[0] == name and parts[0] not in self.types[name]:
                parts = parts[1:]
            self._known_column(where, name, parts[0])
            self.reads[name].on_edges[parts[0]] = None
            return path_to([parts[0]] if parts[0] in META else [f"e_{name}", parts[0]], parts[1:])

        return self._written(replace_columns(tree, exp.Column, rewritten))

    def _type_of(self, name: str, text: str) -> str | None:
        """Return the SQL type of an expression over a source's columns; None if it is unknown."""
        tree = sqlglot.parse_one(text, dialect=DIALECT)
        if isinstance(tree, exp.Anonymous):
            function = called(exp.Anonymous(this=tree.this), self.view.functions)
            return function.returns.upper() if function is not None else None
        return self._inferred(tree, lambda parts: (name, parts[-1]))

    def _inferred(self, tree: exp.Expr, locate: Callable[[list[str]], tuple[str, str]]) -> str | None:
        def event(column: exp.Column) -> AvroType:
            source, name = locate([part.name for part in column.parts])
            return self.types[source].get(name, "null")

        # One decimal type per expression: of several, sqlglot takes any.
        scales = [scale_of(each) for each in map(event, tree.find_all(exp.Column)) if kind(each) == "decimal"]
        decimal = f"DECIMAL(38, {max(scales, default=SCALE)})"

        def typed(column: exp.Column) -> exp.Expr:
            name = column.parts[-1].name
            of = META[name] if name in META else kind(event(column))
            sql_type = decimal if of == "decimal" else _SQL_TYPES.get(of)
            return exp.null() if sql_type is None else exp.cast(exp.null(), sql_type, dialect=DIALECT)

        data_type = annotate_types(replace_columns(tree.copy(), exp.Column, typed), dialect=DIALECT).type
        if data_type is None or data_type.is_type("unknown", "null"):
            return None
        if data_type.is_type("decimal") and not data_type.expressions:
            return decimal
        return data_type.sql(dialect=DIALECT)

    # ---- per field: outside aggregates the latest event's values, inside every event's

    def _output(self, where: str, text: str, earlier: Sequence[str]) -> str:
        tree = self.checks.parse(where, text)
        tree = replace_aggregates(tree, lambda node: self._aggregate(where, node))

        def rewritten(column: exp.Column) -> exp.Expr:
            if column.meta.get("done"):
                return column
            parts = [part.name for part in column.parts]
            if parts[0] in self.view.sources and len(parts) > 1:
                self._known_column(where, parts[0], parts[1])
                if parts[1] in self.left_out.get(parts[0], ()):
                    self.reads[parts[0]].kept[parts[1]] = None
                    return path_to([kept_column(parts[0], parts[1]), parts[1]], parts[2:])
                self.reads[parts[0]].latest[parts[1]] = None
                return path_to([f"l_{parts[0]}", parts[1]], parts[2:])
            if parts[0] in earlier:
                return path_to([parts[0]], parts[1:])
            raise self.checks.unknown_name(where, parts, earlier)

        return self._written(replace_columns(tree, exp.Column, rewritten))

    def _aggregate(self, where: str, node: exp.Expr) -> exp.Expr:
        """Replace an aggregate by a column of the aggregation, or by a fold over a unique_by source's
        entries."""
        source = self._one_source(where, node)
        if self.view.sources[source].unique_by is None:
            if node.find(exp.Distinct):
                raise self.checks.wrong(
                    where,
                    f"`{sql_of(node)}` counts distinct values of a source without unique_by",
                    f'declare `unique_by` on source "{source}", or use approx_count_distinct',
                    code="HUB-2103",
                )
            if node.find(exp.ArrayAgg, exp.ArrayUniqueAgg):
                raise self.checks.wrong(
                    where,
                    f"`{sql_of(node)}` would collect every event forever",
                    f'declare `unique_by` on source "{source}": then one entry an identity is kept',
                    code="HUB-2103",
                )
            self.reads[source].in_natives["_deleted"] = None
            native = self._written(
                _only_of(
                    source, replace_columns(node, exp.Column, lambda column: self._tagged(where, column))
                )
            )
            alias = self.natives.setdefault(native, f"a_{len(self.natives)}")
            return done(exp.column(alias))
        return self._fold(where, source, node)

    def _one_source(self, where: str, node: exp.Expr) -> str:
        sources = set()
        for column in node.find_all(exp.Column):
            parts = [part.name for part in column.parts]
            if parts[0] not in self.view.sources or len(parts) < 2:
                raise self.checks.unknown_name(where, parts, ())
            self._known_column(where, parts[0], parts[1])
            sources.add(parts[0])
        if len(sources) != 1:
            raise self.checks.wrong(
                where,
                f"`{sql_of(node)}` names {'several sources' if sources else 'no source'}",
                "an aggregate reads the columns of exactly one source, such as count(orders.order_id)",
            )
        return sources.pop()

    def _tagged(self, where: str, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        self._known_column(where, parts[0], parts[1])
        self.reads[parts[0]].in_natives[parts[1]] = None
        return path_to([f"s_{parts[0]}", parts[1]], parts[2:])

    def _fold_of(self, where: str, node: exp.Expr) -> tuple[Fold, list[exp.Expr]]:
        """Return the function that folds the entries of an aggregate, and its arguments."""
        make = FOLDS.get(type(node))
        arguments = [node.this, *(node.expressions or ()), *filter(None, [node.args.get("expression")])]
        if isinstance(node.this, exp.Distinct):
            make = count_distinct if isinstance(node, exp.Count) else None
            arguments = node.this.expressions
        if make is None:
            names = ", ".join(sorted(FOLD_NAMES))
            raise self.checks.wrong(
                where,
                f"`{sql_of(node)}` is not available over a source with unique_by",
                f"use one of {names}",
                code="HUB-2103",
            )
        return make, [argument for argument in arguments if argument is not None]

    def _fold(self, where: str, source: str, node: exp.Expr) -> exp.Expr:
        """Return an aggregate over a unique_by source as a higher-order expression over ``r_<source>``."""
        function = called(node, self.view.functions)
        if function is not None:
            raise self.checks.wrong(
                where,
                f"`{sql_of(node)}` calls the Python function {function.name} for entries of a source with "
                "unique_by",
                "Spark calls none inside of lists: use it outside of the aggregate, or in a view of its own",
                code="HUB-2151",
            )
        condition: exp.Expr | None = None
        if isinstance(node, exp.Filter):
            condition, node = node.expression.this, node.this

        def entry(column: exp.Column) -> exp.Expr:
            parts = [part.name for part in column.parts]
            self._known_column(where, parts[0], parts[1])
            self.reads[source].in_sets[parts[1]] = None
            return path_to(["_e", parts[1]], parts[2:])

        def over(tree: exp.Expr) -> str:
            return self._written(replace_columns(tree.copy(), exp.Column, entry))

        entries = f"r_{source}" if condition is None else f"FILTER(r_{source}, _e -> {over(condition)})"
        make, arguments = self._fold_of(where, node)
        values = [over(argument) for argument in arguments]
        if len(values) > 1 and isinstance(node, exp.Count):
            entries, values = combined(entries, values)
        elif len(values) > (2 if isinstance(node, exp.ArgMax | exp.ArgMin) else 1):
            raise self.checks.wrong(where, f"`{sql_of(node)}` takes one value", "leave the others out")
        value_type = self._inferred(arguments[0], lambda parts: (parts[0], parts[1])) if values else None
        if make is sum_of and self.rules:
            make = exact_sum
        folded = make(entries, values, value_type)
        if folded is None:
            raise self.checks.wrong(
                where, f"the type of `{sql_of(node.this)}` is not clear", "cast it, such as CAST(… AS BIGINT)"
            )
        return exp.var(f"({folded})")


def _only_of(source: str, node: exp.Expr) -> exp.Expr:
    """Restrict an aggregate to events of this source, without tombstones.

    In rows of other sources and in tombstones its columns are null, and a condition such as ``column IS
    NULL`` must not count them.
    """
    mine: exp.Expr = exp.maybe_parse(f"s_{source}._deleted = FALSE", dialect=DIALECT).transform(mark_done)
    if isinstance(node, exp.Filter):
        node = node.copy()
        node.expression.set("this", exp.and_(mine, node.expression.this))
        return node
    return exp.Filter(this=node.copy(), expression=exp.Where(this=mine))
