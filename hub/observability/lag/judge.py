"""[core] The one judge of lag: from a history of readings to a state with its cause, for one moment.

Every page, the API, alerts and the command line show this judgement. docs/reference/lag.md has the rules; the
first rule that applies decides. Times are wall-clock times; ``now`` is an argument.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median

from hub.observability.lag.states import Bracketed, LagReading, LagState, LagVerdict, ReaderState

_STUCK = (LagState.STOPPED, LagState.STALLED, LagState.FALLING_BEHIND, LagState.REWOUND)


@dataclass(frozen=True, slots=True)
class LagRules:
    """Thresholds of the table. ``stop_s`` must be at least six readings, to distinguish a pause from a
    stop."""

    sample_s: float = 10.0
    window: int = 30
    objective_s: float = 10.0
    stop_s: float = 60.0
    intervals: float = 5.0
    risk_share: float = 0.8
    risk_s: float = 3_600.0
    z: float = 2.3
    slope: float = 0.05
    enter: int = 2
    leave: int = 4

    @classmethod
    def every(cls, sample_s: float, objective_s: float = 10.0) -> LagRules:
        """Return the rules for readings at an interval of ``sample_s``."""
        return cls(sample_s=sample_s, objective_s=objective_s, stop_s=6 * sample_s)

    def extended(self, interval_s: float) -> LagRules:
        """Return the rules for a reader that intends to commit only every ``interval_s``."""
        if not interval_s:
            return self
        return replace(self, objective_s=self.objective_s + interval_s, stop_s=self.stop_s + interval_s)


def judge(
    window: Sequence[LagReading], moves: Sequence[int], reader: ReaderState, now_ms: int, rules: LagRules
) -> LagVerdict:
    """Propose a state by the table. The last reading is the current one. ``moves``: when the position
    moved, oldest first."""
    rules = rules.extended(reader.interval_s)
    last = window[-1]
    if last.lost:
        return LagVerdict(LagState.LOST, f"{last.lost:,} records were deleted before they were read")
    spoken = reported(reader) or _silent(reader, last)
    if spoken is None and (last.records == 0 or (is_in_time(last, rules) and not last.rewound)):
        if last.held_s >= rules.objective_s:
            return _held_back(last, rules)
        cause = "everything is read" if last.records == 0 else f"within {rules.objective_s:g} s"
        return LagVerdict(LagState.OK, cause)
    found = spoken or _stuck(last, moves, reader, now_ms, rules) or _moving(window, rules)
    return _at_risk(window, found, rules) or found


def _held_back(last: LagReading, rules: LagRules) -> LagVerdict:
    """Return the state of a reader of everything that an open transaction lets it read."""
    state = LagState.STALLED if last.held_s >= rules.stop_s else LagState.BEHIND
    waiting = f"{last.held:,} records wait" if last.held != 1 else "1 record waits"
    return LagVerdict(
        state,
        f"partition {last.held_partition}: {waiting} behind a transaction that is open for "
        f"{_span(last.held_s)}",
    )


def is_in_time(lag: Bracketed, rules: LagRules) -> bool:
    """Return whether nothing waits, or the oldest record certainly waits no longer than the objective."""
    return lag.records == 0 or (lag.high_s is not None and lag.high_s <= rules.objective_s)


def reported(reader: ReaderState) -> LagVerdict | None:
    """Return the reader's own report as a state, if it is a failure."""
    states = {
        "failed": LagState.STOPPED,
        "stopped": LagState.STOPPED,
        "retrying": LagState.STALLED,
        "isolated": LagState.STALLED,
    }
    state = states.get(reader.state or "")
    if state is None:
        return None
    return LagVerdict(state, f"{reader.state}: {reader.reason}" if reader.reason else str(reader.state))


def _silent(reader: ReaderState, last: LagReading) -> LagVerdict | None:
    """Return UNKNOWN for a reader that does not report, since it may still read.

    None when no reader is expected: records that waited then still wait.
    """
    if not reader.silent or (reader.members == 0 and last.records):
        return None
    return LagVerdict(LagState.UNKNOWN, reader.silent)


def _stuck(
    last: LagReading, moves: Sequence[int], reader: ReaderState, now_ms: int, rules: LagRules
) -> LagVerdict | None:
    pauses = [(later - earlier) / 1000 for earlier, later in itertools.pairwise(moves)]
    patience_s = max(rules.stop_s, rules.intervals * median(pauses) if pauses else 0.0)
    if last.idle_s < patience_s:
        return None
    place = "" if last.idle_partition is None else f"partition {last.idle_partition}: "
    quiet = f"{place}nothing read for {_span(last.idle_s)}"
    if reader.members or reader.connected:
        people = {None: "members are", 1: "1 member is"}.get(reader.members, f"{reader.members} members are")
        return LagVerdict(LagState.STALLED, f"{quiet}, though {people} connected")
    if reader.why_stuck:
        return LagVerdict(LagState.STALLED, f"{quiet}: {reader.why_stuck}")
    if reader.committed_at_ms is not None and now_ms - reader.committed_at_ms < patience_s * 1000:
        return LagVerdict(LagState.STALLED, f"{quiet}, though batches are committed")
    if reader.members == 0:
        return LagVerdict(LagState.STOPPED, f"{quiet}, and {reader.reason or 'no member is connected'}")
    if reader.committed_at_ms is not None:
        return LagVerdict(LagState.STOPPED, f"no batch for {_span((now_ms - reader.committed_at_ms) / 1000)}")
    return LagVerdict(LagState.STOPPED, quiet)


def _moving(window: Sequence[LagReading], rules: LagRules) -> LagVerdict:
    """Return the state of a late reader whose position moves: REWOUND, FALLING_BEHIND, CATCHING_UP or
    BEHIND."""
    last = window[-1]
    window = _episode(window, rules)
    flow = _flow(window)
    eta_s = last.records / flow.net if flow is not None and flow.net > 0 else None
    if last.rewound:
        return LagVerdict(LagState.REWOUND, f"went back: {last.rewound:,} records are read again", eta_s)
    seconds, records = [each.seconds for each in window], [each.records for each in window]
    rates = "" if flow is None else f"{flow.arriving:,.0f} records/s arrive, {flow.read:,.0f} are read"
    if _trend(records, rules) < 0:
        return LagVerdict(LagState.CATCHING_UP, rates, eta_s)
    tendency = _trend(seconds, rules)
    if tendency > 0:
        slope = theil_sen([each.at_ms / 1000 for each in window[-_RECENT:]], seconds[-_RECENT:])
        if slope > rules.slope:
            return LagVerdict(LagState.FALLING_BEHIND, rates)
    if tendency < 0:
        return LagVerdict(LagState.CATCHING_UP, rates, eta_s)
    return LagVerdict(LagState.BEHIND, rates or "measured once")


def _episode(window: Sequence[LagReading], rules: LagRules) -> Sequence[LagReading]:
    """Return the readings since the reader became late; earlier ones do not predict the trend."""
    for index in range(len(window) - 1, -1, -1):
        each = window[index]
        if is_in_time(each, rules):
            return window[index + 1 :] or window[-1:]
    return window


def _at_risk(window: Sequence[LagReading], found: LagVerdict, rules: LagRules) -> LagVerdict | None:
    """Return AT_RISK when records will soon be deleted unread, by age or because the log's beginning
    approaches."""
    last = window[-1]
    if last.records == 0:
        return None
    loss_s = _loss_s(window, found.state)
    aged = last.retention_s is not None and last.seconds > rules.risk_share * last.retention_s
    if not aged and (loss_s is None or loss_s >= rules.risk_s):
        return None
    soon = "" if loss_s is None else f", the first records are lost in {_span(loss_s)}"
    age = f"oldest unread record is {_span(last.seconds)} old"
    kept = "" if last.retention_s is None else f" of {_span(last.retention_s)} kept"
    return LagVerdict(LagState.AT_RISK, f"{age}{kept}{soon}; {found.cause}", found.eta_s, loss_s)


def _loss_s(window: Sequence[LagReading], state: LagState) -> float | None:
    first, last = window[0], window[-1]
    found = []
    if last.retention_s is not None and state in _STUCK:
        found.append(max(0.0, last.retention_s - last.seconds))
    elapsed_s = (last.at_ms - first.at_ms) / 1000
    if len(window) > 2 and first.headroom is not None and last.headroom is not None:
        nearer = first.headroom - last.headroom
        # The beginning moved toward a position that did not go back.
        if nearer > 0 and last.position >= first.position:
            found.append(last.headroom * elapsed_s / nearer)
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class _Flow:
    """Records per second over the window. ``net`` > 0: the lag shrinks."""

    arriving: float
    read: float
    net: float


def _flow(window: Sequence[LagReading]) -> _Flow | None:
    recent = window[-_RECENT:]
    elapsed_s = (recent[-1].at_ms - recent[0].at_ms) / 1000
    if elapsed_s <= 0:
        return None
    arriving = max(0, recent[-1].end - recent[0].end) / elapsed_s
    read = max(0, recent[-1].position - recent[0].position) / elapsed_s
    net = -theil_sen([each.at_ms / 1000 for each in recent], [each.records for each in recent])
    return _Flow(arriving, read, net)


# A change of direction shows in the newest readings first; a slow drift only in the whole window.
_RECENT = 10


def _trend(values: Sequence[float], rules: LagRules) -> int:
    """Return 1 for rising values, -1 for falling ones, else 0."""
    for length in (_RECENT, len(values)):
        z = mann_kendall(values[-length:])
        if abs(z) > rules.z:
            return 1 if z > 0 else -1
    return 0


def _span(seconds: float) -> str:
    """Format a duration: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for size, unit, digits in ((172_800, "d", 1), (7_200, "h", 1), (120, "min", 0)):
        if seconds >= size:
            per = {"d": 86_400, "h": 3_600, "min": 60}[unit]
            return f"{seconds / per:.{digits}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1f} s"


def mann_kendall(values: Sequence[float]) -> float:
    """Return the test statistic z for a monotone trend; 0 for fewer than three values.

    Sources: Mann (1945), Kendall (1975) with the correction for ties.
    """
    n = len(values)
    if n < 3:
        return 0.0
    score = 0
    for index, value in enumerate(values):
        for later in values[index + 1 :]:
            score += (later > value) - (later < value)
    if score == 0:
        return 0.0
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    return (score - 1 if score > 0 else score + 1) / sqrt(variance) if variance > 0 else 0.0


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope over all pairs; 0 without two different times. Theil (1950), Sen (1968)."""
    slopes = [
        (values[later] - values[index]) / (times[later] - times[index])
        for index in range(len(times))
        for later in range(index + 1, len(times))
        if times[later] > times[index]
    ]
    return median(slopes) if slopes else 0.0
