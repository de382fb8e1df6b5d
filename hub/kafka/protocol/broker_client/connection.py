"""[edge] One connection to one broker, with a deadline for every wait.

Connecting, sending and receiving have deadlines, after which the connection is closed, because a late answer
must not be taken for another request's. A broker that is silent for ten seconds is given up (``Patience``),
so that a half-open link, which gives neither an answer nor an error, is noticed.
"""

from __future__ import annotations

import importlib
import itertools
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest

from hub.kafka.protocol.broker_client.access import ClusterAccess, Patience
from hub.kafka.protocol.broker_client.errors import (
    OLD_BROKER,
    REFUSED_HINTS,
    SASL_FAILED,
    UNSUPPORTED_VERSION,
    BrokerRefused,
    ConnectionLost,
    error_name,
)
from hub.kafka.protocol.broker_client.long_link import RoundTrip, widen_buffers
from hub.kafka.protocol.primitives import API_VERSIONS, request_header, skip_tags
from hub.kafka.protocol.sockets import (
    AuthenticationFailed,
    MechanismNotOffered,
    SaslLogin,
    SaslNotExpected,
    SaslUnfinished,
    log_in,
)

_MOST_FRAME_BYTES = 256 * 1024 * 1024
_WAKE_BYTES = 1024 * 1024
_AHEAD_BYTES = 4096
_ROUGHLY_S = 1.0
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 12_000}
_IOV_MOST = 512
_REAUTHENTICATE_AT = (
    0.85  # of a session's lifetime (KIP-368): reconnect then, which is easy between two transactions
)


class BrokerConnection:
    """A connection to one broker: requests are sent at once, answers arrive in their order. Not thread safe.
    Raises ConnectionLost, after which it is closed; Refused when the broker does not accept the client.
    """

    def __init__(
        self,
        access: ClusterAccess,
        host: str,
        port: int,
        patience: Patience | None = None,
        round_trip: RoundTrip | None = None,
    ) -> None:
        self.access = access
        self.patience = patience or Patience(access)
        self._round_trip = round_trip or RoundTrip()
        self.where = f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        self.expires_at = float("inf")
        self._correlation = itertools.count(1)
        self._waiting: deque[tuple[int, bool]] = deque()  # correlation id, and whether the header is flexible
        self._client = access.client_id.encode()
        self._ahead = bytearray()  # what came with the bytes that were asked for
        self._timeout_s: float | None = None
        deadline = time.monotonic() + access.connect_timeout_s
        try:
            plain = socket.create_connection((host, port), access.connect_timeout_s)
        except OSError as error:
            raise ConnectionLost(f"broker {self.where} cannot be reached: {error}") from None
        self._socket: socket.socket = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(plain)
            widen_buffers(plain)
            context = access.ssl_context()
            if context is not None:
                self._socket = context.wrap_socket(plain, server_hostname=host)
            self._greet(deadline)
            if access.security_protocol.startswith("SASL"):
                self._authenticate(host, deadline)
                self._timeout_s = None  # of the socket: another one is set
        except OSError as error:
            self.close()
            raise ConnectionLost(f"broker {self.where}: {error}") from None
        except BaseException:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._waiting.clear()
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def buffered(self) -> bool:
        """Return whether bytes of an answer are buffered already; polling the socket does not show these."""
        return bool(self._ahead) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def version(self, api: int, wanted: int, least: int = 0) -> int:
        """Return the newest version up to ``wanted`` that the broker supports. Raises Refused below
        ``least``.
        """
        low, high = self.versions.get(api, (0, -1))
        version = min(wanted, high)
        if version < max(low, least):
            raise BrokerRefused(
                f"broker {self.where} speaks versions {low} to {high} of request {api}, {least} "
                f"to {wanted} are needed",
                hint=OLD_BROKER,
                kafka_code=UNSUPPORTED_VERSION,
            )
        return version

    def send(
        self,
        api: int,
        version: int,
        body: Sequence[bytes | memoryview],
        *,
        flexible: bool,
        plain_answer: bool = False,
    ) -> None:
        """Send a request that was packed by hand; its answer is one ``receive`` later than those before.
        ``plain_answer``: the answer's header is not flexible although the request's is.
        """
        correlation = next(self._correlation)
        header = request_header(api, version, correlation, self._client, flexible=flexible)
        size = len(header) + sum(map(len, body))
        self._write([struct.pack(">i", size) + header, *body])
        self._waiting.append((correlation, flexible and not plain_answer))

    def receive(
        self, timeout_s: float | None = None, spare: bytearray | None = None
    ) -> tuple[bytearray, int]:
        """Return the frame of the next answer and the index at which its body begins. The frame is written to
        ``spare`` if it fits, and bytes of ``spare`` after the frame stay as they were: reusing memory costs
        half of allocating it.
        """
        if not self._waiting:
            raise ConnectionLost(f"broker {self.where}: nothing was asked")
        most_s = self.access.request_timeout_s if timeout_s is None else timeout_s
        silence_s = min(most_s, self.patience.seconds) if timeout_s is None else most_s
        now = time.monotonic()
        (size,) = struct.unpack(">i", self._read(4, now + silence_s, silence_s))
        if not 4 <= size <= _MOST_FRAME_BYTES:
            self.close()
            raise ConnectionLost(f"broker {self.where}: a frame of {size} bytes")
        frame = self._read(size, now + most_s, silence_s, spare)
        expected, flexible = self._waiting.popleft()
        (correlation,) = struct.unpack_from(">i", frame)
        if correlation != expected:
            self.close()
            raise ConnectionLost(f"broker {self.where}: answer {correlation} where {expected} was expected")
        return frame, skip_tags(frame, 4) if flexible else 4

    def ask(
        self, kind: Any, newest: int, least: int = 0, timeout_s: float | None = None, **fields: Any
    ) -> Any:
        """Send one of kafka-python's requests and wait for its answer. No other request may be pending."""
        if self._waiting:
            raise ConnectionLost(f"broker {self.where}: answers are still under way")
        version = self.version(kind.API_KEY, newest, least)
        request = kind(version=version, **fields)
        flexible = bool(kind.flexible_version_q(version))
        self.send(kind.API_KEY, version, [request.encode(version=version)], flexible=flexible)
        frame, at = self.receive(timeout_s)
        return _answer_class(kind).decode(memoryview(frame)[at:], version=version)

    def _greet(self, deadline: float) -> None:
        """ApiVersions 0, which every broker answers, and without work: it measures the link."""
        request = ApiVersionsRequest(version=0)
        sent_at_s = time.monotonic()
        self.send(API_VERSIONS, 0, [request.encode(version=0)], flexible=False)
        frame, at = self.receive(max(0.1, deadline - time.monotonic()))
        self._round_trip.took(time.monotonic() - sent_at_s)
        code, count = struct.unpack_from(">hi", frame, at)
        if code:
            raise ConnectionLost(f"broker {self.where}: {error_name(code)}")
        self.versions = {
            api: (low, high)
            for api, low, high in struct.iter_unpack(">hhh", frame[at + 6 : at + 6 + 6 * count])
        }

    def features(self) -> dict[str, int]:
        """Return the levels of the cluster's finalized features (KIP-584). No other request may be
        pending.
        """
        if self.versions.get(API_VERSIONS, (0, 0))[1] < 3:
            return {}
        request = ApiVersionsRequest(
            version=3, client_software_name="hub-mirror", client_software_version="1"
        )
        self.send(API_VERSIONS, 3, [request.encode(version=3)], flexible=True, plain_answer=True)
        frame, at = self.receive()
        answer = _answer_class(ApiVersionsRequest).decode(memoryview(frame)[at:], version=3)
        return {str(each.name): int(each.max_version_level) for each in answer.finalized_features or ()}

    def _authenticate(self, host: str, deadline: float) -> None:
        """SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368)."""
        access = self.access
        login = SaslLogin(
            access.sasl_mechanism or "PLAIN", access.username or "", access.password or "", access.token
        )
        try:
            lifetime_ms = log_in(_UntilDeadline(self._socket, deadline), host, login)
        except (MechanismNotOffered, SaslNotExpected) as error:
            offered = getattr(error, "offered", ())
            raise BrokerRefused(
                f"broker {self.where} offers {', '.join(offered) or 'no mechanism'}, not {login.mechanism}",
                hint=REFUSED_HINTS[33],
                kafka_code=33,
            ) from None
        except (AuthenticationFailed, SaslUnfinished) as error:
            raise BrokerRefused(
                f"broker {self.where}: {error}", hint=REFUSED_HINTS[SASL_FAILED], kafka_code=SASL_FAILED
            ) from None
        if lifetime_ms > 0:
            self.expires_at = time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT

    def _write(self, parts: list[bytes | memoryview]) -> None:
        try:
            self._wait_at_most(self.patience.seconds)
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.sendall(b"".join(parts))
                return
            at = 0
            while at < len(parts):
                sent = self._socket.sendmsg(parts[at : at + _IOV_MOST])
                while at < len(parts) and sent >= len(parts[at]):
                    sent -= len(parts[at])
                    at += 1
                if sent:
                    parts[at] = memoryview(parts[at])[sent:]
        except OSError as error:
            self._lost(error)
            raise ConnectionLost(f"broker {self.where}: {error}") from None

    def _lost(self, error: OSError) -> None:
        if isinstance(error, TimeoutError):
            self.patience.exceeded()
        self.close()

    def _read(
        self, size: int, deadline: float, silence_s: float, spare: bytearray | None = None
    ) -> bytearray:
        """Read ``size`` bytes into the beginning of ``spare`` if it is large enough, else into a new buffer.
        Ends at ``deadline``, or after ``silence_s`` without any bytes.

        A short answer is taken with all that is behind it. Of a large one the kernel wakes us once a
        megabyte, not for each piece that arrives: it compares that with what has arrived and was not taken,
        which only a plain socket shows; what TLS has taken would be waited for again.
        """
        try:
            if size <= _AHEAD_BYTES:
                while len(self._ahead) < size:
                    self._wait_until(deadline)
                    more = self._socket.recv(_AHEAD_BYTES)
                    _check_open(len(more))
                    self._ahead += more
                taken = self._ahead[:size]
                del self._ahead[:size]
                return taken
            buffer = spare if spare is not None and len(spare) >= size else bytearray(size)
            view, at = memoryview(buffer)[:size], min(size, len(self._ahead))
            view[:at] = self._ahead[:at]
            del self._ahead[:at]
            seldom = size > _WAKE_BYTES and not isinstance(self._socket, ssl.SSLSocket)
            while at < size:
                self._wait_until(min(deadline, time.monotonic() + silence_s))
                if seldom:
                    self._wake_at(min(size - at, _WAKE_BYTES))
                arrived = self._socket.recv_into(view[at:])
                at += arrived
                _check_open(arrived)
            if seldom:
                self._wake_at(1)
        except OSError as error:
            self._lost(error)
            raise ConnectionLost(f"broker {self.where}: {error}") from None
        return buffer

    def _wake_at(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _wait_until(self, deadline: float) -> None:
        """Before each call that waits for bytes, and that may wait for a little longer than is left."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        if self._timeout_s is None or not left_s <= self._timeout_s <= left_s + _ROUGHLY_S:
            self._wait_at_most(left_s + _ROUGHLY_S / 2)

    def _wait_at_most(self, seconds: float) -> None:
        """Each change is a call of the kernel."""
        if seconds != self._timeout_s:
            self._socket.settimeout(seconds)
            self._timeout_s = seconds


class _UntilDeadline:
    """A socket of which no wait is longer than what is left until a deadline."""

    def __init__(self, of: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = of, deadline

    def sendall(self, data: bytes, /) -> None:
        self._socket.settimeout(max(0.1, self._deadline - time.monotonic()))
        self._socket.sendall(data)

    def recv(self, size: int, /) -> bytes:
        self._socket.settimeout(max(0.1, self._deadline - time.monotonic()))
        return self._socket.recv(size)


def _keep_alive(plain: socket.socket) -> None:
    """Let the kernel notice a peer that is gone, where the link does not pretend to be well."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has them
            plain.setsockopt(socket.IPPROTO_TCP, option, value)


def _check_open(arrived: int) -> None:
    if arrived == 0:
        raise OSError("the broker closed the connection")


def _answer_class(kind: Any) -> Any:
    """Return the response class of a request class. kafka-python defines both in one module."""
    module = importlib.import_module(kind.__module__)
    return getattr(module, kind.__name__.removesuffix("Request") + "Response")
