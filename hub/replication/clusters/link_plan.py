"""[edge] Make the plan of a link from real clusters.

``planned`` reads both sides and the last synced state, and lets planning/plan.py decide; carry_out.py
executes the steps. The command line and the workers use the same two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, acl_of, own_topics, side, topics_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import read_progress, without_records
from hub.replication.clusters.registry_side import RegistryReader, reader_of
from hub.replication.clusters.renaming.link_view import ends_seen_by, former_names
from hub.replication.clusters.status_records import CarriedTopic, LinkContents
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.load_mirrors import certain_principals_of
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, checkpoint_partition
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, carries, opposite
from hub.replication.ownership.shards import Shard, shard_of
from hub.replication.planning.drift import TopicDrift, drifts_to_record
from hub.replication.planning.plan import MirrorPlan, plan
from hub.replication.planning.protection import ProtectedCopies, ProtectionChange, protecting
from hub.replication.planning.renamed_subjects import RenamedSubjects
from hub.replication.planning.rule_refusals import ruled_otherwise
from hub.replication.planning.schema_plan import RegisterTargetSchema, SyncedSubject, is_carried
from hub.replication.planning.source_deletion import deletions_of
from hub.replication.planning.steps import (
    AddTargetPartitions,
    AlterTargetConfig,
    ClusterSide,
    CreateTargetTopic,
    Remember,
    Step,
)
from hub.replication.planning.write_rights import WriteAcls, about_writing
from hub.replication.rewriting.filter_history import FilterPeriod, FilterVersion, in_force
from hub.replication.rewriting.rules_of_schema import shape_of
from hub.times import epoch_ms


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link's plan with its inputs. ``own``: the mirrors' own topics that are missing at the target and at
    the source (owners are recorded on both sides). ``rights``: the source's write ACLs, where they differ
    from those that were recorded; None: nothing to record. ``protection``: who is denied to write the copies
    at the target, and who no longer. ``drift``: changes by hand at the copies, where they are to be recorded.
    ``deletions``: by topic that the source does not have now, the state of its copy, for people.
    """

    link: Link
    own: tuple[tuple[str, CreateTargetTopic], ...]
    made: MirrorPlan
    topics: tuple[str, ...]
    source: ClusterSide
    checkpoints: Mapping[TopicPartition, Checkpoint]
    rights: WriteAcls | None = None
    protection: ProtectionChange | None = None
    drift: tuple[TopicDrift, ...] = ()
    deletions: Mapping[str, str] = field(default_factory=dict)

    @property
    def copies(self) -> dict[str, str]:
        """Return the copies' names by topic, where they have other ones."""
        names = self.link.names
        if names.are_equal or self.link.is_back:
            return {}
        return {topic: names.on_wire(topic) for topic in self.topics}

    @property
    def changes(self) -> tuple[str, ...]:
        """Steps to show to people: all except those that only record state."""
        lines = [f"+ topic {step.topic} at {where}  (the mirrors' own)" for where, step in self.own]
        lines += (self.line(step) for step in self.made.steps if not isinstance(step, Remember))
        return (*lines, *self.protection_lines)

    def line(self, step: Step) -> str:
        """Return a step for people; one that is about a renamed copy has both names."""
        copy = self.copies.get(step.topic)
        match step:
            case CreateTargetTopic() | AddTargetPartitions() | AlterTargetConfig() if copy is not None:
                return f"{step}, as {copy}"
            case RegisterTargetSchema(schema=schema) if copy is not None:
                return f"{step}, as {schema.subject.replace(step.topic, copy, 1)}"
            case _:
                return str(step)

    @property
    def protection_lines(self) -> tuple[str, ...]:
        """Changes of the rules that protect the copies, for people."""
        return tuple(replace(self.protection.change, notes=()).lines()) if self.protection is not None else ()

    @property
    def shapes(self) -> dict[str, str]:
        """Rewriting rules by topic, of the topics that have any."""
        ids = self.made.own_ids
        record_rules = {
            topic: shape_of(self.link.mirror, topic, rewrites=topic in ids) for topic in self.topics
        }
        return {topic: str(shape) for topic, shape in record_rules.items() if shape is not None}

    @property
    def source_places(self) -> dict[TopicPartition, tuple[int, int]]:
        """Offsets [begin, end) of every partition of the link's source topics."""
        return {tp: (self.source.begins.get(tp), end) for tp, end in self.source.ends}

    def carries(self, now_ms: int) -> LinkContents:
        """Return what the workers shall carry once the steps are done."""
        carried_topics: dict[str, CarriedTopic] = {}
        for topic in self.topics:
            here = self.source.topics.get(topic)
            if here is None or topic in self.made.blocked:
                continue
            marks = [mark for tp, mark in self.checkpoints.items() if tp.topic == topic]
            known = {mark.topic_id: mark.generation for mark in marks}
            following = max(known.values(), default=-1) + 1
            generation = known.get(here.topic_id, following)
            own_ids = topic in self.made.own_ids
            carried_topics[topic] = CarriedTopic(here.partitions, here.topic_id, generation, own_ids)
        trouble = {each.topic: f"{each.reason}; {each.hint}" for each in self.made.refusals}
        cautions = tuple(f"{each.topic}: {each.reason}" for each in self.made.cautions)
        return LinkContents(self.link.name, carried_topics, trouble, cautions, "", now_ms)


def planned(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    control: Control,
    board: ControlState,
    read: Callable[[], WrittenState],
    other: WrittenState | None = None,
    secrets: Mapping[str, str] | None = None,
    registries: Mapping[str, RegistryReader] | None = None,
) -> LinkPlan:
    """Make the plan of a link from the current state. ``board`` and the result of ``read`` are the target's,
    ``other`` is what mirrors wrote at the source. Progress is read after the target's ends: records before
    those ends have their checkpoint by then. Ends that are before their checkpoint are requested once more.
    ``secrets``: the available keys of masks, by reference. ``registries``: cached readers by cluster, for
    callers that plan repeatedly.

    Raises PeerError when a cluster, or its registry, does not answer.
    """
    source, target = ends_seen_by(link, clusters)
    every = topics_of(source)
    topics = carries(file, link, every, control)
    here, there = _sides(link, topics, source, target, board)
    rights = WriteAcls(link.name, about_writing(here.acls, topics), epoch_ms(), here.checks_access)
    record_rights = link.mirror.acls.copy_ and topics and not rights.same_as(board.rights.get(link.name))
    renamed, subjects = _subjects(link, RenamedSubjects(target.names, frozenset(every)), board)
    if topics:
        here, there = _with_registries(link, topics, (source, here), (target, there), subjects, registries)
    own = [(each.name, step) for each in (target, source) for step in own_topics(each)]
    progress, there = _progress_of(link, read, there, target)
    marks = progress.of(link.name)
    there = _reached_by(there, marks, target, topics)
    marks |= _came_from_here(file, link, topics, here, there, marks, other)
    synced = {topic: board.synced[link.name, topic] for topic in topics if (link.name, topic) in board.synced}
    ruled = {tp: in_force(progress.rules_at(link.name, tp)) for tp in marks if tp.topic in topics}
    made = plan(link.name, link.mirror, topics, here, there, synced, marks.values(), ruled, secrets, subjects)
    made = replace(made, steps=renamed.steps_there(made.steps))
    planned_topics = [name for name in topics if name not in made.blocked]
    return LinkPlan(
        link,
        tuple(own),
        made,
        topics,
        here,
        marks,
        rights if record_rights else None,
        _protection(file, link, planned_topics, there, target, board),
        _drift(link, planned_topics, made, board),
        _deletions(link, {tp.topic for tp in marks} - every.keys(), board),
    )


def _subjects(
    link: Link, renamed: RenamedSubjects, board: ControlState
) -> tuple[RenamedSubjects, dict[str, SyncedSubject]]:
    """Return the map of subjects, and the recorded settings by the source's names."""
    recorded = {subject: each for (name, subject), each in board.subjects.items() if name == link.name}
    return renamed, renamed.seen_synced(recorded)


def _protection(
    file: MirrorsFile,
    link: Link,
    topics: Sequence[str],
    there: ClusterSide,
    target: ClusterHandle,
    board: ControlState,
) -> ProtectionChange | None:
    """Return the change of the rules that protect the copies; None where the mirror neither protects them
    nor did.
    """
    protected_copies = board.protected.get(link.name, ProtectedCopies(link.name))
    copies = topics if link.mirror.protects else ()
    if not copies and not protected_copies.rules:
        return None
    rules = there.acls if there.checks_access else None
    if not topics or not link.mirror.acls.copy_:  # then the side was read without its rules
        access_rules = target.kafka.access_rules()
        rules = None if access_rules is None else frozenset(map(acl_of, access_rules))
    users = certain_principals_of(file.clusters[link.target])
    change = protecting(link.target, copies, rules, protected_copies, users)
    return None if change.is_empty and not change.change.notes else change


def _sides(
    link: Link, topics: Sequence[str], source: ClusterHandle, target: ClusterHandle, board: ControlState
) -> tuple[ClusterSide, ClusterSide]:
    """Return both clusters as the link needs them; empty sides for a link that carries nothing."""
    if not topics:
        return ClusterSide({}), ClusterSide({})
    rules = link.mirror.acls.copy_
    here, there = side(source, topics, rules=rules), side(target, topics, rules=rules)
    # DENY rules that the hub added where ownership was given up are not copied.
    ours = [handed.denied.get(link.source, frozenset()) for handed in board.handed.values()]
    return replace(here, acls=here.acls.difference(*ours)), there


def _progress_of(
    link: Link, read: Callable[[], WrittenState], there: ClusterSide, target: ClusterHandle
) -> tuple[WrittenState, ClusterSide]:
    """Read the progress; return it, and the target with its topics that have offsets and no records."""
    progress = read()
    marked = {tp.topic for tp in progress.of(link.name)}
    unmarked = {tp.topic for tp, end in there.ends if end > 0} - marked
    if not unmarked:
        return progress, there
    void = without_records(target, unmarked)
    if unmarked - void:  # they may be the mirror's own, committed since progress was read
        progress = read()
    return progress, replace(there, void=void)


def _drift(
    link: Link, topics: Sequence[str], made: MirrorPlan, board: ControlState
) -> tuple[TopicDrift, ...]:
    """Return the drift to record. A refused topic is not compared, so its record stays."""
    known = {
        topic: each
        for (name, topic), each in board.drifts.items()
        if name == link.name and topic not in made.blocked
    }
    recorded = link.mirror.drift != "keep"
    return drifts_to_record(link.name, topics if recorded else (), known, made.drift, epoch_ms())


def _deletions(link: Link, absent: Iterable[str], board: ControlState) -> dict[str, str]:
    """Return the states of the copies whose topics the source does not have."""
    recorded = {topic: str(each) for topic, each in deletions_of(board.deletions, link.name).items()}
    unconfirmed = "not listed by the source: a worker confirms whether it was deleted; the copy is kept"
    found = {topic: unconfirmed for topic in sorted(absent) if link.mirror.selects(topic)}
    return found | recorded


def _with_registries(
    link: Link,
    topics: Sequence[str],
    source: tuple[ClusterHandle, ClusterSide],
    target: tuple[ClusterHandle, ClusterSide],
    synced: Iterable[str],
    registries: Mapping[str, RegistryReader] | None,
) -> tuple[ClusterSide, ClusterSide]:
    """Add the registries' contents to both sides, if both have a registry: all versions, and settings of the
    link's subjects.
    """
    if source[0].registry is None or target[0].registry is None:
        return source[1], target[1]
    readers = registries or {
        each.name: reader for each in (source[0], target[0]) if (reader := reader_of(each.registry))
    }
    try:
        here, there = readers[link.source], readers[link.target]
        known, carried = frozenset(source[1].topics), frozenset(topics)
        ours, theirs = (RenamedSubjects(each.names, known) for each in (source[0], target[0]))
        wanted = [f"{topic}-{part}" for topic in topics for part in ("key", "value")]
        wanted += [
            subject
            for subject in {ours.seen(each.subject): None for each in here.versions()}
            if is_carried(subject, link.mirror, carried, known)
        ]
        wanted += synced
        read_here, read_there = (
            names.seen_side(reader.read(map(names.there, wanted)))
            for names, reader in ((ours, here), (theirs, there))
        )
        return replace(source[1], registry=read_here), replace(target[1], registry=read_there)
    finally:
        for each in () if registries else readers.values():
            each.close()


def _reached_by(
    there: ClusterSide,
    marks: Mapping[TopicPartition, Checkpoint],
    target: ClusterHandle,
    topics: Sequence[str],
) -> ClusterSide:
    """Add the former names of copies, and request the target's ends again where a checkpoint is beyond them:
    a busy mirror wrote more since. A partition that still ends before its checkpoint has lost records.
    """
    there = replace(there, former=former_names(target, topics, there, marks))
    beyond = {
        tp.topic for tp, mark in marks.items() if mark.target_next > there.ends.get(tp, mark.target_next)
    }
    if not beyond:
        return there
    newer = target.kafka.end_offsets(sorted(beyond), committed=False)
    return replace(there, ends=there.ends.advanced(newer))


def _came_from_here(
    file: MirrorsFile,
    link: Link,
    topics: Iterable[str],
    here: ClusterSide,
    there: ClusterSide,
    marks: Mapping[TopicPartition, Checkpoint],
    other: WrittenState | None,
) -> dict[TopicPartition, Checkpoint]:
    """Return checkpoints of partitions whose records at the target were mirrored from there, so that the way
    back may begin although the target has records.
    """
    checkpoints: dict[TopicPartition, Checkpoint] = {}
    if other is None:
        return checkpoints
    for topic in topics:
        back = opposite(file, link, topic)
        if back is None or topic not in there.topics or any(tp.topic == topic for tp in marks):
            continue
        for tp in other.of(back):
            if tp.topic == topic:
                ids = here.topics[topic].topic_id, there.topics[topic].topic_id
                checkpoints[tp] = Checkpoint(link.name, 0, *tp, ids[0], 0, -1, 0, target_topic_id=ids[1])
    return checkpoints


def rules_from_now(
    link: Link, target: ClusterHandle, secrets: Mapping[str, str]
) -> dict[TopicPartition, tuple[int, FilterVersion]]:
    """Put the file's current rules into force from each partition's current offset on, where earlier records
    were made under other rules. Returns by partition the source offset and the rules. Written under each
    shard's own fence, so that no worker continues with former rules. Idempotent. ``secrets``: all keys of the
    mirror's masks.
    """
    begun: dict[TopicPartition, tuple[int, FilterVersion]] = {}
    written_state = read_progress(target, maps=False)
    for number in sorted(
        {shard_of(*tp, link.mirror.shards) for tp in _otherwise(link, written_state, secrets)}
    ):
        writer = target.kafka.writer(Shard(link.name, number).transactional_id)
        try:
            # Read again: the former owner's open transaction is aborted now, and it can write nothing more.
            due = _otherwise(link, read_progress(target, maps=False), secrets)
            place = checkpoint_partition(
                link.name, number, target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
            )
            now_ms = epoch_ms()
            written = []
            for tp, mark in sorted(due.items()):
                if shard_of(*tp, link.mirror.shards) == number:
                    rules = _now(link, tp.topic, secrets, in_force(written_state.rules_at(link.name, tp)))
                    begun[tp] = mark.source_next, rules
                    written.append(
                        FilterPeriod(link.name, *tp, mark.topic_id, mark.source_next, rules, now_ms)
                    )
            writer.append([each.record(place) for each in written])
        finally:
            writer.close()
    return begun


def _now(link: Link, topic: str, secrets: Mapping[str, str], then: FilterVersion) -> FilterVersion:
    """Return the rules of the file. A mirror that already replaced schema ids as needed continues
    to do so.
    """
    rewrites = link.mirror.ids == "auto" and then.shape is not None and then.shape.rewrites_ids
    return FilterVersion.now(link.mirror, topic, secrets, rewrites=rewrites)


def _otherwise(
    link: Link, progress: WrittenState, secrets: Mapping[str, str]
) -> dict[TopicPartition, Checkpoint]:
    """Return the partitions with records that were made under rules other than those of the file."""
    checkpoints: dict[TopicPartition, Checkpoint] = {}
    for tp, mark in progress.of(link.name).items():
        if not link.mirror.selects(tp.topic):
            continue
        then = {tp: in_force(progress.rules_at(link.name, tp))}
        if ruled_otherwise(_now(link, tp.topic, secrets, then[tp]), [mark], then):
            checkpoints[tp] = mark
    return checkpoints
