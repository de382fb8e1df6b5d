"""[shell] Plan a version of a view: its definition, schemas, topics, generation and task slots.

A plan is stale when the view's file changed, a topic that it reads was recreated, has grown or has joined a
pattern, an unknown schema id appeared, or another version of a source view is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from hub.errors import HubError
from hub.log import TopicDescription
from hub.materializers.definition.declared import table_of_changelog
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import definition_text, files_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.engine.plans.compile import CompiledView, ViewCompiler
from hub.materializers.engine.plans.definitions import DefinitionChoice, definition_of, in_place
from hub.materializers.engine.plans.generations import GenerationChoice
from hub.materializers.engine.plans.schema_watch import SchemaWatch
from hub.materializers.engine.plans.slot_demand import slots_of
from hub.materializers.engine.plans.source_schemas import SchemaReader
from hub.materializers.engine.plans.topics import (
    ensure_dead_letter_topic,
    ensure_room,
    feeds,
    largest_records,
)
from hub.materializers.engine.plans.transactions import cut_rules
from hub.materializers.source_transactions.cuts import CutRules
from hub.materializers.spark import session as spark
from hub.materializers.spark.formats.decode import DLQ_SUFFIX, Input
from hub.materializers.spark.pyspark_types import SparkSession
from hub.materializers.spark.sql_stream import SqlPlan
from hub.materializers.versions.versions import VersionOpened

AnyPlan = spark.ViewPlan | SqlPlan
# Id and partition count of each topic that a plan reads.
TopicIds = Mapping[str, tuple[str, int]]

_COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "604800000"}


class ViewPlanner:
    """Plans one version of a view. The attributes describe its last plan.

    ``reads``: topics that it reads. ``label``: its snapshot group. ``has_slots``: it claimed task slots.
    ``checkpoint``: folder of its generation.
    """

    def __init__(self, parts: EngineParts, name: VersionName) -> None:
        self._parts = parts
        self._name = name
        settings = parts.settings
        self.schemas = SchemaWatch(parts.cluster, parts.registry, name.table)
        self.folder = CheckpointFolder(settings.checkpoints, name.view, name.table, settings.damaged_rebuilds)
        reader = SchemaReader(parts.registry, self.schemas, settings.project)
        self._compiler = ViewCompiler(parts, reader)
        self._definitions = DefinitionChoice(parts, name, self._compiler, self.folder)
        self._generations = GenerationChoice(parts, name, self.folder)
        self._stamp: tuple[int, ...] = ()  # modification times of its files when they were last read
        self._topic_ids: TopicIds = {}
        self.view: View | SqlView | None = None
        self.label: str | None = None
        self.reads: frozenset[str] = frozenset()
        self.has_slots = False
        self.checkpoint: Path | None = None
        self.cut_rules: CutRules | None = None  # of a view that stops between source transactions only

    @property
    def session(self) -> SparkSession:
        """The session that runs the view."""
        return self._compiler.session

    @property
    def trouble(self) -> str | None:
        """Why the view's file was rejected; None: it was not."""
        return self._definitions.trouble

    @property
    def served(self) -> bool:
        return self._parts.versions.served(self._name.view) == self._name.table

    def plan(self) -> AnyPlan:
        """Plan the version. Creates its topics, registers its rows' schema and claims its slots.

        Raises HubError when it cannot be planned, FileNotFoundError when its file is gone.
        """
        topics = self._parts.cluster.topics()
        versions, view_name = self._parts.versions, self._name.view
        version = versions.version(view_name, self._name.suffix)
        self._stamp = stamp_of(self._name.path)
        text = definition_text(self._name.path)
        made = self._definitions.choose(topics, text)
        view = self.view = made.view
        if view.expiry_topic is not None:
            topics = self._parts.cluster.topics()  # the expiry topic may be new
        self.label = view.group
        self.schemas.topics = [topic for each in made.inputs for topic in each.topics]
        read = made.topics
        settings = self._parts.settings
        replaces = in_place(view, settings)
        self.cut_rules = cut_rules(view, read, topics, settings.live_events_per_batch, in_place=replaces)
        self.reads = frozenset(read)
        partitions = view.partitions or self._parts.settings.view_partitions
        self._ensure_topics(made, read, partitions)
        row_schema = orjson.dumps(made.row_schema).decode()
        schema_id = self._parts.registry.register(f"{view.changelog}-value", row_schema)
        ids = {topic: topics[topic].topic_id for topic in read}
        generation = self._generations.choose(made, ids, partitions)
        self.checkpoint = generation.checkpoint
        self._topic_ids = {topic: (ids[topic], topics[topic].partitions) for topic in read}
        if version is None:
            versions.submit(view_name, VersionOpened(generation.number, definition_of(made, text)))
        self._claim(view, topics, generation.partitions)
        ready = (
            made.inputs,
            self.schemas.answers(),
            made.row_schema,
            schema_id,
            generation.number,
            generation.checkpoint,
            generation.partitions,
        )
        if isinstance(view, SqlView):
            assert made.classified is not None
            return SqlPlan(view, made.classified, *ready, made.delta)
        assert made.shape is not None
        return spark.ViewPlan(made.shape, *ready, self._name.table)

    def _ensure_topics(self, made: CompiledView, read: Sequence[str], partitions: int) -> None:
        cluster, settings, view = self._parts.cluster, self._parts.settings, made.view
        largest = largest_records(cluster, read)
        # A row may contain the whole of one event of each source.
        ensure_room(cluster, view.changelog, partitions, _COMPACTED, sum(largest.values()), settings)
        for topic in read:
            ensure_dead_letter_topic(cluster, topic + DLQ_SUFFIX, largest[topic], settings)
        if isinstance(view, SqlView) and made.classified is not None and made.classified.late:
            ensure_dead_letter_topic(cluster, view.late_topic, max(largest.values()), settings)

    def _claim(self, view: View | SqlView, topics: Mapping[str, TopicDescription], state: int) -> None:
        """Claim the view's task slots if this version is the one that uses them.

        For a version that is being built, only check that it could have them at the swap. If it could not, it
        is refused, and the served version continues.
        """
        slots, served, name = self._parts.slots, self.served, self._name.view
        self.has_slots = view.mode == "realtime" and served
        if self.has_slots:
            slots.claim(name, *slots_of(view, topics, state))
        elif served:
            slots.release(name)
        elif view.mode == "realtime" and self._is_built():
            slots.check(name, *slots_of(view, topics, state))

    def _is_built(self) -> bool:
        version = self._parts.versions.version(self._name.view, self._name.suffix)
        return version is not None and version.state in ("building", "ready")

    def read_versions(self) -> dict[str, str]:
        """Return the version that is read of each source view, by view name."""
        sources = self.view.sources.values() if isinstance(self.view, SqlView) else ()
        return {
            source.view: table_of_changelog(source.topic) for source in sources if source.view is not None
        }

    def is_stale(self, plan: AnyPlan) -> bool | None:
        """Return True if the version has to be planned again; None: Kafka does not answer."""
        try:
            if stamp_of(self._name.path) != self._stamp and self._definitions.follows_file:
                return True
            topics = self._parts.cluster.topics()
            if self.schemas.appeared():
                return True
        except FileNotFoundError:
            return True
        except HubError:
            return None
        if not self._definitions.pinned and any(
            table != self._parts.versions.served(view) for view, table in self.read_versions().items()
        ):
            return True  # another version of a source view is served now
        return have_changed(self._topic_ids, plan.inputs, topics)


def have_changed(planned: TopicIds, inputs: Sequence[Input], topics: Mapping[str, TopicDescription]) -> bool:
    """Return True if the topics are not those that a plan was made for: one has more partitions, was
    recreated, or has joined or left a pattern. ``topics``: those that exist now."""
    current = {name: (topics[name].topic_id, topics[name].partitions) for name in planned if name in topics}
    if current != planned:
        return True
    return any(
        tuple(sorted(topic for topic in topics if feeds(each.source.topic, topic))) != each.topics
        for each in inputs
    )


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return the modification times of the files that define a view, in nanoseconds."""
    return tuple(each.stat().st_mtime_ns for each in files_of(path))
