"""What no view by Spark can be below: a Spark as the hub starts it, cold, that reads topics and keeps nothing
of them (``spark_reads.py``), a process for each step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from peers.kafka_streams import peak_memory_mb

from hub.cli.context import environment_of
from hub.config import Settings
from hub.runtime import die_with_parent

STEPS = {
    "start": "Spark alone: a session, nothing read",
    "read": "Spark alone: reads all, keeps nothing",
    "count": "Spark alone: counts by record key",
}


class SparkFloor:
    """A step that is being done. ``read_s``: its share of the time that it took;
    the rest is Spark's start."""

    def __init__(self, settings: Settings, folder: Path, step: str, topics: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        program = str(Path(__file__).with_name("spark_reads.py"))
        self.log = (folder / "spark.log").open("w")
        self.began_at = time.monotonic()
        self.process = psutil.Popen(
            die_with_parent([sys.executable, program, step, *topics]),
            env=environment_of(settings) | {"PYTHONPATH": ":".join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        self.read_s = 0.0

    def wait(self) -> float:
        """The monotonic time at which the step was done.
        Raises RuntimeError with its last words when it ended before."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        done_at = time.monotonic()
        if not said:
            raise RuntimeError(f"Spark ended: {Path(self.log.name).read_text()[-2000:]}")
        self.read_s = float(said)
        return done_at

    def _processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """Of Python and the JVM, which both still run."""
        times = [each.cpu_times() for each in self._processes()]
        return float(sum(each.user + each.system for each in times))

    def peak_memory_mb(self) -> int:
        return sum(peak_memory_mb(each.pid) for each in self._processes())

    def stop(self) -> None:
        """Its JVM ends with it."""
        self.process.kill()
        self.process.wait()
        self.log.close()
