"""[edge] ``hub view search``: the rows of a view that have some words, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import base_url, who_asks
from hub.cli.terminal.conditions import condition
from hub.cli.terminal.output import Output, OutputOption
from hub.cli.terminal.row_pages import (
    AfterWriteOption,
    LimitOption,
    StartAfterOption,
    WaitOption,
    WhereOption,
    show_page,
)
from hub.client import Hub


def search_view(
    view: str,
    words: Annotated[list[str], typer.Argument(help='Words, "a phrase", -without, prefix*, one OR another')],
    where: WhereOption = None,
    limit: LimitOption = 20,
    start_after: StartAfterOption = None,
    after_write: AfterWriteOption = None,
    timeout_ms: WaitOption = None,
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
    show_page(page, [_line(row) for row in page.rows], output, ("key", "score", "found"))


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    found = "; ".join(f"{name}: {_marked(parts)}" for name, parts in row["_highlights"].items())
    return {"key": row["key"], "score": f"{row['_score']:.3g}", "found": found}


def _marked(parts: Sequence[Mapping[str, Any]]) -> str:
    texts = (f"[{each['text']}]" if each["match"] else each["text"] for each in parts)
    return " ".join("".join(texts).split())
