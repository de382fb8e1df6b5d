"""[edge] Rows of a push query in ``hub sql``, one line each, as they arrive."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hub.cli.terminal.rows import IN_JSON, RowFormat, cell
from hub.errors import PeerError

_WIDTH = 12


def lines(events: Iterable[Mapping[str, Any]], form: RowFormat) -> Iterator[tuple[str, bool]]:
    """Yield (line, whether it is data and not a remark) for the events of a push query, as they arrive.

    Raises PeerError with the server's reason when it ends the query.
    """
    names: list[str] = []
    for event in events:
        data: Mapping[str, Any] = event.get("data") or {}
        match event["event"]:
            case "columns":
                names = [each["name"] for each in data["columns"]]
                if (head := _head(names, form)) is not None:
                    yield head, True
            case "row" | "snapshot" | "upsert":
                yield _row(names, data["row"], form), True
            case "delete":
                if form is RowFormat.json:
                    yield json.dumps({"_deleted": data["key"]}, ensure_ascii=False).translate(IN_JSON), True
                else:
                    yield f"Deleted: {cell(data['key'])}", False
            case "synced":
                yield "These rows are there now; waiting for changes.", False
            case "skipped":
                yield (
                    f"{data['unreadable']} events cannot be decoded; hub topic conformance names them.",
                    False,
                )
            case "reset":
                yield f"The rows begin again: {data['reason']}.", False
            case "behind":
                yield "This reader was slow: states between are not shown.", False
            case "closing":
                raise PeerError(
                    f"the server ended the query: {data['reason']}", hint="run it again", code="HUB-3091"
                )
            case _:
                continue


def _head(names: Sequence[str], form: RowFormat) -> str | None:
    if form is RowFormat.json:
        return None
    if form is RowFormat.csv:
        return _csv(names)
    return " | ".join(f"{cell(name):{_WIDTH}}" for name in names).rstrip()


def _row(names: Sequence[str], row: Mapping[str, Any], form: RowFormat) -> str:
    if form is RowFormat.json:
        return json.dumps(row, ensure_ascii=False).translate(IN_JSON)
    values = [row.get(name) for name in names]
    if form is RowFormat.csv:
        return _csv(["" if value is None else _text(value) for value in values])
    return " | ".join(f"{cell(value):{_WIDTH}}" for value in values).rstrip()


def _csv(values: Sequence[object]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | dict | list) else str(value)
