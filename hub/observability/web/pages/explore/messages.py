"""[core] Messages of a topic as a part of its page: parsing of the address, and a summary of the scanned
range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.errors import CallerError
from hub.observability.format import count, moment
from hub.topics.browse.bounded_read import BrowseBounds, FoundMessages, MessageQuery, ScannedOffsets
from hub.topics.browse.rendered import Message
from hub.topics.browse.times import time_ms

_HINT = "an offset (with a partition), a time such as 2026-01-31T12:00, or how long ago: 15m"


@dataclass(frozen=True, slots=True)
class MessagesPart:
    """Values of the page's part. ``summary``: the scanned range as text. ``older`` and ``newer``: values
    of the parameters ``before`` and ``after``."""

    topic: str
    messages: tuple[Message, ...]
    scanned: tuple[ScannedOffsets, ...]
    complete: bool
    ended_by: str
    summary: str
    older: str | None
    newer: str | None
    unreadable: tuple[str, ...]
    forwards: bool


def wanted_of(
    topic: str,
    now_ms: int,
    *,
    partition: str = "",
    start: str = "",
    before: str = "",
    after: str = "",
    words: str = "",
    limit: int = 50,
) -> MessageQuery:
    """Parse the address into a query. ``start``: typed by a person; ``before`` and ``after``: continue from a
    page.

    Raises CallerError.
    """
    number: int | None = None
    if partition:
        if not partition.isdecimal() or len(partition) > 6:
            raise CallerError(f'"{partition[:20]}" is not a partition', hint="partitions are numbers from 0")
        number = int(partition)
    if after:
        return MessageQuery(topic, number, start=places(after), words=words, limit=limit)
    if before:
        return MessageQuery(topic, number, before=places(before), words=words, limit=limit)
    start = start.strip()
    if not start:
        return MessageQuery(topic, number, words=words, limit=limit)
    if start.isdecimal() and len(start) < 19:
        if number is None:
            raise CallerError(
                f"offset {start} is of no partition", hint="choose a partition: each counts for itself"
            )
        return MessageQuery(topic, number, start={number: int(start)}, words=words, limit=limit)
    return MessageQuery(topic, number, since_ms=time_ms(start, now_ms, _HINT), words=words, limit=limit)


def places(text: str) -> dict[int, int]:
    """Parse ``0:12,1:40`` into offsets by partition. Raises CallerError."""
    found: dict[int, int] = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        if not (partition.isdecimal() and offset.isdecimal() and len(partition) < 7 and len(offset) < 19):
            raise CallerError(f'"{each[:40]}" is not a partition:offset')
        found[int(partition)] = int(offset)
    return found


def placed(offsets: Mapping[int, int] | None) -> str | None:
    """Format offsets by partition; the inverse of ``places``."""
    if offsets is None:
        return None
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def messages_part(
    wanted: MessageQuery, found_messages: FoundMessages, bounds: BrowseBounds, now_ms: int
) -> MessagesPart:
    """Return the values of the page's part."""
    return MessagesPart(
        wanted.topic,
        found_messages.messages,
        found_messages.scanned,
        found_messages.complete,
        found_messages.ended_by,
        _summary(wanted, found_messages, bounds, now_ms),
        placed(found_messages.older),
        placed(found_messages.newer),
        found_messages.unreadable,
        wanted.forwards,
    )


def _summary(wanted: MessageQuery, found_messages: FoundMessages, bounds: BrowseBounds, now_ms: int) -> str:
    looked = f"Looked at {count(found_messages.records)} message{'s' * (found_messages.records != 1)}"
    held = sum(each.end - each.begin for each in found_messages.scanned)
    if held:
        looked += f" ({_ranges(found_messages.scanned)})"
    times = [each.timestamp_ms for each in found_messages.messages]
    if times and not wanted.words:
        looked += f", from {moment(min(times), now_ms)} to {moment(max(times), now_ms)} UTC"
    ends = {
        "limit": "there are more",
        "records": f"stopped after {count(bounds.records)} records: there are more",
        "bytes": f"stopped after {bounds.bytes // 1_000_000} MB: there are more",
        "seconds": f"stopped after {bounds.seconds:g} s: there are more",
        "silence": "Kafka gave nothing for a while: ask again",
        "unreadable": "stopped at what cannot be read",
    }
    if found_messages.complete:
        way = "to the end" if wanted.forwards else "back to the beginning of the log"
        return f"{looked}: complete, {way}."
    return f"{looked}; {ends.get(found_messages.ended_by, 'there are more')}."


def _ranges(scanned: Sequence[ScannedOffsets]) -> str:
    some = [each for each in scanned if each.next > each.first]
    ranges = ", ".join(f"partition {each.partition}: {each.first}–{each.next - 1}" for each in some[:4])
    return ranges + (f" and {len(some) - 4} partitions more" if len(some) > 4 else "") or "no offsets"
