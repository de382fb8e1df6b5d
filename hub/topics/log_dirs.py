"""[edge] How many bytes a topic has on each broker: Kafka's request DescribeLogDirs, which librdkafka does not know.

One request a broker, version 1 (KIP-113; the message is in Kafka's ``DescribeLogDirsRequest.json``), over a plain
socket: a broker that wants TLS or a password does not answer, and the caller does without sizes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence

from hub.errors import PeerError

_API_KEY, _VERSION, _CORRELATION = 35, 1, 7
_MOST_BYTES = 64 << 20


def log_sizes(
    brokers: Mapping[int, tuple[str, int]], topic: str, partitions: Sequence[int], timeout_s: float
) -> Mapping[int, Mapping[int, int]]:
    """Bytes by partition and broker id. Each broker has ``timeout_s``. Raises PeerError naming the one that fails."""
    sizes: dict[int, dict[int, int]] = {}
    for broker, (host, port) in sorted(brokers.items()):
        try:
            answer = _asked(host, port, _request(topic, partitions), timeout_s)
            found = _sizes(answer, topic)
        except (OSError, struct.error, ValueError) as error:
            raise PeerError(
                f"broker {broker} at {host}:{port} does not tell its log sizes"
                f" ({error or type(error).__name__})",
                hint="sizes are asked for over a plain connection; kafka-log-dirs tells them otherwise",
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


def _asked(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 8 <= size <= _MOST_BYTES:
            raise ValueError(f"an answer of {size} bytes")
        answer = _exactly(connection, size)
    if struct.unpack_from(">i", answer)[0] != _CORRELATION:
        raise ValueError("an answer to something else")
    return answer[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ValueError("it hung up")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _sizes(answer: bytes, topic: str) -> dict[int, int]:
    """Bytes by partition; a partition that moves between two folders counts in both."""
    reader = _Fields(answer)
    reader.take(">i")  # how long the broker held the request back
    found: dict[int, int] = {}
    for _ in range(reader.take(">i")):
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
