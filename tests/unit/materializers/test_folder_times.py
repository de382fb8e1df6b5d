"""Frequent checks use the folder's time, and rarely its content."""

from __future__ import annotations

import os
from pathlib import Path

from hub.materializers.engine.file_watch import CommitWatch, ViewFolder


def at(folder: Path, time_ns: int) -> None:
    """Change the folder's time, independent of the kernel's clock."""
    os.utime(folder, ns=(time_ns, time_ns))


def test_spark_is_asked_when_a_batch_was_committed_until_it_tells_and_twice_a_second(
    tmp_path: Path,
) -> None:
    watch = CommitWatch(tmp_path)
    at(tmp_path, 1_000)
    asked = [watch.due(-1, now / 100) for now in range(100)]
    assert all(asked[:50]), "at once, until the batch is told or half a second is over"
    assert sum(asked[50:]) == 1, "then twice a second"

    at(tmp_path, 2_000)
    assert watch.due(-1, 1.01) and watch.due(-1, 1.02)
    assert not watch.due(7, 1.03), "it was told"
    assert not watch.due(7, 1.5) and watch.due(7, 1.53)


def test_a_checkpoint_that_is_not_there_yet_is_asked_for_too(tmp_path: Path) -> None:
    watch = CommitWatch(tmp_path / "commits")
    assert watch.due(-1, 10.0) and not watch.due(-1, 10.1)
    (tmp_path / "commits").mkdir()
    assert watch.due(-1, 10.11)


def test_the_files_of_views_are_listed_when_their_folder_has_changed(tmp_path: Path) -> None:
    folder = ViewFolder(tmp_path)
    assert folder.files() == []
    views = tmp_path / "views"
    views.mkdir()
    (views / "b.yaml").touch()
    (views / "a.yaml").touch()
    at(views, 1_000)
    assert [path.name for path in folder.files()] == ["a.yaml", "b.yaml"]
    (views / "a.yaml").unlink()
    at(views, 1_000)
    assert len(folder.files()) == 2, "its time is the same: not yet"
    at(views, 2_000)
    assert [path.name for path in folder.files()] == ["b.yaml"]
    (views / "c.yaml").touch()
    at(views, 2_000)
    folder.next_s = 0.0  # a second later
    assert len(folder.files()) == 2, "changed twice within one tick of the clock"
