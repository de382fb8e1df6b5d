"""[core] Rehearsals of a mirror as its status shows them: the schedule, the last results, and what each
proved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.rehearsals import Rehearsal, of_link
from hub.replication.config.rehearsal_schedule import due, next_time
from hub.replication.ownership.links import Link

NEVER: Mapping[str, Any] = {
    "schedule": None,
    "next_at_ms": None,
    "waits": "",
    "overdue_s": None,
    "running": None,
    "last": None,
    "results": [],
}
"""``rehearsal_status`` of a mirror that has neither schedule nor results."""


def rehearsal_status(
    link: Link, board: ControlState, alive: Collection[str], now_ms: int
) -> dict[str, Any] | None:
    """Return schedule and results of a mirror; None for one that has neither.

    ``next_at_ms`` None: no schedule, or ``waits`` has the reason. ``overdue_s``: seconds since a rehearsal
    that was not made was due; None: none is due. ``last``: the last complete one; None: none. ``results``:
    the newest first, with those that have no result. ``alive``: living workers.
    """
    schedule, rehearsals = link.mirror.rehearse, of_link(board.rehearsals, link.name)
    if schedule is None and not rehearsals:
        return None
    rows = [rehearsal_row(each, alive, now_ms) for each in rehearsals]
    waits = waits_for(board, link)
    missed = None
    if schedule is not None and not waits:
        missed = due(schedule, (each.started_at_ms for each in rehearsals if each.complete), now_ms)
    return {
        "schedule": schedule.text if schedule is not None else None,
        "next_at_ms": next_time(schedule, now_ms) if schedule is not None and not waits else None,
        "waits": waits,
        "overdue_s": None if missed is None else round((now_ms - missed) / 1000, 1),
        "running": next((row for row in rows if row["state"] == "running"), None),
        "last": next((row for row in rows if row["state"] in ("passed", "failed")), None),
        "results": rows,
    }


def waits_for(board: ControlState, link: Link) -> str:
    """Return why a mirror is not rehearsed now; "": it can be."""
    control, home = board.control, link.source
    if control.acting.get(home) == link.target:
        return f"{link.target} serves the topics of {home}"
    running = [control.running(home), *control.moving(home)]
    kind = next((each.kind for each in running if each is not None), "")
    return f"a {kind} of {home} is in progress" if kind else ""


def rehearsal_row(one: Rehearsal, alive: Collection[str], now_ms: int) -> dict[str, Any]:
    """Return one rehearsal with its age. One that runs in a worker that is gone, or is past its limit, is
    interrupted.
    """
    row = {name: value for name, value in asdict(one).items() if name not in ("link", "until_ms")}
    gone = one.scheduled and one.by not in alive
    if one.state == "running" and (gone or one.is_over(now_ms)):
        why = f"worker {one.by} stopped" if gone else f"{one.by} did not complete it in time"
        row |= {"state": "interrupted", "reason": why}
    row["ago_s"] = round(max(0, now_ms - one.started_at_ms) / 1000, 1)
    row["proved"] = list(proved(one)) if one.complete else []
    return row


def proved(one: Rehearsal) -> tuple[str, ...]:
    """Return what a complete rehearsal has shown, a line each."""
    return (
        f"A failover can begin: {one.steps} steps" if one.steps else "A failover cannot begin",
        f"The offset maps of {_many(one.topics, 'topic')} and {_many(one.partitions, 'partition')} were read",
        f"{_many(one.groups, 'consumer group')} would be placed",
        loss_text(asdict(one)),
        redelivery_text(asdict(one)),
    )[: 5 if one.steps else 1]


def loss_text(row: Mapping[str, Any]) -> str:
    """Return the bound of the loss for people. ``row``: of a rehearsal."""
    if row["lost_at_least"] is None:
        return "loss unknown"
    age = "of unknown age" if row["lag_s"] is None else f"{row['lag_s']:g} s behind"
    if row["lost"] is None:
        return f"loss unknown, at least {row['lost_at_least']:,} offsets, {age}"
    return f"{row['lost']:,} offsets would be lost, {age}"


def redelivery_text(row: Mapping[str, Any]) -> str:
    """Return the bound of repeated reads for people. ``row``: of a rehearsal."""
    if row["redelivered"] is not None:
        return f"{row['redelivered']:,} records would be read again"
    if row["redelivered_at_least"] is None:
        return "repeated reads unknown"
    return (
        f"from {row['redelivered_at_least']:,} to {row['redelivered_at_most']:,} records would be read again"
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
