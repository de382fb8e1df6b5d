"""[core] State of the registry, and ``apply``, which alone changes it: live and on replay.

Rules
  1. The first binding of an id is kept; a later record that binds it to another text is reported and ignored.
  2. The state stays consistent for any log: ``apply`` never raises for a fact.

Every query is answered from an index that ``apply`` maintains; none scans all schemas.
"""

from __future__ import annotations

import bisect
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import (
    ContextStored,
    Fact,
    IdsSpent,
    LevelSet,
    ModeSet,
    Noop,
    Reference,
    SchemaErased,
    SchemaStored,
    SubjectCleared,
    SubjectDeleted,
    UnreadableFact,
)
from hub.schema_registry.registry.rulebook import Rulebook

K = TypeVar("K")
V = TypeVar("V")

MOST_REPORTS = 1_000  # conflicts and unreadable records kept; further ones are only counted


@dataclass(slots=True)
class RegistryContext:
    """A context: its schemas by id. ``uses`` are (subject, version), in the log's order."""

    ids: dict[int, SchemaStored] = field(default_factory=dict)
    uses: dict[int, dict[tuple[str, int], None]] = field(default_factory=dict)
    by_identity: dict[bytes, dict[int, None]] = field(default_factory=dict)
    by_guid: dict[str, dict[int, None]] = field(default_factory=dict)
    highest_id: int = 0


Content = tuple[str, tuple[Reference, ...], str]


@dataclass(slots=True)
class SubjectIndex:
    """Index of one subject: all version numbers, ascending; those that are not deleted; and by content."""

    numbers: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    by_content: dict[Content, list[int]] = field(default_factory=dict)


@dataclass
class IndexedState:
    """The state: the content of ``_schemas`` in memory, with the indexes for queries."""

    subjects: dict[str, dict[int, SchemaStored]] = field(default_factory=dict)
    contexts: dict[str, RegistryContext] = field(
        default_factory=lambda: {names.DEFAULT_CONTEXT: RegistryContext()}
    )
    levels: dict[str | None, LevelSet] = field(default_factory=dict)
    modes: dict[str | None, ModeSet] = field(default_factory=dict)
    named_contexts: dict[str, ContextStored] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    unreadable: list[UnreadableFact] = field(default_factory=list)
    conflict_count: int = 0
    unreadable_count: int = 0
    rulebook: Rulebook = field(default_factory=Rulebook, compare=False)
    _index: dict[str, SubjectIndex] = field(default_factory=dict, repr=False)
    _referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = field(default_factory=dict, repr=False)
    # Keys of each version that differ from our spelling, and None if ours has a record too.
    _keys: dict[tuple[str, int], dict[bytes | None, None]] = field(default_factory=dict, repr=False)

    # ---- apply: live and on replay

    def apply(self, fact: Fact) -> None:
        """Apply one fact. Accepts any fact: the state stays consistent for any log."""
        match fact:
            case SchemaStored():
                self._store(fact)
            case SchemaErased():
                self._erase(fact)
            case SubjectDeleted():
                for version, stored in list(self.subjects.get(fact.subject, {}).items()):
                    if version <= fact.version and not stored.deleted:
                        self._put(replace(stored, deleted=True))
            case SubjectCleared():
                for stored in list(self.deleted_within(fact.subject)):
                    self._remove(stored)
            case LevelSet():
                self._set(self.levels, fact.subject, fact if fact.level is not None or fact.more else None)
            case ModeSet():
                self._set(self.modes, fact.subject, fact if fact.mode is not None else None)
            case ContextStored():
                self._set(self.named_contexts, fact.context, fact if fact.exists else None)
            case IdsSpent():
                context = self._context(fact.context)
                context.highest_id = max(context.highest_id, fact.schema_id)
            case UnreadableFact():
                self.unreadable_count += 1
                if len(self.unreadable) < MOST_REPORTS:
                    self.unreadable.append(fact)
            case Noop():
                pass

    def _store(self, fact: SchemaStored) -> None:
        context = self._context(names.context_of(fact.subject))
        context.highest_id = max(context.highest_id, fact.schema_id)
        self._record_key(fact.subject, fact.version, fact.key)
        bound = context.ids.get(fact.schema_id)
        place = (fact.subject, fact.version)
        uses = context.uses.get(fact.schema_id, {})
        alone = len(uses) == 1 and place in uses  # its own record, written again
        if bound is not None and not alone and self.contradicts(fact):
            self.conflict_count += 1
            if len(self.conflicts) < MOST_REPORTS:
                self.conflicts.append(
                    f"id {fact.schema_id} is {bound.subject} version {bound.version}; "
                    f"{fact.subject} version {fact.version} claims it too and is ignored"
                )
            return
        self._put(fact)

    def contradicts(self, fact: SchemaStored) -> bool:
        """Return True if the fact's id belongs to another schema in its context."""
        bound = self.space_of(names.context_of(fact.subject)).ids.get(fact.schema_id)
        return bound is not None and content_of(bound) != content_of(fact)

    def _put(self, fact: SchemaStored) -> None:
        """Index a version, replacing an existing one."""
        before = self.subjects.get(fact.subject, {}).get(fact.version)
        if before is not None:
            self._remove(before)
        context = self._context(names.context_of(fact.subject))
        place = (fact.subject, fact.version)
        self.subjects.setdefault(fact.subject, {})[fact.version] = fact
        context.uses.setdefault(fact.schema_id, {})[place] = None
        if fact.schema_id not in context.ids:
            self._bind(context, fact)
        index = self._index.setdefault(fact.subject, SubjectIndex())
        bisect.insort(index.numbers, fact.version)
        if not fact.deleted:
            bisect.insort(index.live, fact.version)
        bisect.insort(index.by_content.setdefault(content_of(fact), []), fact.version)
        for each in fact.references:
            to = (names.beside(fact.subject, each.subject), each.version)
            self._referrers.setdefault(to, {})[place] = None

    def _remove(self, stored: SchemaStored) -> None:
        """Remove a version from every index."""
        context = self._context(names.context_of(stored.subject))
        place = (stored.subject, stored.version)
        versions = self.subjects[stored.subject]
        del versions[stored.version]
        index = self._index[stored.subject]
        index.numbers.remove(stored.version)
        if not stored.deleted:
            index.live.remove(stored.version)
        alike = index.by_content[content_of(stored)]
        alike.remove(stored.version)
        if not alike:
            del index.by_content[content_of(stored)]
        if not versions:
            del self.subjects[stored.subject], self._index[stored.subject]
        for each in stored.references:
            to = (names.beside(stored.subject, each.subject), each.version)
            _without(self._referrers, to, place)
        uses = context.uses[stored.schema_id]
        uses.pop(place, None)
        bound = context.ids[stored.schema_id]
        if (bound.subject, bound.version) == place:
            self._unbind(context, bound)
            if uses:
                subject, version = next(iter(uses))
                self._bind(context, self.subjects[subject][version])
        if not uses:
            del context.uses[stored.schema_id]

    @staticmethod
    def _bind(context: RegistryContext, fact: SchemaStored) -> None:
        context.ids[fact.schema_id] = fact
        context.by_identity.setdefault(identity(fact), {})[fact.schema_id] = None
        if "guid" in fact.more:
            context.by_guid.setdefault(guid_of(fact), {})[fact.schema_id] = None

    @staticmethod
    def _unbind(context: RegistryContext, fact: SchemaStored) -> None:
        del context.ids[fact.schema_id]
        _without(context.by_identity, identity(fact), fact.schema_id)
        if "guid" in fact.more:
            _without(context.by_guid, guid_of(fact), fact.schema_id)

    def _erase(self, fact: SchemaErased) -> None:
        stored = self.subjects.get(fact.subject, {}).get(fact.version)
        if stored is not None:
            self._remove(stored)
        place = (fact.subject, fact.version)
        left = self._keys.get(place, {})
        left.pop(fact.key, None)
        if not left:
            self._keys.pop(place, None)

    def _record_key(self, subject: str, version: int, key: bytes | None) -> None:
        place = (subject, version)
        if key is not None and place not in self._keys:
            already = version in self.subjects.get(subject, {})
            self._keys[place] = {None: None} if already else {}
        if place in self._keys:
            self._keys[place][key] = None

    def _context(self, name: str) -> RegistryContext:
        registry_context = self.contexts.get(name)
        if registry_context is None:
            registry_context = self.contexts[name] = RegistryContext()
        return registry_context

    @staticmethod
    def _set(into: dict[Any, Any], key: str | None, value: Any) -> None:
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value

    # ---- lookups by name and number

    def live(self, subject: str) -> list[SchemaStored]:
        """Return the versions that are not deleted, oldest first."""
        index = self._index.get(subject)
        return [] if index is None else [self.subjects[subject][number] for number in index.live]

    def numbers(self, subject: str, *, deleted: bool = False) -> Sequence[int]:
        """Return the version numbers of a subject, ascending; empty when it does not exist."""
        index = self._index.get(subject)
        return () if index is None else index.numbers if deleted else index.live

    def at(self, subject: str, number: int, *, deleted: bool) -> SchemaStored | None:
        """Return a version by number; -1 is the latest, which is never a deleted one."""
        if number == -1:
            live = self.numbers(subject)
            number = live[-1] if live else 0
        stored_schema = self.subjects.get(subject, {}).get(number)
        return stored_schema if stored_schema is not None and (deleted or not stored_schema.deleted) else None

    def referenced_by(self, subject: str, version: int, *, deleted: bool = False) -> list[int]:
        """Return the ids of schemas that reference this one."""
        referrers = self._referrers.get((subject, version), ())
        every = [self.subjects[each][number] for each, number in referrers]
        return sorted({each.schema_id for each in every if deleted or not each.deleted})

    def deleted_within(self, place: str | None) -> Iterator[SchemaStored]:
        """Yield the soft-deleted versions of a subject, a context or the registry."""
        for subject, versions in self.subjects.items():
            if names.within(subject, place):
                yield from (each for each in versions.values() if each.deleted)

    def space_of(self, name: str) -> RegistryContext:
        """Return a context without creating it."""
        return self.contexts.get(name) or RegistryContext()

    def alike(self, stored: SchemaStored) -> list[SchemaStored]:
        """Return versions of the subject with the same text and references, deleted ones too, oldest
        first.
        """
        index = self._index.get(stored.subject, SubjectIndex())
        return [self.subjects[stored.subject][each] for each in index.by_content.get(content_of(stored), ())]

    def keys_of(self, stored: SchemaStored) -> Iterable[bytes | None]:
        """Return each key that the version was written under; None is the key in our spelling."""
        return self._keys.get((stored.subject, stored.version)) or {stored.key: None}


def _without(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    """Remove one value from an index, and its key with the last value."""
    values = index.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del index[key]


def identity(stored: SchemaStored) -> bytes:
    """Return the identity of a schema in 16 bytes: a hash of text, references, metadata and rules."""
    references = [[each.name, each.subject, each.version] for each in stored.references]
    parts = [stored.schema_type, stored.schema, references, stored.metadata, stored.rule_set]
    return hashlib.md5(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), usedforsecurity=False).digest()


def guid_of(stored: SchemaStored) -> str:
    """Return the GUID from its own registry; otherwise the one that every registry would compute."""
    guid = stored.more.get("guid")
    return guid.lower() if isinstance(guid, str) else str(uuid.UUID(bytes=identity(stored)))


def content_of(stored: SchemaStored) -> Content:
    """Return the content of a version without metadata and rules."""
    return (stored.schema_type, stored.references, stored.schema)
