"""Faults of processes: killed, stopped, slow to start, out of memory or files, starved of CPU,
wrong clock."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import psutil

from fault_suite.faults import kind
from fault_suite.world import HUB_PARTS, SECOND_PARTS, World
from hub.runtime import die_with_parent
from hub.supervisor import end

HITS = {
    "server": ("registry", "reads", "gateway", "materializer"),
    "server-2": ("registry",),
    "applier": ("materializer",),
    "materializer": ("materializer",),
    "spark": ("materializer",),
    "auditor": (),
    "mirror": ("mirror",),
    "mirror-2": ("mirror",),
}
PARTS = (*HUB_PARTS, *SECOND_PARTS, "spark")


def _kill(part: str) -> None:
    @kind(f"kill -9 {part}", "process", hits=HITS[part], seconds=(0.5, 1.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        world.kill(part)
        yield


def _freeze(part: str) -> None:
    @kind(f"SIGSTOP {part}", "process", hits=HITS[part], seconds=(2.0, 12.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        pid = world.send(part, signal.SIGSTOP)
        try:
            yield
        finally:
            if pid is not None:
                _resume(pid)


def _start_slowly(part: str) -> None:
    @kind(f"kill -9 {part}, slow start", "process", hits=HITS[part], seconds=(2.0, 8.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        before = world.pid(part)
        world.kill(part)
        for _ in range(300):
            if (now := world.pid(part)) is not None and now != before:
                break
            world.live(0.05)
        pid = world.send(part, signal.SIGSTOP)
        try:
            yield
        finally:
            if pid is not None:
                _resume(pid)


def _resume(pid: int) -> None:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                each.resume()


for _part in PARTS:
    _kill(_part)
    _freeze(_part)
for _part in ("server", "applier", "materializer", "mirror"):
    _start_slowly(_part)


@kind("power cut of all at once", "process", alone=True, seconds=(0.5, 2.0))
def power_cut(world: World, chance: Random) -> Iterator[None]:
    pids = [process.pid for process in world.part_processes().values()]
    for node in (*world.home.nodes, *world.away.nodes):
        if node.process is not None:
            pids.append(node.process.pid)
    if world.postgres.process is not None:
        pids += [each.pid for each in psutil.Process(world.postgres.process.pid).children()]
        pids.append(world.postgres.process.pid)
    for pid in pids:
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
    yield
    world.postgres.start()


@kind("SIGKILL every process of the hub", "process", alone=True, seconds=(0.5, 1.0))
def kill_the_hub(world: World, chance: Random) -> Iterator[None]:
    for part in PARTS:
        if (pid := world.pid(part)) is not None:
            with suppress(psutil.Error):
                psutil.Process(pid).kill()
    yield


@kind("every core busy", "load", seconds=(5.0, 15.0))
def busy_cores(world: World, chance: Random) -> Iterator[None]:
    spin = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(die_with_parent(spin)) for _ in range(4)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            end(each, 5.0)


def _starve(part: str) -> None:
    @kind(f"{part} gets a sixth of the time", "load", hits=HITS[part], seconds=(6.0, 15.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        turn = {"n": 0}

        def throttle() -> None:
            turn["n"] += 1
            world.send(part, signal.SIGCONT if turn["n"] % 6 == 0 else signal.SIGSTOP)

        world.background.append(throttle)
        try:
            yield
        finally:
            world.background.remove(throttle)
            world.send(part, signal.SIGCONT)


for _part in ("server", "applier", "materializer"):
    _starve(_part)


@contextmanager
def _under_limit(world: World, part: str, what: int, most: Callable[[psutil.Process], int]) -> Iterator[None]:
    """Lower a part's soft limit (``resource.RLIMIT_*``) to ``most`` of its process;
    nothing where it does not run now."""
    pid = world.pid(part)
    if pid is None:
        yield
        return
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (most(psutil.Process(pid)), before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, what, before)


def _limit_memory(part: str) -> None:
    @kind(f"{part} gets no more memory", "memory", hits=HITS[part], seconds=(3.0, 8.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        with _under_limit(world, part, resource.RLIMIT_AS, lambda each: each.memory_info().vms + (2 << 20)):
            yield


for _part in ("applier", "server", "mirror"):
    _limit_memory(_part)


def _few_files(part: str) -> None:
    @kind(f"{part} opens no more files", "memory", hits=HITS[part], seconds=(3.0, 8.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        with _under_limit(world, part, resource.RLIMIT_NOFILE, lambda each: each.num_fds()):
            yield


for _part in ("server", "applier"):
    _few_files(_part)


def _step_clock(name: str, seconds: float) -> None:
    @kind(f"the hub's clock steps {name}", "clock", hits=(), seconds=(4.0, 10.0))
    def hurt(world: World, chance: Random) -> Iterator[None]:
        world.clock_file.write_text(str(seconds))
        try:
            yield
        finally:
            world.clock_file.write_text("0")


_step_clock("an hour ahead", 3600.0)
_step_clock("a minute back", -60.0)
