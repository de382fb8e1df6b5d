"""[edge] Events as lines of JSON in files of a folder or of S3, exactly once.

A file has the events of one partition between two offsets, which are its name::

    SINK/TOPIC/PARTITION/FIRST-NEXT.ndjson.gz      offsets [FIRST, NEXT), 20 digits each

A file appears whole or not at all. After a crash the sink reads on at the largest NEXT of each partition, so
no event is in two files and none is left out.
"""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from hub.backup.storage.object_store import ObjectStore
from hub.record import Positions, TopicPartition
from hub.sinks.events import Delivered, SinkBatch, event_text
from hub.sinks.targets.target import Bury

_NAME = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<first>\d{20})-(?P<next>\d{20})\.ndjson(\.gz)?")


@dataclass(slots=True)
class WaitingLines:
    """Lines of a partition that are in no file yet; ``first``: offset after the last file."""

    first: int
    text: bytearray = field(default_factory=bytearray)
    events: int = 0


class Files:
    """The target of one sink, in a store of its own."""

    def __init__(
        self,
        store: ObjectStore,
        topic: str,
        *,
        roll_bytes: int,
        roll_every_s: float,
        compress: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.topic = store, topic
        self._roll_bytes, self._roll_every_s, self._compress = roll_bytes, roll_every_s, compress
        self._clock = clock
        self._waiting: dict[TopicPartition, WaitingLines] = {}
        self._since_s: float | None = None
        self._held = ExitStack()

    def positions(self, first: Positions) -> Positions:
        """See Target. Raises Conflict (HUB-1804) while another worker writes to the folder."""
        self._held.enter_context(self.store.locked())
        held = newest(self.store.names(self.topic))
        found = {place: max(at, held.get(place, 0)) for place, at in first}
        self._waiting = {place: WaitingLines(at) for place, at in found.items()}
        return Positions(found)

    def deliver(self, batch: SinkBatch, _stop: threading.Event, _bury: Bury) -> Delivered:
        """See Target. Positions are those of the files, and of partitions without waiting lines."""
        for event in batch.events:
            if not event.left:
                waiting = self._waiting[event.record.topic_partition]
                waiting.text += event_text(event) + b"\n"
                waiting.events += 1
        size = sum(len(each.text) for each in self._waiting.values())
        now_s = self._clock()
        since_s = self._since_s = now_s if self._since_s is None or not size else self._since_s
        written = 0
        if size >= self._roll_bytes or (size and now_s - since_s >= self._roll_every_s):
            written = self._roll(batch.after)
        for place, at in batch.after:
            if not self._waiting[place].text:
                self._waiting[place].first = at
        return Delivered(Positions({place: each.first for place, each in self._waiting.items()}), written)

    def close(self) -> None:
        self._held.close()

    def _roll(self, after: Positions) -> int:
        """Write a file for each partition with lines; returns the events. Raises PeerError, CallerError."""
        events = 0
        for place, waiting in self._waiting.items():
            if waiting.text:
                at = after.get(place, waiting.first)
                content = gzip.compress(bytes(waiting.text), 5, mtime=0) if self._compress else waiting.text
                self.store.put(name_of(place, waiting.first, at, compress=self._compress), bytes(content))
                events += waiting.events
                self._waiting[place] = WaitingLines(at)
        self._since_s = None
        return events


def name_of(place: TopicPartition, first: int, after: int, *, compress: bool) -> str:
    """Return the name of the file with offsets [first, after).

    >>> name_of(TopicPartition("shop.orders", 2), 0, 42, compress=False)
    'shop.orders/2/00000000000000000000-00000000000000000042.ndjson'
    """
    ending = ".ndjson.gz" if compress else ".ndjson"
    return f"{place.topic}/{place.partition}/{first:020d}-{after:020d}{ending}"


def newest(names: Iterable[str]) -> dict[TopicPartition, int]:
    """Return the position after the last file of each partition; other names are left out."""
    found: dict[TopicPartition, int] = {}
    for name in names:
        if parts := _NAME.fullmatch(name):
            place = TopicPartition(parts["topic"], int(parts["partition"]))
            found[place] = max(found.get(place, 0), int(parts["next"]))
    return found
