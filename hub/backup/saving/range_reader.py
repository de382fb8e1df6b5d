"""[shell] Committed batches of many partitions, each up to a given end, byte for byte.

A few partitions are read at a time, because each of them has a segment in memory. The next answer is on its
way while the caller handles the last one. ``next_cursor`` decides what an answer means.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hub.backup.saving.run_plan import ReadRange
from hub.errors import HubError, PeerError
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC,
    BrokerBusy,
    BrokerRefused,
    Fetched,
    FetchFrom,
    translated,
)
from hub.kafka.protocol.record_batch import (
    BatchLimits,
    CorruptBatch,
    FetchedPartition,
    RecordBatch,
    answer_of,
)
from hub.record import TopicPartition
from hub.replication.engine.connection.port import EngineConnection, FetchLimits

ACTIVE = 4
SILENCE_S = 60.0
_LIMITS = FetchLimits(100, 16 << 20, 8 << 20)
_WHOLE = BatchLimits(0, 0, 0, 1 << 31)  # a batch of any size passes, none is merged
_EMPTY_ANSWERS = 3
_PAUSE_S, _WAIT_S = 0.1, 0.5


class Taken(NamedTuple):
    """Part of a range. ``batches`` are valid until the next one is requested. ``next``: position after them.
    ``gap``: offsets that the cluster deleted before they were read. ``over``: the range is read, or ``error``
    is why it cannot be.
    """

    tp: TopicPartition
    batches: Sequence[RecordBatch]
    next: int
    gap: tuple[int, int] | None = None
    over: bool = False
    error: HubError | None = None


@dataclass(frozen=True, slots=True)
class RangeCursor:
    """Progress of one range. ``corrupt_at``: offset of a corrupt batch, which is read a second time; -1:
    none.
    ``empty``: answers without a batch, one after the other.
    """

    position: int
    end: int
    corrupt_at: int = -1
    empty: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether the range is read. Compaction may have removed the last offsets of a range; brokers
        then answer with nothing.
        """
        return self.position >= self.end or self.empty >= _EMPTY_ANSWERS


def next_cursor(
    cursor: RangeCursor, answer: FetchedPartition, *, whole: bool
) -> tuple[RangeCursor, CorruptBatch | None]:
    """Return the cursor after an answer, and the corrupt batch that ends the range. ``whole``: the partition
    was first in its request, so that an empty answer means that there is nothing.
    """
    if answer.next_offset > cursor.position:
        return replace(cursor, position=answer.next_offset, empty=0), None
    if answer.corrupt is not None:
        if cursor.corrupt_at == cursor.position:
            return cursor, answer.corrupt
        return replace(cursor, corrupt_at=cursor.position), None
    return replace(cursor, empty=cursor.empty + 1) if whole else cursor, None


class RangeReader:
    """Reads ranges; iterate over ``taken()``. Use from one thread; close it."""

    def __init__(self, source: EngineConnection, ranges: Sequence[ReadRange]) -> None:
        self._source = source
        self._waiting = deque(ranges)
        self._topics = frozenset(each.tp.topic for each in ranges)
        self._active: dict[TopicPartition, RangeCursor] = {}
        self._in_flight: dict[int, dict[TopicPartition, int]] = {}
        self._turn = 0
        self._refresh_at_s = 0.0
        self._silent_s = 0.0
        self._ended: list[Taken] = []

    def close(self) -> None:
        self._source.close()

    def taken(self) -> Iterator[Taken]:
        """Yield every range in parts. Raises PeerError when the cluster does not answer for ``SILENCE_S``."""
        while self._waiting or self._active:
            yield from self._begin()
            self._send()
            begun_s = time.monotonic()
            arrived = [
                part
                for answer in self._source.receive_fetches(_WAIT_S)
                for part in self._answered(answer.node, answer.parts, answer.error)
            ]
            arrived += self._ended
            self._ended = []
            self._check_silence(arrived, time.monotonic() - begun_s)
            self._send()
            yield from arrived
            self._source.recycle(reusable=True)

    def _begin(self) -> Iterator[Taken]:
        while self._waiting and len(self._active) < ACTIVE:
            wanted = self._waiting.popleft()
            if wanted.first >= wanted.end:
                yield Taken(wanted.tp, (), wanted.first, over=True)
            else:
                self._active[wanted.tp] = RangeCursor(wanted.first, wanted.end)

    # ---- asking

    def _send(self) -> None:
        now_s = time.monotonic()
        if self._refresh_at_s <= now_s and not self._leaders():
            self._refresh(now_s)
        in_flight = {tp for places in self._in_flight.values() for tp in places}
        by_node: dict[int, list[FetchFrom]] = {}
        for tp in self._rotated():
            if tp in in_flight:
                continue
            try:
                leader = self._source.leader(tp)
            except BrokerBusy:
                continue
            if leader.node not in self._source.fetching:
                topic = self._source.topics[tp.topic]
                place = FetchFrom(tp, topic.uuid, leader.epoch, self._active[tp].position)
                by_node.setdefault(leader.node, []).append(place)
        for node, wanted in by_node.items():
            try:
                self._source.send_fetch(node, wanted, _LIMITS)
            except HubError:
                self._lost(node)
                continue
            self._in_flight[node] = {each.tp: each.position for each in wanted}

    def _rotated(self) -> list[TopicPartition]:
        """Return the active partitions, another one first in each turn: brokers fill an answer in order."""
        self._turn += 1
        places = list(self._active)
        first = self._turn % len(places) if places else 0
        return [*places[first:], *places[:first]]

    def _leaders(self) -> bool:
        try:
            for tp in self._active:
                self._source.leader(tp)
        except BrokerBusy:
            return False
        return True

    def _refresh(self, now_s: float) -> None:
        self._refresh_at_s = now_s + _PAUSE_S
        try:
            refused = self._source.refresh(self._topics)
        except HubError:
            self._in_flight.clear()
            return
        for tp, cursor in list(self._active.items()):
            error = refused.get(tp.topic)
            if isinstance(error, BrokerRefused) or getattr(error, "kafka_code", 0) == UNKNOWN_TOPIC:
                del self._active[tp]
                self._ended.append(Taken(tp, (), cursor.position, over=True, error=error))

    def _lost(self, node: int) -> None:
        self._in_flight.pop(node, None)
        self._refresh_at_s = time.monotonic() + _PAUSE_S
        for tp in self._active:
            self._source.topics.pop(tp.topic, None)

    # ---- answers

    def _answered(self, node: int, parts: Sequence[Fetched], error: HubError | None) -> list[Taken]:
        places = self._in_flight.pop(node, {})
        if error is not None:
            self._lost(node)
            return []
        first = next(iter(places), None)
        found = []
        for part in parts:
            if (cursor := self._active.get(part.tp)) is None or places.get(part.tp) != cursor.position:
                continue
            if part.error:
                found += self._refused(part, cursor)
            else:
                found.append(self._read(part, cursor, whole=part.tp == first))
        return found

    def _read(self, part: Fetched, cursor: RangeCursor, *, whole: bool) -> Taken:
        answer = answer_of(part.buffer, part.start, part.end, cursor.position, part.aborted, _WHOLE)
        after, corrupt = next_cursor(cursor, answer, whole=whole)
        batches = [
            batch for piece in answer.pieces for batch in piece.batches if batch.base_offset < cursor.end
        ]
        error = None
        if corrupt is not None:
            error = CorruptBatch(
                f'topic "{part.tp.topic}" partition {part.tp.partition}, {corrupt.message}',
                hint="the broker's disk damaged it: move the leadership to another replica, then run again",
            )
        over = after.is_over or error is not None
        if over:
            del self._active[part.tp]
        else:
            self._active[part.tp] = after
        position = after.end if after.is_over else after.position
        return Taken(part.tp, batches, position, over=over, error=error)

    def _refused(self, part: Fetched, cursor: RangeCursor) -> list[Taken]:
        tp = part.tp
        error = translated(part.error, f'topic "{tp.topic}" partition {tp.partition}: read')
        if part.error == OFFSET_OUT_OF_RANGE:
            return self._behind(tp, cursor)
        if isinstance(error, BrokerRefused):
            del self._active[tp]
            return [Taken(tp, (), cursor.position, over=True, error=error)]
        self._refresh_at_s = time.monotonic() + _PAUSE_S
        self._source.topics.pop(tp.topic, None)
        return []

    def _behind(self, tp: TopicPartition, cursor: RangeCursor) -> list[Taken]:
        """Continue after records that retention deleted while the run was waiting for them."""
        try:
            begin = self._source.offsets([tp], EARLIEST)[tp]
        except HubError:
            return []
        gap = (cursor.position, min(begin, cursor.end))
        if begin >= cursor.end:
            del self._active[tp]
            return [Taken(tp, (), cursor.end, gap, over=True)]
        if begin > cursor.position:
            self._active[tp] = replace(cursor, position=begin)
            return [Taken(tp, (), begin, gap)]
        return []

    def _check_silence(self, arrived: Sequence[Taken], waited_s: float) -> None:
        """Raise PeerError when the cluster has given nothing for too long.
        The caller's own time is not counted."""
        self._silent_s = 0.0 if arrived else self._silent_s + waited_s
        if self._silent_s > SILENCE_S and self._active:
            tp, cursor = next(iter(self._active.items()))
            raise PeerError(
                f'topic "{tp.topic}" partition {tp.partition}: nothing was read for {SILENCE_S:g} s at'
                f" offset {cursor.position}",
                hint="check the cluster with hub doctor, then run the command again: it "
                "continues where it was",
                code="HUB-3803",
            )
