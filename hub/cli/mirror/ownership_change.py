"""[edge] A change of ownership as commands carry it out: rehearse, confirm, do, report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.cli.mirror.context import World, confirm_name, open_world
from hub.cli.terminal.output import Output, note, show, show_one
from hub.errors import HubError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.access_log.chain import LogSigner
    from hub.replication.operations.mirrored_clusters import MirroredClusters
    from hub.replication.operations.operator import Operator
    from hub.replication.ownership.links import Link
    from hub.replication.ownership.loss_report import LossReport
    from hub.replication.ownership.operation_steps import Kind, OwnershipChange, Tail
    from hub.replication.ownership.topic_state import TopicState


def operator_of(world: World, wait: float, topics: Iterable[str] = ()) -> Operator:
    """Return an operator; with ``topics``, of a change of these topics alone."""
    from hub.replication.operations.mirrored_clusters import MirroredClusters
    from hub.replication.operations.operator import Operator

    only, signer = frozenset(topics), own_signer
    return Operator(MirroredClusters(world.file, world.clusters, only, signer, account_here()), wait, note)


def own_signer() -> LogSigner:
    """Return the signer of this home's reports."""
    from hub.access_log.chain import LogSigner
    from hub.cli.context import load_settings
    from hub.home_key import make_key

    return LogSigner(make_key(load_settings().home))


def account_here() -> str:
    """Return the account and machine of this process, for records."""
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"


def sides_of(world: World) -> MirroredClusters:
    """Return the clusters of the file as operations use them."""
    from hub.replication.operations.mirrored_clusters import MirroredClusters

    return MirroredClusters(world.file, world.clusters)


def _chosen(
    world: World, link: Link, kind: Kind, patterns: Sequence[str], output: Output
) -> tuple[TopicState, ...]:
    """Return the topics that a change of single topics moves, and show each with its state; () without
    patterns: all of the home.
    """
    from hub.replication.operations.change_plan import chosen_topics

    states = chosen_topics(sides_of(world), link, kind, patterns)
    if states and output is not Output.json:
        show([{"topic": each.topic, "now": each.state, "owner": each.owner} for each in states], output)
    return states


def rehearse(
    world: World, link: Link, kind: Kind, output: Output, patterns: Sequence[str] = (), tail: Tail = "replay"
) -> None:
    """Print the steps and the report of a failover, switchover, failback or promotion; change nothing."""
    from hub.replication.operations.change_plan import plan_change

    world = world.seen_by(link)
    topics = _chosen(world, link, kind, patterns, output)
    plan = plan_change(sides_of(world), link, kind, topics, tail)
    if output is Output.json:
        show_one(plan.as_json(), output)
        return
    show(plan.steps, output)
    for line in plan.rights:
        note(line)
    _show_report(plan.report, plan.operation.old, plan.at_ms)
    for line in plan.tail.lines(plan.operation.new, plan.operation.old) if plan.tail is not None else ():
        note(line)
    _print_masked(plan.masked, link)
    for topic, why in plan.not_mirrored.items():
        note(f'✗ topic "{topic}" is not mirrored: {why}')
    if plan.not_mirrored and kind != "failover":
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
    export: str = "",
) -> None:
    """Begin a change of ownership, show its plan, ask where it cannot be taken back, and carry it out."""
    import uuid

    from hub.replication.operations import write_access
    from hub.replication.operations.effects import loss_report

    world = open_world(file)
    link = world.link(name)
    if dry_run:
        rehearse(world, link, kind, output, patterns or (), tail)
        return
    world = world.seen_by(link)
    topics = [each.topic for each in _chosen(world, link, kind, patterns or (), output)]
    operator = operator_of(world, wait, topics)
    new = link.source if kind == "failback" else link.target
    operation = operator.begin(
        kind, name, link.source, new, id=uuid.uuid4().hex[:8], tail=tail, export=export
    )
    _print_masked(operator.world.masked(link.source, operation.old, new), link)
    for change in write_access.rights(operator.world, operation):
        for line in change.lines():
            note(line)
    if tail == "restore":
        _confirm_restore(operator.world, operation, typed)
    if confirm:
        report = loss_report(operator.world, link.source, operation.old, operation.new)
        note(report.words(operation.old, epoch_ms()))
        whose = f"{operation.whose} of {link.source}" if topics else f"what {link.source} owns"
        confirm_name(name, typed, f"hand over {whose} to {new}")
    finish(operator, operation, output)


def _confirm_restore(world: MirroredClusters, operation: OwnershipChange, typed: str | None) -> None:
    """Show which topics a failback with --restore deletes at home, and ask for the mirror's name."""
    from hub.replication.operations.divergence.tail_plan import plan_tail

    home, away = operation.new, operation.old
    plan = plan_tail(world, home, away, operation.tail)
    for line in plan.lines(home, away):
        note(line)
    if plan.topics:
        more = f" and {len(plan.topics) - 1} more" if len(plan.topics) > 1 else ""
        what = f"delete {plan.topics[0]}{more} at {home} and fill it from {away}"
        confirm_name(operation.mirror, typed, what)


def _print_masked(topics: Sequence[str], link: Link) -> None:
    for topic in topics:
        note(
            f"! {topic}: its copy at {link.target} is masked: records written there are never copied to "
            f"{link.source}, where they would overwrite originals"
        )


def finish(operator: Operator, operation: OwnershipChange, output: Output) -> None:
    from hub.replication.operations.change_plan import carry_out

    try:
        outcome = carry_out(operator, operation)
    except (HubError, KeyboardInterrupt):
        some = f" --topic {operation.topics[0]}" if operation.topics else ""
        note(
            f"{operation.kind} is not complete. Continue with: hub mirror resume "
            f"{operation.mirror}{some} (or --abort)"
        )
        raise
    done, loss = outcome.operation, outcome.loss
    if output is Output.json:
        show_one(outcome.as_json(), output)
    elif loss is not None:
        _show_report(loss, done.old, outcome.at_ms)
    note(f"{done.new} serves {done.whose} now (epoch {done.epoch}).")
    if loss is not None and (loss.lost_at_least or not loss.is_exact):
        note(
            f"Once {done.old} is back: hub mirror left-behind {done.mirror} shows the records that only it "
            f"has, and hub mirror failback {done.mirror} carries them over (--replay, --merge), declares "
            "them lost (--discard) or removes them (--restore)."
        )


def _show_report(report: LossReport, source: str, now_ms: int) -> None:
    from hub.replication.operations.change_plan import effects_as_json

    body = effects_as_json(report, now_ms)
    for part in ("losses", "groups"):
        if body[part]:
            show(body[part])
    note(report.words(source, now_ms))
