"""[edge] ``hub mirror ls``, ``plan`` and ``apply``: the mirrors of the file, and the changes that their
targets need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.governing.flow_gate import refuse_flows
from hub.cli.mirror.context import (
    EXIT_CHANGES,
    EXIT_REFUSED,
    FileOption,
    NamesArgument,
    World,
    mask_keys,
    open_file,
    open_world,
)
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import HubError, PeerError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.replication.clusters.link_plan import LinkPlan


def list_mirrors(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """List the mirrors of the file with their rules. Needs no Kafka.

    Exit code 1: two of them would send a record in a cycle, or write one topic twice.

    Example: hub mirror ls -f examples/mirrors/mirrors.yaml
    """
    from hub.replication.config.topology import check

    path, loaded = open_file(file)
    rows = [
        {
            "mirror": name,
            "source": mirror.source,
            "target": mirror.target,
            "topics": ", ".join(mirror.topics) + "".join(f", not {each}" for each in mirror.exclude),
            "owner": loaded.rule(name),
            "on_gap": mirror.on_gap,
            "on_recreate": mirror.on_recreate,
            "paused": mirror.paused,
        }
        for name, mirror in loaded.mirrors.items()
    ]
    show(rows, output, ("mirror", "source", "target", "topics", "owner", "on_gap", "on_recreate", "paused"))
    refusals = check(loaded)
    for refusal in refusals:
        note(str(refusal))
    if not rows:
        note(f"{path} declares no mirror.")
    if refusals:
        raise typer.Exit(EXIT_REFUSED)


def plan(names: NamesArgument = None, file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Show what `apply` would change at the targets.

    Lists schemas, topics, settings and rules, and refusals with a solution.

    Exit code 0: nothing to do. 2: there are changes. 1: a topic is refused, or the command failed; other
    topics can continue.

    Example: hub mirror plan nyc-lon -o json
    """
    world = open_world(file)
    plans = _plans(world, names)
    _show_plans(plans, output)
    refuse_flows(load_settings(), "mirror", world.path)
    if any(each.made.refusals for each in plans):
        raise typer.Exit(EXIT_REFUSED)
    if any(each.changes for each in plans):
        raise typer.Exit(EXIT_CHANGES)


def apply(
    names: NamesArgument = None,
    file: FileOption = None,
    from_now: Annotated[
        bool,
        typer.Option(
            "--from-now",
            help="Changed rules (only, mask, schema_ids) apply from here on; mirrored records are unchanged",
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Prepare the targets: schemas, topics, settings, rules.

    Workers do the same continuously for later changes.

    A refused topic is not mirrored; all others are prepared. Exit code 1: a topic is refused or fails.
    While another apply is in progress at a target, this one is refused.

    Example: hub mirror apply
    """
    world = open_world(file)
    refuse_flows(load_settings(), "mirror", world.path)
    with _one_apply(world, names) as check:
        done = _rules_from_now(world, names) if from_now else []
        failed: dict[str, HubError] = {}
        plans = _plans(world, names)
        for each in plans:
            failed |= _carry_out(each, world, done, check)
    refusals = [refusal for each in plans for refusal in each.made.refusals]
    if output is Output.json:
        refused = [{"topic": r.topic, "reason": r.reason, "hint": r.hint} for r in refusals]
        show_one(
            {"done": done, "failed": {t: e.message for t, e in failed.items()}, "refused": refused}, output
        )
    for refusal in refusals:
        note(str(refusal))
    for topic, error in failed.items():
        note(f'✗ topic "{topic}": {error}')
    note(f"{len(done)} changed." if done else "Nothing to change.")
    if refusals or failed:
        raise typer.Exit(EXIT_REFUSED)


def _carry_out(
    each: LinkPlan, world: World, done: list[str], check: Callable[[], None]
) -> dict[str, HubError]:
    """Carry out the plan of one link, and add a line for each step to ``done``. Returns the topics that
    failed. ``check`` is called before each step, and raises when another apply took over.
    """
    from hub.replication.clusters.carry_out import carry_out, make_own, protect, record_rights
    from hub.replication.planning.steps import Remember

    for caution in each.made.cautions:
        note(str(caution))
    total = len(each.changes)
    check()
    make_own(each.own, world.clusters)
    mine = [f"+ topic {step.topic} at {where}" for where, step in each.own]
    for number, line in enumerate(mine, 1):
        note(f"[{number}/{total}] {line}")

    def say(step: Any) -> None:
        if not isinstance(step, Remember):
            mine.append(str(step))
            note(f"[{len(mine)}/{total}] {step}")
        check()

    source, target = world.clusters[each.link.source], world.clusters[each.link.target]
    record_rights(each, target)
    for remark in protect(each, target):
        note(f"! {remark}")
    for line in each.protection_lines:
        mine.append(line)
        note(f"[{len(mine)}/{total}] {line}")
    check()
    failed = carry_out(each.made.steps, source, target, say)
    done += mine
    return failed


@contextmanager
def _one_apply(world: World, names: Sequence[str] | None) -> Iterator[Callable[[], None]]:
    """Hold the lock of applies of each target. Yields a function that raises Conflict when another apply took
    over. A target where the mirror's user may not write the lock is not locked, with a message.
    """
    from hub.replication.clusters.clusters import REFUSED, default_replicas
    from hub.topics.tree.apply_lock import one_apply

    held = []
    with ExitStack() as opened:
        for name in sorted({link.target for link in world.chosen(names)}):
            kafka = world.clusters[name].kafka
            lock = one_apply(
                kafka,
                "hub mirror apply",
                replication_factor=default_replicas(world.clusters[name]),
                say=note,
            )
            try:
                held.append(opened.enter_context(lock))
            except PeerError as error:
                if error.code != REFUSED:
                    raise
                note(f"! Other applies at {name} are not kept apart from this one: {error.message}")

        def check() -> None:
            for hold in held:
                hold.check()

        yield check


def _rules_from_now(world: World, names: Sequence[str] | None) -> list[str]:
    """Apply the rules of the file from each partition's current position on, and return one line per topic.
    Workers that stopped because of changed rules retry at once.
    """
    from hub.replication.clusters.control_state import retry_record
    from hub.replication.clusters.link_plan import rules_from_now
    from hub.replication.config.load_mirrors import mask_secrets
    from hub.replication.ownership.links import named

    done = []
    for chosen in world.chosen(names):
        alone = world.file.model_copy(update={"mirrors": {chosen.name: chosen.mirror}})
        secrets = mask_secrets(alone, os.environ)
        for link in named(world.file, chosen.name).values():
            begun = rules_from_now(link, world.clusters[link.target], secrets)
            for topic in sorted({tp.topic for tp in begun}):
                at = {tp.partition: first for tp, (first, _) in sorted(begun.items()) if tp.topic == topic}
                rules = next(rules for tp, (_, rules) in begun.items() if tp.topic == topic)
                where = ", ".join(f"{partition}: {first}" for partition, first in at.items())
                done.append(f"~ topic {topic}  from now on {rules} (by partition from offset {where})")
                note(done[-1])
            if begun:
                from hub.replication.operations.pausing import append

                append(world.clusters[link.target], [retry_record(link.name, epoch_ms())])
    return done


def _plans(world: World, names: Sequence[str] | None) -> list[LinkPlan]:
    from hub.replication.clusters.control_state import joined
    from hub.replication.clusters.link_plan import planned
    from hub.replication.clusters.readers import read_control_state, read_progress

    boards = {name: read_control_state(reached, status=False) for name, reached in world.clusters.items()}
    control = joined(board.control for board in boards.values())
    plans = []
    for link in world.chosen(names):
        target, source = world.clusters[link.target], world.clusters[link.source]
        plans.append(
            planned(
                world.file,
                link,
                world.clusters,
                control,
                boards[link.target],
                partial(read_progress, target, maps=False),
                read_progress(source, maps=False) if control.operations else None,
                mask_keys(link),
            )
        )
    return plans


def _show_plans(plans: Sequence[LinkPlan], output: Output) -> None:
    changes = sum(len(each.changes) for each in plans)
    refused = sum(len(each.made.refusals) for each in plans)
    if output is Output.json:
        show(
            [
                {
                    "mirror": each.link.name,
                    "topics": list(each.topics),
                    "steps": list(each.changes),
                    "cautions": [asdict(caution) for caution in each.made.cautions],
                    "refusals": [
                        {"topic": r.topic, "reason": r.reason, "hint": r.hint} for r in each.made.refusals
                    ],
                    "rules": each.shapes,
                }
                for each in plans
            ],
            output,
        )
        return
    for each in plans:
        print(
            f"mirror {each.link.name}: {len(each.topics)} topics from {each.link.source} "
            f"to {each.link.target}"
        )
        for line in (*each.changes, *each.made.cautions, *each.made.refusals):
            print(f"  {line}".replace("\n", "\n  "))
        for topic, rules in each.shapes.items():
            print(f"  * topic {topic}  {rules}")
        if not each.topics:
            note(
                f"! {each.link.name}: {each.link.source} has no topic that fits, or the mirror's "
                "user may not Describe any"
            )
    note(f"{changes} to change, {refused} refused.")
