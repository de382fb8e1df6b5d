"""[edge] ``hub mirror pause``, ``resume`` and ``drop``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.mirror.context import (
    FileOption,
    NameArgument,
    TypedNameOption,
    WaitOption,
    World,
    append,
    confirm_name,
    open_world,
)
from hub.cli.mirror.ownership_change import finish, operator_of
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.errors import Conflict, NotFound

if TYPE_CHECKING:
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.ownership.links import Link


def pause(name: NameArgument, file: FileOption = None) -> None:
    """Pause a mirror.

    Workers pause within a second or two, at the end of a transaction.

    Example: hub mirror pause nyc-lon
    """
    world = open_world(file)
    _wish(world, world.link(name), paused=True)
    note(f"{name} is paused. Continue with: hub mirror resume {name}")


def resume(
    name: NameArgument,
    file: FileOption = None,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort", help="Undo a change of ownership that is in progress, while ownership has not moved"
        ),
    ] = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Resume a mirror, a stopped partition or an interrupted operation.

    It continues a paused mirror, stopped partitions, and an incomplete change of ownership.

    Example: hub mirror resume nyc-lon
    """
    world = open_world(file)
    link = world.link(name)
    operator = operator_of(world, wait)
    running = operator.world.control().running(link.source)
    if running is None and operator.remind(link.source):
        note(
            f"A cluster that was down now knows the owner of {link.source}'s topics, and that no ownership "
            "change is in progress."
        )
    if abort:
        if running is None:
            raise Conflict(
                f"no change of ownership of {link.source} is in progress", hint="hub mirror status"
            )
        operator.abort(running)
        note(f'{running.kind} "{running.id}" is undone.')
        return
    _wish(world, link, paused=False)
    if running is not None:
        finish(operator, running, output)
    else:
        note(f"{name} continues.")


def _wish(world: World, link: Link, *, paused: bool) -> None:
    """Into the target's control topic, where the mirror's workers read it; its way back obeys it too."""
    import getpass
    import socket

    from hub.replication.clusters.control_state import pause_record, retry_record

    now_ms = int(time.time() * 1000)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    records = [pause_record(link.name, by, now_ms, paused=paused)]
    if not paused:
        records.append(retry_record(link.name, now_ms))
    append(world.clusters[link.target], records)


def _require_droppable(world: World, link: Link, target: ClusterHandle) -> None:
    """Raise Conflict while the mirror works, or while its records are needed for a failback."""
    from hub.replication.clusters.readers import read_control_state

    if link.name not in read_control_state(target).paused and not link.mirror.paused:
        raise Conflict(
            f'mirror "{link.name}" is not paused',
            hint=f"first: hub mirror pause {link.name}",
            code="HUB-1967",
        )
    acting = world.control().owner(link.source).acting
    if acting != link.source:
        raise Conflict(
            f"{acting} serves the topics of {link.source}: the failback needs the records "
            "that would be deleted",
            hint=f"give it back first (hub mirror failback {link.name}); when it shall stay so, take the "
            "mirror out of the file",
            code="HUB-1969",
        )


def drop(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Forget only this topic (repeatable)"),
    ] = None,
    delete_copies: Annotated[
        bool,
        typer.Option("--delete-copies", help="Delete the topics at the target too, with all their events"),
    ] = False,
    typed: TypedNameOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Forget a mirror: its checkpoints, maps and gaps.

    The copies at the target are kept, except with --delete-copies.

    A topic that is still in the file is mirrored again from the source's start, once its copy is deleted:
    here (--delete-copies), or later by hand. Pause the mirror first.

    Example: hub mirror drop nyc-lon --topic nyc.chat --delete-copies --name nyc-lon
    """
    from hub.replication.clusters.readers import read_progress
    from hub.replication.operations.forget import forget_both

    world = open_world(file)
    link = world.link(name)
    target = world.clusters[link.target]
    _require_droppable(world, link, target)
    known = {tp.topic for tp in read_progress(target, maps=False).of(name)}
    meant = sorted(known & set(topic) if topic else known)
    what = f"forget {len(meant)} topics of it at {link.target}"
    confirm_name(name, typed, what + (", and delete them" if delete_copies else ""))
    count = forget_both(world.file, link, world.clusters, topic or ())
    if delete_copies:
        for each in meant:
            try:
                target.kafka.delete_topic(each)
            except NotFound:
                note(f"{each} was not there any more")
    if output is Output.json:
        show_one(
            {"mirror": name, "topics": meant, "partitions": count, "deleted": bool(delete_copies)}, output
        )
    note(f"Forgotten: {count} partitions of {len(meant)} topics.")
