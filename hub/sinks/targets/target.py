"""[core] The port of targets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from hub.record import Positions
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch

Bury = Callable[[Sequence[RefusedRecord]], None]
"""Called with refused records; returns when their dead-letter records are durable. Raises HubError."""


class Target(Protocol):
    """The place where a sink's events go. Used by one thread.

    Methods raise PeerError while the target does not answer, ConfigError or CallerError while it cannot be
    used as declared; the sink then begins again at its position.
    """

    def positions(self, first: Positions) -> Positions:
        """Return the positions that the target holds, for the partitions of ``first``; where it holds none,
        those of ``first``, which it holds from now on if it can.
        """

    def deliver(self, batch: SinkBatch, stop: threading.Event, bury: Bury) -> Delivered:
        """Deliver a batch, which may be empty. Ends early, with fewer positions, when ``stop`` is set.

        ``bury``: a target that holds positions calls it before it moves past records that it refuses.
        """

    def close(self) -> None: ...


ReportRetry = Callable[[str], None]
"""Called with the trouble of a target that is being retried; "" once it takes events again."""
