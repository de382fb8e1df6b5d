"""Variable-length integers: what is written is read, in the bytes that Avro specifies."""

from __future__ import annotations

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.varint import MalformedVarint, signed, take_signed, take_unsigned, unsigned


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_signed_number_is_read_as_written_and_has_the_bytes_of_fastavro(number: int, after: bytes) -> None:
    written = signed(number)
    assert take_signed(b"\x00" + written + after, 1) == (number, 1 + len(written))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    assert written == out.getvalue()


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_number_is_read_as_written(number: int) -> None:
    written = unsigned(number)
    assert take_unsigned(memoryview(written), 0) == (number, len(written))


@pytest.mark.parametrize("take", [take_signed, take_unsigned])
def test_an_end_within_a_number_and_a_number_too_long_are_errors(take: object) -> None:
    assert callable(take)
    with pytest.raises(IndexError):
        take(b"\x80", 0)
    with pytest.raises(MalformedVarint) as ten:
        take(b"\x80" * 11, 0)
    assert (ten.value.reason, ten.value.at) == ("a number of more than ten bytes", 10)
    with pytest.raises(MalformedVarint, match="more than 64 bits"):
        take(b"\xff" * 9 + b"\x02", 0)
