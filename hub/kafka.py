"""[edge] confluent-kafka: the ports of ``hub/log.py`` carried to a real cluster.

One factory of settings for every client, because each default that differs has lost somebody's events: acks=all,
idempotence, committed records only, no automatic commits, and no silent reset: an offset that the log no longer has
is an error that names the gap. librdkafka has no epoch per transaction (KIP-890), so after any doubt about the end of
a transaction the producer is dropped and a new one fences it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

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
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.log import TopicDescription, WriterFenced
from hub.record import NewRecord, Positions, Record, TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")

_QUEUE_KB = 65_536
_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}


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
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self.admin.describe_configs(resources, request_timeout=self.timeout_s)
        return {
            resource.name: {
                entry.name: entry.value
                for entry in future.values()
                if entry.source == 1 and entry.value is not None
            }
            for resource, future in self._results(futures).items()
        }

    def create_topic(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(config))
        self._results(self.admin.create_topics([topic], request_timeout=self.timeout_s))

    def add_partitions(self, name: str, total: int) -> None:
        self._results(
            self.admin.create_partitions([NewPartitions(name, total)], request_timeout=self.timeout_s)
        )

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self._results(self.admin.incremental_alter_configs([resource], request_timeout=self.timeout_s))

    def delete_topic(self, name: str) -> None:
        self._results(self.admin.delete_topics([name], request_timeout=self.timeout_s))

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
        futures = self.admin.list_offsets(
            {KafkaTopicPartition(topic, partition): spec for topic, partition in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self.timeout_s,
        )
        found = self._results(futures)
        return Positions.of((tp.topic, tp.partition, result.offset) for tp, result in found.items())

    def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
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

    def groups(self) -> list[str]:
        """The ids of all consumer groups."""
        listing = self._ask(
            lambda: self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            ),
            "list consumer groups",
        )
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

    def reader(self) -> KafkaReader:
        return KafkaReader(self)

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        """A writer; with a name, transactional, and every earlier writer of that name is fenced."""
        return KafkaWriter(self, transactional_id)

    def settings(self, **more: Any) -> dict[str, Any]:
        """What every client has in common."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "hub",
            "logger": log,
            "log.connection.close": False,
            "reconnect.backoff.max.ms": 1_000,
            "socket.connection.setup.timeout.ms": 5_000,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    @property
    def admin(self) -> AdminClient:
        with self._admin_lock:
            if self._admin is None:
                self._admin = AdminClient(self.settings())
            return self._admin

    def down(self, doing: str, error: object) -> PeerError:
        return PeerError(
            f'Kafka at "{self.bootstrap}" does not answer ({doing}: {error})',
            hint="is it running? hub doctor tells; the hub goes on by itself when it is back",
            code="HUB-3010",
        )

    def _ask(self, call: Callable[[], T], doing: str) -> T:
        try:
            return call()
        except KafkaException as error:
            raise self._translated(error, doing) from None
        except TimeoutError as error:
            raise self.down(doing, error) from None

    def _results(self, futures: Mapping[Any, Future[T]], *, missing_ok: bool = False) -> dict[Any, T]:
        results: dict[Any, T] = {}
        for key, future in futures.items():
            try:
                results[key] = self._ask(lambda future=future: future.result(self.timeout_s + 1), str(key))  # type: ignore[misc]
            except NotFound:
                if not missing_ok:
                    raise
        return results

    def _translated(self, error: KafkaException, doing: str) -> HubError:
        cause: KafkaError = error.args[0]
        code = cause.code()
        if code in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ):
            return NotFound(f'topic "{doing}" does not exist', hint="create it: hub topic apply")
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return Conflict(f'topic "{doing}" exists already')
        if cause.retriable() or code in (
            KafkaError._TRANSPORT,
            KafkaError._TIMED_OUT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._WAIT_COORD,
            KafkaError.REQUEST_TIMED_OUT,
        ):
            return self.down(doing, cause.str())
        return PeerError(f"Kafka refused ({doing}): {cause.str()}", code="HUB-3011")


class KafkaReader:
    """See hub.log.Reader. Holds one consumer; not thread safe."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.consumer = Consumer(
            cluster.settings(
                group_id=f"hub-reader-{uuid.uuid4().hex[:8]}",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                isolation_level="read_committed",
                auto_offset_reset="error",
                fetch_wait_max_ms=20,
                fetch_error_backoff_ms=50,
                queued_max_messages_kbytes=_QUEUE_KB,
                queued_min_messages=50_000,
                enable_partition_eof=True,
            )
        )
        self.positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Positions) -> None:
        self.positions = dict(positions.offsets)
        self.consumer.assign(
            [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        if not self.positions:
            time.sleep(min(timeout_s, 0.05))
            return []
        deadline = time.monotonic() + timeout_s
        while True:
            remaining = deadline - time.monotonic()
            message = self.consumer.poll(max(0.0, remaining))
            if message is None:
                return []
            # consume(n) waits for all n; one poll, then what is there already
            messages = [message, *self.consumer.consume(limit - 1, 0)] if limit > 1 else [message]
            found = [record for record in map(self._record, messages) if record is not None]
            if found or time.monotonic() >= deadline:
                return found

    def _record(self, message: Message) -> Record | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None:
            tp = TopicPartition(topic or "", partition if partition is not None else -1)
            if error.code() == KafkaError._PARTITION_EOF:
                # the end as the broker has it: past control markers and aborted records
                self.positions[tp] = max(self.positions.get(tp, 0), offset or 0)
                return None
            raise self._failure(tp, error)
        tp = TopicPartition(topic, partition)
        self.positions[tp] = offset + 1
        return Record(
            topic,
            partition,
            offset,
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def _failure(self, tp: TopicPartition, error: KafkaError) -> HubError:
        where = f'topic "{tp.topic}" partition {tp.partition} offset {self.positions.get(tp, 0)}'
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            begin = self.cluster.beginning_offsets([tp.topic]).get(tp)
            return HubError(
                f"{where}: the log begins at {begin}; what lay between is gone",
                hint="raise the topic's retention, and rebuild what is fed from it",
                code="HUB-3020",
            )
        if error.code() in (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG):
            return PeerError(f"{where}: the batch there cannot be unpacked ({error.str()})", code="HUB-3021")
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
            return NotFound(f'topic "{tp.topic}" partition {tp.partition} does not exist')
        return self.cluster.down(where, error.str())

    def position(self) -> Positions:
        return Positions(dict(self.positions))

    def close(self) -> None:
        self.consumer.close()


class KafkaWriter:
    """See hub.log.Writer. With a name: one transaction an append. Not thread safe."""

    def __init__(self, cluster: KafkaCluster, name: str | None) -> None:
        self.cluster = cluster
        self.name = name
        self.producer: Producer | None = self._open()

    def _open(self) -> Producer:
        more: dict[str, Any] = {
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": 0,
            "queue_buffering_max_messages": 100_000,
            "delivery_timeout_ms": int(self.cluster.timeout_s * 1000),
            "request_timeout_ms": min(10_000, int(self.cluster.timeout_s * 1000)),
        }
        if self.name is not None:
            more["transactional_id"] = self.name
            more["transaction_timeout_ms"] = int(self.cluster.timeout_s * 1000)
        producer = Producer(self.cluster.settings(**more))
        if self.name is not None:
            self._doing(lambda: producer.init_transactions(self.cluster.timeout_s), "init_transactions")
        return producer

    def append(self, records: Sequence[NewRecord]) -> Positions:
        if not records:
            return Positions()
        if self.producer is None:
            self.producer = self._open()
        producer = self.producer
        try:
            if self.name is not None:
                self._doing(producer.begin_transaction, "begin transaction")
            positions = self._produce(producer, records)
            if self.name is not None:
                self._doing(lambda: producer.commit_transaction(self.cluster.timeout_s), "commit transaction")
            return positions
        except HubError:
            # In doubt: a late EndTxn must not meet this producer's next transaction (KIP-890 is not in librdkafka).
            self.producer = None
            with contextlib.suppress(KafkaException):  # a fenced producer refuses even this
                producer.purge()
            raise

    def _produce(self, producer: Producer, records: Iterable[NewRecord]) -> Positions:
        after: dict[TopicPartition, int] = {}
        failed: list[KafkaError] = []
        waiting = 0

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failed.append(error)
                return
            tp = TopicPartition(message.topic(), message.partition())
            after[tp] = max(after.get(tp, 0), message.offset() + 1)

        for new in records:
            fields: dict[str, Any] = {"headers": list(new.headers), "on_delivery": delivered}
            if new.timestamp_ms is not None:
                fields["timestamp"] = new.timestamp_ms
            if new.partition is not None:
                fields["partition"] = new.partition
            waiting += 1
            while True:
                try:
                    producer.produce(new.topic, new.value, new.key, **fields)
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    raise self._error(error.args[0], "append") from None
        deadline = time.monotonic() + self.cluster.timeout_s + 1
        while waiting and time.monotonic() < deadline:
            producer.poll(0.05)
        if failed:
            raise self._error(failed[0], "append")
        if waiting:
            raise self.cluster.down(
                "append", f"{waiting} records are not acknowledged; the outcome is unknown"
            )
        return Positions(after)

    def _doing(self, call: Callable[[], object], doing: str) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._error(error.args[0], doing) from None

    def _error(self, error: KafkaError, doing: str) -> HubError:
        if error.code() in _FENCED:
            return WriterFenced(f'writer "{self.name}" was replaced by a later one')
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return NotFound(f"{doing}: the topic does not exist", hint="create it: hub topic apply")
        return self.cluster.down(doing, error.str())

    def close(self) -> None:
        if self.producer is not None:
            self.producer.flush(self.cluster.timeout_s)
            self.producer = None
