"""[edge] Topics and schemas of a view's sources, from Kafka and the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from hub.errors import ConfigError, HubError, NotFound, PeerError, did_you_mean, nearest
from hub.log import TopicDescription
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import view_files
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.engine.plans.schema_watch import SchemaWatch
from hub.materializers.engine.plans.topics import feeds
from hub.materializers.spark.formats.decode import WriterSchema
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.cdc import NotAnEnvelope, not_an_envelope
from hub.materializers.types.source_formats import of_registry
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.formats import InvalidSchema

# A prerequisite of the plan is missing; it is looked for again soon.
WAITS = "HUB-3054"

SourceSchemas = tuple[tuple[str, ...], tuple[WriterSchema, ...], AvroType]


class SchemaReader:
    """Reads the schemas of a view's sources. ``watch``: has the ids of other subjects that events named."""

    def __init__(self, registry: RegistryClient, watch: SchemaWatch, project: Path) -> None:
        self._registry = registry
        self._watch = watch
        self._project = project

    def of_view(
        self,
        view: View | SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
    ) -> dict[str, SourceSchemas]:
        """Return for each source: its topics, every schema that its events may have, and the newest of these
        schemas. ``pinned``: the schemas that the version was created with."""
        found: dict[str, SourceSchemas] = {}
        for name, source in view.all_sources.items():
            names = tuple(sorted(topic for topic in topics if feeds(source.topic, topic)))
            of_view = source.view if isinstance(source, SqlSource) else None
            if not names and of_view is not None:
                raise self._waits(view, of_view)
            if not names:
                raise NotFound(
                    f'view "{view.name}": source "{name}": topic "{source.topic}" does not exist',
                    hint=did_you_mean(source.topic, topics, "create it: hub topic apply"),
                    code="HUB-2106",
                )
            declared = source.declared
            if declared is not None:
                found[name] = (names, (), declared)
                continue
            try:
                writers, latest = self._writers(view, name, names)
            except NotFound:
                if of_view is not None:
                    raise self._waits(view, of_view) from None
                raise
            schema = self._read_schema(view, name, latest) if pinned is None else pinned["latest"][name]
            found[name] = (names, writers, schema)
        return found

    def _waits(self, view: View | SqlView, other: str) -> HubError:
        """Return the error for a view whose changelog does not exist yet: it is created when that view is
        planned."""
        known = [path.stem for path in view_files(self._project)]
        guess = None if other in known else nearest(other, known)
        absent = "it is starting" if other in known else f"views/{other}.yaml does not exist"
        return PeerError(
            f'view "{view.name}" waits for the view "{other}", which has no changelog yet',
            hint=f'did you mean "{guess}"?' if guess else absent,
            code=WAITS,
        )

    def _writers(
        self, view: View | SqlView, source: str, topics: tuple[str, ...]
    ) -> tuple[tuple[WriterSchema, ...], AvroType]:
        """Return every schema that events may have, and the topics' own newest schema.

        An event may name any registered id, but a schema of another subject must not decide the source's
        columns. With several topics, the newest is that of their latest versions.
        """
        by_topic = [self._registry.versions(f"{topic}-value") for topic in topics]
        versions = [version for of_topic in by_topic for version in of_topic]
        if not versions:
            raise NotFound(
                f'view "{view.name}": source "{source}": topic "{topics[0]}" has no schema '
                f'(subject "{topics[0]}-value" is not in the registry)',
                hint="name it in topics.yaml and run: hub topic apply; "
                "or say what its events are: format: json",
                code="HUB-2107",
            )
        # By version first: a schema that another subject registered earlier has a lower id than the version
        # that it follows.
        latest_versions = [max(each, key=lambda version: version.version) for each in by_topic if each]
        newest = max(latest_versions, key=lambda version: version.id)
        # Events of another schema type become dead-letter records: the columns follow one type.
        writers = {
            version.id: WriterSchema(version.id, _avro(version))
            for version in versions
            if version.schema_type == newest.schema_type
        }
        if newest.schema_type == "AVRO":
            latest = writers[newest.id].schema
        else:
            latest = self._as_columns(view, source, newest.id)
        for schema_id in self._watch.extra_ids:
            extra = self._record_schema(schema_id, newest.schema_type)
            if extra is not None:
                writers[schema_id] = WriterSchema(schema_id, extra)
        return tuple(sorted(writers.values(), key=lambda writer: writer.schema_id)), latest

    def _read_schema(self, view: View | SqlView, source: str, latest: AvroType) -> AvroType:
        try:
            return view.all_sources[source].read_schema(latest)
        except NotAnEnvelope as error:
            raise not_an_envelope(view.name, source, error) from None

    def _as_columns(self, view: View | SqlView, source: str, schema_id: int) -> AvroType:
        try:
            return of_registry(self._registry.source(schema_id))
        except InvalidSchema as error:
            raise ConfigError(
                f'view "{view.name}": source "{source}": schema id {schema_id}: {error.message}',
                hint=error.hint,
                code="HUB-2150",
            ) from None

    def _record_schema(self, schema_id: int, schema_type: str) -> AvroType | None:
        """Return the record schema of type ``schema_type`` behind an id that no subject of the topics has;
        None if there is none.

        Always None for Protobuf: a message is identified only by its place in its own file.
        """
        try:
            if schema_type != "AVRO":
                other = self._registry.source(schema_id)
                return {} if other.schema_type == schema_type == "JSON" else None
            parsed: AvroType = orjson.loads(self._registry.schema(schema_id))
            field_types(parsed)
        except (NotFound, ConfigError, ValueError):
            return None
        except HubError as error:
            if error.retriable:
                raise
            return None
        return parsed


def _avro(version: RegisteredSchema) -> AvroType:
    """Return the schema that a version's events are decoded with; {} for formats whose newest schema reads
    them all."""
    return orjson.loads(version.schema) if version.schema_type == "AVRO" else {}
