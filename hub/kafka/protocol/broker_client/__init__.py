"""[edge] Kafka's protocol over sockets of our own: kafka-python's schemas, and hand-packed Fetch and Produce.

librdkafka gives records, not batches. kafka-python's generated schemas serve the rare requests (metadata,
coordinators, transactions, offsets); ``hub/kafka/protocol/messages.py`` packs Fetch and Produce.

access.py        addresses, credentials, patience
connection.py    one connection, with deadlines and SASL
cluster.py       brokers on demand, leaders, offsets
transactions.py  requests to a transaction's coordinator
long_link.py     round trips and socket buffers
long_link.py     round trips and socket buffers
errors.py        Kafka's error codes as errors
"""

from hub.kafka.protocol.broker_client.access import ClusterAccess, Patience
from hub.kafka.protocol.broker_client.cluster import (
    EARLIEST,
    LATEST,
    BrokerCluster,
    EpochEnd,
    Leader,
    TopicMetadata,
    topic_id_text,
)
from hub.kafka.protocol.broker_client.connection import BrokerConnection
from hub.kafka.protocol.broker_client.errors import (
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    BrokerBusy,
    BrokerRefused,
    ConnectionLost,
    PartitionsRefused,
    TransactionLost,
    raise_for,
    translated,
)
from hub.kafka.protocol.broker_client.long_link import LONG_S, RoundTrip
from hub.kafka.protocol.broker_client.transactions import NOBODY, Producer, Transactions
from hub.kafka.protocol.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FetchFrom,
    Produced,
    fetched,
    produce_version,
    produced,
    send_fetch,
    send_produce,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "LONG_S",
    "MESSAGE_TOO_LARGE",
    "NOBODY",
    "OFFSET_OUT_OF_RANGE",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "UNKNOWN_TOPIC",
    "UNKNOWN_TOPIC_ID",
    "BrokerBusy",
    "BrokerCluster",
    "BrokerConnection",
    "BrokerRefused",
    "ClusterAccess",
    "ConnectionLost",
    "EpochEnd",
    "FetchFrom",
    "Fetched",
    "Leader",
    "PartitionsRefused",
    "Patience",
    "Produced",
    "Producer",
    "RoundTrip",
    "TopicMetadata",
    "TransactionLost",
    "Transactions",
    "fetched",
    "produce_version",
    "produced",
    "raise_for",
    "send_fetch",
    "send_produce",
    "topic_id_text",
    "translated",
]
