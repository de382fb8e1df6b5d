"""[shell] Refresh the cluster's health: one thread fetches the placement of partitions and, less often,
brokers' folders.

Readers never wait for it. It uses at most a twentieth of the time, so a large estate is polled less often.
Brokers are queried for their folders in parallel, so that a hang of one delays no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Protocol

from hub.errors import HubError
from hub.kafka.log_dirs import log_dirs
from hub.log import LogDir, Placement
from hub.observability.cluster.health import Health, health_of
from hub.observability.cluster.processes import Process, ProcessList
from hub.runtime import repeating
from hub.times import epoch_ms

EVERY_S = 5.0
DIRS_EVERY_S = 30.0
DIRS_S = 3.0
# Brokers whose folders are queried in a round; the others keep their last answers.
MOST_BROKERS = 50
_AT_ONCE = 16  # brokers
_QUIET_S = 0.2  # pause between answers after which those received so far are published
_BUSY_SHARE = 0.05

Dirs = tuple[LogDir, ...] | str  # a broker's folders, or why they are unknown


class HasPlacement(Protocol):
    def placement(self) -> Placement:
        """Return the placement. Raises PeerError."""


@dataclass
class HealthWatch:
    """Poller of the cluster's health. ``latest()`` and ``processes()`` return from memory.

    Use ``with watch.running():``.
    """

    cluster: HasPlacement
    costs: ProcessList | None = None
    ask_dirs: Callable[[str, int, float], tuple[LogDir, ...]] = log_dirs
    every_s: float = EVERY_S
    now_ms: Callable[[], int] = epoch_ms
    now_s: Callable[[], float] = time.monotonic
    _health: Health = field(default_factory=Health)
    _processes: tuple[Process, ...] = ()
    _dirs: dict[int, Dirs] = field(default_factory=dict)
    _dirs_at_s: float | None = None
    _turn: int = 0
    _turns: dict[int, int] = field(default_factory=dict)  # round of the last query, by broker
    _took_s: float = 0.0  # duration of the last answer

    @contextmanager
    def running(self) -> Iterator[HealthWatch]:
        """Poll for as long as the block runs."""
        with repeating(
            self.step,
            name="cluster-health",
            pause_s=lambda _took_s: self.pause_s(),
            failed="the cluster's health could not be asked",
        ):
            yield self

    def pause_s(self) -> float:
        """Return the pause before the next poll: ``every_s`` after one without an answer, so that recovery
        is noticed soon."""
        return max(self.every_s, self._took_s / _BUSY_SHARE - self._took_s)

    def step(self) -> None:
        """Poll once."""
        try:
            self._ask()
        finally:  # the less important part: a failure here must not keep the cluster from being polled
            if self.costs is not None:
                self._processes = tuple(self.costs.look())

    def _ask(self) -> None:
        began_s = self.now_s()
        try:
            placement = self.cluster.placement()
        except HubError as error:
            self._health, self._took_s = replace(self._health, error=error.message), 0.0
            return
        except Exception as error:  # any failure makes the previous answer stale
            self._health, self._took_s = replace(self._health, error=f"{type(error).__name__}: {error}"), 0.0
            raise
        self._took_s = self.now_s() - began_s
        # Publish the placement first: folders may take long to arrive.
        self._health = health_of(placement, self._dirs, self.now_ms())
        if self._dirs_at_s is None or self.now_s() - self._dirs_at_s >= DIRS_EVERY_S:
            for reported in self._reported_dirs(placement.brokers):
                self._dirs |= reported
                self._health = health_of(placement, self._dirs, self.now_ms())
            self._dirs_at_s = self.now_s()

    def _reported_dirs(self, brokers: Mapping[int, tuple[str, int]]) -> Iterator[dict[int, Dirs]]:
        """Yield the brokers' folders as they arrive; {} if none are left at the end."""
        for gone in self._dirs.keys() - brokers.keys():
            del self._dirs[gone]
        # Query those first whose last query is longest ago.
        self._turns = {id: turn for id, turn in self._turns.items() if id in brokers}
        some = sorted(brokers, key=lambda id: (self._turns.get(id, 0), id))[:MOST_BROKERS]
        self._turn += 1
        self._turns |= dict.fromkeys(some, self._turn)
        answers = self._query_in_parallel({id: brokers[id] for id in some})
        reported: dict[int, Dirs] = {}
        left = len(some)
        while left:
            try:
                id, answer = answers.get(timeout=_QUIET_S)
            except Empty:
                if reported:
                    yield reported
                    reported = {}
                continue
            if isinstance(answer, Exception):
                raise answer
            reported[id] = answer
            left -= 1
        yield reported

    def _query_in_parallel(
        self, brokers: Mapping[int, tuple[str, int]]
    ) -> SimpleQueue[tuple[int, Dirs | Exception]]:
        """Query the brokers in parallel. Return the queue of answers and exceptions.

        The threads are daemons: shutdown waits for no broker.
        """
        waiting: SimpleQueue[int] = SimpleQueue()
        answers: SimpleQueue[tuple[int, Dirs | Exception]] = SimpleQueue()
        for id in brokers:
            waiting.put(id)

        def ask() -> None:
            while True:
                try:
                    id = waiting.get_nowait()
                except Empty:
                    return
                answers.put((id, self._dirs_of(*brokers[id])))

        for number in range(min(len(brokers), _AT_ONCE)):
            threading.Thread(target=ask, name=f"log-dirs-{number}", daemon=True).start()
        return answers

    def _dirs_of(self, host: str, port: int) -> Dirs | Exception:
        try:
            return self.ask_dirs(host, port, DIRS_S)
        except HubError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - raised by the thread that takes the step, which tells it
            return error

    def latest(self) -> Health:
        """Return the last known health."""
        return self._health

    def processes(self) -> tuple[Process, ...]:
        """Return the hub's processes on the server's machine, as of the last poll."""
        return self._processes
