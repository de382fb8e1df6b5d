"""[core] Vocabulary of the life cycle of a version's thread: its state, events, failures and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hub.materializers.progress.records import EngineState, Mode

Phase = Literal[
    "starting",
    "waiting",
    "bulk",
    "replay",
    "live",
    "realtime",
    "retrying",
    "failed",
    "isolated",
    "stopped",
]
RUNNING: frozenset[Phase] = frozenset(("bulk", "replay", "live", "realtime"))


@dataclass(frozen=True, slots=True)
class Standing:
    """Facts that decide which query of a planned version runs now.

    ``realtime``: its file asks for real-time mode; ``served``: it is the served version; ``slots_free``: no
    other version holds the view's task slots. ``late``: its query drops events behind a watermark.
    ``uncommitted``: a batch was begun and not committed. ``ahead``: rows may be published that the
    checkpoint's state does not have yet. ``allowed``: the isolation policy lets it run in this process.
    ``in_steps``: it reads whole source transactions, in steps that its snapshot group sets.
    """

    realtime: bool = False
    served: bool = True
    slots_free: bool = True
    late: bool = False
    uncommitted: bool = False
    ahead: bool = False
    allowed: bool = True
    in_steps: bool = False


@dataclass(frozen=True, slots=True)
class ViewLife:
    """State of the thread.

    ``generation``: of the last plan. ``caught_up``: few events of that generation were unread once since the
    last failure. ``replayed``: the plan has read in one batch what real-time mode may have read. ``warm``:
    the JVM is warm enough for real-time mode. ``suspected``: the state was reported corrupt once.
    ``failures``: failures since the last run that ended in order. ``blocked``: reported reason of waiting.
    """

    phase: Phase = "starting"
    generation: int | None = None
    caught_up: bool = False
    replayed: bool = False
    warm: bool = False
    suspected: bool = False
    failures: int = 0
    blocked: str | None = None


# ---- failures


@dataclass(frozen=True, slots=True)
class UnknownSchemaId:
    """An event names a schema id that the plan does not know."""

    schema_id: int
    topic: str


@dataclass(frozen=True, slots=True)
class CorruptState:
    """The checkpoint's state cannot be read. ``located``: the checkpoint's folder is known."""

    why: str
    located: bool = True


@dataclass(frozen=True, slots=True)
class TransientFailure:
    """A failure that a retry may solve by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class LastingFailure:
    """A failure that somebody has to solve; it is retried all the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class DecidedElsewhere:
    """Another process must decide about the view's versions."""


@dataclass(frozen=True, slots=True)
class ViewFileGone:
    """The view's file no longer exists."""


Failure = UnknownSchemaId | CorruptState | TransientFailure | LastingFailure | DecidedElsewhere | ViewFileGone


# ---- events


@dataclass(frozen=True, slots=True)
class ThreadStarted:
    """The thread begins."""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The view is planned."""

    generation: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class PlanBlocked:
    """The view cannot be planned before something else exists."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnreadCounted:
    """``unread``: events that the generation has not read."""

    unread: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A query runs."""

    standing: Standing


@dataclass(frozen=True, slots=True)
class SlotsTaken:
    """Another version runs in the view's task slots."""


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """The query has committed a batch."""


@dataclass(frozen=True, slots=True)
class WarmUpEnded:
    """The live query has run long enough to warm up the JVM."""

    standing: Standing


@dataclass(frozen=True, slots=True)
class PlanChecked:
    """The running plan was compared with the topics, schemas and files of now."""

    standing: Standing
    stale: bool


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """The query has read everything and was stopped."""


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class ViewFailed:
    """Planning, starting or running failed; no query runs.
    ``committed``: a batch was committed just before."""

    failure: Failure
    committed: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process stops the thread."""


LifeEvent = (
    ThreadStarted
    | PlanMade
    | PlanBlocked
    | UnreadCounted
    | QueryStarted
    | SlotsTaken
    | BatchCommitted
    | WarmUpEnded
    | PlanChecked
    | QueryEnded
    | PauseEnded
    | ViewFailed
    | StopRequested
)


# ---- actions


@dataclass(frozen=True, slots=True)
class ReportState:
    """Publish the view's state."""

    state: EngineState
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Plan the view. Answered by ``PlanMade`` or ``PlanBlocked``."""


@dataclass(frozen=True, slots=True)
class CountUnread:
    """Count the events that the plan has not read, and report its last batch.
    Answered by ``UnreadCounted``."""


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Start a query; ``whole``: it reads everything in one batch. Answered by ``QueryStarted`` or, in
    real-time mode, ``SlotsTaken``."""

    mode: Mode
    whole: bool = False


@dataclass(frozen=True, slots=True)
class StopQuery:
    """Stop the running query."""


@dataclass(frozen=True, slots=True)
class LearnSchema:
    """Ask the registry for a schema id, for the next plan."""

    schema_id: int
    topic: str


@dataclass(frozen=True, slots=True)
class QuarantineState:
    """Move the checkpoint to quarantine: the next plan finds it lost."""

    why: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait. Answered by ``PauseEnded``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RequestDecision:
    """Report to the process that another one must decide about versions."""


LifeAction = (
    ReportState
    | MakePlan
    | CountUnread
    | StartQuery
    | StopQuery
    | LearnSchema
    | QuarantineState
    | Pause
    | RequestDecision
)
Step = tuple[ViewLife, tuple[LifeAction, ...]]
