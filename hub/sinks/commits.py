"""[shell] Commits of a sink: positions, dead-letter records and the target's records in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from hub.config import Settings
from hub.errors import Conflict
from hub.kafka import KafkaCluster
from hub.kafka.writer import KafkaWriter
from hub.materializers.engine.plans.topics import ensure_dead_letter_topic, largest_records
from hub.record import NewRecord, Positions
from hub.sinks.events import Delivered, RefusedRecord, group_of
from hub.topics.dead_letters.model import DLQ_SUFFIX, dead_letter


class Commits:
    """Writer of one sink. Opening it ends the open transaction of an earlier worker of the sink, and refuses
    that worker's next commit.
    """

    def __init__(self, sink: str, cluster: KafkaCluster, settings: Settings) -> None:
        self.sink, self.group, self._cluster, self._settings = sink, group_of(sink), cluster, settings
        self._writer = KafkaWriter(cluster, self.group)
        self._with_dead_letters: set[str] = set()
        self.committed = Positions()

    def read_positions(self, topics: Sequence[str]) -> Positions:
        """Read the positions of the group in these topics."""
        self.committed = self._cluster.group_positions(self.group).of_topics(topics)
        return self.committed

    def commit(self, delivered: Delivered, refused: Sequence[RefusedRecord]) -> None:
        """Append dead-letter records, the target's records and the positions in one transaction."""
        dead = self._dead_letters(refused)
        if not dead and not delivered.records and delivered.positions == self.committed:
            return
        groups = {self.group: delivered.positions}
        self._writer.append_with_groups([*dead, *delivered.records], groups, lambda: None)
        self.committed = delivered.positions

    def bury(self, refused: Sequence[RefusedRecord]) -> None:
        """Append dead-letter records now, without positions."""
        self._writer.append(self._dead_letters(refused))

    def close(self) -> None:
        self._writer.close()

    def _dead_letters(self, refused: Sequence[RefusedRecord]) -> list[NewRecord]:
        for topic in {each.record.topic for each in refused} - self._with_dead_letters:
            largest = largest_records(self._cluster, [topic])[topic]
            ensure_dead_letter_topic(self._cluster, topic + DLQ_SUFFIX, largest, self._settings)
            self._with_dead_letters.add(topic)
        return [dead_letter(each.record, each.reason[:1_000], f"sink {self.sink}") for each in refused]


def check_same_topic(sink: str, held: Positions, ends: Positions) -> None:
    """Raise Conflict (HUB-1827) if a position is after the end of its partition: the topic was deleted and
    created again, and its new records would be taken for delivered ones.
    """
    for place, at in held:
        if at > ends.get(place):
            raise Conflict(
                f'sink "{sink}": its position {at} in {place.topic} partition {place.partition} is after the '
                f"end {ends.get(place)}: the topic was created again, or cut",
                hint="give the sink another name: it then begins as a new one",
                code="HUB-1827",
            )


def lost_offsets(held: Positions, begins: Positions) -> int:
    """Return how many offsets retention removed before they were delivered."""
    return sum(max(0, begins.get(place) - at) for place, at in held)
