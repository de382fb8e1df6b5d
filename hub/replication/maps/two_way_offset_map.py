"""[core] Offset map of a topic that was written on two sides in turn: the maps of both directions as one
table.

After a failover records are born at the target and mirrored back; then every record is in at most one run of
either map, and a reader's position on the other side follows from both together::

    home  h0 h1 h2 h3 (t0 t1)            forward  (0→0, 3)         h3 was not mirrored when home failed
    away  h0 h1 h2 t0 t1 (h3)            back     (3→4, 2)         and was carried later: forward (3→5, 1)

The position on the other side is that of the first record there that the reader has not read: the smallest of
the other offsets of all records at or after its position here. Where both sides have the same order that is
exact. Where they do not (home's tail above), some records are read again, none is skipped, and the number of
repeated records is reported.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hub.replication.maps.offset_map import OffsetMap, Run, Translation


@dataclass(frozen=True, slots=True)
class _Direction:
    """Runs in ascending order of the near side; ``least[i]``: the smallest far offset of run i and all after
    it.
    """

    runs: Sequence[Run]
    starts: Sequence[int]
    least: Sequence[int]
    near_start: int
    near_next: int
    far_next: int

    @classmethod
    def of(cls, runs: Iterable[Run], near_next: int, far_next: int) -> _Direction:
        ordered = sorted(runs)
        least = [far_next]
        for run in reversed(ordered):
            least.append(min(least[-1], run.target))
        starts = [run.source for run in ordered]
        begin = starts[0] if starts else near_next
        return cls(ordered, starts, least[::-1], begin, near_next, far_next)

    def translate(self, offset: int) -> Translation:
        if offset > self.near_next:
            return Translation("pending", self.far_next, offset - self.near_next)
        at = bisect_right(self.starts, offset) - 1
        inside = at >= 0 and offset < self.runs[at].source_end
        first = at if inside else at + 1
        ahead = self.runs[at].target + offset - self.runs[at].source if inside else self.far_next
        found = min(ahead, self.least[first + 1] if inside else self.least[first])
        again = self.read_again(offset, found)
        if again:
            return Translation("bounded", found, again)
        if inside or offset == self.near_next:
            return Translation("exact", found)
        if offset < self.near_start:
            return Translation("clamped_low", found, self.near_start - offset)
        return Translation("hole", found)

    def read_again(self, offset: int, far_from: int) -> int:
        """Count the records before ``offset`` on this side that are at ``far_from`` or after it
        on the other.
        """
        return sum(
            max(0, min(run.source_end, offset) - run.source - max(0, far_from - run.target))
            for run in self.runs[: bisect_right(self.starts, offset)]
            if run.target_end > far_from
        )


class TwoWayOffsetMap:
    """Offset map of both directions of one partition. ``forward`` maps home to away, ``back`` maps away to
    home.
    """

    def __init__(self, forward: OffsetMap, back: OffsetMap) -> None:
        runs = [*forward.runs, *(Run(run.target, run.source, run.count) for run in back.runs)]
        home_next = max(forward.source_next, back.target_next if len(back) else 0)
        away_next = max(forward.target_next, back.source_next if len(back) else 0)
        self._forward = _Direction.of(runs, home_next, away_next)
        self._back = _Direction.of((Run(r.target, r.source, r.count) for r in runs), away_next, home_next)

    def translate(self, home_offset: int) -> Translation:
        """Return the position away of a reader that is at ``home_offset`` at home."""
        return self._forward.translate(home_offset)

    def reverse(self, away_offset: int) -> Translation:
        """Return the position at home of a reader that is at ``away_offset`` away."""
        return self._back.translate(away_offset)

    def read_again(self, home_offset: int, away_from: int) -> int:
        """Count the records that a reader at ``home_offset`` at home gets again when it continues away at
        ``away_from``.
        """
        return self._forward.read_again(home_offset, away_from)


def foreign_ranges(back: OffsetMap, first: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of home offsets in [first, end) that the mirror back wrote: a mirror forward leaves
    them out.
    """
    runs = back.runs
    ends = [run.target_end for run in runs]
    found: list[tuple[int, int]] = []
    for run in runs[bisect_left(ends, first + 1) :]:
        if run.target >= end:
            break
        found.append((max(first, run.target), min(end, run.target_end)))
    return found
