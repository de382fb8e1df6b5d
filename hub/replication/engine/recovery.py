"""[core] Recovery: what an engine does after an error, and when it tries again.

``next_phase(state, event)`` gives the new state and the actions of the loop, in order::

    stopped ── StepAsked ──▶ [Pause] Start Carry ── Started ──▶ running
    running ── StepAsked ──▶ Carry ── Carried ──▶ running, failures are forgotten
    any     ── Failed: uncertain about the target ──▶ stopped: Abort, StepBack; a later start reads the checkpoints
    any     ── Failed: WriterFenced ──▶ fenced for good: StepBack; a restart would take the shard back

An error of the source is none of these: the target's transaction is kept, and ``SourceRetries`` says when
which broker is asked again.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from hub.errors import HubError
from hub.log import WriterFenced

RETRY_FIRST_S, RETRY_MOST_S = 0.05, 5.0


def retry_pause_s(failures: int) -> float:
    """Return the pause in seconds after a number of consecutive failures.

    >>> [retry_pause_s(failures) for failures in (0, 1, 2, 9)]
    [0.05, 0.1, 0.2, 5.0]
    """
    return float(min(RETRY_MOST_S, RETRY_FIRST_S * 2 ** min(failures, 10)))


@dataclass(frozen=True, slots=True)
class EnginePhase:
    """``failures``: starts and steps in a row that failed; ``retry_at_s``: not before this time."""

    phase: Literal["stopped", "running", "fenced"] = "stopped"
    failures: int = 0
    retry_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepAsked:
    now_s: float


@dataclass(frozen=True, slots=True)
class StartAsked:
    """A start begins, whatever was before."""


@dataclass(frozen=True, slots=True)
class Started:
    """The shard was taken over and the checkpoints were read."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A step ended without an error."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed, at an unknown point of its transaction."""

    error: HubError
    now_s: float


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """A person lets the stopped partitions try again."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The engine was closed."""


PhaseEvent = StepAsked | StartAsked | Started | Carried | Failed | RetryAsked | Closed


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Start:
    """Fence the former owner and read the checkpoints."""


@dataclass(frozen=True, slots=True)
class Carry:
    """Carry one transaction."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort the open transaction at once, so that the target's readers need not wait for its timeout."""


@dataclass(frozen=True, slots=True)
class StepBack:
    """Discard everything that is not committed, and all connections."""


@dataclass(frozen=True, slots=True)
class ClearFailures:
    """Let stopped partitions try again."""


@dataclass(frozen=True, slots=True)
class RaiseFenced:
    """Inform the caller that another worker has the shard."""


PhaseAction = Pause | Start | Carry | Abort | StepBack | ClearFailures | RaiseFenced


def next_phase(state: EnginePhase, event: PhaseEvent) -> tuple[EnginePhase, tuple[PhaseAction, ...]]:
    match event:
        case StepAsked(now_s):
            return state, _step(state, now_s)
        case StartAsked():
            return _stopped(state), (StepBack(),)
        case Started():
            return state if state.phase == "fenced" else replace(state, phase="running"), ()
        case Carried():
            return replace(state, failures=0), ()
        case Failed(WriterFenced(), _):
            return replace(state, phase="fenced"), (StepBack(),)
        case Failed(_, now_s):
            retry_at_s = now_s + retry_pause_s(state.failures)
            return EnginePhase("stopped", state.failures + 1, retry_at_s), (Abort(), StepBack())
        case RetryAsked():
            return _stopped(state), (Abort(), StepBack(), ClearFailures())
        case Closed():
            return _stopped(state), (Abort(), StepBack())
        case _:
            assert_never(event)


def _step(state: EnginePhase, now_s: float) -> tuple[PhaseAction, ...]:
    if state.phase == "fenced":
        return (RaiseFenced(),)
    if state.phase == "running":
        return (Carry(),)
    wait_s = min(state.retry_at_s - now_s, RETRY_MOST_S)
    return (Pause(wait_s), Start(), Carry()) if wait_s > 0 else (Start(), Carry())


def _stopped(state: EnginePhase) -> EnginePhase:
    return state if state.phase == "fenced" else replace(state, phase="stopped")


@dataclass(frozen=True, slots=True)
class SourceRetries:
    """``failures``: of the source, in a row; ``at_s``: by broker, when it may be asked again."""

    failures: int = 0
    at_s: Mapping[int, float] = field(default_factory=dict)

    def failed(self, node: int, now_s: float) -> SourceRetries:
        pause_s = retry_pause_s(self.failures)
        return SourceRetries(self.failures + 1, {**self.at_s, node: now_s + pause_s})

    def answered(self) -> SourceRetries:
        return replace(self, failures=0) if self.failures else self

    def may_ask(self, node: int, now_s: float) -> bool:
        return now_s >= self.at_s.get(node, 0.0)
