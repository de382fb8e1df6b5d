"""[core] A query of Flink as the SELECT of a view: its tree is rewritten, and written as Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from hub.importing.column_types import ColumnType
from hub.importing.expressions import ExpressionTranslator, ImportedSql, dotted, joined_text, parsed
from hub.importing.flink.functions import FLINK_AGGREGATES, FLINK_FUNCTIONS
from hub.importing.flink.windows import TableWindow, grouped_windows, without_windows
from hub.importing.relations import ImportedColumn, Kind, Relation, RelationCatalog
from hub.importing.report import NotTranslated, StatementTranslation
from hub.importing.statements import Token, sql_of
from hub.materializers.definition.sql_text import SPARK
from hub.materializers.sql_rules.unsupported import unsupported

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PLACE = {"event_partition": "_partition", "event_offset": "_offset"}
_WINDOW_KINDS = ("TUMBLE", "HOP", "SESSION")
_WINDOW = {"window_start": "start", "window_end": "end", "window_time": "end"}


@dataclass
class FlinkQuery:
    """The SELECT of a view. ``columns``: names. ``key`` []: it follows from GROUP BY or DISTINCT."""

    sql: str
    sources: dict[str, dict[str, Any]]
    columns: list[str]
    key: list[str]
    kind: Kind

    def relation(self, name: str, view: str) -> Relation:
        source: dict[str, Any] = {"view": view, **({"as": "stream"} if self.kind == "stream" else {})}
        columns = {each: ImportedColumn(each) for each in self.columns}
        time = "rowtime" if "rowtime" in self.columns else ""
        return Relation(
            name, self.kind, source, columns, tuple(self.key), time=time, event_time=None, view=view
        )


@dataclass
class _Anything:
    """Names that stand as they are: they were resolved before. ``types`` of columns, by name."""

    types: Mapping[str, ColumnType]
    event_order: str = "named_struct('time', _timestamp, 'partition', _partition, 'offset', _offset)"
    order_note: str = "events are ordered by their broker's time"

    def column(self, parts: Sequence[str]) -> tuple[exp.Expr, ColumnType | None]:
        return dotted(exp.column(parts[0]), parts[1:]), self.types.get(parts[-1])


@dataclass
class QueryWriter:
    """Writes one query. ``names``: of the columns of the target, () without one. ``key``: of the target."""

    catalog: RelationCatalog
    translation: StatementTranslation
    names: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    windows: Mapping[str, TableWindow] = field(default_factory=dict)

    def written(self, text: str, tokens: Sequence[Token]) -> FlinkQuery:
        """Return the view's SELECT. Raises NotTranslated."""
        plain, self.windows = without_windows(tokens)
        unsupported_construct = unsupported(SPARK.tokenize(sql_of(tokens, text)), view=True)
        if unsupported_construct is not None and not unsupported_construct.what.startswith(_WINDOW_KINDS):
            raise NotTranslated(unsupported_construct.what, unsupported_construct.hint)
        tree = grouped_windows(_parsed(joined_text(plain)))
        selects = list(tree.find_all(exp.Select))
        ctes = {each.alias for each in tree.find_all(exp.CTE)}
        for select in reversed(selects):
            self._resolve(select, ctes)
        streams = all(each.kind == "stream" for each in self._relations(tree))
        tops = _tops(tree)
        simple = all(map(_is_simple, tops)) and len(tops) == len(selects)
        for select in tops:
            self._name(select)
        key = self._place(tops) if simple else self._key_of(tops[0])
        inner = all(_is_inner(join) for each in tops for join in each.args.get("joins") or ())
        kind: Kind = "stream" if simple and streams and inner else "table"
        translator = ExpressionTranslator(
            _Anything(_types(tree)), FLINK_FUNCTIONS, self.catalog, self.translation
        )
        columns = [each.alias_or_name for each in tops[0].expressions]
        sql = translator.rewritten(tree).sql("spark", normalize_functions=False, pretty=True)
        return FlinkQuery(sql, self.sources, columns, key, kind)

    # ---- FROM and names

    def _relations(self, tree: exp.Expr) -> list[Relation]:
        return [
            found for table in tree.find_all(exp.Table) if (found := table.meta.get("relation")) is not None
        ]

    def _resolve(self, select: exp.Select, ctes: set[str]) -> None:
        """Resolve the tables of one SELECT, its ``*``, computed columns and windows."""
        from_ = select.args.get("from_")
        if from_ is None:
            raise NotTranslated("a SELECT without FROM", "a view reads a table")
        joins = select.args.get("joins") or []
        for join in list(joins):
            if isinstance(join.this, exp.Unnest):
                _explode(select, join)
        tables = [from_.this, *(join.this for join in select.args.get("joins") or [])]
        for table in tables:
            if isinstance(table, exp.Table) and table.name not in ctes:
                self._table(table)
            elif isinstance(table, exp.Subquery) and not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(f"q{len(list(select.walk()))}")))
        self._star(select, tables)
        self._columns(select, tables)

    def _table(self, table: exp.Table) -> None:
        if not isinstance(table.this, exp.Identifier):
            raise NotTranslated(f"`{table.sql()[:60]}` is not a table", "a table or a view")
        relation = self.catalog.relation(table.name)
        alias = table.alias or table.name
        name = table.name.lower()
        source = name if _NAME.fullmatch(name) else re.sub(r"\W", "_", f"t_{name}")
        self.sources[source] = (
            dict(relation.source)
            if {"as", "table"} & set(relation.source)
            else relation.read_as(relation.kind)
        )
        table.set("this", exp.to_identifier(source))
        table.set("db", None)
        table.set("catalog", None)
        if alias != source:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        table.meta["relation"] = relation
        table.meta["window"] = self.windows.get(relation.name)

    def _star(self, select: exp.Select, tables: Sequence[exp.Expr]) -> None:
        items: list[exp.Expr] = []
        for each in select.expressions:
            qualifier = (
                each.table if isinstance(each, exp.Column) and isinstance(each.this, exp.Star) else None
            )
            if not isinstance(each, exp.Star) and qualifier is None:
                items.append(each)
                continue
            for table in tables:
                if qualifier in (None, "", table.alias_or_name):
                    several = len(tables) > 1
                    items += [
                        exp.column(name, table=table.alias_or_name if several else None)
                        for name in _names_of(table)
                    ]
        select.set("expressions", items)

    def _columns(self, select: exp.Select, tables: Sequence[exp.Expr]) -> None:
        """Replace computed and metadata columns, and the columns of a window."""
        for node in list(select.find_all(exp.Column)):
            if node.find_ancestor(exp.Select) is not select or not isinstance(node.this, exp.Identifier):
                continue
            for table in tables:
                if not isinstance(table, exp.Table) or (relation := table.meta.get("relation")) is None:
                    continue
                if node.table and node.table != table.alias_or_name:
                    continue
                made = self._column(node, table, relation)
                if made is not None:
                    at_top = node.parent is select and node.arg_key == "expressions"
                    node.replace(exp.alias_(made, node.name) if at_top else made)
                    break

    def _column(self, node: exp.Column, table: exp.Table, relation: Relation) -> exp.Expr | None:
        if node.name in relation.unreadable:
            raise NotTranslated(
                f"the column {node.name}: {relation.unreadable[node.name]}", "write it into the value"
            )
        window: TableWindow | None = table.meta.get("window")
        if window is not None and node.name in _WINDOW:
            call = window.call(self._time(window, relation))
            in_group = node.find_ancestor(exp.Group) is not None
            return call if in_group else exp.Dot(this=call, expression=exp.to_identifier(_WINDOW[node.name]))
        column = relation.columns.get(node.name)
        if column is None or column.expression == node.name:
            return None
        return _qualified(parsed(column.expression), node.table)

    @staticmethod
    def _time(window: TableWindow, relation: Relation) -> str:
        column = relation.columns.get(window.time)
        return column.expression if column is not None else window.time

    # ---- SELECT list and key

    def _name(self, select: exp.Select) -> None:
        """Give each column a name that a view can have: the target's, or its own in lower case."""
        if self.names and len(self.names) != len(select.expressions):
            raise NotTranslated(
                f"the SELECT has {len(select.expressions)} columns, the target {len(self.names)}",
                "name them all",
            )
        for number, each in enumerate(list(select.expressions)):
            own = each.alias_or_name or each.output_name
            name = self.names[number] if self.names else own or f"expr_{number}"
            if not _NAME.fullmatch(name):
                plain = re.sub(r"\W+", "_", name.lower()).strip("_") or f"expr_{number}"
                self.translation.differ(f'the column "{name}" is called {plain}')
                name = plain
            if name != each.alias_or_name:
                inner = each.this if isinstance(each, exp.Alias) else each
                select.expressions[number] = exp.alias_(inner, name)
        self._window_start(select)

    def _window_start(self, select: exp.Select) -> None:
        """Group by each window once, and select its start: it is part of the key."""
        group = select.args.get("group")
        if group is None:
            return
        unique = list({each.sql(): each for each in group.expressions}.values())
        group.set("expressions", unique)
        for each in unique:
            if isinstance(each, exp.Anonymous) and each.name in ("window", "session_window"):
                start = exp.Dot(this=each.copy(), expression=exp.to_identifier("start"))
                if not any(
                    start == (got.this if isinstance(got, exp.Alias) else got) for got in select.expressions
                ):
                    select.expressions.append(exp.alias_(start, "window_start"))
                self.translation.differ(
                    "a window's row is seen while it grows; in Flink it comes once, at the end"
                )

    def _place(self, tops: Sequence[exp.Select]) -> list[str]:
        """Return the key of a projection: that of its table, or the place of the events."""
        first = tops[0]
        relations = [(table.alias_or_name, of) for table, of in _tables(first)]
        if self.key:
            return list(self.key)
        if relations[0][1].kind == "table":
            alias, relation = relations[0]
            found = []
            for name in relation.key:
                own = next(
                    (each.alias_or_name for each in first.expressions if _is_column(each, name, alias)), None
                )
                if own is None:
                    raise NotTranslated(
                        f"the key {name} of {relation.name} is not selected", f"select {name}"
                    )
                found.append(own)
            return found
        key: list[str] = []
        for select in tops:
            key = []
            of_select = [(table.alias_or_name, of) for table, of in _tables(select) if of.kind == "stream"]
            places = {**({"event_topic": "_topic"} if len(tops) > 1 else {}), **_PLACE}
            for alias, _ in of_select:
                for name, column in places.items():
                    own = name if len(of_select) == 1 else f"{alias.lower()}_{name}"
                    qualifier = alias if len(relations) > 1 else None
                    select.expressions.append(exp.alias_(exp.column(column, table=qualifier), own))
                    key.append(own)
            if select.args.get("laterals"):
                select.expressions.append(exp.column("item_number"))
                key.append("item_number")
        self.translation.differ(f"the view has one row of each event, by {', '.join(key)}")
        return key

    def _key_of(self, select: exp.Select) -> list[str]:
        if self.key:
            return list(self.key)
        if select.args.get("group") is not None or select.args.get("distinct") is not None:
            return []
        ranked = next(
            (each for each in select.find_all(exp.Window) if each.this.name.upper() == "ROW_NUMBER"), None
        )
        names = [each.alias_or_name for each in select.expressions]
        if ranked is not None:
            by = [each.name for each in ranked.args.get("partition_by") or ()]
            rank = ranked.parent.alias if isinstance(ranked.parent, exp.Alias) else ""
            key = [*by, *([rank] if rank in names else [])]
            if key and set(key) <= set(names):
                return key
        raise NotTranslated(
            "the key of its rows is not known", "INSERT INTO a table with PRIMARY KEY (…) NOT ENFORCED"
        )


def _parsed(text: str) -> exp.Expr:
    try:
        tree = parse_one(text, dialect=ImportedSql)
    except (SqlglotError, RecursionError) as error:
        reason = str(error).splitlines()[0].partition(". Line")[0]
        raise NotTranslated(
            f"the query cannot be parsed: {reason[:160]}", "write this part in another form"
        ) from None
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise NotTranslated("it is not a SELECT", "SELECT … FROM a table")
    return tree


def _tops(tree: exp.Expr) -> list[exp.Select]:
    if isinstance(tree, exp.SetOperation):
        return [*_tops(tree.this), *_tops(tree.expression)]
    if isinstance(tree, exp.Subquery):
        return _tops(tree.this)
    assert isinstance(tree, exp.Select)
    return [tree]


def _tables(select: exp.Select) -> list[tuple[exp.Table, Relation]]:
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    return [(each, each.meta["relation"]) for each in tables if "relation" in each.meta]


def _types(tree: exp.Expr) -> dict[str, ColumnType]:
    """Return the types of the columns whose name has one type in all tables."""
    column_types: dict[str, set[ColumnType]] = {}
    for table in tree.find_all(exp.Table):
        if (relation := table.meta.get("relation")) is not None:
            for name, column in relation.columns.items():
                if column.type is not None:
                    column_types.setdefault(name, set()).add(column.type)
    return {name: types.pop() for name, types in column_types.items() if len(types) == 1}


def _is_simple(select: exp.Select) -> bool:
    """Return whether each row is made of one row of each of its tables."""
    parts = ("group", "having", "distinct", "order", "limit", "with_")
    if any(select.args.get(part) is not None for part in parts):
        return False
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    calls = {each.name.lower() for each in select.find_all(exp.Anonymous)}
    return (
        all("relation" in table.meta for table in tables)
        and not calls & FLINK_AGGREGATES
        and select.find(exp.Window, exp.Subquery) is None
    )


def _is_inner(join: exp.Expr) -> bool:
    return not join.args.get("side")


def _names_of(table: exp.Expr) -> list[str]:
    if isinstance(table, exp.Subquery):
        return [each.alias_or_name for each in _tops(table.this)[0].expressions]
    relation = table.meta.get("relation")
    if relation is None:
        raise NotTranslated("SELECT * of a common table", "name the columns")
    places = ("rowtime", "event_topic", *_PLACE)
    names = [name for name in relation.columns if name not in relation.unreadable and name not in places]
    return [*names, *(_WINDOW if table.meta.get("window") is not None else ())]


def _qualified(tree: exp.Expr, table: str) -> exp.Expr:
    if not table:
        return tree
    return tree.transform(
        lambda node: (
            exp.column(node.name, table=table) if isinstance(node, exp.Column) and not node.table else node
        )
    )


def _is_column(node: exp.Expr, name: str, alias: str) -> bool:
    inner = node.this if isinstance(node, exp.Alias) else node
    return isinstance(inner, exp.Column) and inner.name == name and inner.table in ("", alias)


def _explode(select: exp.Select, join: exp.Join) -> None:
    """Turn ``CROSS JOIN UNNEST(list) AS t (x)`` into a LATERAL VIEW with the number of the item."""
    unnest = join.this
    columns = unnest.args["alias"].columns if unnest.args.get("alias") is not None else []
    if len(columns) != 1:
        raise NotTranslated("UNNEST of rows or maps", "UNNEST(list) AS t (x), and x.field")
    call = exp.Anonymous(this="posexplode", expressions=[unnest.expressions[0]])
    alias = exp.TableAlias(
        this=unnest.args["alias"].this, columns=[exp.to_identifier("item_number"), columns[0]]
    )
    select.append("laterals", exp.Lateral(this=call, view=True, alias=alias))
    select.set("joins", [each for each in select.args["joins"] if each is not join])
