"""[core] Cursor: where a partition reads on in the source, and what each answer of the source means for it.

``next_cursor(cursor, event)`` gives the new cursor and what the fetcher is to do. It never moves over records
silently: a position that the source does not have (any more) is a declared gap or stops the partition::

    LeaderKnown ──▶ CompareEpochs ──▶ EpochCompared ──▶ ours | LookBack ──▶ LookedBack ──▶ ours | Stop
    AnswerRead  ──▶ further | remember a damaged batch | Stop at the second look
    FetchFailed ──▶ AskRange ──▶ RangeKnown ──▶ inside | DeclareGap | Stop
    TopicKnown  ──▶ the same topic | Stop

Offsets alone do not prove that a new leader has the mirrored records (KIP-320): after an unclean election a
log may have lost records and have others in their place. So the leader epoch of the batch before the position
is kept and compared with the new leader's log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.kafka.protocol.broker_client import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    BrokerBusy,
    BrokerRefused,
    EpochEnd,
    translated,
)
from hub.kafka.protocol.record_batch import CorruptBatch
from hub.record import TopicPartition

UNVERIFIED = -2
KEEP_COPY = (
    "the copy may be all that is left of the former records: keep it, and exclude the topic or set"
    " `on_recreate: continue`"
)
_MOVED_CODES = {5, 6, 9, 13, 74, 75}  # the leader has changed, or will
_RECREATED_CODES = {UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, 103}


@dataclass(frozen=True, slots=True)
class SourceCursor:
    """``position``: next offset to fetch. ``position_epoch``: leader epoch of the batch before it, -1:
    unknown.
    ``verified_epoch``: leader epoch under which the log is known to match the mirrored records.
    ``corrupt_at``: offset of a batch that was corrupt at the last read, -1: none.
    """

    tp: TopicPartition
    position: int = 0
    position_epoch: int = -1
    verified_epoch: int = UNVERIFIED
    corrupt_at: int = -1

    def restarted(self, position: int, position_epoch: int) -> SourceCursor:
        """Return the cursor of an engine that starts at the position, whose leader is not verified yet."""
        return replace(self, position=position, position_epoch=position_epoch, verified_epoch=UNVERIFIED)


# ---- events


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The partition can be fetched from a leader of this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochCompared:
    """``end``: where the cursor's epoch ends in the new leader's log; None or an error: no answer from it."""

    leader_epoch: int
    end: EpochEnd | HubError | None


@dataclass(frozen=True, slots=True)
class LookedBack:
    """First batch that the leader has from the offset before the position on: ``base_offset`` and ``epoch``;
    ``removed``: retention took it, or there is none.
    """

    leader_epoch: int
    end: EpochEnd
    base_offset: int = -1
    epoch: int = -1
    removed: bool = False


@dataclass(frozen=True, slots=True)
class AnswerRead:
    """An answer was read up to ``next_offset``. ``corrupt``: the corrupt batch that ended it early.
    ``empty``: it had nothing to copy.
    """

    next_offset: int
    end_epoch: int
    corrupt: CorruptBatch | None = None
    empty: bool = False


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Kafka's error code in the partition's share of an answer."""

    code: int


@dataclass(frozen=True, slots=True)
class RangeKnown:
    """The source has the offsets [first, end)."""

    first: int
    end: int
    on_gap: Literal["stop", "continue"]


@dataclass(frozen=True, slots=True)
class TopicKnown:
    """Metadata of the topic was read. ``topic_id``: now; None: it was not in the answer, for ``error``."""

    former_id: str
    topic_id: str | None
    error: HubError | None = None


CursorEvent = LeaderKnown | EpochCompared | LookedBack | AnswerRead | FetchFailed | RangeKnown | TopicKnown


# ---- actions


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the partition; the others continue."""

    error: HubError


@dataclass(frozen=True, slots=True)
class Refresh:
    """Read the metadata again soon."""


@dataclass(frozen=True, slots=True)
class AskRange:
    """Ask which offsets the source has: RangeKnown."""


@dataclass(frozen=True, slots=True)
class CompareEpochs:
    """Ask the leader for the end of the cursor's epoch: EpochCompared."""


@dataclass(frozen=True, slots=True)
class LookBack:
    """Fetch the batch before the position: LookedBack."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class DeclareGap:
    """Record that offsets [first, end) were deleted before they were mirrored."""

    first: int
    end: int


CursorAction = Stop | Refresh | AskRange | CompareEpochs | LookBack | DeclareGap
Next = tuple[SourceCursor, tuple[CursorAction, ...]]


def next_cursor(cursor: SourceCursor, event: CursorEvent) -> Next:
    match event:
        case LeaderKnown():
            return _leader_known(cursor, event)
        case EpochCompared():
            return _epoch_compared(cursor, event)
        case LookedBack():
            # Compaction removed all of our epoch before this replica was filled, or the replica led before
            # that epoch and never had it: the batch before the position decides, if there is one.
            same = event.removed or event.base_offset >= cursor.position
            if same or event.epoch == cursor.position_epoch:
                return replace(cursor, verified_epoch=event.leader_epoch), ()
            return cursor, (Stop(lost_records(cursor, event.end)),)
        case AnswerRead():
            return _answer_read(cursor, event)
        case FetchFailed(code):
            return cursor, (_fetch_failed(cursor.tp, code),)
        case RangeKnown():
            return _range_known(cursor, event)
        case TopicKnown():
            return cursor, _topic_known(cursor.tp, event)
        case _:
            assert_never(event)


def _leader_known(cursor: SourceCursor, event: LeaderKnown) -> Next:
    if cursor.verified_epoch == event.epoch:
        return cursor, ()
    if cursor.position_epoch < 0 or event.epoch < 0:  # no epoch to compare
        return replace(cursor, verified_epoch=event.epoch), ()
    return cursor, (CompareEpochs(),)


def _epoch_compared(cursor: SourceCursor, event: EpochCompared) -> Next:
    end = event.end
    if isinstance(end, BrokerRefused):
        return cursor, (Stop(end),)
    if end is None or isinstance(end, HubError):  # not the leader any more
        return cursor, (Refresh(),)
    if end.offset < cursor.position:
        return cursor, (Stop(lost_records(cursor, end)),)
    if end.epoch == cursor.position_epoch:
        return replace(cursor, verified_epoch=event.leader_epoch), ()
    # Our epoch has no batch there, and an older epoch ends after the position.
    return cursor, (LookBack(end),)


def _answer_read(cursor: SourceCursor, event: AnswerRead) -> Next:
    if event.next_offset > cursor.position:
        cursor = replace(cursor, position=event.next_offset, position_epoch=event.end_epoch)
    if event.corrupt is None or not event.empty:
        return cursor, ()
    if cursor.corrupt_at != cursor.position:
        return replace(cursor, corrupt_at=cursor.position), ()  # read it a second time first
    error = CorruptBatch(
        f"{named(cursor.tp)} in the source, {event.corrupt.message}",
        hint="the source's disk or memory corrupted it; another replica may be intact: move the leadership, "
        "then start the mirror again",
    )
    return cursor, (Stop(error),)


def _fetch_failed(tp: TopicPartition, code: int) -> CursorAction:
    if code == OFFSET_OUT_OF_RANGE:
        return AskRange()
    if code in _RECREATED_CODES or code in _MOVED_CODES:
        return Refresh()
    error = translated(code, f"{named(tp)} in the source: fetch")
    return Stop(error) if isinstance(error, BrokerRefused) else Refresh()


def _range_known(cursor: SourceCursor, event: RangeKnown) -> Next:
    first, position = event.first, cursor.position
    if first <= position <= event.end:
        return cursor, ()
    if position > event.end:
        return cursor, (Stop(lost_records(cursor, EpochEnd(-1, event.end))),)
    if event.on_gap == "continue":
        return replace(cursor, position=first, position_epoch=-1), (DeclareGap(position, first),)
    error = PeerError(
        f"{named(cursor.tp)}: the source has deleted offsets {position} to {first - 1} "
        "before they were mirrored",
        hint="to continue without them set `on_gap: continue`; to prevent it keep "
        "records longer in the source",
        code="HUB-3605",
    )
    return cursor, (Stop(error),)


def _topic_known(tp: TopicPartition, event: TopicKnown) -> tuple[CursorAction, ...]:
    error = event.error
    if event.topic_id is None:
        if isinstance(error, BrokerBusy) and error.kafka_code == UNKNOWN_TOPIC:
            return (Stop(NotFound(f"{named(tp)} was deleted in the source cluster", code="HUB-1611")),)
    elif event.topic_id != event.former_id:
        recreated = Conflict(
            f"{named(tp)}: the topic was deleted and made again in the source cluster",
            hint=KEEP_COPY,
            code="HUB-1612",
        )
        return (Stop(recreated),)
    return ()


def lost_records(cursor: SourceCursor, end: EpochEnd) -> PeerError:
    """Return the error of a source that lost mirrored records: its log of that epoch ends at ``end``."""
    at = cursor.position
    what = (
        f"but the source has only the records before {end.offset}"
        if 0 <= end.offset < at
        else "but the source has another log by now"
    )
    return PeerError(
        f"{named(cursor.tp)}: mirrored up to {at}, {what}: it lost records",
        hint="the target has records that the source lost: fail over to it, or mirror the topic again",
        code="HUB-3606",
    )


def named(tp: TopicPartition) -> str:
    return f'topic "{tp.topic}" partition {tp.partition}'
