"""[edge] ``hub mirror rehearse``: last rehearsals of mirrors, and one at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.mirror.context import EXIT_REFUSED, FileOption, World, open_world
from hub.cli.mirror.ownership_change import account_here
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import CallerError, PeerError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.replication.ownership.links import Link

_COLUMNS = ("mirror", "result", "began", "took_s", "lost", "behind_s", "topics", "groups", "by", "reason")


def rehearse(
    name: Annotated[
        str | None,
        typer.Argument(metavar="MIRROR", help="Its name in mirrors.yaml. Default: all of the file"),
    ] = None,
    file: FileOption = None,
    now: Annotated[
        bool, typer.Option("--now", help="Rehearse a failover of the mirror at once, and record the result")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show the last rehearsals of mirrors, or run one. Changes no topic, group or owner.

    A rehearsal plans a failover on the real clusters, as `hub mirror drill` does, and records the result with
    its time, its scope, and the bound of the loss. Workers run it by `rehearse: weekly` in mirrors.yaml.

    Exit code 0: the last one of each mirror passed. 1: one failed, is overdue, or there is none.

    Example: hub mirror rehearse nyc-lon --now
    """
    world = open_world(file)
    if now and name is None:
        raise CallerError("--now needs the name of a mirror", hint="hub mirror rehearse MIRROR --now")
    links = [world.link(each) for each in ([name] if name else world.file.mirrors)]
    if now:
        from hub.replication.rehearsal.attempt import rehearse_now

        rehearse_now(world.file, world.clusters, links[0], account_here())
    found = [_status(world, link) for link in links]
    if output is Output.json:
        show(found, output)
    else:
        show([_row(each["mirror"], row) for each in found for row in each["results"]], output, _COLUMNS)
        for each in found:
            _note(each)
    if not all(each["last"] and each["last"]["state"] == "passed" for each in found) or any(
        each["overdue_s"] for each in found
    ):
        raise typer.Exit(EXIT_REFUSED)


def _status(world: World, link: Link) -> dict[str, Any]:
    from hub.replication.clusters.readers import read_control_state
    from hub.replication.status.mirror_status import alive_workers
    from hub.replication.status.rehearsal_status import NEVER, rehearsal_status

    now_ms = epoch_ms()
    try:
        board = read_control_state(world.clusters[link.target])
    except PeerError as error:
        raise PeerError(
            f'rehearsals of mirror "{link.name}" are unknown: {error.message}',
            hint=f"they are recorded at {link.target}; start it again",
            code=error.code,
        ) from None
    found = rehearsal_status(link, board, alive_workers(board, now_ms), now_ms) or NEVER
    return {"mirror": link.name, **found}


def _row(mirror: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of one rehearsal. An unknown loss has its lower bound."""
    least = row["lost_at_least"]
    return {
        "mirror": mirror,
        "result": row["state"],
        "began": _time(row["started_at_ms"]),
        "took_s": None if row["took_ms"] is None else round(row["took_ms"] / 1000, 1),
        "lost": row["lost"] if row["lost"] is not None or least is None else f"unknown, at least {least}",
        "behind_s": row["lag_s"],
        "topics": row["topics"],
        "groups": row["groups"],
        "by": row["by"],
        "reason": row["reason"],
    }


def _note(answer: Mapping[str, Any]) -> None:
    mirror, last, next_ms = answer["mirror"], answer["last"], answer["next_at_ms"]
    if last is None:
        note(f"{mirror}: no rehearsal was complete yet. Run one: hub mirror rehearse {mirror} --now")
    else:
        for line in last["proved"]:
            note(f"{mirror}: {line}")
    if answer["schedule"] is None:
        note(f"{mirror}: has no schedule; `rehearse: weekly` in mirrors.yaml makes one")
    elif answer["waits"]:
        note(f"{mirror}: {answer['schedule']}; none is due while {answer['waits']}")
    elif next_ms is not None:
        note(f"{mirror}: {answer['schedule']}, next {_time(next_ms)}")
    if answer["overdue_s"]:
        note(f"! {mirror}: a rehearsal is due since {answer['overdue_s']:,.0f} s and was not made")


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
