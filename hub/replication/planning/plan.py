"""[core] Plan of a mirror: what has to be done at the target before records can flow, and what forbids it. A
three-way diff.

The last synced state, the source and the target are compared setting by setting. Changes at the source are
copied; changes by a person at the target stay and are reported; so a deleted override does not come back, and
no past alertswritten by mistake. Durability is never lowered. Schemas come first, with their ids, because a
record without its schema is unreadable.

A refusal concerns one topic; the others are mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from hub.errors import HubFault
from hub.log import TopicDescription, same_setting
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import CONTROL_TOPIC, Checkpoint
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
from hub.replication.rewriting.filter_history import AS_THEY_ARE, FilterVersion
from hub.replication.rewriting.record_filter import has_field, objection, shape_of
from hub.topics.tree.plan import Caution, TreeRefusal
from hub.topics.tree.tree import collisions

# Settings that are copied from the source. All others are left to the target.
COPIED_SETTINGS: frozenset[str] = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
# Settings that the copy needs, whatever the source has: records keep their timestamps, and may be old.
_NEEDED: Mapping[str, str] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
}
_NEVER: frozenset[str] = frozenset(_NEEDED)
_UNLIMITED = -1

Operation = str
PatternType = Literal["LITERAL", "PREFIXED"]


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One access rule in Kafka's terms. ``name`` "*" with LITERAL means every resource of its kind."""

    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Literal["ALLOW", "DENY"]
    resource: Literal["TOPIC", "TRANSACTIONAL_ID", "CLUSTER"] = "TOPIC"

    def holds_for(self, topic: str) -> bool:
        """Return whether the rule applies to a topic."""
        return self.resource == "TOPIC" and self.covers(topic)

    def covers(self, name: str) -> bool:
        """Return whether the rule covers a resource of its kind with this name."""
        if self.pattern == "PREFIXED":
            return name.startswith(self.name)
        return self.name in ("*", name)


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """State of one cluster. ``topics`` have their own settings, ``defaults`` the values of unset ones.

    ``checks_access`` False: the cluster has no authorizer. ``registry``: content of its registry's default
    context; None where there is no registry. ``begins`` and ``ends``: offsets of the topics in question,
    uncommitted records included. ``refused``: topics that the mirror's user may not describe. ``void``:
    topics that were read through and have no committed record, whatever their offsets.
    """

    topics: Mapping[str, TopicDescription]
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    brokers: int = 1
    begins: Positions = field(default_factory=Positions)
    ends: Positions = field(default_factory=Positions)
    acls: frozenset[Acl] = frozenset()
    checks_access: bool = True
    registry: RegistrySide | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    void: frozenset[str] = frozenset()

    def effective(self, topic: str, key: str) -> str | None:
        found = self.topics.get(topic)
        return self.defaults.get(key) if found is None else found.config.get(key, self.defaults.get(key))


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """Last synced state of one topic: the settings of the source, and the copied rules."""

    mirror: str
    topic: str
    config: Mapping[str, str]
    acls: frozenset[Acl] = frozenset()

    def record(self) -> NewRecord:
        rules = [
            [a.name, a.pattern, a.principal, a.host, a.operation, a.permission] for a in sorted(self.acls)
        ]
        body = {"config": dict(self.config), "acls": rules}
        return NewRecord(CONTROL_TOPIC, f"synced|{self.mirror}|{self.topic}".encode(), orjson.dumps(body))


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
        raise HubFault(
            f"{record.topic}, partition {record.partition}, offset {record.offset}: not what a "
            f"mirror writes ({error!r})",
            hint="something else writes to this topic, or a newer hub did",
            code="HUB-5603",
        ) from None


@dataclass(frozen=True, slots=True)
class CreateTargetTopic:
    topic: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]

    def __str__(self) -> str:
        settings = "".join(f", {key}={value}" for key, value in sorted(self.config.items()))
        return (
            f"+ topic {self.topic}  partitions={self.partitions}, "
            f"replication={self.replication_factor}{settings}"
        )


@dataclass(frozen=True, slots=True)
class AddTargetPartitions:
    topic: str
    now: int
    total: int

    def __str__(self) -> str:
        return f"~ topic {self.topic}  partitions {self.now} -> {self.total}"


@dataclass(frozen=True, slots=True)
class AlterTargetConfig:
    """Change of settings. ``changes``: key to (present value, new value); None is the cluster's default."""

    topic: str
    changes: Mapping[str, tuple[str | None, str | None]]

    def __str__(self) -> str:
        said = ", ".join(
            f"{key} {old or 'default'} -> {new or 'default'}" for key, (old, new) in self.changes.items()
        )
        return f"~ topic {self.topic}  {said}"


@dataclass(frozen=True, slots=True)
class AlterAcls:
    topic: str
    add: tuple[Acl, ...]
    remove: tuple[Acl, ...]

    def __str__(self) -> str:
        said = [f"+{a.principal} {a.operation}" for a in self.add] + [
            f"-{a.principal} {a.operation}" for a in self.remove
        ]
        return f"~ acls {self.topic}  {', '.join(said)}"


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """The source's topic was recreated: its records follow those of the former one, with a separate map."""

    topic: str
    old_id: str
    new_id: str
    generation: int

    def __str__(self) -> str:
        return (
            f"~ topic {self.topic}  generation {self.generation}: made again at the source, "
            "appended at the target"
        )


@dataclass(frozen=True, slots=True)
class Remember:
    """Record what is synced now: the third side of the next diff."""

    topic: str
    synced: SyncedTopic | SyncedSubject

    def __str__(self) -> str:
        return f"= topic {self.topic}  remembered as synced"


Step = (
    ImportSchema
    | RegisterTargetSchema
    | DeleteSchema
    | SetSubject
    | CreateTargetTopic
    | AddTargetPartitions
    | AlterTargetConfig
    | AlterAcls
    | NewGeneration
    | Remember
)

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

    ``own_ids``: the topics whose records get the schema ids of the target's registry.
    """

    steps: tuple[Step, ...]
    refusals: tuple[TreeRefusal, ...]
    cautions: tuple[Caution, ...]
    own_ids: frozenset[str] = frozenset()

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
    known = synced or {}
    marks: dict[str, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        marks.setdefault(checkpoint.topic, []).append(checkpoint)
    steps: list[Step] = []
    refusals: list[TreeRefusal] = []
    cautions: list[Caution] = []
    shared: set[Step] = set()
    own_ids: set[str] = set()
    carried = sorted(topic for topic in set(topics) if topic in source.topics)
    clashing = {
        one for group in collisions({*carried, *target.topics}) for one in group if one not in target.topics
    }
    here = source.registry.versions if source.registry is not None else ()
    schemas = found_in(here, mirror, carried, frozenset(source.topics))
    both = _Registries(name, mirror, schemas, source.registry, target.registry, synced_subjects or {})
    for topic in carried:
        if closed := [
            (end, each.refused[topic])
            for end, each in (("source", source), ("target", target))
            if topic in each.refused
        ]:
            refusals += [
                _refusal(
                    topic,
                    f"its settings cannot be read at the {end}: {why}",
                    f"let the mirror's user DescribeConfigs of the topic at the {end}, or exclude the topic",
                )
                for end, why in closed
            ]
            continue
        one = _TopicSides(name, mirror, topic, source, target, known.get(topic), marks.get(topic, []))
        found = list(one.refusals())
        if topic in clashing:
            found.append(
                _refusal(
                    topic,
                    "its name collides with another's at the target",
                    "Kafka's metrics have _ for .: exclude one of the two",
                )
            )
        then = [rules for tp, rules in (ruled or {}).items() if tp.topic == topic]
        rewrites, clash = both.ids_of(topic, then)
        if rewrites:
            own_ids.add(topic)
        found += clash
        found += _mask_refusals(mirror, topic, schemas)
        now = FilterVersion.now(mirror, topic, secrets, rewrites=rewrites)
        found += _rules_refusals(now, topic, source, marks.get(topic, []), ruled or {})
        refusals += found
        if not found:
            steps += _not_yet(both.steps(topic, rewrites=rewrites), shared)
            steps += one.steps()
            cautions += one.cautions
    cautions += _unknown_fields(mirror, carried, schemas)
    if carried:
        steps += _not_yet(both.record_steps(), shared)
        cautions += both.cautions
    steps.sort(key=lambda step: _RANK[type(step)])
    return MirrorPlan(tuple(steps), tuple(refusals), tuple(cautions), frozenset(own_ids))


def _not_yet(found: Iterable[Step], shared: set[Step]) -> Iterator[Step]:
    """Yield the steps that no earlier topic has: several topics may refer to one schema."""
    for step in found:
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
        return False, [_refusal(topic, clash.reason, hint)]

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


@dataclass
class _TopicSides:
    """One topic on three sides: source, target, last synced state."""

    link: str
    mirror: Mirror
    name: str
    source: ClusterSide
    target: ClusterSide
    synced: SyncedTopic | None
    marks: Sequence[Checkpoint]
    cautions: list[Caution] = field(default_factory=list)

    @property
    def there(self) -> TopicDescription | None:
        return self.target.topics.get(self.name)

    @property
    def here(self) -> TopicDescription:
        return self.source.topics[self.name]

    def refusals(self) -> Iterator[TreeRefusal]:
        yield from self._identity()
        if self.there is not None:
            yield from self._limits(self.there)

    def steps(self) -> Iterator[Step]:
        if self.there is None:
            yield self._create()
        else:
            yield from self._partitions(self.there)
            yield from self._config(self.there)
        add, remove, copied = self._acls()
        if add or remove:
            yield AlterAcls(self.name, add, remove)
        ids = {mark.topic_id for mark in self.marks}
        newest = max(self.marks, key=lambda mark: mark.generation, default=None)
        if newest is not None and self.here.topic_id not in ids:
            yield NewGeneration(self.name, newest.topic_id, self.here.topic_id, newest.generation + 1)
        now = SyncedTopic(
            self.link, self.name, {k: v for k, v in self.here.config.items() if k in self._copied}, copied
        )
        if now != self.synced:
            yield Remember(self.name, now)

    def _identity(self) -> Iterator[TreeRefusal]:
        """Check that both topics are those of the checkpoints."""
        there = self.there
        if not self.marks:
            ends = [end for tp, end in self.target.ends if tp.topic == self.name]
            # Offsets alone do not prove data: a worker that died before its very first commit leaves aborted
            # records, and no checkpoint. The engine checks each partition again, once every transaction in it
            # has ended.
            if there is not None and any(ends) and self.name not in self.target.void:
                yield _refusal(
                    self.name,
                    f"the target has {sum(ends)} offsets of data and no checkpoint of this mirror",
                    "something else wrote it: keep it, and exclude the topic from this mirror or let another"
                    " cluster own it",
                )
            return
        newest = max(mark.generation for mark in self.marks)
        if (
            self.here.topic_id not in {mark.topic_id for mark in self.marks}
            and self.mirror.on_recreate == "stop"
        ):
            yield _refusal(
                self.name,
                "it was deleted and created again at the source",
                "set `on_recreate: continue` to append the new topic's records, or drop "
                "the copy and start again",
            )
        refused = [self._other_copy(mark) for mark in self.marks if mark.generation == newest]
        yield from dict.fromkeys(each for each in refused if each is not None)

    def _other_copy(self, mark: Checkpoint) -> TreeRefusal | None:
        """Return why the target's topic is not the copy of a checkpoint."""
        there, again = (
            self.there,
            "`hub mirror drop` forgets the checkpoint, then it is mirrored from its start",
        )
        if there is None:
            # Without an id and an offset, nothing was mirrored: see operations/never_mirrored.py.
            if not mark.target_topic_id and not mark.target_next:
                return None
            return _refusal(self.name, "the target's topic is gone, but there is a checkpoint", again)
        if mark.target_topic_id and mark.target_topic_id != there.topic_id:
            return _refusal(
                self.name,
                "the target's topic was deleted and made again since the last checkpoint",
                again,
            )
        end = self.target.ends.offsets.get(TopicPartition(self.name, mark.partition))
        if end is None or end >= mark.target_next:
            return None
        return _refusal(
            self.name,
            f"partition {mark.partition} ends at {end} at the target, but {mark.target_next} were written",
            "the target lost records it had acknowledged: `hub mirror verify` lists them",
        )

    def _limits(self, there: TopicDescription) -> Iterator[TreeRefusal]:
        """Refuse limits that a person set at the target and that the source's records would exceed."""
        for key, needed in _NEEDED.items():
            own = there.config.get(key)
            if key == "compression.type" and self.mirror.engine == "record":
                continue
            if own is not None and not same_setting(own, needed):
                yield _refusal(self.name, *_WHY_NEEDED[key](own, needed))
        wanted = _whole(self.source.effective(self.name, "max.message.bytes"))
        most = _whole(there.config.get("max.message.bytes"))
        if (
            wanted is not None
            and most is not None
            and most < wanted
            and self._theirs("max.message.bytes", there)
        ):
            yield _refusal(
                self.name,
                f"max.message.bytes is {most} at the target and {wanted} at the source: large "
                "records would not fit",
                f"set it to {wanted} at the target, or back to its default",
            )

    def _create(self) -> CreateTargetTopic:
        config = {key: value for key, value in self.here.config.items() if key in self._copied}
        for key in sorted(self._copied - config.keys()):
            mine, theirs = self.source.effective(self.name, key), self.target.defaults.get(key)
            if (
                mine is not None
                and theirs is not None
                and not same_setting(mine, theirs)
                and _narrower(key, theirs, mine)
            ):
                config[key] = mine
        for key in _RAISED_ONLY:
            theirs = self.target.defaults.get(key)
            if key in config and theirs is not None and _narrower(key, config[key], theirs):
                del config[key]
        for key, needed in _NEEDED.items():
            if not same_setting(self.target.defaults.get(key), needed):
                config[key] = needed
        replicas = min(self.here.replication_factor, self.target.brokers)
        if replicas < self.here.replication_factor:
            self._caution(
                f"{replicas} replicas at the target, {self.here.replication_factor} at the source: "
                "it has too few brokers",
                "add brokers to the target, then raise the replication factor",
            )
        least = _whole(config.get("min.insync.replicas", self.target.defaults.get("min.insync.replicas")))
        if least is not None and least > replicas:
            config["min.insync.replicas"] = str(replicas)
            self._caution(
                f"min.insync.replicas is {replicas}, for the target has no more brokers",
                "raise both together later",
            )
        return CreateTargetTopic(self.name, self.here.partitions, replicas, config)

    def _partitions(self, there: TopicDescription) -> Iterator[Step]:
        if there.partitions < self.here.partitions:
            yield AddTargetPartitions(self.name, there.partitions, self.here.partitions)
        elif there.partitions > self.here.partitions:
            self._caution(
                f"{there.partitions} partitions at the target, {self.here.partitions} at the source: "
                "the others stay empty,"
                " and after a failover keys go elsewhere",
                f"add partitions at the source, up to {there.partitions}",
            )

    def _config(self, there: TopicDescription) -> Iterator[Step]:
        changes: dict[str, tuple[str | None, str | None]] = {}
        for key in sorted(self._copied):
            mine, theirs = self.here.config.get(key), there.config.get(key)
            if same_setting(mine, theirs):
                continue
            last = self.synced.config.get(key) if self.synced is not None else None
            if same_setting(mine, last) and self.synced is not None:
                self._caution(
                    f"{key} was changed at the target to {theirs or 'default'}: left so",
                    "change it at the source to have it everywhere",
                )
            elif not same_setting(theirs, last):
                self._caution(
                    f"{key} is {mine or 'default'} at the source and {theirs or 'default'} at the "
                    "target, both set by hand:"
                    " left so",
                    "make them equal, or set the target's back to its default",
                )
            elif self._follows(key, there, mine):
                changes[key] = (theirs, mine)
        for key, needed in _NEEDED.items():
            if key not in there.config and not same_setting(self.target.defaults.get(key), needed):
                changes[key] = (None, needed)
        key = "max.message.bytes"
        mine, theirs = self.source.effective(self.name, key), self.target.defaults.get(key)
        unsaid = key not in there.config and key not in changes and key in self._copied
        if unsaid and mine is not None and theirs is not None and _narrower(key, theirs, mine):
            changes[key] = (None, mine)
        if changes:
            yield AlterTargetConfig(self.name, changes)

    def _follows(self, key: str, there: TopicDescription, mine: str | None) -> bool:
        """Return whether a change of the source is copied; reports what the change would lose."""
        after = mine if mine is not None else self.target.defaults.get(key)
        before = there.config.get(key, self.target.defaults.get(key))
        narrower = before is not None and after is not None and _narrower(key, after, before)
        if narrower and key in _RAISED_ONLY:
            self._caution(
                f"{key} {before} is kept: {after} at the source is less durable",
                "lower it at the target by hand, when it is meant",
            )
            return False
        if narrower and key in _LOSING:
            self._caution(
                f"{key} {before} -> {after}: records that are older or more are deleted at the target too",
                "raise it at the source to keep them",
            )
        return True

    def _acls(self) -> tuple[tuple[Acl, ...], tuple[Acl, ...], frozenset[Acl]]:
        """Return (rules to add, rules to remove, rules that are the hub's afterwards)."""
        ours = self.synced.acls if self.synced is not None else frozenset[Acl]()
        if not self.mirror.acls.copy_:
            return (), (), ours
        wanted = frozenset(
            copied for acl in self.source.acls if acl.holds_for(self.name) for copied in self._copies(acl)
        )
        add = wanted - self.target.acls
        remove = (ours - wanted) & self.target.acls
        return tuple(sorted(add)), tuple(sorted(remove)), (wanted & ours) | add

    def _copies(self, acl: Acl) -> Iterator[Acl]:
        """Yield the rule for this topic alone: a prefixed or general rule would grant access to topics that
        are not mirrored.
        """
        principal = self.mirror.acls.principals.get(acl.principal, acl.principal)
        for operation in _operations(acl, self.mirror.acls.write):
            yield Acl(self.name, "LITERAL", principal, acl.host, operation, acl.permission)

    @property
    def _copied(self) -> frozenset[str]:
        return (COPIED_SETTINGS | frozenset(self.mirror.configs)) - _NEVER

    def _theirs(self, key: str, there: TopicDescription) -> bool:
        """Return whether a person set the target's value, so that no step of this plan changes it."""
        last = self.synced.config.get(key) if self.synced is not None else None
        return not same_setting(there.config.get(key), last)

    def _caution(self, reason: str, hint: str) -> None:
        self.cautions.append(Caution(self.name, reason, hint))


_WHY_NEEDED: Mapping[str, Callable[[str, str], tuple[str, str]]] = {
    "compression.type": lambda own, needed: (
        f"compression.type is {own} at the target: its brokers would compress every batch again",
        "set it to producer, or say `engine: record` for the mirror",
    ),
    "message.timestamp.type": lambda own, needed: (
        f"message.timestamp.type is {own} at the target: it would overwrite every record's time",
        "set it to CreateTime",
    ),
    "message.timestamp.before.max.ms": lambda own, needed: (
        f"message.timestamp.before.max.ms is {own} at the target: it would refuse older records",
        "remove the setting: the default is unlimited",
    ),
}

# Settings whose lower value is less durable: the target keeps the higher.
_RAISED_ONLY: frozenset[str] = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
# Settings whose lower value deletes records.
_LOSING: frozenset[str] = frozenset(
    {"retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes"}
)


def _narrower(key: str, one: str, other: str) -> bool:
    """Return whether ``one`` retains or accepts less than ``other``."""
    if key == "cleanup.policy":
        return "delete" in one and "delete" not in other
    if key == "unclean.leader.election.enable":
        return one.lower() == "true" and other.lower() != "true"
    mine, theirs = _whole(one), _whole(other)
    if mine is None or theirs is None or mine == theirs:
        return False
    if key.startswith("retention."):
        return mine != _UNLIMITED and (theirs == _UNLIMITED or mine < theirs)
    return mine < theirs


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _operations(acl: Acl, write: bool) -> Iterable[str]:
    """Return the operations of a rule that are copied. A DENY always is; of an ALLOW those that read, and
    WRITE if requested.
    """
    if acl.permission == "DENY":
        return (acl.operation,)
    reading = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    if acl.operation == "ALL":
        return (*reading, "WRITE") if write else reading
    return (acl.operation,) if acl.operation in reading or (write and acl.operation == "WRITE") else ()


def _mask_refusals(mirror: Mirror, topic: str, schemas: RegistryVersions) -> Iterator[TreeRefusal]:
    """Refuse a mask that the schema of a value does not allow, before the first record fails."""
    shape = shape_of(mirror, topic)
    if shape is None:
        return
    for each in schemas.of(topic):
        if each.subject != f"{topic}-value":
            continue
        why = objection(shape, each.kind, each.text)
        if why is not None:
            yield _refusal(
                topic,
                f"a mask does not fit {each.subject} v{each.version}: {why}",
                "mask it in another way (`with: hash`, `null` or `redact`), correct the "
                "schema, or exclude the topic",
            )
            return


def ruled_otherwise(
    now: FilterVersion, marks: Iterable[Checkpoint], ruled: Mapping[TopicPartition, FilterVersion]
) -> list[Checkpoint]:
    """Return the checkpoints of partitions with records that were mirrored under rules other than ``now``."""
    return [
        mark
        for mark in marks
        if mark.source_next > mark.source_start
        and not now.goes_on_from(ruled.get(TopicPartition(mark.topic, mark.partition), AS_THEY_ARE))
    ]


def _rules_refusals(
    now: FilterVersion,
    topic: str,
    source: ClusterSide,
    marks: Iterable[Checkpoint],
    ruled: Mapping[TopicPartition, FilterVersion],
) -> Iterator[TreeRefusal]:
    """Refuse to continue a copy under other rules; a copy of two kinds needs an explicit request."""
    same_topic = [mark for mark in marks if mark.topic_id == source.topics[topic].topic_id]
    others = ruled_otherwise(now, same_topic, ruled)
    if not others:
        return
    then = ruled.get(TopicPartition(topic, others[0].partition), AS_THEY_ARE)
    what = f"now: {now}" if str(now) != str(then) else "the key of a hash is another now"
    count = sum(mark.source_next - mark.source_start for mark in others)
    yield _refusal(
        topic,
        f"{count} offsets of it were mirrored under other rules ({then}; {what})",
        "`hub mirror apply --from-now` applies the rules of the file from here on and keeps existing "
        "records; to apply them to all records, run `hub mirror drop` with --delete-copies, and the topic "
        "is mirrored again",
    )


def _unknown_fields(mirror: Mirror, topics: Sequence[str], schemas: RegistryVersions) -> Iterator[Caution]:
    """Warn of mask fields that no schema of the topics has: a misspelled field masks nothing."""
    known: dict[str, tuple[str, bool]] = {}
    for topic in topics:
        shape = shape_of(mirror, topic)
        values = [each for each in schemas.of(topic) if each.subject == f"{topic}-value"]
        for path, _, _ in shape.masks if shape is not None and values else ():
            first, found = known.get(path, (topic, False))
            known[path] = first, found or any(has_field(path, each.kind, each.text) for each in values)
    for path, (topic, found) in known.items():
        if not found:
            yield Caution(
                topic,
                f'the mask of "{path}" masks nothing: no schema of the mirror\'s topics has such a field',
                "is it spelled as in the schema? A path goes from the value's top, with dots",
            )


def _refusal(topic: str, reason: str, hint: str) -> TreeRefusal:
    return TreeRefusal(topic, reason, hint)
