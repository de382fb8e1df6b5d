"""[shell] Link tasks, the background work of a whole link: plan and create topics, carry groups, verify
copies, compact the map, rehearse failovers.

The worker that holds the link's shard ``-1`` runs them, in a separate thread: a source that does not answer
delays only this link. Marks of groups and compactions of the map go through a writer with that shard's
transactional id, so a worker that was suspended cannot write one, and commits nothing without its mark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hub.errors import HubError
from hub.kafka import KafkaWriter
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.replication.clusters.carry_out import carry_out, make_own, protect, record_found
from hub.replication.clusters.clusters import ClusterHandle, keep_short, map_lag_ms
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.link_plan import planned
from hub.replication.clusters.offset_map_compaction import OffsetMapCompaction
from hub.replication.clusters.readers import WrittenStateReader
from hub.replication.clusters.status_records import GroupStatus, LinkContents, SourceEnds, VerifiedRange
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import MAP_TOPIC
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap, foreign_ranges
from hub.replication.operations.group_carrier import Found, GroupCarrier, any_to_commit, mark_and_commit
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, carries, links, opposite
from hub.replication.ownership.shards import Shard
from hub.replication.ownership.topic_state import paused_topics
from hub.replication.verification import continuous_check
from hub.replication.verification.continuous_check import ContinuousVerification
from hub.replication.verification.local_records import Ranges, born_at_target
from hub.replication.worker.link_deletions import LinkDeletions
from hub.replication.worker.link_rehearsals import LinkRehearsals
from hub.replication.worker.link_schemas import PLAN_EVERY_S, LinkSchemas
from hub.runtime import Backoff
from hub.times import epoch_ms

log = logging.getLogger(__name__)

FOLD_EVERY_S, _FOLD_MORE_S = 30.0, 1.0
_SHORTEST_S = 0.2
_LONGEST_READ_MS = 600_000  # of a whole map


class LinkTasks(threading.Thread):
    """Thread of a link's tasks; see the module. ``control``: owners and operations of both clusters;
    ``marks``: a copy of the target's control state.
    """

    def __init__(
        self,
        file: MirrorsFile,
        shard: Shard,
        link: Link,
        clusters: Mapping[str, ClusterHandle],
        control: Callable[[], Control],
        marks: Callable[[], ControlState],
        secrets: Mapping[str, str] | None = None,
        worker: str = "",
    ) -> None:
        super().__init__(name=f"{shard.link}.chores", daemon=True)
        self.file, self.shard, self.link, self.clusters = file, shard, link, clusters
        self.source, self.target = clusters[link.source], clusters[link.target]
        self.fenced = False
        self.held = ""
        self.carries: LinkContents | None = None
        self.groups: tuple[GroupStatus, ...] = ()
        self.ends: SourceEnds | None = None
        self.ticked_at_s = time.monotonic()
        self._control, self._board = control, marks
        self._halt = threading.Event()
        self._progress: WrittenStateReader | None = None
        self._folding = OffsetMapCompaction(shard.link)
        self._kept_short = False
        self._no_folds = ""
        self._other: WrittenStateReader | None = None
        self._writer: KafkaWriter | None = None
        self.verified: dict[TopicPartition, VerifiedRange] = {}
        self._secrets = secrets or {}
        self._rolling: ContinuousVerification | None = None
        self.schemas = LinkSchemas(link, self.source, self.target, self.name)
        self.deletions = LinkDeletions(file, link, clusters)
        self.rehearsals = LinkRehearsals(file, link, clusters, worker)

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        backoff = Backoff(0.5, 15.0)
        plan_at_s = groups_at_s = verify_at_s = fold_at_s = 0.0
        planned_for: Control | None = None
        while not self._halt.is_set():
            self.ticked_at_s = time.monotonic()
            try:
                # Changes of ownership come first: nobody may write meanwhile.
                control = self._control()
                # So do events that may name a new schema.
                if self.ticked_at_s >= plan_at_s or control != planned_for or self._new_schemas():
                    self._plan(control)
                    planned_for, plan_at_s = control, self.ticked_at_s + PLAN_EVERY_S
                self.rehearsals.step(self._fenced_writer, self._board, self.ticked_at_s)
                if self.ticked_at_s >= groups_at_s and not self.held:
                    self._carry_groups()
                    groups_at_s = self.ticked_at_s + self.link.mirror.groups.interval / 1000
                if self.ticked_at_s >= verify_at_s and not self.held:
                    verify_at_s = self.ticked_at_s + (
                        continuous_check.EVERY_S if self._verify() else PLAN_EVERY_S
                    )
                if self.ticked_at_s >= fold_at_s and not self.held:
                    # set first: if it fails, the other tasks continue
                    fold_at_s = self.ticked_at_s + FOLD_EVERY_S
                    if self._fold():
                        fold_at_s = self.ticked_at_s + _FOLD_MORE_S
                backoff.reset()
            except WriterFenced:
                self.fenced = True
                break
            except HubError as error:
                self._failed(error.message)
                self._halt.wait(backoff.next_s())
            except Exception as error:
                log.exception("%s", self.name)
                self._failed(f"an error of the hub itself: {error!r}")
                self._halt.wait(max(2.0, backoff.next_s()))
            self._rest()
        self._close()

    def _failed(self, message: str) -> None:
        log.warning("%s: %s", self.name, message)
        before = self.carries or LinkContents(self.link.name)
        self.carries = replace(before, error=message, at_ms=epoch_ms())
        self._close()

    def _close(self) -> None:
        for each in (self._progress, self._other, self._writer, self._rolling, self.schemas):
            if each is not None:
                each.close()
        self._progress = self._other = self._writer = self._rolling = None

    # ---- topics

    def _plan(self, control: Control) -> None:
        control_state = self._board()
        if self.carries is None:  # topics that cannot be planned now keep the plan of the previous worker
            self.carries = control_state.carries.get(self.link.name)
        if self._progress is None:
            self._progress = self._open_progress()
        self.schemas.follow()
        schemas_to = self.schemas.read_to
        read_at_ms = epoch_ms()
        made = planned(
            self.file,
            self.link,
            self.clusters,
            control,
            control_state,
            self._progress.refresh,
            self._others(control),
            registries=self.schemas.readers(schemas_to),
        )
        if made.topics:  # a link that carries nothing now asks for no ends, so the last ones stay
            self.ends = SourceEnds(self.link.name, made.source_places, read_at_ms)
        make_own(made.own, self.clusters)
        if not self._kept_short:
            for each in (self.target, self.source):
                keep_short(each)
            self._kept_short = True
        record_found(made, self.target)
        failed = carry_out(made.made.steps, self.source, self.target, self.schemas.done)
        contents = made.carries(epoch_ms())
        trouble = {**contents.trouble, **{topic: error.message for topic, error in failed.items()}}
        topics = {name: topic for name, topic in contents.topics.items() if name not in failed}
        self.schemas.settle(made)
        if self.schemas.awaits and self.carries is not None:
            schemas_to = self.carries.schemas_to
        unprotected = protect(made, self.target) if self._carries_same(made.topics) else ()
        remarks = [each for each in (self.schemas.caution, self._no_folds) if each]
        cautions = (*contents.cautions, *unprotected, *remarks)
        self.carries = replace(
            contents, topics=topics, trouble=trouble, cautions=cautions, schemas_to=schemas_to
        )
        if not self.held:
            self.deletions.step(made, control, self._board, self._progress.refresh(), self._fenced_writer)

    def _carries_same(self, topics: Sequence[str]) -> bool:
        """Return whether the link carries the topics of a plan still: an operation that lets writers in may
        have begun since.
        """
        return carries(self.file, self.link, topics, self._board().control) == tuple(topics)

    def _open_progress(self) -> WrittenStateReader:
        """Open a reader of the target's written state, which also feeds this link's map compaction: both have
        the same position.
        """
        self._folding = OffsetMapCompaction(self.link.name)
        only = frozenset({self.link.name})
        return WrittenStateReader(self.target, only=only, also=self._folding.apply)

    # ---- compaction of the map

    def _fold(self) -> bool:
        """Compact a part of one partition's map into fewer records; return whether anything was compacted.
        See clusters/offset_map_compaction.py for why it is safe.
        """
        if self._progress is None or not self._folding.due:
            return False
        self._no_folds = ""
        if map_lag_ms(self.target) < _LONGEST_READ_MS:
            self._no_folds = (
                f"the map is not made shorter: min.compaction.lag.ms of {MAP_TOPIC} at {self.link.target} "
                f"is below {_LONGEST_READ_MS}"
            )
            return False
        writer = self._fenced_writer()
        # Read after fencing: if anybody else has tombstoned or compacted anything since, the write is
        # refused.
        new = self._folding.step(self._progress.refresh())
        if self.held:
            return False
        writer.append(new)
        return bool(new)

    def _fenced_writer(self) -> KafkaWriter:
        """Return the writer with this shard's transactional id; the first call fences its former holder."""
        if self._writer is None:
            self._writer = self.target.kafka.writer(self.shard.transactional_id)
        return self._writer

    def _new_schemas(self) -> bool:
        """Return whether there are versions that the target's registry may lack."""
        if self.schemas.news is None or self.carries is None:
            return False
        self.schemas.poll(0.0)
        if self.schemas.awaits:
            return True
        if self.schemas.read_to != self.carries.schemas_to:
            self.carries = replace(self.carries, schemas_to=self.schemas.read_to)
        return False

    def _rest(self) -> None:
        """Wait ``_SHORTEST_S``; less when schemas arrive."""
        if self.schemas.news is None:
            self._halt.wait(_SHORTEST_S)
            return
        try:
            self.schemas.news.poll(_SHORTEST_S)
        except HubError as error:
            self._failed(error.message)

    def _others(self, control: Control) -> WrittenState | None:
        """Return what mirrors wrote at the source. None before the first change of ownership: the other
        direction has written nothing.
        """
        if not control.operations:
            return None
        if self._other is None:
            every = frozenset(
                name for name, link in links(self.file).items() if link.target == self.link.source
            )
            self._other = WrittenStateReader(self.source, only=every)
        return self._other.refresh()

    # ---- continuous verification

    def _verify(self) -> bool:
        """Compare a bounded part of one partition; return whether there was anything to compare."""
        if self._progress is None or self.carries is None or not self.link.mirror.verify:
            return False
        control = self._control()
        topics = frozenset(carries(self.file, self.link, self.carries.topics, control))
        progress, other = self._progress.refresh(), self._others(control)
        if self._rolling is None:
            self._rolling = ContinuousVerification(self.source, self.target, self.link.name, self._secrets)
        verified = self._board().verified
        self._rolling.remember({TopicPartition(*key[1:]): each for key, each in verified.items()})
        marks = progress.of(self.link.name)
        places = frozenset(tp for tp in marks if tp.topic in topics)

        def foreign(tp: TopicPartition) -> Ranges | None:
            back = opposite(self.file, self.link, tp.topic) if other is not None else None
            if other is None or back is None or tp not in (known := other.of(back)):
                return ()
            if not known[tp].goes_back(marks[tp]):
                return ()
            table = other.table(back, tp)
            return None if table is None else tuple(foreign_ranges(table, 0, table.target_next))

        def back_table(tp: TopicPartition) -> OffsetMap | None:
            back = opposite(self.file, self.link, tp.topic)
            return other.table_back(back, marks[tp]) if other is not None and back is not None else None

        def own(tp: TopicPartition) -> Ranges:
            copied = progress.copied_at(self.link.name, tp)
            return born_at_target(self.file, self.link, control, marks[tp], copied, back_table(tp))

        verified_range = self._rolling.step(progress, places, foreign, own, self._newer)
        if verified_range is not None:
            self.verified[TopicPartition(verified_range.topic, verified_range.partition)] = verified_range
        return verified_range is not None

    def _newer(self, place: TopicPartition) -> OffsetMap | None:
        """Return the current map of a partition."""
        return None if self._progress is None else self._progress.refresh().table(self.link.name, place)

    # ---- groups

    def _carry_groups(self) -> None:
        if self._progress is None or self.carries is None:
            return
        board = self._board()  # read after everything written before, so current in ownership, too
        control = self._control()
        resting = paused_topics(self.link.declared, board.paused)
        every = carries(self.file, self.link, self.carries.topics, control)
        topics = [topic for topic in every if topic not in resting]
        if not topics:
            self.groups = ()
            return
        carrier = GroupCarrier(self.file, self.link, self.source, self.target)
        progress, other = self._progress.refresh(), self._others(control)
        marks = {
            group: dict(places) for (link, group), places in board.marks.items() if link == self.link.name
        }

        def table(tp: TopicPartition) -> OffsetMap | TwoWayOffsetMap | None:
            return carrier.table(tp, progress, other)

        found = carrier.look(topics, table, marks, progress.of(self.link.name))
        if self._commit(found):
            self.groups = carrier.status(found, progress, marks, epoch_ms(), other)
        else:
            self._carry_groups()

    def _commit(self, found: Sequence[Found]) -> bool:
        """Commit marks and group offsets. Returns False if the shard was only taken now: an ownership change
        may have placed the groups since they were read, so they are read again.
        """
        if not any_to_commit(found):
            return True
        if self._writer is None:
            self._writer = self.target.kafka.writer(self.shard.transactional_id)
            return False
        mark_and_commit(self._writer, self.target, self.link.name, found)
        return True
