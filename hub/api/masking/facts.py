"""[shell] The facts about topics and views that masks are decided by: registry, tree and store, all from
memory or the store, so that masked reads need Kafka no more than others do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hub.access.masking.facts import Tags, TopicFields, ViewColumns
from hub.api.masking.schema_fields import tagged_fields
from hub.api.masking.view_origins import combined, origins_of
from hub.errors import NotFound, PeerError
from hub.masking.shape import FieldPath
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions.versions import PREFIX
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names
from hub.schema_registry.model.lru_cache import LruCache
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server.node import RegistryNode
from hub.topics.tree.tree import LiveTree, matches

_VALUE = "-value"


@dataclass
class LiveMaskFacts:
    """``hub.access.masking.facts.MaskFacts`` of a server. Thread-safe. ``newest``: progress records with
    what the log has newer.
    """

    node: RegistryNode
    tree: LiveTree
    store: Store
    newest: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    _fields: LruCache[tuple[bytes, str], Mapping[FieldPath, Tags]] = field(
        default_factory=lambda: LruCache(2_000)
    )

    def topic(self, name: str) -> TopicFields:
        found: dict[FieldPath, Tags] = {}
        for around, subject in (((), f"{name}{_VALUE}"), (("_key",), f"{name}-key")):
            for path, tags in self._of_subject(subject):
                here = (*around, *path)
                found[here] = found.get(here, frozenset()) | tags
        spec = self.tree.find(name)
        return TopicFields(found, None if spec is None else spec.key)

    def _of_subject(self, subject: str) -> Iterator[tuple[FieldPath, Tags]]:
        for source in self.node.read(lambda registry: _versions(registry, subject)):
            yield from self._of(source).items()

    def view(self, name: str) -> ViewColumns:
        progress = self.newest(self.store.progress())
        record = progress.get(f"{PREFIX}{name}")
        if record is None:
            raise PeerError(
                f'view "{name}": what its columns are made of is not known, so they cannot be masked',
                hint="its materializer has not reported a version yet: try again when it runs",
                code="HUB-3078",
            )
        read: set[str] = {*progress.get(f"progress:{name}", {}).get("sources", ())}
        subjects = self.node.read(lambda registry: [*registry.subjects])
        known = {*read, *self.tree.topics(), *(each.removesuffix(_VALUE) for each in subjects)}

        def concrete(topic: str) -> set[str]:
            return {topic, *(each for each in known if matches(topic, each))} if "*" in topic else {topic}

        made = combined([origins_of(each["body"]) for each in record["versions"]], concrete)
        try:
            types = self.store.view(name).types
        except NotFound:
            return made
        columns = {column: made.columns.get(column) for column in types}
        nested = {column for column, each in types.items() if plain_type(each) == "json"}
        return replace(made, columns=columns, nested=frozenset(nested))

    def _of(self, source: SchemaSource) -> Mapping[FieldPath, Tags]:
        key = source.digest, repr(source.metadata)
        found = self._fields.get(key)
        if found is None:
            try:
                found = tagged_fields(source)
            except InvalidSchema as error:
                raise PeerError(
                    f"masks: the tags of a schema cannot be read: {error.message}",
                    hint="delete that version, or name the fields in access.yaml and grant the topic again",
                    code="HUB-3078",
                ) from None
            self._fields.put(key, found)
        return found


def _versions(registry: Registry, subject: str) -> list[SchemaSource]:
    target = registry.target(subject_names.normal(subject))
    return [
        replace(registry.source_of(stored), metadata=stored.metadata)
        for number in registry.numbers(target, deleted=True)
        for stored in (registry.subjects[target][number],)
    ]
