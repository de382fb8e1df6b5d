"""[core] Reads of the registry: versions, ids, effective settings, compatibility.

Rules
  1. Soft-deleted versions do not affect compatibility; they can be read with ``deleted=true`` and by id.
  2. ``latest`` is the newest version that is not deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import merged_metadata, merged_rules, same_metadata
from hub.schema_registry.model.facts import Reference, SchemaStored
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
from hub.schema_registry.registry.state import IndexedState, SubjectIndex, content_of

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
        stored_schema = self.at(names.beside(subject, reference.subject), reference.version, deleted=True)
        if stored_schema is None:
            raise invalid_schema(
                f'Invalid schema: no schema for reference "{reference.name}" '
                f"({reference.subject} version {reference.version})"
            )
        return stored_schema

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
            return source.canonical(
                normalize=command.normalize or self.setting(command.subject, "normalize") is True
            )
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SchemaStored:
        """Return one version; "latest" and -1 are the newest live one.

        Raises RequestRefused 40401, 40402, 42202.
        """
        number = version_number(version)
        subject = names.normal(subject)
        stored_schema = self.at(subject, number, deleted=deleted)
        if stored_schema is not None:
            return stored_schema
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
            matches = same_metadata(metadata, each.metadata) and rule_set in (None, each.rule_set)
            if matches and (deleted or not each.deleted):
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
        Each text is normalized once."""
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
        schema_sources: list[SchemaSource] = []
        for number in index.numbers[-_MOST_RESPELLED:]:
            # References of a soft-deleted version may be gone: its text is used unchanged.
            with contextlib.suppress(RequestRefused):
                schema_sources.append(self.source_of(versions[number]))
        return schema_sources

    def lookup(self, command: RegisterSchema, *, deleted: bool = False) -> SchemaStored | None:
        """Return the subject's version that has this schema. Raises RequestRefused 42201."""
        if not command.schema.strip():
            return None
        subject = names.normal(command.subject)
        references = self.resolved(command.subject, command.references)
        text = self.canonical(command)
        # It may have been registered with metadata or rules of the settings.
        for each in (command, self.completed(command)) if self.has_defaults(subject) else (command,):
            stored_schema = self.find(
                subject,
                text,
                command.schema_type,
                references,
                metadata=each.metadata,
                rule_set=each.rule_set,
                deleted=deleted,
            )
            if stored_schema is not None:
                return stored_schema
        return None

    # ---- ids

    def by_id(self, schema_id: int, subject: str | None = None) -> SchemaStored:
        """Return the schema of an id; ``subject`` selects the context and the use.

        Raises RequestRefused 40403.
        """
        context, use = self._find_use(schema_id, subject)
        stored = use or self.space_of(context).ids.get(schema_id)
        if stored is None:
            raise schema_not_found(schema_id)
        return stored

    def uses_of(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[SchemaStored]:
        """Return every (subject, version) with this id, in the context selected by ``subject``."""
        context, _ = self._find_use(schema_id, subject)
        places = self.space_of(context).uses.get(schema_id, ())
        every = [self.subjects[each][number] for each, number in places]
        return [each for each in every if deleted or not each.deleted]

    def _find_use(self, schema_id: int, subject: str | None) -> tuple[str, SchemaStored | None]:
        """Return (context, the subject's newest version with this id). A subject without a context is
        searched in the default one, then in the others: a consumer does not know where it was registered.
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

    def max_id(self, subject: str | None = None) -> int:
        return self.space_of(names.context_of(subject)).highest_id

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
