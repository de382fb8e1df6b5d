"""[edge] ``hub mirror pause``, ``resume`` and ``drop``."""

from __future__ import annotations

from typing import Annotated

import typer

from hub.cli.mirror.context import (
    FileOption,
    NameArgument,
    TopicsOption,
    TypedNameOption,
    WaitOption,
    confirm_name,
    open_world,
)
from hub.cli.mirror.ownership_change import account_here, finish, operator_of, sides_of
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.errors import Conflict


def pause(name: NameArgument, file: FileOption = None, topic: TopicsOption = None) -> None:
    """Pause a mirror, or some of its topics.

    Workers pause within a second or two, at the end of a transaction. Patterns of --topic mean the topics
    that exist now.

    Example: hub mirror pause nyc-lon --topic "nyc.orders.**"
    """
    from hub.replication.operations.pausing import accepting, set_paused

    world = open_world(file)
    link = world.link(name)
    sides = sides_of(world.seen_by(link))
    names = accepting(sides, link, topic or (), "pause")
    set_paused(sides, link, names, account_here(), paused=True)
    if not topic:
        note(f"{name} is paused. Continue with: hub mirror resume {name}")
        return
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
    from hub.replication.operations.pausing import accepting, interrupted, set_paused

    world = open_world(file)
    link = world.link(name)
    world = world.seen_by(link)
    operator = operator_of(world, wait)
    control = operator.world.control()
    if not interrupted(control, link.source, abort=abort) and operator.remind(link.source):
        note(
            f"A cluster that was down now knows the owner of {link.source}'s topics, and that no ownership "
            "change is in progress."
        )
    names = accepting(operator.world, link, topic, "resume") if topic and not abort else ()
    due = interrupted(control, link.source, topic or (), abort=abort)
    if abort:
        if not due:
            raise Conflict(
                f"no change of ownership of {link.source} is in progress", hint="hub mirror status"
            )
        for running in due:
            operator_of(world, wait, running.topics).abort(running)
            note(f'{running.kind} "{running.id}" is undone.')
        return
    set_paused(operator.world, link, names, account_here(), paused=False)
    for running in due:
        finish(operator_of(world, wait, running.topics), running, output)
    if not due:
        note(f"{', '.join(names) or name} continues.")


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
    from hub.replication.operations import pausing

    world = open_world(file)
    link = world.link(name)
    sides = sides_of(world.seen_by(link))
    plan = pausing.plan_drop(sides, link, topic or ())
    what = f"forget {len(plan.topics)} topics of it at {plan.link.target}"
    confirm_name(name, typed, what + (", and delete them" if delete_copies else ""))
    count = pausing.drop(sides, plan)
    if delete_copies:
        for each in pausing.delete_copies(sides, plan):
            note(f"{each} was not there any more")
    if output is Output.json:
        done = {"mirror": name, "topics": plan.topics, "partitions": count, "deleted": bool(delete_copies)}
        show_one(done, output)
    note(f"Forgotten: {count} partitions of {len(plan.topics)} topics.")
