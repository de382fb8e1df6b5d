"""Hashes, sessions and the failure bucket."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.access import secrets
from hub.access.throttle import AGAIN_EVERY_S, MOST_FAILURES, Throttle
from hub.errors import ConfigError
from hub.home_key import NAME, make_key, own_password, read_key

KEY, OTHER = b"k" * 32, b"o" * 32


def test_a_password_fits_its_own_hash_only() -> None:
    line = secrets.hash_of_password("correct horse ü", b"0" * 16)
    assert secrets.checked_password_hash(line) == line
    assert secrets.fits_password("correct horse ü", line)
    assert not secrets.fits_password("correct horse u", line)
    assert not secrets.fits_password("", line)
    assert not secrets.fits_password("x" * 100_000, line)
    assert line != secrets.hash_of_password("correct horse ü", b"1" * 16)


def test_a_session_holds_until_it_ends_or_the_password_changes() -> None:
    text = secrets.session_of("ana@example.com", 1_000, "hash", KEY)
    assert secrets.name_in_session(text) == "ana@example.com"
    assert secrets.session_holds(text, 999.9, "hash", KEY)
    assert not secrets.session_holds(text, 1_000, "hash", KEY)
    assert not secrets.session_holds(text, 0, "another", KEY)
    assert not secrets.session_holds(text, 0, "hash", OTHER)


@given(st.data())
def test_a_session_that_was_changed_anywhere_is_none(data: st.DataObject) -> None:
    text = secrets.session_of("ana", 1_000, "hash", KEY)
    at = data.draw(st.integers(0, len(text) - 1))
    # The last Base64 character has unused bits: variants of it are different texts nevertheless.
    other = data.draw(st.characters(codec="ascii").filter(lambda each: each != text[at]))
    assert not secrets.session_holds(text[:at] + other + text[at + 1 :], 0, "hash", KEY)


@given(st.text(max_size=50))
def test_what_is_no_session_is_none(text: str) -> None:
    assert not secrets.session_holds(text, 0, "", KEY)
    secrets.name_in_session(text)


def test_failures_fill_a_bucket_that_empties_by_and_by() -> None:
    throttle = Throttle()
    for _ in range(MOST_FAILURES):
        assert throttle.wait_s("10.0.0.1", 0.0) == 0
        throttle.failed("10.0.0.1", 0.0)
    assert throttle.wait_s("10.0.0.1", 0.0) == AGAIN_EVERY_S
    assert throttle.wait_s("10.0.0.2", 0.0) == 0
    assert throttle.wait_s("10.0.0.1", AGAIN_EVERY_S) == 0
    throttle.failed("10.0.0.1", AGAIN_EVERY_S)
    assert throttle.wait_s("10.0.0.1", AGAIN_EVERY_S) == AGAIN_EVERY_S


def test_the_bucket_of_many_addresses_is_bounded() -> None:
    throttle = Throttle()
    for number in range(10_100):
        throttle.failed(str(number), 0.0)
    assert len(throttle._failed) == 10_000


def test_the_key_is_made_once_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert read_key(home) is None
    key = make_key(home)
    assert len(key) == 32 and make_key(home) == key == read_key(home)
    assert stat.S_IMODE((home / NAME).stat().st_mode) == 0o600
    assert [each.name for each in home.iterdir()] == [NAME]
    assert own_password(key) != own_password(make_key(tmp_path / "other"))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_key(tmp_path)
    os.chmod(tmp_path / NAME, 0o640)
    with pytest.raises(ConfigError, match="can be read by other accounts"):
        read_key(tmp_path)


def test_a_key_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    make_key(tmp_path)
    (tmp_path / NAME).write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        make_key(tmp_path)
