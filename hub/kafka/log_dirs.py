"""[edge] Bytes of a topic on each broker and free space of its log folders, by Kafka's request
DescribeLogDirs, which librdkafka does not offer.

One request a broker, version 1 (KIP-113), or 4 where the disks are asked for (KIP-827, Kafka 3.3; both
messages are in Kafka's
``DescribeLogDirsRequest.json``), over a socket that the cluster's client opens (``KafkaCluster.socket_to``),
with its TLS and SASL.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from hub.errors import PeerError
from hub.kafka.protocol.primitives import DESCRIBE_LOG_DIRS, FrameReader, count, request_header, text
from hub.kafka.protocol.sockets import CLIENT, exchange
from hub.kafka.protocol.sockets import opened as plain
from hub.log import LogDir

_API, _VERSION, _CORRELATION = DESCRIBE_LOG_DIRS, 1, 7
_WITH_DISKS = 4
_MOST_BYTES = 64 << 20
_MOST_DIRS = 1_000
_MAY_NOT = 31  # CLUSTER_AUTHORIZATION_FAILED; before version 3 the answer has no folders instead
_NOT_ALLOWED = "this user may not Describe the cluster"
_HINT = "the hub's user needs Describe on the cluster; kafka-log-dirs shows the same data"

Connect = Callable[[str, int, float], socket.socket]


def log_dirs(host: str, port: int, timeout_s: float, connect: Connect = plain) -> tuple[LogDir, ...]:
    """Return the log folders of one broker, over ``connect(host, port, timeout_s)``. Raises PeerError."""
    try:
        try:
            answer = _exchange(connect(host, port, timeout_s), _request_all(_WITH_DISKS))
        except ConnectionResetError:  # an older broker hangs up on a version that it does not know
            return _dirs(_exchange(connect(host, port, timeout_s), _request_all(_VERSION)), disks=False)
        return _dirs(answer, disks=True)
    except (OSError, struct.error, IndexError, ValueError, PeerError) as error:
        raise PeerError(
            f"{host}:{port} does not report its log folders ({error or type(error).__name__})",
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
    """Bytes by partition and broker id. Each broker has ``timeout_s``.
    Raises PeerError naming the one that fails."""
    sizes: dict[int, dict[int, int]] = {}
    for broker, (host, port) in sorted(brokers.items()):
        try:
            answer = _exchange(connect(host, port, timeout_s), _request(topic, partitions))
            found = _sizes(answer, topic)
        except (OSError, struct.error, IndexError, ValueError, PeerError) as error:
            raise PeerError(
                f"broker {broker} at {host}:{port} does not report its log sizes"
                f" ({error or type(error).__name__})",
                hint=_HINT,
                code="HUB-3015",
            ) from None
        for partition, size in found.items():
            sizes.setdefault(partition, {})[broker] = size
    return sizes


def _request(topic: str, partitions: Sequence[int]) -> bytes:
    wanted = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return (
        request_header(_API, _VERSION, _CORRELATION, CLIENT) + count(1, flexible=False) + text(topic) + wanted
    )


def _request_all(version: int) -> bytes:
    """Encode a request for every topic: a null array."""
    flexible = version == _WITH_DISKS
    header = request_header(_API, version, _CORRELATION, CLIENT, flexible=flexible)
    return header + (b"\0\0" if flexible else struct.pack(">i", -1))


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return the answer's body. Raises OSError, ValueError."""
    with connection:
        answer = exchange(connection, request, _MOST_BYTES)
    if struct.unpack_from(">i", answer)[0] != _CORRELATION:
        raise ValueError("an answer to something else")
    return answer[4:]


def _sizes(answer: bytes, topic: str) -> dict[int, int]:
    """Bytes by partition; a partition that moves between two folders counts in both."""
    reader = FrameReader(answer)
    reader.take(">i")  # how long the broker held the request back
    found: dict[int, int] = {}
    folders = reader.count()
    if not folders:
        raise ValueError(_NOT_ALLOWED)
    for _ in range(folders):
        error, folder = reader.take(">h"), reader.text()
        if error:
            raise ValueError(f"folder {folder}: Kafka's error {error}")
        for name, partition, size in _replicas(reader):
            if name == topic:
                found[partition] = found.get(partition, 0) + size
    return found


def _replicas(reader: FrameReader) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and bytes of each replica in a folder."""
    for _ in range(reader.count()):
        name = reader.text()
        for _ in range(reader.count()):
            partition, size = reader.take(">i"), reader.take(">q")
            reader.take(">q")  # how far a replica is behind
            reader.take(">b")  # whether it is on its way to this folder
            reader.end()
            yield name, partition, size
        reader.end()


def _dirs(answer: bytes, *, disks: bool) -> tuple[LogDir, ...]:
    reader = FrameReader(answer, flexible=disks)
    reader.end()  # of the header
    reader.take(">i")  # how long the broker held the request back
    if disks and (error := reader.take(">h")):
        raise ValueError(_NOT_ALLOWED if error == _MAY_NOT else f"Kafka's error {error}")
    found = []
    for _ in range(min(_MOST_DIRS, reader.count())):
        error, path = reader.take(">h"), reader.text()
        size = sum(each for _, _, each in _replicas(reader))
        total, usable = (reader.take(">q"), reader.take(">q")) if disks else (-1, -1)
        reader.end()
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
