"""Sessions are listed for their owner and for admins, and end one by one, on all servers of a home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hub.access.open_sessions import OpenSessions
from hub.access.session_routes import end_session, visible_sessions
from hub.access.signed_out_sessions import EndedSessions
from hub.caller import CALLER, AccessDecision, Caller
from hub.errors import NotFound

ANA, BOB, LONG = "a.9999999999-1.x", "b.9999999999-1.x", 9_999_999_999


@contextmanager
def asking(name: str, *, admin: bool = False, person: bool = True) -> Iterator[None]:
    who = Caller(name, frozenset(), lambda _action, _what: AccessDecision(admin, ""), is_person=person)
    before = CALLER.set(who)
    try:
        yield
    finally:
        CALLER.reset(before)


@pytest.fixture
def sessions(tmp_path: Path) -> OpenSessions:
    made = OpenSessions(tmp_path)
    made.begin(ANA, "ana", "password", "10.0.0.1", 1_000.0, LONG)
    made.begin(BOB, "bob", "oidc", "10.0.0.2", 1_000.0, LONG)
    made.begin("a.1500-2.x", "ana", "password", "10.0.0.3", 1_000.0, 1_500)
    return made


def names(sessions: OpenSessions, ended: EndedSessions) -> list[str]:
    return [each.name for each in visible_sessions(sessions, ended)]


def test_everybody_sees_their_own_and_admins_all(tmp_path: Path, sessions: OpenSessions) -> None:
    ended = EndedSessions(tmp_path)
    with asking("ana"):
        assert names(sessions, ended) == ["ana"]
    with asking("ana", person=False):  # one of her tokens
        assert names(sessions, ended) == []
    with asking("root", admin=True):
        assert names(sessions, ended) == ["ana", "bob"]
    assert names(sessions, ended) == []
    assert len(sessions.all(1_200.0)) == 3
    path = tmp_path / "sessions.open"
    assert ANA not in path.read_text() and path.stat().st_mode & 0o077 == 0


def test_a_session_ends_on_all_servers_of_the_home_and_only_for_who_sees_it(
    tmp_path: Path, sessions: OpenSessions
) -> None:
    ended, other = EndedSessions(tmp_path), EndedSessions(tmp_path)
    (of_bob,) = [each for each in sessions.all(0.0) if each.name == "bob"]
    with asking("ana"), pytest.raises(NotFound):
        end_session(sessions, ended, of_bob.id)
    assert not other.has(BOB)
    with asking("bob"):
        assert end_session(sessions, ended, of_bob.id).name == "bob"
    assert other.has(BOB) and not other.has(ANA)
    with asking("root", admin=True):
        assert names(sessions, other) == ["ana"]


def test_a_cut_line_hides_no_other_and_a_missing_folder_keeps_nobody_out(
    tmp_path: Path, sessions: OpenSessions, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sessions.open"
    path.write_text('{"mark": "x"}\n{"ma\n' + path.read_text())
    assert len(sessions.all(0.0)) == 3
    OpenSessions(tmp_path / "none").begin("s", "ana", "password", "", 0.0, 1)
    assert "is not listed" in caplog.text


def test_the_file_stays_small(tmp_path: Path) -> None:
    made = OpenSessions(tmp_path)
    for number in range(3_000):
        made.begin(f"{number}", "ana", "password", "10.0.0.1", 0.0, 10)
    assert (tmp_path / "sessions.open").stat().st_size < 600_000
    assert len(made.all(0.0)) >= 1_000
