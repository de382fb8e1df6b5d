"""[edge] ``hub schema rebuild``: rebuild the registry's SQL tables from its log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one

_DOING = {"read": "read the log", "write": "write tables"}


def rebuild(
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="SQLAlchemy URL: sqlite:///file.db, postgresql://… Default: store_url, or "
            "registry.db in the home",
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Rebuild the tables registry_schemas, _versions, _settings and _fields from the log in one transaction.

    For search and joins by other tools; the hub itself reads none of them. Needs Kafka, and no server. The
    same log gives the same tables. Example: hub schema rebuild --store postgresql://hub@db/hub
    """
    from hub.kafka import own_cluster
    from hub.schema_registry.server.sql_tables import RegistryTables

    settings = load_settings()
    url = store or settings.store_url
    if url is None:
        settings.home.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{settings.home.absolute() / 'registry.db'}"
    tables = RegistryTables(url)
    try:
        with _bars() as progress:
            rebuilt = tables.rebuild(own_cluster(settings), progress=progress)
        if rebuilt.not_described:
            note(
                f"{rebuilt.not_described} versions cannot be read as schemas here: they are "
                "there without fields."
            )
        if rebuilt.unreadable or rebuilt.conflicts:
            note(
                f"The log has {rebuilt.unreadable} records that are not facts and "
                f"{rebuilt.conflicts} that contradict "
                "earlier ones; both are left out, as in the registry."
            )
        show_one({"store": tables.store, **asdict(rebuilt)}, output)
    finally:
        tables.close()


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on standard error for reading and one for writing; silent if that is not a
    terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _step, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {step: bar.add_task(text, total=None) for step, text in _DOING.items()}
        yield lambda step, done, total: bar.update(tasks[step], completed=done, total=total)
