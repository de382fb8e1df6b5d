"""[edge] Bytes of a topic on each broker and free space of its log folders, by Kafka's request
DescribeLogDirs, which librdkafka does not offer.

One request a broker, version 1 (KIP-113), or 4 where the disks are asked for (KIP-827, Kafka 3.3; both messages are in Kafka's
``DescribeLogDirsRequest.json``), over a socket that the cluster's client opens (``KafkaCluster.socket_to``), with its TLS and SASL.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping, Sequence

from hub.errors import PeerError
from hub.kafka.protocol.sockets import exchange
from hub.kafka.protocol.sockets import opened as plain
from hub.log import LogDir
from hub.varint import take_unsigned

_API_KEY, _VERSION, _CORRELATION = 35, 1, 7
_WITH_DISKS = 4
_MOST_BYTES = 64 << 20
_MOST_DIRS = 1_000
_MAY_NOT = 31  # CLUSTER_AUTHORIZATION_FAILED; before version 3 the answer has no folders instead
_NOT_ALLOWED = "this user may not Describe the cluster"
_HINT = "the hub's user needs Describe on the cluster for it; kafka-log-dirs tells the same"

Connect = Callable[[str, int, float], socket.socket]


def log_dirs(host: str, port: int, timeout_s: float, connect: Connect = plain) -> tuple[LogDir, ...]:
    """Return the log folders of one broker, over ``connect(host, port, timeout_s)``. Raises PeerError."""
    try:
        try:
            answer = _exchange(connect(host, port, timeout_s), _request_all(_WITH_DISKS))
        except ConnectionResetError:  # an older broker hangs up on a version that it does not know
            return _dirs(_exchange(connect(host, port, timeout_s), _request_all(_VERSION)), disks=False)
        return _dirs(answer, disks=True)
    except (OSError, struct.error, ValueError, PeerError) as error:
        raise PeerError(
            f"{host}:{port} does not tell its folders ({error or type(error).__name__})",
            hint=_HINT,
            code="HUB-3015",
        ) from None


def log_sizes(
    brokers: Mapping[int, tuple[str, int]],
    topic: str,
    partitions: Sequence[int],
    timeout_s: float,
    connect: Connect = plain,
) -> Mapping[int, Mapping[int, int]]:
    """Bytes by partition and broker id. Each broker has ``timeout_s``. Raises PeerError naming the one that fails."""
    sizes: dict[int, dict[int, int]] = {}
    for broker, (host, port) in sorted(brokers.items()):
        try:
            answer = _exchange(connect(host, port, timeout_s), _request(topic, partitions))
            found = _sizes(answer, topic)
        except (OSError, struct.error, ValueError, PeerError) as error:
            raise PeerError(
                f"broker {broker} at {host}:{port} does not tell its log sizes"
                f" ({error or type(error).__name__})",
                hint=_HINT,
                code="HUB-3015",
            ) from None
        for partition, size in found.items():
            sizes.setdefault(partition, {})[broker] = size
    return sizes


def _request(topic: str, partitions: Sequence[int]) -> bytes:
    client, name = b"hub.admin", topic.encode()
    header = struct.pack(">hhih", _API_KEY, _VERSION, _CORRELATION, len(client)) + client
    wanted = struct.pack(">ih", 1, len(name)) + name
    return header + wanted + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)


def _request_all(version: int) -> bytes:
    """Encode a request for every topic: a null array. In version 4 lengths are varints of the length plus
    one, and tagged fields (none) end a structure.
    """
    client = b"hub.admin"
    header = struct.pack(">hhih", _API_KEY, version, _CORRELATION, len(client)) + client
    return header + (b"\0\0\0" if version == _WITH_DISKS else struct.pack(">i", -1))


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return the answer's body. Raises OSError, ValueError."""
    with connection:
        answer = exchange(connection, request, _MOST_BYTES)
    if struct.unpack_from(">i", answer)[0] != _CORRELATION:
        raise ValueError("an answer to something else")
    return answer[4:]


def _sizes(answer: bytes, topic: str) -> dict[int, int]:
    """Bytes by partition; a partition that moves between two folders counts in both."""
    reader = _Fields(answer)
    reader.take(">i")  # how long the broker held the request back
    found: dict[int, int] = {}
    folders = reader.take(">i")
    if not folders:
        raise ValueError(_NOT_ALLOWED)
    for _ in range(folders):
        error = reader.take(">h")
        folder = reader.text()
        if error:
            raise ValueError(f"folder {folder}: Kafka's error {error}")
        for _ in range(reader.take(">i")):
            name = reader.text()
            for _ in range(reader.take(">i")):
                partition, size = reader.take(">i"), reader.take(">q")
                reader.take(">q")  # how far a replica is behind
                reader.take(">b")  # whether it is on its way to this folder
                if name == topic:
                    found[partition] = found.get(partition, 0) + size
    return found


def _dirs(answer: bytes, *, disks: bool) -> tuple[LogDir, ...]:
    reader = _Fields(answer)
    if disks:
        reader.skip_tags()  # of the header
    reader.take(">i")  # how long the broker held the request back
    if disks and (error := reader.take(">h")):
        raise ValueError(_NOT_ALLOWED if error == _MAY_NOT else f"Kafka's error {error}")
    found = []
    for _ in range(min(_MOST_DIRS, reader.length() if disks else reader.take(">i"))):
        error = reader.take(">h")
        path = reader.compact_text() if disks else reader.text()
        size = 0
        for _ in range(reader.length() if disks else reader.take(">i")):
            reader.compact_text() if disks else reader.text()
            count = reader.length() if disks else reader.take(">i")
            for _ in range(count):
                reader.take(">i")
                size += reader.take(">q")
                reader.take(">q")  # how far a replica is behind
                reader.take(">b")  # whether it is on its way to this folder
                if disks:
                    reader.skip_tags()
            if disks:
                reader.skip_tags()
        total, usable = (reader.take(">q"), reader.take(">q")) if disks else (-1, -1)
        if disks:
            reader.skip_tags()
        found.append(
            LogDir(
                path,
                None if error else size,
                total if total >= 0 else None,
                usable if usable >= 0 else None,
                f"Kafka's error {error}: the broker cannot use it" if error else "",
            )
        )
    if not found:
        raise ValueError(_NOT_ALLOWED)
    return tuple(found)


class _Fields:
    """An answer, field after field."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._content, self._at)
        self._at += struct.calcsize(kind)
        return int(value)

    def text(self) -> str:
        size = self.take(">h")
        self._at += size
        return self._content[self._at - size : self._at].decode()

    def varint(self) -> int:
        try:
            value, self._at = take_unsigned(self._content, self._at)
        except IndexError:
            raise ValueError("a number that does not end") from None
        return value

    def length(self) -> int:
        """Return the length of an array; 0 for null."""
        return max(0, self.varint() - 1)

    def compact_text(self) -> str:
        size = self.length()
        self._at += size
        return self._content[self._at - size : self._at].decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()  # first: it moves on, too
            self._at += size
