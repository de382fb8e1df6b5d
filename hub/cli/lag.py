"""[edge] ``hub lag``: how late each view is, topic by topic, as the running server knows it (GET /api/lag)."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import httpx2
import typer

from hub.cli.context import load_settings
from hub.cli.interrupt import pause
from hub.cli.output import Output, OutputOption, note, show
from hub.cli.up import server_url
from hub.errors import PeerError
from hub.observability.web import format

REFRESH_S = 1.0
COLUMNS = ("view", "topic", "state", "records", "lag", "bound", "eta", "cause")

app = typer.Typer(rich_markup_mode=None)


@app.command("lag")
def lag(
    view: Annotated[str | None, typer.Argument(help="Only this view.")] = None,
    output: OutputOption = Output.table,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """How late each view is: records and seconds behind, with the error bound, and the time to catch up."""
    url = server_url(load_settings())
    if not watch:
        _print(_selected(fetch(url), view), output)
        return
    while True:
        rows = _selected(fetch(url), view)
        if output is Output.table and sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[H")
        _print(rows, output)
        pause(REFRESH_S)


def fetch(url: str) -> list[dict[str, Any]]:
    """The rows of ``/api/lag``. Raises PeerError when no server answers there."""
    try:
        response = httpx2.get(f"{url}/api/lag", timeout=5.0)
        response.raise_for_status()
    except httpx2.HTTPError as error:
        raise PeerError(f'hub server at "{url}" does not answer: {error}', hint="start it: hub up") from error
    rows: list[dict[str, Any]] = response.json()
    return rows


def line(row: dict[str, Any]) -> dict[str, object]:
    """A row as people read it; what is not known is a dash."""
    return {
        "view": row["view"],
        "topic": row["topic"],
        "state": row["state"],
        "records": format.count(row["records"]),
        "lag": format.seconds(row["seconds"]),
        "bound": format.bound(row["seconds"], row["error_s"]),
        "eta": "" if row["eta_s"] is None else format.seconds(row["eta_s"]),
        "cause": row["cause"],
    }


def _selected(rows: list[dict[str, Any]], view: str | None) -> list[dict[str, Any]]:
    return rows if view is None else [row for row in rows if row["view"] == view]


def _print(rows: list[dict[str, Any]], output: Output) -> None:
    if output is Output.json:
        show(rows, output)
    elif rows:
        show([line(row) for row in rows], output, COLUMNS)
    else:
        note("no view is running (start one: a file in views/, then hub up)")
