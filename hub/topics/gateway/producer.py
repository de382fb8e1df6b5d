"""[shell] Python producer: encode events with the latest schema of their subject and append them.

``publish`` waits for the acknowledgement and returns the position after the event, which a reader uses to
read its own write. ``send`` and ``flush`` handle many events through a bounded queue; delivery errors are
raised by the next call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import CallerError, HubError, NotFound, PeerError, nearest
from hub.kafka import KafkaCluster
from hub.record import Headers, NewRecord, Positions, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.wire_format import Undecodable, encode, frame, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.runner import RUNNER, has_write_rules

_SCHEMA_AGE_S = 30.0
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
        schema_age_s: float = _SCHEMA_AGE_S,
    ) -> None:
        self.cluster = cluster
        self.schema_age_s = schema_age_s
        self.registry = registry
        self._sender = cluster.sender(linger_ms=linger_ms, delivery_timeout_s=delivery_timeout_s)
        self._schemas: dict[str, tuple[_Schema, float]] = {}

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
        value = None if event is None else self._fitting(topic, event)
        return NewRecord(topic, key.encode(), value, headers, timestamp_ms, partition)

    def _fitting(self, topic: str, event: Mapping[str, Any]) -> bytes:
        """Encode an event; one that does not fit is tried again if a newer version was registered meanwhile."""
        schema = self._schema(topic)
        try:
            return self._encoded(topic, schema, event)
        except CallerError:
            self.registry.catch_up()
            newer = self._schema(topic, age_s=0.0)
            if newer.id == schema.id:
                raise
            return self._encoded(topic, newer, event)

    @staticmethod
    def _encoded(topic: str, schema: _Schema, event: Mapping[str, Any]) -> bytes:
        if schema.plain is None:
            return frame(schema.id, RUNNER.encoder_of(schema.source).body(dict(event)))
        try:
            encoded = encode(schema.id, schema.plain, event)
        except Undecodable as error:
            raise _explained(topic, schema.plain, event, error) from None
        if not has_write_rules(schema.source):
            return encoded
        return frame(schema.id, RUNNER.rewritten(schema.source, encoded[5:]))

    def _schema(self, topic: str, age_s: float | None = None) -> _Schema:
        """Return the subject's latest schema, cached for ``age_s`` (default: ``schema_age_s``); an older one
        while the registry is unreachable.
        """
        age_s = self.schema_age_s if age_s is None else age_s
        known = self._schemas.get(topic)
        now = time.monotonic()
        if known is None or now - known[1] >= age_s:
            try:
                latest = self.registry.latest(f"{topic}-value")
                if known is None or known[0].id != latest.id:
                    source = self.registry.source(latest.id)
                    plain = parsed(orjson.loads(latest.schema)) if latest.schema_type == "AVRO" else None
                    known = (_Schema(latest.id, plain, source), now)
                known = (known[0], now)
            except NotFound:
                raise NotFound(
                    f'topic "{topic}" has no schema (subject "{topic}-value")',
                    hint="name it in topics.yaml and run: hub topic apply",
                ) from None
            except PeerError:
                if known is None:
                    raise
                known = (known[0], now)  # a registered schema stays valid
            self._schemas[topic] = known
        return known[0]


@dataclass(frozen=True, slots=True)
class _Schema:
    """``plain``: an Avro schema without references, prepared for ``encode``; None for any other format."""

    id: int
    plain: Any
    source: SchemaSource


def _unknown(topic: str, why: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": {why}; the outcome is unknown',
        hint="publish again with the same event id: events are counted once by it",
        code="HUB-3013",
    )


def _explained(topic: str, schema: Any, event: Mapping[str, Any], error: Undecodable) -> Undecodable:
    known = {each["name"] for each in schema.get("fields", ())} if isinstance(schema, dict) else set()
    unknown = sorted(set(event) - known)
    if not known or not unknown:
        return Undecodable(
            f'topic "{topic}": {error.message}', hint=f"hub schema show {topic}-value shows the schema"
        )
    guess = nearest(unknown[0], known)
    return Undecodable(
        f'topic "{topic}": the schema has no field "{unknown[0]}"',
        hint=f'did you mean "{guess}"?' if guess else f"it has {', '.join(sorted(known))}",
    )
