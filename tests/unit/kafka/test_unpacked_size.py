"""Sizes of batches without unpacking them: the upper limit holds for every codec,
and the judgement names what is too much."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.kafka.protocol import compression
from hub.kafka.protocol.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD
from hub.kafka.protocol.record_batch import HEADER, HEADER_BYTES, RecordBatch, batches_in
from hub.kafka.protocol.unpacked_size import MIB, UNKNOWN, UnpackedBounds, described, judged, most_unpacked

BOUNDS = UnpackedBounds(batch_bytes=4 * MIB, record_bytes=MIB)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


def varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def batch_of(codec: int, packed: bytes, count: int = 1) -> RecordBatch:
    head = HEADER.pack(7, HEADER_BYTES - 12 + len(packed), 0, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    (batch,) = batches_in(bytearray(head + packed))
    return batch


def record(size: int) -> bytes:
    return varint(size) + bytes(size)


def zeros(codec: int, size: int, count: int = 1) -> RecordBatch:
    return batch_of(codec, compression.compress(codec, record(size) * count), count)


@given(st.sampled_from(CODECS), st.binary(max_size=2_000), st.integers(1, 400))
def test_the_upper_limit_is_never_less_than_what_comes_out(codec: int, part: bytes, times: int) -> None:
    plain = part * times
    packed = compression.compress(codec, plain)
    assert len(plain) <= most_unpacked(codec, packed) < UNKNOWN


@pytest.mark.parametrize(
    "packed",
    [bytes(cramjam.zstd.compress(bytes(3 * MIB))), bytes(cramjam.zstd.compress(bytes(70_000), level=19)) * 3],
)
def test_frames_of_other_writers_are_walked_too(packed: bytes) -> None:
    plain = bytes(cramjam.zstd.decompress(packed))
    assert len(plain) <= most_unpacked(ZSTD, packed) <= 8 * MIB


def test_a_bare_block_of_snappy_says_its_size() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(5 * MIB)))
    assert most_unpacked(SNAPPY, packed) == 5 * MIB


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_named_and_takes_no_more_room_than_the_bound(codec: int) -> None:
    bomb = zeros(codec, 12 * MIB)
    judged(zeros(codec, 10), BOUNDS)
    tracemalloc.start()
    try:
        judgement = judged(bomb, BOUNDS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert judgement.why is not None and peak < 4 * BOUNDS.batch_bytes
    assert f"({NAMES[codec]})" in described(bomb, judgement)
    assert "1 record" in described(bomb, judgement)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_within_the_bounds_passes(codec: int) -> None:
    assert judged(zeros(codec, 100), BOUNDS).why is None
    assert judged(zeros(codec, 1_000, 1_000), BOUNDS).why is None
    assert judged(zeros(codec, MIB - 10, 3), BOUNDS).why is None


@pytest.mark.parametrize("codec", CODECS)
def test_one_record_that_is_too_large_is_found_among_others(codec: int) -> None:
    plain = record(100) + record(MIB + 1) + record(100)
    judgement = judged(batch_of(codec, compression.compress(codec, plain), 3), BOUNDS)
    assert judgement.why == "has a record of 1,048,577 bytes once it is unpacked"


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_are_too_much_without_many_bytes(codec: int) -> None:
    batch = batch_of(codec, compression.compress(codec, record(6) * 10), 1_000_000_000)
    assert judged(batch, BOUNDS).why == "has 1,000,000,000 records"


def test_members_of_gzip_are_counted_together() -> None:
    packed = gzip.compress(record(100)) + gzip.compress(bytes(12 * MIB))
    assert judged(batch_of(GZIP, packed), BOUNDS).why is not None
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert compression.decompress(GZIP, two) == b"one two"


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_garbage_is_no_reason_to_unpack_without_a_bound(codec: int) -> None:
    garbage = batch_of(codec, b"\x01\x02\x03" * 1_000)
    assert judged(garbage, BOUNDS).why is not None or most_unpacked(codec, b"\x01\x02\x03" * 1_000) < MIB


def test_a_skippable_frame_hides_nothing() -> None:
    hidden = struct.pack("<II", 0x184D2A50, 4) + b"skip" + bytes(cramjam.zstd.compress(bytes(9 * MIB)))
    assert judged(batch_of(ZSTD, hidden), BOUNDS).why is not None


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(-1, 2**31 - 1))
def test_no_bytes_make_it_fail(codec: int, packed: bytes, count: int) -> None:
    batch = batch_of(codec, packed, 1)._replace(count=count)
    judged(batch, BOUNDS)
