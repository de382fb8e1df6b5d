"""[shell] Fetcher: reads the source for one shard and stages what is to be written.

One fetch per broker is in flight, for all of its partitions that can continue. What an answer means is
decided by ``cursor.py``; here is the I/O, and the order of the partitions in a request. An error of the
source is retried here, because it is none of the target's transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TypeVar

from hub.errors import HubError
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    OFFSET_OUT_OF_RANGE,
    READ_UNCOMMITTED,
    BrokerBusy,
    EpochEnd,
    Fetched,
    FetchFrom,
    Leader,
    raise_for,
)
from hub.kafka.protocol.record_batch import BatchLimits, answer_of, batches_in
from hub.kafka.protocol.unpacked_size import may_unpack_to_more
from hub.record import TopicPartition
from hub.replication.engine.atomic_release import ReleaseState, transactions_of
from hub.replication.engine.connection.port import EngineClock, EngineConnection, FetchAnswer, FetchLimits
from hub.replication.engine.cursor import (
    AnswerRead,
    AskRange,
    CompareEpochs,
    CursorEvent,
    DeclareGap,
    EpochCompared,
    FetchFailed,
    LeaderKnown,
    LookBack,
    LookedBack,
    RangeKnown,
    Refresh,
    Stop,
    TopicKnown,
    named,
    next_cursor,
)
from hub.replication.engine.long_link import FetchSizes
from hub.replication.engine.recovery import SourceRetries
from hub.replication.engine.shard_state import PartitionState, ShardState, StagedPiece
from hub.replication.maps.checkpoint import Gap

log = logging.getLogger(__name__)

_REFRESH_S = 0.1
_PEEKS = 4
Item = TypeVar("Item")


def turned(items: Sequence[Item], turn: int) -> list[Item]:
    """Return the items, beginning with another one in each turn.

    A broker fills its answer in the order of the request (KIP-74): else a partition with much to catch up
    takes the whole answer and the others get nothing.

    >>> turned("abc", 1), turned("abc", 2), turned("abc", 3)
    (['b', 'c', 'a'], ['c', 'a', 'b'], ['a', 'b', 'c'])
    """
    first = turn % len(items)
    return [*items[first:], *items[:first]]


class Fetcher:
    """``topics``: those whose metadata the source is asked for. ``foreign``: ranges of source offsets that
    are not copied. ``rewritten``: topics of which no batch may pass unchanged.
    """

    def __init__(
        self,
        source: EngineConnection,
        shard: ShardState,
        topics: frozenset[str],
        foreign: Mapping[TopicPartition, Sequence[tuple[int, int]]],
        rewritten: frozenset[str],
        clock: EngineClock,
    ) -> None:
        self.source, self.shard, self.topics = source, shard, topics
        self._foreign, self._rewritten, self._clock = foreign, rewritten, clock
        settings = shard.settings
        self._sizes = FetchSizes(
            settings.fetch_partition_bytes, max(settings.fetch_partition_bytes, settings.fetch_most_bytes)
        )
        self._one = FetchLimits(0, settings.fetch_partition_bytes, settings.fetch_partition_bytes)
        self._places: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        self._retries = SourceRetries()
        self._refresh_at_s: float | None = None
        self._turn = 0

    def forget(self) -> None:
        """Give up the fetches in flight."""
        self.source.close()
        self._places.clear()
        self._refresh_at_s = None

    # ---- asking

    def send(self) -> None:
        """Keep one fetch per broker in flight, for all of its partitions that can continue."""
        now_s = self._clock.monotonic()
        if self._refresh_at_s is not None and now_s >= self._refresh_at_s:
            self._refresh_at_s = None
            self._refresh()
        due = self._due(now_s)
        self._verify(due)
        by_node: dict[int, list[FetchFrom]] = {}
        for each, leader in due:
            if each.failed is None and each.cursor.verified_epoch == leader.epoch:
                by_node.setdefault(leader.node, []).append(self._from(each, leader, each.cursor.position))
        self._turn += 1
        for node, wanted in by_node.items():
            ordered = turned(wanted, self._turn)
            try:
                self.source.send_fetch(node, ordered, self._limits(node))
            except HubError as error:
                self._failed(node, error)
                continue
            self._places[node] = {each.tp: (each.position, each.leader_epoch) for each in ordered}

    def _limits(self, node: int) -> FetchLimits:
        settings, size = self.shard.settings, self._sizes.of(node)
        return FetchLimits(settings.fetch_wait_ms, max(settings.fetch_bytes, size), size)

    def _due(self, now_s: float) -> list[tuple[PartitionState, Leader]]:
        due = []
        for each in self.shard.live():
            try:
                leader = self.source.leader(each.tp)
            except BrokerBusy:
                self._refresh_soon()
                continue
            if leader.node not in self.source.fetching and self._retries.may_ask(leader.node, now_s):
                due.append((each, leader))
        return due

    def _from(self, each: PartitionState, leader: Leader, at: int) -> FetchFrom:
        return FetchFrom(each.tp, self.source.topics[each.tp.topic].uuid, leader.epoch, at)

    def _verify(self, due: Sequence[tuple[PartitionState, Leader]]) -> None:
        """Check that the log of a new leader contains the batch before the position."""
        by_node: dict[int, list[tuple[PartitionState, Leader]]] = {}
        for each, leader in due:
            if CompareEpochs() in self._apply(each, LeaderKnown(leader.epoch)):
                by_node.setdefault(leader.node, []).append((each, leader))
        for node, those in by_node.items():
            try:
                ends = self.source.epoch_ends(
                    node, {each.tp: each.cursor.position_epoch for each, _ in those}
                )
                for each, leader in those:
                    self._compared(each, leader, ends.get(each.tp))
            except HubError as error:
                self._failed(node, error)

    def _compared(self, each: PartitionState, leader: Leader, end: EpochEnd | HubError | None) -> None:
        for action in self._apply(each, EpochCompared(leader.epoch, end)):
            if isinstance(action, LookBack):
                self._apply(each, self._look_back(each, leader, action.end))

    def _look_back(self, each: PartitionState, leader: Leader, end: EpochEnd) -> LookedBack:
        part = self._glance(each, leader, each.cursor.position - 1)
        if part.error == OFFSET_OUT_OF_RANGE:
            # Removed by retention; the fetch finds out whether that was too early.
            return LookedBack(leader.epoch, end, removed=True)
        raise_for(part.error, f"{named(each.tp)} in the source: look back")
        batch = next(batches_in(part.buffer, part.start, part.end), None)
        if batch is None:
            return LookedBack(leader.epoch, end, removed=True)
        return LookedBack(leader.epoch, end, batch.base_offset, batch.leader_epoch)

    def _glance(self, each: PartitionState, leader: Leader, at: int) -> Fetched:
        """Fetch from an offset on, uncommitted records included. Raises as ``raise_for`` does, except for
        errors of the partition.
        """
        wanted = [self._from(each, leader, at)]
        (part,) = self.source.fetch(leader.node, wanted, self._one, READ_UNCOMMITTED)
        return part

    # ---- answers

    def receive(self, wait_s: float) -> None:
        """Stage the answers that have arrived; wait up to ``wait_s`` for the first."""
        answers = self.source.receive_fetches(wait_s)
        for answer in answers:
            self._answered(answer)
        if answers:
            self.send()  # fetch the next batches while these are written

    def _answered(self, answer: FetchAnswer) -> None:
        places = self._places.pop(answer.node, {})
        if answer.error is not None:
            self._failed(answer.node, answer.error)
            return
        self._retries = self._retries.answered()
        self.shard.error = None
        size = sum(part.end - part.start for part in answer.parts)
        self._sizes = self._sizes.answered(answer.node, size, answer.took_s, self.source.round_trip_s)
        # The next request starts after the partitions of this answer: where many have much to catch up, an
        # answer has room for a few.
        self._turn += max(0, sum(part.end > part.start for part in answer.parts) - 1)
        for part in answer.parts:
            each = self.shard.partitions.get(part.tp)
            if each is None or each.failed is not None:
                continue
            # Under an earlier leader the same position may have preceded other records.
            if places.get(part.tp) == (each.cursor.position, each.cursor.verified_epoch):
                self._take(each, part)

    def _take(self, each: PartitionState, part: Fetched) -> None:
        if part.error:
            self._apply(each, FetchFailed(part.error))
            return
        each.source_end, each.stable_end = part.high_watermark, part.last_stable
        each.heard_at_ms = self._clock.epoch_ms()
        if part.end == part.start:
            return
        floor, bounds = each.cursor.position, self.shard.settings.bounds
        answer = answer_of(
            part.buffer,
            part.start,
            part.end,
            floor,
            part.aborted,
            self._batch_limits(each),
            self._foreign.get(each.tp, ()),
            each.tp.topic in self._rewritten,
            lambda batch: may_unpack_to_more(batch, bounds.record_bytes),
            each.left_out,
        )
        for piece in answer.pieces:
            last = piece.batches[-1]
            each.staged.append(
                StagedPiece(
                    piece,
                    floor,
                    last.next_offset,
                    last.leader_epoch,
                    last.max_timestamp,
                    transactions_of(piece.batches),
                )
            )
        each.uncommitted.counts.left_out += answer.left_out
        read = AnswerRead(answer.next_offset, answer.end_leader_epoch, answer.corrupt, not answer.pieces)
        self._apply(each, read)

    def _batch_limits(self, each: PartitionState) -> BatchLimits:
        limits = self.shard.settings.limits
        if limits.largest_bytes == each.largest:
            return limits
        return BatchLimits(limits.tiny_records, limits.tiny_bytes, limits.merged_bytes, each.largest)

    # ---- decisions, carried out

    def _apply(self, each: PartitionState, event: CursorEvent) -> tuple[object, ...]:
        """Move the cursor and carry out the actions that need no answer; return all actions."""
        before = each.cursor.position
        each.cursor, actions = next_cursor(each.cursor, event)
        self.shard.dirty |= each.cursor.position != before
        for action in actions:
            match action:
                case Stop():
                    each.stop(action.error)
                case Refresh():
                    self._refresh_soon()
                case DeclareGap(first, end):
                    self._declare(each, first, end)
                case AskRange():
                    self._ask_range(each)
        return actions

    def _declare(self, each: PartitionState, first: int, end: int) -> None:
        log.warning("%s: offsets %d to %d are gone", named(each.tp), first, end - 1)
        now_ms = self._clock.epoch_ms()
        gap = Gap(self.shard.shard.link, *each.tp, each.topic_id, first, end, "retention", now_ms)
        each.uncommitted.gaps.append(gap)

    def _ask_range(self, each: PartitionState) -> None:
        try:
            first = self.source.offsets([each.tp], EARLIEST)[each.tp]
            end = self.source.offsets([each.tp])[each.tp]
        except HubError:
            self._refresh_soon()
            return
        each.source_end, each.heard_at_ms = end, self._clock.epoch_ms()
        self._apply(each, RangeKnown(first, end, self.shard.settings.on_gap))

    def _refresh_soon(self) -> None:
        if self._refresh_at_s is None:
            self._refresh_at_s = self._clock.monotonic() + _REFRESH_S

    def _refresh(self) -> None:
        try:
            refused = self.source.refresh(self.topics)
        except HubError as error:
            self.shard.error = error
            self._refresh_soon()
            return
        for each in self.shard.live():
            topic = self.source.topics.get(each.tp.topic)
            now = None if topic is None else topic.topic_id
            self._apply(each, TopicKnown(each.topic_id, now, refused.get(each.tp.topic)))

    def _failed(self, node: int, error: HubError) -> None:
        self.shard.error = error
        self._retries = self._retries.failed(node, self._clock.monotonic())
        self._refresh_soon()

    # ---- looking ahead

    def look_ahead(self) -> dict[TopicPartition, ReleaseState] | None:
        """Read which transactions have batches at the source beyond those that were fetched. None when the
        source does not answer now.
        """
        live = self.shard.live()
        try:
            ends = self.source.offsets([each.tp for each in live])
            seen = {}
            for each in live:
                whole = self._peek(each, ends[each.tp])
                staged = [one.transactions for one in each.staged]
                seen[each.tp] = ReleaseState(staged, frozenset(each.peeked), whole)
        except HubError as error:
            self.shard.error = error
            self._refresh_soon()
            return None
        return seen

    def _peek(self, each: PartitionState, end: int) -> bool:
        """Inspect batch headers from the position up to ``end``, in at most ``_PEEKS`` fetches; return
        whether all were inspected.
        """
        position = each.cursor.position
        each.peeked = {txn: last for txn, last in each.peeked.items() if last >= position}
        at = max(position, each.peeked_to)
        leader = self.source.leader(each.tp)
        for _ in range(_PEEKS):
            if at >= end:
                break
            part = self._glance(each, leader, at)
            raise_for(part.error, f"{named(each.tp)} in the source: look ahead")
            before = at
            for batch in batches_in(part.buffer, part.start, part.end):
                at = batch.next_offset
                if batch.is_transactional and not batch.is_control:
                    each.peeked[batch.producer_id, batch.producer_epoch] = batch.last_offset
            if at == before:
                break
        each.peeked_to = at
        return at >= end
