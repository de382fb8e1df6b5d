"""[core] Plan of a reset of a consumer group's positions.

A target is one text: ``earliest``, ``latest``, an offset (``120``), a shift (``+10``, ``-10``), a time
(``2026-01-31T12:00``) or how long ago (``15m``). Offsets outside of the log are moved to its nearest end, as
Kafka's own tool does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hub.errors import CallerError, Conflict
from hub.record import Positions, TopicPartition
from hub.times import iso
from hub.topics.browse.times import time_ms
from hub.topics.tree.confirmed_plans import plan_digest, require_same_plan

MOST_PARTITIONS_NAMED: Final = 1_000
_OFFSET = re.compile(r"[+-]?\d{1,18}")
_HINT = "use earliest, latest, an offset, +N or -N, a time such as 2026-01-31T12:00, or how long ago: 15m"
_AFTER_ALL = "no record at or after this time: the end"
_PLACE = re.compile(r"[A-Za-z0-9._-]{1,249}(:\d{1,6}(,\d{1,6})*)?")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Target of a reset. ``number``: the offset, the shift, or the time in epoch milliseconds."""

    form: Literal["earliest", "latest", "offset", "shift", "time"]
    number: int = 0

    def __str__(self) -> str:
        """Return the text that ``target_of`` parses to the same target, at any time."""
        match self.form:
            case "offset":
                return str(self.number)
            case "shift":
                return f"{self.number:+d}"
            case "time":
                return iso(self.number)
            case _:
                return self.form


def target_of(text: str, now_ms: int) -> ResetTarget:
    """Parse a target. Raises CallerError."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return ResetTarget("earliest" if text == "earliest" else "latest")
    if _OFFSET.fullmatch(text):
        return ResetTarget("shift" if text[0] in "+-" else "offset", int(text))
    return ResetTarget("time", time_ms(text, now_ms, _HINT))


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A reset of a group. ``topics``: ``TOPIC`` or ``TOPIC:0,2``; empty: every topic that it has positions
    in. ``target`` None: show the positions alone."""

    group: str
    topics: tuple[str, ...] = ()
    target: ResetTarget | None = None

    @property
    def command(self) -> str:
        """Return the command that does the same."""
        arguments = ["hub", "group", "reset", self.group]
        for each in self.topics:
            arguments += ["--topic", each]
        arguments += [] if self.target is None else ["--to", str(self.target)]
        return shlex.join(arguments)

    def partitions(self) -> Mapping[str, frozenset[int]]:
        """Return the named topics with their named partitions; an empty set: all of them."""
        found: dict[str, frozenset[int]] = {}
        for each in self.topics:
            topic, _, numbers = each.partition(":")
            found[topic] = frozenset(int(number) for number in numbers.split(",") if number)
        return found


def reset_request(group: str, topics: Iterable[str], to: str, now_ms: int) -> ResetRequest:
    """Return a request. ``to`` empty: show the positions alone. Raises CallerError for a wrong value."""
    named = tuple(dict.fromkeys(each.strip() for each in topics if each.strip()))
    if len(named) > MOST_PARTITIONS_NAMED:
        raise CallerError(f"{len(named)} topics are too many", hint=f"at most {MOST_PARTITIONS_NAMED}")
    for each in named:
        if not _PLACE.fullmatch(each):
            raise CallerError(
                f'"{each[:60]}" is not a topic', hint="write TOPIC, or TOPIC:0,2 for partitions"
            )
    return ResetRequest(group, named, target_of(to, now_ms) if to.strip() else None)


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """Reset of one partition.

    ``position``: the next offset that the group reads now; None: it has none. ``target`` None: no reset is
    requested. ``skipped`` and ``again``: offsets passed over and read again, transaction markers included;
    None: unknown. ``remark``: why the target is another one than requested.
    """

    topic: str
    partition: int
    position: int | None
    begin: int
    end: int
    target: int | None = None
    skipped: int | None = None
    again: int | None = None
    remark: str = ""

    @property
    def changes(self) -> bool:
        return self.target is not None and self.target != self.position


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """Plan of a reset, as of now.

    ``members``: client ids of the group's members; the reset is refused while there are any. ``notes``: what
    is left out. ``digest``: see ``digest_of``.
    """

    request: ResetRequest
    rows: tuple[PartitionReset, ...]
    members: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    to: str = ""
    command: str = ""
    digest: str = ""
    skipped: int | None = None
    again: int | None = None
    changes: int = 0

    @property
    def positions(self) -> Positions:
        """Return the positions to commit."""
        return Positions.of(
            (row.topic, row.partition, row.target) for row in self.rows if row.target is not None
        )


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Offsets of the log that a plan needs. ``at``: first offsets at or after the target's time; a partition
    without one is absent."""

    begins: Positions
    ends: Positions
    at: Positions = Positions()


def plan_reset(
    request: ResetRequest,
    positions: Positions,
    log: LogOffsets,
    members: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> ResetPlan:
    """Return the plan for the partitions of ``log.ends``. ``positions``: the group's positions."""
    rows = tuple(_row(tp, positions.offsets.get(tp), log, request.target) for tp, _ in sorted(log.ends))
    return ResetPlan(
        request,
        rows,
        tuple(members),
        tuple(notes),
        "" if request.target is None else str(request.target),
        request.command,
        digest_of(request, rows),
        _sum(row.skipped for row in rows),
        _sum(row.again for row in rows),
        sum(row.changes for row in rows),
    )


def _row(
    tp: TopicPartition, position: int | None, log: LogOffsets, target: ResetTarget | None
) -> PartitionReset:
    end = log.ends.get(tp)
    begin = min(log.begins.get(tp), end)
    row = PartitionReset(tp.topic, tp.partition, position, begin, end)
    if target is None:
        return row
    wanted, remark = _target_position(tp, position, begin, end, log, target)
    chosen = max(begin, min(wanted, end))
    if chosen != wanted:
        remark = f"{wanted} is outside of the log: {begin} to {end}"
    readable = None if position is None else max(begin, min(position, end))
    skipped = None if readable is None else max(0, chosen - readable)
    again = None if readable is None else max(0, readable - chosen)
    return PartitionReset(tp.topic, tp.partition, position, begin, end, chosen, skipped, again, remark)


def _target_position(
    tp: TopicPartition, position: int | None, begin: int, end: int, log: LogOffsets, target: ResetTarget
) -> tuple[int, str]:
    match target.form:
        case "earliest":
            return begin, ""
        case "latest":
            return end, ""
        case "offset":
            return target.number, ""
        case "shift":
            if position is None:
                return begin, "the group has no position here: it begins at the start"
            return position + target.number, ""
        case "time":
            found = log.at.offsets.get(tp)
            return (end, _AFTER_ALL) if found is None else (found, "")


def digest_of(request: ResetRequest, rows: Iterable[PartitionReset]) -> str:
    """Return a digest of the request and of the situation it was planned in: partitions, the group's
    positions, and the targets. A target that follows an end of the log counts as that end, so new records and
    retention alone do not change it."""
    text = [request.command]
    follows = request.target is None or request.target.form in ("earliest", "latest")
    for row in rows:
        at = "end" if follows or row.remark == _AFTER_ALL else row.target
        text.append(f"{row.topic} {row.partition} {row.position} {at}")
    return plan_digest(text)


def check_plan(plan: ResetPlan, digest: str | None) -> None:
    """Raise Conflict where a plan may not be carried out: the group has members (HUB-1940), or ``digest`` is
    that of another situation (HUB-1941). ``digest`` None: the caller saw no plan. Raises CallerError where
    there is nothing to do."""
    group = plan.request.group
    if plan.request.target is None:
        raise CallerError(f'group "{group}": the target of the reset is missing', hint=_HINT)
    if plan.members:
        shown = ", ".join(plan.members[:5]) + (", …" if len(plan.members) > 5 else "")
        raise Conflict(
            f'group "{group}" has {len(plan.members)} member{"s" * (len(plan.members) > 1)} now: {shown}',
            hint="stop its consumers; Kafka ends a member that was killed after its session timeout",
            code="HUB-1940",
        )
    require_same_plan(digest, plan.digest, f'group "{group}"')


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(each for each in known if each is not None)
