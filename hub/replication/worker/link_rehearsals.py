"""[shell] Rehearsals of one link on the worker that holds its tasks: begun when due, in a thread of their
own, because a large map takes minutes to read; recorded by the tasks' fenced writer, so that a worker that
lost the link records nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from hub.log import Writer
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.rehearsals import Rehearsal, of_link
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.links import Link
from hub.replication.rehearsal.attempt import rehearse
from hub.replication.rehearsal.decision import decide, interrupted
from hub.replication.status.rehearsal_status import waits_for
from hub.times import epoch_ms

log = logging.getLogger(__name__)

EVERY_S = 2.0


class LinkRehearsals:
    """Rehearsals of a link; see the module. ``worker``: name of this worker."""

    def __init__(
        self, file: MirrorsFile, link: Link, clusters: Mapping[str, ClusterHandle], worker: str
    ) -> None:
        self.file, self.link, self.clusters, self.worker = file, link, clusters, worker
        self._looked_at_s = -EVERY_S
        self._running: Rehearsal | None = None
        self._thread: threading.Thread | None = None
        self._result: Rehearsal | None = None

    def step(
        self, open_writer: Callable[[], Writer], board: Callable[[], ControlState], now_s: float
    ) -> None:
        """Record a result, or begin a rehearsal that is due; looks every ``EVERY_S``. The state is read after
        the writer is open, because opening it ends what a former holder of the link writes. Raises their
        errors.
        """
        schedule = self.link.mirror.rehearse
        if schedule is None or now_s - self._looked_at_s < EVERY_S:
            return
        self._looked_at_s = now_s
        writer, now_ms = open_writer(), epoch_ms()
        if self._running is not None:
            self._record(writer, self._running, now_ms)
        elif self._thread is None or not self._thread.is_alive():  # one that was too late may still read
            state = board()
            rehearsals = of_link(state.rehearsals, self.link.name)
            waits = bool(waits_for(state, self.link))
            decision = decide(schedule, rehearsals, self.link.name, self.worker, now_ms, waits=waits)
            if decision.records:
                writer.append(decision.records)
            if decision.begin is not None:
                self._begin(decision.begin)

    def _record(self, writer: Writer, one: Rehearsal, now_ms: int) -> None:
        """Record the result of the rehearsal that runs, once there is one or it is too late."""
        late = now_ms > one.until_ms
        rehearsal = interrupted(one, "it was not complete in time", now_ms) if late else self._result
        if rehearsal is not None:
            writer.append([rehearsal.record()])
            log.info(
                "%s: rehearsal %s in %d ms %s",
                one.link,
                rehearsal.state,
                rehearsal.took_ms or 0,
                rehearsal.reason,
            )
            self._running = self._result = None

    def _begin(self, one: Rehearsal) -> None:
        def run() -> None:
            try:
                rehearsal = rehearse(self.file, self.clusters, self.link, one)
            except Exception as error:
                log.exception("%s: rehearsal", self.link.name)
                rehearsal = interrupted(one, f"an error of the hub itself: {error!r}", epoch_ms())
            if self._running is one:
                self._result = rehearsal

        self._running, self._result = one, None
        self._thread = threading.Thread(target=run, name=f"{self.link.name}.rehearsal", daemon=True)
        self._thread.start()
