"""[edge] ``hub group``: positions of consumer groups, shown and reset."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import CallerError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.topics.groups.reset_plan import ResetPlan

app = typer.Typer(
    help="Consumer groups: their positions, shown and reset.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub group show billing; hub group reset billing --to 2026-01-31T12:00 --dry-run",
)
GroupArgument = Annotated[str, typer.Argument(help="The group's id")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,P]",
        help="Only this topic, or these partitions of it (repeatable). Default: all topics of the group",
    ),
]
_COLUMNS = ("topic", "partition", "position", "begin", "end")


@app.command("show")
def show_group(group: GroupArgument, topic: TopicsOption = None, output: OutputOption = Output.table) -> None:
    """Show the positions of a group, and the ends of the log.

    Example: hub group show billing -o json
    """
    plan = _plan(group, topic or [], "")
    show([_row(asdict(row), _COLUMNS) for row in plan.rows], output, _COLUMNS)
    _note(plan)


@app.command()
def reset(
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset, +N or -N, a time (2026-01-31T12:00, UTC), or how long ago: 15m"
        ),
    ],
    topic: TopicsOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Reset the positions of a group that has no members. Shows the plan first: from where to where, records
    that are skipped, and records that are read again.

    Examples: hub group reset billing --to earliest --topic shop.orders --dry-run
    hub group reset billing --to -100 --topic shop.orders:0,1 --yes
    """
    from hub.kafka import own_cluster
    from hub.topics.groups.reset import GroupPositions
    from hub.topics.groups.reset_plan import check_plan

    plan = _plan(group, topic or [], to)
    columns = (*_COLUMNS, "target", "skipped", "again", "remark")
    show([_row(asdict(row), columns) for row in plan.rows], output, columns)
    _note(plan)
    if dry_run:
        return
    check_plan(plan, None)
    if not plan.changes:
        note("There is nothing to do.")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise CallerError(f"this would move group {group}: confirm with --yes", code="HUB-1606")
        typer.confirm(f"Move {plan.changes} positions of group {group}?", abort=True, err=True)
    planned([f"{tp.topic} {tp.partition}: {at}" for tp, at in sorted(plan.positions)])
    GroupPositions(own_cluster(load_settings())).reset(plan.request, plan.digest)
    note(f"{plan.changes} positions of group {group} were moved.")


def _plan(group: str, topics: list[str], to: str) -> ResetPlan:
    from hub.kafka import own_cluster
    from hub.topics.groups.reset import GroupPositions
    from hub.topics.groups.reset_plan import reset_request

    request = reset_request(group, topics, to, epoch_ms())
    return GroupPositions(own_cluster(load_settings())).plan(request)


def _row(row: dict[str, object], columns: tuple[str, ...]) -> dict[str, object]:
    return {name: row[name] for name in columns}


def _note(plan: ResetPlan) -> None:
    for line in plan.notes:
        note(line)
    if plan.members:
        note(f"The group has {len(plan.members)} members now: {', '.join(plan.members[:5])}")
