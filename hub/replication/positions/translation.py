"""[core] Translate one position by an offset map, and say how precise the result is.

::

    exact     the same record on both sides, or the end of what is mirrored on both
    next      there is no record at this offset over there: the position of the next one, nothing is between
    bounded   the two logs differ in order here: before all unread records, some are read again
    unknown   before the map begins, past its end, or a partition that the mirror does not carry

A position is the next offset to read. ``exact`` and ``next`` are the same for a reader: on both sides, all
records before the position are read and all others are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hub.formats.fields import fields_of
from hub.record import TopicPartition
from hub.replication.maps.checkpoint import Gap
from hub.replication.maps.offset_map import OffsetMap, Translation
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap

Precision = Literal["exact", "next", "bounded", "unknown"]


@dataclass(frozen=True, slots=True)
class TranslatedPosition:
    """A position and its translation. ``translated`` None: unknown, ``why`` has the reason.

    ``read_again``: records that a reader at ``translated`` has read before, for ``bounded``.
    """

    place: TopicPartition
    offset: int
    precision: Precision
    translated: int | None = None
    read_again: int = 0
    why: str = ""

    @property
    def is_exact(self) -> bool:
        """True if a reader that continues there gets each record once."""
        return self.precision in ("exact", "next")

    def as_json(self) -> dict[str, Any]:
        return {**self.place._asdict(), **fields_of(self, but=("place",))}


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """Map of one partition. ``joint``: of both directions, where records were written on both sides.
    ``gaps``: source offsets that the target lacks. ``incomplete``: why the map cannot be used; "": it can.
    """

    table: OffsetMap
    joint: TwoWayOffsetMap | None = None
    gaps: tuple[Gap, ...] = ()
    incomplete: str = ""


class MapsOfMirror(Protocol):
    """The maps of one mirror, as the translation of many positions needs them."""

    def translate(self, place: TopicPartition, offset: int, *, back: bool = False) -> TranslatedPosition: ...


def translate(
    place: TopicPartition, offset: int, partition_map: PartitionMap | None, *, back: bool = False
) -> TranslatedPosition:
    """Return a position of the source at the target; with ``back``, one of the target at the source."""
    if partition_map is None:
        return unknown(place, offset, "the mirror has copied nothing of this partition")
    if partition_map.incomplete:
        return unknown(place, offset, partition_map.incomplete)
    whole = partition_map.joint if partition_map.joint is not None else partition_map.table
    translation = whole.reverse(offset) if back else whole.translate(offset)
    return _judged(place, offset, translation, partition_map, back)


def _judged(
    place: TopicPartition, offset: int, translation: Translation, partition_map: PartitionMap, back: bool
) -> TranslatedPosition:
    match translation.kind:
        case "exact":
            return TranslatedPosition(place, offset, "exact", translation.offset)
        case "hole":
            return TranslatedPosition(
                place, offset, "next", translation.offset, why=_of_hole(offset, partition_map, back)
            )
        case "bounded":
            why = f"the two sides differ in order here: {translation.distance:,} records are read again"
            return TranslatedPosition(place, offset, "bounded", translation.offset, translation.distance, why)
        case "pending":
            end = offset - translation.distance
            return unknown(place, offset, f"past the end of the map: it reaches to {end:,} for now")
        case "clamped_low":
            start = offset + translation.distance
            return unknown(place, offset, f"before the map: its first record is at {start:,}")


def unknown(place: TopicPartition, offset: int, why: str) -> TranslatedPosition:
    return TranslatedPosition(place, offset, "unknown", why=why)


def _of_hole(offset: int, partition_map: PartitionMap, back: bool) -> str:
    """Return the reason that no record is at the position: a hole, or a gap that the target lacks."""
    gap = None if back else next((each for each in partition_map.gaps if _within(each, offset)), None)
    if gap is None:
        return "no record is at this offset there: the next one"
    end = "the end of that log" if gap.end < 0 else f"{gap.end:,}"
    return f"the target lacks offsets {gap.first:,} to {end} ({gap.reason}): the next record"


def _within(gap: Gap, offset: int) -> bool:
    return gap.first <= offset and (gap.end < 0 or offset < gap.end)


def summary(translated_positions: Iterable[TranslatedPosition]) -> dict[str, int]:
    """Return the number of positions by precision.

    >>> summary([unknown(TopicPartition("t", 0), 1, "")])
    {'exact': 0, 'next': 0, 'bounded': 0, 'unknown': 1}
    """
    counts: dict[str, int] = {"exact": 0, "next": 0, "bounded": 0, "unknown": 0}
    for each in translated_positions:
        counts[each.precision] += 1
    return counts


def first_inexact(translated_positions: Iterable[TranslatedPosition]) -> TranslatedPosition | None:
    """Return the first position that a reader cannot continue at exactly; None: there is none."""
    return next((each for each in translated_positions if not each.is_exact), None)
