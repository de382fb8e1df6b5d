"""[edge] ``hub latency``: how long events take to readers of views,
as the running server knows it (GET /api/latency)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.errors import NotFound
from hub.observability import format

TIMEOUT_S = 10.0
COLUMNS = (
    *("view", "stage", "origin", "events", "p50", "p95", "p99", "objective", "within"),
    *("freshness", "state", "cause"),
)


class EventOrigin(StrEnum):
    """live: events as they come; replay: those that were old when they were read."""

    live = "live"
    replay = "replay"


def latency(
    view: Annotated[str | None, typer.Argument(help="Only this view.")] = None,
    origin: Annotated[
        EventOrigin | None, typer.Option(help="Only live events, or only replayed ones.")
    ] = None,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Show the latency of recent events from their own time until readers could see them, and the
    freshness of views.

    Example: hub latency customer_360 --watch
    """
    parameters = [(name, value) for name, value in (("view", view), ("origin", origin)) if value]

    def show_latencies(rows: list[dict[str, Any]]) -> None:
        if not rows and view is not None and not watch:
            raise NotFound(
                f'view "{view}" is not measured', hint="hub latency shows those that are; hub view ls all"
            )
        if output is Output.json:
            show(rows, output)
        elif rows:
            traced = any(row.get("exemplar") for row in rows)
            show([line(row) for row in rows], output, (*COLUMNS, "trace") if traced else COLUMNS)
            for name, times in skewed(rows).items():
                note(
                    f"{name}: {times:,} times an event's own time was later than a stage (not counted): a "
                    "producer's clock is ahead"
                )
        else:
            note("no view is running")

    looked(lambda: http.get("/api/latency", parameters, timeout_s=TIMEOUT_S), show_latencies, watch, output)


def skewed(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many events of each view had a time in the future. Each row of a store has the store's
    count.
    """
    found: dict[str, int] = {}
    for row in rows:
        if row["skewed"]:
            found[row["view"]] = max(row["skewed"], found.get(row["view"], 0))
    return found


def line(row: dict[str, Any]) -> dict[str, object]:
    """Return a latency entry as a table row; unknown values are a dash."""
    stage = row["stage"] if row["store"] in ("", "serving") else f"{row['stage']} in {row['store']}"
    return {
        "view": row["view"],
        "stage": f"{stage} (sample)" if row["sampled"] else stage,
        "origin": row["origin"],
        "events": format.UNKNOWN if row["silent"] else format.count(row["events"]),
        **{name: _span(row, name) for name in ("p50", "p95", "p99")},
        "objective": "" if row["objective_s"] is None else f"{row['objective_s']:g} s",
        "within": "" if row["objective_s"] is None else _share(row["within"]),
        "freshness": format.seconds(row["freshness_s"]),
        "state": row["state"],
        "trace": (row.get("exemplar") or {}).get("trace_id", ""),
        "cause": "its applier counts no more" if row["silent"] else row["cause"],
    }


def _span(row: dict[str, Any], name: str) -> str:
    shown = format.seconds(None if row["silent"] else row[f"{name}_s"])
    return f"> {shown}" if name in row["beyond"] and not row["silent"] else shown


def _share(share: float | None) -> str:
    """Never rounded up to 100 %."""
    if share is None:
        return format.UNKNOWN
    return "100 %" if share == 1 else f"{min(share * 100, 99.9):.1f} %"
