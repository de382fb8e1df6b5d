"""[shell] Python producer: encode events with the latest schema of their subject and append them.

``publish`` waits for the acknowledgement and returns the position after the event, which a reader uses to
read its own write. ``send`` and ``flush`` handle many events through a bounded queue; delivery errors are
raised by the next call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hub.errors import CallerError, HubError, PeerError
from hub.kafka import KafkaCluster
from hub.record import Headers, NewRecord, Positions, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.topics.gateway.event_encoder import SCHEMA_AGE_S, EventEncoder

_LATEST_MS = 253_402_300_799_999  # the end of the year 9999


class Publisher:
    """Producer of events. ``publish`` is thread safe; call ``send`` and ``flush`` from one thread. ``close``
    waits for outstanding events.

    ``schema_age_s``: a subject's latest version is looked up again after this time, and for each event that
    does not fit the known one. 0 in the server, where a look-up reads memory.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        registry: SchemaRegistry,
        *,
        linger_ms: int = 0,
        delivery_timeout_s: float = 60.0,
        schema_age_s: float = SCHEMA_AGE_S,
        json_events: bool = False,
    ) -> None:
        self.cluster = cluster
        self.encoder = EventEncoder(registry, schema_age_s, json_events=json_events)
        self._sender = cluster.sender(linger_ms=linger_ms, delivery_timeout_s=delivery_timeout_s)

    def publish(
        self,
        topic: str,
        key: str,
        event: Mapping[str, Any] | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Positions:
        """Append one event (None: a tombstone) and return the position after it. Raises CallerError naming
        the field,
        NotFound (topic or schema), PeerError (outcome unknown: publish again with the event's own id)."""
        outcome: list[tuple[TopicPartition, int, HubError | None]] = []
        new = self._record(topic, key, event, timestamp_ms, headers)
        self._sender.send(new, lambda tp, offset, error: outcome.append((tp, offset, error)))
        deadline = time.monotonic() + self.cluster.timeout_s
        while not outcome and time.monotonic() < deadline:
            self._sender.poll(0.02)
        if not outcome:
            raise _unknown(topic, "not acknowledged in time")
        tp, offset, error = outcome[0]
        if isinstance(error, PeerError):
            raise _unknown(topic, error.message) from error
        if error is not None:
            raise error
        return Positions({tp: offset + 1})

    def send(
        self,
        topic: str,
        key: str,
        event: Mapping[str, Any] | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Append one of many events. Blocks while the queue is full. Raises errors of earlier events."""
        self._sender.send(self._record(topic, key, event, timestamp_ms, headers, partition))

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until all sent events are acknowledged. Raises delivery errors."""
        self._sender.flush(timeout_s)

    def close(self) -> None:
        """Wait for outstanding events. Raises delivery errors."""
        self.flush()

    def _record(
        self,
        topic: str,
        key: str,
        event: Mapping[str, Any] | None,
        timestamp_ms: int | None,
        headers: Headers,
        partition: int | None = None,
    ) -> NewRecord:
        if not key:
            raise CallerError(f'topic "{topic}": the key is empty', hint="events of one key keep their order")
        if timestamp_ms is not None and not 0 <= timestamp_ms <= _LATEST_MS:
            raise CallerError(
                f'topic "{topic}": timestamp_ms {timestamp_ms} is not within the years 1970 to 9999',
                hint="it counts milliseconds since 1970-01-01T00:00:00Z",
            )
        value = None if event is None else self.encoder.encoded(topic, event)
        return NewRecord(topic, key.encode(), value, headers, timestamp_ms, partition)


def _unknown(topic: str, why: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": {why}; the outcome is unknown',
        hint="publish again with the same event id: events are counted once by it",
        code="HUB-3013",
    )
