"""[core] Steps and refusals for one topic of a mirror, compared three ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hub.log import TopicDescription, same_setting
from hub.record import TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.planning.drift import FoundDrift
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
from hub.replication.planning.topic_settings import (
    COPIED_SETTINGS,
    LOSING,
    NEEDED,
    NEVER,
    RAISED_ONLY,
    WHY_NEEDED,
    narrower,
    whole,
)
from hub.topics.tree.steps import Caution, TreeRefusal


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
    drift: FoundDrift = field(default_factory=FoundDrift)

    @property
    def there(self) -> TopicDescription | None:
        return self.target.topics.get(self.name)

    @property
    def here(self) -> TopicDescription:
        return self.source.topics[self.name]

    @property
    def found_drift(self) -> dict[str, FoundDrift]:
        """Return what somebody changed at the copy, by topic; {} where nothing was. Known after ``steps``."""
        return {self.name: self.drift} if self.drift.stays or self.drift.reverted else {}

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
        for key, needed in NEEDED.items():
            own = there.config.get(key)
            if key == "compression.type" and self.mirror.engine == "record":
                continue
            if own is not None and not same_setting(own, needed) and self.mirror.drift != "revert":
                yield refusal_of(self.name, *WHY_NEEDED[key](own, needed))
        wanted = whole(self.source.effective(self.name, "max.message.bytes"))
        most = whole(there.config.get("max.message.bytes"))
        if (
            wanted is not None
            and most is not None
            and most < wanted
            and self._theirs("max.message.bytes", there)
            and self.mirror.drift != "revert"
        ):
            yield refusal_of(
                self.name,
                f"max.message.bytes is {most} at the target and {wanted} at the source: large records "
                "would not fit",
                f"set it to {wanted} at the target, or back to its default",
            )

    def _copied_config(self) -> dict[str, str]:
        """Return the copied settings that a new copy gets: also defaults of the source where the target's
        would lose records, and none that are less durable than the target's default.
        """
        config = {key: value for key, value in self.here.config.items() if key in self._copied}
        for key in sorted(self._copied - config.keys()):
            mine, theirs = self.source.effective(self.name, key), self.target.defaults.get(key)
            if (
                mine is not None
                and theirs is not None
                and not same_setting(mine, theirs)
                and narrower(key, theirs, mine)
            ):
                config[key] = mine
        for key in RAISED_ONLY:
            theirs = self.target.defaults.get(key)
            if key in config and theirs is not None and narrower(key, config[key], theirs):
                del config[key]
        return config

    def _create(self) -> CreateTargetTopic:
        config = self._copied_config()
        for key, needed in NEEDED.items():
            if not same_setting(self.target.defaults.get(key), needed):
                config[key] = needed
        replicas = min(self.here.replication_factor, self.target.brokers)
        if replicas < self.here.replication_factor:
            self._caution(
                f"{replicas} replicas at the target, {self.here.replication_factor} at the source: it has "
                "too few brokers",
                "add brokers to the target, then raise the replication factor",
            )
        least = whole(config.get("min.insync.replicas", self.target.defaults.get("min.insync.replicas")))
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
            self.drift.stays["partitions"] = str(there.partitions), str(self.here.partitions)

    def _config(self, there: TopicDescription) -> Iterator[Step]:
        changes: dict[str, tuple[str | None, str | None]] = {}
        as_created = self._copied_config()
        least = whole(as_created.get("min.insync.replicas"))
        if least is not None and least > there.replication_factor:
            as_created["min.insync.replicas"] = str(there.replication_factor)
        for key in sorted(self._copied):
            mine, theirs, wanted = self.here.config.get(key), there.config.get(key), as_created.get(key)
            if same_setting(mine, theirs) or same_setting(wanted, theirs):
                continue
            last = self.synced.config.get(key) if self.synced is not None else None
            by_hand = not same_setting(theirs, last)
            if by_hand or (same_setting(mine, last) and self.synced is not None):
                if self._reverts(key, there, theirs, wanted):
                    changes[key] = (theirs, wanted)
                elif self.mirror.drift != "revert":
                    self._leave(key, mine, theirs, both=not same_setting(mine, last) or self.synced is None)
            elif self._follows(key, there, mine):
                changes[key] = (theirs, mine)
        changes |= self._needed(there)
        key = "max.message.bytes"
        mine, theirs = self.source.effective(self.name, key), self.target.defaults.get(key)
        unsaid = key not in there.config and key not in changes and key in self._copied
        if unsaid and mine is not None and theirs is not None and narrower(key, theirs, mine):
            changes[key] = (None, mine)
        if changes:
            yield AlterTargetConfig(self.name, changes)

    def _needed(self, there: TopicDescription) -> dict[str, tuple[str | None, str | None]]:
        """Return changes to settings that the copy needs; others' values are changed by `drift: revert`."""
        changes: dict[str, tuple[str | None, str | None]] = {}
        for key, needed in NEEDED.items():
            own = there.config.get(key)
            if own is None and not same_setting(self.target.defaults.get(key), needed):
                changes[key] = (None, needed)
            elif own is None or same_setting(own, needed):
                continue
            elif key != "compression.type" or self.mirror.engine != "record":
                changes[key] = self.drift.reverted[key] = (own, needed)
        return changes

    def _reverts(self, key: str, there: TopicDescription, theirs: str | None, wanted: str | None) -> bool:
        """Return whether a setting that a person changed at the target is put back, and note the drift."""
        reverts = self.mirror.drift == "revert" and self._follows(key, there, wanted)
        (self.drift.reverted if reverts else self.drift.stays)[key] = theirs, wanted
        return reverts

    def _leave(self, key: str, mine: str | None, theirs: str | None, *, both: bool) -> None:
        """Report a setting that a person changed at the target, and at the source too if ``both``."""
        if both:
            self._caution(
                f"{key} is {mine or 'default'} at the source and {theirs or 'default'} at the target, "
                "both set by hand:"
                " left so",
                "make them equal, or set the target's back to its default",
            )
        else:
            self._caution(
                f"{key} was changed at the target to {theirs or 'default'}: left so",
                "change it at the source to have it everywhere",
            )

    def _follows(self, key: str, there: TopicDescription, mine: str | None) -> bool:
        """Return whether a change of the source is copied; reports what the change would lose."""
        after = mine if mine is not None else self.target.defaults.get(key)
        before = there.config.get(key, self.target.defaults.get(key))
        loses = before is not None and after is not None and narrower(key, after, before)
        if loses and key in RAISED_ONLY:
            self._caution(
                f"{key} {before} is kept: {after} at the source is less durable",
                "lower it at the target by hand, when it is meant",
            )
            return False
        if loses and key in LOSING:
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
        if self.mirror.drift == "revert":
            for acl in sorted(add & ours):
                self.drift.reverted[f"acl {acl.principal} {acl.operation}"] = "none", acl.permission
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
        return (COPIED_SETTINGS | frozenset(self.mirror.configs)) - NEVER

    def _theirs(self, key: str, there: TopicDescription) -> bool:
        """Return whether a person set the target's value, so that no step of this plan changes it."""
        last = self.synced.config.get(key) if self.synced is not None else None
        return not same_setting(there.config.get(key), last)

    def _caution(self, reason: str, hint: str) -> None:
        self.cautions.append(Caution(self.name, reason, hint))


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
