"""[edge] ``hub connector plan``, ``apply``, ``drift``, ``validate`` and ``ls``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.audited import planned
from hub.cli.connector.context import EXIT_CHANGES, EXIT_REFUSED, FileOption, client, declared
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import HubError, NotFound

if TYPE_CHECKING:
    from hub.connectors.connect_client import ConnectClient
    from hub.connectors.plan import ConnectorPlan, ConnectorStep

DestroyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy",
        metavar="NAME",
        help="Delete this connector; its topics and offsets stay. Only one that the file does not name; may "
        "stand several times",
    ),
]


def plan(file: FileOption = None, destroy: DestroyOption = None, output: OutputOption = Output.table) -> None:
    """Show what `apply` would change, after Kafka Connect has validated every connector.

    Exit code 0: nothing to do. 2: there are changes. 1: something is refused (or failed).
    Example: hub connector plan
    """
    made, _ = _plan(file, destroy)
    if output is Output.json:
        show_one(_as_json(made), output)
    else:
        for line in (*made.steps, *made.cautions, *made.refusals):
            print(line)
        _note_kept(made)
        note(f"{len(made.steps)} to change, {len(made.refusals)} refused.")
    if made.refusals:
        raise typer.Exit(EXIT_REFUSED)
    if made.steps:
        raise typer.Exit(EXIT_CHANGES)


def apply(
    file: FileOption = None, destroy: DestroyOption = None, output: OutputOption = Output.table
) -> None:
    """Make Kafka Connect like the file. Nothing is done while something is refused.

    It stops at the first failure and lists the finished and the remaining steps; the next apply continues.
    Connectors that the file does not name are kept, but for those named by --destroy. While another apply is
    under way, this one is refused.
    Example: hub connector apply --destroy old-crm
    """
    from hub.connectors.apply_plan import carry_out
    from hub.kafka import own_cluster
    from hub.topics.tree.apply_lock import one_apply

    settings = load_settings()
    done: list[ConnectorStep] = []
    stopped: HubError | None = None
    locked, factor = own_cluster(settings), settings.replication_factor
    with one_apply(locked, "hub connector apply", replication_factor=factor, say=note) as hold:
        made, connect = _plan(file, destroy)
        for caution in made.cautions:
            note(caution)
        if made.refusals:
            for refusal in made.refusals:
                note(str(refusal))
            note(f"Nothing is changed: {len(made.refusals)} refused.")
            raise typer.Exit(EXIT_REFUSED)

        def say(step: ConnectorStep) -> None:
            done.append(step)
            note(f"[{len(done)}/{len(made.steps)}] {step}")
            hold.check()

        try:
            planned(made.steps)
            carry_out(made, connect, say)
        except HubError as error:
            stopped = error
    left = made.steps[len(done) :]
    if output is Output.json:
        show_one({"done": [str(each) for each in done], "left": [str(each) for each in left]}, output)
    if stopped is not None:
        note(f"Stopped. Done: {len(done)} (they stand). Left: {len(left)}; the first: {left[0]}")
        raise stopped
    note(f"{len(done)} changed." if done else "Nothing to change.")


def drift(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Show what differs between the file and Kafka Connect, setting by setting.

    Exit code 0: no difference. 2: there are some. 1: unknown, because a system did not answer.
    Example: hub connector drift -o json
    """
    from hub.connectors.apply_plan import inputs_of
    from hub.connectors.plan import Declared
    from hub.connectors.plan import drift as differences
    from hub.connectors.plan import plan as planned

    settings = load_settings()
    inputs = inputs_of(settings, declared(settings, file))
    wanted = {name: Declared(inputs.config(name), each.state) for name, each in inputs.file.by_name.items()}
    connector_drifts = differences(planned(wanted, client(settings).connectors()))
    if connector_drifts or output is Output.json:
        show(
            [asdict(each) for each in connector_drifts],
            output,
            ("connector", "setting", "file", "cluster", "way"),
        )
    note(
        f"{len(connector_drifts)} differences." if connector_drifts else "Kafka Connect is as the file says."
    )
    raise typer.Exit(EXIT_CHANGES if connector_drifts else 0)


def validate(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CONNECTOR]...", help="Default: all of the file")
    ] = None,
    file: FileOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Let Kafka Connect check connectors, and show each error with its line of the file. Changes nothing.

    The plugin checks too, as far as it can: Debezium signs in at the database. Exit code 1: there are errors.
    Example: hub connector validate crm
    """
    from hub.connectors.apply_plan import check, inputs_of

    settings = load_settings()
    loaded = declared(settings, file)
    for name in names or ():
        if name not in loaded.by_name:
            raise NotFound(f'connector "{name}" is not in {loaded.path}', code="HUB-1456")
    wanted = list(dict.fromkeys(names or loaded.by_name))
    refused, cautions = check(inputs_of(settings, loaded), client(settings), wanted)
    if output is Output.json:
        show([asdict(each) for each in refused], output)
    else:
        for line in (*cautions, *refused):
            print(line)
    note(f"{len(wanted)} checked, {len(refused)} errors.")
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def list_connectors(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """The connectors of the file and of Kafka Connect, with their states; the reason of those that failed.

    Example: hub connector ls
    """
    settings = load_settings()
    loaded = declared(settings, file)
    actual = client(settings).connectors()
    rows = []
    for name in sorted({*loaded.by_name, *actual}):
        spec, actual_connector = loaded.by_name.get(name), actual.get(name)
        traces = (
            []
            if actual_connector is None
            else [actual_connector.trace, *(trace for _, _, trace in actual_connector.tasks)]
        )
        rows.append(
            {
                "connector": name,
                "owner": "" if spec is None else spec.owner,
                "class": (
                    actual_connector.config.get("connector.class", "")
                    if actual_connector
                    else spec.java_class
                    if spec
                    else ""
                ).rpartition(".")[2],
                "state": "not applied" if actual_connector is None else actual_connector.state,
                "tasks": ", ".join(f"{id} {state}" for id, state, _ in actual_connector.tasks)
                if actual_connector
                else "",
                "declared": spec is not None,
                "reason": next((each.splitlines()[0][:200] for each in traces if each.strip()), ""),
            }
        )
    show(rows, output, ("connector", "owner", "class", "state", "tasks", "declared", "reason"))


def _plan(file: Path | None, destroy: list[str] | None) -> tuple[ConnectorPlan, ConnectClient]:
    from hub.connectors.apply_plan import inputs_of, make_plan

    settings = load_settings()
    connect = client(settings)
    return make_plan(inputs_of(settings, declared(settings, file)), connect, destroy or ()), connect


def _note_kept(made: ConnectorPlan) -> None:
    if made.kept:
        note("Not in the file: kept (the command would delete it)")
        for name in made.kept[:10]:
            note(f"  {name}   hub connector apply --destroy {name}")
        if len(made.kept) > 10:
            note(f"  and {len(made.kept) - 10} more: hub connector plan -o json")


def _as_json(made: ConnectorPlan) -> dict[str, Any]:
    return {
        "steps": [str(each) for each in made.steps],
        "refusals": [asdict(each) for each in made.refusals],
        "cautions": list(made.cautions),
        "kept": list(made.kept),
    }
