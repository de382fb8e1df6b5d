"""Checks of what else leads into the second region: positions of a consumer group, and a topic that is made
again.

``position_differences`` and ``copy_differences`` decide from values; ``check_group`` and ``check_passing``
read them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline import records_of

from fault_suite.model import ORDERS
from fault_suite.world import World
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions, Record, TopicPartition

GROUP = "faults-group"
PASSING = "home.passing"
"""A topic that one kind of fault deletes and makes again; its copy continues behind the former records."""
_PAUSE_S = 3.0


# ---- a group's positions


class GroupMover:
    """A thread that commits positions of ``GROUP`` at home:
    records that were acknowledged, ever further on."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(f"{seed}/group")
        self.cluster = KafkaCluster(world.home.bootstrap, 5.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)
        self._at: dict[TopicPartition, int] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60.0)

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            places = list(self.world.journal.acknowledged.values())
            for topic, partition, offset in self.chance.sample(places, min(len(places), 4)):
                if topic == ORDERS:
                    place = TopicPartition(topic, partition)
                    self._at[place] = max(offset, self._at.get(place, 0))
            try:
                if self._at:
                    self.cluster.publish_group(GROUP, Positions(self._at))
            except HubError as error:
                self.world.journal.meet(f"group: {error.code}")


def position_differences(
    home: Positions, away: Positions, ours: Sequence[Record], theirs: Sequence[Record]
) -> list[str]:
    """Return the partitions in which the group does not continue with the same record away. ``ours`` and
    ``theirs``: the topic's records at home and in the copy."""
    here = {(each.topic_partition, each.offset): _what(each) for each in ours}
    there = {(each.topic_partition, each.offset): _what(each) for each in theirs}
    wrong = []
    for place, offset in home:
        other = away.offsets.get(place)
        if other is None:
            wrong.append(f"group {GROUP}: {place} is at {offset} at home and nowhere away")
        elif there.get((place, other)) != here.get((place, offset)):
            wrong.append(
                f"group {GROUP}: {place} is at {offset} at home, before {here.get((place, offset))}, and at "
                f"{other} away, before {there.get((place, other))}"
            )
    return wrong


def _what(record: Record) -> object:
    """The identity of an event; the place of a record without one."""
    return dict(record.headers).get("id", (record.timestamp_ms, record.key, record.value))


def check_group(world: World) -> list[str]:
    home, away = KafkaCluster(world.home.bootstrap, 15.0), KafkaCluster(world.away.bootstrap, 15.0)
    at = home.group_positions(GROUP)
    return position_differences(
        at, away.group_positions(GROUP), records_of(home, ORDERS), records_of(away, ORDERS)
    )


# ---- a topic that is made again


@dataclass
class Generation:
    """Records of one life of ``PASSING`` by partition. ``whole``: Kafka acknowledged all of them."""

    values: dict[int, list[bytes]] = field(default_factory=dict)
    whole: bool = False


def made_again(world: World, number: int) -> None:
    """Delete the topic, make it again, and write its records. Raises HubError."""
    cluster = KafkaCluster(world.home.bootstrap, 10.0)
    if PASSING in cluster.topics():
        cluster.delete_topic(PASSING)
    world.live(1.0)
    cluster.create_topic(PASSING, partitions=2, config={}, replication_factor=world.size.brokers)
    made = Generation({part: [f"{number}:{part}:{n}".encode() for n in range(20)] for part in range(2)})
    world.passing.append(made)
    writer = cluster.writer()
    try:
        writer.append(
            [
                NewRecord(PASSING, None, value, partition=part)
                for part, values in made.values.items()
                for value in values
            ]
        )
        made.whole = True
    finally:
        writer.close()


def copy_differences(generations: Sequence[Generation], copy: Mapping[int, Sequence[bytes]]) -> list[str]:
    """Return what is wrong in the copy. Of each generation it has the first records, in order and once; of
    the last one all that Kafka acknowledged, because only a deleted topic's rest is lost."""
    wrong: list[str] = []
    for part, values in sorted(copy.items()):
        rest = list(values)
        for made in generations:
            taken = 0
            for value in made.values.get(part, []):
                if taken == len(rest) or rest[taken] != value:
                    break
                taken += 1
            rest = rest[taken:]
            if made is generations[-1] and made.whole and taken < len(made.values[part]):
                wrong.append(f"{PASSING} {part}: the copy has {taken} of {len(made.values[part])} records")
        if rest:
            wrong.append(
                f"{PASSING} {part}: the copy has {rest[0]!r} twice, or out of order, or nobody wrote it"
            )
    return wrong


def check_passing(world: World) -> list[str]:
    if not world.passing:
        return []
    away = KafkaCluster(world.away.bootstrap, 15.0)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for record in sorted(records_of(away, PASSING), key=lambda each: (each.partition, each.offset)):
        found[record.partition].append(record.value or b"")
    return copy_differences(world.passing, found)
