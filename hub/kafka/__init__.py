"""[edge] Kafka: the ports of ``hub/log/`` implemented for a real cluster.

One factory of settings serves every client, because other defaults lose events: acks=all, idempotence,
committed records only, no automatic commits, and no silent reset (an offset that the log no longer has is an
error that names the gap). librdkafka has no epoch per transaction (KIP-890), so if the outcome of a
transaction is unknown, the producer is discarded and a new one fences it.

    own_cluster.py    the hub's own Kafka, as hub.yaml configures it
    cluster.py        topics and their settings; opens readers and writers     (acls.py offsets.py log_dirs.py)
    groups.py         consumer groups     (group_admin.py group_transaction.py)
    reader.py         ``KafkaReader``: a consumer without a group, from given positions
    writer.py         ``KafkaSender``: a bounded queue of records; ``KafkaWriter``: append and wait, in transactions
    connection.py     settings, errors and the admin client that all clients of a cluster share
    oauth_tokens.py java_client.py     credentials for clients that are not librdkafka's
    read_proxy.py     a local proxy that withholds batches whose unpacked size exceeds the bound
    contact/          clients that a cluster no longer answers, and why a broker refuses a connection
    protocol/         record batches as bytes, codecs, and requests that librdkafka does not offer
"""  # noqa: E501

from hub.kafka.cluster import KafkaCluster
from hub.kafka.group_admin import GroupMember
from hub.kafka.own_cluster import bounds_of, own_cluster, own_connection, own_proxy
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
