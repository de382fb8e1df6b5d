"""[edge] ``hub schema``: the schema registry from the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.schema import backup as schema_backup
from hub.cli.schema import diff as schema_diff
from hub.cli.schema import explain, rebuild
from hub.cli.schema import folder as schema_folder
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import ConfigError, NotFound, did_you_mean
from hub.schema_registry.client.registry_client import RegistryClient

app = typer.Typer(
    help="Schemas: list, show, diff, search; a folder of them in git; register, infer, back up.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub schema ls; hub schema plan && hub schema apply; hub schema diff shop.orders-value; "
    "hub schema level shop.orders-value FULL",
)
for command in (
    schema_folder.plan,
    schema_folder.apply,
    schema_folder.check,
    explain.explain,
    schema_diff.diff,
    schema_diff.search,
    schema_diff.infer,
    schema_backup.backup,
    schema_backup.restore,
    rebuild.rebuild,
):
    app.command()(command)


@app.command("ls")
def list_subjects(output: OutputOption = Output.table) -> None:
    """Every subject with its latest version and its effective compatibility level.
    Example: hub schema ls -o json"""
    from contextlib import closing

    from hub.schema_registry.client.remote import RemoteRegistry

    with closing(RemoteRegistry(load_settings().registry)) as registry:
        latest = registry.latest()
        levels = registry.levels([subject for subject, _ in latest])
    rows = [
        {
            "subject": subject,
            "version": each.version,
            "id": each.schema_id,
            "compatibility": levels[subject],
        }
        for subject, each in latest
    ]
    show(rows, output, ("subject", "version", "id", "compatibility"))


@app.command("show")
def show_schema(
    subject: str, version: Annotated[int | None, typer.Option(help="Default: the latest")] = None
) -> None:
    """Print the text of a schema, as it is registered; then which fields are encrypted, and with which keys.

    Example: hub schema show shop.orders-value --version 2
    """
    from hub.schema_registry.contracts.encrypted_fields import encrypted_fields

    registry = _registry()
    _exists(registry, subject)
    found = [each for each in registry.versions(subject) if version is None or each.version == version]
    if not found:
        raise NotFound(f'subject "{subject}" has no version {version}', hint=f"hub schema versions {subject}")
    print(found[-1].schema)
    for each in encrypted_fields(registry.source(found[-1].id)):
        note(f'Encrypted: {each.field}, by rule "{each.rule}" with KEK "{each.kek}" and {each.algorithm}.')


@app.command()
def versions(subject: str, output: OutputOption = Output.table) -> None:
    """List the versions of a subject, oldest first.

    Example: hub schema versions shop.orders-value
    """
    registry = _registry()
    _exists(registry, subject)
    rows = [
        {"version": each.version, "id": each.id, "schema": each.schema} for each in registry.versions(subject)
    ]
    show(rows, output)


@app.command()
def register(subject: str, file: Path, output: OutputOption = Output.table) -> None:
    """Register the schema in FILE: .json is JSON Schema, .proto Protobuf, all else Avro. Prints its id; the
    same schema again gives the same id.

    Example: hub schema register shop.orders-value order.avsc
    """
    from hub.schema_registry.folder.load import SUFFIXES

    schema_id = _registry().register(subject, _read(file), SUFFIXES.get(file.suffix, "AVRO"))
    show_one({"subject": subject, "id": schema_id}, output)


@app.command()
def delete(
    subject: str,
    permanent: Annotated[bool, typer.Option(help="After a first, soft delete: for good")] = False,
) -> None:
    """Delete a subject: softly first (events stay readable), then with --permanent.

    Example: hub schema delete shop.orders-value
    """
    note(f"Deleted versions: {', '.join(map(str, _registry().delete(subject, permanent=permanent)))}")


@app.command()
def level(
    subject: str,
    to: Annotated[str | None, typer.Argument(metavar="LEVEL", help="NONE, BACKWARD, FULL …")] = None,
) -> None:
    """Show or set a subject's compatibility level.

    Example: hub schema level shop.orders-value FULL
    """
    registry = _registry()
    if to is not None:
        registry.set_compatibility(subject, to.upper())
    print(registry.compatibility(subject))


def _registry() -> RegistryClient:
    return RegistryClient(load_settings().registry)


def _exists(registry: RegistryClient, subject: str) -> None:
    known = registry.subjects()
    if subject not in known:
        raise NotFound(
            f'subject "{subject}" does not exist',
            hint=did_you_mean(subject, known, "hub schema ls"),
        )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the schema cannot be read: {error}", where=str(file)) from None
