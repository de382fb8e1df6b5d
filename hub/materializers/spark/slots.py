"""[core] Task slots of one Spark session: who holds how many, and how many it needs.

A view in real-time mode holds a slot for each partition of its sources and each partition of its state, and keeps them
between batches; with one too few it would wait for itself for ever. Micro-batches share what is left. A slot of a local
Spark is a thread and not a core, so the session is made as wide as its views need: ``foresee`` says so before it starts,
``claim`` while it runs, and when that is more than it has, ``wanted`` tells the process to open a wider one.

Slots are held by views, not by their versions: the version that is served runs in real time, the others in micro-batches.
So a version beside needs none, and a swap hands them over: ``enter`` is refused until the other one has ``left``.
"""

from __future__ import annotations

import re
import threading

from hub.errors import ConfigError, PeerError

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*\d+)?\])?$")


def local_slots(master: str, cores: int) -> int | None:
    """Slots of a ``local[N]`` master; None for a cluster, whose workers say how many they have."""
    found = _LOCAL.match(master)
    if found is None:
        return None
    given = found.group(1) or "1"
    return cores if given == "*" else int(given)


class Slots:
    """The ledger. ``shared`` stay free for micro-batches; ``most`` is the limit of a local session, None: a cluster's,
    which cannot be made wider. Thread-safe."""

    def __init__(self, capacity: int, shared: int, most: int | None) -> None:
        self.capacity = capacity
        self.shared = shared
        self.most = most
        self._held: dict[str, int] = {}
        self._inside: dict[str, str] = {}  # by view, the version that runs in its slots
        self._lock = threading.Lock()

    @property
    def wanted(self) -> int:
        """Slots that the claims made so far need, those for micro-batches included."""
        with self._lock:
            return self.shared + sum(self._held.values())

    def foresee(self, view: str, sources: int, state: int) -> None:
        """Count a view in before the session starts; one that can never fit is left to its claim."""
        with self._lock:
            others = sum(held for name, held in self._held.items() if name != view)
            if self.most is None or others + sources + state + self.shared <= self.most:
                self._held[view] = sources + state

    def widen(self) -> int:
        """The width of the next local session, at least what it was."""
        self.capacity = max(self.capacity, self.wanted)
        return self.capacity

    def claim(self, view: str, sources: int, state: int) -> None:
        """Hold the slots of a view's ``sources`` and ``state`` partitions, instead of what it held before.

        Raises ConfigError (HUB-2109) when they cannot be had, PeerError (HUB-3054) while a wider session is opened.
        """
        with self._lock:
            self._held.pop(view, None)
            total = sources + state
            others = self._room(view, sources, state)
            self._held[view] = total
            if others + total > self.capacity:
                raise PeerError(
                    f'view "{view}": Spark starts again with {others + total} task slots',
                    hint="once: real-time mode holds a slot a partition",
                    code="HUB-3054",
                )

    def check(self, view: str, sources: int, state: int) -> None:
        """Raises ConfigError (HUB-2109) when the view could not hold so many instead of what it holds; holds nothing."""
        with self._lock:
            self._room(view, sources, state)

    def _room(self, view: str, sources: int, state: int) -> int:
        """How many are others', those for micro-batches included. Raises ConfigError when the view's do not fit beside."""
        limit = self.capacity if self.most is None else max(self.most, self.capacity)
        others = sum(held for name, held in self._held.items() if name != view) + self.shared
        if others + sources + state > limit:
            setting = "give the cluster more cores" if self.most is None else "raise spark_slots_most"
            raise ConfigError(
                f'view "{view}": real-time mode holds a task slot for each of {sources} source partitions and {state} '
                f"state partitions, {sources + state} in all; {max(0, limit - others)} of Spark's {limit} are free",
                hint=f"{setting}, or write `mode: live`",
                code="HUB-2109",
            )
        return others

    def release(self, view: str) -> None:
        """The view holds none any more."""
        with self._lock:
            self._held.pop(view, None)

    def enter(self, view: str, version: str) -> bool:
        """Run a version in its view's slots; False while another version of it does."""
        with self._lock:
            return self._inside.setdefault(view, version) == version

    def leave(self, view: str, version: str) -> None:
        """The version's query has ended."""
        with self._lock:
            if self._inside.get(view) == version:
                del self._inside[view]

    def open_to(self, view: str, version: str) -> bool:
        """Whether ``enter`` would be granted now."""
        with self._lock:
            return self._inside.get(view, version) == version
