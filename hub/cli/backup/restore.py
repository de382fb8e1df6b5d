"""[edge] ``hub restore``: a backup into an empty or another cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.backup.look import FromOption
from hub.cli.backup.places import (
    BootstrapOption,
    ClusterOption,
    KeyOption,
    PatternsArgument,
    RegistryOption,
    RunOption,
    open_cluster,
    open_place,
    read_key,
)
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.terminal.progress import counted
from hub.config import Settings
from hub.errors import CallerError, HubError
from hub.times import parse_iso

if TYPE_CHECKING:
    from hub.backup.restoring.restore import RestorePlan, RestoreReport
    from hub.backup.storage.manifest import Manifest
    from hub.replication.clusters.clusters import ClusterHandle

_MANY = 20
_EXIT_REFUSED = _EXIT_TROUBLE = 1
UntilOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Up to this time, such as 2026-11-26T14:30:00Z; without a zone: UTC"),
]
OwnershipOption = Annotated[
    bool,
    typer.Option("--ignore-ownership", help="Also write topics that another cluster of mirrors.yaml owns"),
]
DefinitionsOption = Annotated[
    Path | None, typer.Option(help="Also write the saved topics.yaml and views into this folder")
]
PrefixOption = Annotated[
    str, typer.Option(help="Put before the names of topics, such as restored.; groups are not moved then")
]


def restore(
    patterns: PatternsArgument = None,
    place: FromOption = None,
    key: KeyOption = None,
    run: RunOption = None,
    until: UntilOption = None,
    to_cluster: ClusterOption = None,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    prefix: PrefixOption = "",
    schemas: Annotated[bool, typer.Option(help="Restore schemas, with their ids")] = True,
    groups: Annotated[bool, typer.Option(help="Restore positions of consumer groups")] = True,
    access_rules: Annotated[bool, typer.Option(help="Restore Kafka's access rules (ACLs)")] = True,
    definitions_to: DefinitionsOption = None,
    ignore_ownership: OwnershipOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Restore topics, schemas, groups and access rules. If a topic has records already, or another cluster
    of mirrors.yaml owns it, nothing is restored.

    A restore that was killed continues where it was when the command is repeated: no record is lost or
    written twice. Changelogs of views are left out unless a pattern begins with views.
    Example: hub restore --from /backup/hub --bootstrap localhost:19092 'shop.**' --until 2026-11-26T14:30:00Z
    """
    from hub.backup.restoring.restore import RestoreRequest, plan_restore
    from hub.backup.restoring.restore import restore as restored
    from hub.backup.saved_registry import check_registry
    from hub.backup.storage.vault import open_vault

    settings = load_settings()
    vault = open_vault(open_place(settings, place, "--from"), read_key(settings, key))
    target = open_cluster(settings, to_cluster, bootstrap, registry)
    target.kafka.check_door()
    if schemas and target.registry is not None:
        check_registry(target.registry)
    only = tuple(patterns or ())
    request = RestoreRequest(only, _time_ms(until, run), run, prefix, schemas, groups, access_rules)
    plan = plan_restore(target, vault, request, _forbids(settings, target, ignore=ignore_ownership))
    _show_plan(plan, everything=dry_run)
    if dry_run:
        raise typer.Exit(_EXIT_REFUSED if plan.refusals else 0)
    with counted("Writing records") as progress:
        report = restored(target, vault, plan, progress)
    show_one({**_row(plan, report), "files": write_definitions(plan.run, definitions_to)}, output)
    for line in _remarks(report):
        note(line)
    if report.skipped:
        raise typer.Exit(_EXIT_TROUBLE)


def _forbids(settings: Settings, target: ClusterHandle, *, ignore: bool) -> Callable[[str], HubError | None]:
    from hub.cli.mirror.write_guard import write_refusals

    return (lambda _topic: None) if ignore else write_refusals(settings, target.kafka, target.access)


def _remarks(report: RestoreReport) -> Iterator[str]:
    for carried in report.groups:
        if carried.state not in ("exact", "pending"):
            yield (
                f"! group {carried.group}, {carried.place.topic} partition {carried.place.partition}:"
                f" {carried.reason}"
            )
    for tp, first, end in report.skipped:
        yield f"! {tp.topic} partition {tp.partition}: offsets {first} to {end - 1} could not be written"


def write_definitions(run: Manifest, folder: Path | None) -> int:
    """Write the saved files that the folder lacks; return their number. Existing files stay.
    None: write nothing."""
    written = 0
    if folder is None:
        return written
    for name, text in run.files.items():
        path = folder / name
        if path.exists():
            note(f"! {path} exists and stays as it is")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written += 1
    return written


def _time_ms(text: str | None, run: int | None) -> int | None:
    if text is None:
        return None
    if run is not None:
        raise CallerError("--until finds the run by itself: give --until or --run")
    try:
        return parse_iso(text)
    except ValueError:
        raise CallerError(
            f'--until: "{text}" is not a time', hint="write it as 2026-11-26T14:30:00Z"
        ) from None


def _show_plan(plan: RestorePlan, *, everything: bool) -> None:
    changes = plan.changes
    note(
        f"Run {plan.run.number} of "
        f"{datetime.fromtimestamp(plan.run.taken_at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC:"
    )
    for line in changes if everything else changes[:_MANY]:
        note(f"  {line}")
    if not everything and len(changes) > _MANY:
        note(f"  … and {len(changes) - _MANY} more; --dry-run shows all")
    for line in plan.notes:
        note(f"! {line}")
    for refusal in plan.refusals:
        note(f"✗ topic {refusal.topic}: {refusal.reason}. {refusal.hint}")


def _row(plan: RestorePlan, report: RestoreReport) -> dict[str, object]:
    moved = {each.group for each in report.groups if each.commit is not None}
    return {
        "run": plan.run.number,
        "topics": len(plan.topics),
        "records": report.records,
        "mb": round(report.raw_bytes / 1e6, 1),
        "schemas": len(plan.schemas.steps),
        "groups": len(moved),
        "access_rules": len(plan.rules),
        "seconds": round(report.seconds, 1),
    }
