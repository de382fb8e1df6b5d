"""The bench's view of seven systems by Quix Streams (PyPI), in an environment of its own that the bench makes
and removes.

A program of Quix is one thread, so two processes of one group share the partitions. State in RocksDB with a
changelog topic, exactly once, Avro in and out: what the other programs have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from peers.kafka_streams import OUT, peak_memory_mb

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import Positions
from hub.runtime import die_with_parent

VERSION = "3.28.1"
PACKAGE = f"quixstreams=={VERSION}"
PROCESSES = 2
INSTALL_TIMEOUT_S = 600


def install(folder: Path) -> Path:
    """The Python of a new environment in ``folder``. Raises RuntimeError with pip's last words."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[-2:])} failed: {(done.stderr or done.stdout)[-500:]}")
    return python


class QuixView:
    """The running peer."""

    def __init__(
        self,
        settings: Settings,
        cluster: KafkaCluster,
        folder: Path,
        schemas: Mapping[str, Any],
        rows: Mapping[str, Any],
        python: Path,
    ) -> None:
        self.cluster = cluster
        self.group = f"peer-{time.time_ns()}"
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for topic, schema in schemas.items():
            (folder / f"{topic}.avsc").write_text(json.dumps(schema))
            files.append(f"{topic}={folder / f'{topic}.avsc'}")
        (folder / "rows.avsc").write_text(json.dumps(rows))
        cluster.create_topic(OUT, partitions=2, config={"cleanup.policy": "compact"}, replication_factor=1)
        program = str(Path(__file__).with_name("quix_view.py"))
        self.log = (folder / "peer.log").open("w")
        self.began_at = time.monotonic()
        self.processes = []
        for number in range(PROCESSES):
            command = [
                str(python), program, settings.bootstrap, str(folder / f"state-{number}"), self.group, OUT,
                str(folder / "rows.avsc"), *files,
            ]  # fmt: skip
            self.processes.append(
                psutil.Popen(
                    die_with_parent(command),
                    stdout=self.log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )
            )

    def positions(self) -> Positions:
        """What it has committed. Raises with its last words when one of its processes has ended."""
        if any(process.poll() is not None for process in self.processes):
            raise RuntimeError(f"the peer ended: {Path(self.log.name).read_text()[-2000:]}")
        return self.cluster.group_positions(self.group)

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self.processes]
        return float(sum(each.user + each.system for each in times))

    def peak_memory_mb(self) -> int:
        return sum(peak_memory_mb(process.pid) for process in self.processes)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        _, left = psutil.wait_procs(self.processes, 15)
        for process in left:
            process.kill()
        self.log.close()
