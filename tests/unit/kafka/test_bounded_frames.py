"""Answers of brokers as the read proxy passes them on:
other addresses, older versions, and stand-ins for large batches."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from hub.kafka.protocol import compression
from hub.kafka.protocol.bounded_frames import CAPS, bounded, cap_versions, with_brokers, with_coordinator
from hub.kafka.protocol.broker_client import fetched
from hub.kafka.protocol.compression import GZIP, NONE, ZSTD
from hub.kafka.protocol.primitives import API_VERSIONS, FETCH, METADATA
from hub.kafka.protocol.record_batch import (
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    CorruptBatch,
    RecordBatch,
    batches_in,
    is_intact,
)
from hub.kafka.protocol.unpacked_size import MIB, UnpackedBounds, UnpackedSize, described, judged
from hub.record import UNREAD_HEADER, TopicPartition
from hub.replication.rewriting.reencode import fields_of, records_in

BOUNDS = UnpackedBounds(batch_bytes=2 * MIB, record_bytes=MIB)
PLACE = TopicPartition("shop.orders", 3)


def varint(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(delta: int, size: int) -> bytes:
    body = b"\x00\x00" + varint(delta) + varint(-1) + varint(size) + bytes(size) + b"\x00"
    return varint(len(body)) + body


def batch(base: int, sizes: Sequence[int], codec: int = ZSTD, more: int = 0) -> bytes:
    packed = compression.compress(codec, b"".join(record(delta, size) for delta, size in enumerate(sizes)))
    length = HEADER_BYTES - 12 + len(packed)
    head = (base, length, 5, 2, 0, codec | more, len(sizes) - 1, 1_000, 2_000, 77, 1, 9, len(sizes))
    return HEADER.pack(*head) + packed


def answer(*parts: bytes, version: int = 11) -> bytearray:
    """An answer to Fetch with a partition of one topic for each of ``parts``."""
    name = PLACE.topic.encode()
    frame = bytearray(struct.pack(">ii", 1, 0) + (struct.pack(">hi", 0, 9) if version >= 7 else b""))
    frame += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(parts))
    for number, records in enumerate(parts):
        frame += struct.pack(">ihqq", PLACE.partition + number, 0, 100, 100)
        frame += struct.pack(">q", 0) if version >= 5 else b""
        frame += struct.pack(">iqq", 1, 77, 50)  # an aborted transaction
        frame += struct.pack(">i", -1) if version >= 11 else b""
        frame += struct.pack(">i", len(records)) + records
    return frame


def judge(_tp: TopicPartition, each: RecordBatch, exact: bool) -> UnpackedSize:
    found = judged(each, BOUNDS, exact=exact)
    return found if found.why is None else found._replace(why=described(each, found))


def passed_on(frame: bytearray, version: int = 11) -> list[list[RecordBatch]]:
    pieces = bounded(frame, version, BOUNDS, judge)
    made = frame if pieces is None else bytearray(b"".join(pieces))
    _, parts = fetched(made, 4, 11, {})
    assert [part.tp.partition for part in parts] == list(range(3, 3 + len(parts)))
    assert all(part.aborted == ((77, 50),) for part in parts)
    return [list(batches_in(part.buffer, part.start, part.end)) for part in parts]


def test_an_answer_without_large_batches_passes_as_it_is() -> None:
    assert bounded(answer(batch(0, [10, 10]), b"", batch(7, [10], NONE)), 11, BOUNDS, judge) is None


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_a_large_batch_becomes_one_record_that_says_so(codec: int) -> None:
    frame = answer(
        batch(0, [10]) + batch(1, [5, 2 * MIB, 5], codec, TRANSACTIONAL) + batch(4, [10]), batch(8, [1])
    )
    (first, large, last), (other,) = passed_on(frame)
    assert (first.base_offset, last.base_offset, other.base_offset) == (0, 4, 8)
    assert is_intact(large) and (large.base_offset, large.next_offset, large.count) == (1, 4, 1)
    assert (large.producer_id, large.producer_epoch, large.is_transactional) == (77, 1, True)
    (stand_in,) = records_in(large)
    found = fields_of(stand_in.rest)
    assert (stand_in.offset, stand_in.timestamp_ms, found.key, found.value) == (1, 2_000, None, None)
    ((name, why),) = found.headers
    assert name == UNREAD_HEADER.encode() and why is not None and b"the batch of 3 records, " in why


@pytest.mark.parametrize("version", [4, 5, 7, 10, 11])
def test_answers_of_older_brokers_are_bounded_too(version: int) -> None:
    pieces = bounded(answer(batch(1, [2 * MIB]), version=version), version, BOUNDS, judge)
    assert pieces is not None and sum(map(len, pieces)) < 1_000


def test_no_more_is_passed_on_than_unpacks_to_the_bound() -> None:
    many = b"".join(batch(number, [MIB // 2]) for number in range(9))
    ((*kept,),) = passed_on(answer(many))
    assert [each.base_offset for each in kept] == [0, 1, 2]


def test_batches_that_may_be_large_and_are_not_pass_together() -> None:
    # 128 KiB is what each of these may have, by the headers of its codec.
    small = b"".join(batch(number, [10]) for number in range(100))
    ((*kept,),) = passed_on(answer(small))
    assert len(kept) == 100


def test_a_batch_that_was_cut_off_by_the_broker_is_left_out_or_stays() -> None:
    whole, large = batch(0, [10]), batch(1, [2 * MIB])
    assert bounded(answer(whole + large[:-5]), 11, BOUNDS, judge) is None
    ((first, second),) = passed_on(answer(large + batch(2, [1]) + whole[:30]))
    assert (first.count, second.base_offset) == (1, 2)


def test_an_answer_of_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        bounded(answer(batch(0, [10])), 13, BOUNDS, judge)


@pytest.mark.parametrize("version", [0, 3])
def test_versions_are_capped(version: int) -> None:
    apis = [(FETCH, 4, 17), (METADATA, 0, 13), (API_VERSIONS, 0, 4), (60, 0, 2), (2, 1, 10)]
    tags = b"\x00" if version >= 3 else b""
    count = bytes([len(apis) + 1]) if version >= 3 else struct.pack(">i", len(apis))
    body = b"".join(struct.pack(">hhh", *each) + tags for each in apis)
    frame = bytearray(struct.pack(">ih", 1, 0) + count + body + b"\x00\x00\x00\x00" + tags)
    cap_versions(frame, version)
    size = 6 + len(tags)
    found = [struct.unpack_from(">hhh", frame, 6 + len(count) + size * number) for number in range(len(apis))]
    assert found == [
        (FETCH, 4, CAPS[FETCH]),
        (METADATA, 0, CAPS[METADATA]),
        (API_VERSIONS, 0, 4),
        (30_060, 0, 2),
        (2, 1, 10),
    ]


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


@pytest.mark.parametrize("version", [0, 1, 3, 8])
def test_brokers_are_at_the_proxys_addresses(version: int) -> None:
    rack = text("r1") if version >= 1 else b""
    head = struct.pack(">i", 1) + (struct.pack(">i", 0) if version >= 3 else b"")

    def metadata(*places: tuple[str, int]) -> bytes:
        brokers = b"".join(
            struct.pack(">i", node) + text(host) + struct.pack(">i", port) + rack
            for node, (host, port) in enumerate(places)
        )
        return head + struct.pack(">i", len(places)) + brokers + b"and all else"

    made = with_brokers(
        bytearray(metadata(("kafka-1", 9092), ("kafka-2.example.org", 9093))),
        version,
        lambda host, port: ("127.0.0.1", port + len(host)),
    )
    assert made == metadata(("127.0.0.1", 9099), ("127.0.0.1", 9112))


@pytest.mark.parametrize("version", [0, 2])
def test_a_coordinator_is_at_the_proxys_address(version: int) -> None:
    def found(host: str, port: int, error: int = 0) -> bytes:
        later = struct.pack(">i", 0) if version >= 1 else b""
        said = text(None) if version >= 1 else b""
        place = struct.pack(">i", 1) + text(host) + struct.pack(">i", port)
        return struct.pack(">i", 1) + later + struct.pack(">h", error) + said + place

    made = with_coordinator(
        bytearray(found("kafka-1", 9092)), version, lambda host, port: ("127.0.0.1", 4_000)
    )
    assert made == found("127.0.0.1", 4_000)
    failed = found("", -1, 15)
    assert with_coordinator(bytearray(failed), version, lambda host, port: ("127.0.0.1", 4_000)) == failed
