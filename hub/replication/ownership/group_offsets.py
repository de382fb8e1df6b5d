"""[core] Consumer groups carried over: where a group continues at the target, and whether it may be moved
there.

::

    committed at source ─▶ translate ─▶ exact      at the very record that comes next              committed
                                        bounded    before it, some are read again                  committed
                                        pending    ahead of the mirror: the end of the copy        committed
                                        clamped    before all that the target has                  committed
                        ─▶ refused:     active     the group has members at the target             left alone
                                        moved      it made progress there by itself                left alone
                                        behind     the source's position went back; set `force`    left alone

No position is ever moved past a record that the group has not read at the source and that the target has.
Committed leader epochs are the source's own and never copied: -1 means unknown.

A mirror records each commit before it makes it (``GroupMark``): the offset to write, and the offset it found.
So after a crash or a failover its own commits are distinguished from the group's progress: the group
committed any other value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.maps.checkpoint import CONTROL_TOPIC, not_ours
from hub.replication.maps.offset_map import Translation

State = Literal["exact", "bounded", "pending", "clamped", "active", "moved", "behind", "unmapped"]


class Translates(Protocol):
    """Offset translation: an OffsetMap or a TwoWayOffsetMap."""

    def translate(self, source_offset: int) -> Translation: ...


@dataclass(frozen=True, slots=True)
class GroupMark:
    """Record of a mirror's commit for a group at the target: the offset written (or to be written), and the
    offset found before.
    """

    link: str
    group: str
    topic: str
    partition: int
    target_offset: int
    found: int | None
    source_offset: int

    @property
    def key(self) -> bytes:
        # A group's name may contain any character, including "|": it comes last.
        return f"group|{self.link}|{self.topic}|{self.partition}|{self.group}".encode()

    def record(self) -> NewRecord:
        body = {"target_offset": self.target_offset, "found": self.found, "source_offset": self.source_offset}
        return NewRecord(CONTROL_TOPIC, self.key, orjson.dumps(body))

    def wrote(self, committed: int | None) -> bool:
        """Return whether a position in the target is as the mirror left it, also if it died between mark and
        commit.
        """
        return committed in (self.target_offset, self.found)


def mark_of(record: Record) -> GroupMark | None:
    """Parse the mark in a record of the control topic; None for other kinds. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None or not record.key.startswith(b"group|"):
        return None
    try:
        _, link, topic, partition, group = record.key.decode().split("|", 4)
        body: dict[str, Any] = orjson.loads(record.value)
        return GroupMark(link, group, topic, int(partition), **body)
    except (ValueError, TypeError) as error:
        raise not_ours(record, repr(error)) from None


@dataclass(frozen=True, slots=True)
class GroupSides:
    """One group on both sides at one moment, for the partitions that the mirror carries.

    ``source`` and ``target``: committed positions. ``active``: it has members at the target.
    """

    group: str
    source: Mapping[TopicPartition, int]
    target: Mapping[TopicPartition, int]
    active: bool = False

    def joined(self, other: GroupSides | None) -> GroupSides:
        """Return the group with the partitions of another mirror added."""
        if other is None:
            return self
        return GroupSides(
            self.group,
            {**other.source, **self.source},
            {**other.target, **self.target},
            self.active or other.active,
        )


@dataclass(frozen=True, slots=True)
class CarriedPosition:
    """One group in one partition. ``commit`` None: nothing to write; else written with leader epoch -1.

    ``position``: the group's position at the target now or after the commit; None: none yet. ``distance``:
    see Translation.
    """

    group: str
    place: TopicPartition
    state: State
    reason: str
    source_offset: int
    position: int | None
    commit: int | None = None
    distance: int = 0


def carry(
    sides: GroupSides,
    tables: Mapping[TopicPartition, Translates],
    marks: Mapping[TopicPartition, GroupMark],
    *,
    force: bool = False,
) -> tuple[CarriedPosition, ...]:
    """Decide what to do with one group, by partition. ``marks`` are those of this link and group.

    ``force`` moves groups back and overrides their own progress at the target; never while they are active.
    """
    return tuple(
        _one(sides, place, offset, tables.get(place), marks.get(place), force)
        for place, offset in sorted(sides.source.items())
    )


def marks_for(link: str, carried: Iterable[CarriedPosition], sides: GroupSides) -> tuple[GroupMark, ...]:
    """Return the marks to write durably before the commits are made."""
    return tuple(
        GroupMark(
            link,
            each.group,
            each.place.topic,
            each.place.partition,
            each.commit,
            sides.target.get(each.place),
            each.source_offset,
        )
        for each in carried
        if each.commit is not None
    )


def _one(
    sides: GroupSides,
    place: TopicPartition,
    offset: int,
    table: Translates | None,
    mark: GroupMark | None,
    force: bool,
) -> CarriedPosition:
    now = sides.target.get(place)

    def left(state: State, reason: str, distance: int = 0) -> CarriedPosition:
        return CarriedPosition(sides.group, place, state, reason, offset, now, None, distance)

    if table is None:
        return left("unmapped", "the mirror does not carry this partition (yet)")
    if sides.active:
        return left("active", "the group has members at the target: it commits there itself")
    found = table.translate(offset)
    state, reason = _state_and_reason(found)
    if now == found.offset:
        return left(state, reason, found.distance)
    if now is not None and found.offset < now and not force:
        if mark is not None and mark.wrote(now):
            back = now - found.offset
            return left(
                "behind", f"the position at the source went back by {back}: say `force` to follow", back
            )
        ahead = now - found.offset
        return left("moved", f"the group went on at the target by itself, {ahead} further", ahead)
    return CarriedPosition(
        sides.group, place, state, reason, offset, found.offset, found.offset, found.distance
    )


def _state_and_reason(found: Translation) -> tuple[State, str]:
    match found.kind:
        case "exact":
            return "exact", "at the same record"
        case "hole":
            return "exact", "at the next record: there is none at the source's position"
        case "bounded":
            return "bounded", f"the sides differ in order: {found.distance} records are read again"
        case "pending":
            return "pending", f"ahead of the mirror by {found.distance}: at the end of the copy for now"
        case "clamped_low":
            return "clamped", f"{found.distance} offsets before the copy's first record: at its start"
