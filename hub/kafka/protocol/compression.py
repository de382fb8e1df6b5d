"""[edge] The codecs of record batches, over cramjam, and the framings Kafka wants.

- gzip and zstd: one stream;
- snappy: xerial's blocks (a header of 16 bytes, then blocks with a 4-byte length each); librdkafka writes a
  bare block;
- lz4: one frame of *independent* blocks without content checksum, as Java's reader demands; written here
  block by block, because cramjam's own frames end in a checksum.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Final

import cramjam

from hub.kafka.protocol.record_batch import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_XERIAL: Final = b"\x82SNAPPY\x00"
XERIAL_HEAD: Final = _XERIAL + struct.pack(">ii", 1, 1)
_BLOCK = 65_536
_LEAST_ROOM, _GUESS = 65_536, 4
# Magic number, flags (version 1, independent blocks), blocks of 64 KiB at most, and the checksum of those two
# bytes.
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END: Final = b"\x00\x00\x00\x00"
_LZ4_PLAIN = 0x80000000
_ZSTD_LEVEL: Final = 3  # as Kafka's own
_FULL: Final = "failed to write whole buffer"
MOST_BYTES = 512 * 1024 * 1024


def decompress(codec: int, packed: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the unpacked bytes. Raises CorruptBatch for bytes that are not of that codec, or that unpack to
    more than ``most_bytes``.
    """
    return bytes(unpacked_within(codec, packed, most_bytes))


def unpacked_within(codec: int, packed: bytes, most_bytes: int) -> bytes | memoryview:
    """Unpack as ``decompress()`` does, without the last copy. Raises CorruptBatch as it does."""
    if codec == NONE:
        return packed
    unpacked: bytes | memoryview
    try:
        if codec == SNAPPY:
            unpacked = _unsnappy(packed, most_bytes)
        elif codec == GZIP:
            unpacked = _gunzip(packed, most_bytes)
        elif codec in (LZ4, ZSTD):
            unpacked = _unpacked(codec, packed, most_bytes)
        else:
            raise CorruptBatch(f"codec {codec} is not known")
    except (cramjam.DecompressionError, ValueError, zlib.error, struct.error) as error:
        raise CorruptBatch(f"its {NAMES[codec]} cannot be unpacked: {error}") from None
    if len(unpacked) > most_bytes:
        raise CorruptBatch(f"its {NAMES[codec]} unpacks to more than {most_bytes} bytes")
    return unpacked


def _gunzip(packed: bytes, most_bytes: int) -> bytes:
    """Unpack all members, as Java does, up to one byte more than the limit."""
    parts: list[bytes] = []
    left = most_bytes + 1
    while packed and left > 0:
        member = zlib.decompressobj(31)
        parts.append(member.decompress(packed, left))
        left -= len(parts[-1])
        if not member.eof:
            break
        packed = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpacked(codec: int, packed: bytes, most_bytes: int) -> memoryview:
    """Unpack into a buffer of our own and enlarge it while it is too small: the size that a frame declares
    may be wrong.
    """
    unpack = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    size = max(_LEAST_ROOM, _GUESS * len(packed))
    while True:
        room = bytearray(min(size, most_bytes + 1))
        try:
            return memoryview(room)[: unpack(packed, room)]
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise
            if len(room) > most_bytes:
                return memoryview(room)  # too large; the caller raises the error
            size *= _GUESS


def compress(codec: int, plain: bytes) -> bytes:
    if codec == NONE:
        return plain
    if codec == GZIP:
        return gzip.compress(plain, 6, mtime=0)
    if codec == SNAPPY:
        return _snappy(plain)
    if codec == LZ4:
        return _lz4(plain)
    return bytes(cramjam.zstd.compress(plain, level=_ZSTD_LEVEL))


def _lz4(plain: bytes) -> bytes:
    parts = [_LZ4_HEAD]
    for at in range(0, len(plain), _BLOCK):
        block = plain[at : at + _BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += [struct.pack("<I", len(packed)), packed]
        else:
            parts += [struct.pack("<I", len(block) | _LZ4_PLAIN), block]
    parts.append(_LZ4_END)
    return b"".join(parts)


def _snappy(plain: bytes) -> bytes:
    parts = [XERIAL_HEAD]
    for at in range(0, len(plain), _BLOCK):
        packed = bytes(cramjam.snappy.compress_raw(plain[at : at + _BLOCK]))
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def _unsnappy(packed: bytes, most_bytes: int) -> bytes:
    if not packed.startswith(_XERIAL):
        return _snappy_block(packed, most_bytes)
    parts, at, total = [], len(XERIAL_HEAD), 0
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        at += 4
        if size < 0 or at + size > len(packed):
            raise ValueError("a block is cut off")
        parts.append(_snappy_block(packed[at : at + size], most_bytes - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(packed: bytes, most_bytes: int) -> bytes:
    """Unpack one block, which begins with its unpacked size."""
    size = cramjam.snappy.decompress_raw_len(packed)
    if size > most_bytes:
        raise ValueError(f"a block of {size} bytes")
    return bytes(cramjam.snappy.decompress_raw(packed))
