"""[core] Records of the status topic: workers, links, partitions, groups, verified ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import orjson

from hub.formats.fields import fields_of
from hub.record import NewRecord, TopicPartition
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.link_definitions import LinkDefinition
from hub.replication.ownership.shards import Shard, shards_of

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


LINKS_HEADER = "links"


HEARD_HEADER = "source_heard_at_ms"


OWN_IDS_HEADER = "own_ids"
"""Headers for values that earlier releases do not know: they ignore headers, but reject a record whose body
has
an unknown field."""


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
        links = {name: [each.digest, each.since_ms] for name, each in (self.links or {}).items()}
        headers = () if self.links is None else ((LINKS_HEADER, orjson.dumps(links)),)
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
        headers = ((OWN_IDS_HEADER, orjson.dumps(own)),) if own else ()
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
        body = {name: getattr(self, name) for name in STATUS_FIELDS}
        key = f"partition|{self.link}|{self.topic}|{self.partition}"
        headers = ((HEARD_HEADER, b"%d" % self.source_heard_at_ms),)
        return NewRecord(STATUS_TOPIC, key.encode(), orjson.dumps(body), headers)


# The time is last: a status that differs only in it is not sent immediately.
STATUS_FIELDS = (
    *(
        each.name
        for each in fields(PartitionStatus)
        if each.name not in ("link", "topic", "partition", "source_heard_at_ms", "at_ms")
    ),
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
    """One group in one partition: see ``group_offsets.CarriedPosition``. ``unread_lost`` and
    ``redelivered``: the cost of a
    failover now, in offsets that the group never gets and records that it gets twice.
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
        rows = [list(fields_of(each).values()) for each in self.places]
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
        body = fields_of(self, but=("link", "topic", "partition"))
        return NewRecord(STATUS_TOPIC, self.key, orjson.dumps(body))


def copy_of(mark: Checkpoint) -> str:
    """Return the identity of a copy: the ids of the two topics of a checkpoint."""
    return f"{mark.topic_id}>{mark.target_topic_id}"
