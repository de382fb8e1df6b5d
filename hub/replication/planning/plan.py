"""[core] Plan of a mirror: what has to be done at the target before records can flow, and what forbids it. A
three-way diff.

The last synced state, the source and the target are compared setting by setting. Changes at the source are
copied; changes by a person at the target stay and are reported, or are put back (`drift: revert`). So a
deleted override does not come back, and no value of the past is written by mistake. Durability is never
lowered. Schemas come first, with their ids, because a record without its schema is unreadable.

A refusal concerns one topic; the others are mirrored.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.record import Record, TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import Checkpoint, not_ours
from hub.replication.planning.drift import FoundDrift
from hub.replication.planning.rule_refusals import (
    _unknown_fields,
    mask_refusals,
    name_refusals,
    refusal_of,
    rules_refusals,
)
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegisterTargetSchema,
    RegistrySide,
    RegistryVersions,
    SetSubject,
    SyncedSubject,
    collisions_of,
    found_in,
    level_caution,
    own_id_steps,
    preserving_steps,
    settings_steps,
)
from hub.replication.planning.steps import (
    Acl,
    AddTargetPartitions,
    AlterAcls,
    AlterTargetConfig,
    ClusterSide,
    CreateTargetTopic,
    NewGeneration,
    Remember,
    Step,
    SyncedTopic,
)
from hub.replication.planning.topic_plan import TopicSides
from hub.replication.rewriting.filter_history import FilterVersion
from hub.topics.tree.steps import Caution, TreeRefusal
from hub.topics.tree.tree import collisions


def synced_of(record: Record) -> SyncedTopic | None:
    """Parse the synced state in a record of the control topic; None for other kinds. Raises HubFault
    (HUB-5603).
    """
    if record.key is None or record.value is None or not record.key.startswith(b"synced|"):
        return None
    try:
        _, mirror, topic = record.key.decode().split("|")
        body: dict[str, Any] = orjson.loads(record.value)
        return SyncedTopic(mirror, topic, body["config"], frozenset(Acl(*row) for row in body["acls"]))
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None


_RANK: Mapping[type[Step], int] = {
    SetSubject: -2,  # a laxer compatibility level admits the versions; a mode does not affect an import
    ImportSchema: -1,
    RegisterTargetSchema: -1,
    DeleteSchema: 0,
    CreateTargetTopic: 1,
    AddTargetPartitions: 2,
    AlterTargetConfig: 3,
    AlterAcls: 4,
    NewGeneration: 5,
    Remember: 6,
}


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The steps in the order of execution. Topics with a refusal have no steps and are not mirrored.

    ``own_ids``: the topics whose records get the schema ids of the target's registry. ``drift``: by topic,
    what somebody changed at the copy.
    """

    steps: tuple[Step, ...]
    refusals: tuple[TreeRefusal, ...]
    cautions: tuple[Caution, ...]
    own_ids: frozenset[str] = frozenset()
    drift: Mapping[str, FoundDrift] = field(default_factory=dict)

    @property
    def blocked(self) -> frozenset[str]:
        return frozenset(refusal.topic for refusal in self.refusals)


def plan(
    name: str,
    mirror: Mirror,
    topics: Iterable[str],
    source: ClusterSide,
    target: ClusterSide,
    synced: Mapping[str, SyncedTopic] | None = None,
    checkpoints: Iterable[Checkpoint] = (),
    ruled: Mapping[TopicPartition, FilterVersion] | None = None,
    secrets: Mapping[str, str] | None = None,
    synced_subjects: Mapping[str, SyncedSubject] | None = None,
) -> MirrorPlan:
    """Plan the topics that a mirror carries (config/topology.py selects them). ``synced`` by topic.

    ``ruled``: the rules of each partition's newest records. ``secrets``: the available keys of masks.
    """
    synced_topics = synced or {}
    marks = _by_topic(checkpoints)
    steps, refusals, cautions = list[Step](), list[TreeRefusal](), list[Caution]()
    shared, own_ids, drift = set[Step](), set[str](), dict[str, FoundDrift]()
    carried = sorted(topic for topic in set(topics) if topic in source.topics)
    names = collisions({*carried, *target.topics})
    clashing = {one for group in names for one in group if one not in target.topics}
    here = source.registry.versions if source.registry is not None else ()
    schemas = found_in(here, mirror, carried, frozenset(source.topics))
    both = _Registries(name, mirror, schemas, source.registry, target.registry, synced_subjects or {})
    for topic in carried:
        if closed := list(_unreadable(topic, source, target)):
            refusals += closed
            continue
        one = TopicSides(name, mirror, topic, source, target, synced_topics.get(topic), marks.get(topic, []))
        found = _sides_refusals(one, clashing)
        then = [rules for tp, rules in (ruled or {}).items() if tp.topic == topic]
        rewrites, clash = both.ids_of(topic, then)
        own_ids |= {topic} if rewrites else set()
        found += [*clash, *mask_refusals(mirror, topic, schemas)]
        now = FilterVersion.now(mirror, topic, secrets, rewrites=rewrites)
        found += rules_refusals(now, topic, source, marks.get(topic, []), ruled or {})
        refusals += found
        if not found:
            steps += _not_yet(both.steps(topic, rewrites=rewrites), shared)
            steps += one.steps()
            cautions += one.cautions
            drift |= one.found_drift
    cautions += _unknown_fields(mirror, carried, schemas)
    if carried:
        steps += _not_yet(both.record_steps(), shared)
        cautions += both.cautions
    steps.sort(key=lambda step: _RANK[type(step)])
    return MirrorPlan(tuple(steps), tuple(refusals), tuple(cautions), frozenset(own_ids), drift)


def _sides_refusals(one: TopicSides, clashing: Container[str]) -> list[TreeRefusal]:
    names = list(name_refusals(one.link, one.mirror, one.name, one.target))
    return [*(names or one.refusals()), *([_colliding(one.name)] if one.name in clashing else ())]


def _by_topic(checkpoints: Iterable[Checkpoint]) -> dict[str, list[Checkpoint]]:
    found: dict[str, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        found.setdefault(checkpoint.topic, []).append(checkpoint)
    return found


def _unreadable(topic: str, source: ClusterSide, target: ClusterSide) -> Iterator[TreeRefusal]:
    """Yield a refusal for each side that does not let the mirror read the topic's settings."""
    for end, side in (("source", source), ("target", target)):
        if topic in side.refused:
            yield refusal_of(
                topic,
                f"its settings cannot be read at the {end}: {side.refused[topic]}",
                f"let the mirror's user DescribeConfigs of the topic at the {end}, or exclude the topic",
            )


def _colliding(topic: str) -> TreeRefusal:
    return refusal_of(
        topic,
        "its name collides with another's at the target",
        "Kafka's metrics have _ for .: exclude one of the two",
    )


def _not_yet(steps: Iterable[Step], shared: set[Step]) -> Iterator[Step]:
    """Yield the steps that no earlier topic has: several topics may refer to one schema."""
    for step in steps:
        alone = replace(step, topic="")
        if alone not in shared:
            shared.add(alone)
            yield step


@dataclass
class _Registries:
    """The registries of both sides, for the topics of one plan. Steps need both."""

    link: str
    mirror: Mirror
    found: RegistryVersions
    source: RegistrySide | None
    target: RegistrySide | None
    synced: Mapping[str, SyncedSubject]
    cautions: list[Caution] = field(default_factory=list)
    _clash: bool | None = None

    def ids_of(self, topic: str, ruled: Iterable[FilterVersion]) -> tuple[bool, list[TreeRefusal]]:
        """Return (whether the topic's records get the target's ids, refusals where ids must be kept and
        cannot).

        ``ruled``: the rules of its newest records; a topic whose ids were replaced once continues so.
        """
        ids = self.mirror.ids
        if ids == "rewrite":
            return True, []
        if self.source is None or self.target is None:
            return False, []
        if ids == "auto" and any(each.shape is not None and each.shape.rewrites_ids for each in ruled):
            return True, []
        own = self.found.of(topic)
        clash = next(collisions_of(self.found.with_references(own), self.target.versions), None)
        if ids == "auto":
            return clash is not None or (not own and self._records_clash()), []
        if clash is None:
            return False, []
        hint = (
            "say `schema_ids: auto` or `rewrite`, and the copy's records get the target's ids "
            "(docs/reference/mirrors.md); or use one registry for both"
        )
        return False, [refusal_of(topic, clash.reason, hint)]

    def _records_clash(self) -> bool:
        """Return whether a subject that is named after a record alone cannot keep its ids: any topic's
        records may carry them.
        """
        if self._clash is None:
            there = self.target.versions if self.target is not None else ()
            wanted = self.found.with_references(self.found.of_records)
            self._clash = next(collisions_of(wanted, there), None) is not None
        return self._clash

    def steps(self, topic: str, *, rewrites: bool) -> Iterator[Step]:
        """Yield the steps that make the topic's subjects at the target equal to the source's."""
        if self.source is None or self.target is None:
            return
        own = self.found.of(topic)
        subjects = dict.fromkeys([f"{topic}-key", f"{topic}-value", *(each.subject for each in own)])
        yield from self._settings(topic, subjects, owned=True)
        if rewrites:
            yield from own_id_steps(topic, own, self.target.versions)
        else:
            wanted = self.found.with_references(own)
            yield from preserving_steps(topic, wanted, self.target.versions, owned=frozenset(subjects))

    def record_steps(self) -> Iterator[Step]:
        """Yield the steps for subjects that are named after a record alone; the topic of such a step is the
        subject.
        """
        if self.source is None or self.target is None:
            return
        for subject in dict.fromkeys(each.subject for each in self.found.of_records):
            own = [each for each in self.found.of_records if each.subject == subject]
            wanted = self.found.with_references(own)
            yield from self._settings(subject, [subject], owned=False)
            clash = next(collisions_of(wanted, self.target.versions), None)
            if clash is None:
                yield from preserving_steps(subject, wanted, self.target.versions, owned=frozenset())
            elif self.mirror.ids == "keep":
                self.cautions.append(
                    Caution(
                        subject,
                        f"it is not carried: {clash.reason}. Records with this id would be "
                        "read by the wrong schema",
                        "leave `schema_ids` at auto, and the copy's records get the target's ids",
                    )
                )
        different = level_caution(self.source, self.target)
        if different is not None:
            self.cautions.append(different)

    def _settings(self, topic: str, subjects: Iterable[str], *, owned: bool) -> Iterator[Step]:
        assert self.source is not None and self.target is not None
        steps, cautions, equal = settings_steps(
            self.link, topic, subjects, self.source, self.target, self.synced, owned=owned
        )
        self.cautions += cautions
        yield from steps
        yield from (Remember(topic, each) for each in equal)
