"""[core] Drift: what somebody changed by hand at a copy, compared with what the mirror would have there.

::

    drift|link|topic   in the control topic of the target; written for `drift: revert` and `alert`

``open`` has the differences that exist now, ``reverted`` those that the mirror put back last, each with the
value before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.formats.fields import fields_of, known_fields
from hub.record import NewRecord
from hub.replication.maps.checkpoint import CONTROL_TOPIC

Differences = Mapping[str, tuple[str | None, str | None]]
"""By setting (or ``partitions``): (the copy's value, the mirror's value); None is the cluster's default."""


@dataclass(slots=True)
class FoundDrift:
    """Drift that a plan found at one copy: differences that stay, and those that it puts back."""

    stays: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    reverted: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDrift:
    """Drift of one copy. ``at_ms``: when it became so, epoch milliseconds. ``reverted_at_ms`` 0: never."""

    link: str
    topic: str
    at_ms: int
    open: Differences = field(default_factory=dict)
    reverted: Differences = field(default_factory=dict)
    reverted_at_ms: int = 0

    @property
    def key(self) -> bytes:
        return f"drift|{self.link}|{self.topic}".encode()

    def record(self) -> NewRecord:
        """Return the record of the control topic; a tombstone where nothing is left to say."""
        empty = not self.open and not self.reverted
        body = None if empty else orjson.dumps(fields_of(self, but=("link", "topic")))
        return NewRecord(CONTROL_TOPIC, self.key, body)

    def __str__(self) -> str:
        return describe_differences(self.open)


def describe_differences(differences: Differences) -> str:
    """Return differences for people: ``retention.ms is 1000, the source has default``."""
    return ", ".join(
        f"{key} is {theirs or 'default'}, the source has {mine or 'default'}"
        for key, (theirs, mine) in sorted(differences.items())
    )


def drift_of(rest: str, body: Mapping[str, Any]) -> TopicDrift:
    """Parse a record. Raises ValueError, TypeError."""
    link, _, topic = rest.partition("|")
    both = {
        name: {key: (theirs, mine) for key, (theirs, mine) in body[name].items()}
        for name in ("open", "reverted")
    }
    others = {name: value for name, value in body.items() if name not in both}
    return known_fields(TopicDrift, others, link=link, topic=topic, **both)


def next_drift(
    link: str, topic: str, known: TopicDrift | None, found: FoundDrift, now_ms: int
) -> TopicDrift | None:
    """Return the drift to record; None: what is recorded holds."""
    before = known or TopicDrift(link, topic, now_ms)
    if found.reverted:
        return TopicDrift(link, topic, now_ms, found.stays, found.reverted, now_ms)
    if found.stays == dict(before.open):
        return None
    return TopicDrift(link, topic, now_ms, found.stays, before.reverted, before.reverted_at_ms)


def drifts_to_record(
    link: str,
    topics: Iterable[str],
    known: Mapping[str, TopicDrift],
    found: Mapping[str, FoundDrift],
    now_ms: int,
) -> tuple[TopicDrift, ...]:
    """Return what to record. ``topics``: those that were planned; records of all others are removed."""
    planned = sorted(set(topics))
    news = (
        next_drift(link, each, known.get(each), found.get(each, FoundDrift()), now_ms) for each in planned
    )
    gone = (TopicDrift(link, topic, now_ms) for topic in sorted(known.keys() - set(planned)))
    return (*(each for each in news if each is not None), *gone)
