"""[shell] Plan a change of one topic of topics.yaml, write the file, and apply it to the cluster.

Invariant: the file is written, whole, before the cluster is changed. After a kill in between, the plan of the
same topic has no difference of the file, and the steps that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hub.caller import Action, Kind, Resource, require
from hub.errors import ConfigError, NotFound
from hub.files import write_text
from hub.kafka import KafkaCluster
from hub.project_edits.project_file import is_writable, text_of
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.editing.change import TopicChange, TopicChangePlan, check_others, check_plan, shown
from hub.topics.editing.tree_text import edit_topic
from hub.topics.tree import saved_plan
from hub.topics.tree.apply_lock import one_apply
from hub.topics.tree.apply_plan import RegisteredSchemas, apply, read_schemas, read_topics, rehearsed
from hub.topics.tree.plan import Actual, TreePlan, plan
from hub.topics.tree.tree import TopicSpec, TopicTree, load


@dataclass(frozen=True, slots=True)
class _Prepared:
    shown: TopicChangePlan
    text: str
    made: TreePlan


@dataclass(frozen=True)
class TopicEditor:
    """The project's topics.yaml and its cluster. The caller needs ``admin`` on the topic."""

    path: Path
    cluster: KafkaCluster
    registry: RegistryClient
    replication_factor: int

    def plan(self, change: TopicChange) -> TopicChangePlan:
        """Return the plan as of now. Changes nothing. Raises CallerError, Conflict, ConfigError, Forbidden,
        PeerError."""
        return self._prepared(change).shown

    def apply(self, change: TopicChange, digest: str | None = None) -> TopicChangePlan:
        """Write topics.yaml and change the topic; return the plan that was carried out. ``digest``: of the
        plan that the caller saw. Raises the errors of ``plan`` and of ``check_plan``."""
        require(Action.admin, Resource(Kind.topic, change.topic))
        with one_apply(self.cluster, "topic editor", replication_factor=self.replication_factor) as hold:
            found = self._prepared(change)
            check_plan(found.shown, digest)
            hold.check()
            if found.shown.diff:
                write_text(self.path.resolve(), found.text)
            apply(found.made, self.cluster, self.registry, lambda _step: hold.check())
        return found.shown

    def _prepared(self, change: TopicChange) -> _Prepared:
        require(Action.admin, Resource(Kind.topic, change.topic))
        before = text_of(self.path)
        old = self._loaded(before) if before.strip() else TopicTree(())
        is_above = (spec.name for spec in old.topics if change.topic.startswith(f"{spec.name}."))
        text = edit_topic(before, change.topic, change.settings(), tuple(is_above))
        tree = self._loaded(text)
        check_others(change.topic, old, tree)
        spec = tree.find(change.topic)
        if spec is None:
            raise NotFound(
                f'topic "{change.topic}": its node in topics.yaml is not a topic',
                hint="`topic: true` makes it one, or name a topic below it",
            )
        made, facts = self._compared(spec)
        read_only = "" if is_writable(self.path) else "this server may not write topics.yaml"
        return _Prepared(shown(change, (before, text), spec, made, facts, read_only), text, made)

    def _compared(self, spec: TopicSpec) -> tuple[TreePlan, Mapping[str, str]]:
        """Return the plan of one topic without its schema, and the digests of the cluster and the topic."""
        alone = TopicTree((spec,))
        texts = read_schemas(alone)
        topics = read_topics(self.cluster, [spec.name])
        defaults = self.cluster.default_config(sorted(topics)[:1])
        made = plan(alone, Actual(topics, defaults), texts, None)
        schemas = RegisteredSchemas(self.registry)
        facts = saved_plan.facts(self.cluster.cluster_id(), [spec.name], topics, (), schemas)
        return rehearsed(replace(made, kept=()), self.cluster), facts

    def _loaded(self, text: str) -> TopicTree:
        """Load a text as the project's topics.yaml. Raises ConfigError with the place in that file."""
        with TemporaryDirectory(prefix="hub-topics-") as folder:
            draft = Path(folder) / self.path.name
            draft.write_bytes(text.encode())
            try:
                tree = load(draft, self.replication_factor)
            except ConfigError as error:
                where = error.where and error.where.replace(str(draft), str(self.path))
                raise ConfigError(error.message, hint=error.hint, where=where, code=error.code) from None
        return TopicTree(tuple(self._at_home(spec, draft.parent) for spec in tree.topics))

    def _at_home(self, spec: TopicSpec, folder: Path) -> TopicSpec:
        if spec.schema is None or not spec.schema.is_relative_to(folder):
            return spec
        return replace(spec, schema=self.path.parent / spec.schema.relative_to(folder))
