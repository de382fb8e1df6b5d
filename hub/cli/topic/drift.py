"""[edge] ``hub topic drift``: what differs between the tree and the cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.watch_option import IntervalOption, WatchOption
from hub.cli.topic.tree_file import EXIT_CHANGES, FileOption, connect, load_tree
from hub.config import Settings
from hub.errors import ConfigError, HubError

if TYPE_CHECKING:
    from hub.topics.tree.drift import SettingDrift


def drift(
    file: FileOption = None,
    watch: WatchOption = False,
    interval: IntervalOption = 30.0,
    under: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Topics of this pattern alone: shop.** or nyc.*.departures"),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """List the differences between the tree and the cluster, and which side to change.

    "tree": apply changes the cluster. "cluster": Kafka does not support the tree's value, so change the "
    "tree. "decide": a person must decide. Exit code 0: no difference. 2: differences. 1: unknown.
    Example: hub topic drift --watch --interval 60      hub topic drift --under "shop.**"
    """
    settings = load_settings()
    if under is not None:
        _check_pattern(under)
    if not watch:
        setting_drifts = _differences(settings, file, under)
        _show_drift(setting_drifts, output)
        raise typer.Exit(EXIT_CHANGES if setting_drifts else 0)
    while True:
        try:
            setting_drifts = _differences(settings, file, under)
        except HubError as error:
            if not error.retriable:
                raise
            note(f"{error.message}; looking again in {interval:g} s")
        else:
            if output is Output.table and sys.stdout.isatty():
                sys.stdout.write("\x1b[2J\x1b[H")
            _show_drift(setting_drifts, output)
        pause(interval)


def _check_pattern(pattern: str) -> None:
    """Check a pattern of topic names. Raises ConfigError."""
    from hub.schema_registry.policy.label_patterns import checked

    try:
        checked(pattern)
    except ValueError as error:
        raise ConfigError(f"--under: {error}", hint='write "shop.**" or nyc.*.departures') from None


def _differences(settings: Settings, file: Path | None, under: str | None) -> tuple[SettingDrift, ...]:
    from hub.schema_registry.policy.label_patterns import fits, labels_of
    from hub.topics.tree.apply_plan import compare
    from hub.topics.tree.drift import drift

    setting_drifts = drift(compare(load_tree(settings, file), *connect(settings)).plan)
    return tuple(
        each for each in setting_drifts if under is None or fits(labels_of(under), labels_of(each.topic))
    )


def _show_drift(setting_drifts: Sequence[SettingDrift], output: Output) -> None:
    rows = [asdict(line) for line in setting_drifts]
    if rows or output is Output.json:
        show(rows, output, ("topic", "setting", "tree", "cluster", "set_by", "right", "way"))
    note(f"{len(rows)} differences." if rows else "The cluster matches the tree.")
