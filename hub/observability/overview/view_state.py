"""[core] Lag of a position in records and in seconds, and the resulting state of a view.

``lag_of`` measures; ``assess`` evaluates a history of measurements. ``now`` is an argument of both. The rules
of ``assess``; the first match applies:

============ ==============================================================================
STOPPED      the engine reports it; or events wait and no batch was committed for ``stall_s``
STALLED      the engine retries; or batches are committed while the position does not move
OK           everything is read, or the oldest unread event is younger than the objective
CATCHING_UP  fewer events wait than at the start of the window; with an estimated time
BEHIND       late, and not improving
UNKNOWN      the engine does not report, or nothing was measured yet; never shown as zero
============ ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hub.observability.lag.anchors import Ring, arrival
from hub.observability.lag.status import Bracketed, LagState

OBJECTIVE_S = 10.0
STALL_S = 30.0
UNAPPLIED = "batches are committed, and the applier does not bring them into the store"


@dataclass(frozen=True, slots=True)
class Lag(Bracketed):
    """Lag of one partition, or of several together."""

    records: int
    low_s: float
    high_s: float | None
    likely_s: float | None = None


def lag_of(ring: Ring, position: int, now_ms: int, timestamp_ms: int | None = None) -> Lag:
    """Return the lag of a next-to-read position. ``ring`` must hold at least one anchor of its partition.

    ``timestamp_ms``: timestamp of the record at ``position``, if known. It bounds the age of records that
    arrived before the first anchor: an event is not appended before it happened.
    """
    low_s, high_s, likely_s = arrival(ring, position).waited(position, now_ms)
    if high_s is None and timestamp_ms is not None:
        high_s = max(low_s, (now_ms - timestamp_ms) / 1000)
    return Lag(max(0, ring[-1].end - position), low_s, high_s, likely_s)


def worst(lags: Iterable[Lag]) -> Lag | None:
    """Combine the lags of several partitions: sum of records, bracket of the longest wait. Return None for no
    lags."""
    found = list(lags)
    if not found:
        return None
    highs = [lag.high_s for lag in found]
    return Lag(
        sum(lag.records for lag in found),
        max(lag.low_s for lag in found),
        None if None in highs else max(high for high in highs if high is not None),
        max(lag.seconds for lag in found),
    )


def lag_of_topic(rings: Mapping[int, Ring], positions: Mapping[int, int], now_ms: int) -> Lag | None:
    """Return the lag over a topic's partitions; unread partitions count from 0. None: not measured yet."""
    return worst(
        lag_of(ring, positions.get(partition, 0), now_ms) for partition, ring in rings.items() if ring
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. ``position``: sum of the next offsets over the topic's partitions."""

    at_ms: int
    position: int
    lag: Lag


@dataclass(frozen=True, slots=True)
class Engine:
    """State that a reader reports.

    ``committed_at_ms``: time of its last commit; None: none yet. ``interval_s``: its intended commit
    interval, which is added to the limits. ``unapplied``: it has committed batches that the store does not
    have.
    """

    state: str
    reason: str | None
    committed_at_ms: int | None
    interval_s: float = 0.0
    unapplied: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """A state. ``cause``: a phrase for people. ``eta_s``: seconds until nothing waits, while lag shrinks."""

    state: LagState
    cause: str
    eta_s: float | None = None


def assess(
    window: Sequence[Sample],
    engine: Engine,
    now_ms: int,
    *,
    objective_s: float = OBJECTIVE_S,
    stall_s: float = STALL_S,
) -> Assessment:
    """Return the state of a reader from its recent samples (oldest first) and its report, at ``now_ms``."""
    if engine.state in ("failed", "stopped"):
        return Assessment(LagState.STOPPED, _engine_message(engine))
    if engine.state in ("retrying", "isolated"):
        return Assessment(LagState.STALLED, _engine_message(engine))
    if engine.state == "unknown":
        return Assessment(LagState.UNKNOWN, engine.reason or "nobody has heard of it")
    if not window:
        return Assessment(LagState.UNKNOWN, "nothing measured yet")
    lag = window[-1].lag
    if lag.records == 0:
        return Assessment(LagState.OK, "everything is read")
    objective_s, stall_s = objective_s + engine.interval_s, stall_s + engine.interval_s
    stuck = _stuck(window, engine, now_ms, stall_s)
    if stuck is not None:
        return stuck
    if lag.high_s is not None and lag.high_s <= objective_s:
        return Assessment(LagState.OK, f"within {objective_s:g} s")
    return _trend(window)


def _engine_message(engine: Engine) -> str:
    return f"{engine.state}: {engine.reason}" if engine.reason else engine.state


def _stuck(window: Sequence[Sample], engine: Engine, now_ms: int, stall_s: float) -> Assessment | None:
    """Return a state when events older than ``stall_s`` wait and the position has not moved for as long; else
    None."""
    last = window[-1]
    moved_ms = next(
        (each.at_ms for each in reversed(window) if each.position != last.position), window[0].at_ms
    )
    if last.lag.low_s < stall_s or now_ms - moved_ms < stall_s * 1000:
        return None
    if engine.committed_at_ms is None:
        return Assessment(LagState.STOPPED, "no batch was ever committed")
    quiet_s = (now_ms - engine.committed_at_ms) / 1000
    if quiet_s >= stall_s:
        return Assessment(LagState.STOPPED, f"no batch for {quiet_s:.0f} s")
    if engine.unapplied:
        return Assessment(LagState.STALLED, UNAPPLIED)
    return Assessment(LagState.STALLED, "batches are committed but this topic is not read")


def _trend(window: Sequence[Sample]) -> Assessment:
    first, last = window[0], window[-1]
    elapsed_s = (last.at_ms - first.at_ms) / 1000
    if elapsed_s <= 0:
        return Assessment(LagState.BEHIND, "measured once")
    read_per_s = (last.position - first.position) / elapsed_s
    gained_per_s = (first.lag.records - last.lag.records) / elapsed_s
    if gained_per_s > 0:
        return Assessment(
            LagState.CATCHING_UP, f"reads {read_per_s:,.0f} events/s", last.lag.records / gained_per_s
        )
    arriving = read_per_s - gained_per_s
    return Assessment(LagState.BEHIND, f"{arriving:,.0f} events/s arrive, {read_per_s:,.0f} are read")
