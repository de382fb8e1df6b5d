"""[core] Register a schema: assign its version and id, or refuse it.

Rules
  1. One schema (text, references, metadata, rules) has one id within a context, in all subjects.
  2. Ids count up from 1 in each context; an id is never reused, even after a hard delete.
     Only an import may name an id, and only one that is free or has the same schema.
  3. Versions of a subject count up and are never reused while the subject has any record.
  4. A schema that is a live version already is not registered again. One that requests to be the latest
     (version -1) is, unless it is the latest. A version requested by number, by -1 or by
     ``confluent:version`` in the metadata contains its own number there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import check_rule_set, has_version, with_version, without_version
from hub.schema_registry.model.facts import HIGHEST_ID, ContextStored, Fact, IdsSpent, SchemaStored
from hub.schema_registry.registry.commands import CommandDecision, RegisterSchema
from hub.schema_registry.registry.decide_delete import erasure
from hub.schema_registry.registry.errors import RequestRefused, invalid_schema, not_permitted, valid_subject
from hub.schema_registry.registry.preconditions import in_context, writable
from hub.schema_registry.registry.queries import RegistryQueries
from hub.schema_registry.registry.questions import answered, compatibility_question, violations
from hub.schema_registry.registry.state import identity

_IMPORTING = ("IMPORT", "FORWARD")


def register(registry: RegistryQueries, command: RegisterSchema) -> CommandDecision:
    """Decide a registration: the facts to append, and the version to answer.

    Raises RequestRefused, InvalidRules.
    """
    subject = valid_subject(command.subject)
    if command.rule_set is not None:
        check_rule_set(command.rule_set)
    requested_id = command.schema_id
    if not registry.has_defaults(subject) and command.schema and command.version in (0, -1):
        stored_schema = registry.lookup(command)
        if (
            stored_schema is not None
            and requested_id in (None, stored_schema.schema_id)
            and _late_enough(registry, command, stored_schema)
        ):
            return CommandDecision([], stored_schema)
    mode = registry.mode_of(subject)
    writable(registry, subject)
    importing = mode in _IMPORTING
    if requested_id is not None and not importing:
        raise not_permitted(f"{in_context(subject)} is not in import mode")
    if requested_id is None and mode != "READWRITE":
        raise not_permitted(f"{in_context(subject)} is not in read-write mode")

    complete = as_judged(registry, command)
    new = _new(registry, complete)
    there = registry.subjects.get(subject, {}).get(command.version)
    if there is not None and there == replace(new, version=command.version, schema_id=requested_id or 0):
        return CommandDecision([], there)  # imported before
    stored_schema = _known(registry, command, new)
    if (
        stored_schema is not None
        and command.version in (0, -1, stored_schema.version)
        and _late_enough(registry, command, stored_schema)
    ):
        return CommandDecision([], stored_schema)
    if not importing:
        _compatible(registry, complete)
        _within_rules(registry, complete)
    stored = replace(new, version=_version_for(registry, command, importing))
    if not importing and (command.version != 0 or has_version(stored.metadata)):
        stored = replace(stored, metadata=with_version(stored.metadata, stored.version))
    stored = replace(stored, schema_id=_id_for(registry, stored, requested_id))
    registry.source_of(stored).is_spelled_so()
    return CommandDecision([*_beforehand(registry, stored), stored], stored)


def as_judged(registry: RegistryQueries, command: RegisterSchema) -> RegisterSchema:
    """Complete the command with metadata and rules inherited from the latest version and the settings.

    An import is complete already.
    """
    importing = registry.mode_of(command.subject) in _IMPORTING
    return command if importing else registry.completed(command)


def makes_version(registry: RegistryQueries, command: RegisterSchema) -> bool:
    """Return True if registering the command's schema makes a version. Raises RequestRefused 42201.

    A schema that is a version already makes one only when the command requests another number. Call it with
    the command as sent: omitted metadata match any version.
    """
    stored_schema = registry.lookup(command)
    if stored_schema is None or command.version not in (0, -1, stored_schema.version):
        return True
    return not _late_enough(registry, command, stored_schema)


def _new(registry: RegistryQueries, command: RegisterSchema) -> SchemaStored:
    """Return the schema to store, without version and id. Raises RequestRefused 42201, 42209."""
    references = registry.resolved(command.subject, command.references)
    text = registry.canonical(command)
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


def _known(registry: RegistryQueries, command: RegisterSchema, new: SchemaStored) -> SchemaStored | None:
    """Return the subject's live version that has this schema already.

    A version number that the metadata inherits from the latest version, not from the request, is ignored.
    """
    stored_schema = registry.find(
        new.subject,
        new.schema,
        new.schema_type,
        new.references,
        metadata=new.metadata if has_version(command.metadata) else without_version(new.metadata),
        rule_set=new.rule_set,
    )
    return (
        stored_schema
        if stored_schema is not None and command.schema_id in (None, stored_schema.schema_id)
        else None
    )


def _late_enough(registry: RegistryQueries, command: RegisterSchema, stored_schema: SchemaStored) -> bool:
    return command.version != -1 or stored_schema.version == registry.numbers(stored_schema.subject)[-1]


def _compatible(registry: RegistryQueries, command: RegisterSchema) -> None:
    reasons = answered(compatibility_question(registry, command))
    if reasons:
        level = registry.level_of(command.subject)
        raise RequestRefused(
            409,
            40901,
            f"Schema being registered is incompatible with an earlier schema for subject "
            f'"{command.subject}", details: [{"; ".join(map(str, reasons))}], compatibility: {level}',
        )


def _within_rules(registry: RegistryQueries, command: RegisterSchema) -> None:
    broken = [each for each in violations(registry, command, is_new=True) if each.severity == "block"]
    if broken:
        raise RequestRefused(
            422,
            42201,
            f'Schema being registered breaks the rules that hold for subject "{command.subject}", details: '
            f"[{'; '.join(map(str, broken))}]",
        )


def _version_for(registry: RegistryQueries, command: RegisterSchema, importing: bool) -> int:
    numbers = registry.numbers(names.normal(command.subject), deleted=True)
    following = numbers[-1] + 1 if numbers else 1
    if command.version > 0 and importing:
        return command.version
    if command.version > 0 and command.version != following:
        raise invalid_schema("Version is not one more than previous version")
    if following > HIGHEST_ID:
        raise RequestRefused(422, 42202, f"subject '{command.subject}' has no version number left")
    return following


def _id_for(registry: RegistryQueries, stored: SchemaStored, requested_id: int | None) -> int:
    context = registry.space_of(names.context_of(stored.subject))
    if requested_id is not None:
        bound = context.ids.get(requested_id)
        if bound is not None and identity(bound) != identity(stored):
            raise not_permitted(
                f"Overwrite new schema with id {requested_id} in context "
                f"{names.context_of(stored.subject)} is not permitted."
            )
        return requested_id
    same = context.by_identity.get(identity(stored))
    if same:
        return next(iter(same))
    if context.highest_id >= HIGHEST_ID:
        raise RequestRefused(500, 50001, f"no schema id is left after {HIGHEST_ID}")
    return context.highest_id + 1


def _beforehand(registry: RegistryQueries, stored: SchemaStored) -> Iterator[Fact]:
    """Yield the facts before a registration.

    They are its context, deleted versions of the same id that it replaces, and the version that an import
    overwrites.
    """
    context = names.context_of(stored.subject)
    if context != names.DEFAULT_CONTEXT and context not in registry.named_contexts:
        yield ContextStored(context)
    for each in registry.alike(stored):
        replaced = each.deleted and each.schema_id == stored.schema_id and each.version < stored.version
        if replaced and not registry.referenced_by(stored.subject, each.version):
            yield from erasure(registry, each)
    over = registry.subjects.get(stored.subject, {}).get(stored.version)
    if over is not None and over.schema_id == registry.space_of(context).highest_id:
        yield IdsSpent(context, over.schema_id)
