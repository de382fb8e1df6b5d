"""[core] Compression for the link: a batch that the source has uncompressed crosses it compressed.

Only the body is compressed, as a producer does it: records, their order and their number stay. The target
keeps the batch as it arrives, so readers there unpack it.
"""

from __future__ import annotations

import struct
from typing import Final

from awscrt.checksums import crc32c

from hub.kafka.protocol.compression import LZ4, NONE, ZSTD, compress
from hub.kafka.protocol.record_batch import CODEC, HEADER, HEADER_BYTES, CorruptBatch, RecordBatch, is_intact

CODECS: Final = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}
_CRC_FROM: Final = 21
_WORTH: Final = 0.9
_LEAST_BYTES: Final = 512


def compressed(batch: RecordBatch, codec: int) -> RecordBatch | None:
    """Return the batch with a body in ``codec`` (of CODECS); None where the batch is compressed already,
    small, or would hardly shrink. Raises CorruptBatch if the batch does not match its checksum: the new one
    would hide that.
    """
    if codec == NONE or batch.codec != NONE or batch.magic != 2 or batch.size < _LEAST_BYTES:
        return None
    body = batch.view[HEADER_BYTES:]
    packed = compress(codec, bytes(body))
    if len(packed) > _WORTH * len(body):
        return None
    if not is_intact(batch):
        raise CorruptBatch(f"offset {batch.base_offset}: the batch does not match its checksum")
    header = bytearray(batch.view[:HEADER_BYTES])
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12 + len(packed))
    struct.pack_into(">h", header, _CRC_FROM, (batch.attributes & ~CODEC) | codec)
    payload = header + packed
    struct.pack_into(">I", payload, _CRC_FROM - 4, crc32c(memoryview(payload)[_CRC_FROM:]))
    return RecordBatch(payload, 0, *HEADER.unpack_from(payload, 0))
