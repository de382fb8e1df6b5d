"""[core] Task slots of one Spark session: how many each view holds, and how many are needed.

A view in real-time mode holds a slot for each partition of its sources and each partition of its state, and
keeps them between batches. With one slot too few it would wait for itself forever. Micro-batches share the
other slots. A slot of a local Spark is a thread and not a core, so the session is made as wide as its views
need: ``foresee`` counts views before it starts, ``claim`` while it runs. If more slots are needed than it
has, ``wanted`` tells the process to open a wider session.

Slots belong to views, not to versions: the served version runs in real time, the others in micro-batches. So
a version that is built needs none, and a swap passes them on: ``enter`` is refused until the other version
has called ``leave``.
"""

from __future__ import annotations

import re
import threading

from hub.errors import ConfigError, PeerError

# Code of the error of a view that waits until a wider session is open.
WIDENS = "HUB-3065"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*\d+)?\])?$")


def local_slots(master: str, cores: int) -> int | None:
    """Return the slots of a ``local[N]`` master; None for a cluster, whose workers define the number."""
    match = _LOCAL.match(master)
    if match is None:
        return None
    given = match.group(1) or "1"
    return cores if given == "*" else int(given)


class Slots:
    """Ledger of slots. ``shared``: kept free for micro-batches. ``most``: limit of a local session, None for
    a cluster. Thread-safe.

    A cluster's session cannot be made wider.
    """

    def __init__(self, capacity: int, shared: int, most: int | None) -> None:
        self.capacity = capacity
        self.shared = shared
        self.most = most
        self._held: dict[str, int] = {}
        self._inside: dict[str, str] = {}  # by view, the version that runs in its slots
        self._lock = threading.Lock()

    @property
    def wanted(self) -> int:
        """Slots needed by all claims so far, including those for micro-batches."""
        with self._lock:
            return self.shared + sum(self._held.values())

    def foresee(self, view: str, sources: int, state: int) -> None:
        """Count a view before the session starts. A view that can never fit is not counted; its claim is
        refused."""
        with self._lock:
            others = sum(held for name, held in self._held.items() if name != view)
            if self.most is None or others + sources + state + self.shared <= self.most:
                self._held[view] = sources + state

    def widen(self) -> int:
        """Return the width of the next local session, at least the current one."""
        self.capacity = max(self.capacity, self.wanted)
        return self.capacity

    def claim(self, view: str, sources: int, state: int) -> None:
        """Hold the slots of a view's ``sources`` and ``state`` partitions, instead of those that it held
        before.

        Raises ConfigError (HUB-2109) when there are not enough, PeerError (HUB-3065) while a wider session is
        opened.
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
                    code=WIDENS,
                )

    def check(self, view: str, sources: int, state: int) -> None:
        """Raise ConfigError (HUB-2109) if the view could not hold these slots instead of its current ones.
        Holds nothing."""
        with self._lock:
            self._room(view, sources, state)

    def _room(self, view: str, sources: int, state: int) -> int:
        """Return the slots held by others, including those for micro-batches. Raises ConfigError when the
        view's do not fit."""
        limit = self.capacity if self.most is None else max(self.most, self.capacity)
        others = sum(held for name, held in self._held.items() if name != view) + self.shared
        if others + sources + state > limit:
            setting = "give the cluster more cores" if self.most is None else "raise spark_slots_most"
            raise ConfigError(
                f'view "{view}": real-time mode holds a task slot for each of {sources} source '
                f"partitions and {state} "
                f"state partitions, {sources + state} in all; {max(0, limit - others)} of "
                f"Spark's {limit} are free",
                hint=f"{setting}, or write `mode: live`",
                code="HUB-2109",
            )
        return others

    def release(self, view: str) -> None:
        """Release all slots of a view."""
        with self._lock:
            self._held.pop(view, None)

    def enter(self, view: str, version: str) -> bool:
        """Let a version run in its view's slots. Return False while another version runs in them."""
        with self._lock:
            return self._inside.setdefault(view, version) == version

    def leave(self, view: str, version: str) -> None:
        """Note that the version's query has ended."""
        with self._lock:
            if self._inside.get(view) == version:
                del self._inside[view]

    def open_to(self, view: str, version: str) -> bool:
        """Return True if ``enter`` would succeed now."""
        with self._lock:
            return self._inside.get(view, version) == version
