"""[shell] Operator: carries out a change of ownership with ownership/failover.py's steps on real clusters;
each is idempotent.

The process that runs the command does the steps; workers follow the control records. After a crash ``hub
mirror resume`` continues with the first step that is not done. Records are written to the new side first,
then to the old one when it is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hub.errors import CallerError, Conflict, PeerError
from hub.log import Writer
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.clusters import REFUSED, rule_of, topics_of
from hub.replication.clusters.control_state import joined, pause_record
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.clusters.status_records import CHORES, CarriedTopic
from hub.replication.config.topology import route
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.operations import write_access
from hub.replication.operations.catch_up import behind, catch_up, take_over
from hub.replication.operations.divergence.restoring import check_restorable
from hub.replication.operations.divergence.settling import Settling
from hub.replication.operations.effects import loss_report, not_mirrored
from hub.replication.operations.forget import forget_both
from hub.replication.operations.group_carrier import Found, GroupCarrier, any_to_commit, mark_and_commit
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.never_mirrored import NeverMirrored
from hub.replication.ownership import failover
from hub.replication.ownership.group_offsets import carry
from hub.replication.ownership.links import Link, opposite
from hub.replication.ownership.loss_report import declared
from hub.replication.ownership.operation_steps import FailoverStep, Kind, OwnershipChange, Tail, scope_of
from hub.replication.ownership.shards import Shard
from hub.replication.ownership.topic_state import pause_key
from hub.replication.verification.comparable import complete_tables
from hub.times import epoch_ms

_LITTLE_LAG = 1_000

Say = Callable[[str], None]


def check_export(export: str) -> None:
    """Raise CallerError where a restore has no folder for the records that it removes."""
    if not export:
        raise CallerError(
            "--restore removes records, so it exports them first", hint="name a new folder: --export DIR"
        )


@dataclass
class Operator:
    """One call of a command. ``wait_s``: the longest wait of one step."""

    world: MirroredClusters
    wait_s: float = 120.0
    say: Say = lambda text: None
    # Shared by all steps: a producer takes half a second to start, and nobody may write during a change of
    # ownership.
    _writers: dict[str, Writer] = field(default_factory=dict)

    def begin(
        self,
        kind: Kind,
        mirror: str,
        home: str,
        new: str,
        *,
        id: str,
        tail: Tail = "replay",
        export: str = "",
    ) -> OwnershipChange:
        """Return the operation, of the topics that ``world`` moves, not written yet. Raises Conflict when it
        cannot begin.
        """
        control, topics = self.world.control(), sorted(self.world.only)
        old = control.owner(control.scope(home, topics[0]) if topics else home).acting
        self.world.check_reach(kind, old, new)
        made = failover.begin(
            control,
            kind,
            id=id,
            mirror=mirror,
            home=home,
            new=new,
            now_ms=epoch_ms(),
            old_is_up=self.world.is_up(old),
            tail=tail,
            topics=topics,
        )
        self.check_way(home, old, new)
        if kind != "failover" and (stuck := not_mirrored(self.world, home, old, new)):
            topic, why = min(stuck.items())
            more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
            raise Conflict(
                f'a {kind} would wait for topic "{topic}"{more}, which is not mirrored: {why}',
                hint="correct that or exclude the topic, and wait until `hub mirror "
                "status` shows no problems",
                code="HUB-1968",
            )
        if kind == "failback" and tail == "restore":
            check_export(export)
            check_restorable(self.world, home, old)
        return replace(made, export=export)

    def check_way(self, home: str, old: str, new: str) -> None:
        """Raise Conflict (HUB-1965) where no mirror leads from one side to the other."""
        if home not in (old, new):
            raise Conflict(
                f"{old} serves the topics of {home} now, and no mirror copied the records "
                f"written there to {new}",
                hint=f"give it back first: hub mirror failback, of a mirror from {home} to {old}",
                code="HUB-1965",
            )
        if not self.world.ways(home, old, new) and not self.world.masked(home, old, new):
            raise Conflict(
                f"no mirror leads from {old} to {new} for the topics of {home}",
                hint="declare one, and let it catch up first",
                code="HUB-1965",
            )

    def carry_on(self, operation: OwnershipChange) -> OwnershipChange:
        """Do every step that is not done, and record each one. Raises the error of a step; then continue
        later.

        Raises Conflict when another operation counts instead, before it claims anything and before it takes
        ownership.
        """
        self.world.check_reach(operation.kind, operation.old, operation.new)
        try:
            failover.check_stands(self.world.control(), operation)
            if not operation.done:
                self.tell(operation, *operation.records())
            while (step := operation.next) is not None:
                if step.name == "take_ownership":
                    failover.check_stands(self.world.control(), operation)
                self.say(f"{step.name}: {step.does}")
                self.do(operation, step)
                operation = failover.done(operation, step.name)
                self.tell(operation, *operation.records())
            return operation
        finally:
            self._close()

    def abort(self, operation: OwnershipChange) -> OwnershipChange:
        """Abort the operation, while ownership has not changed. Raises Conflict (HUB-1964)."""
        self.world.check_reach(operation.kind, operation.old, operation.new)
        aborted, undo = failover.abort(operation)
        for name in undo:
            self.say(f"undone: {name} (workers and applications see it by the record)")
        try:
            self._alter(operation, write_access.give_back(self.world, operation))
            self.tell(aborted, *aborted.records())
        finally:
            self._close()
        return aborted

    def remind(self, home: str) -> bool:
        """Write the ownership of ``home``, of its topics that moved by themselves, and their last operations
        to a cluster that was down during them: its gateway reads only its own control topic. Returns whether
        anything was missing.
        """
        boards = self.world.control_states()
        control = joined(board.control for board in boards.values())
        missed = False
        for scope, last in control.operations.items():
            if last.home != home:
                continue
            owner = control.owner(scope)
            for name in {last.new, last.old} & boards.keys():
                there = boards[name].control
                records = owner.records() if owner.epoch > there.owner(scope).epoch else []
                records += last.records() if there.operations.get(scope) != last else []
                if records:
                    self._append(name, records)
                    missed = True
            if owner.acting != home and last.state != "running" and self.world.is_up(home):
                world = replace(self.world, only=frozenset(last.topics))
                missed |= self._alter(last, write_access.keep_out(world, last, home))
        self._close()
        return missed

    def tell(self, operation: OwnershipChange, *records: NewRecord) -> None:
        """Write the records to the new side first, then to the old one when it is up."""
        for name in (operation.new, operation.old):
            if self.world.is_up(name):
                self._append(name, records)

    def _append(self, name: str, records: Sequence[NewRecord]) -> None:
        self._writer(name).append(records)

    def _writer(self, name: str) -> Writer:
        if name not in self._writers:
            self._writers[name] = self.world.clusters[name].kafka.writer()
        return self._writers[name]

    def _close(self) -> None:
        while self._writers:
            self._writers.popitem()[1].close()

    def do(self, operation: OwnershipChange, step: FailoverStep) -> None:
        """Do one step, perhaps again."""
        old, new, home = operation.old, operation.new, operation.home
        match step.name:
            case "stop_writers":
                self._alter(operation, write_access.keep_out(self.world, operation, old))
            case "open_writers":
                self._alter(operation, write_access.let_in(self.world, operation))
            case "fence_home":
                control = self.world.control()
                for scope in [scope_of(home, topic) for topic in operation.topics or ("",)]:
                    if (owner := control.owner(scope)).epoch:
                        self.tell(operation, *owner.records())
                self._alter(operation, write_access.keep_out(self.world, operation, new))
                # Since a switchover the way home is open: its open transaction would be committed after the
                # tail's map was read.
                take_over(self.world, old, new, home)
            case "start_back":
                take_over(self.world, new, old, home)  # the link that carried the tail, for the same reason
            case "catch_up":
                catch_up(self.world, old, new, home, but_for=_LITTLE_LAG, wait_s=self.wait_s, say=self.say)
            case "drain":
                catch_up(self.world, old, new, home, quiet=True, wait_s=self.wait_s, say=self.say)
            case "fence_mirror":
                if operation.kind == "failover" and self.world.is_up(old):
                    self._alter(
                        operation, write_access.keep_out(self.world, operation, old)
                    )  # or records written from now on would be lost uncounted
                self._fence(operation)
            case "declare_loss":
                self._declare_loss(operation)
            case "place_groups":
                self._place_groups(operation)
            case "take_ownership":
                self.tell(operation, *failover.ownership(operation, epoch_ms()).records())
            case "drop_mirror":
                # What moved by itself before keeps its maps, which its way home needs.
                some = self.world.topics(home, new) if self.world.only or self.world.apart(home) else None
                for link in self.world.ways(home, old, new) if some is None or some else ():
                    forget_both(self.world.file, link, self.world.clusters, some or ())
            case "claim":  # nothing that moves stays paused
                keys = [pause_key(operation.mirror, topic) for topic in operation.topics]
                self._append(new, [pause_record(key, "", 0, paused=False) for key in keys])
            case "settle_tail" | "start_mirror" | "finish":
                pass  # see Settling; workers and the gateway follow the record itself
        if operation.kind == "failback":
            Settling(
                self.world, operation, self.wait_s, self.say, lambda record: self.tell(operation, record)
            ).after(step.name)

    def _alter(self, operation: OwnershipChange, planned: write_access.PlannedChange | None) -> bool:
        """Change one cluster's ACLs; rules that the hub adds are recorded before. If the user may not alter
        them, people have to. Returns whether there was anything to change.
        """
        if planned is None or not (planned[0].add or planned[0].remove):
            return False
        change, after = planned
        self.tell(operation, after.record())
        kafka = self.world.clusters[change.at].kafka
        for line in replace(change, notes=()).lines():
            self.say(f"  {line}")
        try:
            kafka.remove_rules(map(rule_of, change.remove))
            kafka.add_rules(map(rule_of, change.add))
        except PeerError as error:
            if error.code != REFUSED:
                raise
            self.say(f"! access rules of {change.at} stay as they are: {error.message}. Change them yourself")
        return True

    def _fence(self, operation: OwnershipChange) -> None:
        take_over(self.world, operation.old, operation.new, operation.home)
        if operation.kind != "failover" and self.world.is_up(operation.old):
            written = read_progress(self.world.clusters[operation.new], maps=False)
            late, _ = behind(self.world, written, operation.old, operation.new, operation.home)
            if late:
                raise Conflict(
                    f"{sum(late.values())} offsets of {', '.join(sorted(late)[:3])} were written at "
                    f"{operation.old} after the mirror had drained: somebody still writes",
                    hint="stop that writer, run hub mirror resume --abort, then start again",
                    code="HUB-1966",
                )
        if operation.old == operation.home:
            self._record_never_mirrored(operation)

    def _record_never_mirrored(self, operation: OwnershipChange) -> None:
        """Record partitions without any mirrored record, before applications write at the new owner."""
        old, new, home = operation.old, operation.new, operation.home
        world, up = self.world, self.world.is_up(old)
        board = read_control_state(world.clusters[new])
        for link in world.ways(home, old, new):
            if up:
                there = topics_of(world.clusters[old])
                topics = {
                    topic: CarriedTopic(there[topic].partitions, there[topic].topic_id)
                    for topic in world.topics_of_link(link, home)
                    if link.name in route(world.file, topic).mirrors
                }
            else:
                carried = board.carries[link.name].topics if link.name in board.carries else {}
                topics = {name: each for name, each in carried.items() if world.moves(home, name)}
            NeverMirrored(link, world.clusters[old], world.clusters[new], up).record(topics, board)

    def _declare_loss(self, operation: OwnershipChange) -> None:
        report = loss_report(self.world, operation.home, operation.old, operation.new)
        now_ms = epoch_ms()
        for topic in operation.topics or ("",):
            scope = scope_of(operation.home, topic)
            said = declared(scope, operation.epoch, report.of_topic(topic) if topic else report, now_ms)
            self.tell(operation, said.record())

    def _place_groups(self, operation: OwnershipChange) -> None:
        """Place the groups with the final map. If the old side is down, groups stay where they were carried
        last.
        """
        old, new = operation.old, operation.new
        if not self.world.is_up(old):
            return
        for link in self.world.ways(operation.home, old, new):
            found = self.groups(link, operation.home)
            if any_to_commit(found):
                # The workers' transactional id: a commit that one of them prepared with an older map is
                # refused.
                writer = self.world.clusters[new].kafka.writer(Shard(link.name, CHORES).transactional_id)
                try:
                    mark_and_commit(writer, self.world.clusters[new], link.name, found)
                finally:
                    writer.close()

    def groups(self, link: Link, home: str) -> list[Found]:
        """Return each group of a link with its decision, by complete maps of both directions."""
        source, target = self.world.clusters[link.source], self.world.clusters[link.target]
        progress, tables = complete_tables(target, link.name)
        other = read_progress(source)
        board = read_control_state(target, status=False)
        joint: dict[TopicPartition, OffsetMap | TwoWayOffsetMap] = {}
        marked = progress.of(link.name)
        for tp, table in tables.items():
            if not self.world.moves(home, tp.topic):
                continue
            back = opposite(self.world.file, link, tp.topic)
            backward = other.table_back(back, marked[tp]) if back is not None else None
            joint[tp] = table if backward is None else TwoWayOffsetMap(table, backward)
        carrier = GroupCarrier(self.world.file, link, source, target)
        groups = carrier.group_sides({tp.topic for tp in joint} | self.world.topics_of_link(link, home))
        joint |= carrier.untouched(groups, marked)
        found = []
        for seen in groups:
            marks = board.marks.get((link.name, seen.group), {})
            found.append((seen, carry(seen, joint, marks, force=link.mirror.groups.force)))
        return found
