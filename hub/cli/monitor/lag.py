"""[edge] ``hub lag``: how late every group, view and applier is,
as the running server knows it (GET /api/lag)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.observability import format
from hub.observability.lag.states import LagState

TIMEOUT_S = 10.0
COLUMNS = ("consumer", "kind", "topic", "state", "records", "lag", "bound", "trend", "eta", "owner", "cause")
BARS = "▁▂▃▄▅▆▇█"

app = typer.Typer(rich_markup_mode=None)


class ReaderKind(StrEnum):
    """Kinds of readers."""

    group = "group"
    view = "view"
    applier = "applier"
    mirror = "mirror"


@app.command("lag")
def lag(
    consumer: Annotated[str | None, typer.Argument(help="Only this group, view or applier.")] = None,
    state: Annotated[
        list[LagState] | None,
        typer.Option(
            "--state", "-s", case_sensitive=False, help="Only this state; may be given several times."
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only objects of this owner.")] = None,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only topics with this prefix.")] = "",
    kind: Annotated[ReaderKind | None, typer.Option(help="Only groups, views, appliers or mirrors.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Most rows to return, the worst first.")
    ] = 1_000,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Show the lag of every consumer, worst first: records, seconds with the error bound, cause, and time
    to catch up.

    Example: hub lag --state stopped --state falling_behind --topic shop. --watch
    """
    parameters = [("limit", str(limit)), *(("state", each.value) for each in state or ())]
    parameters += [
        (name, value)
        for name, value in (("name", consumer), ("owner", owner), ("prefix", topic), ("kind", kind))
        if value
    ]
    looked(
        lambda: fetch(parameters),
        lambda rows: _print(rows, output, filtered=len(parameters) > 1),
        watch,
        output,
    )


def fetch(parameters: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the rows of ``/api/lag``. Raises PeerError when no server answers there."""
    rows: list[dict[str, Any]] = http.get("/api/lag", parameters, timeout_s=TIMEOUT_S)
    return rows


def line(row: dict[str, Any]) -> dict[str, object]:
    """Return a lag entry as a table row; unknown values are a dash."""
    return {
        "consumer": row["name"],
        "kind": row["kind"],
        "topic": row["topic"] or "",
        "state": row["state"],
        "records": format.count(row["records"]),
        "lag": format.seconds(row["seconds"]),
        "bound": format.bound(row["seconds"], row["error_s"]),
        "trend": sparkline(row["trend"]),
        "eta": "" if row["eta_s"] is None else format.seconds(row["eta_s"]),
        "owner": row["owner"],
        "cause": row["cause"],
    }


def sparkline(values: list[float]) -> str:
    """Return the lag of the last readings as ``▁▂▅█``; flat and low without lag."""
    most = max(values, default=0.0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(len(BARS) - 1, int(value / most * len(BARS)))] for value in values)


def _print(rows: list[dict[str, Any]], output: Output, *, filtered: bool) -> None:
    if output is Output.json:
        show(rows, output)
    elif rows:
        show([line(row) for row in rows], output, COLUMNS)
    elif filtered:
        note("no such reader (hub lag shows all)")
    else:
        note(
            "no readers are known: no view runs and no group has committed anything, or none was measured "
            "yet (hub doctor)"
        )
