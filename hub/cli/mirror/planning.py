"""[edge] ``hub mirror ls``, ``plan`` and ``apply``: the mirrors of the file, and the changes that their
targets need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.governing.flow_gate import refuse_flows
from hub.cli.mirror.context import (
    EXIT_CHANGES,
    EXIT_REFUSED,
    FileOption,
    NamesArgument,
    open_file,
    open_world,
)
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one

if TYPE_CHECKING:
    from hub.replication.clusters.link_plan import LinkPlan


def list_mirrors(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """List the mirrors of the file with their rules. Needs no Kafka.

    Exit code 1: two of them would send a record in a cycle, or write one topic twice.

    Example: hub mirror ls -f examples/mirrors/mirrors.yaml
    """
    from hub.replication.config.renaming import renaming_refusals
    from hub.replication.config.topology import check
    from hub.replication.ownership.links import Link, rename_text

    path, loaded = open_file(file)
    rows = [
        {
            "mirror": name,
            "source": mirror.source,
            "target": mirror.target,
            "topics": ", ".join(mirror.topics)
            + "".join(f", not {each}" for each in mirror.exclude)
            + (f", as {rename}" if (rename := rename_text(Link(name, mirror, name))) else ""),
            "owner": loaded.rule(name),
            "rename": rename,
            "on_gap": mirror.on_gap,
            "on_recreate": mirror.on_recreate,
            "on_delete": mirror.on_delete.do,
            "drift": mirror.drift,
            "paused": mirror.paused,
        }
        for name, mirror in loaded.mirrors.items()
    ]
    show(rows, output, ("mirror", "source", "target", "topics", "owner", "on_gap", "on_recreate", "paused"))
    refusals = (*check(loaded), *renaming_refusals(loaded))
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
    from hub.replication.operations.link_apply import ChosenLinks, plan_links

    world = open_world(file)
    plans = plan_links(ChosenLinks(world.file, world.chosen(names), world.clusters, os.environ))
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
    from hub.replication.operations.link_apply import ChosenLinks, apply_links

    world = open_world(file)
    refuse_flows(load_settings(), "mirror", world.path)
    chosen = ChosenLinks(world.file, world.chosen(names), world.clusters, os.environ)
    applied = apply_links(chosen, note, from_now=from_now)
    if output is Output.json:
        show_one(applied.as_json(), output)
    refusals, failed, done = applied.refusals, applied.failed, applied.done
    for refusal in refusals:
        note(str(refusal))
    for topic, error in failed.items():
        note(f'✗ topic "{topic}": {error}')
    note(f"{len(done)} changed." if done else "Nothing to change.")
    if refusals or failed:
        raise typer.Exit(EXIT_REFUSED)


def _show_plans(plans: Sequence[LinkPlan], output: Output) -> None:
    from hub.replication.operations.link_apply import plan_as_json

    changes = sum(len(each.changes) for each in plans)
    refused = sum(len(each.made.refusals) for each in plans)
    if output is Output.json:
        show([plan_as_json(each) for each in plans], output)
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
        for topic, state in each.deletions.items():
            print(f"  - topic {topic}  {state}")
        if not each.topics:
            note(
                f"! {each.link.name}: {each.link.source} has no topic that fits, or the mirror's "
                "user may not Describe any"
            )
    note(f"{changes} to change, {refused} refused.")
