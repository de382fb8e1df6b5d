"""[shell] The applier: applies changelogs to a store, in bounded steps.

A step polls, keeps the newest row of each key *before* decoding, and applies rows and positions in one
transaction. While the store's server works, the applier polls and decodes the records of the next step. It
starts from the positions in the store and from nowhere else. A progress record is held back until the store's
changelog positions cover the rows that it describes; then its source positions are covered in the same
transaction.

A changelog record that cannot be decoded, or that the store refuses, stops its own view and no other; the
view's state record in the store gives the reason, whatever the engine reports. A changelog that was recreated
is read from its start into an empty table. When Kafka, the registry or the store is unavailable, the step
fails, and the next one begins at the store's positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from hub.errors import HubError, HubFault, PeerError
from hub.kafka.connection import is_no_answer
from hub.log import Cluster, Reader
from hub.materializers.applying.apply_traces import batch_spans
from hub.materializers.applying.followed_view import (
    AppliedView,
    StepPart,
    due_records,
    next_batch,
    note_applied,
    note_visible_positions,
    report_positions,
    stop_record,
    stop_view,
)
from hub.materializers.applying.group_gate import GroupGate
from hub.materializers.applying.newest_rows import NewestRows, newest_rows, row_changes
from hub.materializers.applying.progress_feed import ProgressFeed
from hub.materializers.applying.view_tables import ApplierSchemas, ViewTables
from hub.materializers.changelog.row_decoder import RowDecoder
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.progress.latency import Latencies
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.snapshot_groups.group import CUT
from hub.materializers.stores.store import Meanwhile, StoreRefused, ViewBatch, ViewStore
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.record import Positions, Record, TopicPartition
from hub.times import epoch_ms

_POLL_S = 0.25
# Defaults: how long rows of a group wait for its snapshot, and how many rows of a view may wait.
CUT_WAIT_S, MOST_WAITING = 10.0, 50_000
_PROGRESS = TopicPartition(PROGRESS_TOPIC, 0)


class ApplierLog(Cluster, Protocol):
    """A cluster that opens readers."""

    def gatherer(self) -> Reader: ...

    def publish_groups(self, positions: Mapping[str, Positions]) -> Mapping[str, PeerError]: ...


@dataclass(frozen=True, slots=True)
class _PolledRecords:
    """One poll: its records by topic, the reader's positions at that time, and what is already decoded by
    changelog.
    """

    records: Mapping[str, Sequence[Record]]
    reached: Positions
    decoded: dict[str, NewestRows] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))


class Applier:
    """One reader, one store, its views. ``step`` does all the work. ``group``: consumer group of a view's
    positions.
    """

    # after a poll of this many records the next poll will not block, so it runs while the store works
    many = 1_000

    def __init__(
        self,
        log_: ApplierLog,
        schemas: ApplierSchemas,
        store: ViewStore,
        group: Callable[[str], str] = "hub.store.{}".format,
        latencies: Latencies | None = None,
        cut_wait_s: float = CUT_WAIT_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.latencies = latencies
        self.clock: Callable[[], float] = time.monotonic
        self.name = "" if latencies is None else latencies.store
        self.log = log_
        self.store = store
        self.group = group
        self.followed: dict[str, AppliedView] = {}
        self.reader: Reader | None = None
        self.stirred = False  # a versions record arrived since this was reset
        self._tables = ViewTables(log_, schemas, store)
        self._gate = GroupGate(cut_wait_s, most_waiting)
        self._feed = ProgressFeed(log_)
        self._decoder = RowDecoder(schemas)
        self._ahead: _PolledRecords | None = None  # polled while the previous step was applied
        self._reported_stops: set[str] = set()

    @property
    def paused(self) -> set[str]:
        """Views of which no more is read, as too many of their rows wait for a group's snapshot."""
        return self._gate.paused

    # ---- which views

    def follow(self, views: Sequence[View | SqlView]) -> None:
        """Follow exactly these views, as far as their changelogs exist; a later call picks up the others."""
        topics = self.log.topics()
        changed = False
        if self.reader is None:
            self._gate.recall(self.store.progress())
        wanted = {view.table for view in views if view.changelog in topics}
        for name in [name for name in self.followed if name not in wanted]:
            del self.followed[name]
            changed = True
            if self.latencies is not None:
                self.latencies.forget([name])
        for view in views:
            if view.changelog not in topics:
                continue
            topic_id = topics[view.changelog].topic_id
            known = self.followed.get(view.table)
            if known is not None and known.view == view and known.topic_id == topic_id:
                continue
            if known is not None:
                del self.followed[view.table]
                changed = True
            applied_view = self._tables.begin(view, topic_id)
            if applied_view is not None:
                self.followed[view.table] = applied_view
                changed = True
        for key in self._gate.forget({view.group for view in views}):
            self.store.apply([], {key: None})
        if self.reader is None or changed:
            self._assign(self._feed.restart(exists=PROGRESS_TOPIC in topics))

    def retry_stopped(self) -> None:
        """Let the next ``follow`` retry the stopped views."""
        self.followed = {name: each for name, each in self.followed.items() if each.stopped is None}

    def publish(self, before: Mapping[str, Positions]) -> Mapping[str, Positions]:
        """Publish the views' positions as consumer groups, for other tools, where they changed since
        ``before``. Return what is published now: the former position of a group without an answer. Raises
        PeerError when Kafka does not answer at all.
        """
        now = {name: each.position for name, each in list(self.followed.items())}
        changed = {name: at for name, at in now.items() if before.get(name) != at}
        unwritten = self.log.publish_groups({self.group(name): at for name, at in changed.items()})
        again = {name for name in changed if is_no_answer(unwritten.get(self.group(name)))}
        return {name: before.get(name, Positions()) if name in again else at for name, at in now.items()}

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = self._ahead = None

    def _assign(self, progress: Positions) -> None:
        """Assign the reader: views at their positions, and the progress topic at ``progress``."""
        at = {
            tp: offset
            for name, each in self.followed.items()
            if not each.stopped and name not in self.paused
            for tp, offset in each.read
        }
        if self.reader is None:
            self.reader = self.log.gatherer()
        self._ahead = None
        self.reader.assign(Positions({**at, **progress.offsets}))

    # ---- a step

    def step(self, timeout_s: float = _POLL_S) -> int:
        """Apply available records, at most the store's batch size. Return the number read; 0 after
        ``timeout_s``.
        """
        if self.reader is None:
            return 0
        taken, self._ahead = self._ahead or self._poll(self.reader, timeout_s), None
        count, reached = taken.count, taken.reached
        for record in taken.records.get(PROGRESS_TOPIC, ()):
            self._take_record(record)
        records = self._feed.take(reached)
        self.stirred = self.stirred or any(key.startswith(VERSIONS) for key in records)
        running = [each for each in self.followed.values() if each.stopped is None]
        for followed in running:
            followed.ahead += taken.records.get(followed.view.changelog, ())
            followed.read = followed.read.advanced(reached.of_topics([followed.view.changelog]))
        parts = self._gate.parts(self.followed, records, self.clock())
        batches = self._batches(running, parts, taken, records)
        batches = self._gate.only_whole(batches, parts, self.followed, records)
        traced = batch_spans(self.name, self.followed, batches, records)
        self._apply(batches, records, self._read_ahead if count >= self.many else None)
        now_ms = epoch_ms()
        for name, span in traced.items():
            span.end("refused" if self.followed[name].stopped else "")
        for batch in batches:
            followed = self.followed[batch.view]
            if followed.stopped is None:
                self._count(followed, now_ms)
                note_applied(followed, batch, parts[batch.view])
        self._gate.note_applied(records, self.followed)
        if any(each.stopped for each in running):
            # Without versions that nobody applies any more.
            self._assign(self._feed.restart(exists=_PROGRESS in reached.offsets))
        if self._gate.pause(self.followed):
            self._assign(reached.of_topics([PROGRESS_TOPIC]))
        return count

    def _take_record(self, record: Record) -> None:
        """Take a record of the progress topic. Progress is also kept until it is covered."""
        taken = self._feed.take_record(record)
        if taken is None:
            return
        if taken.snapshot is not None:
            self._gate.take_snapshot(taken.name, taken.snapshot, record.offset)
            return
        if taken.key.startswith(CUT):
            self._gate.drop(taken.name)
        changelog = changelog_of(taken.name)
        followed = next((each for each in self.followed.values() if each.view.changelog == changelog), None)
        if followed is not None and taken.progress is not None:
            followed.take_progress(taken.progress)

    def _batches(
        self,
        running: Sequence[AppliedView],
        parts: Mapping[str, StepPart],
        taken: _PolledRecords,
        records: dict[str, Any],
    ) -> list[ViewBatch]:
        """Return the views' parts of a step. A view whose rows cannot be decoded is stopped."""
        batches: list[ViewBatch] = []
        for followed in running:
            part = parts.get(followed.view.table)
            if part is None:
                continue  # its rows wait for a group snapshot
            try:
                batch = self._batch(followed, part, taken.decoded.get(followed.view.changelog))
            except HubFault as fault:
                stop_view(followed, fault.message)
            else:
                if batch is not None:
                    batches.append(batch)
                    if followed.view.mode == "realtime":
                        note_visible_positions(followed, batch)
            report_positions(followed, records)
            self._tables.note_whole(followed, records)
        return batches

    def _batch(self, followed: AppliedView, part: StepPart, decoded: NewestRows | None) -> ViewBatch | None:
        """Return one view's part of a step; None when nothing changes. Raises HubFault with topic, partition
        and offset.
        """
        due = due_records(followed, part)
        if decoded is None or not decoded.is_of(due):
            decoded = newest_rows(self._decoder, due, every=followed.view.history_ms is not None)
        self._tables.know_schemas(followed, [record for _, record in decoded.records])
        changes, followed.due = row_changes(decoded, sampled=self.latencies is not None)
        return next_batch(followed, part, changes)

    def _poll(self, reader: Reader, timeout_s: float) -> _PolledRecords:
        by_topic: dict[str, list[Record]] = {}
        for record in reader.poll(self.store.rhythm.records, timeout_s):
            by_topic.setdefault(record.topic, []).append(record)
        return _PolledRecords(by_topic, reader.position())

    def _read_ahead(self) -> None:
        """Poll and decode for the next step. Errors are ignored here, because the next step meets them
        itself.
        """
        if self.reader is None:
            return
        with suppress(HubError):
            taken = self._poll(self.reader, 0.0)
            if not taken.records:
                return
            self._ahead = taken
            for each in self.followed.values():
                records = taken.records.get(each.view.changelog)
                if records and each.stopped is None and each.view.group is None:
                    every = each.view.history_ms is not None
                    taken.decoded[each.view.changelog] = newest_rows(self._decoder, records, every=every)

    def _count(self, followed: AppliedView, now_ms: int) -> None:
        """Count the latency of the events that are readable now."""
        if self.latencies is None:
            return
        # Rows of SQL views name no events, except stateless ones in real time. Real-time views that group
        # events are not counted: their positions are reported at checkpoints, which is not a delay of rows.
        if isinstance(followed.view, SqlView) and followed.view.mode != "realtime":
            self.latencies.covered(followed.view.table, followed.covered, now_ms)
        else:
            self.latencies.applied(followed.view.table, followed.due, now_ms)
            self.latencies.record_progress(followed.view.table, followed.covered)

    def _apply(
        self, batches: Sequence[ViewBatch], records: dict[str, Any], meanwhile: Meanwhile | None
    ) -> None:
        """Apply all batches in one transaction; one view at a time when the store refuses, to stop only that
        view.
        """
        refused = False
        try:
            applied = self._with_stops(records)
            if batches or applied:
                self.store.apply(batches, applied, meanwhile)
        except StoreRefused:
            refused = True
        if not refused:
            return
        for batch in batches:
            try:
                self.store.apply([batch])
            except StoreRefused as error:
                stop_view(self.followed[batch.view], error.message)
        self.store.apply([], self._with_stops(records))

    def _with_stops(self, records: dict[str, Any]) -> dict[str, Any]:
        """Return the store's records; those of stopped views have the reason and override the engine's."""
        stopped = {f"state:{name}": stop_record(each) for name, each in self.followed.items() if each.stopped}
        unreported = stopped.keys() - self._reported_stops
        self._reported_stops = set(stopped)
        return {**records, **{key: stopped[key] for key in stopped if key in records or key in unreported}}
