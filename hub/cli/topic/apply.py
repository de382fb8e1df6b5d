"""[edge] ``hub topic plan`` and ``hub topic apply``: show the changes, and carry them out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.governing.flow_gate import refuse_flows
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.topic.tree_file import (
    EXIT_CHANGES,
    EXIT_REFUSED,
    FEW,
    FileOption,
    connect,
    load_tree,
    write_file,
)
from hub.config import Settings
from hub.errors import CallerError, HubError, NotFound

if TYPE_CHECKING:
    from hub.kafka import KafkaCluster
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.topics.tree.plan import TreePlan
    from hub.topics.tree.saved_plan import Facts
    from hub.topics.tree.steps import Step


_MANY = 20  # steps from which a bar replaces lines
DestroyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy",
        metavar="NAME",
        help="Delete this topic, which the tree must not name, and all its events (repeatable)",
    ),
]
DurabilityOption = Annotated[
    bool,
    typer.Option(
        "--allow-lower-durability", help="Allow settings that make the log keep less, or less safely"
    ),
]


def plan(
    file: FileOption = None,
    destroy: DestroyOption = None,
    allow_lower_durability: DurabilityOption = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the plan into this file, for: hub topic apply FILE")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show what `apply` would change: topics, settings, schemas; and refusals with a solution.

    Exit code 0: nothing to do. 2: there are changes. 1: something is refused (or failed).
    Example: hub topic plan --save next.json && hub topic apply next.json
    """
    settings = load_settings()
    made, facts, _, _ = make_plan(settings, file, destroy, allow_lower_durability)
    _show_plan(made, output)
    refuse_flows(settings)
    if made.refusals:
        if save is not None:
            note(f"{save} is not written: a plan with a refusal is not carried out.")
        raise typer.Exit(EXIT_REFUSED)
    if save is not None:
        from hub.topics.tree.saved_plan import SavedPlan, write

        write_file(save, write(SavedPlan(made.steps, facts)))
        note(f"Saved. Carry out exactly this: hub topic apply {save}")
    if made.steps:
        raise typer.Exit(EXIT_CHANGES)


def apply(
    saved: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="A plan of `hub topic plan --save`")
    ] = None,
    file: FileOption = None,
    destroy: DestroyOption = None,
    allow_lower_durability: DurabilityOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Bring the cluster and the registry to the state of the tree. A single refusal prevents all steps.

    It stops at the first failure and prints completed and remaining steps; the next apply continues there.
    Topics that the tree does not name are kept, except those named by --destroy. A saved plan is carried
    out as it was shown, or
    refused when the cluster has changed since. While another apply is under way on this cluster, this one is
    refused.
    Example: hub topic apply --destroy shop.orders-old
    """
    from hub.topics.tree.apply_lock import one_apply

    settings = load_settings()
    if saved is not None and (file is not None or destroy or allow_lower_durability):
        raise CallerError(
            "a saved plan is carried out as it is: -f, --destroy and --allow-lower-durability belong to"
            " `hub topic plan --save`"
        )
    refuse_flows(settings)
    locked, _ = connect(settings)
    factor = settings.replication_factor
    with one_apply(locked, "hub topic apply", replication_factor=factor, say=note) as hold:
        if saved is None:
            made, _, cluster, registry = make_plan(settings, file, destroy, allow_lower_durability)
        else:
            made, cluster, registry = _saved_plan(settings, saved)
        for caution in made.cautions:
            note(str(caution))
        if output is Output.table:
            _print_kept(made)
        carry_out_plan(made, cluster, registry, output, hold.check)


def carry_out_plan(
    made: TreePlan, cluster: KafkaCluster, registry: RegistryClient, output: Output, check: Callable[[], None]
) -> None:
    """Carry a plan out. ``check`` is called between steps, and raises when another apply took over."""
    from hub.topics.tree.apply_plan import apply as carry_out

    done: list[Step] = []
    total = len(made.steps)
    stopped: HubError | KeyboardInterrupt | None = None
    with steps_bar(total) as advance:

        def say(step: Step) -> None:
            done.append(step)
            if advance is None:
                note(f"[{len(done)}/{total}] {step}")
            else:
                advance(len(done))
            check()

        try:
            check()
            planned([] if made.refusals else made.steps)
            carry_out(made, cluster, registry, say)
        except (HubError, KeyboardInterrupt) as error:
            stopped = error
    carried = {id(step) for step in done}
    left = [step for step in made.steps if id(step) not in carried]
    if output is Output.json:
        show_one({"done": [str(step) for step in done], "left": [str(step) for step in left]}, output)
    if stopped is not None:
        _note_left(len(done), left)
        raise stopped
    note(f"{len(done)} changed." if done else "Nothing to change.")


def _note_left(done: int, left: Sequence[Step]) -> None:
    note(f"Stopped. Done: {done} (these steps stay). Left: {len(left)}; the first of them:")
    for step in left[:FEW]:
        note(f"  {step}")
    note("The next `hub topic apply` continues there.")


@contextmanager
def steps_bar(total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error for many steps at a terminal; None where lines are better."""
    if total < _MANY or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("apply", total=total)
        yield lambda done: bar.update(task, completed=done)


def make_plan(
    settings: Settings, file: Path | None, destroy: Sequence[str] | None, allow_lower_durability: bool
) -> tuple[TreePlan, Facts, KafkaCluster, RegistryClient]:
    """Return the rehearsed plan, the digests of its inputs, and its clients."""
    from hub.topics.tree.apply_plan import compare, rehearsed
    from hub.topics.tree.plan import Allowed

    loaded = load_tree(settings, file)
    cluster, registry = connect(settings)
    allowed = Allowed(frozenset(destroy or ()), allow_lower_durability)
    compared = compare(loaded, cluster, registry, allowed)
    return rehearsed(compared.plan, cluster), compared.facts, cluster, registry


def _saved_plan(settings: Settings, file: Path) -> tuple[TreePlan, KafkaCluster, RegistryClient]:
    """Return the plan in the file. Raises Conflict when its inputs have changed."""
    from hub.topics.tree.apply_plan import check_unchanged
    from hub.topics.tree.plan import TreePlan
    from hub.topics.tree.saved_plan import read

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f'file "{file}" does not exist', hint="make it: hub topic plan --save FILE") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f'file "{file}" cannot be read: {error}') from None
    saved = read(text, str(file))
    cluster, registry = connect(settings)
    check_unchanged(saved, cluster, registry)
    return TreePlan(saved.steps), cluster, registry


def _show_plan(made: TreePlan, output: Output) -> None:
    if output is Output.json:
        from hub.topics.tree.saved_plan import as_json

        show_one(as_json(made), output)
        return
    for line in (*made.steps, *made.cautions, *made.refusals):
        print(line)
    _print_kept(made)
    note(f"{len(made.steps)} to change, {len(made.refusals)} refused.")


def _print_kept(made: TreePlan) -> None:
    from hub.topics.tree.saved_plan import destroy_command

    if not made.kept:
        return
    note("Not in the tree: kept (the command would destroy it, with all its events)")
    for name in made.kept[:FEW]:
        note(f"  {name}   {destroy_command(name)}")
    if len(made.kept) > FEW:
        note(f"  and {len(made.kept) - FEW} more: hub topic plan -o json")
