"""Polling frequency of the live views of a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hub.config import Settings
from hub.log import MemoryCluster
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.planner import ViewPlanner
from hub.materializers.engine.running_query import ViewQuery
from hub.materializers.spark import session as spark
from hub.materializers.spark.checkpoints import committed_batches


@pytest.mark.parametrize(("views", "pause_ms"), [(1, 50), (5, 50), (6, 60), (40, 400)])
def test_many_views_ask_together_no_oftener_than_a_hundred_times_a_second(
    views: int, pause_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(committed_batches, "forget_state_of_no_batch", lambda *_: None)
    monkeypatch.setattr(
        spark, "start", lambda _session, _plan, settings, _mode: asked.append(settings.trigger_ms)
    )
    (tmp_path / "views").mkdir()
    for number in range(views):
        (tmp_path / "views" / f"v{number}.yaml").write_text("")
    none = cast(Any, None)
    settings = Settings(project=tmp_path)
    parts = EngineParts(settings, none, none, cast(Any, MemoryCluster()), none, none, none, none)
    name = VersionName(tmp_path / "views" / "v0.yaml")
    plan = spark.ViewPlan(none, (), none, none, 1, 1, tmp_path, 2)
    query = ViewQuery(parts, name, ViewPlanner(parts, name), none, none, plan, "live")
    query.start_streaming(whole=True)
    assert asked == [pause_ms]
