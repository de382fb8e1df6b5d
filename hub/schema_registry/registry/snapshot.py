"""[core] Snapshot of a registry as plain values, for plans, diffs and searches without further requests.

Possible sources: the REST API (``client/remote.py``), the facts of ``_schemas`` (``state_of``), another
revision of a folder (``folder.as_state``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hub.schema_registry.formats import InvalidSchema, SchemaDifference
from hub.schema_registry.formats.avro import format as avro_format
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import merged_metadata
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.across_contexts import aliases_of
from hub.schema_registry.registry.state_machine import Registry

DEFAULT_LEVEL = "BACKWARD"
_MOST_NESTED = 16  # references of references; the registry has the same limit


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject; ``text`` as stored. ``deleted`` is a soft delete.

    References use full subject names, in any context.
    """

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
    """A subject: its versions, oldest first, and its effective compatibility level.

    Settings add ``default_metadata`` to registered schemas and override theirs with ``override_metadata``.
    """

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
        """Number of the next version; deleted versions count."""
        return max((each.version for each in self.versions), default=0) + 1

    def metadata_of(self, requested: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the metadata stored by a registration that sends ``requested``; None keeps the latest
        version's.
        """
        if requested is None and self.live:
            requested = self.live[-1].metadata
        return merged_metadata(self.default_metadata, requested, self.override_metadata)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Every subject by name.

    ``default_level`` is the level of subjects that do not exist yet; ``aliases`` maps aliases to subjects.
    """

    subjects: Mapping[str, SubjectState] = field(default_factory=dict)
    default_level: str = DEFAULT_LEVEL
    aliases: Mapping[str, str] = field(default_factory=dict)

    def subject(self, name: str) -> SubjectState:
        """Return the subject; an empty one when it does not exist."""
        return self.subjects.get(name) or SubjectState(level=self.default_level)

    def resolve_alias(self, name: str) -> str:
        """Return the subject that a name stands for: an alias' target, or the name itself."""
        return self.aliases.get(name, name)

    def version(self, subject: str, version: int) -> SubjectVersion | None:
        """Return one version, deleted or not: schemas that reference it still need it."""
        return next((each for each in self.subject(subject).versions if each.version == version), None)


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A parsed schema with its parsed references by reference name, dependencies first."""

    schema_type: str
    schema: Any
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def normalized(self) -> str:
        """The text that is equal for equivalent schemas."""
        if self.schema_type == "AVRO":
            return avro.canonical(self.schema)
        found: str = _format(self.schema_type).normalized(self.schema)
        return found


def parse(schema_type: str, text: str, named: Mapping[str, Any] | None = None) -> ParsedSchema:
    """Parse a schema. Raises InvalidSchema with the reason."""
    return ParsedSchema(schema_type, _format(schema_type).parse(text, named or {}), named or {})


def parsed_version(state: RegistryState, version: SubjectVersion, depth: int = 0) -> ParsedSchema:
    """Parse a stored version with its references. Raises InvalidSchema."""
    return parse(version.schema_type, version.text, named_by(state, version.references, depth))


def named_by(state: RegistryState, references: Iterable[Reference], depth: int = 0) -> dict[str, Any]:
    """Return the parsed schemas of references, dependencies first. Raises InvalidSchema."""
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
    """Return why the reader cannot read the writer's data; [] when it can.

    Raises InvalidSchema for too much work.
    """
    if reader.schema_type != writer.schema_type:
        message = f"the reader's schema is {reader.schema_type}, the writer's is {writer.schema_type}"
        return [
            SchemaDifference(
                "SCHEMA_TYPE_CHANGED", "/", "", message, "keep the schema type, or use another subject"
            )
        ]
    if reader.schema_type != "AVRO":
        schema_differences: list[SchemaDifference] = _format(reader.schema_type).differences(
            reader.schema, writer.schema
        )
        return schema_differences
    read, wrote = (AvroSchema(each.schema, tuple(each.named.values())) for each in (reader, writer))
    return avro_format.differences(read, wrote)


def state_of(registry: Registry) -> RegistryState:
    """Return the snapshot of an in-memory registry."""
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
        {alias: subject for subject, every in aliases_of(registry).items() for alias in every},
    )


def _format(schema_type: str) -> Any:
    """Return the module of a format. Imported lazily: two of them have many dependencies."""
    if schema_type == "AVRO":
        return avro
    if schema_type == "JSON":
        from hub.schema_registry.formats.json_schema import format as json_schema

        return json_schema
    if schema_type == "PROTOBUF":
        from hub.schema_registry.formats.protobuf import format as protobuf

        return protobuf
    raise InvalidSchema(f'schema type "{schema_type}" is not known: AVRO, JSON and PROTOBUF are')
