"""[edge] ``hub mirror drill``, ``switchover``, ``failover``, ``failback``,
``promote`` and ``left-behind``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.mirror.context import (
    DryRunOption,
    FileOption,
    NameArgument,
    TopicsOption,
    TypedNameOption,
    WaitOption,
    open_world,
)
from hub.cli.mirror.ownership_change import change_ownership, rehearse
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import CallerError, PeerError

if TYPE_CHECKING:
    from hub.replication.ownership.operation_steps import Kind

_TAILS = ("replay", "discard", "merge", "restore")
TailOption = Annotated[
    str | None,
    typer.Option("--tail", help="The same as one option: replay, discard, merge or restore. Default: replay"),
]
ReplayOption = Annotated[
    bool, typer.Option("--replay", help="Append the tail behind the target's records; the default")
]
DiscardOption = Annotated[bool, typer.Option("--discard", help="Declare the tail lost")]
MergeOption = Annotated[
    bool,
    typer.Option("--merge", help="As --replay, but superseded records of compacted topics are left out"),
]
RestoreOption = Annotated[
    bool, typer.Option("--restore", help="Remove the tail: fill the source's topic from the target")
]
ExportOption = Annotated[
    Path | None,
    typer.Option("--export", metavar="DIR", help="Write the tail to files first, with a signed report"),
]
_PLACE = ("topic", "partition", "offset", "timestamp_ms")


def drill(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    kind: Annotated[
        str, typer.Option(help="Operation to rehearse: failover, switchover, failback or promote")
    ] = "failover",
    output: OutputOption = Output.table,
) -> None:
    """Rehearse a change of ownership. Changes nothing.

    Shows its steps, the records that it would lose, and those that each group would read again.

    With --topic: of these topics alone.

    Example: hub mirror drill nyc-lon --kind promote --topic nyc.orders
    """
    kinds: dict[str, Kind] = {each: each for each in ("failover", "switchover", "failback", "promote")}
    if kind not in kinds:
        raise CallerError(f'"{kind}" is not a change of ownership', hint=f"one of: {', '.join(kinds)}")
    world = open_world(file)
    rehearse(world, world.link(name), kinds[kind], output, topic or ())


def switchover(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Move ownership to the target while both sides are up.

    The target owns the source's topics afterwards. No record is lost or read twice.

    Stop the writers and groups at the source before, or when the command asks for it: it waits until all
    of them are idle.

    With --topic: these topics alone move, and the others stay with the source.

    Example: hub mirror switchover nyc-lon --topic "nyc.orders.**"
    """
    change_ownership(name, file, "switchover", wait, output, dry_run=dry_run, patterns=topic)


def failover(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    typed: TypedNameOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Move ownership to the target now, because the source is gone.

    Records that were not mirrored are counted and stay at the source. While the source does not answer,
    the number is unknown: a lower bound and the time of its last report are shown. Once the source is
    back, `hub mirror left-behind` shows the records.

    With --topic: these topics alone move. Groups are placed in these topics and nowhere else.

    Example: hub mirror failover nyc-lon --topic nyc.orders --dry-run
    """
    change_ownership(
        name, file, "failover", wait, output, typed=typed, confirm=True, dry_run=dry_run, patterns=topic
    )


def failback(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    tail: TailOption = None,
    replay: ReplayOption = False,
    discard: DiscardOption = False,
    merge: MergeOption = False,
    restore: RestoreOption = False,
    export: ExportOption = None,
    typed: TypedNameOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 300.0,
    output: OutputOption = Output.table,
) -> None:
    """Return the topics to the source, which is back.

    Records written at the target are copied to the source first; then the source owns its topics again.

    Records of the source that were not mirrored are its tail. --replay, --discard, --merge or --restore
    decides about them. --restore deletes topics of the source and asks for the mirror's name.

    With --topic: topics that were moved by themselves. --export writes the tail as JSON lines, and a signed
    report: hub mirror report verify DIR/report.json

    Example: hub mirror failback nyc-lon --restore --export lost-2026-11-27
    """
    flags = {"replay": replay, "discard": discard, "merge": merge, "restore": restore}
    change_ownership(
        name,
        file,
        "failback",
        wait,
        output,
        tail=_chosen_tail(tail, [each for each, given in flags.items() if given]),
        typed=typed,
        dry_run=dry_run,
        patterns=topic,
        export=_new_folder(export),
    )


def _chosen_tail(tail: str | None, flags: list[str]) -> str:
    """Return the decision about the tail. Raises CallerError for an unknown one, or for two."""
    if tail is not None and tail not in _TAILS:
        raise CallerError(f'--tail: "{tail}" is not known', hint=f"one of: {', '.join(_TAILS)}")
    chosen = sorted({*flags, *([] if tail is None else [tail])})
    if len(chosen) > 1:
        raise CallerError(f"--{chosen[0]} and --{chosen[1]} exclude each other", hint="name one of them")
    return chosen[0] if chosen else "replay"


def _new_folder(export: Path | None) -> str:
    if export is None:
        return ""
    if export.exists() and any(export.iterdir()):
        raise CallerError(f'folder "{export}" is not empty', hint="name a new folder")
    return str(export.absolute())


def promote(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    typed: TypedNameOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Switch over permanently and remove the mirror.

    Remove it from the file afterwards. With --topic: these topics alone, permanently. The others are
    still mirrored; groups are placed in these topics and nowhere else.

    Example: hub mirror promote nyc-lon --topic "nyc.orders.**" --name nyc-lon
    """
    change_ownership(
        name, file, "promote", wait, output, typed=typed, confirm=True, dry_run=dry_run, patterns=topic
    )


def left_behind(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only this topic (repeatable)")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="The first N records")
    ] = 100,
    output: OutputOption = Output.table,
) -> None:
    """Show the records that only the old source has since a failover.

    The source must answer again. They are counted exactly, and the first are shown with offset, key and
    value.

    Exit code 0: shown, or none. 1: the source does not answer, so the records are unknown.

    Example: hub mirror left-behind nyc-lon --limit 1000 -o json
    """
    from hub.replication.clusters.readers import read_control_state, read_progress
    from hub.replication.operations.divergence.left_at_source import losses_now, records

    world = open_world(file)
    world = world.seen_by(link := world.link(name))
    source, target = world.clusters[link.source], world.clusters[link.target]
    control, progress = read_control_state(target, status=False), read_progress(target, maps=False)
    losses = losses_now(world.file, link, world.clusters, control, progress)
    if losses is None:
        raise PeerError(
            f"what stayed at {link.source} is unknown: it does not answer",
            hint=f"start it again; nothing is lost by that ({link.target} serves its topics)",
            code="HUB-3617",
        )
    chosen = [each for each in losses if not topic or each.place.topic in topic]
    rows = [
        {each: getattr(record, each) for each in _PLACE}
        | {"key": _text(record.key), "value": _text(record.value)}
        for record in records(source, chosen, limit)
    ]
    show(rows, output, (*_PLACE, "key", "value"))
    total = sum(each.count for each in chosen)
    if not total:
        note(f"{link.source} has nothing that {link.target} lacks since a failover.")
        return
    note(
        f"Only {link.source} has these {total:,} offsets; {len(rows):,} records are shown.\n"
        f"hub mirror failback {name} appends them behind the records of {link.target} (--replay, --merge), "
        "declares them lost (--discard), or removes them (--restore --export DIR)."
    )


def _text(content: bytes | None) -> str | None:
    """Decode bytes as UTF-8, or show them as hexadecimal digits."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
