"""[core] Fold a consumer's readings into the state that is shown.

A worse state is shown after two readings in a row, a better one after four, so that a single outlier changes
nothing. Its cause always belongs to the numbers that are shown with it. The first reading is shown at once: a
restarted collector is right from the start. UNKNOWN comes after two missed readings and ends with the first
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hub.observability.lag.judge import LagRules, judge, reported
from hub.observability.lag.states import SEVERITY, LagReading, LagState, LagVerdict, ReaderState

_NOTHING_MEASURED = LagVerdict(LagState.UNKNOWN, "nothing measured yet")


@dataclass(frozen=True, slots=True)
class WatchedConsumer:
    """A consumer on a topic under watch. ``moves``: when the position last moved; ``against``: readings in
    a row that propose another state than the shown one; ``since_ms``: start of the shown state."""

    shown: LagVerdict = _NOTHING_MEASURED
    since_ms: int | None = None
    window: tuple[LagReading, ...] = ()
    moves: tuple[int, ...] = ()
    against: int = 0

    @property
    def last(self) -> LagReading | None:
        return self.window[-1] if self.window else None


_MOVES = 9


def watch(
    watched: WatchedConsumer,
    reading: LagReading | None,
    reader: ReaderState,
    now_ms: int,
    rules: LagRules,
    why_not: str = "",
) -> WatchedConsumer:
    """Return the consumer after one more reading. ``reading`` None: there was none; ``why_not`` is the
    reason."""
    if reading is None:
        spoken = reported(reader)
        if spoken is not None:  # the report is shown at once, and the old numbers would look current
            watched = replace(watched, window=())
        proposed = spoken or LagVerdict(LagState.UNKNOWN, reader.silent or why_not or "nothing measured yet")
        return _settled(watched, proposed, now_ms, rules, sure=bool(reader.silent))
    last = watched.last
    moves = watched.moves
    if last is not None and reading.position != last.position:
        moves = (*moves, reading.at_ms)[-_MOVES:]
    window = (*watched.window, reading)[-rules.window :]
    proposed = judge(window, moves, reader, now_ms, rules)
    sure = bool(reader.silent) and proposed.state is LagState.UNKNOWN
    return _settled(replace(watched, window=window, moves=moves), proposed, now_ms, rules, sure=sure)


def presented(
    watched: WatchedConsumer, reading: LagReading | None, reader: ReaderState, now_ms: int, rules: LagRules
) -> LagVerdict:
    """Return the shown state for a reading that is newer than the watched ones and not one of them. Only a
    cause that contradicts its numbers is replaced: a newer reading does not know for how long nothing moved.
    """
    shown, last = watched.shown, watched.last
    if reading is not None and last is not None and reading.end == last.end:
        # Only watched readings know what an open transaction holds back; it still does.
        reading = replace(reading, held=last.held, held_s=last.held_s, held_partition=last.held_partition)
    if reading is None or (shown.state is not LagState.OK and reading.records):
        return shown
    return _kept(shown, judge((*watched.window, reading), watched.moves, reader, now_ms, rules))


def _kept(shown: LagVerdict, proposed: LagVerdict) -> LagVerdict:
    """Return the shown state, which stays, with the cause and the times of the proposal. Deleted records and
    missing reports remain the cause while these states are shown."""
    if LagState.UNKNOWN in (shown.state, proposed.state) or shown.state is LagState.LOST:
        return shown
    return replace(proposed, state=shown.state)


def _settled(
    watched: WatchedConsumer, proposed: LagVerdict, now_ms: int, rules: LagRules, *, sure: bool = False
) -> WatchedConsumer:
    """Return the shown state after a proposal: two in a row enter a worse state, four a better one.

    ``sure``: show it at once, since the reader's silence was already waited out.
    """
    shown = watched.shown
    if proposed.state is shown.state:
        return replace(watched, shown=proposed, against=0, since_ms=watched.since_ms or now_ms)
    first = watched.since_ms is None and len(watched.window) <= 1 and proposed.state is not LagState.UNKNOWN
    needed = (
        1 if first or sure or shown.state is LagState.UNKNOWN else _needed(shown.state, proposed.state, rules)
    )
    against = watched.against + 1
    if against < needed:
        return replace(watched, shown=_kept(shown, proposed), against=against)
    return replace(watched, shown=proposed, against=0, since_ms=now_ms)


def _needed(shown: LagState, proposed: LagState, rules: LagRules) -> int:
    if proposed is LagState.UNKNOWN:
        return rules.enter
    return rules.enter if SEVERITY[proposed] < SEVERITY[shown] else rules.leave
