"""[core] Divergence of two sides after a failover, and how a failback ends it.

::

    home  h0 h1 h2 | x0 x1          common point: h0 … h2 are on both sides
    away  h0 h1 h2 | y0 y1          x: only home has them (the tail); y: written away since

    replay   home h x y    away h y x        all records on both sides; the order of x and y differs
    discard  home h x y    away h y          x stays in home's log and nowhere else
    merge    as replay; in a compacted topic an x whose key has a y is left out away (superseded)
    restore  home h y      away h y          home's topic is made again and filled from away

After a merge the last record of each key is the same on both sides: at home x comes before y, as it was
written; away an older x never follows a newer y of its key. Writers stand still meanwhile, so that no y comes
after the decision.

A restored topic has a record ``restored|home|topic`` in the control topics before it is deleted: from then on
its settings exist nowhere else.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.maps.checkpoint import CONTROL_TOPIC, Checkpoint, Gap

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DivergedPartition:
    """One partition of which only home has records. Offsets are next-to-read, of the log's own side.

    ``common``: where home's tail begins. ``away_common``: where the records begin that were written away
    since. ``before``: ranges of home's log that away does not have although they are older than the tail:
    retention removed them there, or they were declared lost earlier.
    """

    place: TopicPartition
    home_first: int
    common: int
    home_end: int
    away_first: int
    away_common: int
    away_end: int
    before: tuple[tuple[int, int], ...] = ()

    @property
    def only_home(self) -> int:
        """Offsets of the tail."""
        return self.home_end - self.common

    @property
    def only_home_before(self) -> int:
        return sum(end - first for first, end in self.before)

    @property
    def only_away(self) -> int:
        return max(0, self.away_end - self.away_common)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "home_first": self.home_first,
            "common": self.common,
            "home_end": self.home_end,
            "only_home": self.only_home,
            "only_home_before": self.only_home_before,
            "away_first": self.away_first,
            "away_end": self.away_end,
            "only_away": self.only_away,
        }

    def text(self, home: str, away: str) -> str:
        """Return the counts as a line for people."""
        older = f" and {self.only_home_before:,} older ones" if self.before else ""
        return (
            f"{self.place.topic} partition {self.place.partition}: only {home} has {self.only_home:,} "
            f"offsets ({self.common} to {self.home_end}){older}; {away} has {self.only_away:,} written since"
        )


def older_ranges(
    home_first: int, common: int, begins_at: int, left_out: Iterable[Gap]
) -> tuple[tuple[int, int], ...]:
    """Return the ranges before the tail that away does not have. ``begins_at``: home's offset of away's first
    record. ``left_out``: gaps of the mirror in this partition.
    """
    found = [(home_first, min(begins_at, common))]
    found += [(max(home_first, gap.first), min(gap.end, common)) for gap in left_out]
    return tuple(_joined(each for each in found if each[1] > each[0]))


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges [first, end) and join those that meet.

    >>> _joined([(5, 7), (0, 2), (2, 3), (6, 9)])
    [(0, 3), (5, 9)]
    """
    found: Ranges = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


# ---- merge


def superseded(tail: Iterable[Record], newer: Container[bytes]) -> dict[TopicPartition, frozenset[int]]:
    """Return the offsets of the tail's records whose key has a record written away since, by partition.
    ``newer``: these keys. A record without a key is never superseded.
    """
    found: dict[TopicPartition, set[int]] = {}
    for record in tail:
        if record.key is not None and record.key in newer:
            found.setdefault(record.topic_partition, set()).add(record.offset)
    return {place: frozenset(offsets) for place, offsets in found.items()}


def left_out_ranges(
    gaps: Iterable[Gap], link: str, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Ranges]:
    """Return the source ranges that a link must leave out because a merge declared them superseded, by
    partition. ``topic_ids``: of the source's topics now.
    """
    found: dict[TopicPartition, Ranges] = {}
    for gap in gaps:
        if gap.link == link and gap.reason == "superseded" and topic_ids.get(gap.topic) == gap.topic_id:
            found.setdefault(TopicPartition(gap.topic, gap.partition), []).append((gap.first, gap.end))
    return {place: _joined(ranges) for place, ranges in found.items()}


# ---- restore


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """State of one partition of a restored topic when it is complete: home's offsets [first, end), and the
    records that were filled in.
    """

    partition: int
    first: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic of home that is made again and filled from away, and how far that is.

    ``operation``: id of the failback. ``former_id``: of the topic that is deleted. ``topic_id``: of the new
    one; empty: not made yet. ``by``: account and machine with the exported files. ``after``: counts at the
    end; empty: not complete.
    """

    home: str
    topic: str
    operation: str
    former_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    before: tuple[DivergedPartition, ...]
    by: str = ""
    topic_id: str = ""
    after: tuple[RestoredPartition, ...] = ()

    def record(self) -> NewRecord:
        body = {
            "operation": self.operation,
            "former_id": self.former_id,
            "partitions": self.partitions,
            "replicas": self.replicas,
            "config": dict(self.config),
            "before": [
                [
                    each.place.partition, each.home_first, each.common, each.home_end, each.away_first,
                    each.away_common, each.away_end, each.before,
                ]
                for each in self.before
            ],
            "by": self.by,
            "topic_id": self.topic_id,
            "after": [[each.partition, each.first, each.end, each.records] for each in self.after],
        }  # fmt: skip
        return NewRecord(CONTROL_TOPIC, f"restored|{self.home}|{self.topic}".encode(), orjson.dumps(body))

    def as_json(self) -> dict[str, Any]:
        """Return the counts before and after, for the signed report."""
        after = {each.partition: each for each in self.after}
        return {
            "topic": self.topic,
            "former_id": self.former_id,
            "topic_id": self.topic_id,
            "partitions": [
                {
                    "partition": each.place.partition,
                    "before": each.as_json(),
                    "after": None
                    if (now := after.get(each.place.partition)) is None
                    else {"home_first": now.first, "home_end": now.end, "records": now.records},
                }
                for each in self.before
            ],
        }


def restored_of(rest: str, body: Mapping[str, Any]) -> RestoredTopic:
    """Parse the body of ``RestoredTopic.record``; ``rest``: its key without the kind. Raises ValueError,
    TypeError, KeyError.
    """
    home, _, topic = rest.partition("|")
    return RestoredTopic(
        home,
        topic,
        body["operation"],
        body["former_id"],
        body["partitions"],
        body["replicas"],
        body["config"],
        tuple(_diverged_of(topic, *row) for row in body["before"]),
        body["by"],
        body["topic_id"],
        tuple(RestoredPartition(*row) for row in body["after"]),
    )


def _diverged_of(
    topic: str,
    partition: int,
    home_first: int,
    common: int,
    home_end: int,
    away_first: int,
    away_common: int,
    away_end: int,
    before: Sequence[Sequence[int]],
) -> DivergedPartition:
    return DivergedPartition(
        TopicPartition(topic, partition),
        home_first,
        common,
        home_end,
        away_first,
        away_common,
        away_end,
        tuple((first, end) for first, end in before),
    )


def fresh_checkpoint(
    former: Checkpoint | None, empty: Checkpoint, place: int, now_ms: int
) -> list[NewRecord]:
    """Return the first checkpoint of one direction after a topic was deleted and created. ``empty``: the
    direction's checkpoint at its first offsets. ``place``: partition of the checkpoints topic.

    A direction that knows the new topic already gets nothing.
    """
    if former is not None and former.is_of(empty.topic_id, empty.target_topic_id):
        return []
    generation = 0 if former is None else former.generation + 1
    return [replace(empty, generation=generation, committed_at_ms=now_ms).record(place)]


def tail_gaps(link: str, before: Sequence[DivergedPartition], topic_id: str, now_ms: int) -> list[Gap]:
    """Return the gaps for tails that a restore removed from home's log; they exist in files only."""
    return [
        Gap(link, *each.place, topic_id, each.common, each.home_end, "skipped", now_ms)
        for each in before
        if each.only_home
    ]
