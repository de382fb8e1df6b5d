"""[edge] ``hub mirror verify``: compare both sides of a mirror."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.mirror.context import FileOption, NameArgument, open_world
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one

if TYPE_CHECKING:
    from hub.replication.operations.compare_sides import SidesCompared
    from hub.replication.verification.verify import PartitionVerdict


def verify(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only this topic (repeatable)")
    ] = None,
    newest: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the newest N offsets of each partition")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="Most differences to list")
    ] = 100,
    output: OutputOption = Output.table,
) -> None:
    """Read both sides and compare them. Changes nothing but the result in `hub mirror status`.

    Digests of ranges are compared, then the records of the ranges that differ. Every difference is listed, up
    to --limit: records that differ, records that are missing at the target, and records that another producer
    wrote into the copy.

    The comparison covers mirrored records that both sides still have. Exit code 0: equal. 1: different, or
    not comparable.

    Example: hub mirror verify nyc-lon --topic nyc.chat --newest 100000 --limit 500
    """
    from hub.cli.terminal.progress import counted
    from hub.replication.operations.compare_sides import compare_sides

    world = open_world(file)
    link = world.link(name, back=True)
    with counted(f"verify {link.name}") as advance:
        found = compare_sides(
            world.file,
            link,
            world.clusters,
            world.control(),
            os.environ,
            topics=topic or (),
            newest=newest,
            limit=limit,
            progress=advance,
            say=note,
        )
    _show(found, output)
    if not found.is_equal:
        raise typer.Exit(1)


def _show(found: SidesCompared, output: Output) -> None:
    if output is Output.json:
        show_one(found.as_json(), output)
    else:
        show(found.rows, output)
        if found.listed:
            show(found.listed, output, _DIFFERENCE_COLUMNS)
    _note_verdicts(found.verdicts)
    if found.unlisted:
        most = len(found.listed) + found.unlisted
        note(f"{found.unlisted} more differences: list them with --limit {most}, or --topic")
    counts = found.counts
    note(f"{counts['equal']} equal, {counts['different']} different, {counts['not_compared']} not compared.")


def _note_verdicts(verdicts: Sequence[PartitionVerdict]) -> None:
    for topic_, rules in {each.place.topic: each.rules for each in verdicts if each.rules}.items():
        note(f"{topic_}: compared with what its rules make of the source: {rules}")
    for each in verdicts:
        if each.differs_at is not None:
            note(
                f"✗ {each.place.topic} partition {each.place.partition} differs first at source offset"
                f" {each.differs_at}: {each.why}"
            )


_DIFFERENCE_COLUMNS = ("topic", "partition", "source_offset", "target_offset", "why")
