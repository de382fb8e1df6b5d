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
from pathlib import Path
from typing import Any

import orjson

from hub.config import Settings
from hub.errors import HubError
from hub.materializers.definition.declared import is_transaction_group
from hub.materializers.definition.load import files_of, load_view
from hub.materializers.isolation import policy as isolation
from hub.materializers.isolation.policy import IsolatedVersion, ProcessDeath, RestartTurn, StrikeJournal
from hub.materializers.isolation.thread_marks import (
    IsolatedMember,
    Key,
    ThreadMarks,
    isolation_message,
    out_of_memory_kills,
    table_of_key,
)
from hub.materializers.progress.records import ViewState
from hub.materializers.snapshot_groups.members import RunningVersion
from hub.materializers.versions.version_log import VersionLog
from hub.runtime import die_with_parent
from hub.supervisor import LOG_LIMIT_BYTES
from hub.times import epoch_ms

log = logging.getLogger(__name__)


_LOOK_S = 1.0
_STOP_S = 15.0
_KILLED = ProcessDeath("was under way when the materializer was killed", "killed")


class SharedProcess:
    """The shared process: handles its own deaths and the processes of isolated versions.

    Called only from the materializer's loop, except ``allows`` and ``marks``.
    """

    entry: IsolatedVersion | None = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.marks = ThreadMarks(settings)
        self.journal = StrikeJournal()
        self.apart: dict[str, IsolatedMember] = {}
        self.newest: frozenset[str] = frozenset()
        self._news: list[ViewState] = []
        self._kills = out_of_memory_kills()
        self._look_at_s = 0.0
        self._started_s: dict[str, float] = {}  # when each suspect was started, in monotonic seconds

    # ---- deaths

    def open(self) -> None:
        """Read the journal, and judge the end of the last process if it was not orderly."""
        body = self.read()
        if body.get("running"):
            stored = body.get("death")
            death = _KILLED if stored is None else ProcessDeath(str(stored[0]), stored[1])
            disk_states = {table: self.marks.see(table) for table in self.marks.marked()}
            stamps = {table: self._stamp(table) for table in disk_states}
            before = self.journal
            self.journal = isolation.after_death(before, death, disk_states, stamps, epoch_ms())
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
        disk_states = self.marks.see(table)
        log.error("view %s runs in a process of its own from now on: %s", table, cause)
        at = disk_states.at or isolation.START
        self.journal = isolation.after_stall(self.journal, table, at, cause, self._stamp(table), epoch_ms())
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

    def step(self, keys: Sequence[Key], ledger: VersionLog) -> list[Key]:
        """Manage the isolated versions. Return the ``keys`` versions that this process runs."""
        ledger.own = frozenset(path.stem for path, _ in keys) - self._owned_elsewhere()
        self.newest = frozenset({key[0]: table_of_key(key) for key in keys}.values())
        if self.journal != StrikeJournal() or self.apart:
            self._look(keys, ledger)
        return [key for key in keys if self.allows(table_of_key(key))]

    def take_states(self) -> list[ViewState]:
        """Return the new states of isolated versions since the last call."""
        states, self._news = self._news, []
        return states

    def in_groups(self, runners: Sequence[RunningVersion]) -> list[RunningVersion]:
        """Return the members of snapshot groups, including isolated versions. A group with one of those does
        not run together. One that is a group of its own is moved by its own process."""
        others = [each for each in self.apart.values() if not is_transaction_group(each.group or "")]
        return [*runners, *others]

    def reads(self) -> frozenset[str]:
        """Return the topics that isolated versions read."""
        return frozenset(topic for each in self.apart.values() for topic in each.reads)

    def _owned_elsewhere(self) -> frozenset[str]:
        """Return views that have no version yet and whose versions an isolated process decides about."""
        return frozenset(each.key[0].stem for each in self.apart.values() if each.owns and each.runs)

    def _look(self, known: Sequence[Key], ledger: VersionLog) -> None:
        keys = {table_of_key(key): key for key in known}
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
        before, now_ms = self.journal, epoch_ms()
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
        disk_states = {table: self.marks.see(table) for table in watched}
        self.journal = isolation.after_progress(journal, disk_states, now_ms)
        for table in journal.isolated.keys() - self.journal.isolated.keys():
            log.info("view %s: it has committed the batch that it was isolated for, and returns", table)
        if self.journal != before:
            self._write(running=True)

    def _made(self, key: Key, table: str, entry: IsolatedVersion) -> IsolatedMember:
        each = IsolatedMember(key, table, entry)
        with contextlib.suppress(HubError, OSError):  # its own process reports what is wrong with the file
            each.view = load_view(key[0]).of_version(key[1])
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
                self._report_state(each, "it does not run, as its view has a newer version")
            elif each.table in runnable and not each.runs and each.start_at_s <= now_s:
                self._report_state(each, f"it waits for one of {most} processes (setting isolated_processes)")

    def _start(self, each: IsolatedMember) -> None:
        path = self.settings.logs / f"isolated-{each.table}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        self._ended(each).unlink(missing_ok=True)
        local = self.settings.spark_master.startswith("local")
        variables = {
            "HUB_HOME": str(self.settings.home.absolute()),
            "HUB_PROJECT": str(self.settings.project.absolute()),
            "HUB_SPARK_HEAP_MB": str(self.settings.isolated_heap_mb),
            "HUB_SPARK_MASTER": self.settings.spark_master if local else "local[2]",
        }
        command = [sys.executable, "-m", "hub.cli", "materialize", "--only", each.table]
        with path.open("ab") as output:
            each.process = subprocess.Popen(
                die_with_parent([*command, *(["--decides"] if each.owns else [])]),
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        each.ending_at_s = None
        self._report_state(each, "a process of its own starts")

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
        self._report_state(each, f"there, too: {why}; next try in {pause_s:g} s")

    def _ask_to_end(self, each: IsolatedMember) -> None:
        if each.process is not None and each.ending_at_s is None:
            each.ending_at_s = time.monotonic() + _STOP_S
            each.process.terminate()

    def _ended(self, each: IsolatedMember) -> Path:
        return self.marks.folder / f"{each.table}.ended"

    def _report_state(self, each: IsolatedMember, now: str) -> None:
        reason = isolation_message(each.entry, now)
        if each.reported == ("isolated", reason):
            return
        each.reported = ("isolated", reason)
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

    def read(self) -> dict[str, Any]:
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


def _stamp(path: Path) -> tuple[int, ...]:
    """Return the modification times of the files that define a view; () if they cannot be read now."""
    try:
        return tuple(each.stat().st_mtime_ns for each in files_of(path))
    except (OSError, HubError):
        return ()
