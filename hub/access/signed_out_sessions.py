"""[shell] Signed-out sessions: a file in the home folder that all its servers read, so copies of a cookie
end, too.

``sessions.ended`` has one line per session: its expiry (epoch seconds) and the hash of its text. Lines are
appended under a lock and read on the next lookup; lines of expired sessions are dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hub.files import Stamp, stamp_of

log = logging.getLogger(__name__)

FILE = "sessions.ended"
_TIDY_AT = 1_000  # lines


class EndedSessions:
    """Signed-out sessions of one home folder. Thread safe. ``has`` costs a system call; an unreadable file
    keeps the known ones.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._ended: dict[str, int] = {}
        self._read: Stamp | None = None  # stamp of the file when it was last read
        self._lock = threading.Lock()

    def has(self, session: str) -> bool:
        """Return True if any server of this home signed the session out."""
        return self.has_mark(mark_of(session))

    def has_mark(self, mark: str) -> bool:
        """Return the same for a session by its mark."""
        with self._lock:
            self._refresh()
            return mark in self._ended

    def end(self, session: str, ends_at_s: int, now_s: float) -> None:
        """Sign the session out permanently. Blocks. Raises OSError if the file cannot be written; the session
        has then ended in this process only.
        """
        self.end_mark(mark_of(session), ends_at_s, now_s)

    def end_mark(self, mark: str, ends_at_s: int, now_s: float) -> None:
        """End a session by its mark, as ``end`` does."""
        with self._lock:
            self._ended[mark] = ends_at_s
            with _appending(self._path) as handle:
                self._refresh()
                handle.write(f"{ends_at_s} {mark}\n".encode())
                handle.flush()
                os.fsync(handle.fileno())
                if len(self._ended) > _TIDY_AT and min(self._ended.values()) < now_s:
                    self._tidy(now_s)

    def _refresh(self) -> None:
        try:
            stamp = stamp_of(self._path)
            if stamp == self._read:
                return
            # Read the whole file: a rewritten one may have the inode of an earlier one.
            text = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.error(
                "%s cannot be read: sessions that were signed out elsewhere remain valid here: %s",
                self._path,
                error,
            )
            return
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.decode("ascii", "replace").splitlines():
            ends, _, mark = line.partition(" ")
            if ends.isdecimal() and mark:
                self._ended[mark] = int(ends)
        self._read = stamp

    def _tidy(self, now_s: float) -> None:
        """Rewrite the file without expired sessions. The caller holds the file's lock."""
        self._ended = {mark: ends for mark, ends in self._ended.items() if ends > now_s}
        draft = self._path.with_suffix(".draft")
        draft.touch(0o600)
        draft.write_text("".join(f"{ends} {mark}\n" for mark, ends in self._ended.items()))
        draft.replace(self._path)


@contextmanager
def _appending(path: Path) -> Iterator[BinaryIO]:
    """Open the file for appending under an exclusive lock, so that one server writes at a time."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_still(path, handle):
            break
        os.close(handle)  # another server replaced the file meanwhile
    with os.fdopen(handle, "ab") as opened:
        yield opened


def _is_still(path: Path, handle: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def mark_of(session: str) -> str:
    """Return the hash by which a session is known in files: the file signs nobody in."""
    return hashlib.sha256(session.encode()).hexdigest()
