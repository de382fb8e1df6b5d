"""Free ports for tests: `from ports import free_pair, free_ports`.

Ports are below the range for outgoing connections, which could take one before it is used. Each process of a
run has a range of its own.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator

_FIRST, _RANGE, _WORKERS = 12_000, 5_000, 4


def _candidates() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    first = _FIRST + worker * _RANGE
    return itertools.islice(
        itertools.cycle(range(first, first + _RANGE)), random.SystemRandom().randrange(_RANGE), None
    )


_next_ports = _candidates()


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens now, none of them returned before."""
    return [next(port for port in _next_ports if _is_free(port)) for _ in range(count)]


def free_pair() -> int:
    """A port that is free together with the next one (Kafka's broker and controller)."""
    while True:
        first, second = free_ports(2)
        if second == first + 1:
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
