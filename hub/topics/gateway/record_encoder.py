"""[core] Encode requested records with their topic's schemas.

A request sees one state of the registry: ``RequestEncoder`` looks up each subject once. When a record does
not fit, another node may have registered a newer version a moment ago. The registry then catches up with its
log, and the record is encoded again before it is refused. That happens once per request, and at most once a
second for the same versions: records that never fit must not keep the registry and Kafka busy.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock

from hub.errors import CallerError, NotFound
from hub.record import NewRecord, Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.misfit import MOST_STEPS
from hub.schema_registry.codecs.values import Encoder
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.encryption.sealing import SEALER
from hub.topics.conformance.rules import judge
from hub.topics.conformance.schema_ids import SchemaIdCache
from hub.topics.gateway.produce_request import FORMATS, Data, RecordRequest, Unprocessable, plain_bytes

_MOST_KNOWN = 2_000
_MISSING_S = 2.0
_MISFIT_S = 1.0


class GatewaySchemas:
    """Schemas for the gateway. Thread safe. Caches only what cannot change: the encoder of a schema id for a
    subject.

    Most topics have no schema for their keys, so a subject that was unknown at the end of the registry's log
    is looked up in memory alone for the next 2 s.
    """

    def __init__(self, registry: SchemaRegistry, now_s: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry
        self.ids = SchemaIdCache(registry)
        self._now_s = now_s
        self._lock = Lock()
        self._missing: dict[str, float] = {}
        self._misfits: dict[frozenset[tuple[str, int | None]], float] = {}
        self._encoders: OrderedDict[tuple[int, str], tuple[Encoder, str]] = OrderedDict()

    def latest_id(self, subject: str) -> int | None:
        """Return the id of the subject's latest version, None if it has none. Raises PeerError."""
        registered_schema, now_s = self.registry.known_latest(subject), self._now_s()
        if registered_schema is None and now_s - self._missing.get(subject, float("-inf")) > _MISSING_S:
            self.registry.catch_up()
            registered_schema = self.registry.known_latest(subject)
            with self._lock:
                if len(self._missing) >= _MOST_KNOWN:
                    self._missing.clear()
                self._missing[subject] = now_s
        return None if registered_schema is None else registered_schema.id

    def catch_up(self, latest: Mapping[str, int | None]) -> bool:
        """Catch up with the registry's log for a record that does not fit the ``latest`` schema ids of its
        subjects. Returns False without doing so if that was done for the same ids within the last second.
        Raises PeerError; then the next call tries again.
        """
        versions, now_s = frozenset(latest.items()), self._now_s()
        if now_s - self._misfits.get(versions, float("-inf")) < _MISFIT_S:
            return False
        self.registry.catch_up()
        with self._lock:
            if len(self._misfits) >= _MOST_KNOWN:
                self._misfits.clear()
            self._misfits[versions] = now_s
        return True

    def encoder(self, schema_id: int, subject: str) -> tuple[Encoder, str]:
        """Return (encoder, schema type). Raises NotFound, CallerError, PeerError."""
        known = self._encoders.get((schema_id, subject))
        if known is None:
            source = self.registry.source(schema_id)
            known = (RUNNER.encoder_of(source, subject), source.schema_type)
            with self._lock:
                self._encoders[schema_id, subject] = known
                if len(self._encoders) > _MOST_KNOWN:
                    self._encoders.popitem(last=False)
        return known


class RequestEncoder:
    """Encoder of one request's records for a topic with ``partitions``. Used by one thread."""

    def __init__(self, schemas: GatewaySchemas, topic: str, partitions: int, now_ms: int) -> None:
        self.schemas = schemas
        self.topic = topic
        self.partitions = partitions
        self.now_ms = now_ms
        self._latest: dict[str, int | None] = {}
        self._caught_up = False

    def encoded(self, request: RecordRequest) -> tuple[NewRecord, int | None]:
        """Return (record, schema id of its value or None). Raises CallerError, PeerError."""
        if request.partition is not None and request.partition >= self.partitions:
            raise NotFound(
                f'topic "{self.topic}" partition {request.partition} does not exist: it has {self.partitions}'
            )
        try:
            return self._encoded(request)
        except CallerError:
            if self._caught_up or not self.schemas.catch_up(self._latest):
                raise
        self._caught_up = True
        self._latest.clear()
        return self._encoded(request)

    def _encoded(self, request: RecordRequest) -> tuple[NewRecord, int | None]:
        key, _ = self._bytes_of("key", request.key, request)
        value, schema_id = self._value_of(request)
        timestamp_ms = self.now_ms if request.timestamp_ms is None else request.timestamp_ms
        return NewRecord(self.topic, key, value, request.headers, timestamp_ms, request.partition), schema_id

    def _value_of(self, request: RecordRequest) -> tuple[bytes | None, int | None]:
        """Return (bytes, schema id or None) of a value, with its erasable fields encrypted."""
        try:
            value, schema_id = self._bytes_of("value", request.value, request)
        except RuleRefused as error:
            if SEALER.fields_of(self.topic) is not None:
                error.dlq_topic = None  # a copy would have the clear text
            raise
        return SEALER.sealed(self.topic, value, self.schemas.registry), schema_id

    def _bytes_of(
        self, part: str, requested: Data, request: RecordRequest
    ) -> tuple[bytes | None, int | None]:
        """Return (bytes, schema id or None) of a key or a value."""
        if requested.data is None:
            return None, None
        subject = f"{self.topic}-{part}"
        if requested.type in ("JSON", "STRING", "BINARY"):
            plain = plain_bytes(requested, part)
            if self._latest_id(subject) is not None:
                self._check_plain(part, plain)
            return plain, None
        schema_id = self._chosen(subject, requested)
        if schema_id is None:
            if part == "key" and requested.type is None and isinstance(requested.data, str):
                return requested.data.encode(), None
            raise Unprocessable(
                f'topic "{self.topic}" has no schema for its {part}s (subject "{subject}")',
                hint='register one, or say the type: {"type": "JSON", "data": …}',
                code="HUB-1324",
            )
        steps = min(MOST_STEPS, 20_000 + 4 * request.size)
        encoder, form = self.schemas.encoder(schema_id, subject)
        if requested.type is not None and FORMATS[requested.type] != form:
            raise Unprocessable(
                f"{part}: type {requested.type}, and the schema with id {schema_id} is {form}",
                hint='leave "type" out: the schema decides',
                code="HUB-1323",
            )
        return frame(schema_id, encoder.body(requested.data, part, steps)), schema_id

    def _check_plain(self, part: str, plain: bytes | None) -> None:
        """Check that raw bytes for a topic with a schema pass the conformance check. Raises Unprocessable."""
        if part != "value":
            return
        self.schemas.ids.forget()
        lookup = self.schemas.ids.of(f"{self.topic}-value")
        violation = judge(Record(self.topic, 0, 0, 0, None, plain), lookup)
        if violation is not None:
            raise Unprocessable(
                f'topic "{self.topic}" has a schema, and the value is not in its format: {violation.detail}',
                hint='leave "type" out: the JSON is written in the schema\'s format',
                code="HUB-1325",
            )

    def _chosen(self, subject: str, requested: Data) -> int | None:
        """Return the schema id that a record requests, else the subject's latest, None if it has none. Raises
        Unprocessable.
        """
        if requested.subject is not None and requested.subject != subject:
            raise Unprocessable(
                f'subject "{requested.subject}" is not the topic\'s', hint=f'it is "{subject}"'
            )
        try:
            if requested.schema_id is not None:
                self.schemas.ids.forget()
                known_schema = self.schemas.ids.of(subject)(requested.schema_id)
                if known_schema is None or not known_schema.belongs:
                    raise Unprocessable(f'schema id {requested.schema_id} is not of subject "{subject}"')
                return requested.schema_id
            if requested.schema_version is not None:
                return self.schemas.registry.version(subject, requested.schema_version).id
        except NotFound as error:
            raise Unprocessable(
                error.message, hint=f"hub schema versions {subject} shows what there is"
            ) from None
        return self._latest_id(subject)

    def _latest_id(self, subject: str) -> int | None:
        if subject not in self._latest:
            self._latest[subject] = self.schemas.latest_id(subject)
        return self._latest[subject]
