"""[shell] The applier: applies changelogs to a store, in bounded steps.

A step polls, keeps the newest row of each key *before* decoding, and applies rows and positions in one
transaction. While the store's server works, the applier polls and decodes the records of the next step. It
starts from the positions in the store and from nowhere else. A progress record is held back until the store's
changelog positions cover the rows that it describes; then its source positions are covered in the same
transaction. Positions that an earlier generation covered do not hold for a later one's rows, so its progress
is dropped once those are there.

A changelog record that cannot be decoded, or that the store refuses, stops its own view and no other; the
view's state record in the store gives the reason, whatever the engine reports. A changelog that was recreated
is read from its start into an empty table. When Kafka, the registry or the store is unavailable, the step
fails, and the next one begins at the store's positions.

Views of one snapshot group (``cut`` in their files) are applied at the group's snapshots, all in one
transaction, which also notes the snapshot. Rows past it wait in memory, within bounds
(snapshot_groups/barrier.py).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from hub.errors import CallerError, HubError, HubFault, NotFound, PeerError
from hub.log import Cluster, Reader, tombstones_kept_ms
from hub.materializers.changelog.record import GENERATION_SHIFT, key_of, version_of
from hub.materializers.changelog.row_decoder import DecodedRow, RowDecoder, provenance, unreadable
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.progress.engine_reports import PREFIX as ENGINE
from hub.materializers.progress.latency import MOST_ROWS, ChangedRow, Latencies, latest_event
from hub.materializers.progress.records import (
    PROGRESS_TOPIC,
    Progress,
    ViewState,
    position_record,
    progress_of,
)
from hub.materializers.snapshot_groups.barrier import GroupBarrier, MemberStanding
from hub.materializers.snapshot_groups.group import CUT, GroupSnapshot, group_snapshot_of
from hub.materializers.stores.store import Meanwhile, RowVersion, StoreRefused, ViewBatch, ViewStore
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.record import Positions, Record, TopicPartition
from hub.schema_registry.client.port import RegisteredSchema
from hub.tracing import MOST_LINKS, Span, parse, spans

log = logging.getLogger(__name__)

_POLL_S = 0.25
# Interval of reporting the source positions that a real-time view's rows show; between its checkpoints the
# engine reports none.
_SEEN_EVERY_MS = 500
# ``whole:<table>`` in a store: when it last had everything in a view's changelog, to an hour.
WHOLE = "whole:"
_WHOLE_EVERY_MS = 3_600_000
# Applied batches of a view whose trace contexts the store keeps, for subscriptions that push their rows.
MOST_TRACED = 16
# Defaults: how long rows of a group wait for its snapshot, and how many rows of a view may wait.
CUT_WAIT_S, MOST_WAITING = 10.0, 50_000
_PROGRESS = TopicPartition(PROGRESS_TOPIC, 0)


class ApplierLog(Cluster, Protocol):
    """A cluster that opens readers."""

    def gatherer(self) -> Reader: ...

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]: ...

    def publish_group(self, group: str, positions: Positions) -> None: ...


class ApplierSchemas(Protocol):
    """Interface of the schema registry for the applier."""

    def schema(self, schema_id: int) -> str: ...

    def latest(self, subject: str) -> RegisteredSchema: ...


@dataclass
class _AppliedView:
    """A view whose changelog is applied: its position, and its progress records that are not covered yet.

    ``generation`` is the latest one of its rows; ``swept`` the one whose missing rows are already removed.
    """

    view: View | SqlView
    position: Positions
    topic_id: str
    schema_ids: set[int]
    generation: int = 0
    swept: int = 0
    waiting: list[Progress] = field(default_factory=list)
    seen: Positions = field(default_factory=Positions)
    seen_told: Positions = field(default_factory=Positions)
    seen_told_ms: int = 0
    asked_whole_ms: int = 0
    stopped: str | None = None
    stopped_at_ms: int = 0
    due: list[ChangedRow] = field(default_factory=list)
    covered: list[Progress] = field(default_factory=list)
    traced: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_TRACED))
    traced_to: Positions | None = None
    sources: Positions = field(default_factory=Positions)  # covered, as far as it was applied here
    # Read but not applied: rows of a group that wait for its snapshot. ``read``: position of the next read.
    read: Positions = field(default_factory=Positions)
    ahead: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.read = self.position

    @property
    def standing(self) -> MemberStanding:
        return MemberStanding(self.position, self.read, len(self.ahead), self.stopped is not None)


@dataclass(frozen=True, slots=True)
class _Newest:
    """Newest record of each key of a changelog's records, with its version, and the rows (None: deleted)."""

    of: Sequence[Record]
    records: Sequence[tuple[int, Record]]
    rows: Sequence[DecodedRow | None]

    def is_of(self, records: Sequence[Record]) -> bool:
        """Return whether these are the records. A step's records of one changelog are contiguous."""
        return len(records) == len(self.of) and records[0] is self.of[0]


@dataclass(frozen=True, slots=True)
class _PolledRecords:
    """One poll: its records by topic, the reader's positions at that time, and what is already decoded by
    changelog.
    """

    records: Mapping[str, Sequence[Record]]
    reached: Positions
    decoded: dict[str, _Newest] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))


@dataclass
class _StepPart:
    """Part of a view's rows that a step applies: those before ``end``. ``cut``: the group snapshot they
    complete.
    """

    end: Positions
    cut: GroupSnapshot | None = None


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
        self.cut_wait_s, self.most_waiting = cut_wait_s, most_waiting
        self.holds: dict[str, GroupBarrier] = {}
        self.paused: set[str] = set()
        self.said_apart: dict[str, str] = {}
        self.clock: Callable[[], float] = time.monotonic
        self.name = "" if latencies is None else latencies.store
        self.log = log_
        self.schemas = schemas
        self.store = store
        self.group = group
        self.followed: dict[str, _AppliedView] = {}
        self.reader: Reader | None = None
        self._ahead: _PolledRecords | None = None  # polled while the previous step was applied
        self._decoder = RowDecoder(schemas)
        self._said: set[str] = set()
        # Progress records that are not in the store yet: the topic is reread up to here and may hold old
        # records.
        self._heard: dict[str, Any] = {}
        self._past_ends = Positions()
        self.stirred = False  # a versions record arrived since this was reset

    def follow(self, views: Sequence[View | SqlView]) -> None:
        """Follow exactly these views, as far as their changelogs exist; a later call picks up the others."""
        topics = self.log.topics()
        changed = False
        if self.reader is None:
            self._recall()
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
            found = self._begin(view, topic_id)
            if found is not None:
                self.followed[view.table] = found
                changed = True
        self._forget({view.cut for view in views})
        if self.reader is None or changed:
            self._assign(self._whole_progress(PROGRESS_TOPIC in topics))

    def _recall(self) -> None:
        """Restore the group snapshots that the store is at; rows are held from the first one on."""
        for key, body in self.store.progress().items():
            if key.startswith(CUT) and body.get("state") == "together":
                try:
                    cut = group_snapshot_of(body)
                except HubFault as fault:
                    log.error("%s: %s", key, fault.message)
                    continue
                hold = self._hold(key.removeprefix(CUT))
                hold.cut = hold.at = cut

    def _forget(self, names: AbstractSet[str | None]) -> None:
        """Drop groups that no view belongs to."""
        for name in [name for name in self.holds if name not in names]:
            hold = self.holds.pop(name)
            if hold.at is not None or hold.why is not None:
                self.store.apply([], {f"{CUT}{name}": None})

    def _hold(self, name: str) -> GroupBarrier:
        return self.holds.setdefault(name, GroupBarrier(name, self.cut_wait_s, self.most_waiting))

    def _begin(self, view: View | SqlView, topic_id: str) -> _AppliedView | None:
        """Return the store's state of a view, its table created or extended; None while its schema is not
        registered.
        """
        try:
            latest = self.schemas.latest(f"{view.changelog}-value")
        except NotFound:
            return None
        start = self.log.beginning_offsets([view.changelog])
        try:
            fresh = self._fit(view, topic_id, latest)
            whole = self.store.progress().get(f"{WHOLE}{view.table}")
            if not fresh and self._missed_deletes(view, whole):
                self.store.drop_view(view.table)
                fresh = self._fit(view, topic_id, latest)
            if fresh and whole:
                self.store.apply([], {f"{WHOLE}{view.table}": None})
        except (StoreRefused, CallerError) as error:  # only this view's table is impossible
            followed = _AppliedView(view, start, topic_id, set())
            self.store.apply([], {f"state:{view.table}": self._stop(followed, error.message)})
            return followed
        at = start if fresh else start.advanced(self.store.positions(view.table, "changelog"))
        log.info("view %s: applied from %s%s", view.table, at, " (table made anew)" if fresh else "")
        generation = 0 if fresh else self.store.newest_version(view.table) >> GENERATION_SHIFT
        return _AppliedView(view, at, topic_id, {latest.id}, generation)

    def _fit(self, view: View | SqlView, topic_id: str, latest: RegisteredSchema) -> bool:
        """Make the table fit the changelog's latest schema. True when it must be filled from the start."""
        schema = orjson.loads(latest.schema)
        columns = {each["name"] for each in schema["fields"]}
        # A file may name an index whose field the engine has not published yet.
        indexes = [index for index in view.kept_indexes if index in columns]
        return self.store.ensure_view(view.table, schema, indexes, topic_id)

    def _missed_deletes(self, view: View | SqlView, whole: Mapping[str, Any] | None) -> bool:
        """Return whether compaction may have removed deletes that the store has not read.

        Such rows would stay in the store for ever, so the table is then refilled. ``whole``: when the store
        last had everything.
        """
        end = self.log.end_offsets([view.changelog])
        if not whole or self.store.positions(view.table, "changelog").covers(end):
            return False
        away_ms = time.time_ns() // 1_000_000 - int(whole["at_ms"])
        kept_ms = tombstones_kept_ms(self.log, view.changelog)
        if kept_ms is None or away_ms <= kept_ms // 2:
            return False
        hours = away_ms // 3_600_000
        log.warning(
            "view %s: last complete here %d h ago: deletes may be gone from its changelog", view.table, hours
        )
        return True

    def _tell_whole(self, followed: _AppliedView, told: dict[str, Any]) -> None:
        """Record from time to time that the store has everything."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms - followed.asked_whole_ms < _WHOLE_EVERY_MS:
            return
        followed.asked_whole_ms = now_ms
        with suppress(HubError):  # the topic may be gone by now
            if followed.position.covers(self.log.end_offsets([followed.view.changelog])):
                told[f"{WHOLE}{followed.view.table}"] = {"at_ms": now_ms}

    def _whole_progress(self, there: bool) -> Positions:
        """Read the progress topic (one small compacted partition) from its start, whenever the set of views
        changes.
        """
        if not there:
            return Positions()
        self._past_ends, self._heard = self.log.end_offsets([PROGRESS_TOPIC]), {}
        return self.log.beginning_offsets([PROGRESS_TOPIC])

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

    def step(self, timeout_s: float = _POLL_S) -> int:
        """Apply available records, at most the store's batch size. Return the number read; 0 after
        ``timeout_s``.
        """
        if self.reader is None:
            return 0
        taken, self._ahead = self._ahead or self._poll(self.reader, timeout_s), None
        count, reached = taken.count, taken.reached
        for record in taken.records.get(PROGRESS_TOPIC, ()):
            self._hear(record, self._heard)
        told = self._newest_told(reached)
        running = [each for each in self.followed.values() if each.stopped is None]
        for followed in running:
            followed.ahead += taken.records.get(followed.view.changelog, ())
            followed.read = followed.read.advanced(reached.of_topics([followed.view.changelog]))
        parts = self._parts(told)
        batches = []
        for followed in running:
            part = parts.get(followed.view.table)
            if part is None:
                continue  # its rows wait for a group snapshot
            try:
                batch = self._batch(followed, part, taken.decoded.get(followed.view.changelog))
            except HubFault as fault:
                self._stop(followed, fault.message)
            else:
                if batch is not None:
                    batches.append(batch)
                    if followed.view.mode == "realtime":
                        _see(followed, batch)
            _report_positions(followed, told)
            self._tell_whole(followed, told)
        batches = self._whole(batches, parts, told)
        traced = self._traced(batches, told)
        self._apply(batches, told, self._read_ahead if count >= self.many else None)
        now_ms = time.time_ns() // 1_000_000
        for name, span in traced.items():
            span.end("refused" if self.followed[name].stopped else "")
        for batch in batches:
            followed = self.followed[batch.view]
            if followed.stopped is None:
                self._count(followed, now_ms)
                followed.position = batch.changelog
                followed.sources = followed.sources.advanced(batch.sources)
                cut = parts[batch.view].cut
                waiting = () if cut is None else followed.ahead
                followed.ahead = [each for each in waiting if _behind(each, batch.changelog)]
                followed.swept = max(followed.swept, batch.expire_below >> GENERATION_SHIFT)
        self._note_cuts(told)
        if any(each.stopped for each in running):
            # Without versions that nobody applies any more.
            self._assign(self._whole_progress(_PROGRESS in reached.offsets))
        self._pause(reached)
        return count

    def _newest_told(self, reached: Positions) -> dict[str, Any]:
        """Return the newest progress record of each key; {} until everything known before is reread.

        A compacted topic keeps a key's old records for a while; an old versions record would have current
        tables dropped.
        """
        if not reached.covers(self._past_ends):
            return {}
        told, self._heard = self._heard, {}
        self.stirred = self.stirred or any(key.startswith(VERSIONS) for key in told)
        return told

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
                if records and each.stopped is None and each.view.cut is None:
                    taken.decoded[each.view.changelog] = self._newest(records)

    # ---- groups

    def _members(self, name: str) -> dict[str, MemberStanding]:
        return {table: each.standing for table, each in self.followed.items() if each.view.cut == name}

    def _parts(self, told: dict[str, Any]) -> dict[str, _StepPart]:
        """Return the end of each view's rows that may be applied now; views that wait for a snapshot are left
        out.
        """
        parts = {table: _StepPart(each.read) for table, each in self.followed.items()}
        for name, hold in self.holds.items():
            members = self._members(name)
            verdict, cut = hold.judge(members, self.clock()), hold.cut
            if verdict == "free" or cut is None:
                self._say_apart(hold, told)
                continue
            mine = [table for table in cut.views if table in members]
            for table in mine:
                if verdict == "apply":
                    parts[table] = _StepPart(cut.views[table].changelog, cut)
                else:
                    del parts[table]
            if verdict == "apply":
                # Only the members in this store: nobody can check the others.
                here = {**cut.body(), "state": "together"}
                here["views"] = {table: place for table, place in here["views"].items() if table in mine}
                told[f"{CUT}{name}"] = here
        return parts

    def _say_apart(self, hold: GroupBarrier, told: dict[str, Any]) -> None:
        """Note that the group is apart, in the transaction with the first rows outside a snapshot; once per
        reason.
        """
        if hold.why is None or self.said_apart.get(hold.name) == hold.why:
            return
        self.said_apart[hold.name] = hold.why
        log.warning("group %s: its views are applied as their rows come: %s", hold.name, hold.why)
        since_ms = time.time_ns() // 1_000_000
        told[f"{CUT}{hold.name}"] = {"state": "apart", "why": hold.why, "since_ms": since_ms}

    def _whole(
        self, batches: list[ViewBatch], parts: Mapping[str, _StepPart], told: dict[str, Any]
    ) -> list[ViewBatch]:
        """Remove batches and snapshots of groups in which a member stopped in this step; the groups are apart."""
        broken = {
            part.cut.name: table
            for table, part in parts.items()
            if part.cut is not None and self.followed[table].stopped is not None
        }
        for name, table in broken.items():
            told.pop(f"{CUT}{name}", None)
            hold = self.holds[name]
            hold.part(f'view "{table}" is stopped in this store')
            self._say_apart(hold, told)
        return [each for each in batches if (cut := parts[each.view].cut) is None or cut.name not in broken]

    def _note_cuts(self, told: Mapping[str, Any]) -> None:
        """Mark group snapshots as applied, after their transaction."""
        for name, hold in self.holds.items():
            noted = told.get(f"{CUT}{name}")
            if noted is None or noted.get("state") != "together" or hold.cut is None:
                continue
            stopped = next((table for table in noted["views"] if self.followed[table].stopped), None)
            if stopped is not None:  # the store refused its rows
                hold.part(f'view "{stopped}" is stopped in this store')
                continue
            hold.applied()
            self.said_apart.pop(name, None)

    def _pause(self, reached: Positions) -> None:
        """Pause reading of views with too many waiting rows."""
        full = {table for name, hold in self.holds.items() for table in hold.full(self._members(name))}
        if full != self.paused:
            self.paused = full
            self._assign(reached.of_topics([PROGRESS_TOPIC]))

    def _traced(self, batches: Sequence[ViewBatch], told: dict[str, Any]) -> dict[str, Span]:
        """Return a span for each batch that covers traced progress, linked to it.

        The span's context is stored with the rows and the changelog range that it covers; a push finds it by
        that.
        """
        known, found = spans(), {}
        for batch in batches if known is not None else ():
            followed = self.followed[batch.view]
            links = [trace for each in followed.covered if (trace := parse(each.trace)) is not None]
            if known is None or not links:
                continue
            span = known.start(
                f"apply {batch.view}",
                "consumer",
                links=links[-MOST_LINKS:],
                attributes={
                    "messaging.system": "kafka",
                    "messaging.operation.type": "process",
                    "messaging.operation.name": "apply",
                    "messaging.destination.name": followed.view.changelog,
                    "messaging.batch.message_count": len(batch.changes),
                    "hub.view": batch.view,
                    "hub.store": self.name,
                },
            )
            end = followed.covered[-1].changelog
            if followed.traced_to is not None:
                stretch = {"first": _by_partition(followed.traced_to), "end": _by_partition(end)}
                followed.traced.append({"traceparent": span.trace.traceparent, **stretch})
                told[f"trace:{batch.view}"] = {"batches": list(followed.traced)}
            followed.traced_to = end
            found[batch.view] = span
        return found

    def _count(self, followed: _AppliedView, now_ms: int) -> None:
        """Count the latency of the events that are readable now."""
        if self.latencies is None:
            return
        # Rows of SQL views name no events, except stateless ones in real time. Real-time views that group
        # events are not counted: their positions are reported at checkpoints, which is not a delay of rows.
        if isinstance(followed.view, SqlView) and followed.view.mode != "realtime":
            self.latencies.covered(followed.view.table, followed.covered, now_ms)
        else:
            self.latencies.applied(followed.view.table, followed.due, now_ms)
            self.latencies.told(followed.view.table, followed.covered)

    def _apply(self, batches: Sequence[ViewBatch], told: dict[str, Any], meanwhile: Meanwhile | None) -> None:
        """Apply all batches in one transaction; one view at a time when the store refuses, to stop only that
        view.
        """
        refused = False
        try:
            applied = self._with_stops(told)
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
                self._stop(self.followed[batch.view], error.message)
        self.store.apply([], self._with_stops(told))

    def _with_stops(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return the store's records; those of stopped views have the reason and override the engine's."""
        stopped = {f"state:{name}": _state(each) for name, each in self.followed.items() if each.stopped}
        unsaid = stopped.keys() - self._said
        self._said = set(stopped)
        return {**told, **{key: stopped[key] for key in stopped if key in told or key in unsaid}}

    def _stop(self, followed: _AppliedView, reason: str) -> dict[str, Any]:
        followed.stopped, followed.stopped_at_ms = reason, time.time_ns() // 1_000_000
        log.error("view %s stops: %s", followed.view.table, reason)
        return _state(followed)

    def _hear(self, record: Record, told: dict[str, Any]) -> None:
        """Take a progress or state record. Progress is also kept until it is covered."""
        if record.key is None:
            return
        key = record.key.decode(errors="replace")
        if key.startswith(ENGINE):
            return  # the server reads it from the log; a copy in a store may be old
        name = key.partition(":")[2]
        try:
            said = None if record.value is None else orjson.loads(record.value)
            if said is not None and not isinstance(said, dict):
                raise ValueError("no JSON object")
            if key.startswith(CUT) and said is not None:
                self._hold(name).hear(group_snapshot_of(said), record.offset)
                return  # the store notes it once its rows are applied
            progress = progress_of(record, changelog_of(name))
        except (ValueError, HubFault) as error:
            # It concerns one view and holds no rows: stopping would not help.
            log.error(
                'topic "%s" partition %d offset %d: left out: %s',
                *(record.topic, record.partition, record.offset, error),
            )
            return
        if key.startswith(CUT):  # the group was deleted
            self.holds.pop(name, None)
        told[key] = said
        of_it = changelog_of(name)
        followed = next((each for each in self.followed.values() if each.view.changelog == of_it), None)
        if followed is not None and progress is not None:
            followed.waiting = [*followed.waiting[-63:], progress]

    def _batch(self, followed: _AppliedView, part: _StepPart, decoded: _Newest | None) -> ViewBatch | None:
        """Return one view's part of a step; None when nothing changes. Raises HubFault."""
        changelog, cut = part.end, part.cut
        taken = followed.ahead  # all of them, outside a group: the usual case checks no record
        if cut is not None:
            taken = [each for each in taken if not _behind(each, changelog)]
        changes = self._changes(followed, taken, decoded)
        newest = max((change.version for change in changes), default=0) >> GENERATION_SHIFT
        followed.generation = max(followed.generation, newest)
        covered = [each for each in followed.waiting if changelog.covers(each.changelog)]
        followed.waiting = [each for each in followed.waiting if each not in covered]
        latest = max([followed.generation, *(each.generation for each in covered)])
        covered = [each for each in covered if each.generation == latest]
        followed.covered = covered
        if cut is None and not changes and not covered and changelog == followed.position:
            return None
        sources = Positions()
        for progress in covered:
            sources = sources.advanced(progress.sources)
        # A generation that went live has every key: rows of an earlier one are gone from the view.
        live = max((each.generation for each in covered if each.mode != "bulk"), default=0)
        if cut is not None:  # its members are live, and a progress record may come after it
            live = max(live, cut.views[followed.view.table].generation)
            # And one that came with it may name later events, which have no rows yet.
            sources = cut.sources(followed.view.table).advanced(followed.sources)
        expire_below = live << GENERATION_SHIFT if live > followed.swept else 0
        return ViewBatch(followed.view.table, changes, changelog, sources, expire_below)

    def _newest(self, records: Sequence[Record]) -> _Newest:
        """Return the newest row of each key, decoded. Raises HubFault with topic, partition and offset."""
        newest: dict[bytes, tuple[int, Record]] = {}
        for record in records:
            version = version_of(record)
            if record.key is None:
                raise unreadable(record, record.unread or "it has no key")
            if record.key not in newest or newest[record.key][0] < version:
                newest[record.key] = (version, record)
        kept = list(newest.values())
        return _Newest(records, kept, self._decoder.rows([record for _, record in kept]))

    def _changes(
        self, followed: _AppliedView, records: Sequence[Record], decoded: _Newest | None
    ) -> list[RowVersion]:
        """Return the newest change of each key. Raises HubFault with topic, partition and offset."""
        if decoded is None or not decoded.is_of(records):
            decoded = self._newest(records)
        newest = decoded.records
        self._know_schemas(followed, [record for _, record in newest])
        changes, followed.due = [], []
        every = -(-len(newest) // MOST_ROWS) if self.latencies is not None else 0
        for index, ((version, record), row) in enumerate(zip(newest, decoded.rows, strict=True)):
            origins = provenance(record) if row is None else row.get("_sources")
            changes.append(RowVersion(key_of(record), version, record.partition, record.offset, row, origins))
            if every and index % every == 0:
                event = latest_event(origins) if isinstance(origins, dict) else None
                if event is not None:
                    count = min(every, len(newest) - index)
                    followed.due.append(ChangedRow(*event, record.timestamp_ms, count))
        return changes

    def _know_schemas(self, followed: _AppliedView, records: Sequence[Record]) -> None:
        """Add the columns of an unknown schema to the table before its rows are applied."""
        seen = {int.from_bytes(record.value[1:5], "big") for record in records if record.value is not None}
        if seen <= followed.schema_ids:
            return
        view = followed.view
        try:
            fresh = self._fit(view, followed.topic_id, self.schemas.latest(f"{view.changelog}-value"))
        except (StoreRefused, CallerError) as error:
            raise unreadable(records[0], f"its table cannot be made for it: {error.message}") from None
        if fresh:
            raise PeerError(
                f"view {view.name}: a column changed its type; its table is filled anew", code="HUB-3051"
            )
        followed.schema_ids |= seen

    def publish(self, before: Mapping[str, Positions]) -> Mapping[str, Positions]:
        """Publish the views' positions as consumer groups, for other tools, where they changed since
        ``before``.
        """
        now = {name: each.position for name, each in list(self.followed.items())}
        for name, position in now.items():
            if before.get(name) != position:
                self.log.publish_group(self.group(name), position)
        return now

    def retry_stopped(self) -> None:
        """Let the next ``follow`` retry the stopped views."""
        self.followed = {name: each for name, each in self.followed.items() if each.stopped is None}

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = self._ahead = None


def _state(followed: _AppliedView) -> dict[str, Any]:
    """Return the store's state record of a view that stopped here."""
    view = followed.view
    sources = {name: source.topic for name, source in view.sources.items()}
    state = ViewState(
        view.table,
        "failed",
        followed.stopped_at_ms,
        followed.stopped,
        view.doc,
        view.owner,
        sources,
        view.ttl,
        view.cut,
    )
    said: dict[str, Any] = orjson.loads(state.record().value or b"{}")
    return said


def _behind(record: Record, end: Positions) -> bool:
    """Return whether a record is at or past an end."""
    return record.offset >= end.get(record.topic_partition)


def _by_partition(positions: Positions) -> dict[str, int]:
    return {str(tp.partition): offset for tp, offset in positions}


def _see(followed: _AppliedView, batch: ViewBatch) -> None:
    """Advance the source positions that the rows' provenance shows. A lower bound for lag only.

    It does not prove that all earlier events are read.
    """
    shown: dict[TopicPartition, int] = {}
    for change in batch.changes:
        for origin in filter(None, (change.sources or {}).values()):
            at = TopicPartition(origin["topic"], origin["partition"])
            shown[at] = max(origin["offset"] + 1, shown.get(at, 0))
    followed.seen = followed.seen.advanced(Positions(shown))


def _report_positions(followed: _AppliedView, told: dict[str, Any]) -> None:
    now = time.time_ns() // 1_000_000
    if followed.seen != followed.seen_told and now - followed.seen_told_ms >= _SEEN_EVERY_MS:
        followed.seen_told, followed.seen_told_ms = followed.seen, now
        told[f"seen:{followed.view.table}"] = position_record(followed.seen, now)


class ViewFiles:
    """The project's views by file. A file is reread only when it changed; one that fails to load keeps its
    last view.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self._known: dict[Path, tuple[tuple[int, int], View | SqlView | None]] = {}

    def views(self) -> list[View | SqlView]:
        found: dict[Path, tuple[tuple[int, int], View | SqlView | None]] = {}
        for path in view_files(self.project):
            try:
                stat = path.stat()
            except OSError:
                continue  # removed meanwhile
            mark = (stat.st_mtime_ns, stat.st_size)
            known = self._known.get(path)
            if known is None or known[0] != mark:
                known = (mark, _loaded(path) or (known[1] if known is not None else None))
            found[path] = known
        self._known = found
        return [view for _, view in found.values() if view is not None]


def _loaded(path: Path) -> View | SqlView | None:
    """Load a view; None on an error, which the materializer reports."""
    try:
        return load_view(path)
    except (HubError, OSError) as error:
        log.debug("%s", error)
        return None
