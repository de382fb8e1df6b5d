"""Record batches as bytes: cut, checked, patched, taken apart and put together, for any records and any
corruption."""

from __future__ import annotations

import contextlib
import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest
from awscrt.checksums import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from samples import fast_or

from hub.kafka.protocol import compression
from hub.kafka.protocol.record_batch import (
    HEADER,
    HEADER_BYTES,
    AbortedTransactions,
    BatchLimits,
    CorruptBatch,
    Fate,
    RecordBatch,
    answer_of,
    batches_in,
    control_kind,
    fate,
    is_intact,
    next_sequence,
    patch,
    within,
)
from hub.record import NewRecord
from hub.replication.maps.offset_map import Run
from hub.replication.rewriting.reencode import (
    RawRecord,
    RecordTooLarge,
    Reencode,
    batch_of,
    batch_of_new,
    fields_of,
    patched,
    records_in,
    rest_of,
    runs_of,
)
from hub.varint import put_signed, take_signed

small = st.binary(max_size=40)
rests = st.builds(
    rest_of, st.none() | small, st.none() | small, st.lists(st.tuples(small, st.none() | small), max_size=3)
)
timestamps = st.sampled_from([-1, 0, 1]) | st.integers(0, 2**45)
codecs = st.sampled_from(sorted(compression.NAMES))


@st.composite
def raw_records(draw: st.DrawFn, dense: bool = False) -> list[RawRecord]:
    """Ascending offsets, from 0 on; with holes unless ``dense``."""
    offset, records = 0, []
    for _ in range(draw(st.integers(1, 12))):
        records.append(RawRecord(offset, draw(timestamps), 0, draw(rests)))
        offset += 1 if dense else draw(st.integers(1, 4))
    return records


def log_batch(
    records: Sequence[RawRecord],
    *,
    base: int = 0,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    epoch: int = 3,
) -> bytearray:
    """A batch as a broker has it in its log; offsets are relative to ``base`` and may have holes."""
    body = bytearray()
    first = records[0].timestamp_ms if records else -1
    for offset, timestamp_ms, own, rest in records:
        record = bytearray([own])
        put_signed(timestamp_ms - first, record)
        put_signed(offset, record)
        put_signed(len(record) + len(rest), body)
        body += record + rest
    packed = compression.compress(codec, bytes(body))
    newest = max((each.timestamp_ms for each in records), default=-1)
    last = records[-1].offset if records else 0
    checked = (
        struct.pack(">hiqqqhii", codec | attributes, last, first, newest, *producer, len(records)) + packed
    )
    head = struct.pack(">qiibI", base, 49 + len(packed), epoch, 2, crc32c(checked))
    return bytearray(head + checked)


def control(base: int, producer_id: int, kind: int) -> bytearray:
    marker = RawRecord(0, 5, 0, rest_of(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)))
    return log_batch([marker], base=base, attributes=0x30, producer=(producer_id, 0, -1))


def plain(base: int, count: int, *, size: int = 10, **more: object) -> bytearray:
    records = [RawRecord(number, 7, 0, rest_of(b"k", b"v" * size)) for number in range(count)]
    return log_batch(records, base=base, **more)  # type: ignore[arg-type]


def only(buffer: bytearray) -> RecordBatch:
    (batch,) = batches_in(buffer)
    return batch


# ---- bytes to batches


@given(st.lists(st.tuples(raw_records(), codecs), max_size=5), st.integers(0, 400))
def test_a_cut_answer_gives_every_whole_batch_and_no_other(
    parts: list[tuple[list[RawRecord], int]], cut: int
) -> None:
    made = [log_batch(records, base=100 * at, codec=codec) for at, (records, codec) in enumerate(parts)]
    whole = bytearray().join(made)
    ends = [sum(map(len, made[: at + 1])) for at in range(len(made))]
    kept = whole[: max(0, len(whole) - cut)]
    found = list(batches_in(kept))
    assert len(found) == sum(end <= len(kept) for end in ends)
    assert all(is_intact(each) for each in found)


@given(st.binary(max_size=300))
def test_any_bytes_are_batches_or_corrupt_but_never_a_crash(content: bytes) -> None:
    answer = answer_of(bytearray(content), 0, len(content), 0)
    assert answer.corrupt is None or isinstance(answer.corrupt, CorruptBatch)


@given(raw_records(), codecs, st.data())
def test_one_changed_bit_is_seen(records: list[RawRecord], codec: int, data: st.DataObject) -> None:
    buffer = log_batch(records, codec=codec)
    at = data.draw(st.integers(17, len(buffer) - 1))
    buffer[at] ^= 1 << data.draw(st.integers(0, 7))
    answer = answer_of(buffer, 0, len(buffer), 0)
    assert answer.corrupt is not None
    assert not answer.pieces
    assert answer.next_offset == 0


@given(raw_records(), codecs)
def test_another_reader_finds_the_same(records: list[RawRecord], codec: int) -> None:
    """kafka-python's reader is the reference (for codecs that it supports)."""
    buffer = log_batch(records, base=50, codec=codec if codec == compression.GZIP else 0)
    witness = MemoryRecords(bytes(buffer)).next_batch()
    assert witness is not None and witness.validate_crc()
    ours = list(records_in(only(buffer)))
    assert [(each.offset, each.timestamp_ms) for each in ours] == [
        (50 + each.offset, each.timestamp_ms) for each in records
    ]
    if all(_utf8(name) for each in records for name, _ in fields_of(each.rest).headers):
        theirs = [(each.offset, each.timestamp, each.key, each.value, len(each.headers)) for each in witness]
        assert theirs == [
            (each.offset, each.timestamp_ms, *fields_of(each.rest)[:2], len(fields_of(each.rest).headers))
            for each in ours
        ]


def _utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


# ---- patching


@given(
    raw_records(dense=True),
    codecs,
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_a_patched_batch_is_ours_and_its_records_are_untouched(
    records: list[RawRecord], codec: int, producer_id: int, epoch: int, sequence: int
) -> None:
    buffer = log_batch(records, base=1_000, codec=codec, attributes=0x40, producer=(9, 9, 9))
    before = bytes(buffer[HEADER_BYTES:])
    view = patch(only(buffer), producer_id, epoch, sequence)
    batch = only(bytearray(view))
    assert is_intact(batch)
    assert (batch.base_offset, batch.leader_epoch) == (0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer_id, epoch, sequence)
    assert batch.is_transactional and not batch.is_control and batch.codec == codec
    assert batch.attributes & ~0x17 == 0  # the cleaner's horizon is the source's own
    assert bytes(view[HEADER_BYTES:]) == before
    assert (batch.first_timestamp, batch.count) == (records[0].timestamp_ms, len(records))


@given(st.binary(min_size=1, max_size=200), st.data())
def test_what_our_memory_damages_after_the_check_is_seen_by_the_target(
    value: bytes, data: st.DataObject
) -> None:
    """The sum is corrected for the new header only, so it still vouches for the records
    as the source had them."""
    buffer = log_batch([RawRecord(0, 1, 0, rest_of(b"key", value, []))], base=1_000)
    batch = only(buffer)
    assert is_intact(batch)
    buffer[data.draw(st.integers(HEADER_BYTES, len(buffer) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert not is_intact(only(bytearray(patch(batch, 7, 1, 5))))


def test_sequence_numbers_wrap_as_brokers_count_them() -> None:
    assert next_sequence(2**31 - 2, 1) == 2**31 - 1
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 10) == 7


# ---- what becomes of a batch


@pytest.mark.parametrize(
    ("buffer", "position", "expected"),
    [
        (plain(10, 5), 10, Fate.PASS),
        (plain(10, 5), 12, Fate.HEAD),
        (plain(10, 5), 15, Fate.BEFORE),
        (plain(10, 5, attributes=0x08), 0, Fate.APPEND_TIME),
        (plain(10, 5, size=500), 0, Fate.LARGE),
        (log_batch([], base=10), 0, Fate.EMPTY),
        (
            log_batch([RawRecord(0, 1, 0, rest_of(b"", b"")), RawRecord(2, 1, 0, rest_of(b"", b""))]),
            0,
            Fate.HOLES,
        ),
        (control(10, 4, 1), 0, Fate.CONTROL),
        (plain(10, 5, attributes=0x10, producer=(4, 0, 0)), 0, Fate.ABORTED),
        (plain(10, 5, attributes=0x10, producer=(5, 0, 0)), 0, Fate.PASS),
    ],
)
def test_fates(buffer: bytearray, position: int, expected: Fate) -> None:
    assert (
        fate(only(buffer), position, AbortedTransactions([(4, 10)]), BatchLimits(largest_bytes=1_000))
        is expected
    )


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    """A producer's next transaction counts again, and so does one that began in between."""
    buffer = bytearray().join(
        [
            plain(0, 2, attributes=0x10, producer=(4, 0, 0)),
            plain(2, 2, attributes=0x10, producer=(5, 0, 0)),
            plain(4, 2),
            control(6, 4, 0),
            plain(7, 2, attributes=0x10, producer=(4, 0, 2)),
            control(9, 5, 1),
            control(10, 4, 1),
        ]
    )
    assert [control_kind(each) for each in batches_in(buffer) if each.is_control] == [0, 1, 1]
    answer = answer_of(buffer, 0, len(buffer), 0, [(4, 0)], BatchLimits(tiny_records=0))
    assert [each.batches[0].base_offset for each in answer.pieces] == [2, 4, 7]
    assert (answer.next_offset, answer.left_out) == (11, 4)


def test_the_epoch_at_the_position_is_that_of_the_last_batch_whether_it_is_carried_or_not() -> None:
    buffer = plain(0, 4, epoch=3) + plain(4, 4, epoch=4) + control(8, 4, 0)  # the marker's epoch is 3
    whole = answer_of(buffer, 0, len(buffer), 0)
    assert (whole.next_offset, whole.end_leader_epoch) == (9, 3)
    foreign = answer_of(buffer, 0, len(buffer) - len(control(8, 4, 0)), 0, foreign=[(4, 8)])
    assert (foreign.next_offset, foreign.end_leader_epoch, len(foreign.pieces)) == (8, 4, 1)
    before = answer_of(buffer, 0, len(plain(0, 4)), 4)
    assert (before.next_offset, before.end_leader_epoch) == (4, -1)


def test_tiny_neighbours_of_one_codec_are_merged_and_a_lone_one_passes() -> None:
    limits = BatchLimits(tiny_records=3, tiny_bytes=1_000, merged_bytes=400)
    buffer = bytearray().join(
        [plain(0, 1), plain(1, 2), plain(3, 9), plain(12, 2), plain(14, 1, codec=3), plain(15, 1, codec=3)]
        + [plain(16 + at, 1, size=90) for at in range(4)]
    )
    answer = answer_of(buffer, 0, len(buffer), 0, (), limits)
    found = [([each.base_offset for each in piece.batches], piece.rewrite) for piece in answer.pieces]
    assert found == [
        ([0, 1], True),
        ([3], False),
        ([12], False),
        ([14, 15], True),
        ([16, 17], True),
        ([18, 19], True),
    ]
    assert answer.next_offset == 20


# ---- records out and in


@given(raw_records(), codecs, st.integers(0, 40), st.integers(120, 2_000))
def test_records_written_anew_are_the_same_records(
    records: list[RawRecord], codec: int, position: int, largest: int
) -> None:
    buffer = log_batch(records, codec=codec)
    expected = [each for each in records if each.offset >= position]
    try:
        made = Reencode().reencode([only(buffer)], position, largest)
    except RecordTooLarge:
        assert any(len(batch_of([each], codec).payload) > largest for each in expected)
        return
    found: list[RawRecord] = []
    for new in made:
        batch = patched(new.payload)
        assert is_intact(batch) and batch.codec == codec and len(new.payload) <= largest
        assert batch.count == batch.last_offset_delta + 1 == new.count
        offsets = {run.target + at: run.source + at for run in new.runs for at in range(run.count)}
        inside = list(records_in(batch))
        assert [each.offset for each in inside] == list(range(new.count)) == sorted(offsets)
        found += [each._replace(offset=offsets[each.offset]) for each in inside]
        assert fate(batch, 0, AbortedTransactions()) is Fate.PASS
    assert found == expected


def test_the_brokers_time_becomes_each_records_time() -> None:
    records = [RawRecord(0, 10, 0, rest_of(None, b"a")), RawRecord(1, 30, 0, rest_of(None, b"b"))]
    (new,) = Reencode().reencode([only(log_batch(records, attributes=0x08))], 0, 10_000)
    assert [each.timestamp_ms for each in records_in(patched(new.payload))] == [30, 30]


@given(
    st.lists(st.tuples(st.none() | small, st.none() | small), min_size=1, max_size=5), st.sampled_from([0, 1])
)
def test_old_formats_are_read_as_another_library_writes_them(
    content: list[tuple[bytes | None, bytes | None]], magic: int
) -> None:
    for codec in (compression.NONE, compression.GZIP):
        builder = MemoryRecordsBuilder(magic, codec, 100_000)
        for number, (key, value) in enumerate(content):
            assert builder.append(1_000 + number if magic else None, key, value) is not None
        builder.close()
        buffer = bytearray(builder.buffer())
        if codec and magic == 1:  # the broker gives a wrapper its last message's offset (KIP-31)
            struct.pack_into(">q", buffer, 0, len(content) - 1)
        found = [each for batch in batches_in(buffer) for each in records_in(batch)]
        assert [fields_of(each.rest)[:2] for each in found] == content
        assert [each.offset for each in found] == list(range(len(content)))
        assert [each.timestamp_ms for each in found] == [
            1_000 + number if magic else -1 for number in range(len(content))
        ]


def test_an_old_message_that_is_damaged_is_not_carried() -> None:
    builder = MemoryRecordsBuilder(1, 0, 1_000)
    builder.append(1, b"k", b"value")
    builder.close()
    buffer = bytearray(builder.buffer())
    buffer[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        Reencode().reencode([only(buffer)], 0, 1_000)


@given(st.lists(st.integers(0, 1_000), min_size=1, unique=True).map(sorted))
def test_runs_name_every_offset_once(offsets: list[int]) -> None:
    runs = runs_of(offsets)
    assert [run.source + at for run in runs for at in range(run.count)] == offsets
    assert [run.target + at for run in runs for at in range(run.count)] == list(range(len(offsets)))
    assert all(one.source_end < two.source for one, two in pairwise(runs))


def test_records_of_our_own() -> None:
    new = batch_of_new([NewRecord("t", b"k", None, (("h", b"1"),)), NewRecord("t", None, b"v", (), 3)], 9)
    first, second = records_in(patched(new.payload))
    assert (first.timestamp_ms, fields_of(first.rest)) == (9, (b"k", None, ((b"h", b"1"),)))
    assert (second.timestamp_ms, fields_of(second.rest)) == (3, (None, b"v", ()))
    assert new.runs == (Run(0, 0, 2),)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(number: int) -> None:
    out = bytearray()
    put_signed(number, out)
    assert take_signed(bytes(out), 0) == (number, len(out))


# ---- codecs


@settings(max_examples=fast_or(15, 40))
@given(codecs, st.binary(max_size=300), st.integers(0, 600))
def test_codecs_give_back_what_they_took(codec: int, content: bytes, times: int) -> None:
    plain_bytes = content * times
    assert compression.decompress(codec, compression.compress(codec, plain_bytes)) == plain_bytes


@given(codecs, st.binary(max_size=200))
def test_bytes_of_no_codec_are_corrupt(codec: int, content: bytes) -> None:
    """A mutation by chance of one; nothing else happens."""
    with contextlib.suppress(CorruptBatch):
        compression.decompress(codec, content)


@pytest.mark.parametrize("codec", [codec for codec in compression.NAMES if codec])
def test_corrupt_batches_take_no_address_space(codec: int) -> None:
    """With gigabytes of it taken and never given back, a worker can start no process any more."""

    def taken_mb() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmData"))

    def corrupt() -> None:
        with pytest.raises(CorruptBatch):
            compression.decompress(codec, b"\xff" * 300)

    corrupt()  # its library is loaded with the first
    before = taken_mb()
    for _ in range(20):
        corrupt()
    assert taken_mb() - before < 200


@pytest.mark.parametrize("codec", [codec for codec in compression.NAMES if codec])
def test_a_bomb_is_not_unpacked(codec: int) -> None:
    packed = compression.compress(codec, bytes(2_000_000))
    with pytest.raises(CorruptBatch):
        compression.decompress(codec, packed, 100_000)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_small_batches_that_inflate_a_thousandfold_are_written_piece_by_piece(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.replication.rewriting.reencode._MOST_AT_ONCE", 2_000_000)
    zeros = [RawRecord(n, n, 0, rest_of(b"k%d" % n, bytes(1_000_000))) for n in range(9)]
    batches = [only(log_batch([each], codec=codec)) for each in zeros]
    made = Reencode().reencode(batches, 0, 1_000_000)
    assert [each.count for each in made] == [2, 2, 2, 2, 1]
    found = [record for each in made for record in records_in(patched(each.payload))]
    assert [each[1:] for each in found] == [each[1:] for each in zeros]
    assert [run.source for each in made for run in each.runs] == [0, 2, 4, 6, 8]


@pytest.mark.processes
def test_a_worker_that_unpacks_loads_no_library_of_tables() -> None:
    code = """if True:
        import sys
        import hub.cli.mirror.commands, hub.replication.worker.worker
        from hub.kafka.protocol import compression
        for codec in compression.NAMES:
            assert compression.decompress(codec, compression.compress(codec, b"x" * 99)) == b"x" * 99
        print(*{"duckdb", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy"} & set(sys.modules))
    """
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == [], "each takes tens of megabytes in every worker"


def test_gzip_of_another_library() -> None:
    assert compression.decompress(compression.GZIP, gzip.compress(b"x" * 100)) == b"x" * 100
    assert zlib.decompress(compression.compress(compression.GZIP, b"y"), 31) == b"y"


def test_the_header_is_as_long_as_the_protocol_says() -> None:
    assert HEADER.size == 61


def test_foreign_batches_are_left_out_and_passed() -> None:
    assert within([(0, 3), (5, 9)], 2) and not within([(0, 3), (5, 9)], 3) and not within([], 0)
    log = bytearray().join(plain(base, 4) for base in (0, 4, 8))
    answer = answer_of(log, 0, len(log), 0, (), BatchLimits(), [(4, 8)])
    offsets = [batch.base_offset for piece in answer.pieces for batch in piece.batches]
    assert (offsets, answer.left_out, answer.next_offset) == ([0, 8], 1, 12)
