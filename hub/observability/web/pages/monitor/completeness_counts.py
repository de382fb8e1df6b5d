"""[core] Counts of a topic by minute, and the state of a stretch of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hub.observability.format import count

# States of a topic, worst first; NEVER: it was never audited.
STATES = ("SHORT", "MISMATCH", "EXCESS", "UNEXPLAINED", "UNKNOWN", "OPEN", "BALANCED", "NEVER")


class CellState(StrEnum):
    """State of a cell, worst first. EMPTY: audited, without a record of that time."""

    GAP = "GAP"
    DUPLICATES = "DUPLICATES"
    UNKNOWN = "UNKNOWN"
    EXPLAINED = "EXPLAINED"
    COMPLETE = "COMPLETE"
    EMPTY = "EMPTY"


# Meanings, for the legend below the map.
MEANING = {
    CellState.COMPLETE: "the same records everywhere",
    CellState.EXPLAINED: "offsets without a record, explained: aborted, compacted, control",
    CellState.DUPLICATES: "records twice, or more than expected",
    CellState.GAP: "records are missing, or offsets contain no record for an unknown reason",
    CellState.UNKNOWN: "not audited, not compared, or undecided",
    CellState.EMPTY: "audited: no record of that time",
}


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """A side that was compared: ``kind`` source (receipts), mirror or view (its store).

    ``there`` None: not compared. ``waiting``: records not compared yet. ``state``: as in the counts; ``why``:
    the reason if it is unknown.
    """

    kind: str
    instance: str
    state: str
    expected: int
    there: int | None
    waiting: int
    missing: int
    excess: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class MinuteRange:
    """Counts of a topic over one minute or several: records, offsets without a record by reason, and
    repeated records."""

    records: int = 0
    markers: int = 0
    aborted: int = 0
    compacted: int = 0
    unexplained: int = 0
    repeated: int = 0
    sides: tuple[ComparedSide, ...] = ()


@dataclass(frozen=True, slots=True)
class MinuteGrid:
    """Counts of a topic by minute.

    ``since_ms`` (None: the log's beginning) and ``until_ms``: the audited range. ``gaps``: unaudited offsets
    in it. ``unplaced``: offsets and repeats of older entries, which name no minute.
    """

    minutes: Mapping[int, MinuteRange]
    since_ms: int | None
    until_ms: int
    gaps: int = 0
    unplaced: int = 0
    stores: tuple[ComparedSide, ...] = ()


def joined(those: Sequence[MinuteRange]) -> MinuteRange:
    """Combine several minutes: sums of the numbers, the worst state of each side."""
    sides: dict[tuple[str, str], ComparedSide] = {}
    for stretch in those:
        for side in stretch.sides:
            before = sides.get((side.kind, side.instance))
            sides[side.kind, side.instance] = side if before is None else _both(before, side)
    return MinuteRange(
        sum(each.records for each in those),
        sum(each.markers for each in those),
        sum(each.aborted for each in those),
        sum(each.compacted for each in those),
        sum(each.unexplained for each in those),
        sum(each.repeated for each in those),
        tuple(sides[key] for key in sorted(sides)),
    )


def _both(one: ComparedSide, other: ComparedSide) -> ComparedSide:
    there = (
        (one.there or 0) + (other.there or 0) if one.there is not None or other.there is not None else None
    )
    return ComparedSide(
        one.kind,
        one.instance,
        min(one.state, other.state, key=STATES.index),
        one.expected + other.expected,
        there,
        one.waiting + other.waiting,
        one.missing + other.missing,
        one.excess + other.excess,
        one.why or other.why,
    )


_THERE = {"source": "not in the log", "mirror": "not at the target", "view": "not in the store"}


def state_of(stretch: MinuteRange) -> tuple[CellState, str]:
    """Return the worst known state of a time range, and the reason."""
    for side in stretch.sides:
        who = f"{'producer' if side.kind == 'source' else side.kind} {side.instance}"
        if side.state == "SHORT":
            return CellState.GAP, f"{who}: {_records(side.missing)} {_THERE[side.kind]}"
        if side.state == "MISMATCH":
            return CellState.GAP, f"{who}: as many records, but not the same ones"
    if stretch.unexplained:
        return (
            CellState.GAP,
            (
                f"{count(stretch.unexplained)} offset{'s hold' if stretch.unexplained != 1 else ' holds'} no "
                "record for an unknown reason"
            ),
        )
    for side in stretch.sides:
        if side.state == "EXCESS":
            return CellState.DUPLICATES, f"{side.kind} {side.instance}: {_records(side.excess)} too many"
    if stretch.repeated:
        return CellState.DUPLICATES, f"{_records(stretch.repeated)} in the log already"
    for side in stretch.sides:
        if side.state in ("UNKNOWN", "OPEN"):
            cause = side.why or f"{_records(side.waiting)} not compared yet"
            return CellState.UNKNOWN, f"{side.kind} {side.instance}: {cause}"
    if not stretch.sides and stretch.records:
        return CellState.UNKNOWN, "counted in the log, with nothing to compare"
    holes = [
        f"{count(number)} {name}"
        for name, number in (
            ("aborted", stretch.aborted),
            ("compacted", stretch.compacted),
            ("control", stretch.markers),
        )
        if number
    ]
    return (CellState.EXPLAINED, f"offsets without a record: {', '.join(holes)}") if holes else _COMPLETE


_COMPLETE = (CellState.COMPLETE, "")


def _records(number: int) -> str:
    return f"{count(number)} record{'s are' if number != 1 else ' is'}"
