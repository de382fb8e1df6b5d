"""[edge] The file system: cheap change checks by a folder's modification time, which takes one system call.

Reading a folder's time costs a hundredth of a call to Spark or of a directory listing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from hub.materializers.definition.load import view_files

_LIST_S = 1.0  # the resolution of a folder's time is that of the kernel's clock
_LOOK_S = 0.5  # even without a change: the query may have ended, or may report an earlier batch
_SOON_S = 0.5  # Spark reports a batch some milliseconds after it has committed it


@dataclass(slots=True)
class ViewFolder:
    """``view_files`` of a project, cached until the folder changes, for callers that ask all the time."""

    project: Path
    folder: Path = field(init=False)
    last_files: list[Path] = field(default_factory=list)
    changed_ns: int = -1
    next_s: float = 0.0

    def __post_init__(self) -> None:
        self.folder = self.project / "views"

    def files(self) -> list[Path]:
        changed_ns, now_s = _changed_ns(self.folder), time.monotonic()
        if changed_ns != self.changed_ns or now_s >= self.next_s:
            self.last_files, self.changed_ns = view_files(self.project), changed_ns
            self.next_s = now_s + _LIST_S
        return self.last_files

    def names(self) -> frozenset[str]:
        """Return the names of the views that have a file."""
        return frozenset(path.stem for path in self.files())


@dataclass(slots=True)
class CommitWatch:
    """Decides when to ask Spark how far a query is.

    Each batch writes a file into ``folder``, its checkpoint's ``commits``, which may not exist yet. A hub has
    many views, and most of them have no news at a given time.
    """

    folder: Path
    changed_ns: int = 0
    reported: int = -1
    soon_until_s: float = 0.0
    next_s: float = 0.0

    def due(self, reported: int, now_s: float) -> bool:
        """Return True if Spark should be asked now. ``reported``: the last reported batch; ``now_s``:
        monotonic seconds."""
        changed_ns = _changed_ns(self.folder)
        if changed_ns != self.changed_ns:
            self.changed_ns, self.soon_until_s = changed_ns, now_s + _SOON_S
        elif reported != self.reported:
            self.soon_until_s = now_s
        self.reported = reported
        if self.soon_until_s <= now_s < self.next_s:
            return False
        self.next_s = now_s + _LOOK_S
        return True


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
