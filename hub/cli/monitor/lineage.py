"""[edge] ``hub lineage``: what events go through and why something is late,
as the running server knows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, note, show, show_one
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.observability import format
from hub.observability.web.pages.monitor.lineage import ASKING

TIMEOUT_S = 15.0
MIRRORS_S = 10.0
COLUMNS = ("from", "to", "state", "records", "lag", "bound", "cause")


class LineageFormat(StrEnum):
    """Output formats of lineage; ``openlineage``: job events for other catalogs."""

    table = "table"
    json = "json"
    openlineage = "openlineage"


def lineage(
    of: Annotated[
        str,
        typer.Argument(
            help="A topic, view, store, mirror, connector or group; its id (view:NAME) "
            "where names are shared."
        ),
    ] = "",
    steps: Annotated[
        int, typer.Option("--steps", min=1, max=9, help="Number of steps in each direction.")
    ] = 3,
    output: Annotated[
        LineageFormat, typer.Option("--output", "-o", help="table, json or openlineage.")
    ] = LineageFormat.table,
    watch: WatchOption = False,
) -> None:
    """Show the path of events from topics through mirrors and views to stores and readers, with the live
    lag of each step. For one node: the cause of its lag, and the origin of its columns.

    Example: hub lineage customer_360 --watch
    """
    if output is LineageFormat.openlineage:
        looked(
            lambda: http.get("/api/openlineage", timeout_s=TIMEOUT_S),
            lambda found: show(found, Output.json),
            watch,
            Output.json,
        )
        return
    parameters = [("steps", str(steps)), *([("of", of)] if of else [])]
    as_json = output is LineageFormat.json
    looked(
        lambda: fetch_lineage(parameters),
        lambda found: show_one(found, Output.json) if as_json else _print(found),
        watch,
        Output.json if as_json else Output.table,
    )


def _print(answer: dict[str, Any]) -> None:
    if not answer["nodes"] and answer.get("unmeasured") is not None:
        note(f"readers are not known now: {answer['unmeasured'] or 'they are looked at for the first time'}")
        return
    if not answer["nodes"]:
        note("nothing reads anything yet: no view is running and no consumer group has committed anything")
        return
    if answer["edges"]:
        show([line(edge) for edge in answer["edges"]], Output.table, COLUMNS)
    if answer["cut"]:
        note("there is more than is shown: name a place, or ask for more --steps")
    for each in answer["missing"]:
        note(f"not known: {each}")
    if answer["late"] is not None:
        note(why(answer["late"]))
    for column, made_of in answer["columns"].items():
        parts = ", ".join(f"{topic} {path}" for topic, path in made_of) or "the number of rows"
        if column or made_of:
            typer.echo(f"{column or '(which rows there are)'} <- {parts}")


def fetch_lineage(parameters: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the server's answer. Waits a few seconds while the server asks the mirrors' clusters for the
    first time.
    """
    until_s = time.monotonic() + MIRRORS_S
    while True:
        answer: dict[str, Any] = http.get("/api/lineage", parameters, timeout_s=TIMEOUT_S)
        if ASKING not in answer["missing"] or time.monotonic() >= until_s:
            return answer
        pause(0.3)


def line(edge: dict[str, Any]) -> dict[str, object]:
    """Return an edge as a table row; unknown values are a dash. Edges written with each batch have no lag."""
    write = edge["write"]
    return {
        "from": edge["source"],
        "to": edge["target"],
        "state": "" if write else edge["state"] or "UNKNOWN",
        "records": "" if write else format.count(edge["records"]),
        "lag": "" if write else format.seconds(edge["seconds"]),
        "bound": format.bound(edge["seconds"], edge["error_s"]),
        "cause": "written with each batch" if write else edge["cause"],
    }


def _edge_text(edge: dict[str, Any]) -> str:
    """Return state and cause of an edge, such as ``falling behind: 210 records/s arrive``."""
    state = format.state_label(edge["state"] or "UNKNOWN")
    return f"{state}: {edge['cause']}" if edge["cause"] else state


def why(late: dict[str, Any]) -> str:
    """Why it is late, in a sentence or two."""
    slowest = late["slowest"]
    if not late["path"]:
        answer = "events begin here"
    elif slowest is None or late["seconds"] < 1:
        answer = "it is not late: an event is here within a second, as far as lag is known"
    else:
        answer = (
            f"an event takes {format.seconds(late['seconds'])} to get here; most of it, "
            f"{format.seconds(slowest['seconds'])}, it waits for {slowest['target']} to read "
            f"{slowest['source']}: {_edge_text(slowest)}"
        )
    if late["unknown"]:
        answer += f" (the lag of {len(late['unknown'])} steps on the way is not known, so it may be more)"
    return answer
