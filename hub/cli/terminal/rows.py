"""[core] Rows as text: aligned as psql has it, a record a block (``\\x``), JSON, CSV.
Data can hold no terminal commands."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from hub.csv_cells import in_cell

_NUMBERS = ("long", "double", "decimal")
# What JSON leaves as it is and a terminal obeys: DEL, and the controls with which commands begin as they do
# with an escape.
IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


class RowFormat(StrEnum):
    """Output formats of rows."""

    table = "table"
    json = "json"
    csv = "csv"


def rendered(
    answer: Mapping[str, Any], form: RowFormat, *, expanded: bool = False, at_terminal: bool = False
) -> str:
    """The rows of an answer of POST /query, with a line's end at the end.
    CSV has values as they are, but at a terminal."""
    columns, rows = answer["columns"], answer["rows"]
    if form is RowFormat.json:
        if not rows:
            return "[]\n"
        lines = (f"  {json.dumps(row, ensure_ascii=False).translate(IN_JSON)}" for row in rows)
        return "[\n" + ",\n".join(lines) + "\n]\n"
    names = [str(each["name"]) for each in columns]
    if form is RowFormat.csv:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_in_csv(row[name]) for name in names] for row in rows)
        return printable(text.getvalue(), keep="\n") if at_terminal else text.getvalue()
    cells = [[cell(row[name]) for name in names] for row in rows]
    heads = [cell(name) for name in names]
    if expanded:
        return _records(heads, cells)
    return _aligned(heads, cells, [each["type"] in _NUMBERS for each in columns])


def catching_up_text(views: Sequence[str]) -> str:
    """Say that the answer lacks events: these views still read a backlog of their topics."""
    reads = "reads" if len(views) == 1 else "read"
    names = cell(", ".join(views))
    return f"Not up to date: {names} still {reads} a backlog, later events are missing; see: hub lag"


def footer(answer: Mapping[str, Any], *, timing_ms: float | None = None) -> list[str]:
    """Return the lines after the rows: row count, whether there are more, scanned offsets, snapshot group,
    views that are not up to date, time.
    """
    count = len(answer["rows"])
    shown = f"({count} {'row' if count == 1 else 'rows'}"
    lines = [f"{shown}; there are more)" if answer.get("more") else f"{shown})"]
    scanned: dict[str, list[Mapping[str, Any]]] = {}
    for each in answer.get("scanned") or ():
        scanned.setdefault(each["topic"], []).append(each)
    for topic, partitions in scanned.items():
        events = sum(each["events"] for each in partitions)
        unreadable = sum(each["unreadable"] for each in partitions)
        ranges = ", ".join(f"{each['partition']}:{each['from']}-{each['to']}" for each in partitions[:8])
        more = ", …" if len(partitions) > 8 else ""
        line = f"Scanned {cell(topic)}: {events} events, offsets {ranges}{more}"
        line += f"; {unreadable} could not be read" if unreadable else ""
        line += "; earlier ones are left out" if any(each["earlier_left_out"] for each in partitions) else ""
        lines.append(line)
        lines += missing_lines(partitions)
    if (cut := answer.get("cut")) is not None:
        lines.append(f"Cut {cell(cut['name'])}: all views at {cell(cut['at'])}")
    if behind := answer.get("catching_up"):
        lines.append(catching_up_text(behind))
    if timing_ms is not None:
        lines.append(f"Time: {timing_ms:.0f} ms (the server's part: {answer.get('elapsed_ms', 0)} ms)")
    return lines


def missing_lines(partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the archive and the log of a topic lack, as lines."""
    lines = []
    if any("missing" in each and each["missing"] is None for each in partitions):
        lines.append("Missing: unknown, an earlier release began the Iceberg table")
    gone = [
        f"{each['partition']}:{first}-{end}"
        for each in partitions
        for first, end in each.get("missing") or ()
    ]
    if gone:
        more = ", …" if len(gone) > 8 else ""
        lines.append(f"Missing: offsets {', '.join(gone[:8])}{more}, which retention removed")
    if letters := max((each.get("archive_dead_letters", 0) for each in partitions), default=0):
        lines.append(f"Missing: {letters} dead-letter records of the Iceberg table; see: hub dlq ls")
    return lines


def cell(value: Any) -> str:
    """Format a value on one line. Control characters, which a terminal would obey, are escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value))


def printable(text: str, keep: str = "") -> str:
    """Escape all control characters except those in ``keep``. Spaces of every width stay; Python regards only
    one of them as printable.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep or unicodedata.category(each) == "Zs" else _escaped(each)
        for each in text
    )


def _escaped(character: str) -> str:
    known = {"\n": "↵", "\t": " ", "\r": "\\r"}
    return known.get(character) or character.encode("unicode_escape").decode()


def width(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    widths = [max(map(width, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str], right: Sequence[bool]) -> str:
        padded = [
            " " * (size - width(each)) + each if to_right else each + " " * (size - width(each))
            for each, size, to_right in zip(cells, widths, right, strict=True)
        ]
        return f" {' | '.join(padded)}".rstrip()

    rule = "-+-".join("-" * size for size in widths)
    centred = [each.center(size - width(each) + len(each)) for each, size in zip(heads, widths, strict=True)]
    lines = [line(centred, numeric), f"-{rule}-", *(line(row, numeric) for row in rows)]
    return "\n".join(lines) + "\n"


def _records(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    size = max(map(width, heads), default=0)
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-[ RECORD {number} ]".ljust(size + 3, "-"))
        lines += [
            f"{head}{' ' * (size - width(head))} | {value}" for head, value in zip(heads, row, strict=True)
        ]
    return "\n".join(lines) + "\n" if lines else ""


def _in_csv(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return in_cell(json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value)
