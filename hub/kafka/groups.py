"""[edge] Consumer groups, many at once: who they are, where they stand, who is connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hub.errors import HubError, NotFound, PeerError
from hub.kafka.offsets import Offsets
from hub.log import GroupDescription
from hub.record import Positions, TopicPartition

# Requests under way at once: Kafka is asked for each group's offsets by itself.
_UNDER_WAY = 64
_DESCRIBED_AT_ONCE = 200


class Groups(Offsets):
    """Consumer groups of a cluster."""

    def publish_group(self, group: str, positions: Positions) -> None:
        """Commit positions as a group's offsets, so that every Kafka tool sees its lag. Never read back as truth."""
        request = ConsumerGroupTopicPartitions(
            group, [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )
        if positions:
            self._results(self.admin.alter_consumer_group_offsets([request], request_timeout=self.timeout_s))

    def group_positions(self, group: str) -> Positions:
        (found,) = self._results(self._asked(group)).values()
        return _positions(found)

    def groups(self) -> list[str]:
        """The ids of all consumer groups."""
        listing = self._ask(
            lambda: self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            ),
            "list consumer groups",
        )
        return sorted(group.group_id for group in listing.valid)

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        """The committed positions of many groups, or why one's are not known. Raises PeerError when Kafka is away."""
        found: dict[str, Positions | HubError] = {}
        for start in range(0, len(groups), _UNDER_WAY):
            futures = {group: self._asked(group)[group] for group in groups[start : start + _UNDER_WAY]}
            failed = self._each(futures, found, _positions)
            if failed is not None and len(failed) == len(futures):
                raise next(iter(failed.values()))
        return found

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        """State and members of many groups; those that cannot be told are left out. Raises PeerError as above."""
        found: dict[str, GroupDescription | HubError] = {}
        for start in range(0, len(groups), _DESCRIBED_AT_ONCE):
            some = list(groups[start : start + _DESCRIBED_AT_ONCE])
            futures = self.admin.describe_consumer_groups(some, request_timeout=self.timeout_s)
            failed = self._each(futures, found, _description)
            if failed is not None and len(failed) == len(futures):
                raise next(iter(failed.values()))
        return {group: each for group, each in found.items() if isinstance(each, GroupDescription)}

    def _asked(self, group: str) -> Any:
        return self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self.timeout_s
        )

    def _each(
        self, futures: Mapping[str, Any], into: dict[str, Any], read: Any
    ) -> dict[str, PeerError] | None:
        """Each answer into ``into``; those of a cluster that is away are returned."""
        failed: dict[str, PeerError] = {}
        for group, future in futures.items():
            try:
                answer = self._ask(partial(future.result, self.timeout_s + 1), f'group "{group}"')
                into[group] = read(answer)
            except NotFound as error:
                into[group] = error
            except PeerError as error:
                into[group] = failed[group] = error
            except HubError as error:
                into[group] = error
        return failed or None


def _positions(found: Any) -> Positions:
    return Positions(
        {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions if tp.offset >= 0}
    )


def _description(found: Any) -> GroupDescription:
    topics = {
        tp.topic
        for member in found.members
        for tp in (member.assignment.topic_partitions if member.assignment else ())
    }
    return GroupDescription(found.group_id, found.state.name, len(found.members), frozenset(topics))
