"""[core] A query of ksqlDB as the SQL of a view.

A stream of ksqlDB has many events of one key; a view has one row of each key. So a view of a stream has one
row of each event: its key is the event's place in the log (``event_partition``, ``event_offset``), and
``rowtime`` is its time. Another view reads it as a stream. A table of ksqlDB is a view with that table's key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from hub.importing.column_types import ColumnType
from hub.importing.expressions import ExpressionTranslator, name_parts, parsed, plain_text, spark_text
from hub.importing.ksql.functions import KSQL_FUNCTIONS, KSQL_TABLE_FUNCTIONS
from hub.importing.ksql.names import PLACE, WINDOW_COLUMNS, QueryNames, plain_name, selected_as, time_of
from hub.importing.ksql.query import Joined, KsqlQuery, SelectItem, WindowClause
from hub.importing.relations import AHEAD, EVENT_TIME, ImportedColumn, Kind, Relation, RelationCatalog
from hub.importing.report import NotTranslated, StatementTranslation

_GRACE = "24 hours"  # ksqlDB's default
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_BATCHES = (
    "which events are too late is decided batch by batch, for all partitions together; ksqlDB decides it in "
    "each partition"
)


@dataclass
class ViewSelect:
    """The SELECT of a view. ``selected``: expressions by name. ``rest``: lines from FROM on. ``columns``:
    types by name, None for those that are not known. ``key``: of the file."""

    selected: dict[str, str]
    rest: list[str]
    sources: dict[str, dict[str, Any]]
    columns: dict[str, ColumnType | None]
    key: list[str]
    kind: Kind
    windowed: bool = False
    indexes: list[str] = field(default_factory=list)

    def sql(self, order: Sequence[str] = ()) -> str:
        """Return the text. ``order``: names of all columns, of a view that several SELECTs feed."""
        names = order or list(self.selected)
        items = [selected_as(name, self.selected.get(name, "NULL")) for name in names]
        return "\n".join(["SELECT", ",\n".join(f"  {each}" for each in items), *self.rest])

    def relation(self, name: str) -> Relation:
        """Return the view as a relation of later statements."""
        own_time = "rowtime" if self.kind == "stream" else ""
        missing = {} if own_time else {"rowtime": "a row of a table has no time of its own in the hub"}
        source: dict[str, Any] = {"view": name}
        columns = {each: ImportedColumn(each, of) for each, of in self.columns.items()}
        return Relation(
            name, self.kind, source, columns, tuple(self.key), True, own_time, own_time or None,
            self.windowed, missing, name,
        )  # fmt: skip


class ViewWriter:
    """Writes the SELECT of one query."""

    def __init__(self, query: KsqlQuery, catalog: RelationCatalog, translation: StatementTranslation) -> None:
        self.query, self.catalog, self.translation = query, catalog, translation
        if query.limit:
            raise NotTranslated("LIMIT: the view of a stream does not end", "leave it out")
        self.joined = [(each, catalog.relation(each.name)) for each in query.relations]
        self.names = QueryNames([(each.alias, relation) for each, relation in self.joined])
        self.first = self.joined[0][1]
        self.is_stream = self.first.kind == "stream" and not query.group
        self.sources: dict[str, dict[str, Any]] = {}
        self.names.window = self._window_call(query.window) if query.window is not None else ""
        functions = KSQL_FUNCTIONS if self.first.kind == "stream" else KSQL_TABLE_FUNCTIONS
        self.translator = ExpressionTranslator(self.names, functions, catalog, translation)
        self.groups = [self._text(tokens) for tokens in query.group]
        self.names.groups = self.groups
        self.where = [self._text(query.where)] if query.where else []
        self.lateral = ""

    def written(self, *, with_topic: bool = False, time: str = "") -> ViewSelect:
        """Return the view's SELECT. ``with_topic``: it is one of several that feed the view. ``time``: the
        column that becomes ROWTIME."""
        from_ = self._from()
        items = self._items()
        columns = {name: type_ for name, _, type_ in items}
        selected = {name: text for name, text, _ in items}
        if self.is_stream:
            selected |= self._places(selected, with_topic)
            if time:
                selected["rowtime"] = time_of(time, selected, columns)
        group = self._group(selected, columns)
        having = [f"HAVING {self._text(self.query.having)}"] if self.query.having else []
        key = self._key(selected)
        lines = [*from_, *([self.lateral] if self.lateral else [])]
        if self.where:
            lines.append("WHERE " + "\n  AND ".join(self.where))
        lines += [*group, *having]
        for name in selected:
            columns.setdefault(name, None)
        if self.is_stream:
            columns["rowtime"] = ColumnType("timestamp")
        kind: Kind = "stream" if self.is_stream else "table"
        windowed = bool(self.names.window)
        return ViewSelect(
            selected, lines, self.sources, columns, key, kind, windowed, self._indexes(selected)
        )

    def _text(self, tokens: Any) -> str:
        return spark_text(self.translator.of(tokens))

    # ---- FROM

    def _from(self) -> list[str]:
        lines = []
        for each, relation in self.joined:
            name = (
                relation.name if _NAME.fullmatch(relation.name) else re.sub(r"\W", "_", relation.name.lower())
            )
            source = name if name not in self.sources else f"{name}_{len(self.sources) + 1}"
            self.sources[source] = self._source(each, relation)
            shown = source if source == each.alias else f"{source} AS {each.alias}"
            if not each.how:
                lines.append(f"FROM {shown}")
                continue
            terms = [self._text(each.on), *self._interval(each, relation)]
            lines.append(f"{each.how} {shown}\n  ON " + "\n  AND ".join(terms))
        return lines

    def _source(self, each: Joined, relation: Relation) -> dict[str, Any]:
        if relation.kind == "table":
            beside_stream = self.first.kind == "stream"
            if beside_stream:
                self.translation.differ(
                    f"{relation.name} is read whole in each batch: thousands of rows, not millions"
                )
            return relation.read_as("static" if beside_stream else "table")
        if each.how and self.first.kind == "table":
            raise NotTranslated(
                "a join of a table with a stream begins with the stream", "FROM stream JOIN table"
            )
        source = relation.read_as("stream")
        watermark = self._watermark(each, relation)
        return {**source, "event_time": relation.event_time, "watermark": watermark} if watermark else source

    def _watermark(self, each: Joined, relation: Relation) -> str | None:
        within = next((other for other, _ in self.joined if other.within), None)
        if within is not None:
            grace = within.grace or _GRACE
        elif self.query.window is not None:
            grace = self.query.window.grace or _GRACE
        else:
            return None
        if relation.event_time is None:
            if within is None and self.query.window is not None and self.query.window.kind != "session":
                self.translation.differ(
                    "no event is too late, and the state of each window is kept: its time has no watermark"
                )
                return None
            raise NotTranslated(
                f"the time of {relation.name} has another type than TIMESTAMP: it has no watermark",
                f"CREATE STREAM {relation.name}_timed AS SELECT * FROM {relation.name}; and read that",
            )
        self.translation.differ(_BATCHES)
        if relation.event_time != EVENT_TIME and relation.view is None:
            self.translation.differ(AHEAD)
        return grace

    def _interval(self, each: Joined, relation: Relation) -> list[str]:
        """Return the condition of WITHIN."""
        if each.within is None:
            if relation.kind == "stream" and self.first.kind == "stream":
                raise NotTranslated("a join of two streams needs WITHIN", "JOIN … WITHIN 1 HOUR ON …")
            return []
        left, right = (
            spark_text(self.names.of_relation(alias, of.time))
            for alias, of in (self.names.relations[0], (each.alias, relation))
        )
        if each.how != "JOIN":
            self.translation.differ(f"a row without partner comes {each.grace or _GRACE} after WITHIN")
        before, after = (f"INTERVAL {text.upper()}" for text in each.within)
        return [f"{right} BETWEEN {left} - {before} AND {left} + {after}"]

    # ---- SELECT

    def _items(self) -> list[tuple[str, str, ColumnType | None]]:
        found: list[tuple[str, str, ColumnType | None]] = []
        for item in self.query.items:
            if item.star is not None:
                found += self._star(item.star)
            else:
                found.append(self._item(item, len(found)))
        names = [name for name, _, _ in found]
        twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
        if twice is not None:
            raise NotTranslated(f"two columns are called {twice}", "rename one: … AS name")
        return found

    def _star(self, of: str) -> list[tuple[str, str, ColumnType | None]]:
        found = []
        for alias, relation in self.names.relations:
            if of and of != alias.lower():
                continue
            if not relation.complete:
                raise NotTranslated(
                    f"SELECT *: the columns of {relation.name} are not in its statement", "name the columns"
                )
            for name, column in relation.columns.items():
                if name in relation.unreadable or name in (*PLACE, "rowtime"):
                    continue
                shown = f"{alias.lower()}_{name}" if self.names.qualified and not of else name
                found.append(
                    (shown, spark_text(self.names.of_relation(alias, column.expression)), column.type)
                )
        return found

    def _item(self, item: SelectItem, number: int) -> tuple[str, str, ColumnType | None]:
        tree = parsed(plain_text(item.tokens))
        parts = name_parts(tree)
        name = item.alias or (parts[-1] if parts else f"ksql_col_{number}")
        if not _NAME.fullmatch(name):
            self.translation.differ(f'the column "{name}" is called {plain_name(name)}')
            name = plain_name(name)
        if isinstance(tree, exp.Anonymous) and tree.name.lower() == "explode":
            return self._exploded(tree, name)
        if self.names.window and parts and parts[-1] in WINDOW_COLUMNS and len(parts) == 1:
            return name, f"{self.names.window}.{WINDOW_COLUMNS[parts[-1]]}", ColumnType("timestamp")
        type_ = self.names.column(parts)[1] if parts else None
        return name, spark_text(self.translator.rewritten(tree)), type_

    def _exploded(self, tree: exp.Anonymous, name: str) -> tuple[str, str, ColumnType | None]:
        if self.lateral or not self.is_stream:
            raise NotTranslated(
                "EXPLODE stands twice, or in a table",
                "several lists together: LATERAL VIEW posexplode(arrays_zip(a, b)) in the view's SQL",
            )
        inner = spark_text(self.translator.rewritten(tree.expressions[0]))
        self.lateral = f"LATERAL VIEW posexplode({inner}) exploded AS item_number, {name}"
        return name, name, None

    def _places(self, selected: dict[str, str], with_topic: bool) -> dict[str, str]:
        """Return the columns that identify an event, and its time."""
        streams = [(alias, of) for alias, of in self.names.relations if of.kind == "stream"]
        places: dict[str, str] = {}
        for alias, _ in streams:
            for name, column in PLACE.items():
                if name != "event_topic" or with_topic:
                    own = name if len(streams) == 1 else f"{alias.lower()}_{name}"
                    places[own] = spark_text(self.names.of_relation(alias, column))
        if self.lateral:
            places["item_number"] = "item_number"
        self.place = list(places)
        if "rowtime" not in selected:
            times = [spark_text(self.names.of_relation(alias, of.time)) for alias, of in streams]
            places["rowtime"] = times[0] if len(times) == 1 else f"greatest({', '.join(times)})"
        self.translation.differ(f"the view has one row of each event, by {', '.join(self.place)}")
        return places

    # ---- GROUP BY

    def _window_call(self, window: WindowClause) -> str:
        alias, relation = self.names.relations[0]
        if not relation.time or relation.kind == "table":
            raise NotTranslated(f"a window over {relation.name}, which is a table", "a window takes a stream")
        if window.kind == "session":
            self.translation.differ(
                f"a session is a row {window.grace or _GRACE} after its gap, not while it grows"
            )
        if window.retention:
            self.translation.note("RETENTION: the rows of all windows are kept; `ttl` is for entity views")
        time = spark_text(self.names.of_relation(alias, relation.time))
        name = "session_window" if window.kind == "session" else "window"
        lengths = [window.size, *([window.advance] if window.advance else [])]
        return f"{name}({time}, {', '.join(repr(each) for each in lengths)})"

    def _group(self, selected: dict[str, str], columns: dict[str, ColumnType | None]) -> list[str]:
        """Return GROUP BY, with the window; windows also get columns, and null keys no row."""
        if not self.query.group:
            if self.query.window is not None:
                raise NotTranslated("WINDOW without GROUP BY", "group by the key")
            return []
        groups = list(self.groups)
        for text in self.groups:
            if text not in selected.values():
                name = plain_name(text.rpartition(".")[2])
                name = name if name not in selected else f"{name}_key"
                selected[name] = text
                columns[name] = None
            if self.first.kind == "stream":
                self.where.append(f"{text} IS NOT NULL")
        self.grouped = [name for name, text in selected.items() if text in groups]
        if self.names.window:
            for end in ("start", "end"):
                if f"{self.names.window}.{end}" not in selected.values():
                    selected[f"window_{end}"] = f"{self.names.window}.{end}"
                name = next(each for each, text in selected.items() if text == f"{self.names.window}.{end}")
                columns[name] = ColumnType("timestamp")
            groups.append(self.names.window)
            self.translation.differ("the start and end of a window are timestamps")
            if self.query.emit == "final":
                self.translation.differ(
                    "EMIT FINAL: a window's row is seen while it grows; its last state is the same"
                )
        return [f"GROUP BY {', '.join(groups)}"]

    def _key(self, selected: dict[str, str]) -> list[str]:
        if self.is_stream:
            return self.place
        if self.query.group:
            window = f"{self.names.window}.start"
            return [
                *self.grouped,
                *(name for name, text in selected.items() if self.names.window and text == window),
            ]
        alias, relation = self.names.relations[0]
        key_names = []
        for key in relation.key:
            wanted = spark_text(self.names.of_relation(alias, relation.columns[key].expression))
            if (name := next((each for each, text in selected.items() if text == wanted), None)) is None:
                name = key if key not in selected else f"{alias}_{key}"
                selected[name] = wanted
            key_names.append(name)
        if any(each.how == "FULL JOIN" for each, _ in self.joined):
            raise NotTranslated(
                "FULL OUTER JOIN of tables: the key of a row is that of either side",
                "coalesce(a.id, b.id) AS id as the key in the view's SQL",
            )
        if not key_names:
            raise NotTranslated(f"{relation.name} has no PRIMARY KEY", "declare it")
        return key_names

    def _indexes(self, selected: dict[str, str]) -> list[str]:
        """Return the columns of PARTITION BY, which readers look rows up by."""
        if not self.query.partition:
            return []
        found = []
        for tokens in self.query.partition:
            text = self._text(tokens)
            if (name := next((each for each, of in selected.items() if of == text), None)) is not None:
                found.append(name)
        self.translation.differ(
            "PARTITION BY: the view has an index over the column; its changelog's key stays the event's"
        )
        return found
