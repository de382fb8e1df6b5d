"""[core] Records of a log and positions in it.

A *position* is always the NEXT offset to read, everywhere in the hub: a log read up to offset 41 has position
42, an empty one has position 0, and ``lag = end offset - position``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.errors import CallerError

UNREAD_HEADER = "hub.unread"
"""Header of the record that replaces a batch above the size limits: the reason."""

# As Kafka has them: a header may have a name and no value.
Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """One ordered log."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record that is to be appended.
    ``partition`` None lets the key decide; ``timestamp_ms`` None means now."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Record(NamedTuple):
    """A record as the log holds it. ``value`` None is a tombstone; ``timestamp_ms`` is epoch milliseconds.

    A tuple, for there are millions: a frozen dataclass takes three times as long to make."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def unread(self) -> str | None:
        """Why the batch at this offset was not unpacked; None: this is a record as it was written."""
        if self.key is not None or self.value is not None:
            return None
        text = self.header(UNREAD_HEADER)
        return None if text is None else text.decode(errors="replace")

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name: as in Kafka, later headers win."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Positions:
    """The next offset to read of each topic partition: a vector clock over the log. Immutable.

    Its text form, used as a read-your-writes token and as Last-Event-ID, is
    ``topic:partition:offset`` joined by commas, sorted: ``crm.customers:0:42,web.visits:1:7``.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[tuple[str, int, int]]) -> Positions:
        """Create positions from (topic, partition, next offset) triples."""
        return cls({TopicPartition(topic, partition): offset for topic, partition, offset in entries})

    @classmethod
    def parse(cls, text: str) -> Positions:
        """Parse the positions of a token. Raises CallerError naming the part that is not
        ``topic:partition:offset``.
        """
        offsets: dict[TopicPartition, int] = {}
        for part in filter(None, text.split(",")):
            topic, _, rest = part.strip().partition(":")
            partition, _, offset = rest.partition(":")
            if not topic or not partition.isdecimal() or not offset.isdecimal():
                raise CallerError(
                    f'position token: "{part[:80]}" is not topic:partition:offset',
                    hint="pass the token exactly as the write returned it",
                    code="HUB-1001",
                )
            key = TopicPartition(topic, int(partition))
            offsets[key] = max(int(offset), offsets.get(key, 0))
        return cls(offsets)

    def __str__(self) -> str:
        return ",".join(f"{tp.topic}:{tp.partition}:{offset}" for tp, offset in sorted(self.offsets.items()))

    def __iter__(self) -> Iterator[tuple[TopicPartition, int]]:
        return iter(self.offsets.items())

    def __len__(self) -> int:
        return len(self.offsets)

    def get(self, topic_partition: TopicPartition, default: int = 0) -> int:
        return self.offsets.get(topic_partition, default)

    def advanced(self, other: Positions) -> Positions:
        """Return the later of both positions, partition by partition (the join of the two vector clocks)."""
        merged = dict(self.offsets)
        for tp, offset in other:
            merged[tp] = max(offset, merged.get(tp, 0))
        return Positions(merged)

    def covers(self, other: Positions) -> bool:
        """True when everything before ``other`` has been read here."""
        return all(self.get(tp) >= offset for tp, offset in other)

    def behind(self, other: Positions) -> Positions:
        """Return the entries of ``other`` that are not covered here."""
        return Positions({tp: offset for tp, offset in other if self.get(tp) < offset})

    def of_topics(self, topics: Iterable[str]) -> Positions:
        """Return only the entries of those topics."""
        wanted = set(topics)
        return Positions({tp: offset for tp, offset in self if tp.topic in wanted})


def lag_records(end: Positions, position: Positions) -> int:
    """Return the number of offsets between ``position`` and ``end``, over the partitions of ``end``; never
    negative.
    """
    return sum(max(0, offset - position.get(tp)) for tp, offset in end)
