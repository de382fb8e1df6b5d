"""A real Kafka Connect (standalone) as a process, from the jars of the lock's set "mirror-maker"."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx2
import psutil
from mirror_maker import QUICK_START, classpath

from hub.config import Settings
from hub.embedded.java import find_java
from hub.runtime import die_with_parent

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
INTEGERS = "org.apache.kafka.connect.converters.IntegerConverter"


class KafkaConnect:
    """The running process; ``url`` is its REST address."""

    def __init__(self, settings: Settings, folder: Path, bootstrap: str, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url, self.bootstrap = f"http://127.0.0.1:{port}", bootstrap
        self.log = folder / "connect.log"
        said = {
            "bootstrap.servers": bootstrap,
            "listeners": self.url,
            "key.converter": BYTES,
            "value.converter": BYTES,
            "plugin.discovery": "service_load",
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 1_000,
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in said.items()))
        self.command = [
            str(find_java(settings).path), *QUICK_START, "-Dlog4j2.level=INFO", "-cp", classpath(settings),
            "org.apache.kafka.connect.cli.ConnectStandalone", str(file),
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = psutil.Popen(
                die_with_parent(self.command),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def answers(self) -> bool:
        """Return whether the server answers. Raises with the last lines of its log when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"Kafka Connect ended: {self.log.read_text()[-3000:]}")
        return httpx2.get(f"{self.url}/connectors", timeout=5).status_code == 200

    def heartbeats(self, name: str, topic_of: str, **more: str) -> None:
        """A connector that writes a heartbeat a second; ``more`` changes its config (``_`` is a dot)."""
        config: Mapping[str, str] = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
            "source.cluster.alias": topic_of,
            "target.cluster.alias": "here",
            "source.cluster.bootstrap.servers": self.bootstrap,
            "target.cluster.bootstrap.servers": self.bootstrap,
            "heartbeats.topic.replication.factor": "1",
            "emit.heartbeats.interval.seconds": "1",
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        done = httpx2.put(f"{self.url}/connectors/{name}/config", json=config, timeout=60)
        assert done.status_code in (200, 201), done.text

    def pause(self, name: str) -> None:
        assert httpx2.put(f"{self.url}/connectors/{name}/pause", timeout=60).status_code == 202

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
