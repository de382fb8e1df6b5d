"""[core] Status of one mirror from the records in its target: state, lag, gaps, groups, RPO. Plain values for
output.

Positions and gaps are from checkpoints, which are true whatever happens to workers; rates and reasons are
from a worker's last report, with its age. Lag in records is the source's present end minus the checkpoint: a
worker that hangs does not freeze it. Where the source does not answer, the end is from the last report of a
worker.

A partition is reported while a living worker claims the partition's shard, and has reported the partition.
Every other one is ``unknown``, and so is its mirror. Without a living worker a mirror does not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import LinkContents, WorkerHeartbeat
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror, MirrorsFile, is_open, opens_at
from hub.replication.ownership.link_definitions import LinkDefinition, digests_of, in_force
from hub.replication.ownership.links import Link, home_of
from hub.replication.ownership.loss_report import Loss
from hub.replication.ownership.operation_steps import scope_of
from hub.replication.planning.source_deletion import deletions_of
from hub.replication.status.mirror_rows import (
    gap_rows,
    group_rows,
    mark_paused,
    operation_rows,
    ownership_rows,
    partition_rows,
    topics_of,
    totals_of,
    verified_totals,
)
from hub.replication.status.partition_rows import NO_ENDS, SourceEndOffsets, heartbeat_row
from hub.replication.status.rehearsal_status import rehearsal_status

SILENT_MS = 15_000
"""Age at which a heartbeat is too old. Workers send one per second; the limit includes clock differences
between machines."""
_LEFT_S = 60


def summary_of(
    file: MirrorsFile,
    link: Link,
    board: ControlState,
    progress: WrittenState,
    now_ms: int,
    ends: SourceEndOffsets = NO_ENDS,
) -> dict[str, Any]:
    """Return the status of one mirror for ``hub mirror status``. ``ok``: no part is stopped unintentionally,
    and all parts are known. ``ends``: of the source, read after ``board`` and ``progress``.
    """
    carries = board.carries.get(link.name)
    workers = _workers(board, link, now_ms)
    partitions = partition_rows(link, board, progress, _holders(board, link, workers), ends, now_ms)
    defined = _definitions(file, link, board, now_ms)
    trouble = dict(carries.trouble) if carries is not None else {}
    if carries is not None:
        _explain_left(partitions, file, link, board, carries, defined)
    resting = mark_paused(partitions, link, board)
    # A topic that it does not carry any more is not late: the way back reports it, if anything does.
    carried = [row for row in partitions if row["state"] != "left" or row["topic"] in trouble]
    state, reason, stands = _judged(file, link, board, workers, partitions, now_ms)
    committed = max((mark.committed_at_ms for mark in progress.of(link.name).values()), default=0)
    return {
        "mirror": link.name,
        "declared": link.declared,
        "source": link.source,
        "target": link.target,
        "state": state,
        "reason": reason,
        "ok": state in ("mirroring", "paused", "starting", "handed over"),
        "stands": stands,
        "workers": len(workers),
        "heartbeats": [heartbeat_row(board, name, link.name, now_ms) for name in workers],
        "restarts": max((row["restarts"] for row in partitions), default=0),
        **verified_totals(partitions),
        **topics_of(file, link, board, partitions),
        **totals_of([row for row in carried if row["topic"] not in resting], partitions),
        "last_commit_s": round((now_ms - committed) / 1000, 1) if committed else None,
        "trouble": trouble,
        "cautions": [*(carries.cautions if carries is not None else ()), *_cautions(defined, ends, link)],
        "definitions": defined,
        **_owners(board, link),
        "source_heard_s": _reported_s(board, link, now_ms),
        "rehearsal": rehearsal_status(link, board, alive_workers(board, now_ms), now_ms),
        **_left_behind(board, link),
        "partitions": partitions,
        "groups": group_rows(link, board, partitions),
        "gaps": gap_rows(link, progress, now_ms),
    }


def _explain_left(
    partitions: Iterable[dict[str, Any]],
    file: MirrorsFile,
    link: Link,
    board: ControlState,
    carries: LinkContents,
    defined: Sequence[Mapping[str, Any]],
) -> None:
    """Say of partitions that the mirror does not carry why it left them."""
    deleted = deletions_of(board.deletions, link.name)
    for row in partitions:
        topic = str(row["topic"])
        if topic in deleted and topic not in carries.topics:
            row["state"], row["reason"] = "left", str(deleted[topic])
        elif topic in carries.topics or (row["state"] != "unknown" and row["reason"]):
            continue
        elif _waits_for_a_file(file, link, board, defined, topic):
            row["state"] = "unknown"
            row["reason"] = "no worker carries it: the workers have another mirrors.yaml"
        else:
            row["state"] = "left"
            row["reason"] = carries.trouble.get(topic) or _why_left(file, board, topic)


class MirrorState(NamedTuple):
    """State of a mirror, and why. ``stands``: a part is stopped that should run."""

    state: str
    reason: str
    stands: bool = False


def _judged(
    file: MirrorsFile,
    link: Link,
    board: ControlState,
    workers: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    now_ms: int,
) -> MirrorState:
    carries, paused = board.carries.get(link.name), board.paused.get(link.declared)
    if paused is not None:
        return MirrorState("paused", f"paused by {paused}: hub mirror resume {link.declared}")
    if file.mirrors[link.declared].paused:
        return MirrorState("paused", "paused in the file")
    if (closed := _closed(link.mirror, now_ms)) is not None:
        return MirrorState("paused", closed)
    if not workers:
        return MirrorState("no worker", f"{_last_report(board, link, now_ms)}: hub mirror run", stands=True)
    if carries is None:
        return MirrorState("starting", "a worker plans it")
    if not carries.topics and board.control.acting.get(link.source) == link.target:
        back = f"to return them: hub mirror failback {link.declared}"
        return MirrorState("handed over", f"{link.target} serves the topics of {link.source}; {back}")
    stopped = any(row["state"] in ("stopped", "trouble") for row in partitions)
    if carries.error or stopped or carries.trouble:
        return MirrorState("trouble", carries.error, stands=True)
    return _judged_by_partitions(link, partitions)


def _judged_by_partitions(link: Link, partitions: Sequence[Mapping[str, Any]]) -> MirrorState:
    """Return the state of a mirror that runs and has no trouble that a worker reported."""
    unknown = [row for row in partitions if row["state"] == "unknown"]
    if left := [row for row in unknown if (row["seen_s"] or 0) > _LEFT_S]:
        reason = f"no worker has reported {len(left)} of its partitions for {_LEFT_S} s"
        return MirrorState("trouble", reason, stands=True)
    checked = [row for row in partitions if row["verified"]]
    if differing := [row for row in checked if row["verified"]["differs_at"] is not None]:
        first, at = differing[0], differing[0]["verified"]["differs_at"]
        return MirrorState(
            "trouble",
            f"{len(differing)} of its partitions differ from the source, first {first['topic']} "
            f"partition {first['partition']} at offset {at}: hub mirror verify {link.name}",
        )
    if unknown:
        first = unknown[0]
        return MirrorState(
            "unknown",
            f"{len(unknown)} of its {len(partitions)} partitions are not reported by any worker, first"
            f" {first['topic']} partition {first['partition']}: {first['reason']}",
        )
    return MirrorState("mirroring", "")


def failed_over(board: ControlState, link: Link) -> bool:
    """Return whether the target has the source's ownership since a failover that was not followed by another
    change.
    """
    return _failed_over(board, link, link.source)


def _failed_over(board: ControlState, link: Link, scope: str) -> bool:
    owner, record = board.control.owner(scope), board.declared.get(scope)
    return record is not None and owner.acting == link.target and record.epoch == owner.epoch


def failed_over_topics(board: ControlState, link: Link) -> frozenset[str]:
    """Return the topics of a link that its target has since a failover of these topics alone."""
    apart = board.control.apart(link.source)
    return frozenset(
        topic
        for topic in apart
        if link.mirror.selects(topic) and _failed_over(board, link, scope_of(link.source, topic))
    )


def with_losses(status: dict[str, Any], losses: Sequence[Loss] | None) -> dict[str, Any]:
    """Replace the declared losses in a mirror's status by those just counted at the source; ``losses`` None:
    no answer.
    """
    if losses is None:
        return status
    rows = [lost_row(each) for each in losses]
    return {**status, "lost": rows, "lost_known": True}


def lost_row(loss: Loss) -> dict[str, Any]:
    """Return one partition of ``lost`` of a mirror's status."""
    return {
        "topic": loss.place.topic,
        "partition": loss.place.partition,
        "first": loss.first,
        "end": loss.end,
        "known": loss.known,
    }


def _owners(board: ControlState, link: Link) -> dict[str, Any]:
    """Return running operations, past changes of ownership, and the acting clusters by home."""
    return {
        "operations": operation_rows(link, board),
        "ownership": ownership_rows(link, board),
        "acting": dict(board.control.acting),
    }


def _left_behind(board: ControlState, link: Link) -> dict[str, Any]:
    """Return the losses that the last failover declared, while its target has the source's ownership.
    ``lost_known`` False: the source did not answer, so all of it is a lower bound.
    """
    scopes = [link.source] if failed_over(board, link) else []
    scopes += [scope_of(link.source, topic) for topic in sorted(failed_over_topics(board, link))]
    if not scopes:
        return {"lost": [], "lost_known": True, "lost_heard_at_ms": None, "redelivered": 0}
    records = [board.declared[scope] for scope in scopes]
    exact, reported = (
        all(each.exact for each in records),
        [each.heard_at_ms for each in records if not each.exact],
    )
    most = [each.redelivered_at_most for each in records]
    return {
        "lost": [
            lost_row(loss)
            for each in records
            for loss in each.losses
            if link.mirror.selects(loss.place.topic)
        ],
        "lost_known": exact,
        "lost_heard_at_ms": None if None in reported else min((at for at in reported if at), default=None),
        "redelivered": sum(each.redelivered for each in records) if exact else None,
        "redelivered_at_least": sum(each.redelivered for each in records),
        "redelivered_at_most": None if None in most else sum(each or 0 for each in most),
    }


def _reported_s(board: ControlState, link: Link, now_ms: int) -> float | None:
    """Return the seconds since a worker last read the source's end offsets; None: never."""
    ends = board.ends.get(link.name)
    if ends is None:
        return None
    return round(max(0, now_ms - ends.at_ms) / 1000, 1)


def _closed(mirror: Mirror, now_ms: int) -> str | None:
    """Return why the schedule holds the mirror back now, and until when; None when it does not."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if mirror.schedule is None or is_open(mirror.schedule, now):
        return None
    opens = opens_at(mirror.schedule, now)
    if opens is None:
        return "its schedule has no window"
    local = opens.astimezone(ZoneInfo(mirror.schedule.zone))
    return f"outside its schedule: continues {local:%a %Y-%m-%d %H:%M} {mirror.schedule.zone}"


def _waits_for_a_file(
    file: MirrorsFile, link: Link, board: ControlState, defined: Sequence[Mapping[str, Any]], topic: str
) -> bool:
    """Return whether only the caller's file has the topic in this mirror, and the workers have
    another file.
    """
    elsewhere = bool(defined) and not defined[0]["here"]
    home = home_of(file, topic) or ""
    handed_over = home in board.control.acting_for(home, topic)
    return elsewhere and link.mirror.selects(topic) and not handed_over


def _why_left(file: MirrorsFile, board: ControlState, topic: str) -> str:
    home = home_of(file, topic) or ""
    acting = board.control.acting_for(home, topic).get(home)
    if acting is None:
        return "the mirror no longer carries it"
    return (
        f"{acting} serves {home}'s topics"
        if board.control.scope(home, topic) == home
        else f"{acting} serves it"
    )


def _alive(beat: WorkerHeartbeat, now_ms: int) -> bool:
    """Return whether a worker's heartbeat is recent, by the caller's clock."""
    return now_ms - beat.at_ms < max(SILENT_MS, beat.ttl_ms)


def alive_workers(board: ControlState, now_ms: int) -> frozenset[str]:
    """Return the workers whose heartbeat is recent, by the caller's clock."""
    return frozenset(name for name, beat in board.beats.items() if _alive(beat, now_ms))


def _holds(beat: WorkerHeartbeat, link: Link) -> bool:
    return any(shard.link == link.name for shard in beat.holding)


def _workers(board: ControlState, link: Link, now_ms: int) -> list[str]:
    """Return the living workers that hold any shard of the link."""
    return sorted(name for name, beat in board.beats.items() if _alive(beat, now_ms) and _holds(beat, link))


def _holders(board: ControlState, link: Link, workers: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return by shard the living workers that claim it."""
    found: dict[int, tuple[str, ...]] = {}
    for name in workers:
        for shard in board.beats[name].holding:
            if shard.link == link.name:
                found[shard.number] = (*found.get(shard.number, ()), name)
    return found


def _last_report(board: ControlState, link: Link, now_ms: int) -> str:
    """Return since when nobody mirrors a link, by the last heartbeat of its workers."""
    silent = [beat for beat in board.beats.values() if _holds(beat, link)]
    if not silent:
        return "no worker mirrors it now"
    last = max(silent, key=lambda beat: beat.at_ms)
    ago_s = max(0, now_ms - last.at_ms) / 1000
    return f"its worker {last.worker} last reported {ago_s:.0f} s ago, and no other worker mirrors it"


def _definitions(file: MirrorsFile, link: Link, board: ControlState, now_ms: int) -> list[dict[str, Any]]:
    """Return the definitions that living workers have of the link, that of the newest file first. ``here``:
    it is the one of the caller's file.
    """
    claims = {
        name: {link.name: beat.links[link.name]}
        for name, beat in board.beats.items()
        if _alive(beat, now_ms) and beat.links is not None and link.name in beat.links
    }
    chosen = in_force(claims).get(link.name)
    if chosen is None:
        return []
    mine = digests_of(file).get(link.name)
    known: dict[str, tuple[LinkDefinition, list[str]]] = {}
    for worker, (each,) in ((worker, tuple(claim.values())) for worker, claim in sorted(claims.items())):
        since, workers = known.get(each.digest, (each, []))
        known[each.digest] = max(since, each), [*workers, worker]
    return [
        {
            "digest": digest,
            "since_ms": since.since_ms,
            "workers": workers,
            "in_force": digest == chosen.digest,
            "here": digest == mine,
        }
        for digest, (since, workers) in sorted(known.items(), key=lambda each: each[1][0], reverse=True)
    ]


def _cautions(defined: Sequence[Mapping[str, Any]], ends: SourceEndOffsets, link: Link) -> list[str]:
    """Return remarks on a status that is not an error."""
    found = []
    if ends.error:
        found.append(
            f"{link.source} does not report its ends ({ends.error}): lag is computed from the "
            "last reports of workers"
        )
    if not defined:
        return found
    first, *others = defined
    idle = sorted(worker for each in others for worker in each["workers"])
    if idle:
        found.append(
            f"its workers have {len(defined)} definitions of it: {', '.join(first['workers'])} carry it as "
            f"the newest file defines it; idle until their mirrors.yaml is the same: {', '.join(idle)}"
        )
    if not first["here"]:
        found.append(
            "the workers carry it otherwise than the file asked with defines it: give all of them "
            "the same mirrors.yaml"
        )
    return found
