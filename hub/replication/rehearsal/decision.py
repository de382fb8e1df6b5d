"""[core] Decide by the records of a link's rehearsals which one its holder begins or records now.

A record says "running" before a rehearsal begins. A scheduled one that is not this worker's was interrupted:
the shard of the tasks has one holder, so its process ended or lost the shard. It is recorded as interrupted,
and begun again; a second time only after ``RETRY_MS``, so that a rehearsal that ends its process does not do
so again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hub.record import NewRecord
from hub.replication.clusters.rehearsals import Rehearsal, surplus
from hub.replication.config.rehearsal_schedule import RehearsalSchedule, due

RETRY_MS = 300_000


@dataclass(frozen=True, slots=True)
class RehearsalDecision:
    """``begin``: the rehearsal to run once its record is written. ``records``: to write first."""

    begin: Rehearsal | None
    records: tuple[NewRecord, ...]


def decide(
    schedule: RehearsalSchedule | None,
    known: Sequence[Rehearsal],
    link: str,
    worker: str,
    now_ms: int,
    *,
    waits: bool,
) -> RehearsalDecision:
    """Return what to do. ``known``: the rehearsals of the link, while this worker runs none.
    ``waits``: none may begin now.
    """
    ended = {
        each.started_at_ms: interrupted(each, f"{each.by} ended before it was complete", now_ms)
        for each in known
        if each.state == "running"
        if each.scheduled or each.is_over(now_ms)
    }
    after = [ended.get(each.started_at_ms, each) for each in known]
    starts = [each.started_at_ms for each in known if each.complete]
    resting = any(each.state == "interrupted" and _ended_at(each) > now_ms - RETRY_MS for each in known)
    begins = not waits and not resting and schedule is not None
    begin = None
    if begins and schedule is not None and due(schedule, starts, now_ms) is not None:
        begin = begun(link, worker, now_ms, schedule.within, scheduled=True)
        after.append(begin)
    gone = surplus(after, now_ms)
    records = [each.record() for each in ended.values() if each not in gone]
    records += [each.forgotten() for each in gone]
    return RehearsalDecision(begin, (*records, *((begin.record(),) if begin is not None else ())))


def begun(link: str, by: str, now_ms: int, within_ms: int, *, scheduled: bool) -> Rehearsal:
    """Return a rehearsal as it is recorded before it begins."""
    return Rehearsal(link, now_ms, "running", by, scheduled, now_ms + within_ms)


def interrupted(one: Rehearsal, reason: str, now_ms: int) -> Rehearsal:
    """Return a rehearsal that has no result, as of now."""
    return replace(one, state="interrupted", reason=reason, took_ms=max(0, now_ms - one.started_at_ms))


def _ended_at(one: Rehearsal) -> int:
    return one.started_at_ms + (one.took_ms or 0)
