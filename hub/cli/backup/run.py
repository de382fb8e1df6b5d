"""[edge] ``hub backup run``: save what is new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.backup.places import (
    BootstrapOption,
    ClusterOption,
    KeyOption,
    PatternsArgument,
    RegistryOption,
    open_cluster,
    open_place,
    read_key,
)
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.terminal.progress import counted
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.backup.saving.take import RunReport
    from hub.backup.storage.last_run import LastRun

_DEFINITIONS = ("topics.yaml", "policies.yaml", "mirrors.yaml", "schemas/schemas.yaml")
_FOLDERS = ("views", "views/tests", "views/functions")
_LARGEST_FILE, _MOST_FILES = 1 << 20, 1_000
_FEW = 10
_EXIT_TROUBLE = 1


def run(
    patterns: PatternsArgument = None,
    to: Annotated[
        str | None,
        typer.Option(help="Folder, or s3://BUCKET/PATH. Default: backup_to of hub.yaml"),
    ] = None,
    key: KeyOption = None,
    from_start: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Read these topics from their first record; repeatable"),
    ] = None,
    schemas: Annotated[bool, typer.Option(help="Save the schema registry")] = True,
    cluster: ClusterOption = None,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Save topics, schemas, groups, access rules and the project's definitions. Reads only what is new since
    the last run.

    A run that was killed leaves the backup as it was; the next one continues. Exit code 1: something could
    not be saved to its end; the rest is saved. Example: hub backup run --to s3://acme-backup/hub 'shop.**'
    """
    from hub.backup.saved_registry import check_registry
    from hub.backup.saving.take import RunRequest, take
    from hub.backup.storage.last_run import keep
    from hub.backup.storage.vault import open_or_make

    settings = load_settings()
    store, secret = open_place(settings, to, "--to"), read_key(settings, key)
    source = open_cluster(settings, cluster, bootstrap, registry)
    source.kafka.check_door()
    identity = source.kafka.cluster_id()
    if schemas and source.registry is not None:
        check_registry(source.registry)
    request = RunRequest(
        tuple(patterns or ()), tuple(from_start or ()), dict(definitions(settings.project)), schemas
    )
    with store.locked() as alone, counted("Reading records") as progress:
        vault = open_or_make(store, secret, identity, epoch_ms())
        report = take(source, vault, request, alone=alone, progress=progress)
    with suppress(OSError):  # the backup is whole without the note
        keep(settings.home, _note_of(report, store.place))
    show_one(_row(report, store.place), output)
    for line in _remarks(report):
        note(line)
    if report.troubles:
        raise typer.Exit(_EXIT_TROUBLE)


def _note_of(report: RunReport, place: str) -> LastRun:
    from hub.backup.storage.last_run import LastRun

    manifest = report.manifest
    return LastRun(place, manifest.number, manifest.taken_at_ms, manifest.stored_bytes, len(report.troubles))


def definitions(project: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of the project's definitions. Files that may hold secrets are not among them."""
    paths = [project / name for name in _DEFINITIONS]
    for folder in _FOLDERS:
        paths += sorted(each for each in (project / folder).glob("*") if each.is_file())
    for path in paths[:_MOST_FILES]:
        if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
            yield path.relative_to(project).as_posix(), path.read_text(encoding="utf-8", errors="replace")


def _row(report: RunReport, place: str) -> dict[str, object]:
    manifest = report.manifest
    return {
        "run": manifest.number,
        "place": place,
        "topics": len(manifest.topics),
        "groups": len(manifest.groups),
        "schemas": None if manifest.registry is None else len(manifest.registry.versions),
        "new_records": report.records,
        "new_mb": round(report.raw_bytes / 1e6, 1),
        "stored_mb": round(report.stored_bytes / 1e6, 1),
        "total_records": manifest.records,
        "total_stored_mb": round(manifest.stored_bytes / 1e6, 1),
        "seconds": round(report.seconds, 1),
        "resumed": report.resumed,
    }


def _remarks(report: RunReport) -> Iterator[str]:
    if report.resumed:
        yield "The run before was killed; this one continued it."
    for tp, reason in list(report.from_start.items())[:_FEW]:
        yield f"! {tp.topic} partition {tp.partition} was read from its start again: {reason}"
    for tp, first, end in report.gaps[:_FEW]:
        yield (
            f"! {tp.topic} partition {tp.partition}: offsets {first} to {end - 1} were deleted "
            "before they were saved"
        )
    if report.gaps:
        yield "  Keep records longer, or run more often than they are deleted."
    for name, reason in list(report.troubles.items())[:_FEW]:
        yield f"! {name} is not saved to its end: {reason}"
    if report.troubles:
        yield (
            "  What was saved before stays. To read a topic from its first record: hub backup "
            "run --from-start TOPIC"
        )
