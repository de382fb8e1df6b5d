"""[core] A log in memory, with the same interface: for tests, and for servers without Kafka."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.errors import Conflict, HubError, NotFound
from hub.log.port import GroupsLeftAlone, NewTopic, TopicDescription, WriterFenced
from hub.record import NewRecord, Positions, Record, TopicPartition


@dataclass
class MemoryCluster:
    """In-memory cluster: topics as lists of records."""

    logs: dict[str, list[list[Record]]] = field(default_factory=dict)
    descriptions: dict[str, TopicDescription] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    now_ms: int = 0
    created: int = 0
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)  # by group

    def topics(self) -> Mapping[str, TopicDescription]:
        return dict(self.descriptions)

    def described(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        found = self.topics()
        return {name: found[name] for name in topics if name in found}

    def partition_counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        return {name: len(self.logs[name]) for name in topics if name in self.logs}

    def create_topic(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int
    ) -> None:
        if name in self.logs:
            raise Conflict(f'topic "{name}" exists already')
        self.created += 1
        self.logs[name] = [[] for _ in range(partitions)]
        self.descriptions[name] = TopicDescription(
            name, f"memory-{self.created}", partitions, replication_factor, dict(config)
        )

    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, HubError]:
        refused: dict[str, HubError] = {}
        for new in topics:
            try:
                self.create_topic(
                    new.name,
                    partitions=new.partitions,
                    config=new.config,
                    replication_factor=new.replication_factor,
                )
            except Conflict as error:
                refused[new.name] = error
        return refused

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.descriptions[name].config for name in names}

    def add_partitions(self, name: str, total: int) -> None:
        log = self._log(name)
        log.extend([] for _ in range(total - len(log)))
        self.descriptions[name] = replace(self.descriptions[name], partitions=len(log))

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        description = self.descriptions[name]
        merged = {**description.config, **{k: v for k, v in changes.items() if v is not None}}
        kept = {k: v for k, v in merged.items() if changes.get(k, v) is not None}
        self.descriptions[name] = replace(description, config=kept)

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Mapping[str, HubError]:
        refused: dict[str, HubError] = {}
        for name, wanted in changes.items():
            try:
                self._log(name)
                self.alter_config(name, wanted)
            except NotFound as error:
                refused[name] = error
        return refused

    def delete_topic(self, name: str) -> None:
        self._log(name)
        del self.logs[name], self.descriptions[name]

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        return Positions.of(
            (topic, partition, len(records))
            for topic in topics
            for partition, records in enumerate(self._log(topic))
        )

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        wanted = set(partitions)
        ends = self.end_offsets(sorted({tp.topic for tp in wanted} & self.logs.keys()))
        return Positions({tp: end for tp, end in ends if tp in wanted})

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return Positions.of((tp.topic, tp.partition, 0) for tp, _ in self.end_offsets(topics))

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        """Return the first offset at or after that time; partitions without one are left out."""
        found: dict[TopicPartition, int] = {}
        for topic in topics:
            for records in self._log(topic):
                for record in records:
                    if record.timestamp_ms >= timestamp_ms:
                        found.setdefault(record.topic_partition, record.offset)
        return Positions(found)

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        """Return the offset of the first record at or after each position, or the end."""
        return positions

    def gatherer(self) -> MemoryReader:
        return self.reader()

    def reader(self, *, committed: bool = True, wait_ms: int = 0) -> MemoryReader:
        return MemoryReader(self)

    def follower(self, *, queue_kb: int | None = None) -> MemoryReader:
        """Open a reader. Memory is the log itself: nothing is fetched ahead."""
        return self.reader()

    def writer(self, name: str | None = None) -> MemoryWriter:
        """Open a writer; a named writer fences every earlier writer of that name."""
        if name is not None:
            self.epochs[name] = self.epochs.get(name, 0) + 1
        return MemoryWriter(self, name, self.epochs.get(name or "", 0))

    def _log(self, name: str) -> list[list[Record]]:
        if name not in self.logs:
            raise NotFound(f'topic "{name}" does not exist')
        return self.logs[name]


@dataclass
class MemoryReader:
    """See Reader."""

    cluster: MemoryCluster
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def assign(self, positions: Positions) -> None:
        self.positions = dict(positions.offsets)

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        found: list[Record] = []
        for tp, position in self.positions.items():
            records = self.cluster._log(tp.topic)[tp.partition]
            taken = records[position : position + limit - len(found)]
            self.positions[tp] = position + len(taken)
            found.extend(taken)
        return found

    def position(self) -> Positions:
        return Positions(dict(self.positions))

    def close(self) -> None:
        self.positions = {}


@dataclass
class MemoryWriter:
    """See Writer."""

    cluster: MemoryCluster
    name: str | None
    epoch: int

    def append(self, records: Sequence[NewRecord]) -> Positions:
        if self.name is not None and self.cluster.epochs[self.name] != self.epoch:
            raise WriterFenced(f'writer "{self.name}" was replaced by a later one')
        after: dict[TopicPartition, int] = {}
        for new in records:
            log = self.cluster._log(new.topic)
            partition = new.partition
            if partition is None:
                partition = zlib.crc32(new.key or b"") % len(log)
            offset = len(log[partition])
            timestamp = self.cluster.now_ms if new.timestamp_ms is None else new.timestamp_ms
            log[partition].append(
                Record(new.topic, partition, offset, timestamp, new.key, new.value, new.headers)
            )
            after[TopicPartition(new.topic, partition)] = offset + 1
        return Positions(after)

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        before = {group: dict(self.cluster.committed.get(group, {})) for group in groups}
        try:
            check()
        except GroupsLeftAlone:
            self.append([])  # a writer that was replaced hears of it first
            raise
        after = self.append(records)
        for group, positions in groups.items():
            known = self.cluster.committed.setdefault(group, {})
            known |= {tp: at for tp, at in positions if known.get(tp) == before[group].get(tp)}
        return after

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        """Append records with partitions."""
        after = dict[TopicPartition, int]()
        for new in records:
            assert new.partition is not None
            place = TopicPartition(new.topic, new.partition)
            after[place] = after.get(place, len(self.cluster._log(new.topic)[new.partition])) + 1
        check(Positions(after))
        return self.append(records)

    def close(self) -> None: ...
