"""[core] Names of a mirror's topics in the cluster of its copies: the source's name with fixed text before
and after it.

The map is injective for all names: two topics never share a copy, and a copy's name leads back to one topic.
Within the hub a topic keeps its source's name. Only the clients of the renamed cluster translate: ``on_wire``
for what they send, ``seen`` for what they receive. Topics whose names begin with ``_`` keep them: they belong
to Kafka and the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from hub.record import Positions, TopicPartition

LONGEST_NAME = 249  # characters; Kafka's limit of a topic's name
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Invertible map of names. Without ``before`` and ``after`` names are equal."""

    before: str = ""
    after: str = ""

    @property
    def are_equal(self) -> bool:
        """Return whether topics have the same name on both sides."""
        return not (self.before or self.after)

    def at_target(self, source_topic: str) -> str:
        """Return the copy's name. Raises ValueError if it is longer than Kafka allows."""
        name = f"{self.before}{source_topic}{self.after}"
        if len(name) > LONGEST_NAME:
            raise ValueError(
                f'topic "{source_topic[:60]}…": its copy\'s name has {len(name)} characters, '
                f"Kafka allows {LONGEST_NAME}"
            )
        return name

    def at_source(self, target_topic: str) -> str | None:
        """Return the topic whose copy has this name; None: it is the name of no copy."""
        whole = len(target_topic) > len(self.before) + len(self.after)
        if whole and target_topic.startswith(self.before) and target_topic.endswith(self.after):
            return target_topic[len(self.before) : len(target_topic) - len(self.after)]
        return None

    def on_wire(self, topic: str) -> str:
        """Return the name under which the renamed cluster has a topic."""
        return topic if topic.startswith("_") else f"{self.before}{topic}{self.after}"

    def seen(self, name: str) -> str | None:
        """Return the topic that has this name in the renamed cluster; None: no topic has."""
        return name if name.startswith("_") else self.at_source(name)

    def place_on_wire(self, place: TopicPartition) -> TopicPartition:
        """``on_wire`` for a partition."""
        return place if self.are_equal else TopicPartition(self.on_wire(place.topic), place.partition)

    def seen_place(self, place: TopicPartition) -> TopicPartition:
        """Return the partition of an answer, which is one of those that were asked for."""
        if self.are_equal:
            return place
        return TopicPartition(self.seen(place.topic) or place.topic, place.partition)

    def positions_on_wire(self, positions: Positions) -> Positions:
        """``on_wire`` for positions."""
        return Positions({self.place_on_wire(tp): offset for tp, offset in positions})

    def seen_positions(self, positions: Positions) -> Positions:
        """``seen`` for positions; those of other topics are left out."""
        found = ((self.seen(tp.topic), tp.partition, offset) for tp, offset in positions)
        return Positions.of((topic, number, offset) for topic, number, offset in found if topic is not None)

    def all_on_wire(self, topics: Iterable[str]) -> list[str]:
        """``on_wire`` for topics."""
        return [self.on_wire(topic) for topic in topics]

    def seen_of(self, found: Mapping[str, T]) -> dict[str, T]:
        """Return values by topic instead of by name; those of other topics are left out."""
        by_topic = ((self.seen(name), value) for name, value in found.items())
        return {topic: value for topic, value in by_topic if topic is not None}


EQUAL_NAMES = TopicNames()
