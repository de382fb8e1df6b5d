"""[edge] Command output: data as a table or as JSON on standard output, notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from hub.cli.terminal.rows import IN_JSON, printable

if TYPE_CHECKING:
    from hub.embedded.jars import Progress


class Output(StrEnum):
    """Output formats of data."""

    table = "table"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table, or json for programs")]


def show(
    rows: Sequence[Mapping[str, object]], output: Output = Output.table, columns: Sequence[str] = ()
) -> None:
    """Print rows. As JSON: one array, keys as they are. As a table: ``columns``, or the first row's keys."""
    if output is Output.json:
        _write(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    names = list(columns) or list(rows[0] if rows else ())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        numeric = bool(rows) and all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text_of(row.get(name)) for name in names))
    # A pipe has no width: let lines be as long as they are rather than fold them at 80. ":100:" is a
    # partition, no emoji.
    width = None if sys.stdout.isatty() else 400
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def show_one(row: Mapping[str, object], output: Output = Output.table) -> None:
    """Print one object: as JSON the object itself, as a table one line a field."""
    if output is Output.json:
        _write(row)
        return
    show([{"field": name, "value": text_of(value)} for name, value in row.items()])


def note(text: str) -> None:
    """Print a note to standard error; it is never part of the data."""
    print(printable(text, keep="\n\t"), file=sys.stderr, flush=True)


def text_of(value: object) -> str:
    """Format a cell: empty for None, yes/no for booleans, JSON for nested values. Control characters are
    escaped.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple):
        return printable(orjson.dumps(value, default=str).decode())
    return printable(str(value), keep="\n\t")


@contextmanager
def download_bar(what: str) -> Iterator[Progress]:
    """A progress bar on standard error that appears with the first byte that is fetched."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=False)
    task = bar.add_task(what, total=None)

    def on_progress(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total if done else None)  # pulses while Ivy asks for versions

    try:
        yield on_progress
    finally:
        bar.stop()


def _write(value: object) -> None:
    text = orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(f"{text.translate(IN_JSON)}\n")
    sys.stdout.flush()
