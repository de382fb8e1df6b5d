"""Seeded simulation: mirrors, groups and changes of ownership over in-memory clusters, with crashes
between any two steps.

Every actor is a generator that yields where it may die, be paused for ever, or be paused and come back as a
zombie. What carries records is the engine itself, over clusters in memory: it may be interrupted before every
request and before every answer. A log has, beside records, what a real one has: markers of transactions,
aborted records, a start that moves.

Invariants: no record twice, none missing but for declared gaps, order kept, translations exact in both
directions, no group skips a record that it has not read.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, get_args

import pytest
from memory_brokers import ManualClock, MemoryBrokers, MemoryLog
from memory_connection import MemoryConnection
from samples import fast_or

from hub.errors import PeerError
from hub.log import WriterFenced
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.status_records import CarriedTopic
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.config.topology import check, route
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.shard_start import (
    SeedFacts,
    ShardAssignment,
    needs_seed,
    records_from_target,
    seed,
)
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_TOPIC,
    CONTROL_TOPIC,
    MAP_TOPIC,
    Checkpoint,
    Gap,
    checkpoint_of,
    checkpoint_partition,
    folded,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap, foreign_ranges
from hub.replication.operations.never_mirrored import never_mirrored
from hub.replication.ownership import failover, loss_report
from hub.replication.ownership.divergence import (
    fresh_checkpoint,
    left_out_ranges,
    superseded,
)
from hub.replication.ownership.failover import Control
from hub.replication.ownership.group_offsets import GroupMark, GroupSides, carry, mark_of, marks_for
from hub.replication.ownership.operation_steps import CARRIED_TAILS, Kind, OwnershipChange, StepName, Tail
from hub.replication.ownership.shards import Shard, shard_of
from hub.replication.rewriting.record_filter import stretches

Actor = Generator[None, None, None]

OWN_TOPICS = {CHECKPOINTS_TOPIC: 8, MAP_TOPIC: 8, CONTROL_TOPIC: 1}
CONTROL = TopicPartition(CONTROL_TOPIC, 0)
SHARDS = 2
KEYS = (None, *(b"k%d" % number for number in range(40)))
# Every step is one transaction, and none is ended by its age while its engine waits for its turn.
SETTINGS = EngineSettings(
    commit_interval_s=0.0,
    fetch_wait_ms=1,
    fetch_partition_bytes=2_000,
    transaction_timeout_s=600.0,
    start_timeout_s=1200.0,
    on_gap="continue",
    hold_s=0.05,
)
PAUSED_AT = {"fetch", "initialize", "add", "produce", "end"}


class Killed(BaseException):
    """Ends a thread of the simulation; no code of the product catches it."""


class Stepped:
    """A function in a thread that runs only while it is resumed, from one ``pause`` to the next. One thread
    of a simulation runs at a time, so that a seed always gives the same run."""

    here = threading.local()
    alive: ClassVar[set[Stepped]] = set()

    def __init__(self, work: Callable[[], None]) -> None:
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._killed, self._ended, self._error = False, False, None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        Stepped.alive.add(self)

    def _run(self, work: Callable[[], None]) -> None:
        Stepped.here.stepped = self
        try:
            self._wait()
            work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the thread is resumed
            self._error = error
        self._ended = True
        self._theirs.release()

    def _wait(self) -> None:
        self._mine.acquire()
        if self._killed:
            raise Killed

    @classmethod
    def pause(cls) -> None:
        """Let the others go on; does nothing outside of such a thread."""
        stepped = getattr(cls.here, "stepped", None)
        if stepped is not None:
            stepped._theirs.release()
            stepped._wait()

    def resume(self) -> bool:
        """Go on to the next pause; returns whether there is more to do. Raises what the function raised."""
        if not self._ended:
            self._mine.release()
            self._theirs.acquire()
        if self._error is not None:
            raise self._error
        return not self._ended

    def kill(self) -> None:
        self._killed = True
        while not self._ended:
            self._mine.release()
            self._theirs.acquire()
        Stepped.alive.discard(self)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    for stepped in list(Stepped.alive):
        stepped.kill()


class Node:
    """A cluster with its groups' positions, and what was read of it so far."""

    def __init__(self, name: str, clock: ManualClock, hook: Callable[[str, str], None]) -> None:
        self.name = name
        self.brokers = MemoryBrokers(clock, hook)
        self.commits: dict[tuple[str, TopicPartition], int] = {}
        self.compacted: dict[TopicPartition, tuple[int, dict[bytes | None, Record]]] = {}
        self.written, self.applied = WrittenState(), dict[TopicPartition, int]()
        for own, partitions in OWN_TOPICS.items():
            self.brokers.create_topic(own, partitions)

    @property
    def up(self) -> bool:
        return self.brokers.up

    @up.setter
    def up(self, up: bool) -> None:
        self.brokers.up = up

    def log(self, at: TopicPartition) -> MemoryLog:
        return self.brokers.logs[at]

    def end(self, at: TopicPartition) -> int:
        return self.log(at).end

    def fence(self, transactional_id: str) -> None:
        """As InitProducerId: fences the one before and aborts what it left."""
        self.brokers.initialize(transactional_id)

    def read(self, at: TopicPartition, position: int, limit: int) -> tuple[list[tuple[int, bytes]], int]:
        found = []
        for record in self.log(at).records(position):
            if len(found) == limit:
                return found, found[-1][0] + 1
            found.append((record[0], record[3] or b""))
        return found, max(position, self.log(at).stable_end)

    def all(self, at: TopicPartition) -> list[tuple[int, bytes]]:
        return self.read(at, 0, 1 << 30)[0]

    def ever(self, at: TopicPartition) -> list[tuple[int, bytes]]:
        """Also what retention has removed."""
        return [(offset, value or b"") for offset, _, _, value in replace(self.log(at), start=0).records()]

    def latest(self, topic: str) -> list[Record]:
        """What compaction would leave, in log order."""
        found: list[Record] = []
        for at in self.brokers.partitions(topic):
            done, table = self.compacted.get(at, (0, {}))
            for record in self.brokers.records(at, done) if done < self.log(at).stable_end else ():
                table.pop(record.key, None)
                table[record.key] = record
            self.compacted[at] = self.log(at).stable_end, table
            found += table.values()
        return found

    def lengths(self, *topics: str) -> tuple[int, ...]:
        return tuple(self.log(at).stable_end for topic in topics for at in self.brokers.partitions(topic))

    def state(self) -> WrittenState:
        """What mirrors wrote here, as a worker has read it."""
        for topic in (CHECKPOINTS_TOPIC, MAP_TOPIC):
            for at in self.brokers.partitions(topic):
                if self.applied.get(at, 0) < self.log(at).stable_end:
                    for record in self.brokers.records(at, self.applied.get(at, 0)):
                        self.written.apply(record)
                    self.applied[at] = self.log(at).stable_end
        return self.written


class World:
    def __init__(self, seed: int, file: MirrorsFile, topics: dict[str, int], crash: float = 0.05) -> None:
        self.chance = random.Random(seed)
        self.file = file
        self.crash = crash
        self.clock = ManualClock()
        self.nodes = {name: Node(name, self.clock, self.pause) for name in file.clusters}
        self.stopped: set[str] = set()  # codes of partitions that stopped
        self.topics = topics
        self.homes = {topic: topic.split(".")[0] for topic in topics}
        self.number = 0
        self.born: dict[TopicPartition, list[bytes]] = {}
        self.gone: set[bytes] = set()  # retention or compaction took them before the mirror came
        self.processed: dict[str, list[bytes]] = {}
        self.active: str | None = None
        self.now = 0
        self.running: dict[str, Actor] = {}
        self.controls: dict[tuple[str, ...], tuple[tuple[int, ...], Control]] = {}
        self.recorded: dict[tuple[str, str], str] = {}  # topics to restore, by operation: their former ids
        self.known: dict[
            tuple[str, TopicPartition], tuple[tuple[int, ...], Checkpoint | None, OffsetMap]
        ] = {}
        self.zombies: list[Actor] = []
        for node in self.nodes.values():
            if seed % 2:  # a long link, between brokers of Kafka 4
                node.brokers.implicit, node.brokers.round_trip_s = True, 0.1
            for topic, partitions in topics.items():
                node.brokers.create_topic(topic, partitions)

    def pause(self, request: str, _: str) -> None:
        """Any actor may be the next before any request of an engine, and before its answer."""
        if request in PAUSED_AT and self.chance.random() < 0.3:
            Stepped.pause()

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(t, p) for t, count in self.topics.items() for p in range(count)]

    def control(self, *names: str) -> Control:
        asked = names or tuple(name for name, node in self.nodes.items() if node.up)
        lengths = tuple(self.nodes[name].end(CONTROL) for name in asked)
        if self.controls.get(asked, ((), Control()))[0] != lengths:
            state = Control()
            for name in asked:
                for record in self.nodes[name].brokers.records(CONTROL):
                    state = failover.apply(state, record)
            self.controls[asked] = lengths, state
        return self.controls[asked][1]

    def progress(self, link: str, at: TopicPartition) -> tuple[Checkpoint | None, OffsetMap]:
        node = self.nodes[self.file.mirrors[link].target]
        lengths = node.lengths(CHECKPOINTS_TOPIC, MAP_TOPIC)
        if self.known.get((link, at), ((), None, OffsetMap()))[0] != lengths:
            said = [checkpoint_of(record) for record in node.latest(CHECKPOINTS_TOPIC)]
            mark = newest(each for each in said if isinstance(each, Checkpoint)).get((link, *at))
            runs = [
                found for record in node.latest(MAP_TOPIC) if (found := map_record_of(record)) is not None
            ]
            self.known[link, at] = lengths, mark, OffsetMap() if mark is None else offset_map(mark, runs)
        return self.known[link, at][1:]

    def carried_to(self, link: str, at: TopicPartition) -> int:
        """Next offset to carry of the topic as it is now."""
        mark, source = self.progress(link, at)[0], self.nodes[self.file.mirrors[link].source]
        return mark.source_next if mark and mark.topic_id == source.brokers.topic_id(at.topic) else 0

    def gaps(self, link: str) -> list[Gap]:
        node = self.nodes[self.file.mirrors[link].target]
        said = [checkpoint_of(record) for record in node.latest(CHECKPOINTS_TOPIC)]
        return [each for each in said if isinstance(each, Gap) and each.link == link]

    def link(self, source: str, target: str) -> str | None:
        found = [n for n, m in self.file.mirrors.items() if (m.source, m.target) == (source, target)]
        return found[0] if found else None

    def joint(self, source: str, target: str, at: TopicPartition) -> TwoWayOffsetMap:
        there, back = self.link(source, target), self.link(target, source)
        assert there is not None
        return TwoWayOffsetMap(
            self.progress(there, at)[1], self.progress(back, at)[1] if back else OffsetMap()
        )

    def may(self, link: str, at: TopicPartition) -> bool:
        mirror, home = self.file.mirrors[link], self.homes[at.topic]
        source, target = self.nodes[mirror.source], self.nodes[mirror.target]
        control = self.control()
        if not (source.up and target.up and control.may_mirror(home, mirror.source, mirror.target)):
            return False
        running = control.running(home)
        settling = running is not None and {mirror.source, mirror.target} == {running.old, running.new}
        found = route(self.file, at.topic, control.acting)
        return settling or (link in found.mirrors and not found.refusals)

    # ---- actors

    def producer(self) -> Actor:
        while True:
            at = self.chance.choice(self.places)
            home = self.homes[at.topic]
            for name, node in self.nodes.items():
                # A side that is cut off knows only its own control topic: that is what a failover is about.
                if self.control(name).may_write(name, home) and node.up:
                    self.produce(node, at, self.chance.randint(1, 4))
            yield

    def produce(self, node: Node, at: TopicPartition, count: int) -> None:
        values = []
        for _ in range(count):
            self.number += 1
            values.append(b"%s:%d" % (node.name.encode(), self.number))
        keys = [self.chance.choice(KEYS) for _ in values]
        new = [
            NewRecord(at.topic, key, value, partition=at.partition)
            for key, value in zip(keys, values, strict=True)
        ]
        outcome = self.chance.random()
        if outcome < 0.3:
            node.brokers.transaction(f"producer.{self.number}", new, commit=outcome >= 0.1)
        else:
            node.brokers.append(new)
        if outcome >= 0.1:
            self.born.setdefault(at, []).extend(values)

    def worker(self, link: str, shard: int) -> Actor:
        stepped = Stepped(lambda: self.work(Shard(link, shard)))
        try:
            while stepped.resume():
                yield
        finally:
            stepped.kill()

    def work(self, shard: Shard) -> None:
        """One shard on one worker: an engine for each assignment, as shard_thread.py has it.
        Raises WriterFenced."""
        while True:
            assignment = self.assignment(shard)
            if assignment.partitions:
                try:
                    self.carry_assigned(shard, assignment)
                except PeerError as error:
                    if isinstance(error, WriterFenced):
                        raise
            Stepped.pause()

    def assignment(self, shard: Shard) -> ShardAssignment:
        mirror = self.file.mirrors[shard.link]
        source = self.nodes[mirror.source]
        places = [
            at for at in self.places if shard_of(*at, SHARDS) == shard.number and self.may(shard.link, at)
        ]
        topics = {}
        for topic in {at.topic for at in places}:
            now = source.brokers.topic_id(topic)
            marks = [
                mark for at in self.places if at.topic == topic and (mark := self.progress(shard.link, at)[0])
            ]
            newest = max(marks, key=lambda mark: mark.generation, default=None)
            generation = 0 if newest is None else newest.generation + (newest.topic_id != now)
            topics[topic] = CarriedTopic(self.topics[topic], now, generation)
        back = self.link(mirror.target, mirror.source)
        opposites = dict.fromkeys(topics, back) if back is not None and self.control().operations else {}
        return ShardAssignment(tuple(places), topics, opposites)

    def carry_assigned(self, shard: Shard, assignment: ShardAssignment) -> None:
        mirror, places = self.file.mirrors[shard.link], assignment.partitions
        source, target = self.nodes[mirror.source], self.nodes[mirror.target]
        target_ids = {topic: target.brokers.topic_id(topic) for topic in assignment.topics}
        foreign, born = records_from_target(assignment, places, source.state(), {}, target_ids)
        ids = {topic: each.topic_id for topic, each in assignment.topics.items()}
        left_out = left_out_ranges(target.state().gaps.values(), shard.link, ids)
        self.seed(shard, assignment, born)
        engine = BatchEngine(
            MemoryConnection(source.brokers, "source"),
            MemoryConnection(target.brokers, "target"),
            link=shard.link,
            shard=shard.number,
            partitions=places,
            settings=SETTINGS,
            foreign=foreign,
            left_out={tp: ranges for tp, ranges in left_out.items() if tp in places},
            clock=self.clock,
        )
        try:
            engine.start()
            while self.assignment(shard) == assignment:
                engine.step()
                codes = {each.error.code for each in engine.progress() if each.error is not None}
                self.stopped |= codes
                if codes:
                    break
                Stepped.pause()
        finally:
            engine.close()

    def seed(self, shard: Shard, assignment: ShardAssignment, born: dict[TopicPartition, int]) -> None:
        mirror = self.file.mirrors[shard.link]
        source, target = self.nodes[mirror.source], self.nodes[mirror.target]

        def needed() -> list[TopicPartition]:
            known = target.state().of(shard.link)
            return [
                at
                for at in assignment.partitions
                if needs_seed(known.get(at), assignment.topics[at.topic], elsewhere=at in born)
            ]

        if not needed():
            return
        target.fence(shard.transactional_id)
        Stepped.pause()
        new: list[NewRecord] = []
        place = checkpoint_partition(*shard, OWN_TOPICS[CHECKPOINTS_TOPIC])
        for at in needed():
            facts = SeedFacts(
                at,
                assignment.topics[at.topic],
                target.state().of(shard.link).get(at),
                source.log(at).start,
                born.get(at),
                target.log(at).start,
                target.end(at),
                target.brokers.topic_id(at.topic),
            )
            new += seed(facts, shard, place, 0)
        target.brokers.transaction(shard.transactional_id, new)

    def folder(self, link: str) -> Actor:
        """Folds old map records in the background, and dies on the way."""
        target = self.nodes[self.file.mirrors[link].target]
        while True:
            at = self.chance.choice(self.places)
            mark, _ = self.progress(link, at)
            records = [
                (r.partition, found)
                for r in target.latest(MAP_TOPIC)
                if (found := map_record_of(r)) is not None
            ]
            of = (link, at.topic, mark.topic_id, at.partition) if mark else None
            mine = [found for _, found in records if found.of == of]
            places = [place for place, found in records if found.of == of]
            for new in folded(sorted(mine, key=lambda r: r.runs[0].source)[:-2], max(places, default=0), 20):
                target.brokers.append([new])
                yield
            yield

    def consumer(self, group: str) -> Actor:
        while True:
            node = self.nodes[self.active or ""]
            if not node.up:
                yield
                continue
            at = self.chance.choice(self.places)
            records, following = node.read(at, node.commits.get((group, at), 0), self.chance.randint(1, 5))
            self.processed.setdefault(group, []).extend(value for _, value in records)
            yield  # read and not committed: read again
            node.commits[group, at] = following
            yield

    def marks(self, link: str, group: str) -> dict[TopicPartition, GroupMark]:
        node = self.nodes[self.file.mirrors[link].target]
        said = [mark_of(record) for record in node.latest(CONTROL_TOPIC)]
        return {
            TopicPartition(m.topic, m.partition): m for m in said if m and (m.link, m.group) == (link, group)
        }

    def carry(self, link: str, group: str) -> Actor:
        """One round for one group. The broker takes a commit only while the group has no members there."""
        mirror = self.file.mirrors[link]
        source, target = self.nodes[mirror.source], self.nodes[mirror.target]
        tables = {at: self.joint(mirror.source, mirror.target, at) for at in self.places}
        seen = GroupSides(
            group,
            {at: offset for (name, at), offset in source.commits.items() if name == group},
            {at: offset for (name, at), offset in target.commits.items() if name == group},
            self.active == target.name,
        )
        found = carry(seen, tables, self.marks(link, group))
        target.brokers.append([mark.record() for mark in marks_for(link, found, seen)])
        yield
        for each in found:
            if each.commit is not None and self.active != target.name:
                target.commits[group, each.place] = each.commit
                yield

    def carrier(self, link: str, group: str) -> Actor:
        mirror = self.file.mirrors[link]
        while True:
            if all(self.may(link, at) for at in self.places):
                yield from self.carry(link, group)
            assert mirror.source in self.nodes
            yield

    def caught_up(self, source: str, target: str, but_for: int = 0) -> bool:
        link = self.link(source, target)
        assert link is not None
        for at in self.places:
            mark, _ = self.progress(link, at)
            if (mark.source_next if mark else 0) + but_for < self.nodes[source].end(at):
                return False
        return True

    def tell(self, operation: OwnershipChange, new: NewRecord) -> None:
        """Into the new side first, then into the old one when it is up."""
        for name in (operation.new, operation.old):
            if self.nodes[name].up:
                self.nodes[name].brokers.append([new])

    def operator(self, kind: Kind, home: str, new: str, groups: list[str], tail: Tail) -> Actor:
        """Begins or goes on with a change of hands, as after a crash in any step."""
        control = self.control()
        operation = control.running(home)
        if operation is None:
            operation = failover.begin(
                control,
                kind,
                id=str(self.number),
                mirror="m",
                home=home,
                new=new,
                now_ms=0,
                old_is_up=self.nodes[control.owner(home).acting].up,
                tail=tail,
            )
            self.tell(operation, operation.record())
            yield
        while (step := operation.next) is not None:
            yield from self.perform(operation, step.name, groups)
            yield
            operation = failover.done(operation, step.name)
            self.tell(operation, operation.record())
            yield

    def perform(self, operation: OwnershipChange, name: StepName, groups: list[str]) -> Actor:
        old, new, home = operation.old, operation.new, operation.home
        match name:
            case "drain" | "catch_up":
                while not self.caught_up(old, new, but_for=0 if name == "drain" else 50):
                    yield
            case "fence_home":
                owner = self.control(old).owner(home)
                self.tell(operation, owner.record())
                yield from self.fence(old, new)
            case "start_back":
                yield from self.fence(new, old)
            case "settle_tail":
                if operation.tail in CARRIED_TAILS:
                    while not self.caught_up(new, old):
                        yield
                elif operation.tail == "discard":
                    yield from self.discard(new, old)
                else:
                    yield from self.restore(operation)
            case "fence_mirror":
                yield from self.fence(old, new)
                if old == home:
                    yield from self.record_never_mirrored(old, new)
            case "place_groups":
                link = self.link(old, new)
                for group in groups if self.nodes[old].up and link else ():
                    yield from self.carry(link or "", group)
            case "take_ownership":
                self.tell(operation, failover.ownership(operation, self.now).record())
            case "open_writers":
                self.active = new
            case "stop_writers":
                self.active = "" if "" in self.nodes else self.active
                if operation.tail == "merge" and operation.kind == "failback":
                    yield from self.merge(new, old)

    def fence(self, source: str, target: str) -> Actor:
        for shard in range(SHARDS):
            self.nodes[target].fence(Shard(self.link(source, target) or "", shard).transactional_id)
            yield

    def record_never_mirrored(self, home: str, away: str) -> Actor:
        """Write what operations/never_mirrored.py writes; the source's first offset counts as reported."""
        link, target = self.link(home, away) or "", self.nodes[away]
        topics = {
            topic: CarriedTopic(number, self.nodes[home].brokers.topic_id(topic))
            for topic, number in self.topics.items()
        }
        known = target.state().of(link)
        for at in never_mirrored(topics, known, [at for at in self.places if target.all(at)]):
            shard = Shard(link, shard_of(*at, SHARDS))
            first, begin, end = self.nodes[home].log(at).start, target.log(at).start, target.end(at)
            facts = SeedFacts(
                at, topics[at.topic], None, first, 0, begin, end, target.brokers.topic_id(at.topic)
            )
            place = checkpoint_partition(*shard, OWN_TOPICS[CHECKPOINTS_TOPIC])
            target.fence(shard.transactional_id)
            target.brokers.transaction(shard.transactional_id, seed(facts, shard, place, 0))
            yield

    def tail_begins(self, home: str, away: str, at: TopicPartition) -> int:
        """Return home's first offset that was neither mirrored nor came from the other side."""
        mark = self.progress(self.link(home, away) or "", at)[0]
        back = self.progress(self.link(away, home) or "", at)[0]
        first = mark.source_next if mark else 0
        return max(first, back.target_next) if back and mark and mark.goes_back(back) else first

    def discard(self, home: str, away: str) -> Actor:
        """Declares home's tail lost: a gap, and a checkpoint after it, in one transaction of each shard."""
        link = self.link(home, away) or ""
        for at in self.places:
            shard = Shard(link, shard_of(*at, SHARDS))
            self.nodes[away].fence(shard.transactional_id)
            mark, end = self.progress(link, at)[0], self.nodes[home].end(at)
            first = self.tail_begins(home, away, at)
            if mark is not None and first < end:
                self.gone |= {v for o, v in self.nodes[home].all(at) if o >= first}
                place = checkpoint_partition(*shard, OWN_TOPICS[CHECKPOINTS_TOPIC])
                gap = Gap(link, *at, mark.topic_id, first, end, "skipped").record(place)
                after = replace(mark, source_next=end, source_leader_epoch=-1).record(place)
                self.nodes[away].brokers.transaction(shard.transactional_id, [gap, after])
            yield

    def merge(self, home: str, away: str) -> Actor:
        """Declare which records of home's tail are superseded, as operations/divergence/merging.py does."""
        link, back = self.link(home, away) or "", self.link(away, home) or ""
        for at in self.places:
            mark, theirs = self.progress(link, at)[0], self.progress(back, at)[0]
            if mark is None:
                continue
            since = max(mark.target_next, theirs.source_next if theirs and theirs.goes_back(mark) else 0)
            newer = {each.key for each in self.nodes[away].brokers.records(at, since) if each.key is not None}
            tail = self.nodes[home].brokers.records(at, self.tail_begins(home, away, at))
            offsets = sorted(superseded(tail, newer).get(at, ()))
            self.gone |= {value for offset, value in self.nodes[home].all(at) if offset in offsets}
            shard = Shard(link, shard_of(*at, SHARDS))
            place = checkpoint_partition(*shard, OWN_TOPICS[CHECKPOINTS_TOPIC])
            gaps = [Gap(link, *at, mark.topic_id, *each, "superseded") for each in stretches(offsets)]
            self.nodes[away].fence(shard.transactional_id)
            yield
            self.nodes[away].brokers.transaction(shard.transactional_id, [gap.record(place) for gap in gaps])
            yield

    def restore(self, operation: OwnershipChange) -> Actor:
        """Make diverged topics of home again, as operations/divergence/restoring.py does."""
        home, away = self.nodes[operation.home], self.nodes[operation.old]
        for topic, count in self.topics.items():
            places = [TopicPartition(topic, number) for number in range(count)]
            if (operation.id, topic) not in self.recorded:
                if not any(home.read(at, self.tail_begins(home.name, away.name, at), 1)[0] for at in places):
                    continue
                # Carriers of groups are fenced before, so none commits a position of the former log.
                for name in [name for name in self.running if name.startswith("carrier")]:
                    del self.running[name]
                self.recorded[operation.id, topic] = home.brokers.topic_id(topic)
                yield
            if home.brokers.topic_id(topic) == self.recorded[operation.id, topic]:
                for at in places:
                    self.gone |= {v for _, v in home.all(at)} - {v for _, v in away.all(at)}
                home.brokers.delete_topic(topic)
                home.brokers.create_topic(topic, count)
                for key in [key for key in home.commits if key[1].topic == topic]:
                    del home.commits[key]
                yield
            yield from self.begin_anew(home, away, places)

    def begin_anew(self, home: Node, away: Node, places: list[TopicPartition]) -> Actor:
        for source, target in ((home, away), (away, home)):
            link = self.link(source.name, target.name) or ""
            for at in places:
                shard = Shard(link, shard_of(*at, SHARDS))
                ids = source.brokers.topic_id(at.topic), target.brokers.topic_id(at.topic)
                first = source.log(at).start if source is away else 0
                empty = Checkpoint(
                    link, shard.number, *at, ids[0], first, -1, 0, target_topic_id=ids[1], source_start=first
                )
                place = checkpoint_partition(*shard, OWN_TOPICS[CHECKPOINTS_TOPIC])
                target.fence(shard.transactional_id)
                known = target.state().of(link).get(at)
                if target is home and known is not None and not known.is_of(*ids):
                    self.forget(target, known)
                    yield
                made = fresh_checkpoint(target.state().of(link).get(at), empty, place, 0)
                target.brokers.transaction(shard.transactional_id, made)
                yield

    def forget(self, target: Node, mark: Checkpoint) -> None:
        """Delete the map and the checkpoint of one partition, as operations/forget.py does."""
        of = mark.link, mark.topic, mark.topic_id, mark.partition
        for number, key in sorted(target.state().keys.get(of, ())):
            target.brokers.append([NewRecord(MAP_TOPIC, key, None, partition=number)])
        for at in target.brokers.partitions(CHECKPOINTS_TOPIC):
            target.brokers.append([NewRecord(CHECKPOINTS_TOPIC, mark.key, None, partition=at.partition)])

    # ---- running them

    def run(self, actors: dict[str, object], steps: int) -> None:
        """``actors``: names to functions that begin one anew.
        Any may die; workers may also come back as zombies."""
        running, zombies = self.running, self.zombies
        for name, begin in actors.items():
            if name not in running:
                running[name] = begin()  # type: ignore[operator]
        for _ in range(steps):
            self.now += 1
            name = self.chance.choice(list(actors))
            if self.chance.random() < self.crash and not name.startswith(("producer", "consumer")):
                if name.startswith("worker"):
                    zombies.append(running[name])
                running[name] = actors[name]()  # type: ignore[operator]
            try:
                next(running[name])
            except (StopIteration, WriterFenced):
                running[name] = actors[name]()  # type: ignore[operator]
            if zombies and self.chance.random() < 0.3:
                zombie = zombies.pop(self.chance.randrange(len(zombies)))
                try:
                    next(zombie)
                    zombies.append(zombie)
                except (StopIteration, WriterFenced):
                    pass

    def finish(self, actor: Actor, others: dict[str, object], most: int = 4000) -> None:
        """One actor to its end, while others go on."""
        running = {name: begin() for name, begin in others.items()}  # type: ignore[operator]
        for _ in range(most):
            try:
                next(actor)
            except StopIteration:
                return
            name = self.chance.choice(list(running))
            try:
                next(running[name])
            except (StopIteration, WriterFenced):
                running[name] = others[name]()  # type: ignore[operator]
        raise AssertionError("an actor did not come to its end")

    def workers(self) -> dict[str, object]:
        return {
            f"worker {link} {shard}": (lambda link=link, shard=shard: self.worker(link, shard))
            for link in self.file.mirrors
            for shard in range(SHARDS)
        }

    def settle(self, rounds: int = 4_000) -> None:
        """Lets every mirror catch up, without crashes."""
        running = {name: begin() for name, begin in self.workers().items()}  # type: ignore[operator]
        for number in range(rounds):
            for actor in running.values():
                next(actor)
            if number % 50 == 49 and self.settled():
                break
        else:
            raise AssertionError("the mirrors do not catch up")
        for actor in running.values():
            actor.close()

    def settled(self) -> bool:
        for link, mirror in self.file.mirrors.items():
            for at in self.places:
                if self.may(link, at):
                    mark, source = self.progress(link, at)[0], self.nodes[mirror.source]
                    if source.end(at) and (
                        mark is None
                        or (mark.source_next, mark.topic_id)
                        != (source.end(at), source.brokers.topic_id(at.topic))
                    ):
                        return False
        return True

    # ---- invariants

    def check_link(self, link: str) -> None:
        """Every source record is in the target once, in its order, at the offset that the map says;
        or in a gap."""
        mirror = self.file.mirrors[link]
        source, target = self.nodes[mirror.source], self.nodes[mirror.target]
        opposite = self.link(mirror.target, mirror.source)
        for at in self.places:
            if not self.may(link, at):
                continue
            mark, table = self.progress(link, at)
            assert mark is not None
            theirs = dict(target.all(at))
            values = list(theirs.values())
            assert len(values) == len(set(values)), f"{at}: a record is there twice"
            back = self.progress(opposite, at)[1] if opposite else OffsetMap()
            gaps = [g for g in self.gaps(link) if (g.topic, g.partition, g.topic_id) == (*at, mark.topic_id)]
            for offset, value in source.all(at):
                if foreign_ranges(back, offset, offset + 1):
                    assert value in values, f"{at}: {value!r} came from there and is not there"
                    continue
                if any(gap.first <= offset < gap.end for gap in gaps):
                    continue
                found = table.translate(offset)
                assert found.kind == "exact", f"{at}: {offset} is {found}"
                assert theirs[found.offset] == value, f"{at}: {offset} leads to another record"
                assert table.reverse(found.offset).offset == offset
            for run in table:
                for n in range(run.count):
                    assert run.target + n in theirs

    def check_missing(self, at: TopicPartition, name: str, gone: set[bytes]) -> None:
        have = [value for _, value in self.nodes[name].all(at)]
        assert len(have) == len(set(have))
        assert [value for value in self.born.get(at, []) if value not in have and value not in gone] == []

    def check_last_of_each_key(self, *names: str) -> None:
        """The last record of each key is the same everywhere: a compacted topic then has the same rows."""
        for at in self.places:
            every = [{r.key: r.value for r in self.nodes[n].brokers.records(at) if r.key} for n in names]
            assert all(each == every[0] for each in every), f"{at}: {every}"

    def check_group(self, group: str, name: str) -> None:
        """The group has read everything before its position in a cluster, but for what was declared lost."""
        read = set(self.processed.get(group, []))
        for at in self.places:
            position = self.nodes[name].commits.get((group, at), 0)
            before = {value for offset, value in self.nodes[name].all(at) if offset < position}
            assert before - read - self.gone == set(), f"{group} skipped records of {at} at {name}"


def file(owns: dict[str, list[str]], *links: tuple[str, str, str | None]) -> MirrorsFile:
    return MirrorsFile.model_validate(
        {
            "clusters": {name: {"bootstrap": "h:1", "owns": said} for name, said in owns.items()},
            "mirrors": {
                f"{source}-{target}": {"source": source, "target": target, "topics": ["**"], "owner": rule}
                for source, target, rule in links
            },
        }
    )


PAIR = file({"nyc": ["nyc.**"], "lon": ["lon.**"]}, ("nyc", "lon", None), ("lon", "nyc", None))
RING = file(
    {"nyc": ["nyc.**"], "lon": ["lon.**"], "sgp": ["sgp.**"]},
    ("nyc", "lon", "transit"),
    ("lon", "sgp", "transit"),
    ("sgp", "nyc", "transit"),
)


FIVE = {name: [f"{name}.**"] for name in ("ams", "bos", "cpt", "del", "eze")}
CHAIN = file(FIVE, *((source, target, "transit") for source, target in pairwise(FIVE)))
SPOKES = file(
    FIVE,
    *((spoke, "ams", None) for spoke in FIVE if spoke != "ams"),
    *(("ams", spoke, "transit") for spoke in FIVE if spoke != "ams"),
)


@pytest.mark.parametrize("seed", range(fast_or(5, 20)))
def test_both_ways_with_crashes_and_zombies(seed: int) -> None:
    world = World(seed, PAIR, {"nyc.chat": 2, "lon.chat": 2})
    actors = world.workers() | {"producer": world.producer, "folder": lambda: world.folder("nyc-lon")}
    world.run(actors, 700)
    world.settle()
    for link in PAIR.mirrors:
        world.check_link(link)
    for at in world.places:
        for name in world.nodes:
            world.check_missing(at, name, set())
    assert world.number > 50 and not world.stopped


@pytest.mark.parametrize("seed", range(fast_or(4, 10)))
def test_a_ring_of_three_carries_everything_everywhere_once(seed: int) -> None:
    assert check(RING) == ()
    world = World(seed, RING, {"nyc.chat": 1, "lon.chat": 1, "sgp.chat": 1})
    world.run(world.workers() | {"producer": world.producer}, 900)
    world.settle()
    for at in world.places:
        for name in world.nodes:
            world.check_missing(at, name, set())
            order = [value for _, value in world.nodes[name].all(at)]
            assert order == world.born.get(at, [])


@pytest.mark.parametrize("regions", [CHAIN, SPOKES], ids=["chain", "hub and spokes"])
@pytest.mark.parametrize("seed", range(fast_or(3, 12)))
def test_five_regions_have_what_flows_to_them_once_and_nothing_else(seed: int, regions: MirrorsFile) -> None:
    """Workers die and come back as zombies, and one region after the other is away for a while."""
    assert check(regions) == ()
    world = World(seed, regions, {f"{name}.chat": 1 for name in FIVE})
    actors = world.workers() | {"producer": world.producer}
    for _ in range(3):
        world.run(actors, 300)
        away = world.nodes[world.chance.choice(list(FIVE))]
        away.up = False
        world.run(actors, 200)
        away.up = True
    world.settle()
    assert world.number > 50 and not world.stopped
    for at in world.places:
        reached = {world.homes[at.topic]}
        for _ in FIVE:
            reached |= {each.target for each in regions.mirrors.values() if each.source in reached}
        assert len(reached) == (
            len(FIVE) if regions is SPOKES else 5 - list(FIVE).index(world.homes[at.topic])
        )
        for name, node in world.nodes.items():
            order = [value for _, value in node.all(at)]
            assert order == (world.born.get(at, []) if name in reached else []), f"{at} at {name}"


@pytest.mark.parametrize("seed", range(fast_or(4, 12)))
def test_retention_that_overtakes_the_mirror_is_a_declared_gap(seed: int) -> None:
    world = World(seed, PAIR, {"nyc.chat": 2})
    for _ in range(4):
        world.run(world.workers() | {"producer": world.producer}, 120)
        at = world.chance.choice(world.places)
        node = world.nodes["nyc"]
        node.log(at).start = world.chance.randint(node.log(at).start, node.end(at))
    world.settle()
    world.check_link("nyc-lon")
    declared: set[tuple[TopicPartition, int]] = set()
    for gap in world.gaps("nyc-lon"):
        declared |= {(TopicPartition(gap.topic, gap.partition), o) for o in range(gap.first, gap.end)}
    node = world.nodes["nyc"]
    for at in world.places:
        theirs = {value for _, value in world.nodes["lon"].all(at)}
        for offset, value in node.ever(at):
            assert (value in theirs) != ((at, offset) in declared)


@pytest.mark.parametrize("seed", range(fast_or(4, 12)))
def test_a_topic_made_again_is_another_generation(seed: int) -> None:
    world = World(seed, PAIR, {"nyc.chat": 2})
    for _ in range(3):
        world.run(world.workers() | {"producer": world.producer}, 150)
        lost = {
            value
            for at in world.places
            for offset, value in world.nodes["nyc"].all(at)
            if offset >= world.carried_to("nyc-lon", at)
        }
        world.gone |= lost
        world.nodes["nyc"].brokers.delete_topic("nyc.chat")
        world.nodes["nyc"].brokers.create_topic("nyc.chat", 2)
    world.run(world.workers() | {"producer": world.producer}, 100)
    world.settle()
    world.check_link("nyc-lon")
    for at in world.places:
        world.check_missing(at, "lon", world.gone)


@pytest.mark.parametrize("tail", get_args(Tail))
@pytest.mark.parametrize("seed", range(fast_or(4, 15)))
def test_failover_and_failback_with_groups(seed: int, tail: Tail) -> None:
    world = World(seed, PAIR, {"nyc.chat": 2})
    world.active = "nyc"
    groups = ["a", "b"]
    background: dict[str, object] = world.workers() | {"producer": world.producer}
    background |= {f"consumer {group}": (lambda group=group: world.consumer(group)) for group in groups}
    background |= {
        f"carrier {link} {group}": (lambda link=link, group=group: world.carrier(link, group))
        for link in PAIR.mirrors
        for group in groups
    }

    def operate(kind: Kind, new: str) -> None:
        """With an operator that dies now and then, until the operation is complete."""
        for _ in range(400):
            world.run(background, 15)
            actor = world.operator(kind, "nyc", new, groups, tail)
            survived = world.chance.randint(1, 12)
            try:
                for _ in range(survived):
                    next(actor)
            except StopIteration:
                return
            except WriterFenced:
                pass
            if world.control().running("nyc") is None:
                return
        raise AssertionError(f"{kind} does not come to its end: {world.control().running('nyc')}")

    for lossy in (True, False, True):
        world.run(background, 250)
        if lossy:
            world.nodes["nyc"].up = False
            operate("failover", "lon")
            assert world.control("lon").may_write("lon", "nyc")
            world.run(background, 150)
            world.nodes["nyc"].up = True
        else:
            operate("switchover", "lon")
            world.run(background, 150)
        for group in groups:
            world.check_group(group, "lon")
        operate("failback", "nyc")
        world.run(background, 100)
        assert world.control().acting == {} and not world.control().may_write("lon", "nyc")
        for group in groups:
            world.check_group(group, "nyc")
    world.settle()
    world.check_link("nyc-lon")
    for at in world.places:
        for name in ("nyc", "lon"):
            world.check_missing(at, name, world.gone)
    if tail in ("merge", "restore"):
        world.check_last_of_each_key("nyc", "lon")
    world.crash, world.zombies = 0, []
    final = {f"consumer {group}": (lambda group=group: world.consumer(group)) for group in groups}
    world.run(final, 3000)
    for group in groups:
        assert {v for at in world.places for v in world.born.get(at, [])} - world.gone <= set(
            world.processed[group]
        )


@pytest.mark.parametrize("seed", range(fast_or(4, 10)))
def test_a_switchover_loses_nothing_and_reads_little_twice(seed: int) -> None:
    world = World(seed, PAIR, {"nyc.chat": 2}, crash=0)
    world.active = "nyc"
    background: dict[str, object] = world.workers() | {"producer": world.producer}
    world.run(background | {"consumer": lambda: world.consumer("a")}, 400)
    world.finish(world.operator("switchover", "nyc", "lon", ["a"], "replay"), background)
    for at in world.places:
        world.check_missing(at, "lon", set())
    before = len(world.processed["a"])
    read = set(world.processed["a"])
    committed = {
        value
        for at in world.places
        for offset, value in world.nodes["nyc"].all(at)
        if offset < world.nodes["nyc"].commits.get(("a", at), 0)
    }
    world.run({"consumer": lambda: world.consumer("a")}, 2000)
    again = world.processed["a"][before:]
    assert not committed & set(again), "what was committed is not read again"
    assert {v for at in world.places for v in world.born[at]} <= read | set(again)


@pytest.mark.parametrize("seed", range(fast_or(4, 15)))
def test_the_report_says_what_a_failover_then_does(seed: int) -> None:
    """What is lost and read again is counted before, and counted again after: the numbers are the same."""
    world = World(seed, PAIR, {"nyc.chat": 2})
    world.active = "nyc"
    background = world.workers() | {
        "producer": world.producer,
        "consumer": lambda: world.consumer("a"),
        "carrier": lambda: world.carrier("nyc-lon", "a"),
    }
    world.run(background, 400)
    for name in [shard.transactional_id for shard in (Shard("nyc-lon", 0), Shard("nyc-lon", 1))]:
        world.nodes["lon"].fence(name)  # what was open when nyc went is aborted
    nyc, lon = world.nodes["nyc"], world.nodes["lon"]
    committed = {at: nyc.commits.get(("a", at), 0) for at in world.places}
    partitions = {
        at: loss_report.MirroredPartition(world.progress("nyc-lon", at)[1], lon.end(at), nyc.end(at))
        for at in world.places
    }
    seen = GroupSides("a", committed, {at: offset for (_, at), offset in lon.commits.items()})
    report = loss_report.assess(partitions, [seen], {"a": world.marks("nyc-lon", "a")}, place=False)
    for loss in report.losses:
        theirs = {value for _, value in lon.all(loss.place)}
        lost = [offset for offset, value in nyc.all(loss.place) if value not in theirs]
        assert all(loss.first <= offset < loss.end for offset in lost)
        assert len(lost) <= loss.count
    for effect in report.effects:
        ours = {value for offset, value in nyc.all(effect.place) if offset < committed[effect.place]}
        ahead = [value for offset, value in lon.all(effect.place) if offset >= (effect.position or 0)]
        assert len([value for value in ahead if value in ours]) == effect.redelivered
    assert report.is_exact
