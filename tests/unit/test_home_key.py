"""Test that the home folder is private to the account of the hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from hub.errors import ConfigError
from hub.home_key import NAME, make_private, read_key


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """``make_private`` sets it for the whole process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return S_IMODE(path.lstat().st_mode)


def test_a_home_that_others_could_read_is_closed_with_what_stands_in_it(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    (home / "checkpoints" / "deep").mkdir(parents=True)
    (home / "store.db").write_text("rows")
    outside.write_text("not ours")
    (home / "link").symlink_to(outside)
    assert mode(home) == 0o755
    make_private(home)
    assert [mode(home), mode(home / "checkpoints"), mode(home / "store.db")] == [0o700, 0o700, 0o600]
    assert mode(outside) == 0o644
    (home / "later").write_text("")
    (home / "folder").mkdir()
    assert [mode(home / "later"), mode(home / "folder")] == [0o600, 0o700]


def test_a_home_that_is_made_is_private_from_the_start(tmp_path: Path) -> None:
    make_private(tmp_path / "new" / "home")
    assert mode(tmp_path / "new" / "home") == 0o700


def test_a_home_that_executors_share_is_open_to_the_group_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o775)
    home.chmod(0o775)
    make_private(home, shared=True)
    assert mode(home) == 0o770


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / NAME
    key.write_bytes(b"k" * 32)
    key.chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by other accounts"):
        read_key(tmp_path)
    key.chmod(0o600)
    assert read_key(tmp_path) == b"k" * 32
