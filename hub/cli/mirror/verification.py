"""[edge] ``hub mirror verify``: compare both sides of a mirror."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.mirror.context import FileOption, NameArgument, keys_in, open_world
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import HubError, NotFound
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.cli.mirror.context import World
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.ownership.links import Link
    from hub.replication.verification.differences import DifferingRecord
    from hub.replication.verification.verify import ComparedPartition, PartitionVerdict


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
    from hub.replication.verification.comparable import compared
    from hub.replication.verification.verify import summary

    world = open_world(file)
    link = world.link(name, back=True)
    every = compared(world.file, link, world.clusters, world.control(), topic or ())
    if not every:
        raise NotFound(
            f'mirror "{name}": nothing is mirrored yet' + (" of these topics" if topic else ""),
            hint="hub mirror status shows whether a worker runs",
        )
    verdicts = _verdicts(world, link, every, newest, limit)
    found = summary(verdicts)
    if newest is None:
        _record_verified(world.clusters[link.target], name, zip(every, verdicts, strict=True))
    _show_verdicts(name, verdicts, found, limit, output)
    if found["different"] or found["not_compared"]:
        raise typer.Exit(1)


def _show_verdicts(
    name: str, verdicts: Sequence[PartitionVerdict], found: Mapping[str, int], limit: int, output: Output
) -> None:
    listed = [_difference(verdict, one) for verdict in verdicts for one in verdict.listed][:limit]
    unlisted = sum(len(each.listed) + each.more for each in verdicts) - len(listed)
    if output is Output.json:
        listing = {"differences": listed, "more_differences": unlisted}
        show_one({"mirror": name, **found, "partitions": _rows(verdicts), **listing}, output)
    else:
        show(_rows(verdicts), output)
        if listed:
            show(listed, output, _DIFFERENCE_COLUMNS)
    _note_verdicts(verdicts)
    if unlisted:
        note(f"{unlisted} more differences: list them with --limit {len(listed) + unlisted}, or --topic")
    note(f"{found['equal']} equal, {found['different']} different, {found['not_compared']} not compared.")


def _verdicts(
    world: World, link: Link, every: Sequence[ComparedPartition], newest: int | None, limit: int
) -> list[PartitionVerdict]:
    """Compare the partitions, with a progress bar; list up to ``limit`` differences."""
    from hub.cli.terminal.progress import counted
    from hub.replication.verification.verify import Verifier

    total = sum(
        min(each.checkpoint.source_next - each.checkpoint.source_start, newest or sys.maxsize)
        for each in every
    )
    # Those of former rules too.
    keys = {key for each in every for one in each.ruled if one.rules.shape for key in one.rules.shape.secrets}
    verdicts: list[PartitionVerdict] = []
    with counted(f"verify {link.name}") as advance:
        done = 0

        def more(count: int) -> None:
            nonlocal done
            done += count
            advance(done, max(total, done))

        verifier = Verifier(world.clusters[link.source], world.clusters[link.target], more, keys_in(keys))
        try:
            for partition in every:
                room = limit - sum(len(verdict.listed) for verdict in verdicts)
                verdicts.append(verifier.verify(partition, newest, max(1, room)))
        finally:
            verifier.close()
    return verdicts


def _rows(verdicts: Sequence[PartitionVerdict]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.place.topic,
            "partition": each.place.partition,
            "from": each.first,
            "to": each.end,
            "records": each.records,
            "digest": str(each.digest),
            "equal": each.equal,
            "differs_at": each.differs_at,
            "why": each.why,
            "rules": each.rules,
        }
        for each in verdicts
    ]


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


def _difference(verdict: PartitionVerdict, each: DifferingRecord) -> dict[str, Any]:
    """Return a difference as a table row; an offset is None where that side has no such record."""
    return {
        "topic": verdict.place.topic,
        "partition": verdict.place.partition,
        "source_offset": each.source,
        "target_offset": each.target,
        "why": each.why,
    }


def _record_verified(
    target: ClusterHandle, name: str, verdicts: Iterable[tuple[ComparedPartition, PartitionVerdict]]
) -> None:
    """Store the verdicts where `hub mirror status` reads them. A user without write access gets a note
    instead.
    """
    from hub.replication.operations.pausing import append
    from hub.replication.verification.continuous_check import of_everything

    now_ms = epoch_ms()
    ranges = [
        of_everything(name, each.checkpoint, verdict, now_ms)
        for each, verdict in verdicts
        if verdict.compared
    ]
    try:
        append(target, [each.record() for each in ranges])
    except HubError as error:
        note(f"! not reported in hub mirror status: {error.message}")
