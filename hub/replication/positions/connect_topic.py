"""[edge] Kafka Connect's offsets topic, read at one cluster and written at the other."""

from __future__ import annotations

from collections.abc import Sequence

from hub.errors import Conflict, NotFound
from hub.log import whole
from hub.record import NewRecord
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.positions.connect_offsets import ConnectOffset, newest

_SILENT_S = 20.0


def read_offsets(cluster: ClusterHandle, topic: str) -> dict[bytes, tuple[int, bytes]]:
    """Return partition and newest value of each key. Raises NotFound, PeerError."""
    if topic not in cluster.kafka.topics():
        raise NotFound(
            f'topic "{topic}" does not exist at {cluster.name}',
            hint="it is offset.storage.topic of Connect's workers",
        )
    records = sorted(whole(cluster.kafka, topic, _SILENT_S), key=lambda each: (each.partition, each.offset))
    return newest(records)


def write_offsets(
    cluster: ClusterHandle, topic: str, planned: Sequence[ConnectOffset], partitions: int
) -> int:
    """Write the planned values in one transaction; keys that have that value already are left out. Returns
    the number of records. ``partitions``: of the topic that was read: a key is written to the partition in
    which Connect looks for it. Raises NotFound, Conflict (HUB-1975, HUB-1979).
    """
    refused = [each for each in planned if each.outcome == "refused"]
    if refused:
        raise Conflict(
            f'topic "{topic}": {len(refused)} positions cannot be translated, the first of connector '
            f'"{refused[0].connector}": {refused[0].why}',
            hint="wait until the mirror has copied them (hub mirror status), then translate again",
            code="HUB-1975",
        )
    there = read_offsets(cluster, topic)
    if (found := cluster.kafka.topics()[topic].partitions) != partitions:
        raise Conflict(
            f'topic "{topic}" has {found} partitions at {cluster.name}, and {partitions} where it was read',
            hint=f"create it with {partitions} partitions, compacted, before Connect starts there",
            code="HUB-1979",
        )
    other = [each for each in planned if each.key in there and there[each.key][1] != each.value]
    if other:
        raise Conflict(
            f'topic "{topic}" at {cluster.name} has another position for {len(other)} keys, the first of '
            f'connector "{other[0].connector}": nothing was written',
            hint="the connector ran there already; delete its offsets there first, if they do not count",
            code="HUB-1979",
        )
    records = [
        NewRecord(topic, each.key, each.value, partition=each.number)
        for each in planned
        if each.key not in there
    ]
    if records:
        writer = cluster.kafka.writer("hub.mirror.connect-offsets")
        try:
            writer.append(records)
        finally:
            writer.close()
    return len(records)
