"""[core] The status of one mirror, out of what stands in its target: state, lag, gaps, groups, RPO. Plain values for output.

Positions and gaps are from checkpoints, which are true whatever becomes of workers; ends, rates and lag are what a worker
saw last, and how long ago is said. Without a worker that is alive a mirror does not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hub.record import TopicPartition
from hub.replication.board import Board, GroupStatus, PartitionStatus, Verified, copy_of
from hub.replication.checkpoint import Checkpoint
from hub.replication.links import Link, home_of
from hub.replication.loss_report import Loss
from hub.replication.mirrors import Mirror, MirrorsFile, is_open, opens_at
from hub.replication.progress import Progress
from hub.replication.rules import stretches_of
from hub.replication.shape import shape_of

_STALE_MS = 30_000
_LEFT_S = 60


def summary_of(
    file: MirrorsFile, link: Link, board: Board, progress: Progress, now_ms: int
) -> dict[str, Any]:
    """One mirror as ``hub mirror status`` tells it. ``ok``: nothing stands still that should not."""
    carries = board.carries.get(link.name)
    marks = progress.of(link.name)
    topics = carries.topics if carries is not None else {}
    places = {*marks} | {
        TopicPartition(name, at) for name, topic in topics.items() for at in range(topic.partitions)
    }
    workers = _workers(board, link, now_ms)
    paused = board.paused.get(link.declared)
    partitions = [
        _partition(tp, marks.get(tp), board.partitions.get((link.name, *tp)), bool(workers), now_ms)
        for tp in sorted(places)
    ]
    if carries is not None:
        for row in partitions:
            if row["topic"] not in topics and not row["reason"]:
                row["state"] = "left"
                row["reason"] = carries.trouble.get(str(row["topic"])) or _why_left(
                    file, board, str(row["topic"])
                )
    for row in partitions:
        shape = shape_of(link.mirror, str(row["topic"]))
        row["engine_why"] = str(shape) if shape is not None else ""
        place = link.name, str(row["topic"]), int(row["partition"])
        row["verified"] = _verified(board.verified.get(place), marks.get(TopicPartition(*place[1:])), now_ms)
        row["rules"] = _rules(progress, link.name, TopicPartition(str(row["topic"]), int(row["partition"])))
    groups = [
        _group(status, {(row["topic"], row["partition"]): row for row in partitions})
        for (name, _), status in sorted(board.groups.items())
        if name == link.name
    ]
    gaps = [
        {
            "topic": gap.topic,
            "partition": gap.partition,
            "first": gap.first,
            "end": gap.end,
            "reason": gap.reason,
            "found_at_ms": gap.found_at_ms,
            "found_s": round(max(0, now_ms - gap.found_at_ms) / 1000, 1),
        }
        for gap in sorted(progress.gaps.values(), key=lambda each: (each.topic, each.partition, each.first))
        if gap.link == link.name
    ]
    trouble = dict(carries.trouble) if carries is not None else {}
    # What it does not carry any more is not late: its way back tells of it, or nobody does.
    carried = [row for row in partitions if row["state"] != "left" or row["topic"] in trouble]
    stopped = [row for row in partitions if row["state"] in ("stopped", "trouble")]
    error = carries.error if carries is not None else ""
    stands = False
    differing = [row for row in partitions if row["verified"] and row["verified"]["differs_at"] is not None]
    if paused is not None:
        state, reason = "paused", f"paused by {paused}: hub mirror resume {link.declared}"
    elif file.mirrors[link.declared].paused:
        state, reason = "paused", "paused in the file"
    elif (closed := _closed(link.mirror, now_ms)) is not None:
        state, reason = "paused", closed
    elif not workers:
        state, reason = "no worker", "nobody mirrors it now: hub mirror run"
        stands = True
    elif carries is None:
        state, reason = "starting", "a worker plans it"
    elif not topics and board.control.acting.get(link.source) == link.target:
        state = "handed over"
        reason = f"{link.target} acts for {link.source}; to give it back: hub mirror failback {link.declared}"
    elif error or stopped or trouble:
        state, reason = "trouble", error
        stands = True
    elif left := [row for row in partitions if row["state"] == "waiting" and (row["seen_s"] or 0) > _LEFT_S]:
        state, reason = "trouble", f"no worker has told of {len(left)} of its partitions for {_LEFT_S} s"
        stands = True
    elif differing:
        first = differing[0]
        state = "trouble"
        reason = (
            f"{len(differing)} of its partitions differ from the source, first {first['topic']} partition"
            f" {first['partition']} at offset {first['verified']['differs_at']}: hub mirror verify {link.name}"
        )
    else:
        state, reason = "mirroring", ""
    committed = max((mark.committed_at_ms for mark in marks.values()), default=0)
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
        "heartbeats": [_heartbeat(board, name, link.name, now_ms) for name in workers],
        "restarts": max((row["restarts"] for row in partitions), default=0),
        "verified_records": sum(row["verified"]["compared"] for row in partitions if row["verified"]),
        "unverified_records": _unverified(partitions),
        "verified_s": min((row["verified"]["ago_s"] for row in partitions if row["verified"]), default=None),
        "different": len(differing),
        "topics": len({row["topic"] for row in partitions}),
        "lag_records": _total(carried, "lag_records"),
        "lag_bytes": _total(carried, "lag_bytes"),
        "lag_s": max((row["lag_s"] for row in carried if row["lag_s"] is not None), default=None),
        "records_per_s": round(sum(row["records_per_s"] for row in partitions), 1),
        "bytes_per_s": round(sum(row["bytes_per_s"] for row in partitions), 1),
        "last_commit_s": round((now_ms - committed) / 1000, 1) if committed else None,
        "trouble": trouble,
        "cautions": list(carries.cautions) if carries is not None else [],
        "operations": [
            {"home": home, "kind": one.kind, "id": one.id, "next": one.next.name if one.next else None}
            for home, one in board.control.operations.items()
            if one.state == "running" and {one.old, one.new} == {link.source, link.target}
        ],
        "acting": dict(board.control.acting),
        "source_heard_s": _heard_s(board, link, now_ms),
        **_left_behind(board, link),
        "partitions": partitions,
        "groups": groups,
        "gaps": gaps,
    }


def failed_over(board: Board, link: Link) -> bool:
    """Return whether the target acts for the source since a failover that was not followed by another change."""
    owner, said = board.control.owner(link.source), board.declared.get(link.source)
    return said is not None and owner.acting == link.target and said.epoch == owner.epoch


def with_losses(status: dict[str, Any], losses: Sequence[Loss] | None) -> dict[str, Any]:
    """Replace the declared losses of a mirror's status by those just counted at the source; ``losses`` None: no answer."""
    if losses is None:
        return status
    rows = [lost_row(each) for each in losses]
    return {**status, "lost": rows, "lost_known": True}


def lost_row(loss: Loss) -> dict[str, Any]:
    """One partition of ``lost`` of a mirror's status."""
    return {
        "topic": loss.place.topic,
        "partition": loss.place.partition,
        "first": loss.first,
        "end": loss.end,
        "known": loss.known,
    }


def _left_behind(board: Board, link: Link) -> dict[str, Any]:
    """Return the losses that the last failover declared, while its target acts for the source. ``lost_known`` False: the source did not answer, so all of it is a lower bound."""
    said = board.declared.get(link.source)
    if said is None or not failed_over(board, link):
        return {"lost": [], "lost_known": True, "lost_heard_at_ms": None, "redelivered": 0}
    rows = [lost_row(each) for each in said.losses if link.mirror.selects(each.place.topic)]
    return {
        "lost": rows,
        "lost_known": said.exact,
        "lost_heard_at_ms": said.heard_at_ms,
        "redelivered": said.redelivered if said.exact else None,
        "redelivered_at_least": said.redelivered,
        "redelivered_at_most": said.redelivered_at_most,
    }


def _heard_s(board: Board, link: Link, now_ms: int) -> float | None:
    """Return the seconds since a worker last heard the source's end offsets; None: never heard."""
    ends = board.ends.get(link.name)
    if ends is None:
        return None
    return round(max(0, now_ms - ends.at_ms) / 1000, 1)


def _rules(progress: Progress, link: str, place: TopicPartition) -> list[dict[str, Any]]:
    """Under which rules a partition's records were made, where any were, by source offsets [first, end)."""
    mark, ruled = progress.checkpoints.get((link, *place)), progress.rules_at(link, place)
    if mark is None or not ruled:
        return []
    return [
        {"first": first, "end": end, "rules": str(rules)}
        for first, end, rules in stretches_of(ruled, mark.source_start, mark.source_next)
    ]


def _closed(mirror: Mirror, now_ms: int) -> str | None:
    """Until when a schedule lets nothing through; None when it lets."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if mirror.schedule is None or is_open(mirror.schedule, now):
        return None
    opens = opens_at(mirror.schedule, now)
    if opens is None:
        return "its schedule has no window"
    local = opens.astimezone(ZoneInfo(mirror.schedule.zone))
    return f"outside its schedule: goes on {local:%a %Y-%m-%d %H:%M} {mirror.schedule.zone}"


def _why_left(file: MirrorsFile, board: Board, topic: str) -> str:
    home = home_of(file, topic)
    acting = board.control.acting.get(home or "")
    return (
        f"{acting} acts for {home} now" if acting is not None else "the mirror does not carry it (any more)"
    )


def _workers(board: Board, link: Link, now_ms: int) -> list[str]:
    """Those that hold anything of the link and were heard of lately, by the clock of whoever asks."""
    return sorted(
        name
        for name, beat in board.beats.items()
        if now_ms - beat.at_ms < max(_STALE_MS, beat.ttl_ms)
        and any(shard.link == link.name for shard in beat.holding)
    )


def _heartbeat(board: Board, worker: str, link: str, now_ms: int) -> dict[str, Any]:
    beat = board.beats[worker]
    return {
        "worker": worker,
        "host": beat.host,
        "pid": beat.pid,
        "shards": sorted(shard.number for shard in beat.holding if shard.link == link and shard.number >= 0),
        "ago_s": round(max(0, now_ms - beat.at_ms) / 1000, 1),
    }


def _verified(known: Verified | None, mark: Checkpoint | None, now_ms: int) -> dict[str, Any] | None:
    """How far both sides were compared; None: not yet, or it was another copy."""
    if known is None or mark is None or known.copy != copy_of(mark):
        return None
    return {
        "to": known.to,
        "compared": known.compared,
        "skipped": known.skipped,
        "differs_at": known.differs_at,
        "why": known.why,
        "ago_s": round(max(0, now_ms - known.at_ms) / 1000, 1),
    }


def _unverified(partitions: Sequence[dict[str, Any]]) -> int:
    """Offsets that were mirrored and not compared: passed over, or not come to yet."""
    count = 0
    for row in partitions:
        done = row["verified"]
        if done is not None:
            count += done["skipped"] + max(0, (row["source_next"] or 0) - done["to"])
        elif row["source_start"] is not None:
            count += max(0, (row["source_next"] or 0) - row["source_start"])
    return count


def _partition(
    tp: TopicPartition,
    mark: Checkpoint | None,
    status: PartitionStatus | None,
    worked: bool,
    now_ms: int,
) -> dict[str, Any]:
    told = status.source_next if status is not None and status.source_next >= 0 else None
    source_next = mark.source_next if mark is not None else told
    fresh = status is not None and now_ms - status.at_ms < _STALE_MS and worked
    end = status.source_end if status is not None and status.source_end >= 0 else None
    lag = max(0, end - source_next) if end is not None and source_next is not None else None
    mean = status.lag_bytes / status.lag_records if status is not None and status.lag_records > 0 else 0.0
    committed = mark.committed_at_ms if mark is not None else 0
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "shard": status.shard if status is not None else mark.shard if mark is not None else None,
        "worker": status.worker if fresh and status is not None else None,
        "state": status.state if fresh and status is not None else "waiting",
        "reason": status.reason if fresh and status is not None else "",
        "engine": (status.engine if status is not None else "") or (mark.engine if mark is not None else ""),
        "generation": mark.generation if mark is not None else 0,
        "source_start": mark.source_start if mark is not None else None,
        "source_next": source_next,
        "source_end": end,
        "target_next": mark.target_next if mark is not None else None,
        "lag_records": lag,
        "lag_bytes": int(lag * mean) if lag is not None else None,
        "lag_s": _lag_s(status, source_next, lag, fresh, now_ms),
        "records_per_s": status.records_per_s if fresh and status is not None else 0.0,
        "bytes_per_s": status.bytes_per_s if fresh and status is not None else 0.0,
        "last_commit_s": round((now_ms - committed) / 1000, 1) if committed else None,
        "restarts": status.restarts if fresh and status is not None else 0,
        "seen_s": round((now_ms - status.at_ms) / 1000, 1) if status is not None else None,
    }


def _lag_s(
    status: PartitionStatus | None, source_next: int | None, lag: int | None, fresh: bool, now_ms: int
) -> float | None:
    """How late a partition is. Once nobody looks any more: what was there then waits since then at least, and of what came
    later nothing is known."""
    if status is None or lag is None:
        return None
    if fresh:
        return 0.0 if lag == 0 else status.lag_s
    if lag == 0:
        return None
    moved = source_next is not None and source_next > status.source_next
    return (0.0 if moved else status.lag_s or 0.0) + max(0, now_ms - status.at_ms) / 1000


def _group(status: GroupStatus, partitions: dict[tuple[Any, Any], dict[str, Any]]) -> dict[str, Any]:
    """``rpo_records``: offsets that the group has not read and that the target does not have; ``rpo_s``: how old the
    oldest of them is. What would be lost to it if the source were gone now."""
    rows = []
    for place in status.places:
        row = partitions.get((place.topic, place.partition), {})
        rows.append(
            {
                "group": status.group,
                "topic": place.topic,
                "partition": place.partition,
                "state": place.state,
                "reason": place.reason,
                "source_offset": place.source_offset,
                "position": place.position,
                "rpo_records": place.unread_lost,
                "rpo_s": row.get("lag_s") if place.unread_lost else 0.0,
                "redelivered": place.redelivered,
            }
        )
    worst = [float(row["rpo_s"]) for row in rows if row["rpo_s"] is not None]
    return {
        "group": status.group,
        "rpo_records": sum(row["rpo_records"] for row in rows),
        "rpo_s": max(worst, default=0.0),
        "redelivered": sum(row["redelivered"] for row in rows),
        "at_ms": status.at_ms,
        "places": rows,
    }


def _total(rows: Sequence[dict[str, Any]], name: str) -> int | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known or not rows else None
