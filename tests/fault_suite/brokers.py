"""Kafka clusters of one or three brokers, each reached through a link that can be hurt."""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from link_proxy import LinkedNode
from ports import free_pair

from hub.config import Settings
from hub.embedded.kafka_node import new_cluster_id
from hub.errors import HubError

_REPLICATED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_IN_SYNC = (
    "min.insync.replicas",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.min.isr",
)


class Broker(LinkedNode):
    """One of ``count`` brokers of a cluster; each is a controller too.
    ``voters`` is KRaft's controller.quorum.voters."""

    def __init__(self, settings: Settings, number: int, count: int, voters: str, cluster_id: str) -> None:
        super().__init__(settings)
        self.number, self.count, self.voters, self.cluster_id = number, count, voters, cluster_id
        self.wanted = True
        """True if ``Brokers.step`` restarts it after its end."""

    def prepare(self) -> list[str]:
        data = self.folder / "data"
        if self.number > 1 and not (data / "meta.properties").exists():
            data.mkdir(parents=True, exist_ok=True)
            ids = f"cluster.id={self.cluster_id}\ndirectory.id={new_cluster_id()}\n"
            (data / "meta.properties").write_text(f"version=1\nnode.id={self.number}\n{ids}")
        command = super().prepare()
        properties = self.folder / "server.properties"
        told = dict(line.split("=", 1) for line in properties.read_text().splitlines() if "=" in line)
        told["node.id"] = str(self.number)
        told["controller.quorum.voters"] = self.voters
        if self.count > 1:
            told |= dict.fromkeys(_REPLICATED, str(self.count)) | dict.fromkeys(_IN_SYNC, "2")
            told["unclean.leader.election.enable"] = "false"
        properties.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        return command

    def kill(self) -> None:
        """Send SIGKILL, which also ends a stopped broker."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20.0)

    def freeze(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)


class Brokers:
    """A cluster under ``folder``. ``step`` starts what has ended; close it with ``stop``."""

    def __init__(self, folder: Path, count: int, heap_mb: int = 256) -> None:
        ports = [free_pair() for _ in range(count)]
        voters = ",".join(f"{number}@127.0.0.1:{port + 1}" for number, port in enumerate(ports, 1))
        cluster_id = new_cluster_id()
        self.nodes = [
            Broker(
                Settings(
                    home=folder / f"broker-{number}",
                    kafka_port=port,
                    bootstrap=f"127.0.0.1:{port}",
                    kafka_heap_mb=heap_mb,
                ),
                number,
                count,
                voters,
                cluster_id,
            )
            for number, port in enumerate(ports, 1)
        ]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        """Past the links: for the suite's own eyes."""
        self.through = ",".join(node.through for node in self.nodes)
        """Through the links: for everything that is tested."""

    def start(self) -> None:
        first, *others = self.nodes
        first.start()  # formats its folder with Kafka's own tool
        meta = first.folder / "data" / "meta.properties"
        told = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
        for node in others:
            node.cluster_id = told["cluster.id"]
            data = node.folder / "data"
            data.mkdir(parents=True, exist_ok=True)
            checkpoint = first.folder / "data" / "bootstrap.checkpoint"
            if checkpoint.exists():
                shutil.copy(checkpoint, data / checkpoint.name)
            node.start()
        self.wait_ready()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        for node in self.nodes:
            if node.wanted:
                node.wait_ready(timeout_s)

    def step(self) -> None:
        """Start each broker that has ended and is wanted."""
        for node in self.nodes:
            if node.wanted and (node.process is None or node.process.poll() is not None):
                with suppress(HubError):  # its port is not free yet: the next step tries again
                    node.start()

    def stop(self) -> None:
        for node in self.nodes:
            node.thaw()
            node.stop()

    def await_answers(self, timeout_s: float) -> bool:
        """Return True when every wanted broker answers within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.step()
            if all(node.ready() for node in self.nodes if node.wanted):
                return True
            time.sleep(0.1)
        return False
