"""[shell] Write an import from MirrorMaker 2: maps and checkpoints, one transaction per shard, then
groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from hub.errors import Conflict
from hub.record import NewRecord
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics, topics_of
from hub.replication.clusters.readers import read_progress
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, MapRecord, checkpoint_partition
from hub.replication.maps.imported_copy import ImportedCopy
from hub.replication.maps.offset_map import Run
from hub.replication.migration.import_plan import ImportedPartition, MirrorMakerImport
from hub.replication.operations.group_carrier import Found, any_to_commit, mark_and_commit
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard, shard_of
from hub.times import epoch_ms

_RUNS_A_RECORD = 10_000


def write_import(result: MirrorMakerImport, link: Link, source: ClusterHandle, target: ClusterHandle) -> None:
    """Write maps and checkpoints, then groups. Raises Conflict (HUB-1971) when a checkpoint was written
    since the inspection.
    """
    both = {each.name: each for each in (target, source)}
    make_own([(name, step) for name, each in both.items() for step in own_topics(each)], both)
    by_shard: dict[int, list[ImportedPartition]] = {}
    for each in result.ready:
        by_shard.setdefault(shard_of(*each.place, link.mirror.shards), []).append(each)
    for number, places in sorted(by_shard.items()):
        write_shard(number, places, link, source, target)
    _write_groups(result.groups, link, target)


def write_shard(
    number: int, places: Sequence[ImportedPartition], link: Link, source: ClusterHandle, target: ClusterHandle
) -> None:
    """Write one transaction under the shard's own fence."""
    writer = target.kafka.writer(Shard(link.name, number).transactional_id)
    try:
        checkpoints = read_progress(target, maps=False).of(link.name)
        if taken := sorted({each.place for each in places} & checkpoints.keys()):
            raise Conflict(
                f'topic "{taken[0].topic}" partition {taken[0].partition} has a checkpoint by now: a '
                "worker has begun it",
                hint="do the same again: what has a checkpoint is left alone",
                code="HUB-1971",
            )
        here, there = topics_of(source), topics_of(target)
        own = target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
        at = checkpoint_partition(link.name, number, own)
        records: list[NewRecord] = []
        for each in places:
            topic, partition = each.place
            ids = here[topic].topic_id, there[topic].topic_id
            runs = each.alignment.runs
            for first in range(0, len(runs), _RUNS_A_RECORD):
                part = runs[first : first + _RUNS_A_RECORD]
                records.append(MapRecord(link.name, topic, ids[0], partition, part).record(at))
            records.append(checkpoint_after(link, each, *ids, number).record(at))
            records.append(ImportedCopy(link.name, *each.place, ids[1], each.target_next).record(at))
        writer.append(records)
    finally:
        writer.close()


def checkpoint_after(
    link: Link, each: ImportedPartition, topic_id: str, target_topic_id: str, number: int
) -> Checkpoint:
    """Return the checkpoint from which the mirror continues a partition."""
    alignment = each.alignment
    first = alignment.runs[0] if alignment.runs else Run(alignment.source_next, each.target_next, 0)
    return Checkpoint(
        link.name,
        number,
        *each.place,
        topic_id,
        alignment.source_next,
        -1,
        each.mapped_to,
        target_topic_id=target_topic_id,
        source_start=first.source,
        target_start=first.target,
        committed_at_ms=epoch_ms(),
    )


def _write_groups(groups: Sequence[Found], link: Link, target: ClusterHandle) -> None:
    if not any_to_commit(groups):
        return
    writer = target.kafka.writer(Shard(link.name, -1).transactional_id)
    try:
        mark_and_commit(writer, target, link.name, groups)
    finally:
        writer.close()
