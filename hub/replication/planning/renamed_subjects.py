"""[core] Subjects of a registry whose topics have other names, because the mirror renames its copies.

A subject that is named after a topic follows the topic's name; one that is named after a record alone stays.
Plans have the subjects of the source; steps at the registry have its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from hub.log.topic_names import EQUAL_NAMES, TopicNames
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegistrySide,
    SchemaVersion,
    SetSubject,
    SyncedSubject,
    topic_of,
)
from hub.replication.planning.steps import Remember, Step

_NO_COPY = ":.no-copy:"  # a context, so that the subject is none of the source's


@dataclass(frozen=True)
class RenamedSubjects:
    """Map of subjects. ``topics``: those that exist, by their names at the source."""

    names: TopicNames = EQUAL_NAMES
    topics: frozenset[str] = frozenset()

    @cached_property
    def _names_there(self) -> frozenset[str]:
        return frozenset(self.names.all_on_wire(self.topics))

    def there(self, subject: str) -> str:
        """Return the name that a subject of the source has in the registry."""
        topic = None if self.names.are_equal else topic_of(subject, self.topics)
        if not topic or not subject.startswith(topic):
            return subject
        return self.names.on_wire(topic) + subject[len(topic) :]

    def seen(self, subject: str) -> str:
        """Return the source's name of a subject of the registry. One that is named after another topic of
        the target gets a name that no subject of the source has.
        """
        topic = None if self.names.are_equal else topic_of(subject, self._names_there)
        if not topic or not subject.startswith(topic):
            return subject
        seen = self.names.seen(topic)
        return f"{_NO_COPY}{subject}" if seen is None else seen + subject[len(topic) :]

    def seen_version(self, version: SchemaVersion) -> SchemaVersion:
        """Return a version of the registry with the source's names."""
        references = tuple(replace(each, subject=self.seen(each.subject)) for each in version.references)
        return replace(version, subject=self.seen(version.subject), references=references)

    def seen_side(self, side: RegistrySide) -> RegistrySide:
        """Return the registry with the source's names."""
        if self.names.are_equal:
            return side
        settings = {self.seen(subject): each for subject, each in side.settings.items()}
        return replace(side, versions=tuple(map(self.seen_version, side.versions)), settings=settings)

    def seen_synced(self, synced: Mapping[str, SyncedSubject]) -> dict[str, SyncedSubject]:
        """Return recorded settings with the source's names."""
        return {
            seen: replace(each, subject=seen)
            for subject, each in synced.items()
            for seen in (self.seen(subject),)
        }

    def steps_there(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """Return steps with the names of the registry. A schema that gets an id of the target keeps its name
        at the source, by which it is looked up there.
        """
        return tuple(steps) if self.names.are_equal else tuple(map(self._step_there, steps))

    def _step_there(self, step: Step) -> Step:
        match step:
            case ImportSchema(schema=schema):
                references = tuple(
                    replace(each, subject=self.there(each.subject)) for each in schema.references
                )
                renamed = replace(schema, subject=self.there(schema.subject), references=references)
                return replace(step, schema=renamed)
            case DeleteSchema(subject=subject):
                return replace(step, subject=self.there(subject))
            case SetSubject(synced=synced):
                return replace(step, synced=replace(synced, subject=self.there(synced.subject)))
            case Remember(synced=SyncedSubject() as synced):
                return replace(step, synced=replace(synced, subject=self.there(synced.subject)))
            case _:
                return step


EQUAL_SUBJECTS = RenamedSubjects()
