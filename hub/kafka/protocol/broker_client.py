"""[edge] Kafka's protocol over sockets of our own: kafka-python's schemas and SASL, and hand-packed Fetch and Produce.

librdkafka gives records, not batches; kafka-python gives batches but spends about 0.3 ms on each request. So its
generated schemas serve the rare requests (metadata, coordinators, transactions, offsets) and its mechanisms the
authentication; Fetch and Produce, one of each for many partitions, are packed here with ``struct``.

Connecting, sending and receiving have deadlines, after which the connection is closed, because a late answer
must not be taken for another request's. A broker that is silent for ten seconds is given up (``Patience``),
so that a half-open link, which gives neither an answer nor an error, is noticed. ``translated`` converts
Kafka's error codes::

    ConnectionLost   HUB-3601  no answer: connect again
    BrokerBusy       HUB-3602  not now, or not this broker: ask again, perhaps after new metadata
    TransactionLost  HUB-3603  the transaction cannot go on: abort, initialize, read the checkpoints
    WriterFenced     HUB-3001  another has our transactional id: stop
    Refused          HUB-1620  the same again fails again
"""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from kafka import errors as kafka_errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from hub.errors import CallerError, HubError, PeerError
from hub.kafka.protocol.sockets import TokenProvider
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.varint import take_unsigned, unsigned

log = logging.getLogger(__name__)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2

_MOST_FRAME_BYTES = 256 * 1024 * 1024
_SOCKET_BUFFER = 4 * 1024 * 1024
_WAKE_BYTES = 1024 * 1024
_AHEAD_BYTES = 4096
_ROUGHLY_S = 1.0
_FORGIVEN_S = 120.0
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 12_000}
_IOV_MOST = 512
_REAUTHENTICATE_AT = (
    0.85  # of a session's lifetime (KIP-368): reconnect then, which is easy between two transactions
)


class ConnectionLost(PeerError):
    """The broker does not answer, or the connection ended. The request may have been executed."""

    code = "HUB-3601"


class BrokerBusy(PeerError):
    """The broker is busy or is the wrong one for the request; ``kafka_code`` is the protocol's error code."""

    code = "HUB-3602"

    def __init__(self, message: str, *, hint: str | None = None, kafka_code: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.kafka_code = kafka_code


class TransactionLost(PeerError):
    """This transaction cannot be committed any more; a new one may."""

    code = "HUB-3603"


class BrokerRefused(CallerError):
    """The cluster refuses; ``kafka_code`` is the protocol's error code."""

    code = "HUB-1620"

    def __init__(self, message: str, *, hint: str | None = None, kafka_code: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.kafka_code = kafka_code


class PartitionsRefused(BrokerRefused):
    """The cluster refuses some partitions, listed in ``places``; the others are accepted."""

    def __init__(self, error: BrokerRefused, places: Iterable[TopicPartition]) -> None:
        super().__init__(error.message, hint=error.hint, kafka_code=error.kafka_code)
        self.places = tuple(places)


_FENCED: Final = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
# INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID, OUT_OF_ORDER_SEQUENCE_NUMBER,
# DUPLICATE_SEQUENCE_NUMBER, TRANSACTION_ABORTABLE, OPERATION_NOT_ATTEMPTED
_TRANSACTION: Final = {48, 49, 59, 45, 46, 120, 55}
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, UNSUPPORTED_VERSION = 1, 2, 3, 100, 35
MESSAGE_TOO_LARGE, CONCURRENT_TRANSACTIONS, SASL_FAILED = 10, 51, 58
_MAY_NOT: Final = 29  # TOPIC_AUTHORIZATION_FAILED
_NOT_COORDINATOR: Final = {8, 15, 16}  # BROKER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_OLD_BROKER: Final = "mirrors need brokers of Kafka 2.5 or later"
_REFUSED: Final[dict[int, str | None]] = {
    OFFSET_OUT_OF_RANGE: None,
    CORRUPT_MESSAGE: None,
    MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic in the target cluster",
    17: None,  # INVALID_TOPIC_EXCEPTION
    18: "raise segment.bytes of the topic in the target cluster",
    29: "let the mirror's user read and describe the topic in the source, write and describe it in the target",
    31: "let the mirror's user write idempotently (IdempotentWrite on the cluster)",
    32: "set message.timestamp.type=CreateTime and widen message.timestamp.before.max.ms and after.max.ms of the "
    "topic in the target cluster",
    33: "take one of the mechanisms that the brokers offer",
    UNSUPPORTED_VERSION: _OLD_BROKER,
    42: None,  # INVALID_REQUEST
    43: "raise the format of the topic's messages",
    44: None,  # POLICY_VIOLATION
    50: "raise transaction.max.timeout.ms of the target's brokers, or lower the mirror's",
    53: "let the mirror's user write transactional ids that begin with hub.mirror.",
    SASL_FAILED: "look at the user's name and password for this cluster",
    76: "this broker is too old for the codec of the source's records",
    87: "the target's topic wants keys (it is compacted), or its brokers check records: compare the settings",
}


def error_name(code: int) -> str:
    """Return the protocol's name of an error code, such as NOT_LEADER_OR_FOLLOWER."""
    found = kafka_errors.for_code(code)
    return str(getattr(found, "message", "") or found.__name__)


def translated(code: int, doing: str, message: str | None = None) -> HubError | None:
    """Return the error for a code; None for 0. The module's docstring has the table."""
    if code == 0:
        return None
    said = f"{doing}: {error_name(code)}" + (f" ({message})" if message else "")
    if code in _FENCED:
        return WriterFenced(
            said,
            hint="another worker has this shard, or it stood still for longer than its transaction may last",
        )
    if code in _TRANSACTION:
        return TransactionLost(said)
    if code in _REFUSED:
        return BrokerRefused(said, hint=_REFUSED[code], kafka_code=code)
    return BrokerBusy(said, kafka_code=code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Addresses and credentials of a cluster; the settings have Kafka's names. ``token`` returns an OAuth
    bearer token. Times are in seconds. ``silence_s``: longest silence of a broker before its connection is
    given up, see ``Patience``. ``bounds``: limits on the unpacked size of its batches.
    """

    bootstrap: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    client_id: str = "hub-mirror"
    bounds: UnpackedBounds = DEFAULT_BOUNDS
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    silence_s: float = 10.0

    def ssl_context(self) -> ssl.SSLContext | None:
        if self.security_protocol not in ("SSL", "SASL_SSL"):
            return None
        context = ssl.create_default_context(cafile=self.ssl_cafile)
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certfile is not None:
            context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_key_password)
        return context


# ---- one connection


class Patience:
    """For how long the brokers of one cluster may be silent: ``silence_s`` at first, twice that after each time that it was
    exceeded, and ``request_timeout_s`` at most, so that a broker that is merely slow gets its turn. After two minutes without that
    it is as at first.
    """

    def __init__(self, access: ClusterAccess, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_s = access.request_timeout_s
        self._first_s = min(access.silence_s, self._most_s)
        self._clock = clock
        self._times, self._last_at = 0, 0.0

    @property
    def seconds(self) -> float:
        if self._times and self._clock() - self._last_at > _FORGIVEN_S:
            self._times = 0
        return float(min(self._most_s, self._first_s * 2**self._times))

    def exceeded(self) -> None:
        """Record that a broker was silent for longer."""
        self._times = min(self._times + 1, 8)
        self._last_at = self._clock()


class BrokerConnection:
    """A connection to one broker: requests are sent at once, answers arrive in their order. Not thread safe.
    Raises ConnectionLost, after which it is closed; Refused when the broker does not accept the client.
    """

    def __init__(self, access: ClusterAccess, host: str, port: int, patience: Patience | None = None) -> None:
        self.access = access
        self.patience = patience or Patience(access)
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
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            context = access.ssl_context()
            if context is not None:
                self._socket = context.wrap_socket(plain, server_hostname=host)
            self._greet(deadline)
            if access.security_protocol.startswith("SASL"):
                self._authenticate(host, deadline)
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
                f"broker {self.where} speaks versions {low} to {high} of request {api}, {least} to {wanted} are needed",
                hint=_OLD_BROKER,
                kafka_code=UNSUPPORTED_VERSION,
            )
        return version

    def send(self, api: int, version: int, body: Sequence[bytes | memoryview], *, flexible: bool) -> None:
        """Send a request that was packed by hand; its answer is one ``receive`` later than those before."""
        correlation = next(self._correlation)
        header = struct.pack(">hhih", api, version, correlation, len(self._client)) + self._client
        if flexible:
            header += b"\x00"
        size = len(header) + sum(map(len, body))
        self._write([struct.pack(">i", size) + header, *body])
        self._waiting.append((correlation, flexible))

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
        return frame, _skip_tags(frame, 4) if flexible else 4

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
        """ApiVersions 0, which every broker answers."""
        request = ApiVersionsRequest(version=0)
        self.send(18, 0, [request.encode(version=0)], flexible=False)
        frame, at = self.receive(max(0.1, deadline - time.monotonic()))
        code, count = struct.unpack_from(">hi", frame, at)
        if code:
            raise ConnectionLost(f"broker {self.where}: {error_name(code)}")
        self.versions = {
            api: (low, high)
            for api, low, high in struct.iter_unpack(">hhh", frame[at + 6 : at + 6 + 6 * count])
        }

    def _authenticate(self, host: str, deadline: float) -> None:
        """SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368)."""
        access, name = self.access, self.access.sasl_mechanism or "PLAIN"
        left = max(0.1, deadline - time.monotonic())
        shaken = self.ask(SaslHandshakeRequest, 1, 1, timeout_s=left, mechanism=name)
        if shaken.error_code:
            raise BrokerRefused(
                f"broker {self.where} offers {', '.join(shaken.mechanisms) or 'no mechanism'}, not {name}",
                hint=_REFUSED[33],
                kafka_code=33,
            )
        mechanism = get_sasl_mechanism(name)(
            host=host,
            sasl_mechanism=name,
            sasl_plain_username=access.username or "",
            sasl_plain_password=access.password or "",
            sasl_oauth_token_provider=None if access.token is None else TokenProvider(access.token),
        )
        for _ in range(8):
            if mechanism.is_done():
                break
            left = max(0.1, deadline - time.monotonic())
            answer = self.ask(SaslAuthenticateRequest, 1, timeout_s=left, auth_bytes=mechanism.auth_bytes())
            if answer.error_code:
                raise BrokerRefused(
                    f"broker {self.where} does not let us in: {answer.error_message or error_name(answer.error_code)}",
                    hint=_REFUSED[SASL_FAILED],
                    kafka_code=SASL_FAILED,
                )
            mechanism.receive(answer.auth_bytes)
            lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
            if lifetime_ms > 0:
                self.expires_at = time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT
        if not mechanism.is_authenticated():
            raise BrokerRefused(
                f"broker {self.where}: {name} does not come to an end", kafka_code=SASL_FAILED
            )

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

        A short answer is taken with all that is behind it. Of a large one the kernel wakes us once a megabyte, not for each
        piece that arrives: it compares that with what has arrived and was not taken, which only a plain socket shows; what
        TLS has taken would be waited for again.
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
    import importlib

    module = importlib.import_module(kind.__module__)
    return getattr(module, kind.__name__.removesuffix("Request") + "Response")


# ---- a cluster


class Leader(NamedTuple):
    """The leader of a partition: the broker's id (-1 if there is none now) and the leader epoch."""

    node: int
    epoch: int


class EpochEnd(NamedTuple):
    """The last epoch in the log that is not after a given one, and the first offset after its records. Both
    are -1 if the log has no such epoch.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """``topic_id`` is Kafka's in its usual spelling, empty when the brokers are older than 2.8."""

    topic_id: str
    uuid: uuid.UUID
    leaders: Mapping[int, Leader]


class BrokerCluster:
    """Brokers of one cluster, connected on demand, and the leaders of partitions. Not thread safe.

    ``purpose`` keeps connections apart, so that a long poll never stands before a short request.
    """

    def __init__(self, access: ClusterAccess, name: str = "") -> None:
        self.access = access
        self.name = name or access.bootstrap
        self.topics: dict[str, TopicMetadata] = {}
        self.patience = Patience(access)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, node: int, purpose: str = "") -> BrokerConnection:
        """Return a live connection to the broker. Raises ConnectionLost."""
        found = self._connections.get((node, purpose))
        expired = found is not None and not found.in_flight and time.monotonic() > found.expires_at
        if found is not None and not found.closed and not expired:
            return found
        if found is not None:
            found.close()
        if node not in self._brokers:
            raise BrokerBusy(f'cluster "{self.name}": broker {node} is not known', kafka_code=8)
        made = BrokerConnection(self.access, *self._brokers[node], self.patience)
        self._connections[node, purpose] = made
        return made

    def refresh(self, topics: Iterable[str]) -> dict[str, HubError]:
        """Fetch the leaders of these topics' partitions from any broker; return the errors by topic. Raises
        ConnectionLost when no broker answers.
        """
        names = sorted(set(topics))
        wanted = [
            MetadataRequest.MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0)) for name in names
        ]
        answer = self._ask_any(
            MetadataRequest, 12, 4, topics=wanted, allow_auto_topic_creation=False, **_QUIET_METADATA
        )
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        refused: dict[str, HubError] = {}
        for topic in answer.topics:
            name = str(topic.name)
            error = translated(topic.error_code, f'cluster "{self.name}", topic "{name}"')
            if error is not None:
                refused[name] = error
                self.topics.pop(name, None)
                continue
            identity = getattr(topic, "topic_id", None) or uuid.UUID(int=0)
            leaders = {
                each.partition_index: Leader(each.leader_id, getattr(each, "leader_epoch", -1))
                for each in topic.partitions
            }
            self.topics[name] = TopicMetadata(topic_id_text(identity), identity, leaders)
        return refused

    def names(self) -> dict[bytes, str]:
        """Topics by the 16 bytes of their ids."""
        return {each.uuid.bytes: name for name, each in self.topics.items()}

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]:
        """Return ``max.message.bytes`` of these topics; topics whose configuration may not be read are left
        out.
        """
        kind = DescribeConfigsRequest.DescribeConfigsResource
        wanted = [
            kind(resource_type=_TOPIC, resource_name=name, configuration_keys=["max.message.bytes"])
            for name in sorted(topics)
        ]
        if not wanted:
            return {}
        answer = self._ask_any(DescribeConfigsRequest, 4, 1, resources=wanted, **_QUIET_CONFIGS)
        return {
            str(each.resource_name): int(config.value)
            for each in answer.results
            if not each.error_code
            for config in each.configs
            if config.name == "max.message.bytes" and config.value
        }

    def leader(self, tp: TopicPartition) -> Leader:
        """Return the leader of a partition. Raises BrokerBusy when the partition is unknown or has no leader."""
        topic = self.topics.get(tp.topic)
        found = topic.leaders.get(tp.partition) if topic is not None else None
        if found is None or found.node < 0:
            raise BrokerBusy(
                f'cluster "{self.name}", topic "{tp.topic}" partition {tp.partition}: no leader',
                kafka_code=5,
            )
        return found

    def coordinator(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates this producer's transactions."""
        answer = self._ask_any(FindCoordinatorRequest, 3, 1, key=transactional_id, key_type=1)
        raise_for(answer.error_code, f'cluster "{self.name}": find coordinator')
        self._brokers.setdefault(answer.node_id, (answer.host, answer.port))
        return int(answer.node_id)

    def offsets(
        self, wanted: Iterable[TopicPartition], at: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """LATEST (the end, or the last stable offset with READ_COMMITTED) or EARLIEST of each; topics as refreshed."""
        by_node: dict[int, dict[str, list[TopicPartition]]] = {}
        for tp in wanted:
            by_node.setdefault(self.leader(tp).node, {}).setdefault(tp.topic, []).append(tp)
        found: dict[TopicPartition, int] = {}
        for node, topics in by_node.items():
            kinds = ListOffsetsRequest.ListOffsetsTopic
            answer = self.connection(node, "ask").ask(
                ListOffsetsRequest,
                6,
                4,
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    kinds(
                        name=name,
                        partitions=[
                            kinds.ListOffsetsPartition(
                                partition_index=tp.partition,
                                current_leader_epoch=self.leader(tp).epoch,
                                timestamp=at,
                            )
                            for tp in tps
                        ],
                    )
                    for name, tps in topics.items()
                ],
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(str(topic.name), each.partition_index)
                    raise_for(each.error_code, f'cluster "{self.name}", {_named(tp)}: offsets')
                    found[tp] = int(each.offset)
        return found

    def epoch_ends(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | HubError]:
        """Return the end of each partition's epoch in this leader's log (KIP-320, OffsetForLeaderEpoch), or
        the error of that partition. Raises ConnectionLost, Refused.
        """
        kinds = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        topics: dict[str, list[Any]] = {}
        for tp, epoch in wanted.items():
            asked = kinds.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=self.leader(tp).epoch, leader_epoch=epoch
            )
            topics.setdefault(tp.topic, []).append(asked)
        # Version 3 is the first that takes the right to read the topic, not one over the cluster.
        answer = self.connection(node, "ask").ask(
            OffsetForLeaderEpochRequest,
            4,
            3,
            replica_id=-1,
            topics=[kinds(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        found: dict[TopicPartition, EpochEnd | HubError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                tp = TopicPartition(str(topic.topic), each.partition)
                error = translated(each.error_code, f'cluster "{self.name}", {_named(tp)}: end of an epoch')
                found[tp] = error or EpochEnd(int(each.leader_epoch), int(each.end_offset))
        return found

    def _ask_any(self, kind: Any, newest: int, least: int, **fields: Any) -> Any:
        """Ask any known broker, then the bootstrap servers."""
        last: HubError | None = None
        for node in list(self._brokers):
            try:
                return self.connection(node, "ask").ask(kind, newest, least, **fields)
            except ConnectionLost as error:
                last = error
        for host, port in addresses(self.access.bootstrap):
            try:
                connection = BrokerConnection(self.access, host, port, self.patience)
            except ConnectionLost as error:
                last = error
                continue
            try:
                return connection.ask(kind, newest, least, **fields)
            except ConnectionLost as error:
                last = error
            finally:
                connection.close()
        raise ConnectionLost(
            f'cluster "{self.name}" does not answer: {last.message if last else "no bootstrap servers"}',
            hint=f"is it running, and is {self.access.bootstrap} its address?",
        )


_TOPIC: Final = 2  # the kind of resource
_QUIET_CONFIGS: Final[Mapping[str, Any]] = {"include_synonyms": False, "include_documentation": False}
_QUIET_METADATA: Final[Mapping[str, Any]] = {
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Host and port of each server of ``host:port,[v6]:port``. Raises Refused."""
    found = []
    for part in bootstrap.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise BrokerRefused(f'bootstrap servers: "{part}" is not host:port')
        found.append((host.strip("[]"), int(port)))
    return found


def topic_id_text(identity: uuid.UUID) -> str:
    """Format a topic id as Kafka does: URL-safe base64 without padding."""
    import base64

    return base64.urlsafe_b64encode(identity.bytes).rstrip(b"=").decode() if identity.int else ""


def raise_for(code: int, doing: str, message: str | None = None) -> None:
    error = translated(code, doing, message)
    if error is not None:
        raise error


def _named(tp: TopicPartition) -> str:
    return f'topic "{tp.topic}" partition {tp.partition}'


# ---- transactions


class Producer(NamedTuple):
    """The producer id that a coordinator assigned to a transactional id, and the epoch that fences older
    producers.
    """

    producer_id: int
    epoch: int


NOBODY: Final = Producer(-1, -1)


class Transactions:
    """Requests to the coordinator of one transactional id. Temporary errors are retried until ``timeout_s``;
    then, and for all other errors, raises the errors of ``translated``.
    """

    def __init__(self, cluster: BrokerCluster, transactional_id: str, transaction_timeout_s: float) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = int(transaction_timeout_s * 1000)
        self.timeout_s = cluster.access.request_timeout_s
        self._node: int | None = None

    def initialize(self, former: Producer = NOBODY) -> Producer:
        """Fence every other producer with this transactional id and end its open transaction. ``former``: the
        producer id and epoch that this process had before; raises WriterFenced if another producer has taken
        the id since (KIP-360).
        """

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                InitProducerIdRequest,
                4,
                3 if former is not NOBODY else 0,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.transaction_timeout_ms,
                producer_id=former.producer_id,
                producer_epoch=former.epoch,
            )
            return int(answer.error_code), answer

        answer = self._until_done(ask, "initialize")
        return Producer(int(answer.producer_id), int(answer.producer_epoch))

    def add(self, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction at the coordinator, before anything is written to them. Raises
        PartitionsRefused when the user may not write to some of them; then none is added.
        """
        closed: list[TopicPartition] = []
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                AddPartitionsToTxnRequest,
                3,
                0,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[kind(name=name, partitions=numbers) for name, numbers in topics.items()],
            )
            codes = {
                TopicPartition(str(topic.name), int(each.partition_index)): int(each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            closed[:] = [tp for tp, code in codes.items() if code == _MAY_NOT]
            # One bad partition leaves the others "not attempted": the cause is the other error.
            bad = [code for code in codes.values() if code] or [0]
            return next((code for code in bad if code != 55), bad[0]), answer

        try:
            self._until_done(ask, "add partitions to the transaction")
        except BrokerRefused as error:
            if error.kafka_code == _MAY_NOT and closed:
                raise PartitionsRefused(error, closed) from None
            raise

    def end(self, producer: Producer, *, commit: bool) -> None:
        """Commit or abort. After any error except Refused the outcome is unknown; ``initialize`` resolves it."""

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                EndTxnRequest,
                4,
                0,
                transactional_id=self.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )
            return int(answer.error_code), answer

        self._until_done(ask, "commit" if commit else "abort")

    def _until_done(self, ask: Callable[[BrokerConnection], tuple[int, Any]], doing: str) -> Any:
        deadline = time.monotonic() + self.timeout_s
        pause = 0.002
        said = f'transactional id "{self.transactional_id}": {doing}'
        while True:
            try:
                if self._node is None:
                    self._node = self.cluster.coordinator(self.transactional_id)
                code, answer = ask(self.cluster.connection(self._node, "transactions"))
                error = translated(code, said)
            except BrokerBusy as busy:
                error = busy
            except ConnectionLost:
                self._node = None
                raise
            if error is None:
                return answer
            if not isinstance(error, BrokerBusy) or time.monotonic() + pause > deadline:
                raise error
            if error.kafka_code in _NOT_COORDINATOR:
                self._node = None
            time.sleep(pause)
            pause = min(0.1, pause * 2)


# ---- Fetch


class FetchFrom(NamedTuple):
    """The position of a reader and the leader epoch that it knows."""

    tp: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    position: int


class Fetched(NamedTuple):
    """One partition's share of a Fetch answer: batches in ``buffer[start:end]``; ``error`` is Kafka's code."""

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    buffer: bytearray
    start: int
    end: int


FETCH: Final = int(FetchRequest.API_KEY)
PRODUCE: Final = int(ProduceRequest.API_KEY)
_FETCH_IDS = 13  # topics by id from here on, and flexible since 12
_FETCH_NAMES = 11
_FETCH_PART = struct.Struct(">iiq")
_FETCH_ANSWER = struct.Struct(">ihqqq")
_NO_SESSION = struct.pack(">ii", 0, -1)


def send_fetch(
    connection: BrokerConnection,
    wanted: Sequence[FetchFrom],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
    isolation: int = READ_COMMITTED,
) -> int:
    """Request batches and return the version of the request, which ``fetched`` needs. Requests by topic id if
    the broker supports it (Kafka 3.1), so that a recreated topic is never taken for the old one.
    """
    by_id = all(each.topic_id.int for each in wanted)
    version = connection.version(FETCH, _FETCH_IDS if by_id else _FETCH_NAMES, 4)
    if version < _FETCH_IDS:
        version = connection.version(FETCH, _FETCH_NAMES, _FETCH_NAMES)
    flexible = version >= _FETCH_IDS
    body = bytearray(struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, isolation) + _NO_SESSION)
    by_topic: dict[tuple[str, uuid.UUID], list[FetchFrom]] = {}
    for each in wanted:
        by_topic.setdefault((each.tp.topic, each.topic_id), []).append(each)
    body += _count(len(by_topic), flexible)
    for (name, identity), parts in by_topic.items():
        body += identity.bytes if flexible else _text(name)
        body += _count(len(parts), flexible)
        for each in parts:
            body += _FETCH_PART.pack(each.tp.partition, each.leader_epoch, each.position)
            if flexible:
                body += b"\xff\xff\xff\xff"  # last fetched epoch: for followers
            body += struct.pack(">qi", -1, partition_bytes)
            if flexible:
                body += b"\x00"
        if flexible:
            body += b"\x00"
    body += _count(0, flexible)  # forgotten topics
    body += b"\x01\x00" if flexible else b"\x00\x00"  # no rack
    connection.send(FETCH, version, [bytes(body)], flexible=flexible)
    return version


def fetched(frame: bytearray, at: int, version: int, names: Mapping[bytes, str]) -> tuple[int, list[Fetched]]:
    """Return the answer's own error code and its partitions; ``names`` maps the 16 bytes of topic ids to
    names.
    """
    _, code, _ = struct.unpack_from(">ihi", frame, at)
    at += 10
    read = _flexible_topics if version >= _FETCH_IDS else _plain_topics
    return int(code), list(read(frame, at, names))


def _flexible_topics(frame: bytearray, at: int, names: Mapping[bytes, str]) -> Iterable[Fetched]:
    topics, at = take_unsigned(frame, at)
    for _ in range(topics - 1):
        name = names.get(bytes(frame[at : at + 16]), "")
        parts, at = take_unsigned(frame, at + 16)
        for _ in range(parts - 1):
            partition, error, high, stable, log_start = _FETCH_ANSWER.unpack_from(frame, at)
            count, at = take_unsigned(frame, at + _FETCH_ANSWER.size)
            aborted = []
            for _ in range(count - 1):
                aborted.append(struct.unpack_from(">qq", frame, at))
                at = _skip_tags(frame, at + 16)
            size, at = take_unsigned(frame, at + 4)  # past the preferred replica
            start, at = at, at + max(0, size - 1)
            yield Fetched(
                TopicPartition(name, partition),
                error,
                high,
                stable,
                log_start,
                tuple(aborted),
                frame,
                start,
                at,
            )
            at = _skip_tags(frame, at)
        at = _skip_tags(frame, at)


def _plain_topics(frame: bytearray, at: int, _names: Mapping[bytes, str]) -> Iterable[Fetched]:
    (topics,) = struct.unpack_from(">i", frame, at)
    at += 4
    for _ in range(topics):
        name, at = _take_text(frame, at)
        (parts,) = struct.unpack_from(">i", frame, at)
        at += 4
        for _ in range(parts):
            partition, error, high, stable, log_start = _FETCH_ANSWER.unpack_from(frame, at)
            at += _FETCH_ANSWER.size
            (count,) = struct.unpack_from(">i", frame, at)
            at += 4
            aborted = []
            for _ in range(count):
                aborted.append(struct.unpack_from(">qq", frame, at))
                at += 16
            (size,) = struct.unpack_from(">i", frame, at + 4)
            start = at + 8
            at = start + max(0, size)
            yield Fetched(
                TopicPartition(name or "", partition),
                error,
                high,
                stable,
                log_start,
                tuple(aborted),
                frame,
                start,
                at,
            )


# ---- Produce


class Produced(NamedTuple):
    """Result of producing one batch: the offset of its first record, or Kafka's error code and an optional
    message.
    """

    tp: TopicPartition
    error: int
    base_offset: int
    message: str | None


_PRODUCE_VERSION = 8


def send_produce(
    connection: BrokerConnection,
    transactional_id: str | None,
    batches: Sequence[tuple[TopicPartition, bytes | bytearray | memoryview]],
    timeout_s: float,
) -> None:
    """Send one batch per partition (brokers accept only one per request), acknowledged by all in-sync
    replicas.
    """
    version = connection.version(PRODUCE, _PRODUCE_VERSION, 7)
    by_topic: dict[str, list[tuple[int, memoryview]]] = {}
    for tp, payload in batches:
        by_topic.setdefault(tp.topic, []).append((tp.partition, memoryview(payload)))
    head = bytearray(_text(transactional_id) + struct.pack(">hii", -1, int(timeout_s * 1000), len(by_topic)))
    body: list[bytes | memoryview] = []
    for name, parts in by_topic.items():
        head += _text(name) + struct.pack(">i", len(parts))
        for partition, view in parts:
            head += struct.pack(">ii", partition, len(view))
            body += [bytes(head), view]
            head.clear()
    connection.send(PRODUCE, version, body, flexible=False)


def produced(frame: bytearray, at: int, version: int = _PRODUCE_VERSION) -> list[Produced]:
    (topics,) = struct.unpack_from(">i", frame, at)
    at += 4
    found = []
    for _ in range(topics):
        name, at = _take_text(frame, at)
        (parts,) = struct.unpack_from(">i", frame, at)
        at += 4
        for _ in range(parts):
            partition, error, base, _time, _start = struct.unpack_from(">ihqqq", frame, at)
            at += 30
            message: str | None = None
            if version >= 8:
                (record_errors,) = struct.unpack_from(">i", frame, at)
                at += 4
                for _ in range(record_errors):
                    text, at = _take_text(frame, at + 4)
                    message = message or text
                text, at = _take_text(frame, at)
                message = message or text
            found.append(Produced(TopicPartition(name or "", partition), error, base, message))
    return found


def produce_version(connection: BrokerConnection) -> int:
    return connection.version(PRODUCE, _PRODUCE_VERSION, 7)


# ---- primitive types (protocol guide, "Protocol Primitive Types")


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _take_text(frame: bytearray, at: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", frame, at)
    at += 2
    if size < 0:
        return None, at
    return frame[at : at + size].decode("utf-8", "replace"), at + size


def _count(number: int, flexible: bool) -> bytes:
    return unsigned(number + 1) if flexible else struct.pack(">i", number)


def _skip_tags(frame: bytearray, at: int) -> int:
    count, at = take_unsigned(frame, at)
    for _ in range(count):
        _, at = take_unsigned(frame, at)
        size, at = take_unsigned(frame, at)
        at += size
    return at
