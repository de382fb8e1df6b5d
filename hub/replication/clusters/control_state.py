"""[core] Control state of one cluster: workers, contents of links, pauses and status, folded from the control
and status topics.

::

    _hub.mirror.control   compact   pause|link                 a person paused the mirror
                                    retry|link                 stopped partitions may try again
                                    loss|home|epoch            what a failover left behind
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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import orjson

from hub.errors import HubFault
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.maps.checkpoint import CONTROL_TOPIC, Checkpoint
from hub.replication.ownership.failover import Control, Ownership, OwnershipChange, apply
from hub.replication.ownership.group_offsets import GroupMark, mark_of
from hub.replication.ownership.link_definitions import LinkDefinition
from hub.replication.ownership.loss_report import FailoverRecord, ReportedEnd, declared_of
from hub.replication.ownership.shards import Lease, Shard, shards_of
from hub.replication.planning.plan import SyncedTopic, synced_of
from hub.replication.planning.schema_plan import SyncedSubject, synced_subject_of
from hub.replication.planning.write_rights import OwnershipAcls, WriteAcls, fact_of

STATUS_TOPIC = "_hub.mirror.status"
STATUS_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    # Readers read it from its beginning: the cleaner must keep it short.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}
CHORES = -1
"""Number of the shard without partitions: its holder runs the link tasks."""

_LONG_AGO_MS = 60_000
_LINKS, _HEARD, _OWN_IDS = "links", "source_heard_at_ms", "own_ids"
"""Headers for values that earlier releases do not know: they ignore headers, but reject a record whose body
has an unknown field."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A worker's heartbeat. ``ttl_ms``: how long after its receipt the worker counts as alive. ``links``: the
    links to this cluster that it carries, with their definitions; None: from an earlier release, which does
    not report them.
    """

    worker: str
    host: str
    pid: int
    holding: tuple[Shard, ...]
    ttl_ms: int
    at_ms: int
    links: Mapping[str, LinkDefinition] | None = None

    def record(self) -> NewRecord:
        body = {
            "host": self.host,
            "pid": self.pid,
            "holding": [list(each) for each in self.holding],
            "ttl_ms": self.ttl_ms,
            "at_ms": self.at_ms,
        }
        said = {name: [each.digest, each.since_ms] for name, each in (self.links or {}).items()}
        headers = () if self.links is None else ((_LINKS, orjson.dumps(said)),)
        key = f"worker|{self.worker}".encode()
        return NewRecord(STATUS_TOPIC, key, orjson.dumps(body), headers)


@dataclass(frozen=True, slots=True)
class CarriedTopic:
    """A topic to mirror; ``generation`` is that of ``topic_id``. ``own_ids``: its records get the schema ids
    of the target's registry, as the plan found.
    """

    partitions: int
    topic_id: str
    generation: int = 0
    own_ids: bool = False


@dataclass(frozen=True, slots=True)
class LinkContents:
    """Contents of a link, as its link tasks planned them last. ``trouble``: by topic, why it is not carried.
    ``schemas_to``: the target's registry has the schemas that the source's wrote to its log before this
    offset; -1 where that log cannot be followed.
    """

    link: str
    topics: Mapping[str, CarriedTopic] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()
    error: str = ""
    at_ms: int = 0
    schemas_to: int = -1

    def record(self) -> NewRecord:
        body = {
            "topics": {name: [t.partitions, t.topic_id, t.generation] for name, t in self.topics.items()},
            "trouble": dict(self.trouble),
            "cautions": list(self.cautions),
            "error": self.error,
            "schemas_to": self.schemas_to,
            "at_ms": self.at_ms,
        }
        own = sorted(name for name, topic in self.topics.items() if topic.own_ids)
        headers = ((_OWN_IDS, orjson.dumps(own)),) if own else ()
        return NewRecord(STATUS_TOPIC, f"carries|{self.link}".encode(), orjson.dumps(body), headers)

    def shards(self, number: int) -> dict[Shard, tuple[TopicPartition, ...]]:
        """Return its shards with their partitions."""
        every = [TopicPartition(name, at) for name, t in self.topics.items() for at in range(t.partitions)]
        return shards_of(self.link, every, number)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Status of one partition, as reported by its worker. Offsets are next-to-read; -1 and None: unknown.

    ``lag_bytes`` is the lag in records times the mean size of the mirrored records. ``lag_s``: seconds since
    the source reached the mirror's offset, as far as the worker knows. ``restarts``: restarts of its shard by
    the watchdog since it last made progress. ``source_heard_at_ms``: when ``source_end`` was read, epoch
    milliseconds; 0: unknown.
    """

    link: str
    topic: str
    partition: int
    shard: int
    worker: str
    state: str
    reason: str
    engine: str
    source_next: int
    source_end: int
    target_next: int
    lag_records: int
    lag_bytes: int
    lag_s: float | None
    records_per_s: float
    bytes_per_s: float
    committed_at_ms: int
    at_ms: int
    restarts: int = 0
    source_heard_at_ms: int = 0

    def record(self) -> NewRecord:
        body = {name: getattr(self, name) for name in _STATUS_FIELDS}
        key = f"partition|{self.link}|{self.topic}|{self.partition}"
        headers = ((_HEARD, b"%d" % self.source_heard_at_ms),)
        return NewRecord(STATUS_TOPIC, key.encode(), orjson.dumps(body), headers)


_STATUS_FIELDS = (
    "shard",
    "worker",
    "state",
    "reason",
    "engine",
    "source_next",
    "source_end",
    "target_next",
    "lag_records",
    "lag_bytes",
    "lag_s",
    "records_per_s",
    "bytes_per_s",
    "committed_at_ms",
    "restarts",
    # The time is last: a status that differs only in it is not sent immediately.
    "at_ms",
)


@dataclass(frozen=True, slots=True)
class SourceEnds:
    """Offsets [begin, end) of a link's source topics, paused and refused ones included, as a worker read them
    last.

    The worker that plans the link reads them every few seconds, whether or not anything is carried.
    ``at_ms``: just before the request, epoch milliseconds.
    """

    link: str
    places: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    at_ms: int = 0

    def record(self) -> NewRecord:
        rows = [[*place, *offsets] for place, offsets in sorted(self.places.items())]
        body = {"places": rows, "at_ms": self.at_ms}
        return NewRecord(STATUS_TOPIC, f"ends|{self.link}".encode(), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """One group in one partition: see ``group_offsets.CarriedPosition``. ``unread_lost`` and ``redelivered``:
    the cost of a failover now, in offsets that the group never gets and records that it gets twice.
    """

    topic: str
    partition: int
    state: str
    reason: str
    source_offset: int
    position: int | None
    unread_lost: int
    redelivered: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    link: str
    group: str
    places: tuple[GroupPlace, ...]
    at_ms: int

    def record(self) -> NewRecord:
        rows = [
            [
                p.topic,
                p.partition,
                p.state,
                p.reason,
                p.source_offset,
                p.position,
                p.unread_lost,
                p.redelivered,
            ]
            for p in self.places
        ]
        body = {"places": rows, "at_ms": self.at_ms}
        return NewRecord(STATUS_TOPIC, f"group|{self.link}|{self.group}".encode(), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class VerifiedRange:
    """Range of a partition that was compared on both sides, in source offsets: ``compared`` records up to
    ``to``, without the ``skipped`` offsets for which there was no time. ``differs_at``: the first offset at
    which the sides differed. ``copy``: identity of the copy, see ``copy_of``.
    """

    link: str
    topic: str
    partition: int
    copy: str
    to: int
    compared: int = 0
    skipped: int = 0
    differs_at: int | None = None
    why: str = ""
    at_ms: int = 0

    @property
    def key(self) -> bytes:
        return f"verified|{self.link}|{self.topic}|{self.partition}".encode()

    def record(self) -> NewRecord:
        body = {
            "copy": self.copy,
            "to": self.to,
            "compared": self.compared,
            "skipped": self.skipped,
            "differs_at": self.differs_at,
            "why": self.why,
            "at_ms": self.at_ms,
        }
        return NewRecord(STATUS_TOPIC, self.key, orjson.dumps(body))


def copy_of(mark: Checkpoint) -> str:
    """Return the identity of a copy: the ids of the two topics of a checkpoint."""
    return f"{mark.topic_id}>{mark.target_topic_id}"


def pause_record(link: str, by: str, at_ms: int, *, paused: bool) -> NewRecord:
    """Return the control record that pauses or resumes a mirror."""
    body = orjson.dumps({"by": by, "at_ms": at_ms}) if paused else None
    return NewRecord(CONTROL_TOPIC, f"pause|{link}".encode(), body)


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
    subjects: dict[tuple[str, str], SyncedSubject] = field(default_factory=dict)
    marks: dict[tuple[str, str], dict[TopicPartition, GroupMark]] = field(default_factory=dict)
    declared: dict[str, FailoverRecord] = field(default_factory=dict)  # by home, the newest epoch's

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
            elif kind == "group" and record.topic == CONTROL_TOPIC:
                if (mark := mark_of(record)) is not None:
                    places = self.marks.setdefault((mark.link, mark.group), {})
                    places[TopicPartition(mark.topic, mark.partition)] = mark
            else:
                self._said(kind, rest, orjson.loads(record.value), now_s, now_ms)
                self._take_headers(kind, rest, record)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise HubFault(
                f"{record.topic}, offset {record.offset}: not what a mirror writes ({error!r})",
                hint="something else writes to this topic, or a newer hub did",
                code="HUB-5603",
            ) from None

    def _said(self, kind: str, rest: str, body: dict[str, Any], now_s: float, now_ms: int) -> None:
        match kind:
            case "worker":
                holding = tuple(Shard(str(link), int(number)) for link, number in body.pop("holding"))
                self.beats[rest] = _made(WorkerHeartbeat, body, worker=rest, holding=holding)
                age_ms = now_ms - self.beats[rest].at_ms
                self.heard_s[rest] = now_s - (age_ms / 1000 if age_ms > _LONG_AGO_MS else 0.0)
            case "carries":
                topics = {name: CarriedTopic(*row) for name, row in body.pop("topics").items()}
                cautions = tuple(body.pop("cautions"))
                self.carries[rest] = _made(LinkContents, body, link=rest, topics=topics, cautions=cautions)
            case "ends":
                places = {TopicPartition(topic, n): (begin, end) for topic, n, begin, end in body["places"]}
                self.ends[rest] = SourceEnds(rest, places, int(body["at_ms"]))
            case "partition":
                link, topic, partition = rest.split("|")
                place = link, topic, int(partition)
                self.partitions[place] = _made(PartitionStatus, body, **_named(place))
            case "verified":
                link, topic, partition = rest.split("|")
                place = link, topic, int(partition)
                self.verified[place] = _made(VerifiedRange, body, **_named(place))
            case "group":
                link, _, group = rest.partition("|")
                of_group = tuple(GroupPlace(*row) for row in body["places"])
                self.groups[link, group] = GroupStatus(link, group, of_group, body["at_ms"])
            case "pause":
                self.paused[rest] = str(body.get("by", ""))
            case "retry":
                self.retries[rest] = int(body["at_ms"])
            case "loss":
                said = declared_of(rest, body)
                if said.home not in self.declared or said.epoch >= self.declared[said.home].epoch:
                    self.declared[said.home] = said
            case _:
                pass  # written by a newer release

    def _take_headers(self, kind: str, rest: str, record: Record) -> None:
        """Apply headers, which earlier releases do not write."""
        if kind == "worker":
            self.beats[rest] = replace(self.beats[rest], links=_links_of(record))
        elif kind == "carries" and (own := _header(record, _OWN_IDS)) is not None:
            told, names = self.carries[rest], frozenset(orjson.loads(own))
            topics = {name: replace(each, own_ids=name in names) for name, each in told.topics.items()}
            self.carries[rest] = replace(told, topics=topics)
        elif kind == "partition" and (heard := _header(record, _HEARD)) is not None:
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
            case "partition":
                link, topic, partition = rest.split("|")
                self.partitions.pop((link, topic, int(partition)), None)
            case "verified":
                link, topic, partition = rest.split("|")
                self.verified.pop((link, topic, int(partition)), None)
            case "synced":
                link, _, topic = rest.partition("|")
                self.synced.pop((link, topic), None)
            case "rights":
                self.rights.pop(rest, None)
            case "handed":
                self.handed.pop(rest, None)
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


def _made(kind: Callable[..., T], body: Mapping[str, Any], **more: Any) -> T:
    """Build one of the dataclasses above from a record's body; ignores fields of a newer release."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known}, **more)


def _named(place: tuple[str, str, int]) -> dict[str, Any]:
    return dict(zip(("link", "topic", "partition"), place, strict=True))


def _header(record: Record, wanted: str) -> bytes | None:
    return next((value for name, value in record.headers if name == wanted), None)


def _links_of(record: Record) -> Mapping[str, LinkDefinition] | None:
    """Return the links that a heartbeat names; None: from an earlier release."""
    said = _header(record, _LINKS)
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
