"""[edge] Offsets of a cluster's topics: committed ends, beginnings, offsets by time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import OffsetSpec

from hub.errors import NotFound, PeerError
from hub.kafka.connection import NO_LEADER, Connection
from hub.log import TopicDescription
from hub.record import Positions, TopicPartition


class Offsets(Connection):
    """Positions in the log, as a reader of committed records counts them."""

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        """Return the last stable offsets; with ``committed`` False the high watermarks, past open
        transactions too.
        """
        return self._offsets(topics, OffsetSpec.latest(), committed=committed)

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self._offsets(topics, OffsetSpec.earliest())

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """Return the first offset at or after that time; partitions without one are left out."""
        positions = self._offsets(topics, OffsetSpec.for_timestamp(timestamp_ms))
        return Positions({tp: offset for tp, offset in positions if offset >= 0})

    # ---- single partitions, many at once, each for itself: one that is gone or has no leader is left out

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        """Return the end offsets of partitions that answer; one without a leader does not hide the others.
        Requests no list of topics, because frequent callers know it.
        """
        return self._known(dict.fromkeys(partitions, OffsetSpec.latest()))

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the high watermarks: the end for a reader of uncommitted records."""
        latest = OffsetSpec.latest()
        return self._known(dict.fromkeys(partitions, latest), IsolationLevel.READ_UNCOMMITTED)

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        earliest = OffsetSpec.earliest()
        return self._known(dict.fromkeys(partitions, earliest))

    def offsets_by_time(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Return the first offset at or after each partition's own time (epoch ms); None if there is none."""
        positions = self._known({tp: OffsetSpec.for_timestamp(at_ms) for tp, at_ms in wanted.items()})
        return {tp: offset if offset >= 0 else None for tp, offset in positions}

    def _known(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec],
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Positions:
        """Return the known offsets. Raises PeerError when no partition has an answer."""
        found: dict[TopicPartition, int] = {}
        failed: PeerError | None = None
        for some in _chunks(list(wanted.items())):
            request = {KafkaTopicPartition(tp.topic, tp.partition): spec for tp, spec in some}
            futures = self.admin.list_offsets(
                request, isolation_level=isolation, request_timeout=self.timeout_s
            )
            for each, future in futures.items():
                try:
                    result = self._results({each: future})[each]
                    found[TopicPartition(each.topic, each.partition)] = result.offset
                except NotFound:
                    continue
                except PeerError as error:
                    failed = error
            if failed is not None and not found:
                raise failed
        return Positions(found)

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
        """Return every partition of these topics. Raises NotFound."""
        counts = self.partition_counts(topics)
        missing = set(topics) - counts.keys()
        if missing:
            raise NotFound(f'topic "{min(missing)}" does not exist', hint="create it: hub topic apply")
        return [
            TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)
        ]

    def partition_counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic; topics that do not exist are left out."""
        return {name: found.partitions for name, found in self.described(topics).items()}

    def described(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        """Describe these topics, without their configurations; topics that do not exist are left out.
        Requests only these topics, because a list of thousands is long.
        """
        names = sorted(set(topics))
        found = self._results(
            self.admin.describe_topics(TopicCollection(names), request_timeout=self.timeout_s)
            if names
            else {},
            missing_ok=True,
        )
        return {
            name: TopicDescription(
                name,
                str(description.topic_id),
                len(description.partitions),
                len(description.partitions[0].replicas) if description.partitions else 0,
            )
            for name, description in found.items()
        }


_PARTITIONS_AT_ONCE = 10_000


def _chunks(
    items: list[tuple[TopicPartition, OffsetSpec]], size: int = _PARTITIONS_AT_ONCE
) -> Iterator[list[tuple[TopicPartition, OffsetSpec]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
