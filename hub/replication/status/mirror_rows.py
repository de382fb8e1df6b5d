"""[core] Rows of the status of a mirror: partitions, topics, groups, gaps, operations, totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hub.record import TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.links import Link, home_of
from hub.replication.ownership.shards import shard_of
from hub.replication.ownership.topic_state import pause_key, paused_topics, topic_state
from hub.replication.planning.source_deletion import deletions_of
from hub.replication.rewriting.rules_of_schema import shape_of
from hub.replication.status.partition_rows import (
    SourceEndOffsets,
    group_row,
    latest_lag_s,
    partition_row,
    rules_rows,
    source_of,
    total,
    unverified_records,
    verified_row,
)


def partition_rows(
    link: Link,
    board: ControlState,
    progress: WrittenState,
    holders: Mapping[int, Sequence[str]],
    ends: SourceEndOffsets,
    now_ms: int,
) -> list[dict[str, Any]]:
    """Return a row a partition: positions and lag, the engine, the verified range and the rules."""
    carries, marks = board.carries.get(link.name), progress.of(link.name)
    topics = carries.topics if carries is not None else {}
    rows = []
    for tp in sorted(places_of(link, board, progress)):
        mark, status = marks.get(tp), board.partitions.get((link.name, *tp))
        recorded = status or mark
        shard = recorded.shard if recorded is not None else shard_of(*tp, link.mirror.shards)
        source = source_of(link, tp, board, ends, now_ms)
        row = partition_row(tp, mark, status, holders.get(shard, ()), source, now_ms)
        topic = topics.get(tp.topic)
        shape = shape_of(link.mirror, tp.topic, rewrites=topic is not None and topic.own_ids)
        row["engine_why"] = str(shape) if shape is not None else ""
        row["verified"] = verified_row(board.verified.get((link.name, *tp)), mark, now_ms)
        row["rules"] = rules_rows(progress, link.name, tp)
        rows.append(row)
    return rows


def gap_rows(link: Link, progress: WrittenState, now_ms: int) -> list[dict[str, Any]]:
    return [
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
        and gap.reason != "superseded"  # newer records of their keys are on both sides
    ]


def _copy_rows(link: Link, board: ControlState) -> dict[str, Any]:
    """Return the states of copies whose topics were deleted at the source, and changes by hand at copies."""
    return {
        "deletions": _deletion_rows(link, board),
        "drift_policy": link.mirror.drift,
        "drift": _drift_rows(link, board),
    }


def _deletion_rows(link: Link, board: ControlState) -> list[dict[str, Any]]:
    """Return a row for each topic that was deleted at the source, with the state of its copy."""
    return [
        {
            "topic": each.topic,
            "state": each.state,
            "since_ms": each.since_ms,
            "due_ms": each.due_ms or None,
            "deleted_at_ms": each.deleted_at_ms or None,
            "missing": each.missing,
            "text": str(each),
        }
        for each in deletions_of(board.deletions, link.name).values()
    ]


def _drift_rows(link: Link, board: ControlState) -> list[dict[str, Any]]:
    """Return a row for each copy that somebody changed, where `drift` is `revert` or `alert`. ``open`` and
    ``reverted``: by setting, the copy's value and the mirror's.
    """
    return [
        {
            "topic": topic,
            "at_ms": each.at_ms,
            "open": {key: list(values) for key, values in each.open.items()},
            "reverted": {key: list(values) for key, values in each.reverted.items()},
            "reverted_at_ms": each.reverted_at_ms or None,
            "text": str(each),
        }
        for (name, topic), each in sorted(board.drifts.items())
        if name == link.name
    ]


def operation_rows(link: Link, board: ControlState) -> list[dict[str, Any]]:
    """Return the running operations between the link's clusters. ``topics``: those that move by themselves;
    empty: all of the home.
    """
    ends, every = {link.source, link.target}, board.control.operations.values()
    running = [one for one in every if one.state == "running" and not one.topics]
    running += [one for home in (link.source, link.target) for one in board.control.moving(home)]
    return [
        {
            "home": one.home,
            "kind": one.kind,
            "id": one.id,
            "next": one.next.name if one.next else None,
            "topics": list(one.topics),
        }
        for one in running
        if {one.old, one.new} == ends
    ]


def ownership_rows(link: Link, board: ControlState) -> list[dict[str, Any]]:
    """Return the changes of ownership of the source's topics: who acts, since when. ``topics``: those that
    moved by themselves; empty: all of the home.
    """
    return [
        {"home": one.home, "acting": one.acting, "at_ms": one.at_ms, "topics": list(one.topics)}
        for one in board.control.owners.values()
        if one.home == link.source and one.epoch
    ]


def topic_rows(
    file: MirrorsFile, link: Link, board: ControlState, topics: Iterable[str]
) -> list[dict[str, Any]]:
    """Return a row for each topic of a mirror: its state, its owner, and the commands that it accepts now."""
    known = {*topics, *paused_topics(link.declared, board.paused)}
    known |= {topic for topic in board.control.apart(link.source) if link.mirror.selects(topic)}
    return [
        {**asdict(found), "commands": list(found.commands)}
        for topic in sorted(known)
        for found in [topic_state(link, topic, home_of(file, topic), board.control, board.paused)]
    ]


def topics_of(
    file: MirrorsFile, link: Link, board: ControlState, partitions: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the number of topics that have partitions, ``topic_rows`` as ``topic_states``, deletions at the
    source, and changes by hand at copies.
    """
    topics = {str(row["topic"]) for row in partitions}
    states = topic_rows(file, link, board, topics)
    return {"topics": len(topics), "topic_states": states, **_copy_rows(link, board)}


def mark_paused(rows: Iterable[dict[str, Any]], link: Link, board: ControlState) -> frozenset[str]:
    """Say of the partitions of topics that are paused by themselves who paused them; return these topics."""
    for row in rows:
        by = board.paused.get(pause_key(link.declared, str(row["topic"])))
        if by is not None and row["state"] != "left":
            command = f"hub mirror resume {link.declared} --topic {row['topic']}"
            row["state"], row["reason"] = "paused", f"paused by {by}: {command}"
    return paused_topics(link.declared, board.paused)


def group_rows(link: Link, board: ControlState, partitions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_place = {(row["topic"], row["partition"]): row for row in partitions}
    return [
        group_row(status, by_place) for (name, _), status in sorted(board.groups.items()) if name == link.name
    ]


def verified_totals(partitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    verified = [row["verified"] for row in partitions if row["verified"]]
    return {
        "verified_records": sum(each["compared"] for each in verified),
        "unverified_records": unverified_records(partitions),
        "verified_s": min((each["ago_s"] for each in verified), default=None),
        "different": sum(each["differs_at"] is not None for each in verified),
    }


def totals_of(carried: Sequence[dict[str, Any]], partitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return lag of the carried partitions, and rates of all."""
    return {
        "lag_records": total(carried, "lag_records"),
        "lag_bytes": total(carried, "lag_bytes"),
        "lag_s": latest_lag_s(carried),
        "records_per_s": round(sum(row["records_per_s"] for row in partitions), 1),
        "bytes_per_s": round(sum(row["bytes_per_s"] for row in partitions), 1),
    }


def places_of(link: Link, board: ControlState, progress: WrittenState) -> frozenset[TopicPartition]:
    """Return every partition that a status of the link includes: planned, or mirrored before."""
    carries = board.carries.get(link.name)
    topics = carries.topics if carries is not None else {}
    planned = {TopicPartition(name, at) for name, topic in topics.items() for at in range(topic.partitions)}
    return frozenset(planned | progress.of(link.name).keys())
