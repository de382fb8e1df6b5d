"""[edge] How many bytes a topic has on each broker, and how full its folders are: Kafka's request DescribeLogDirs, which
librdkafka does not know.

One request a broker, version 1 (KIP-113), or 4 where the disks are asked for (KIP-827, Kafka 3.3; both messages are in Kafka's
``DescribeLogDirsRequest.json``), over a plain socket: a broker that wants TLS or a password does not answer, and the caller
does without sizes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence

from hub.errors import PeerError
from hub.log import LogDir

_API_KEY, _VERSION, _CORRELATION = 35, 1, 7
_WITH_DISKS = 4
_MOST_BYTES = 64 << 20
_MOST_DIRS = 1_000


def log_dirs(host: str, port: int, timeout_s: float) -> tuple[LogDir, ...]:
    """The folders of one broker. Raises PeerError."""
    try:
        try:
            answer = _asked(host, port, _request_all(_WITH_DISKS), timeout_s)
            return _dirs(answer, disks=True)
        except ValueError:  # an older broker hangs up on a version that it does not know
            return _dirs(_asked(host, port, _request_all(_VERSION), timeout_s), disks=False)
    except (OSError, struct.error, ValueError) as error:
        raise PeerError(
            f"{host}:{port} does not tell its folders ({error or type(error).__name__})",
            hint="they are asked for over a plain connection; kafka-log-dirs tells them otherwise",
            code="HUB-3015",
        ) from None


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


def _request_all(version: int) -> bytes:
    """Every topic: a null array; in version 4 lengths are varints, one more than they say, and tagged fields (none) end a
    structure."""
    client = b"hub.admin"
    header = struct.pack(">hhih", _API_KEY, version, _CORRELATION, len(client)) + client
    return header + (b"\0\0\0" if version == _WITH_DISKS else struct.pack(">i", -1))


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


def _dirs(answer: bytes, *, disks: bool) -> tuple[LogDir, ...]:
    reader = _Fields(answer)
    if disks:
        reader.skip_tags()  # of the header
    reader.take(">i")  # how long the broker held the request back
    if disks and (error := reader.take(">h")):
        raise ValueError(f"Kafka's error {error}")
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
        raise ValueError("it names no folder")
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
        value = shift = 0
        while True:
            if self._at >= len(self._content) or shift > 28:
                raise ValueError("a number that does not end")
            byte = self._content[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self) -> int:
        """Of an array; 0 for null."""
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
