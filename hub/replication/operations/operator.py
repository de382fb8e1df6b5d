"""[shell] Operator: carries out a change of ownership with ownership/failover.py's steps on real clusters;
each is idempotent.

The process that runs the command does the steps; workers follow the control records. After a crash ``hub
mirror resume`` continues with the first step that is not done. Records are written to the new side first,
then to the old one when it is up.

``report`` reads maps, ends and groups of both sides and counts what the operation would lose and deliver
again; a drill consists only of that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.errors import Conflict, PeerError
from hub.log import Writer
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.clusters.clusters import (
    REFUSED,
    ClusterHandle,
    WrittenStateReader,
    acl_of,
    read_control_state,
    read_progress,
    rule_of,
    topics_of,
)
from hub.replication.clusters.control_state import CHORES, CarriedTopic, ControlState, joined
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile, principals_of
from hub.replication.config.topology import route
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_TOPIC,
    Checkpoint,
    Gap,
    checkpoint_partition,
)
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.operations.forget import forget_both
from hub.replication.operations.group_carrier import Found, GroupCarrier, any_to_commit, mark_and_commit
from hub.replication.operations.never_mirrored import NeverMirrored
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control, FailoverStep, OwnershipChange
from hub.replication.ownership.group_offsets import GroupMark, GroupSides, carry
from hub.replication.ownership.links import Link, home_of, links, masked, opposite, way_back
from hub.replication.ownership.loss_report import LossReport, MirroredPartition, ReportedEnd, assess, declared
from hub.replication.ownership.shards import Shard, shard_of
from hub.replication.planning.plan import Acl
from hub.replication.planning.write_rights import (
    AclChange,
    OwnershipAcls,
    WriteAcls,
    about_writing,
    giving_back,
    keeping_out,
    letting_in,
)
from hub.replication.verification.comparable import complete_tables

log = logging.getLogger(__name__)

_LITTLE_LAG = 1_000
_LOOK_EVERY_S = 0.5
_QUIET_S = 1.0
_SAY_EVERY_S = 5.0
_STALE_MS = 30_000

Say = Callable[[str], None]


@dataclass
class Operator:
    """One call of a command. ``wait_s``: the longest wait of one step."""

    file: MirrorsFile
    clusters: Mapping[str, ClusterHandle]
    wait_s: float = 120.0
    say: Say = lambda text: None
    _up: dict[str, bool] = field(default_factory=dict)
    # Shared by all steps: a producer takes half a second to start, and nobody may write during a change of
    # ownership.
    _writers: dict[str, Writer] = field(default_factory=dict)

    # ---- state of the clusters

    def is_up(self, name: str) -> bool:
        """Return whether a cluster answers; asked once."""
        if name not in self._up:
            try:
                self.clusters[name].kafka.wait_ready(3.0)
                self._up[name] = True
            except PeerError:
                self._up[name] = False
        return self._up[name]

    def boards(self) -> dict[str, ControlState]:
        return {
            name: read_control_state(reached, status=False)
            for name, reached in self.clusters.items()
            if self.is_up(name)
        }

    def control(self) -> Control:
        return joined(board.control for board in self.boards().values())

    def ways(self, home: str, source: str, target: str) -> list[Link]:
        """Return the links that carry topics of ``home`` from one side to the other. Empty where neither is
        the home: a third cluster has at most a copy of home's records, and no map of records born elsewhere.
        """
        every = links(self.file)
        if home not in (source, target):
            return []
        if source == home:
            return [
                link
                for name, link in every.items()
                if name in self.file.mirrors and _ends(link) == (source, target)
            ]
        names = {
            back
            for tp in self._topics(home, source)
            if (back := way_back(self.file, tp, home, source)) is not None
        }
        return [every[name] for name in sorted(names)]

    def _topics(self, home: str, at: str) -> list[str]:
        return [name for name in topics_of(self.clusters[at]) if home_of(self.file, name) == home]

    def _carried(self, home: str, source: str, target: str) -> list[str]:
        """Return the topics that a change from ``source`` to ``target`` waits for; masked topics are never
        sent home.
        """
        every = self._topics(home, source)
        if source == home:
            ways = self.ways(home, source, target)
            return [topic for topic in every if any(way.mirror.selects(topic) for way in ways)]
        return [topic for topic in every if way_back(self.file, topic, home, source) is not None]

    def _of(self, link: Link, home: str) -> set[str]:
        """Return the topics of a change that one link carries."""
        every = self._carried(home, link.source, link.target)
        if link.source == home:
            return {topic for topic in every if link.mirror.selects(topic)}
        return {topic for topic in every if way_back(self.file, topic, home, link.source) == link.name}

    def masked(self, home: str, old: str, new: str) -> list[str]:
        """Return the topics of which one side has a masked copy: records born of it away stay away, because
        at home they would overwrite originals.
        """
        if home not in (old, new):
            return []
        away, at = (old, old) if new == home else (new, old)
        if not self.is_up(at):
            at = new
        return [topic for topic in self._topics(home, at) if masked(self.file, topic, home, away)]

    # ---- report

    def report(self, home: str, old: str, new: str) -> LossReport:
        """Compute the effects of a change of ownership from ``old`` to ``new`` now. Writes nothing."""
        partitions: dict[TopicPartition, MirroredPartition] = {}
        groups: dict[str, GroupSides] = {}
        marks: dict[str, dict[TopicPartition, GroupMark]] = {}
        known: dict[TopicPartition, str] = {}
        board = read_control_state(self.clusters[new])
        other = read_progress(self.clusters[old]) if self.is_up(old) else WrittenState()
        brought = self._brought(home, old, other) if new == home else {}
        for link in self.ways(home, old, new):
            progress, tables = complete_tables(self.clusters[new], link.name)
            marked = progress.of(link.name)
            known |= {tp: mark.topic_id for tp, mark in marked.items()}
            tables = {tp: table for tp, table in tables.items() if home_of(self.file, tp.topic) == home}
            ends = self._ends(old, {tp.topic for tp in tables})
            for tp, table in tables.items():
                end = ends.get(tp, table.source_next) if ends is not None else None
                back = opposite(self.file, link, tp.topic)
                backward = other.table_back(back, marked[tp]) if back is not None else None
                joint = TwoWayOffsetMap(table, backward) if backward is not None else None
                table.advance(brought.get(tp, 0))
                partitions[tp] = MirroredPartition(
                    table, table.target_next, end, board.heard(link.name, tp), joint
                )
            for (name, group), places in board.marks.items():
                if name == link.name:
                    marks.setdefault(group, {}).update(places)
            for seen in self._groups(link, old, new, tables, marks, board):
                groups[seen.group] = seen.joined(groups.get(seen.group))
        up = self.is_up(old)
        left = self._left(home, old, new, known, brought) if up else {}
        heard = {} if up else self._left_heard(home, old, new, board, partitions)
        for tp in left.keys() & partitions.keys():  # recreated: its end is not one of the map's offsets
            partitions[tp] = replace(partitions[tp], source_end=partitions[tp].table.source_next)
        return assess(
            partitions,
            groups.values(),
            marks,
            place=up,
            left=left,
            left_heard=heard,
            source_answers=up,
        )

    def _left_heard(
        self, home: str, old: str, new: str, board: ControlState, mirrored: Container[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, ReportedEnd]]:
        """``_left`` of a source that does not answer, by the last report of a worker: (first offset, last
        reported end).
        """
        return {
            tp: (begin, ReportedEnd(end, ends.at_ms))
            for link in self.ways(home, old, new)
            if (ends := board.ends.get(link.name)) is not None
            for tp, (begin, end) in ends.places.items()
            if tp not in mirrored and home_of(self.file, tp.topic) == home
        }

    def _left(
        self,
        home: str,
        old: str,
        new: str,
        known: Mapping[TopicPartition, str],
        brought: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return source offsets [first, end) of partitions that should be mirrored and have no mirrored
        records. ``known``: topic ids by partition.
        """
        there, kafka = topics_of(self.clusters[old]), self.clusters[old].kafka
        meant = self._carried(home, old, new)
        ends, begins = kafka.end_offsets(meant), kafka.beginning_offsets(meant)
        firsts = {tp: max(begins.get(tp), brought.get(tp, 0)) for tp, _ in ends}
        return {
            tp: (firsts[tp], end)
            for tp, end in ends
            if end > firsts[tp] and known.get(tp) != there[tp.topic].topic_id
        }

    def _brought(self, home: str, away: str, there: WrittenState) -> dict[TopicPartition, int]:
        """Return by partition the offset up to which the copy at ``away`` equals home's records, which are
        not sent home. ``there``: what mirrors wrote at ``away``. Empty once a failback has begun: a tail may
        follow the records born there.
        """
        last = self.control().operations.get(home)
        if last is None or last.kind == "failback":
            return {}
        here, topics = topics_of(self.clusters[home]), topics_of(self.clusters[away])
        return {
            tp: mark.target_next
            for link in self.ways(home, home, away)
            for tp, mark in there.of(link.name).items()
            if tp.topic in here
            and tp.topic in topics
            and mark.is_of(here[tp.topic].topic_id, topics[tp.topic].topic_id)
        }

    def not_mirrored(self, home: str, old: str, new: str) -> dict[str, str]:
        """Return the topics of the change that workers cannot carry, with their last reported reasons."""
        board, now_ms = read_control_state(self.clusters[new]), int(time.time() * 1000)
        found: dict[str, str] = {}
        for link in self.ways(home, old, new):
            carries = board.carries.get(link.name)
            said = dict(carries.trouble) if carries is not None else {}
            for (name, topic, number), status in sorted(board.partitions.items()):
                fresh = now_ms - status.at_ms < _STALE_MS
                if name == link.name and status.state == "stopped" and fresh:
                    said.setdefault(topic, f"partition {number}: {status.reason}")
            found |= {
                topic: why
                for topic, why in said.items()
                if link.mirror.selects(topic) and home_of(self.file, topic) == home
            }
        return found

    def _ends(self, name: str, topics: set[str]) -> Positions | None:
        if not self.is_up(name):
            return None
        there = topics & self.clusters[name].kafka.topics().keys()
        return self.clusters[name].kafka.end_offsets(sorted(there))

    def _groups(
        self,
        link: Link,
        old: str,
        new: str,
        tables: Mapping[TopicPartition, OffsetMap],
        marks: Mapping[str, Mapping[TopicPartition, GroupMark]],
        board: ControlState,
    ) -> list[GroupSides]:
        topics = sorted({tp.topic for tp in tables})
        if self.is_up(old):
            return GroupCarrier(self.file, link, self.clusters[old], self.clusters[new]).seen(topics)
        # The old side does not answer: its groups are known as they were carried last.
        found = []
        for group, places in sorted(marks.items()):
            theirs = self.clusters[new].kafka.group_positions(group).of_topics(topics).offsets
            source = {tp: mark.source_offset for tp, mark in places.items() if tp in tables}
            for status in (board.groups.get((link.name, group)),):
                for place in status.places if status is not None else ():
                    tp = TopicPartition(place.topic, place.partition)
                    if tp in tables:
                        source[tp] = max(source.get(tp, 0), place.source_offset)
            if source:
                found.append(GroupSides(group, source, theirs))
        return found

    # ---- an operation

    def begin(
        self,
        kind: failover.Kind,
        mirror: str,
        home: str,
        new: str,
        *,
        id: str,
        tail: failover.Tail = "replay",
    ) -> OwnershipChange:
        """Return the operation, not written yet. Raises Conflict when it cannot begin."""
        control = self.control()
        old = control.owner(home).acting
        made = failover.begin(
            control,
            kind,
            id=id,
            mirror=mirror,
            home=home,
            new=new,
            now_ms=int(time.time() * 1000),
            old_is_up=self.is_up(old),
            tail=tail,
        )
        self.check_way(home, old, new)
        if kind != "failover" and (stuck := self.not_mirrored(home, old, new)):
            topic, why = min(stuck.items())
            more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
            raise Conflict(
                f'a {kind} would wait for topic "{topic}"{more}, which is not mirrored: {why}',
                hint="put that right or exclude the topic, and wait until `hub mirror status` says that all goes well",
                code="HUB-1968",
            )
        return made

    def check_way(self, home: str, old: str, new: str) -> None:
        """Raise Conflict (HUB-1965) where no mirror leads from one side to the other."""
        if home not in (old, new):
            raise Conflict(
                f"{old} acts for {home} now, and no mirror brought {new} what was born there",
                hint=f"give it back first: hub mirror failback, of a mirror from {home} to {old}",
                code="HUB-1965",
            )
        if not self.ways(home, old, new) and not self.masked(home, old, new):
            raise Conflict(
                f"no mirror leads from {old} to {new} for what {home} owns",
                hint="declare one, and let it catch up first",
                code="HUB-1965",
            )

    def carry_on(self, operation: OwnershipChange) -> OwnershipChange:
        """Do every step that is not done, and record each one. Raises the error of a step; then continue
        later.

        Raises Conflict when another operation counts instead, before it claims anything and before it takes
        ownership.
        """
        try:
            failover.check_stands(self.control(), operation)
            if not operation.done:
                self.tell(operation, operation.record())
            while (step := operation.next) is not None:
                if step.name == "take_ownership":
                    failover.check_stands(self.control(), operation)
                self.say(f"{step.name}: {step.does}")
                self.do(operation, step)
                operation = failover.done(operation, step.name)
                self.tell(operation, operation.record())
            return operation
        finally:
            self._close()

    def abort(self, operation: OwnershipChange) -> OwnershipChange:
        """Abort the operation, while ownership has not changed. Raises Conflict (HUB-1964)."""
        aborted, undo = failover.abort(operation)
        for name in undo:
            self.say(f"undone: {name} (workers and applications see it by the record)")
        try:
            self._give_back(operation)
            self.tell(aborted, aborted.record())
        finally:
            self._close()
        return aborted

    def remind(self, home: str) -> bool:
        """Write the ownership of ``home`` and the last operation to a cluster that was down during it: its
        gateway reads only its own control topic. Returns whether anything was missing.
        """
        boards = self.boards()
        control = joined(board.control for board in boards.values())
        owner, last = control.owner(home), control.operations.get(home)
        if last is None:
            return False
        missed = False
        for name in {last.new, last.old} & boards.keys():
            there = boards[name].control
            records = [owner.record()] if owner.epoch > there.owner(home).epoch else []
            records += [last.record()] if there.operations.get(home) != last else []
            if records:
                self._append(name, records)
                missed = True
        if owner.acting != home and last.state != "running" and self.is_up(home):
            missed |= self._keep_out(last, home)
        self._close()
        return missed

    def tell(self, operation: OwnershipChange, *records: NewRecord) -> None:
        """Write the records to the new side first, then to the old one when it is up."""
        for name in (operation.new, operation.old):
            if self.is_up(name):
                self._append(name, records)

    def _append(self, name: str, records: Sequence[NewRecord]) -> None:
        self._writer(name).append(records)

    def _writer(self, name: str) -> Writer:
        if name not in self._writers:
            self._writers[name] = self.clusters[name].kafka.writer()
        return self._writers[name]

    def _close(self) -> None:
        while self._writers:
            self._writers.popitem()[1].close()

    def do(self, operation: OwnershipChange, step: FailoverStep) -> None:
        """Do one step, perhaps again."""
        old, new, home = operation.old, operation.new, operation.home
        match step.name:
            case "stop_writers":
                self._keep_out(operation, old)
            case "open_writers":
                self._let_in(operation)
            case "fence_home":
                owner = self.control().owner(home)
                if owner.epoch:
                    self.tell(operation, owner.record())
                self._keep_out(operation, new)
                # Since a switchover the way home is open: its open transaction would be committed after the
                # tail's map was read.
                self._take_over(old, new, home)
            case "settle_tail":
                if operation.tail == "replay":
                    self._wait_caught_up(new, old, home)
                else:
                    self._discard(new, old, home)
            case "start_back":
                self._take_over(new, old, home)  # the link that carried the tail, for the same reason
            case "catch_up":
                self._wait_caught_up(old, new, home, but_for=_LITTLE_LAG)
            case "drain":
                self._wait_caught_up(old, new, home, quiet=True)
            case "fence_mirror":
                if operation.kind == "failover" and self.is_up(old):
                    self._keep_out(operation, old)  # or records written from now on would be lost uncounted
                self._fence(operation)
            case "declare_loss":
                self._declare_loss(operation)
            case "place_groups":
                self._place_groups(operation)
            case "take_ownership":
                self.tell(operation, failover.ownership(operation, int(time.time() * 1000)).record())
            case "drop_mirror":
                for link in self.ways(home, old, new):
                    forget_both(self.file, link, self.clusters)
            case "claim" | "start_mirror" | "finish":
                pass  # workers and the gateway follow the record itself

    # ---- write access

    def _copies_rules(self, operation: OwnershipChange) -> bool:
        ways = self.ways(operation.home, operation.old, operation.new)
        return any(way.mirror.acls.copy_ for way in ways)

    def _rules(self, name: str) -> frozenset[Acl] | None:
        found = self.clusters[name].kafka.access_rules()
        return None if found is None else frozenset(map(acl_of, found))

    def _handed(self, home: str) -> OwnershipAcls:
        known = [board.handed[home] for board in self.boards().values() if home in board.handed]
        return max(known, key=lambda each: each.revision, default=OwnershipAcls(home))

    def _former(self, operation: OwnershipChange, handed: OwnershipAcls) -> WriteAcls | None:
        """Return the write rules of the side that gives up ownership: as they are, or as a worker recorded
        them last.
        """
        old, home = operation.old, operation.home
        if self.is_up(old):
            rules = self._rules(old)
            if rules is None:
                return WriteAcls("", checked=False)
            # In a planned change they are revoked before they are granted at the other side.
            own = (rules - handed.denied.get(old, frozenset())) | handed.revoked.get(old, frozenset())
            return WriteAcls("", about_writing(own, self._topics(home, old)))
        board = read_control_state(self.clusters[operation.new], status=False)
        known = [
            board.rights[way.name] for way in self.ways(home, old, operation.new) if way.name in board.rights
        ]
        if not known:
            return None
        rules = frozenset[Acl]().union(*(each.rules for each in known))
        return WriteAcls("", rules, min(each.at_ms for each in known), all(each.checked for each in known))

    def rights(self, operation: OwnershipChange) -> list[AclChange]:
        """Return the changes of access rules: at the new owner, then at the old one if it is up. Changes
        nothing.
        """
        if not self._copies_rules(operation):
            return [
                AclChange(
                    operation.new,
                    notes=("access rules are not the mirror's (acls.copy: false): let writers in yourself",),
                )
            ]
        handed = self._handed(operation.home)
        found = [self._letting_in(operation, handed)]
        if self.is_up(operation.old):
            found.append(self._keeping_out(operation, operation.old, handed))
        return found

    def _letting_in(self, operation: OwnershipChange, handed: OwnershipAcls) -> AclChange:
        old, new, home = operation.old, operation.new, operation.home
        ways = self.ways(home, old, new)
        principals = {key: name for way in ways for key, name in way.mirror.acls.principals.items()}
        copied = frozenset(
            replace(rule, principal=principals.get(rule.principal, rule.principal))
            for rule in handed.denied.get(old, frozenset())
        )
        former = self._former(operation, handed)
        return letting_in(new, self._topics(home, new), former, self._rules(new), handed, principals, copied)

    def _keeping_out(self, operation: OwnershipChange, at: str, handed: OwnershipAcls) -> AclChange:
        users = principals_of(self.file.clusters[at])
        home = operation.home
        return keeping_out(at, home, self._topics(home, at), self._rules(at), handed, users)

    def _let_in(self, operation: OwnershipChange) -> None:
        if self._copies_rules(operation):
            handed = self._handed(operation.home)
            change = self._letting_in(operation, handed)
            self._alter(operation, change, handed.after_giving(operation.new, change))

    def _keep_out(self, operation: OwnershipChange, at: str) -> bool:
        """Keep writers out of a cluster; return whether there was anything to change."""
        if not self._copies_rules(operation):
            return False
        handed = self._handed(operation.home)
        change = self._keeping_out(operation, at, handed)
        return self._alter(operation, change, handed.after_taking(at, change))

    def _give_back(self, operation: OwnershipChange) -> None:
        """Undo an aborted operation's changes to the ACLs of the side that keeps ownership."""
        if self.is_up(operation.old) and self._copies_rules(operation):
            handed = self._handed(operation.home)
            change = giving_back(operation.old, handed, self._rules(operation.old))
            self._alter(operation, change, handed.after_giving(operation.old, change))

    def _alter(self, operation: OwnershipChange, change: AclChange, after: OwnershipAcls) -> bool:
        """Change one cluster's ACLs; rules that the hub adds are recorded before. If the user may not alter
        them, people have to.
        """
        if not change.add and not change.remove:
            return False
        self.tell(operation, after.record())
        kafka = self.clusters[change.at].kafka
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

    def _wait_caught_up(
        self, source: str, target: str, home: str, *, but_for: int = 0, quiet: bool = False
    ) -> None:
        """Wait until workers have carried all offsets but ``but_for``. ``quiet``: and the source's ends have
        not moved for ``_QUIET_S``.
        """
        deadline, say_at_s = time.monotonic() + self.wait_s, time.monotonic() + _SAY_EVERY_S
        reader = WrittenStateReader(self.clusters[target], maps=False)
        quiet_since, before = time.monotonic(), Positions()
        try:
            while True:
                topics, ends = self._behind(reader.refresh(), source, target, home)
                behind = sum(topics.values())
                if ends != before:
                    quiet_since, before = time.monotonic(), ends
                still = not quiet or time.monotonic() - quiet_since >= _QUIET_S
                if behind <= but_for and still:
                    return
                why = (
                    f"{behind} offsets are not mirrored yet, most of topic {max(topics, key=topics.__getitem__)}"
                    if behind > but_for
                    else "somebody still writes"
                )
                if time.monotonic() > say_at_s:
                    self.say(f"  {why}")
                    say_at_s = time.monotonic() + _SAY_EVERY_S
                if time.monotonic() > deadline:
                    raise PeerError(
                        f"from {source} to {target}: {why}, after {self.wait_s:g} s",
                        hint="does a worker run (hub mirror status)? Are the writers stopped? Go on: hub mirror resume",
                        code="HUB-3615",
                    )
                time.sleep(_LOOK_EVERY_S)
        finally:
            reader.close()

    def _behind(
        self, progress: WrittenState, source: str, target: str, home: str
    ) -> tuple[dict[str, int], Positions]:
        """Return by topic the number of offsets still to carry (topics without any are left out), and the
        source's ends.
        """
        positions: dict[TopicPartition, int] = {}
        carried, there = self._carried(home, source, target), topics_of(self.clusters[source])
        for link in self.ways(home, source, target):
            for tp, mark in progress.of(link.name).items():
                if tp.topic in there and mark.topic_id not in ("", there[tp.topic].topic_id):
                    continue  # recreated: the checkpoint's offsets are of another log
                positions[tp] = max(mark.source_next, positions.get(tp, 0))
        ends = self.clusters[source].kafka.end_offsets(sorted(carried), committed=False)
        begins = self.clusters[source].kafka.beginning_offsets(sorted(carried))
        behind: dict[str, int] = {}
        for tp, end in ends:
            if (more := end - max(positions.get(tp, 0), begins.get(tp))) > 0:
                behind[tp.topic] = behind.get(tp.topic, 0) + more
        return behind, ends

    def _take_over(self, source: str, target: str, home: str) -> None:
        """Open every transactional id of a direction: open transactions are aborted, and no late write can
        follow.
        """
        for link in self.ways(home, source, target):
            for number in range(-1, link.mirror.shards):
                self.clusters[target].kafka.writer(Shard(link.name, number).transactional_id).close()

    def _fence(self, operation: OwnershipChange) -> None:
        self._take_over(operation.old, operation.new, operation.home)
        if operation.kind != "failover" and self.is_up(operation.old):
            reader = WrittenStateReader(self.clusters[operation.new], maps=False)
            try:
                behind, _ = self._behind(reader.refresh(), operation.old, operation.new, operation.home)
            finally:
                reader.close()
            if behind:
                raise Conflict(
                    f"{sum(behind.values())} offsets of {', '.join(sorted(behind)[:3])} were written at {operation.old} after the mirror had drained: somebody still writes",
                    hint="stop that writer, then: hub mirror resume --abort, and begin anew",
                    code="HUB-1966",
                )
        if operation.old == operation.home:
            self._record_never_mirrored(operation)

    def _record_never_mirrored(self, operation: OwnershipChange) -> None:
        """Record partitions without any mirrored record, before applications write at the new owner."""
        old, new, home = operation.old, operation.new, operation.home
        up = self.is_up(old)
        board = read_control_state(self.clusters[new])
        for link in self.ways(home, old, new):
            if up:
                there = topics_of(self.clusters[old])
                topics = {
                    topic: CarriedTopic(there[topic].partitions, there[topic].topic_id)
                    for topic in self._of(link, home)
                    if link.name in route(self.file, topic).mirrors
                }
            else:
                carried = board.carries[link.name].topics if link.name in board.carries else {}
                topics = {name: each for name, each in carried.items() if home_of(self.file, name) == home}
            NeverMirrored(link, self.clusters[old], self.clusters[new], up).record(topics, board)

    def _declare_loss(self, operation: OwnershipChange) -> None:
        report = self.report(operation.home, operation.old, operation.new)
        said = declared(operation.home, operation.epoch, report, int(time.time() * 1000))
        self.tell(operation, said.record())

    def _place_groups(self, operation: OwnershipChange) -> None:
        """Place the groups with the final map. If the old side is down, groups stay where they were carried
        last.
        """
        old, new = operation.old, operation.new
        if not self.is_up(old):
            return
        for link in self.ways(operation.home, old, new):
            found = self.groups(link, operation.home)
            if any_to_commit(found):
                # The workers' transactional id: a commit that one of them prepared with an older map is
                # refused.
                writer = self.clusters[new].kafka.writer(Shard(link.name, CHORES).transactional_id)
                try:
                    mark_and_commit(writer, self.clusters[new], link.name, found)
                finally:
                    writer.close()

    def groups(self, link: Link, home: str) -> list[Found]:
        """Return each group of a link with its decision, by complete maps of both directions."""
        source, target = self.clusters[link.source], self.clusters[link.target]
        progress, tables = complete_tables(target, link.name)
        other = read_progress(source)
        board = read_control_state(target, status=False)
        joint: dict[TopicPartition, OffsetMap | TwoWayOffsetMap] = {}
        marked = progress.of(link.name)
        for tp, table in tables.items():
            if home_of(self.file, tp.topic) != home:
                continue
            back = opposite(self.file, link, tp.topic)
            backward = other.table_back(back, marked[tp]) if back is not None else None
            joint[tp] = table if backward is None else TwoWayOffsetMap(table, backward)
        carrier = GroupCarrier(self.file, link, source, target)
        groups = carrier.seen({tp.topic for tp in joint} | self._of(link, home))
        joint |= carrier.untouched(groups, marked)
        found = []
        for seen in groups:
            marks = board.marks.get((link.name, seen.group), {})
            found.append((seen, carry(seen, joint, marks, force=link.mirror.groups.force)))
        return found

    def _discard(self, home_side: str, away: str, home: str) -> None:
        """Declare home's tail lost: write a gap, and a checkpoint after it, in one transaction per shard."""
        source, target = self.clusters[home_side], self.clusters[away]
        for link in self.ways(home, home_side, away):
            there = topics_of(source)
            # A deleted topic has no tail, a recreated one has a different log: the file decides how that is
            # mirrored.
            known = {
                tp: mark
                for tp, mark in read_progress(target, maps=False).of(link.name).items()
                if tp.topic in there and mark.topic_id in ("", there[tp.topic].topic_id)
            }
            ends = source.kafka.end_offsets(sorted({tp.topic for tp in known}), committed=False)
            places = target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
            by_shard: dict[int, list[tuple[Checkpoint, int]]] = {}
            for tp, mark in known.items():
                if ends.get(tp) > mark.source_next:
                    number = shard_of(*tp, link.mirror.shards)
                    by_shard.setdefault(number, []).append((mark, ends.get(tp)))
            for number, lost in by_shard.items():
                place = checkpoint_partition(link.name, number, places)
                writer = target.kafka.writer(Shard(link.name, number).transactional_id)
                try:
                    writer.append(_discarded(link.name, number, lost, place))
                finally:
                    writer.close()


def _discarded(link: str, number: int, lost: Sequence[tuple[Checkpoint, int]], place: int) -> list[NewRecord]:
    now_ms = int(time.time() * 1000)
    made = []
    for mark, end in lost:
        gap = Gap(link, mark.topic, mark.partition, mark.topic_id, mark.source_next, end, "skipped", now_ms)
        after = Checkpoint(
            link,
            number,
            mark.topic,
            mark.partition,
            mark.topic_id,
            end,
            -1,
            mark.target_next,
            target_topic_id=mark.target_topic_id,
            generation=mark.generation,
            source_start=mark.source_start,
            target_start=mark.target_start,
            source_timestamp_ms=mark.source_timestamp_ms,
            committed_at_ms=now_ms,
        )
        made += [gap.record(place), after.record(place)]
    return made


def _ends(link: Link) -> tuple[str, str]:
    return link.source, link.target
