"""[edge] ``hub mirror pause``, ``resume`` and ``drop``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.mirror.context import (
    FileOption,
    NameArgument,
    TopicsOption,
    TypedNameOption,
    WaitOption,
    World,
    append,
    confirm_name,
    open_world,
)
from hub.cli.mirror.ownership_change import finish, operator_of, states_of
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.errors import Conflict, NotFound
from hub.topics.tree.tree import matches

if TYPE_CHECKING:
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.ownership.failover import Control
    from hub.replication.ownership.links import Link
    from hub.replication.ownership.operation_steps import OwnershipChange
    from hub.replication.ownership.topic_state import Action


def pause(name: NameArgument, file: FileOption = None, topic: TopicsOption = None) -> None:
    """Pause a mirror, or some of its topics.

    Workers pause within a second or two, at the end of a transaction. Patterns of --topic mean the topics
    that exist now.

    Example: hub mirror pause nyc-lon --topic "nyc.orders.**"
    """
    world = open_world(file)
    link = world.link(name)
    if not topic:
        _wish(world, link, paused=True)
        note(f"{name} is paused. Continue with: hub mirror resume {name}")
        return
    names = _accepting(world, link, topic, "pause")
    _wish(world, link, names, paused=True)
    some = " ".join(f"--topic '{each}'" for each in topic)
    note(f"Paused: {', '.join(names)}. Continue with: hub mirror resume {name} {some}")


def resume(
    name: NameArgument,
    file: FileOption = None,
    topic: TopicsOption = None,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort", help="Undo a change of ownership that is in progress, while ownership has not moved"
        ),
    ] = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Resume a mirror, some of its topics, a stopped partition or an interrupted operation.

    It continues a paused mirror, stopped partitions, and an incomplete change of ownership. Topics that were
    paused by themselves continue with --topic.

    Example: hub mirror resume nyc-lon --topic nyc.orders
    """
    world = open_world(file)
    link = world.link(name)
    operator = operator_of(world, wait)
    due = _interrupted(operator.world.control(), link.source, abort)
    if not due and operator.remind(link.source):
        note(
            f"A cluster that was down now knows the owner of {link.source}'s topics, and that no ownership "
            "change is in progress."
        )
    names = _accepting(world, link, topic, "resume") if topic and not abort else []
    if topic:
        due = [each for each in due if any(matches(want, one) for want in topic for one in each.topics)]
    if abort:
        if not due:
            raise Conflict(
                f"no change of ownership of {link.source} is in progress", hint="hub mirror status"
            )
        for running in due:
            operator_of(world, wait, running.topics).abort(running)
            note(f'{running.kind} "{running.id}" is undone.')
        return
    _wish(world, link, names, paused=False)
    for running in due:
        finish(operator_of(world, wait, running.topics), running, output)
    if not due:
        note(f"{', '.join(names) or name} continues.")


def _interrupted(control: Control, home: str, abort: bool) -> list[OwnershipChange]:
    """Return the running changes of ownership to continue or to abort: of the whole home, and of topics."""
    whole = control.running(home)
    return [*([whole] if whole is not None else []), *control.moving(home, furthest=abort)]


def _accepting(world: World, link: Link, patterns: Sequence[str], action: Action) -> list[str]:
    """Return the topics that fit the patterns. Raises Conflict (HUB-1973) if one does not accept the
    command.
    """
    from hub.replication.operations.by_topic import check_all

    return check_all(states_of(world, link, patterns), action)


def _wish(world: World, link: Link, topics: Sequence[str] = (), *, paused: bool) -> None:
    """Into the target's control topic, where the mirror's workers read it; its way back obeys it too.
    ``topics``: these alone; empty: the mirror.
    """
    import getpass
    import socket

    from hub.replication.clusters.control_state import pause_record, retry_record
    from hub.replication.ownership.topic_state import pause_key

    now_ms = int(time.time() * 1000)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    keys = [pause_key(link.name, topic) for topic in topics] or [link.name]
    records = [pause_record(key, by, now_ms, paused=paused) for key in keys]
    if not paused:
        records.append(retry_record(link.name, now_ms))
    append(world.clusters[link.target], records)


def _require_droppable(world: World, link: Link, target: ClusterHandle, patterns: Sequence[str]) -> None:
    """Raise Conflict while the mirror works, or while its records are needed for a failback. ``patterns``: of
    the topics that are meant; empty: all.
    """
    from hub.replication.clusters.readers import read_control_state
    from hub.replication.ownership.topic_state import check_accepts

    held = link.name in read_control_state(target).paused or link.mirror.paused
    meant = patterns or sorted(world.control().apart(link.source))
    states = states_of(world, link, meant) if meant else []
    if not held and not (patterns and all(each.state == "paused" for each in states)):
        raise Conflict(
            f'mirror "{link.name}" is not paused',
            hint=f"first: hub mirror pause {link.name}" + (", or with the same --topic" if patterns else ""),
            code="HUB-1967",
        )
    for each in states:
        if each.state not in ("mirroring", "promoted" if not patterns else ""):
            check_accepts(each, "drop")
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
    topic: TopicsOption = None,
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
    here (--delete-copies), or later by hand. Pause the mirror, or these topics, first.

    Example: hub mirror drop nyc-lon --topic nyc.chat --delete-copies --name nyc-lon
    """
    from hub.replication.clusters.readers import read_progress
    from hub.replication.operations.forget import forget_both

    world = open_world(file)
    link = world.link(name)
    target = world.clusters[link.target]
    _require_droppable(world, link, target, topic or ())
    known = {tp.topic for tp in read_progress(target, maps=False).of(name)}
    meant = sorted(each for each in known if not topic or any(matches(want, each) for want in topic))
    what = f"forget {len(meant)} topics of it at {link.target}"
    confirm_name(name, typed, what + (", and delete them" if delete_copies else ""))
    # No topic would mean the whole mirror.
    count = forget_both(world.file, link, world.clusters, meant if topic else ()) if meant or not topic else 0
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
