"""[edge] ``hub sink``: records and rows to other systems (docs/how-to/send-events-out.md)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings, open_home
from hub.cli.governing.flow_gate import refuse_flows
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.config import Settings
from hub.errors import HubError, NotFound
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.sinks.note import SinkRow
    from hub.sinks.sink import SinkParts
    from hub.sinks.sinks_file import SinkEntry

app = typer.Typer(
    help="Sinks: records of topics and rows of views, chosen by content, sent to other systems.",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Examples: hub sink validate; hub sink test large-payments; hub sink ls",
)
NameArgument = Annotated[str, typer.Argument(help="The sink, by its name in sinks.yaml")]
_COLUMNS = ("sink", "state", "from", "kind", "to", "lag_records", "lag_s", "delivered", "refused", "trouble")


@app.command("ls")
def ls(output: OutputOption = Output.table) -> None:
    """List the sinks of sinks.yaml: state, lag, events delivered and refused, troubles.

    The state is UNKNOWN while no worker reports. Exit code 1 while a sink is not well, or late.

    Example: hub sink ls
    """
    rows = _rows(load_settings())
    show([each.as_json() for each in rows], output, _COLUMNS)
    raise typer.Exit(1 if any(_is_bad(each) for each in rows) else 0)


@app.command("show")
def show_sink(name: NameArgument, output: OutputOption = Output.table) -> None:
    """Show one sink: source, condition, target and state. Exit code as of `hub sink ls`.

    Example: hub sink show large-payments
    """
    settings = load_settings()
    found = next((each for each in _rows(settings) if each.note.sink == name), None)
    if found is None:
        _entry(settings, name)
        raise NotFound(f'there is no sink "{name}"', code="HUB-1821")
    show_one(found.as_json(), output)
    raise typer.Exit(1 if _is_bad(found) else 0)


@app.command("validate")
def validate(output: OutputOption = Output.table) -> None:
    """Check sinks.yaml against topics, schemas and grants: SQL, columns, variables, owners. Sends nothing.

    Exit code 1: a sink cannot be used.

    Example: hub sink validate
    """
    from hub.sinks.sinks_file import SINKS_FILE, load_sinks
    from hub.sinks.worker import sink_parts

    settings = load_settings()
    entries, wrong = load_sinks(settings.project / SINKS_FILE)
    parts = sink_parts(settings)
    rows = [_checked(parts, name, entry) for name, entry in entries.items()]
    rows += [{"sink": name or "all", "result": f"{error}"} for name, error in wrong.items()]
    show(rows, output, ("sink", "result", "columns"))
    refuse_flows(settings, "sink")
    raise typer.Exit(1 if any(row["result"] != "ok" for row in rows) else 0)


@app.command("pause")
def pause(name: NameArgument) -> None:
    """Stop a sink of this home; it keeps its position.

    Example: hub sink pause large-payments
    """
    _set_paused(name, paused=True)
    note(f"{name} stops within seconds and keeps its position. Resume it: hub sink resume {name}")


@app.command("resume")
def resume(name: NameArgument) -> None:
    """Resume a paused sink of this home at its position.

    Example: hub sink resume large-payments
    """
    _set_paused(name, paused=False)
    note(f"{name} continues. Its state: hub sink show {name}")


@app.command("run")
def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SINK]...", help="Only these sinks; none: all")
    ] = None,
) -> None:
    """Deliver the sinks of sinks.yaml until a stop signal comes; `hub up` does it, too.

    Run one worker of a sink: a second one takes over from the first. Changes of sinks.yaml apply at once.

    Example: hub sink run
    """
    from hub.formats.admission import admit
    from hub.kafka.contact.notes import note_for_ever
    from hub.runtime import install_stop_signals, log_to_stderr
    from hub.sinks.worker import run as deliver

    log_to_stderr()
    settings = load_settings()
    open_home(settings)
    for name in names or ():
        _entry(settings, name)
    note_for_ever(settings.home, "sinks")
    admit(settings, "sinks")
    deliver(settings, install_stop_signals(), names or ())


@app.command("test")
def send_one(name: NameArgument, output: OutputOption = Output.table) -> None:
    """Send the newest record that the sink takes to its webhook, once, and show the answer.

    For other targets it shows the event alone: these hold each record once. The position
    stays. Exit code 1: the receiver does not take it.

    Example: hub sink test large-payments
    """
    import os

    from hub.sinks.events import event_text
    from hub.sinks.targets.webhook import WebhookSink
    from hub.sinks.trial import newest_event
    from hub.sinks.worker import sink_parts

    settings = load_settings()
    entry = _entry(settings, name)
    parts = sink_parts(settings)
    parts.owners.act(name, entry)
    event = newest_event(parts, entry)
    shown: dict[str, Any] = {"id": event.id, "event": event_text(event).decode()}
    if entry.webhook is None:
        show_one({**shown, "answer": f"not sent: a trial is for webhooks, not for {entry.kind}"}, output)
        return
    target = WebhookSink(name, entry.webhook, os.environ, link_local=settings.sink_link_local)
    try:
        answer = target.request(event, f"test-{time.time_ns()}-{event.id}")
    finally:
        target.close()
    show_one({**shown, "status": answer.status, "answer": answer.text}, output)
    raise typer.Exit(0 if answer.status is not None and 200 <= answer.status < 300 else 1)


def _rows(settings: Settings) -> list[SinkRow]:
    """Return all sinks with their states. Raises NotFound (HUB-1821) without a file."""
    from hub.sinks.note import rows_of
    from hub.sinks.sinks_file import SINKS_FILE

    path = settings.project / SINKS_FILE
    if not path.exists():
        raise NotFound(
            f"there is no {SINKS_FILE}: {path}",
            hint="docs/how-to/send-events-out.md has an example",
            code="HUB-1821",
        )
    return rows_of(settings.project, settings.home, epoch_ms())


def _is_bad(row: SinkRow) -> bool:
    from hub.sinks.note import BAD

    return row.note.state in (*BAD, "UNKNOWN") or row.is_late


def _entry(settings: Settings, name: str) -> SinkEntry:
    """Return an entry. Raises ConfigError, NotFound (HUB-1821)."""
    from hub.sinks.sinks_file import SINKS_FILE, entry_named, load_sinks

    return entry_named(name, *load_sinks(settings.project / SINKS_FILE))


def _set_paused(name: str, *, paused: bool) -> None:
    from hub.sinks.note import pause_sink

    settings = load_settings()
    _entry(settings, name)
    open_home(settings)
    pause_sink(settings.home, name, paused=paused)


def _checked(parts: SinkParts, name: str, entry: SinkEntry) -> Mapping[str, Any]:
    """Return the row of a sink: ``ok``, or the error with its hint."""
    from hub.sinks.trial import check

    try:
        parts.owners.act(name, entry)
        columns = check(parts, name, entry)
    except HubError as error:
        return {"sink": name, "result": f"{error}"}
    return {"sink": name, "result": "ok", "columns": ", ".join(columns)}
