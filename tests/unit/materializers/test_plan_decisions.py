"""Decisions of a plan: whether a state fits, how a generation begins, how long a batch may be silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hub.config import Settings
from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.engine.plans.generations import Beginning, StateVerdict, judge_state, next_beginning
from hub.materializers.engine.stall_watch import limit_s
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.progress.records import PROGRESS_TOPIC, Mode, Progress
from hub.materializers.versions.versions import Version, VersionDefinition
from hub.record import Positions

NOTE = {"fingerprint": "one", "topics": {"a": "id-a", "b": "id-b"}}
SAME = {"a": "id-a", "b": "id-b"}


@pytest.mark.parametrize(
    ("fingerprint", "topics", "exists", "verdict"),
    [
        ("one", SAME, True, "fits"),
        ("one", {**SAME, "c": "joined"}, True, "fits"),
        ("two", SAME, True, "other plan"),
        ("one", {**SAME, "b": "recreated"}, True, "other topics"),
        ("one", {"a": "id-a"}, True, "other topics"),
        ("two", {"a": "id-a"}, True, "other topics"),
        ("one", SAME, False, "missing"),
        ("two", {}, False, "missing"),
    ],
)
def test_a_state_fits_the_same_plan_over_the_same_topics(
    fingerprint: str, topics: dict[str, str], exists: bool, verdict: StateVerdict
) -> None:
    assert judge_state(NOTE, fingerprint, topics, exists=exists) == verdict


def version(*, plain: bool) -> Version:
    return Version(2, plain, "served", VersionDefinition("t", "b", "f"), "first", 1)


@pytest.mark.parametrize(
    ("known", "replaces_rows", "has_rows", "beginning"),
    [
        (None, False, False, "in place"),
        (version(plain=True), True, True, "in place"),
        (version(plain=False), True, True, "in place"),
        (version(plain=True), False, False, "beside"),
        (version(plain=True), False, True, "beside"),
        (version(plain=False), False, True, "beside"),
        (version(plain=False), False, False, "first"),
    ],
)
def test_rows_that_are_read_are_not_overwritten_from_nothing(
    known: Version | None, replaces_rows: bool, has_rows: bool, beginning: Beginning
) -> None:
    assert next_beginning(known, replaces_rows=replaces_rows, has_rows=has_rows) == beginning


@pytest.mark.parametrize(
    ("mode", "delta", "limit"),
    [("live", False, 300.0), ("bulk", True, 1_200.0), ("realtime", False, 900.0)],
)
def test_a_batch_that_cannot_show_progress_may_be_silent_longer(
    mode: Mode, delta: bool, limit: float
) -> None:
    settings = Settings(stalled_batch_s=300.0, realtime_checkpoint_s=300.0)
    assert limit_s(settings, mode, delta=delta) == limit
    assert limit_s(settings.model_copy(update={"stalled_batch_s": 0.0}), mode, delta=delta) == 0.0


def test_a_disk_that_damages_everything_does_not_have_a_view_built_for_ever(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "v", "v@2", 3)
    for generation in (1, 2, 3):
        folder.check_rebuilds()
        folder.begin(generation, {"fingerprint": "one"})
        assert folder.generations() == [generation]
        folder.set_aside(folder.of(generation), "metadata is empty\nand more")
    with pytest.raises(PeerError, match="corrupt 3 times within an hour") as raised:
        folder.check_rebuilds()
    assert raised.value.code == "HUB-3064"
    assert folder.why_lost(3).startswith("its checkpoint is corrupt: metadata is empty (kept in ")
    assert folder.why_lost(2) == "its checkpoint is lost"
    CheckpointFolder(tmp_path, "v", "v@2", 0).check_rebuilds()


def test_a_note_that_is_garbled_costs_the_state_that_it_described(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "v", "v", 3)
    assert folder.note() is None
    folder.begin(4, {"fingerprint": "one", "topics": {}})
    assert folder.note() == {"generation": 4, "fingerprint": "one", "topics": {}}
    (folder.path / "plan.json").write_bytes(b'{"generation": 4')
    assert folder.note() is None
    assert folder.generations() == [] and not (folder.path / "plan.json").exists()
    assert "plan.json was changed" in folder.why_lost(4)


def progress(generation: int, mode: Mode = "live", view: str = "v") -> Progress:
    return Progress(view, generation, 1, mode, Positions(), Positions(), 1, 1, 1)


def test_the_progress_of_a_source_view_is_that_of_its_latest_generation() -> None:
    cluster = MemoryCluster()
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    queue = ProgressQueue(cast(Any, cluster), cluster.writer())
    assert queue.live_of("v", None) is None
    assert queue.live_of("v", progress(2, "bulk")) is None, "keys may be missing"
    assert queue.live_of("v", progress(2)) == progress(2)
    queue.live["v"] = here = progress(3)
    assert queue.live_of("v", progress(3)) is here
    assert queue.live_of("v", progress(4)) == progress(4), "its own process has reported it"
    records = [progress(2, view="w"), progress(5, "realtime", "w"), progress(9, "bulk", "x")]
    cluster.writer().append([each.record() for each in records])
    queue.load_live({"v": "views.v", "w": "views.w", "x": "views.x"}, 10.0)
    assert queue.live == {"v": here, "w": progress(5, "realtime", "w")}
