"""[shell] A view whose changelog is applied, and which of its rows and progress a step applies."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.progress.latency import ChangedRow
from hub.materializers.progress.records import Progress, ViewState, position_record
from hub.materializers.snapshot_groups.barrier import MemberStanding
from hub.materializers.snapshot_groups.group import GroupSnapshot
from hub.materializers.stores.store import BatchMark, RowVersion, ViewBatch
from hub.record import Positions, Record, TopicPartition
from hub.times import epoch_ms

log = logging.getLogger(__name__)

# Applied batches of a view whose trace contexts the store keeps, for subscriptions that push their rows.
MOST_TRACED = 16
# Interval of reporting the source positions that a real-time view's rows show; between its checkpoints the
# engine reports none.
_VISIBLE_EVERY_MS = 500
# Progress records of a view that wait for their rows.
_MOST_PROGRESS = 64


@dataclass
class AppliedView:
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
    visible: Positions = field(default_factory=Positions)
    visible_reported: Positions = field(default_factory=Positions)
    visible_reported_ms: int = 0
    whole_noted_ms: int = 0
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

    def take_progress(self, progress: Progress) -> None:
        """Keep progress until the rows that it describes are applied."""
        self.waiting = [*self.waiting[1 - _MOST_PROGRESS :], progress]

    @property
    def standing(self) -> MemberStanding:
        return MemberStanding(self.position, self.read, len(self.ahead), self.stopped is not None)


@dataclass
class StepPart:
    """Part of a view's rows that a step applies: those before ``end``. ``cut``: the group snapshot they
    complete.
    """

    end: Positions
    cut: GroupSnapshot | None = None


def next_batch(followed: AppliedView, part: StepPart, changes: Sequence[RowVersion]) -> ViewBatch | None:
    """Return one view's part of a step; None when nothing changes.

    ``changes``: its newest rows before ``part.end``. Takes the progress that these rows cover out of
    ``followed.waiting`` into ``followed.covered``. Positions that an earlier generation covered do not hold
    for a later one's rows, so its progress is dropped once those are there.
    """
    changelog, cut = part.end, part.cut
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
    marks = [BatchMark(each.changelog, each.sources, each.committed_at_ms) for each in covered]
    return ViewBatch(followed.view.table, changes, changelog, sources, expire_below, marks)


def note_applied(followed: AppliedView, batch: ViewBatch, part: StepPart) -> None:
    """Advance a view behind the transaction that applied its batch."""
    followed.position = batch.changelog
    followed.sources = followed.sources.advanced(batch.sources)
    waiting = () if part.cut is None else followed.ahead
    followed.ahead = [each for each in waiting if is_behind(each, batch.changelog)]
    followed.swept = max(followed.swept, batch.expire_below >> GENERATION_SHIFT)


def due_records(followed: AppliedView, part: StepPart) -> Sequence[Record]:
    """Return the records that a step applies: all of them, outside a group, without a look at each."""
    if part.cut is None:
        return followed.ahead
    return [each for each in followed.ahead if not is_behind(each, part.end)]


def stop_record(followed: AppliedView) -> dict[str, Any]:
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
        view.group,
    )
    body: dict[str, Any] = orjson.loads(state.record().value or b"{}")
    return body


def stop_view(followed: AppliedView, reason: str) -> dict[str, Any]:
    """Stop a view in this store, and return the store's state record of it."""
    followed.stopped, followed.stopped_at_ms = reason, epoch_ms()
    log.error("view %s stops: %s", followed.view.table, reason)
    return stop_record(followed)


def is_behind(record: Record, end: Positions) -> bool:
    """Return whether a record is at or past an end."""
    return record.offset >= end.get(record.topic_partition)


def note_visible_positions(followed: AppliedView, batch: ViewBatch) -> None:
    """Advance the source positions that the rows' provenance shows. A lower bound for lag only.

    It does not prove that all earlier events are read.
    """
    shown: dict[TopicPartition, int] = {}
    for change in batch.changes:
        for origin in filter(None, (change.sources or {}).values()):
            at = TopicPartition(origin["topic"], origin["partition"])
            shown[at] = max(origin["offset"] + 1, shown.get(at, 0))
    followed.visible = followed.visible.advanced(Positions(shown))


def report_positions(followed: AppliedView, records: dict[str, Any]) -> None:
    """Add the source positions that a real-time view's rows show to the store's ``records``, now and then."""
    now = epoch_ms()
    if (
        followed.visible != followed.visible_reported
        and now - followed.visible_reported_ms >= _VISIBLE_EVERY_MS
    ):
        followed.visible_reported, followed.visible_reported_ms = followed.visible, now
        records[f"seen:{followed.view.table}"] = position_record(followed.visible, now)
