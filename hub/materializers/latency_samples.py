"""[shell] When did it happen? A few events a second of the batches of SQL views, looked up in their topics by offset.

Beside the appliers' steps, which do not wait for it. Each event of the batches since the last look is as likely as any
other. Cost: at most ``SAMPLES`` small fetches a step, whatever the rate of events.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError
from hub.log import Reader
from hub.materializers.latency import Latencies, Stretch
from hub.record import Positions, TopicPartition

log = logging.getLogger(__name__)

SAMPLES = 4
_LONGEST_S = 1.0
_QUEUE_KB = 64


class Log(Protocol):
    def reader(self, *, queue_kb: int = ...) -> Reader: ...


@dataclass
class Sampler:
    """``step`` now and then; ``chance`` decides which events."""

    log: Log
    chance: random.Random = field(default_factory=random.Random)
    reader: Reader | None = None

    def step(self, latencies: Sequence[Latencies]) -> int:
        """Look some up; how many were found. What Kafka does not answer in time is not counted."""
        found = 0
        for each in latencies:
            stretches = each.waiting()
            if stretches:
                found += self._look(each, stretches)
        return found

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def _look(self, latencies: Latencies, stretches: Sequence[Stretch]) -> int:
        chosen = self.chance.choices(stretches, [each.end - each.first for each in stretches], k=SAMPLES)
        wanted: dict[TopicPartition, tuple[Stretch, int]] = {}
        for each in chosen:
            place = TopicPartition(each.topic, each.partition)
            wanted.setdefault(place, (each, self.chance.randrange(each.first, each.end)))
        found: set[TopicPartition] = set()
        try:
            if self.reader is None:
                self.reader = self.log.reader(queue_kb=_QUEUE_KB)
            self.reader.assign(Positions({place: offset for place, (_, offset) in wanted.items()}))
            deadline = time.monotonic() + _LONGEST_S
            while len(found) < len(wanted) and time.monotonic() < deadline:
                for record in self.reader.poll(64, 0.2):
                    place = record.topic_partition
                    stretch, _ = wanted[place]
                    # The next record that exists may be a later one; behind the stretch it says nothing of it.
                    if place not in found and record.offset < stretch.end:
                        latencies.sampled(stretch, record.offset, record.timestamp_ms)
                    found.add(place)
        except HubError as error:
            log.debug("events not sampled: %s", error.message)
            self.close()
        else:
            self.reader.assign(Positions())  # or it would go on fetching
        return len(found)
