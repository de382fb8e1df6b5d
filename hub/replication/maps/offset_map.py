"""[core] Offset map of one partition: a table of runs that translates offsets exactly, from source to target
and back.

Inside a run ``target = source + delta``. The delta changes only at holes of the source (compaction,
transaction markers, aborted records) and at the mirror's own commit markers; so a few bytes per transaction
are a complete map and nothing is ever extrapolated::

    source   0 1 2 . . 5 6 7      runs  (0→0, 3) (5→4, 3)         "." holes: compacted, or markers
    target   0 1 2 m 4 5 6 m                                      "m" the mirror's own commit markers

Positions are next-to-read. A translated position is that of the first record that a reader there has not
read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hub.errors import HubFault
from hub.formats.table import OFFSET_MAP
from hub.varint import MalformedVarint, put_signed, put_unsigned, take_signed, take_unsigned

Kind = Literal["exact", "hole", "pending", "clamped_low", "bounded"]

_FORMAT = OFFSET_MAP.version
_MOST_RUNS = 1_000_000  # per encoded value: a transaction of 50,000 records has far fewer


class Run(NamedTuple):
    """``count`` consecutive records: the first is at offset ``source`` in the source and at ``target`` in the
    target.
    """

    source: int
    target: int
    count: int  # type: ignore[assignment]  # a tuple's own count() is of no use here

    @property
    def source_end(self) -> int:
        """Source offset after the last record."""
        return self.source + self.count

    @property
    def target_end(self) -> int:
        """Target offset after the last record."""
        return self.target + self.count

    @property
    def delta(self) -> int:
        return self.target - self.source


@dataclass(frozen=True, slots=True)
class Translation:
    """A position on the other side, and its precision.

    - ``exact``: the same record on both sides, or the end of what is mirrored on both;
    - ``hole``: there is no record at this offset; the position is that of the next record;
    - ``pending``: ahead of the mirror by ``distance`` offsets; the position is the end of what is mirrored;
    - ``clamped_low``: ``distance`` offsets before the first mapped one, which is the position;
    - ``bounded``: the two logs have their records in different orders here (two_way_offset_map.py); the
      position is before all unread records, and ``distance`` records are read again. An OffsetMap never
      returns this kind.
    """

    kind: Kind
    offset: int
    distance: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of the table: parallel columns, the mapped range [start, next), and the other
    side's end.
    """

    starts: array[int]
    others: array[int]
    counts: array[int]
    start: int
    next: int
    other_next: int

    def translate(self, offset: int) -> Translation:
        if offset > self.next:
            return Translation("pending", self.other_next, offset - self.next)
        if offset == self.next:
            return Translation("exact", self.other_next)
        at = bisect_right(self.starts, offset) - 1
        if at >= 0 and offset < self.starts[at] + self.counts[at]:
            return Translation("exact", self.others[at] + offset - self.starts[at])
        following = self.others[at + 1] if at + 1 < len(self.starts) else self.other_next
        if offset < self.start:
            return Translation("clamped_low", following, self.start - offset)
        return Translation("hole", following)


def _column() -> array[int]:
    return array("q")


@dataclass
class OffsetMap:
    """The runs of one partition, ascending on both sides, 24 bytes per run.

    ``source_start`` and ``target_start``: where mirroring began;
    ``source_next`` and ``target_next``: everything before has been mirrored or is a hole. ``OffsetMap()`` is
    a mirror that has begun at 0 and has carried nothing yet.
    """

    source_start: int = 0
    target_start: int = 0
    source_next: int = field(default=-1)
    target_next: int = field(default=-1)
    _sources: array[int] = field(default_factory=_column, repr=False)
    _targets: array[int] = field(default_factory=_column, repr=False)
    _counts: array[int] = field(default_factory=_column, repr=False)

    def __post_init__(self) -> None:
        self.source_next = max(self.source_next, self.source_start)
        self.target_next = max(self.target_next, self.target_start)

    @classmethod
    def of(
        cls,
        runs: Iterable[Run],
        *,
        source_start: int | None = None,
        target_start: int | None = None,
        source_next: int = -1,
        target_next: int = -1,
    ) -> OffsetMap:
        """Build the map from runs in any order, which may be repeated or part of a longer one.

        The starts default to those of the first run (0 without runs), the ends to those of the last one.
        """
        ordered = sorted(runs)
        first = ordered[0] if ordered else Run(0, 0, 0)
        made = cls(
            first.source if source_start is None else source_start,
            first.target if target_start is None else target_start,
        )
        for run in ordered:
            made.add(run)
        made.advance(source_next, target_next)
        return made

    def add(self, run: Run) -> None:
        """Append a run; one that continues the last with the same delta is merged into it.

        Runs that are already in the map are ignored. Raises HubFault (HUB-5601) when the run contradicts the
        map or goes back on either side: then the map and the log are not of one mirror.
        """
        if run.count < 1 or run.source < 0 or run.target < 0:
            raise HubFault(f"offset map: {run} is not a run of records", code="HUB-5601")
        if self._sources:
            last = self._last()
            if run.source <= last.source_end and run.delta == last.delta and run.source >= last.source:
                self._counts[-1] = max(last.source_end, run.source_end) - last.source
                self.advance(run.source_end, run.target_end)
                return
            if self._knows(run):
                return
            if run.source < last.source_end or run.target < last.target_end:
                raise HubFault(
                    f"offset map: {run} follows {last}, but a mirror only goes forward on both sides",
                    hint="the target was written by something else, or the map is of "
                    "another topic of this name",
                    code="HUB-5601",
                )
        elif run.source < self.source_start or run.target < self.target_start:
            self.source_start = min(self.source_start, run.source)
            self.target_start = min(self.target_start, run.target)
        self._sources.append(run.source)
        self._targets.append(run.target)
        self._counts.append(run.count)
        self.advance(run.source_end, run.target_end)

    def advance(self, source_next: int, target_next: int = -1) -> None:
        """Record that everything before these offsets was mirrored or is a hole, by a checkpoint. Never goes
        back.
        """
        self.source_next = max(self.source_next, source_next)
        self.target_next = max(self.target_next, target_next)

    def translate(self, source_offset: int) -> Translation:
        """Return the position in the target of a reader that is at ``source_offset`` in the source."""
        return self._forward().translate(source_offset)

    def reverse(self, target_offset: int) -> Translation:
        """Return the position in the source of a reader that is at ``target_offset`` in the target."""
        return self._backward().translate(target_offset)

    def target_records_between(self, target_from: int, target_to: int) -> int:
        """Count the mirrored records with a target offset in [target_from, target_to)."""
        return self._between(self._targets, target_from, target_to)

    def read_again(self, source_offset: int, target_from: int) -> int:
        """Count the records that a reader at ``source_offset`` in the source gets again when it continues at
        ``target_from``.
        """
        return self.target_records_between(target_from, self.translate(source_offset).offset)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self)

    def __iter__(self) -> Iterator[Run]:
        return (Run(*row) for row in zip(self._sources, self._targets, self._counts, strict=True))

    def __len__(self) -> int:
        return len(self._sources)

    def _between(self, starts: array[int], begin: int, end: int) -> int:
        at = max(0, bisect_right(starts, begin) - 1)
        found = 0
        while at < len(starts) and starts[at] < end:
            found += max(0, min(end, starts[at] + self._counts[at]) - max(begin, starts[at]))
            at += 1
        return found

    def _last(self) -> Run:
        return Run(self._sources[-1], self._targets[-1], self._counts[-1])

    def _knows(self, run: Run) -> bool:
        at = bisect_right(self._sources, run.source) - 1
        if at < 0:
            return False
        known = Run(self._sources[at], self._targets[at], self._counts[at])
        return known.delta == run.delta and run.source_end <= known.source_end

    def _forward(self) -> _Side:
        return _Side(
            self._sources, self._targets, self._counts, self.source_start, self.source_next, self.target_next
        )

    def _backward(self) -> _Side:
        return _Side(
            self._targets, self._sources, self._counts, self.target_start, self.target_next, self.source_next
        )


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Encode runs: a format byte, their number, then three varints per run, the first two zigzag.

    They are: offsets skipped in the source since the previous run, offsets skipped in the target, count.
    """
    encoded = bytearray([_FORMAT])
    put_unsigned(len(runs), encoded)
    source = target = 0
    for run in runs:
        put_signed(run.source - source, encoded)
        put_signed(run.target - target, encoded)
        put_unsigned(run.count, encoded)
        source, target = run.source_end, run.target_end
    return bytes(encoded)


def runs_in(encoded: bytes) -> int:
    """Return the number of runs that ``decode_runs`` would return. Raises HubFault (HUB-5602)."""
    if not encoded or encoded[0] != _FORMAT:
        raise _corrupt("an unknown format" if encoded else "nothing")
    try:
        return take_unsigned(encoded, 1)[0]
    except (IndexError, MalformedVarint) as error:
        raise _malformed(error) from None


def decode_runs(encoded: bytes) -> tuple[Run, ...]:
    """Decode the bytes that ``encode_runs`` returned. Raises HubFault (HUB-5602) for any others."""
    if not encoded or encoded[0] != _FORMAT:
        raise _corrupt("an unknown format" if encoded else "nothing")
    try:
        number, at = take_unsigned(encoded, 1)
        if number > _MOST_RUNS:
            raise _corrupt(f"{number} runs")
        runs: list[Run] = []
        source = target = 0
        for _ in range(number):
            skipped_source, at = take_signed(encoded, at)
            skipped_target, at = take_signed(encoded, at)
            count, at = take_unsigned(encoded, at)
            run = Run(source + skipped_source, target + skipped_target, count)
            source, target = run.source_end, run.target_end
            runs.append(run)
    except (IndexError, MalformedVarint) as error:
        raise _malformed(error) from None
    if at != len(encoded):
        raise _corrupt(f"{len(encoded) - at} bytes after the last run")
    return tuple(runs)


def _malformed(error: Exception) -> HubFault:
    return _corrupt("an end" if isinstance(error, IndexError) else "a number too long")


def _corrupt(found: str) -> HubFault:
    return HubFault(
        f"offset map: {found} where runs were expected",
        hint="a newer hub wrote it, or it is corrupt: `hub mirror verify` shows whether "
        "the records are right",
        code="HUB-5602",
    )
