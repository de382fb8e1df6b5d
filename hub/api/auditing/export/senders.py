"""[edge] Sockets and httpx: one attempt to send a batch of entries to a target."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import ssl
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from hub.alerts.delivery.channels import post_json, value_of
from hub.api.auditing.export.formats import (
    MOST_DATAGRAM,
    ExportedEntry,
    cloud_events,
    framed,
    otlp_logs,
    syslog_message,
)
from hub.config.audit_export import SYSLOG_PORTS, AuditExport
from hub.errors import PeerError

_BATCH_TYPE = "application/cloudevents-batch+json"


class SyslogSender:
    """Sends syslog messages over one connection, which is opened again after an error."""

    def __init__(self, name: str, address: str, timeout_s: float) -> None:
        parts = urlsplit(address)
        self._name, self._kind, self._timeout_s = name, parts.scheme, timeout_s
        self._host, self._port = parts.hostname or "", parts.port or SYSLOG_PORTS[parts.scheme]
        self._socket: socket.socket | None = None

    def send(self, entries: Sequence[ExportedEntry]) -> None:
        """Send a batch, and wait until the peer's machine has it. Raises PeerError (HUB-3070)."""
        messages = [syslog_message(each, socket.gethostname(), os.getpid()) for each in entries]
        try:
            if self._socket is None:
                self._socket = self._connected()
            if self._kind == "udp":
                for each in messages:
                    self._socket.send(each[:MOST_DATAGRAM])
            else:
                self._socket.sendall(b"".join(map(framed, messages)))
                self._wait_taken(self._socket)
        except OSError as error:
            self.close()
            raise PeerError(
                f'audit_export "{self._name}": {self._host}:{self._port} does not take messages now '
                f"({type(error).__name__}: {error})",
                hint="entries wait in the topic; is its address right?",
                code="HUB-3070",
            ) from None

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None

    def _connected(self) -> socket.socket:
        if self._kind == "udp":
            family, *_, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)[0]
            made = socket.socket(family, socket.SOCK_DGRAM)
            made.connect(address)
            return made
        made = socket.create_connection((self._host, self._port), self._timeout_s)
        if self._kind == "tls":
            return ssl.create_default_context().wrap_socket(made, server_hostname=self._host)
        return made

    def _wait_taken(self, connection: socket.socket) -> None:
        """Wait until TCP has the acknowledgement of every byte; syslog itself has none. Raises OSError."""
        deadline = time.monotonic() + self._timeout_s
        while struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]:
            if time.monotonic() > deadline:
                raise TimeoutError("bytes are not acknowledged")
            time.sleep(0.005)
        connection.settimeout(0.0)
        try:
            # A connection that the peer has closed reads as "": the peer may not have read the batch.
            if connection.recv(1) == b"":
                raise ConnectionResetError("the connection was closed")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            connection.settimeout(self._timeout_s)


def sender_of(
    name: str, target: AuditExport, environ: Mapping[str, str]
) -> Callable[[Sequence[ExportedEntry]], None]:
    """Return the function that sends a batch once, or raises HubError. Raises ConfigError (HUB-1602) for a
    missing variable."""
    if target.syslog is not None:
        return SyslogSender(name, target.syslog, target.timeout_s).send
    headers = {}
    if target.bearer is not None:
        headers["Authorization"] = f"Bearer {value_of(name, target.bearer, environ)}"
    if target.webhook is not None:
        url = value_of(name, target.webhook, environ)
        sent_headers = {**headers, "Content-Type": _BATCH_TYPE}
        return lambda entries: post_json(name, url, cloud_events(entries), sent_headers, target.timeout_s)
    address = f"{value_of(name, target.otlp or '', environ).rstrip('/')}/v1/logs"
    return lambda entries: post_json(
        name, address, otlp_logs(entries, socket.gethostname()), headers, target.timeout_s
    )
