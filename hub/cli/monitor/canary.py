"""[edge] ``hub canary``: what became of the records that the server sends each second (GET /api/canary)."""

from __future__ import annotations

from typing import Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.observability import format

TIMEOUT_S = 10.0
COLUMNS = ("way", "state", "read", "waiting", "lost", "late", "repeated", "p50", "p99", "cause")
BAD = ("FAILING", "LOSING")

app = typer.Typer(
    help="Canaries: a record a second per partition, through Kafka, each mirror and a view.",
    rich_markup_mode=None,
    invoke_without_command=True,
    epilog="Example: hub canary --watch; hub canary view > views/hub_canary.yaml",
)


@app.callback()
def canary(
    context: typer.Context,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Show the arrival of canaries by path. They are sent if hub.yaml has `canary: true`.

    Exit code 0: they come, or it is not known; 1: they fail or are lost.

    Example: hub canary --watch
    """
    if context.invoked_subcommand is not None:
        return

    def show_report(body: dict[str, Any]) -> None:
        if output is Output.json:
            show_one(body, output)
            return
        if body["ways"]:
            show([line(row) for row in body["ways"]], output, COLUMNS)
        note(f"{body['state']}: {body['cause']}")

    body = looked(lambda: http.get("/api/canary", timeout_s=TIMEOUT_S), show_report, watch, output)
    raise typer.Exit(1 if body["state"] in BAD else 0)


@app.command("view")
def view() -> None:
    """Print the view that takes canaries through Spark and the store; it costs a small streaming query.

    Example: hub canary view > views/hub_canary.yaml
    """
    from hub.completeness.canary.probes import view_file

    print(view_file(load_settings().canary_topic), end="")


def line(row: dict[str, Any]) -> dict[str, object]:
    """Return a canary route as a table row; unknown values are a dash."""
    return {
        **{name: row[name] for name in ("way", "state", "cause")},
        **{name: format.count(row[name]) for name in ("read", "waiting", "lost", "late", "repeated")},
        **{name: format.seconds(row[f"{name}_s"]) for name in ("p50", "p99")},
    }
