"""[core] Unpacked size of a record batch, computed without unpacking more than a bound allows.

A broker limits only the compressed bytes of a batch; 100 MiB of zeros are 3 kB of zstd. Two steps check the
unpacked size. ``most_unpacked`` walks the headers of the codec's own blocks and gives an upper limit without
unpacking anything::

    zstd    raw and RLE blocks declare their size, other blocks have 128 KiB at most (RFC 8878)
    lz4     a block has at most the size that its frame names, and 255 times its own (LZ4 frame format 1.6)
    snappy  each block begins with its unpacked size
    gzip    no declared size: 1,032 times its own size (RFC 1951)

Only a batch whose upper limit is too large is unpacked, into a buffer that ends at the bound (``judged``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from hub.kafka.protocol.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, XERIAL_HEAD, ZSTD, unpacked_within
from hub.kafka.protocol.record_batch import HEADER_BYTES, CorruptBatch, RecordBatch
from hub.varint import MalformedVarint, take_signed, take_unsigned

MIB: Final = 1 << 20
UNKNOWN: Final = 1 << 62
"""An upper limit of bytes whose structure is not the codec's: they are unpacked to know."""
RECORD_COST: Final = 70
"""Overhead of a record in its reader, in bytes: without it a batch could have ten million empty records."""

_ZSTD_MAGIC, _LZ4_MAGIC = 0xFD2FB528, 0x184D2204
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_ZSTD_BLOCK: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_PACKED = 0, 1, 2
_LZ4_BLOCKS: Final = {4: 64 * 1024, 5: 256 * 1024, 6: MIB, 7: 4 * MIB}
_LZ4_RATIO, _GZIP_RATIO = 255, 1_032
_BEST_RATIO: Final = 1 << 19  # 2 MiB of one byte in four bytes of zstd
_MOST_BLOCKS: Final = 65_536  # of one batch; more of them are not walked
_UINT = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class UnpackedBounds:
    """Largest batch and largest record, in bytes once unpacked. ``batch_bytes`` 0 means unlimited."""

    batch_bytes: int = 64 * MIB
    record_bytes: int = 16 * MIB


DEFAULT_BOUNDS: Final = UnpackedBounds()


class NeedsUnpacking(Exception):
    """The headers do not show whether a batch is too large."""


class UnpackedSize(NamedTuple):
    """Unpacked size of a batch: ``size`` in bytes (an upper limit where the exact size is not needed), and
    why readers must not unpack it, or None if they may.
    """

    size: int
    why: str | None = None


def may_unpack_to_more(batch: RecordBatch, than_bytes: int) -> bool:
    """Return whether a batch could unpack to more than ``than_bytes``, judged by the headers of its codec
    alone.
    """
    return batch.size * _BEST_RATIO > than_bytes and most_unpacked(batch.codec, _packed(batch)) > than_bytes


def most_unpacked(codec: int, packed: bytes | memoryview) -> int:
    """Return an upper limit of the bytes that ``packed`` unpacks to; ``UNKNOWN`` if its structure does not
    show one.
    """
    if codec == NONE:
        return len(packed)
    if codec == GZIP:
        return len(packed) * _GZIP_RATIO
    try:
        if codec == SNAPPY:
            return _most_snappy(packed)
        if codec == LZ4:
            return _most_lz4(packed)
        if codec == ZSTD:
            return _most_zstd(packed)
    except (struct.error, IndexError, MalformedVarint):
        pass
    return UNKNOWN


def judged(
    batch: RecordBatch, bounds: UnpackedBounds, *, exact: bool = False, may_unpack: bool = True
) -> UnpackedSize:
    """Judge a batch of any format; unpacks ``bounds.batch_bytes`` at most, and only what may be too large.
    ``exact``: its size is needed, not an upper limit. Raises NeedsUnpacking where it ``may_unpack`` nothing
    and would have to."""
    codec, count = batch.codec, max(0, batch.count)
    packed = _packed(batch)
    most, costs = most_unpacked(codec, packed), RECORD_COST * count
    harmless = most <= bounds.record_bytes and most + costs <= bounds.batch_bytes
    if harmless and not exact:
        return UnpackedSize(most)
    if costs > bounds.batch_bytes:
        return UnpackedSize(costs, f"has {count:,} records")
    if not may_unpack:
        raise NeedsUnpacking
    try:
        plain = unpacked_within(codec, bytes(packed), bounds.batch_bytes)
    except CorruptBatch:
        return UnpackedSize(most) if harmless else UnpackedSize(most, _too_many_bytes(codec, packed, bounds))
    if len(plain) + costs > bounds.batch_bytes:
        return UnpackedSize(len(plain), f"unpacks to {len(plain):,} bytes in {count:,} records")
    largest = _largest_record(plain, count) if batch.magic == 2 and not harmless else 0
    if largest > bounds.record_bytes:
        return UnpackedSize(len(plain), f"has a record of {largest:,} bytes once it is unpacked")
    return UnpackedSize(len(plain))


def unread_reason(batch: RecordBatch, bounds: UnpackedBounds) -> str | None:
    """Return the message for readers why a batch may not be unpacked; None if it may."""
    if not bounds.batch_bytes:
        return None
    judgement = judged(batch, bounds)
    return None if judgement.why is None else described(batch, judgement)


def described(batch: RecordBatch, judgement: UnpackedSize) -> str:
    """Say in half a sentence what a batch is and why it is not unpacked."""
    codec, many = NAMES.get(batch.codec, "unknown codec"), "record" if batch.count == 1 else "records"
    return f"the batch of {batch.count:,} {many}, {batch.size:,} bytes ({codec}), {judgement.why}"


def _packed(batch: RecordBatch) -> memoryview:
    """Return the compressed bytes of a batch: its records; in formats 0 and 1 the message's value."""
    view = batch.view
    if batch.magic == 2:
        return view[HEADER_BYTES:]
    at = 18 + (8 if batch.magic == 1 else 0)
    try:
        for _ in range(2):  # key, value
            (size,) = struct.unpack_from(">i", view, at)
            at += 4
            begin, at = at, at + max(0, size)
    except struct.error:
        return view[:0]
    return view[begin:at]


def _too_many_bytes(codec: int, packed: memoryview, bounds: UnpackedBounds) -> str:
    """Name the size where the codec's headers have it:
    it may be a lie, so only where it is too large as well."""
    most = UNKNOWN if codec == GZIP else most_unpacked(codec, packed)
    declared = _declared(codec, packed)
    if declared is not None and declared > bounds.batch_bytes:
        return f"unpacks to {declared:,} bytes"
    if bounds.batch_bytes < most < UNKNOWN:
        return f"unpacks to more than {bounds.batch_bytes:,} bytes ({most:,} at most)"
    if most <= bounds.batch_bytes:
        return f"cannot be unpacked as {NAMES.get(codec, 'its codec')}"
    return f"does not unpack to {bounds.batch_bytes:,} bytes or less"


def _declared(codec: int, packed: memoryview) -> int | None:
    try:
        if codec == SNAPPY:
            return _most_snappy(packed)
        if codec == ZSTD:
            return _zstd_head(packed, 0)[1]
        if codec == GZIP:  # of its only member, modulo 2^32
            return int(_UINT.unpack_from(packed, len(packed) - 4)[0])
    except (struct.error, IndexError, MalformedVarint):
        pass
    return None


def _largest_record(plain: bytes | memoryview, count: int) -> int:
    """Return the size of the largest record, by the records' lengths; 0 when these do not match the bytes."""
    at = largest = 0
    try:
        for _ in range(count):
            length, at = take_signed(plain, at)
            if length < 0:
                return 0
            largest = max(largest, length)
            at += length
    except (IndexError, MalformedVarint):
        pass  # the data is corrupt; the blocks so far show how much memory readers would allocate
    return largest


# ---- the codecs' own headers


def _most_zstd(packed: bytes | memoryview) -> int:
    at = total = blocks = 0
    while at < len(packed):
        (magic,) = _UINT.unpack_from(packed, at)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            at += 8 + int(_UINT.unpack_from(packed, at + 4)[0])
            blocks += 1
            continue
        if magic != _ZSTD_MAGIC:
            return UNKNOWN
        at, _, checksum = _zstd_head(packed, at)
        last = False
        while not last:
            head = packed[at] | packed[at + 1] << 8 | packed[at + 2] << 16
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            at += 3
            if kind == _ZSTD_PACKED:
                total, at = total + _ZSTD_BLOCK, at + size
            elif kind == _ZSTD_RAW:
                total, at = total + size, at + size
            elif kind == _ZSTD_RLE:
                total, at = total + size, at + 1
            else:
                return UNKNOWN
            blocks += 1
            if blocks > _MOST_BLOCKS:
                return UNKNOWN
        at += 4 if checksum else 0
    return total


def _zstd_head(packed: bytes | memoryview, at: int) -> tuple[int, int | None, bool]:
    """Return (index of the frame's first block, declared size or None, whether a checksum follows the
    blocks).
    """
    flags = packed[at + 4]
    single, checksum = bool(flags & 0x20), bool(flags & 0x04)
    at += 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    size = (1 if single else 0, 2, 4, 8)[flags >> 6]
    if not size:
        return at, None, checksum
    declared = int.from_bytes(packed[at : at + size], "little") + (256 if size == 2 else 0)
    return at + size, declared, checksum


def _most_lz4(packed: bytes | memoryview) -> int:
    at = total = blocks = 0
    while at < len(packed):
        (magic,) = _UINT.unpack_from(packed, at)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            at += 8 + int(_UINT.unpack_from(packed, at + 4)[0])
            blocks += 1
            continue
        flags, most = packed[at + 4], _LZ4_BLOCKS.get(packed[at + 5] >> 4 & 7)
        if magic != _LZ4_MAGIC or most is None:
            return UNKNOWN
        at += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            (size,) = _UINT.unpack_from(packed, at)
            at += 4
            if size == 0:
                break
            plain, size = bool(size & 0x80000000), size & 0x7FFFFFFF
            total += size if plain else min(most, size * _LZ4_RATIO)
            at += size + (4 if flags & 0x10 else 0)
            blocks += 1
            if blocks > _MOST_BLOCKS:
                return UNKNOWN
        at += 4 if flags & 0x04 else 0
    return total


def _most_snappy(packed: bytes | memoryview) -> int:
    if bytes(packed[:8]) != XERIAL_HEAD[:8]:
        return _snappy_size(packed, 0)
    at, total, blocks = len(XERIAL_HEAD), 0, 0
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        if size <= 0:
            return UNKNOWN
        total += _snappy_size(packed, at + 4)
        at += 4 + size
        blocks += 1
        if blocks > _MOST_BLOCKS:
            return UNKNOWN
    return total


def _snappy_size(packed: bytes | memoryview, at: int) -> int:
    size, _ = take_unsigned(packed, at)
    return size if size < 1 << 32 else UNKNOWN
