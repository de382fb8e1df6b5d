"""[edge] ``hub upgrade --check``: how this release handles the state of a hub. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from re import sub
from typing import Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.config import Settings
from hub.config.views import is_parquet
from hub.errors import CallerError, PeerError
from hub.formats import home as home_stamps
from hub.formats.deprecations import DeprecatedKey, deprecated_keys
from hub.formats.report import FoundState, UnusedFiles, UpgradeReport, require_no_refusal
from hub.formats.stamps import FIRST
from hub.formats.table import FORMATS, ORDER, STORE, DurableFormat

_KAFKA_S = 5.0
_ALL_TOPICS = "records of the hub's topics"


def upgrade(
    check: Annotated[bool, typer.Option("--check", help="Show what this release would do")] = False,
    project: Annotated[Path | None, typer.Option(help="The project folder")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show how this release handles the state of a hub: nothing, an upgrade, a rebuild, or a refusal.

    Changes nothing, so it may run while the hub of the earlier release runs. Exit code 1: some state is
    refused, or its version is unknown.

    Example: hub upgrade --check --project my-hub
    """
    if not check:
        raise CallerError(
            "the state is upgraded by the processes themselves, when they start",
            hint="see what that will do: hub upgrade --check",
            code="HUB-1152",
        )
    settings = load_settings(project=project)
    states = [*local_states(settings), *topic_states(settings)]
    report = UpgradeReport(states, warn_of_deprecations(settings.project), unused_files(settings))
    if output is Output.json:
        show_one(report.as_json(), output)
    else:
        columns = ("format", "place", "found", "version", "action", "detail")
        show([each.as_json() for each in report.states], output, columns)
        for each in report.unused:
            note(f"Unused: {each}")
        note(f"Rollback after a start of this release: {report.rollback_text}.")
        note(f"Order on several machines: {', '.join(ORDER)} (docs/how-to/upgrade.md).")
    if report.refused or any(each.found is None for each in states):
        raise typer.Exit(1)


def warn_of_deprecations(project: Path) -> list[DeprecatedKey]:
    """Print a warning for each deprecated key of a project's files, and return them."""
    found = deprecated_keys(project.expanduser())
    for each in found:
        note(f"! {each}")
    return found


def require_local_formats(settings: Settings) -> None:
    """Raise ConfigError (HUB-1150) that names all state on this machine which this release does not read."""
    require_no_refusal(local_states(settings))


def require_topic_formats(settings: Settings) -> None:
    """Raise ConfigError (HUB-1150) that names the records in Kafka which this release does not read."""
    require_no_refusal(topic_states(settings))


def local_states(settings: Settings) -> list[FoundState]:
    """Return the state in the home and in the stores."""
    return [*_in_home(settings.home), *_of_views(settings.checkpoints), *_of_stores(settings)]


def _in_home(home: Path) -> Iterator[FoundState]:
    noted = home_stamps.read_stamps(home)
    for format in (each for each in FORMATS if each.noted == "home"):
        files = [path for pattern in patterns(format) for path in home.glob(pattern)]
        if files or format.name in noted:
            size = sum(path.stat().st_size for path in files)
            names = ", ".join(str(path) for path in files) or str(home)
            yield FoundState(format, names, noted.get(format.name, FIRST), size_bytes=size)


def _of_views(checkpoints: Path) -> Iterator[FoundState]:
    if not checkpoints.exists():
        return
    from hub.materializers.engine.plans.checkpoint_note import noted_versions

    for format, found, path in noted_versions(checkpoints):
        size = sum(each.stat().st_size for each in path.parent.rglob("*") if each.is_file())
        why = "" if found else "it cannot be read now: is its hub running?"
        yield FoundState(format, str(path), found, why, size)


def _of_stores(settings: Settings) -> Iterator[FoundState]:
    from hub.materializers.stores.open_store import noted_version, shown

    for url in settings.store_urls.values():
        place = f'store "{shown(url)}"'
        try:
            stamp = noted_version(url, settings)
        except PeerError as error:
            yield FoundState(STORE, place, None, error.message)
            continue
        if stamp is not None:
            yield FoundState(STORE, place, stamp)


def unused_files(settings: Settings) -> list[UnusedFiles]:
    """Return the folders of views in Parquet stores, which Iceberg tables replaced."""
    found = []
    for name, url in settings.stores.items():
        if not is_parquet(url):
            continue
        folder = Path(url.partition("///")[2] or settings.home / "stores" / name)
        for manifest in sorted(folder.glob("*/manifest.json")):
            size = sum(each.stat().st_size for each in manifest.parent.rglob("*") if each.is_file())
            why = (
                f'Parquet files of view "{manifest.parent.name}". Delete them after the upgrade: its table '
                f"{name}.{manifest.parent.name} is filled from the changelog"
            )
            found.append(UnusedFiles(str(manifest.parent), size, why))
    return found


def topic_states(settings: Settings) -> list[FoundState]:
    """Return the state in the hub's Kafka; one state of unknown version if it does not answer."""
    from hub.formats.topics import read_stamps
    from hub.kafka import own_cluster

    formats = [each for each in FORMATS if each.noted == "topics"]
    try:
        cluster = own_cluster(settings, _KAFKA_S)
        names, noted = cluster.topics(), read_stamps(cluster)
    except PeerError as error:
        return [FoundState(formats[0], _ALL_TOPICS, None, error.message)]
    found = []
    for format in formats:
        there = [name for name in names if any(fnmatchcase(name, each) for each in patterns(format))]
        if there or format.name in noted:
            place = ", ".join(there[:3]) + (f" and {len(there) - 3} more" if len(there) > 3 else "")
            found.append(FoundState(format, place or "this Kafka", noted.get(format.name, FIRST)))
    return found


def patterns(format: DurableFormat) -> list[str]:
    """Return the patterns of a format's files or topics.

    >>> patterns(FORMATS[5])
    ['views.*']
    """
    return [sub(r"<\w+>", "*", each) for each in format.where.split(", ")]
