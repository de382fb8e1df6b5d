"""[shell] Schemas of a link: registries of both sides, and versions that must arrive before the events
that name them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hub.errors import NotFound, PeerError
from hub.replication.clusters.clusters import REFUSED, ClusterHandle
from hub.replication.clusters.link_plan import LinkPlan
from hub.replication.clusters.registry_side import RegistryReader, reader_of
from hub.replication.clusters.schemas_first import SchemaNews
from hub.replication.ownership.links import Link
from hub.replication.planning.renamed_subjects import RenamedSubjects
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegisterTargetSchema,
    SetSubject,
    is_carried,
)
from hub.replication.planning.steps import Step

log = logging.getLogger(__name__)

PLAN_EVERY_S = 5.0


class LinkSchemas:
    """Schemas of a link: its registries, and the versions that the source's registry gets. ``name``: for
    the log.
    """

    def __init__(self, link: Link, source: ClusterHandle, target: ClusterHandle, name: str) -> None:
        self.link, self.source, self.target, self.name = link, source, target, name
        self.news: SchemaNews | None = None
        self.caution = ""
        self._carried: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._names = RenamedSubjects(source.names)
        self._registries: dict[str, RegistryReader] = {}
        self._registry_at = -1

    def close(self) -> None:
        """Close the follower and the registries. ``follow`` and ``readers`` open them again."""
        if self.news is not None:
            self.news.close()
        self.news = None
        while self._registries:
            self._registries.popitem()[1].close()

    @property
    def read_to(self) -> int:
        """Return the position in the log of the source's registry; -1: it is not followed."""
        return self.news.read_to if self.news is not None else -1

    def follow(self) -> None:
        """Follow the source's registry, if schema ids are copied unchanged."""
        self.caution = ""
        registries = self.source.registry, self.target.registry
        if self.news is not None or None in registries or self.link.mirror.schema_ids == "rewrite":
            return
        try:
            self.news = SchemaNews(self.source)
        except (NotFound, PeerError) as error:
            if isinstance(error, PeerError) and error.code != REFUSED:
                raise
            self.caution = (
                f"schemas: {error.message}; a version that comes later may arrive {PLAN_EVERY_S:.0f} s after"
                " the first event that names it"
            )

    def readers(self, schemas_to: int) -> Mapping[str, RegistryReader]:
        """Return readers of both registries; versions are read again when the source's log has grown or
        cannot be followed.
        """
        for each in (self.source, self.target):
            if (
                each.name not in self._registries
                and (reader := reader_of(each.registry, keep=True)) is not None
            ):
                self._registries[each.name] = reader
        if schemas_to < 0 or schemas_to != self._registry_at or self.awaits:
            for reader in self._registries.values():
                reader.forget_versions()
        if schemas_to != self._registry_at and self.source.name in self._registries:
            self._registries[self.source.name].forget()
        self._registry_at = schemas_to
        return self._registries

    def done(self, step: Step) -> None:
        """Handle a completed step of the plan."""
        log.info("%s: %s", self.name, step)
        reader = self._registries.get(self.target.name)
        if reader is not None and isinstance(step, ImportSchema | RegisterTargetSchema | DeleteSchema):
            reader.forget_versions()
        elif reader is not None and isinstance(step, SetSubject):
            reader.forget_settings(step.synced.subject)

    def settle(self, made: LinkPlan) -> None:
        """Stop awaiting the versions that the registries had in a plan that is carried out."""
        if self.news is None:
            return
        self._carried = frozenset(made.topics), frozenset(made.source.topics)
        self._names = RenamedSubjects(self.source.names, self._carried[1])
        registry = made.source.registry
        versions = registry.versions if registry is not None else ()
        found = {(self._names.there(each.subject), each.version) for each in versions}
        self.news.settle(self._is_carried, found)

    def poll(self, wait_s: float) -> None:
        """Read more of the log of the source's registry."""
        if self.news is not None:
            self.news.poll(wait_s)
            self.news.settle(self._is_carried)

    @property
    def awaits(self) -> bool:
        """Return whether there are versions that the target's registry may lack."""
        return self.news is not None and self.news.awaits

    def _is_carried(self, subject: str) -> bool:
        """Return whether the link carries a subject of the source's registry, as of the last plan."""
        return is_carried(self._names.seen(subject), self.link.mirror, *self._carried)
