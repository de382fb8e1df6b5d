"""The bench's mirror by MirrorMaker 2: dedicated mode, its jars through Ivy, tuned as its operators do, and
warmed up.

At least once, or exactly once (KIP-618: the source connector's own transactions, here as long as the hub's).
What it is told was looked for in its log: settings of producer and consumer do not reach its tasks under
every name that one would guess.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from mirror_maker import MirrorMaker, properties

from hub.config import Settings

# As Kafka's own scripts start it, with half of connect's heap.
JAVA = (
    "-server", "-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip


def tuned(codec: str, tasks: int, exactly_once: bool, commit_ms: int) -> dict[str, object]:
    said: dict[str, object] = {
        "tasks.max": tasks,
        "nyc->lon.consumer.isolation.level": "read_committed",
        "nyc->lon.consumer.max.poll.records": 5_000,
        "nyc->lon.consumer.fetch.max.bytes": 64 << 20,
        "nyc->lon.consumer.max.partition.fetch.bytes": 4 << 20,
        "nyc->lon.consumer.receive.buffer.bytes": 1 << 20,
        "lon.producer.compression.type": codec,
        "lon.producer.batch.size": 512 << 10,
        "lon.producer.linger.ms": 20,
        "lon.producer.buffer.memory": 64 << 20,
        "lon.producer.max.request.size": 8 << 20,
        "emit.heartbeats.enabled": "false",
        "nyc->lon.emit.checkpoints.enabled": "false",
        "refresh.topics.interval.seconds": 600,
        "offset.flush.interval.ms": 10_000,
    }
    if exactly_once:
        said |= {
            "exactly.once.source.support": "enabled",
            "lon.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "nyc->lon.transaction.boundary": "interval",
            "nyc->lon.transaction.boundary.interval.ms": commit_ms,
        }
    return said


class MirrorMakerPeer:
    """One running MirrorMaker. Its topics must be at the source when it starts."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        source: str,
        target: str,
        topics: str,
        *,
        codec: str,
        exactly_once: bool,
        tasks: int = 2,
        commit_ms: int = 100,
    ) -> None:
        text = properties(source, target, topics, tuned(codec, tasks, exactly_once, commit_ms))
        self.running = MirrorMaker(settings, folder, text, JAVA)
        self.codec = codec

    def cpu_s(self) -> float:
        """User and system time of the process and its children."""
        self.running.alive()
        total = 0.0
        for each in (self.running.process, *self.running.process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
        return total

    def peak_memory_mb(self) -> float:
        lines = Path(f"/proc/{self.running.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def knows(self, setting: str) -> bool:
        """Whether a line of its log says so: that a setting has reached a client."""
        return setting in self.running.log.read_text(errors="replace")

    def warm_up(self, rounds: Callable[[], tuple[float, int]], most: int) -> list[float]:
        """Let it mirror round after round until one costs hardly less than the one before, or ``most``
        records went.

        ``rounds`` mirrors one and gives (CPU seconds, records). Microseconds a record, round by round."""
        found: list[float] = []
        records = 0
        while records < most:
            cpu_s, count = rounds()
            records += count
            found.append(cpu_s / count * 1e6)
            if len(found) > 2 and found[-1] > 0.9 * found[-2]:
                break
            time.sleep(0.2)
        return found

    def stop(self) -> None:
        self.running.stop()
