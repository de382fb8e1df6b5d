"""[edge] ``hub connector``: connectors of Kafka Connect, declared in connectors.yaml."""

from __future__ import annotations

from collections.abc import Callable

import typer

from hub.cli.connector.control import logs, offsets_app, pause, restart, resume
from hub.cli.connector.init import init
from hub.cli.connector.planning import apply, drift, list_connectors, plan, validate
from hub.cli.connector.plugins import add_plugin, plugins
from hub.cli.connector.truncated import truncated

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
