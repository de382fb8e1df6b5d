"""[edge] The way in from Python: events encoded with their subject's latest schema, appended, acknowledged.

``publish`` waits and returns the position after the event: the token by which a reader sees its own write. ``send`` and
``flush`` are for many events: a bounded queue, delivery errors raised at the next call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from hub.errors import HubError, NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.record import Headers, Positions, TopicPartition
from hub.schema_registry.client import RegistryClient
from hub.schema_registry.codec import Undecodable, encode, parsed

_SCHEMA_AGE_S = 30.0
_QUEUE = 100_000


class Publisher:
    """Events into topics. Use from one thread. ``close`` waits for what is under way."""

    def __init__(self, cluster: KafkaCluster, registry: RegistryClient, *, linger_ms: int = 0) -> None:
        self.cluster = cluster
        self.registry = registry
        self._schemas: dict[str, tuple[int, Any, float]] = {}
        self._failed: list[KafkaError] = []
        self._unacknowledged = 0
        self._producer = Producer(
            cluster.settings(
                acks="all",
                enable_idempotence=True,
                linger_ms=linger_ms,
                batch_size=262_144,
                compression_type="lz4",
                queue_buffering_max_messages=_QUEUE,
                queue_buffering_max_kbytes=131_072,
                delivery_timeout_ms=60_000,
            )
        )

    def publish(
        self,
        topic: str,
        key: str,
        event: Mapping[str, Any] | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Positions:
        """Append one event (None: a tombstone) and return the position after it. Raises CallerError naming the field,
        NotFound (topic or schema), PeerError (outcome unknown)."""
        positions: list[TopicPartition | int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                positions.extend((TopicPartition(message.topic(), message.partition()), message.offset() + 1))

        self._produce(topic, key, self._encoded(topic, event), timestamp_ms, headers, delivered)
        deadline = time.monotonic() + self.cluster.timeout_s
        while not positions and not self._failed and time.monotonic() < deadline:
            self._producer.poll(0.02)
        self._raise_failed()
        if not positions:
            raise self.cluster.down("publish", "not acknowledged in time; the outcome is unknown")
        where, offset = positions
        assert isinstance(where, TopicPartition) and isinstance(offset, int)
        return Positions({where: offset})

    def send(
        self,
        topic: str,
        key: str,
        event: Mapping[str, Any] | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Append one of many events; waits while the queue is full. Errors of earlier ones are raised here."""
        self._raise_failed()
        self._produce(
            topic, key, self._encoded(topic, event), timestamp_ms, headers, self._delivered, partition
        )

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until everything sent is acknowledged. Raises PeerError when something was not."""
        left = self._producer.flush(timeout_s)
        self._raise_failed()
        if left:
            raise self.cluster.down("flush", f"{left} events are not acknowledged")

    def close(self) -> None:
        self.flush()

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _raise_failed(self) -> None:
        if self._failed:
            error, self._failed = self._failed[0], []
            raise self._translated(error)

    def _translated(self, error: KafkaError) -> HubError:
        if error.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ):
            return NotFound("publish: the topic does not exist", hint="create it: hub topic apply")
        return PeerError(
            f"publish: {error.str()}", hint="the outcome is unknown: publish again with the same id"
        )

    def _produce(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: Headers,
        delivered: Any,
        partition: int | None = None,
    ) -> None:
        fields: dict[str, Any] = {"on_delivery": delivered}
        if headers:
            fields["headers"] = list(headers)
        if timestamp_ms is not None:
            fields["timestamp"] = timestamp_ms
        if partition is not None:
            fields["partition"] = partition
        deadline = time.monotonic() + self.cluster.timeout_s * 4
        while True:
            try:
                self._producer.produce(topic, value, key.encode(), **fields)
                self._producer.poll(0)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.cluster.down("publish", "the queue is full and does not drain") from None
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._translated(error.args[0]) from None

    def _encoded(self, topic: str, event: Mapping[str, Any] | None) -> bytes | None:
        if event is None:
            return None
        schema_id, schema = self._schema(topic)
        try:
            return encode(schema_id, schema, event)
        except Undecodable as error:
            raise Undecodable(
                f'topic "{topic}": {error.message}', hint=f"hub schema show {topic}-value shows the schema"
            ) from None

    def _schema(self, topic: str) -> tuple[int, Any]:
        known = self._schemas.get(topic)
        now = time.monotonic()
        if known is None or now - known[2] > _SCHEMA_AGE_S:
            try:
                latest = self.registry.latest(f"{topic}-value")
            except NotFound:
                raise NotFound(
                    f'topic "{topic}" has no schema (subject "{topic}-value")',
                    hint="name it in topics.yaml and run: hub topic apply",
                ) from None
            known = (latest.id, parsed(orjson.loads(latest.schema)), now)
            self._schemas[topic] = known
        return known[0], known[1]
