"""[shell] Follower of one cluster's control and status topics, in a thread of its own.

A cluster that does not answer blocks only this thread. ``catch_up`` is for callers that need current state:
it returns when everything that was written before the call has been read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hub.errors import HubError, NotFound, PeerError
from hub.record import Positions
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import STATUS_TOPIC
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.ownership.failover import Control
from hub.runtime import Backoff
from hub.times import epoch_ms

log = logging.getLogger(__name__)
T = TypeVar("T")
_POLL_S = 0.2


class ControlFollower(threading.Thread):
    """Thread that folds the topics into a ``ControlState``. Thread safe. ``status`` False: only the control
    topic (of a cluster that no mirror of this worker leads to).
    """

    def __init__(self, reached: ClusterHandle, *, status: bool = True) -> None:
        super().__init__(name=f"listener.{reached.name}", daemon=True)
        self.reached = reached
        self.topics = [CONTROL_TOPIC, STATUS_TOPIC] if status else [CONTROL_TOPIC]
        self.trouble = ""
        self._board = ControlState()
        self._position = Positions()
        self._caught_up = False
        self._anew = False
        self._news = threading.Condition()
        self._halt = threading.Event()

    @property
    def caught_up(self) -> bool:
        """True once everything was read that the topics had at the start."""
        return self._caught_up

    @property
    def control(self) -> Control:
        with self._news:
            return self._board.control

    def ask(self, question: Callable[[ControlState], T]) -> T:
        """Evaluate ``question`` on the control state under the lock. The result must not refer to mutable
        parts of it.
        """
        with self._news:
            return question(self._board)

    def catch_up(self, timeout_s: float = 10.0) -> None:
        """Wait until everything that was written before the call is read. Raises PeerError. A cluster without
        the topics counts as read.
        """
        try:
            wanted = self.reached.kafka.end_offsets([CONTROL_TOPIC], committed=False)
        except NotFound:
            return
        deadline = time.monotonic() + timeout_s
        with self._news:
            while not self._position.covers(wanted):
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(min(left, 1.0)):
                    if time.monotonic() < deadline:
                        continue
                    raise PeerError(
                        f'cluster "{self.reached.name}": its control topic is not read up to its end',
                        hint=self.trouble or None,
                        code="HUB-3613",
                    )

    def reconnect(self) -> None:
        """Continue over a new connection: the current one gives neither records nor errors."""
        self._anew = True

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        backoff = Backoff(0.2, 10.0)
        while not self._halt.is_set():
            try:
                self._listen()
                backoff.reset()
            except HubError as error:
                self.trouble = error.message
                if not isinstance(error, NotFound):  # the first plan creates its topics
                    log.warning("%s: %s", self.name, error.message)
                self._halt.wait(
                    min(1.0, backoff.next_s()) if isinstance(error, NotFound) else backoff.next_s()
                )

    def _listen(self) -> None:
        kafka, self._anew = self.reached.kafka, False
        ends = kafka.end_offsets(self.topics, committed=False)
        begins = kafka.beginning_offsets(self.topics)
        reader = kafka.reader(queue_kb=8_192)
        try:
            reader.assign(Positions({tp: max(begins.get(tp), self._position.get(tp)) for tp, _ in ends}))
            while not self._halt.is_set() and not self._anew:
                records = reader.poll(5_000, _POLL_S)
                now_s, now_ms = time.monotonic(), epoch_ms()
                with self._news:
                    for record in records:
                        try:
                            self._board.apply(record, now_s, now_ms)
                        except HubError as error:  # an invalid record must not stop every mirror
                            log.error("%s", error.message)
                    self._position = reader.position()
                    self._caught_up = self._caught_up or self._position.covers(ends)
                    self._news.notify_all()
                self.trouble = ""
        finally:
            reader.close()
