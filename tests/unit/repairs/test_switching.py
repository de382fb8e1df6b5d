"""A repair on the in-memory log: killed before and after each of its operations, beside a producer that goes
on, with consumer groups at every position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.kafka import GroupMember
from hub.log import MemoryCluster, MemoryWriter
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.repairs.beginning import ChangeOrigin, begin_repair, begin_undo
from hub.repairs.copying import copied, parts_of
from hub.repairs.holding import HoldWaits
from hub.repairs.journal import RepairJournal, open_journal, read_state
from hub.repairs.model import SOURCE_HEADER, generation_topic
from hub.repairs.outcomes import RepairOutcome
from hub.repairs.selection import RepairRange
from hub.repairs.switching import RepairReport, Switch, abort

TOPIC = "shop.orders"
WAITS = HoldWaits(settled_s=0.0, at_most_s=1.0)


class Killed(Exception):
    """The process was killed."""


@dataclass
class CountedCluster(MemoryCluster):
    """A cluster that refuses batches above the topic's limit, and calls ``at`` around each operation that
    changes something: with its number and whether it was done.
    """

    operations: int = 0
    at: Callable[[int, bool], None] = lambda _number, _done: None
    members: dict[str, list[GroupMember]] = field(default_factory=dict)

    def counted(self, work: Callable[[], Any]) -> Any:
        self.operations += 1
        number = self.operations
        self.at(number, False)
        result = work()
        self.at(number, True)
        return result

    def create_topic(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int
    ) -> None:
        create = super().create_topic
        self.counted(
            lambda: create(name, partitions=partitions, config=config, replication_factor=replication_factor)
        )

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        alter = super().alter_config
        self.counted(lambda: alter(name, changes))

    def delete_topic(self, name: str) -> None:
        delete = super().delete_topic

        def forget() -> None:
            delete(name)
            for held in self.committed.values():  # as Kafka does
                for tp in [each for each in held if each.topic == name]:
                    del held[tp]

        self.counted(forget)

    def writer(self, name: str | None = None) -> CountedWriter:
        plain = super().writer(name)
        return CountedWriter(self, plain.name, plain.epoch)

    def groups(self) -> list[str]:
        return sorted(self.committed)

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]:
        return {group: Positions(dict(self.committed.get(group, {}))) for group in groups}

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        return {group: self.members.get(group, []) for group in groups}


class CountedWriter(MemoryWriter):
    """Each call is one operation, atomic as a transaction."""

    cluster: CountedCluster
    inside = False

    def append(self, records: Sequence[NewRecord]) -> Positions:
        for topic in {each.topic for each in records} & self.cluster.descriptions.keys():
            if self.cluster.descriptions[topic].config.get("max.message.bytes") in ("1", "100"):
                raise CallerError(f"too large for {topic}")
        return self.operation(lambda: MemoryWriter.append(self, records))

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        return self.operation(lambda: MemoryWriter.append_if(self, records, check))

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        return self.operation(lambda: MemoryWriter.append_with_groups(self, records, groups, check))

    def operation(self, work: Callable[[], Positions]) -> Positions:
        if self.name is None or self.inside:  # of a producer, or a part of an operation
            return work()
        self.inside = True
        try:
            return self.cluster.counted(work)  # type: ignore[no-any-return]
        finally:
            self.inside = False


def started(events: int = 12, partitions: int = 2) -> CountedCluster:
    cluster = CountedCluster()
    MemoryCluster.create_topic(
        cluster, TOPIC, partitions=partitions, config={"retention.ms": "77"}, replication_factor=1
    )
    MemoryWriter(cluster, None, 0).append([event(n, partitions) for n in range(events)])
    return cluster


def event(n: int, partitions: int = 2) -> NewRecord:
    value = json.dumps({"n": n}).encode()
    return NewRecord(TOPIC, b"k%d" % (n % 3), value, (("h", b"%d" % n),), 1_000 + n, n % partitions)


def repaired(records: Sequence[Record]) -> list[RepairOutcome]:
    """Drop every fourth event, split every fifth, change the others with an odd number up to 20."""
    return [outcome(each) for each in records]


def outcome(record: Record) -> RepairOutcome:
    n = json.loads(record.value or b"null")["n"]
    if n > 20:
        return RepairOutcome("unchanged")
    if n % 4 == 0:
        return RepairOutcome("dropped")
    if n % 5 == 0:
        return RepairOutcome("split", (b'{"n": %d, "part": 1}' % n, b'{"n": %d, "part": 2}' % n))
    return RepairOutcome("changed", (b'{"n": %d, "odd": true}' % n,)) if n % 2 else RepairOutcome("unchanged")


def plain(record: Record) -> tuple[Any, ...]:
    return record.partition, record.timestamp_ms, record.key, record.value, record.headers


def expected(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return the repaired log, computed without the repair's own code."""
    made = []
    for record in records:
        result = outcome(record)
        values = (record.value,) if result.kind == "unchanged" else result.values
        made += [plain(Record(*record[:5], value, record.headers)) for value in values]
    return made


def log_of(cluster: MemoryCluster, topic: str = TOPIC) -> list[Record]:
    return [record for partition in cluster.logs[topic] for record in partition]


def contents(cluster: MemoryCluster, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    """Return the records of a topic without the header of its archive."""
    return [
        plain(Record(*each[:6], tuple(h for h in each.headers if h[0] != SOURCE_HEADER)))
        for each in log_of(cluster, topic)
    ]


def origin(command: str = "fix") -> ChangeOrigin:
    return ChangeOrigin(command, "ana", 5, "d1")


def ran(
    cluster: CountedCluster,
    begin: Callable[[RepairJournal], None] | None = None,
    outcomes: Callable[[Sequence[Record]], Sequence[RepairOutcome]] = repaired,
    *,
    leave_active: bool = False,
) -> RepairReport:
    """Run a repair, or continue the one that is under way."""
    with open_journal(cluster, TOPIC, 1) as journal:
        if journal.state.change is None:
            (begin or (lambda each: begin_repair(each, RepairRange(), origin())))(journal)
        change = journal.state.change
        assert change is not None
        used = copied if change.base is not None else outcomes
        return Switch(cluster, journal, used, leave_active=leave_active, waits=WAITS).run()


def test_the_topic_has_the_repaired_events_and_the_archive_the_former_ones() -> None:
    cluster = started()
    before, wanted = log_of(cluster), expected(log_of(cluster))
    report = ran(cluster)
    assert contents(cluster) == wanted
    assert contents(cluster, generation_topic(TOPIC, 1)) == [plain(each) for each in before]
    assert report.counts == {"dropped": 3, "unchanged": 2, "changed": 5, "split": 2}
    assert cluster.descriptions[TOPIC].config == {"retention.ms": "77"}
    state = read_state(cluster, TOPIC)
    assert (state.current, [each.number for each in state.generations]) == (2, [1, 2])
    assert state.topic_id == cluster.descriptions[TOPIC].topic_id and state.change is None


def test_a_repair_that_is_killed_anywhere_is_continued_and_loses_and_doubles_nothing() -> None:
    whole = started()
    ran(whole)
    wanted, operations = contents(whole), whole.operations
    assert operations > 8
    for number in range(1, operations + 1):
        for done in (False, True):
            cluster = started()

            def kill(now: int, after: bool, at: tuple[int, bool] = (number, done)) -> None:
                if (now, after) == at:
                    raise Killed

            cluster.at = kill
            with pytest.raises(Killed):
                ran(cluster)
            ran(cluster)
            if read_state(cluster, TOPIC).current > 2:  # it was killed after its end: that was a second one
                assert (number, done) == (operations, True)
                continue
            assert contents(cluster) == wanted, f"killed at operation {number}, done: {done}"
            archive = contents(cluster, generation_topic(TOPIC, 1))
            assert archive == [plain(each) for each in log_of(started())], f"operation {number}, {done}"


def test_an_event_that_comes_at_any_moment_is_refused_or_in_the_topic_once_and_in_order() -> None:
    whole = started()
    ran(whole)
    for number in range(1, whole.operations + 1):
        cluster = started()
        accepted: list[int] = []

        def produce(
            now: int, after: bool, at: int = number, into: list[int] = accepted, to: Any = cluster
        ) -> None:
            """Append two events at operation ``at``, one on each side, if the topic accepts them."""
            if now == at and TOPIC in to.logs and now <= whole.operations:
                n = 100 + 2 * len(into)
                try:
                    to.writer().append([event(n), event(n + 2)])
                    into.extend((n, n + 2))
                except CallerError:
                    pass

        cluster.at = produce
        ran(cluster)
        found = [json.loads(value)["n"] for _, _, _, value, _ in contents(cluster) if b"part" not in value]
        late = [n for n in found if n >= 100]
        assert late == accepted, f"at operation {number}"
        in_partition = [json.loads(each.value or b"")["n"] for each in cluster.logs[TOPIC][0]]
        assert in_partition == sorted(in_partition), f"at operation {number}"


def test_a_producer_that_never_stops_leaves_a_topic_that_refuses_and_the_repair_is_continued() -> None:
    cluster = started()
    accepted: list[int] = []

    def produce(_number: int, done: bool) -> None:
        if TOPIC in cluster.logs and done:
            n = 100 + 2 * len(accepted)
            try:
                cluster.writer().append([event(n), event(n + 2)])
                accepted.extend((n, n + 2))
            except CallerError:
                pass

    cluster.at = produce
    with pytest.raises(PeerError, match="No event is lost") as failed:
        ran(cluster)
    assert failed.value.code == "HUB-3111"
    count = len(accepted)
    with pytest.raises(CallerError):
        cluster.writer().append([event(9)])
    cluster.at = lambda _number, _done: None
    report = ran(cluster)
    found = [json.loads(each.value or b"")["n"] for each in cluster.logs[TOPIC][0]]
    assert [n for n in found if n >= 100] == accepted[:count] and report.rounds == 3
    assert report.counts["carried over"] > 0


def test_groups_continue_with_the_event_that_they_would_have_read_next() -> None:
    size = 6
    cluster = started(2 * size)
    for at in range(size + 1):
        cluster.committed[f"g{at}"] = {TopicPartition(TOPIC, 0): at, TopicPartition("other", 0): 3}
    before = [outcome(each) for each in cluster.logs[TOPIC][0]]
    report = ran(cluster)
    written = [len(each.values) if each.kind != "unchanged" else 1 for each in before]
    for at in range(size + 1):
        held = cluster.committed[f"g{at}"]
        assert held == {TopicPartition(TOPIC, 0): sum(written[:at]), TopicPartition("other", 0): 3}
    assert set(report.moved) == {f"g{at}" for at in range(size + 1)} and not report.left


def test_a_group_with_members_stops_the_repair_and_the_topic_accepts_events() -> None:
    cluster = started()
    cluster.committed["g"] = {TopicPartition(TOPIC, 0): 2}
    cluster.members["g"] = [GroupMember("one", frozenset({TOPIC}))]
    with pytest.raises(Conflict, match="consumer groups have members now: g") as refused:
        ran(cluster)
    assert refused.value.code == "HUB-1940"
    cluster.writer().append([event(40)])
    report = ran(cluster, leave_active=True)
    assert report.left == ("g",) and not report.moved
    assert contents(cluster)[-1] == plain(log_of(cluster)[-1])
    assert TopicPartition(TOPIC, 0) not in cluster.committed["g"]


def test_a_group_that_joins_during_the_hold_releases_the_topic() -> None:
    cluster = started()
    cluster.committed["g"] = {TopicPartition(TOPIC, 0): 2}

    def join(_number: int, _done: bool) -> None:
        if cluster.descriptions[TOPIC].config.get("max.message.bytes") == "1":
            cluster.members["g"] = [GroupMember("one", frozenset({TOPIC}))]

    cluster.at = join
    with pytest.raises(Conflict):
        ran(cluster)
    cluster.writer().append([event(40)])  # accepted
    cluster.members.clear()
    cluster.at = lambda _number, _done: None
    ran(cluster)
    assert cluster.committed["g"] == {TopicPartition(TOPIC, 0): 2 - 1}  # one of the two was dropped


def test_a_refused_event_stops_the_repair_and_an_abort_leaves_the_topic_as_it_was() -> None:
    cluster = started()
    before = contents(cluster)

    def refusing(records: Sequence[Record]) -> list[RepairOutcome]:
        return [
            RepairOutcome("refused", reason="no") if each.offset == 3 else RepairOutcome("unchanged")
            for each in records
        ]

    with pytest.raises(
        Conflict, match=r'topic "shop.orders" partition 0 offset 3: the repair is refused: no'
    ):
        ran(cluster, outcomes=refusing)
    with open_journal(cluster, TOPIC, 1) as journal:
        abort(cluster, journal)
    assert contents(cluster) == before and read_state(cluster, TOPIC).change is None
    assert generation_topic(TOPIC, 2) not in cluster.logs
    ran(cluster)
    assert contents(cluster, generation_topic(TOPIC, 1)) == before


def test_a_repair_that_has_deleted_the_topic_is_not_aborted() -> None:
    cluster = started()

    def kill(_number: int, _done: bool) -> None:
        if TOPIC not in cluster.logs:
            raise Killed

    cluster.at = kill
    with pytest.raises(Killed):
        ran(cluster)
    cluster.at = lambda _number, _done: None
    with open_journal(cluster, TOPIC, 1) as journal, pytest.raises(Conflict, match="cannot be aborted"):
        abort(cluster, journal)


def test_an_undo_brings_the_events_back_and_keeps_those_that_came_after_the_repair() -> None:
    cluster = started()
    before = log_of(cluster)
    ran(cluster)
    cluster.writer().append([event(30), event(31)])
    cluster.committed["late"] = {
        TopicPartition(TOPIC, 0): len(cluster.logs[TOPIC][0]),
        TopicPartition(TOPIC, 1): len(cluster.logs[TOPIC][1]) - 1,
    }
    cluster.committed["early"] = {TopicPartition(TOPIC, 0): 1}
    ran(cluster, lambda journal: begin_undo(journal, origin("undo")))
    now = sorted(contents(cluster))
    after = [plain(each) for each in before] + [
        (n % 2, 1_000 + n, b"k%d" % (n % 3), b'{"n": %d}' % n, (("h", b"%d" % n),)) for n in (30, 31)
    ]
    assert now == sorted(after)
    assert cluster.committed["late"] == {
        TopicPartition(TOPIC, 0): len(cluster.logs[TOPIC][0]),
        TopicPartition(TOPIC, 1): len(cluster.logs[TOPIC][1]) - 1,
    }
    assert cluster.committed["early"] == {TopicPartition(TOPIC, 0): 0}
    assert [each.number for each in read_state(cluster, TOPIC).generations] == [1, 2, 3]
    ran(cluster, lambda journal: begin_undo(journal, origin("redo")))
    assert (
        sorted(contents(cluster)) == sorted(contents(cluster, generation_topic(TOPIC, 2)))
        and read_state(cluster, TOPIC).current == 4
    )


def test_there_is_nothing_to_undo_before_a_repair_and_after_a_foreign_topic() -> None:
    cluster = started()
    with pytest.raises(NotFound, match="never repaired"):
        ran(cluster, lambda journal: begin_undo(journal, origin()))
    ran(cluster)
    MemoryCluster.delete_topic(cluster, TOPIC)
    MemoryCluster.create_topic(cluster, TOPIC, partitions=2, config={}, replication_factor=1)
    with pytest.raises(Conflict, match="deleted and created again"):
        ran(cluster, lambda journal: begin_undo(journal, origin()))
    cluster.writer().append([event(1)])
    ran(cluster)  # the new topic is generation 3, its repair 4
    assert read_state(cluster, TOPIC).current == 4
    assert len(log_of(cluster, generation_topic(TOPIC, 3))) == 1


def test_a_second_repair_archives_only_what_the_archive_lacks() -> None:
    cluster = started()
    ran(cluster)
    first = contents(cluster)
    cluster.writer().append([event(31)])
    ran(cluster, outcomes=copied)
    assert contents(cluster, generation_topic(TOPIC, 2)) == [*first, plain(log_of(cluster)[-1])]
    assert contents(cluster) == [*first, plain(log_of(cluster)[-1])]


def test_another_repair_is_refused_while_one_is_under_way() -> None:
    cluster = started()

    def kill(_number: int, _done: bool) -> None:
        if generation_topic(TOPIC, 2) in cluster.logs:
            raise Killed

    cluster.at = kill
    with pytest.raises(Killed):
        ran(cluster)
    cluster.at = lambda _number, _done: None
    with (
        open_journal(cluster, TOPIC, 1) as journal,
        pytest.raises(Conflict, match="by ana is under way: fix"),
    ):
        begin_repair(journal, RepairRange(), origin())


def test_parts_have_a_bound_and_every_record_in_order() -> None:
    records = [Record("t", 0, n, 0, None, b"x" * size) for n, size in enumerate((5, 5, 30, 1, 9))]
    parts = parts_of(records, 10)
    assert [[each.offset for each in part] for part in parts] == [[0, 1], [2], [3, 4]]
    assert parts_of([], 10) == [[]]
