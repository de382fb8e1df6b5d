"""[edge] The file system: what is looked at all the time, asked of a folder's time first, which is a system call.

A look at a folder's time costs a hundredth of a question to Spark, or of a listing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from hub.materializers.definition.load import view_files

_LIST_S = 1.0  # a folder's time is no finer than the kernel's clock
_LOOK_S = 0.5  # whatever the folder says: a query may have ended, or tell of a batch that was before it
_SOON_S = 0.5  # Spark tells of a batch some milliseconds after it has committed it


@dataclass(slots=True)
class ViewFolder:
    """``view_files`` of a project, for one who asks all the time."""

    project: Path
    folder: Path = field(init=False)
    found: list[Path] = field(default_factory=list)
    changed_ns: int = -1
    next_s: float = 0.0

    def __post_init__(self) -> None:
        self.folder = self.project / "views"

    def files(self) -> list[Path]:
        changed_ns, now_s = _changed_ns(self.folder), time.monotonic()
        if changed_ns != self.changed_ns or now_s >= self.next_s:
            self.found, self.changed_ns = view_files(self.project), changed_ns
            self.next_s = now_s + _LIST_S
        return self.found


@dataclass(slots=True)
class CommitWatch:
    """When to ask Spark how far a query is. Each batch writes a file into ``folder``, its checkpoint's ``commits``, which may
    not be there yet; a hub has many views, and of most there is no news."""

    folder: Path
    changed_ns: int = 0
    reported: int = -1
    soon_until_s: float = 0.0
    next_s: float = 0.0

    def due(self, reported: int, now_s: float) -> bool:
        """Whether to ask now. ``reported``: the last batch that was told; ``now_s``: of a clock that only goes on."""
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
