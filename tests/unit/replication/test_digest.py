"""A digest sees every change that a mirror could make, and joins as its records do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.record import Record
from hub.replication.verification.digest import Digest, differences, hash_of, joined, ranges

RECORDS = [
    Record("t", 0, at, 1000 + at, b"k", b"v%d" % at if at % 7 else None, (("h", b"1"), ("h", b"2")))
    for at in range(40)
]


def numbered(records: list[Record]) -> list[tuple[int, Record]]:
    return [(record.offset, record) for record in records]


@given(st.lists(st.integers(0, 2**127 - 2), max_size=20), st.integers(0, 20))
def test_digests_join(hashes: list[int], cut: int) -> None:
    def of(some: list[int]) -> Digest:
        digest = Digest()
        for each in some:
            digest = digest.add(each)
        return digest

    assert of(hashes[:cut]).then(of(hashes[cut:])) == of(hashes)


def test_small_ranges_join_to_large_ones() -> None:
    small, large = list(ranges(numbered(RECORDS), 10)), list(ranges(numbered(RECORDS), 20))
    assert [joined(small[:2]), joined(small[2:])] == large


@pytest.mark.parametrize(
    "change",
    [
        {"key": b""},
        {"key": None},
        {"value": b""},
        {"value": b"other"},
        {"timestamp_ms": 0},
        {"headers": ()},
        {"headers": (("h", b"2"), ("h", b"1"))},
        {"headers": (("h", b"1"), ("h", b""))},
        {"headers": (("h1", b""), ("h", b"2"))},
    ],
)
def test_a_change_is_found_in_its_range(change: dict[str, object]) -> None:
    changed = [each._replace(**change) if each.offset == 14 else each for each in RECORDS]  # type: ignore[arg-type]
    found = differences(ranges(numbered(RECORDS), 10), ranges(numbered(changed), 10))
    assert [(each.first, each.end) for each in found] == [(10, 20)]


def test_a_record_lost_doubled_or_out_of_order_is_found() -> None:
    rows = numbered(RECORDS)
    swapped = [*rows[:3], (3, rows[4][1]), (4, rows[3][1]), *rows[5:]]
    for other in (rows[:5] + rows[6:], rows[:5] + rows[4:], swapped, rows[:30]):
        assert len(differences(ranges(rows, 10), ranges(other, 10))) == 1
    assert differences(ranges(rows, 10), ranges(rows, 10)) == ()


def test_header_keys_of_any_bytes_and_null_values() -> None:
    assert hash_of(0, 0, None, None, [(b"\xff", None)]) != hash_of(0, 0, None, None, [(b"\xff", b"")])
    assert hash_of(0, 0, None, None, [("a", b"")]) == hash_of(0, 0, None, None, [(b"a", b"")])
