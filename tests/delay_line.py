"""A link as long as an ocean: what is sent arrives a fixed time later, and much may be under way at once.

``Link`` waits with each piece in hand, so at 50 ms it passes 20 pieces a second. A delay line takes pieces as
they come and delivers each of them ``delay_s`` later, as a cable does. A round trip is twice ``delay_s``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque

from link_proxy import Link, LinkedNode

from hub.config import Settings

WINDOW_BYTES = 64 << 20
"""Bytes under way at most in one direction of a connection; a sender waits beyond that."""


class _Pipe:
    """Pieces on their way to one socket."""

    def __init__(self, line: DelayLine, to: socket.socket) -> None:
        self.line, self.to = line, to
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.free_at_s = 0.0
        self.over = False
        self.changed = threading.Condition()
        threading.Thread(target=self._deliver, daemon=True).start()

    def put(self, content: bytes) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.size < WINDOW_BYTES or self.over)
            if self.over:
                raise OSError("closed")
            sent_at_s = time.monotonic()
            if self.line.bytes_per_s:
                sent_at_s = max(sent_at_s, self.free_at_s) + len(content) / self.line.bytes_per_s
                self.free_at_s = sent_at_s
            self.pieces.append((sent_at_s + self.line.delay_s, content))
            self.size += len(content)
            self.changed.notify_all()

    def drain(self) -> None:
        """Wait until everything has arrived, and end the pipe."""
        with self.changed:
            self.changed.wait_for(lambda: not self.pieces or self.over, 30.0)
            self.over = True
            self.changed.notify_all()

    def _deliver(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: bool(self.pieces) or self.over)
                if not self.pieces or self.line.broken(self.to):
                    self.over = True
                    self.changed.notify_all()
                    return
                at_s, content = self.pieces[0]
                while (left_s := at_s - time.monotonic()) > 0:
                    self.changed.wait(left_s)
            with contextlib.suppress(OSError):
                self.line.arrive(content, self.to)
            with self.changed:
                self.pieces.popleft()
                self.size -= len(content)
                self.changed.notify_all()


class DelayLine(Link):
    """A ``Link`` with ``delay_s`` from end to end and ``WINDOW_BYTES`` of room. ``bytes_per_s`` caps each
    direction of each connection.
    """

    def __init__(self, port: int, upstream: int) -> None:
        self._pipes: dict[socket.socket, _Pipe] = {}
        super().__init__(port, upstream)

    def broken(self, to: socket.socket) -> bool:
        """Return whether nothing can arrive there any more."""
        return to.fileno() < 0

    def arrive(self, content: bytes, to: socket.socket) -> None:
        if to in self._halved:
            to.sendall(content[: len(content) // 2])
            to.shutdown(socket.SHUT_RDWR)
        elif to not in self._dead:
            to.sendall(content)

    def _pass(self, content: bytes, to: socket.socket) -> None:
        self._pipe(to).put(content)

    def _pipe(self, to: socket.socket) -> _Pipe:
        if to not in self._pipes:  # only one thread passes to one socket
            self._pipes[to] = _Pipe(self, to)
        return self._pipes[to]

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            super()._requests(client, broker)
        finally:
            self._end(broker)

    def _answers(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            super()._answers(client, broker)
        finally:
            self._end(client)

    def _end(self, to: socket.socket) -> None:
        pipe = self._pipes.pop(to, None)
        if pipe is not None and not self._refuses:
            pipe.drain()


class FarNode(LinkedNode):
    """A Kafka with a second listener, reached through a delay line."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, DelayLine)
