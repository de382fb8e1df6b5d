"""[edge] A change of ownership as commands carry it out: rehearse, confirm, do, report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.cli.mirror.context import World, confirm_name, open_world
from hub.cli.terminal.output import Output, note, show, show_one
from hub.errors import HubError

if TYPE_CHECKING:
    from hub.replication.operations.operator import Operator
    from hub.replication.ownership.links import Link
    from hub.replication.ownership.loss_report import LossReport
    from hub.replication.ownership.operation_steps import Kind, OwnershipChange
    from hub.replication.ownership.topic_state import TopicState


def operator_of(world: World, wait: float, topics: Iterable[str] = ()) -> Operator:
    """Return an operator; with ``topics``, of a change of these topics alone."""
    from hub.replication.operations.mirrored_clusters import MirroredClusters
    from hub.replication.operations.operator import Operator

    return Operator(MirroredClusters(world.file, world.clusters, frozenset(topics)), wait, note)


def states_of(world: World, link: Link, patterns: Sequence[str]) -> list[TopicState]:
    """Return the states of the topics of a mirror that fit the patterns."""
    from hub.replication.operations import by_topic
    from hub.replication.operations.mirrored_clusters import MirroredClusters

    return by_topic.states_of(MirroredClusters(world.file, world.clusters), link, patterns)


def _chosen(world: World, link: Link, kind: Kind, patterns: Sequence[str], output: Output) -> list[str]:
    """Return the topics that a change of single topics moves, and show each with its state; [] without
    patterns: all of the home.
    """
    from hub.replication.operations.by_topic import check_all

    if not patterns:
        return []
    states = states_of(world, link, patterns)
    names = check_all(states, "failover" if kind == "drill" else kind)
    if output is not Output.json:
        show([{"topic": each.topic, "now": each.state, "owner": each.owner} for each in states], output)
    return names


def rehearse(world: World, link: Link, kind: Kind, output: Output, patterns: Sequence[str] = ()) -> None:
    """Print the steps and the report of a failover, switchover, failback or promotion; change nothing."""
    from hub.replication.operations import write_access
    from hub.replication.operations.effects import loss_report, not_mirrored
    from hub.replication.ownership.failover import begin

    topics = _chosen(world, link, kind, patterns, output)
    operator, now_ms = operator_of(world, 30.0, topics), int(time.time() * 1000)
    sides = operator.world
    control = sides.control()
    old = control.owner(control.scope(link.source, topics[0]) if topics else link.source).acting
    new = link.source if kind == "failback" else link.target
    operation = begin(
        control,
        kind,
        id="drill",
        mirror=link.name,
        home=link.source,
        new=new,
        now_ms=now_ms,
        old_is_up=sides.is_up(old),
        topics=topics,
    )
    operator.check_way(link.source, old, new)
    steps = [{"step": each.name, "does": each.does, "at": ", ".join(each.at)} for each in operation.steps]
    report = loss_report(sides, link.source, old, new)
    stuck = not_mirrored(sides, link.source, old, new)
    masked = sides.masked(link.source, old, new)
    rights = [line for change in write_access.rights(sides, operation) for line in change.lines()]
    if output is Output.json:
        said = {"kind": kind, "topics": topics, "old": old, "new": new, "steps": steps}
        said |= _as_json(report, now_ms)
        show_one({**said, "not_mirrored": stuck, "masked": masked, "rights": rights}, output)
        return
    show(steps, output)
    for line in rights:
        note(line)
    _show_report(report, old, now_ms)
    _print_masked(masked, link)
    for topic, why in stuck.items():
        note(f'✗ topic "{topic}" is not mirrored: {why}')
    if stuck and kind != "failover":
        note(f"A {kind} would be refused for that.")
    note("Nothing was changed.")


def change_ownership(
    name: str,
    file: Path | None,
    kind: Any,
    wait: float,
    output: Output,
    *,
    tail: Any = "replay",
    typed: str | None = None,
    confirm: bool = False,
    dry_run: bool = False,
    patterns: Sequence[str] | None = None,
) -> None:
    """Begin a change of ownership, show its plan, ask where it cannot be taken back, and carry it out."""
    import uuid

    from hub.replication.operations import write_access
    from hub.replication.operations.effects import loss_report

    world = open_world(file)
    link = world.link(name)
    if dry_run:
        rehearse(world, link, kind, output, patterns or ())
        return
    topics = _chosen(world, link, kind, patterns or (), output)
    operator = operator_of(world, wait, topics)
    new = link.source if kind == "failback" else link.target
    operation = operator.begin(kind, name, link.source, new, id=uuid.uuid4().hex[:8], tail=tail)
    _print_masked(operator.world.masked(link.source, operation.old, new), link)
    for change in write_access.rights(operator.world, operation):
        for line in change.lines():
            note(line)
    if confirm:
        report = loss_report(operator.world, link.source, operation.old, operation.new)
        note(report.words(operation.old, int(time.time() * 1000)))
        whose = f"{operation.whose} of {link.source}" if topics else f"what {link.source} owns"
        confirm_name(name, typed, f"hand over {whose} to {new}")
    finish(operator, operation, output)


def _print_masked(topics: Sequence[str], link: Link) -> None:
    for topic in topics:
        note(
            f"! {topic}: its copy at {link.target} is masked: records written there are never copied to "
            f"{link.source}, where they would overwrite originals"
        )


def finish(operator: Operator, operation: OwnershipChange, output: Output) -> None:
    from hub.replication.operations.effects import loss_report

    before = loss_report(operator.world, operation.home, operation.old, operation.new)
    now_ms = int(time.time() * 1000)
    try:
        done = operator.carry_on(operation)
    except (HubError, KeyboardInterrupt):
        some = f" --topic {operation.topics[0]}" if operation.topics else ""
        note(
            f"{operation.kind} is not complete. Continue with: hub mirror resume "
            f"{operation.mirror}{some} (or --abort)"
        )
        raise
    loss = before if operation.kind == "failover" else None
    if output is Output.json:
        said = {"kind": done.kind, "id": done.id, "epoch": done.epoch, "old": done.old, "new": done.new}
        show_one(
            {
                **said,
                "topics": list(done.topics),
                "steps": list(done.done),
                **(_as_json(loss, now_ms) if loss else {}),
            },
            output,
        )
    elif loss is not None:
        _show_report(loss, done.old, now_ms)
    note(f"{done.new} serves {done.whose} now (epoch {done.epoch}).")
    if loss is not None and (loss.lost_at_least or not loss.is_exact):
        note(
            f"Once {done.old} is back: hub mirror left-behind {done.mirror} shows the records that only it "
            f"has, and hub mirror failback {done.mirror} carries them over (--tail replay) or declares them "
            "lost (--tail discard)."
        )


def _as_json(report: LossReport, now_ms: int) -> dict[str, Any]:
    """Return the report for `-o json`. An unknown number is null; its bounds and the age of the source's last
    answer are given too.
    """
    heard = report.heard_at_ms
    return {
        "exact": report.is_exact,
        "lost": report.lost,
        "lost_at_least": report.lost_at_least,
        "redelivered": report.redelivered,
        "redelivered_at_least": report.redelivered_at_least,
        "redelivered_at_most": report.redelivered_at_most,
        "source_heard_at_ms": heard,
        "source_heard_s": None if heard is None else round(max(0, now_ms - heard) / 1000, 1),
        "losses": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "first": each.first,
                "end": each.end,
                "count": each.count,
                "known": each.known,
                "heard_at_ms": each.heard_at_ms,
            }
            for each in report.losses
            if each.count or not each.known
        ],
        "groups": [
            {
                "group": each.group,
                "topic": each.place.topic,
                "partition": each.place.partition,
                "state": each.state,
                "reason": each.reason,
                "position": each.position,
                "known": each.known,
                "redelivered": each.redelivered,
                "redelivered_at_most": each.redelivered if each.known else each.redelivered_at_most,
                "unread_lost": each.unread_lost,
                "read_only_here": each.read_only_here,
            }
            for each in report.effects
        ],
    }


def _show_report(report: LossReport, source: str, now_ms: int) -> None:
    body = _as_json(report, now_ms)
    for part in ("losses", "groups"):
        if body[part]:
            show(body[part])
    note(report.words(source, now_ms))
