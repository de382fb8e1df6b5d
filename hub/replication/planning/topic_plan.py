"""[core] Steps and refusals for one topic of a mirror, compared three ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hub.log import TopicDescription, same_setting
from hub.record import TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.planning.rule_refusals import refusal_of
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
from hub.topics.tree.steps import Caution, TreeRefusal

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


UNLIMITED = -1


@dataclass
class TopicSides:
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
                yield refusal_of(
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
            yield refusal_of(
                self.name,
                "it was deleted and created again at the source",
                "set `on_recreate: continue` to append the new topic's records, or drop the copy and "
                "start again",
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
            return refusal_of(self.name, "the target's topic is gone, but there is a checkpoint", again)
        if mark.target_topic_id and mark.target_topic_id != there.topic_id:
            return refusal_of(
                self.name,
                "the target's topic was deleted and made again since the last checkpoint",
                again,
            )
        end = self.target.ends.offsets.get(TopicPartition(self.name, mark.partition))
        if end is None or end >= mark.target_next:
            return None
        return refusal_of(
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
                yield refusal_of(self.name, *_WHY_NEEDED[key](own, needed))
        wanted = _whole(self.source.effective(self.name, "max.message.bytes"))
        most = _whole(there.config.get("max.message.bytes"))
        if (
            wanted is not None
            and most is not None
            and most < wanted
            and self._theirs("max.message.bytes", there)
        ):
            yield refusal_of(
                self.name,
                f"max.message.bytes is {most} at the target and {wanted} at the source: large records "
                "would not fit",
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
                f"{replicas} replicas at the target, {self.here.replication_factor} at the source: it has "
                "too few brokers",
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
                f"{there.partitions} partitions at the target, {self.here.partitions} at the source: the "
                "others stay empty,"
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
                    f"{key} is {mine or 'default'} at the source and {theirs or 'default'} at the target, "
                    "both set by hand:"
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
        return mine != UNLIMITED and (theirs == UNLIMITED or mine < theirs)
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
