"""[edge] Options and output of commands that read pages of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hub.cli.terminal.output import Output, note, show, show_one
from hub.cli.terminal.rows import catching_up_text
from hub.client import Page

WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="On a declared index: city=Oslo, points>=100; repeatable"),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Rows at most")]
StartAfterOption = Annotated[str | None, typer.Option(help="The cursor that the page before printed")]
AfterWriteOption = Annotated[
    str | None, typer.Option(help="The position a write returned: the answer includes that write")
]
WaitOption = Annotated[int | None, typer.Option(help="How long to wait for --after-write")]


def show_page(
    page: Page, lines: Sequence[Mapping[str, Any]], output: Output, columns: Sequence[str] = ()
) -> None:
    """Print a page: as JSON its rows as they are, as a table ``lines``, which stand for them."""
    if output is Output.json:
        behind = {"catching_up": list(page.catching_up)} if page.catching_up else {}
        show_one({"rows": page.rows, "next": page.next, **behind}, output)
        return
    show(lines, output, columns)
    if page.catching_up:
        note(catching_up_text(page.catching_up))
    if page.next is not None:
        note(f"More: --start-after {page.next}")
