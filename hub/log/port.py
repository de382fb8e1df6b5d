"""[core] Ports through which everything reaches the log, each with an in-memory implementation.

Three small ports: a ``Reader`` reads from given positions, a ``Writer`` appends, a ``Cluster`` manages
topics. ``hub/kafka/`` implements them with confluent-kafka; ``MemoryCluster`` implements them in memory for
unit tests and simulation, with the same rules (offsets dense from 0, keys hash to partitions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Literal, Protocol

from hub.errors import CallerError, HubError, PeerError
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


class AppendWithdrawn(CallerError):
    """The check of an append withdrew it; nothing was appended. ``offset``: of the record that stood against
    it.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


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


class ConditionalWriter(Protocol):
    """A writer with a transactional name whose appends may be withdrawn."""

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        """``append``, where ``check`` gets the positions after the records, before they are committed. If it
        raises AppendWithdrawn, nothing is appended.
        """

    def close(self) -> None: ...


class Configured(Protocol):
    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]: ...


def tombstones_kept_ms(cluster: Configured, topic: str) -> int | None:
    """Return how long a compacted topic keeps a tombstone, in ms; None if the topic is not compacted, or if
    retention deletes records too.
    """
    config = cluster.topic_config([topic])[topic]
    if config.get("cleanup.policy") != "compact":
        return None
    retention_ms = config.get("delete.retention.ms", "")
    return int(retention_ms) if retention_ms.isdigit() else DAY_MS


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

    def follower(self, *, queue_kb: int | None = None) -> Reader:
        """Open a reader for one that waits at the end: a new record arrives at once. ``queue_kb``: the most
        that it fetches ahead of its caller, None for the usual amount."""

    def writer(self, name: str | None = None) -> Writer:
        """Open a writer; with a name a transactional one, which fences earlier writers of that name."""

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """Return the first offset at or after that time; partitions without one are left out."""

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        """Return the offset of the first record at or after each position, or the end."""
