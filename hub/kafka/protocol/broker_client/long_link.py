"""[edge] Long links: how long a round trip takes, and socket buffers that hold what is under way.

A connection carries at most one window a round trip: 4 MB of buffer and 100 ms are 40 MB/s.
"""

from __future__ import annotations

import socket
from collections import deque
from pathlib import Path
from typing import Final

LONG_S: Final = 0.01
"""Round trip from which on requests are saved rather than waited for, in seconds."""
SOCKET_BUFFER_BYTES: Final = 16 * 1024 * 1024
_LAST: Final = 8
_KERNEL: Final = Path("/proc/sys/net")


class RoundTrip:
    """Length of the link to one cluster: the smallest of the last times from a request to its answer, because
    all that a broker and this machine are busy with adds to it.
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_LAST)

    def took(self, seconds: float) -> None:
        """Record one exchange."""
        self._last.append(seconds)

    @property
    def seconds(self) -> float:
        """Return the round trip in seconds; 0 while nothing was measured."""
        return min(self._last, default=0.0)


def buffer_size(most: int | None, automatic: int | None, wanted: int = SOCKET_BUFFER_BYTES) -> int | None:
    """Return the size to set a socket's buffer to, or None to leave it to the kernel.

    A buffer that is set is never enlarged again, so it is set only where more than the kernel's own largest
    is allowed. ``most``: net.core.rmem_max or wmem_max; ``automatic``: the last of tcp_rmem or tcp_wmem;
    None: unknown, as on other systems.

    >>> buffer_size(212_992, 6_291_456), buffer_size(67_108_864, 6_291_456), buffer_size(None, None)
    (None, 16777216, 16777216)
    """
    if most is None or automatic is None:
        return wanted
    size = min(most, wanted)
    return size if size > automatic else None


def widen_buffers(plain: socket.socket) -> None:
    """Let a socket's buffers grow to what a long link has under way. Raises OSError."""
    for option, most, automatic in (
        (socket.SO_RCVBUF, "core/rmem_max", "ipv4/tcp_rmem"),
        (socket.SO_SNDBUF, "core/wmem_max", "ipv4/tcp_wmem"),
    ):
        size = buffer_size(_kernel_limit(most), _kernel_limit(automatic))
        if size is not None:
            plain.setsockopt(socket.SOL_SOCKET, option, size)


def _kernel_limit(name: str) -> int | None:
    try:
        return int((_KERNEL / name).read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
