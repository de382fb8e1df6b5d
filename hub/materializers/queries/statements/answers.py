"""[shell] Answers of SHOW, DESCRIBE and EXPLAIN: lists of visible names, as rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.caller import reads_all, sees_topic, sees_view
from hub.errors import NotFound, did_you_mean
from hub.materializers.planning.classified import state_of
from hub.materializers.progress.view_states import Newest
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import placeholders, tables_of
from hub.materializers.queries.parser import ParsedStatement, SqlError, parse
from hub.materializers.queries.relations import Compiled, OutputColumn
from hub.materializers.queries.saved_queries import load_queries, readable
from hub.materializers.queries.statements.changes import ViewChange
from hub.materializers.queries.statements.grammar import DescribeTable, HubStatement, ShowCreate, ShowList
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.stores.sql_store import Store


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Rows of text."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(name, "string") for name in self.names)


_LISTS = {
    "views": ("view", "state", "reason"),
    "topics": ("topic",),
    "queries": ("query", "parameters", "doc"),
    "tables": ("name", "kind"),
}


def columns_of(statement: HubStatement) -> tuple[str, ...]:
    """Return the columns of a statement's answer, which are known before it runs."""
    match statement:
        case ShowList(what):
            return _LISTS[what]
        case ShowCreate():
            return ("line",)
        case DescribeTable():
            return ("column", "type", "note")
        case _:
            return ("item", "value")


@dataclass(frozen=True, slots=True)
class HubLists:
    """Lists of a hub's views, topics and saved queries. Methods block.

    ``compiled`` compiles a query with its grants, without running it.
    """

    store: Store
    queries: QueryExecutor
    topics: TopicTables
    project: Path
    newest: Newest
    compiled: Callable[[ParsedStatement], Compiled]

    def shown(self, show_list: ShowList) -> StatementRows:
        """Return the names that the caller sees. Raises PeerError."""
        fits = like(show_list.like)
        if show_list.what == "views":
            rows: Iterable[tuple[Any, ...]] = self._views()
        elif show_list.what == "topics":
            rows = ((each,) for each in self._topic_names())
        elif show_list.what == "queries":
            known = self.queries.view_names()
            saved = [each for each in load_queries(self.project) if readable(known, each.sql)]
            rows = ((each.name, ", ".join(_parameters(each.sql)), each.doc) for each in saved)
        else:
            views = ((each[0], "view") for each in self._views())
            rows = (*views, *((each, "topic") for each in self._topic_names()))
        return StatementRows(_LISTS[show_list.what], [row for row in rows if fits(str(row[0]))])

    def _views(self) -> list[tuple[Any, ...]]:
        records = self.newest(self.store.progress())
        states = {
            key.removeprefix("state:"): each for key, each in records.items() if key.startswith("state:")
        }
        names = sorted({*states, *self.queries.view_names()})
        return [
            (name, states.get(name, {}).get("state", "unknown"), states.get(name, {}).get("reason"))
            for name in names
            if sees_view(name)
        ]

    def _topic_names(self) -> list[str]:
        return sorted(filter(sees_topic, self.topics.names()))

    def described(self, name: str) -> StatementRows:
        """Return the columns of a view or topic. Raises NotFound, Forbidden, PeerError."""
        views = {relation.name: relation for relation, _ in self.queries.views()}
        found: Any = views.get(name) or views.get(name.lower())
        if found is not None:
            reads_all(views=[found.name])
        elif sees_topic(name):
            found = self.topics.table(name)
        if found is None:
            raise NotFound(
                f'no view and no topic "{name}"',
                hint=did_you_mean(
                    name,
                    [*filter(sees_view, views), *self._topic_names()],
                    "SHOW VIEWS and SHOW TOPICS list them",
                ),
                code="HUB-1444",
            )
        shown = [(column, kind, "") for column, kind in found.columns.items()]
        hidden = [(column, kind, "not in *") for column, kind in found.hidden.items()]
        return StatementRows(("column", "type", "note"), [*shown, *hidden])

    def explained(self, sql: str) -> StatementRows:
        """Return what a query would read and answer, without running it. Raises SqlError, Forbidden."""
        statement = parse(sql)
        compiled = self.compiled(statement)
        views = {*self.queries.views_of(statement)}
        rows: list[tuple[str, str]] = []
        for table in tables_of(statement):
            if table in views or table.lower() in views:
                rows.append(("reads view", table))
            else:
                rows.append(("reads topic", f"{table}: its recent events, as events and since say"))
        rows += [("column", f"{each.name} {each.kind}") for each in compiled.columns]
        rows += [("parameter", f":{name} {kind}") for name, kind in compiled.parameter_kinds.items()]
        rows.append(("statement for SQLite", compiled.sql))
        return StatementRows(("item", "value"), rows)

    def change(self, change: ViewChange, done: str) -> StatementRows:
        """Return what became of a view, or would: the file, its check, and what the first run reads."""
        rows: list[tuple[str, str | None]] = [("view", change.view), ("file", f"views/{change.file.name}")]
        rows.append(("done", done))
        if change.checked is not None:
            rows.append(("check", change.checked.summary))
            rows += [("warning", each) for each in change.checked.warnings]
            if (plan := change.checked.plan) is not None:
                engine = f"Spark, {plan.mode} mode" if plan.native else "the incremental engine"
                rows += [("engine", engine), ("because", plan.reason), ("state", state_of(plan))]
                rows += [("key", ", ".join(plan.key))]
            if change.declared is not None:
                rows += [("stores", ", ".join(("serving", *change.declared.stores)))]
            rows += [("first run reads", self._size(topic)) for topic in change.reads]
        if change.text is None:
            rows.append(
                ("stays", f'its rows, and the topic "views.{change.view}": `hub view drop` removes them')
            )
        rows += [("diff", line) for line in change.diff]
        return StatementRows(("item", "value"), rows)

    def _size(self, topic: str) -> str:
        if "*" in topic:
            return f"{topic}: every topic of this pattern"
        begins, ends = (
            read([topic]) for read in (self.topics.cluster.beginning_offsets, self.topics.cluster.end_offsets)
        )
        events = sum(end - begins.get(tp) for tp, end in ends)
        return f"{topic}: up to {events:,} events".replace(",", " ")


def _parameters(sql: str) -> list[str]:
    try:
        return placeholders(parse(sql))
    except SqlError:
        return []


def like(pattern: str | None) -> Any:
    """Return the test of a name against a pattern of LIKE; None fits all.

    >>> like("shop.%")("shop.orders"), like("a_")("abc"), like(None)("x")
    (True, False, True)
    """
    if pattern is None:
        return lambda _name: True
    parts = (".*" if each == "%" else "." if each == "_" else re.escape(each) for each in pattern)
    compiled = re.compile("".join(parts))
    return lambda name: compiled.fullmatch(name) is not None
