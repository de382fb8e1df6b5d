"""Times: exact in both directions, and UTC wherever the hub runs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.access_log.search import parse_since
from hub.times import iso, parse_iso

FIRST_MS, LAST_MS = parse_iso("0001-01-01"), parse_iso("9999-12-31T23:59:59.999")


@given(st.integers(FIRST_MS, LAST_MS))
def test_a_time_that_is_written_is_read_exactly(at_ms: int) -> None:
    assert parse_iso(iso(at_ms)) == at_ms


def test_a_time_without_a_zone_is_utc_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        found = parse_iso("1970-01-01T01:00"), parse_since("1970-01-01T01:00", 0.0)
    time.tzset()
    assert found == (3_600_000, 3_600_000)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "10000-01-01", "9" * 40])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="isoformat|month|year"):
        parse_iso(text)
