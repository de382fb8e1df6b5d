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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hub.record import TopicPartition
from hub.replication.clusters.control_state import (
    ControlState,
    GroupStatus,
    PartitionStatus,
    VerifiedRange,
    WorkerHeartbeat,
    copy_of,
)
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror, MirrorsFile, is_open, opens_at
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.link_definitions import LinkDefinition, digests_of, in_force
from hub.replication.ownership.links import Link, home_of
from hub.replication.ownership.loss_report import Loss
from hub.replication.ownership.shards import shard_of
from hub.replication.rewriting.filter_history import stretches_of
from hub.replication.rewriting.record_filter import shape_of

SILENT_MS = 15_000
"""Age at which a heartbeat is too old. Workers send one per second; the limit includes clock differences between
machines."""
_STALE_MS = 30_000
_LEFT_S = 60


@dataclass(frozen=True, slots=True)
class SourceEndOffsets:
    """Present end offsets of a source, by partition. ``begins``: the first offsets of partitions without a
    checkpoint. ``error``: why it did not answer.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str = ""


NOT_ASKED = SourceEndOffsets()


def places_of(link: Link, board: ControlState, progress: WrittenState) -> frozenset[TopicPartition]:
    """Return every partition that a status of the link includes: planned, or mirrored before."""
    carries = board.carries.get(link.name)
    topics = carries.topics if carries is not None else {}
    planned = {TopicPartition(name, at) for name, topic in topics.items() for at in range(topic.partitions)}
    return frozenset(planned | progress.of(link.name).keys())


def summary_of(
    file: MirrorsFile,
    link: Link,
    board: ControlState,
    progress: WrittenState,
    now_ms: int,
    ends: SourceEndOffsets = NOT_ASKED,
) -> dict[str, Any]:
    """Return the status of one mirror for ``hub mirror status``. ``ok``: no part is stopped unintentionally,
    and all parts are known. ``ends``: of the source, read after ``board`` and ``progress``.
    """
    carries = board.carries.get(link.name)
    marks = progress.of(link.name)
    topics = carries.topics if carries is not None else {}
    workers = _workers(board, link, now_ms)
    holders = _holders(board, link, workers)
    paused = board.paused.get(link.declared)
    partitions = []
    for tp in sorted(places_of(link, board, progress)):
        mark, status = marks.get(tp), board.partitions.get((link.name, *tp))
        said = status or mark
        shard = said.shard if said is not None else shard_of(*tp, link.mirror.shards)
        source = _source(link, tp, board, ends, now_ms)
        partitions.append(_partition(tp, mark, status, holders.get(shard, ()), source, now_ms))
    defined = _definitions(file, link, board, now_ms)
    if carries is not None:
        for row in partitions:
            if row["topic"] not in topics and (row["state"] == "unknown" or not row["reason"]):
                if _waits_for_a_file(file, link, board, defined, str(row["topic"])):
                    row["state"] = "unknown"
                    row["reason"] = "no worker carries it: the workers have another mirrors.yaml"
                    continue
                row["state"] = "left"
                row["reason"] = carries.trouble.get(str(row["topic"])) or _why_left(
                    file, board, str(row["topic"])
                )
    for row in partitions:
        topic = topics.get(str(row["topic"]))
        shape = shape_of(link.mirror, str(row["topic"]), rewrites=topic is not None and topic.own_ids)
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
    # A topic that it does not carry any more is not late: the way back reports it, if anything does.
    carried = [row for row in partitions if row["state"] != "left" or row["topic"] in trouble]
    stopped = [row for row in partitions if row["state"] in ("stopped", "trouble")]
    unknown = [row for row in partitions if row["state"] == "unknown"]
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
        state, reason = "no worker", f"{_last_heard(board, link, now_ms)}: hub mirror run"
        stands = True
    elif carries is None:
        state, reason = "starting", "a worker plans it"
    elif not topics and board.control.acting.get(link.source) == link.target:
        state = "handed over"
        reason = f"{link.target} acts for {link.source}; to give it back: hub mirror failback {link.declared}"
    elif error or stopped or trouble:
        state, reason = "trouble", error
        stands = True
    elif left := [row for row in unknown if (row["seen_s"] or 0) > _LEFT_S]:
        state, reason = "trouble", f"no worker has told of {len(left)} of its partitions for {_LEFT_S} s"
        stands = True
    elif differing:
        first = differing[0]
        state = "trouble"
        reason = (
            f"{len(differing)} of its partitions differ from the source, first {first['topic']} partition"
            f" {first['partition']} at offset {first['verified']['differs_at']}: hub mirror verify {link.name}"
        )
    elif unknown:
        first = unknown[0]
        state = "unknown"
        reason = (
            f"{len(unknown)} of its {len(partitions)} partitions are not reported by any worker, first"
            f" {first['topic']} partition {first['partition']}: {first['reason']}"
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
        "lag_s": _latest(carried),
        "records_per_s": round(sum(row["records_per_s"] for row in partitions), 1),
        "bytes_per_s": round(sum(row["bytes_per_s"] for row in partitions), 1),
        "last_commit_s": round((now_ms - committed) / 1000, 1) if committed else None,
        "trouble": trouble,
        "cautions": [*(carries.cautions if carries is not None else ()), *_cautions(defined, ends, link)],
        "definitions": defined,
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


def failed_over(board: ControlState, link: Link) -> bool:
    """Return whether the target has the source's ownership since a failover that was not followed by another
    change.
    """
    owner, said = board.control.owner(link.source), board.declared.get(link.source)
    return said is not None and owner.acting == link.target and said.epoch == owner.epoch


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


def _left_behind(board: ControlState, link: Link) -> dict[str, Any]:
    """Return the losses that the last failover declared, while its target has the source's ownership.
    ``lost_known`` False: the source did not answer, so all of it is a lower bound.
    """
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


def _heard_s(board: ControlState, link: Link, now_ms: int) -> float | None:
    """Return the seconds since a worker last read the source's end offsets; None: never."""
    ends = board.ends.get(link.name)
    if ends is None:
        return None
    return round(max(0, now_ms - ends.at_ms) / 1000, 1)


def _rules(progress: WrittenState, link: str, place: TopicPartition) -> list[dict[str, Any]]:
    """Return the rules that a partition's records were made under, by source offsets [first, end); [] without
    rules.
    """
    mark, ruled = progress.checkpoints.get((link, *place)), progress.rules_at(link, place)
    if mark is None or not ruled:
        return []
    return [
        {"first": first, "end": end, "rules": str(rules)}
        for first, end, rules in stretches_of(ruled, mark.source_start, mark.source_next)
    ]


def _closed(mirror: Mirror, now_ms: int) -> str | None:
    """Return why the schedule holds the mirror back now, and until when; None when it does not."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if mirror.schedule is None or is_open(mirror.schedule, now):
        return None
    opens = opens_at(mirror.schedule, now)
    if opens is None:
        return "its schedule has no window"
    local = opens.astimezone(ZoneInfo(mirror.schedule.zone))
    return f"outside its schedule: goes on {local:%a %Y-%m-%d %H:%M} {mirror.schedule.zone}"


def _waits_for_a_file(
    file: MirrorsFile, link: Link, board: ControlState, defined: Sequence[Mapping[str, Any]], topic: str
) -> bool:
    """Return whether only the caller's file has the topic in this mirror, and the workers have
    another file.
    """
    elsewhere = bool(defined) and not defined[0]["here"]
    handed_over = board.control.acting.get(home_of(file, topic) or "") is not None
    return elsewhere and link.mirror.selects(topic) and not handed_over


def _why_left(file: MirrorsFile, board: ControlState, topic: str) -> str:
    home = home_of(file, topic)
    acting = board.control.acting.get(home or "")
    return (
        f"{acting} acts for {home} now" if acting is not None else "the mirror does not carry it (any more)"
    )


def _alive(beat: WorkerHeartbeat, now_ms: int) -> bool:
    """Return whether a worker's heartbeat is recent, by the caller's clock."""
    return now_ms - beat.at_ms < max(SILENT_MS, beat.ttl_ms)


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


def _last_heard(board: ControlState, link: Link, now_ms: int) -> str:
    """Return since when nobody mirrors a link, by the last heartbeat of its workers."""
    silent = [beat for beat in board.beats.values() if _holds(beat, link)]
    if not silent:
        return "nobody mirrors it now"
    last = max(silent, key=lambda beat: beat.at_ms)
    ago_s = max(0, now_ms - last.at_ms) / 1000
    return f"its worker {last.worker} was last heard of {ago_s:.0f} s ago, and nobody else mirrors it"


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
    for worker, (each,) in ((worker, tuple(said.values())) for worker, said in sorted(claims.items())):
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
            f"{link.source} does not tell how far it reaches ({ends.error}): lag is by what workers reported last"
        )
    if not defined:
        return found
    first, *others = defined
    idle = sorted(worker for each in others for worker in each["workers"])
    if idle:
        found.append(
            f"its workers have {len(defined)} definitions of it: {', '.join(first['workers'])} carry it as the newest file defines it;"
            f" idle until their mirrors.yaml is the same: {', '.join(idle)}"
        )
    if not first["here"]:
        found.append(
            "the workers carry it otherwise than the file asked with defines it: give all of them the same mirrors.yaml"
        )
    return found


def _heartbeat(board: ControlState, worker: str, link: str, now_ms: int) -> dict[str, Any]:
    beat = board.beats[worker]
    return {
        "worker": worker,
        "host": beat.host,
        "pid": beat.pid,
        "shards": sorted(shard.number for shard in beat.holding if shard.link == link and shard.number >= 0),
        "ago_s": round(max(0, now_ms - beat.at_ms) / 1000, 1),
    }


def _verified(known: VerifiedRange | None, mark: Checkpoint | None, now_ms: int) -> dict[str, Any] | None:
    """Return how far both sides were compared; None: not yet, or it was another copy."""
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
    """Count the offsets that were mirrored and not compared: skipped, or not reached yet."""
    count = 0
    for row in partitions:
        done = row["verified"]
        if done is not None:
            count += done["skipped"] + max(0, (row["source_next"] or 0) - done["to"])
        elif row["source_start"] is not None:
            count += max(0, (row["source_next"] or 0) - row["source_start"])
    return count


class _SourcePartition(NamedTuple):
    """First offset of a source's partition, if a partition without a checkpoint begins there; its end; and
    the age of both, milliseconds. None: unknown.
    """

    begin: int | None
    end: int | None
    age_ms: int | None


def _source(
    link: Link, tp: TopicPartition, board: ControlState, asked: SourceEndOffsets, now_ms: int
) -> _SourcePartition:
    """Return the ends just read; else those of a worker's last report."""
    known = board.ends.get(link.name)
    begin = asked.begins.get(tp)
    if begin is None and known is not None and tp in known.places:
        begin = known.places[tp][0]
    # A way back carries only records born away, and `latest` only new ones.
    if link.mirror.start != "earliest" or link.name != link.declared:
        begin = None
    if tp in asked.offsets:
        return _SourcePartition(begin, asked.offsets[tp], 0)
    heard = board.heard(link.name, tp)
    return (
        _SourcePartition(begin, None, None)
        if heard is None
        else _SourcePartition(begin, heard.end, now_ms - heard.at_ms)
    )


def _partition(
    tp: TopicPartition,
    mark: Checkpoint | None,
    status: PartitionStatus | None,
    holders: Sequence[str],
    source: _SourcePartition,
    now_ms: int,
) -> dict[str, Any]:
    """Return one row. ``holders``: the workers that hold its shard, as they report."""
    told = status.source_next if status is not None and status.source_next >= 0 else None
    source_next = mark.source_next if mark is not None else told
    seen_ms = now_ms - status.at_ms if status is not None else None
    fresh = status is not None and status.worker in holders and now_ms - status.at_ms < _STALE_MS
    position = source.begin if source_next is None else source_next
    lag = max(0, source.end - position) if source.end is not None and position is not None else None
    mean = status.lag_bytes / status.lag_records if status is not None and status.lag_records > 0 else 0.0
    committed = mark.committed_at_ms if mark is not None else 0
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "shard": status.shard if status is not None else mark.shard if mark is not None else None,
        "worker": status.worker if fresh and status is not None else None,
        "state": status.state if fresh and status is not None else "unknown",
        "reason": status.reason if fresh and status is not None else _not_reported(holders, seen_ms),
        "engine": (status.engine if status is not None else "") or (mark.engine if mark is not None else ""),
        "generation": mark.generation if mark is not None else 0,
        "source_start": mark.source_start if mark is not None else None,
        "source_next": source_next,
        "source_end": source.end,
        "source_end_s": _seconds(source.age_ms),
        "target_next": mark.target_next if mark is not None else None,
        "lag_records": lag,
        "lag_bytes": int(lag * mean) if lag is not None and (mean or not lag) else None,
        "lag_s": _lag_s(status, position, lag, fresh, source.age_ms == 0, now_ms),
        "records_per_s": status.records_per_s if fresh and status is not None else 0.0,
        "bytes_per_s": status.bytes_per_s if fresh and status is not None else 0.0,
        "last_commit_s": round((now_ms - committed) / 1000, 1) if committed else None,
        "restarts": status.restarts if fresh and status is not None else 0,
        "seen_s": _seconds(seen_ms),
    }


def _seconds(of_ms: int | None) -> float | None:
    return None if of_ms is None else round(max(0, of_ms) / 1000, 1)


def _not_reported(holders: Sequence[str], seen_ms: int | None) -> str:
    """Return why the present state of a partition is unknown."""
    ago = "never reported" if seen_ms is None else f"last reported {max(0, seen_ms) / 1000:.0f} s ago"
    if not holders:
        return f"no worker holds its shard ({ago})"
    return f"worker {holders[0]} has it and has not reported it ({ago})"


def _lag_s(
    status: PartitionStatus | None,
    position: int | None,
    lag: int | None,
    fresh: bool,
    asked: bool,
    now_ms: int,
) -> float | None:
    """Return the lag of a partition in seconds; ``asked``: its lag is relative to the source's present end.
    Without a recent report: the records of the last report have waited at least since then; when later ones
    arrived is unknown.
    """
    if lag is None or position is None:
        return None
    if lag == 0 and (fresh or asked):
        return 0.0
    if status is None:
        return None
    if fresh:
        return status.lag_s
    if lag == 0 or status.source_end <= position:
        return None
    moved = position > status.source_next
    return (0.0 if moved else status.lag_s or 0.0) + max(0, now_ms - status.at_ms) / 1000


def _group(status: GroupStatus, partitions: dict[tuple[Any, Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the status of one group: its losses if the source were gone now. ``rpo_records``: offsets that
    the group has not read and that the target lacks; ``rpo_s``: age of the oldest of them, seconds.
    """
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
    """Return the sum; None while one of them is unknown."""
    known = [row[name] for row in rows]
    return None if None in known else sum(known)


def _latest(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the longest lag in seconds; None if no known lag is above 0 and one is unknown."""
    known = [row["lag_s"] for row in rows if row["lag_s"] is not None]
    longest = max(known, default=None)
    return longest if len(known) == len(rows) or longest else None
