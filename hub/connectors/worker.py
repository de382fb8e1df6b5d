"""[edge] The embedded Kafka Connect: one distributed worker in a JVM of its own, on the hub's Kafka.

It is a worker as in production, alone in its group: connectors, offsets and states are in three topics of
Kafka, so that a worker that is killed continues where it was. Sources write exactly once (KIP-618). The REST
API listens on
127.0.0.1 alone and asks nobody who calls.

Secrets: ``${env:NAME}`` is the environment of ``hub up`` without the hub's own variables,
``${file:PATH:KEY}`` a file in ``/run/secrets``, in ``secrets/`` of the project or in ``connect/secrets`` of
the home (KIP-297, KIP-421). Connect resolves them in the worker and stores the references.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from hub.config import Settings
from hub.connectors.plugins import added_plugins, install_plugins
from hub.embedded import check_port, find_java
from hub.embedded.jars import Progress
from hub.kafka.java_client import ALLOWED_URLS, allowed_urls, java_client
from hub.kafka.own_cluster import own_connection

GROUP = "hub-connect"
# Connect's own clients, and those of connectors.
_CLIENTS = ("", "producer.", "consumer.", "admin.")
_PROVIDERS = "org.apache.kafka.common.config.provider"
_JSON = "org.apache.kafka.connect.json.JsonConverter"

FIXED: Mapping[str, str] = {
    "group.id": GROUP,
    "key.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "false",
    "config.storage.topic": "_hub.connect-configs",
    "offset.storage.topic": "_hub.connect-offsets",
    "status.storage.topic": "_hub.connect-status",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "1",
    "exactly.once.source.support": "enabled",
    # Sinks see nothing of a source's transaction that is aborted.
    "consumer.isolation.level": "read_committed",
    "offset.flush.interval.ms": "5000",
    # A worker alone in its group: whoever joins is the successor of one that was killed, and nobody else
    # comes back.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "2000",
    "config.providers": "env,file",
    "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "^(?!HUB_).*",
    "config.providers.file.class": f"{_PROVIDERS}.FileConfigProvider",
}

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %-5p %X{connector.context}%c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.connect.name = org.apache.kafka.connect
logger.connect.level = info
logger.debezium.name = io.debezium
logger.debezium.level = info
logger.plugins.name = org.apache.kafka.connect.runtime.isolation
logger.plugins.level = warn
logger.configs.name = org.apache.kafka.connect.runtime.AbstractConfig
logger.configs.level = warn
"""


class ConnectWorker:
    """The embedded worker of one home folder. A supervisor takes ``prepare``'s command."""

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.settings = settings
        self.folder = settings.home.absolute() / "connect"
        self.port = settings.connect_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._progress = progress

    def prepare(self) -> list[str]:
        """Check the port, fetch jars, write the worker's files, readable by this account alone; return the
        command.

        Raises ConfigError (HUB-1120, HUB-1602, HUB-1603) and what ``find_java`` and ``install_plugins``
        raise.
        """
        self.check_ports()
        classpath, plugin_path = install_plugins(self.settings, self._progress)
        connection = own_connection(self.settings)
        security = java_client(connection)
        properties, logging = self.folder / "worker.properties", self.folder / "log4j2.properties"
        _write_private(
            properties, render_worker(self.settings, plugin_path, secret_folders(self.settings), security)
        )
        _write_private(logging, LOGGING)
        tokens = allowed_urls(connection)
        return [
            str(find_java(self.settings).path),
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            f"-Xmx{self.settings.connect_heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={logging}",
            *([f"-D{ALLOWED_URLS}={tokens}"] if tokens else []),
            "-cp",
            ":".join(map(str, classpath)),
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(properties),
        ]

    def check_ports(self) -> None:
        """Raise ConfigError (HUB-1120), naming the process, when the port is in use."""
        way_out = "stop it, or take another port: connect_port in hub.yaml, or HUB_CONNECT_PORT=N"
        check_port("127.0.0.1", self.port, "Kafka Connect", way_out)

    def ready(self) -> bool:
        """Return whether the worker answers, which it does only when it has joined its group."""
        try:
            with urlopen(f"{self.url}/connectors", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False


def secret_folders(settings: Settings) -> list[Path]:
    """Return the folders whose files connectors may refer to;
    Connect refuses to start with one that is missing."""
    own = settings.home.absolute() / "connect" / "secrets"
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    named = (settings.project.expanduser().absolute() / "secrets", Path("/run/secrets"))
    return [own, *(each for each in named if each.is_dir())]


def render_worker(
    settings: Settings, plugin_path: Path, secrets: Sequence[Path], security: Mapping[str, str]
) -> str:
    """Return worker.properties. Java reads the file as Latin-1 with backslash escapes,
    which are the same as JSON's."""
    project = settings.project.expanduser().absolute()
    factor = str(settings.replication_factor)
    placed = {
        "bootstrap.servers": settings.bootstrap,
        "listeners": f"http://127.0.0.1:{settings.connect_port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.path": str(plugin_path),
        # Plugins that the hub brings have service files; others may be found only by looking at all their
        # classes.
        "plugin.discovery": "hybrid_warn" if added_plugins(project) else "service_load",
        "config.providers.file.param.allowed.paths": ",".join(map(str, secrets)),
        "config.storage.replication.factor": factor,
        "offset.storage.replication.factor": factor,
        "status.storage.replication.factor": factor,
        **{f"{client}{key}": value for client in _CLIENTS for key, value in security.items()},
    }
    return "".join(f"{key}={json.dumps(value)[1:-1]}\n" for key, value in {**FIXED, **placed}.items())


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(file, "w", encoding="utf-8") as output:
        output.write(text)
