"""[shell] A span for each reported batch of a view, linked to the contexts of a few of its events.

Spark folds events many at a time, and a span per event would cost more than the fold. So each progress report
makes one span for all batches since the last report; its context is written with the progress. A thread then
looks up a few events in their topics (latency_samples.py) for the links, and ends the span with the times of
the batch.

Cost: one span and at most ``SAMPLES`` small fetches per reported batch; none without tracing. A span for
which there is no time has no links.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hub.errors import HubError
from hub.log import Reader
from hub.materializers.progress.latency_samples import SAMPLES, SampleLog, looked_up
from hub.materializers.progress.records import Progress
from hub.record import Positions, TopicPartition
from hub.tracing import Span, of_headers, spans

log = logging.getLogger(__name__)

MOST_WAITING = 64
_QUEUE_KB = 64

Stretches = dict[TopicPartition, tuple[int, int]]


@dataclass
class BatchTraces:
    """Spans of batches. ``traced`` adds the span of a batch to its progress before that is written."""

    log: SampleLog
    chance: random.Random = field(default_factory=random.Random)
    reached: dict[str, Positions] = field(default_factory=dict)
    waiting: deque[tuple[Span, int, Stretches]] = field(default_factory=deque)
    thread: threading.Thread | None = None
    wake: threading.Condition = field(default_factory=threading.Condition)
    reader: Reader | None = None

    def traced(self, progress: Progress) -> Progress:
        """Return the progress with the context of its span, which ends later."""
        known = spans()
        if known is None or progress.trace:
            return progress  # reported before, and Kafka did not accept it
        before = self.reached.get(progress.view)
        self.reached[progress.view] = progress.sources
        topics = sorted({tp.topic for tp, _ in progress.sources})
        span = known.start(
            f"process {progress.view}",
            "consumer",
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.operation.name": "fold",
                "messaging.batch.message_count": progress.input_rows,
                "hub.view": progress.view,
                "hub.batch_id": progress.batch_id,
                "hub.mode": progress.mode,
                **({"messaging.destination.name": topics[0]} if len(topics) == 1 else {}),
            },
            at_ns=(progress.committed_at_ms - progress.batch_ms) * 1_000_000,
        )
        self._put(span, progress.committed_at_ms * 1_000_000, stretches_of(before, progress.sources))
        return replace(progress, trace=span.trace.traceparent)

    def step(self) -> int:
        """End the waiting spans, with their links; return how many."""
        done = 0
        while True:
            with self.wake:
                if not self.waiting:
                    return done
                span, end_ns, stretches = self.waiting.popleft()
            self._link(span, stretches)
            span.end(at_ns=end_ns)
            done += 1

    def _put(self, span: Span, end_ns: int, stretches: Stretches) -> None:
        with self.wake:
            late = self.waiting.popleft() if len(self.waiting) >= MOST_WAITING else None
            self.waiting.append((span, end_ns, stretches))
            self.wake.notify()
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="batch-traces", daemon=True)
                self.thread.start()
        if late is not None:
            late[0].end(at_ns=late[1])

    def _run(self) -> None:
        while True:
            with self.wake:
                self.wake.wait_for(lambda: bool(self.waiting))
            try:
                self.step()
            except Exception:  # an internal error must not end the thread
                log.exception("traces of batches")

    def _link(self, span: Span, stretches: Stretches) -> None:
        if not span.trace.sampled or not stretches:
            return
        wanted = chosen(stretches, self.chance)
        try:
            if self.reader is None:
                self.reader = self.log.reader(queue_kb=_QUEUE_KB)
            linked: set[str] = set()
            for record in looked_up(self.reader, wanted, SAMPLES):
                trace = of_headers(record.headers)
                # A request with many records is one trace.
                if trace is not None and trace.sampled and trace.traceparent not in linked:
                    linked.add(trace.traceparent)
                    span.link(trace)
        except HubError as error:
            log.debug("events not looked up: %s", error.message)
            if self.reader is not None:
                self.reader.close()
                self.reader = None


def stretches_of(before: Positions | None, after: Positions) -> Stretches:
    """Return the event ranges between two positions; {} on a view's first report, whose earlier position is
    unknown.
    """
    if before is None:
        return {}
    return {tp: (first, end) for tp, end in after if (first := before.get(tp, 0)) < end}


def chosen(stretches: Stretches, chance: random.Random) -> Stretches:
    """Choose at most ``SAMPLES`` ranges, each event equally likely. A range ends with its stretch."""
    places: Sequence[TopicPartition] = sorted(stretches)
    weights = [stretches[tp][1] - stretches[tp][0] for tp in places]
    found: Stretches = {}
    for tp in chance.choices(places, weights, k=SAMPLES):
        first, end = stretches[tp]
        at = first if end - first <= SAMPLES else chance.randrange(first, end - SAMPLES + 1)
        found.setdefault(tp, (at, end))
    return found
