"""[edge] The thread of a view in the shared process, and the marks that it leaves on disk."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from hub.config import Settings
from hub.materializers.definition.declared import table_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.isolation.policy import DiskState, IsolatedVersion, Phase
from hub.materializers.snapshot_groups.members import Member
from hub.runtime import Backoff
from hub.times import epoch_ms

Key = tuple[Path, int | None]  # a view's file and the version's suffix
FIRST_PAUSE_S, MOST_PAUSE_S, FACTOR = 5.0, 600.0, 3.0


@dataclass
class IsolatedMember:
    """An isolated version and its process, as seen by the shared process. Also a member of its snapshot
    group, which cannot run together then."""

    key: Key
    table: str
    entry: IsolatedVersion
    served: bool = False
    view: View | SqlView | None = None
    reads: frozenset[str] = frozenset()
    process: subprocess.Popen[bytes] | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, MOST_PAUSE_S, FACTOR))
    start_at_s: float = 0.0
    ending_at_s: float | None = None  # deadline in monotonic seconds, once it was asked to end
    owns: bool = False  # it opens the view's first version and therefore decides alone about its versions
    reported: tuple[str, str | None] = ("isolated", None)
    member: Member | None = None
    unheld: str | None = None

    @property
    def group(self) -> str | None:
        return self.view.group if self.view is not None else None

    @property
    def runs(self) -> bool:
        return self.process is not None


class ThreadMarks:
    """Files that say what each version's thread does. Thread-safe: each version has its own file."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.home.absolute() / "isolation"
        self._active = self.folder / "active"
        self._checkpoints = settings.checkpoints
        self._frozen = False
        self._started_ms: dict[str, int] = {}  # start time of each version in this process
        self._active.mkdir(parents=True, exist_ok=True)

    def begin(self, table: str) -> None:
        """Note that a version's thread starts now."""
        self._started_ms[table] = epoch_ms()

    def mark(self, table: str, phase: Phase | None) -> None:
        """Note what a version's thread does from now on. Errors such as a full disk are ignored."""
        if self._frozen:
            return
        with contextlib.suppress(OSError):
            if phase is None:
                (self._active / table).unlink(missing_ok=True)
            else:
                now_ms = epoch_ms()
                self._started_ms.setdefault(table, now_ms)
                (self._active / table).write_text(f"{phase} {now_ms} {self._started_ms[table]}")

    def freeze(self) -> None:
        """Keep the marks unchanged: Spark is gone, and the next process needs them as evidence."""
        self._frozen = True

    def marked(self) -> list[str]:
        return [path.name for path in self._active.iterdir()]

    def see(self, table: str) -> DiskState:
        """Return the current state of a version, read from disk."""
        phase, since_s, started_s = self._phase(table)
        folder = self._checkpoints / table
        try:
            generation = int(orjson.loads((folder / "plan.json").read_bytes())["generation"])
        except (OSError, ValueError, KeyError, TypeError):
            return DiskState(phase, since_s, started_s=started_s)
        checkpoint = folder / str(generation)
        return DiskState(
            phase,
            since_s,
            generation,
            last_bytes(checkpoint / "offsets"),
            last_bytes(checkpoint / "commits"),
            (checkpoint / "hub.realtime").exists(),
            started_s,
        )

    def _phase(self, table: str) -> tuple[Phase | None, float, float]:
        """Return (phase of a version's thread, its age in seconds, seconds since the thread was started)."""
        try:
            phase, since_ms, started_ms = (self._active / table).read_text().split()
            ages_s = [max(0.0, (epoch_ms() - int(each)) / 1000) for each in (since_ms, started_ms)]
        except (OSError, ValueError):
            return None, 0.0, 0.0
        return ("planning" if phase == "planning" else "running"), ages_s[0], ages_s[1]


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed since boot because memory was full (vmstat,
    proc(5))."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def last_bytes(folder: Path) -> int:
    try:
        return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)
    except OSError:
        return -1


def isolation_message(entry: IsolatedVersion, now: str) -> str:
    """Return the message about an isolated version: the cause, its current activity, and how to return it."""
    return (
        f"{entry.cause}, so it runs in a process of its own; {now}. Change its file to have it tried "
        "again at once"
    )


def table_of_key(key: Key) -> str:
    return table_of(key[0].stem, key[1])
