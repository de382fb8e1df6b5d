"""[edge] HTTP load with raw sockets and prepared bytes; measures every request. One thread, meant for a
process of its own.

Without a rate, each connection sends its next request as soon as the last one is answered: this shows the
server's throughput; its latencies mean little. With a rate, requests are due at fixed times whether or not
earlier ones are answered, and a latency counts from the time when the request was *due*, so a server that
stalls is charged for the requests that queue.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

STALLED_S = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """A job for the generator. ``requests`` are sent in turn: each once if ``seconds`` is None, else
    repeatedly for that time. ``rate`` is in requests a second over all connections; with ``keep_bodies`` the
    answers are kept.
    """

    port: int
    requests: Sequence[bytes]
    connections: int = 1
    seconds: float | None = None
    rate: float | None = None
    keep_bodies: bool = False


@dataclass(slots=True)
class Load:
    """Result of a job. ``bodies`` and ``statuses`` are in the order of the requests, ``latencies_s`` in the
    order of the answers; a broken connection has status 0. ``late_s``: delay of the generator for requests
    that were due while it had a free connection. ``cpu_s`` is the generator's own CPU time: if it is near
    ``wall_s``, the generator was the bottleneck.
    """

    latencies_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def refused(self) -> int:
        return sum(status != 200 for status in self.statuses)


class _Connection:
    __slots__ = ("buffer", "due_at", "free_at", "number", "port", "socket")

    def __init__(self, port: int) -> None:
        self.port, self.buffer, self.number = port, b"", 0
        self.due_at = self.free_at = 0.0
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self.socket.fileno()


def request(method: str, path: str, body: bytes | None = None) -> bytes:
    """The bytes of a request on a connection that stays open."""
    media = "application/vnd.schemaregistry.v1+json"
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {media}\r\n"
    if body is not None:
        head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


def answer(received: bytes) -> tuple[int, bytes] | None:
    """Return (status, body) once the answer is complete, else None."""
    head = received.find(b"\r\n\r\n")
    if head < 0:
        return None
    fields = received[: head + 2].lower()
    at = fields.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(fields[at + 17 : fields.find(b"\r\n", at + 17)])
        if len(received) < head + 4 + length:
            return None
        return int(received[9:12]), received[head + 4 :]
    if b"\r\ntransfer-encoding: chunked" not in fields:
        raise ValueError(f"an answer without a length: {received[:200]!r}")
    body, rest = b"", received[head + 4 :]
    while True:
        size, line, rest = rest.partition(b"\r\n")
        if not line:
            return None
        length = int(size.split(b";")[0], 16)
        if len(rest) < length + 2:
            return None
        if length == 0:
            return int(received[9:12]), body
        body, rest = body + rest[:length], rest[length + 2 :]


def run(job: Job) -> Load:
    """Carry the job out. Raises TimeoutError when nothing is answered for a minute."""
    load = Load()
    gc.disable()
    try:
        _run(job, load)
    finally:
        gc.enable()
    return load


def _run(job: Job, load: Load) -> None:
    idle = deque(_Connection(job.port) for _ in range(job.connections))
    asked: set[_Connection] = set()
    asked_for = _count(job)
    bodies: dict[int, bytes] = {}
    statuses: dict[int, int] = {}
    number, cpu, began_at = 0, time.process_time(), time.perf_counter()
    heard_at = began_at
    while True:
        now = time.perf_counter()
        more = number < asked_for if asked_for is not None else now - began_at < (job.seconds or 0.0)
        while more and idle:
            due_at = now if job.rate is None else began_at + number / job.rate
            if due_at > now:
                break
            connection = idle.popleft()
            connection.due_at, connection.number = due_at, number
            connection.socket.sendall(job.requests[number % len(job.requests)])
            asked.add(connection)
            number += 1
            if job.rate is not None:
                load.late_s.append(now - max(due_at, connection.free_at))
            more = asked_for is None or number < asked_for
        if not asked and not more:
            break
        pause = 1.0
        if more and idle and job.rate is not None:
            pause = max(0.0, began_at + number / job.rate - time.perf_counter())
        # Not epoll: its time-outs are whole milliseconds in effect, and latencies of one are measured here.
        readable, _, _ = select.select(asked, (), (), pause)
        for connection in readable:
            try:
                received = connection.socket.recv(65_536)
            except ConnectionResetError:
                received = b""
            connection.buffer += received
            told = answer(connection.buffer) if received else (0, b"")
            if told is None:
                continue
            heard_at = time.perf_counter()
            load.latencies_s.append(heard_at - connection.due_at)
            statuses[connection.number] = told[0]
            if job.keep_bodies:
                bodies[connection.number] = told[1]
            connection.buffer, connection.free_at = b"", heard_at
            asked.discard(connection)
            if not received:
                connection.socket.close()
                connection.open()
            idle.append(connection)
        if time.perf_counter() - heard_at > STALLED_S and asked:
            raise TimeoutError(f"no answer for {STALLED_S:.0f} s: {job.requests[0][:100]!r}")
    load.wall_s, load.cpu_s = time.perf_counter() - began_at, time.process_time() - cpu
    load.statuses = [statuses[each] for each in sorted(statuses)]
    load.bodies = [bodies[each] for each in sorted(bodies)]
    for connection in idle:
        connection.socket.close()


def _count(job: Job) -> int | None:
    """Return the number of requests of the job; None if its time limits it."""
    if job.seconds is None:
        return len(job.requests)
    return None if job.rate is None else int(job.seconds * job.rate)
