"""[edge] ``hub top``: one live screen of the running hub: rates, the worst lags, views, and what its processes cost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.interrupt import pause
from hub.cli.lag import TIMEOUT_S, line
from hub.cli.output import Output, OutputOption, show_one
from hub.errors import HubError
from hub.observability.status import LagState
from hub.observability.web import format
from hub.runtime import running_hub

if TYPE_CHECKING:
    from rich.console import Group

WORST = 12
COLOURS = {
    **dict.fromkeys(("LOST", "AT_RISK", "STOPPED", "STALLED"), "bold red"),
    **dict.fromkeys(("REWOUND", "FALLING_BEHIND", "BEHIND"), "yellow"),
    **dict.fromkeys(("CATCHING_UP",), "cyan"),
    **dict.fromkeys(("UNKNOWN",), "magenta"),
    **dict.fromkeys(("OK",), "green"),
}

app = typer.Typer(rich_markup_mode=None)


@app.command("top")
def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Rates, the worst lags, the views' freshness, and processor and memory of the hub's processes; Ctrl-C ends it.

    Example: hub top --once -o json
    """
    from rich.console import Console
    from rich.live import Live

    home = load_settings().home
    processes = Processes(home)
    if output is Output.json or once or not sys.stdout.isatty():
        pause(min(interval, 0.5))  # processor time needs two looks
        seen = look(processes)
        if output is Output.json:
            show_one(seen, output)
        else:
            Console(width=None if sys.stdout.isatty() else 200).print(screen(seen))
        return
    with Live(screen(look(processes)), screen=True, auto_refresh=False) as live:
        while True:
            pause(interval)
            try:
                live.update(screen(look(processes)), refresh=True)
            except HubError as error:  # a server that starts again is no reason to end
                live.update(f"{error.message}", refresh=True)


class Processes:
    """The hub's processes on this machine, with their processor time between two looks."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.known: dict[tuple[str, int], Any] = {}
        self.costs()

    def costs(self) -> list[dict[str, Any]]:
        """Name, pid, ``cpu_percent`` (of one core) and ``memory_mb`` of each; nothing when the hub runs elsewhere."""
        import psutil

        hub = running_hub(self.home)
        found = {(name, each.pid): each for name, each in hub.processes.items()} if hub else {}
        # The same object must be asked again: it remembers the times of the last look.
        self.known = {key: self.known.get(key, each) for key, each in found.items()}
        rows = []
        for (name, pid), process in self.known.items():
            try:
                cpu, memory = process.cpu_percent(None), process.memory_info().rss
            except psutil.Error:
                continue
            rows.append({"process": name, "pid": pid, "cpu_percent": cpu, "memory_mb": memory // 1_000_000})
        return rows


def look(processes: Processes) -> dict[str, Any]:
    """Everything that is shown, as one value. Raises PeerError when no server answers."""
    overview = http.get("/api/overview", timeout_s=TIMEOUT_S)
    rows = http.get("/api/lag", timeout_s=TIMEOUT_S)
    states = Counter(row["state"] for row in rows)
    return {
        "kafka": overview["kafka"],
        "connect": overview["connect"],
        "totals": overview["totals"],
        "topics": len(overview["topics"]),
        "states": {state.value: states[state.value] for state in LagState if states[state.value]},
        "worst": rows[:WORST],
        "views": [
            {name: view[name] for name in ("name", "state", "rows", "batch_ms", "lag")}
            for view in overview["views"]
        ],
        "processes": processes.costs(),
    }


def _connect(connect: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Kafka Connect in the head of the screen; nothing where no worker is named."""
    if connect is None:
        return []
    failed = connect["failed"]
    said = "unknown" if failed is None else f"{failed} failed" if failed else "ok"
    return [("   Connect ", "dim"), (said, {"ok": "green", "unknown": "magenta"}.get(said, "bold red"))]


def screen(seen: Mapping[str, Any]) -> Group:
    """The look as rich draws it."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    kafka, totals = seen["kafka"], seen["totals"]
    head = Text.assemble(
        ("Kafka ", "dim"),
        (kafka["state"], "green" if kafka["state"] == "up" else "bold red"),
        ("   events/s ", "dim"),
        format.rate(totals["events_per_second"]),
        ("   topics ", "dim"),
        str(seen["topics"]),
        ("   views ", "dim"),
        f"{totals['views_live']}/{totals['views']} live",
        *_connect(seen["connect"]),
    )
    states = Text("  ").join(Text(f"{state} {n}", COLOURS[state]) for state, n in seen["states"].items())
    lags = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Worst lags", title_justify="left")
    for name in ("consumer", "topic", "state", "records", "lag", "bound", "trend", "eta", "cause"):
        lags.add_column(name, overflow="ellipsis", no_wrap=name != "cause")
    for row in seen["worst"]:
        cells = line(row)
        lags.add_row(
            *(
                Text(str(cells[name]), COLOURS[row["state"]] if name == "state" else "")
                for name in (
                    "consumer",
                    "topic",
                    "state",
                    "records",
                    "lag",
                    "bound",
                    "trend",
                    "eta",
                    "cause",
                )
            )
        )
    views = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Views", title_justify="left")
    for name in ("view", "state", "rows", "batch", "oldest unread"):
        views.add_column(name)
    for view in seen["views"]:
        lag = view["lag"]
        batch_s = None if view["batch_ms"] is None else view["batch_ms"] / 1000
        views.add_row(
            *map(
                Text,
                (
                    view["name"],
                    view["state"],
                    format.count(view["rows"]),
                    format.seconds(batch_s),
                    format.seconds(lag["seconds"] if lag else None),
                ),
            )
        )
    costs = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Processes", title_justify="left")
    for name in ("process", "pid", "cpu %", "memory MB"):
        costs.add_column(name, justify="left" if name == "process" else "right")
    for row in seen["processes"]:
        costs.add_row(row["process"], str(row["pid"]), f"{row['cpu_percent']:.0f}", str(row["memory_mb"]))
    parts: list[Any] = [head, states, lags]
    parts += [views] if seen["views"] else []
    parts += [costs] if seen["processes"] else []
    return Group(*parts)
