"""[edge] A single-node Kafka (KRaft, broker and controller in one JVM) under the hub's home folder.

Nothing here is a toy: it is the broker of a production cluster with one replica. The log survives kill -9 of
the JVM (the page cache is the kernel's); the machine's power loss may cost the last seconds, as with any one
replica.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from hub.config import Settings
from hub.embedded.interrupted_transactions import finish, known_and_new
from hub.embedded.jars import Progress, ensure_jars
from hub.embedded.java import find_java
from hub.embedded.preflight import check_disk, check_port, free_ports
from hub.errors import HubError, HubFault, PeerError
from hub.runtime import die_with_parent
from hub.supervisor import end, last_line

log = logging.getLogger(__name__)

_STOP_S = 20.0

# One replica of everything; timeouts for a broker that has no peers to wait for (kill to first ack: 13 s -> 6
# s).
FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # The default takes 128 MB of a 320 MB heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Events carry the time they happened, which may be years ago: nothing is deleted unless its topic is
    # configured so.
    "log.retention.ms": "-1",
}

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class KafkaNode:
    """The embedded Kafka of one home folder.
    ``start``/``stop`` run it here; a supervisor takes ``prepare``'s command."""

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.settings = settings
        self.folder = settings.home.absolute() / "kafka"
        self.port = settings.kafka_port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log = settings.logs / "kafka.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._progress = progress

    def prepare(self) -> list[str]:
        """Check ports and disk, fetch jars, format the log folder the first time; the command that runs the
        node.

        Finishes transactions that a kill interrupted, which takes some seconds when there are any.

        Raises ConfigError (HUB-1120, HUB-1122) and what ``find_java`` and ``ensure_jars`` raise.
        """
        self.check_ports()
        check_disk(self.folder)
        java = find_java(self.settings)
        jars = self.jars()
        self.folder.mkdir(parents=True, exist_ok=True)
        bring_home(self.folder / "data")
        properties = self.folder / "server.properties"
        properties.write_text(render_properties(self.port, self.folder / "data"))
        logging_file = self.folder / "log4j2.properties"
        logging_file.write_text(LOGGING)
        command = [
            str(java.path),
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            f"-Dlog4j2.configurationFile={logging_file}",
        ]
        classpath = ["-cp", ":".join(map(str, jars))]
        if not (self.folder / "data" / "meta.properties").exists():
            self._format([*command, "-Xmx128m", *classpath], properties)
        heap = f"-Xmx{self.settings.kafka_heap_mb}m"
        broker = [*command, heap, "-XX:+ExitOnOutOfMemoryError", *classpath, "kafka.Kafka"]
        self._finish_transactions(broker)
        return [*broker, str(properties)]

    def jars(self) -> Sequence[Path]:
        """Return the node's classpath; missing jars are fetched."""
        return ensure_jars(self.settings, ("kafka",), self._progress)["kafka"]

    def check_ports(self) -> None:
        """Raise ConfigError (HUB-1120), naming the process, when one of the two ports is in use."""
        way_out = "stop it, or take other ports: --kafka-port N, or HUB_KAFKA_PORT=N (N and N+1 are used)"
        check_port("127.0.0.1", self.port, "Kafka", way_out)
        check_port("127.0.0.1", self.port + 1, "Kafka's controller", way_out)

    def start(self) -> None:
        """Start the JVM; it dies with this thread. Call ``wait_ready`` next."""
        self.process = self._launch(self.prepare())

    def _launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a JVM that writes to the log and dies with this thread."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            return subprocess.Popen(
                die_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ready(self) -> bool:
        """True when the broker answers requests, which it does only once it is registered and unfenced."""
        return answers_api_versions("127.0.0.1", self.port)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until Kafka answers. Raises PeerError (HUB-3011) when the JVM ended or does not answer in
        time.
        """
        _wait_until_it_answers(self.process, self.port, self.log, timeout_s)

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Stop in order; kill when that takes longer. Harmless when it does not run."""
        process, self.process = self.process, None
        if process is not None:
            end(process, timeout_s)

    def _finish_transactions(self, broker: Sequence[str]) -> None:
        """Write the markers of transactions that a kill interrupted, before any client reaches Kafka: see
        ``interrupted_transactions.py``. What fails is logged, and tried again at the next start.
        """
        path = self.folder / "interrupted-transactions.json"
        decisions = known_and_new(path, self.folder / "data")
        if not decisions:
            return
        log.warning("Kafka was killed while it ended %d transactions; they end first", len(decisions))
        properties = self.folder / "private.properties"
        port, controller_port = free_ports(2)
        properties.write_text(render_properties(port, self.folder / "data", controller_port))
        process, limit_s = self._launch([*broker, str(properties)]), self.settings.start_timeout_s
        try:
            _wait_until_it_answers(process, port, self.log, limit_s)
            written = finish(f"127.0.0.1:{port}", decisions, limit_s)
            path.unlink()
            log.warning("%d markers of transactions were missing, and are written", written)
        except HubError as error:
            log.error("readers of committed records may wait at these transactions: %s", error.message)
        finally:
            end(process, _STOP_S)

    def _format(self, java: Sequence[str], properties: Path) -> None:
        cluster_id = new_cluster_id()
        arguments = [
            "format",
            "--cluster-id",
            cluster_id,
            "--config",
            str(properties),
            "--ignore-formatted",
        ]
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", *arguments],
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise HubFault(
                f"Kafka's folder {self.folder} cannot be formatted: "
                f"{(done.stderr or done.stdout).strip()[-300:]}",
                hint="look at the folder's rights and space",
                code="HUB-5011",
            )


def _wait_until_it_answers(
    process: subprocess.Popen[bytes] | None, port: int, log_file: Path, timeout_s: float
) -> None:
    """Wait until Kafka answers. Raises PeerError (HUB-3011) when the JVM ended or does not answer in time."""
    deadline = time.monotonic() + timeout_s
    while not answers_api_versions("127.0.0.1", port):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            failure = f"ended with {process.returncode}" if ended and process else "does not answer"
            raise PeerError(
                f"Kafka on port {port} {failure}: {last_line(log_file)}",
                hint=f"its log: {log_file}",
                code="HUB-3011",
            )
        time.sleep(0.05)


def render_properties(port: int, data: Path, controller_port: int | None = None) -> str:
    """Return server.properties of the node: loopback listeners on ``port`` and ``controller_port`` (default:
    ``port + 1``), the log in ``data``. Java reads the file as Latin-1 with backslash escapes, which are the
    same as JSON's.
    """
    controller_port = controller_port or port + 1
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    placed = {
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": json.dumps(str(data))[1:-1],
    }
    return "".join(f"{key}={value}\n" for key, value in {**FIXED, **placed}.items())


def bring_home(data: Path) -> None:
    """Rename a log folder whose name an earlier version misread, UTF-8 as Latin-1, to its proper name."""
    misread = Path(str(data).encode().decode("latin-1"))
    if misread != data and (misread / "meta.properties").exists() and not data.exists():
        misread.rename(data)


def answers_api_versions(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Send Kafka's ApiVersions request (key 18, version 0;
    protocol guide) and see whether an answer comes."""
    correlation_id = 7
    request = struct.pack(">hhih", 18, 0, correlation_id, -1)
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and struct.unpack(">ii", head)[1] == correlation_id


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's format. It never begins with a dash, which would read as an
    option on a command line; Kafka's own tools avoid it too (Uuid.randomUuid).
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not text.startswith("-"):
            return text
