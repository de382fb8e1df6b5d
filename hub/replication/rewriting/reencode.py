"""[core] Re-encoding: take records out of batches that cannot be copied unchanged and build new batches (see
hub/kafka/protocol/record_batch.py).

In a record only the two deltas to its batch's header change; its attributes, key, value and headers keep
their bytes. So null and empty differ, headers may repeat and their names need not be UTF-8, and a timestamp
may be 0 or -1.

``Reencoder`` is the port, ``Reencode`` its implementation. A faster one, or one that changes records, may
replace it: it gets batches and returns batches of the same records in the same order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from awscrt.checksums import crc32c

from hub.errors import CallerError
from hub.kafka.protocol.bounded_frames import unread_record
from hub.kafka.protocol.compression import MOST_BYTES, NONE, compress, decompress
from hub.kafka.protocol.record_batch import (
    APPEND_TIME,
    HEADER,
    HEADER_BYTES,
    CorruptBatch,
    RecordBatch,
    batches_in,
    within,
)
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds, unread_reason
from hub.record import NewRecord
from hub.replication.maps.offset_map import Run
from hub.varint import MalformedVarint, put_signed, take_signed

_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_HEAD = struct.Struct(">qiibI")
_AFTER_LENGTH = HEADER_BYTES - 12
_MOST_AT_ONCE = 16 << 20


class RecordTooLarge(CallerError):
    """One record alone is larger than the target accepts."""

    code = "HUB-1610"


class RawRecord(NamedTuple):
    """A record with absolute offset and timestamp; ``rest`` is key, value and headers as they are
    in a batch.
    """

    offset: int
    timestamp_ms: int
    attributes: int
    rest: bytes


@dataclass(slots=True)
class NewBatch:
    """A complete batch except for the producer's fields, which ``patch`` sets; ``runs`` count offsets of the
    target from 0, the first record's.
    """

    payload: bytearray
    count: int
    runs: tuple[Run, ...]
    first_offset: int
    next_offset: int


class Reencoder(Protocol):
    """Port that re-encodes the records of batches."""

    def reencode(
        self,
        batches: Sequence[RecordBatch],
        position: int,
        largest_bytes: int,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> list[NewBatch]:
        """Return all records from ``position`` on, except for the ranges ``left_out``, in order, in the first
        batch's codec, in batches of at most ``largest_bytes``. Raises CorruptBatch, RecordTooLarge naming the
        offset.
        """
        ...


class Reencode:
    """Reencoder that keeps every record."""

    def reencode(
        self,
        batches: Sequence[RecordBatch],
        position: int,
        largest_bytes: int,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> list[NewBatch]:
        parts = (kept_records(batch, position, left_out) for batch in batches)
        return anew(parts, batches[0].codec, largest_bytes)


def kept_records(
    batch: RecordBatch, position: int, left_out: Sequence[tuple[int, int]] = ()
) -> list[RawRecord]:
    """Return the records of a batch from ``position`` on, except for the ranges ``left_out``. Raises
    CorruptBatch naming the batch.
    """
    try:
        return [
            record
            for record in records_in(batch)
            if record.offset >= position and not (left_out and within(left_out, record.offset))
        ]
    except CorruptBatch as error:
        raise CorruptBatch(f"offset {batch.base_offset}: {error.message}") from None


def anew(parts: Iterable[Sequence[RawRecord]], codec: int, largest_bytes: int) -> list[NewBatch]:
    """Return the records as new batches. A few small batches may inflate a thousandfold: a new batch is
    written at every ``_MOST_AT_ONCE`` bytes, so that they are never in memory together.
    """
    made: list[NewBatch] = []
    records: list[RawRecord] = []
    size = 0
    for part in parts:
        records += part
        size += sum(len(record.rest) for record in part)
        if size >= _MOST_AT_ONCE:
            made += fitting(records, codec, largest_bytes)
            records, size = [], 0
    made += fitting(records, codec, largest_bytes)
    return made


def fitting(records: Sequence[RawRecord], codec: int, largest_bytes: int) -> Iterator[NewBatch]:
    """Yield one batch if it fits, else both halves, recursively."""
    waiting = [records] if records else []
    while waiting:
        part = waiting.pop()
        made = batch_of(part, codec)
        if len(made.payload) <= largest_bytes:
            yield made
        elif len(part) == 1:
            raise RecordTooLarge(
                f"offset {part[0].offset}: its record takes {len(made.payload)} bytes, the target "
                f"{largest_bytes} at most",
                hint="raise max.message.bytes of the topic in the target cluster, then "
                "start the mirror again",
            )
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]


# ---- records out of batches


def records_in(batch: RecordBatch, bounds: UnpackedBounds = DEFAULT_BOUNDS) -> Iterator[RawRecord]:
    """Return the records of a batch of any format, ascending. A batch that may not be unpacked gives one
    record that represents all, the same for the same bytes in every cluster
    (hub/kafka/protocol/bounded_frames.py). Raises CorruptBatch.
    """
    why = unread_reason(batch, bounds)
    if why is not None:
        return iter([_stand_in(batch, why)])
    if batch.magic < 2:
        return _legacy_records(batch)
    return _records(batch)


def _stand_in(batch: RecordBatch, why: str) -> RawRecord:
    same = f"{why}; CRC-32C of its records {crc32c(batch.view[HEADER_BYTES:]):08x}"
    return RawRecord(batch.base_offset, batch.max_timestamp, 0, unread_record(same))


def _records(batch: RecordBatch) -> Iterator[RawRecord]:
    packed = bytes(batch.view[HEADER_BYTES:])
    plain = decompress(batch.codec, packed)
    append_time = bool(batch.attributes & APPEND_TIME)
    at = 0
    try:
        for _ in range(batch.count):
            length, at = take_signed(plain, at)
            end = at + length
            if length < 0 or end > len(plain):
                raise CorruptBatch("a record is longer than its batch")
            attributes = plain[at]
            timestamp_delta, at = take_signed(plain, at + 1)
            offset_delta, at = take_signed(plain, at)
            if at > end:
                raise CorruptBatch("a record is shorter than its length field")
            yield RawRecord(
                batch.base_offset + offset_delta,
                batch.max_timestamp if append_time else batch.first_timestamp + timestamp_delta,
                attributes,
                plain[at:end],
            )
            at = end
    except IndexError:
        raise CorruptBatch("its records end too early") from None
    except MalformedVarint:
        raise CorruptBatch("a number too long") from None
    if at != len(plain):
        raise CorruptBatch(f"{len(plain) - at} bytes after its last record")


def _legacy_records(batch: RecordBatch) -> Iterator[RawRecord]:
    """Yield the records of formats 0 and 1: a message, or one that wraps a compressed set (KIP-31, KIP-32:
    inner offsets of format 1 are relative, the wrapper has the last one's; its broker time, if it has one, is
    that of all).
    """
    message = _message(batch)
    if batch.codec == NONE:
        yield message.raw(batch.base_offset)
        return
    unpacked = bytearray(decompress(batch.codec, message.value or b"", MOST_BYTES))
    inner = list(batches_in(unpacked))
    if not inner:
        raise CorruptBatch("a wrapper without messages")
    shift = batch.base_offset - inner[-1].base_offset if batch.magic == 1 else 0
    for each in inner:
        found = _message(each)
        if batch.attributes & APPEND_TIME:
            found = found._replace(timestamp_ms=message.timestamp_ms)
        yield found.raw(each.base_offset + shift)


class _Message(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    def raw(self, offset: int) -> RawRecord:
        rest = bytearray()
        _put_bytes(rest, self.key)
        _put_bytes(rest, self.value)
        put_signed(0, rest)
        return RawRecord(offset, self.timestamp_ms, 0, bytes(rest))


def _message(batch: RecordBatch) -> _Message:
    view = bytes(batch.view)
    if zlib.crc32(view[16:]) != batch.crc:
        raise CorruptBatch("the message's checksum is wrong")
    at, timestamp_ms = 18, -1
    try:
        if batch.magic == 1:
            (timestamp_ms,) = struct.unpack_from(">q", view, at)
            at += 8
        fields: list[bytes | None] = []
        for _ in range(2):
            (size,) = struct.unpack_from(">i", view, at)
            at += 4
            if at + max(0, size) > len(view):
                raise CorruptBatch("a message is longer than its length field")
            fields.append(None if size < 0 else view[at : at + size])
            at += max(0, size)
    except struct.error:
        raise CorruptBatch("a message is cut off") from None
    return _Message(timestamp_ms, fields[0], fields[1])


# ---- batches out of records


def batch_of(records: Sequence[RawRecord], codec: int = NONE) -> NewBatch:
    """Return one batch of at least one record, ascending; its producer's fields are still empty."""
    first_timestamp = records[0].timestamp_ms
    body = bytearray()
    record = bytearray()
    newest = first_timestamp
    for number, (_, timestamp_ms, attributes, rest) in enumerate(records):
        record.clear()
        record.append(attributes)
        put_signed(timestamp_ms - first_timestamp, record)
        put_signed(number, record)
        put_signed(len(record) + len(rest), body)
        body += record
        body += rest
        newest = max(newest, timestamp_ms)
    packed = compress(codec, bytes(body))
    count = len(records)
    checked = _FROM_ATTRIBUTES.pack(codec, count - 1, first_timestamp, newest, -1, -1, -1, count) + packed
    payload = bytearray(_HEAD.pack(0, _AFTER_LENGTH + len(packed), -1, 2, crc32c(checked)))
    payload += checked
    offsets = [each.offset for each in records]
    return NewBatch(payload, count, runs_of(offsets), offsets[0], offsets[-1] + 1)


def batch_of_new(records: Sequence[NewRecord], now_ms: int) -> NewBatch:
    """Return the hub's own records as a batch without compression, in the order given."""
    return batch_of(
        [
            RawRecord(
                number,
                now_ms if each.timestamp_ms is None else each.timestamp_ms,
                0,
                rest_of(each.key, each.value, [(name.encode(), value) for name, value in each.headers]),
            )
            for number, each in enumerate(records)
        ]
    )


def patched(payload: bytearray) -> RecordBatch:
    """Return the batch in the payload of a NewBatch."""
    return RecordBatch(payload, 0, *HEADER.unpack_from(payload, 0))


def runs_of(offsets: Sequence[int]) -> tuple[Run, ...]:
    """Map ascending source offsets as runs onto 0, 1, 2 ...

    >>> runs_of([5, 6, 9])
    (Run(source=5, target=0, count=2), Run(source=9, target=2, count=1))
    """
    runs: list[Run] = []
    begin = 0
    for number in range(1, len(offsets) + 1):
        if number == len(offsets) or offsets[number] != offsets[number - 1] + 1:
            runs.append(Run(offsets[begin], begin, number - begin))
            begin = number
    return tuple(runs)


def rest_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[bytes, bytes | None]] = ()
) -> bytes:
    """Return key, value and headers as a record holds them."""
    rest = bytearray()
    _put_bytes(rest, key)
    _put_bytes(rest, value)
    found = list(headers)
    put_signed(len(found), rest)
    for name, content in found:
        _put_bytes(rest, name)
        _put_bytes(rest, content)
    return bytes(rest)


class Fields(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def fields_of(rest: bytes) -> Fields:
    """Parse the result of ``rest_of``. Raises CorruptBatch."""
    try:
        key, at = _take_bytes(rest, 0)
        value, at = _take_bytes(rest, at)
        count, at = take_signed(rest, at)
        headers = []
        for _ in range(count):
            name, at = _take_bytes(rest, at)
            content, at = _take_bytes(rest, at)
            headers.append((name or b"", content))
    except IndexError:
        raise CorruptBatch("a record is cut off") from None
    except MalformedVarint:
        raise CorruptBatch("a number too long") from None
    if at != len(rest):
        raise CorruptBatch(f"{len(rest) - at} bytes after a record's headers")
    return Fields(key, value, tuple(headers))


def _put_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # -1, zigzag
    else:
        put_signed(len(content), out)
        out += content


def _take_bytes(rest: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = take_signed(rest, at)
    if size < 0:
        return None, at
    if at + size > len(rest):
        raise CorruptBatch("a field is longer than its record")
    return rest[at : at + size], at + size
