"""[edge] The codecs of record batches, over what Apache Arrow brings along (pyarrow), and the framings Kafka wants.

- gzip and zstd: one stream;
- snappy: xerial's blocks (a header of 16 bytes, then blocks with a 4-byte length each); librdkafka writes a bare block;
- lz4: one frame of *independent* blocks without content checksum, as Java's reader demands; written here block by block,
  because Arrow's own frames link their blocks.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any, Final

from hub.replication.batches import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL + struct.pack(">ii", 1, 1)
_BLOCK = _PIECE = 65_536
# Magic number, flags (version 1, independent blocks), blocks of 64 KiB at most, and the checksum of those two bytes.
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END: Final = b"\x00\x00\x00\x00"
_LZ4_PLAIN = 0x80000000
MOST_BYTES = 512 * 1024 * 1024


def _arrow() -> Any:
    """Imported when first needed: a mirror of dense batches never does, and it takes 40 MB."""
    import pyarrow

    return pyarrow


def decompress(codec: int, packed: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes that were packed. Raises CorruptBatch for bytes that are not of that codec, or that would be more
    than ``most_bytes``."""
    if codec == NONE:
        return packed
    try:
        if codec == SNAPPY:
            unpacked = _unsnappy(packed, most_bytes)
        elif codec == GZIP:
            unpacked = zlib.decompressobj(31).decompress(packed, most_bytes + 1)
        elif codec in (LZ4, ZSTD):
            unpacked = _unpacked(NAMES[codec], packed, most_bytes + 1)
        else:
            raise CorruptBatch(f"codec {codec} is not known")
    except (OSError, ValueError, zlib.error, struct.error) as error:
        raise CorruptBatch(f"its {NAMES[codec]} cannot be unpacked: {error}") from None
    if len(unpacked) > most_bytes:
        raise CorruptBatch(f"its {NAMES[codec]} unpacks to more than {most_bytes} bytes")
    return bytes(unpacked)


def _unpacked(name: str, packed: bytes, most_bytes: int) -> bytes:
    """Piece by piece into room of our own: a read of so many bytes would get that much memory from the system for each small
    batch (six times the work), and keep its address space when it fails: after fifty corrupt batches nothing could be forked."""
    pa = _arrow()
    room, parts, left = memoryview(bytearray(_PIECE)), [], most_bytes
    with pa.CompressedInputStream(pa.BufferReader(packed), name) as stream:
        while left and (got := stream.readinto(room[:left])):
            parts.append(bytes(room[:got]))
            left -= got
    return b"".join(parts)


def compress(codec: int, plain: bytes) -> bytes:
    if codec == NONE:
        return plain
    if codec == GZIP:
        return gzip.compress(plain, 6, mtime=0)
    if codec == SNAPPY:
        return _snappy(plain)
    if codec == LZ4:
        return _lz4(plain)
    return bytes(_arrow().Codec("zstd").compress(plain, asbytes=True))


def _lz4(plain: bytes) -> bytes:
    codec = _arrow().Codec("lz4_raw")
    parts = [_LZ4_HEAD]
    for at in range(0, len(plain), _BLOCK):
        block = plain[at : at + _BLOCK]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [struct.pack("<I", len(packed)), packed]
        else:
            parts += [struct.pack("<I", len(block) | _LZ4_PLAIN), block]
    parts.append(_LZ4_END)
    return b"".join(parts)


def _snappy(plain: bytes) -> bytes:
    codec = _arrow().Codec("snappy")
    parts = [_XERIAL_HEAD]
    for at in range(0, len(plain), _BLOCK):
        packed = codec.compress(plain[at : at + _BLOCK], asbytes=True)
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def _unsnappy(packed: bytes, most_bytes: int) -> bytes:
    codec = _arrow().Codec("snappy")
    if not packed.startswith(_XERIAL):
        return _snappy_block(codec, packed, most_bytes)
    parts, at, total = [], len(_XERIAL_HEAD), 0
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        at += 4
        if size < 0 or at + size > len(packed):
            raise ValueError("a block is cut off")
        parts.append(_snappy_block(codec, packed[at : at + size], most_bytes - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(codec: Any, packed: bytes, most_bytes: int) -> bytes:
    """A block begins with the size of what is in it, a varint of 7 bits a byte."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most_bytes:
        raise ValueError(f"a block of {size} bytes")
    return bytes(codec.decompress(packed, decompressed_size=size, asbytes=True))
