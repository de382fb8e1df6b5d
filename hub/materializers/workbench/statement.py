"""[core] The workbench's statement: a first one for a topic, and the place of an error in its text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hub.errors import HubError
from hub.materializers.definition.drafted import source_name
from hub.materializers.queries.parser import SqlError

_NUMBERS = ("int", "bigint", "smallint", "float", "double", "decimal")
_NAME = re.compile(r"[A-Za-z_]\w*")
_CODE = re.compile(r"(^|_)(id|key|no|number|code)$")
_SPARKS_LINE = re.compile(r"\bline (\d+),? pos (\d+)")
_MOST_SUMS = 3


def first_statement(topic: str, fields: Mapping[str, str]) -> str:
    """Return a statement that counts a topic's events by the field that most likely names whose they are.

    ``fields``: Spark types by name.

    >>> orders = {"order_id": "string", "customer_id": "string", "cents": "bigint"}
    >>> print(first_statement("shop.orders", orders))
    CREATE MATERIALIZED VIEW orders_by_customer_id AS
    SELECT customer_id, count(*) AS events, sum(cents) AS cents
    FROM "shop.orders"
    GROUP BY customer_id
    """
    source = source_name(topic, {})
    plain = [name for name in fields if _NAME.fullmatch(name)]
    own = (f"{source.removesuffix('s')}_id", f"{source}_id", "event_id", "id")
    codes = [name for name in plain if _CODE.search(name)]
    key = next((name for name in codes if name not in own), next(iter([*codes, *plain]), "_key"))
    shown = "_key AS record_key" if key == "_key" else key
    sums = [
        f"sum({name}) AS {name}"
        for name in plain
        if fields[name].partition("(")[0] in _NUMBERS and name != key and not _CODE.search(name)
    ]
    columns = ", ".join([shown, "count(*) AS events", *sums[:_MOST_SUMS]])
    view = re.sub(r"\W", "_", f"{source}_by_{key.strip('_')}".lower())[:63]
    return f'CREATE MATERIALIZED VIEW {view} AS\nSELECT {columns}\nFROM "{topic}"\nGROUP BY {key}'


def place_of(error: HubError, text: str, select: str) -> tuple[int, int | None] | None:
    """Return line and column of an error in the statement's text, from 1; None where it has no place.

    ``select``: the statement's SELECT, which is the end of the text. Its names of topics are shorter in the
    view's file, so the column of a line with a quoted name is None.
    """
    if isinstance(error, SqlError):
        return None if error.line is None else (error.line, error.column)
    line, column = (int(error.details.get(each, 0)) for each in ("line", "column"))
    if not line and (match := _SPARKS_LINE.search(error.message)):
        line, column = int(match[1]), int(match[2]) + 1
    if not line:
        return None
    before = text[: text.rfind(select)] if select else ""
    first = before.count("\n")
    if line == 1:
        column += len(before) - (before.rfind("\n") + 1)
    lines = text.splitlines()
    number = min(first + line, len(lines))
    return number, None if '"' in lines[number - 1] else column
