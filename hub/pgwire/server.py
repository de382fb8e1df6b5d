"""[edge] asyncio: the listener of Postgres' protocol, with TLS, sign-in, cancel requests and limits.

Limits: connections in all and of each caller, 10 s to sign in, an idle time, sizes of messages. It runs in
the event loop of the hub's server; queries run in the threads of the query service.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from hub.errors import ConfigError, HubError
from hub.pgwire.connection import PgConnection, PgConnectionLost, Wire, fatal
from hub.pgwire.protocol import backend, frontend
from hub.pgwire.protocol.framing import ProtocolError
from hub.pgwire.queries import PgQueries
from hub.pgwire.session_settings import startup_settings
from hub.pgwire.sign_in import DatabaseSignIn, SignedIn, checked_database
from hub.pgwire.sqlstates import PgError
from hub.quotas.kinds import Quota
from hub.quotas.shares import Shares
from hub.quotas.spending import holding, pause_if_refused

log = logging.getLogger(__name__)

SIGN_IN_S = 10.0
_LARGEST_PROCESS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Address and limits. ``tls`` None: connections are not encrypted."""

    host: str
    port: int
    connections: int = 200
    per_caller: int = 50
    idle_s: float = 3_600.0
    tls: ssl.SSLContext | None = None


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the TLS settings of a server; None without a certificate. Raises ConfigError."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"pgwire_certificate: {certificate} cannot be used: {error}",
            hint="a PEM file with the certificate chain, and its key in pgwire_key",
            code="HUB-1114",
        ) from None
    return context


class PgServer:
    """Listener of Postgres' protocol."""

    def __init__(self, options: ListenerOptions, queries: PgQueries, sign_in: DatabaseSignIn) -> None:
        self._options, self._queries, self._sign_in = options, queries, sign_in
        self._shares = Shares(options.per_caller, "connections", "pgwire_connections_per_caller")
        self._connections: dict[int, PgConnection] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises ConfigError when it is in use."""
        options = self._options
        try:
            self._server = await asyncio.start_server(self._accepted, options.host, options.port, backlog=256)
        except OSError as error:
            raise ConfigError(
                f"pgwire_port {options.port} on {options.host}: {error.strerror or error}",
                hint="end the process that uses it, or set another port",
                code="HUB-1120",
            ) from None
        port = int(self._server.sockets[0].getsockname()[1])
        log.info("Postgres' protocol at %s:%d", options.host, port)
        return port

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (PgConnectionLost, OSError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("a connection of Postgres' protocol failed")
        finally:
            self._tasks.discard(task)
            if writer.transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(1.0, writer.transport.abort)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep_alive(writer)
        wire = Wire(reader, writer)
        try:
            if len(self._tasks) > self._options.connections:
                raise PgError(
                    "53300",
                    f"{self._options.connections} connections are open, which is the most",
                    "pgwire_connections in hub.yaml",
                )
            async with asyncio.timeout(SIGN_IN_S):
                startup = await self._startup(wire)
                if startup is None:
                    return
                signed_in = await self._signed_in(wire, startup)
            await self._session(wire, startup, signed_in)
        except TimeoutError:
            return
        except (PgError, HubError, ProtocolError) as error:
            await pause_if_refused()
            await wire.send(fatal(error))
            await wire.flush()

    async def _startup(self, wire: Wire) -> frontend.Startup | None:
        """Return the startup packet, after a request for TLS; None: it was a cancel request."""
        encrypted = False
        while True:
            packet = frontend.startup_packet(await _body(wire))
            match packet:
                case frontend.CancelRequest(process, secret):
                    self._cancel(process, secret)
                    return None
                case frontend.EncryptionRequest(tls):
                    context = self._options.tls if tls and not encrypted else None
                    # What came before TLS is not of this client (CVE-2021-23214).
                    if wire.framing.pending:
                        raise ProtocolError("bytes after a request for TLS")
                    await wire.send(backend.NOT_ENCRYPTED if context is None else backend.ENCRYPTED)
                    await wire.flush()
                    if context is not None:
                        await wire.writer.start_tls(context, ssl_handshake_timeout=SIGN_IN_S)
                        encrypted = True
                case frontend.Startup():
                    if packet.minor or packet.options:
                        await wire.send(backend.negotiate(packet.options))
                    return packet

    async def _signed_in(self, wire: Wire, startup: frontend.Startup) -> SignedIn:
        user, address = startup.parameters.get("user", ""), _address(wire.writer)
        if not user:
            raise PgError("28000", "no user name in the startup packet")
        checked_database(startup.parameters.get("database", user), user)
        if startup.parameters.get("replication", "off") not in ("off", "false", "0", "no"):
            raise PgError(
                "0A000", "replication is not supported", "read a view's changes: GET /views/NAME/changes"
            )
        signed_in = self._sign_in.without_password(user, address)
        if signed_in is None:
            if not _is_private(wire.writer, address):
                raise PgError(
                    "28000",
                    "a password is not taken over a connection without TLS",
                    "sslmode=require; pgwire_certificate and pgwire_key in hub.yaml turn TLS on",
                )
            await wire.send(backend.ASK_PASSWORD)
            await wire.flush()
            packet = await wire.packet(SIGN_IN_S, wire.framing.message)
            assert isinstance(packet, tuple)
            message = frontend.message(*packet)
            if not isinstance(message, frontend.Password):
                raise ProtocolError("a password was expected")
            signed_in = await self._sign_in.by_password(user, message.text, address)
        return signed_in

    async def _session(self, wire: Wire, startup: frontend.Startup, signed_in: SignedIn) -> None:
        settings = {**startup_settings(startup.parameters), "session_authorization": signed_in.user}
        signed_in.enter()
        self._shares.require()
        process = next(self._numbers) % _LARGEST_PROCESS
        connection = PgConnection(
            wire, self._queries, self._sign_in, signed_in, process, self._options.idle_s
        )
        with self._shares.holding(), holding(Quota.connections):
            await wire.send(backend.AUTHENTICATED)
            self._connections[process] = connection
            try:
                await connection.run(settings)
            finally:
                del self._connections[process]

    def _cancel(self, process: int, secret: bytes) -> None:
        connection = self._connections.get(process)
        if connection is not None and hmac.compare_digest(connection.secret, secret):
            connection.cancel()


async def _body(wire: Wire) -> bytes:
    packet = await wire.packet(SIGN_IN_S, wire.framing.startup)
    assert isinstance(packet, bytes)
    return packet


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the kernel notice clients that are gone without a word."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def _is_private(writer: asyncio.StreamWriter, address: str) -> bool:
    """Return whether nobody else can read the connection: TLS, or both ends on this machine."""
    if writer.get_extra_info("ssl_object") is not None:
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
