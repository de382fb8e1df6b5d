"""An in-memory log whose writers fail on request."""

from __future__ import annotations

from collections.abc import Sequence

from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryWriter
from hub.record import NewRecord, Positions


class FailingCluster(MemoryCluster):
    """An in-memory cluster whose appends fail. ``failures``: for the next appends, "before" or "after" the
    records are written; any other value means success.
    """

    failures: list[str]

    def writer(self, name: str | None = None) -> MemoryWriter:
        made = super().writer(name)
        return _FailingWriter(made.cluster, made.name, made.epoch)


class _FailingWriter(MemoryWriter):
    def append(self, records: Sequence[NewRecord]) -> Positions:
        assert isinstance(self.cluster, FailingCluster)
        said = self.cluster.failures.pop(0) if self.cluster.failures else ""
        if said == "before":
            raise PeerError("the outcome is unknown")
        after = super().append(records)
        if said == "after":
            raise PeerError("the outcome is unknown")
        return after
