"""[edge] ``hub connector pause``, ``resume``, ``restart``, ``offsets`` and ``logs``."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.connector.context import NameArgument, client
from hub.cli.context import load_settings
from hub.cli.terminal.interrupt import pause as wait
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import CallerError, PeerError

if TYPE_CHECKING:
    from hub.connectors.connect_client import ConnectClient
    from hub.connectors.connectors_file import State

WAIT_S = 60.0
_LOOK_S = 0.25
offsets_app = typer.Typer(
    help="The positions of a connector: show, reset.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub connector offsets show crm",
)


def pause(name: NameArgument) -> None:
    """Pause a connector: its tasks stay, and read and write nothing. The next `resume` continues from its
    position.

    Example: hub connector pause crm
    """
    _set(name, "paused")


def resume(name: NameArgument) -> None:
    """Resume a paused or stopped connector at its position. Example: hub connector resume crm"""
    _set(name, "running")


def restart(
    name: NameArgument,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only the connector or those of its tasks that failed")
    ] = False,
) -> None:
    """Restart a connector and its tasks where they were. Example: hub connector restart crm --failed"""
    connect = client(load_settings())
    actual_connector = connect.connector(name)
    tasks = [id for id, state, _ in actual_connector.tasks if state == "FAILED"]
    if failed and not tasks and actual_connector.state != "FAILED":
        note(f"Nothing of {name} failed.")
        return
    connect.restart(name, only_failed=failed)
    note(f"{name} is restarted." if not failed else f"{name}: restarted what failed (tasks {tasks}).")


def logs(
    name: NameArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="The last lines")] = 50,
) -> None:
    """Show the traces of failed tasks, and the last lines of the embedded worker's log that concern a
    connector.

    Logs of other workers are on their machines. Example: hub connector logs crm -n 200
    """
    settings = load_settings()
    actual_connector = client(settings).connector(name)
    for what, trace in [
        ("connector", actual_connector.trace),
        *((f"task {id}", text) for id, _, text in actual_connector.tasks),
    ]:
        if trace.strip():
            print(f"{what} failed:\n{trace.rstrip()}\n")
    log = settings.logs / "connect.log"
    if not settings.runs_connect or not log.exists():
        note(f"The worker's log is on its machine: {actual_connector.worker or 'no worker has it'}")
        return
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in deque((each for each in lines if f"[{name}|" in each), maxlen=limit):
            print(line.rstrip())


@offsets_app.command("show")
def show_offsets(name: NameArgument, output: OutputOption = Output.table) -> None:
    """Show a connector's position: that in the source, or a sink's position in each partition.

    Example: hub connector offsets show crm
    """
    connect = client(load_settings())
    connect.connector(name)
    show([dict(each) for each in connect.offsets(name)], output, ("partition", "offset"))


@offsets_app.command("reset")
def reset_offsets(
    name: NameArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Make the change; without it the command shows the plan")
    ] = False,
) -> None:
    """Forget a connector's position: a source starts again (Debezium takes a new snapshot), a sink reads from
    the start.

    The connector is stopped meanwhile, and runs afterwards if it did before.

    Example: hub connector offsets reset crm --yes
    """
    connect = client(load_settings())
    before = connect.connector(name).target
    for each in connect.offsets(name):
        note(f"{each.get('partition')} is at {each.get('offset')}")
    if not yes:
        raise CallerError(
            f"connector {name} would start again and write everything a second time",
            hint=f"hub connector offsets reset {name} --yes",
        )
    connect.set_state(name, "stopped")
    _await(connect, name, "stopped")
    connect.reset_offsets(name)
    if before != "stopped":
        connect.set_state(name, before)
    note(f"{name} has no offsets; it is {before}.")


def _set(name: str, state: State) -> None:
    connect = client(load_settings())
    connect.connector(name)
    connect.set_state(name, state)
    _await(connect, name, state)
    note(f"{name} is {state}.")


def _await(connect: ConnectClient, name: str, state: State) -> None:
    """Wait, at most ``WAIT_S``, until the connector and its tasks report the state, or one of them fails.

    Raises PeerError (HUB-3082).
    """
    wanted, left = state.upper(), int(WAIT_S / _LOOK_S)
    while left:
        actual_connector = connect.connector(name)
        if {actual_connector.state, *(each for _, each, _ in actual_connector.tasks)} == {wanted}:
            return
        if state == "running" and "FAILED" in (
            actual_connector.state,
            *(each for _, each, _ in actual_connector.tasks),
        ):
            break
        left -= 1
        wait(_LOOK_S)
    raise PeerError(
        f"connector {name} is not {state}: it is {actual_connector.state}, tasks "
        f"{', '.join(f'{id} {each}' for id, each, _ in actual_connector.tasks) or 'none'}",
        hint=f"hub connector logs {name}",
        code="HUB-3082",
    )
