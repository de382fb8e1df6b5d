"""[shell] Schema ids and their subjects, as far as they cannot change."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hub.errors import CallerError, NotFound
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.values import check_of
from hub.schema_registry.contracts.runner import RUNNER, has_encoding_rules
from hub.topics.conformance.rules import KnownSchema

log = logging.getLogger(__name__)

_MOST_SCHEMAS = 10_000


class SchemaIdCache:
    """Cache of schema ids, limited to facts that cannot change: a schema, and its membership in a subject.

    An unknown id, or one of another subject, is cached for one batch (``forget``): producers register before
    they write, and the registry is asked after the batch was read.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._checks: dict[int, KnownSchema] = {}
        self._right: dict[tuple[str, int], KnownSchema] = {}
        self._wrong: dict[tuple[str, int], KnownSchema | None] = {}

    def forget(self) -> None:
        self._wrong.clear()

    def of(self, subject: str) -> Callable[[int], KnownSchema | None]:
        """Return the lookup for ``hub.topics.conformance.rules.judge``. It raises PeerError if the registry
        does not answer.
        """
        return lambda schema_id: self._ask(subject, schema_id)

    def _ask(self, subject: str, schema_id: int) -> KnownSchema | None:
        place = (subject, schema_id)
        known_schema = self._right.get(place)
        if known_schema is not None:
            return known_schema
        if place in self._wrong:
            return self._wrong.get(place)  # it may have been removed in between: it was negative a moment ago
        try:
            belongs = subject in self.registry.subjects_of(schema_id)
        except NotFound:
            self._wrong[place] = None
            return None
        if not belongs:
            self._wrong[place] = foreign = KnownSchema(False, None)
            return foreign
        if len(self._right) >= _MOST_SCHEMAS:
            self._right.clear()
            self._checks.clear()
        if schema_id not in self._checks:
            self._checks[schema_id] = self._check(schema_id)
        self._right[place] = known_schema = self._checks[schema_id]
        return known_schema

    def _check(self, schema_id: int) -> KnownSchema:
        try:
            source = self.registry.source(schema_id)
            if has_encoding_rules(source):  # the log holds encrypted bytes, not a body of the schema
                log.warning("schema id %d is encrypted as a whole, its records pass", schema_id)
                return KnownSchema(True, None)
            return KnownSchema(True, check_of(source), RUNNER.refusal_of(source))
        except CallerError as error:
            log.warning("schema id %d cannot be checked, its records pass: %s", schema_id, error.message)
            return KnownSchema(True, None)
