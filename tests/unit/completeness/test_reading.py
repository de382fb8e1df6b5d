"""Offsets without records, classified by their batches; tests/integration/test_completeness.py covers
transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import cast

import pytest
from awscrt.checksums import crc32c

from hub.completeness.batch_reader import OffsetRange, ReadRecord
from hub.completeness.counts import EVENT_ID_HEADER, Holes, id_of
from hub.kafka.protocol.broker_client import BrokerCluster, ClusterAccess, Fetched
from hub.kafka.protocol.record_batch import CorruptBatch
from hub.record import NewRecord, TopicPartition
from hub.replication.rewriting.reencode import batch_of_new

PLACE = TopicPartition("t", 0)


class Named:
    name = "test"
    access = ClusterAccess(bootstrap="")


def batch(base: int, values: Sequence[bytes], span: int | None = None, headers: bool = False) -> bytearray:
    """Build a batch of records from offset ``base`` on. ``span`` is the number of covered offsets, if
    compaction removed the last ones.
    """
    named = ((EVENT_ID_HEADER, b"e-1"),) if headers else ()
    made = batch_of_new([NewRecord("t", b"k", value, named, 60_000) for value in values], 0)
    payload = bytearray(made.payload)
    struct.pack_into(">q", payload, 0, base)
    struct.pack_into(">i", payload, 12, 0)
    payload[16] = 2
    struct.pack_into(">h", payload, 21, 0)
    struct.pack_into(">i", payload, 23, (span or len(values)) - 1)
    struct.pack_into(">I", payload, 17, crc32c(bytes(payload[21:])))
    return payload


class Read(OffsetRange):
    """Offset range over batches in memory."""

    batches: Sequence[bytearray] = ()

    def _fetch(self, position: int, where: str) -> Fetched:
        buffer = bytearray().join(self.batches)
        return Fetched(PLACE, 0, self.end, self.end, 0, (), buffer, 0, len(buffer))


def read(
    batches: Sequence[bytearray], first: int, end: int, *, compact: bool
) -> tuple[list[ReadRecord], OffsetRange]:
    stretch = Read(cast(BrokerCluster, Named()), PLACE, first, end, compact)
    stretch.batches = batches
    return list(stretch.records()), stretch


@pytest.mark.parametrize("compact", [False, True])
def test_records_and_holes_add_up_to_the_offsets(compact: bool) -> None:
    batches = [batch(0, [b"a", b"b", b"c"]), batch(10, [b"d", b"e"], span=5), batch(15, [b"f"])]
    seen, stretch = read(batches, 0, 16, compact=compact)
    assert [each.offset for each in seen] == [0, 1, 2, 10, 11, 15]
    between = Holes(compacted=7) if compact else Holes(unexplained=7)
    assert stretch.holes == between.plus(Holes(compacted=3))  # within a batch only compaction leaves gaps
    assert stretch.reached == 16
    assert seen[0].id == id_of(b"k", 60_000, b"a")
    assert seen[0].timed


def test_a_stretch_begins_and_ends_within_batches() -> None:
    seen, stretch = read([batch(0, [b"a", b"b", b"c"]), batch(10, [b"d", b"e"])], 1, 11, compact=False)
    assert [each.offset for each in seen] == [1, 2, 10]
    assert (stretch.holes, stretch.reached) == (Holes(unexplained=7), 11)


def test_the_events_own_id_counts() -> None:
    (seen,), _ = read([batch(0, [b"a"], headers=True)], 0, 1, compact=False)
    assert seen.id == id_of(None, 0, None, b"e-1")


def test_a_damaged_batch_stops_it() -> None:
    damaged = batch(0, [b"a"])
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch, match='topic "t" partition 0, offset 0'):
        read([damaged], 0, 1, compact=False)


def test_holes_are_of_the_minute_of_the_record_before_them() -> None:
    _, stretch = read([batch(0, [b"a", b"b"]), batch(7, [b"c"])], 0, 8, compact=False)
    assert stretch.holes == Holes(unexplained=5) and stretch.spots == {60_000: Holes(unexplained=5)}


def test_of_a_batch_that_is_broken_within_nothing_is_given() -> None:
    broken = batch(5, [b"a", b"b"])
    broken[-1] = 2  # claims one more header than it has; the checksum covers this
    struct.pack_into(">I", broken, 17, crc32c(bytes(broken[21:])))
    stretch = Read(cast(BrokerCluster, Named()), PLACE, 0, 7)
    stretch.batches = [batch(0, [b"c"]), broken]
    seen: list[ReadRecord] = []
    with pytest.raises(CorruptBatch, match='topic "t" partition 0, offset 5: '):
        seen.extend(stretch.records())
    assert ([each.offset for each in seen], stretch.reached, stretch.holes) == ([0], 1, Holes())
