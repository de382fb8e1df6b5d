"""[core] Alignment: proves how far another tool's copy of a partition reaches, by comparing its records with
the source's.

Two streams of (offset, fingerprint) are compared record by record. A copier that moves forward, and sometimes
restarts a little further back, leaves a copy that is read as::

    source   a b c d e f g h         runs   (0→0, 4) (4→6, 2)
    target   a b c d c d e f         "c d" came twice: no run has the second ones
                                     next at the source: g

Only equal bytes in the same order are paired, so the runs are a complete map (maps/offset_map.py), and a
mirror may continue at the first source record after the last pair: nothing comes twice, nothing is left out.
Everything else is a refusal: a source record that the copy lacks though it has later ones, or a record of the
copy that the source does not have. Of a compacted topic each side may lack records.

Limits: repeated records are recognized up to ``BEHIND`` records back, missing ones up to ``AHEAD`` ahead.
Records that are equal byte by byte, timestamp included, may be confused; the copy is equal all the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hub.replication.maps.offset_map import Run

AHEAD = 100_000
BEHIND = 500_000

Print = tuple[int, int]
"""(offset, fingerprint of timestamp, key, value and headers)."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One side of a partition. ``read`` returns its committed records of [first, end), ascending."""

    begin: int
    end: int
    read: Callable[[int, int], Iterable[Print]]

    def first_from(self, offset: int) -> Print | None:
        """Return the first record at or after an offset."""
        return next(iter(self.read(max(offset, self.begin), self.end)), None)

    def find(self, fingerprint: int, end: int) -> int | None:
        """Return the first offset below ``end`` with this fingerprint."""
        return next((offset for offset, found in self.read(self.begin, end) if found == fingerprint), None)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Result of a comparison. ``runs`` map the records of both sides; the mirror continues at
    ``source_next``. ``duplicates``: records that the copy has twice.

    ``refusal``: why nothing is proven, "" when it is. ``source_from`` and ``target_from``: where the
    comparison began.
    """

    source_next: int
    runs: tuple[Run, ...] = ()
    source_from: int = 0
    target_from: int = 0
    duplicates: int = 0
    refusal: str = ""

    @property
    def records(self) -> int:
        return sum(run.count for run in self.runs)


def boundary(
    source: PartitionLog,
    target: PartitionLog,
    syncs: Sequence[tuple[int, int]] = (),
    *,
    newest: int | None = None,
    compacted: bool = False,
) -> Alignment:
    """Find where a mirror may continue, and the map of the existing copy. ``syncs``: (source, target) offsets
    of one record each, as the copier wrote them, ascending; each is used only when the two records are equal.

    ``newest``: compare only from the last sync before the ``newest`` last offsets of the source on.
    """
    if syncs and syncs[-1][0] >= source.end:
        return _refused(
            f"the copy is of offset {syncs[-1][0]}, but the source ends at {source.end}: it was recreated"
        )
    here, there = source.first_from(source.begin), target.first_from(target.begin)
    if target.end == 0 or (there is None and target.begin == 0 and not compacted):  # at most aborted records
        return Alignment(source.begin, source_from=source.begin)
    if here is None:
        return Alignment(source.end, source_from=source.end, target_from=target.end)
    if there is None:
        return _refused("the copy has no record left to compare, the source has")
    refused: Alignment | None = None
    for first, other in _starts(source, target, syncs, here, there, newest, compacted):
        alignment = align(source.read(first, source.end), target.read(other, target.end), compacted=compacted)
        alignment = Alignment(
            alignment.source_next, alignment.runs, first, other, alignment.duplicates, alignment.refusal
        )
        if not alignment.refusal:
            return alignment
        refused = refused or alignment
    return refused or _refused("neither side's first record, nor any that MirrorMaker recorded, is in both")


def _starts(
    source: PartitionLog,
    target: PartitionLog,
    syncs: Sequence[tuple[int, int]],
    here: Print,
    there: Print,
    newest: int | None,
    compacted: bool,
) -> Iterator[Print]:
    """Yield pairs of offsets at which both sides have the same record, the most promising first."""
    if newest is not None:
        wanted = source.end - newest
        last = [sync for sync in syncs if sync[0] <= wanted]
        yield from (sync for sync in reversed(last) if _holds(source, target, sync))
    found = 0
    if here[1] == there[1]:
        yield here[0], there[0]
        found += 1
    else:
        # One side deleted its oldest records earlier than the other (a source that still has offset 0 did
        # not), or the copier began late. A sync bounds the search.
        upper = next((sync for sync in syncs if sync[0] >= source.begin and sync[1] >= target.begin), None)
        cut = compacted or source.begin > 0
        until = target.end if upper is None else min(target.end, upper[1] + 1)
        other = target.find(here[1], until) if cut else None
        if other is not None:
            yield here[0], other
            found += 1
        first = source.find(there[1], source.end if upper is None else min(source.end, upper[0] + 1))
        if first is not None:
            yield first, there[0]
            found += 1
    if not found and (compacted or source.begin or target.begin):
        yield from (sync for sync in syncs[:_SYNCS_TRIED] if _holds(source, target, sync))


_SYNCS_TRIED = 100


def _holds(source: PartitionLog, target: PartitionLog, sync: tuple[int, int]) -> bool:
    first, other = sync
    if first < source.begin or other < target.begin:
        return False
    here, there = source.first_from(first), target.first_from(other)
    return (
        here is not None
        and there is not None
        and (here[0], there[0]) == (first, other)
        and here[1] == there[1]
    )


def align(
    source: Iterable[Print],
    target: Iterable[Print],
    *,
    compacted: bool = False,
    ahead: int = AHEAD,
    behind: int = BEHIND,
) -> Alignment:
    """Compare both from a shared record to the end of the target. See the module."""
    coming = _UnpairedRecords(iter(source))
    passed = _PairedRecords(behind)
    runs: list[Run] = []
    duplicates, source_next = 0, 0
    for offset, fingerprint in target:
        head = coming.head()
        if head is None or head[1] != fingerprint:
            if passed.has(fingerprint):
                duplicates += 1
                continue
            at = coming.find(fingerprint, ahead)
            if at is None:
                if compacted:
                    continue  # compaction has removed it from the source since
                return _refused(
                    f"offset {offset} of the copy is not at the source", source_next, runs, duplicates
                )
            if not compacted:
                assert head is not None
                missing = f"offset {head[0]} of the source is not in the copy, later ones are"
                return _refused(missing, source_next, runs, duplicates)
            coming.skip(at)
        first, _ = coming.take()
        passed.add(fingerprint)
        source_next = first + 1
        if runs and runs[-1].source_end == first and runs[-1].target_end == offset:
            runs[-1] = Run(runs[-1].source, runs[-1].target, runs[-1].count + 1)
        else:
            runs.append(Run(first, offset, 1))
    return Alignment(source_next, tuple(runs), duplicates=duplicates)


class _UnpairedRecords:
    """Records of the source that were read and not paired yet."""

    def __init__(self, source: Iterator[Print]) -> None:
        self._source = source
        self._read: deque[Print] = deque()
        self._known: Counter[int] = Counter()

    def head(self) -> Print | None:
        self._fill(1)
        return self._read[0] if self._read else None

    def find(self, fingerprint: int, most: int) -> int | None:
        """Return how many records ahead the fingerprint is; None: not within ``most``."""
        self._fill(most)
        if not self._known[fingerprint]:
            return None
        return next(number for number, each in enumerate(self._read) if each[1] == fingerprint)

    def skip(self, count: int) -> None:
        for _ in range(count):
            self.take()

    def take(self) -> Print:
        taken = self._read.popleft()
        self._known[taken[1]] -= 1
        if not self._known[taken[1]]:
            del self._known[taken[1]]
        return taken

    def _fill(self, wanted: int) -> None:
        while len(self._read) < wanted:
            each = next(self._source, None)
            if each is None:
                return
            self._read.append(each)
            self._known[each[1]] += 1


class _PairedRecords:
    """Fingerprints of the last records that were paired."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order: deque[int] = deque()
        self._known: Counter[int] = Counter()

    def has(self, fingerprint: int) -> bool:
        return fingerprint in self._known

    def add(self, fingerprint: int) -> None:
        self._order.append(fingerprint)
        self._known[fingerprint] += 1
        if len(self._order) > self._most:
            old = self._order.popleft()
            self._known[old] -= 1
            if not self._known[old]:
                del self._known[old]


def _refused(why: str, source_next: int = 0, runs: Sequence[Run] = (), duplicates: int = 0) -> Alignment:
    return Alignment(source_next, tuple(runs), duplicates=duplicates, refusal=why)
