"""[edge] The command line: one folder per group of commands, loaded when called, so that ``hub --help`` stays
fast.

Data goes to standard output, as a table or as JSON (``-o json``); everything else to standard error. A
HubError is one message, its hint and exit code 1; a wrong command line is exit code 2, a closed pipe 141.
Flags become ``HUB_*`` variables, which child processes inherit and ``hub.config`` reads.

    terminal/   tables, progress, ``--watch``, Ctrl-C
    audited.py  changes in the access log
    context.py  settings of this call      http.py  the running server     git.py  a folder at a revision
    platform/   hub init, up, down, demo, status, logs, upgrade, config, doctor, access; the hub's processes
    topic/      hub topic, group, dlq, outbox     schema/  hub schema, kek            view/   hub view
    query/      hub query, sql, watch, mcp      mirror/  hub mirror             connector/  hub connector
    backup/     hub backup, restore            lake/   hub lake                erase/  hub erase
    governing/  hub governance, access request
    monitor/    hub lag, latency, lineage, completeness, canary, alert, top
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hub.cli.terminal.interrupt import remember_interrupts
from hub.errors import HubError

# noun -> (module:attribute, help). Empty help hides it: those are the hub's own processes.
COMMANDS = {
    "init": ("hub.cli.platform.init:init", "Make a project: topics, schemas, views, tests."),
    "demo": (
        "hub.cli.platform.demo:app",
        "Start everything with sample data, and watch live events become a view.",
    ),
    "up": ("hub.cli.platform.up:up", "Start Kafka, the server and the materializers for a project."),
    "down": ("hub.cli.platform.up:down", "Stop what up or demo started, and nothing else."),
    "status": ("hub.cli.platform.status:status", "What runs and what does not, in one screen."),
    "logs": ("hub.cli.platform.logs:logs", "What the hub's processes write, each line with its process."),
    "upgrade": ("hub.cli.platform.upgrade:upgrade", "What this release does with the state of a hub."),
    "config": ("hub.cli.platform.config:app", "The settings in use, and where each comes from."),
    "doctor": (
        "hub.cli.platform.doctor:doctor",
        "Check Java, jars, ports, memory, disk, Kafka, registry and views.",
    ),
    "schema": ("hub.cli.schema.commands:app", "Schemas: plan, apply, diff, search, register, check."),
    "kek": ("hub.cli.schema.kek:app", "Keys of field encryption: list, show, create, rotate, delete."),
    "topic": ("hub.cli.topic.commands:app", "Topics: the tree, its plan, applying it, who owns what."),
    "group": ("hub.cli.topic.group:app", "Consumer groups: positions shown and reset."),
    "mirror": (
        "hub.cli.mirror.commands:app",
        "Mirrors: topic trees in other clusters; plan, status, verify, failover.",
    ),
    "outbox": (
        "hub.cli.topic.outbox:app",
        "Events of a database's outbox table to Kafka: set-up, relay, state.",
    ),
    "sink": ("hub.cli.topic.sink:app", "Sinks: records of topics and views, sent to other systems."),
    "webhook": ("hub.cli.topic.webhook:app", "Webhooks: signed requests of other systems, as events."),
    "connector": (
        "hub.cli.connector.commands:app",
        "Connectors of Kafka Connect: plan, apply, drift, pause, restart, offsets, plugins.",
    ),
    "lake": (
        "hub.cli.lake.commands:app",
        "Iceberg tables of topics: list, write, verify, maintain.",
    ),
    "dlq": ("hub.cli.topic.dlq:app", "Dead-letter records: list, show, repair, replay."),
    "backup": (
        "hub.cli.backup.commands:app",
        "Backups of topics, schemas and groups: save what is new, list runs, verify.",
    ),
    "restore": ("hub.cli.backup.restore:restore", "Restore a backup into an empty or another cluster."),
    "governance": (
        "hub.cli.governing.governance:app",
        "Who owns what, which classified fields it holds, where they flow, who reads them.",
    ),
    "erase": (
        "hub.cli.erase.commands:app",
        "Forget a person: plan, request, approve, follow, prove.",
    ),
    "view": ("hub.cli.view.commands:app", "Views: list, check, test, plan, explain, verify, roll back."),
    "import": (
        "hub.cli.view.import_sql:app",
        "Import statements of ksqlDB or Flink SQL into a project.",
    ),
    "query": ("hub.cli.query.query:app", "Read rows of a view by key or by an indexed field."),
    "sql": ("hub.cli.query.sql:app", "SQL over views and recent events: a shell, or a statement."),
    "mcp": ("hub.cli.query.mcp_server:app", "Serve the hub to agents by MCP: topics, views, lag, SQL."),
    "watch": ("hub.cli.query.watch:app", "Follow the changes of a view as they happen."),
    "lag": ("hub.cli.monitor.lag:app", "How late every group and view is, and why."),
    "latency": ("hub.cli.monitor.latency:latency", "How long events take until views show them."),
    "lineage": ("hub.cli.monitor.lineage:lineage", "What events go through, and why something is late."),
    "completeness": (
        "hub.cli.monitor.completeness:app",
        "Count written and arrived records; name those that are missing.",
    ),
    "canary": ("hub.cli.monitor.canary:app", "What became of a record a second, on every way."),
    "alert": (
        "hub.cli.monitor.alert:app",
        "What breaks its promise: alerts, silences, rules, tests of channels.",
    ),
    "access": (
        "hub.cli.platform.access:app",
        "Who may do what: access.yaml explained and checked, new passwords and tokens.",
    ),
    "top": ("hub.cli.monitor.top:app", "A live screen: rates, the worst lags, views, the hub's processes."),
    "serve": ("hub.cli.platform.processes:serve", ""),
    "check-conformance": ("hub.cli.platform.processes:check_conformance", ""),
    "apply-changelogs": ("hub.cli.platform.processes:apply_changelogs", ""),
    "materialize": ("hub.cli.platform.processes:materialize", ""),
}

# Former words of commands -> the words of today. Typing a former one is an error that names the new one.
RENAMED = {
    "audit": "completeness",
    "audit views": "view verify",
    "topic audit": "topic conformance",
    "audit-topics": "check-conformance",
}

_EXIT_CLOSED_PIPE = 128 + 13  # as a shell reports a program that SIGPIPE ended


class LazyGroup(TyperGroup):
    """Lists every command from the table above and imports only the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            name: TyperCommand(name, help=text, hidden=not text) for name, (_, text) in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for former in (" ".join(args[:2]), args[0]):
            if former in RENAMED:
                ctx.fail(f"`hub {former}` is now `hub {RENAMED[former]}`.")
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """Import and return one command of ``COMMANDS``, with the commands below it."""
    place, text = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(rich_markup_mode=None)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name, command.hidden = name, not text
    command.help = command.help or text
    from hub.cli.audited import with_log  # most commands load as much anyway

    with_log(name, command)
    return command


app = typer.Typer(
    name="hub",
    cls=LazyGroup,
    help="An event-log-centric integration hub: typed events in one log, live views out of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from hub.cli.terminal.versions import hub_version

        print(f"hub {hub_version()}")
        raise typer.Exit


@app.callback()
def options(
    project: Annotated[
        Path | None,
        typer.Option(
            help="Folder with hub.yaml, topics.yaml, schemas/ and views/. Default: this folder; if it is "
            "not a project folder, the project of the hub that runs on --home, whose ports are used."
        ),
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of the hub's state. Default: .hub")] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the hub's version. `hub doctor` also prints those of Python, Spark and Kafka.",
        ),
    ] = False,
) -> None:
    for variable, value in (("HUB_PROJECT", project), ("HUB_HOME", home)):
        if value is not None:
            os.environ[variable] = str(value.absolute())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 HubError (one clear message), 2 wrong usage, 130
    interrupted, 141 closed pipe (``head`` has read enough). After 130 and 141 the command may have stopped
    halfway, as a program that SIGPIPE ends.
    """
    remember_interrupts()
    try:
        code = _run(arguments)
        # The interpreter does it at its end, and complains of a closed pipe. Of output that was closed
        # before, there is none.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        code = _EXIT_CLOSED_PIPE
    sys.exit(code)


def _run(arguments: list[str] | None) -> Any:
    """Run the command and return the exit code. Raises BrokenPipeError."""
    try:
        app(arguments, prog_name="hub")
    except HubError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:
        # Typer and rich make an exit code 1 of it, which is that of an error with a message.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        return ended.code
    return 0


def _hush() -> None:
    """Redirect a closed pipe to the null device. Python writes remaining output again at exit and would
    report an error.
    """
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(error: HubError) -> int:
    """Say what failed and the way out on standard error; the exit code."""
    from hub.cli.terminal.rows import printable

    message, hint = (printable(text or "", keep="\n\t") for text in (error.message, error.hint))
    bold, red, end = ("\x1b[1m", "\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "", "")
    print(f"{bold}{red}Error{end} {error.code}: {message}", file=sys.stderr)
    if hint:
        print(f"{bold}Hint{end}: {hint}", file=sys.stderr)
    return 1
