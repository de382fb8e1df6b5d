"""[edge] Append sample events to topics, exactly once across any number of starts and kills.

Every event has a number in its deterministic stream and goes to a partition that only its key decides; its
record carries the number. Records are appended to a partition in order and without gaps (the publisher must
not give up a record while it sends later ones: ``PATIENCE_S``), so the number in its last record shows which
events it has: a later start skips those.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator

from hub.demo.customers import MEAN_STEP_MS, DemoEvent, Stream
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.record import Positions, TopicPartition
from hub.times import epoch_ms
from hub.topics.gateway.producer import Publisher

HEADER = "hub.demo"
PATIENCE_S = 86_400.0
_LOOK_BACK = 2_000


class Feeder:
    """Feeder of one stream. Pass every event of the stream to ``feed``, in order."""

    def __init__(self, cluster: KafkaCluster, publisher: Publisher, topics: Iterable[str]) -> None:
        self.publisher = publisher
        described = cluster.topics()
        self.partitions = {topic: described[topic].partitions for topic in topics}
        self.there, self.epoch_ms = last_numbers(cluster, list(self.partitions))
        self.number = 0

    def feed(self, event: DemoEvent) -> bool:
        """Append the stream's next event unless the topic has it. Returns True if it was appended."""
        number, self.number = self.number, self.number + 1
        partition = zlib.crc32(event.key.encode()) % self.partitions[event.topic]
        if number <= self.there.get(TopicPartition(event.topic, partition), -1):
            return False
        header = f"{number}:{self.epoch_ms}".encode()
        self.publisher.send(
            event.topic, event.key, event.value, event.timestamp_ms, ((HEADER, header),), partition
        )
        return True


def load(
    feeder: Feeder, events: Iterable[DemoEvent], say: Callable[[int], None] = lambda _count: None
) -> int:
    """Append the missing events and return their number;
    ``say`` is called with the number of events checked."""
    new = 0
    for count, event in enumerate(events, 1):
        new += feeder.feed(event)
        if count % 500 == 0:
            say(count)
    feeder.publisher.flush()
    return new


def shop(feeder: Feeder, seed: int, customers: int, events: int) -> Stream:
    """Return the shop's stream, with an epoch so that its first ``events`` end about now; an existing stream
    keeps its epoch.
    """
    if feeder.epoch_ms is None:
        feeder.epoch_ms = epoch_ms() - events * MEAN_STEP_MS - 600_000
    return Stream(seed, customers, feeder.epoch_ms)


def trickle(feeder: Feeder, events: Iterator[DemoEvent], rate: float, stop: threading.Event) -> None:
    """Append events at about ``rate`` a second until ``stop`` is set;
    those already there are passed over at once."""
    for event in events:
        if feeder.feed(event):
            feeder.publisher.flush()
            if stop.wait(1 / rate):
                return
        elif stop.is_set():
            return


def replay(feeder: Feeder, events: Iterable[DemoEvent], speed: float, stop: threading.Event) -> None:
    """Append events as they happened, ``speed`` times as fast."""
    began_at, first_ms = time.monotonic(), None
    for event in events:
        if first_ms is None and event.timestamp_ms > 0:
            first_ms = event.timestamp_ms
        due = began_at + (event.timestamp_ms - (first_ms or 0)) / 1000 / speed
        if feeder.feed(event) and due > time.monotonic():
            feeder.publisher.flush()
            if stop.wait(due - time.monotonic()):
                return
        elif stop.is_set():
            return
    feeder.publisher.flush()


def last_numbers(cluster: KafkaCluster, topics: list[str]) -> tuple[dict[TopicPartition, int], int | None]:
    """Return the number in each partition's last numbered record, and the stream's epoch; ignores records of
    others.
    """
    begin, end = cluster.beginning_offsets(topics), cluster.end_offsets(topics)
    at = {tp: max(begin.get(tp), offset - _LOOK_BACK) for tp, offset in end if offset > begin.get(tp)}
    found: dict[TopicPartition, int] = {}
    epoch: int | None = None
    reader = cluster.reader()
    try:
        reader.assign(Positions(at))
        wanted = Positions({tp: end.get(tp) for tp in at})
        deadline = time.monotonic() + cluster.timeout_s
        while not reader.position().covers(wanted):
            if time.monotonic() > deadline:  # an event that is not confirmed could be written twice
                raise PeerError(
                    f"the sample events that are there are not read in {cluster.timeout_s:.0f} s",
                    hint="start again",
                )
            for record in reader.poll(5_000, 0.5):
                header = record.header(HEADER)
                if header is not None:
                    number, _, began = header.decode().partition(":")
                    found[record.topic_partition] = max(int(number), found.get(record.topic_partition, -1))
                    epoch = int(began) if began.isdigit() else epoch
        return found, epoch
    finally:
        reader.close()
