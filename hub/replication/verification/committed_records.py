"""[edge] Committed records of a range of offsets."""

from __future__ import annotations

from collections.abc import Iterator

from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerCluster, FetchFrom
from hub.kafka.protocol.record_batch import AbortedTransactions, CorruptBatch, batches_in, is_intact
from hub.record import TopicPartition
from hub.replication.rewriting.reencode import RawRecord, records_in

_FETCH_BYTES = 4 << 20


def committed_records(
    cluster: BrokerCluster, place: TopicPartition, first: int, end: int, fetch_bytes: int = _FETCH_BYTES
) -> Iterator[RawRecord]:
    """Yield the committed records of [first, end), ascending; fewer when the rest is not committed yet.
    ``cluster`` must know the topic.

    Raises CorruptBatch, PeerError, CallerError.
    """
    position = first
    while position < end:
        leader = cluster.leader(place)
        connection = cluster.connection(leader.node, "verify")
        wanted = [FetchFrom(place, cluster.topics[place.topic].uuid, leader.epoch, position)]
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
            if aborted or batch.is_control:
                continue
            for raw in records_in(batch, cluster.access.bounds):
                if before <= raw.offset < end:
                    yield raw
        if position == before and part.last_stable >= 0 and part.last_stable <= position:
            return  # the rest is not committed
