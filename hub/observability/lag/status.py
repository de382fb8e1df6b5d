"""[core] States of a consumer, each with its cause, from a history of measurements, on the wall clock.

A *reading* is one measurement of one consumer on one topic. ``watch`` folds readings into a
``WatchedConsumer``: the window of readings, the shown state, and since when. ``judge`` proposes a state for
one moment; the first match applies:

=============== =========================================================================================
LOST            the log begins after the position: records were deleted unread
AT_RISK         the oldest unread record is older than 80 % of the retention, or is lost within the hour
STOPPED         records wait, a position does not move, and nobody reads (or the engine reports it)
STALLED         the same, but the reader is there: members are connected, batches are committed
REWOUND         a position went back and has not reached its previous maximum
FALLING_BEHIND  late, and the delay grows: Mann-Kendall z > 2.3 and Theil-Sen slope > 0.05 s/s
CATCHING_UP     late, and the delay or the number of records shrinks; with an estimated time
BEHIND          later than the objective, and neither
OK              everything is read, or the oldest unread record is younger than the objective
UNKNOWN         no reading: Kafka away, nothing committed, topic gone, no report; never shown as zero
=============== =========================================================================================

A worse state is shown after two readings in a row, a better one after four, so that a single outlier changes
nothing. The first reading is shown at once: a restarted collector is right from the start. UNKNOWN comes
after two missed readings and ends with the first one.

Sources: Mann (1945), Kendall (1975) with the correction for ties; Theil (1950), Sen (1968).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from statistics import median


class LagState(StrEnum):
    """See the table above, worst first."""

    LOST = "LOST"
    AT_RISK = "AT_RISK"
    STOPPED = "STOPPED"
    STALLED = "STALLED"
    REWOUND = "REWOUND"
    FALLING_BEHIND = "FALLING_BEHIND"
    CATCHING_UP = "CATCHING_UP"
    BEHIND = "BEHIND"
    UNKNOWN = "UNKNOWN"
    OK = "OK"


# Sort order, most urgent first. UNKNOWN comes before OK: it may hide any state.
SEVERITY = {state: rank for rank, state in enumerate(LagState)}
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


class Bracketed:
    """A lag with bounds. ``records`` wait; the oldest has waited between ``low_s`` and ``high_s`` (None:
    no known upper bound), most likely ``likely_s`` (None: the middle)."""

    __slots__ = ()

    records: int
    low_s: float
    high_s: float | None
    likely_s: float | None

    @property
    def seconds(self) -> float:
        """Most likely wait: 0 when nothing waits, ``low_s`` without an upper bound."""
        if self.records == 0:
            return 0.0
        if self.high_s is None:
            return self.low_s
        return (self.low_s + self.high_s) / 2 if self.likely_s is None else self.likely_s

    @property
    def error_s(self) -> float | None:
        """Error bound: the true lag is within ``seconds`` ± this. None: it is ``seconds`` or more."""
        if self.high_s is None:
            return None
        return (
            self.high_s if self.records == 0 else max(self.high_s - self.seconds, self.seconds - self.low_s)
        )


@dataclass(frozen=True, slots=True)
class LagReading(Bracketed):
    """One consumer on one topic, over its partitions, at ``at_ms``.

    ``position`` and ``end`` are sums. The oldest unread record has waited between ``low_s`` and ``high_s``
    (None: no known upper bound). ``lost``: records deleted before they were read. ``rewound``: records that
    will be read again. ``idle_s``: longest time that a partition has neither moved nor been read to its end.
    ``headroom``: records between the log's beginning and the position, of the nearest partition.
    ``retention_s``: the topic's retention, if records are deleted by age. ``past``: in some partition the
    position is past the observed end.
    """

    at_ms: int
    position: int
    end: int
    records: int
    low_s: float
    high_s: float | None
    lost: int = 0
    rewound: int = 0
    idle_s: float = 0.0
    idle_partition: int | None = None
    headroom: int | None = None
    retention_s: float | None = None
    basis: str = "arrival"
    likely_s: float | None = None
    past: bool = False


@dataclass(frozen=True, slots=True)
class ReaderState:
    """State of a reader.

    ``said``: state that it reports (``failed``, ``retrying``, …). ``reason``: why, or why nobody reads.
    ``members``: connected members, None where they are not counted (``connected``: at least one is).
    ``committed_at_ms``: time of its last commit, if it reports one. ``silent``: how long it has not reported,
    as text, once that exceeds its interval; its previous report is then not used. ``why_stuck``: known reason
    why it does not move although batches are committed.
    """

    said: str | None = None
    reason: str | None = None
    members: int | None = None
    committed_at_ms: int | None = None
    connected: bool = False
    silent: str = ""
    why_stuck: str = ""


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """A state. ``cause``: a phrase for people. ``eta_s``: until nothing waits; ``loss_s``: until records
    are lost."""

    state: LagState
    cause: str
    eta_s: float | None = None
    loss_s: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedConsumer:
    """A consumer on a topic under watch. ``moves``: when the position last moved; ``against``: readings in
    a row that propose another state than the shown one; ``since_ms``: start of the shown state."""

    shown: LagVerdict = LagVerdict(LagState.UNKNOWN, "nothing measured yet")
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
        spoken = _spoken(reader)
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
        return replace(watched, against=against)
    return replace(watched, shown=proposed, against=0, since_ms=now_ms)


def _needed(shown: LagState, proposed: LagState, rules: LagRules) -> int:
    if proposed is LagState.UNKNOWN:
        return rules.enter
    return rules.enter if SEVERITY[proposed] < SEVERITY[shown] else rules.leave


def judge(
    window: Sequence[LagReading], moves: Sequence[int], reader: ReaderState, now_ms: int, rules: LagRules
) -> LagVerdict:
    """Propose a state by the table. The last reading is the current one. ``moves``: when the position
    moved, oldest first."""
    last = window[-1]
    if last.lost:
        return LagVerdict(LagState.LOST, f"{last.lost:,} records were deleted before they were read")
    spoken = _spoken(reader) or _silent(reader, last)
    if spoken is None and (
        last.records == 0
        or (last.high_s is not None and last.high_s <= rules.objective_s and not last.rewound)
    ):
        cause = "everything is read" if last.records == 0 else f"within {rules.objective_s:g} s"
        return LagVerdict(LagState.OK, cause)
    found = spoken or _stuck(last, moves, reader, now_ms, rules) or _moving(window, rules)
    return _at_risk(window, found, rules) or found


def _spoken(reader: ReaderState) -> LagVerdict | None:
    """Return the reader's own report as a state, if it is a failure."""
    states = {
        "failed": LagState.STOPPED,
        "stopped": LagState.STOPPED,
        "retrying": LagState.STALLED,
        "isolated": LagState.STALLED,
    }
    state = states.get(reader.said or "")
    if state is None:
        return None
    return LagVerdict(state, f"{reader.said}: {reader.reason}" if reader.reason else str(reader.said))


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
    if reader.committed_at_ms is not None and now_ms - reader.committed_at_ms < patience_s * 1000:
        why = f": {reader.why_stuck}" if reader.why_stuck else ", though batches are committed"
        return LagVerdict(LagState.STALLED, f"{quiet}{why}")
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
        if each.records == 0 or (each.high_s is not None and each.high_s <= rules.objective_s):
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


def mann_kendall(values: Sequence[float]) -> float:
    """Return the test statistic z for a monotone trend, corrected for ties; 0 for fewer than three values."""
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
    """Return the median slope over all pairs; 0 without two different times."""
    slopes = [
        (values[later] - values[index]) / (times[later] - times[index])
        for index in range(len(times))
        for later in range(index + 1, len(times))
        if times[later] > times[index]
    ]
    return median(slopes) if slopes else 0.0


def _span(seconds: float) -> str:
    """Format a duration: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for size, unit, digits in ((172_800, "d", 1), (7_200, "h", 1), (120, "min", 0)):
        if seconds >= size:
            per = {"d": 86_400, "h": 3_600, "min": 60}[unit]
            return f"{seconds / per:.{digits}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1f} s"
