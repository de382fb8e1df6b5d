"""[core] Broker answers as the read proxy forwards them: Fetch, broker addresses, request versions.

The proxy changes four kinds of answers and forwards all others unchanged (Kafka's protocol guide)::

    ApiVersions      requests whose answers change are capped at versions without compact fields; those that the proxy cannot
                     read, and that its clients do not need, are hidden
    Metadata         brokers are at the proxy's own addresses
    FindCoordinator  the same
    Fetch            a batch that no reader may unpack becomes one small record that says so: the stand-in

The stand-in is a record without key and value at the first offset of the batch; its header ``hub.unread`` has
the reason. Its batch keeps the offsets, producer and times of the original, so positions, aborted
transactions and gaps do not change.
"""  # noqa: E501

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from awscrt.checksums import crc32c

from hub.kafka.protocol.messages import plain_topics
from hub.kafka.protocol.primitives import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    skip_tags,
    take_count,
    take_text,
    text,
)
from hub.kafka.protocol.record_batch import CODEC, HEADER, HEADER_BYTES, CorruptBatch, RecordBatch, batches_in
from hub.kafka.protocol.unpacked_size import UnpackedBounds, UnpackedSize
from hub.record import UNREAD_HEADER, TopicPartition
from hub.varint import signed

CAPS: Final = {FETCH: 11, METADATA: 8, FIND_COORDINATOR: 2, SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 1}
"""The newest version of each request whose answer the proxy reads."""
_HIDDEN: Final = {DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS}
_NOBODYS = 30_000  # added to the key of a hidden request: clients do not know such a key
_OLDEST_FETCH = 4

_CRC_FROM = 21
_DELETE_HORIZON = 0x40

Place = Callable[[str, int], tuple[str, int]]
"""From a broker's host and port to those of the proxy for it."""
Judge = Callable[[TopicPartition, RecordBatch, bool], UnpackedSize]
"""Judges a batch of a partition; the last argument: whether its size is needed exactly."""


def cap_versions(frame: bytearray, version: int) -> None:
    """Change an answer to ApiVersions in place. ``version``: of the request."""
    (error,) = struct.unpack_from(">h", frame, 4)
    flexible = version >= 3 and not error
    ranges, at = take_count(frame, 6, flexible=flexible)
    for _ in range(ranges):
        key, least, newest = struct.unpack_from(">hhh", frame, at)
        if key in _HIDDEN:
            struct.pack_into(">h", frame, at, key + _NOBODYS)
        elif key in CAPS:
            struct.pack_into(">h", frame, at + 4, max(least, min(newest, CAPS[key])))
        at += 6
        if flexible:
            at = skip_tags(frame, at)


def with_brokers(frame: bytearray, version: int, place: Place) -> bytes:
    """Return an answer to Metadata (up to version 8) with the addresses that ``place`` gives."""
    start = 4 + (4 if version >= 3 else 0)
    brokers, at = take_count(frame, start)
    out = bytearray(frame[:at])
    for _ in range(brokers):
        out += frame[at : at + 4]
        at = _put_place(out, frame, at + 4, place)
        if version >= 1:
            begin, (_, at) = at, take_text(frame, at)  # its rack
            out += frame[begin:at]
    return bytes(out + frame[at:])


def with_coordinator(frame: bytearray, version: int, place: Place) -> bytes:
    """Return an answer to FindCoordinator (up to version 2) with the address that ``place`` gives."""
    at = 4 + (4 if version >= 1 else 0)
    (error,) = struct.unpack_from(">h", frame, at)
    if error:
        return bytes(frame)
    at += 2
    if version >= 1:
        _, at = take_text(frame, at)  # its message
    out = frame[: at + 4]
    at = _put_place(out, frame, at + 4, place)
    return bytes(out + frame[at:])


def _put_place(out: bytearray, frame: bytearray, at: int, place: Place) -> int:
    host, at = take_text(frame, at)
    (port,) = struct.unpack_from(">i", frame, at)
    own_host, own_port = place(host or "", port)
    out += text(own_host) + struct.pack(">i", own_port)
    return at + 4


# ---- Fetch


class PartitionRecords(NamedTuple):
    """A partition's records in a Fetch answer: ``frame[start:end]``,
    their length in the four bytes before ``start``."""

    tp: TopicPartition
    start: int
    end: int


def parts_of(frame: bytearray, version: int) -> Iterator[PartitionRecords]:
    """Yield the partitions of an answer to Fetch, versions 4 to 11.
    Raises CorruptBatch for other versions."""
    if not _OLDEST_FETCH <= version <= CAPS[FETCH]:
        raise CorruptBatch(f"an answer to Fetch of version {version}")
    for each in plain_topics(frame, 8 + (6 if version >= 7 else 0), version):
        yield PartitionRecords(each.tp, each.start, each.end)


def bounded(
    frame: bytearray, version: int, bounds: UnpackedBounds, judge: Judge
) -> list[bytes | memoryview] | None:
    """Return an answer to Fetch in pieces, without batches that no reader may unpack; None if it is
    unchanged.

    Of each partition no more is passed on than unpacks to ``bounds.batch_bytes``, or its first batch: the
    reader asks for the rest. Raises CorruptBatch for bytes that are not batches.
    """
    view = memoryview(frame)
    pieces: list[bytes | memoryview] = []
    done = 0
    for tp, start, end in parts_of(frame, version):
        records = _records(frame, tp, start, end, bounds, judge)
        if records is None:
            continue
        pieces += [
            view[done : start - 4],
            struct.pack(">i", sum(map(len, records))),
            *records,
        ]
        done = end
    if not pieces:
        return None
    pieces.append(view[done:])
    return pieces


def _records(
    frame: bytearray, tp: TopicPartition, start: int, end: int, bounds: UnpackedBounds, judge: Judge
) -> list[bytes | memoryview] | None:
    """Return a partition's batches as the proxy forwards them; None if all are unchanged."""
    batches = list(batches_in(frame, start, end))
    judgements = [_passed if batch.is_control else judge(tp, batch, False) for batch in batches]
    if sum(each.size for each in judgements) <= bounds.batch_bytes:
        if all(each.why is None for each in judgements):
            return None
        fits = len(batches)
    else:
        fits = _fitting(tp, batches, judgements, bounds, judge)
        if fits == len(batches) and all(each.why is None for each in judgements):
            return None
    return [
        batch.view if judgement.why is None else stand_in(batch, judgement.why)
        for batch, judgement in zip(batches[:fits], judgements, strict=False)
    ]


_passed = UnpackedSize(0)


def _fitting(
    tp: TopicPartition,
    batches: list[RecordBatch],
    judgements: list[UnpackedSize],
    bounds: UnpackedBounds,
    judge: Judge,
) -> int:
    """Return the number of batches, at least 1, that unpack to the bound or less together.

    Replaces upper limits in ``judgements`` by exact sizes, because the limits may be far too high."""
    total = 0
    for number, batch in enumerate(batches):
        if judgements[number].why is None and not batch.is_control:
            judgements[number] = judge(tp, batch, True)
        if judgements[number].why is None:
            total += judgements[number].size
        if total > bounds.batch_bytes and number:
            return number
    return len(batches)


def stand_in(batch: RecordBatch, why: str) -> bytes:
    """Return the stand-in of a batch: one record, as described above."""
    body = b"\x00\x00\x00" + unread_record(why)
    records = signed(len(body)) + body
    # A first timestamp may be the cleaner's horizon (KIP-534) instead of a time.
    fields = batch._replace(
        attributes=batch.attributes & ~(CODEC | _DELETE_HORIZON), first_timestamp=batch.max_timestamp, count=1
    )
    made = bytearray(
        HEADER.pack(
            batch.base_offset,
            HEADER_BYTES - 12 + len(records),
            fields.leader_epoch,
            2,
            0,
            fields.attributes,
            *fields[8:],
        )
    )
    made += records
    struct.pack_into(">I", made, 17, crc32c(made[_CRC_FROM:]))
    return bytes(made)


def unread_record(why: str) -> bytes:
    """Return key, value and headers of a stand-in's record, encoded as in a batch."""
    header, text = UNREAD_HEADER.encode(), why.encode()
    sized = [signed(len(header)), header, signed(len(text)), text]
    return signed(-1) + signed(-1) + signed(1) + b"".join(sized)
