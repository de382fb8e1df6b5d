"""[core] Loss report: what a change of ownership loses and delivers again, from offset maps, end offsets and
group positions.

A number is exact only when the source answers. When it does not, the ends of its partitions are unknown: the
report then has bounds, the time of the source's last report, and ``None`` for each total. It never has 0 for
unknown.

::

    target has      0 ─────────────▶ source_next
    last reported                    source_next ────▶ end      lost at least ``end - source_next`` offsets
    since then                                         end ──▶  unknown
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from hub.formats.fields import fields_of
from hub.record import NewRecord, TopicPartition
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.ownership.group_offsets import GroupMark, GroupSides, State, carry


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """End offset of a source partition as a worker read it last, and when (epoch milliseconds)."""

    end: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """State of one mirrored partition: its offset map and the source's end offset.

    ``source_end`` None: the source does not answer; ``heard`` is then the last reported end, None when there
    is none. ``joint``: the map of both directions, where there is one; groups are placed by it.
    """

    table: OffsetMap
    target_end: int
    source_end: int | None
    heard: ReportedEnd | None = None
    joint: TwoWayOffsetMap | None = None

    @property
    def whole(self) -> OffsetMap | TwoWayOffsetMap:
        return self.table if self.joint is None else self.joint


@dataclass(frozen=True, slots=True)
class Loss:
    """Source offsets [first, end) of one partition that the target lacks. Transaction markers of the source
    count, too.

    ``known`` False: a lower bound, because the source does not answer. ``heard_at_ms``: when that end was
    read; None: the source answers, or no end of this partition was ever read.
    """

    place: TopicPartition
    first: int
    end: int
    known: bool
    heard_at_ms: int | None = None

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """Effect on one group in one partition: where it continues, which records it reads again or never gets.

    ``redelivered``: mirrored records that it had read at its last known position and gets again;
    ``redelivered_at_most``: that number if it had read everything that was mirrored. ``unread_lost``: offsets
    that it had not read and that the target lacks. ``read_only_here``: offsets that it has read and the
    target lacks. ``known`` False: the source does not answer, so ``redelivered`` and ``unread_lost`` are
    lower bounds.
    """

    group: str
    place: TopicPartition
    state: State
    reason: str
    position: int | None
    redelivered: int
    unread_lost: int
    read_only_here: int
    redelivered_at_most: int = 0
    known: bool = True


@dataclass(frozen=True, slots=True)
class LossReport:
    """Effects of a change of ownership now, or of a past one. ``source_answers`` False: every total is
    unknown and has bounds.
    """

    losses: tuple[Loss, ...]
    effects: tuple[GroupEffect, ...]
    source_answers: bool = True

    def of_topic(self, topic: str) -> LossReport:
        """Return the part of one topic."""
        losses = tuple(each for each in self.losses if each.place.topic == topic)
        effects = tuple(each for each in self.effects if each.place.topic == topic)
        return LossReport(losses, effects, self.source_answers)

    @property
    def is_exact(self) -> bool:
        """True if the source answered, so that no number is a bound."""
        return self.source_answers and all(each.known for each in self.losses)

    @property
    def lost(self) -> int | None:
        """Offsets that would be lost; None: unknown."""
        return self.lost_at_least if self.is_exact else None

    @property
    def lost_at_least(self) -> int:
        return sum(each.count for each in self.losses)

    @property
    def redelivered(self) -> int | None:
        """Records that groups would read again; None: unknown."""
        return self.redelivered_at_least if self.is_exact else None

    @property
    def redelivered_at_least(self) -> int:
        return sum(each.redelivered for each in self.effects)

    @property
    def redelivered_at_most(self) -> int:
        if self.is_exact:
            return self.redelivered_at_least
        return sum(max(each.redelivered, each.redelivered_at_most) for each in self.effects)

    @property
    def heard_at_ms(self) -> int | None:
        """The oldest of the partitions' last reports, epoch milliseconds; None: exact, or some partition was
        never reported.
        """
        if self.is_exact:
            return None
        times = [each.heard_at_ms for each in self.losses if not each.known]
        return None if not times or None in times else min(time for time in times if time is not None)

    def words(self, source: str, now_ms: int) -> str:
        """Return the report for an operator who has to decide: numbers where they are proven, bounds and age
        elsewhere.
        """
        if self.is_exact:
            return f"Lost: {self.lost_at_least:,} offsets. Read again: {self.redelivered_at_least:,} records."
        return (
            f"Lost: unknown, at least {self.lost_at_least:,} offsets. {source} does not answer; "
            f"{last_heard_text(self.heard_at_ms, now_ms)}. Records written there since cannot be counted.\n"
            f"Read again: unknown, from {self.redelivered_at_least:,} to "
            f"{self.redelivered_at_most:,} records."
        )


def last_heard_text(heard_at_ms: int | None, now_ms: int) -> str:
    """Return a clause with the time of the source's last report.

    >>> last_heard_text(1_000, 61_000)
    'its last report was 60 s ago (1970-01-01 00:00:01 UTC)'
    """
    if heard_at_ms is None:
        return "the ends of all its partitions were never reported"
    at = datetime.fromtimestamp(heard_at_ms / 1000, UTC)
    return f"its last report was {max(0, now_ms - heard_at_ms) / 1000:.0f} s ago ({at:%Y-%m-%d %H:%M:%S} UTC)"


@dataclass(frozen=True, slots=True)
class FailoverRecord:
    """Audit record of a failover: the records left behind, as known before ownership changed. ``home``: the
    scope that moved.

    ``exact`` False: the source did not answer, so losses and ``redelivered`` are lower bounds as of
    ``heard_at_ms``.
    """

    home: str
    epoch: int
    losses: tuple[Loss, ...]
    redelivered: int = 0
    at_ms: int = 0
    exact: bool = True
    heard_at_ms: int | None = None
    redelivered_at_most: int | None = None

    def record(self) -> NewRecord:
        rows = [[*loss.place, loss.first, loss.end, loss.known] for loss in self.losses]
        body = {**fields_of(self, but=("home", "epoch")), "losses": rows}
        return NewRecord(CONTROL_TOPIC, f"loss|{self.home}|{self.epoch}".encode(), orjson.dumps(body))


def declared(home: str, epoch: int, report: LossReport, now_ms: int) -> FailoverRecord:
    """Return the audit record of a report, with every partition that lost records, or may have."""
    return FailoverRecord(
        home,
        epoch,
        tuple(loss for loss in report.losses if loss.count or not loss.known),
        report.redelivered_at_least,
        now_ms,
        report.is_exact,
        report.heard_at_ms,
        report.redelivered_at_most,
    )


def declared_of(rest: str, body: Mapping[str, Any]) -> FailoverRecord:
    """Parse the body of ``record``; ``rest``: its key without the kind. Raises ValueError, TypeError,
    KeyError.
    """
    home, _, epoch = rest.rpartition("|")
    losses = tuple(
        Loss(TopicPartition(topic, partition), first, end, known)
        for topic, partition, first, end, known in body["losses"]
    )
    return FailoverRecord(
        home,
        int(epoch),
        losses,
        body.get("redelivered", 0),
        body["at_ms"],
        body.get("exact", all(each.known for each in losses)),
        body.get("heard_at_ms"),
        body.get("redelivered_at_most"),
    )


def assess(
    partitions: Mapping[TopicPartition, MirroredPartition],
    groups: Iterable[GroupSides],
    marks: Mapping[str, Mapping[TopicPartition, GroupMark]],
    *,
    place: bool = True,
    left: Mapping[TopicPartition, tuple[int, int]] | None = None,
    left_heard: Mapping[TopicPartition, tuple[int, ReportedEnd]] | None = None,
    source_answers: bool = True,
) -> LossReport:
    """Compute the report from maps and ends alone. ``marks`` by group. ``left``: source offsets [first, end)
    of partitions of which nothing was mirrored (new ones, refused ones, a recreated topic): all of them would
    be lost. ``left_heard``: those ranges as last reported by a source that does not answer.

    ``place`` False: groups stay at their last synced position, as if they were not placed now.
    """
    losses = [_loss(at, partition) for at, partition in sorted(partitions.items())]
    tables = {at: partition.whole for at, partition in partitions.items()}
    ends = {loss.place: loss.end for loss in losses}
    losses += [Loss(at, first, max(first, end), True) for at, (first, end) in sorted((left or {}).items())]
    losses += [
        Loss(at, first, max(first, heard.end), False, heard.at_ms)
        for at, (first, heard) in sorted((left_heard or {}).items())
    ]
    effects = []
    for sides in groups:
        for each in carry(sides, tables, marks.get(sides.group, {})):
            found = partitions.get(each.place)
            position = each.position if place else sides.target.get(each.place)
            if found is None:
                unmapped = GroupEffect(sides.group, each.place, each.state, each.reason, position, 0, 0, 0)
                effects.append(unmapped)
                continue
            table = found.table
            begin = position if position is not None else table.target_start
            effects.append(
                GroupEffect(
                    sides.group,
                    each.place,
                    each.state,
                    each.reason,
                    position,
                    found.whole.read_again(each.source_offset, begin),
                    max(0, ends[each.place] - max(table.source_next, each.source_offset)),
                    max(0, each.source_offset - table.source_next),
                    found.whole.read_again(table.source_next, begin),
                    found.source_end is not None,
                )
            )
    return LossReport(tuple(losses), tuple(effects), source_answers)


def _loss(at: TopicPartition, partition: MirroredPartition) -> Loss:
    first = partition.table.source_next
    if partition.source_end is not None:
        return Loss(at, first, max(first, partition.source_end), True)
    if partition.heard is None:
        return Loss(at, first, first, False)
    return Loss(at, first, max(first, partition.heard.end), False, partition.heard.at_ms)
