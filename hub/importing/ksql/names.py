"""[core] The columns of a query of ksqlDB: its own, the pseudo columns, and those of a window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from hub.importing.column_types import ColumnType
from hub.importing.expressions import dotted, parsed
from hub.importing.relations import ImportedColumn, Relation
from hub.importing.report import NotTranslated

# Columns that identify an event, with their expressions in a source.
PLACE = {"event_topic": "_topic", "event_partition": "_partition", "event_offset": "_offset"}
WINDOW_COLUMNS = {"windowstart": "start", "windowend": "end"}


@dataclass
class QueryNames:
    """The names of one query, as ``Resolves`` has them. ``window``: the call of window(…), "" without one."""

    relations: list[tuple[str, Relation]]
    window: str = ""
    groups: list[str] = field(default_factory=list)

    @property
    def qualified(self) -> bool:
        return len(self.relations) > 1

    @property
    def _in_one_partition(self) -> bool:
        """Return True if all events of a group are in one partition: their offsets are their order."""
        _, relation = self.relations[0]
        keys = [relation.columns[each].expression for each in relation.key if each in relation.columns]
        by_key = relation.view is None and bool(keys) and set(keys) <= set(self.groups)
        return by_key or relation.partitions == 1

    @property
    def event_order(self) -> str:
        alias, _ = self.relations[0]
        at = f"{alias}." if self.qualified else ""
        if self._in_one_partition:
            return f"{at}_offset"
        return f"named_struct('time', {at}_timestamp, 'partition', {at}_partition, 'offset', {at}_offset)"

    @property
    def order_note(self) -> str:
        one = self._in_one_partition
        return "" if one else "events of a key in several partitions are ordered by their broker's time"

    def column(self, parts: Sequence[str]) -> tuple[exp.Expr, ColumnType | None]:
        for alias, relation in self.relations:
            if len(parts) > 1 and parts[0] == alias.lower():
                return self._resolve(alias, relation, parts[1:])
        for alias, relation in self.relations:
            if parts[0] in relation.columns or parts[0] in relation.unreadable:
                return self._resolve(alias, relation, parts)
        return self._resolve(*self.relations[0], parts)

    def _resolve(
        self, alias: str, relation: Relation, parts: Sequence[str]
    ) -> tuple[exp.Expr, ColumnType | None]:
        name = parts[0]
        if name in relation.unreadable:
            raise NotTranslated(
                f"the column {name}: {relation.unreadable[name]}", "write it into the value, too"
            )
        column = relation.columns.get(name) or self._pseudo(relation, name)
        if column is None and relation.complete:
            raise NotTranslated(
                f"{relation.name} has no column {name}", f"it has {', '.join(relation.columns) or 'none'}"
            )
        column = column or ImportedColumn(name)
        tree = self.of_relation(alias, column.expression)
        return dotted(tree, parts[1:]), column.type if len(parts) == 1 else None

    def _pseudo(self, relation: Relation, name: str) -> ImportedColumn | None:
        match name:
            case "rowtime":
                return ImportedColumn(f"unix_millis({relation.time})", ColumnType("bigint"))
            case "rowkey":
                return ImportedColumn("_key", ColumnType("string"))
            case "rowpartition" | "rowoffset":
                return ImportedColumn("_" + name.removeprefix("row"), ColumnType("bigint"))
            case "windowstart" | "windowend":
                end = WINDOW_COLUMNS[name]
                if self.window:
                    return ImportedColumn(f"unix_millis({self.window}.{end})", ColumnType("bigint"))
                if relation.windowed:
                    return ImportedColumn(f"unix_millis(window_{end})", ColumnType("bigint"))
        return None

    def of_relation(self, alias: str, expression: str) -> exp.Expr:
        """Return an expression over one relation's columns, with its alias if there are several."""
        tree = parsed(expression)
        if not self.qualified:
            return tree
        return tree.transform(
            lambda node: (
                exp.column(node.name, table=alias)
                if isinstance(node, exp.Column) and not node.table
                else node
            )
        )


def time_of(name: str, selected: dict[str, str], columns: dict[str, ColumnType | None]) -> str:
    """Return a selected column as a timestamp. Raises NotTranslated."""
    if name not in selected:
        raise NotTranslated(f"timestamp = '{name}' is not a column of the SELECT", "select it")
    type_ = columns.get(name)
    if type_ is not None and type_.name == "timestamp":
        return selected[name]
    return f"timestamp_millis({selected[name]})"


def selected_as(name: str, text: str) -> str:
    return text if text == name else f"{text} AS {name}"


def plain_name(name: str) -> str:
    """Return a text as a name of a column.

    >>> plain_name("Total Cents"), plain_name("upper(city)")
    ('total_cents', 'upper_city')
    """
    found = re.sub(r"\W+", "_", name.lower()).strip("_")[:60]
    return found if re.match(r"[a-z]", found) else f"c_{found}"
