"""Values in Postgres' formats, equal to what psycopg writes and reads."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

from hub.materializers.queries.parser import SqlError
from hub.pgwire.values import types as t
from hub.pgwire.values.decode import decoded
from hub.pgwire.values.encode import encoder

SAMPLES: list[tuple[int, Any, Any]] = [  # type, as a store has it, as a client reads it
    (t.BOOL, 1, True),
    (t.INT8, -(2**63), -(2**63)),
    (t.INT4, 7, 7),
    (t.FLOAT8, 1e300, 1e300),
    (t.FLOAT8, 3.0, 3.0),
    (t.TEXT, "äöü'\"", "äöü'\""),
    (t.BYTEA, b"\0\xff", b"\0\xff"),
    (t.JSON, '{"a":[1]}', {"a": [1]}),
    (t.DATE, 20_454, dt.date(2026, 1, 1)),
    (t.DATE, -719_162, dt.date(1, 1, 1)),
    (t.TIMESTAMPTZ, 1_767_225_600_123, dt.datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=dt.UTC)),
    (t.TIMESTAMPTZ, -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)),
    (t.NUMERIC, "-12345.6700", Decimal("-12345.6700")),
    (t.NUMERIC, "0.00012", Decimal("0.00012")),
    (t.NUMERIC, "100000000", Decimal(100000000)),
    (t.NUMERIC, "0", Decimal(0)),
    (1009, ["a", None, 'b"\\', "null", ""], ["a", None, 'b"\\', "null", ""]),
    (1005, [1, 2], [1, 2]),
    (1028, [], []),
]


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(("oid", "stored", "read"), SAMPLES)
def test_a_client_reads_what_is_stored(oid: int, stored: Any, read: Any, form: int) -> None:
    data = encoder(oid, form)(stored)
    found = Transformer().get_loader(oid, pq.Format(form)).load(data)
    if isinstance(found, dt.datetime):
        found = found.astimezone(dt.UTC)
    assert found == read and str(found) == str(read)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=7))
def test_every_number_is_read_in_binary(value: Decimal) -> None:
    data = encoder(t.NUMERIC, 1)(str(value))
    assert Transformer().get_loader(t.NUMERIC, pq.Format.BINARY).load(data) == value


PARAMETERS: list[tuple[Any, Any]] = [
    (5, 5),
    (2**40, 2**40),
    (1.5, 1.5),
    (True, True),
    ("x", "x"),
    (Decimal("1.25"), 1.25),
    (Decimal(12), 12),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (["a", None, 'b"c,'], ["a", None, 'b"c,']),
    ([1, 2], [1, 2]),
]


@pytest.mark.parametrize("form", [PyFormat.TEXT, PyFormat.BINARY])
@pytest.mark.parametrize(("sent", "value"), PARAMETERS)
def test_what_a_client_sends_is_its_value(sent: Any, value: Any, form: PyFormat) -> None:
    transformer = Transformer()
    dumper = transformer.get_dumper(sent, form)
    data = dumper.dump(sent)
    oid = dumper.oid or (1009 if isinstance(sent, list) else 0)
    assert decoded(bytes(data or b""), oid, int(dumper.format), 1) == value


def test_times_are_iso_texts() -> None:
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    dumper = Transformer().get_dumper(moment, PyFormat.BINARY)
    assert decoded(bytes(dumper.dump(moment) or b""), dumper.oid, 1, 1) == "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("raw", "oid", "form"),
    [
        (b"x", t.INT8, 0),
        (b"123", t.INT8, 1),
        (b"\xff", t.TEXT, 0),
        (b"{{a}}", 1009, 0),
        (b"", t.INTERVAL, 1),
        (b"x" * 9, 1009, 1),
    ],
)
def test_a_wrong_value_names_its_parameter(raw: bytes, oid: int, form: int) -> None:
    with pytest.raises(SqlError, match=r"parameter \$3 is no"):
        decoded(raw, oid, form, 3)
