"""[core] Control state of one cluster: workers, contents of links, pauses and status, folded from the control
and status topics.

::

    _hub.mirror.control   compact   pause|link                 a person paused the mirror
                                    pause|link|topic           or one of its topics
                                    retry|link                 stopped partitions may try again
                                    loss|home|epoch            what a failover left behind
                                    rehearsal|link|start       a rehearsal and its result
                                    restored|home|topic        a topic that a failback makes again
                                    source|link                Kafka's id of the source's cluster
                                    deletion|link|topic        a topic that was deleted at the source
                                    drift|link|topic           what somebody changed at a copy
                                    ...                        groups, ownership, synced state
    _hub.mirror.status    compact   worker|name                a heartbeat with the worker's shards (header
                                                               `links`: its links, as defined)
                                    carries|link               last plan: topics, partitions, generations
                                    ends|link                  the source's last reported ends
                                    partition|link|topic|n     status of one partition
                                    group|link|group           status of one group
                                    verified|link|topic|n      how far both sides of a partition were compared

Heartbeats are not in the control topic, so that it stays small: a new worker reads it from its beginning.
Whether a worker is alive is decided by when its heartbeat was received here, not by its clock; a heartbeat
that is already much older when it is read belongs to a former worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson

from hub.formats.fields import known_fields
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.rehearsals import Rehearsal, place_of, rehearsal_of
from hub.replication.clusters.status_records import (
    HEARD_HEADER,
    LINKS_HEADER,
    OWN_IDS_HEADER,
    CarriedTopic,
    GroupPlace,
    GroupStatus,
    LinkContents,
    PartitionStatus,
    SourceEnds,
    VerifiedRange,
    WorkerHeartbeat,
)
from hub.replication.maps.checkpoint import CONTROL_TOPIC, not_ours
from hub.replication.ownership.divergence import RestoredTopic, restored_of
from hub.replication.ownership.failover import Control, apply
from hub.replication.ownership.group_offsets import GroupMark, mark_of
from hub.replication.ownership.link_definitions import LinkDefinition
from hub.replication.ownership.loss_report import FailoverRecord, ReportedEnd, declared_of
from hub.replication.ownership.operation_steps import Ownership, OwnershipChange
from hub.replication.ownership.shards import Lease, Shard
from hub.replication.planning.drift import TopicDrift, drift_of
from hub.replication.planning.plan import synced_of
from hub.replication.planning.protection import ProtectedCopies, protected_of
from hub.replication.planning.schema_plan import SyncedSubject, synced_subject_of
from hub.replication.planning.source_deletion import SourceDeletion, deletion_of
from hub.replication.planning.steps import SyncedTopic
from hub.replication.planning.write_rights import OwnershipAcls, WriteAcls, fact_of

_LONG_AGO_MS = 60_000
T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


def pause_record(what: str, by: str, at_ms: int, *, paused: bool) -> NewRecord:
    """Return the control record that pauses or resumes a mirror, or one of its topics (``pause_key``)."""
    body = orjson.dumps({"by": by, "at_ms": at_ms}) if paused else None
    return NewRecord(CONTROL_TOPIC, f"pause|{what}".encode(), body)


def retry_record(link: str, at_ms: int) -> NewRecord:
    """Return the control record that lets stopped partitions of a mirror try again."""
    return NewRecord(CONTROL_TOPIC, f"retry|{link}".encode(), orjson.dumps({"at_ms": at_ms}))


@dataclass
class ControlState:
    """The fold of both topics of one cluster. ``heard_s``: when each worker's last heartbeat was received, by
    the reader's own clock.
    """

    control: Control = field(default_factory=Control)
    beats: dict[str, WorkerHeartbeat] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    carries: dict[str, LinkContents] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    ends: dict[str, SourceEnds] = field(default_factory=dict)
    partitions: dict[tuple[str, str, int], PartitionStatus] = field(default_factory=dict)
    groups: dict[tuple[str, str], GroupStatus] = field(default_factory=dict)
    verified: dict[tuple[str, str, int], VerifiedRange] = field(default_factory=dict)
    synced: dict[tuple[str, str], SyncedTopic] = field(default_factory=dict)
    rights: dict[str, WriteAcls] = field(default_factory=dict)  # by link
    handed: dict[str, OwnershipAcls] = field(default_factory=dict)  # by home
    protected: dict[str, ProtectedCopies] = field(default_factory=dict)  # by link
    subjects: dict[tuple[str, str], SyncedSubject] = field(default_factory=dict)
    marks: dict[tuple[str, str], dict[TopicPartition, GroupMark]] = field(default_factory=dict)
    declared: dict[str, FailoverRecord] = field(default_factory=dict)  # by home, the newest epoch's
    rehearsals: dict[tuple[str, int], Rehearsal] = field(default_factory=dict)  # by link and start
    restored: dict[str, RestoredTopic] = field(default_factory=dict)  # by topic, of the last failback
    sources: dict[str, str] = field(default_factory=dict)  # cluster id of a link's source
    deletions: dict[tuple[str, str], SourceDeletion] = field(default_factory=dict)  # by link and topic
    drifts: dict[tuple[str, str], TopicDrift] = field(default_factory=dict)  # by link and topic

    def apply(self, record: Record, now_s: float, now_ms: int) -> None:
        """Apply a record of either topic. Raises HubFault (HUB-5603) for one that is not a mirror's."""
        kind, _, rest = (record.key or b"").decode("utf-8", "replace").partition("|")
        try:
            if record.value is None:
                self._forget(kind, rest, record.topic)
            elif kind in ("owner", "operation"):
                self.control = apply(self.control, record)
            elif kind == "synced" and (synced := synced_of(record)) is not None:
                self.synced[synced.mirror, synced.topic] = synced
            elif kind == "subject" and (settings := synced_subject_of(record)) is not None:
                self.subjects[settings.mirror, settings.subject] = settings
            elif kind in ("rights", "handed"):
                self._may_write(fact_of(record))
            elif kind == "protected":
                self.protected[rest] = protected_of(rest, record.value)
            elif kind == "group" and record.topic == CONTROL_TOPIC:
                if (mark := mark_of(record)) is not None:
                    places = self.marks.setdefault((mark.link, mark.group), {})
                    places[TopicPartition(mark.topic, mark.partition)] = mark
            else:
                self._said(kind, rest, orjson.loads(record.value), now_s, now_ms)
                self._take_headers(kind, rest, record)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise not_ours(record, repr(error)) from None

    def _said(self, kind: str, rest: str, body: dict[str, Any], now_s: float, now_ms: int) -> None:
        match kind:
            case "worker":
                holding = tuple(Shard(str(link), int(number)) for link, number in body.pop("holding"))
                self.beats[rest] = known_fields(WorkerHeartbeat, body, worker=rest, holding=holding)
                age_ms = now_ms - self.beats[rest].at_ms
                self.heard_s[rest] = now_s - (age_ms / 1000 if age_ms > _LONG_AGO_MS else 0.0)
            case "carries":
                topics = {name: CarriedTopic(*row) for name, row in body.pop("topics").items()}
                cautions = tuple(body.pop("cautions"))
                self.carries[rest] = known_fields(
                    LinkContents, body, link=rest, topics=topics, cautions=cautions
                )
            case "ends":
                places = {TopicPartition(topic, n): (begin, end) for topic, n, begin, end in body["places"]}
                self.ends[rest] = SourceEnds(rest, places, int(body["at_ms"]))
            case "partition":
                link, topic, partition = rest.split("|")
                place = link, topic, int(partition)
                self.partitions[place] = known_fields(PartitionStatus, body, **_named(place))
            case "verified":
                link, topic, partition = rest.split("|")
                place = link, topic, int(partition)
                self.verified[place] = known_fields(VerifiedRange, body, **_named(place))
            case "group":
                link, _, group = rest.partition("|")
                of_group = tuple(GroupPlace(*row) for row in body["places"])
                self.groups[link, group] = GroupStatus(link, group, of_group, body["at_ms"])
            case "pause":
                self.paused[rest] = str(body.get("by", ""))
            case "retry":
                self.retries[rest] = int(body["at_ms"])
            case "rehearsal":
                self.rehearsals[place_of(rest)] = rehearsal_of(rest, body)
            case "restored":
                restored = restored_of(rest, body)
                self.restored[restored.topic] = restored
            case "source":
                self.sources[rest] = str(body["cluster_id"])
            case "deletion" | "drift":
                self._take_copy(kind, rest, body)
            case "loss":
                said = declared_of(rest, body)
                if said.home not in self.declared or said.epoch >= self.declared[said.home].epoch:
                    self.declared[said.home] = said
            case _:
                pass  # written by a newer release

    def _take_copy(self, kind: str, rest: str, body: dict[str, Any]) -> None:
        """Apply the record of one copy: its topic was deleted at the source, or somebody changed it."""
        link, _, topic = rest.partition("|")
        if kind == "deletion":
            self.deletions[link, topic] = deletion_of(rest, body)
        else:
            self.drifts[link, topic] = drift_of(rest, body)

    def _take_headers(self, kind: str, rest: str, record: Record) -> None:
        """Apply headers, which earlier releases do not write."""
        if kind == "worker":
            self.beats[rest] = replace(self.beats[rest], links=_links_of(record))
        elif kind == "carries" and (own := _header(record, OWN_IDS_HEADER)) is not None:
            told, names = self.carries[rest], frozenset(orjson.loads(own))
            topics = {name: replace(each, own_ids=name in names) for name, each in told.topics.items()}
            self.carries[rest] = replace(told, topics=topics)
        elif kind == "partition" and (heard := _header(record, HEARD_HEADER)) is not None:
            link, topic, partition = rest.split("|")
            place = link, topic, int(partition)
            self.partitions[place] = replace(self.partitions[place], source_heard_at_ms=int(heard))

    def _may_write(self, fact: WriteAcls | OwnershipAcls | None) -> None:
        if isinstance(fact, WriteAcls):
            self.rights[fact.link] = fact
        elif (
            fact is not None
            and fact.revision >= self.handed.get(fact.home, OwnershipAcls(fact.home)).revision
        ):
            self.handed[fact.home] = fact

    def _forget(self, kind: str, rest: str, topic_of: str) -> None:
        match kind:
            case "worker":
                self.beats.pop(rest, None)
                self.heard_s.pop(rest, None)
            case "carries":
                self.carries.pop(rest, None)
            case "ends":
                self.ends.pop(rest, None)
            case "pause":
                self.paused.pop(rest, None)
            case "rehearsal":
                self.rehearsals.pop(place_of(rest), None)
            case "partition":
                link, topic, partition = rest.split("|")
                self.partitions.pop((link, topic, int(partition)), None)
            case "verified":
                link, topic, partition = rest.split("|")
                self.verified.pop((link, topic, int(partition)), None)
            case "synced":
                link, _, topic = rest.partition("|")
                self.synced.pop((link, topic), None)
            case "deletion" | "drift":
                link, _, topic = rest.partition("|")
                (self.deletions if kind == "deletion" else self.drifts).pop((link, topic), None)
            case "source":
                self.sources.pop(rest, None)
            case "rights":
                self.rights.pop(rest, None)
            case "handed":
                self.handed.pop(rest, None)
            case "protected":
                self.protected.pop(rest, None)
            case "subject":
                link, _, subject = rest.partition("|")
                self.subjects.pop((link, subject), None)
            case "group" if topic_of == CONTROL_TOPIC:
                link, topic, partition, group = rest.split("|", 3)
                self.marks.get((link, group), {}).pop(TopicPartition(topic, int(partition)), None)
            case "group":
                link, _, group = rest.partition("|")
                self.groups.pop((link, group), None)
            case _:
                pass

    def of_link(self, link: str, paused: Mapping[str, str]) -> ControlState:
        """Return a copy with the state of one link alone, and with these pauses."""

        def own(known: Mapping[str, T]) -> dict[str, T]:
            return {key: each for key, each in known.items() if key == link}

        def parts(known: Mapping[K, T]) -> dict[K, T]:
            return {key: each for key, each in known.items() if key[0] == link}

        return ControlState(
            control=self.control,
            paused=dict(paused),
            carries=own(self.carries),
            ends=own(self.ends),
            partitions=parts(self.partitions),
            synced=parts(self.synced),
            subjects=parts(self.subjects),
            rights=own(self.rights),
            handed=dict(self.handed),
            protected=own(self.protected),
            marks={key: dict(each) for key, each in parts(self.marks).items()},
            verified=parts(self.verified),
            rehearsals=parts(self.rehearsals),
            sources=own(self.sources),
            deletions=parts(self.deletions),
            drifts=parts(self.drifts),
        )

    def heard(self, link: str, place: TopicPartition) -> ReportedEnd | None:
        """Return the last end offset of a source partition that a worker reported; None: never reported."""
        found = []
        status, ends = self.partitions.get((link, *place)), self.ends.get(link)
        if status is not None and status.source_end >= 0:
            # Earlier versions do not record when the end was read: not later than the status itself.
            found.append(ReportedEnd(status.source_end, status.source_heard_at_ms or status.at_ms))
        if ends is not None and place in ends.places:
            found.append(ReportedEnd(ends.places[place][1], ends.at_ms))
        if not found:
            return None
        return ReportedEnd(max(each.end for each in found), max(each.at_ms for each in found))

    def alive(self, now_s: float) -> frozenset[str]:
        """Return the workers whose last heartbeat is within its TTL."""
        return frozenset(
            name for name, at_s in self.heard_s.items() if (now_s - at_s) * 1000 < self.beats[name].ttl_ms
        )

    def claims(self, now_s: float) -> dict[str, Mapping[str, LinkDefinition]]:
        """Return the links of every living worker that names them; workers of earlier releases
        are left out.
        """
        beats = ((name, self.beats[name].links) for name in self.alive(now_s))
        return {name: links for name, links in beats if links is not None}

    def leases(self, now_s: float) -> tuple[Lease, ...]:
        """Return the leases as the living workers report them; on the reader's clock, in milliseconds."""
        return tuple(
            Lease(shard, name, int(self.heard_s[name] * 1000) + self.beats[name].ttl_ms)
            for name in sorted(self.alive(now_s))
            for shard in self.beats[name].holding
        )


def _named(place: tuple[str, str, int]) -> dict[str, Any]:
    return dict(zip(("link", "topic", "partition"), place, strict=True))


def _header(record: Record, wanted: str) -> bytes | None:
    return next((value for name, value in record.headers if name == wanted), None)


def _links_of(record: Record) -> Mapping[str, LinkDefinition] | None:
    """Return the links that a heartbeat names; None: from an earlier release."""
    said = _header(record, LINKS_HEADER)
    if said is None:
        return None
    return {
        name: LinkDefinition(int(since_ms), str(digest))
        for name, (digest, since_ms) in orjson.loads(said).items()
    }


def joined(boards: Iterable[Control]) -> Control:
    """Merge the control of several clusters: for each home the highest epoch, and the most advanced
    operation.
    """
    owners: dict[str, Ownership] = {}
    operations: dict[str, OwnershipChange] = {}
    for control in boards:
        for home, owner in control.owners.items():
            if home not in owners or owner.epoch > owners[home].epoch:
                owners[home] = owner
        for home, one in control.operations.items():
            known = operations.get(home)
            if known is None or _further(one, known):
                operations[home] = one
    return Control(owners, operations)


def _further(one: OwnershipChange, known: OwnershipChange) -> bool:
    if one.id == known.id:
        return (one.state != "running", len(one.done)) > (known.state != "running", len(known.done))
    # An aborted operation leaves its epoch to the next one.
    return (one.epoch, one.state != "aborted") > (known.epoch, known.state != "aborted")
