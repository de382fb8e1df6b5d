"""[edge] Readers of the topics of mirrors: control, status, and what mirrors wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from hub.errors import HubError, NotFound, PeerError
from hub.log import Reader
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import STATUS_TOPIC
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, CONTROL_TOPIC, MAP_TOPIC
from hub.times import epoch_ms

_POLL = 5_000


def read_to_end(
    reached: ClusterHandle, topics: Sequence[str], take: Callable[[Record], None], timeout_s: float = 30.0
) -> None:
    """Read every committed record of these topics up to their present ends; waits for open transactions.

    Topics that are not there are passed over. Raises PeerError when nothing comes on for ``timeout_s``.
    """
    there = [name for name in topics if name in reached.kafka.topics()]
    if not there:
        return
    ends = reached.kafka.end_offsets(there, committed=False)
    begins = reached.kafka.beginning_offsets(there)
    reader = reached.kafka.reader(queue_kb=8_192)
    try:
        reader.assign(Positions({tp: begins.get(tp) for tp, end in ends if begins.get(tp) < end}))
        wanted = Positions({tp: end for tp, end in ends if begins.get(tp) < end})
        if not _read_until(reader, wanted, take, timeout_s):
            raise PeerError(
                f'cluster "{reached.name}": {reader.position().behind(wanted)} is not reached within '
                f"{timeout_s:g} s",
                hint="an open transaction of a hung worker holds it back until it times out",
                code="HUB-3604",
            )
    finally:
        reader.close()


def _read_until(reader: Reader, ends: Positions, take: Callable[[Record], None], timeout_s: float) -> bool:
    """Read all records up to ``ends``. Returns False after ``timeout_s`` without progress; reading a long map
    may take longer.
    """
    deadline = time.monotonic() + timeout_s
    while not (at := reader.position()).covers(ends):
        if time.monotonic() > deadline:
            return False
        for record in reader.poll(_POLL, 0.2):
            take(record)
        if reader.position() != at:
            deadline = time.monotonic() + timeout_s
    return True


def read_control_state(reached: ClusterHandle, *, status: bool = True) -> ControlState:
    """Read the control state of a cluster once."""
    board = ControlState()
    now_s, now_ms = time.monotonic(), epoch_ms()
    read_to_end(
        reached,
        [CONTROL_TOPIC, STATUS_TOPIC] if status else [CONTROL_TOPIC],
        lambda record: board.apply(record, now_s, now_ms),
    )
    return board


def without_records(reached: ClusterHandle, topics: Iterable[str], timeout_s: float = 10.0) -> frozenset[str]:
    """Return the topics that have no committed record now; topics that are not decided within ``timeout_s``
    are left out.
    """
    names = frozenset(topics)
    return names - {tp.topic for tp in partitions_with_records(reached, names, timeout_s)}


def partitions_with_records(
    reached: ClusterHandle, topics: Iterable[str], timeout_s: float = 10.0
) -> frozenset[TopicPartition]:
    """Return the partitions that have a committed record now, or are not decided within ``timeout_s``.

    Offsets do not decide it: markers and aborted records have offsets, too. Stops when each partition has
    shown a record or its end.
    """
    kafka, names = reached.kafka, sorted(topics)
    begins, ends = kafka.beginning_offsets(names), kafka.end_offsets(names)
    waiting = {tp: end for tp, end in ends if begins.get(tp) < end}
    topic_partitions: set[TopicPartition] = set()
    reader = kafka.reader(queue_kb=1_024)
    deadline = time.monotonic() + timeout_s
    try:
        reader.assign(Positions({tp: begins.get(tp) for tp in waiting}))
        while waiting and time.monotonic() < deadline:
            topic_partitions |= {record.topic_partition for record in reader.poll(_POLL, 0.2)}
            at = reader.position()
            waiting = {
                tp: end for tp, end in waiting.items() if tp not in topic_partitions and at.get(tp) < end
            }
    finally:
        reader.close()
    return frozenset(topic_partitions | waiting.keys())


class OnwardReader:
    """Incremental reader: each call reads the records since the last one and waits for open transactions. Not
    thread safe.
    """

    def __init__(self, reached: ClusterHandle, topics: Sequence[str], take: Callable[[Record], None]) -> None:
        self.reached, self.topics, self._take = reached, topics, take
        self._reader = reached.kafka.reader(queue_kb=8_192)
        self._assigned = False

    def read_on(self, timeout_s: float = 20.0) -> Positions:
        """Read up to the present ends and return them. Raises PeerError after ``timeout_s`` without progress,
        NotFound without the topics.
        """
        ends = self.reached.kafka.end_offsets(self.topics, committed=False)
        if not self._assigned:
            begins = self.reached.kafka.beginning_offsets(self.topics)
            self._reader.assign(Positions({tp: begins.get(tp) for tp, _ in ends}))
            self._assigned = True
        if not _read_until(self._reader, ends, self._take, timeout_s):
            raise PeerError(
                f'cluster "{self.reached.name}": an open transaction holds back the mirrors\' own topics',
                hint="a worker hangs: its transaction times out",
                code="HUB-3604",
            )
        return ends

    def close(self) -> None:
        self._reader.close()


class WrittenStateReader:
    """Incremental reader of a ``WrittenState``. Not thread safe. ``only``: the links whose maps are kept; for
    long-lived readers. ``also`` is called with every record after it was applied.
    """

    def __init__(
        self,
        reached: ClusterHandle,
        *,
        maps: bool = True,
        only: frozenset[str] | None = None,
        also: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.progress = WrittenState(only=only)
        topics = [CHECKPOINTS_TOPIC, MAP_TOPIC] if maps else [CHECKPOINTS_TOPIC]

        def take(record: Record) -> None:
            self.progress.apply(record)
            also(record)

        self._onward = OnwardReader(reached, topics, take)

    def refresh(self, timeout_s: float = 20.0) -> WrittenState:
        """Read up to the present ends. Raises PeerError after ``timeout_s`` without progress, NotFound
        without the topics.
        """
        self._onward.read_on(timeout_s)
        return self.progress

    def close(self) -> None:
        self._onward.close()


class StatusReader:
    """Incremental reader of a cluster's control state and written state, without the maps. Not
    thread safe.
    """

    def __init__(self, reached: ClusterHandle) -> None:
        self.reached = reached
        self._topics = (CONTROL_TOPIC, STATUS_TOPIC, CHECKPOINTS_TOPIC)
        self._ends = Positions()
        self._onward: OnwardReader | None = None
        self._board, self._progress = ControlState(), WrittenState()

    def refresh(self, timeout_s: float = 30.0) -> tuple[ControlState, WrittenState]:
        """Return both, current as of the call; empty where the cluster has none of the mirrors' topics.
        Raises PeerError.
        """
        try:
            ends = self._read_on(timeout_s)
            if not ends.covers(
                self._ends
            ):  # a topic was deleted and recreated: the state is that of the former one
                self.close()
                ends = self._read_on(timeout_s)
            self._ends = ends
        except NotFound:
            self.close()
        except HubError:
            self.close()  # records that were polled and not applied would be missing
            raise
        return self._board, self._progress

    def _read_on(self, timeout_s: float) -> Positions:
        if self._onward is None:
            self._board, self._progress = ControlState(), WrittenState()
            self._onward = OnwardReader(self.reached, self._topics, self._take)
        return self._onward.read_on(timeout_s)

    def _take(self, record: Record) -> None:
        if record.topic == CHECKPOINTS_TOPIC:
            self._progress.apply(record)
        else:
            self._board.apply(record, time.monotonic(), epoch_ms())

    def close(self) -> None:
        if self._onward is not None:
            self._onward.close()
        self._onward, self._ends = None, Positions()
        self._board, self._progress = ControlState(), WrittenState()


def read_progress(reached: ClusterHandle, *, maps: bool = True) -> WrittenState:
    """Read a ``WrittenState`` once; empty when the cluster has none of the mirrors' topics."""
    reader = WrittenStateReader(reached, maps=maps)
    try:
        return reader.refresh()
    except NotFound:
        return WrittenState()
    finally:
        reader.close()
