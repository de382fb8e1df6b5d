"""[shell] Compile a view against the existing topics and schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import ConfigError
from hub.log import TopicDescription, ensure_topic
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_plan import RULES, EntityPlan
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.parts import EngineParts
from hub.materializers.engine.plans.fingerprints import entity_fingerprint, sql_fingerprint, with_functions
from hub.materializers.engine.plans.source_schemas import SchemaReader
from hub.materializers.planning import exact_numbers
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_plan import DeltaPlan
from hub.materializers.planning.validation import check_python
from hub.materializers.spark import delta_stream, sql_stream
from hub.materializers.spark import session as spark
from hub.materializers.spark.building.builder import ViewBuilder
from hub.materializers.spark.formats.decode import Input
from hub.materializers.spark.formats.decryption import Opening
from hub.materializers.spark.python_udfs import own_session
from hub.materializers.types.avro_types import AvroType


@dataclass(frozen=True, slots=True)
class CompiledView:
    """A view compiled against the existing topics and schemas. Has ``shape`` (entity view) or ``classified``
    (SQL view). ``rules``: see entity_plan.RULES."""

    view: View | SqlView
    inputs: tuple[Input, ...]
    row_schema: AvroType
    fingerprint: str
    rules: int
    shape: EntityPlan | None = None
    classified: Classified | None = None
    delta: DeltaPlan | None = None

    @property
    def topics(self) -> list[str]:
        """The topics that it reads, in order."""
        return sorted({topic for each in self.inputs for topic in each.topics})

    def pins(self) -> dict[str, Any]:
        """Return the schemas and topics that a version reads, so that it can continue when its topics have
        other schemas.

        ``resolves``: its columns have the defaults and aliases of these schemas.
        """
        return {
            "resolves": True,
            "rules": self.rules,
            "latest": {each.source.name: each.latest for each in self.inputs},
            "reads": {name: source.topic for name, source in self.view.sources.items()},
        }


class ViewCompiler:
    """Compiles one view again and again. ``session``: the one that runs it, its own one while it has Python
    functions."""

    def __init__(self, parts: EngineParts, schemas: SchemaReader) -> None:
        self._parts = parts
        self._schemas = schemas
        self._shared = parts.session
        self._row_schema: tuple[tuple[str, tuple[Input, ...]], AvroType] | None = None
        self._builder = ViewBuilder(parts.settings)
        self.session = parts.session

    def compile(
        self,
        view: View | SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None = None,
        rules: int = RULES,
    ) -> CompiledView:
        """Compile a view. ``pinned``: the schemas and topics that it was created with. ``rules``: see
        entity_plan.RULES."""
        check_python(view, self._parts.settings.transforms)
        if isinstance(view, SqlView):
            return self._sql(view, topics, pinned, rules)
        compiled, inputs = self._entity_inputs(view, topics, pinned, rules)
        if view.mode == "realtime":
            _check_realtime(view, inputs)
        self.session = own_session(self._shared, view)
        fingerprint = with_functions(entity_fingerprint(compiled, inputs), view)
        schema = self._cached_schema(
            fingerprint, inputs, lambda: spark.row_schema(self.session, compiled, inputs)
        )
        return CompiledView(view, inputs, schema, fingerprint, rules, shape=compiled)

    def _sql(
        self,
        declared: SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
        rules: int,
    ) -> CompiledView:
        view = self._resolved(declared, pinned)
        found = self._schemas.of_view(view, topics, pinned)
        schemas = {name: latest for name, (_, _, latest) in found.items()}
        view = self._builder.built(view, schemas)
        query = checked(view, schemas)
        classified, inputs = classify(query), sql_stream.inputs_of(query, found)
        classified = exact_numbers.of_classified(classified, rules)
        if view.mode == "realtime":
            _check_realtime(view, inputs)
        delta: DeltaPlan | None = None
        if not classified.native:
            delta, schema = delta_stream.planned(self.session, view, classified, inputs)
            delta = exact_numbers.of_plan(delta, rules)
        fingerprint = with_functions(sql_fingerprint(classified, inputs, delta, rules), view)
        if delta is None:
            schema = self._cached_schema(
                fingerprint,
                inputs,
                lambda: sql_stream.row_schema(self.session, view, classified, inputs),
            )
        return CompiledView(view, inputs, schema, fingerprint, rules, classified=classified, delta=delta)

    def _cached_schema(
        self, fingerprint: str, inputs: tuple[Input, ...], analyze: Callable[[], AvroType]
    ) -> AvroType:
        """Return the schema of the view's rows, cached by fingerprint and inputs.

        A view is planned again for each mode, and Spark's analysis takes most of that time.
        """
        key = (fingerprint, inputs)
        if self._row_schema is None or self._row_schema[0] != key:
            self._row_schema = (key, analyze())
        return self._row_schema[1]

    def _resolved(self, view: SqlView, pinned: Mapping[str, Any] | None) -> SqlView:
        """Return the view with the changelogs of the versions of other views that are served now."""
        sources = {
            name: source
            if source.view is None
            else source.model_copy(
                update={
                    "topic": pinned["reads"][name]
                    if pinned is not None
                    else changelog_of(self._parts.versions.served(source.view))
                }
            )
            for name, source in view.sources.items()
        }
        return view.model_copy(update={"sources": sources})

    def _entity_inputs(
        self,
        view: View,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
        rules: int,
    ) -> tuple[EntityPlan, tuple[Input, ...]]:
        if view.expiry_topic is not None and view.expiry_topic not in topics:
            # The last expiry of a key is the latest one: one record per key is enough.
            config = {"cleanup.policy": "compact", "retention.ms": "-1"}
            copies = self._parts.settings.replication_factor
            ensure_topic(self._parts.cluster, view.expiry_topic, config, replication_factor=copies)
            topics = self._parts.cluster.topics()
        found = self._schemas.of_view(view, topics, pinned)
        compiled = shape(view, {name: latest for name, (_, _, latest) in found.items()}, rules)
        expiry = () if compiled.expiry is None else (compiled.expiry,)
        inputs = tuple(
            Input(source, *found[source.name], self._opening(view, source.name))
            for source in (*compiled.sources, *expiry)
        )
        return compiled, inputs

    def _opening(self, view: View, name: str) -> Opening | None:
        """Return a source's access to keys. Raises ConfigError (HUB-2155) if the settings have none."""
        source, settings = view.sources.get(name), self._parts.settings
        if source is None or not source.decrypt:
            return None
        if not settings.kms:
            raise ConfigError(
                f'view "{view.name}": source "{name}": `decrypt` needs `kms`, and hub.yaml has none',
                hint="write `kms` in hub.yaml: docs/how-to/encrypt-fields.md",
                code="HUB-2155",
            )
        kms = orjson.dumps([each.model_dump() for each in settings.kms]).decode()
        project = str(settings.project.expanduser().absolute())
        return Opening(settings.registry, kms, project, settings.kafka_timeout_s, settings.erase_key_cache_s)


def _check_realtime(view: View | SqlView, inputs: Sequence[Input]) -> None:
    """Raise ConfigError (HUB-2108) for sources that need batches, which real-time mode does not have."""
    for given in inputs:
        if given.opening is not None or (given.reading is not None and given.reading.form == "protobuf"):
            what = "Protobuf" if given.opening is None else "what is encrypted"
            raise ConfigError(
                f'view "{view.name}": source "{given.source.name}": {what} is read in batches, '
                "and real-time mode has none",
                hint="write `mode: live`",
                code="HUB-2108",
            )
