"""[shell] Values of Debezium's records: JSON, or in the registry's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.materializers.source_transactions.changes import NotOfDebezium
from hub.record import Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.unreadable import UNREADABLE
from hub.schema_registry.codecs.values import decoder_as
from hub.schema_registry.codecs.wire_format import Undecodable, unframe


@dataclass
class ValueDecoder:
    """Decodes values, and keeps the decoder of each schema."""

    registry: SchemaRegistry
    _decoders: dict[int, Callable[[bytes, int], Any]] = field(default_factory=dict)

    def value(self, record: Record) -> Any:
        """Return the value of a record. Raises NotOfDebezium."""
        value = record.value or b""
        try:
            try:
                schema_id, _ = unframe(value)
            except Undecodable:
                return orjson.loads(value)
            if schema_id not in self._decoders:
                source = self.registry.source(schema_id)
                self._decoders[schema_id] = decoder_as(source, source, as_written=True)
            return self._decoders[schema_id](value, 5)
        except UNREADABLE as error:
            raise NotOfDebezium(f"it cannot be decoded: {error}") from None
