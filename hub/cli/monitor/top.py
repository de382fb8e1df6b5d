"""[edge] ``hub top``: one live screen of the running hub:
rates, the worst lags, views, and what its processes cost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.monitor.lag import TIMEOUT_S, line
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, OutputOption, show_one
from hub.cli.terminal.rows import printable
from hub.cli.terminal.watch_option import IntervalOption, looked
from hub.errors import CallerError, HubError
from hub.observability import format
from hub.observability.lag.states import LEVEL, LagState, Level

if TYPE_CHECKING:
    from rich.console import Group, JustifyMethod
    from rich.table import Table
    from rich.text import Text

WORST = 12
COLORS = {Level.bad: "bold red", Level.warn: "yellow", Level.unknown: "magenta", Level.ok: "green"}

app = typer.Typer(rich_markup_mode=None)


@app.command("top")
def top(
    interval: IntervalOption = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Update once, then end.")] = False,
    output: OutputOption = Output.table,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Update continuously, also with -o json or without a terminal."),
    ] = False,
) -> None:
    """Show rates, the worst lags, freshness of views, the cluster, and CPU and memory of the hub's
    processes; Ctrl-C ends it.

    Example: hub top --once -o json; hub top --watch -o json
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    home = load_settings().home
    processes = ProcessTable(home)
    if output is Output.json or once or not sys.stdout.isatty():
        pause(min(interval, 0.5))  # CPU time needs two readings
        console = Console(width=None if sys.stdout.isatty() else 200)
        looked(
            lambda: look(processes),
            lambda overview: (
                show_one(overview, output) if output is Output.json else console.print(screen(overview))
            ),
            watch and not once,
            output,
            interval,
        )
        return
    with Live(screen(look(processes)), screen=True, auto_refresh=False) as live:
        while True:
            pause(interval)
            try:
                live.update(screen(look(processes)), refresh=True)
            except HubError as error:  # a restarting server does not end the command
                live.update(Text(printable(error.message)), refresh=True)


class ProcessTable:
    """Table of the hub's processes on this machine, with their CPU time between two refreshes."""

    def __init__(self, home: Path) -> None:
        from hub.observability.cluster.processes import ProcessList as Table

        self.table = Table(home)
        self.costs()

    def costs(self) -> list[dict[str, Any]]:
        """Name, pid, ``cpu_percent`` (of one core) and ``memory_mb`` of each;
        nothing when the hub runs elsewhere."""
        return [asdict(each) for each in self.table.look()]


def cluster() -> dict[str, Any] | None:
    """Return the cluster summary; None if the user may not see it, or the server lacks the page."""
    try:
        answer = http.get("/api/cluster", timeout_s=TIMEOUT_S)
    except CallerError:
        return None
    names = ("state", "offline", "under_replicated", "away", "partitions", "bytes")
    return {**{name: answer[name] for name in names}, "brokers": len(answer["brokers"])}


def look(processes: ProcessTable) -> dict[str, Any]:
    """Return all data of one refresh. Raises PeerError when no server answers."""
    overview = http.get("/api/overview", timeout_s=TIMEOUT_S)
    rows = http.get("/api/lag", timeout_s=TIMEOUT_S)
    states = Counter(row["state"] for row in rows)
    return {
        "kafka": overview["kafka"],
        "connect": overview["connect"],
        "cluster": cluster(),
        "totals": overview["totals"],
        "topics": len(overview["topics"]) if overview["totals"]["events"] is not None else None,
        "states": {state.value: states[state.value] for state in LagState if states[state.value]},
        "worst": rows[:WORST],
        "views": [
            {name: view[name] for name in ("name", "state", "rows", "batch_ms", "lag")}
            for view in overview["views"]
        ],
        "processes": processes.costs(),
    }


def _percent(number: float | None) -> str:
    return format.UNKNOWN if number is None else f"{number:.0f}"


def _connect(connect: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Kafka Connect in the head of the screen; nothing where no worker is named."""
    if connect is None:
        return []
    failed = connect["failed"]
    state = "unknown" if failed is None else f"{failed} failed" if failed else "ok"
    return [("   Connect ", "dim"), (state, {"ok": "green", "unknown": "magenta"}.get(state, "bold red"))]


def _cluster(cluster: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the cluster's fields for the head of the screen; empty if unknown."""
    if cluster is None or cluster["offline"] is None:
        return []
    parts = [f"{cluster['offline']} offline"] if cluster["offline"] else []
    parts += [f"{cluster['under_replicated']} under-replicated"] if cluster["under_replicated"] else []
    parts += [f"{len(cluster['away'])} away"] if cluster["away"] else []
    colour = "bold red" if cluster["offline"] else "yellow" if parts else "green"
    return [("   brokers ", "dim"), (", ".join([str(cluster["brokers"]), *parts]), colour)]


_LAG_COLUMNS = ("consumer", "topic", "state", "records", "lag", "bound", "trend", "eta", "cause")


def _table(title: str, columns: Sequence[str], *, cut: bool = False, right: Sequence[str] = ()) -> Table:
    """Return an empty table. ``cut``: all columns but ``cause`` stay on one line."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=cut and name != "cause")
    return table


def _cell(value: object) -> Text:
    from rich.text import Text

    return value if isinstance(value, Text) else Text(printable(str(value)))


def screen(overview: Mapping[str, Any]) -> Group:
    """Render one refresh with rich."""
    from rich.console import Group
    from rich.text import Text

    kafka, totals = overview["kafka"], overview["totals"]
    head = Text.assemble(
        ("Kafka ", "dim"),
        (kafka["state"], "green" if kafka["state"] == "up" else "bold red"),
        ("   events/s ", "dim"),
        format.rate(totals["events_per_second"]),
        ("   topics ", "dim"),
        format.count(overview["topics"]),
        ("   views ", "dim"),
        "not known" if totals["views_live"] is None else f"{totals['views_live']}/{totals['views']} live",
        *_cluster(overview["cluster"]),
        *_connect(overview["connect"]),
    )
    states = Text("  ").join(
        Text(f"{state} {n}", COLORS[LEVEL[LagState(state)]]) for state, n in overview["states"].items()
    )
    lags = _table("Worst lags", _LAG_COLUMNS, cut=True)
    for row in overview["worst"]:
        cells = line(row) | {"state": Text(row["state"], COLORS[LEVEL[LagState(row["state"])]])}
        lags.add_row(*(_cell(cells[name]) for name in _LAG_COLUMNS))
    views = _table("Views", ("view", "state", "rows", "batch", "oldest unread"))
    for view in overview["views"]:
        lag = view["lag"]
        batch_s = None if view["batch_ms"] is None else view["batch_ms"] / 1000
        oldest = format.seconds(lag["seconds"] if lag else None)
        rows, batch = format.count(view["rows"]), format.seconds(batch_s)
        views.add_row(*map(_cell, (view["name"], view["state"], rows, batch, oldest)))
    numbers = ("pid", "cpu %", "memory MB")
    costs = _table("Processes", ("process", *numbers), right=numbers)
    for row in overview["processes"]:
        costs.add_row(row["process"], str(row["pid"]), _percent(row["cpu_percent"]), str(row["memory_mb"]))
    parts: list[Any] = [head, states, lags]
    parts += [views] if overview["views"] else []
    parts += [costs] if overview["processes"] else []
    return Group(*parts)
