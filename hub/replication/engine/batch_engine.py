"""[shell] One shard of a mirror: copies batches of a fixed set of partitions from the source to the target,
exactly once.

A *shard* has one transactional id, ``hub.mirror.<link>.<shard>``. ``start`` fences the previous owner and
only then reads its checkpoints; ``step`` carries one transaction: records, the map of their offsets and the
checkpoint::

    start ─▶ fence ─▶ Resumption: checkpoints up to the end offset asked for after that ─▶ positions
    step  ─▶ Fetcher: read_committed ─▶ pieces ─▶ atomic release ─▶ Payloads ─▶ TargetTransaction ─▶ commit
      any uncertainty about the target: abort, discard all state, start again from the checkpoints (recovery.py)
      any uncertainty about the source: reconnect, continue at the position (fetcher.py)

All durable state is in the target, so a kill at any moment costs time only. A partition that cannot continue
(its log was truncated, is corrupt, was recreated, or refuses writes) reports that in ``progress``; the others
continue. ``WriterFenced`` ends the engine: another worker has the shard, and a restart would take it back.

Limits: every fetch names all partitions of its broker (no fetch sessions), so a shard is for hundreds of
partitions, not many thousands; and one shard is one thread.
"""  # noqa: E501

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from hub.errors import HubError, PeerError
from hub.kafka.protocol.broker_client import BrokerRefused
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.replication.clusters.schemas_first import SCHEMAS_LOG
from hub.replication.engine.atomic_release import (
    HoldLimits,
    HoldState,
    LookAhead,
    LookedAhead,
    PiecesStaged,
    next_hold,
)
from hub.replication.engine.connection.port import EngineClock, EngineConnection, SystemClock
from hub.replication.engine.cursor import named
from hub.replication.engine.fetcher import Fetcher
from hub.replication.engine.payloads import Payloads
from hub.replication.engine.recovery import (
    Abort,
    Carried,
    Carry,
    ClearFailures,
    Closed,
    EnginePhase,
    Failed,
    Pause,
    PhaseEvent,
    RaiseFenced,
    RetryAsked,
    Start,
    StartAsked,
    Started,
    StepAsked,
    StepBack,
    next_phase,
)
from hub.replication.engine.resume import Resumption
from hub.replication.engine.shard_state import EngineSettings, NotYet, PartitionProgress, ShardState
from hub.replication.engine.target_transaction import BatchesRefused, TargetTransaction
from hub.replication.ownership.shards import Shard
from hub.replication.rewriting.filter_history import FilterVersion
from hub.replication.rewriting.record_filter import RecordRewriter
from hub.replication.rewriting.reencode import Reencode, Reencoder

log = logging.getLogger(__name__)


class BatchEngine:
    """Copy engine of one shard; see the module. Use from one thread, ``interrupt`` from any. ``partitions``
    have the same names on both sides.

    A partition whose records were mirrored under rules other than those of ``rewriters`` stops (HUB-1615).

    ``foreign``: ranges of source offsets that came from the target and are not sent back
    (maps/two_way_offset_map.py). ``left_out``: ranges of records that are not carried, because a merge found
    them superseded. ``rewriters``: by topic; all batches of these topics are rewritten.
    ``schemas_first``: called before records are committed with the end offset that the source's ``_schemas``
    had after they were fetched; it returns once the schemas up to there are at the target, or raises NotYet.
    """

    def __init__(
        self,
        source: EngineConnection,
        target: EngineConnection,
        *,
        link: str,
        shard: int,
        partitions: Iterable[TopicPartition],
        settings: EngineSettings | None = None,
        reencoder: Reencoder | None = None,
        foreign: Mapping[TopicPartition, Sequence[tuple[int, int]]] | None = None,
        left_out: Mapping[TopicPartition, Sequence[tuple[int, int]]] | None = None,
        rewriters: Mapping[str, RecordRewriter] | None = None,
        schemas_first: Callable[[int], None] | None = None,
        clock: EngineClock | None = None,
    ) -> None:
        self.settings = settings or EngineSettings()
        self.source, self.target, self._clock = source, target, clock or SystemClock()
        self._state = ShardState(Shard(link, shard), self.settings, partitions)
        for tp, ranges in (left_out or {}).items():
            self._state.partitions[tp].left_out = ranges
        rewriters = rewriters or {}
        topics = {tp.topic for tp in self._state.partitions}
        source_topics = frozenset(topics | ({SCHEMAS_LOG.topic} if schemas_first is not None else set()))
        rewritten = frozenset(rewriters)
        rules = {topic: FilterVersion.of(each.shape, each.secrets) for topic, each in rewriters.items()}
        self._fetcher = Fetcher(source, self._state, source_topics, foreign or {}, rewritten, self._clock)
        self._resumption = Resumption(source, target, self._state, source_topics, rules, self._clock)
        self._payloads = Payloads(self._state, reencoder or Reencode(), rewriters)
        self._transaction = TargetTransaction(
            source, target, self._state, rewritten, schemas_first, self._clock
        )
        self._phase = EnginePhase()
        self._hold = HoldState()
        self._hold_limits = HoldLimits(self.settings.hold_s, self.settings.hold_bytes, self.settings.hold_lag)

    # ---- progress and control

    @property
    def error(self) -> HubError | None:
        """Last error of a cluster; None while both answer."""
        return self._state.error

    @property
    def fenced(self) -> bool:
        """True once another worker has the shard."""
        return self._phase.phase == "fenced"

    def progress(self) -> list[PartitionProgress]:
        return [each.progress() for each in self._state.partitions.values()]

    def retry(self) -> None:
        """Let stopped partitions try again; the next step starts from the checkpoints."""
        self._apply(RetryAsked())

    def close(self) -> None:
        """Abort the open transaction, if the target answers, and close all connections."""
        self._apply(Closed())

    def interrupt(self) -> None:
        """End the wait of the engine's thread on a socket. Its step ends with an error, or starts again."""
        self.source.interrupt()
        self.target.interrupt()

    # ---- start and step

    def start(self) -> None:
        """Take over the shard. Raises WriterFenced, NotFound (the mirror's own topics), PeerError when a
        cluster does not answer. Errors of single partitions are in their progress.
        """
        self._apply(StartAsked())
        self._resumption.read_metadata()
        self._transaction.fence()
        before = len(self._state.live())
        self._resumption.resume()
        if len(self._state.live()) < before:
            # A worker that took the shard meanwhile may have written what stops them.
            self._transaction.fence()
        self._state.error = None
        self._apply(Started())

    def step(self) -> int:
        """Carry at most one transaction and return the number of committed records. Waits at most
        ``fetch_wait_ms`` for records.

        Errors of the clusters are kept in ``error`` and the next step starts again, after a pause; only
        WriterFenced (and what ``start`` raises about the mirror's own topics) is raised.
        """
        try:
            done = self._apply(StepAsked(self._clock.monotonic()))
            self._apply(Carried())
            return done
        except WriterFenced as fenced:
            self._apply(Failed(fenced, self._clock.monotonic()))
            raise
        except BatchesRefused as refused:
            for each in refused.partitions:
                each.stop(
                    BrokerRefused(
                        f"{named(each.tp)} in the target: {refused.error.message}",
                        hint=refused.error.hint,
                        kafka_code=refused.error.kafka_code,
                    )
                )
            self._start_over(refused.error)
        except (PeerError, BrokerRefused) as error:
            self._start_over(error)
        return 0

    def _start_over(self, error: HubError) -> None:
        level = logging.INFO if isinstance(error, NotYet) else logging.WARNING
        log.log(
            level,
            "%s: %s; starting again from the checkpoints",
            self._state.shard.transactional_id,
            error.message,
        )
        self._state.error = error
        self._apply(Failed(error, self._clock.monotonic()))

    def _apply(self, event: PhaseEvent) -> int:
        """Carry out what an event asks for; return the committed records."""
        self._phase, actions = next_phase(self._phase, event)
        done = 0
        for action in actions:
            match action:
                case Pause(seconds):
                    self._clock.sleep(seconds)
                case Start():
                    self.start()
                case Carry():
                    done = self._carry()
                case Abort():
                    self._transaction.abort()
                case StepBack():
                    self._step_back()
                case ClearFailures():
                    self._state.clear_failures()
                case RaiseFenced():
                    raise WriterFenced(
                        f'transactional id "{self._state.shard.transactional_id}": another '
                        "worker has this shard"
                    )
        return done

    def _step_back(self) -> None:
        self._fetcher.forget()
        self._transaction.forget()
        self._state.step_back()

    # ---- one transaction

    def _carry(self) -> int:
        settings, transaction = self.settings, self._transaction
        deadline_s = self._clock.monotonic() + settings.fetch_wait_ms / 1000
        while True:
            self._fetcher.send()
            now_s, begun = self._clock.monotonic(), transaction.open
            until_s = deadline_s if begun is None else transaction.due_at_s()
            self._fetcher.receive(max(0.0, until_s - now_s))
            self._release()
            # While some pieces are held back, their buffers are freed one by one with them.
            held_back = any(each.staged for each in self._state.partitions.values())
            self.source.recycle(reusable=not held_back)
            now_s, begun = self._clock.monotonic(), transaction.open
            if begun is None:
                if now_s >= deadline_s:
                    return transaction.commit() if self._state.dirty else 0
            elif transaction.is_due(now_s):
                return transaction.commit()

    def _release(self) -> None:
        """Write the pieces that may be written now."""
        waiting = [each for each in self._state.live() if each.staged]
        if not waiting:
            return
        staged = {each.tp: [piece.transactions for piece in each.staged] for each in waiting}
        live, now_ms = self._state.live(), self._clock.epoch_ms()
        lag = max(each.stable_end - each.cursor.position for each in live)
        size = sum(piece.piece.size for each in waiting for piece in each.staged)
        event = PiecesStaged(self._clock.monotonic(), staged, len(live), lag, size)
        self._hold, action = next_hold(self._hold, event, self._hold_limits)
        if isinstance(action, LookAhead):
            seen = self._fetcher.look_ahead()
            looked = LookedAhead(self._clock.monotonic(), staged, seen)
            self._hold, action = next_hold(self._hold, looked, self._hold_limits)
            assert not isinstance(action, LookAhead)
        producer = self._transaction.producer
        ready = {
            each.tp: payloads
            for each in waiting
            if (payloads := self._payloads.take(each, action.counts[each.tp], producer, now_ms))
        }
        if ready:
            self._transaction.write(ready)
