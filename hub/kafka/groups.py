"""[edge] Consumer groups: what they have committed, who is in them, and the hub's own positions shown as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hub.kafka.connection import Connection
from hub.record import Positions


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that is in a group now, and the topics of which it has partitions."""

    client_id: str
    topics: frozenset[str]


class Groups(Connection):
    """Consumer groups of a cluster."""

    def publish_group(self, group: str, positions: Positions) -> None:
        """Commit positions as a group's offsets, with leader epoch -1 (unknown). Brokers refuse it while it has members."""
        request = ConsumerGroupTopicPartitions(
            group, [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )
        if positions:
            self._results(self.admin.alter_consumer_group_offsets([request], request_timeout=self.timeout_s))

    def group_positions(self, group: str) -> Positions:
        futures = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self.timeout_s
        )
        (found,) = self._results(futures).values()
        return Positions.of(
            (tp.topic, tp.partition, tp.offset) for tp in found.topic_partitions if tp.offset >= 0
        )

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]:
        """The committed positions of several groups, asked at once; a group that is gone is left out."""
        asked = {
            group: self.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=self.timeout_s
            )
            for group in groups
        }
        found: dict[str, Positions] = {}
        for group, futures in asked.items():
            for each in self._results(futures, missing_ok=True).values():
                found[group] = Positions.of(
                    (tp.topic, tp.partition, tp.offset) for tp in each.topic_partitions if tp.offset >= 0
                )
        return found

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        """Who is in these groups now, by group."""
        if not groups:
            return {}
        described = self._results(
            self.admin.describe_consumer_groups(list(groups), request_timeout=self.timeout_s)
        )
        return {
            group: [
                GroupMember(
                    member.client_id,
                    frozenset(tp.topic for tp in member.assignment.topic_partitions)
                    if member.assignment is not None
                    else frozenset(),
                )
                for member in found.members
            ]
            for group, found in described.items()
        }

    def groups(self) -> list[str]:
        """The ids of all consumer groups, as far as brokers tell. Raises PeerError when none of them does."""
        listing = self._ask(
            lambda: self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            ),
            "list consumer groups",
        )
        if (
            listing.errors and not listing.valid
        ):  # a cluster that is away is an empty list with errors beside it
            raise self.translated(_error_of(listing.errors[0]), "list consumer groups")
        return sorted(group.group_id for group in listing.valid)


def _error_of(failed: KafkaError | KafkaException) -> KafkaError:
    """Some lists of errors hold exceptions, others what is in them."""
    found: KafkaError = failed.args[0] if isinstance(failed, KafkaException) else failed
    return found
