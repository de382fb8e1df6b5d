"""[edge] How far a cluster's topics reach: committed ends, beginnings, offsets by time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import OffsetSpec

from hub.errors import NotFound, PeerError
from hub.kafka.connection import NO_LEADER, Connection
from hub.record import Positions, TopicPartition


class Offsets(Connection):
    """Positions in the log, as a reader of committed records counts them."""

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        """The last stable offsets; with ``committed`` False the high watermarks, past open transactions too."""
        return self._offsets(topics, OffsetSpec.latest(), committed=committed)

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self._offsets(topics, OffsetSpec.earliest())

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """The first offset at or after that time; partitions without one are left out."""
        found = self._offsets(topics, OffsetSpec.for_timestamp(timestamp_ms))
        return Positions({tp: offset for tp, offset in found if offset >= 0})

    def _offsets(self, topics: Sequence[str], spec: OffsetSpec, *, committed: bool = True) -> Positions:
        partitions = self._partitions(topics)
        if not partitions:
            return Positions()
        wanted = {KafkaTopicPartition(topic, partition): spec for topic, partition in partitions}
        deadline = time.monotonic() + self.timeout_s
        while True:
            futures = self.admin.list_offsets(
                wanted,
                isolation_level=IsolationLevel.READ_COMMITTED
                if committed
                else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self.timeout_s,
            )
            try:
                found = self._results(futures)
                break
            except PeerError as error:
                if error.code != NO_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        return Positions.of((tp.topic, tp.partition, result.offset) for tp, result in found.items())

    def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Every partition of these topics. Raises NotFound."""
        wanted = set(topics)
        if not wanted:
            return []
        metadata = self._ask(lambda: self.admin.list_topics(timeout=self.timeout_s), "list topics")
        missing = wanted - metadata.topics.keys()
        if missing:
            raise NotFound(f'topic "{min(missing)}" does not exist', hint="create it: hub topic apply")
        return [
            TopicPartition(topic, partition)
            for topic in wanted
            for partition in metadata.topics[topic].partitions
        ]
