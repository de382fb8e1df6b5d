"""[edge] Topics and their configurations; and the place where readers and writers are opened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from confluent_kafka.admin import NewTopic as KafkaNewTopic

from hub.errors import HubError, NotFound
from hub.kafka.acls import Acls
from hub.kafka.connection import NO_LEADER
from hub.kafka.groups import Groups
from hub.kafka.offsets import Offsets
from hub.kafka.reader import FOLLOWING_WAIT_MS, GATHERED_BYTES, QUEUE_KB, WAIT_MS, KafkaReader
from hub.kafka.writer import KafkaSender, KafkaWriter
from hub.log import ConfigValue, NewTopic, PartitionReplicas, Placement, TopicDescription, same_setting
from hub.record import Positions, TopicPartition

_SET_ON_THE_TOPIC = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
# ConfigSource: the topic's own, Kafka's default; all others are some configuration of the brokers.
_SOURCES: dict[int, Literal["topic", "broker", "default"]] = {_SET_ON_THE_TOPIC: "topic", 5: "default"}
_SETTLED_S = 3.0
_AGAIN_S = 0.5


class KafkaCluster(Offsets, Groups, Acls):
    """A cluster by its bootstrap servers. Thread safe; every call ends within ``timeout_s``.

    Raises PeerError (HUB-3010) when the cluster does not answer.
    """

    # ---- topics

    def topics(self) -> Mapping[str, TopicDescription]:
        """Describe every topic but Kafka's internal ones, without configurations; see ``topic_config``."""
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics")
        return self.described(name for name in metadata.topics if not name.startswith("__"))

    def rights_on(self) -> Mapping[str, frozenset[str]]:
        """Return the operations this user may perform on each visible topic, in Kafka's names (READ, WRITE,
        ...).
        """
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics")
        names = [name for name in metadata.topics if not name.startswith("__")]
        if not names:
            return {}
        futures = self.admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=self.timeout_s
        )
        return {
            name: frozenset(each.name for each in topic.authorized_operations or ())
            for name, topic in self._results(futures, missing_ok=True).items()
        }

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings that differ from the cluster's defaults, by topic."""
        return {
            name: {
                entry.name: entry.value
                for entry in entries
                if entry.source == _SET_ON_THE_TOPIC and entry.value is not None
            }
            for name, entries in self._config_entries(names).items()
        }

    def default_config(self, names: Sequence[str]) -> Mapping[str, str | None]:
        """Return every topic setting and its default, as far as these topics show it. A default is None when
        each of the topics overrides the setting. Kafka's own list of fallback settings is not used: it mixes
        hours and milliseconds.
        """
        defaults: dict[str, str | None] = {}
        for entries in self._config_entries(names).values():
            for entry in entries:
                value = None if entry.source == _SET_ON_THE_TOPIC else entry.value
                defaults[entry.name] = defaults.get(entry.name) if value is None else value
        return defaults

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        """Return every effective setting by topic; topics that do not exist are left out."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self.admin.describe_configs(resources, request_timeout=self.timeout_s)
        return {
            resource.name: {entry.name: entry.value for entry in entries.values()}
            for resource, entries in self._results(futures, missing_ok=True).items()
        }

    def _config_entries(self, names: Sequence[str]) -> dict[str, list[Any]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self.admin.describe_configs(resources, request_timeout=self.timeout_s)
        return {resource.name: list(entries.values()) for resource, entries in self._results(futures).items()}

    # Each change can be rehearsed: the brokers validate it and change nothing.

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
        """Create topics with one request. A controller accepts some thousand partitions per request. While
        all brokers are fenced, as after a pause of the machine, the request is repeated for ``timeout_s``.
        """
        until, waiting, refused = time.monotonic() + self.timeout_s, list(topics), dict[str, HubError]()
        while waiting:
            wanted = [
                KafkaNewTopic(new.name, new.partitions, new.replication_factor, config=dict(new.config))
                for new in waiting
            ]
            refused |= self._refusals(
                self.admin.create_topics(wanted, request_timeout=self.timeout_s, validate_only=rehearse)
            )
            fenced = {name for name, error in refused.items() if error.code == NO_LEADER}
            if not fenced or time.monotonic() >= until:
                break
            time.sleep(_AGAIN_S)
            waiting = [new for new in waiting if new.name in fenced]
            refused = {name: error for name, error in refused.items() if name not in fenced}
        if not rehearse:
            self._wait_until_shown({new.name: new.partitions for new in topics if new.name not in refused})
        return refused

    def add_partitions(self, name: str, total: int, *, rehearse: bool = False) -> None:
        wanted = NewPartitions(name, total)
        self._results(
            self.admin.create_partitions([wanted], request_timeout=self.timeout_s, validate_only=rehearse)
        )
        if not rehearse:
            self._wait_until_shown({name: total})

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
        """Wait until brokers show the settings, for a few seconds at most. The change is already decided, and
        a broker may normalize a value.
        """
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
        self._wait_until_shown({name: 0})

    def _wait_until_shown(self, wanted: Mapping[str, int]) -> None:
        """Wait until brokers show each topic with its wanted number of partitions. The controller decides
        first; brokers learn of the change a moment later.
        """
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
        futures = self.admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)
        (topic,) = self._results(futures).values()
        return [
            PartitionReplicas(
                each.id,
                each.leader.id if each.leader is not None and each.leader.id >= 0 else None,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
            )
            for each in topic.partitions
        ]

    def config_sources(self, name: str) -> Mapping[str, ConfigValue]:
        """Return every setting of a topic with its value and source. Raises NotFound."""
        return {
            entry.name: ConfigValue(entry.value, _SOURCES.get(entry.source, "broker"))
            for entry in self._config_entries([name])[name]
        }

    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of each broker, by its id."""
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list brokers")
        return {each.id: (each.host, each.port) for each in metadata.brokers.values()}

    def placement(self) -> Placement:
        """Brokers, the controller and every partition's replicas, of one answer of one broker."""
        metadata = self._ask(
            lambda: self.admin.list_topics(timeout=self.timeout_s), "ask where partitions are"
        )
        controller = int(metadata.controller_id)
        return Placement(
            {each.id: (each.host, each.port) for each in metadata.brokers.values()},
            controller if controller >= 0 else None,
            {
                name: tuple(
                    PartitionReplicas(
                        each.id,
                        each.leader if each.leader >= 0 else None,
                        tuple(each.replicas),
                        tuple(each.isrs),
                    )
                    for each in topic.partitions.values()
                )
                for name, topic in metadata.topics.items()
            },
        )

    def cluster_id(self) -> str:
        """Return Kafka's cluster id. It is unique to each cluster."""
        metadata = self._ask(
            lambda: self.admin.list_topics(timeout=self.timeout_s), "ask for the cluster's id"
        )
        return str(metadata.cluster_id)

    # ---- clients

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        """Return the offset of the first record at or after each position, or the end if there is none. Reads
        only offsets. Partitions without an answer in time are left out.
        """
        reader, found = self.reader(queue_kb=64), dict[TopicPartition, int]()
        deadline = time.monotonic() + timeout_s
        try:
            reader.assign(positions)
            ends = self.ends_of(positions.offsets)
            while len(found) < len(positions) and (left_s := deadline - time.monotonic()) > 0:
                for record in reader.poll(500, min(left_s, 0.5)):
                    tp = record.topic_partition
                    found[tp] = min(record.offset, found.get(tp, record.offset))
                for tp, reached in reader.position():
                    # If no record was found and the position moved or is at the end, there were only markers.
                    if tp not in found and reached > positions.get(tp) and reached >= ends.get(tp):
                        found[tp] = reached
        finally:
            reader.close()
        return Positions(found)

    def reader(
        self, *, queue_kb: int = QUEUE_KB, committed: bool = True, wait_ms: int = WAIT_MS
    ) -> KafkaReader:
        """Open a reader that holds at most ``queue_kb`` of a partition, and the batch it is fetching, in
        memory. ``committed`` False: it also reads records of open and aborted transactions. ``wait_ms``: how
        late its position passes the end of the log; at the end it asks the brokers that often.
        """
        return KafkaReader(self, queue_kb, wait_ms, committed=committed)

    def follower(self, *, queue_kb: int | None = None) -> KafkaReader:
        """Open a reader for endless polling after one assignment. It receives records just as fast and sends
        fewer requests; its position passes transaction markers up to a second late. ``queue_kb``: see
        ``reader``.
        """
        return KafkaReader(self, queue_kb or QUEUE_KB, FOLLOWING_WAIT_MS)

    def gatherer(self, *, queue_kb: int = QUEUE_KB, wait_ms: int = WAIT_MS) -> KafkaReader:
        """Open a reader that lets records arrive up to ``wait_ms`` late,
        at a fraction of the broker's cost."""
        return KafkaReader(self, queue_kb, wait_ms, GATHERED_BYTES)

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        """Open a writer. A named writer is transactional and fences every earlier writer of that name."""
        return KafkaWriter(self, transactional_id)

    def sender(self, *, linger_ms: int = 0, delivery_timeout_s: float = 60.0) -> KafkaSender:
        """Open a sender for many records, with a bounded queue that waits ``linger_ms`` to fill batches."""
        return KafkaSender(self, "sender", linger_ms=linger_ms, delivery_timeout_s=delivery_timeout_s)
