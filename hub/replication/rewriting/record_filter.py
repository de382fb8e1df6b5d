"""[core] Record filter and field masking of a mirror: ``only``, ``mask`` and ``schema_ids`` of mirrors.yaml.

Per record, in this order: apply the conditions, mask fields of the value, replace schema ids by the target's.
A record that is left out leaves a hole in the offset map, as compaction does; timestamps, order, headers and
nulls stay, and so does every byte that no rule applies to. A value that cannot be judged is never carried:
its partition stops, or the record is left out and recorded as a gap (``on_unreadable: drop``).

A deletion (a null value) has no fields: it passes conditions on fields, or the deleted values would stay
forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from hub.errors import CallerError, NotFound
from hub.kafka.protocol.record_batch import RecordBatch
from hub.replication.config.mirrors import RecordCondition
from hub.replication.rewriting.avro_masking import avro_masking
from hub.replication.rewriting.mask import json_masking
from hub.replication.rewriting.mask_tree import Mask, Masking, Tree, Unmaskable, tree_of
from hub.replication.rewriting.reencode import (
    Fields,
    NewBatch,
    RawRecord,
    anew,
    fields_of,
    kept_records,
    rest_of,
)
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.values import check_of, decoder_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema

_BODY_AT = 5  # after the magic byte 0 and the schema id


class RulesNotApplicable(CallerError):
    """The mirror's rules cannot be applied to a record, so it is not carried."""

    code = "HUB-1614"


class RecordSchemas(Protocol):
    """Schemas of both sides by the ids that records carry. Raises NotFound, CallerError, PeerError."""

    def source(self, schema_id: int) -> SchemaSource:
        """Return the schema of a record of the source."""
        ...

    def target_id(self, schema_id: int, subject: str) -> int:
        """Return the id that the same schema has at the target; ``subject``: where to search first."""
        ...

    def has_keys(self, topic: str) -> bool:
        """Return whether the topic's keys have schemas at the source: a numeric key looks like an id."""
        ...


class NoSchemas:
    """``RecordSchemas`` of a side without a registry."""

    def source(self, schema_id: int) -> SchemaSource:
        raise NotFound(f"schema {schema_id} is not known: the source cluster has no registry in the file")

    def target_id(self, schema_id: int, subject: str) -> int:
        raise NotFound(f"schema {schema_id} is not known: the target cluster has no registry in the file")

    def has_keys(self, topic: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class RecordRules:
    """Rules for the records of one topic. ``masks``: (path, how, reference of the key). ``as_needed``: ids
    are replaced because the mirror found that they mean other schemas at the target, not because the file
    requests it: content that only looks like a framed value stays unchanged.
    """

    topic: str
    only: tuple[RecordCondition, ...] = ()
    masks: tuple[tuple[str, str, str | None], ...] = ()
    rewrites_ids: bool = False
    drops_unreadable: bool = False
    as_needed: bool = False

    def __str__(self) -> str:
        rules = [f"only where {each}" for each in self.only]
        rules += [f"mask {path} ({how})" for path, how, _ in self.masks]
        rules += ["schema ids of the target"] if self.rewrites_ids else []
        return "; ".join(rules)

    @property
    def secrets(self) -> frozenset[str]:
        """References, ``${NAME}``, of the keys that are needed."""
        return frozenset(key for _, _, key in self.masks if key is not None)

    def tree(self, secrets: Mapping[str, str]) -> Tree:
        """Return the masks as a tree. ``secrets``: by reference; a missing one counts as empty (for a plan,
        which hashes nothing).
        """
        found = []
        for path, how, key in self.masks:
            secret = b"" if key is None else secrets.get(key, "").encode()
            found.append((path, Mask(how, secret)))  # type: ignore[arg-type]
        return tree_of(found)

    def unmasked(self) -> RecordRules:
        return RecordRules(
            self.topic, self.only, (), self.rewrites_ids, self.drops_unreadable, self.as_needed
        )


@dataclass
class RecordRewriter:
    """A Reencoder that applies rules. Use from one thread. ``unreadable``: source offsets of the last call
    that were left out because they could not be judged.
    """

    shape: RecordRules
    schemas: RecordSchemas
    secrets: Mapping[str, str] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tree = self.shape.tree(self.secrets)
        self._plain: Masking = json_masking(self._tree)
        self._maskings: dict[int, Masking] = {}
        self._decoders: dict[int, Callable[[bytes, int], Any]] = {}
        self._keyed: bool | None = None  # not requested yet
        self._known: set[int] = set()
        self._subjects = f"{self.shape.topic}-key", f"{self.shape.topic}-value"

    # ---- Reencoder

    def reencode(
        self,
        batches: Sequence[RecordBatch],
        position: int,
        largest_bytes: int,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> list[NewBatch]:
        """Re-encode as ``Reencoder`` does; may return fewer records. Raises CorruptBatch, RecordTooLarge,
        RulesNotApplicable; PeerError when a registry does not answer.
        """
        self.unreadable.clear()
        # A topic's first key schema may be registered later, but before the records that name it, which are
        # fetched by now.
        self._keyed = self._keyed or None
        parts = (list(self._shaped(kept_records(batch, position, left_out))) for batch in batches)
        return anew(parts, batches[0].codec, largest_bytes)

    def _shaped(self, raws: Sequence[RawRecord]) -> Iterator[RawRecord]:
        for raw in raws:
            try:
                rest = self.apply(raw.rest)
            except RulesNotApplicable as error:
                if not self.shape.drops_unreadable:
                    raise RulesNotApplicable(
                        f"offset {raw.offset}: {error.message}", hint=error.hint
                    ) from None
                self.unreadable.append(raw.offset)
                continue
            if rest is not None:
                yield raw if rest is raw.rest else raw._replace(rest=rest)

    # ---- one record

    def apply(self, rest: bytes) -> bytes | None:
        """Return key, value and headers after the rules; None: the record is left out. Raises
        RulesNotApplicable, PeerError.
        """
        found = fields_of(rest)
        if not all(self._holds(each, found) for each in self.shape.only):
            return None
        key, value = found.key, found.value
        if value is not None and self.shape.masks:
            value = self._masked(value)
        if self.shape.rewrites_ids:
            if key is not None and _is_framed(key) and self._has_keys():
                key = self._with_id(key, self._subjects[0])
            if value is not None and _is_framed(value):
                value = self._with_id(value, self._subjects[1])
        if key == found.key and value == found.value:
            return rest
        return rest_of(key, value, found.headers)

    def _holds(self, where: RecordCondition, found: Fields) -> bool:
        if where.header is not None:
            # Of several headers with one name the last counts, as in Kafka's own clients.
            named = [content for name, content in found.headers if name == where.header.encode()]
            header_row: list[Any] = [_text(named[-1]) if named else None]
            return where.accepts(header_row)
        if found.value is None:
            return True
        assert where.field is not None
        return where.accepts(_at(self._decoded(found.value), where.field.split(".")) or [None])

    def _has_keys(self) -> bool:
        """Return whether keys have schemas; requested once per call, because a numeric key may look like an
        id in every record.
        """
        if self._keyed is None:
            self._keyed = self.schemas.has_keys(self.shape.topic)
        return self._keyed

    def _masked(self, value: bytes) -> bytes:
        try:
            if not _is_magic(value):
                return self._plain(value, 0)
            schema_id = _id_of(value)
            masking = self._maskings.get(schema_id)
            if masking is None:
                masking = self._maskings[schema_id] = self._masking(schema_id)
            return masking(value, _BODY_AT)
        except Unmaskable as error:
            raise _unshapable(f"its value cannot be masked: {error}") from None

    def _masking(self, schema_id: int) -> Masking:
        source = self._source(schema_id)
        if source.schema_type == "AVRO":
            try:
                return avro_masking(source.parsed(), self._tree)
            except InvalidSchema as error:
                raise Unmaskable(error.message) from None
        if source.schema_type != "JSON":
            raise Unmaskable(f"its schema {schema_id} is {source.schema_type}")
        try:
            check = check_of(source)
        except InvalidSchema as error:
            raise Unmaskable(error.message) from None

        def mask(value: bytes, start: int) -> bytes:
            made = self._plain(value, start)
            if made != value:
                try:
                    check(made, start)
                except BrokenValue:  # its message may quote the value
                    raise Unmaskable(f"masked, it does not fit its schema {schema_id}") from None
            return made

        return mask

    def _decoded(self, value: bytes) -> Any:
        try:
            if not _is_magic(value):
                return orjson.loads(value)
            schema_id = _id_of(value)
            decode = self._decoders.get(schema_id)
            if decode is None:
                decode = self._decoders[schema_id] = decoder_of(self._source(schema_id))
            return decode(value, _BODY_AT)
        except orjson.JSONDecodeError as error:
            raise _unshapable(f"its value is not JSON: {error}") from None
        except (InvalidSchema, Unmaskable) as error:
            raise _unshapable(f"its value cannot be read: {error}") from None
        # its message may quote the value, and this error is stored in the target
        except BrokenValue as error:
            raise _unshapable(f"its value does not fit its schema, at byte {error.offset}") from None

    def _source(self, schema_id: int) -> SchemaSource:
        try:
            return self.schemas.source(schema_id)
        except CallerError as error:
            raise _unshapable(f"its schema {schema_id} cannot be had: {error.message}") from None

    def _with_id(self, content: bytes, subject: str) -> bytes:
        schema_id = _id_of(content)
        if self.shape.as_needed and not self._is_known(schema_id):
            return content
        try:
            there = self.schemas.target_id(schema_id, subject)
        except CallerError as error:
            raise _unshapable(f"schema {schema_id} has no id at the target: {error.message}") from None
        return content if there == schema_id else b"\0" + there.to_bytes(4, "big") + content[_BODY_AT:]

    def _is_known(self, schema_id: int) -> bool:
        """Return whether the source's registry has the id; else the content only looks framed."""
        if schema_id not in self._known:
            try:
                self.schemas.source(schema_id)
            except NotFound:
                return False  # requested again next time: it may be registered by then
            self._known.add(schema_id)
        return True


def stretches(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Group ascending offsets into ranges [first, end).

    >>> list(stretches([3, 4, 7]))
    [(3, 5), (7, 8)]
    """
    first = last = None
    for each in offsets:
        if first is None or last is None:
            first = each
        elif each != last + 1:
            yield first, last + 1
            first = each
        last = each
    if first is not None and last is not None:
        yield first, last + 1


def _unshapable(reason: str) -> RulesNotApplicable:
    return RulesNotApplicable(
        reason,
        hint="correct the rule or the schema, then `hub mirror resume`; `on_unreadable: drop` "
        "leaves such records out",
    )


def _is_magic(content: bytes) -> bool:
    return content[:1] == b"\0"


def _is_framed(content: bytes) -> bool:
    return _is_magic(content) and len(content) >= _BODY_AT


def _id_of(content: bytes) -> int:
    if len(content) < _BODY_AT:
        raise Unmaskable("it is cut off within its schema's id")
    return int.from_bytes(content[1:_BODY_AT], "big")


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "surrogateescape")


def _at(value: Any, path: Sequence[str]) -> list[Any]:
    """Return every value at a path, through arrays."""
    if isinstance(value, list):
        return [found for each in value for found in _at(each, path)]
    if not path:
        return [value]
    if not isinstance(value, dict) or path[0] not in value:
        return []
    return _at(value[path[0]], path[1:])
