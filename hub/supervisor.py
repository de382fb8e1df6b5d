"""[shell] Supervision of child processes, and the hub that runs.

A ``Supervisor`` owns one home folder. It starts children in order, each when the previous one is ready or its
ready timeout is over, restarts (with back-off) children that end, and stops all in reverse order. A child
that is not ready in time is *missing*: the others run, and it is still supervised. The process that holds the
lock on ``hub.pid`` is the running hub. The file has its processes with their start times, so that ``hub
down`` never stops another program with a recycled pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO

import psutil

from hub.errors import Conflict, HubError
from hub.runtime import STEP_S, Backoff, die_with_parent

log = logging.getLogger(__name__)


PROGRESS_EVERY_S = 5.0
LOG_LIMIT_BYTES = 20_000_000


@dataclass(frozen=True)
class Child:
    """A process to keep running.

    ``command`` returns the command line of each start and may raise a HubError. ``ready`` returns whether the
    process works; after ``ready_timeout_s`` the others no longer wait for it. ``stop_timeout_s`` is the time
    between SIGTERM and SIGKILL.
    """

    name: str
    command: Callable[[], Sequence[str]]
    ready: Callable[[], bool] = lambda: True
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 90.0
    stop_timeout_s: float = 20.0


@dataclass
class _Running:
    child: Child
    process: subprocess.Popen[bytes]
    backoff: Backoff
    started_at_s: float
    restart_at_s: float | None = None
    first_started_at_s: float = field(default_factory=time.monotonic)  # of its first process


class Supervisor:
    """The processes of one home folder. Use from the main thread: children are tied to the thread that starts
    them.

    ``found_by``: what the hub is to be found by (its ports, its project), for commands that know its home
    folder alone. Raises Conflict (HUB-1920) when another supervisor has this home.
    """

    def __init__(
        self,
        home: Path,
        say: Callable[[str], None] = lambda _text: None,
        found_by: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._print = say
        self._found_by = dict(found_by)
        self._logs = home.absolute() / "logs"
        self._running: dict[str, _Running] = {}
        self.pid_file = home.absolute() / "hub.pid"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(self.pid_file)
        self.healthy = False
        self.missing: set[str] = set()
        """Children that did not get ready in their time, and are not yet."""
        self._started = False
        self._missing_checked_at_s = 0.0
        self.write_pids()

    def start(self, child: Child, stop: threading.Event | None = None) -> bool:
        """Start the child and wait until it is ready, at most ``ready_timeout_s``; report its progress
        meanwhile. Returns False if it is not ready by then; it is supervised all the same. Raises
        KeyboardInterrupt if ``stop`` is set meanwhile, and HubError without a command to start it.
        """
        running = _Running(child, self._spawn(child), Backoff(), time.monotonic())
        self._running[child.name] = running
        self.write_pids()
        if self._wait(running, stop):
            return True
        self.missing.add(child.name)
        self._report(
            f"{child.name} is not ready after {child.ready_timeout_s:g} s: {self._last_log_line(child)}; "
            f"the others run without it, and it is tried on; its log: {self.log_of(child.name)}"
        )
        return False

    def wait_for_missing(self, stop: threading.Event | None = None) -> None:
        """Wait until all children that were started are ready, and say what is waited for.
        Raises KeyboardInterrupt."""
        for name in sorted(self.missing):
            while not self._wait(self._running[name], stop):
                pass
            self._found(name)

    def _wait(self, running: _Running, stop: threading.Event | None) -> bool:
        """Wait until one child is ready, at most its ready timeout, and supervise all of them meanwhile."""
        child, began_s = running.child, time.monotonic()
        progress_at_s = began_s + PROGRESS_EVERY_S
        while not child.ready():
            if stop is not None and stop.is_set():
                raise KeyboardInterrupt
            self.step()
            now_s = time.monotonic()
            if now_s - began_s > child.ready_timeout_s:
                return False
            if now_s >= progress_at_s:
                progress_at_s = now_s + PROGRESS_EVERY_S
                self._report(
                    f"  {child.name:<13} starting for {now_s - running.first_started_at_s:.0f} s: "
                    f"{self._last_log_line(child)}"
                )
            time.sleep(0.05)
        return True

    def _last_log_line(self, child: Child) -> str:
        return last_line(self.log_of(child.name))

    def _found(self, name: str) -> None:
        self.missing.discard(name)
        took_s = time.monotonic() - self._running[name].first_started_at_s
        self._report(f"{name} is ready, after {took_s:.0f} s")

    def step(self) -> None:
        """Check every child once and restart those that ended, after their pause."""
        for running in self._running.values():
            self._look_after(running)

    def _ask_missing(self) -> None:
        """Check missing children for readiness, once a second because a check may take a while."""
        if not self.missing or time.monotonic() < self._missing_checked_at_s + 1.0:
            return
        self._missing_checked_at_s = time.monotonic()
        for name in sorted(self.missing):
            if self._running[name].child.ready():
                self._found(name)
        if not self.missing:
            self.healthy = True
        self.write_pids()

    def run(self, stop: threading.Event, work: Callable[[], None] = lambda: None) -> None:
        """Supervise until ``stop`` is set, calling ``work`` about ten times a second in between. It is
        healthy while no child is missing."""
        self._started, self.healthy = True, not self.missing
        self.write_pids()
        while not stop.wait(STEP_S):
            self.step()
            self._ask_missing()
            work()

    def stop(self) -> None:
        """Stop all children, last started first, each within its time. Then another supervisor may start."""
        self.healthy = False
        while self._running:
            name, running = self._running.popitem()
            self._report(f"stopping {name}")
            end(running.process, running.child.stop_timeout_s)
        # Emptied, not removed: another supervisor may hold the file open, waiting to lock this very inode.
        self._lock.truncate(0)
        self._lock.close()

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def pids(self) -> dict[str, int]:
        """Return the process id of each running child."""
        return {name: each.process.pid for name, each in self._running.items() if each.process.poll() is None}

    def _look_after(self, running: _Running) -> None:
        now = time.monotonic()
        ended = running.process.poll()
        if ended is None:
            if running.backoff.failures and now - running.started_at_s > running.backoff.most_s:
                running.backoff.reset()
            return
        name = running.child.name
        if running.restart_at_s is None:
            pause = running.backoff.next_s()
            running.restart_at_s = now + pause
            how = describe_exit(ended)
            if ended > 0:  # the process ended by its own decision and logged the reason
                how += f" ({last_line(self.log_of(name))})"
            self._report(f"{name} ended with {how}; starting it again in {pause:g} s")
        if now < running.restart_at_s:
            return
        running.restart_at_s = None
        running.started_at_s = now
        try:
            running.process = self._spawn(running.child)
        except (HubError, OSError, subprocess.SubprocessError) as error:
            # The cause (a used port, a missing jar) may pass: report it and try again.
            self._report(f"{name} cannot start: {error}")
            running.restart_at_s = now + running.backoff.next_s()
        with contextlib.suppress(OSError):  # on a full disk, the file's other entries stay valid
            self.write_pids()

    def _report(self, text: str) -> None:
        """Report to the terminal; ignore errors such as a full disk or a closed terminal, so that
        supervision continues.
        """
        with contextlib.suppress(OSError):
            self._print(text)

    def _spawn(self, child: Child) -> subprocess.Popen[bytes]:
        log = self.log_of(child.name)
        if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            return subprocess.Popen(
                die_with_parent(child.command()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **child.environment},
                # A terminal's Ctrl-C reaches the supervisor only, which stops the children in order.
                start_new_session=True,
            )

    def write_pids(self) -> None:
        processes = {"supervisor": _identity(os.getpid())}
        processes |= {name: _identity(pid) for name, pid in self.pids().items()}
        text = json.dumps(
            {
                "healthy": self.healthy,
                "processes": processes,
                "found_by": self._found_by,
                "missing": sorted(self.missing) if self._started else [],
            }
        )
        # In place, not renamed: the lock is on this very file. One write over all that was there, and nothing
        # cut off
        # before: who reads meanwhile finds a hub, and a disk that is full has the room.
        there = os.fstat(self._lock.fileno()).st_size
        os.pwrite(self._lock.fileno(), text.ljust(there).encode(), 0)


@dataclass(frozen=True, slots=True)
class RunningHub:
    """Content of ``hub.pid``, without processes that have ended or whose ids belong to other programs now.
    ``missing``: processes that the hub runs without, after all were started.
    """

    healthy: bool
    processes: Mapping[str, psutil.Process]
    found_by: Mapping[str, str]
    missing: tuple[str, ...] = ()


def running_hub(home: Path) -> RunningHub | None:
    """Return the hub that runs on this home folder; None if none runs."""
    try:
        content = json.loads((home.absolute() / "hub.pid").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    alive = {}
    for name, (pid, started_at, *began) in content["processes"].items():
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            process = psutil.Process(pid)
            # A hub of an earlier version names the time alone.
            same = began == [began_of(pid)] if began else abs(process.create_time() - started_at) < 0.5
            if same and process.status() != psutil.STATUS_ZOMBIE:
                alive[name] = process
    if not alive:
        return None
    missing = tuple(content.get("missing", ()))
    return RunningHub(content["healthy"], alive, content.get("found_by", {}), missing)


def environment_of_process(home: Path, name: str) -> Mapping[str, str] | None:
    """Return the environment variables of a process of the hub that runs on this home; None if it does not
    run, or is another account's.
    """
    hub = running_hub(home)
    process = None if hub is None else hub.processes.get(name)
    if process is None:
        return None
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return None


def check_unused(home: Path) -> None:
    """Raise Conflict (HUB-1920) when a hub runs on this home folder."""
    home.mkdir(parents=True, exist_ok=True)
    _hold(home.absolute() / "hub.pid").close()


def stop_hub(home: Path, timeout_s: float = 60.0) -> list[str]:
    """Stop the hub of this home folder and nothing else; return the names of the processes that ran. The
    supervisor stops its children in order; processes left after ``timeout_s`` are killed.
    """
    hub = running_hub(home)
    if hub is None:
        return []
    processes = list(hub.processes.values())
    supervisor = hub.processes.get("supervisor")
    for process in [supervisor] if supervisor else processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            process.resume()  # one that Ctrl-Z has stopped hears of it
    _, alive = psutil.wait_procs(processes, timeout_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, 10.0)
    return list(hub.processes)


def end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """SIGTERM, then SIGKILL when that takes longer than ``timeout_s``. Harmless when it has ended."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def describe_exit(code: int) -> str:
    """Return ``exit code 1``, or the signal's name when a signal ended the process."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def last_line(log: Path) -> str:
    """Return the last line of a process's log, for an error message."""
    if not log.exists():
        return "it wrote nothing"
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4_000))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it wrote nothing"


def _identity(pid: int) -> tuple[int, float, str]:
    """Return a process id with its start time; together they identify one process."""
    try:
        return pid, psutil.Process(pid).create_time(), began_of(pid)
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return pid, 0.0, ""


def began_of(pid: int) -> str:
    """Return the boot id and the tick since boot at which a process started (proc(5)). Unlike its time, they
    do not depend on the clock.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # The name of the program, in parentheses, may have any character.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return f"{boot}/{fields[19]}"


def _hold(path: Path) -> IO[str]:
    file = open(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        hub = running_hub(path.parent)
        pid = hub.processes["supervisor"].pid if hub and "supervisor" in hub.processes else "unknown"
        raise Conflict(
            f"home folder {path.parent}: a hub runs on it already (pid {pid})",
            hint="stop it with: hub down; or start this one elsewhere: HUB_HOME=DIR, with other ports",
            code="HUB-1920",
        ) from None
    return file
