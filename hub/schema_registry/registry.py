"""[core] The registry as a state machine: ``decide`` answers a command with facts, ``apply`` alone changes state.

Rules
  1. One schema (text, references, metadata, rules) has one id within a context, in whatever subjects it is registered.
  2. Ids count up from 1 in each context; an id once given is never given again, also after a hard delete.
     Only an import may name an id, and only one that is free or has this very schema.
  3. The first binding of an id holds; a later record that binds it to another text is reported and ignored.
  4. Versions of a subject count up and are never given again while the subject has any record.
  5. Soft-deleted versions do not bind compatibility; they can be read with ``deleted=true`` and by id.
  6. ``latest`` is the newest version that is not deleted.

Every question that a request asks is answered from an index that ``apply`` keeps; nothing scans all schemas.
"""

from __future__ import annotations

import bisect
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeGuard, TypeVar

import orjson

from hub.errors import CallerError
from hub.schema_registry import subject_names as names
from hub.schema_registry.compatibility import LEVELS, POLICIES, Incompatibility, Question
from hub.schema_registry.facts import (
    HIGHEST_ID,
    MODES,
    ContextStored,
    Fact,
    IdsSpent,
    LevelSet,
    ModeSet,
    Nothing,
    Reference,
    SchemaErased,
    SchemaStored,
    SubjectCleared,
    SubjectDeleted,
    Unreadable,
)
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.policy_checks import Violation
from hub.schema_registry.rulebook import NOBODY, Caller, Rulebook
from hub.schema_registry.rules import (
    InvalidMetadata,
    InvalidRules,
    check_metadata,
    check_rule_set,
    merged_metadata,
    merged_rules,
)
from hub.schema_registry.sources import Source

K = TypeVar("K")
V = TypeVar("V")

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
MOST_REPORTS = 1_000  # of conflicts, and of unreadable records, are kept; the others are counted
_DEEPEST_REFERENCE = 16
# So many of a subject's newest versions are asked whether another registry spelled the same schema otherwise.
_MOST_RESPELLED = 100

_LEVELS_ARE = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
_FLAGS = ("normalize", "validateFields", "validateNames", "validateRules")
_TEXTS = ("alias", "compatibilityGroup")
_METADATA = ("defaultMetadata", "overrideMetadata")
_RULES = ("defaultRuleSet", "overrideRuleSet")
SETTINGS = (*_TEXTS, *_FLAGS, "compatibilityPolicy", *_METADATA, *_RULES)


class Refused(CallerError):
    """A request that Confluent's registry answers with (status, error_code)."""

    def __init__(self, status: int, error_code: int, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, code=f"HUB-12{error_code % 100:02d}")
        self.status = status
        self.error_code = error_code


def subject_not_found(subject: str) -> Refused:
    return Refused(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> Refused:
    return Refused(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> Refused:
    return Refused(
        404, 40403, f"Schema {schema_id} not found" if schema_id is not None else "Schema not found"
    )


def invalid_schema(message: str, *, too_large: bool = False) -> Refused:
    return Refused(422, 42209 if too_large else 42201, message)


def not_permitted(message: str) -> Refused:
    return Refused(422, 42205, message)


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """``schema`` "" means the latest version's; ``schema_id`` only for an import; ``version`` 0 is the next one."""

    subject: str
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    normalize: bool = False
    schema_id: int | None = None
    version: int = 0
    caller: Caller = NOBODY


@dataclass(frozen=True, slots=True)
class DeleteVersion:
    subject: str
    version: int | str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    subject: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class SetLevel:
    """``changes``: settings by Confluent's names; None takes one back. ``changes`` None takes all of them back."""

    subject: str | None
    changes: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SetMode:
    """``recursive``: modes of the subjects below are taken back, so that this one holds for them too."""

    subject: str | None
    mode: str | None
    force: bool = False
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class DeleteContext:
    context: str


Command = RegisterSchema | DeleteVersion | DeleteSubject | SetLevel | SetMode | DeleteContext


class Decision(NamedTuple):
    """What to append ([] when nothing changes) and what to answer once that is in the log."""

    facts: Sequence[Fact]
    answer: Any


@dataclass(slots=True)
class Context:
    """Schemas by id. ``uses`` are (subject, version), in the log's order."""

    ids: dict[int, SchemaStored] = field(default_factory=dict)
    uses: dict[int, dict[tuple[str, int], None]] = field(default_factory=dict)
    by_identity: dict[bytes, dict[int, None]] = field(default_factory=dict)
    by_guid: dict[str, dict[int, None]] = field(default_factory=dict)
    highest_id: int = 0


_Content = tuple[str, tuple[Reference, ...], str]


@dataclass(slots=True)
class _Index:
    """Of one subject: the numbers of its versions, ascending; those that are not deleted; and by content."""

    numbers: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    by_content: dict[_Content, list[int]] = field(default_factory=dict)


@dataclass
class Registry:
    """The state: everything that ``_schemas`` says, in memory."""

    subjects: dict[str, dict[int, SchemaStored]] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=lambda: {names.DEFAULT_CONTEXT: Context()})
    levels: dict[str | None, LevelSet] = field(default_factory=dict)
    modes: dict[str | None, ModeSet] = field(default_factory=dict)
    named_contexts: dict[str, ContextStored] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    conflict_count: int = 0
    unreadable_count: int = 0
    rulebook: Rulebook = field(default_factory=Rulebook, compare=False)
    _index: dict[str, _Index] = field(default_factory=dict, repr=False)
    _referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = field(default_factory=dict, repr=False)
    # Keys of a place that are not spelled as we spell them, and whether ours has a record too.
    _keys: dict[tuple[str, int], dict[bytes | None, None]] = field(default_factory=dict, repr=False)

    @property
    def ids(self) -> dict[int, SchemaStored]:
        """Of the default context."""
        return self.contexts[names.DEFAULT_CONTEXT].ids

    @property
    def highest_id(self) -> int:
        """Of the default context."""
        return self.contexts[names.DEFAULT_CONTEXT].highest_id

    # ---- apply: live and on replay

    def apply(self, fact: Fact) -> None:
        """Take one fact in. Total: whatever the log says, the state stays consistent."""
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
                for stored in list(self._deleted_within(fact.subject)):
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
            case Unreadable():
                self.unreadable_count += 1
                if len(self.unreadable) < MOST_REPORTS:
                    self.unreadable.append(fact)
            case Nothing():
                pass

    def _store(self, fact: SchemaStored) -> None:
        context = self._context(names.context_of(fact.subject))
        context.highest_id = max(context.highest_id, fact.schema_id)
        self._keys_seen(fact.subject, fact.version, fact.key)
        bound = context.ids.get(fact.schema_id)
        place = (fact.subject, fact.version)
        uses = context.uses.get(fact.schema_id, {})
        alone = len(uses) == 1 and place in uses  # its own record, written anew
        if bound is not None and not alone and _content(bound) != _content(fact):
            self.conflict_count += 1
            if len(self.conflicts) < MOST_REPORTS:
                self.conflicts.append(
                    f"id {fact.schema_id} is {bound.subject} version {bound.version}; "
                    f"{fact.subject} version {fact.version} claims it too and is ignored"
                )
            return
        self._put(fact)

    def _put(self, fact: SchemaStored) -> None:
        """Index a version, in the place of what was there."""
        before = self.subjects.get(fact.subject, {}).get(fact.version)
        if before is not None:
            self._remove(before)
        context = self._context(names.context_of(fact.subject))
        place = (fact.subject, fact.version)
        self.subjects.setdefault(fact.subject, {})[fact.version] = fact
        context.uses.setdefault(fact.schema_id, {})[place] = None
        if fact.schema_id not in context.ids:
            self._bind(context, fact)
        index = self._index.setdefault(fact.subject, _Index())
        bisect.insort(index.numbers, fact.version)
        if not fact.deleted:
            bisect.insort(index.live, fact.version)
        bisect.insort(index.by_content.setdefault(_content(fact), []), fact.version)
        for each in fact.references:
            to = (names.beside(fact.subject, each.subject), each.version)
            self._referrers.setdefault(to, {})[place] = None

    def _remove(self, stored: SchemaStored) -> None:
        """Take a version out of every index."""
        context = self._context(names.context_of(stored.subject))
        place = (stored.subject, stored.version)
        versions = self.subjects[stored.subject]
        del versions[stored.version]
        index = self._index[stored.subject]
        index.numbers.remove(stored.version)
        if not stored.deleted:
            index.live.remove(stored.version)
        alike = index.by_content[_content(stored)]
        alike.remove(stored.version)
        if not alike:
            del index.by_content[_content(stored)]
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
    def _bind(context: Context, fact: SchemaStored) -> None:
        context.ids[fact.schema_id] = fact
        context.by_identity.setdefault(identity(fact), {})[fact.schema_id] = None
        if "guid" in fact.more:
            context.by_guid.setdefault(guid_of(fact), {})[fact.schema_id] = None

    @staticmethod
    def _unbind(context: Context, fact: SchemaStored) -> None:
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

    def _keys_seen(self, subject: str, version: int, key: bytes | None) -> None:
        place = (subject, version)
        if key is not None and place not in self._keys:
            already = version in self.subjects.get(subject, {})
            self._keys[place] = {None: None} if already else {}
        if place in self._keys:
            self._keys[place][key] = None

    def _context(self, name: str) -> Context:
        found = self.contexts.get(name)
        if found is None:
            found = self.contexts[name] = Context()
        return found

    @staticmethod
    def _set(into: dict[Any, Any], key: str | None, value: Any) -> None:
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value

    # ---- decide: pure, on a state that is caught up

    def decide(self, command: Command) -> Decision:
        """The facts that carry a command out and its answer. Raises Refused."""
        try:
            return self._decide(command)
        except InvalidRules as error:
            raise Refused(422, 42210, f"Invalid rule set: {error.message}") from None

    def _decide(self, command: Command) -> Decision:
        match command:
            case RegisterSchema():
                return self._register(command)
            case DeleteVersion():
                return self._delete_version(command)
            case DeleteSubject():
                return self._delete_subject(command)
            case SetLevel():
                return self._set_level(command)
            case SetMode():
                return self._set_mode(command)
            case DeleteContext():
                return self._delete_context(command)

    def _register(self, command: RegisterSchema) -> Decision:
        subject = valid_subject(command.subject)
        if command.rule_set is not None:
            check_rule_set(command.rule_set)
        asked = command.schema_id
        if not self._has_defaults(subject) and command.schema and command.version in (0, -1):
            known = self.lookup(command)
            if known is not None and asked in (None, known.schema_id):
                return Decision([], known)
        mode = self.mode_of(subject)
        self._writable(subject)
        importing = mode in ("IMPORT", "FORWARD")
        if asked is not None and not importing:
            raise not_permitted(f"{_in_context(subject)} is not in import mode")
        if asked is None and mode != "READWRITE":
            raise not_permitted(f"{_in_context(subject)} is not in read-write mode")

        complete = command if importing else self._completed(command)
        new = self._new(complete)
        there = self.subjects.get(subject, {}).get(command.version)
        if there is not None and there == replace(new, version=command.version, schema_id=asked or 0):
            return Decision([], there)  # imported before
        known = self._known(new, asked)
        if known is not None and command.version in (0, -1, known.version):
            return Decision([], known)
        if not importing:
            self._compatible(complete)
            self._within_rules(complete)
        stored = replace(new, version=self._version_for(command, importing))
        stored = replace(stored, schema_id=self._id_for(stored, asked))
        self.source_of(stored).is_spelled_so()
        return Decision([*self._beforehand(stored), stored], stored)

    def _completed(self, command: RegisterSchema) -> RegisterSchema:
        """With what the request leaves to the latest version, and what the settings put in or over."""
        live = self.live(command.subject)
        latest = live[-1] if live else None
        if not command.schema.strip():
            if latest is None:
                raise invalid_schema("Empty schema")
            command = replace(
                command,
                schema=latest.schema,
                schema_type=latest.schema_type,
                references=latest.references,
            )
        metadata, rules = command.metadata, command.rule_set
        if metadata is None and latest is not None:
            metadata = latest.metadata
        if rules is None and latest is not None:
            rules = latest.rule_set
        over = {name: self.setting(command.subject, name) for name in (*_METADATA, *_RULES)}
        metadata = merged_metadata(over["defaultMetadata"], metadata, over["overrideMetadata"])
        rules = merged_rules(over["defaultRuleSet"], rules, over["overrideRuleSet"])
        return replace(command, metadata=metadata, rule_set=rules)

    def _new(self, command: RegisterSchema) -> SchemaStored:
        """What is to be stored, without version and id. Raises Refused 42201, 42209."""
        references = self.resolved(command.subject, command.references)
        text = self.canonical(command)
        return SchemaStored(
            names.normal(command.subject),
            0,
            0,
            text,
            command.schema_type,
            references,
            False,
            command.metadata,
            command.rule_set,
        )

    def _known(self, new: SchemaStored, asked: int | None) -> SchemaStored | None:
        """The live version of the subject that is this schema already."""
        found = self.find(
            new.subject,
            new.schema,
            new.schema_type,
            new.references,
            metadata=new.metadata,
            rule_set=new.rule_set,
        )
        return found if found is not None and asked in (None, found.schema_id) else None

    def _compatible(self, command: RegisterSchema) -> None:
        reasons = self._answered(self.question(command))
        if reasons:
            level = self.level_of(command.subject)
            raise Refused(
                409,
                40901,
                f"Schema being registered is incompatible with an earlier schema for subject "
                f'"{command.subject}", details: [{"; ".join(map(str, reasons))}], compatibility: {level}',
            )

    def _within_rules(self, command: RegisterSchema) -> None:
        broken = [each for each in self.violations(command) if each.severity == "block"]
        if broken:
            raise Refused(
                422,
                42201,
                f'Schema being registered breaks the rules that hold for subject "{command.subject}", details: '
                f"[{'; '.join(map(str, broken))}]",
            )

    def violations(self, command: RegisterSchema) -> list[Violation]:
        """The rules of the tree that registering this would break, those that only warn too. Raises Refused 42201."""
        subject = names.normal(command.subject)
        try:
            is_new = self.lookup(command) is None
            return self.rulebook.violations(
                subject, self.source(command), command.metadata, command.caller, is_new=is_new
            )
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def _version_for(self, command: RegisterSchema, importing: bool) -> int:
        index = self._index.get(names.normal(command.subject))
        following = index.numbers[-1] + 1 if index is not None else 1
        if command.version > 0 and importing:
            return command.version
        if command.version > 0 and command.version != following:
            raise invalid_schema("Version is not one more than previous version")
        if following > HIGHEST_ID:
            raise Refused(422, 42202, f"subject '{command.subject}' has no version number left")
        return following

    def _id_for(self, stored: SchemaStored, asked: int | None) -> int:
        context = self.contexts.get(names.context_of(stored.subject), Context())
        if asked is not None:
            bound = context.ids.get(asked)
            if bound is not None and identity(bound) != identity(stored):
                raise not_permitted(
                    f"Overwrite new schema with id {asked} in context "
                    f"{names.context_of(stored.subject)} is not permitted."
                )
            return asked
        same = context.by_identity.get(identity(stored))
        if same:
            return next(iter(same))
        if context.highest_id >= HIGHEST_ID:
            raise Refused(500, 50001, f"no schema id is left after {HIGHEST_ID}")
        return context.highest_id + 1

    def _beforehand(self, stored: SchemaStored) -> Iterator[Fact]:
        """Facts that go with a registration: its context; deleted versions of the same id, which it replaces; the
        version that an import overwrites."""
        context = names.context_of(stored.subject)
        if context != names.DEFAULT_CONTEXT and context not in self.named_contexts:
            yield ContextStored(context)
        index = self._index.get(stored.subject, _Index())
        for number in index.by_content.get(_content(stored), ()):
            each = self.subjects[stored.subject][number]
            replaced = each.deleted and each.schema_id == stored.schema_id and number < stored.version
            if replaced and not self.referenced_by(stored.subject, number):
                yield from self._erasure(each)
        over = self.subjects.get(stored.subject, {}).get(stored.version)
        if over is not None and over.schema_id == self._context_of(context).highest_id:
            yield IdsSpent(context, over.schema_id)

    def _delete_version(self, command: DeleteVersion) -> Decision:
        subject = names.normal(command.subject)
        number = version_number(command.version)
        stored = self._at(subject, number, deleted=True)
        if stored is None and subject not in self.subjects:
            raise subject_not_found(subject)
        if stored is None:
            raise version_not_found(number)
        if stored.deleted and not command.permanent:
            raise Refused(
                404,
                40406,
                f"Subject '{stored.subject}' Version {stored.version} was soft deleted. "
                "Set permanent=true to delete permanently",
            )
        self._writable(subject)
        self._unreferenced(stored)
        if not command.permanent:
            return Decision([replace(stored, deleted=True)], stored.version)
        if not stored.deleted:
            raise Refused(
                404,
                40407,
                f"Subject '{stored.subject}' Version {stored.version} was not deleted first before being "
                "permanently deleted",
            )
        facts = list(self._erasures([stored]))
        if len(self.subjects[subject]) == 1:
            facts += self._settings_of_gone(subject)
        return Decision(facts, stored.version)

    def _delete_subject(self, command: DeleteSubject) -> Decision:
        subject = names.normal(command.subject)
        every = self.subjects.get(subject)
        if not every:
            raise subject_not_found(subject)
        live = self.live(subject)
        if not command.permanent and not live:
            raise Refused(
                404,
                40404,
                f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
            )
        self._writable(subject)
        stored = [every[number] for number in self._index[subject].numbers]
        for each in stored if command.permanent else live:
            self._unreferenced(each)
        if not command.permanent:
            numbers = [each.version for each in live]
            return Decision([SubjectDeleted(subject, numbers[-1])], numbers)
        if live:
            raise Refused(
                404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
            )
        facts = [*self._erasures(stored), *self._settings_of_gone(subject)]
        return Decision(facts, [each.version for each in stored])

    def _erasures(self, stored: Iterable[SchemaStored]) -> Iterator[Fact]:
        """Hard deletes; with them the highest id where it would be forgotten otherwise."""
        spent: dict[str, int] = {}
        for each in stored:
            yield from self._erasure(each)
            context = names.context_of(each.subject)
            if each.schema_id == self._context_of(context).highest_id:
                spent[context] = each.schema_id
        for context, schema_id in spent.items():
            yield IdsSpent(context, schema_id)

    def _erasure(self, stored: SchemaStored) -> Iterator[SchemaErased]:
        """A tombstone for each key that the version was written under."""
        for key in self._keys.get((stored.subject, stored.version)) or {stored.key: None}:
            yield SchemaErased(stored.subject, stored.version, key)

    def _settings_of_gone(self, subject: str) -> Iterator[Fact]:
        """The settings of a subject go with its hard delete."""
        if subject in self.modes:
            yield ModeSet(subject, None, self.modes[subject].key)
        if subject in self.levels:
            yield LevelSet(subject, None, {}, self.levels[subject].key)

    def _set_level(self, command: SetLevel) -> Decision:
        place = _valid_place(command.subject)
        before = self.levels.get(place)
        if command.changes is None:
            if before is None and place is not None:
                raise subject_not_found(str(command.subject))
            self._writable(place)
            was = self.settings(place) if place is None else settings_json(before)
            facts = [] if before is None else [LevelSet(place, None, {}, before.key)]
            return Decision(facts, was)
        changes = checked_settings(command.changes)
        self._writable(place)
        level = before.level if before is not None else None
        more = dict(before.more) if before is not None else {}
        if "compatibilityLevel" in changes:
            level = changes.pop("compatibilityLevel")
            loose = (
                self.rulebook.refused_level(place, level)
                if level is not None and _is_subject(place)
                else None
            )
            if loose is not None:
                raise Refused(422, 42203, str(loose))
        for name, value in changes.items():
            self._set(more, name, value)
        after = LevelSet(place, level, more, before.key if before is not None else None)
        answer = settings_json(after, "compatibility")
        unchanged = before is None and level is None and not more
        return Decision([] if unchanged else [after], answer)

    def _set_mode(self, command: SetMode) -> Decision:
        place = _valid_place(command.subject)
        before = self.modes.get(place)
        below: list[Fact] = [
            ModeSet(each, None, found.key)
            for each, found in self.modes.items()
            if command.recursive and each is not None and each != place and names.within(each, place)
        ]
        own_key = before.key if before is not None else None
        if command.mode is None:
            if before is None and place is not None:
                raise subject_not_found(str(command.subject))
            was = self.mode_of(place) if before is None else before.mode
            return Decision([*([] if before is None else [ModeSet(place, None, own_key)]), *below], was)
        if command.mode not in MODES:
            raise Refused(422, 42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        gone: list[Fact] = []
        if command.mode == "IMPORT" and self.mode_of(place) != "IMPORT" and not command.force:
            if any(self._index[each].live for each in self.subjects if names.within(each, place)):
                raise not_permitted("Cannot import since found existing subjects")
            # What is only soft-deleted would be in the way of the ids and versions that come.
            deleted = list(self._deleted_within(place))
            for each in deleted:
                self._unreferenced(each)
            gone = list(self._erasures(deleted))
        return Decision([*gone, ModeSet(place, command.mode, own_key), *below], command.mode)

    def _delete_context(self, command: DeleteContext) -> Decision:
        context = command.context
        if any(names.context_of(each) == context for each in self.subjects):
            raise Refused(422, 42211, f"The specified context '{context}' is not empty.")
        found = self.named_contexts.get(context)
        return Decision([] if found is None else [replace(found, exists=False)], None)

    def _writable(self, subject: str | None) -> None:
        if self.mode_of(subject) in ("READONLY", "READONLY_OVERRIDE"):
            raise not_permitted(f"{_in_context(subject)} is in read-only mode")

    def _unreferenced(self, stored: SchemaStored) -> None:
        if self.referenced_by(stored.subject, stored.version):
            raise Refused(
                422,
                42206,
                f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={stored.subject},"
                f"version={stored.version}}}.",
            )

    def _deleted_within(self, place: str | None) -> Iterator[SchemaStored]:
        for subject, versions in self.subjects.items():
            if names.within(subject, place):
                yield from (each for each in versions.values() if each.deleted)

    # ---- questions: schemas

    def source(self, command: RegisterSchema) -> Source:
        """The command's schema with all that it references. Raises Refused 42201."""
        return self._source_of(command.subject, command.schema, command.schema_type, command.references)

    def source_of(self, stored: SchemaStored) -> Source:
        """A stored schema with all that it references. Raises Refused 42201."""
        return self._source_of(stored.subject, stored.schema, stored.schema_type, stored.references)

    def _source_of(
        self, subject: str, text: str, schema_type: str, references: Iterable[Reference]
    ) -> Source:
        """Each version is followed once, by however many ways it is reached: the ways double with every level."""
        known: dict[tuple[str, int], tuple[Source, int]] = {}

        def followed(stored: SchemaStored, depth: int) -> tuple[Source, int]:
            """A referenced version, and how many levels it has."""
            place = (stored.subject, stored.version)
            found = known.get(place)
            if depth + (found[1] if found is not None else 1) > _DEEPEST_REFERENCE:
                raise invalid_schema(f"Invalid schema: references nest deeper than {_DEEPEST_REFERENCE}")
            if found is None:
                named, below = around(stored.subject, stored.references, depth + 1)
                found = known[place] = (Source.of(stored.schema_type, stored.schema, named), below + 1)
            return found

        def around(
            subject: str, references: Iterable[Reference], depth: int
        ) -> tuple[tuple[tuple[str, Source], ...], int]:
            """The sources of references by name, and how many levels are below."""
            named, levels = [], 0
            for each in references:
                source, below = followed(self._referenced(subject, each), depth)
                named.append((each.name, source))
                levels = max(levels, below)
            return tuple(named), levels

        return Source.of(schema_type, text, around(subject, references, 0)[0])

    def _referenced(self, subject: str, reference: Reference) -> SchemaStored:
        found = self._at(names.beside(subject, reference.subject), reference.version, deleted=True)
        if found is None:
            raise invalid_schema(
                f'Invalid schema: no schema for reference "{reference.name}" '
                f"({reference.subject} version {reference.version})"
            )
        return found

    def resolved(self, subject: str, references: Iterable[Reference]) -> tuple[Reference, ...]:
        """References to ``-1`` as what is the latest now. Raises Refused 42201."""
        return tuple(
            replace(each, version=self._referenced(subject, each).version) if each.version < 1 else each
            for each in references
        )

    def canonical(self, command: RegisterSchema) -> str:
        """The text of the command's schema as it would be stored. Raises Refused 42201, 42209."""
        source = self.source(command)
        try:
            return source.canonical(normalize=self.normalizes(command))
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def normalizes(self, command: RegisterSchema) -> bool:
        return command.normalize or self.setting(command.subject, "normalize") is True

    def live(self, subject: str) -> list[SchemaStored]:
        """The versions that are not deleted, oldest first."""
        index = self._index.get(subject)
        return [] if index is None else [self.subjects[subject][number] for number in index.live]

    def numbers(self, subject: str, *, deleted: bool = False) -> Sequence[int]:
        """The version numbers of a subject, ascending; [] when there is none."""
        index = self._index.get(subject)
        return () if index is None else index.numbers if deleted else index.live

    def _at(self, subject: str, number: int, *, deleted: bool) -> SchemaStored | None:
        """A version by number; -1 is the latest, which is never a deleted one."""
        if number == -1:
            live = self.numbers(subject)
            number = live[-1] if live else 0
        found = self.subjects.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SchemaStored:
        """One version; "latest" and -1 are the newest live one. Raises Refused 40401, 40402, 42202."""
        number = version_number(version)
        subject = names.normal(subject)
        found = self._at(subject, number, deleted=deleted)
        if found is not None:
            return found
        if not self.numbers(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise version_not_found(number)

    def find(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: tuple[Reference, ...],
        *,
        metadata: Mapping[str, Any] | None = None,
        rule_set: Mapping[str, Any] | None = None,
        deleted: bool = False,
    ) -> SchemaStored | None:
        """The newest version of a subject with this canonical text; metadata and rules count where they are given."""
        index = self._index.get(subject)
        if index is None:
            return None
        versions = self.subjects[subject]
        numbers: Iterable[int] = index.by_content.get((schema_type, references, text), ())
        if not numbers:
            numbers = self._respelled(index, versions, text, schema_type, references)
        for number in sorted(numbers, reverse=True):
            each = versions[number]
            meant = metadata in (None, each.metadata) and rule_set in (None, each.rule_set)
            if meant and (deleted or not each.deleted):
                return each
        return None

    def _respelled(
        self,
        index: _Index,
        versions: Mapping[int, SchemaStored],
        text: str,
        schema_type: str,
        references: tuple[Reference, ...],
    ) -> list[int]:
        """A topic taken over may hold a text that another registry spelled. Each text is asked once."""
        return [
            number
            for number in index.numbers[-_MOST_RESPELLED:]
            if (versions[number].schema_type, versions[number].references) == (schema_type, references)
            and self._spelled(versions[number]) == text
        ]

    def _spelled(self, stored: SchemaStored) -> str:
        try:
            return self.source_of(stored).spelled()
        except Refused:
            return stored.schema

    def other_spellings(self, command: RegisterSchema) -> list[Source]:
        """What a lookup of the command is going to spell in its own way, so that it can be done before."""
        index = self._index.get(names.normal(command.subject))
        references = self.resolved(command.subject, command.references)
        if index is None or (command.schema_type, references, self.canonical(command)) in index.by_content:
            return []
        versions = self.subjects[names.normal(command.subject)]
        return [self.source_of(versions[number]) for number in index.numbers[-_MOST_RESPELLED:]]

    def lookup(self, command: RegisterSchema, *, deleted: bool = False) -> SchemaStored | None:
        """The version of the subject that is this schema. Raises Refused 42201."""
        if not command.schema.strip():
            return None
        subject = names.normal(command.subject)
        references = self.resolved(command.subject, command.references)
        text = self.canonical(command)
        return self.find(
            subject,
            text,
            command.schema_type,
            references,
            metadata=command.metadata,
            rule_set=command.rule_set,
            deleted=deleted,
        )

    def with_metadata(
        self, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
    ) -> SchemaStored:
        """The newest version whose metadata has these properties. Raises Refused 40401, 40403."""
        numbers = self.numbers(subject, deleted=deleted)
        if not numbers:
            raise subject_not_found(subject)
        for number in reversed(numbers):
            each = self.subjects[subject][number]
            properties = (each.metadata or {}).get("properties") or {}
            if wanted.items() <= properties.items():
                return each
        raise schema_not_found()

    # ---- questions: ids

    def by_id(self, schema_id: int, subject: str | None = None) -> SchemaStored:
        """The schema of an id; ``subject`` tells the context, and which use is meant. Raises Refused 40403."""
        context, use = self._meant(schema_id, subject)
        stored = use or self._context_of(context).ids.get(schema_id)
        if stored is None:
            raise schema_not_found(schema_id)
        return stored

    def uses_of(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[SchemaStored]:
        """Every (subject, version) with this id, in the context that is meant by ``subject``."""
        context, _ = self._meant(schema_id, subject)
        places = self._context_of(context).uses.get(schema_id, ())
        every = [self.subjects[each][number] for each, number in places]
        return [each for each in every if deleted or not each.deleted]

    def _meant(self, schema_id: int, subject: str | None) -> tuple[str, SchemaStored | None]:
        """(context, the subject's newest version with this id). A subject without a context is looked for in the
        default one, then in the others: a consumer does not know where its producer registered."""
        context, name = names.split(subject or "")
        if not name:
            return context, None
        others = sorted(self.contexts) if context == names.DEFAULT_CONTEXT else []
        for each in dict.fromkeys([context, *others]):
            bound = self._context_of(each).ids.get(schema_id)
            index = self._index.get(names.joined(each, name))
            if bound is None or index is None:
                continue
            versions = self.subjects[names.joined(each, name)]
            for number in reversed(index.by_content.get(_content(bound), ())):
                if versions[number].schema_id == schema_id:
                    return each, versions[number]
        return context, None

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """(context, id) of the schemas with this GUID. Raises Refused 40403."""
        try:
            written = uuid.UUID(guid)
        except ValueError:
            raise schema_not_found(guid) from None
        found = [
            (context, schema_id)
            for context, space in sorted(self.contexts.items())
            for schema_id in sorted(
                {**space.by_identity.get(written.bytes, {}), **space.by_guid.get(str(written), {})}
            )
            if guid_of(space.ids[schema_id]) == str(written)
        ]
        if not found:
            raise schema_not_found(guid)
        return found

    def max_id(self, subject: str | None = None) -> int:
        return self._context_of(names.context_of(subject)).highest_id

    def referenced_by(self, subject: str, version: int, *, deleted: bool = False) -> list[int]:
        """Ids of schemas that reference this one."""
        referrers = self._referrers.get((subject, version), ())
        every = [self.subjects[each][number] for each, number in referrers]
        return sorted({each.schema_id for each in every if deleted or not each.deleted})

    def context_names(self) -> list[str]:
        """The default context, then the others in order."""
        used = {name for name, space in self.contexts.items() if space.uses}
        others = (used | set(self.named_contexts)) - {names.DEFAULT_CONTEXT}
        return [names.DEFAULT_CONTEXT, *sorted(others)]

    def _context_of(self, name: str) -> Context:
        """A context as it is, without making it."""
        return self.contexts.get(name) or Context()

    # ---- questions: settings

    def setting(self, subject: str | None, name: str) -> Any:
        """A setting as it holds for a subject: its own, its context's, or the one above; None when nowhere set."""
        for place in names.places(subject):
            found = self.levels.get(place)
            if found is not None:
                value = found.level if name == "compatibilityLevel" else found.more.get(name)
                if value is not None:
                    return value
        return None

    def settings(self, subject: str | None) -> dict[str, Any]:
        """All settings as they hold for a subject, by Confluent's names; an alias is its own only."""
        own = self.levels.get(names.place(subject))
        alias = own.more.get("alias") if own is not None else None
        found = {name: self.setting(subject, name) for name in SETTINGS if name != "alias"}
        every = {"compatibilityLevel": self.level_of(subject), "alias": alias, **found}
        return {name: each for name, each in every.items() if each is not None}

    def _has_defaults(self, subject: str) -> bool:
        return any(self.setting(subject, name) is not None for name in (*_METADATA, *_RULES))

    def target(self, subject: str) -> str:
        """The subject that an alias stands for; the subject itself when it is none."""
        own = self.levels.get(names.place(subject))
        alias = own.more.get("alias") if own is not None else None
        return names.beside(subject, alias) if isinstance(alias, str) and alias else subject

    def level_of(self, subject: str | None) -> str:
        """The effective compatibility level: the subject's own, within what the rules of the tree allow; else theirs;
        else its context's, the global one, BACKWARD."""
        set_above = self.setting(subject, "compatibilityLevel") or DEFAULT_LEVEL
        place = names.place(subject)
        if not _is_subject(place):
            return set_above
        own = self.levels.get(place)
        return self.rulebook.level(place, own.level if own is not None else None, set_above)

    def mode_of(self, subject: str | None) -> str:
        """The effective mode. READONLY_OVERRIDE above a subject goes before the subject's own."""
        modes = [found.mode for each in names.places(subject) if (found := self.modes.get(each)) is not None]
        if "READONLY_OVERRIDE" in modes:
            return "READONLY_OVERRIDE"
        return modes[0] or DEFAULT_MODE if modes else DEFAULT_MODE

    # ---- questions: compatibility

    def question(self, command: RegisterSchema, version: int | str | None = None) -> Question:
        """May the schema follow one version of its subject, or (version None) those that the level looks at?

        Raises Refused 40402, 42201, 42202."""
        subject = names.normal(command.subject)
        level = self.level_of(subject)
        versions = self.live(subject)
        if version is not None:
            number = version_number(version)
            one = self._at(subject, number, deleted=False)
            if one is None and number != -1:
                raise version_not_found(number)
            versions = [one] if one is not None else []
        latest = versions[-1] if versions else None
        reserved = reserved_before = frozenset[str]()
        if self.setting(subject, "validateFields") is True:
            reserved = _reserved(command.metadata)
            reserved_before = _reserved(latest.metadata) if latest is not None else reserved_before
        group = self.setting(subject, "compatibilityGroup")
        if group is not None:
            mine = _property(command.metadata, group)
            versions = [each for each in versions if _property(each.metadata, group) == mine]
        if level == "NONE":
            versions = []
        elif not level.endswith("_TRANSITIVE"):
            versions = versions[-1:]
        return Question(
            self.source(command),
            tuple((each.version, self.source_of(each)) for each in versions),
            level,
            str(self.setting(subject, "compatibilityPolicy") or "").upper() == "LENIENT",
            reserved,
            reserved_before,
        )

    def incompatibilities(
        self, subject: str, command: RegisterSchema, version: int | str | None
    ) -> list[Incompatibility]:
        """Why a schema may not follow one version of a subject, or (version None) those its level looks at."""
        return list(self._answered(self.question(replace(command, subject=subject), version)))

    @staticmethod
    def _answered(question: Question) -> tuple[Incompatibility, ...]:
        try:
            return question.answer()
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def prepared(self, command: RegisterSchema) -> Question | None:
        """What deciding on a registration will ask, so that it can be answered before and elsewhere."""
        subject = names.normal(command.subject)
        if self.mode_of(subject) != "READWRITE" or not command.schema.strip():
            return None
        return self.question(self._completed(command))


def _without(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    """Take one value out of an index; the last one takes its key along."""
    values = index.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del index[key]


def identity(stored: SchemaStored) -> bytes:
    """What makes a schema one of its own within a context, in 16 bytes: text, references, metadata and rules."""
    references = [[each.name, each.subject, each.version] for each in stored.references]
    parts = [stored.schema_type, stored.schema, references, stored.metadata, stored.rule_set]
    return hashlib.md5(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), usedforsecurity=False).digest()


def guid_of(stored: SchemaStored) -> str:
    """The GUID that its own registry gave it, otherwise one that every registry would compute."""
    given = stored.more.get("guid")
    return given.lower() if isinstance(given, str) else str(uuid.UUID(bytes=identity(stored)))


def version_number(version: int | str) -> int:
    """The number in a path: "latest" is -1. Raises Refused 42202."""
    if version == "latest":
        return -1
    try:
        number = int(version) if str(version).isascii() else 0
    except ValueError:
        number = 0
    if (number < 1 and number != -1) or number > HIGHEST_ID:
        raise Refused(
            422,
            42202,
            f"The specified version '{str(version)[:80]}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"',
        )
    return number


def valid_subject(subject: str) -> str:
    """In its one spelling. Raises Refused 42208."""
    try:
        names.check(subject)
    except names.InvalidSubject as error:
        raise Refused(422, 42208, error.message) from None
    return names.normal(subject)


def _valid_place(subject: str | None) -> str | None:
    if subject is not None and subject != names.ABOVE_CONTEXTS:
        try:
            names.check(subject, may_be_context=True)
        except names.InvalidSubject as error:
            raise Refused(422, 42208, error.message) from None
    return names.place(subject)


def refused_schema(error: InvalidSchema) -> Refused:
    """42209 for a schema that is too large, 42201 for any other."""
    message = (
        error.message if error.message.startswith("Invalid schema") else f"Invalid schema: {error.message}"
    )
    return invalid_schema(message, too_large=error.code == "HUB-1209")


def _is_subject(place: str | None) -> TypeGuard[str]:
    """Not a context, and not the global place."""
    return place is not None and bool(names.split(place)[1])


def settings_json(found: LevelSet | None, level_name: str = "compatibilityLevel") -> dict[str, Any]:
    """Settings as they are set at one place."""
    if found is None:
        return {}
    level = {} if found.level is None else {level_name: found.level}
    return {**level, **{name: found.more[name] for name in SETTINGS if name in found.more}}


def checked_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of settings by the names that are stored; what is not known is left out. Raises Refused."""
    checked: dict[str, Any] = {}
    for name in ("compatibility", "compatibilityLevel"):
        if name in changes:
            level = changes[name]
            if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
                raise Refused(422, 42203, _LEVELS_ARE)
            checked["compatibilityLevel"] = None if level is None else level.upper()
    for name in SETTINGS:
        if name not in changes:
            continue
        value = changes[name]
        checked[name] = value if value != "" else None
        if checked[name] is None:
            continue
        if name == "compatibilityPolicy":
            if not isinstance(value, str) or value.upper() not in POLICIES:
                raise Refused(422, 42203, "Invalid compatibility policy. Valid values are strict and lenient")
            checked[name] = value.upper()
        elif name in _RULES:
            check_rule_set(value)
        elif name in _METADATA:
            try:
                check_metadata(value)
            except InvalidMetadata as error:
                raise Refused(422, 422, f"{name}: {error.message}") from None
        elif not isinstance(value, bool if name in _FLAGS else str):
            raise Refused(422, 422, f"{name}: not of the type that it has to be")
    return checked


def _in_context(subject: str | None) -> str:
    what = f"Subject {subject}" if subject is not None else "Registry"
    return f"{what} in context {names.context_of(subject)}"


def _content(stored: SchemaStored) -> _Content:
    return (stored.schema_type, stored.references, stored.schema)


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)


def _reserved(metadata: Mapping[str, Any] | None) -> frozenset[str]:
    """The fields that the metadata keeps free, as Confluent writes them: names joined by commas."""
    names_ = str(_property(metadata, "confluent:reserved") or "")
    return frozenset(filter(None, (each.strip() for each in names_.split(","))))
