"""[shell] Events as records of another topic. The sink appends them with its position, in one transaction.

Without ``fields`` a record is copied: key, value, headers and timestamp. With ``fields`` its value is the
selected row, encoded by the topic's schema if it has one, else as JSON.
"""

from __future__ import annotations

import threading

import orjson

from hub.errors import CallerError, ConfigError
from hub.log import Cluster
from hub.record import NewRecord, Positions
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.values import Encoder
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.encryption.sealing import SEALER
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch, SinkEvent
from hub.sinks.targets.target import Bury


class OtherTopic:
    """The target of one sink."""

    def __init__(self, topic: str, cluster: Cluster, registry: SchemaRegistry, *, copies: bool) -> None:
        self.topic, self._cluster, self._registry, self._copies = topic, cluster, registry, copies
        self._encoder: tuple[int, Encoder] | None = None

    def positions(self, first: Positions) -> Positions:
        """See Target. The transaction holds them in the sink's group. Raises ConfigError (HUB-1823)."""
        if self.topic not in self._cluster.described([self.topic]):
            raise ConfigError(
                f'topic "{self.topic}" does not exist',
                hint="add it to topics.yaml and run hub topic apply",
                code="HUB-1823",
            )
        return first

    def deliver(self, batch: SinkBatch, _stop: threading.Event, _bury: Bury) -> Delivered:
        """See Target."""
        if batch.events and not self._copies:
            self._renew()
        records, refused = list[NewRecord](), list[RefusedRecord]()
        for event in batch.events:
            try:
                records.append(self._record(event))
            except CallerError as error:
                refused.append(
                    RefusedRecord(event.record, f'it does not fit topic "{self.topic}": {error.message}')
                )
        return Delivered(batch.after, len(records), refused, records)

    def close(self) -> None: ...

    def _renew(self) -> None:
        newest = self._registry.known_latest(f"{self.topic}-value")
        if newest is None:
            self._encoder = None
        elif self._encoder is None or self._encoder[0] != newest.id:
            source = self._registry.source(newest.id)
            self._encoder = (newest.id, RUNNER.encoder_of(source))

    def _record(self, event: SinkEvent) -> NewRecord:
        record = event.record
        value: bytes | None
        if event.row is None:
            value = None
        elif self._copies:
            value = record.value
        elif self._encoder is None:
            value = orjson.dumps(event.row, default=str)
        else:
            value = frame(self._encoder[0], self._encoder[1].body(event.row))
        value = SEALER.sealed(self.topic, value, self._registry)
        return NewRecord(self.topic, record.key, value, record.headers, record.timestamp_ms)
