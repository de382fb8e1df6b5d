"""Groups are committed by who has the shard, in a transaction, and only where they are as they were seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hub.log import GroupDescription, MemoryCluster, WriterFenced
from hub.record import Positions, TopicPartition
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.operations import group_carrier
from hub.replication.ownership.group_offsets import CarriedPosition, GroupSides
from hub.replication.ownership.links import links
from hub.replication.ownership.shards import Shard
from hub.replication.worker.link_tasks import LinkTasks

PLACE = TopicPartition("shop.orders", 0)


@dataclass
class Groups(MemoryCluster):
    """Kafka as to groups; ``meanwhile`` happens to a worker whose positions are in the groups' log
    and do not count yet."""

    meanwhile: Callable[[], None] = lambda: None
    members: dict[str, int | None] = field(default_factory=dict)

    def positions_of_groups(self, groups: Sequence[str]) -> dict[str, Positions]:
        self.meanwhile()
        return {group: Positions(self.committed.get(group, {})) for group in groups}

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupDescription]:
        return {each: GroupDescription(each, "", self.members.get(each, 0)) for each in groups}

    def at(self) -> dict[str, int]:
        return {group: positions[PLACE] for group, positions in self.committed.items()}


@pytest.fixture
def kafka() -> Groups:
    made = Groups()
    made.create_topic(CONTROL_TOPIC, partitions=1, config={}, replication_factor=1)
    return made


def found(kafka: Groups, offset: int) -> list[group_carrier.Found]:
    """Both groups as they are seen now, with what to do: to ``offset``."""
    return [
        (
            GroupSides(group, {PLACE: offset}, dict(kafka.committed.get(group, {}))),
            (CarriedPosition(group, PLACE, "exact", "", offset, offset, offset),),
        )
        for group in ("a", "b")
    ]


def carried(kafka: Groups, writer: Any, offset: int) -> None:
    target: Any = SimpleNamespace(kafka=kafka)
    group_carrier.mark_and_commit(writer, target, "link", found(kafka, offset))


def test_a_worker_that_stood_still_sets_no_group_back(kafka: Groups) -> None:
    asleep = kafka.writer("shard")

    def sleeps() -> None:
        kafka.meanwhile = lambda: None
        carried(kafka, kafka.writer("shard"), 900)

    kafka.meanwhile = sleeps
    with pytest.raises(WriterFenced):
        carried(kafka, asleep, 100)
    assert kafka.at() == {"a": 900, "b": 900}


def test_what_is_done_at_once_writes_each_mark_once(kafka: Groups) -> None:
    assert group_carrier.any_to_commit(found(kafka, 100))
    carried(kafka, kafka.writer("shard"), 100)
    assert kafka.at() == {"a": 100, "b": 100} and len(kafka.logs[CONTROL_TOPIC][0]) == 2
    left_alone = CarriedPosition("a", PLACE, "active", "", 100, 90)
    assert not group_carrier.any_to_commit([(GroupSides("a", {PLACE: 100}, {}), (left_alone,))])


def test_a_group_that_moved_or_got_members_since_it_was_looked_at_is_left_alone_and_the_others_go(
    kafka: Groups,
) -> None:
    def commits() -> None:
        kafka.committed["a"] = {PLACE: 700}

    kafka.meanwhile = commits
    carried_before = found(kafka, 300)
    target: Any = SimpleNamespace(kafka=kafka)
    group_carrier.mark_and_commit(kafka.writer("shard"), target, "link", carried_before)
    assert kafka.at() == {"a": 700, "b": 300}
    # A mark is written for committed positions only: the other one's position is its own.
    (mark,) = kafka.logs[CONTROL_TOPIC][0]
    assert mark.key is not None and mark.key.endswith(b"|b")
    kafka.meanwhile = lambda: None
    for members in (1, None):  # None: of a newer protocol, where only that it has some is known
        kafka.members = {"a": 0, "b": members}
        group_carrier.mark_and_commit(kafka.writer("shard"), target, "link", found(kafka, 900))
        assert kafka.at() == {"a": 900, "b": 300}
        kafka.committed["a"] = {PLACE: 700}


EMPTY = TopicPartition("shop.orders", 1)


@pytest.mark.parametrize(("end", "expected"), [(0, {EMPTY: ("exact", 0)}), (7, {EMPTY: ("unmapped", None)})])
def test_who_reads_a_partition_that_has_nothing_has_a_position_there_too(
    end: int, expected: dict[TopicPartition, tuple[str, int | None]]
) -> None:
    """Its records are gone at the source, and none was ever mirrored;
    unless the target has somebody else's."""
    group = {"readers": Positions({EMPTY: 40})}
    source: Any = SimpleNamespace(
        groups=lambda: ["readers"],
        positions_of_groups=lambda _: group,
        beginning_offsets=lambda _: Positions({PLACE: 0, EMPTY: 40}),
    )
    target: Any = SimpleNamespace(
        topics=lambda: {"shop.orders": None},
        groups=list,
        positions_of_groups=lambda _: {},
        group_members=lambda _: {},
        end_offsets=lambda topics, committed: Positions({PLACE: 90, EMPTY: end}),
    )
    file = MirrorsFile.model_validate(
        {
            "clusters": {"nyc": {"bootstrap": "h:1", "owns": ["shop.**"]}, "lon": {"bootstrap": "h:2"}},
            "mirrors": {"m": {"source": "nyc", "target": "lon", "topics": ["shop.**"]}},
        }
    )
    sides: Any = [SimpleNamespace(kafka=each) for each in (source, target)]
    carrier = group_carrier.GroupCarrier(file, links(file)["m"], *sides)
    ((_, carried),) = carrier.look(["shop.orders"], lambda tp: None, {}, {PLACE})
    assert {each.place: (each.state, each.commit) for each in carried} == expected


def test_what_was_looked_at_before_the_shard_was_taken_is_looked_at_again(kafka: Groups) -> None:
    """A change of ownership placed the groups in between, permanently."""
    chores: Any = SimpleNamespace(
        _writer=None, shard=Shard("link", -1), link=SimpleNamespace(name="link"),
        target=SimpleNamespace(kafka=kafka)
    )  # fmt: skip
    looked_at = found(kafka, 100)
    carried(kafka, kafka.writer(), 900)
    assert not LinkTasks._commit(chores, looked_at)  # it looks again before it reports the positions
    assert kafka.at() == {"a": 900, "b": 900}
    assert LinkTasks._commit(chores, found(kafka, 901))
    assert kafka.at() == {"a": 901, "b": 901}
