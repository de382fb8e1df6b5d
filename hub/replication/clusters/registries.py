"""[edge] Schema registries of both sides of a mirror: the source's schemas by id, and their ids at the
target.

An id is never translated by guess: the schema is looked up at the target by its text, with all that it refers
to, under a subject that it has at the source; if it is missing there it is registered, unless the caller only
looks up. Ids never change their meaning, so they are cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hub.errors import NotFound, PeerError
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.planning.renamed_subjects import EQUAL_SUBJECTS, RenamedSubjects
from hub.replication.rewriting.record_filter import NoSchemas
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.model.facts import Reference

_DEEPEST = 16  # limit for references of references; the registry has the same
_MOST_KNOWN = 100_000


@dataclass
class Registries:
    """Cached schemas of two registries (see rewriting/record_filter.py). Use from one thread; close it.
    ``registers``: whether schemas that the target lacks are registered there. ``deleted``: whether the id of
    a softly deleted version at the target may be used. ``here_names`` and ``there_names``: names of subjects
    in the two registries; here subjects have those of the mirror's source.
    """

    here: RegistryClient
    there: RegistryClient | None
    registers: bool = True
    deleted: bool = True
    here_names: RenamedSubjects = EQUAL_SUBJECTS
    there_names: RenamedSubjects = EQUAL_SUBJECTS
    _sources: dict[int, SchemaSource] = field(default_factory=dict)
    _ids: dict[tuple[int, str], int] = field(default_factory=dict)
    _keys: dict[str, bool] = field(default_factory=dict)

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id not in self._sources:
            if len(self._sources) >= _MOST_KNOWN:
                self._sources.clear()
            self._sources[schema_id] = self.here.source(schema_id)
        return self._sources[schema_id]

    def has_keys(self, topic: str) -> bool:
        # A topic's first key schema may come later; an existing one stays.
        if not self._keys.get(topic):
            self._keys[topic] = bool(self.here.versions(self.here_names.there(f"{topic}-key")))
        return self._keys[topic]

    def target_id(self, schema_id: int, subject: str) -> int:
        known = self._ids.get((schema_id, subject))
        if known is None:
            if self.there is None:
                raise NotFound("the target cluster has no registry in the file")
            subjects = {self.here_names.seen(each) for each in self.here.subjects_of(schema_id)}
            name = subject if subject in subjects or not subjects else min(subjects)
            known = self._ids[schema_id, subject] = self._carried(schema_id, name, 0)[0]
        return known

    def _carried(self, schema_id: int, subject: str, depth: int) -> tuple[int, int]:
        """Return (id, version) of the schema under the subject at the target."""
        assert self.there is not None
        if depth > _DEEPEST:
            raise NotFound(f"the references of schema {schema_id} nest deeper than {_DEEPEST}")
        text, kind, references = self.here.text_of(schema_id)
        carried = []
        for each in references:
            of, name = self.here.version(each.subject, each.version), self.here_names.seen(each.subject)
            _, version = self._carried(of.id, name, depth + 1)
            carried.append(Reference(each.name, self.there_names.there(name), version))
        subject = self.there_names.there(subject)
        try:
            registered_schema = self.there.lookup(subject, text, kind, carried, deleted=self.deleted)
        except NotFound:
            if not self.registers:
                raise
            self.there.register(subject, text, kind, carried, *self.here.metadata_of(schema_id))
            registered_schema = self.there.lookup(subject, text, kind, carried)
        return registered_schema.id, registered_schema.version

    def close(self) -> None:
        self.here.close()
        if self.there is not None:
            self.there.close()


def registries(
    source: ClusterHandle, target: ClusterHandle, *, registers: bool = True, deleted: bool = True
) -> Registries | NoSchemas:
    """Return the registries of two clusters; connects to nothing yet, except for the topics of a renamed one.
    Raises PeerError.
    """
    if source.registry is None:
        return NoSchemas()
    there = None if target.registry is None else RegistryClient(target.registry)
    here = RegistryClient(source.registry)
    if source.names.are_equal and target.names.are_equal:
        return Registries(here, there, registers, deleted)
    topics = frozenset(source.kafka.topics())
    of_source, of_target = (
        EQUAL_SUBJECTS if each.names.are_equal else RenamedSubjects(each.names, topics)
        for each in (source, target)
    )
    return Registries(here, there, registers, deleted, of_source, of_target)


def carry_schema(source: ClusterHandle, target: ClusterHandle, schema_id: int, subject: str) -> int:
    """Register one schema at the target, not deleted, with an id of the target's; return that id. Raises
    NotFound, CallerError, PeerError.
    """
    made = registries(source, target, deleted=False)
    if isinstance(made, NoSchemas):
        raise PeerError(f"cluster {source.name} has no registry")
    try:
        return made.target_id(schema_id, subject)
    finally:
        made.close()
