"""[core] Ports through which everything reaches the log, each with an in-memory implementation.

Three small ports: a ``Reader`` reads from given positions, a ``Writer`` appends, a ``Cluster`` manages
topics. ``hub/kafka/`` implements them with confluent-kafka; ``MemoryCluster`` implements them in memory for
unit tests and simulation, with the same rules (offsets dense from 0, keys hash to partitions).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Literal, Protocol

from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError
from hub.record import NewRecord, Positions, Record, TopicPartition


class WriterFenced(PeerError):
    """A later writer with the same name has started; this one may no longer write."""

    code = "HUB-3001"
    retriable = False


class Unreadable(PeerError):
    """The record or batch at ``offset`` of ``place`` can never be read. A reader that skips it must assign a
    position after it.
    """

    code = "HUB-3021"

    def __init__(self, message: str, place: TopicPartition, offset: int) -> None:
        super().__init__(message, hint=f"to skip it, read from offset {offset + 1}")
        self.place, self.offset = place, offset


class GroupsLeftAlone(CallerError):
    """Positions of some consumer groups cannot be committed, or must not be; nothing of the transaction was.
    ``groups``: which."""

    code = "HUB-1623"

    def __init__(self, message: str, groups: Iterable[str]) -> None:
        super().__init__(message)
        self.groups = frozenset(groups)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Description of a topic by the cluster. ``topic_id`` changes when a topic is deleted and recreated."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def kafkas_id(self) -> str:
        """Return the topic id as Kafka's tools and mirrors format it: URL-safe base64. Kafka's C client uses
        plain base64.
        """
        return self.topic_id.replace("+", "-").replace("/", "_")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to make; ``config`` are the settings that shall differ from the cluster's defaults."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """Replicas of one partition, as broker ids; ``leader`` is None while the partition has none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Brokers and partitions of a cluster: host and port of each live broker, by id; the controller's id
    (None if there is none now); and the replicas of every topic, including Kafka's own.
    """

    brokers: Mapping[int, tuple[str, int]]
    controller: int | None
    partitions: Mapping[str, tuple[PartitionReplicas, ...]]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log folder of a broker. ``bytes``: size of its logs; ``total_bytes`` and ``usable_bytes``: size and
    free space of its disk, None if the broker does not report them. ``error``: why the folder cannot be used,
    "" if it can.
    """

    path: str
    bytes: int | None
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """Value and source of a topic's setting: the topic itself, the brokers' configuration, or Kafka's
    default.
    """

    value: str | None
    source: Literal["topic", "broker", "default"]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group as its coordinator describes it: Kafka's name of its state (``STABLE``, ``EMPTY``, …),
    the number of connected members (None: at least one), and the topics assigned to them.
    """

    name: str
    state: str
    members: int | None
    topics: frozenset[str] = frozenset()


def same_setting(one: str | None, other: str | None) -> bool:
    """Return whether two texts are one value of a setting. Brokers report the parsed value, not the text that
    was written.

    >>> same_setting("compact, delete", "compact,delete"), same_setting("0.50", "0.5"), same_setting("1",
    ... None)
    (True, True, False)
    """
    if one is None or other is None:
        return one is other
    return one == other or _understood(one) == _understood(other)


def _understood(text: str) -> object:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1:
        return parts
    if parts[0].lower() in ("true", "false"):
        return parts[0].lower()
    try:
        number = Decimal(parts[0])
    except InvalidOperation:
        return parts[0]
    return number if number.is_finite() else parts[0]


class Reader(Protocol):
    """Reads records in offset order per partition, committed ones only. Holds positions, commits none."""

    def assign(self, positions: Positions) -> None:
        """Read exactly these partitions, each from its next offset."""

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        """Return at most ``limit`` records, as soon as there are any;
        empty after ``timeout_s`` without one."""

    def position(self) -> Positions:
        """Return the next offset to read of every assigned partition (control markers and aborted records
        included).
        """

    def close(self) -> None: ...


class Writer(Protocol):
    """Appends records, all or nothing where it was opened with a transactional name."""

    def append(self, records: Sequence[NewRecord]) -> Positions:
        """Append and wait until they are durable. Returns the position after the last record of each
        partition.

        Raises WriterFenced when a later writer took the name; PeerError (retriable, outcome unknown)
        otherwise.
        """

    def close(self) -> None: ...


class GroupWriter(Writer, Protocol):
    """A writer with a transactional name that also commits positions of consumer groups."""

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        """``append``, and the positions of ``groups`` in the same transaction.

        ``check`` is called once the positions stand in the groups' log and before the transaction ends; what
        it raises aborts it. So no commit of somebody else is overwritten: one that came before the positions
        is seen by ``check``, and one that comes after them outlives them, for a coordinator applies what a
        transaction committed only where nothing newer is (KIP-98). Membership is not looked at by the broker.
        Raises GroupsLeftAlone for groups that refuse it.
        """


DAY_MS = 86_400_000


class Configured(Protocol):
    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]: ...


def tombstones_kept_ms(cluster: Configured, topic: str) -> int | None:
    """Return how long a compacted topic keeps a tombstone, in ms; None if the topic is not compacted, or if
    retention deletes records too.
    """
    config = cluster.topic_config([topic])[topic]
    if config.get("cleanup.policy") != "compact":
        return None
    told = config.get("delete.retention.ms", "")
    return int(told) if told.isdigit() else DAY_MS


class Cluster(Protocol):
    """Topics of a cluster, and their offsets."""

    def topics(self) -> Mapping[str, TopicDescription]: ...

    def described(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        """Describe these topics only; topics that do not exist are left out."""

    def partition_counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the partition count of each of these topics; topics that do not exist are left out."""

    def create_topic(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int
    ) -> None:
        """Create a topic. Raises Conflict when it exists."""

    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, HubError]:
        """Create many topics with one request.
        Returns the error of each topic that was not created, by name."""

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings that differ from the cluster's defaults, by topic."""

    def add_partitions(self, name: str, total: int) -> None: ...

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set the given keys; the value None resets a key to the cluster's default."""

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Mapping[str, HubError]:
        """Run ``alter_config`` for many topics with one request. Returns the error of each topic that was not
        changed.
        """

    def delete_topic(self, name: str) -> None: ...

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        """The next offset that a committed record would get, per partition (the last stable offset). With
        ``committed`` False the high watermarks, past open transactions too."""

    def beginning_offsets(self, topics: Sequence[str]) -> Positions: ...


class Log(Cluster, Protocol):
    """A cluster that also opens readers and writers."""

    def reader(self) -> Reader: ...

    def follower(self) -> Reader:
        """Open a reader for one that waits at the end: a new record arrives at once."""

    def writer(self, name: str | None = None) -> Writer:
        """Open a writer; with a name a transactional one, which fences earlier writers of that name."""

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """Return the first offset at or after that time; partitions without one are left out."""

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        """Return the offset of the first record at or after each position, or the end."""


@dataclass
class MemoryCluster:
    """In-memory cluster: topics as lists of records."""

    logs: dict[str, list[list[Record]]] = field(default_factory=dict)
    descriptions: dict[str, TopicDescription] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    now_ms: int = 0
    created: int = 0
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)  # by group

    def topics(self) -> Mapping[str, TopicDescription]:
        return dict(self.descriptions)

    def described(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        found = self.topics()
        return {name: found[name] for name in topics if name in found}

    def partition_counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        return {name: len(self.logs[name]) for name in topics if name in self.logs}

    def create_topic(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int
    ) -> None:
        if name in self.logs:
            raise Conflict(f'topic "{name}" exists already')
        self.created += 1
        self.logs[name] = [[] for _ in range(partitions)]
        self.descriptions[name] = TopicDescription(
            name, f"memory-{self.created}", partitions, replication_factor, dict(config)
        )

    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, HubError]:
        refused: dict[str, HubError] = {}
        for new in topics:
            try:
                self.create_topic(
                    new.name,
                    partitions=new.partitions,
                    config=new.config,
                    replication_factor=new.replication_factor,
                )
            except Conflict as error:
                refused[new.name] = error
        return refused

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.descriptions[name].config for name in names}

    def add_partitions(self, name: str, total: int) -> None:
        log = self._log(name)
        log.extend([] for _ in range(total - len(log)))
        self.descriptions[name] = replace(self.descriptions[name], partitions=len(log))

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        description = self.descriptions[name]
        merged = {**description.config, **{k: v for k, v in changes.items() if v is not None}}
        kept = {k: v for k, v in merged.items() if changes.get(k, v) is not None}
        self.descriptions[name] = replace(description, config=kept)

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Mapping[str, HubError]:
        refused: dict[str, HubError] = {}
        for name, wanted in changes.items():
            try:
                self._log(name)
                self.alter_config(name, wanted)
            except NotFound as error:
                refused[name] = error
        return refused

    def delete_topic(self, name: str) -> None:
        self._log(name)
        del self.logs[name], self.descriptions[name]

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        return Positions.of(
            (topic, partition, len(records))
            for topic in topics
            for partition, records in enumerate(self._log(topic))
        )

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        wanted = set(partitions)
        ends = self.end_offsets(sorted({tp.topic for tp in wanted} & self.logs.keys()))
        return Positions({tp: end for tp, end in ends if tp in wanted})

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return Positions.of((tp.topic, tp.partition, 0) for tp, _ in self.end_offsets(topics))

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """Return the first offset at or after that time; partitions without one are left out."""
        found: dict[TopicPartition, int] = {}
        for topic in topics:
            for records in self._log(topic):
                for record in records:
                    if record.timestamp_ms >= timestamp_ms:
                        found.setdefault(record.topic_partition, record.offset)
        return Positions(found)

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        """Return the offset of the first record at or after each position, or the end."""
        return positions

    def gatherer(self) -> MemoryReader:
        return self.reader()

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    follower = reader

    def writer(self, name: str | None = None) -> MemoryWriter:
        """Open a writer; a named writer fences every earlier writer of that name."""
        if name is not None:
            self.epochs[name] = self.epochs.get(name, 0) + 1
        return MemoryWriter(self, name, self.epochs.get(name or "", 0))

    def _log(self, name: str) -> list[list[Record]]:
        if name not in self.logs:
            raise NotFound(f'topic "{name}" does not exist')
        return self.logs[name]


@dataclass
class MemoryReader:
    """See Reader."""

    cluster: MemoryCluster
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def assign(self, positions: Positions) -> None:
        self.positions = dict(positions.offsets)

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        found: list[Record] = []
        for tp, position in self.positions.items():
            records = self.cluster._log(tp.topic)[tp.partition]
            taken = records[position : position + limit - len(found)]
            self.positions[tp] = position + len(taken)
            found.extend(taken)
        return found

    def position(self) -> Positions:
        return Positions(dict(self.positions))

    def close(self) -> None:
        self.positions = {}


@dataclass
class MemoryWriter:
    """See Writer."""

    cluster: MemoryCluster
    name: str | None
    epoch: int

    def append(self, records: Sequence[NewRecord]) -> Positions:
        if self.name is not None and self.cluster.epochs[self.name] != self.epoch:
            raise WriterFenced(f'writer "{self.name}" was replaced by a later one')
        after: dict[TopicPartition, int] = {}
        for new in records:
            log = self.cluster._log(new.topic)
            partition = new.partition
            if partition is None:
                partition = zlib.crc32(new.key or b"") % len(log)
            offset = len(log[partition])
            timestamp = self.cluster.now_ms if new.timestamp_ms is None else new.timestamp_ms
            log[partition].append(
                Record(new.topic, partition, offset, timestamp, new.key, new.value, new.headers)
            )
            after[TopicPartition(new.topic, partition)] = offset + 1
        return Positions(after)

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        before = {group: dict(self.cluster.committed.get(group, {})) for group in groups}
        try:
            check()
        except GroupsLeftAlone:
            self.append([])  # a writer that was replaced hears of it first
            raise
        after = self.append(records)
        for group, positions in groups.items():
            known = self.cluster.committed.setdefault(group, {})
            known |= {tp: at for tp, at in positions if known.get(tp) == before[group].get(tp)}
        return after

    def close(self) -> None: ...
