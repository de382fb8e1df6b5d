"""[edge] Shared by the commands of ``hub connector``: the file, the client, options, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.config import Settings

if TYPE_CHECKING:
    from hub.connectors.connect_client import ConnectClient
    from hub.connectors.connectors_file import Connectors

EXIT_REFUSED, EXIT_CHANGES = 1, 2
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The connectors. Default: connectors.yaml of the project")
]
NameArgument = Annotated[str, typer.Argument(metavar="CONNECTOR", help="Its name")]


def client(settings: Settings) -> ConnectClient:
    """Return the client of the workers that the settings name; connects to nothing yet."""
    from hub.connectors.connect_client import ConnectClient

    return ConnectClient(settings.connect_workers)


def declared(settings: Settings, file: Path | None) -> Connectors:
    """Return the connectors of the file. Raises ConfigError."""
    from hub.connectors.connectors_file import load_connectors

    return load_connectors(settings.project.expanduser(), file)
