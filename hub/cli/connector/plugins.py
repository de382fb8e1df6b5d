"""[edge] ``hub connector plugins`` and ``add-plugin``."""

from __future__ import annotations

from typing import Annotated

import typer

from hub.cli.connector.context import client
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
