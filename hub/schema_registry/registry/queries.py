"""[core] Reads of the registry: versions, ids, effective settings, compatibility.

Rules
  1. Soft-deleted versions do not affect compatibility; they can be read with ``deleted=true`` and by id.
  2. ``latest`` is the newest version that is not deleted.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hub.schema_registry.compat.compatibility import Incompatibility, Question
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import (
    merged_metadata,
    merged_rules,
    properties_of,
    rule_types,
    same_metadata,
)
from hub.schema_registry.model.facts import Reference, SchemaStored
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.registry.errors import (
    RequestRefused,
    invalid_schema,
    refused_schema,
    schema_not_found,
    subject_not_found,
    version_not_found,
    version_number,
)
from hub.schema_registry.registry.settings import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    METADATA_SETTINGS,
    RULE_SETTINGS,
    SETTINGS,
    is_subject,
)
from hub.schema_registry.registry.state import IndexedState, SubjectIndex, content_of, guid_of

_DEEPEST_REFERENCE = 16
# Number of a subject's newest versions that are checked for another spelling of the same schema.
_MOST_RESPELLED = 100


class RegistryQueries(IndexedState):
    """The state with its queries. Nothing here changes it."""

    # ---- schemas

    def source(self, command: RegisterSchema) -> SchemaSource:
        """Return the command's schema with all references. Raises RequestRefused 42201."""
        return self._source_of(command.subject, command.schema, command.schema_type, command.references)

    def source_of(self, stored: SchemaStored) -> SchemaSource:
        """Return a stored schema with all references. Raises RequestRefused 42201."""
        return self._source_of(stored.subject, stored.schema, stored.schema_type, stored.references)

    def _source_of(
        self, subject: str, text: str, schema_type: str, references: Iterable[Reference]
    ) -> SchemaSource:
        """Resolve references; each version is followed once, because the number of paths doubles per
        level.
        """
        known: dict[tuple[str, int], tuple[SchemaSource, int]] = {}

        def followed(stored: SchemaStored, depth: int) -> tuple[SchemaSource, int]:
            """Return a referenced version and its number of levels."""
            place = (stored.subject, stored.version)
            found = known.get(place)
            if depth + (found[1] if found is not None else 1) > _DEEPEST_REFERENCE:
                raise invalid_schema(f"Invalid schema: references nest deeper than {_DEEPEST_REFERENCE}")
            if found is None:
                named, below = around(stored.subject, stored.references, depth + 1)
                found = known[place] = (SchemaSource.of(stored.schema_type, stored.schema, named), below + 1)
            return found

        def around(
            subject: str, references: Iterable[Reference], depth: int
        ) -> tuple[tuple[tuple[str, SchemaSource], ...], int]:
            """Return the sources of references by name, and the number of levels below."""
            named, levels = [], 0
            for each in references:
                source, below = followed(self._referenced(subject, each), depth)
                named.append((each.name, source))
                levels = max(levels, below)
            return tuple(named), levels

        return SchemaSource.of(schema_type, text, around(subject, references, 0)[0])

    def _referenced(self, subject: str, reference: Reference) -> SchemaStored:
        found = self.at(names.beside(subject, reference.subject), reference.version, deleted=True)
        if found is None:
            raise invalid_schema(
                f'Invalid schema: no schema for reference "{reference.name}" '
                f"({reference.subject} version {reference.version})"
            )
        return found

    def resolved(self, subject: str, references: Iterable[Reference]) -> tuple[Reference, ...]:
        """Replace references to ``-1`` by the latest version. Raises RequestRefused 42201."""
        return tuple(
            replace(each, version=self._referenced(subject, each).version) if each.version < 1 else each
            for each in references
        )

    def canonical(self, command: RegisterSchema) -> str:
        """Return the text of the command's schema as it would be stored.

        Raises RequestRefused 42201, 42209.
        """
        source = self.source(command)
        try:
            return source.canonical(normalize=self.normalizes(command))
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def normalizes(self, command: RegisterSchema) -> bool:
        return command.normalize or self.setting(command.subject, "normalize") is True

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SchemaStored:
        """Return one version; "latest" and -1 are the newest live one.

        Raises RequestRefused 40401, 40402, 42202.
        """
        number = version_number(version)
        subject = names.normal(subject)
        found = self.at(subject, number, deleted=deleted)
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
        """Return the subject's newest version with this canonical text; metadata and rules must match if
        given.
        """
        index = self._index.get(subject)
        if index is None:
            return None
        versions = self.subjects[subject]
        numbers: Iterable[int] = index.by_content.get((schema_type, references, text), ())
        if not numbers:
            numbers = self._respelled(index, versions, text, schema_type, references)
        for number in sorted(numbers, reverse=True):
            each = versions[number]
            meant = same_metadata(metadata, each.metadata) and rule_set in (None, each.rule_set)
            if meant and (deleted or not each.deleted):
                return each
        return None

    def _respelled(
        self,
        index: SubjectIndex,
        versions: Mapping[int, SchemaStored],
        text: str,
        schema_type: str,
        references: tuple[Reference, ...],
    ) -> list[int]:
        """Return the versions with this schema in another registry's spelling.

        Each text is normalized once.
        """
        return [
            number
            for number in index.numbers[-_MOST_RESPELLED:]
            if (versions[number].schema_type, versions[number].references) == (schema_type, references)
            and self._spelled(versions[number]) == text
        ]

    def _spelled(self, stored: SchemaStored) -> str:
        try:
            return self.source_of(stored).spelled()
        except RequestRefused:
            return stored.schema

    def other_spellings(self, command: RegisterSchema) -> list[SchemaSource]:
        """Return the schemas that a lookup of the command will normalize, so that this can be done
        beforehand.
        """
        index = self._index.get(names.normal(command.subject))
        references = self.resolved(command.subject, command.references)
        if index is None or (command.schema_type, references, self.canonical(command)) in index.by_content:
            return []
        versions = self.subjects[names.normal(command.subject)]
        found: list[SchemaSource] = []
        for number in index.numbers[-_MOST_RESPELLED:]:
            # References of a soft-deleted version may be gone: its text is used unchanged.
            with contextlib.suppress(RequestRefused):
                found.append(self.source_of(versions[number]))
        return found

    def lookup(self, command: RegisterSchema, *, deleted: bool = False) -> SchemaStored | None:
        """Return the subject's version that has this schema. Raises RequestRefused 42201."""
        if not command.schema.strip():
            return None
        subject = names.normal(command.subject)
        references = self.resolved(command.subject, command.references)
        text = self.canonical(command)
        asked = [command]
        if self.has_defaults(subject):  # it may have been registered with metadata or rules of the settings
            asked.append(self.completed(command))
        for each in asked:
            found = self.find(
                subject,
                text,
                command.schema_type,
                references,
                metadata=each.metadata,
                rule_set=each.rule_set,
                deleted=deleted,
            )
            if found is not None:
                return found
        return None

    def with_metadata(
        self, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
    ) -> SchemaStored:
        """Return the newest version whose metadata has these properties.

        Raises RequestRefused 40401, 40403.
        """
        numbers = self.numbers(subject, deleted=deleted)
        if not numbers:
            raise subject_not_found(subject)
        for number in reversed(numbers):
            each = self.subjects[subject][number]
            if wanted.items() <= properties_of(each.metadata).items():
                return each
        raise schema_not_found()

    # ---- ids

    def by_id(self, schema_id: int, subject: str | None = None) -> SchemaStored:
        """Return the schema of an id; ``subject`` selects the context and the use.

        Raises RequestRefused 40403.
        """
        context, use = self._meant(schema_id, subject)
        stored = use or self.space_of(context).ids.get(schema_id)
        if stored is None:
            raise schema_not_found(schema_id)
        return stored

    def uses_of(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[SchemaStored]:
        """Return every (subject, version) with this id, in the context selected by ``subject``."""
        context, _ = self._meant(schema_id, subject)
        places = self.space_of(context).uses.get(schema_id, ())
        every = [self.subjects[each][number] for each, number in places]
        return [each for each in every if deleted or not each.deleted]

    def _meant(self, schema_id: int, subject: str | None) -> tuple[str, SchemaStored | None]:
        """Return (context, the subject's newest version with this id).

        A subject without a context is searched in the default one, then in the others, because a consumer
        does not know where its producer registered.
        """
        context, name = names.split(subject or "")
        if not name:
            return context, None
        others = sorted(self.contexts) if context == names.DEFAULT_CONTEXT else []
        for each in dict.fromkeys([context, *others]):
            bound = self.space_of(each).ids.get(schema_id)
            index = self._index.get(names.joined(each, name))
            if bound is None or index is None:
                continue
            versions = self.subjects[names.joined(each, name)]
            for number in reversed(index.by_content.get(content_of(bound), ())):
                if versions[number].schema_id == schema_id:
                    return each, versions[number]
        return context, None

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """Return (context, id) of the schemas with this GUID. Raises RequestRefused 40403."""
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
        return self.space_of(names.context_of(subject)).highest_id

    def context_names(self) -> list[str]:
        """Return the default context, then the others, sorted."""
        used = {name for name, space in self.contexts.items() if space.uses}
        others = (used | set(self.named_contexts)) - {names.DEFAULT_CONTEXT}
        return [names.DEFAULT_CONTEXT, *sorted(others)]

    # ---- settings

    def setting(self, subject: str | None, name: str) -> Any:
        """Return a subject's effective setting: its own, its context's, or the global one; None when it is
        not set.
        """
        for place in names.places(subject):
            found = self.levels.get(place)
            if found is not None:
                value = found.level if name == "compatibilityLevel" else found.more.get(name)
                if value is not None:
                    return value
        return None

    def settings(self, subject: str | None) -> dict[str, Any]:
        """Return all effective settings of a subject, by Confluent's names; an alias is not inherited."""
        own = self.levels.get(names.place(subject))
        alias = own.more.get("alias") if own is not None else None
        found = {name: self.setting(subject, name) for name in SETTINGS if name != "alias"}
        every = {"compatibilityLevel": self.level_of(subject), "alias": alias, **found}
        return {name: each for name, each in every.items() if each is not None}

    def has_defaults(self, subject: str) -> bool:
        """Return True if settings add metadata or rules to registered schemas, or override theirs."""
        return any(self.setting(subject, name) is not None for name in (*METADATA_SETTINGS, *RULE_SETTINGS))

    def target(self, subject: str) -> str:
        """Return the subject that an alias stands for; the subject itself when it is not an alias."""
        own = self.levels.get(names.place(subject))
        alias = own.more.get("alias") if own is not None else None
        return names.beside(subject, alias) if isinstance(alias, str) and alias else subject

    def aliases(self) -> dict[str, list[str]]:
        """Return the aliases of each subject that has any, sorted."""
        found: dict[str, list[str]] = {}
        for place in sorted(each for each in self.levels if is_subject(each)):
            subject = self.target(place)
            if subject != place:
                found.setdefault(subject, []).append(place)
        return found

    def listed(
        self,
        wanted: Callable[[str], bool],
        *,
        deleted: bool = False,
        latest: bool = False,
        rule_type: str = "",
        aliases: bool = False,
    ) -> list[tuple[SchemaStored, list[str]]]:
        """Return versions of the subjects that ``wanted`` accepts, with their aliases, sorted.

        ``latest``: only the newest of each. ``rule_type``: only those with a rule of this type. ``aliases``:
        include the subjects that wanted aliases stand for.
        """
        named = {
            subject: found
            for subject, every in (self.aliases() if aliases else {}).items()
            if (found := [each for each in every if wanted(each)])
        }
        subjects = {each for each in self.subjects if wanted(each)} | (set(named) & set(self.subjects))
        versions: list[tuple[SchemaStored, list[str]]] = []
        for subject in sorted(subjects):
            numbers = self.numbers(subject, deleted=deleted)
            for number in numbers[-1:] if latest else numbers:
                stored = self.subjects[subject][number]
                if not rule_type or rule_type in rule_types(stored.rule_set):
                    versions.append((stored, named.get(subject, [])))
        return versions

    def level_of(self, subject: str | None) -> str:
        """Return the effective compatibility level.

        The subject's own level within the limits of policies; else the policies' level; else its context's,
        the global one, BACKWARD.
        """
        set_above = self.setting(subject, "compatibilityLevel") or DEFAULT_LEVEL
        place = names.place(subject)
        if not is_subject(place):
            return set_above
        own = self.levels.get(place)
        return self.rulebook.level(place, own.level if own is not None else None, set_above)

    def mode_of(self, subject: str | None) -> str:
        """Return the effective mode. READONLY_OVERRIDE above a subject precedes the subject's own mode."""
        modes = [found.mode for each in names.places(subject) if (found := self.modes.get(each)) is not None]
        if "READONLY_OVERRIDE" in modes:
            return "READONLY_OVERRIDE"
        return modes[0] or DEFAULT_MODE if modes else DEFAULT_MODE

    # ---- compatibility and rules

    def completed(self, command: RegisterSchema) -> RegisterSchema:
        """Complete a request with values of the latest version, and with the settings' defaults and
        overrides.
        """
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
        over = {name: self.setting(command.subject, name) for name in (*METADATA_SETTINGS, *RULE_SETTINGS)}
        metadata = merged_metadata(over["defaultMetadata"], metadata, over["overrideMetadata"])
        rules = merged_rules(over["defaultRuleSet"], rules, over["overrideRuleSet"])
        return replace(command, metadata=metadata, rule_set=rules)

    def violations(self, command: RegisterSchema, *, is_new: bool | None = None) -> list[PolicyViolation]:
        """Return the policies that a registration would violate, warnings included.

        Raises RequestRefused 42201.

        ``is_new``: a version is made, even of a known schema (``"version": -1``); None: if the schema is not
        known.
        """
        subject = names.normal(command.subject)
        try:
            is_new = self.lookup(command) is None if is_new is None else is_new
            return self.rulebook.violations(
                subject, self.source(command), command.metadata, command.caller, is_new=is_new
            )
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def step(self, command: RegisterSchema) -> tuple[SchemaSource, SchemaSource] | None:
        """Return (the latest version, the command's schema), or None when they are not comparable.

        That is the case without a latest version of the same format, or when the schema is registered
        already. Raises RequestRefused 42201.
        """
        latest = self.live(names.normal(command.subject))[-1:]
        if not latest or latest[0].schema_type != command.schema_type or self.lookup(command) is not None:
            return None
        return self.source_of(latest[0]), self.source(command)

    def question(self, command: RegisterSchema, version: int | str | None = None) -> Question:
        """Return the compatibility question with one version, or (version None) with those that the level
        checks.

        Raises RequestRefused 40402, 42201, 42202.
        """
        subject = names.normal(command.subject)
        level = self.level_of(subject)
        versions = self.live(subject)
        if version is not None:
            number = version_number(version)
            one = self.at(subject, number, deleted=False)
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
        """Return why a schema may not follow one version, or (version None) those that the level checks."""
        return list(self.answered(self.question(replace(command, subject=subject), version)))

    @staticmethod
    def answered(question: Question) -> tuple[Incompatibility, ...]:
        """Answer a question. Raises RequestRefused for a schema that cannot be parsed."""
        try:
            return question.answer()
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def prepared(self, command: RegisterSchema) -> Question | None:
        """Return the question that a registration will answer, so that it can be answered beforehand."""
        subject = names.normal(command.subject)
        if self.mode_of(subject) != "READWRITE" or not command.schema.strip():
            return None
        return self.question(self.completed(command))


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return properties_of(metadata).get(name)


def _reserved(metadata: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the reserved fields of metadata, in Confluent's form: names separated by commas."""
    names_ = str(_property(metadata, "confluent:reserved") or "")
    return frozenset(filter(None, (each.strip() for each in names_.split(","))))
