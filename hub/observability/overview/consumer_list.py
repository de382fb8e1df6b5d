"""[shell] The consumers that exist: groups from Kafka, views and appliers from their reports, mirrors from
their status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError
from hub.log import GroupDescription
from hub.observability.lag.anchors import Ring
from hub.observability.lag.consumers import Consumer, ConsumerId
from hub.observability.lag.states import ReaderState
from hub.observability.overview.collector import Collector
from hub.observability.overview.mirror_readers import MirrorReader, update_rings
from hub.observability.overview.reports import ViewReport
from hub.record import Positions

GROUPS = 5_000
# Groups under which the hub publishes positions of views and appliers for other tools; it measures these
# itself.
SHADOWS = ("hub.view.", "hub.store.")
UNLISTED = 3


class GroupCluster(Protocol):
    """Cluster operations that list groups (hub.kafka.KafkaCluster)."""

    def groups(self) -> Sequence[str]: ...

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]: ...

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]: ...


@dataclass
class ConsumerList:
    """All known consumers. ``elsewhere``: for mirrors whose source is another cluster, the end offsets that
    workers reported. ``mirrors``: returns the mirrors as of a time (epoch ms), without blocking."""

    cluster: GroupCluster
    collector: Collector
    mirrors: Callable[[int], Iterable[MirrorReader]]
    consumers: dict[ConsumerId, Consumer] = field(default_factory=dict)
    elsewhere: dict[ConsumerId, dict[str, dict[int, Ring]]] = field(default_factory=dict)
    unlisted: dict[str, int] = field(default_factory=dict)
    turn: int = 0

    def refresh(self) -> tuple[list[Consumer], set[ConsumerId]]:
        """Return the consumers to measure in this round, and those that are gone.

        Views, appliers and mirrors from their reports, then this round's slice of the groups.
        """
        now_ms = self.collector.now_ms()
        silent = self.collector.store_silent(now_ms)
        own = [each for report in self.collector.reports for each in self._of_view(report, silent)]
        own += [self._of_mirror(each) for each in self.mirrors(now_ms)]
        names = self._names()
        start = self.turn % max(1, len(names))
        some = names if len(names) <= GROUPS else (names + names)[start : start + GROUPS]
        self.turn = start + len(some) if len(names) > GROUPS else 0
        offsets = self.cluster.group_offsets(some)
        described = self.cluster.describe_groups(some)
        groups = [_group(name, offsets.get(name), described.get(name)) for name in some]
        consumer_ids = {ConsumerId("group", name) for name in names} | {each.id for each in own}
        # When a topic is deleted, Kafka deletes the commits on it; the group stays listed for days and reads
        # nothing.
        nobody = {
            ConsumerId("group", name)
            for name, each in zip(some, groups, strict=True)
            if each is None and name in offsets and name not in self.unlisted
        }
        gone = {id for id in self.consumers if id not in consumer_ids or id in nobody}
        for id in gone:
            self.elsewhere.pop(id, None)
            self.consumers.pop(id)
        consumers = [*own, *(each for each in groups if each is not None)]
        self.consumers |= {each.id: each for each in consumers}
        return consumers, gone

    def _names(self) -> list[str]:
        """Return the names of all groups. A group that is missing from a list is kept for a few rounds: a
        broker that is away takes its groups out of the list."""
        listed = {name for name in self.cluster.groups() if not name.startswith(SHADOWS)}
        known = {id.name for id in self.consumers if id.kind == "group"}
        self.unlisted = {name: self.unlisted.get(name, 0) + 1 for name in known - listed}
        return sorted(listed | {name for name, rounds in self.unlisted.items() if rounds < UNLISTED})

    def _of_view(self, report: ViewReport, silent: str | None) -> Iterator[Consumer]:
        """Return a view and its applier as consumers. ``silent``: why the store does not report their
        positions.

        While the store is silent they are unknown: with the last positions they would seem stuck while their
        topics grow.
        """
        if silent is not None:
            trouble = f"the store cannot be read: {silent}"
            for kind in ("view", "applier") if report.applied else ("view",):
                yield Consumer(ConsumerId(kind, report.view), {}, owner=report.owner, trouble=trouble)
            return
        positions = _by_topic(report.positions) if report.positions is not None else {}
        # A view reads a partition from its start if it has no position there yet.
        counts = self.collector.counts
        whole = {
            topic: {
                partition: read.get(partition, 0)
                for partition in (range(counts[topic]) if topic in counts else read)
            }
            for topic, read in positions.items()
        }
        missing = {topic: "no batch is committed yet" for topic in report.topics if topic not in positions}
        yield Consumer(ConsumerId("view", report.view), whole, report.reader, report.owner, missing)
        if report.applied is not None and len(report.applied):
            yield Consumer(ConsumerId("applier", report.view), _by_topic(report.applied), owner=report.owner)

    def _of_mirror(self, mirror: MirrorReader) -> Consumer:
        id = mirror.consumer.id
        if mirror.ends is None:
            self.elsewhere.pop(id, None)
        else:
            before = self.elsewhere.get(id, {})
            anchors = {topic: before[topic] for topic in before if topic in mirror.ends or not mirror.ends}
            self.elsewhere[id] = anchors | {
                topic: update_rings(before.get(topic, {}), ends) for topic, ends in mirror.ends.items()
            }
        return mirror.consumer


def _group(
    name: str, positions: Positions | HubError | None, described: GroupDescription | None
) -> Consumer | None:
    """Return a group as a consumer; None when it has no commits and no members."""
    members = described.members if described is not None else None
    connected = described is not None and members != 0
    reader = ReaderState(members=members, connected=connected)
    id = ConsumerId("group", name)
    if isinstance(positions, HubError):
        return Consumer(id, {}, reader, trouble=positions.message)
    read = _by_topic(positions or Positions())
    assigned = described.topics if described is not None else frozenset()
    missing = {topic: "it has committed nothing" for topic in assigned if topic not in read}
    if not read and not missing and not connected:
        return None
    return Consumer(id, read, reader, missing=missing)


def _by_topic(positions: Positions) -> dict[str, dict[int, int]]:
    grouped: dict[str, dict[int, int]] = {}
    for tp, offset in positions:
        grouped.setdefault(tp.topic, {})[tp.partition] = offset
    return grouped
