"""[core] What a registry holds at one moment, as plain values: for plans, diffs and searches that ask it nothing more.

Where the values come from does not matter: the REST API (``client/remote.py``), the facts of ``_schemas`` (``state_of``), or
another revision of a folder (``folder.as_state``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hub.schema_registry.compat.compatibility import can_read
from hub.schema_registry.formats import InvalidSchema, SchemaDifference
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.differences import AvroComparison
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import merged_metadata
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.state_machine import Registry

DEFAULT_LEVEL = "BACKWARD"
_MOST_NESTED = 16  # references of references, as the registry has it


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject; ``text`` as it is stored. ``deleted`` is a soft delete. References name subjects in
    full, whatever context this one is of."""

    version: int
    text: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    schema_id: int | None = None
    deleted: bool = False
    rule_set: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SubjectState:
    """A subject: every version, oldest first, its effective compatibility level, and the metadata that its settings put into
    what is registered (``default_metadata``) and over it."""

    versions: tuple[SubjectVersion, ...] = ()
    level: str = DEFAULT_LEVEL
    default_metadata: Mapping[str, Any] | None = None
    override_metadata: Mapping[str, Any] | None = None

    @property
    def live(self) -> tuple[SubjectVersion, ...]:
        """The versions that are not deleted, oldest first."""
        return tuple(each for each in self.versions if not each.deleted)

    @property
    def next_version(self) -> int:
        """The number that the next version gets: deleted ones are counted."""
        return max((each.version for each in self.versions), default=0) + 1

    def metadata_of(self, said: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What a registration that says this is stored with; unsaid, the latest version's metadata stay."""
        if said is None and self.live:
            said = self.live[-1].metadata
        return merged_metadata(self.default_metadata, said, self.override_metadata)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Every subject by name. ``default_level`` is that of subjects that do not exist yet; ``aliases`` are the subjects that
    other names stand for."""

    subjects: Mapping[str, SubjectState] = field(default_factory=dict)
    default_level: str = DEFAULT_LEVEL
    aliases: Mapping[str, str] = field(default_factory=dict)

    def subject(self, name: str) -> SubjectState:
        """The subject; an empty one when it does not exist."""
        return self.subjects.get(name) or SubjectState(level=self.default_level)

    def meant(self, name: str) -> str:
        """The subject under which the registry keeps what it is given under a name."""
        return self.aliases.get(name, name)

    def version(self, subject: str, version: int) -> SubjectVersion | None:
        """One version, deleted or not: what references it still needs it."""
        return next((each for each in self.subject(subject).versions if each.version == version), None)


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A schema with the parsed schemas that it refers to, by reference name, those they need themselves first."""

    schema_type: str
    schema: Any
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def normalized(self) -> str:
        """The text in which what means the same is written the same."""
        if self.schema_type == "AVRO":
            return avro.canonical(self.schema)
        found: str = _format(self.schema_type).normalized(self.schema)
        return found


def parse(schema_type: str, text: str, named: Mapping[str, Any] | None = None) -> ParsedSchema:
    """Raises InvalidSchema with the reason."""
    return ParsedSchema(schema_type, _format(schema_type).parse(text, named or {}), named or {})


def parsed_version(state: RegistryState, version: SubjectVersion, depth: int = 0) -> ParsedSchema:
    """A stored version with what it refers to. Raises InvalidSchema."""
    return parse(version.schema_type, version.text, named_by(state, version.references, depth))


def named_by(state: RegistryState, references: Iterable[Reference], depth: int = 0) -> dict[str, Any]:
    """The parsed schemas of references, those they need themselves first. Raises InvalidSchema."""
    if depth > _MOST_NESTED:
        raise InvalidSchema(f"references nest deeper than {_MOST_NESTED}")
    found: dict[str, Any] = {}
    for reference in references:
        stored = state.version(reference.subject, reference.version)
        if stored is None:
            raise InvalidSchema(
                f'no schema for the reference "{reference.name}": subject "{reference.subject}" has no '
                f"version {reference.version}"
            )
        parsed = parsed_version(state, stored, depth + 1)
        found |= parsed.named
        found[reference.name] = parsed.schema
    return found


def differences(reader: ParsedSchema, writer: ParsedSchema) -> list[SchemaDifference]:
    """Why the reader cannot read what the writer wrote; [] when it can. Raises InvalidSchema for too much work."""
    if reader.schema_type != writer.schema_type:
        what = f"the reader's schema is {reader.schema_type}, the writer's is {writer.schema_type}"
        return [
            SchemaDifference(
                "SCHEMA_TYPE_CHANGED", "/", "", what, "keep the schema type, or use another subject"
            )
        ]
    if reader.schema_type != "AVRO":
        found: list[SchemaDifference] = _format(reader.schema_type).differences(reader.schema, writer.schema)
        return found
    try:
        read, wrote = (avro.spelled_out(each.schema, list(each.named.values())) for each in (reader, writer))
        if can_read(read, wrote):
            return []
        return AvroComparison(read, wrote).differences() or [
            SchemaDifference(
                "TYPE_MISMATCH", "/", "", "the schemas do not resolve", "keep the schema as it was"
            )
        ]
    except RecursionError:
        raise InvalidSchema("the schema's types are chained too long to be compared") from None


def state_of(registry: Registry) -> RegistryState:
    """The state of a registry that is in memory."""
    return RegistryState(
        {
            subject: SubjectState(
                tuple(
                    SubjectVersion(
                        each.version,
                        each.schema,
                        each.schema_type,
                        tuple(
                            replace(to, subject=names.beside(subject, to.subject)) for to in each.references
                        ),
                        each.metadata,
                        each.schema_id,
                        each.deleted,
                    )
                    for _, each in sorted(versions.items())
                ),
                registry.level_of(subject),
                registry.setting(subject, "defaultMetadata"),
                registry.setting(subject, "overrideMetadata"),
            )
            for subject, versions in sorted(registry.subjects.items())
        },
        registry.level_of(None),
        {alias: subject for subject, every in registry.aliases().items() for alias in every},
    )


def _format(schema_type: str) -> Any:
    """The module of a format. Imported when it is needed: two of them bring much along."""
    if schema_type == "AVRO":
        return avro
    if schema_type == "JSON":
        from hub.schema_registry.formats.json_schema import format as json_schema

        return json_schema
    if schema_type == "PROTOBUF":
        from hub.schema_registry.formats.protobuf import format as protobuf

        return protobuf
    raise InvalidSchema(f'schema type "{schema_type}" is not known: AVRO, JSON and PROTOBUF are')
