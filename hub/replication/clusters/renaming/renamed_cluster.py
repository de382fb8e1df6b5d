"""[edge] A link's view of the cluster whose topics have other names, because the mirror renames its copies.

The view has topics by their names at the mirror's source, in questions and answers. Topics that are no copies
are not in it; those whose names begin with ``_`` are the same. Access rules are not translated: mirrors with
``rename`` do not copy them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster, KafkaReader
from hub.kafka.reader import QUEUE_KB, WAIT_MS
from hub.kafka.writer import Acknowledged, KafkaSender, KafkaWriter
from hub.log import GroupDescription, NewTopic, TopicDescription
from hub.log.topic_names import TopicNames
from hub.record import NewRecord, Positions, Record, TopicPartition


class RenamedCluster(KafkaCluster):
    """View of ``plain`` with the topics' names at the source. Thread safe."""

    def __init__(self, plain: KafkaCluster, names: TopicNames) -> None:
        vars(self).update(vars(plain))  # the same connections
        self._plain, self._names = plain, names

    # ---- topics

    def topics(self) -> Mapping[str, TopicDescription]:
        return self._seen_topics(self._plain.topics())

    def described(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        return self._seen_topics(self._plain.described(self._names.all_on_wire(topics)))

    def _seen_topics(self, found: Mapping[str, TopicDescription]) -> dict[str, TopicDescription]:
        return {name: replace(each, name=name) for name, each in self._names.seen_of(found).items()}

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return self._names.seen_of(self._plain.topic_config(self._names.all_on_wire(names)))

    def default_config(self, names: Sequence[str]) -> Mapping[str, str | None]:
        return self._plain.default_config(self._names.all_on_wire(names))

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        return self._names.seen_of(self._plain.effective_config(self._names.all_on_wire(names)))

    def create_topics(self, topics: Sequence[NewTopic], *, rehearse: bool = False) -> Mapping[str, HubError]:
        wanted = [replace(each, name=self._names.on_wire(each.name)) for each in topics]
        return self._names.seen_of(self._plain.create_topics(wanted, rehearse=rehearse))

    def add_partitions(self, name: str, total: int, *, rehearse: bool = False) -> None:
        self._plain.add_partitions(self._names.on_wire(name), total, rehearse=rehearse)

    def alter_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, rehearse: bool = False
    ) -> Mapping[str, HubError]:
        renamed = {self._names.on_wire(name): change for name, change in changes.items()}
        return self._names.seen_of(self._plain.alter_configs(renamed, rehearse=rehearse))

    def delete_topic(self, name: str) -> None:
        self._plain.delete_topic(self._names.on_wire(name))

    # ---- offsets

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        found = self._plain.end_offsets(self._names.all_on_wire(topics), committed=committed)
        return self._names.seen_positions(found)

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self._names.seen_positions(self._plain.beginning_offsets(self._names.all_on_wire(topics)))

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        found = self._plain.offsets_at(self._names.all_on_wire(topics), timestamp_ms)
        return self._names.seen_positions(found)

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        return self._names.seen_positions(self._plain.known_ends(self._places(partitions)))

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._names.seen_positions(self._plain.ends_of(self._places(partitions)))

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._names.seen_positions(self._plain.beginnings_of(self._places(partitions)))

    def offsets_by_time(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        renamed = {self._names.place_on_wire(tp): at_ms for tp, at_ms in wanted.items()}
        found = self._plain.offsets_by_time(renamed)
        return {self._names.seen_place(tp): offset for tp, offset in found.items()}

    def _places(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [self._names.place_on_wire(tp) for tp in partitions]

    # ---- groups

    def publish_groups(self, positions: Mapping[str, Positions]) -> Mapping[str, PeerError]:
        renamed = {group: self._names.positions_on_wire(at) for group, at in positions.items()}
        return self._plain.publish_groups(renamed)

    def group_positions(self, group: str) -> Positions:
        return self._names.seen_positions(self._plain.group_positions(group))

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        found = self._plain.group_offsets(groups)
        return {
            group: each if isinstance(each, HubError) else self._names.seen_positions(each)
            for group, each in found.items()
        }

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        found = self._plain.describe_groups(groups)
        return {
            group: replace(each, topics=frozenset(self._names.seen_of(dict.fromkeys(each.topics))))
            for group, each in found.items()
        }

    # ---- clients

    def reader(
        self, *, queue_kb: int = QUEUE_KB, committed: bool = True, wait_ms: int = WAIT_MS
    ) -> KafkaReader:
        return RenamedReader(self._plain, self._names, queue_kb, wait_ms, committed=committed)

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        return RenamedWriter(self._plain, self._names, transactional_id)

    def sender(self, *, linger_ms: int = 0, delivery_timeout_s: float = 60.0) -> KafkaSender:
        return RenamedSender(self._plain, self._names, linger_ms, delivery_timeout_s)


class RenamedReader(KafkaReader):
    """Reader of a view."""

    def __init__(
        self, plain: KafkaCluster, names: TopicNames, queue_kb: int, wait_ms: int, *, committed: bool
    ) -> None:
        self._names = names
        super().__init__(plain, queue_kb, wait_ms, committed=committed)

    def assign(self, positions: Positions) -> None:
        super().assign(self._names.positions_on_wire(positions))

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        found = super().poll(limit, timeout_s)
        return [each._replace(topic=self._names.seen(each.topic) or each.topic) for each in found]

    def position(self) -> Positions:
        return self._names.seen_positions(super().position())


class RenamedWriter(KafkaWriter):
    """Writer of a view."""

    def __init__(self, plain: KafkaCluster, names: TopicNames, name: str | None) -> None:
        self._names = names
        super().__init__(plain, name)

    def append(self, records: Sequence[NewRecord]) -> Positions:
        return self._names.seen_positions(super().append(_renamed(records, self._names)))

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        renamed = {group: self._names.positions_on_wire(at) for group, at in groups.items()}
        after = super().append_with_groups(_renamed(records, self._names), renamed, check)
        return self._names.seen_positions(after)

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        def checked(after: Positions) -> None:
            check(self._names.seen_positions(after))

        return self._names.seen_positions(super().append_if(_renamed(records, self._names), checked))


class RenamedSender(KafkaSender):
    """Sender of a view."""

    def __init__(
        self, plain: KafkaCluster, names: TopicNames, linger_ms: int, delivery_timeout_s: float
    ) -> None:
        self._names = names
        super().__init__(plain, "sender", linger_ms=linger_ms, delivery_timeout_s=delivery_timeout_s)

    def send(self, new: NewRecord, acknowledged: Acknowledged | None = None) -> None:
        (renamed,) = _renamed([new], self._names)
        super().send(renamed, self._seen(acknowledged) if acknowledged is not None else None)

    def send_all(self, records: Iterable[NewRecord], acknowledged: Acknowledged) -> None:
        super().send_all(_renamed(records, self._names), self._seen(acknowledged))

    def _seen(self, acknowledged: Acknowledged) -> Acknowledged:
        def seen(place: TopicPartition, offset: int, error: HubError | None) -> None:
            acknowledged(self._names.seen_place(place), offset, error)

        return seen


def _renamed(records: Iterable[NewRecord], names: TopicNames) -> list[NewRecord]:
    return [replace(each, topic=names.on_wire(each.topic)) for each in records]
