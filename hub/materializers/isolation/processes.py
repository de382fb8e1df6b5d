"""[shell] Keep the journal of deaths on disk, and run a process for each isolated view (policy.py decides).

The folder ``isolation`` of the hub's home has two kinds of files. ``active/<version>`` says what a version's
thread does ("planning" or "running") and is removed when it does nothing, so it costs two small writes per
query. The batch in progress is read from Spark's own checkpoint. ``journal.json`` is the memory over several
deaths. Neither depends on the process that died.

The process of an isolated version is the materializer itself, limited to that version (``hub materialize
--only``). It decides nothing about versions and writes the same checkpoint and changelog, so moving a version
there and back loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from hub.config import Settings
from hub.errors import HubError
from hub.materializers.definition.declared import table_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import files_of, load_view
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.isolation import policy as isolation
from hub.materializers.isolation.policy import (
    DiskState,
    IsolatedVersion,
    Journal,
    Phase,
    ProcessDeath,
    RestartTurn,
)
from hub.materializers.progress.records import ViewState
from hub.materializers.snapshot_groups.coordinator import Member, RunningVersion
from hub.materializers.versions.version_log import VersionLog
from hub.runtime import LOG_LIMIT_BYTES, Backoff, die_with_parent

log = logging.getLogger(__name__)

Key = tuple[Path, int | None]  # a view's file and the version's suffix

_LOOK_S = 1.0
_STOP_S = 15.0
_FIRST_PAUSE_S, _MOST_PAUSE_S, _FACTOR = 5.0, 600.0, 3.0
_KILLED = ProcessDeath("was under way when the materializer was killed", "killed")


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
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_S, _MOST_PAUSE_S, _FACTOR))
    start_at_s: float = 0.0
    ending_at_s: float | None = None  # deadline in monotonic seconds, once it was asked to end
    owns: bool = False  # it opens the view's first version and therefore decides alone about its versions
    said: tuple[str, str | None] = ("isolated", None)
    member: Member | None = None
    unheld: str | None = None

    @property
    def group(self) -> str | None:
        return self.view.cut if self.view is not None else None

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
        self._started_ms[table] = _now_ms()

    def mark(self, table: str, phase: Phase | None) -> None:
        """Note what a version's thread does from now on. Errors such as a full disk are ignored."""
        if self._frozen:
            return
        with contextlib.suppress(OSError):
            if phase is None:
                (self._active / table).unlink(missing_ok=True)
            else:
                now_ms = _now_ms()
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
            _last(checkpoint / "offsets"),
            _last(checkpoint / "commits"),
            (checkpoint / "hub.realtime").exists(),
            started_s,
        )

    def _phase(self, table: str) -> tuple[Phase | None, float, float]:
        """Return (phase of a version's thread, its age in seconds, seconds since the thread was started)."""
        try:
            phase, since_ms, started_ms = (self._active / table).read_text().split()
            ages_s = [max(0.0, (_now_ms() - int(each)) / 1000) for each in (since_ms, started_ms)]
        except (OSError, ValueError):
            return None, 0.0, 0.0
        return ("planning" if phase == "planning" else "running"), ages_s[0], ages_s[1]


class SharedProcess:
    """The shared process: handles its own deaths and the processes of isolated versions.

    Called only from the materializer's loop, except ``allows`` and ``marks``.
    """

    entry: IsolatedVersion | None = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.marks = ThreadMarks(settings)
        self.journal = Journal()
        self.apart: dict[str, IsolatedMember] = {}
        self.newest: frozenset[str] = frozenset()
        self._news: list[ViewState] = []
        self._kills = out_of_memory_kills()
        self._look_at_s = 0.0
        self._started_s: dict[str, float] = {}  # when each suspect was started, in monotonic seconds

    # ---- deaths

    def open(self) -> None:
        """Read the journal, and judge the end of the last process if it was not orderly."""
        body = self._read()
        if body.get("running"):
            told = body.get("death")
            death = _KILLED if told is None else ProcessDeath(str(told[0]), told[1])
            seen = {table: self.marks.see(table) for table in self.marks.marked()}
            stamps = {table: self._stamp(table) for table in seen}
            before = self.journal
            self.journal = isolation.after_death(before, death, seen, stamps, _now_ms())
            for table, entry in self.journal.isolated.items():
                if before.isolated.get(table) != entry:
                    log.error("view %s runs in a process of its own from now on: %s", table, entry.cause)
        for table in self.marks.marked():
            self.marks.mark(table, None)
        self._write(running=True)

    def died(self, code: int) -> None:
        """Note how Spark's JVM ended. This process exits, too, and the next one judges."""
        death = isolation.death_of(code, out_of_memory_kills() - self._kills)
        self._write(running=True, death=death)

    def stalled(self, table: str, cause: str) -> None:
        """Isolate a version whose batch stalled. This process must exit, because a task that never ends keeps
        a core."""
        seen = self.marks.see(table)
        log.error("view %s runs in a process of its own from now on: %s", table, cause)
        at = seen.at or isolation.START
        self.journal = isolation.after_stall(self.journal, table, at, cause, self._stamp(table), _now_ms())
        self._write(running=False)

    def close(self) -> None:
        """Note an orderly end, so that no version becomes a suspect, and end the processes of isolated
        versions."""
        self._write(running=False)
        for each in self.apart.values():
            self._ask_to_end(each)
        for each in self.apart.values():
            while each.process is not None:
                self._look_after(each)
                time.sleep(0.05)

    # ---- who runs where

    def allows(self, table: str) -> bool:
        """Return True if the shared process may run a version.

        A version that was barred does not run once its view has a newer version.
        """
        process = self.apart.get(table)
        if table in self.journal.isolated or (process is not None and process.runs):
            return False
        if not isolation.may_start(self.journal, table, self._started_s):
            return False
        return table not in self.journal.barred or table in self.newest

    def step(self, known: Sequence[Key], ledger: VersionLog) -> list[Key]:
        """Manage the isolated versions. Return the ``known`` versions that this process runs."""
        ledger.own = frozenset(path.stem for path, _ in known) - self._owned_elsewhere()
        self.newest = frozenset({key[0]: _table(key) for key in known}.values())
        if self.journal != Journal() or self.apart:
            self._look(known, ledger)
        return [key for key in known if self.allows(_table(key))]

    def said(self) -> list[ViewState]:
        """Return the new states of isolated versions since the last call."""
        said, self._news = self._news, []
        return said

    def in_groups(self, runners: Sequence[RunningVersion]) -> list[RunningVersion]:
        """Return the members of snapshot groups, including isolated versions. A group with one of those does
        not run together."""
        return [*runners, *self.apart.values()]

    def reads(self) -> frozenset[str]:
        """Return the topics that isolated versions read."""
        return frozenset(topic for each in self.apart.values() for topic in each.reads)

    def _owned_elsewhere(self) -> frozenset[str]:
        """Return views that have no version yet and whose versions an isolated process decides about."""
        return frozenset(each.key[0].stem for each in self.apart.values() if each.owns and each.runs)

    def _look(self, known: Sequence[Key], ledger: VersionLog) -> None:
        keys = {_table(key): key for key in known}
        for each in self.apart.values():
            self._look_after(each)
        if time.monotonic() < self._look_at_s:
            return
        self._look_at_s = time.monotonic() + _LOOK_S
        self._judge(keys)
        suspect = isolation.next_suspect(self.journal, self._started_s, time.monotonic())
        if suspect is not None:
            self._started_s[suspect] = time.monotonic()
        parked = {table: each for table, each in self.journal.barred.items() if table not in self.newest}
        wanted = {**self.journal.isolated, **parked}
        for table in [*self.apart]:
            if table not in wanted or table in parked:
                self._ask_to_end(self.apart[table])
            if table not in wanted and not self.apart[table].runs:
                del self.apart[table]
        for table, entry in wanted.items():
            if table not in self.apart:
                self.apart[table] = self._made(keys[table], table, entry)
        for table, each in self.apart.items():
            view = each.key[0].stem
            each.served = ledger.served(view) == table
            each.owns = each.owns if each.runs else ledger.of(view) is None
        self._start_some()

    def _judge(self, keys: Mapping[str, Key]) -> None:
        before, now_ms = self.journal, _now_ms()
        journal = isolation.only_of(before, keys)
        for table, entry in journal.isolated.items():
            stamp = _stamp(keys[table][0])
            if stamp and entry.stamp and stamp != entry.stamp and table in self.newest:
                log.info("view %s: its file has changed, so it is tried in the shared process", table)
                journal = isolation.after_change(journal, table)
        watched = (
            *journal.isolated,
            *journal.barred,
            *(each for each in journal.strikes if each in self._started_s),
        )
        seen = {table: self.marks.see(table) for table in watched}
        self.journal = isolation.after_progress(journal, seen, now_ms)
        for table in journal.isolated.keys() - self.journal.isolated.keys():
            log.info("view %s: it has committed the batch that it was isolated for, and returns", table)
        if self.journal != before:
            self._write(running=True)

    def _made(self, key: Key, table: str, entry: IsolatedVersion) -> IsolatedMember:
        each = IsolatedMember(key, table, entry)
        with contextlib.suppress(HubError, OSError):  # its own process reports what is wrong with the file
            each.view = load_view(key[0])
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = orjson.loads((self.settings.checkpoints / table / "plan.json").read_bytes())
            each.reads = frozenset(note["topics"])
        return each

    # ---- processes

    def _start_some(self) -> None:
        runnable = {
            table: each
            for table, each in self.apart.items()
            if table in self.journal.isolated and (table in self.newest or each.served)
        }
        turns = {table: RestartTurn(each.runs, each.start_at_s) for table, each in runnable.items()}
        now_s, most = time.monotonic(), self.settings.isolated_processes
        for table in isolation.to_start(turns, most, now_s):
            self._start(self.apart[table])
        for each in self.apart.values():
            if each.table not in runnable and each.table not in self.newest:
                self._say(each, "it does not run, as its view has a newer version")
            elif each.table in runnable and not each.runs and each.start_at_s <= now_s:
                self._say(each, f"it waits for one of {most} processes (setting isolated_processes)")

    def _start(self, each: IsolatedMember) -> None:
        path = self.settings.logs / f"isolated-{each.table}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        self._ended(each).unlink(missing_ok=True)
        local = self.settings.spark_master.startswith("local")
        told = {
            "HUB_HOME": str(self.settings.home.absolute()),
            "HUB_PROJECT": str(self.settings.project.absolute()),
            "HUB_SPARK_HEAP_MB": str(self.settings.isolated_heap_mb),
            "HUB_SPARK_MASTER": self.settings.spark_master if local else "local[2]",
        }
        command = [sys.executable, "-m", "hub.cli", "materialize", "--only", each.table]
        with path.open("ab") as output:
            each.process = subprocess.Popen(
                die_with_parent([*command, *(["--decides"] if each.owns else [])]),
                env={**os.environ, **told},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        each.ending_at_s = None
        self._say(each, "a process of its own starts")

    def _look_after(self, each: IsolatedMember) -> None:
        if each.process is None:
            return
        if each.process.poll() is None:
            if each.ending_at_s is not None and time.monotonic() > each.ending_at_s:
                each.process.kill()
            return
        code, each.process = each.process.returncode, None
        self.marks.mark(each.table, None)
        if each.ending_at_s is not None:
            return
        if code == 0:  # it needs a decision about its versions
            self.journal = isolation.after_change(self.journal, each.table)
            self._write(running=True)
            return
        pause_s = each.backoff.next_s()
        each.start_at_s = time.monotonic() + pause_s
        try:
            why = self._ended(each).read_text()
        except OSError:
            why = f"it ended with exit code {code}"
        self._say(each, f"there, too: {why}; next try in {pause_s:g} s")

    def _ask_to_end(self, each: IsolatedMember) -> None:
        if each.process is not None and each.ending_at_s is None:
            each.ending_at_s = time.monotonic() + _STOP_S
            each.process.terminate()

    def _ended(self, each: IsolatedMember) -> Path:
        return self.marks.folder / f"{each.table}.ended"

    def _say(self, each: IsolatedMember, now: str) -> None:
        reason = isolation_message(each.entry, now)
        if each.said == ("isolated", reason):
            return
        each.said = ("isolated", reason)
        view = each.view
        self._news.append(
            ViewState(
                each.table,
                "isolated",
                each.entry.since_ms,
                reason,
                view.doc if view else "",
                view.owner if view else "",
                {name: source.topic for name, source in view.sources.items()} if view else {},
                view.ttl if view else None,
                each.group,
            )
        )

    # ---- the journal

    def _stamp(self, table: str) -> tuple[int, ...]:
        return _stamp(self.settings.project / "views" / f"{table.partition('@')[0]}.yaml")

    def _read(self) -> dict[str, Any]:
        """Load the journal's file. A file that cannot be read counts as that of a hub that never died."""
        try:
            body: dict[str, Any] = orjson.loads((self.marks.folder / "journal.json").read_bytes())
            self.journal = isolation.journal_of(body)
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return body

    def _write(self, *, running: bool, death: ProcessDeath | None = None) -> None:
        body = {**isolation.as_body(self.journal), "running": running}
        if death is not None:
            body["death"] = [death.cause, death.weight]
        path = self.marks.folder / "journal.json"
        try:
            path.with_suffix(".tmp").write_bytes(orjson.dumps(body))
            path.with_suffix(".tmp").replace(path)
        except OSError as error:
            log.warning("%s is not written: %s", path, error)


class IsolatedProcess:
    """The process of one isolated version, with the same interface as ``SharedProcess``."""

    def __init__(self, settings: Settings, table: str, decides: bool) -> None:
        shared = SharedProcess(settings)
        shared._read()
        self.marks = shared.marks
        self.table = table
        self.entry = shared.journal.isolated.get(table) or IsolatedVersion(
            isolation.START, "it was isolated", _now_ms()
        )
        self._decides = decides
        self._kills = out_of_memory_kills()

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def died(self, code: int) -> None:
        """Note for the shared process how Spark's JVM ended."""
        self._note(f"it {isolation.death_of(code, out_of_memory_kills() - self._kills).cause}")

    def stalled(self, table: str, cause: str) -> None:
        self._note(f"its batch {cause}")

    def allows(self, table: str) -> bool:
        return table == self.table

    def step(self, known: Sequence[Key], ledger: VersionLog) -> list[Key]:
        ledger.decides = self._decides
        ledger.own = frozenset([self.table.partition("@")[0]] if self._decides else [])
        return [key for key in known if _table(key) == self.table]

    def said(self) -> list[ViewState]:
        return []

    def in_groups(self, runners: Sequence[RunningVersion]) -> list[RunningVersion]:
        return []

    def reads(self) -> frozenset[str]:
        return frozenset()

    def _note(self, why: str) -> None:
        with contextlib.suppress(OSError):
            (self.marks.folder / f"{self.table}.ended").write_text(why)


def isolation_message(entry: IsolatedVersion, now: str) -> str:
    """Return the message about an isolated version: the cause, its current activity, and how to return it."""
    return (
        f"{entry.cause}, so it runs in a process of its own; {now}. Change its file to have "
        "it tried again at once"
    )


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed since boot because memory was full (vmstat,
    proc(5))."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _table(key: Key) -> str:
    return table_of(key[0].stem, key[1])


def _stamp(path: Path) -> tuple[int, ...]:
    """Return the modification times of the files that define a view; () if they cannot be read now."""
    try:
        return tuple(each.stat().st_mtime_ns for each in files_of(path))
    except (OSError, HubError):
        return ()


def _last(folder: Path) -> int:
    try:
        return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)
    except OSError:
        return -1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
