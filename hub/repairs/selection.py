"""[core] The range of a repair: from one place of the log up to another one, given as offsets or times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.errors import CallerError
from hub.record import Positions, Record
from hub.repairs.model import GenerationChange, PartitionOffsets
from hub.topics.browse.times import time_ms

_HINT = "use an offset, a time such as 2026-01-31T12:00, or how long ago: 15m"


class TimedLog(Protocol):
    """Cluster calls that this module needs."""

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions: ...

    def end_offsets(self, topics: Sequence[str]) -> Positions: ...


@dataclass(frozen=True, slots=True)
class RepairRange:
    """Positions in the topic. ``start``: of the first record of each partition; a missing one is the
    beginning. ``end``: after the last one; None: up to the end, new records too.
    """

    start: Positions = Positions()
    end: Positions | None = None

    def selects(self, record: Record) -> bool:
        """Return whether a record of the topic is in the range."""
        tp = record.topic_partition
        return record.offset >= self.start.get(tp) and (self.end is None or record.offset < self.end.get(tp))

    @classmethod
    def of_change(cls, topic: str, change: GenerationChange) -> RepairRange:
        """Return the range of a change that is under way."""

        def positions(offsets: PartitionOffsets) -> Positions:
            return Positions.of((topic, int(place), at) for place, at in offsets.items())

        end = None if change.range_end is None else positions(change.range_end)
        return cls(positions(change.range_start), end)

    def __str__(self) -> str:
        return f"from {self.start or 'the beginning'} to {'the end' if self.end is None else self.end}"


def range_of(cluster: TimedLog, topic: str, since: str, until: str, now_ms: int) -> RepairRange:
    """Return the range between two places, "" for the beginning and the end. An offset is one of each
    partition; the record at ``until`` is not in the range. Raises CallerError, NotFound, PeerError.
    """
    ends = cluster.end_offsets([topic])

    def positions(text: str) -> Positions:
        if text.isdecimal() and len(text) <= 18:
            return Positions({tp: int(text) for tp, _ in ends})
        found = cluster.offsets_at([topic], time_ms(text, now_ms, _HINT))
        return Positions({tp: found.get(tp, end) for tp, end in ends})

    start = positions(since.strip()) if since.strip() else Positions()
    end = positions(until.strip()) if until.strip() else None
    if end is not None and all(end.get(tp) <= start.get(tp) for tp, _ in ends):
        raise CallerError(f'topic "{topic}": the range ends before it begins', hint=_HINT)
    return RepairRange(start, end)
