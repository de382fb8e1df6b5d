"""[shell] Keeps the cluster's health fresh: one thread asks Kafka where everything is, and now and then the brokers' folders.

Readers never wait for it. At most a twentieth of the time goes into it, so a large estate is asked more rarely.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from hub.errors import HubError
from hub.log import LogDir, Placement
from hub.observability.health import Health, health_of
from hub.observability.processes import Process, Processes
from hub.runtime import repeating
from hub.topics.log_dirs import log_dirs

log = logging.getLogger(__name__)

EVERY_S = 5.0
DIRS_EVERY_S = 30.0
DIRS_S = 3.0
# Brokers whose folders are asked in a round; the others keep what they told before.
MOST_BROKERS = 50
_BUSY_SHARE = 0.05


class HasPlacement(Protocol):
    def placement(self) -> Placement:
        """Raises PeerError."""


@dataclass
class HealthWatch:
    """Use ``with watch.running():``; ``known()`` and ``processes()`` answer at once."""

    cluster: HasPlacement
    costs: Processes | None = None
    ask_dirs: Callable[[str, int, float], tuple[LogDir, ...]] = log_dirs
    every_s: float = EVERY_S
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    now_s: Callable[[], float] = time.monotonic
    _health: Health = field(default_factory=Health)
    _processes: tuple[Process, ...] = ()
    _dirs: dict[int, tuple[LogDir, ...] | str] = field(default_factory=dict)
    _dirs_at_s: float | None = None
    _turn: int = 0
    _turns: dict[int, int] = field(default_factory=dict)  # in which round a broker's folders were asked
    _took_s: float = 0.0  # the last answer

    @contextmanager
    def running(self) -> Iterator[HealthWatch]:
        """Keep it fresh for as long as the block runs."""
        with repeating(
            self.step,
            name="cluster-health",
            pause_s=lambda _took_s: self.pause_s(),
            failed="the cluster's health could not be asked",
        ):
            yield self

    def pause_s(self) -> float:
        """Until it is asked again. Waiting for a cluster that does not answer costs nothing: that it is back shall be seen soon."""
        return max(self.every_s, self._took_s / _BUSY_SHARE - self._took_s)

    def step(self) -> None:
        """Ask once."""
        try:
            self._ask()
        finally:  # the lesser part: that it cannot be told must not keep the cluster from being asked
            if self.costs is not None:
                self._processes = tuple(self.costs.look())

    def _ask(self) -> None:
        began_s = self.now_s()
        try:
            placement = self.cluster.placement()
        except HubError as error:
            self._health, self._took_s = replace(self._health, error=error.message), 0.0
            return
        except Exception as error:  # whatever it is: what was heard before is not of now
            self._health, self._took_s = replace(self._health, error=f"{type(error).__name__}: {error}"), 0.0
            raise
        self._took_s = self.now_s() - began_s
        # First what is known at once: a folder may take its time to answer.
        self._health = health_of(placement, self._dirs, self.now_ms())
        if self._dirs_at_s is None or self.now_s() - self._dirs_at_s >= DIRS_EVERY_S:
            self._ask_dirs(placement.brokers)
            self._dirs_at_s = self.now_s()
            self._health = health_of(placement, self._dirs, self.now_ms())

    def _ask_dirs(self, brokers: Mapping[int, tuple[str, int]]) -> None:
        for gone in self._dirs.keys() - brokers.keys():
            del self._dirs[gone]
        # Of more than can be asked in a round those go first that were not asked for longest.
        self._turns = {id: turn for id, turn in self._turns.items() if id in brokers}
        some = sorted(brokers, key=lambda id: (self._turns.get(id, 0), id))[:MOST_BROKERS]
        self._turn += 1
        for id in some:
            self._turns[id] = self._turn
            host, port = brokers[id]
            try:
                self._dirs[id] = self.ask_dirs(host, port, DIRS_S)
            except HubError as error:
                self._dirs[id] = error.message

    def known(self) -> Health:
        """As last heard."""
        return self._health

    def processes(self) -> tuple[Process, ...]:
        """The hub's processes on the server's machine, as last seen."""
        return self._processes
