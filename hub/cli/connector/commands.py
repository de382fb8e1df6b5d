"""[edge] ``hub connector``: connectors of Kafka Connect, declared in connectors.yaml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from hub.cli.connector.context import client
from hub.cli.connector.control import logs, offsets_app, pause, restart, resume
from hub.cli.connector.init import init
from hub.cli.connector.planning import apply, drift, list_connectors, plan, validate
from hub.cli.connector.truncated import truncated
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show


def plugins(
    every: Annotated[
        bool, typer.Option("--all", help="Converters and transforms too, not connectors alone")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """List the plugins of Kafka Connect: class, kind, version. Example: hub connector plugins --all"""
    found = client(load_settings()).plugins()
    rows = [each for each in found if every or each.get("type") in ("source", "sink")]
    show(
        sorted(rows, key=lambda each: (each.get("type", ""), each.get("class", ""))),
        output,
        ("class", "type", "version"),
    )


def add_plugin(
    coordinate: Annotated[str, typer.Argument(metavar="GROUP:ARTIFACT:VERSION", help="On Maven Central")],
) -> None:
    """Lock a plugin with its dependencies and their checksums, for the embedded worker.

    It writes connect-plugins/ARTIFACT.toml, which belongs into git; the worker loads it at its next start.
    Example: hub connector add-plugin io.debezium:debezium-connector-mysql:3.6.1.Final
    """
    from hub.connectors.plugins import add_plugin as add

    note(f"Resolving {coordinate} ...")
    file, jars = add(load_settings(), coordinate)
    note(f"{file}: {len(jars)} jars, {sum(jar.size for jar in jars) / 1e6:.1f} MB, each with its sha256.")
    note(
        "The embedded worker loads it at its next start: hub down; hub up. Other workers need it "
        "in their plugin.path."
    )


app = typer.Typer(
    help="Connectors of Kafka Connect: declared in connectors.yaml, planned, applied, operated.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub connector plan && hub connector apply; hub connector ls; hub "
    "connector restart crm --failed",
)

# In the order of `--help`.
COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "ls": list_connectors,
    "validate": validate,
    "plan": plan,
    "apply": apply,
    "drift": drift,
    "pause": pause,
    "resume": resume,
    "restart": restart,
    "logs": logs,
    "truncated": truncated,
    "plugins": plugins,
    "add-plugin": add_plugin,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(offsets_app, name="offsets")
