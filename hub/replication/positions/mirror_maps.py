"""[shell] The complete maps of one mirror, read from its clusters and kept up to date.

The map is in the target. The source is asked for the map of the other direction (where ownership ever moved)
and whether its topics are the ones that were mirrored. If it does not answer, the target's map is complete as
long as ownership moved once at most: until the first failback, records of the target are behind all mirrored
ones. Positions of topics whose ownership moved more than once are then unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hub.errors import NotFound, PeerError
from hub.log import between
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.control_state import joined
from hub.replication.clusters.readers import WrittenStateReader, read_control_state
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, home_of, opposite
from hub.replication.ownership.operation_steps import scope_of
from hub.replication.positions.translation import PartitionMap, TranslatedPosition, translate

_ANSWER_S = 3.0
_COMPLETE_S = 15.0
_SILENT_S = 10.0
_MOST_MARKERS = 1_000


@dataclass
class MirrorMaps:
    """Maps of ``link``. Thread safe. ``refresh`` before the first use, and whenever newer records count."""

    file: MirrorsFile
    link: Link
    clusters: Mapping[str, ClusterHandle]
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _readers: dict[str, WrittenStateReader] = field(default_factory=dict)
    _written: dict[str, WrittenState] = field(default_factory=dict)
    _topic_ids: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _control: Control = field(default_factory=Control)
    _source_answers: bool = False

    def refresh(self) -> None:
        """Read up to the present ends. Raises PeerError if the target does not answer."""
        with self._lock:
            try:
                self._refresh()
            except Exception:
                self.close()  # a reader that failed may have skipped records
                raise

    def _refresh(self) -> None:
        source, target = self.clusters[self.link.source], self.clusters[self.link.target]
        self._written = {self.link.target: self._read(target)}
        states = [read_control_state(target, status=False)]
        self._topic_ids = {self.link.target: _topic_ids(target)}
        try:
            source.kafka.wait_ready(_ANSWER_S)
            states.append(read_control_state(source, status=False))
            self._topic_ids[self.link.source] = _topic_ids(source)
            if any(state.control.operations for state in states):
                self._written[self.link.source] = self._read(source)
            self._source_answers = True
        except PeerError:
            self._source_answers = False
        self._control = joined(state.control for state in states)

    def _read(self, cluster: ClusterHandle) -> WrittenState:
        if cluster.name not in self._readers:
            self._readers[cluster.name] = WrittenStateReader(cluster)
        try:
            return self._readers[cluster.name].refresh()
        except NotFound:  # no mirror wrote there yet
            self._readers.pop(cluster.name).close()
            return WrittenState()

    def translate(self, place: TopicPartition, offset: int, *, back: bool = False) -> TranslatedPosition:
        """Return a source position at the target; with ``back``, a target position at the source. Raises
        PeerError if a map is not complete in time.
        """
        with self._lock:
            translated_position = translate(place, offset, self._map(place), back=back)
            if back and translated_position.precision == "unknown" and self._ends_in_markers(place, offset):
                table = self._map(place)
                assert table is not None
                end = (table.joint or table.table).reverse(self._last(place))
                return TranslatedPosition(place, offset, "exact", end.offset)
            return translated_position

    def _last(self, place: TopicPartition) -> int:
        """Return the target offset after the last record that either direction knows."""
        mark = self._written[self.link.target].of(self.link.name)[place]
        back = self._mark_back(place, mark)
        return max(mark.target_next, back.source_next if back is not None else 0)

    def _ends_in_markers(self, place: TopicPartition, offset: int) -> bool:
        """Return whether nothing but transaction markers is between the end of the map and a target position:
        a reader at the end of a copy is behind the mirror's last marker.
        """
        partition_map = self._map(place)
        if partition_map is None or partition_map.incomplete:
            return False
        first = self._last(place)
        if not first < offset <= first + _MOST_MARKERS:
            return False
        kafka = self.clusters[self.link.target].kafka
        if offset > kafka.end_offsets([place.topic]).get(place):
            return False
        start, end = Positions({place: first}), Positions({place: offset})
        return next(iter(between(start, end, kafka.reader(queue_kb=256), _SILENT_S)), None) is None

    def _map(self, place: TopicPartition) -> PartitionMap | None:
        written = self._written[self.link.target]
        mark = written.of(self.link.name).get(place)
        if mark is None:
            return None
        table, deadline = written.table(self.link.name, place), time.monotonic() + _COMPLETE_S
        while table is None:  # its transaction is being committed
            if time.monotonic() > deadline:
                raise PeerError(
                    f'topic "{place.topic}" partition {place.partition}: the map does not reach its '
                    "checkpoint",
                    hint="a transaction is still open; if it stays so, part of the map was deleted",
                    code="HUB-3614",
                )
            time.sleep(0.1)
            self._written[self.link.target] = written = self._read(self.clusters[self.link.target])
            mark, table = written.of(self.link.name)[place], written.table(self.link.name, place)
        gaps = tuple(
            gap
            for gap in written.gaps.values()
            if (gap.link, gap.topic, gap.partition, gap.topic_id) == (self.link.name, *place, mark.topic_id)
        )
        backward = None
        if (other := self._written.get(self.link.source)) is not None:
            name = opposite(self.file, self.link, place.topic)
            backward = other.table_back(name, mark) if name is not None else None
        joint = TwoWayOffsetMap(table, backward) if backward is not None else None
        return PartitionMap(table, joint, gaps, self._incomplete(place, mark))

    def _mark_back(self, place: TopicPartition, mark: Checkpoint) -> Checkpoint | None:
        other, name = self._written.get(self.link.source), opposite(self.file, self.link, place.topic)
        checkpoint = other.of(name).get(place) if other is not None and name is not None else None
        return checkpoint if checkpoint is not None and checkpoint.goes_back(mark) else None

    def _incomplete(self, place: TopicPartition, mark: Checkpoint) -> str:
        for side, theirs in ((self.link.source, mark.topic_id), (self.link.target, mark.target_topic_id)):
            now = self._topic_ids.get(side, {}).get(place.topic)
            if now is not None and theirs and now and now != theirs:
                return f"the topic was deleted and created again at {side}: the map is of the former one"
        home = home_of(self.file, place.topic)
        if home is not None and not self._source_answers and self._changes(home, place.topic) > 1:
            return (
                f"its ownership moved more than once, and {self.link.source}, which has the map of the other "
                "direction, does not answer"
            )
        return ""

    def _changes(self, home: str, topic: str) -> int:
        """Return how often the ownership of a topic changed, aborted changes included."""
        scopes = (home, scope_of(home, topic))
        changes = [
            self._control.operations[each].epoch for each in scopes if each in self._control.operations
        ]
        return max([self._control.owner(each).epoch for each in scopes] + changes)

    def close(self) -> None:
        with self._lock:
            while self._readers:
                self._readers.popitem()[1].close()


def _topic_ids(cluster: ClusterHandle) -> Mapping[str, str]:
    return {name: found.topic_id for name, found in topics_of(cluster).items()}
