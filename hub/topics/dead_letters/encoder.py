"""[core] Encode repaired events with the schemas of their topics.

The registry is asked through its port; each fact is looked up once.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hub.caller import sees_schema
from hub.errors import HubError, NotFound
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.encryption.sealing import SEALER
from hub.schema_registry.formats import exact_json
from hub.topics.conformance.schema_ids import SchemaIdCache
from hub.topics.dead_letters.repair import dumped, in_doubles


@dataclass
class RepairedEventEncoder:
    """Encoder of repaired events for one action."""

    registry: SchemaRegistry

    @cached_property
    def subjects(self) -> frozenset[str]:
        return frozenset(self.registry.subjects())

    @cached_property
    def schemas(self) -> SchemaIdCache:
        return SchemaIdCache(self.registry)

    def source(self, schema_id: int) -> SchemaSource | None:
        """Return a schema, None if it does not exist or the caller may not see it. Raises PeerError."""
        try:
            if not sees_schema(lambda: self.registry.subjects_of(schema_id)):
                return None
            return self.registry.source(schema_id)
        except HubError as error:
            if error.retriable:
                raise
            return None

    def encoded(self, topic: str, wanted: int | None, value: Any) -> bytes:
        """Return the bytes of an event. ``wanted``: id of the schema to use if it belongs to the topic.
        Raises CallerError for an event that does not fit the schema or its data rules, PeerError.
        """
        schema_id, source = self.schema(topic, wanted)
        plain = in_doubles(value)
        body = RUNNER.encoder_of(source).body(plain)
        if source.schema_type == "JSON" and body == exact_json.dumped(plain):
            body = dumped(value)  # no rule rewrote the value: keep each number exact
        return SEALER.sealed(topic, frame(schema_id, body), self.registry) or b""

    def schema(self, topic: str, wanted: int | None) -> tuple[int, SchemaSource]:
        """Return the schema to encode with: ``wanted`` if it belongs to the topic's subject, else the
        latest.
        """
        subject = f"{topic}-value"
        if wanted is not None:
            with contextlib.suppress(NotFound):
                if subject in self.registry.subjects_of(wanted):
                    return wanted, self.registry.source(wanted)
        latest = self.registry.latest(subject)
        return latest.id, self.registry.source(latest.id)
