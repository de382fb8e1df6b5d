"""Link to a broker whose Metadata answers are false for a while, like those of a fenced or misconfigured
broker.

Connections stay open, and every other request reaches the broker. The link forwards Metadata requests and
changes the answer, in the version that the client requested.
"""

from __future__ import annotations

import copy
import socket
import struct
import threading
import uuid
from enum import Enum
from typing import Any

from kafka.protocol.metadata import MetadataResponse
from link_proxy import Link, LinkedNode, exactly
from ports import free_ports

from hub.config import Settings

METADATA = 3
_LEADER_NOT_AVAILABLE = 5
_PHANTOMS = 1_000


class Lie(Enum):
    """Kinds of false answers of Metadata about the cluster."""

    NO_BROKER = "neither broker nor topic"
    FENCED = "no broker; partitions have no leader"
    DEAD_ADDRESS = "its broker at an address where nobody listens"


class LyingLink(Link):
    """A ``Link`` that answers Metadata with ``lie``, unless that is None."""

    def __init__(self, port: int, upstream: int) -> None:
        self.lie: Lie | None = None
        (self._dead_port,) = free_ports(1)
        self._writing = threading.Lock()
        super().__init__(port, upstream)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        while True:
            frame = self._next_request(client)
            lie = self.lie
            if lie is not None and struct.unpack_from(">h", frame, 4) == (METADATA,):
                answer = self._false_answer(frame, lie)
                with self._writing:
                    client.sendall(answer)
            else:
                self._pass(frame, broker)

    def _pass(self, content: bytes, to: socket.socket) -> None:
        with self._writing:
            super()._pass(content, to)

    def _false_answer(self, frame: bytes, lie: Lie) -> bytes:
        (version,) = struct.unpack_from(">h", frame, 6)
        with socket.create_connection(("127.0.0.1", self.upstream), 5.0) as asked:
            asked.sendall(frame)
            head = exactly(asked, 4)
            content = exactly(asked, struct.unpack(">i", head)[0])
        found: Any = MetadataResponse.decode(content, version=version, header=True)
        if lie is Lie.DEAD_ADDRESS:
            for each in found.brokers:
                each.port = self._dead_port
        else:
            _without_brokers(found, lie)
        made: bytes = found.encode(header=True, framed=True)
        return made


def _without_brokers(found: Any, lie: Lie) -> None:
    found.brokers, found.controller_id = [], -1
    if lie is Lie.NO_BROKER:
        found.topics = []
    if lie is Lie.FENCED and found.topics:
        found.topics += [_named(found.topics[0], f"phantom.{number}") for number in range(_PHANTOMS)]
    for topic in found.topics:
        for partition in topic.partitions:
            partition.leader_id, partition.error_code, partition.isr_nodes = -1, _LEADER_NOT_AVAILABLE, []


def _named(topic: Any, name: str) -> Any:
    made = copy.deepcopy(topic)
    made.name, made.topic_id = name, uuid.uuid4()
    return made


class LyingNode(LinkedNode):
    """A Kafka with a second listener, whose Metadata answers lie when ``link.lie`` is set."""

    link: LyingLink

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, LyingLink)
