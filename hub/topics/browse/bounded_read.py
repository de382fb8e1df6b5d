"""[shell] One read of a topic's messages, bounded in records, bytes and seconds.

It reports which offsets of each partition it scanned and what ended it. Backward reads go in growing steps:
first the last few offsets of each partition, then those before.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hub.errors import HubError, NotFound, PeerError
from hub.log import Log, Reader
from hub.record import Positions, Record, TopicPartition
from hub.topics.browse.rendered import MOST_CHARACTERS, Message

MOST_MESSAGES = 200
POLL_RECORDS = 1_000
_SILENCE_S = 2.0
MOST_WORDS = 10
# Message sizes are unknown until some are read, so the first step back is small.
_FIRST, _FEW = 5, 6
_NOT_UNPACKED = "HUB-3021"
_WHOLE = 200_000  # characters of a message that is requested alone


@dataclass(frozen=True, slots=True)
class BrowseBounds:
    """Limits of one read."""

    records: int = 50_000
    bytes: int = 32_000_000
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Selection of messages. Without ``start`` and ``since_ms``: the newest, or those before ``before``.

    ``before`` and ``start`` are offsets by partition; a message must contain all ``words``.
    """

    topic: str
    partition: int | None = None
    before: Mapping[int, int] = field(default_factory=dict)
    start: Mapping[int, int] = field(default_factory=dict)
    since_ms: int | None = None
    words: str = ""
    limit: int = 50

    @property
    def forwards(self) -> bool:
        return bool(self.start) or self.since_ms is not None


@dataclass(slots=True)
class ScannedOffsets:
    """Scanned offsets of a partition: from ``first`` up to ``next`` (exclusive). ``begin`` and ``end`` are
    the log's bounds.
    """

    partition: int
    begin: int
    end: int
    first: int
    next: int
    records: int = 0


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Found messages: newest first, or, when reading forward, oldest first.

    ``complete`` is True if everything requested was scanned. Otherwise ``ended_by`` is what ended the read:
    "limit" (the requested number of messages), "records", "bytes", "seconds", "silence" or "unreadable".
    ``older`` and ``newer`` are cursors (for ``before`` and ``start``; None: nothing is there). ``unreadable``
    lists errors of the log, and the offsets of batches that cannot be unpacked and were skipped.
    """

    messages: tuple[Message, ...]
    scanned: tuple[ScannedOffsets, ...]
    records: int
    bytes: int
    complete: bool
    ended_by: str
    older: Mapping[int, int] | None
    newer: Mapping[int, int] | None
    unreadable: tuple[str, ...] = ()


@dataclass
class BoundedRead:
    """One read, and how much of its limits it has used. ``show``: renders a record; None: not to be shown."""

    log: Log
    bounds: BrowseBounds
    show: Callable[[Record, Sequence[str], int], Message | None]
    wanted: MessageQuery
    begins: Positions
    ends: Positions
    reader: Reader
    records: int = 0
    bytes: int = 0
    ended_by: str = ""
    messages: list[Message] = field(default_factory=list)
    scanned: dict[TopicPartition, ScannedOffsets] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    deadline: float = 0.0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.bounds.seconds
        self.words = self.wanted.words.lower().split()[:MOST_WORDS]
        self.most = _WHOLE if self.wanted.limit == 1 and not self.words else MOST_CHARACTERS

    # ---- backward

    def backwards(self) -> FoundMessages:
        wanted = self.wanted
        tops = {
            tp: max(self.begins.get(tp), min(end, wanted.before.get(tp.partition, end)))
            for tp, end in self.ends
        }
        self.scanned = {
            tp: ScannedOffsets(tp.partition, self.begins.get(tp), self.ends.get(tp), top, top)
            for tp, top in tops.items()
        }
        step = _FIRST if len(tops) <= _FEW else 1
        while not self.ended_by:
            windows = {
                tp: (max(each.begin, each.first - step), each.first)
                for tp, each in self.scanned.items()
                if each.first > each.begin
            }
            if not windows or len(self.messages) >= wanted.limit:
                break
            room = self._room(len(windows))
            if not room:
                break
            self._windows({tp: (max(first, last - room), last) for tp, (first, last) in windows.items()})
            if step > 1 and self._ended_at_once(tops):
                # Even the first few messages exceed the limit together. Return one whatever its size;
                # otherwise paging would stop here.
                self.ended_by, self.records, self.bytes, step = "", 0, 0, 1
                continue
            step = max(step * 10, wanted.limit)
        shown, left = _merged(self.messages, wanted.limit, newest=True)
        older = {each.partition: each.first for each in self.scanned.values()}
        for each in left:  # messages that were read but not shown come next
            older[each.partition] = max(older[each.partition], each.offset + 1)
        more = any(older[each.partition] > each.begin for each in self.scanned.values())
        newer = {tp.partition: top for tp, top in tops.items()}
        is_last = all(tops[tp] >= end for tp, end in self.ends)
        return self._result(shown, older if more else None, None if is_last else newer, more)

    def _ended_at_once(self, tops: Mapping[TopicPartition, int]) -> bool:
        return self.ended_by == "bytes" and all(self.scanned[tp].first == top for tp, top in tops.items())

    # ---- forward

    def forwards(self) -> FoundMessages:
        wanted = self.wanted
        starts = {
            tp: max(self.begins.get(tp), min(end, wanted.start.get(tp.partition, end if wanted.start else 0)))
            for tp, end in self.ends
        }
        if wanted.since_ms is not None:
            at = self.log.offsets_at([wanted.topic], wanted.since_ms)
            starts = {tp: max(self.begins.get(tp), at.offsets.get(tp, end)) for tp, end in self.ends}
        self.scanned = {
            tp: ScannedOffsets(tp.partition, self.begins.get(tp), self.ends.get(tp), start, start)
            for tp, start in starts.items()
        }
        step = POLL_RECORDS if self.words else wanted.limit
        while not self.ended_by and len(self.messages) < wanted.limit:
            open_ = [(tp, each) for tp, each in self.scanned.items() if each.next < each.end]
            room = self._room(len(open_)) if open_ else 0
            if not room:
                break
            ahead = min(step, room)
            self._windows({tp: (each.next, min(each.end, each.next + ahead)) for tp, each in open_}, up=True)
            step *= 4
        shown, left = _merged(self.messages, wanted.limit, newest=False)
        newer = {each.partition: each.next for each in self.scanned.values()}
        for each in left:
            newer[each.partition] = min(newer[each.partition], each.offset)
        more = any(newer[each.partition] < each.end for each in self.scanned.values())
        older = {tp.partition: start for tp, start in starts.items()}
        is_first = all(start <= self.begins.get(tp) for tp, start in starts.items())
        return self._result(shown, None if is_first else older, newer if more else None, more)

    def _room(self, partitions: int) -> int:
        """Return how many more records of each partition fit the limits, assuming the mean size so far; 0
        ends the read.
        """
        bounds = self.bounds
        records = (bounds.records - self.records) // partitions
        mean = self.bytes / self.records if self.records else 0.0
        fit = int((bounds.bytes - self.bytes) / mean / partitions) if mean else records
        if records < 1 or fit < 1:
            self.ended_by = "records" if records < 1 else "bytes"
            return 0
        return min(records, fit)

    def _result(
        self,
        shown: list[Message],
        older: Mapping[int, int] | None,
        newer: Mapping[int, int] | None,
        more: bool,
    ) -> FoundMessages:
        return FoundMessages(
            tuple(shown),
            tuple(self.scanned[tp] for tp in sorted(self.scanned)),
            self.records,
            self.bytes,
            not more,
            self.ended_by or ("limit" if more else ""),
            older,
            newer,
            tuple(self.unreadable),
        )

    def _windows(self, windows: Mapping[TopicPartition, tuple[int, int]], *, up: bool = False) -> None:
        """Read these offset ranges, and record the reached offsets in ``scanned``."""
        at = {tp: first for tp, (first, _) in windows.items()}
        self.reader.assign(Positions(at))
        quiet_since = time.monotonic()
        while at:
            if time.monotonic() > self.deadline:
                self.ended_by = "seconds"
                break
            try:
                page = self.reader.poll(POLL_RECORDS, 0.2)
            except HubError as error:
                # A batch that cannot be unpacked is skipped; if the log was truncated, the read ends.
                if isinstance(error, NotFound | PeerError) and error.code != _NOT_UNPACKED:
                    raise
                self.unreadable.append(error.message)
                if error.code != _NOT_UNPACKED:
                    self.ended_by = self.ended_by or "unreadable"
                    break
                readable = {tp: self._readable(tp, offset, windows[tp][1]) for tp, offset in at.items()}
                at = {tp: offset for tp, offset in readable.items() if offset < windows[tp][1]}
                self.reader.assign(Positions(at))
                quiet_since = time.monotonic()
                continue
            for record in page:
                first, last = windows[record.topic_partition]
                if first <= record.offset < last:
                    self._take(record)
                    at[record.topic_partition] = record.offset + 1
                if time.monotonic() > self.deadline:  # large values take long to decode
                    self.ended_by = "seconds"
                    break
            if self.ended_by:
                at = {tp: offset for tp, offset in at.items() if offset < windows[tp][1]}
                break
            reached = {tp: self.reader.position().get(tp) for tp in at}
            behind = {tp: offset for tp, offset in reached.items() if offset < windows[tp][1]}
            if len(behind) < len(at):  # do not fetch partitions past the end of their window
                self.reader.assign(Positions(behind))
            at = behind
            if at and self.bytes > 2 * self.bounds.bytes:
                self.ended_by = "bytes"
                break
            if page:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > _SILENCE_S:
                self.ended_by = "silence"
                break
        self._note_reached(windows, at, up=up)

    def _note_reached(
        self,
        windows: Mapping[TopicPartition, tuple[int, int]],
        at: Mapping[TopicPartition, int],
        *,
        up: bool,
    ) -> None:
        """Note the windows that were read; those in ``at`` only up to there."""
        for tp, (first, last) in windows.items():
            done = tp not in at
            if up:
                self.scanned[tp].next = last if done else max(self.scanned[tp].next, at[tp])
            elif done:
                self.scanned[tp].first = first
            else:  # a partial window is not a scanned range
                self.messages = [
                    each for each in self.messages if each.partition != tp.partition or each.offset >= last
                ]

    def _readable(self, tp: TopicPartition, offset: int, last: int) -> int:
        """Return the first readable offset from ``offset`` on, at most ``last``, and report what is skipped.
        The length of a batch that cannot be unpacked is unknown, so its end is found in growing steps and
        then by bisection.
        """
        if self._can_read(tp, offset):
            return offset
        broken, step = offset, 1
        while broken + step < last and not self._can_read(tp, broken + step):
            broken, step = broken + step, step * 2
        good = min(broken + step, last)
        while good - broken > 1:
            middle = (broken + good) // 2
            if self._can_read(tp, middle):
                good = middle
            else:
                broken = middle
        self.unreadable.append(f"partition {tp.partition}: offsets [{offset}, {good}) are passed by")
        return good

    def _can_read(self, tp: TopicPartition, offset: int) -> bool:
        """Return True if the record at an offset can be unpacked; False if time runs out."""
        self.reader.assign(Positions({tp: offset}))
        while time.monotonic() < self.deadline:
            try:
                page = self.reader.poll(1, 0.2)
            except HubError as error:
                if isinstance(error, PeerError) and error.code != _NOT_UNPACKED:
                    raise
                return error.code != _NOT_UNPACKED
            if page or self.reader.position().get(tp) > offset:
                return True
        return False

    def _take(self, record: Record) -> None:
        self.records += 1
        self.bytes += len(record.value or b"") + len(record.key or b"")
        self.scanned[record.topic_partition].records += 1
        if self.wanted.since_ms is not None and record.timestamp_ms < self.wanted.since_ms:
            return  # a transaction marker is newer than the records around it
        message = self.show(record, self.words, self.most)
        if message is not None:
            self.messages.append(message)


def _merged(messages: Sequence[Message], limit: int, *, newest: bool) -> tuple[list[Message], list[Message]]:
    """Merge by timestamp; return (the first ``limit`` messages, the rest). Within a partition, the order of
    offsets is kept.
    """
    sign = -1 if newest else 1
    queues: dict[int, list[Message]] = {}
    for each in sorted(messages, key=lambda each: -sign * each.offset):
        queues.setdefault(each.partition, []).append(each)
    heads = [(sign * queue[-1].timestamp_ms, number) for number, queue in queues.items()]
    heapq.heapify(heads)
    shown: list[Message] = []
    while heads and len(shown) < limit:
        _, number = heapq.heappop(heads)
        queue = queues[number]
        shown.append(queue.pop())
        if queue:
            heapq.heappush(heads, (sign * queue[-1].timestamp_ms, number))
    return shown, [each for queue in queues.values() for each in queue]
