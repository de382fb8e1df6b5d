"""[shell] One restore: topics, schemas, records, groups. Each step can be repeated.

Records, the map of their offsets and the position are one transaction of the target (the mirrors' engine
under the name ``restore-ID``). A second call with the same backup continues from there, and a later run of
the same backup adds what it has more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hub.backup.restoring.access_plan import rule_text, rules_to_add
from hub.backup.restoring.point_in_time import base_run, cut_at, cut_within, groups_run
from hub.backup.restoring.restore_plan import (
    TargetFacts,
    TopicRefusal,
    TopicRestore,
    is_unfinished,
    plan_topics,
)
from hub.backup.restoring.saved_log import PartitionToRestore, SavedLog
from hub.backup.saved_registry import SchemasPlan, plan_schemas, read_registry, restore_schemas
from hub.backup.saving.run_plan import is_restored
from hub.backup.storage.manifest import Manifest, SavedPartition, UnreadableBackup
from hub.backup.storage.vault import Vault
from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.kafka.acls import AccessRule
from hub.kafka.protocol.record_batch import batches_in
from hub.record import Positions, TopicPartition
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics, topics_of
from hub.replication.clusters.readers import read_progress, without_records
from hub.replication.clusters.written_state import WrittenState
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, MAP_TOPIC
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.ownership.group_offsets import CarriedPosition, GroupSides, Translates, carry
from hub.runtime import Backoff

_AT_ONCE = 200
_CREATED_AT_ONCE = 100
SILENCE_S = 120.0
_SETTINGS = EngineSettings(
    commit_interval_s=0.5,
    commit_bytes=64 << 20,
    commit_records=1_000_000,
    fetch_bytes=16 << 20,
    hold_lag=-1,  # transactions of the source need no common release: nobody reads the target yet
)
Progress = Callable[[int, int], None]
Forbids = Callable[[str], HubError | None]


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """``patterns``: topics to restore, none: all but changelogs of views. ``until_ms``: up to this time.
    ``run``: number of the run to restore; None: by ``until_ms``, or the newest. ``prefix``: put before the
    names of topics; groups are not moved then, and no access rules are added.
    """

    patterns: tuple[str, ...] = ()
    until_ms: int | None = None
    run: int | None = None
    prefix: str = ""
    schemas: bool = True
    groups: bool = True
    rules: bool = True


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Steps of a restore. ``partitions``: by their names at the target. ``groups``: saved positions.
    ``rules``: access rules that the target lacks.
    """

    run: Manifest
    topics: tuple[TopicRestore, ...]
    refusals: tuple[TopicRefusal, ...]
    partitions: Mapping[TopicPartition, PartitionToRestore]
    schemas: SchemasPlan
    groups: Mapping[str, Mapping[TopicPartition, int]]
    notes: tuple[str, ...] = ()
    rules: tuple[AccessRule, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """Steps to show to people."""
        lines = [
            f"{'+' if each.create else '~'} topic {each.name}  {len(each.saved.partitions)} partitions"
            for each in self.topics
        ]
        lines += [str(step) for step in self.schemas.steps]
        lines += [f"+ access {rule_text(each)}" for each in self.rules]
        return (*lines, *(f"~ group {group}" for group in self.groups))


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Result of a restore. ``records`` and ``raw_bytes``: written by this call. ``groups``: what became of
    each saved position. ``skipped``: ranges of saved offsets that could not be written, with their partition.
    """

    seconds: float
    records: int
    raw_bytes: int
    groups: tuple[CarriedPosition, ...] = ()
    skipped: tuple[tuple[TopicPartition, int, int], ...] = field(default=())


def link_of(vault: Vault) -> str:
    """Return the name under which a restore writes its positions and its map."""
    return f"restore-{vault.head.id}"


def plan_restore(
    target: ClusterHandle,
    vault: Vault,
    request: RestoreRequest,
    forbids: Forbids = lambda _topic: None,
) -> RestorePlan:
    """Make the plan; writes nothing. ``forbids``: returns the error that forbids writing a topic at the
    target.
    Raises NotFound (HUB-1805), Conflict (HUB-1807), PeerError.
    """
    runs = _runs(vault, request)
    base = base_run(runs, request.until_ms)
    positions = groups_run(runs, base, request.until_ms).groups
    chosen = [each for name, each in base.topics.items() if is_restored(name, request.patterns)]
    if not chosen:
        raise NotFound(
            f"run {base.number} of the backup has no topic that matches: "
            f"{' '.join(request.patterns) or '**'}",
            hint="hub backup ls --topics lists them",
            code="HUB-1805",
        )
    partitions = {
        TopicPartition(request.prefix + topic.name, number): PartitionToRestore(
            topic.topic_id, saved, _end_of(vault, saved, request.until_ms)
        )
        for topic in chosen
        for number, saved in enumerate(topic.partitions)
    }
    facts = _target_facts(target, vault, [request.prefix + each.name for each in chosen], forbids)
    steps, refusals = plan_topics(chosen, request.prefix, facts)
    names = {each.name for each in chosen}
    wanted = request.groups and not request.prefix
    groups = {
        group: {tp: offset for tp, offset in of.items() if tp.topic in names}
        for group, of in positions.items()
    }
    schemas, notes = _schemas(target, base, request, names)
    rules, more = _rules(target, base, request, names)
    return RestorePlan(
        base,
        steps,
        refusals,
        partitions,
        schemas,
        {group: of for group, of in groups.items() if of} if wanted else {},
        (*(each.note for each in steps if each.note), *schemas.notes, *notes, *more),
        rules,
    )


def restore(
    target: ClusterHandle, vault: Vault, plan: RestorePlan, progress: Progress = lambda _done, _all: None
) -> RestoreReport:
    """Carry the plan out. Raises Conflict (HUB-1806) for a plan with refusals, PeerError when the target, its
    registry or the storage does not answer; then repeat the call: it continues where it was.
    """
    if plan.refusals:
        first = plan.refusals[0]
        more = f" ({len(plan.refusals) - 1} more topics are refused)" if len(plan.refusals) > 1 else ""
        raise Conflict(
            f'topic "{first.topic}": {first.reason}; nothing was restored{more}',
            hint=first.hint,
            code="HUB-1806",
        )
    begun_s = time.monotonic()
    target.kafka.add_rules(plan.rules)
    _create(target, plan.topics)
    if target.registry is not None:
        restore_schemas(plan.schemas, target.registry)
    records, size = _copy(target, vault, plan, progress)
    for step in plan.topics:
        if step.settings:
            target.kafka.alter_config(step.name, step.settings)
    written = read_progress(target)
    groups = _restore_groups(target, link_of(vault), plan, written)
    skipped = tuple(
        (TopicPartition(gap.topic, gap.partition), gap.first, gap.end)
        for gap in written.gaps.values()
        if gap.link == link_of(vault) and TopicPartition(gap.topic, gap.partition) in plan.partitions
    )
    return RestoreReport(time.monotonic() - begun_s, records, size, groups, skipped)


# ---- planning


def _runs(vault: Vault, request: RestoreRequest) -> list[Manifest]:
    if request.run is not None:
        return [vault.run(request.run)]
    return vault.newest(1) if request.until_ms is None else vault.around(request.until_ms)


def _end_of(vault: Vault, saved: SavedPartition, until_ms: int | None) -> int:
    """Return the position after the last record of a partition that belongs to the time."""
    end, segment = cut_at(saved, until_ms)
    if segment is None or until_ms is None:
        return end
    return max(end, cut_within(batches_in(vault.segment(segment)), until_ms, end))


def _target_facts(target: ClusterHandle, vault: Vault, names: Sequence[str], forbids: Forbids) -> TargetFacts:
    topics = topics_of(target)
    there = [name for name in names if name in topics]
    marks = read_progress(target, maps=False).of(link_of(vault))
    begun = {tp.topic: mark.target_topic_id for tp, mark in marks.items()}
    unknown = [name for name in there if name not in begun]
    empty = without_records(target, unknown) if unknown else frozenset[str]()
    config = target.kafka.topic_config(there)
    unfinished = frozenset(name for name in there if is_unfinished(config[name]))
    forbidden = {name: error for name in names if (error := forbids(name)) is not None}
    return TargetFacts(topics, len(target.kafka.brokers()), begun, empty, unfinished, forbidden)


def _schemas(
    target: ClusterHandle, base: Manifest, request: RestoreRequest, names: set[str]
) -> tuple[SchemasPlan, tuple[str, ...]]:
    if not request.schemas or base.registry is None:
        return SchemasPlan(), ()
    if target.registry is None:
        return SchemasPlan(), ("the target has no registry: schemas are not restored",)
    topics = {name: name in names for name in base.topics}
    return plan_schemas(base.registry, read_registry(target.registry), topics), ()


def _rules(
    target: ClusterHandle, base: Manifest, request: RestoreRequest, names: set[str]
) -> tuple[tuple[AccessRule, ...], tuple[str, ...]]:
    """Return the access rules to add, and notes on those that are left out."""
    if not request.rules or request.prefix or not base.rules:
        return (), ()
    there = target.kafka.all_rules()
    if there is None:
        return (), ("the target has no authorizer: access rules are not restored",)
    saved = [AccessRule(**each) for each in base.rules]  # type: ignore[arg-type]
    chosen, left_out = rules_to_add(saved, there, names, whole=not request.patterns)
    note = f"{left_out} access rules also cover other topics and are left out"
    return chosen, (note,) if left_out else ()


# ---- carrying out


def _create(target: ClusterHandle, steps: Sequence[TopicRestore]) -> None:
    own = (CHECKPOINTS_TOPIC, MAP_TOPIC)
    make_own([(target.name, step) for step in own_topics(target, own)], {target.name: target})
    new = [each.create for each in steps if each.create is not None]
    for first in range(0, len(new), _CREATED_AT_ONCE):
        for error in target.kafka.create_topics(new[first : first + _CREATED_AT_ONCE]).values():
            if not isinstance(error, Conflict):  # a call before this one created it
                raise error


def _copy(target: ClusterHandle, vault: Vault, plan: RestorePlan, progress: Progress) -> tuple[int, int]:
    """Write every record; return (records, bytes)."""
    places = [tp for tp, each in plan.partitions.items() if each.end > each.saved.start]
    total = sum(plan.partitions[tp].end - plan.partitions[tp].saved.start for tp in places)
    log = SavedLog(vault, plan.partitions)
    records = size = done = 0
    try:
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            before = done

            def show(of_these: int, before: int = before) -> None:
                progress(before + of_these, total)

            written, bytes_ = _copy_some(target, vault, log, {tp: plan.partitions[tp] for tp in some}, show)
            records, size = records + written, size + bytes_
            done += sum(plan.partitions[tp].end - plan.partitions[tp].saved.start for tp in some)
    finally:
        log.end()
    return records, size


def _copy_some(
    target: ClusterHandle,
    vault: Vault,
    log: SavedLog,
    partitions: Mapping[TopicPartition, PartitionToRestore],
    progress: Callable[[int], None],
) -> tuple[int, int]:
    engine = BatchEngine(
        log,
        KafkaConnection(target.access, "target"),
        link=link_of(vault),
        shard=0,
        partitions=partitions,
        settings=_SETTINGS,
    )
    try:
        _start(engine)
        moved_at_s, done = time.monotonic(), -1
        while True:
            states = {TopicPartition(each.topic, each.partition): each for each in engine.progress()}
            failed = next((each.error for each in states.values() if each.error is not None), None)
            if failed is not None:
                raise failed
            if isinstance(engine.error, UnreadableBackup):
                raise engine.error
            now = sum(max(0, states[tp].source_next - each.saved.start) for tp, each in partitions.items())
            if now != done:
                moved_at_s, done = time.monotonic(), now
                progress(done)
            if all(states[tp].source_next >= each.end for tp, each in partitions.items()):
                written = sum(each.records for each in states.values())
                return written, sum(each.bytes for each in states.values())
            if time.monotonic() - moved_at_s > SILENCE_S:
                raise _stalled(engine.error)
            engine.step()
    finally:
        engine.close()


def _start(engine: BatchEngine) -> None:
    """Start the engine. Topics that were just created have no leader for a moment. Raises PeerError after
    ``SILENCE_S``.
    """
    backoff, deadline = Backoff(0.1, 2.0), time.monotonic() + SILENCE_S
    while True:
        try:
            engine.start()
            return
        except PeerError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
            time.sleep(backoff.next_s())


def _stalled(error: HubError | None) -> PeerError:
    why = "" if error is None else f": {error.message}"
    return PeerError(
        f"nothing was written for {SILENCE_S:g} s{why}",
        hint="check the target with hub doctor, then run the command again: it continues where it was",
        code="HUB-3803",
    )


def _restore_groups(
    target: ClusterHandle, link: str, plan: RestorePlan, written: WrittenState
) -> tuple[CarriedPosition, ...]:
    """Commit the groups' positions at the target, and return what became of each. Raises PeerError when one
    cannot be written.
    """
    if not plan.groups:
        return ()
    names = sorted(plan.groups)
    theirs = target.kafka.positions_of_groups(names)
    there = set(target.kafka.groups())
    members = target.kafka.group_members([name for name in names if name in there])
    carried_positions: list[CarriedPosition] = []
    due: dict[str, Positions] = {}
    for group in names:
        sides = GroupSides(
            group,
            plan.groups[group],
            theirs.get(group, Positions()).offsets,
            bool(members.get(group)),
        )
        carried = carry(sides, _tables(link, plan, written, sides.source), {})
        due[group] = Positions({each.place: each.commit for each in carried if each.commit is not None})
        carried_positions += carried
    for error in target.kafka.publish_groups(due).values():
        raise error
    return tuple(carried_positions)


def _tables(
    link: str, plan: RestorePlan, written: WrittenState, places: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Translates]:
    """Return the maps of partitions. One without records has none: its readers begin at its start."""
    found: dict[TopicPartition, Translates] = {}
    for tp in places:
        partition = plan.partitions[tp]
        table = written.table(link, tp)
        if table is not None:
            found[tp] = table
        elif partition.end <= partition.saved.start:
            found[tp] = OffsetMap(partition.saved.start)
    return found
