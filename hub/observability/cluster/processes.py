"""[edge] psutil: what the hub's processes on this machine cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hub.runtime import running_hub


@dataclass(frozen=True, slots=True)
class Process:
    """``cpu_percent``: of one core, since the look before; None at the first one. ``started_at_ms``: since when it runs."""

    process: str
    pid: int
    cpu_percent: float | None
    memory_mb: int
    started_at_ms: int


@dataclass
class ProcessList:
    """Those of the hub that runs on a home folder; ``with_own``: this very process too, where no hub supervises it."""

    home: Path
    with_own: bool = False
    known: dict[tuple[str, int], Any] = field(default_factory=dict)
    asked: set[tuple[str, int]] = field(default_factory=set)

    def look(self) -> Sequence[Process]:
        """Each with its processor time since the last look; nothing when the hub runs elsewhere."""
        hub = running_hub(self.home)
        found = {(name, each.pid): each for name, each in hub.processes.items()} if hub else {}
        if self.with_own and os.getpid() not in {pid for _, pid in found}:
            found["server", os.getpid()] = psutil.Process()
        # The same object must be asked again: it remembers the times of the last look.
        self.known = {key: self.known.get(key, each) for key, each in found.items()}
        self.asked &= self.known.keys()
        rows = []
        for key, process in self.known.items():
            try:
                cpu, memory = process.cpu_percent(None), process.memory_info().rss
                started_ms = int(process.create_time() * 1000)
            except psutil.Error:
                continue
            rows.append(Process(*key, cpu if key in self.asked else None, memory // 1_000_000, started_ms))
            self.asked.add(key)
        return rows
