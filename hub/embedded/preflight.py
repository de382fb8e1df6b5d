"""[edge] Checks of the machine before a start. Each raises an error of one line."""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

import psutil

from hub.errors import ConfigError

NEEDED_MEMORY_MB = 2_000
NEEDED_DISK_MB = 2_000


def check_port(host: str, port: int, purpose: str, way_out: str) -> None:
    """Raise ConfigError (HUB-1120), naming the port and the process that uses it, unless the port is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return
        except OSError as error:
            reason = error.strerror
    holder = port_holder(port)
    raise ConfigError(
        f"port {port} ({purpose}) is in use by {holder}" if holder else f"port {port} ({purpose}): {reason}",
        hint=way_out,
        code="HUB-1120",
    )


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody uses now."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def port_holder(port: int) -> str | None:
    """Return the process that listens on the port, such as ``pid 4711 (java)``; None if there is none or it
    is not visible.
    """
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            listens_at = tuple(connection.laddr) if connection.status == psutil.CONN_LISTEN else ()
            if connection.pid and listens_at[1:] == (port,):
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    return None


def check_memory(needed_mb: int = NEEDED_MEMORY_MB) -> None:
    """Raise ConfigError (HUB-1121) when less memory is available than Kafka, Spark and the server need."""
    available_mb = psutil.virtual_memory().available // 1_000_000
    if available_mb < needed_mb:
        raise ConfigError(
            f"memory: {available_mb} MB available, {needed_mb} MB needed",
            hint="close something, or give less to each: HUB_KAFKA_HEAP_MB, HUB_SPARK_HEAP_MB",
            code="HUB-1121",
        )


def check_disk(folder: Path, needed_mb: int = NEEDED_DISK_MB) -> None:
    """Raise ConfigError (HUB-1122) when the disk of the folder (which need not exist yet) is nearly full."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free_mb = shutil.disk_usage(existing).free // 1_000_000
    if free_mb < needed_mb:
        raise ConfigError(
            f"disk: {free_mb} MB free under {folder}, {needed_mb} MB needed",
            hint="free some space, or put the hub's state elsewhere: HUB_HOME",
            code="HUB-1122",
        )
