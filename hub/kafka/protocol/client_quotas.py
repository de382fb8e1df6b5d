"""[edge] Client quotas of users by Kafka's requests DescribeClientQuotas and AlterClientQuotas (KIP-546,
Kafka 2.6), which librdkafka does not offer.

Both in version 0; any broker answers, and passes changes on to the controller. Only quotas of a user alone
are read, not those of a user together with a client id.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hub.kafka.protocol.primitives import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    FrameReader,
    count,
    request_header,
    text,
)
from hub.kafka.protocol.sockets import CLIENT, exchange

_CORRELATION = 8
_MOST_BYTES = 16 << 20
_ANY_NAME = 2
_MAY_NOT = 31  # CLUSTER_AUTHORIZATION_FAILED


class QuotasRefused(OSError):
    """The broker refuses the request; ``may_not``: the user lacks the right."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message or f"Kafka's error {error}")
        self.may_not = error == _MAY_NOT


@dataclass(frozen=True, slots=True, order=True)
class ClientQuota:
    """A quota of a user, such as ``producer_byte_rate``. Applies at each broker."""

    user: str
    key: str
    value: float


def user_quotas(connection: socket.socket) -> Iterator[ClientQuota]:
    """Yield the quotas of all users. Closes the connection. Raises OSError, QuotasRefused, struct.error."""
    wanted = count(1, flexible=False) + text("user") + struct.pack(">b", _ANY_NAME) + text(None)
    reader = _send_request(connection, DESCRIBE_CLIENT_QUOTAS, wanted + b"\x01")
    reader.take(">i")  # how long the broker held the request back
    error, message = reader.take(">h"), reader.text()
    if error:
        raise QuotasRefused(error, message)
    for _ in range(reader.count()):
        entity = _entity(reader)
        for _ in range(reader.count()):
            key = reader.text()
            (value,) = struct.unpack_from(">d", reader.frame, reader.at)
            reader.at += 8
            if entity.keys() == {"user"} and entity["user"]:
                yield ClientQuota(entity["user"], key, float(value))


def alter_user_quotas(
    connection: socket.socket, wanted: Iterable[ClientQuota], removed: Iterable[ClientQuota]
) -> None:
    """Set and remove quotas of users. Closes the connection. Raises as ``user_quotas``."""
    changes: dict[str, list[bytes]] = {}
    for quotas, remove in ((removed, True), (wanted, False)):
        for each in quotas:
            operation = text(each.key) + struct.pack(">d?", each.value, remove)
            changes.setdefault(each.user, []).append(operation)
    if not changes:
        connection.close()
        return
    body = count(len(changes), flexible=False)
    for user, operations in changes.items():
        body += count(1, flexible=False) + text("user") + text(user)
        body += count(len(operations), flexible=False) + b"".join(operations)
    reader = _send_request(connection, ALTER_CLIENT_QUOTAS, body + b"\x00")
    reader.take(">i")
    for _ in range(reader.count()):
        error, message = reader.take(">h"), reader.text()
        entity = _entity(reader)
        if error:
            raise QuotasRefused(error, f"user {entity.get('user', '')}: {message}" if message else "")


def _entity(reader: FrameReader) -> Mapping[str, str]:
    """Read the name of each type of an entity; "" is the default of a type."""
    return {reader.text(): reader.text() for _ in range(reader.count())}


def _send_request(connection: socket.socket, api: int, body: bytes) -> FrameReader:
    with connection:
        frame = exchange(connection, request_header(api, 0, _CORRELATION, CLIENT) + body, _MOST_BYTES)
    return FrameReader(frame, 4)
