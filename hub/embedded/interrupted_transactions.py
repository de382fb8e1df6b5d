"""[edge] Transactions that a killed Kafka had decided and not yet marked.

A transaction ends in two steps: its coordinator writes the decision to ``__transaction_state``, then a marker
into each partition. A broker that is killed between the two writes the markers when it starts again. Kafka
4.1 to 4.3, alone in its cluster, drops them instead: while the broker registers, its partitions have no
leader, and the coordinator takes that for deleted topics ("Couldn't find leader endpoint for partitions …
can be skipped"). The partitions then keep their last stable offset for ever, and every reader of committed
records waits for ever.

So the hub reads the decisions from the log folder before a start that follows a kill. If there are any,
Kafka first runs on ports that no client knows, until each marker is there: the coordinator's, or ours with
its decision::

    decisions_in(folder) ──▶ Kafka on private ports ──▶ finish() ──▶ Kafka on its own ports

Sources: KIP-98 (decisions and markers), KIP-664 (DescribeProducers), KIP-890 (epochs of markers), and
TransactionLogValue.json of Kafka 4.3.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from hub.errors import PeerError
from hub.files import replace_bytes
from hub.kafka.protocol.broker_client import (
    UNKNOWN_TOPIC,
    BrokerBusy,
    BrokerCluster,
    ClusterAccess,
    ConnectionLost,
    raise_for,
)
from hub.kafka.protocol.primitives import FrameReader
from hub.kafka.protocol.record_batch import HEADER_BYTES, CorruptBatch, RecordBatch, batches_in, is_intact
from hub.record import TopicPartition
from hub.varint import MalformedVarint, take_signed, take_unsigned

log = logging.getLogger(__name__)

_STOPPED_IN_ORDER: Final = ".kafka_cleanshutdown"  # Kafka's own mark, which it removes when it starts
_STATE: Final = struct.Struct(">hqhib")  # schema, producer's id and epoch, timeout, status
_TIMES_BYTES: Final = 16
_PREPARES: Final = {2: True, 3: False}  # PREPARE_COMMIT, PREPARE_ABORT
_UNKNOWN_TRANSACTION: Final = 105
_LAST_EPOCH: Final = 32_767
_POLL_S: Final = 0.1
_PURPOSE: Final = "transactions"  # of connections


@dataclass(frozen=True, slots=True)
class TransactionDecision:
    """The decided end of a transaction. ``previous_id``: the producer's id before its epochs ran out, or -1.
    ``version``: that of the client's transactions; from 2 on, each has an epoch of its own.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    commits: bool
    partitions: tuple[TopicPartition, ...]
    previous_id: int = -1
    version: int = 0


# ---- from the log folder


def known_and_new(path: Path, data: Path) -> list[TransactionDecision]:
    """Return the decisions whose markers may be missing: those that an earlier start left in the file
    ``path``, and those in the log folder. Writes them to ``path``, because the log forgets them while Kafka
    runs.
    """
    decisions = dict.fromkeys((*_read(path), *decisions_in(data)))
    if decisions:
        replace_bytes(path, orjson.dumps(list(decisions), default=tuple))
    return list(decisions)


def _read(path: Path) -> list[TransactionDecision]:
    try:
        found = orjson.loads(path.read_bytes())
        return [
            TransactionDecision(
                **{**each, "partitions": tuple(TopicPartition(*tp) for tp in each["partitions"])}
            )
            for each in found
        ]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        log.error("%s cannot be read, and is ignored: %s", path, error)
        return []


def decisions_in(data: Path) -> list[TransactionDecision]:
    """Return the decisions in a log folder whose markers may be missing: none after an orderly stop. Reads up
    to the first batch that was not written whole: Kafka cuts the log there.
    """
    if (data / _STOPPED_IN_ORDER).exists():
        return []
    decisions: dict[str, TransactionDecision | None] = {}
    for file in sorted(data.glob("__transaction_state-*/*.log")):
        for key, value in _records_of(bytearray(file.read_bytes())):
            transactional_id = _transactional_id(key)
            if transactional_id is not None:
                decisions[transactional_id] = decision_of(transactional_id, value)
    return [decision for decision in decisions.values() if decision is not None]


def decision_of(transactional_id: str, value: bytes | None) -> TransactionDecision | None:
    """Return the decision of a state in the log of transactions; None if it is another state, or cannot be
    read, as one of a later release.
    """
    try:
        return None if value is None else _decision(transactional_id, value)
    except (struct.error, IndexError, MalformedVarint) as error:
        log.error("the state of transaction %s cannot be read, and is ignored: %s", transactional_id, error)
        return None


def _decision(transactional_id: str, value: bytes) -> TransactionDecision | None:
    """Raises struct.error, IndexError, MalformedVarint for a value that ends too early."""
    schema, producer_id, epoch, _, status = _STATE.unpack_from(value)
    if status not in _PREPARES or schema not in (0, 1):
        return None
    reader = FrameReader(value, _STATE.size, flexible=schema == 1)
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic = reader.text()
        partitions += [TopicPartition(topic, reader.take(">i")) for _ in range(reader.count())]
        reader.end()
    tags = _tags(value, reader.at + _TIMES_BYTES) if reader.flexible else {}
    return TransactionDecision(
        transactional_id,
        producer_id,
        epoch,
        _PREPARES[status],
        tuple(partitions),
        int.from_bytes(tags.get(0, b"\xff"), "big", signed=True),
        int.from_bytes(tags.get(2, b"\0"), "big", signed=True),
    )


def _records_of(segment: bytearray) -> Iterator[tuple[bytes, bytes | None]]:
    try:
        for batch in batches_in(segment):
            if not is_intact(batch):
                return
            if not batch.is_control and batch.codec == 0:
                yield from _keys_and_values(batch)
    except CorruptBatch:
        return


def _keys_and_values(batch: RecordBatch) -> Iterator[tuple[bytes, bytes | None]]:
    view, at = batch.view, HEADER_BYTES
    for _ in range(batch.count):
        size, at = take_signed(view, at)
        after = at + size
        _, at = take_signed(view, at + 1)  # the attributes, then the deltas of time and offset
        _, at = take_signed(view, at)
        key, at = _taken(view, at)
        value, _ = _taken(view, at)
        at = after
        if key is not None:
            yield key, value


def _taken(view: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = take_signed(view, at)
    return (None, at) if size < 0 else (bytes(view[at : at + size]), at + size)


def _transactional_id(key: bytes) -> str | None:
    schema, size = struct.unpack_from(">hh", key)
    return key[4 : 4 + size].decode("utf-8", "replace") if schema == 0 else None


def _tags(value: bytes, at: int) -> dict[int, bytes]:
    """Return the tagged fields at the end of a state."""
    found: dict[int, bytes] = {}
    count, at = take_unsigned(value, at)
    for _ in range(count):
        tag, at = take_unsigned(value, at)
        size, at = take_unsigned(value, at)
        found[tag] = value[at : at + size]
        at += size
    return found


# ---- at the running broker


def finish(bootstrap: str, decisions: Sequence[TransactionDecision], timeout_s: float) -> int:
    """Wait until the coordinator has ended each transaction, then write the markers that are missing. Return
    how many were.

    Raises PeerError if a transaction does not end in time, or the broker refuses a marker.
    """
    deadline = time.monotonic() + timeout_s
    cluster = BrokerCluster(ClusterAccess(bootstrap=bootstrap, client_id="hub"))
    try:
        written = 0
        for each in decisions:
            while (found := _finished(cluster, each)) is None:
                if time.monotonic() > deadline:
                    raise PeerError(
                        f"Kafka does not end transaction {each.transactional_id}",
                        hint="the next start of Kafka tries again",
                        code="HUB-3023",
                    )
                time.sleep(_POLL_S)
            written += found
        return written
    finally:
        cluster.close()


def _finished(cluster: BrokerCluster, decision: TransactionDecision) -> int | None:
    """Write the missing markers of a transaction and return their number. None: ask again, because the
    coordinator still writes markers, or the broker has just started.
    """
    try:
        refused = cluster.refresh({tp.topic for tp in decision.partitions})
        gone = {
            topic
            for topic, error in refused.items()
            if isinstance(error, BrokerBusy) and error.kafka_code == UNKNOWN_TOPIC
        }
        if gone != refused.keys() or _is_ending(cluster, decision):
            return None
        left = [tp for tp in decision.partitions if tp.topic not in gone]
        missing = [each for tp in left for each in _missing_in(cluster, decision, tp)]
        for marker in missing:
            _write(cluster, decision, marker)
        return len(missing)
    except (BrokerBusy, ConnectionLost):
        return None


def _is_ending(cluster: BrokerCluster, decision: TransactionDecision) -> bool:
    """Return whether the coordinator still has markers of the transaction to write. Raises BrokerBusy while
    it reads its log.
    """
    connection = cluster.connection(cluster.coordinator(decision.transactional_id), _PURPOSE)
    ids = [decision.transactional_id]
    (found,) = connection.ask(DescribeTransactionsRequest, 0, transactional_ids=ids).transaction_states
    if found.error_code == _UNKNOWN_TRANSACTION:
        return False
    raise_for(found.error_code, f"state of transaction {decision.transactional_id}")
    return str(found.transaction_state) in ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class _Marker:
    """A missing marker. ``coordinator_epoch``: that of the transaction's records."""

    tp: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int


def _missing_in(
    cluster: BrokerCluster, decision: TransactionDecision, tp: TopicPartition
) -> Iterator[_Marker]:
    """Yield the marker that a partition lacks, if the transaction is open in it."""
    epochs = {decision.previous_id: _LAST_EPOCH, decision.producer_id: decision.epoch}
    topics = [DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])]
    connection = cluster.connection(cluster.leader(tp).node, _PURPOSE)
    found = connection.ask(DescribeProducersRequest, 0, topics=topics).topics[0].partitions[0]
    raise_for(found.error_code, f'topic "{tp.topic}" partition {tp.partition}: its producers')
    for each in found.active_producers:
        if each.producer_id in epochs and each.current_txn_start_offset >= 0:
            epoch = epochs[each.producer_id]
            yield _Marker(tp, each.producer_id, epoch, max(0, each.coordinator_epoch))


def _write(cluster: BrokerCluster, decision: TransactionDecision, marker: _Marker) -> None:
    """Write a marker. Raises the broker's refusal."""
    kinds, tp = WriteTxnMarkersRequest.WritableTxnMarker, marker.tp
    wanted = kinds(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=decision.commits,
        topics=[kinds.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=decision.version,
    )
    connection = cluster.connection(cluster.leader(tp).node, _PURPOSE)
    answer = connection.ask(WriteTxnMarkersRequest, 2, 1, markers=[wanted])
    code = answer.markers[0].topics[0].partitions[0].error_code
    raise_for(code, f'topic "{tp.topic}" partition {tp.partition}: marker of {decision.transactional_id}')
