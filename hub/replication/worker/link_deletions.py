"""[shell] Topics that were deleted at the source: made certain by several answers, recorded, and with
``on_delete: follow`` their copies deleted after a delay.

The worker that holds a link's tasks does it after each plan. Every record goes through the tasks' fenced
writer, so a worker that lost the link records nothing, and deletes nothing that is not recorded first::

    not listed ─3 answers─▶ record waiting ─due, 3 answers─▶ record deleting ─▶ rules, copy, checkpoints ─▶
    record deleted
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from hub.errors import PeerError
from hub.log import TopicDescription, Writer
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import REFUSED, ClusterHandle, rule_of, topics_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.link_plan import LinkPlan
from hub.replication.clusters.status_records import copy_of
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.deletion_policy import DeletionPolicy
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.operations.forget import forget_copy
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, carries
from hub.replication.ownership.topic_state import paused_topics
from hub.replication.planning.source_deletion import (
    ENOUGH_ANSWERS,
    CopyFacts,
    SourceAnswer,
    SourceDeletion,
    decide_deletion,
    deletions_of,
    source_record,
    surplus_deletions,
)
from hub.times import epoch_ms

log = logging.getLogger(__name__)
_READ_S = 10.0


class LinkDeletions:
    """Deletions of one link; see the module. The answers are counted here, so a new worker counts again."""

    def __init__(self, file: MirrorsFile, link: Link, clusters: Mapping[str, ClusterHandle]) -> None:
        self.file, self.link = file, link
        self.source, self.target = clusters[link.source], clusters[link.target]
        # A way back leads to originals: they are never deleted.
        self.policy = link.mirror.on_delete if link.name == link.declared else DeletionPolicy()
        self._denied: dict[str, int] = {}

    def step(
        self,
        made: LinkPlan,
        control: Control,
        board: Callable[[], ControlState],
        progress: WrittenState,
        open_writer: Callable[[], Writer],
    ) -> None:
        """Record the states of copies that changed, and delete those that are due. Raises PeerError when a
        cluster does not answer, WriterFenced when another worker has the link's tasks.
        """
        state = board()
        self._record_source(made, state, open_writer)
        known = deletions_of(state.deletions, self.link.name)
        resting = paused_topics(self.link.declared, state.paused)
        absent = {place.topic for place in made.checkpoints} - set(made.topics)
        watched = (absent | known.keys()) - set(resting)
        if not any(
            topic in absent or known[topic].state != "deleted" or topic in made.topics for topic in watched
        ):
            return
        now_ms = epoch_ms()
        listed = topics_of(self.source)
        copies = topics_of(self.target)
        carried = frozenset(carries(self.file, self.link, watched, control))
        self._count(watched, carried, listed, state)
        for topic in sorted(watched):
            before = known.get(topic)
            current = topic in listed or topic not in carried
            asked = before is None or before.state != "waiting" or now_ms >= before.due_ms
            copy = self._facts(topic, current, copies, before, progress, state, asked=asked)
            after = decide_deletion(self.link.name, self.policy, copy, before, now_ms)
            self._follow(before, after, copies.get(topic), board, open_writer)
        for each in surplus_deletions(known.values()):
            open_writer().append([each.forgotten()])

    def _record_source(self, made: LinkPlan, state: ControlState, open_writer: Callable[[], Writer]) -> None:
        """Record the cluster's id once a topic of it has the id that a checkpoint names."""
        mirrored = {(place.topic, mark.topic_id) for place, mark in made.checkpoints.items()}
        here = {(topic, made.source.topics[topic].topic_id) for topic in made.topics}
        if self.link.name not in state.sources and mirrored & here:
            open_writer().append([source_record(self.link.name, self.source.kafka.cluster_id())])

    def _count(
        self,
        watched: Collection[str],
        carried: Collection[str],
        listed: Mapping[str, TopicDescription],
        state: ControlState,
    ) -> None:
        """Count the answers in a row that deny each topic."""
        unlisted = [topic for topic in sorted(watched) if topic not in listed and topic in carried]
        answer = SourceAnswer(self.source.kafka.cluster_id(), frozenset(listed), self._unknown(unlisted))
        recorded = state.sources.get(self.link.name)
        self._denied = {
            topic: self._denied.get(topic, 0) + 1 for topic in unlisted if answer.denies(topic, recorded)
        }

    def _unknown(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics that the source denies when asked by name. A topic that the mirror's user may not
        Describe is not among them.
        """
        names = frozenset(topics)
        try:
            return names - self.source.kafka.described(names).keys()
        except PeerError as error:
            if error.code != REFUSED:
                raise
            if len(names) == 1:
                return frozenset()
        return frozenset[str]().union(*(self._unknown([name]) for name in names))

    def _facts(
        self,
        topic: str,
        current: bool,
        copies: Mapping[str, TopicDescription],
        known: SourceDeletion | None,
        progress: WrittenState,
        state: ControlState,
        *,
        asked: bool,
    ) -> CopyFacts:
        """``asked``: whether it matters now that nobody else wrote the copy, which is read for that."""
        marks = {tp: mark for tp, mark in progress.of(self.link.name).items() if tp.topic == topic}
        newest = max(marks.values(), key=lambda mark: mark.generation, default=None)
        topic_id = newest.topic_id if newest is not None else known.topic_id if known is not None else ""
        there = copies.get(topic)
        certain = self._denied.get(topic, 0) >= ENOUGH_ANSWERS
        asked = asked and certain and self.policy.do != "keep"
        return CopyFacts(
            topic,
            topic_id,
            "" if there is None else there.topic_id,
            current,
            certain,
            self._shared(there, marks, progress, state) if asked and there is not None else "",
            missing_offsets(self.link.name, marks, state),
        )

    def _shared(
        self,
        there: TopicDescription,
        marks: Mapping[TopicPartition, Checkpoint],
        progress: WrittenState,
        state: ControlState,
    ) -> str:
        """Return why a copy is not this mirror's alone, or not proved to be; "": it is."""
        if why := not_made_by_mirror(self.link.name, there, marks, progress, state):
            return why
        ends = self.target.kafka.end_offsets([there.name])
        after = {tp: marks[tp].target_next if tp in marks else 0 for tp, _ in ends}
        unread = {tp: end for tp, end in ends if after[tp] < end}
        if not unread:
            return ""
        following = self.target.kafka.next_records(Positions({tp: after[tp] for tp in unread}), _READ_S)
        for tp, end in unread.items():
            if tp not in following.offsets:
                return f"the end of partition {tp.partition} was not read in {_READ_S:.0f} s"
            if following.get(tp) < end:
                at = following.get(tp)
                return f"partition {tp.partition} has a record at {at} that the mirror did not write"
        return ""

    def _follow(
        self,
        before: SourceDeletion | None,
        after: SourceDeletion | None,
        there: TopicDescription | None,
        board: Callable[[], ControlState],
        open_writer: Callable[[], Writer],
    ) -> None:
        """Record a change of state; delete the copy of one that is ``deleting``."""
        if after is None:
            if before is not None:
                open_writer().append([before.forgotten()])
            return
        if after != before:
            open_writer().append([after.record()])
            log.info("%s: topic %s %s", self.link.name, after.topic, after)
        if after.state == "deleting":
            self._delete(after, there, board, open_writer())

    def _delete(
        self,
        deletion: SourceDeletion,
        there: TopicDescription | None,
        board: Callable[[], ControlState],
        writer: Writer,
    ) -> None:
        """Delete the copy, if it is still there, and all records of it. Each part may be repeated."""
        state = board()
        if there is not None and there.topic_id == deletion.copy_id:
            if not carries(self.file, self.link, [deletion.topic], state.control):
                return  # its ownership moves
            try:
                self._delete_topic(deletion, state)
            except PeerError as error:
                if error.code != REFUSED:
                    raise
                why = f"{error.message}; let the mirror's user Delete the topic"
                writer.append([replace(deletion, state="held", due_ms=0, reason=why).record()])
                return
        forget_copy(self.link.name, deletion.topic, self.target, writer, except_for=frozenset({deletion.key}))
        done = replace(deletion, state="deleted", due_ms=0, deleted_at_ms=epoch_ms())
        writer.append([done.record()])
        log.info("%s: topic %s %s", self.link.name, done.topic, done)

    def _delete_topic(self, deletion: SourceDeletion, state: ControlState) -> None:
        synced = state.synced.get((self.link.name, deletion.topic))
        if synced is not None and synced.acls:
            self.target.kafka.remove_rules(map(rule_of, sorted(synced.acls)))
        self.target.kafka.delete_topic(deletion.topic)


def missing_offsets(link: str, marks: Mapping[TopicPartition, Checkpoint], state: ControlState) -> int | None:
    """Return how many offsets of a topic were not mirrored, by the source's ends as reported last; None: a
    partition's end was never reported.
    """
    ends = {tp: state.heard(link, tp) for tp in marks}
    gaps = [max(0, end.end - marks[tp].source_next) for tp, end in ends.items() if end is not None]
    return sum(gaps) if marks and len(gaps) == len(marks) else None


def not_made_by_mirror(
    link: str,
    there: TopicDescription,
    marks: Mapping[TopicPartition, Checkpoint],
    progress: WrittenState,
    state: ControlState,
) -> str:
    """Return what the mirror's own records say against its having written the whole copy; "": nothing."""
    for tp, mark in sorted(marks.items()):
        verified = state.verified.get((link, *tp))
        if mark.target_topic_id != there.topic_id:
            return "it is not the topic that the mirror wrote"
        if progress.copied_at(link, tp) is not None:
            return f"partition {tp.partition} was taken over from another replication tool"
        if mark.generation == 0 and mark.target_start > 0:
            return f"partition {tp.partition} had offsets before the mirror began"
        if verified is not None and verified.differs_at is not None and verified.copy == copy_of(mark):
            return f"partition {tp.partition} differs from its source: {verified.why}"
    return "" if marks else "the mirror has no checkpoint of it"
