"""Reports of batches by a view's engine: never while a store may hold rows that the state does not have
yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hub.config import Settings
from hub.log import MemoryCluster
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.engine.batch_reports import BatchReports
from hub.materializers.engine.life_cycle import advance, mode_of
from hub.materializers.engine.life_events import QueryStarted, ReportState, ViewLife
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.planner import ViewPlanner
from hub.materializers.engine.running_query import running_standing
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.progress.records import Mode
from hub.materializers.spark import session as spark
from hub.materializers.spark.checkpoints import committed_batches
from hub.materializers.spark.formats.decode import Input, SchemaAnswers
from hub.materializers.spark.slots import Slots
from hub.materializers.versions.version_log import VersionLog
from hub.record import NewRecord, Positions

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}]}


class Stage:
    """The reports of one view, its log with events in it, no Spark."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic("in", partitions=1, config={}, replication_factor=1)
        self.events(10)
        view = View.model_validate(
            {"view": "v", "sources": {"s": {"topic": "in", "key": "k"}}, "fields": {"k": "s.k"}}
        )
        compiled = shape(view, {"s": SCHEMA})
        inputs = (Input(compiled.sources[0], ("in",), (), SCHEMA),)
        self.plan = spark.ViewPlan(compiled, inputs, SchemaAnswers(), SCHEMA, 1, 1, folder, 2)
        self.board = ProgressQueue(cast(Any, self.cluster), self.cluster.writer())
        none = cast(Any, None)
        cluster = cast(Any, self.cluster)
        versions, slots = VersionLog(cluster, self.cluster.writer()), Slots(4, 4, 8)
        self.parts = EngineParts(Settings(), none, slots, cluster, none, self.board, versions, none)
        self.path = folder / "v.yaml"
        self.planner = ViewPlanner(self.parts, VersionName(self.path))
        self.planner.view = view
        self.reports = BatchReports(self.parts, "v", self.planner)

    def events(self, count: int) -> None:
        self.cluster.writer().append([NewRecord("in", b"k", b"v", partition=0)] * count)

    def commits(self, offset: int, mode: Mode) -> None:
        self.reports.report(
            self.plan, committed_batches.CommittedBatch(1, Positions.of([("in", 0, offset)]), 1, 1), mode
        )

    @property
    def told(self) -> int | None:
        progress = self.board.progress.get("v")
        return None if progress is None else dict(progress[0].sources)[next(iter(progress[0].sources))[0]]

    @property
    def read_at_ms(self) -> int | None:
        return self.board.progress["v"][0].read_at_ms


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_micro_batch_view_tells_of_every_batch(stage: Stage) -> None:
    stage.reports.begin(stage.plan)
    stage.commits(4, "live")
    assert stage.told == 4


def test_after_a_stop_in_real_time_nothing_is_told_before_all_that_may_have_been_read(stage: Stage) -> None:
    (stage.plan.checkpoint / "hub.realtime").touch()
    stage.reports.begin(stage.plan)
    stage.events(5)  # of these nothing was read before
    stage.commits(9, "live")
    assert stage.told is None
    stage.commits(10, "realtime")
    assert stage.told == 10


def test_a_new_checkpoint_into_which_real_time_mode_wrote_nothing_holds_nothing_back(stage: Stage) -> None:
    mark = stage.plan.checkpoint / "hub.realtime"
    mark.touch()
    stage.reports.begin(stage.plan)
    stage.commits(4, "live")
    assert stage.told is None
    mark.unlink()
    stage.reports.begin(stage.plan)
    stage.commits(4, "live")
    assert stage.told == 4


def test_a_micro_batch_past_it_ends_the_caution_a_checkpoint_does_not(stage: Stage) -> None:
    mark = stage.plan.checkpoint / "hub.realtime"
    mark.touch()
    stage.reports.begin(stage.plan)
    stage.commits(10, "realtime")
    assert mark.exists()
    stage.commits(9, "live")
    assert mark.exists()
    stage.commits(10, "live")
    assert not mark.exists()


def test_when_a_batch_took_its_events_is_told_where_spark_notes_it_and_never_of_real_time(
    stage: Stage,
) -> None:
    stage.commits(2, "live")
    assert stage.read_at_ms is None  # nothing is logged
    (stage.plan.checkpoint / "offsets").mkdir()
    noted = stage.plan.checkpoint / "offsets" / "1"
    for unreadable in (
        "",
        "v1",
        "v1\n[]",
        "v1\n{}",
        'v1\n{"batchTimestampMs":0}',
        'v1\n{"batchTimestampMs":"x"}',
    ):
        noted.write_text(unreadable)
        stage.commits(2, "live")
        assert stage.read_at_ms is None, unreadable
    noted.write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795338371070}\n{"in":{"0":3}}')
    stage.commits(3, "live")
    assert stage.read_at_ms == 1_795_338_371_070
    stage.commits(4, "realtime")
    assert stage.read_at_ms is None
    (stage.plan.checkpoint / "hub.realtime").touch()
    stage.commits(5, "live")  # real-time mode may have begun it
    assert stage.read_at_ms is None
    stage.commits(6, "live")
    assert stage.read_at_ms == 1_795_338_371_070


@pytest.mark.parametrize(("same", "rows"), [(True, 1_000), (False, 0)])
def test_a_catch_up_that_ended_is_told_live_with_its_events_and_its_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, same: bool, rows: int
) -> None:
    """The checkpoint's files have neither; and the next word of a view that has caught up
    replaces the one before."""
    reached = Positions.of([("in", 0, 10)])
    told = committed_batches.CommittedBatch(3, reached if same else Positions.of([("in", 0, 9)]), 1_000, 250)
    monkeypatch.setattr(committed_batches, "last_batch", lambda query, seen: told)
    monkeypatch.setattr(
        committed_batches,
        "committed_batch",
        lambda checkpoint: committed_batches.CommittedBatch(3, reached, 0, 0),
    )
    batch = stage.reports.last_batch(stage.plan, cast(Any, None), -1)
    assert batch is not None and batch.batch_id == 3
    stage.reports.report_batch(stage.plan, batch, "bulk", cast(Any, None), None)
    assert stage.reports.count_unread(stage.plan) == 0
    progress = stage.board.progress["v"][0]
    assert (progress.mode, progress.input_rows, progress.batch_ms) == ("live", rows, rows // 4)


def test_a_batch_that_was_begun_before_real_time_is_waited_for_as_well(stage: Stage) -> None:
    """Real-time mode forgets where that batch was to end, and its rows may be in a store."""
    for kind, last in (("commits", 3), ("offsets", 3)):
        (stage.plan.checkpoint / kind).mkdir()
        (stage.plan.checkpoint / kind / str(last)).touch()
    assert not committed_batches.is_uncommitted(stage.plan.checkpoint)
    (stage.plan.checkpoint / "offsets" / ".4.crc").touch()
    assert not committed_batches.is_uncommitted(stage.plan.checkpoint)
    (stage.plan.checkpoint / "offsets" / "4").touch()
    assert committed_batches.is_uncommitted(stage.plan.checkpoint)


@pytest.mark.parametrize(
    ("mode", "begun", "done", "kept"),
    [
        ("realtime", (), (), False),
        ("live", (), (), False),
        ("live", (0,), (), True),  # that batch is run again, on its own output
        ("realtime", (0,), (), False),  # it is not
        ("realtime", (0,), (0,), True),
        ("live", (0, 1), (0,), True),
    ],
)
def test_state_that_no_batch_has_committed_does_not_keep_a_view_from_beginning(
    tmp_path: Path, mode: Mode, begun: tuple[int, ...], done: tuple[int, ...], kept: bool
) -> None:
    (tmp_path / "state/0/0/_metadata").mkdir(parents=True)
    for kind, batches in (("offsets", begun), ("commits", done)):
        (tmp_path / kind).mkdir()
        for batch in batches:
            (tmp_path / kind / str(batch)).touch()
    committed_batches.forget_state_of_no_batch(tmp_path, mode)
    assert (tmp_path / "state").exists() == kept


def test_real_time_is_the_served_versions_once_it_is_warm_and_the_other_one_has_left(stage: Stage) -> None:
    slots = stage.parts.slots
    assert stage.planner.view is not None
    stage.planner.view = stage.planner.view.model_copy(update={"mode": "realtime"})

    def mode(*, warm: bool = True) -> Mode:
        name = VersionName(stage.path)
        return mode_of(ViewLife(warm=warm), running_standing(stage.parts, name, stage.planner))

    assert mode(warm=False) == "live", "it is not warm"
    assert mode() == "realtime"
    assert slots.enter("v", "v@2")
    assert mode() == "live"
    slots.leave("v", "v@2")
    assert slots.enter("v", "v")
    assert mode() == "realtime"
    slots.leave("v", "v")
    other = VersionName(stage.path, 2)  # a version that is built while another serves
    planner = ViewPlanner(stage.parts, other)
    planner.view = stage.planner.view
    standing = running_standing(stage.parts, other, planner)
    life = ViewLife("live", warm=True)
    assert mode_of(life, standing) == "live"
    (reported,) = advance(life, QueryStarted(standing))[1]
    assert isinstance(reported, ReportState) and "version that is served" in (reported.reason or "")
