"""[edge] Kafka topics of a view: create them, and give them room for the largest rows and events."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from hub.config import Settings
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.log import ensure_topic
from hub.topics.dead_letters.record_format import kind_of
from hub.topics.tree.tree import matches

log = logging.getLogger(__name__)

_DEFAULT_LARGEST = 1_048_588  # Kafka's default of message.max.bytes
_HEADROOM = 65_536  # room for headers


def feeds(pattern: str, topic: str) -> bool:
    """Return True if a topic belongs to a source. A pattern never matches a dead-letter queue, which has
    copies of events."""
    return matches(pattern, topic) and (pattern == topic or kind_of(topic) is None)


def keep_short(cluster: KafkaCluster, topic: str, config: Mapping[str, str]) -> None:
    """Set the given topic settings where they are not set. Values that were set explicitly stay."""
    known = cluster.topic_config([topic])[topic]
    unset = {name: value for name, value in config.items() if name not in known}
    if unset:
        try:
            cluster.alter_config(topic, unset)
        except HubError as error:  # the topic still works, but takes longer to read
            log.warning('topic "%s" keeps its settings: %s', topic, error.message)


def largest_records(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, int]:
    """Return the largest allowed record size of each topic, in bytes."""
    known = cluster.topic_config(topics)
    return {topic: int(known[topic].get("max.message.bytes", _DEFAULT_LARGEST)) for topic in topics}


def ensure_dead_letter_topic(cluster: KafkaCluster, name: str, largest: int, settings: Settings) -> None:
    """Ensure a DLQ topic without retention limit, whose records may be as large as the source's
    plus headers."""
    ensure_room(cluster, name, 1, {"retention.ms": "-1"}, largest, settings)


def ensure_room(
    cluster: KafkaCluster,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    largest: int,
    settings: Settings,
) -> None:
    """Ensure a topic that accepts records of ``largest`` bytes plus headers. Otherwise one large event would
    stop the view."""
    room = largest + _HEADROOM
    if not cluster.partition_counts([name]):
        # Another view's thread may do it, too: views of one topic share its dead-letter queue.
        ensure_topic(
            cluster,
            name,
            {**config, "max.message.bytes": str(room)},
            replication_factor=settings.replication_factor,
            partitions=partitions,
        )
    elif largest_records(cluster, [name])[name] < room:
        cluster.alter_config(name, {"max.message.bytes": str(room)})
