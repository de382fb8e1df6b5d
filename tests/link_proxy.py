"""A link between clients and one server that tests can cut, slow down, throttle, leave half open, break in
the middle of a frame, or (Kafka only) keep one kind of request back on.

A broker tells its clients its own address, and they would go round a proxy. So it has a second listener whose
advertised address is the proxy's (``LinkedNode``): who comes in through the proxy stays on it, whoever comes
in directly does not.

Requests are told apart by their header (Kafka's protocol guide): 4 bytes of size, then the API's key in 2. A
request that is kept back goes to the broker when it is let go, even when its client is gone by then: as a
packet that was long on its way.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kafka_nodes import own_node
from ports import free_ports

from hub.config import Settings
from hub.embedded import KafkaNode

PRODUCE, FETCH, OFFSET_COMMIT, END_TXN, TXN_OFFSET_COMMIT = 0, 1, 8, 26, 28
_CHUNK = 1 << 16


class Link:
    """Listens on ``port`` of this machine and leads to ``upstream``. Thread safe; close it.

    ``framed``: the requests are Kafka's, and are told apart; otherwise bytes are passed on as they come.
    """

    def __init__(self, port: int, upstream: int, *, framed: bool = True) -> None:
        self.port, self.upstream, self.framed = port, upstream, framed
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        """Limit for each direction of each connection; 0: no limit."""
        self.seen: Counter[int] = Counter()
        """Requests by the key of their API, as they came."""
        self._lock = threading.Condition()
        self._refuses = self._swallows = False
        self._held: frozenset[int] = frozenset()
        self._open: set[socket.socket] = set()
        self._dead: set[socket.socket] = set()
        self._halved: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        threading.Thread(target=self._accept, name=f"link.{port}", daemon=True).start()

    # ---- what a test does

    def cut(self) -> None:
        """Break every connection, and refuse new ones until ``heal``."""
        with self._lock:
            self._refuses = True
            self._break()

    def half_open(self) -> None:
        """Drop all data in both directions without closing anything: on open connections forever, on new ones
        until ``heal``.
        """
        with self._lock:
            self._swallows = True
            self._dead |= self._open

    def cut_in_frame(self) -> None:
        """Each open connection passes on half of the next piece that comes on it, and breaks."""
        with self._lock:
            self._halved |= self._open

    def hold(self, *apis: int) -> None:
        """Hold requests of these kinds and everything after them on their connections; ``heal`` releases
        them.
        """
        with self._lock:
            self._held = frozenset(apis)

    def heal(self) -> None:
        with self._lock:
            self._refuses = self._swallows = False
            self._held, self.delay_s, self.bytes_per_s = frozenset(), 0.0, 0.0
            self._halved.clear()
            self._lock.notify_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._break()
            self._lock.notify_all()
        self._listener.close()

    # ---- the threads

    def _break(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._refuses:
                    client.close()
                    continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.upstream), 5.0)
                broker.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, broker}
                if self._swallows:
                    self._dead |= {client, broker}
            for pump in (self._requests, self._answers):
                threading.Thread(target=self._pump, args=(pump, client, broker), daemon=True).start()

    def _pump(self, pump: object, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            pump(client, broker)  # type: ignore[operator]
        requests = pump == self._requests
        # When a client disconnects, the data that it has sent still arrives; when a broker disconnects, both
        # ends close.
        ends = (client, broker)
        for each in ends if requests or broker not in self._dead else ():
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if requests:
            with self._lock:
                self._open -= {*ends}
                self._dead -= {*ends}
                self._halved -= {*ends}
            for each in ends:
                each.close()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        while not self.framed and (said := client.recv(_CHUNK)):
            self._pass(said, broker)
        while self.framed:
            self._pass(self._next_request(client), broker)

    def _next_request(self, client: socket.socket) -> bytes:
        """A request with its size, once it is not kept back."""
        head = exactly(client, 4)
        (size,) = struct.unpack(">i", head)
        frame = head + exactly(client, size)
        (api,) = struct.unpack_from(">h", frame, 4)
        self.seen[api] += 1
        self._wait_for(api)
        return frame

    def _wait_for(self, api: int) -> None:
        with self._lock:
            self._lock.wait_for(lambda: api not in self._held or self._closed)

    def _answers(self, client: socket.socket, broker: socket.socket) -> None:
        while said := broker.recv(_CHUNK):
            self._pass(said, client)

    def _pass(self, content: bytes, to: socket.socket) -> None:
        if pause_s := self.delay_s + (len(content) / self.bytes_per_s if self.bytes_per_s else 0.0):
            time.sleep(pause_s)
        if to in self._halved:
            to.sendall(content[: len(content) // 2])
            raise OSError("cut in the middle of a frame")
        if to not in self._dead:
            to.sendall(content)


def exactly(of: socket.socket, size: int) -> bytes:
    made = bytearray()
    while len(made) < size:
        more = of.recv(min(size - len(made), 1 << 20))
        if not more:
            raise OSError("closed")
        made += more
    return bytes(made)


class LinkedNode(KafkaNode):
    """A Kafka with a second listener, reached through ``link``."""

    def __init__(self, settings: Settings, kind: type[Link] = Link) -> None:
        super().__init__(settings)
        self.behind, port = free_ports(2)
        self.link = kind(port, self.behind)
        self.through = f"127.0.0.1:{port}"

    def prepare(self) -> list[str]:
        command = super().prepare()
        properties = self.folder / "server.properties"
        told = dict(line.split("=", 1) for line in properties.read_text().splitlines() if "=" in line)
        told["listeners"] += f",LINKED://127.0.0.1:{self.behind}"
        told["advertised.listeners"] += f",LINKED://{self.through}"
        told["listener.security.protocol.map"] = ",".join(
            f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", "LINKED")
        )
        told["inter.broker.listener.name"] = "PLAINTEXT"
        properties.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        return command

    def stop(self) -> None:
        self.link.close()
        super().stop()


@contextlib.contextmanager
def linked_node(home: Path) -> Iterator[LinkedNode]:
    with own_node(home, LinkedNode) as made:
        yield made
