"""[edge] The plan of a link made from real clusters, and its steps carried out, each safe to do twice.

``planned`` reads both sides and what was synced last, and lets plan.py decide; ``carry_out`` does one step. The command
line and the workers use the very same two.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import httpx2

from hub.config import without_credentials
from hub.errors import Conflict, HubError, PeerError
from hub.record import TopicPartition
from hub.replication.board import Board, CarriedTopic, Carries
from hub.replication.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, checkpoint_partition
from hub.replication.clusters import (
    Reached,
    own_topics,
    read_progress,
    rule_of,
    side,
    topics_of,
    without_records,
)
from hub.replication.failover import Control
from hub.replication.links import Link, carries, opposite
from hub.replication.mirrors import MirrorsFile
from hub.replication.plan import (
    AddPartitions,
    AlterAcls,
    AlterConfig,
    CreateTopic,
    ImportSchema,
    MirrorPlan,
    NewGeneration,
    RegisterSchema,
    Remember,
    Side,
    Step,
    plan,
    ruled_otherwise,
)
from hub.replication.progress import Progress
from hub.replication.registries import carry_schema
from hub.replication.rules import Ruled, Rules, in_force
from hub.replication.shape import shape_of
from hub.replication.shards import Shard, shard_of
from hub.topics.plan import Caution

_SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link's plan with what it was made from. ``own``: topics of the mirrors themselves that are missing at the
    target (and at the source: what is said of owners stands on both sides)."""

    link: Link
    own: tuple[tuple[str, CreateTopic], ...]
    made: MirrorPlan
    topics: tuple[str, ...]
    source: Side
    checkpoints: Mapping[TopicPartition, Checkpoint]

    @property
    def changes(self) -> tuple[str, ...]:
        """What people want to see: every step but what is only remembered."""
        said = [f"+ topic {step.topic} at {where}  (the mirrors' own)" for where, step in self.own]
        return (*said, *(str(step) for step in self.made.steps if not isinstance(step, Remember)))

    @property
    def shapes(self) -> dict[str, str]:
        """By topic what is done to its records on the way, where anything is."""
        found = {topic: shape_of(self.link.mirror, topic) for topic in self.topics}
        return {topic: str(shape) for topic, shape in found.items() if shape is not None}

    @property
    def source_places(self) -> dict[TopicPartition, tuple[int, int]]:
        """Offsets [begin, end) of every partition of the source's topics that the link is about."""
        return {tp: (self.source.begins.get(tp), end) for tp, end in self.source.ends}

    def carries(self, now_ms: int) -> Carries:
        """What the workers shall carry, once the steps are done."""
        found: dict[str, CarriedTopic] = {}
        for topic in self.topics:
            here = self.source.topics.get(topic)
            if here is None or topic in self.made.blocked:
                continue
            marks = [mark for tp, mark in self.checkpoints.items() if tp.topic == topic]
            known = {mark.topic_id: mark.generation for mark in marks}
            following = max(known.values(), default=-1) + 1
            generation = known.get(here.topic_id, following)
            found[topic] = CarriedTopic(here.partitions, here.topic_id, generation)
        trouble = {each.topic: f"{each.reason}; {each.hint}" for each in self.made.refusals}
        cautions = tuple(f"{each.topic}: {each.reason}" for each in self.made.cautions)
        return Carries(self.link.name, found, trouble, cautions, "", now_ms)


def planned(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, Reached],
    control: Control,
    board: Board,
    read: Callable[[], Progress],
    other: Progress | None = None,
    secrets: Mapping[str, str] | None = None,
) -> LinkPlan:
    """What a link needs now. ``board`` and what ``read`` gives are the target's, ``other`` is what mirrors wrote at the
    source. Progress is read after the target's ends: what stands there by then has its checkpoint. Ends that are before their
    checkpoint are asked for once more.
    ``secrets``: the keys of masks that are at hand, by reference.

    Raises PeerError when a cluster does not answer.
    """
    source, target = clusters[link.source], clusters[link.target]
    every = topics_of(source)
    topics = carries(file, link, every, control)
    rules = link.mirror.acls.copy_
    here, there = (
        (side(source, topics, rules=rules), side(target, topics, rules=rules))
        if topics
        else (Side({}), Side({}))
    )
    own = [(link.target, step) for step in own_topics(target)]
    own += [(link.source, step) for step in own_topics(source)]
    progress = read()
    marks = progress.of(link.name)
    unmarked = {tp.topic for tp, end in there.ends if end > 0} - {tp.topic for tp in marks}
    if unmarked:
        void = without_records(target, unmarked)
        there = replace(there, void=void)
        if unmarked - void:  # they may be our own, committed since progress was read
            progress = read()
            marks = progress.of(link.name)
    there = _reached_by(there, marks, target)
    marks |= _came_from_here(file, link, topics, here, there, marks, other)
    synced = {topic: board.synced[link.name, topic] for topic in topics if (link.name, topic) in board.synced}
    ruled = {tp: in_force(progress.rules_at(link.name, tp)) for tp in marks if tp.topic in topics}
    made = plan(link.name, link.mirror, topics, here, there, synced, marks.values(), ruled, secrets)
    gone = sorted({tp.topic for tp in marks} - every.keys())
    cautions = (
        *made.cautions,
        *(
            Caution(
                name, "it was deleted at the source; the copy stays as it is", "delete it at the target too"
            )
            for name in gone
            if link.mirror.selects(name)
        ),
    )
    return LinkPlan(link, tuple(own), replace(made, cautions=cautions), topics, here, marks)


def _reached_by(there: Side, marks: Mapping[TopicPartition, Checkpoint], target: Reached) -> Side:
    """The target with ends asked for again where a checkpoint is beyond: a busy mirror wrote on since the first look. What
    ends before its checkpoint even now has lost records."""
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
    here: Side,
    there: Side,
    marks: Mapping[TopicPartition, Checkpoint],
    other: Progress | None,
) -> dict[TopicPartition, Checkpoint]:
    """Partitions whose data at the target was mirrored from there: the way back begins in spite of it."""
    found: dict[TopicPartition, Checkpoint] = {}
    if other is None:
        return found
    for topic in topics:
        back = opposite(file, link, topic)
        if back is None or topic not in there.topics or any(tp.topic == topic for tp in marks):
            continue
        for tp in other.of(back):
            if tp.topic == topic:
                ids = here.topics[topic].topic_id, there.topics[topic].topic_id
                found[tp] = Checkpoint(link.name, 0, *tp, ids[0], 0, -1, 0, target_topic_id=ids[1])
    return found


def carry_out(
    steps: Sequence[Step],
    source: Reached,
    target: Reached,
    said: Callable[[Step], None] = lambda step: None,
) -> dict[str, HubError]:
    """Do the steps in their order; the topics of which one failed, and why: their later steps are left out."""
    failed: dict[str, HubError] = {}
    for step in steps:
        if step.topic in failed:
            continue
        try:
            _do(step, source, target)
        except HubError as error:
            failed[step.topic] = error
        else:
            said(step)
    return failed


def rules_from_now(
    link: Link, target: Reached, secrets: Mapping[str, str]
) -> dict[TopicPartition, tuple[int, Rules]]:
    """Let records be made under the rules of the file from where each partition is now, of which some were made under
    others. By partition the source offset and the rules. Written under each shard's own fence, so that no worker goes on
    by former rules; the same again does nothing. ``secrets``: all keys of the mirror's masks."""
    begun: dict[TopicPartition, tuple[int, Rules]] = {}
    known = read_progress(target, maps=False)
    for number in sorted({shard_of(*tp, link.mirror.shards) for tp in _otherwise(link, known, secrets)}):
        writer = target.kafka.writer(Shard(link.name, number).transactional_id)
        try:
            # Read again: what was under way is aborted now, and nothing comes later.
            due = _otherwise(link, read_progress(target, maps=False), secrets)
            place = checkpoint_partition(
                link.name, number, target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
            )
            now_ms = int(time.time() * 1000)
            written = []
            for tp, mark in sorted(due.items()):
                if shard_of(*tp, link.mirror.shards) == number:
                    rules = Rules.now(link.mirror, tp.topic, secrets)
                    begun[tp] = mark.source_next, rules
                    written.append(Ruled(link.name, *tp, mark.topic_id, mark.source_next, rules, now_ms))
            writer.append([each.record(place) for each in written])
        finally:
            writer.close()
    return begun


def _otherwise(
    link: Link, progress: Progress, secrets: Mapping[str, str]
) -> dict[TopicPartition, Checkpoint]:
    """The partitions of which records were made under other rules than those of the file."""
    found: dict[TopicPartition, Checkpoint] = {}
    for tp, mark in progress.of(link.name).items():
        if not link.mirror.selects(tp.topic):
            continue
        then = {tp: in_force(progress.rules_at(link.name, tp))}
        if ruled_otherwise(Rules.now(link.mirror, tp.topic, secrets), [mark], then):
            found[tp] = mark
    return found


def make_own(own: Iterable[tuple[str, CreateTopic]], clusters: Mapping[str, Reached]) -> None:
    """The mirrors' own topics; one that somebody else makes at the same time is made."""
    for where, step in own:
        _create(step, clusters[where])


def _do(step: Step, source: Reached, target: Reached) -> None:
    kafka = target.kafka
    match step:
        case ImportSchema():
            _import(step, target)
        case RegisterSchema():
            carry_schema(source, target, step.schema.id, step.schema.subject)
        case CreateTopic():
            _create(step, target)
        case AddPartitions():
            there = kafka.topics().get(step.topic)
            if there is not None and there.partitions < step.total:
                kafka.add_partitions(step.topic, step.total)
        case AlterConfig():
            kafka.alter_config(step.topic, {key: new for key, (_, new) in step.changes.items()})
        case AlterAcls():
            kafka.add_topic_rules(rule_of(each) for each in step.add)
            kafka.remove_topic_rules(rule_of(each) for each in step.remove)
        case NewGeneration():
            pass  # whoever holds a shard begins it, under the shard's own fence
        case Remember():
            writer = kafka.writer()
            try:
                writer.append([step.synced.record()])
            finally:
                writer.close()


def _create(step: CreateTopic, at: Reached) -> None:
    with contextlib.suppress(Conflict):
        at.kafka.create_topic(
            step.topic,
            partitions=step.partitions,
            config=step.config,
            replication_factor=step.replication_factor,
        )
    # Made, but maybe by another: offsets can be asked for once its partitions have leaders.
    deadline = time.monotonic() + _SETTLE_S
    while True:
        try:
            at.kafka.end_offsets([step.topic])
            return
        except HubError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


_WHO = r"//[^/@\s]*@"  # of an address


def _import(step: ImportSchema, target: Reached) -> None:
    """With id and version, in the registry's IMPORT mode for this subject only, for a moment."""
    assert target.registry is not None
    schema, base = step.schema, target.registry.rstrip("/")
    body: dict[str, object] = {"schema": schema.text, "id": schema.id, "version": schema.version}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [each.as_json() for each in schema.references]
    mode, shown = f"{base}/mode/{schema.subject}", without_credentials(base)
    try:
        with httpx2.Client(timeout=15.0) as client:
            client.put(mode, params={"force": "true"}, json={"mode": "IMPORT"}).raise_for_status()
            try:
                answer = client.post(f"{base}/subjects/{schema.subject}/versions", json=body)
                if not answer.is_success:
                    raise PeerError(
                        f"schema {schema.subject} v{schema.version} (id {schema.id}) is refused by {shown}: {answer.text[:300]}",
                        hint="look at the registry's mode and its schemas of this id",
                        code="HUB-3611",
                    )
            finally:
                client.delete(mode)
    except httpx2.HTTPError as error:
        raise PeerError(
            f'schema registry at "{shown}" does not take {schema.subject}: {re.sub(_WHO, "//", str(error))}',
            hint="is it running, and may its mode be changed?",
            code="HUB-3611",
        ) from None
