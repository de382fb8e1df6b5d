"""[core] Records that a mirror writes next to its copies, in the same transaction, into topics of the target
cluster.

::

    _hub.mirror.checkpoints   compact
        checkpoint|link|topic|partition            positions; one record per transaction
        gap|link|topic|topicId|partition|from      lost offsets, written once
        rules|link|topic|topicId|partition|from    rules that records were made under (filter_history.py)
    _hub.mirror.map           compact,delete
        link|topic|topicId|partition|first source  runs of one transaction, or of many after compaction
                                                   (clusters/offset_map_compaction.py)
    _hub.mirror.control       compact
        groups (group_offsets.py), ownership (failover.py), last synced state (planning/plan.py)

A map record's key is never used for other runs, or compaction would remove parts of the map. A checkpoint's
key has no shard: when the number of shards changes, an older record may stay in another partition, and
``newest`` selects the current one.

A reader of checkpoints with ``read_committed`` stops at the first open transaction of its partition. So the
shards of a link have separate partitions as long as there are enough; and a worker that takes a shard over
first fences the former owner, then asks for the end offset, and reads up to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from hub.errors import HubFault
from hub.formats.fields import fields_of
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.maps.offset_map import OffsetMap, Run, decode_runs, encode_runs

CHECKPOINTS_TOPIC = "_hub.mirror.checkpoints"
MAP_TOPIC = "_hub.mirror.map"
CONTROL_TOPIC = "_hub.mirror.control"

CHECKPOINTS_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    # Ten records per second and partition, read from the beginning at every start: the cleaner must keep it
    # short.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    # Readers stop at the end that they asked for at first: the cleaner must keep records that are replaced
    # beyond it.
    "min.compaction.lag.ms": "60000",
}
MAP_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",
    "compression.type": "producer",
    # Offsets whose map records are deleted cannot be translated any more: compaction of the map keeps it
    # short (clusters/offset_map_compaction.py), not time or size.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    # Longer than a read of the whole map takes: see clusters/offset_map_compaction.py.
    "min.compaction.lag.ms": "3600000",
}
CONTROL_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    # Every commit of groups writes marks, and every reader starts at the beginning.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "60000",
}

Engine = Literal["batch", "record"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Progress of one partition: next offsets on both sides, as of one transaction.

    ``topic_id`` is the source's, which changes when the topic is recreated; ``generation`` counts these
    changes (and forced starts from the beginning), so that the newer of two checkpoints is known.
    ``source_leader_epoch`` is that of the last batch before ``source_next``, carried or not, -1 when unknown:
    a source that was truncated and has grown again has another epoch there. ``source_start`` and
    ``target_start`` are where this generation began. ``source_timestamp_ms``: of the last mirrored record,
    -1: none.
    """

    link: str
    shard: int
    topic: str
    partition: int
    topic_id: str
    source_next: int
    source_leader_epoch: int
    target_next: int
    target_topic_id: str = ""
    generation: int = 0
    source_start: int = 0
    target_start: int = 0
    source_timestamp_ms: int = -1
    committed_at_ms: int = 0
    engine: Engine = "batch"

    @property
    def key(self) -> bytes:
        return f"checkpoint|{self.link}|{self.topic}|{self.partition}".encode()

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def is_of(self, topic_id: str, target_topic_id: str) -> bool:
        """Return whether the checkpoint is about these two topics, as far as their ids are known."""
        pairs = (self.topic_id, topic_id), (self.target_topic_id, target_topic_id)
        return all(mine == theirs for mine, theirs in pairs if mine and theirs)

    def goes_back(self, other: Checkpoint) -> bool:
        """Return whether two directions are about the same two topics. If one topic was recreated since, the
        map of the other direction is that of a former log, for example of a home that lost all data.
        """
        return self.is_of(other.target_topic_id, other.topic_id)

    @property
    def age(self) -> tuple[int, int]:
        """Sort key: greater is newer. Within a generation the source position only grows."""
        return self.generation, self.source_next

    def record(self, partition: int | None = None) -> NewRecord:
        """Return the record to write. ``partition``: of the checkpoints topic, see
        ``checkpoint_partition``.
        """
        body = fields_of(self, but=("link", "topic", "partition"))
        body["source_leader_epoch"] = _epoch_as_told(self.source_leader_epoch)
        return NewRecord(CHECKPOINTS_TOPIC, self.key, orjson.dumps(body), partition=partition)


@dataclass(frozen=True, slots=True)
class Gap:
    """Source offsets [first, end) that are not in the target, with the reason.

    ``end`` -1: everything that the topic of that id still had from ``first`` on (it was deleted).
    """

    link: str
    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    reason: Literal["retention", "truncated", "recreated", "skipped", "superseded"]
    found_at_ms: int = 0

    @property
    def key(self) -> bytes:
        return f"gap|{self.link}|{self.topic}|{self.topic_id}|{self.partition}|{self.first}".encode()

    def record(self, partition: int | None = None) -> NewRecord:
        body = fields_of(self, but=("link", "topic", "partition", "topic_id", "first"))
        return NewRecord(CHECKPOINTS_TOPIC, self.key, orjson.dumps(body), partition=partition)


@dataclass(frozen=True, slots=True)
class MapRecord:
    """Runs of one transaction in one partition, or of many after compaction; at least one, ascending."""

    link: str
    topic: str
    topic_id: str
    partition: int
    runs: tuple[Run, ...]

    @property
    def key(self) -> bytes:
        first = self.runs[0].source
        return f"{self.link}|{self.topic}|{self.topic_id}|{self.partition}|{first}".encode()

    @property
    def of(self) -> tuple[str, str, str, int]:
        """Identity of the map that the record belongs to."""
        return self.link, self.topic, self.topic_id, self.partition

    def record(self, partition: int | None = None) -> NewRecord:
        return NewRecord(MAP_TOPIC, self.key, encode_runs(self.runs), partition=partition)


def checkpoint_partition(link: str, shard: int, partitions: int) -> int:
    """Return the partition of a shard's checkpoints (and of its map): a link's shards differ while there are
    enough.

    >>> len({checkpoint_partition("nyc-lon", shard, 8) for shard in range(8)})
    8
    """
    return (zlib.crc32(link.encode()) + shard) % partitions


def checkpoint_of(record: Record) -> Checkpoint | Gap | None:
    """Parse a record of the checkpoints topic; None for a tombstone and for kinds of other writers.

    Raises HubFault (HUB-5603) naming partition and offset when the record is not in this version's format.
    """
    if record.key is None or record.value is None:
        return None
    kind, _, rest = record.key.decode("utf-8", "replace").partition("|")
    if kind not in ("checkpoint", "gap"):
        return None
    try:
        body: dict[str, Any] = orjson.loads(record.value)
        if kind == "checkpoint":
            link, topic, partition = rest.split("|")
            body["source_leader_epoch"] = max(-1, _epoch_as_told(body["source_leader_epoch"]))
            return Checkpoint(link=link, topic=topic, partition=int(partition), **body)
        link, topic, topic_id, partition, first = rest.split("|")
        return Gap(
            link=link, topic=topic, partition=int(partition), topic_id=topic_id, first=int(first), **body
        )
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, error) from None


def _epoch_as_told(epoch: int) -> int:
    """Encode an epoch for the checkpoint, and decode it. Earlier hubs wrote the epoch of the last batch that
    they carried, which ignores batches left out since: a non-negative number is such an epoch.

    >>> [_epoch_as_told(each) for each in (-1, 0, 5, -7)]
    [-1, -2, -7, 5]
    """
    return -2 - epoch


def map_record_of(record: Record) -> MapRecord | None:
    """Parse a record of the map topic; None for a tombstone. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None:
        return None
    try:
        link, topic, topic_id, partition, first = record.key.decode().split("|")
        found = MapRecord(link, topic, topic_id, int(partition), decode_runs(record.value))
        if not found.runs or found.runs[0].source != int(first):
            raise ValueError("its key and its runs differ")
    except (ValueError, HubFault) as error:
        raise not_ours(record, error) from None
    return found


def newest(checkpoints: Iterable[Checkpoint]) -> dict[tuple[str, str, int], Checkpoint]:
    """Return the current checkpoint of each (link, topic, partition), whichever partitions they were read
    from.
    """
    found: dict[tuple[str, str, int], Checkpoint] = {}
    for checkpoint in checkpoints:
        place = checkpoint.link, checkpoint.topic, checkpoint.partition
        if place not in found or checkpoint.age >= found[place].age:
            found[place] = checkpoint
    return found


def offset_map(checkpoint: Checkpoint, records: Iterable[MapRecord]) -> OffsetMap:
    """Build the map of a checkpoint's partition and generation from records that may be of any.

    The map starts at the first available run: the retention of the map topic may have removed older ones, and
    offsets before must not look like a hole.
    """
    wanted = checkpoint.link, checkpoint.topic, checkpoint.topic_id, checkpoint.partition
    runs = [run for record in records if record.of == wanted for run in record.runs]
    runs = [
        run for run in runs if run.source >= checkpoint.source_start and run.target >= checkpoint.target_start
    ]
    return OffsetMap.of(
        runs,
        source_start=None if runs else checkpoint.source_start,
        target_start=None if runs else checkpoint.target_start,
        source_next=checkpoint.source_next,
        target_next=checkpoint.target_next,
    )


def folded(records: Sequence[MapRecord], partition: int, most_runs: int = 10_000) -> list[NewRecord]:
    """Compact records of one map: longer values under the first key of each group, and tombstones for its
    other keys.

    ``partition``: the partition of the map topic that has all of the records; elsewhere a tombstone would
    remove nothing. Values come before the tombstones, so that a crash in between leaves runs twice, never
    missing. Empty when there is nothing to compact. For which records may be compacted, and when, see
    clusters/offset_map_compaction.py. Raises HubFault when the records are of several maps (HUB-5604), or
    contradict each other (HUB-5601).
    """
    if len({record.of for record in records}) > 1:
        raise HubFault("offset map: records of several maps cannot be folded into one", code="HUB-5604")
    written: list[NewRecord] = []
    tombstones: list[NewRecord] = []
    group: list[MapRecord] = []

    def close() -> None:
        if len(group) > 1:
            runs = OffsetMap.of(run for each in group for run in each.runs).runs
            written.append(replace(group[0], runs=runs).record(partition))
            tombstones.extend(NewRecord(MAP_TOPIC, each.key, None, partition=partition) for each in group[1:])
        group.clear()

    size = 0
    for record in sorted(records, key=lambda each: each.runs[0].source):
        if group and size + len(record.runs) > most_runs:
            close()
            size = 0
        group.append(record)
        size += len(record.runs)
    close()
    return written + tombstones


def not_ours(record: Record, error: object) -> HubFault:
    """Return the error (HUB-5603) for a record of the mirrors' topics that is not in this
    version's format.
    """
    return HubFault(
        f"{record.topic}, partition {record.partition}, offset {record.offset}: not a record "
        f"of a mirror ({error})",
        hint="something else writes to this topic, or a newer hub did: upgrade every "
        "worker, or find the writer",
        code="HUB-5603",
    )
