"""A real MirrorMaker 2 (dedicated mode, one node) as a process,
from the jars of the lock's sets "connect" and "mirror-maker"."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.embedded.java import find_java
from hub.runtime import die_with_parent

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def classpath(settings: Settings) -> str:
    jars = ensure_jars(settings, ("kafka", "connect", "mirror-maker"))
    return ":".join(map(str, [*jars["mirror-maker"], *jars["connect"], *jars["kafka"]]))


def properties(source: str, target: str, topics: str, more: Mapping[str, object] | None = None) -> str:
    """From ``nyc`` to ``lon``, one replica of everything.
    ``topics``: a regular expression, as MirrorMaker has them."""
    said: dict[str, object] = {
        "clusters": "nyc, lon",
        "nyc.bootstrap.servers": source,
        "lon.bootstrap.servers": target,
        "nyc->lon.enabled": "true",
        "lon->nyc.enabled": "false",
        "nyc->lon.topics": topics,
        "replication.policy.class": IDENTITY,
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "emit.checkpoints.interval.seconds": 1,
        "offset.flush.interval.ms": 1000,
    }
    for what in ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.", "offset.storage."):
        said[f"{what}replication.factor"] = 1
    for what in ("status.storage.", "config.storage."):
        said[f"{what}replication.factor"] = 1
    return "".join(f"{key} = {value}\n" for key, value in {**said, **(more or {})}.items())


QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


class MirrorMaker:
    """The running process. ``options``: of its Java."""

    def __init__(
        self, settings: Settings, folder: Path, said: str, options: Sequence[str] = QUICK_START
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "mm2.properties"
        file.write_text(said)
        self.log = folder / "mm2.log"
        command = [
            str(find_java(settings).path), *options, "-Dlog4j2.level=INFO", "-cp", classpath(settings),
            "org.apache.kafka.connect.mirror.MirrorMaker", str(file), "--clusters", "lon",
        ]  # fmt: skip
        with self.log.open("wb") as output:
            self.process = psutil.Popen(
                die_with_parent(command), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def alive(self) -> None:
        """Raise with the last lines of the log when the process has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"MirrorMaker ended: {self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except psutil.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
