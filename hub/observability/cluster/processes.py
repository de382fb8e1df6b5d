"""[edge] psutil: CPU and memory of the hub's processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hub.supervisor import running_hub


@dataclass(frozen=True, slots=True)
class Process:
    """A process. ``cpu_percent``: of one core, since the previous look; None at the first.
    ``started_at_ms``: its start time."""

    process: str
    pid: int
    cpu_percent: float | None
    memory_mb: int
    started_at_ms: int


@dataclass
class ProcessList:
    """Processes of the hub that runs on a home folder. ``with_own``: include this process if no hub
    supervises it."""

    home: Path
    with_own: bool = False
    processes: dict[tuple[str, int], Any] = field(default_factory=dict)
    measured: set[tuple[str, int]] = field(default_factory=set)

    def look(self) -> Sequence[Process]:
        """Return each process with its CPU share since the last look; empty when the hub runs on another
        machine."""
        hub = running_hub(self.home)
        found = {(name, each.pid): each for name, each in hub.processes.items()} if hub else {}
        if self.with_own and os.getpid() not in {pid for _, pid in found}:
            found["server", os.getpid()] = psutil.Process()
        # Reuse the object: it holds the CPU times of the last look.
        self.processes = {key: self.processes.get(key, each) for key, each in found.items()}
        self.measured &= self.processes.keys()
        rows = []
        for key, process in self.processes.items():
            try:
                cpu, memory = process.cpu_percent(None), process.memory_info().rss
                started_ms = int(process.create_time() * 1000)
            except psutil.Error:
                continue
            rows.append(Process(*key, cpu if key in self.measured else None, memory // 1_000_000, started_ms))
            self.measured.add(key)
        return rows
