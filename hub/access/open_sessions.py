"""[shell] Sessions of people: ``sessions.open`` in the home, so that they can be listed and ended one by one.

The cookie alone proves a session (hub/access/secrets.py); this file only tells of it. An unwritable file
keeps nobody from signing in. Lines are appended; expired and very many ones are dropped when the file grows.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from hub.access.signed_out_sessions import mark_of
from hub.formats.fields import known_fields

log = logging.getLogger(__name__)

FILE = "sessions.open"
_TIDY_AT, _MOST = 256 << 10, 1_000  # bytes; sessions that are kept then, the newest


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session. ``mark``: hash of its text; ``way``: password or oidc. Times are epoch seconds."""

    mark: str
    name: str
    way: str
    address: str
    started_at_s: int
    ends_at_s: int

    @property
    def id(self) -> str:
        return self.mark[:12]


class OpenSessions:
    """The sessions of one home. Thread safe."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._lock = threading.Lock()

    def begin(self, session: str, name: str, way: str, address: str, now_s: float, ends_at_s: int) -> None:
        """Note a new session. Blocks. A failure is logged: the session holds anyway."""
        made = OpenSession(mark_of(session), name, way, address, int(now_s), ends_at_s)
        try:
            with self._lock:
                if self._path.exists() and self._path.stat().st_size > _TIDY_AT:
                    self._tidy(now_s)
                handle = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "a") as lines:
                    lines.write(json.dumps(asdict(made)) + "\n")
        except OSError as error:
            log.warning("the session of %r is not listed: %s", name, error)

    def all(self, now_s: float) -> list[OpenSession]:
        """Return the sessions that have not reached their end, oldest first. Blocks. Raises OSError."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        found = []
        for line in text.splitlines():
            try:
                session = known_fields(OpenSession, json.loads(line))
            except (ValueError, TypeError):
                continue  # cut by a kill
            if session.ends_at_s > now_s:
                found.append(session)
        return found

    def _tidy(self, now_s: float) -> None:
        draft = self._path.with_suffix(".draft")
        draft.touch(0o600)
        draft.write_text("".join(json.dumps(asdict(each)) + "\n" for each in self.all(now_s)[-_MOST:]))
        draft.replace(self._path)
