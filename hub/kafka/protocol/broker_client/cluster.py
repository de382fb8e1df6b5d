"""[edge] The brokers of one cluster: connections on demand, leaders, coordinators, offsets, leader epochs."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from hub.errors import HubError
from hub.kafka.protocol.broker_client.access import ClusterAccess, Patience, addresses
from hub.kafka.protocol.broker_client.connection import BrokerConnection
from hub.kafka.protocol.broker_client.errors import BrokerBusy, ConnectionLost, raise_for, translated
from hub.kafka.protocol.broker_client.long_link import RoundTrip
from hub.kafka.protocol.messages import READ_UNCOMMITTED, Fetched, FetchFrom
from hub.record import TopicPartition

LATEST, EARLIEST = -1, -2


class Leader(NamedTuple):
    """The leader of a partition: the broker's id (-1 if there is none now) and the leader epoch."""

    node: int
    epoch: int


class EpochEnd(NamedTuple):
    """The last epoch in the log that is not after a given one, and the first offset after its records. Both
    are -1 if the log has no such epoch.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """``topic_id`` is Kafka's in its usual spelling, empty when the brokers are older than 2.8."""

    topic_id: str
    uuid: uuid.UUID
    leaders: Mapping[int, Leader]


class BrokerCluster:
    """Brokers of one cluster, connected on demand, and the leaders of partitions. Not thread safe.

    ``purpose`` keeps connections apart, so that a long poll never stands before a short request. Topics have
    the hub's names here, and those of ``access.topic_names`` in requests.
    """

    def __init__(self, access: ClusterAccess, name: str = "") -> None:
        self.access, self.topic_names = access, access.topic_names
        self.name = name or access.bootstrap
        self.topics: dict[str, TopicMetadata] = {}
        self.patience = Patience(access)
        self.round_trip = RoundTrip()
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, node: int, purpose: str = "") -> BrokerConnection:
        """Return a live connection to the broker. Raises ConnectionLost."""
        broker_connection = self._connections.get((node, purpose))
        expired = (
            broker_connection is not None
            and not broker_connection.in_flight
            and time.monotonic() > broker_connection.expires_at
        )
        if broker_connection is not None and not broker_connection.closed and not expired:
            return broker_connection
        if broker_connection is not None:
            broker_connection.close()
        if node not in self._brokers:
            raise BrokerBusy(f'cluster "{self.name}": broker {node} is not known', kafka_code=8)
        made = BrokerConnection(self.access, *self._brokers[node], self.patience, self.round_trip)
        self._connections[node, purpose] = made
        return made

    def refresh(self, topics: Iterable[str]) -> dict[str, HubError]:
        """Fetch the leaders of these topics' partitions from any broker; return the errors by topic. Raises
        ConnectionLost when no broker answers.
        """
        names = sorted(map(self.topic_names.on_wire, set(topics)))
        wanted = [
            MetadataRequest.MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0)) for name in names
        ]
        answer = self._ask_any(
            MetadataRequest, 12, 4, topics=wanted, allow_auto_topic_creation=False, **_QUIET_METADATA
        )
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        refused: dict[str, HubError] = {}
        for topic in answer.topics:
            name = self._seen(topic.name)
            error = translated(topic.error_code, f'cluster "{self.name}", topic "{name}"')
            if error is not None:
                refused[name] = error
                self.topics.pop(name, None)
                continue
            identity = getattr(topic, "topic_id", None) or uuid.UUID(int=0)
            leaders = {
                each.partition_index: Leader(each.leader_id, getattr(each, "leader_epoch", -1))
                for each in topic.partitions
            }
            self.topics[name] = TopicMetadata(topic_id_text(identity), identity, leaders)
        return refused

    def names(self) -> dict[bytes, str]:
        """Names of topics in requests and answers by the 16 bytes of their ids; see ``seen``."""
        return {each.uuid.bytes: self.topic_names.on_wire(name) for name, each in self.topics.items()}

    def on_wire(self, wanted: Iterable[FetchFrom]) -> list[FetchFrom]:
        """Return positions with the names that this cluster has."""
        if self.topic_names.are_equal:
            return list(wanted)
        return [each._replace(tp=self.topic_names.place_on_wire(each.tp)) for each in wanted]

    def seen(self, parts: Iterable[Fetched]) -> list[Fetched]:
        """Return the partitions of an answer with the hub's names."""
        if self.topic_names.are_equal:
            return list(parts)
        return [each._replace(tp=self.topic_names.seen_place(each.tp)) for each in parts]

    def _seen(self, name: object) -> str:
        return self.topic_names.seen(str(name)) or str(name)

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]:
        """Return ``max.message.bytes`` of these topics; topics whose configuration may not be read are left
        out.
        """
        kind = DescribeConfigsRequest.DescribeConfigsResource
        wanted = [
            kind(resource_type=_TOPIC, resource_name=name, configuration_keys=["max.message.bytes"])
            for name in sorted(map(self.topic_names.on_wire, topics))
        ]
        if not wanted:
            return {}
        answer = self._ask_any(DescribeConfigsRequest, 4, 1, resources=wanted, **_QUIET_CONFIGS)
        return {
            self._seen(each.resource_name): int(config.value)
            for each in answer.results
            if not each.error_code
            for config in each.configs
            if config.name == "max.message.bytes" and config.value
        }

    def leader(self, tp: TopicPartition) -> Leader:
        """Return the leader of a partition.
        Raises BrokerBusy when the partition is unknown or has no leader."""
        topic = self.topics.get(tp.topic)
        found = topic.leaders.get(tp.partition) if topic is not None else None
        if found is None or found.node < 0:
            raise BrokerBusy(
                f'cluster "{self.name}", topic "{tp.topic}" partition {tp.partition}: no leader',
                kafka_code=5,
            )
        return found

    def coordinator(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates this producer's transactions."""
        answer = self._ask_any(FindCoordinatorRequest, 3, 1, key=transactional_id, key_type=1)
        raise_for(answer.error_code, f'cluster "{self.name}": find coordinator')
        self._brokers.setdefault(answer.node_id, (answer.host, answer.port))
        return int(answer.node_id)

    def offsets(
        self, wanted: Iterable[TopicPartition], at: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """LATEST (the end, or the last stable offset with READ_COMMITTED) or EARLIEST of each;
        topics as refreshed."""
        by_node: dict[int, dict[str, list[TopicPartition]]] = {}
        for tp in wanted:
            by_node.setdefault(self.leader(tp).node, {}).setdefault(tp.topic, []).append(tp)
        found: dict[TopicPartition, int] = {}
        for node, topics in by_node.items():
            kinds = ListOffsetsRequest.ListOffsetsTopic
            answer = self.connection(node, "ask").ask(
                ListOffsetsRequest,
                6,
                4,
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    kinds(
                        name=self.topic_names.on_wire(name),
                        partitions=[
                            kinds.ListOffsetsPartition(
                                partition_index=tp.partition,
                                current_leader_epoch=self.leader(tp).epoch,
                                timestamp=at,
                            )
                            for tp in tps
                        ],
                    )
                    for name, tps in topics.items()
                ],
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(self._seen(topic.name), each.partition_index)
                    raise_for(each.error_code, f'cluster "{self.name}", {_named(tp)}: offsets')
                    found[tp] = int(each.offset)
        return found

    def epoch_ends(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | HubError]:
        """Return the end of each partition's epoch in this leader's log (KIP-320, OffsetForLeaderEpoch), or
        the error of that partition. Raises ConnectionLost, Refused.
        """
        kinds = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        topics: dict[str, list[Any]] = {}
        for tp, epoch in wanted.items():
            partition_request = kinds.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=self.leader(tp).epoch, leader_epoch=epoch
            )
            topics.setdefault(tp.topic, []).append(partition_request)
        # Version 3 is the first that takes the right to read the topic, not one over the cluster.
        answer = self.connection(node, "ask").ask(
            OffsetForLeaderEpochRequest,
            4,
            3,
            replica_id=-1,
            topics=[
                kinds(topic=self.topic_names.on_wire(name), partitions=parts)
                for name, parts in topics.items()
            ],
        )
        found: dict[TopicPartition, EpochEnd | HubError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                tp = TopicPartition(self._seen(topic.topic), each.partition)
                error = translated(each.error_code, f'cluster "{self.name}", {_named(tp)}: end of an epoch')
                found[tp] = error or EpochEnd(int(each.leader_epoch), int(each.end_offset))
        return found

    def _ask_any(self, kind: Any, newest: int, least: int, **fields: Any) -> Any:
        """Ask any known broker, then the bootstrap servers."""
        last: HubError | None = None
        for node in list(self._brokers):
            try:
                return self.connection(node, "ask").ask(kind, newest, least, **fields)
            except ConnectionLost as error:
                last = error
        for host, port in addresses(self.access.bootstrap):
            try:
                connection = BrokerConnection(self.access, host, port, self.patience)
            except ConnectionLost as error:
                last = error
                continue
            try:
                return connection.ask(kind, newest, least, **fields)
            except ConnectionLost as error:
                last = error
            finally:
                connection.close()
        raise ConnectionLost(
            f'cluster "{self.name}" does not answer: {last.message if last else "no bootstrap servers"}',
            hint=f"is it running, and is {self.access.bootstrap} its address?",
        )


_TOPIC: Final = 2  # the kind of resource
_QUIET_CONFIGS: Final[Mapping[str, Any]] = {"include_synonyms": False, "include_documentation": False}
_QUIET_METADATA: Final[Mapping[str, Any]] = {
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def topic_id_text(identity: uuid.UUID) -> str:
    """Format a topic id as Kafka does: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(identity.bytes).rstrip(b"=").decode() if identity.int else ""


def _named(tp: TopicPartition) -> str:
    return f'topic "{tp.topic}" partition {tp.partition}'
