"""[shell] Encode events from Python with the latest schema of their topic; schemas are cached."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import CallerError, NotFound, PeerError, did_you_mean
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.wire_format import Undecodable, encode, frame, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.runner import RUNNER, has_write_rules
from hub.schema_registry.encryption.sealing import SEALER

SCHEMA_AGE_S = 30.0
_MISFIT_S = 1.0


class EventEncoder:
    """Encoder of events by the latest schema of the subject ``<topic>-value``. Thread safe.

    ``schema_age_s``: a subject's latest version is looked up again after this time, and for an event that
    does not fit the known one, at most once a second. While the registry is unreachable, the known version
    stays in use.

    ``json_events``: events hold JSON values, so a time is a text such as "2026-01-01T09:00:00Z", as at the
    gateway. Otherwise they hold Python's values.
    """

    def __init__(
        self, registry: SchemaRegistry, schema_age_s: float = SCHEMA_AGE_S, *, json_events: bool = False
    ) -> None:
        self.registry = registry
        self.schema_age_s = schema_age_s
        self.json_events = json_events
        self._schemas: dict[str, tuple[_Schema, float]] = {}
        self._misfits: dict[str, tuple[int, float]] = {}

    def encoded(self, topic: str, event: Mapping[str, Any]) -> bytes:
        """Encode an event in the wire format. One that does not fit is tried again if a newer version was
        registered meanwhile. Raises CallerError naming the field, NotFound (no schema), PeerError.
        """
        value = SEALER.sealed(topic, self._by_schema(topic, event), self.registry)
        assert value is not None
        return value

    def _by_schema(self, topic: str, event: Mapping[str, Any]) -> bytes:
        schema = self._schema(topic)
        try:
            return self._encoded(topic, schema, event)
        except CallerError:
            now_s, before = time.monotonic(), self._misfits.get(topic)
            if before is not None and before[0] == schema.id and now_s - before[1] < _MISFIT_S:
                raise
            self.registry.catch_up()
            self._misfits[topic] = schema.id, now_s
            newer = self._schema(topic, age_s=0.0)
            if newer.id == schema.id:
                raise
            return self._encoded(topic, newer, event)

    @staticmethod
    def _encoded(topic: str, schema: _Schema, event: Mapping[str, Any]) -> bytes:
        if schema.plain is None:
            return frame(schema.id, RUNNER.encoder_of(schema.source, f"{topic}-value").body(dict(event)))
        try:
            encoded = encode(schema.id, schema.plain, event)
        except Undecodable as error:
            raise _explained(topic, schema.plain, event, error) from None
        if not has_write_rules(schema.source):
            return encoded
        return frame(schema.id, RUNNER.rewritten(schema.source, f"{topic}-value", encoded[5:]))

    def _schema(self, topic: str, age_s: float | None = None) -> _Schema:
        """Return the subject's latest schema, cached for ``age_s`` (default: ``schema_age_s``); an older one
        while the registry is unreachable.
        """
        age_s = self.schema_age_s if age_s is None else age_s
        cached = self._schemas.get(topic)
        now = time.monotonic()
        if cached is None or now - cached[1] >= age_s:
            try:
                latest = self.registry.latest(f"{topic}-value")
                if cached is None or cached[0].id != latest.id:
                    source = self.registry.source(latest.id)
                    from_python = latest.schema_type == "AVRO" and not self.json_events
                    plain = parsed(orjson.loads(latest.schema)) if from_python else None
                    cached = (_Schema(latest.id, plain, source), now)
                cached = (cached[0], now)
            except NotFound:
                raise NotFound(
                    f'topic "{topic}" has no schema (subject "{topic}-value")',
                    hint="name it in topics.yaml and run: hub topic apply",
                ) from None
            except PeerError:
                if cached is None:
                    raise
                cached = (cached[0], now)  # a registered schema stays valid
            self._schemas[topic] = cached
        return cached[0]


@dataclass(frozen=True, slots=True)
class _Schema:
    """``plain``: an Avro schema prepared to ``encode`` Python's values;
    None for other formats and for JSON values."""

    id: int
    plain: Any
    source: SchemaSource


def _explained(topic: str, schema: Any, event: Mapping[str, Any], error: Undecodable) -> Undecodable:
    fields = {each["name"] for each in schema.get("fields", ())} if isinstance(schema, dict) else set()
    unknown = sorted(set(event) - fields)
    if not fields or not unknown:
        return Undecodable(
            f'topic "{topic}": {error.message}', hint=f"hub schema show {topic}-value shows the schema"
        )
    return Undecodable(
        f'topic "{topic}": the schema has no field "{unknown[0]}"',
        hint=did_you_mean(unknown[0], fields, f"it has {', '.join(sorted(fields))}"),
    )
