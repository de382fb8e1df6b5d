"""[edge] Committed records of a range of offsets, and who wrote one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerCluster, FetchFrom
from hub.kafka.protocol.record_batch import (
    AbortedTransactions,
    CorruptBatch,
    RecordBatch,
    batches_in,
    is_intact,
)
from hub.record import TopicPartition
from hub.replication.rewriting.reencode import RawRecord, records_in

_FETCH_BYTES, _ONE_BATCH_BYTES = 4 << 20, 64 << 10


def committed_records(
    cluster: BrokerCluster, place: TopicPartition, first: int, end: int, fetch_bytes: int = _FETCH_BYTES
) -> Iterator[RawRecord]:
    """Yield the committed records of [first, end), ascending; fewer when the rest is not committed yet.
    ``cluster`` must know the topic.

    Raises CorruptBatch, PeerError, CallerError.
    """
    for batch in _committed_batches(cluster, place, first, end, fetch_bytes):
        for raw in records_in(batch, cluster.access.bounds):
            if first <= raw.offset < end:
                yield raw


def writer_of(cluster: BrokerCluster, place: TopicPartition, offset: int) -> str:
    """Return the producer and the time of a committed record, by its batch: "producer id 4711, 2026-11-27
    07:00:00 UTC". Empty when it is not there any more. Raises like ``committed_records``.
    """
    for batch in _committed_batches(cluster, place, offset, offset + 1, _ONE_BATCH_BYTES):
        who = f"producer id {batch.producer_id}" if batch.producer_id >= 0 else "a producer without an id"
        return f"{who}, {datetime.fromtimestamp(batch.max_timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _committed_batches(
    cluster: BrokerCluster, place: TopicPartition, first: int, end: int, fetch_bytes: int
) -> Iterator[RecordBatch]:
    """Yield the batches with committed records of [first, end); the first may begin before."""
    position = first
    while position < end:
        leader = cluster.leader(place)
        connection = cluster.connection(leader.node, "verify")
        uuid = cluster.topics[place.topic].uuid
        wanted = cluster.on_wire([FetchFrom(place, uuid, leader.epoch, position)])
        version = broker_client.send_fetch(
            connection, wanted, max_wait_ms=250, max_bytes=fetch_bytes, partition_bytes=fetch_bytes
        )
        frame, at = connection.receive()
        code, (part,) = broker_client.fetched(frame, at, version, cluster.names())
        where = f'cluster "{cluster.name}", topic "{place.topic}" partition {place.partition}'
        broker_client.raise_for(code or part.error, f"{where}: read")
        books, before = AbortedTransactions(part.aborted), position
        for batch in batches_in(part.buffer, part.start, part.end):
            if not is_intact(batch):
                raise CorruptBatch(f"{where}, offset {batch.base_offset}: its checksum is wrong")
            aborted = books.covers(batch)
            position = max(position, batch.next_offset)
            if not aborted and not batch.is_control and batch.next_offset > before:
                yield batch
        if position == before and part.last_stable >= 0 and part.last_stable <= position:
            return  # the rest is not committed
