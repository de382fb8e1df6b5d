"""[edge] asyncio: the local proxy of the hub's consumers, which withholds batches that are too large to
unpack.

Kafka's clients unpack a batch of any size, whole or record by record: a batch of 3 kB can fill a JVM's heap,
librdkafka bounds zstd only, and no setting changes that. So they connect not to the brokers but to this proxy
in the hub's own process. It checks each batch of a Fetch answer before the reader receives it
(``protocol/bounded_frames.py``, ``protocol/unpacked_size.py``)::

    librdkafka, Spark ─ 127.0.0.1, a port for each broker ─▶ ReadProxy ─ the cluster's TLS and SASL ─▶ broker

Requests and all other answers pass unchanged. One thread with one event loop serves all connections; other
threads unpack. If the cluster uses TLS or SASL, a client must present a password that only this process
knows, because the proxy has the hub's rights. At most one frame of each connection is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any

from hub.errors import HubError
from hub.kafka.protocol import bounded_frames as frames
from hub.kafka.protocol import primitives
from hub.kafka.protocol.record_batch import CorruptBatch, RecordBatch
from hub.kafka.protocol.sockets import let_in, tls_context
from hub.kafka.protocol.unpacked_size import NeedsUnpacking, UnpackedBounds, UnpackedSize, described, judged
from hub.record import TopicPartition

log = logging.getLogger(__name__)

_HERE = "127.0.0.1"
_USER = "hub"
_CONNECT_S = 10.0
_MOST_REQUEST_BYTES = 16 << 20
_MOST_ANSWER_BYTES = 256 << 20
_BUFFER_BYTES = 4 << 20
_REMEMBERED = 10_000  # judgements of batches that had to be unpacked
_UNKNOWN_API = -1

Security = Mapping[str, str]


class _Closed(Exception):
    """End the connection: the client sent a request that is not allowed, or a frame is invalid."""


class ReadProxy:
    """Serves a cluster's brokers at ports of this machine until the process ends.
    ``security``: librdkafka's settings."""

    def __init__(
        self,
        bootstrap: str,
        security: Security,
        tokens: Callable[[], str] | None,
        bounds: UnpackedBounds,
    ) -> None:
        self._security, self._tokens, self._bounds = dict(security), tokens, bounds
        secured = self._security.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"
        self._password = secrets.token_urlsafe(24) if secured else None
        self._known: OrderedDict[tuple[TopicPartition, int, int, bool], UnpackedSize] = OrderedDict()
        self._reported: set[tuple[TopicPartition, int]] = set()
        self._ports: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._loop.run_forever, name="read-proxy", daemon=True).start()
        self.bootstrap = ",".join(":".join(map(str, self.place(*each))) for each in _addresses(bootstrap))

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of a librdkafka client that reads through the proxy."""
        return {
            "bootstrap.servers": self.bootstrap,
            **self._sasl(),
            **self._named("sasl.username", "sasl.password"),
        }

    def java(self) -> dict[str, str]:
        """Return the settings of a Java client that reads through the proxy."""
        found = {"bootstrap.servers": self.bootstrap, **self._sasl()}
        if self._password is not None:
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            found["sasl.jaas.config"] = f'{module} required username="{_USER}" password="{self._password}";'
        return found

    def _sasl(self) -> dict[str, str]:
        if self._password is None:
            return {"security.protocol": "PLAINTEXT"}
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}

    def _named(self, user: str, password: str) -> dict[str, str]:
        return {} if self._password is None else {user: _USER, password: self._password}

    def place(self, host: str, port: int) -> tuple[str, int]:
        """Return the proxy's address for a broker; the listener is created at the first call."""
        with self._lock:
            own = self._ports.get((host, port))
            if own is None:
                listening = socket.create_server((_HERE, 0), backlog=512)
                own = self._ports[host, port] = int(listening.getsockname()[1])
                self._loop.call_soon_threadsafe(self._listen, listening, host, port)
        return _HERE, own

    def _listen(self, listening: socket.socket, host: str, port: int) -> None:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._start(self._serve(_Stream(reader, writer), host, port))

        async def listen() -> None:
            await asyncio.start_server(serve, sock=listening, limit=_BUFFER_BYTES)

        self._start(listen())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task and keep it until it ends. The loop's own reference is weak, and asyncio's streams
        drop theirs when the client's connection is lost: a task that still waits for the broker would be
        deleted.
        """
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: _Stream, host: str, port: int) -> None:
        broker: _Stream | None = None
        try:
            broker = await self._reach(host, port)
            if self._password is not None:
                await self._let_in(client, broker)
            await self._pass_on(client, broker)
        except (_Closed, OSError, EOFError, struct.error, IndexError, ValueError, CorruptBatch) as error:
            if str(error):
                log.debug("read proxy for %s:%d: %s: %s", host, port, type(error).__name__, error)
        finally:
            client.close()
            if broker is not None:
                broker.close()

    # ---- the broker's side

    async def _reach(self, host: str, port: int) -> _Stream:
        """Open an authenticated connection to the broker. Raises OSError."""
        context = tls_context(self._security)
        named = host if context is not None else None
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=context, server_hostname=named, limit=_BUFFER_BYTES
                )
        except TimeoutError:
            raise OSError(f"no connection in {_CONNECT_S:g} s") from None
        broker = _Stream(reader, writer)
        if not self._security.get("security.protocol", "").upper().startswith("SASL"):
            return broker
        try:
            socket_like = _BlockingPipe(self._loop, broker)
            await asyncio.to_thread(let_in, socket_like, host, self._security, self._tokens)
        except (OSError, TimeoutError, FutureTimeout, HubError) as error:
            broker.close()
            log.warning("the broker %s:%d does not let its readers in: %s", host, port, error)
            raise OSError(str(error)) from None
        return broker

    # ---- the client's side

    async def _let_in(self, client: _Stream, broker: _Stream) -> None:
        """Handle SaslHandshake and SaslAuthenticate with PLAIN (RFC 4616). Raises _Closed for a wrong
        password.
        """
        while True:
            frame = await client.frame(_MOST_REQUEST_BYTES)
            api, version, correlation, at = _head(frame)
            if api == primitives.API_VERSIONS:
                await broker.send(_sized(frame))
                answer = await broker.frame(_MOST_ANSWER_BYTES)
                frames.cap_versions(answer, version)
                await client.send(_sized(answer))
            elif api == primitives.SASL_HANDSHAKE:
                plain = b"\x00\x05PLAIN"
                await client.send(_sized(struct.pack(">ihi", correlation, 0, 1) + plain))
            elif api == primitives.SASL_AUTHENTICATE and version <= frames.CAPS[primitives.SASL_AUTHENTICATE]:
                (size,) = struct.unpack_from(">i", frame, at)
                credentials = bytes(frame[at + 4 : at + 4 + max(0, size)]).split(b"\x00")
                if not hmac.compare_digest(credentials[-1], (self._password or "").encode()):
                    log.warning("somebody on this machine asked to read through the hub without its password")
                    raise _Closed("not the password")
                lifetime = struct.pack(">q", 0) if version >= 1 else b""
                await client.send(_sized(struct.pack(">ihhi", correlation, 0, -1, 0) + lifetime))
                return
            else:
                raise _Closed(f"request {api} before who asks is known")

    async def _pass_on(self, client: _Stream, broker: _Stream) -> None:
        pending: deque[tuple[int, int, int]] = (
            deque()
        )  # correlation, api, version: answers come in their order
        sides = [
            asyncio.create_task(self._requests(client, broker, pending)),
            asyncio.create_task(self._answers(client, broker, pending)),
        ]
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            for side in done:
                side.result()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _requests(self, client: _Stream, broker: _Stream, pending: deque[tuple[int, int, int]]) -> None:
        while True:
            frame = await client.frame(_MOST_REQUEST_BYTES)
            api, version, correlation, _ = _head(frame)
            pending.append((correlation, api, version))
            await broker.send(_sized(frame))

    async def _answers(self, client: _Stream, broker: _Stream, pending: deque[tuple[int, int, int]]) -> None:
        while True:
            frame = await broker.frame(_MOST_ANSWER_BYTES)
            (correlation,) = struct.unpack_from(">i", frame)
            expected, api, version = pending.popleft() if pending else (correlation, _UNKNOWN_API, 0)
            if correlation != expected:
                raise _Closed(f"answer {correlation} where {expected} was expected")
            await client.send(await self._changed(frame, api, version))

    async def _changed(self, frame: bytearray, api: int, version: int) -> list[bytes | memoryview]:
        if api == primitives.FETCH:
            return await self._fetched(frame, version)
        if api == primitives.API_VERSIONS:
            frames.cap_versions(frame, version)
        elif api == primitives.METADATA:
            return _sized(frames.with_brokers(frame, version, self.place))
        elif api == primitives.FIND_COORDINATOR:
            return _sized(frames.with_coordinator(frame, version, self.place))
        return _sized(frame)

    # ---- batches

    async def _fetched(self, frame: bytearray, version: int) -> list[bytes | memoryview]:
        if not self._bounds.batch_bytes:
            return _sized(frame)
        try:
            pieces = frames.bounded(frame, version, self._bounds, self._by_its_headers)
        except NeedsUnpacking:
            pieces = await asyncio.to_thread(frames.bounded, frame, version, self._bounds, self._by_unpacking)
        return _sized(frame) if pieces is None else _sized(*pieces)

    def _by_its_headers(self, tp: TopicPartition, batch: RecordBatch, exact: bool) -> UnpackedSize:
        unpacked_size = self._known.get((tp, batch.base_offset, batch.crc, exact))
        return unpacked_size or self._judged(tp, batch, exact, may_unpack=False)

    def _by_unpacking(self, tp: TopicPartition, batch: RecordBatch, exact: bool) -> UnpackedSize:
        place = (tp, batch.base_offset, batch.crc, exact)
        known = self._known.get(place)
        if known is not None:
            return known
        unpacked_size = self._judged(tp, batch, exact, may_unpack=True)
        with self._lock:
            self._known[place] = unpacked_size
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return unpacked_size

    def _judged(
        self, tp: TopicPartition, batch: RecordBatch, exact: bool, *, may_unpack: bool
    ) -> UnpackedSize:
        unpacked_size = judged(batch, self._bounds, exact=exact, may_unpack=may_unpack)
        if unpacked_size.why is not None:
            unpacked_size = unpacked_size._replace(why=described(batch, unpacked_size))
            self._report_once(tp, batch.base_offset, unpacked_size.why or "")
        return unpacked_size

    def _report_once(self, tp: TopicPartition, offset: int, why: str) -> None:
        if (tp, offset) not in self._reported and len(self._reported) < _REMEMBERED:
            self._reported.add((tp, offset))
            log.warning('topic "%s" partition %d offset %d is not read: %s', *tp, offset, why)


@dataclass(slots=True)
class _Stream:
    """A connection whose bytes are frames: a four-byte length, then that many bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self, most_bytes: int) -> bytearray:
        """Read one frame. Raises _Closed, EOFError, OSError."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        if not 4 <= size <= most_bytes:
            raise _Closed(f"a frame of {size} bytes")
        return bytearray(await self.reader.readexactly(size))

    async def send(self, pieces: list[bytes | memoryview]) -> None:
        self.writer.writelines(pieces)
        await self.writer.drain()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.writer.close()


@dataclass(slots=True)
class _BlockingPipe:
    """The part of a socket's interface that ``sockets.let_in`` needs, for a thread other than the event
    loop's.
    """

    loop: asyncio.AbstractEventLoop
    stream: _Stream
    timeout_s: float = field(default=_CONNECT_S)

    def sendall(self, data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self.stream.send([data]), self.loop).result(self.timeout_s)

    def recv(self, size: int) -> bytes:
        got: Future[bytes] = asyncio.run_coroutine_threadsafe(self.stream.reader.read(size), self.loop)
        return got.result(self.timeout_s)


def _head(frame: bytearray) -> tuple[int, int, int, int]:
    """(api, version, correlation, where the body begins) of a request without tagged fields in its header."""
    api, version, correlation, client = struct.unpack_from(">hhih", frame)
    return api, version, correlation, 10 + max(0, client)


def _sized(*pieces: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
    return [struct.pack(">i", sum(map(len, pieces))), *(memoryview(piece) for piece in pieces)]


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    found = []
    for each in bootstrap.split(","):
        host, _, port = each.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)) if host and port.isdecimal() else (each.strip(), 9092))
    return found


_proxies: dict[tuple[str, tuple[tuple[str, str], ...], UnpackedBounds], ReadProxy] = {}
_making = threading.Lock()


def read_proxy(
    bootstrap: str, security: Security, tokens: Callable[[], str] | None, bounds: UnpackedBounds
) -> ReadProxy:
    """Return this process's proxy for a cluster, one for all its readers."""
    of = (bootstrap, tuple(sorted(security.items())), bounds)
    with _making:
        if of not in _proxies:
            _proxies[of] = ReadProxy(bootstrap, security, tokens, bounds)
        return _proxies[of]
