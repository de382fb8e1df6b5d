"""[core] Values of lag: states with their severity and level, readings, and what a reader reports of itself.

docs/reference/lag.md explains the states. ``judge.py`` is the only code that turns lag into a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class LagState(StrEnum):
    """State of a consumer on a topic, worst first."""

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


class Level(StrEnum):
    """Level of a state; pages, drawings and terminals have one color for each."""

    bad = "bad"
    warn = "warn"
    unknown = "unknown"
    ok = "ok"


LEVEL = {
    **dict.fromkeys((LagState.LOST, LagState.AT_RISK, LagState.STOPPED, LagState.STALLED), Level.bad),
    **dict.fromkeys(
        (LagState.REWOUND, LagState.FALLING_BEHIND, LagState.CATCHING_UP, LagState.BEHIND), Level.warn
    ),
    LagState.UNKNOWN: Level.unknown,
    LagState.OK: Level.ok,
}
# Records are gone, or soon will be, before they were read.
LOSING = (LagState.LOST, LagState.AT_RISK)


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
class Lag(Bracketed):
    """Lag of several partitions or topics together."""

    records: int
    low_s: float
    high_s: float | None
    likely_s: float | None = None


def worst(lags: Sequence[Bracketed]) -> Lag | None:
    """Combine several lags: the sum of the records, and the bracket of the longest wait. Return None for no
    lags."""
    if not lags:
        return None
    highs = [lag.high_s for lag in lags]
    return Lag(
        sum(lag.records for lag in lags),
        max(lag.low_s for lag in lags),
        None if None in highs else max(high for high in highs if high is not None),
        max(lag.seconds for lag in lags),
    )


@dataclass(frozen=True, slots=True)
class LagReading(Bracketed):
    """One consumer on one topic, over its partitions, at ``at_ms``.

    ``position`` and ``end`` are sums. The oldest unread record has waited between ``low_s`` and ``high_s``
    (None: no known upper bound). ``lost``: records deleted before they were read. ``rewound``: records that
    will be read again. ``idle_s``: longest time that a partition has neither moved nor been read to its end.
    ``headroom``: records between the log's beginning and the position, of the nearest partition.
    ``retention_s``: the topic's retention, if records are deleted by age. ``past``: in some partition the
    position is past the observed end. ``held``: records of ``held_partition`` that an open transaction holds
    back, for ``held_s`` so far.
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
    held: int = 0
    held_s: float = 0.0
    held_partition: int | None = None


@dataclass(frozen=True, slots=True)
class ReaderState:
    """State of a reader.

    ``state``: state that it reports (``failed``, ``retrying``, …). ``reason``: why, or why nobody reads.
    ``members``: connected members, None where they are not counted (``connected``: at least one is).
    ``committed_at_ms``: time of its last commit, if it reports one. ``silent``: how long it has not reported,
    as text, once that exceeds its interval; its previous report is then not used. ``why_stuck``: known reason
    why it does not move although batches are committed. ``interval_s``: pause between commits that it
    intends; its limits are longer by this.
    """

    state: str | None = None
    reason: str | None = None
    members: int | None = None
    committed_at_ms: int | None = None
    connected: bool = False
    silent: str = ""
    why_stuck: str = ""
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """A state. ``cause``: a phrase for people. ``eta_s``: until nothing waits; ``loss_s``: until records
    are lost."""

    state: LagState
    cause: str
    eta_s: float | None = None
    loss_s: float | None = None
