"""[shell] One sink: read a page, select, deliver, commit; after a failure again from the position.

A round opens everything and runs until something fails.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.config import Settings
from hub.errors import HubError, HubFault, NotFound
from hub.kafka import KafkaCluster
from hub.log import Reader, WriterFenced
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.topic_rows import TopicTables
from hub.record import Positions, Record, TopicPartition
from hub.runtime import Backoff
from hub.schema_registry.client.port import SchemaRegistry
from hub.sinks.commits import Commits, check_same_topic, lost_offsets
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch
from hub.sinks.note import SinkNote, SinkStatus
from hub.sinks.owner import Owners
from hub.sinks.selection import Selected, SinkSelection, sql_refused
from hub.sinks.sinks_file import SinkEntry
from hub.sinks.targets.target import ReportRetry, Target
from hub.times import epoch_ms

log = logging.getLogger(__name__)

PAGE, WEBHOOK_PAGE = 2_000, 250
# Transactions that follow each other at once wait for the brokers, so positions alone are committed once a
# second.
POLL_S, COMMIT_S, CHECK_S, _REPLACED_S = 0.5, 1.0, 30.0, 60.0
QUEUE_KB = 8_192


@dataclass(frozen=True, slots=True)
class SinkParts:
    """Parts that all sinks of a worker share. ``open_target``: from an entry's name, entry, selection and
    ``report_retry`` to its target.
    """

    settings: Settings
    cluster: KafkaCluster
    registry: SchemaRegistry
    owners: Owners
    open_target: Callable[[str, SinkEntry, SinkSelection, ReportRetry], Target]


class Round(Protocol):
    """A round of a sink, once everything is open."""

    def run(self, stop: threading.Event) -> None:
        """Deliver until ``stop`` is set, or what is open must be opened again. Raises HubError."""


@dataclass
class Sink:
    """One sink. ``run`` in a thread of its own; ``status`` is read by others."""

    name: str
    entry: SinkEntry
    parts: SinkParts
    open_round: Callable[[Sink, contextlib.ExitStack], Round]
    status: SinkStatus = field(init=False)
    _logged_problem: str = ""

    def __post_init__(self) -> None:
        self.status = SinkStatus(SinkNote(self.name))

    def run(self, stop: threading.Event) -> None:
        """Deliver until ``stop`` is set. Failures are logged, the same one once, and tried again."""
        backoff = Backoff(0.5, 30.0)
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                with contextlib.ExitStack() as stack:
                    self.open_round(self, stack).run(stop)
            except WriterFenced:
                self.report_problem(
                    "REPLACED", "another worker delivers this sink; it is tried again in a minute"
                )
                stop.wait(_REPLACED_S)
            except SqlError as error:
                self._failed(sql_refused(error), stop, backoff)
            except HubError as error:
                if time.monotonic() - began_s > backoff.most_s:
                    backoff.reset()
                self._failed(error, stop, backoff)
            except Exception as error:  # a defect of the hub stops its sink alone, and is shown
                log.exception("sink %s", self.name)
                self._failed(HubFault(f"{type(error).__name__}: {error}"), stop, backoff)

    def _failed(self, error: HubError, stop: threading.Event, backoff: Backoff) -> None:
        self.report_problem("FAILING", error.message)
        stop.wait(backoff.next_s())

    def report_problem(self, state: str, why: str) -> None:
        """Report a state that is not well."""
        if why != self._logged_problem:
            log.error("sink %s: %s: %s", self.name, state, why)
            self._logged_problem = why
        self.status.put(state=state, trouble=why)

    def report_retry(self, why: str) -> None:
        """Report the trouble of a target that is being retried; "": it takes events."""
        if why:
            self.report_problem("RETRYING", why)
        else:
            self.working()

    def working(self) -> None:
        """Report that events are delivered."""
        if self._logged_problem:
            log.info("sink %s: delivers again", self.name)
            self._logged_problem = ""
        self.status.put(state="DELIVERING", trouble="")


class SinkRound:
    """One round of a sink, once everything is open."""

    def __init__(self, sink: Sink, stack: contextlib.ExitStack) -> None:
        self.sink, self.parts, entry = sink, sink.parts, sink.entry
        self.parts.owners.act(sink.name, entry)
        self._acted_s = time.monotonic()
        cluster = self.parts.cluster
        self.partitions = cluster.partition_counts([entry.source]).get(entry.source)
        if self.partitions is None:
            raise NotFound(
                f'topic "{entry.source}" does not exist',
                hint="create it (hub topic apply, or the view), or correct `from` in sinks.yaml",
                code="HUB-1823",
            )
        self.commits = Commits(sink.name, cluster, self.parts.settings)
        stack.callback(self.commits.close)
        tables = TopicTables(cluster, self.parts.registry)
        self.selection = SinkSelection(entry, tables)
        stack.callback(self.selection.close)
        _ = self.selection.columns  # wrong SQL is reported before the first record
        self.target = self.parts.open_target(sink.name, entry, self.selection, sink.report_retry)
        stack.callback(self.target.close)
        at = begin_positions(sink, self.commits, self.target)
        self.commits.commit(Delivered(at), ())
        self.reader: Reader = cluster.follower(queue_kb=QUEUE_KB)
        stack.callback(self.reader.close)
        self.reader.assign(at)
        self.at = at
        # Of each page and partition: place, offset and time of the first record, until it is delivered.
        self._read: deque[tuple[TopicPartition, int, int]] = deque()

    def run(self, stop: threading.Event) -> None:
        """Deliver until ``stop`` is set, or the topic has more partitions. Raises HubError."""
        limit = WEBHOOK_PAGE if self.sink.entry.webhook is not None else PAGE
        self.sink.working()
        committed_s = time.monotonic()
        delivered = Delivered(self.commits.committed)
        while not stop.is_set():
            records = self.reader.poll(limit, POLL_S)
            after = self.reader.position()
            selected = self._selected(records)
            refused = list(selected.refused)
            if self._target_holds_positions and refused:
                self._bury(refused)
                refused = []
            delivered = self.target.deliver(SinkBatch(selected.events, self.at, after), stop, self._bury)
            self.at = after
            now_s = time.monotonic()
            refused += delivered.refused
            if delivered.records or refused or now_s - committed_s > COMMIT_S:
                self.commits.commit(delivered, refused)
                committed_s = now_s
            self._report(delivered, refused)
            if now_s - self._acted_s > CHECK_S and not self._checked():
                break
        self.commits.commit(Delivered(delivered.positions), ())

    @property
    def _target_holds_positions(self) -> bool:
        """Return whether a crash may leave the target's position past a record that is not written yet."""
        return self.sink.entry.database is not None or self.sink.entry.files is not None

    def _bury(self, refused: Sequence[RefusedRecord]) -> None:
        """Append dead-letter records now, before the target moves its position past them."""
        self.commits.bury(refused)
        status = self.sink.status
        status.put(refused=status.note.refused + len(refused))

    def _selected(self, records: Sequence[Record]) -> Selected:
        partitions: set[int] = set()
        for record in records:
            if record.partition not in partitions:
                partitions.add(record.partition)
                self._read.append((record.topic_partition, record.offset, record.timestamp_ms))
        if self._read and self.sink.status.oldest_ms is None:
            self.sink.status.oldest_ms = self._read[0][2]
        return self.selection.select(records) if records else Selected([], [])

    def _checked(self) -> bool:
        """Check the owner's grants again. Returns False if the topic has other partitions now."""
        self.parts.owners.act(self.sink.name, self.sink.entry)
        self._acted_s = time.monotonic()
        source = self.sink.entry.source
        return self.parts.cluster.partition_counts([source]).get(source) == self.partitions

    def _report(self, delivered: Delivered, refused: Sequence[RefusedRecord]) -> None:
        status = self.sink.status
        read, positions = self._read, delivered.positions
        while read and read[0][1] < positions.get(read[0][0]):
            read.popleft()
        status.oldest_ms = read[0][2] if read else None
        status.positions = positions
        if delivered.events or refused:
            note = status.note
            status.put(
                delivered=note.delivered + delivered.events,
                refused=note.refused + len(refused),
                delivered_at_ms=epoch_ms(),
            )


def begin_positions(sink: Sink, commits: Commits, target: Target) -> Positions:
    """Return the positions where reading of the sink's topics begins. Raises Conflict (HUB-1827)."""
    topics, cluster = sink.entry.topics, sink.parts.cluster
    group = commits.read_positions(topics)
    begins, ends = cluster.beginning_offsets(topics), cluster.end_offsets(topics)
    start = ends if sink.entry.start == "now" else begins
    # Partitions that were added to a topic that is read already are read from their first record.
    fresh = begins if len(group) else start
    first = Positions({place: group.offsets.get(place, fresh.get(place)) for place, _ in ends})
    held = target.positions(first)
    check_same_topic(sink.name, held, ends)
    if lost := lost_offsets(held, begins):
        log.error("sink %s: %d offsets are gone before they were delivered", sink.name, lost)
    return Positions({place: max(at, begins.get(place)) for place, at in held})
