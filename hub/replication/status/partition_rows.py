"""[core] Rows of a mirror's status: one for each partition and consumer group, and their totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hub.record import TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import GroupStatus, PartitionStatus, VerifiedRange, copy_of
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.links import Link
from hub.replication.rewriting.filter_history import stretches_of

_STALE_MS = 30_000


@dataclass(frozen=True, slots=True)
class SourceEndOffsets:
    """Present end offsets of a source, by partition. ``begins``: the first offsets of partitions without a
    checkpoint. ``error``: why it did not answer.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str = ""


NO_ENDS = SourceEndOffsets()


def rules_rows(progress: WrittenState, link: str, place: TopicPartition) -> list[dict[str, Any]]:
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


def verified_row(
    verified_range: VerifiedRange | None, mark: Checkpoint | None, now_ms: int
) -> dict[str, Any] | None:
    """Return how far both sides were compared; None: not yet, or it was another copy."""
    if verified_range is None or mark is None or verified_range.copy != copy_of(mark):
        return None
    return {
        "to": verified_range.to,
        "compared": verified_range.compared,
        "skipped": verified_range.skipped,
        "differs_at": verified_range.differs_at,
        "why": verified_range.why,
        "ago_s": round(max(0, now_ms - verified_range.at_ms) / 1000, 1),
    }


def unverified_records(partitions: Sequence[dict[str, Any]]) -> int:
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


def source_of(
    link: Link, tp: TopicPartition, board: ControlState, ends: SourceEndOffsets, now_ms: int
) -> _SourcePartition:
    """Return the ends just read; else those of a worker's last report."""
    source_ends = board.ends.get(link.name)
    begin = ends.begins.get(tp)
    if begin is None and source_ends is not None and tp in source_ends.places:
        begin = source_ends.places[tp][0]
    # A way back carries only records born away, and `latest` only new ones.
    if link.mirror.start != "earliest" or link.name != link.declared:
        begin = None
    if tp in ends.offsets:
        return _SourcePartition(begin, ends.offsets[tp], 0)
    reported = board.heard(link.name, tp)
    return (
        _SourcePartition(begin, None, None)
        if reported is None
        else _SourcePartition(begin, reported.end, now_ms - reported.at_ms)
    )


def partition_row(
    tp: TopicPartition,
    mark: Checkpoint | None,
    status: PartitionStatus | None,
    holders: Sequence[str],
    source: _SourcePartition,
    now_ms: int,
) -> dict[str, Any]:
    """Return one row. ``holders``: the workers that hold its shard, as they report."""
    reported_next = status.source_next if status is not None and status.source_next >= 0 else None
    source_next = mark.source_next if mark is not None else reported_next
    age_ms = now_ms - status.at_ms if status is not None else None
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
        "reason": status.reason if fresh and status is not None else _not_reported(holders, age_ms),
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
        "seen_s": _seconds(age_ms),
    }


def _seconds(of_ms: int | None) -> float | None:
    return None if of_ms is None else round(max(0, of_ms) / 1000, 1)


def _not_reported(holders: Sequence[str], age_ms: int | None) -> str:
    """Return why the present state of a partition is unknown."""
    ago = "never reported" if age_ms is None else f"last reported {max(0, age_ms) / 1000:.0f} s ago"
    if not holders:
        return f"no worker holds its shard ({ago})"
    return f"worker {holders[0]} has it and has not reported it ({ago})"


def _lag_s(
    status: PartitionStatus | None,
    position: int | None,
    lag: int | None,
    fresh: bool,
    is_read: bool,
    now_ms: int,
) -> float | None:
    """Return the lag of a partition in seconds; ``is_read``: its lag is relative to the source's present end.
    Without a recent report: the records of the last report have waited at least since then; when later ones
    arrived is unknown.
    """
    if lag is None or position is None:
        return None
    if lag == 0 and (fresh or is_read):
        return 0.0
    if status is None:
        return None
    if fresh:
        return status.lag_s
    if lag == 0 or status.source_end <= position:
        return None
    moved = position > status.source_next
    return (0.0 if moved else status.lag_s or 0.0) + max(0, now_ms - status.at_ms) / 1000


def group_row(status: GroupStatus, partitions: dict[tuple[Any, Any], dict[str, Any]]) -> dict[str, Any]:
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


def total(rows: Sequence[dict[str, Any]], name: str) -> int | None:
    """Return the sum; None while one of them is unknown."""
    known = [row[name] for row in rows]
    return None if None in known else sum(known)


def latest_lag_s(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the longest lag in seconds; None if no known lag is above 0 and one is unknown."""
    known = [row["lag_s"] for row in rows if row["lag_s"] is not None]
    longest = max(known, default=None)
    return longest if len(known) == len(rows) or longest else None


def heartbeat_row(board: ControlState, worker: str, link: str, now_ms: int) -> dict[str, Any]:
    beat = board.beats[worker]
    return {
        "worker": worker,
        "host": beat.host,
        "pid": beat.pid,
        "shards": sorted(shard.number for shard in beat.holding if shard.link == link and shard.number >= 0),
        "ago_s": round(max(0, now_ms - beat.at_ms) / 1000, 1),
    }
