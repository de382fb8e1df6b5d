"""[edge] ``hub view search``: the rows of a view that have some words, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import base_url, who_asks
from hub.cli.terminal.conditions import condition
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.rows import catching_up_text
from hub.client import Hub


def search_view(
    view: str,
    words: Annotated[list[str], typer.Argument(help='Words, "a phrase", -without, prefix*, one OR another')],
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="On a declared index: city=Oslo, points>=100; repeatable"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Rows at most")] = 20,
    start_after: Annotated[str | None, typer.Option(help="The cursor that the page before printed")] = None,
    after_write: Annotated[
        str | None, typer.Option(help="The position a write returned: the answer includes that write")
    ] = None,
    timeout_ms: Annotated[int | None, typer.Option(help="How long to wait for --after-write")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Search the text index of a view; found words are in [brackets].

    Examples: hub view search articles kafka offsets      hub view search articles -- 'kafka -beta'
    """
    timeout_s = (load_settings().query_timeout_ms if timeout_ms is None else timeout_ms) / 1000
    with Hub(base_url(), token=who_asks(), retry=False) as hub:
        page = hub.search(
            view,
            " ".join(words),
            where=[condition(each) for each in where or ()],
            limit=limit,
            cursor=start_after,
            after=after_write,
            timeout_s=timeout_s,
        )
    if output is Output.json:
        behind = {"catching_up": list(page.catching_up)} if page.catching_up else {}
        show_one({"rows": page.rows, "next": page.next, **behind}, output)
        return
    show([_line(row) for row in page.rows], output, ("key", "score", "found"))
    if page.catching_up:
        note(catching_up_text(page.catching_up))
    if page.next is not None:
        note(f"More: --start-after {page.next}")


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    found = "; ".join(f"{name}: {_marked(parts)}" for name, parts in row["_highlights"].items())
    return {"key": row["key"], "score": f"{row['_score']:.3g}", "found": found}


def _marked(parts: Sequence[Mapping[str, Any]]) -> str:
    texts = (f"[{each['text']}]" if each["match"] else each["text"] for each in parts)
    return " ".join("".join(texts).split())
