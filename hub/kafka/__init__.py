"""[edge] confluent-kafka: the ports of ``hub/log.py`` carried to a real cluster.

One factory of settings for every client, because each default that differs has lost somebody's events: acks=all,
idempotence, committed records only, no automatic commits, and no silent reset: an offset that the log no longer has
is an error that names the gap. librdkafka has no epoch per transaction (KIP-890), so after any doubt about the end of
a transaction the producer is dropped and a new one fences it.

``own_cluster`` is the hub's own Kafka as its settings say. ``KafkaCluster`` knows topics and opens the rest: ``KafkaReader``, ``KafkaSender`` (a queue of records under way),
``KafkaWriter`` (append and wait; a sender and, with a name, transactions).
"""

from hub.kafka.cluster import KafkaCluster
from hub.kafka.groups import GroupMember
from hub.kafka.own import bounds_of, own_cluster, own_connection, own_proxy
from hub.kafka.reader import KafkaReader
from hub.kafka.writer import KafkaSender, KafkaWriter

__all__ = [
    "GroupMember",
    "KafkaCluster",
    "KafkaReader",
    "KafkaSender",
    "KafkaWriter",
    "bounds_of",
    "own_cluster",
    "own_connection",
    "own_proxy",
]
