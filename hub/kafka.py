"""[edge] confluent-kafka: the ports of ``hub/log.py`` carried to a real cluster.

One factory of settings for every client, because each default that differs has lost somebody's events: acks=all,
idempotence, committed records only, no automatic commits, and no silent reset: an offset that the log no longer has
is an error that names the gap. librdkafka has no epoch per transaction (KIP-890), so after any doubt about the end of
a transaction the producer is dropped and a new one fences it.

``KafkaCluster`` knows topics and opens the rest: ``KafkaReader``, ``KafkaSender`` (a queue of records under way),
``KafkaWriter`` (append and wait; a sender and, with a name, transactions).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as KafkaNewTopic

from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError
from hub.log import ConfigValue, NewTopic, PartitionReplicas, TopicDescription, WriterFenced, same_setting
from hub.record import NewRecord, Positions, Record, TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")

_QUEUE_KB = 65_536
_LARGEST_COPY = 100_000_000
_SET_ON_THE_TOPIC = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
# ConfigSource: the topic's own, Kafka's default; all others are some configuration of the brokers.
_SOURCES: dict[int, Literal["topic", "broker", "default"]] = {_SET_ON_THE_TOPIC: "topic", 5: "default"}
_SAME_LINE_S = 30.0
_SETTLED_S = 3.0
_NO_LEADER = "HUB-3014"

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
}
# The request is wrong: the same again fails again.
_REFUSED = {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REQUEST,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError._INVALID_ARG,
}
# A partition is being given a leader: a moment after it was made, or its broker went.
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_DOWN = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


class _Calm(logging.Filter):
    """librdkafka's lines: each kind once in a while, as warnings at most (what matters is raised to the caller)."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().split(" ", 1)[0]  # librdkafka's facility: FAIL, GETPID, ...
        now = time.monotonic()
        if now - self._said_at.get(kind, -_SAME_LINE_S) < _SAME_LINE_S:
            return False
        self._said_at[kind] = now
        record.levelno = min(record.levelno, logging.WARNING)
        record.levelname = logging.getLevelName(record.levelno)
        return True


_client_log = logging.getLogger(f"{__name__}.client")
_client_log.addFilter(_Calm())


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that is in a group now, and the topics of which it has partitions."""

    client_id: str
    topics: frozenset[str]


class KafkaCluster:
    """A cluster by its bootstrap servers. Thread safe; every call ends within ``timeout_s``.

    Raises PeerError (HUB-3010) when the cluster does not answer.
    """

    def __init__(self, bootstrap: str, timeout_s: float = 15.0) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._admin_lock = threading.Lock()
        self._admin: AdminClient | None = None

    # ---- topics

    def topics(self) -> Mapping[str, TopicDescription]:
        """Every topic but Kafka's own. Configurations are left out: ask ``topic_config``."""
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics")
        names = [name for name in metadata.topics if not name.startswith("__")]
        found = self._results(
            self.admin.describe_topics(TopicCollection(names), request_timeout=self.timeout_s)
            if names
            else {},
            missing_ok=True,
        )
        return {
            name: TopicDescription(
                name,
                str(description.topic_id),
                len(description.partitions),
                len(description.partitions[0].replicas) if description.partitions else 0,
            )
            for name, description in found.items()
        }

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings that differ from the cluster's defaults, by topic."""
        return {
            name: {
                entry.name: entry.value
                for entry in entries
                if entry.source == _SET_ON_THE_TOPIC and entry.value is not None
            }
            for name, entries in self._config_entries(names).items()
        }

    def default_config(self, names: Sequence[str]) -> Mapping[str, str | None]:
        """Every setting a topic can have, and its value where a topic leaves it unsaid, as far as these topics show it
        (None where each of them says it). Kafka's own list of fallbacks is of no use: it mixes hours and milliseconds.
        """
        defaults: dict[str, str | None] = {}
        for entries in self._config_entries(names).values():
            for entry in entries:
                value = None if entry.source == _SET_ON_THE_TOPIC else entry.value
                defaults[entry.name] = defaults.get(entry.name) if value is None else value
        return defaults

    def _config_entries(self, names: Sequence[str]) -> dict[str, list[Any]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self.admin.describe_configs(resources, request_timeout=self.timeout_s)
        return {resource.name: list(entries.values()) for resource, entries in self._results(futures).items()}

    # Each change can be rehearsed: the brokers check it as if it were meant, and change nothing.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        config: Mapping[str, str],
        replication_factor: int,
        rehearse: bool = False,
    ) -> None:
        new = NewTopic(name, partitions, replication_factor, config)
        for error in self.create_topics([new], rehearse=rehearse).values():
            raise error

    def create_topics(self, topics: Sequence[NewTopic], *, rehearse: bool = False) -> Mapping[str, HubError]:
        """One request for all of them; a controller takes some thousand partitions in one."""
        wanted = [
            KafkaNewTopic(new.name, new.partitions, new.replication_factor, config=dict(new.config))
            for new in topics
        ]
        if not wanted:
            return {}
        refused = self._refusals(
            self.admin.create_topics(wanted, request_timeout=self.timeout_s, validate_only=rehearse)
        )
        if not rehearse:
            self._seen({new.name: new.partitions for new in topics if new.name not in refused})
        return refused

    def add_partitions(self, name: str, total: int, *, rehearse: bool = False) -> None:
        wanted = NewPartitions(name, total)
        self._results(
            self.admin.create_partitions([wanted], request_timeout=self.timeout_s, validate_only=rehearse)
        )
        if not rehearse:
            self._seen({name: total})

    def alter_config(self, name: str, changes: Mapping[str, str | None], *, rehearse: bool = False) -> None:
        for error in self.alter_configs({name: changes}, rehearse=rehearse).values():
            raise error

    def alter_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, rehearse: bool = False
    ) -> Mapping[str, HubError]:
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(
                        key,
                        value,
                        incremental_operation=AlterConfigOpType.DELETE
                        if value is None
                        else AlterConfigOpType.SET,
                    )
                    for key, value in wanted.items()
                ],
            )
            for name, wanted in changes.items()
        ]
        if not resources:
            return {}
        refused = self._refusals(
            self.admin.incremental_alter_configs(
                resources, request_timeout=self.timeout_s, validate_only=rehearse
            )
        )
        if not rehearse:
            self._settled({name: wanted for name, wanted in changes.items() if name not in refused})
        return refused

    def _settled(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Wait until brokers show the settings, so that what reads them next sees them; but not for long: they are
        decided, and a broker may put a value in its own words."""
        deadline = time.monotonic() + min(self.timeout_s, _SETTLED_S)
        while changes and time.monotonic() < deadline:
            try:
                shown = self.topic_config(list(changes))
            except NotFound:
                return
            if all(
                same_setting(shown[name].get(key), value)
                for name, wanted in changes.items()
                for key, value in wanted.items()
            ):
                return
            time.sleep(0.02)

    def delete_topic(self, name: str) -> None:
        self._results(self.admin.delete_topics([name], request_timeout=self.timeout_s))
        self._seen({name: 0})

    def _seen(self, wanted: Mapping[str, int]) -> None:
        """Wait until brokers show the topics with so many partitions: the controller decides first, and they hear of
        it a moment later."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            shown = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics").topics
            waiting = [
                name
                for name, partitions in wanted.items()
                if (len(shown[name].partitions) if name in shown else 0) != partitions
            ]
            if not waiting:
                return
            time.sleep(0.02)
        raise self.down(f'topic "{waiting[0]}"', "the change is decided, but no broker shows it yet")

    # ---- one topic, closely

    def replicas(self, name: str) -> Sequence[PartitionReplicas]:
        """Leader, replicas and in-sync replicas of each partition. Raises NotFound."""
        asked = self.admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)
        (found,) = self._results(asked).values()
        return [
            PartitionReplicas(
                each.id,
                each.leader.id if each.leader is not None and each.leader.id >= 0 else None,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
            )
            for each in found.partitions
        ]

    def config_sources(self, name: str) -> Mapping[str, ConfigValue]:
        """Every setting of a topic with its value and who says it. Raises NotFound."""
        return {
            entry.name: ConfigValue(entry.value, _SOURCES.get(entry.source, "broker"))
            for entry in self._config_entries([name])[name]
        }

    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of each broker, by its id."""
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list brokers")
        return {each.id: (each.host, each.port) for each in metadata.brokers.values()}

    def cluster_id(self) -> str:
        """What Kafka calls itself; another cluster has another one."""
        metadata = self._ask(
            lambda: self.admin.list_topics(timeout=self.timeout_s), "ask for the cluster's id"
        )
        return str(metadata.cluster_id)

    # ---- how far

    def end_offsets(self, topics: Sequence[str]) -> Positions:
        return self._offsets(topics, OffsetSpec.latest())

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self._offsets(topics, OffsetSpec.earliest())

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """The first offset at or after that time; partitions without one are left out."""
        found = self._offsets(topics, OffsetSpec.for_timestamp(timestamp_ms))
        return Positions({tp: offset for tp, offset in found if offset >= 0})

    def _offsets(self, topics: Sequence[str], spec: OffsetSpec) -> Positions:
        partitions = self._partitions(topics)
        if not partitions:
            return Positions()
        wanted = {KafkaTopicPartition(topic, partition): spec for topic, partition in partitions}
        deadline = time.monotonic() + self.timeout_s
        while True:
            futures = self.admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self.timeout_s
            )
            try:
                found = self._results(futures)
                break
            except PeerError as error:
                if error.code != _NO_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        return Positions.of((tp.topic, tp.partition, result.offset) for tp, result in found.items())

    def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Every partition of these topics. Raises NotFound."""
        wanted = set(topics)
        if not wanted:
            return []
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics")
        missing = wanted - metadata.topics.keys()
        if missing:
            raise NotFound(f'topic "{min(missing)}" does not exist', hint="create it: hub topic apply")
        return [
            TopicPartition(topic, partition)
            for topic in wanted
            for partition in metadata.topics[topic].partitions
        ]

    # ---- consumer groups, for other tools' eyes

    def publish_group(self, group: str, positions: Positions) -> None:
        """Commit positions as a group's offsets, so that every Kafka tool sees its lag. Never read back as truth."""
        request = ConsumerGroupTopicPartitions(
            group, [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )
        if positions:
            self._results(self.admin.alter_consumer_group_offsets([request], request_timeout=self.timeout_s))

    def group_positions(self, group: str) -> Positions:
        futures = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self.timeout_s
        )
        (found,) = self._results(futures).values()
        return Positions.of(
            (tp.topic, tp.partition, tp.offset) for tp in found.topic_partitions if tp.offset >= 0
        )

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]:
        """The committed positions of several groups, asked at once; a group that is gone is left out."""
        asked = {
            group: self.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=self.timeout_s
            )
            for group in groups
        }
        found: dict[str, Positions] = {}
        for group, futures in asked.items():
            for each in self._results(futures, missing_ok=True).values():
                found[group] = Positions.of(
                    (tp.topic, tp.partition, tp.offset) for tp in each.topic_partitions if tp.offset >= 0
                )
        return found

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        """Who is in these groups now, by group."""
        if not groups:
            return {}
        described = self._results(
            self.admin.describe_consumer_groups(list(groups), request_timeout=self.timeout_s)
        )
        return {
            group: [
                GroupMember(
                    member.client_id,
                    frozenset(tp.topic for tp in member.assignment.topic_partitions)
                    if member.assignment is not None
                    else frozenset(),
                )
                for member in found.members
            ]
            for group, found in described.items()
        }

    def groups(self) -> list[str]:
        """The ids of all consumer groups, as far as brokers tell. Raises PeerError when none of them does."""
        listing = self._ask(
            lambda: self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            ),
            "list consumer groups",
        )
        if (
            listing.errors and not listing.valid
        ):  # a cluster that is away is an empty list with errors beside it
            raise self.translated(_error_of(listing.errors[0]), "list consumer groups")
        return sorted(group.group_id for group in listing.valid)

    def wait_ready(self, timeout_s: float) -> None:
        """Return once the cluster answers. Raises PeerError when it does not within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._ask(lambda: self.admin.list_topics(timeout=min(2.0, timeout_s)), "connect")
                return
            except PeerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    # ---- clients

    def reader(self, *, queue_kb: int = _QUEUE_KB) -> KafkaReader:
        """A reader that holds at most ``queue_kb`` of a partition, and the batch it is fetching, in memory."""
        return KafkaReader(self, queue_kb)

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        """A writer; with a name, transactional, and every earlier writer of that name is fenced."""
        return KafkaWriter(self, transactional_id)

    def sender(self, *, linger_ms: int = 0, delivery_timeout_s: float = 60.0) -> KafkaSender:
        """For many records: they wait in a bounded queue, and ``linger_ms`` for company."""
        return KafkaSender(self, "sender", linger_ms=linger_ms, delivery_timeout_s=delivery_timeout_s)

    def settings(self, part: str, **more: Any) -> dict[str, Any]:
        """What every client has in common; ``part`` names it in the brokers' logs and metrics."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": f"hub.{part}",
            "logger": _client_log,
            "error_cb": _said,
            "log.connection.close": False,
            "reconnect.backoff.max.ms": 1_000,
            "socket.connection.setup.timeout.ms": 5_000,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    @property
    def admin(self) -> AdminClient:
        with self._admin_lock:
            if self._admin is None:
                self._admin = AdminClient(self.settings("admin"))
            return self._admin

    # ---- errors

    def down(self, doing: str, error: object) -> PeerError:
        return PeerError(
            f'Kafka at "{self.bootstrap}" does not answer ({doing}: {error})',
            hint="is it running? hub doctor tells; the hub goes on by itself when it is back",
            code="HUB-3010",
        )

    def translated(self, error: KafkaError, doing: str) -> HubError:
        """The hub's error for Kafka's; ``doing`` names the object, as in ``topic "orders"``."""
        code = error.code()
        if code in _FENCED:
            return WriterFenced(f"{doing}: replaced by a later one of the same name")
        if code in _MISSING:
            return NotFound(f"{doing} does not exist", hint="hub topic ls shows what there is")
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return Conflict(f"{doing} exists already")
        if code in _REFUSED:
            return CallerError(f"{doing}: Kafka refuses it: {error.str()}", code="HUB-1310")
        if code in _LEADERLESS:
            return PeerError(f"{doing} has no leader now", hint="try again", code=_NO_LEADER)
        if code in _DOWN or error.retriable():
            return self.down(doing, error.str())
        return PeerError(f"{doing}: Kafka refuses it: {error.str()}", code="HUB-3012")

    def _ask(self, call: Callable[[], T], doing: str) -> T:
        try:
            return call()
        except KafkaException as error:
            raise self.translated(error.args[0], doing) from None
        except TimeoutError as error:
            raise self.down(doing, error) from None
        finally:
            self.admin.poll(0)  # serves its log lines

    def _results(self, futures: Mapping[Any, Future[T]], *, missing_ok: bool = False) -> dict[Any, T]:
        results: dict[Any, T] = {}
        for key, future in futures.items():
            try:
                results[key] = self._ask(lambda f=future: f.result(self.timeout_s + 1), _named(key))  # type: ignore[misc]
            except NotFound:
                if not missing_ok:
                    raise
        return results

    def _refusals(self, futures: Mapping[Any, Future[T]]) -> dict[str, HubError]:
        """Of a request about many topics: which of them failed, and why."""
        refused: dict[str, HubError] = {}
        for key, future in futures.items():
            try:
                self._results({key: future})
            except HubError as error:
                refused[key.name if isinstance(key, ConfigResource) else str(key)] = error
        return refused


def _error_of(failed: KafkaError | KafkaException) -> KafkaError:
    """Some lists of errors hold exceptions, others what is in them."""
    found: KafkaError = failed.args[0] if isinstance(failed, KafkaException) else failed
    return found


def _named(key: object) -> str:
    """Kind and name of what an admin request was about."""
    if isinstance(key, KafkaTopicPartition):
        return f'topic "{key.topic}" partition {key.partition}'
    if isinstance(key, ConsumerGroupTopicPartitions):
        return f'group "{key.group_id}"'
    return f'topic "{key.name if isinstance(key, ConfigResource) else key}"'


def _said(error: KafkaError) -> None:
    """What a client says beside its answers; librdkafka logs the same. Without a callback readers' polls would raise it."""
    log.debug("%s", error.str())


class KafkaReader:
    """See hub.log.Reader. Holds one consumer; not thread safe."""

    def __init__(self, cluster: KafkaCluster, queue_kb: int = _QUEUE_KB) -> None:
        self.cluster = cluster
        self.consumer = Consumer(
            cluster.settings(
                "reader",
                group_id=f"hub-reader-{uuid.uuid4().hex[:8]}",  # librdkafka wants one; it is never joined
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                isolation_level="read_committed",
                auto_offset_reset="error",
                fetch_wait_max_ms=20,
                fetch_error_backoff_ms=50,
                queued_max_messages_kbytes=queue_kb,
                queued_min_messages=min(50_000, queue_kb),
                enable_partition_eof=True,
                topic_metadata_propagation_max_ms=10_000,
            )
        )
        self.positions: dict[TopicPartition, int] = {}
        self._failed: HubError | None = None

    def assign(self, positions: Positions) -> None:
        self.positions = dict(positions.offsets)
        self._failed = None
        self.consumer.assign(
            [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        """See Reader; also returns, with nothing, when a position moved past control markers only.

        Raises HubError (HUB-3020) for a gap, PeerError (HUB-3021) for a batch that cannot be unpacked, NotFound. The
        records before it are returned first; ``position`` stands at what failed: assign again to go on elsewhere.
        """
        self._raise_failed()
        if not self.positions:
            time.sleep(min(timeout_s, 0.05))
            return ()
        message = self.consumer.poll(timeout_s)
        if message is None:
            return ()
        # consume(n) waits for all n; one poll, then what is there already
        messages = [message, *self.consumer.consume(limit - 1, 0)] if limit > 1 else [message]
        found = [record for record in map(self._record, messages) if record is not None]
        if not found:
            self._raise_failed()
        return found

    def _raise_failed(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _record(self, message: Message) -> Record | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None:
            # Not raised here: the batch has records of before, and of other partitions, that would be lost.
            self._failed = self._passed(topic, partition, offset, error) or self._failed
            return None
        self.positions[TopicPartition(topic, partition)] = offset + 1
        return Record(
            topic,
            partition,
            offset,
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def _passed(
        self, topic: str | None, partition: int | None, offset: int | None, error: KafkaError
    ) -> HubError | None:
        """None when it is no failure: the end as the broker has it, past control markers and aborted records."""
        if topic is None or partition is None:
            return self.cluster.translated(error, "read")
        tp = TopicPartition(topic, partition)
        if error.code() == KafkaError._PARTITION_EOF:
            self.positions[tp] = max(self.positions.get(tp, 0), offset or 0)
            return None
        try:
            return self._failure(tp, error)
        except HubError as failed:  # it had to ask the cluster
            return failed

    def _failure(self, tp: TopicPartition, error: KafkaError) -> HubError:
        position = self.positions.get(tp, 0)
        where = f'topic "{tp.topic}" partition {tp.partition} offset {position}'
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            begin = self.cluster.beginning_offsets([tp.topic]).get(tp)
            end = self.cluster.end_offsets([tp.topic]).get(tp)
            if position < begin:
                return HubError(
                    f"{where}: the log begins at {begin}; offsets [{position}, {begin}) are gone",
                    hint="raise the topic's retention, and rebuild what is fed from it",
                    code="HUB-3020",
                )
            return HubError(
                f"{where}: the log ends at {end}",
                hint="was the topic made anew, or a broker restored from a copy? Rebuild what is fed from it",
                code="HUB-3020",
            )
        if error.code() in (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG):
            return PeerError(
                f"{where}: the batch there cannot be unpacked ({error.str()})",
                hint=f"to go on without it, read from offset {position + 1}",
                code="HUB-3021",
            )
        if error.code() in _MISSING:
            return NotFound(f'topic "{tp.topic}" partition {tp.partition} does not exist')
        return self.cluster.translated(error, where)

    def position(self) -> Positions:
        return Positions(dict(self.positions))

    def close(self) -> None:
        self.consumer.close()


class KafkaSender:
    """Records under way to the log, through a bounded queue, in order per partition, each once (idempotence).

    ``send`` may be called from many threads. What could not be delivered is raised by the next ``send`` or ``flush``,
    except where the caller gave ``acknowledged``: then it is told there.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        part: str,
        *,
        linger_ms: int = 0,
        delivery_timeout_s: float = 60.0,
        **more: Any,
    ) -> None:
        self.cluster = cluster
        self.part = part
        self.delivery_timeout_s = delivery_timeout_s
        timeout_ms = int(delivery_timeout_s * 1000)
        settings = cluster.settings(
            part,
            acks="all",
            enable_idempotence=True,
            linger_ms=linger_ms,
            batch_size=262_144,
            compression_type="lz4",
            queue_buffering_max_messages=100_000,
            queue_buffering_max_kbytes=131_072,
            delivery_timeout_ms=timeout_ms,
            # A third, so that what is lost in a dead connection is sent again in time (by default after a minute).
            request_timeout_ms=min(10_000, timeout_ms // 3),
            socket_timeout_ms=min(10_000, timeout_ms // 3) + 100,
            topic_metadata_propagation_max_ms=3_000,  # by default a missing topic is waited for 30 s
            **more,
        )
        self.fatal: KafkaError | None = None
        self.producer = Producer(settings)
        self._failed: list[HubError] = []

    def send(
        self,
        new: NewRecord,
        acknowledged: Callable[[TopicPartition, int, HubError | None], None] | None = None,
    ) -> None:
        """Queue a record; waits while the queue is full. ``acknowledged`` hears (partition, offset, error or None),
        from whichever thread polls."""
        self.raise_failed()

        def delivered(error: KafkaError | None, message: Message) -> None:
            failed = None if error is None else self.error(error, _target(new))
            if acknowledged is None:
                if failed is not None:
                    self._failed.append(failed)
                return
            acknowledged(TopicPartition(new.topic, message.partition()), message.offset(), failed)

        fields: dict[str, Any] = {"on_delivery": delivered}
        if new.headers:
            fields["headers"] = list(new.headers)
        if new.timestamp_ms is not None:
            fields["timestamp"] = max(1, new.timestamp_ms)  # librdkafka takes 0 for "now"
        if new.partition is not None:
            fields["partition"] = new.partition
        deadline = time.monotonic() + self.delivery_timeout_s
        while True:
            try:
                self.producer.produce(new.topic, new.value, new.key, **fields)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.cluster.down("append", "the queue is full and does not drain") from None
                self.poll(0.1)
            except KafkaException as error:
                raise self.error(error.args[0], _target(new)) from None
        self.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Serve acknowledgements for at most that long."""
        self._serve(lambda: self.producer.poll(timeout_s))

    def flush(self, timeout_s: float) -> None:
        """Wait until everything sent is acknowledged. Raises what was not; PeerError when the time is over."""
        left = self._serve(lambda: self.producer.flush(timeout_s))
        self.raise_failed()
        if left:
            raise self.cluster.down("append", f"{left} records are not acknowledged; the outcome is unknown")

    def raise_failed(self) -> None:
        if self._failed:
            failed, self._failed = self._failed[0], []
            raise failed

    def error(self, error: KafkaError, doing: str) -> HubError:
        """Translated; once the producer is beyond repair, the reason for that is the reason for everything."""
        if self.fatal is not None and self.fatal.code() in _FENCED:
            return self.cluster.translated(self.fatal, f'writer "{self.part}"')
        return self.cluster.translated(error, doing)

    def drop(self) -> None:
        """Give up on what is under way; never waits."""
        with contextlib.suppress(KafkaException):  # a fenced producer refuses even this
            self.producer.purge()

    def _serve(self, call: Callable[[], int]) -> int:
        """Polls and flushes raise what is fatal to the producer, at times from within a callback as SystemError."""
        try:
            return call()
        except (KafkaException, SystemError) as raised:
            cause = raised if isinstance(raised, KafkaException) else raised.__cause__
            if not isinstance(cause, KafkaException):
                cause = self._why_broken()
            self.fatal = cause.args[0]
            raise self.error(cause.args[0], f'writer "{self.part}"') from None

    def _why_broken(self) -> KafkaException:
        """The fatal error that a producer answers to all it is asked. What a callback raised is lost when another
        callback ran after it."""
        try:
            self.producer.begin_transaction()
        except KafkaException as reason:
            if reason.args[0].fatal():
                return reason
        return KafkaException(KafkaError(KafkaError._FATAL, "the producer broke within a callback"))


def _target(new: NewRecord) -> str:
    return f'topic "{new.topic}"' + ("" if new.partition is None else f" partition {new.partition}")


class KafkaWriter:
    """See hub.log.Writer. With a name: one transaction an append. Not thread safe.

    The brokers mark a transaction's end in its partitions a moment after they have confirmed it, and only then do
    readers and ``end_offsets`` see its records; to open the name again waits for that.
    """

    def __init__(self, cluster: KafkaCluster, name: str | None) -> None:
        self.cluster = cluster
        self.name = name
        self.fenced = False
        self._sender: KafkaSender | None = self._open()

    def append(self, records: Sequence[NewRecord]) -> Positions:
        """See Writer. Raises CallerError and NotFound when nothing was appended by a named writer for certain."""
        if self.fenced:  # opening anew would take the name back from the one that has it now
            raise WriterFenced(f'writer "{self.name}": replaced by a later one of the same name')
        if not records:
            return Positions()
        if self._sender is None:
            self._sender = self._open()
        sender = self._sender
        try:
            if self.name is None:
                return self._send(sender, records)
            self._do(sender, sender.producer.begin_transaction, "begin transaction")
            after = self._send(sender, records)
            self._do(sender, lambda: sender.producer.commit_transaction(self.cluster.timeout_s), "commit")
            return after
        except HubError as error:
            self.fenced = isinstance(error, WriterFenced)
            self._abandon(sender, refused=isinstance(error, CallerError))
            raise

    def close(self) -> None:
        if self._sender is not None:
            with contextlib.suppress(HubError):  # every append has heard about its own records
                self._sender.flush(self.cluster.timeout_s)
            self._sender = None

    def _open(self) -> KafkaSender:
        more: dict[str, Any] = {}
        if self.name is not None:
            more["transactional_id"] = self.name
            more["transaction_timeout_ms"] = int(self.cluster.timeout_s * 1000)
            more["message_max_bytes"] = _LARGEST_COPY  # copies of other producers' records: the topic decides
        sender = KafkaSender(
            self.cluster, self.name or "writer", delivery_timeout_s=self.cluster.timeout_s, **more
        )
        if self.name is not None:
            self._do(sender, lambda: sender.producer.init_transactions(self.cluster.timeout_s), "open")
        return sender

    def _send(self, sender: KafkaSender, records: Sequence[NewRecord]) -> Positions:
        after: dict[TopicPartition, int] = {}
        failed: list[HubError] = []

        def acknowledged(tp: TopicPartition, offset: int, error: HubError | None) -> None:
            if error is not None:
                failed.append(error)
            else:
                after[tp] = max(after.get(tp, 0), offset + 1)

        for new in records:
            sender.send(new, acknowledged)
        sender.flush(self.cluster.timeout_s + 1)
        if failed:
            raise failed[0]
        return Positions(after)

    def _do(self, sender: KafkaSender, call: Callable[[], object], doing: str) -> None:
        try:
            call()
        except KafkaException as error:
            raise sender.error(error.args[0], f'writer "{self.name}": {doing}') from None

    def _abandon(self, sender: KafkaSender, *, refused: bool) -> None:
        """A late EndTxn must not meet this producer's next transaction (KIP-890 is not in librdkafka): drop it."""
        self._sender = None
        sender.drop()
        if refused and self.name is not None:  # else readers of the topic wait for the transaction's time-out
            with contextlib.suppress(KafkaException):
                sender.producer.abort_transaction(self.cluster.timeout_s)
