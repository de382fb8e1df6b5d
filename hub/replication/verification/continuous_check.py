"""[shell] Continuous verification: compare both sides of a mirror all the time, a bounded part of one
partition per step.

The worker that runs a link's tasks runs this, too. Where little is written all of it is compared; where much
is, the newest part of the records since the last turn, and skipped offsets are counted. So a copy that is
corrupt, or written to by others, is reported within minutes without a request. ``hub mirror verify`` compares
everything, and records its result here, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from functools import partial

from hub.errors import HubError, PeerError
from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.status_records import VerifiedRange, copy_of
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import Checkpoint, Gap
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.verification.local_records import ALL, Ranges
from hub.replication.verification.verify import ComparedPartition, PartitionVerdict, Verifier
from hub.times import epoch_ms

log = logging.getLogger(__name__)

EVERY_S = 10.0
MOST_OFFSETS = 500
_FETCH_BYTES = 256 << 10
_TIMEOUT_S = 5.0
_LOOKS, _LOOK_AGAIN_S = 2, 1.0


class ContinuousVerification:
    """Continuous verification of one link. Use from one thread; close it. ``secrets``: keys of masks by their
    references.
    """

    def __init__(
        self, source: ClusterHandle, target: ClusterHandle, link: str, secrets: Mapping[str, str]
    ) -> None:
        self.source, self.target, self.link, self._secrets = source, target, link, secrets
        self.known: dict[TopicPartition, VerifiedRange] = {}
        self._verifier: Verifier | None = None
        self._turn: Iterator[TopicPartition] = iter(())
        self._idle_first = False
        self._ends: dict[TopicPartition, int] = {}  # end offsets of the copies up to which they were compared

    def close(self) -> None:
        if self._verifier is not None:
            self._verifier.close()
            self._verifier = None

    def remember(self, ranges: Mapping[TopicPartition, VerifiedRange]) -> None:
        """Take in newer results of another worker or of ``hub mirror verify``."""
        for place, each in ranges.items():
            mine = self.known.get(place)
            if mine is None or each.at_ms > mine.at_ms:
                self.known[place] = each

    def step(
        self,
        progress: WrittenState,
        places: Container[TopicPartition],
        foreign: Callable[[TopicPartition], Ranges | None] = lambda place: (),
        own: Callable[[TopicPartition], Ranges] = lambda place: ALL,
        newer: Callable[[TopicPartition], OffsetMap | None] = lambda place: None,
    ) -> VerifiedRange | None:
        """Compare a part of the next of ``places`` that has news; None when none has, or it cannot be read
        now.

        ``foreign``: source offsets of a partition that came from the target; None while that is unknown.
        ``own``: target offsets that may have records of others (local_records.py). ``newer``: returns the
        current map.
        """
        ends = self._copies_ends(progress, places)
        due = self._next(progress, places, ends)
        if due is None:
            return None
        place, mark, before = due
        table, brought = progress.table(self.link, place), foreign(place)
        if table is None or brought is None:
            return None
        gaps = _gaps_of(progress, self.link, place, mark.topic_id)
        try:
            config = self.source.kafka.topic_config([place.topic]).get(place.topic, {})
            compacted = "compact" in config.get("cleanup.policy", "delete")
            ruled = progress.rules_at(self.link, place)
            verdict = self._compare(
                ComparedPartition(
                    place, mark, table, gaps, brought, compacted, ruled, own(place), partial(newer, place)
                ),
                mark.source_next - before.to,
            )
        except PeerError as error:
            log.info("%s: %s partition %d is not compared now: %s", self.link, *place, error.message)
            self.close()
            return None
        except HubError as error:
            self.close()
            return self._found(replace(before, why=error.message, at_ms=epoch_ms()))
        if place in ends:
            self._ends[place] = ends[place]
        found = after(before, mark, verdict, epoch_ms())
        if found.differs_at is not None and before.differs_at is None:
            log.error(
                "%s: %s partition %d differs at offset %d: %s", self.link, *place, found.differs_at, found.why
            )
        return self._found(found)

    def _found(self, each: VerifiedRange) -> VerifiedRange:
        self.known[TopicPartition(each.topic, each.partition)] = each
        return each

    def _compare(self, each: ComparedPartition, new: int) -> PartitionVerdict:
        if self._verifier is None:
            # Short timeouts: the link's other tasks wait for this one.
            here, there = (_soon(each) for each in (self.source, self.target))
            self._verifier = Verifier(here, there, secrets=self._secrets, fetch_bytes=_FETCH_BYTES)
        verdict = self._verifier.verify(each, min(new, MOST_OFFSETS))
        for _ in range(_LOOKS):
            if verdict.differs_at is None:
                break
            # Transaction end markers are written to one partition after the other: the newest records may not
            # be readable yet.
            time.sleep(_LOOK_AGAIN_S)
            verdict = self._verifier.verify(each, min(new, MOST_OFFSETS))
        return verdict

    def _copies_ends(
        self, progress: WrittenState, places: Container[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the copies: others may write to an idle one. Empty while the target does
        not answer.
        """
        try:
            return dict(self.target.kafka.known_ends([tp for tp in progress.of(self.link) if tp in places]))
        except PeerError as error:
            log.info("%s: the ends of the copies are not known now: %s", self.link, error.message)
            return {}

    def _next(
        self,
        progress: WrittenState,
        places: Container[TopicPartition],
        ends: Mapping[TopicPartition, int],
    ) -> tuple[TopicPartition, Checkpoint, VerifiedRange] | None:
        """Return the next partition with news, in turns, so that a busy one does not delay the others. Every
        second time it is a copy that has grown while its mirror wrote nothing, if there is one: others write
        there.
        """
        marks = {tp: mark for tp, mark in progress.of(self.link).items() if tp in places}
        self._idle_first = not self._idle_first
        for place in sorted(marks) if self._idle_first else ():
            before = begun(self.known.get(place), self.link, marks[place])
            if before.to == marks[place].source_next and ends.get(place, 0) > self._ends.get(place, 1 << 62):
                return place, marks[place], before
        for tried in range(2):
            for place in self._turn:
                mark = marks.get(place)
                if mark is None:
                    continue
                before = begun(self.known.get(place), self.link, mark)
                if before.to < mark.source_next or ends.get(place, 0) > self._ends.get(
                    place, mark.target_next
                ):
                    return place, mark, before
            if tried == 0:
                self._turn = iter(sorted(marks))
        return None


def _soon(side: ClusterHandle) -> ClusterHandle:
    return replace(
        side, access=replace(side.access, request_timeout_s=_TIMEOUT_S, connect_timeout_s=_TIMEOUT_S)
    )


def begun(known: VerifiedRange | None, link: str, mark: Checkpoint) -> VerifiedRange:
    """Return the known range of a checkpoint's copy; an empty range for a recreated one."""
    if (
        known is not None
        and known.copy == copy_of(mark)
        and mark.source_start <= known.to <= mark.source_next
    ):
        return known
    return VerifiedRange(link, mark.topic, mark.partition, copy_of(mark), mark.source_start)


def after(before: VerifiedRange, mark: Checkpoint, verdict: PartitionVerdict, now_ms: int) -> VerifiedRange:
    """Return the range after a verdict on the newest part of the new records. A difference stays reported
    until a comparison of everything finds none.
    """
    if not verdict.compared:
        return replace(before, why=verdict.why, at_ms=now_ms)
    differs_at, why = (
        (before.differs_at, before.why)
        if before.differs_at is not None
        else (verdict.differs_at, verdict.why)
    )
    return replace(
        before,
        to=mark.source_next,
        compared=before.compared + verdict.records,
        skipped=before.skipped + max(0, verdict.first - before.to),
        differs_at=differs_at,
        why=why,
        at_ms=now_ms,
    )


def of_everything(link: str, mark: Checkpoint, verdict: PartitionVerdict, now_ms: int) -> VerifiedRange:
    """Return the range after a partition was compared completely. ``verdict`` must be of a compared
    partition.
    """
    return VerifiedRange(
        link, *verdict.place, copy_of(mark), verdict.end, verdict.records, 0, verdict.differs_at, verdict.why,
        now_ms
    )  # fmt: skip


def _gaps_of(progress: WrittenState, link: str, place: TopicPartition, topic_id: str) -> tuple[Gap, ...]:
    of_this = link, *place, topic_id
    every = progress.gaps.values()
    return tuple(gap for gap in every if (gap.link, gap.topic, gap.partition, gap.topic_id) == of_this)
