"""[edge] Schemas in a backup: read from a registry, planned, and imported with their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hub.errors import Conflict, PeerError
from hub.replication.clusters.registry_side import RegistryReader, carry_out
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegisterTargetSchema,
    RegistrySide,
    RegistryVersions,
    SchemaVersion,
    SetSubject,
    SubjectSettings,
    SyncedSubject,
    collisions_of,
    preserving_steps,
    topic_of,
)
from hub.schema_registry.client.remote import RemoteRegistry
from hub.schema_registry.model import subject_names as names

_NONE = SubjectSettings()


@dataclass(frozen=True, slots=True)
class SchemasPlan:
    """Steps that give the target's registry the saved schemas. ``level``: default compatibility level to set;
    "" to leave it. ``notes``: what stays different.
    """

    steps: tuple[ImportSchema | DeleteSchema | SetSubject, ...] = ()
    level: str = ""
    notes: tuple[str, ...] = ()


def check_registry(url: str) -> None:
    """Raise PeerError when the registry does not answer, before anything else takes a long time."""
    remote = RemoteRegistry(url)
    try:
        remote.default_level()
    except PeerError as error:
        raise PeerError(
            f"schemas cannot be saved or restored: {error.message}",
            hint="start the hub's server (hub up), name a registry with --registry, or leave "
            "schemas out: --no-schemas",
            code=error.code,
        ) from None
    finally:
        remote.close()


def read_registry(url: str) -> RegistrySide:
    """Read every version of every context, soft-deleted ones included, with the settings of their subjects.
    Raises PeerError, CallerError.
    """
    reader = RegistryReader(url, every_context=True)
    try:
        return reader.read(sorted({each.subject for each in reader.versions()}))
    finally:
        reader.close()


def plan_schemas(saved: RegistrySide, target: RegistrySide, topics: Mapping[str, bool]) -> SchemasPlan:
    """Return the steps for the schemas of the restored topics. ``topics``: every saved topic, and whether it
    is restored. Subjects that are named after a record alone, and those of other contexts, may be used by any
    topic: all of them are restored. Raises Conflict (HUB-1807) when an id means another schema at the target.
    """
    every = frozenset(topics)
    chosen = [each for each in saved.versions if _is_wanted(each.subject, topics, every)]
    schema_versions = {(each.subject, each.version): each for each in saved.versions}
    wanted = RegistryVersions({}, (), schema_versions).with_references(chosen)
    for context in {names.context_of(each.subject) for each in wanted}:
        here, there = _in(context, wanted), _in(context, target.versions)
        for collision in collisions_of(here, there):
            raise Conflict(
                f"{collision.reason.replace('at the source', 'in the backup')}",
                hint="restore into a cluster whose registry is empty, or only topics without this schema",
                code="HUB-1807",
            )
    subjects = {each.subject: None for each in wanted}
    steps: list[ImportSchema | DeleteSchema | SetSubject] = [
        step
        for step in preserving_steps("", wanted, target.versions, owned=frozenset(subjects))
        if not isinstance(step, RegisterTargetSchema)
    ]
    notes: list[str] = []
    for subject in subjects:
        mine, theirs = saved.settings.get(subject, _NONE), target.settings.get(subject, _NONE)
        if mine in (theirs, _NONE):
            continue
        if theirs != _NONE:
            notes.append(f"subject {subject} keeps its settings: {theirs} (in the backup: {mine})")
            continue
        steps.append(SetSubject("", SyncedSubject("restore", subject, mine), theirs))
    level = saved.level if wanted and saved.level != target.level else ""
    if level and target.versions:
        notes.append(f"the registry keeps its default level {target.level} (in the backup: {level})")
        level = ""
    return SchemasPlan(tuple(steps), level, tuple(notes))


def restore_schemas(plan: SchemasPlan, url: str) -> None:
    """Carry the plan out. Idempotent. Raises PeerError (HUB-3611)."""
    if plan.level:
        remote = RemoteRegistry(url)
        try:
            remote.set_default_level(plan.level)
        finally:
            remote.close()
    for step in plan.steps:
        carry_out(step, url)


def _is_wanted(subject: str, topics: Mapping[str, bool], every: frozenset[str]) -> bool:
    if names.context_of(subject) != names.DEFAULT_CONTEXT:
        return True
    topic = topic_of(subject, every)
    return topic is None or topics.get(topic, True)


def _in(context: str, versions: Iterable[SchemaVersion]) -> list[SchemaVersion]:
    return [each for each in versions if names.context_of(each.subject) == context]
