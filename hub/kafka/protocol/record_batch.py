"""[core] Record batches as bytes: parse a Fetch answer, and prepare batches to be produced again.

A batch is copied between clusters without unpacking its records: only its header of 61 bytes changes
(Kafka's protocol guide, "Record Batch")::

     0 base offset      8 length       12 leader epoch   16 magic   17 CRC32C of all from 21 on
    21 attributes      23 last offset delta              27 first timestamp   35 max timestamp
    43 producer id     51 producer epoch                 53 base sequence     57 count   61 records

Brokers take a batch from a client only when its offsets have no holes, its timestamps are the client's, and
it is not a control batch; so compacted batches, batches with the broker's time, cut heads and old formats are
to be written anew (``BatchPiece.rewrite``), and tiny neighbours too, because each batch costs a broker about
50 µs whatever its size.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from awscrt.checksums import combine_crc32c, crc32c

from hub.errors import PeerError
from hub.varint import MalformedVarint, take_signed

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
_PLACE = struct.Struct(">qi")
_PLACE_BYTES = _PLACE.size
_LEAST = 26  # the smallest message of format 0
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_LEGACY = struct.Struct(">qiIbb")
_PRODUCER = struct.Struct(">qhi")
_HEAD = struct.Struct(">qiibI")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")

CODEC = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
SEQUENCES = 2**31


class CorruptBatch(PeerError):
    """Bytes that are not a batch, or not the batch that was written. They are never copied."""

    code = "HUB-3610"
    retriable = False


class RecordBatch(NamedTuple):
    """One batch where it lies: ``size`` bytes of ``buffer`` from ``start`` on. In formats 0 and 1 it is a
    message, perhaps with others compressed in it; then ``base_offset`` is that of the last one and most
    fields are unknown."""

    buffer: bytearray
    start: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # of records; a tuple's own count() is of no use here

    @property
    def size(self) -> int:
        return self.length + _PLACE_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def view(self) -> memoryview:
        return memoryview(self.buffer)[self.start : self.start + self.size]


def batches_in(buffer: bytearray, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """Yield the whole batches in ``buffer[start:end]``; ignores a truncated last batch, which brokers send.
    Raises CorruptBatch for an invalid length.
    """
    stop = len(buffer) if end is None else end
    at = start
    while at + _LEAST <= stop:
        offset, length = _PLACE.unpack_from(buffer, at)
        if length < _LEAST - _PLACE_BYTES:
            raise CorruptBatch(f"offset {offset}: a batch of {length} bytes")
        after = at + _PLACE_BYTES + length
        if after > stop:
            return
        if buffer[at + _MAGIC_AT] == 2:
            if length < HEADER_BYTES - _PLACE_BYTES:
                raise CorruptBatch(f"offset {offset}: a batch of {length} bytes")
            yield RecordBatch(buffer, at, *HEADER.unpack_from(buffer, at))
        else:
            _, _, crc, magic, attributes = _LEGACY.unpack_from(buffer, at)
            attributes &= CODEC | APPEND_TIME
            yield RecordBatch(
                buffer, at, offset, length, -1, magic, crc, attributes, 0, -1, -1, -1, -1, -1, 1
            )
        at = after


def is_intact(batch: RecordBatch) -> bool:
    """Return whether the batch matches its checksum: CRC32C for format 2. Older formats are checked when they
    are unpacked.
    """
    if batch.magic != 2:
        return batch.magic in (0, 1)
    return bool(crc32c(batch.view[_CRC_FROM:]) == batch.crc)


def patch(batch: RecordBatch, producer_id: int, producer_epoch: int, base_sequence: int) -> memoryview:
    """Make the batch one of this producer's transaction, in place, and give its bytes.

    The broker sets base offset and leader epoch; of the attributes only the codec stays: the cleaner's delete
    horizon (KIP-534) and the source's transaction are not the target's.

    The checksum is corrected, not computed anew. CRC is linear: a change of the header changes it by the
    checksum of that change, moved over the bytes that follow. That costs the same for a batch of any size,
    and the sum still vouches for the records as the source has them: what our memory damages, the target's
    broker refuses.
    """
    buffer, start = batch.buffer, batch.start
    view = batch.view
    header = view[_CRC_FROM:HEADER_BYTES]
    before = crc32c(header)
    _ATTRIBUTES.pack_into(buffer, start + _CRC_FROM, (batch.attributes & CODEC) | TRANSACTIONAL)
    _PRODUCER.pack_into(buffer, start + 43, producer_id, producer_epoch, base_sequence)
    (crc,) = _CRC.unpack_from(buffer, start + _CRC_AT)
    crc ^= combine_crc32c(before ^ crc32c(header), 0, len(view) - HEADER_BYTES)
    _HEAD.pack_into(buffer, start, 0, batch.length, -1, 2, crc)
    return view


def next_sequence(sequence: int, count: int) -> int:
    """Sequence numbers wrap to 0 after 2^31 - 1, as brokers count them."""
    return (sequence + count) % SEQUENCES


# ---- which batches of an answer pass, and how


class AbortedTransactions:
    """The aborted transactions of one Fetch answer (read_committed), consumed batch by batch in the log's
    order.

    ``transactions``: (producer id, first offset) as the broker lists them.
    """

    def __init__(self, transactions: Sequence[tuple[int, int]] = ()) -> None:
        self._coming = sorted(transactions, key=lambda each: each[1], reverse=True)
        self._now: set[int] = set()

    def covers(self, batch: RecordBatch) -> bool:
        """Return whether the batch belongs to an aborted transaction. Call it for every batch, in order."""
        while self._coming and self._coming[-1][1] <= batch.last_offset:
            self._now.add(self._coming.pop()[0])
        if batch.is_control:
            if control_kind(batch) == ABORT:
                self._now.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._now


ABORT, COMMIT = 0, 1


def control_kind(batch: RecordBatch) -> int | None:
    """ABORT, COMMIT, another number for other control records, None when it is empty. Control batches have
    one record, not compressed; its key is two 16-bit numbers: version and kind."""
    if batch.count < 1:
        return None
    records = bytes(batch.view[HEADER_BYTES:])
    try:
        _, at = take_signed(records, 0)  # length
        at += 1  # attributes
        for _ in range(3):  # timestamp delta, offset delta, length of the key
            _, at = take_signed(records, at)
    except (IndexError, MalformedVarint):
        at = len(records)
    if at + 4 > len(records):
        raise CorruptBatch(f"offset {batch.base_offset}: a control batch without a kind")
    return int.from_bytes(records[at + 2 : at + 4], "big", signed=True)


class Fate(Enum):
    """Treatment of a batch by the mirror: pass, rewrite, or leave out."""

    PASS = "passes as it is"
    HOLES = "re-encoded: compaction left holes"
    HEAD = "re-encoded: it begins before the position"
    OLD_FORMAT = "re-encoded: format 0 or 1"
    APPEND_TIME = "re-encoded: its timestamps are the broker's"
    LARGE = "re-encoded: larger than the target accepts"
    CONTROL = "left out: a control batch"
    ABORTED = "left out: its transaction was aborted"
    EMPTY = "left out: nothing in it"
    BEFORE = "left out: all of it is before the position"
    FOREIGN = "left out: the mirror of the other direction brought it"


_PASS = Fate.PASS
_ORDINARY = APPEND_TIME | TRANSACTIONAL | CONTROL  # none of these in the attributes
LEFT_OUT = frozenset({Fate.CONTROL, Fate.ABORTED, Fate.EMPTY, Fate.BEFORE, Fate.FOREIGN})


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits that decide between passing and rewriting a batch. Batches below both ``tiny`` limits are merged
    with tiny neighbors, up to ``merged_bytes`` (as fetched); ``largest_bytes`` is the largest batch that the
    target accepts.
    """

    tiny_records: int = 20
    tiny_bytes: int = 8_192
    merged_bytes: int = 262_144
    largest_bytes: int = 1_048_588

    def is_tiny(self, batch: RecordBatch) -> bool:
        return batch.count < self.tiny_records and batch.size < self.tiny_bytes


DEFAULT_LIMITS = BatchLimits()


def fate(
    batch: RecordBatch, position: int, aborted: AbortedTransactions, limits: BatchLimits = DEFAULT_LIMITS
) -> Fate:
    """Return how to treat an intact batch that a reader at ``position`` fetched."""
    if (  # nearly all of them, and nothing below could say otherwise
        not batch.attributes & _ORDINARY
        and batch.magic == 2
        and batch.base_offset >= position
        and 0 < batch.count == batch.last_offset_delta + 1
        and batch.length + _PLACE_BYTES <= limits.largest_bytes
    ):
        return _PASS
    if batch.magic < 2:
        return Fate.BEFORE if batch.next_offset <= position else Fate.OLD_FORMAT
    left_out = aborted.covers(batch)  # call it for skipped batches too: it tracks open transactions
    if batch.next_offset <= position:
        return Fate.BEFORE
    if batch.is_control:
        return Fate.CONTROL
    if left_out:
        return Fate.ABORTED
    if batch.count == 0:
        return Fate.EMPTY
    if batch.base_offset < position:
        return Fate.HEAD
    if batch.count != batch.last_offset_delta + 1:
        return Fate.HOLES
    if batch.attributes & APPEND_TIME:
        return Fate.APPEND_TIME
    return Fate.LARGE if batch.size > limits.largest_bytes else Fate.PASS


@dataclass(slots=True)
class BatchPiece:
    """Batches that become one batch at the target, or one or a few if they are rewritten.

    ``rewrite``: unpack the batches' records and write them as new batches of the same codec.
    """

    batches: list[RecordBatch]
    rewrite: bool
    size: int

    def has_room(self, batch: RecordBatch, limits: BatchLimits) -> bool:
        return self.batches[0].codec == batch.codec and self.size + batch.size <= limits.merged_bytes

    def add(self, batch: RecordBatch) -> None:
        self.batches.append(batch)
        self.rewrite = True
        self.size += batch.size


@dataclass(slots=True)
class FetchedPartition:
    """One partition's share of a Fetch answer, ready to be produced. ``next_offset``: the next offset to
    fetch, after batches that were left out. ``end_leader_epoch``: epoch of the last batch before that offset,
    passed or not; -1 if there is none.
    """

    pieces: list[BatchPiece] = field(default_factory=list)
    next_offset: int = 0
    corrupt: CorruptBatch | None = None
    end_leader_epoch: int = -1
    left_out: int = 0


def answer_of(
    buffer: bytearray,
    start: int,
    end: int,
    position: int,
    aborted: Sequence[tuple[int, int]] = (),
    limits: BatchLimits = DEFAULT_LIMITS,
    foreign: Sequence[tuple[int, int]] = (),
    anew: bool = False,
    unpacks_large: Callable[[RecordBatch], bool] = lambda batch: False,
    left_out: Sequence[tuple[int, int]] = (),
) -> FetchedPartition:
    """Cut ``buffer[start:end]``, which a broker gave for ``position``, into pieces in order.

    ``foreign``: stretches of offsets, ascending, whose batches are left out (they came from the target; a
    producer's batch is all of one origin). ``anew``: no batch may pass as it is. ``unpacks_large``: a tiny
    batch for which it is true is not written anew with its neighbours. ``left_out``: stretches of offsets,
    ascending, whose records are left out: a batch with some of them is written anew. The first damaged batch
    ends it: ``corrupt`` says so, and what is before it can be carried.
    """
    answer = FetchedPartition(next_offset=position)
    books = AbortedTransactions(aborted)
    open_piece: BatchPiece | None = None  # the last piece, while small neighbours may join it
    try:
        for batch in batches_in(buffer, start, end):
            if not is_intact(batch):
                answer.corrupt = CorruptBatch(f"offset {batch.base_offset}: the batch's checksum is wrong")
                break
            becomes = fate(batch, position, books, limits)
            if foreign and becomes not in LEFT_OUT and within(foreign, batch.base_offset):
                becomes = Fate.FOREIGN
            partly = bool(left_out) and overlaps(left_out, batch.base_offset, batch.next_offset)
            if batch.next_offset > answer.next_offset:
                answer.next_offset, answer.end_leader_epoch = batch.next_offset, batch.leader_epoch
            if becomes is not _PASS and becomes in LEFT_OUT:
                answer.left_out += becomes is not Fate.BEFORE
                continue
            rewrite = anew or partly or becomes is not _PASS
            joins = rewrite or (limits.is_tiny(batch) and not unpacks_large(batch))
            if joins and open_piece is not None and open_piece.has_room(batch, limits):
                open_piece.add(batch)
                continue
            piece = BatchPiece([batch], rewrite, batch.size)
            answer.pieces.append(piece)
            open_piece = piece if joins else None
    except CorruptBatch as error:
        answer.corrupt = error
    return answer


def overlaps(stretches: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    """Return whether any of the ascending ranges has an offset of [first, end).

    >>> overlaps([(0, 3), (5, 9)], 3, 5), overlaps([(0, 3), (5, 9)], 3, 6)
    (False, True)
    """
    at = bisect_right(stretches, end - 1, key=lambda each: each[0]) - 1
    return at >= 0 and stretches[at][1] > first


def within(stretches: Sequence[tuple[int, int]], offset: int) -> bool:
    """Return whether one of the ascending ranges [first, end) contains the offset.

    >>> within([(0, 3), (5, 9)], 5), within([(0, 3), (5, 9)], 3)
    (True, False)
    """
    at = bisect_right(stretches, offset, key=lambda each: each[0]) - 1
    return at >= 0 and offset < stretches[at][1]
