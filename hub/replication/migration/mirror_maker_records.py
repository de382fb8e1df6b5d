"""[core] Records that MirrorMaker 2 writes next to its copies: pairs of offsets, and positions of groups.

::

    mm2-offset-syncs.<other alias>.internal   at the source (or the target)
        key    topic STRING, partition INT32
        value  upstream INT64, downstream INT64
    <source alias>.checkpoints.internal       at the target
        key    group STRING, topic STRING, partition INT32
        value  version INT16, upstream INT64, downstream INT64, metadata STRING

Both are Kafka's own structs (STRING: its length as INT16, then UTF-8), of OffsetSync.java and Checkpoint.java
in connect/mirror-client. A sync names the source's topic and one record that is at ``upstream`` there and at
``downstream`` here: exact, but one in a hundred records at best, and the topic is compacted. A checkpoint
names the target's topic, which DefaultReplicationPolicy renames (``nyc.chat``), and its downstream position
is behind what the group has read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from hub.errors import PeerError, nearest
from hub.record import Record, TopicPartition

SYNCS_PREFIX, INTERNAL_SUFFIX = "mm2-offset-syncs", "internal"
_SYNC = struct.Struct(">qq")
_CHECKPOINT = struct.Struct(">hqq")


class OffsetSync(NamedTuple):
    """One record of the source's partition ``place`` that is in the copy, too: its offsets at the source and
    in the copy.
    """

    place: TopicPartition
    upstream: int
    downstream: int


class GroupCheckpoint(NamedTuple):
    """A group's position at the source and MirrorMaker's translation; ``place`` is the copy's name."""

    group: str
    place: TopicPartition
    upstream: int
    downstream: int


def syncs_topic(alias: str) -> str:
    """Return the name of the syncs topic; at the source ``alias`` is the target's, at the target the
    source's.

    >>> syncs_topic("lon")
    'mm2-offset-syncs.lon.internal'
    """
    return f"{SYNCS_PREFIX}.{alias}.{INTERNAL_SUFFIX}"


def checkpoints_topic(source_alias: str) -> str:
    """
    >>> checkpoints_topic("nyc")
    'nyc.checkpoints.internal'
    """
    return f"{source_alias}.checkpoints.{INTERNAL_SUFFIX}"


def renamed(source_alias: str, topic: str) -> str:
    """Return DefaultReplicationPolicy's name of a copy."""
    return f"{source_alias}.{topic}"


def is_syncs_topic(name: str) -> bool:
    return name.startswith(SYNCS_PREFIX) and name.endswith(INTERNAL_SUFFIX)


def sync_of(record: Record) -> OffsetSync | None:
    """Parse a record of offset syncs; None for a tombstone. Raises PeerError (HUB-3620) for anything else."""
    if record.key is None or record.value is None:
        return None
    try:
        topic, at = _string(record.key, 0)
        partition, at = _int32(record.key, at)
        if at != len(record.key) or len(record.value) != _SYNC.size:
            raise ValueError("its length")
        offset_sync = OffsetSync(TopicPartition(topic, partition), *_SYNC.unpack(record.value))
        if partition < 0 or offset_sync.upstream < 0:
            raise ValueError("a negative offset")
    except (ValueError, struct.error) as error:
        raise _unknown(record, "offset sync", error) from None
    # MirrorMaker writes -1 where the producer did not learn the offset.
    return offset_sync if offset_sync.downstream >= 0 else None


def checkpoint_of(record: Record) -> GroupCheckpoint | None:
    """Parse a record of group checkpoints; None for a tombstone. Raises PeerError (HUB-3620) for anything
    else.
    """
    if record.key is None or record.value is None:
        return None
    try:
        group, at = _string(record.key, 0)
        topic, at = _string(record.key, at)
        partition, at = _int32(record.key, at)
        if at != len(record.key):
            raise ValueError("the length of its key")
        version, upstream, downstream = _CHECKPOINT.unpack_from(record.value)
        if version != 0:
            raise ValueError(f"version {version}")
        _, at = _string(record.value, _CHECKPOINT.size)
        if at != len(record.value):
            raise ValueError("the length of its value")
    except (ValueError, struct.error) as error:
        raise _unknown(record, "checkpoint", error) from None
    return GroupCheckpoint(group, TopicPartition(topic, partition), upstream, downstream)


def heartbeat_of(record: Record) -> str | None:
    """Return the source's alias in a record of ``heartbeats`` (its key: source alias STRING, target alias
    STRING).
    """
    try:
        return _string(record.key or b"", 0)[0]
    except (ValueError, struct.error):
        return None


def usable(syncs: Iterable[OffsetSync]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of one partition in the order of writing, without those that later ones supersede:
    when MirrorMaker restarts further back, its earlier pairs of later offsets do not belong to the newest
    copy any more.

    >>> place = TopicPartition("chat", 0)
    >>> usable([OffsetSync(place, 0, 0), OffsetSync(place, 90, 90), OffsetSync(place, 50, 140)])
    ((0, 0), (50, 140))
    """
    kept: list[tuple[int, int]] = []
    for sync in syncs:
        while kept and (kept[-1][0] >= sync.upstream or kept[-1][1] >= sync.downstream):
            kept.pop()
        kept.append((sync.upstream, sync.downstream))
    return tuple(kept)


def meant(names: Iterable[str], wanted: str) -> str:
    """Return the topic name to suggest for a missing one in "did you mean"; "" when none is similar."""
    every = list(names)
    syncs = [name for name in every if is_syncs_topic(name)]
    groups = [name for name in every if name.endswith(f"checkpoints.{INTERNAL_SUFFIX}")]
    alike = syncs if is_syncs_topic(wanted) else groups
    return nearest(wanted, alike) or (alike[0] if alike else "")


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("a text longer than its record")
    return data[at + 2 : end].decode(), end


def _int32(data: bytes, at: int) -> tuple[int, int]:
    (value,) = struct.unpack_from(">i", data, at)
    return int(value), at + 4


def _unknown(record: Record, what: str, error: Exception) -> PeerError:
    return PeerError(
        f"{record.topic}, partition {record.partition}, offset {record.offset}: no {what} of "
        f"MirrorMaker 2 ({error})",
        hint="is it the right topic? Name it: --offset-syncs-topic, --checkpoints-topic",
        code="HUB-3620",
    )
