"""[shell] Look up the times of a few events per second of SQL views' batches, in their topics by offset.

Runs in parallel with the appliers' steps, which do not wait for it. Each event of the batches since the last
look is equally likely. Cost: at most ``SAMPLES`` small fetches per step, at any rate of events.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError
from hub.log import Reader
from hub.materializers.progress.latency import Latencies, ReadableRange
from hub.record import Positions, Record, TopicPartition
from hub.tracing import of_headers, spans

log = logging.getLogger(__name__)

SAMPLES = 4
_LONGEST_S = 1.0
_QUEUE_KB = 64


class SampleLog(Protocol):
    def reader(self, *, queue_kb: int = ...) -> Reader: ...


@dataclass
class Sampler:
    """Sampler of event times. Call ``step`` regularly; ``chance`` chooses the events."""

    log: SampleLog
    chance: random.Random = field(default_factory=random.Random)
    reader: Reader | None = None

    def step(self, latencies: Sequence[Latencies]) -> int:
        """Look up events and return how many were found. Events that Kafka does not return in time are not
        counted.
        """
        found = 0
        for each in latencies:
            stretches = each.waiting()
            if stretches:
                found += self._look(each, stretches)
            if spans() is not None:
                self._trace(each)
        return found

    def _trace(self, latencies: Latencies) -> None:
        """Look up the traces of the newest events of keyed views, which rows do not contain."""
        newest = {
            TopicPartition(due.topic, due.partition): (view, due, at) for view, due, at in latencies.unseen()
        }
        if not newest:
            return
        ranges = {place: (due.offset, due.offset + 1) for place, (_, due, _) in newest.items()}
        try:
            if self.reader is None:
                self.reader = self.log.reader(queue_kb=_QUEUE_KB)
            for record in looked_up(self.reader, ranges, 1):
                latencies.exemplify(*newest[record.topic_partition], of_headers(record.headers))
        except HubError as error:
            log.debug("traces of events not looked up: %s", error.message)
            self.close()

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def _look(self, latencies: Latencies, stretches: Sequence[ReadableRange]) -> int:
        chosen = self.chance.choices(stretches, [each.end - each.first for each in stretches], k=SAMPLES)
        wanted: dict[TopicPartition, tuple[ReadableRange, int]] = {}
        for each in chosen:
            place = TopicPartition(each.topic, each.partition)
            wanted.setdefault(place, (each, self.chance.randrange(each.first, each.end)))
        topic_partitions: set[TopicPartition] = set()
        try:
            if self.reader is None:
                self.reader = self.log.reader(queue_kb=_QUEUE_KB)
            ranges = {place: (offset, each.end) for place, (each, offset) in wanted.items()}
            for record in looked_up(self.reader, ranges, 1):
                topic_partitions.add(record.topic_partition)
                stretch, _ = wanted[record.topic_partition]
                latencies.sampled(stretch, record.offset, record.timestamp_ms, of_headers(record.headers))
        except HubError as error:
            log.debug("events not sampled: %s", error.message)
            self.close()
        return len(topic_partitions)


def looked_up(reader: Reader, wanted: Mapping[TopicPartition, tuple[int, int]], each: int) -> list[Record]:
    """Return the first ``each`` events that exist in [first, end) of each place, as far as Kafka answers
    within 1 s.
    """
    records: dict[TopicPartition, list[Record]] = {place: [] for place in wanted}
    done: set[TopicPartition] = set()
    reader.assign(Positions({place: first for place, (first, _) in wanted.items()}))
    deadline = time.monotonic() + _LONGEST_S
    while len(done) < len(wanted) and time.monotonic() < deadline:
        for record in reader.poll(64, 0.2):
            place = record.topic_partition
            # The next existing record may be past the stretch; it is then not of it.
            if place not in done and record.offset < wanted[place][1]:
                records[place].append(record)
            if record.offset + 1 >= wanted[place][1] or len(records[place]) >= each:
                done.add(place)
        reached = reader.position()
        done |= {place for place, (_, end) in wanted.items() if reached.get(place, 0) >= end}
    reader.assign(Positions())  # else it would keep fetching
    return [record for place in wanted for record in records[place]]
