"""[edge] ``hub mirror import``: continue the copies that MirrorMaker 2 made as a mirror of the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.mirror.context import (
    EXIT_REFUSED,
    FileOption,
    NameArgument,
    TypedNameOption,
    confirm_name,
    open_world,
)
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.progress import counted
from hub.errors import CallerError, Conflict

if TYPE_CHECKING:
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.config.mirrors import MirrorsFile
    from hub.replication.migration.import_plan import ImportedPartition, MirrorMakerImport, MirrorMakerState
    from hub.replication.ownership.failover import Control
    from hub.replication.ownership.group_offsets import CarriedPosition
    from hub.replication.ownership.links import Link

_PLACES = (
    "topic",
    "partition",
    "state",
    "from",
    "source_next",
    "target_next",
    "records",
    "duplicates",
    "left",
    "reason",
)
_GROUPS = ("group", "topic", "partition", "state", "source_offset", "position", "moves", "reason")


FromMirrorMaker = Annotated[
    bool,
    typer.Option(
        "--from-mm2", help="The copies at the target are MirrorMaker 2's, which is stopped permanently"
    ),
]
AliasOption = Annotated[
    str | None,
    typer.Option(metavar="ALIAS", help="MirrorMaker's alias of the source. Default: its name in the file"),
]
SyncsOption = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Default: mm2-offset-syncs.<alias>.internal of either side"),
]
CheckpointsOption = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Default: <source alias>.checkpoints.internal at the target"),
]
NewestOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Compare only from the last offset sync before the newest N offsets on"
    ),
]
QuietOption = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="Time in which MirrorMaker must have written nothing"),
]


def import_copies(
    name: NameArgument,
    from_mm2: FromMirrorMaker = False,
    file: FileOption = None,
    source_alias: AliasOption = None,
    offset_syncs_topic: SyncsOption = None,
    checkpoints_topic: CheckpointsOption = None,
    newest: NewestOption = None,
    quiet: QuietOption = 15.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, change nothing")] = False,
    typed: TypedNameOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Continue the copies of MirrorMaker 2 from where it stopped. Run it once, for a migration.

    Both sides are read and compared record by record: the position where the mirror continues is proven,
    or the topic is refused with a solution. Stop MirrorMaker first. Partitions with a checkpoint of this
    mirror are unchanged.

    Exit code 0: all topics are imported (or could be). 1: a topic is refused; the others are imported.

    Example: hub mirror import nyc-lon --from-mm2 --dry-run
    """
    if not from_mm2:
        raise CallerError("import: say whose copies these are", hint=f"hub mirror import {name} --from-mm2")
    from hub.replication.ownership.links import check_not_renamed

    world = open_world(file)
    link = world.link(name)
    check_not_renamed(link, "imports")
    done = take_over(
        world.file,
        link,
        world.clusters,
        world.control(),
        lambda what: confirm_name(name, typed, what),
        source_alias=source_alias,
        syncs=offset_syncs_topic,
        checkpoints=checkpoints_topic,
        newest=newest,
        quiet_s=quiet,
        dry_run=dry_run,
        output=output,
    )
    if not done:
        raise typer.Exit(EXIT_REFUSED)


def take_over(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    control: Control,
    confirm: Callable[[str], None],
    *,
    source_alias: str | None,
    syncs: str | None,
    checkpoints: str | None,
    newest: int | None,
    quiet_s: float,
    dry_run: bool,
    output: Output,
) -> bool:
    """Inspect the copies, report, confirm, and write. Returns whether nothing was refused. Raises Conflict
    while MirrorMaker still runs.
    """
    from hub.replication.migration.import_writing import write_import
    from hub.replication.migration.mirror_maker_import import Importer

    done = 0
    with ExitStack() as opened:
        with counted(f"compare {link.name}") as advance:

            def more(count: int) -> None:
                nonlocal done
                done += count
                advance(done, done)

            importer = Importer(file, link, clusters, control, source_alias=source_alias, progress=more)
            opened.callback(importer.close)
            mirror_maker = importer.read_state(syncs, checkpoints)
            importer.watch(mirror_maker)
            found = importer.look(mirror_maker, newest)
            moved = importer.moved(mirror_maker, quiet_s)
        if moved and not dry_run:
            raise _runs(moved)
        if not dry_run and (found.ready or _commits(found)):
            confirm(
                f"import {len(found.ready)} partitions at {link.target} from MirrorMaker 2, which must "
                "never be started again for this pair"
            )
            if moved := importer.moved(mirror_maker, 0.0):
                raise _runs(moved)
            write_import(found, link, clusters[link.source], clusters[link.target])
    _show_import(link, clusters, mirror_maker, found, moved, dry_run, output)
    return not found.refused


def _runs(moved: tuple[str, ...]) -> Conflict:
    return Conflict(
        f"MirrorMaker 2 (or somebody else) still writes: {', '.join(moved[:4])}",
        hint="stop it for good, every node of it, then do the same again",
        code="HUB-1970",
    )


def _commits(result: MirrorMakerImport) -> bool:
    return any(each.commit is not None for _, carried in result.groups for each in carried)


def _show_import(
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    mirror_maker: MirrorMakerState,
    result: MirrorMakerImport,
    moved: tuple[str, ...],
    dry_run: bool,
    output: Output,
) -> None:
    ends = clusters[link.source].kafka.end_offsets(sorted({each.place.topic for each in result.places}))
    places = [_place_row(each, ends.get(each.place), dry_run) for each in result.places]
    groups = [_group_row(each) for _, carried in result.groups for each in carried]
    if output is Output.json:
        head = {"mirror": link.name, "dry_run": dry_run, "still_written": list(moved)}
        topics = {
            "offset_syncs": f"{mirror_maker.syncs_topic} at {mirror_maker.syncs_at}",
            "checkpoints": mirror_maker.checkpoints_topic or None,
        }
        show_one({**head, **topics, "partitions": places, "groups": groups}, output)
    else:
        show(places, output, _PLACES)
        if groups:
            show(groups, output, _GROUPS)
    _note_next(link, mirror_maker, result, places, moved, dry_run)


def _place_row(each: ImportedPartition, end: int, dry_run: bool) -> dict[str, Any]:
    """Return a partition's row. ``end``: the end offset of its source."""
    known, went = each.state != "renamed", each.alignment
    compared = each.state in ("ready", "held")
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "state": "taken over" if each.state == "ready" and not dry_run else each.state,
        "from": went.source_from if known else None,
        "source_next": went.source_next if known and each.state != "refused" else None,
        "target_next": each.target_next if known else None,
        "records": went.records if compared else None,
        "duplicates": went.duplicates if compared else None,
        "left": max(0, end - went.source_next) if each.state == "ready" else None,
        "reason": each.reason,
        "hint": each.hint,
    }


def _group_row(each: CarriedPosition) -> dict[str, Any]:
    return {
        "group": each.group,
        "topic": each.place.topic,
        "partition": each.place.partition,
        "state": each.state,
        "source_offset": each.source_offset,
        "position": each.position,
        "moves": each.commit is not None,
        "reason": each.reason,
    }


def _note_next(
    link: Link,
    mirror_maker: MirrorMakerState,
    result: MirrorMakerImport,
    places: Sequence[Mapping[str, Any]],
    moved: tuple[str, ...],
    dry_run: bool,
) -> None:
    for row in places:
        if row["hint"]:
            note(f"✗ {row['topic']} partition {row['partition']}: {row['reason']}\n  Hint: {row['hint']}")
    if not mirror_maker.checkpoints_topic:
        note("! MirrorMaker wrote no checkpoints of groups; the mirror carries groups by itself.")
    if moved:
        note(f"! {_runs(moved).message}: nothing is imported until that stops.")
    if not places:
        note(f"{link.target} has no copy that {link.name} could continue.")
    elif dry_run:
        note(
            f"{len(result.ready)} partitions could be imported, {len(result.refused)} could "
            "not. Nothing was changed."
        )
    else:
        note(
            f"{len(result.ready)} partitions imported, {len(result.refused)} refused."
            f" Next: hub mirror plan {link.name}, hub mirror run, hub mirror verify {link.name}"
        )
