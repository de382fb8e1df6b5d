"""[shell] Both sides of a mirror compared all the time, a bounded bit of one partition at a time, beside the mirroring.

Whoever does a link's chores does this too. Where little is written all of it is compared; where much is, the newest part
of what came since the last turn, and what was passed over is counted. So a copy that is damaged, or written to by somebody
else, is told of within minutes and without anybody asking. ``hub mirror verify`` compares everything, and says so here too.
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
from hub.replication.clusters.control_state import VerifiedRange, copy_of
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.verification.local_records import ALL, Ranges
from hub.replication.verification.verify import ComparedPartition, PartitionVerdict, Verifier

log = logging.getLogger(__name__)

EVERY_S = 10.0
MOST_OFFSETS = 500
_FETCH_BYTES = 256 << 10
_TIMEOUT_S = 5.0
_LOOKS, _LOOK_AGAIN_S = 2, 1.0


class ContinuousVerification:
    """For one thread. ``close`` it. ``secrets``: keys of masks by their references."""

    def __init__(
        self, source: ClusterHandle, target: ClusterHandle, link: str, secrets: Mapping[str, str]
    ) -> None:
        self.source, self.target, self.link, self._secrets = source, target, link, secrets
        self.known: dict[TopicPartition, VerifiedRange] = {}
        self._verifier: Verifier | None = None
        self._turn: Iterator[TopicPartition] = iter(())
        self._ends: dict[TopicPartition, int] = {}  # of the copies, as far as they were looked at

    def close(self) -> None:
        if self._verifier is not None:
            self._verifier.close()
            self._verifier = None

    def remember(self, said: Mapping[TopicPartition, VerifiedRange]) -> None:
        """What was found before, by another worker or by ``hub mirror verify``, where it is newer."""
        for place, each in said.items():
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
        """Compare a bit of the next of ``places`` that has anything new; None when none has, or it cannot be read now.

        ``foreign``: what of a partition came from the target; None while that is not known. ``own``: what of the target may be
        of others (local_records.py). ``newer``: a map as it is now.
        """
        ends = self._copies_ends(progress, places)
        due = self._next(progress, places, ends)
        if due is None:
            return None
        place, mark, before = due
        table, brought = progress.table(self.link, place), foreign(place)
        if table is None or brought is None:
            return None
        gaps = tuple(
            gap
            for gap in progress.gaps.values()
            if (gap.link, gap.topic, gap.partition, gap.topic_id) == (self.link, *place, mark.topic_id)
        )
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
            return self._found(replace(before, why=error.message, at_ms=int(time.time() * 1000)))
        if place in ends:
            self._ends[place] = ends[place]
        found = after(before, mark, verdict, int(time.time() * 1000))
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
            # Whoever waits here does the link's other chores too.
            here, there = (_soon(each) for each in (self.source, self.target))
            self._verifier = Verifier(here, there, secrets=self._secrets, fetch_bytes=_FETCH_BYTES)
        verdict = self._verifier.verify(each, min(new, MOST_OFFSETS))
        for _ in range(_LOOKS):
            if verdict.differs_at is None:
                break
            # The end of a transaction is marked in one partition after the other: the newest may not be readable yet.
            time.sleep(_LOOK_AGAIN_S)
            verdict = self._verifier.verify(each, min(new, MOST_OFFSETS))
        return verdict

    def _copies_ends(
        self, progress: WrittenState, places: Container[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the copies: somebody else may write to an idle one. Empty while the target does not answer."""
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
        """In turns, so that a busy partition does not keep the others waiting."""
        marks = {tp: mark for tp, mark in progress.of(self.link).items() if tp in places}
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
    """What is known of the copy that a checkpoint is about: of one that was made anew, nothing yet."""
    if (
        known is not None
        and known.copy == copy_of(mark)
        and mark.source_start <= known.to <= mark.source_next
    ):
        return known
    return VerifiedRange(link, mark.topic, mark.partition, copy_of(mark), mark.source_start)


def after(before: VerifiedRange, mark: Checkpoint, verdict: PartitionVerdict, now_ms: int) -> VerifiedRange:
    """What is known once a verdict is there over the newest part of what came since. A difference stays told until a
    comparison of everything says that there is none."""
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
    """What is known once a partition was compared as a whole. ``verdict`` of one that was compared."""
    return VerifiedRange(
        link, *verdict.place, copy_of(mark), verdict.end, verdict.records, 0, verdict.differs_at, verdict.why, now_ms
    )  # fmt: skip
