"""Signed-out sessions: known to every server of a home, across restarts, in a file of bounded size."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hub.access import signed_out_sessions
from hub.access.signed_out_sessions import FILE, EndedSessions


def test_what_one_server_ends_has_ended_at_all(tmp_path: Path) -> None:
    one, other = EndedSessions(tmp_path), EndedSessions(tmp_path)
    assert not one.has("a") and not other.has("a")
    one.end("a", 1_000, 0.0)
    other.end("b", 1_000, 0.0)
    for each in (one, other, EndedSessions(tmp_path)):
        assert each.has("a") and each.has("b") and not each.has("c")
    assert "a" not in (tmp_path / FILE).read_text().replace("abcdef", "").split()  # only hashes


def test_sessions_that_are_over_anyway_leave_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_out_sessions, "_TIDY_AT", 10)
    one, other = EndedSessions(tmp_path), EndedSessions(tmp_path)
    for number in range(50):
        one.end(f"s{number}", number + 5, float(number))
        assert other.has(f"s{number}")
    assert len((tmp_path / FILE).read_text().splitlines()) < 25
    assert one.has("s49") and EndedSessions(tmp_path).has("s49")


def test_servers_that_write_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_out_sessions, "_TIDY_AT", 20)

    def write(name: str) -> None:
        own = EndedSessions(tmp_path)
        for number in range(30):
            own.end(f"{name}{number}", number if number < 10 else 10_000, 20.0)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    after = EndedSessions(tmp_path)
    assert all(after.has(f"{name}{number}") for name in "abcd" for number in range(10, 30))


def test_a_line_that_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe\nx\n12\n")
    own = EndedSessions(tmp_path)
    assert not own.has("a")
    own.end("a", 1_000, 0.0)
    assert EndedSessions(tmp_path).has("a")
