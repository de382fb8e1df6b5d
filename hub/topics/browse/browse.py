"""[shell] Browse the messages of a topic: newest, before or from a position, filtered by words, and live.
Every read is bounded (bounded_read.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.caller import CALLER, sees_topic, topic_visibility
from hub.errors import CallerError, NotFound, did_you_mean
from hub.log import Log
from hub.masking.shape import Visibility
from hub.record import Positions, Record, TopicPartition
from hub.schema_registry.codecs.values import decoder_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.encrypted_fields import encrypted_fields
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model.lru_cache import LruCache
from hub.topics.browse.bounded_read import (
    MOST_MESSAGES,
    BoundedRead,
    BrowseBounds,
    FoundMessages,
    MessageQuery,
)
from hub.topics.browse.rendered import MOST_CHARACTERS, Message, ReadySchema, Schema, contains_words, message

_SEARCHED = 2_000_000  # characters of a message that are searched for words


class BrowseSchemas(Protocol):
    """Registry calls that this module needs; each may raise PeerError."""

    def source(self, schema_id: int) -> SchemaSource:
        """Return the schema. Raises NotFound."""

    def sees(self, schema_id: int) -> bool:
        """Return True if the caller may see a subject that has the schema, and for an unknown id."""

    def registered(self, schema_id: int, topic: str) -> tuple[str, int] | None:
        """Return a (subject, version) of the schema, that of the topic if there is one."""


@dataclass
class Browser:
    """Message browser. Thread safe. Decoders are cached by schema id, which never changes its schema."""

    log: Log
    schemas: BrowseSchemas
    bounds: BrowseBounds = field(default_factory=BrowseBounds)
    _readings: LruCache[tuple[int, str, tuple[str, int] | None], ReadySchema] = field(
        default_factory=lambda: LruCache(500)
    )

    def find(self, wanted: MessageQuery) -> FoundMessages:
        """Find messages. Raises NotFound for a topic or partition that does not exist, CallerError,
        PeerError.
        """
        if not 1 <= wanted.limit <= MOST_MESSAGES:
            raise CallerError(f"limit {wanted.limit} is not between 1 and {MOST_MESSAGES}")
        shape = visible_shape(wanted)
        begins, ends = self._reach(wanted)
        with contextlib.closing(self.log.reader()) as reader:

            def show(record: Record, words: Sequence[str], most: int) -> Message | None:
                return self.shown(record, shape, words, most)

            read = BoundedRead(self.log, self.bounds, show, wanted, begins, ends, reader)
            return read.forwards() if wanted.forwards else read.backwards()

    def ends(self, wanted: MessageQuery) -> Positions:
        """Return the current end offsets, where a ``Tail`` starts. Raises like ``find``."""
        return self._reach(wanted)[1]

    def shown(
        self, record: Record, shape: Visibility, words: Sequence[str], most: int = MOST_CHARACTERS
    ) -> Message | None:
        """Render a record with its writer schema, as its reader sees it; None for one that it does not
        see, or that lacks one of the words as seen."""

        def reading(schema_id: int) -> ReadySchema | None:
            return self.ready_schema(schema_id, record.topic)

        if words:
            whole = message(record, reading, _SEARCHED, shape)
            if whole is None or not contains_words(whole, words):
                return None
        return message(record, reading, most, shape)

    def _reach(self, wanted: MessageQuery) -> tuple[Positions, Positions]:
        """Return (beginning offsets, end offsets) of the selected partitions."""
        try:
            ends = self.log.end_offsets([wanted.topic])
        except NotFound:
            hint = did_you_mean(
                wanted.topic, filter(sees_topic, self.log.topics()), "the page of topics lists them"
            )
            raise NotFound(f'topic "{wanted.topic}" does not exist', hint=hint) from None
        begins = self.log.beginning_offsets([wanted.topic])
        if wanted.partition is not None:
            tp = TopicPartition(wanted.topic, wanted.partition)
            if tp not in ends.offsets:
                raise NotFound(
                    f'topic "{wanted.topic}" has no partition {wanted.partition}',
                    hint=f"it has {len(ends.offsets)}, counted from 0",
                )
            ends = Positions({tp: ends.get(tp)})
        return Positions({tp: begins.get(tp) for tp, _ in ends}), ends

    def ready_schema(self, schema_id: int, topic: str) -> ReadySchema | None:
        """Return the schema with its decoder; None if the registry does not have the id or the caller may not
        see it.
        """
        if not self.schemas.sees(schema_id):
            return None
        # The subject depends on what the caller may see, so it is part of the cache key.
        place = None if CALLER.get() is None else self.schemas.registered(schema_id, topic)
        known = self._readings.get((schema_id, topic, place))
        if known is not None:
            return known
        try:
            source = self.schemas.source(schema_id)
        except NotFound:
            return None
        subject, version = place or self.schemas.registered(schema_id, topic) or (None, None)
        schema = Schema(schema_id, source.schema_type, subject, version, _encrypted(source))
        try:
            ready = ReadySchema(schema, decoder_of(source, exact=True))
        except InvalidSchema as error:
            ready = ReadySchema(schema, None, f"its schema cannot be used: {error.message[:300]}")
        self._readings.put((schema_id, topic, place), ready)
        return ready


def _encrypted(source: SchemaSource) -> tuple[str, ...]:
    """Return the names of the encrypted fields of a schema; none for one that cannot be understood."""
    try:
        return tuple(dict.fromkeys(each.field for each in encrypted_fields(source)))
    except CallerError:
        return ()


def visible_shape(wanted: MessageQuery) -> Visibility:
    """Return what the caller sees of the topic. Raises MaskRefused if it cannot be shown as messages."""
    shape = topic_visibility(wanted.topic)
    shape.require_readable("the list of messages")
    return shape
